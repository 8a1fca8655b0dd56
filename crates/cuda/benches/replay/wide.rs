//! Graphs with many empty kernels side by side: ours, with one beginning and one end, and the driver's of the same nodes and edges.

use std::time::Instant;

use cudarc::driver::sys::CUgraphExec;
use phonograph_cuda::{Bindings, Cuda, Exec, Function, Stream};
use phonograph_graph::{ComputeGraph, GraphBuilder, NodeId, Schedule};

use crate::raw::{Raw, issue};
use crate::{Outcome, median};

/// Nodes beyond which the driver's own graph is left out: it was not seen to be made in 15 s.
const MOST: usize = 50_000;

pub fn table(cuda: &mut Cuda, empty: &Function) -> Outcome {
    println!(
        "{:<22} {:>26} {:>26} {:>34}",
        "wide, ours / driver", "replay, µs", "in a row, µs", "made, instantiated, uploaded, ms"
    );
    for (width, levels) in [(2, 10), (4, 10), (8, 100), (32, 32), (100, 10), (500, 2), (1000, 1)] {
        row(cuda, empty, &format!("{width} × {levels}"), &columns(width, levels))?;
    }
    for (width, levels) in [(4, 10), (32, 32), (100, 10)] {
        row(cuda, empty, &format!("{width} × {levels}, crossed"), &crossed(width, levels))?;
    }
    row(cuda, empty, "1000 joined", &joined(1000))?;
    row(cuda, empty, "chain of 500, leaves", &comb(500))?;
    row(cuda, empty, "binary tree of 1023", &tree(1023))?;
    row(cuda, empty, "10000 × 1", &columns(10_000, 1))?;
    row(cuda, empty, "100000 × 1", &columns(100_000, 1))
}

/// Of each node, those before it.
type Shape = Vec<Vec<usize>>;

fn columns(width: usize, levels: usize) -> Shape {
    (0..width * levels).map(|at| at.checked_sub(width).into_iter().collect()).collect()
}

/// Each after two of the level before.
fn crossed(width: usize, levels: usize) -> Shape {
    let above = |at: usize| {
        let (level, column) = (at / width, at % width);
        let from = |column: usize| (level - 1) * width + column % width;
        match level {
            0 => Vec::new(),
            _ => vec![from(column), from(7 * column + 3 * level + 1)],
        }
    };
    let mut shape: Shape = (0..width * levels).map(above).collect();
    shape.iter_mut().for_each(Vec::dedup);
    shape
}

fn joined(width: usize) -> Shape {
    (0..width).map(|_| Vec::new()).chain([(0..width).collect()]).collect()
}

/// A chain at whose every node a leaf hangs.
fn comb(length: usize) -> Shape {
    let pair = |at: usize| [(2 * at).checked_sub(2).into_iter().collect(), vec![2 * at]];
    (0..length).flat_map(pair).collect()
}

fn tree(nodes: usize) -> Shape {
    (0..nodes).map(|at| at.checked_sub(1).map(|at| at / 2).into_iter().collect()).collect()
}

fn graph(shape: &Shape) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let ids: Vec<NodeId> = shape.iter().map(|_| b.add_kernel("empty", 1, 32, 0).finish()).collect();
    for (to, from) in shape.iter().enumerate() {
        from.iter().for_each(|&from| {
            b.dep(ids[from], ids[to]);
        });
    }
    b.build().expect("a graph without a cycle")
}

fn row(cuda: &mut Cuda, empty: &Function, name: &str, shape: &Shape) -> Outcome {
    let device = cuda.devices()[0].clone();
    let stream = Stream::new(&device)?;
    let graph = graph(shape);
    // SAFETY: the kernel does nothing.
    let bindings = unsafe { Bindings::new().kernel("empty", empty) };
    let schedule = Schedule::sequential(&graph);
    let rounds = (20_000 / shape.len()).clamp(2, 5);
    let (mut made, mut exec): (Vec<f64>, Option<Exec>) = (Vec::new(), None);
    for _ in 0..rounds {
        drop(exec.take());
        let start = Instant::now();
        let new = cuda.instantiate(&graph, &schedule, &bindings)?;
        made.push(start.elapsed().as_secs_f64() * 1e3);
        // Nobody else gets an executable whose handle is known.
        assert_eq!(new.handles().len().min(1), 1);
        exec = Some(new);
    }
    let mut exec = exec.expect("there was a round");
    let times = (300_000 / shape.len()).clamp(10, 200);
    let mut ours =
        || -> Result<(), Box<dyn std::error::Error>> { Ok(cuda.launch(&mut exec, &stream)?) };
    // The driver keeps the streams that its own graph takes, so ours is measured before there are any.
    let mine = [waited(&mut ours, &stream, times)?, in_a_row(&mut ours, &stream, times)?];
    if shape.len() > MOST {
        let [replay, row] = mine;
        println!("{name:<22} {replay:>26.0} {row:>26.0} {:>34.1}", median(made));
        return Ok(());
    }
    let mut took = Vec::new();
    let mut raw = None;
    for _ in 0..rounds {
        drop(raw.take());
        let new = Raw::of(&device, empty, &stream, shape);
        took.push(new.took.iter().sum::<f64>() / 1e6);
        raw = Some(new);
    }
    let handle: CUgraphExec = raw.as_ref().expect("there was a round").exec;
    let mut theirs = || -> Outcome {
        issue(handle, &stream);
        Ok(())
    };
    let driver = [waited(&mut theirs, &stream, times)?, in_a_row(&mut theirs, &stream, times)?];
    let beside = |ours: f64, driver: f64, digits: usize| {
        format!("{ours:.digits$} / {driver:.digits$} = {:.2}", ours / driver)
    };
    println!(
        "{name:<22} {:>26} {:>26} {:>34}",
        beside(mine[0], driver[0], 0),
        beside(mine[1], driver[1], 0),
        beside(median(made), median(took), 1),
    );
    Ok(())
}

/// Microseconds of a replay, from the call to the end of the work.
fn waited(
    launch: &mut dyn FnMut() -> Outcome,
    stream: &Stream,
    times: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut all = Vec::new();
    for _ in 0..times {
        let start = Instant::now();
        launch()?;
        stream.synchronize()?;
        all.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    Ok(median(all))
}

/// Microseconds a replay of many that nobody waits for in between, the median of three such rows.
fn in_a_row(
    launch: &mut dyn FnMut() -> Outcome,
    stream: &Stream,
    times: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut rows = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        (0..times).try_for_each(|_| launch())?;
        stream.synchronize()?;
        rows.push(start.elapsed().as_nanos() as f64 / 1e3 / times as f64);
    }
    Ok(median(rows))
}
