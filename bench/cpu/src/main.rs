//! Replaying prebuilt task graphs beside Taskflow, oneTBB's flow graph and rayon, in one process and in turn.
//!
//! `bench/cpu/run` fetches the peers, builds this and runs it. The graphs, the rayon executor and the check of the order are those
//! of `crates/phonograph/benches/replay`. A task is one call through a pointer, the same in all of them. Everything is built
//! beforehand, which the second table times; the first has medians of replays. With `--quick` the graphs are small.

mod peer;

#[path = "../../../crates/phonograph/benches/replay/executors.rs"]
mod executors;

use std::convert::Infallible;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use executors::{
    Failure, GRAPHS, Graph, RayonGraph, check, check_executors, freeze, median, timed,
};
use peer::{Body, Library, Peer};
use phonograph_runtime::cpu::{TaskId, Team};

#[inline(never)]
extern "C" fn nothing(_: *const c_void, task: u32) {
    black_box(task);
}

/// A body that asks what it was lent for a check.
extern "C" fn lent(context: *const c_void, task: u32) {
    // SAFETY: `check_peer` lends a pointer to this for the time of the replay.
    let body = unsafe { *context.cast::<&(dyn Fn(u32) + Sync)>() };
    body(task);
}

fn check_peer(graph: &Graph, library: Library, peer: &mut Peer) -> Result<(), Failure> {
    check(graph, library.name(), |body| {
        let bodies: Vec<Body> = vec![lent; graph.tasks()];
        // SAFETY: `body` may be called by several threads, and outlives the call.
        unsafe { peer.replay(&bodies, ptr::from_ref(&body).cast()) }
    })
}

fn milliseconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let began = Instant::now();
    let made = work();
    (began.elapsed().as_secs_f64() * 1e3, made)
}

fn main() -> Result<(), Failure> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (tasks, repetitions) = if quick { (1 << 10, 3) } else { (1 << 20, 21) };
    let (mut replays, mut builds) = (Vec::new(), Vec::new());
    for (kind, times) in GRAPHS {
        let graph = Graph::generate(kind, times * tasks - (times - 1))?;
        let (rayon_ms, rayon) = milliseconds(|| RayonGraph::new(&graph));
        let table: Vec<Body> = black_box(vec![nothing; graph.tasks()]);
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build()?;
            let mut team = Team::new(threads)?;
            let frozen = freeze(&graph, threads)?;
            let [taskflow, tbb] = [Library::Taskflow, Library::Tbb].map(|library| {
                let (ms, peer) = milliseconds(|| Peer::new(library, threads, &graph));
                peer.map(|peer| (ms, library, peer))
            });
            let mut peers = [taskflow?, tbb?];

            for (_, library, peer) in &mut peers {
                check_peer(&graph, *library, peer)?;
            }
            check_executors(&graph, (&rayon, &pool), (&mut team, &frozen))?;

            let call = |task: u32| table[task as usize](ptr::null(), task);
            let body = |task: TaskId| {
                call(task.0);
                Ok::<(), Infallible>(())
            };
            let mut samples: [Vec<f64>; 5] = Default::default();
            for _ in 0..repetitions {
                for ((_, _, peer), samples) in peers.iter_mut().zip(&mut samples) {
                    let mut outcome = Ok(());
                    // SAFETY: `nothing` takes whatever it is given.
                    let replay = || outcome = unsafe { peer.replay(&table, ptr::null()) };
                    samples.push(timed(graph.tasks(), replay));
                    outcome?;
                }
                samples[2].push(timed(graph.tasks(), || rayon.replay(&pool, &call)));
                let mut outcome = Ok(());
                let replay = || outcome = team.replay(&frozen.program, &body);
                samples[3].push(timed(graph.tasks(), replay));
                outcome?;
                samples[4].push(timed(graph.tasks(), || (0..graph.tasks() as u32).for_each(call)));
            }
            let [taskflow, tbb, rayon, ours, calls] = samples.map(median);
            replays.push(format!(
                "{:<10} {threads:>7} {taskflow:>9.2} {tbb:>9.2} {rayon:>9.2} {ours:>9.2} {:>10.3} {calls:>7.2}",
                graph.name,
                ours / taskflow.min(tbb).min(rayon),
            ));
            builds.push(format!(
                "{:<10} {threads:>7} {:>9.0} {:>9.0} {rayon_ms:>9.0} {:>9.0}",
                graph.name,
                peers[0].0,
                peers[1].0,
                frozen.lanes_ms + frozen.freeze_ms,
            ));
        }
    }
    let [taskflow, tbb] = [Library::Taskflow, Library::Tbb].map(Library::version);
    println!("Taskflow {taskflow}, oneTBB {tbb}");
    println!("ns a task, median of {repetitions} replays in turn; tasks of one indirect call each");
    println!(
        "{:<10} {:>7} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7}",
        "graph", "threads", "Taskflow", "oneTBB", "rayon", "ours", "ours/best", "calls"
    );
    replays.iter().for_each(|row| println!("{row}"));
    println!("ms to make what is replayed");
    builds.iter().for_each(|row| println!("{row}"));
    Ok(())
}
