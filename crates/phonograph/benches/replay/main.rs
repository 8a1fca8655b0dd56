//! What replaying a task costs apart from the task, beside a plain rayon executor.
//!
//! Four graphs, with one and two threads. A task is one call through a pointer. Both executors are built beforehand;
//! their repetitions alternate, so that both see the same machine, and the medians are printed. The column `calls` is a
//! loop over the same pointers: what no executor on one thread can be faster than.
//!
//! Run by `cargo bench`; without `--bench`, as `cargo test` does it, small graphs are replayed and the order checked.

mod executors;

use std::convert::Infallible;
use std::hint::black_box;

use executors::{Failure, GRAPHS, Graph, RayonGraph, check_executors, freeze, median, timed};
use phonograph_runtime::cpu::{TaskId, Team};

#[inline(never)]
fn nothing(task: u32) {
    black_box(task);
}

fn main() -> Result<(), Failure> {
    let measure = std::env::args().any(|arg| arg == "--bench");
    let (tasks, repetitions) = if measure { (1 << 20, 31) } else { (1 << 10, 3) };
    let mut rows = Vec::new();
    for (kind, times) in GRAPHS {
        let graph = Graph::generate(kind, times * tasks - (times - 1))?;
        let rayon = RayonGraph::new(&graph);
        let table: Vec<fn(u32)> = black_box(vec![nothing; graph.tasks()]);
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build()?;
            let mut team = Team::new(threads)?;
            let frozen = freeze(&graph, threads)?;
            check_executors(&graph, (&rayon, &pool), (&mut team, &frozen))?;
            let call = |task: u32| table[task as usize](task);
            let body = |task: TaskId| {
                call(task.0);
                Ok::<(), Infallible>(())
            };
            let (mut theirs, mut ours, mut calls) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..repetitions {
                theirs.push(timed(graph.tasks(), || rayon.replay(&pool, &call)));
                let mut outcome = Ok(());
                ours.push(timed(graph.tasks(), || outcome = team.replay(&frozen.program, &body)));
                outcome?;
                calls.push(timed(graph.tasks(), || (0..graph.tasks() as u32).for_each(call)));
            }
            let (theirs, ours, calls) = (median(theirs), median(ours), median(calls));
            rows.push(format!(
                "{:<10} {threads:>7} {theirs:>10.2} {ours:>10.2} {:>7.2} {calls:>8.2} {:>8} {:>9.0} {:>10.0}",
                graph.name,
                ours / theirs,
                frozen.program.waits(),
                frozen.lanes_ms,
                frozen.freeze_ms
            ));
        }
    }
    println!(
        "ns a task, median of {repetitions} alternating repetitions; tasks of one indirect call each"
    );
    println!(
        "{:<10} {:>7} {:>10} {:>10} {:>7} {:>8} {:>8} {:>9} {:>10}",
        "graph", "threads", "rayon", "ours", "ratio", "calls", "waits", "lanes ms", "freeze ms"
    );
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}
