//! Ping-pong chains, replayed and eager, side by side in one run. Without an adapter it says so and measures nothing.
//!
//! A chain adds one to `x` into `y`, then to `y` into `x`, and so on. *Replay* is one graph of all kernels; *eager* launches
//! graphs of one kernel each, one after another: pipelines and bind groups are made beforehand there, too, so what it pays for is
//! a command buffer and a submission for each kernel. *Enqueue* is the time until the calls return, *end to end* until the
//! work is done. The *control* has kernels that keep the device busy for longer than a submission takes, so that both must
//! take as long. Times are medians of so many repetitions of either side, in turn: as many as fit [`PATIENCE`], and not
//! fewer than [`LEAST`], so that a row of slow kernels takes six runs and no more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phonograph_graph::{ComputeGraph, DType, Expr, GraphBuilder, Schedule, View};
use phonograph_wgpu::{Bindings, Exec, Memory, Wgpu};

type Error = Box<dyn std::error::Error>;

/// No repetition begins after so long in a row, unless there are too few.
const PATIENCE: Duration = Duration::from_millis(1200);
/// Repetitions of either side of a row, at least and at most.
const LEAST: usize = 3;
const MOST: usize = 200;

fn main() -> Result<(), Error> {
    let mut gpu = match Wgpu::new() {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    println!("{}\n", gpu.adapter());
    println!(
        "| kernels | elements | enqueue, µs a kernel, eager / replay | | end to end, µs a kernel, eager / replay | | repetitions |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let plain = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?;
    let plain = Arc::new(plain);
    for kernels in [150, 1000, 5000] {
        for elements in [64, 4096, 65_536, 1 << 20] {
            row(&mut gpu, &plain, kernels, elements, "")?;
        }
    }
    let busy = Expr::build(|e| {
        let x = e.input(DType::F32);
        e.output((0..64).fold(x, |x, _| x.tanh() * e.f32(1.01)));
    })?;
    let elements = if gpu.adapter().is_software() { 1 << 18 } else { 1 << 25 };
    row(&mut gpu, &busy.into(), 20, elements, ", control")
}

fn row(
    gpu: &mut Wgpu,
    expr: &Arc<Expr>,
    kernels: u64,
    elements: u64,
    note: &str,
) -> Result<(), Error> {
    let buffers = [gpu.alloc(4 * elements)?, gpu.alloc(4 * elements)?];
    let mut whole = instantiate(gpu, expr, elements, &buffers, 0, kernels)?;
    let mut parts = [0, 1].map(|first| instantiate(gpu, expr, elements, &buffers, first, 1));
    let [Ok(even), Ok(odd)] = &mut parts else {
        return Err("a kernel of its own is refused".into());
    };
    // Once each to have everything compiled and touched.
    gpu.replay(even)?;
    gpu.replay(odd)?;
    let mut replay = |gpu: &mut Wgpu| -> Result<[f64; 2], Error> {
        let start = Instant::now();
        gpu.launch(&mut whole)?;
        let called = start.elapsed();
        gpu.finish(&mut whole)?;
        Ok([called, start.elapsed()].map(|time| time.as_secs_f64() * 1e6 / kernels as f64))
    };
    let mut eager = |gpu: &mut Wgpu| -> Result<[f64; 2], Error> {
        let start = Instant::now();
        for at in 0..kernels {
            gpu.launch(if at % 2 == 0 { even } else { odd })?;
        }
        let called = start.elapsed();
        gpu.finish(even)?;
        gpu.finish(odd)?;
        Ok([called, start.elapsed()].map(|time| time.as_secs_f64() * 1e6 / kernels as f64))
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while ours.len() < LEAST || start.elapsed() < PATIENCE && ours.len() < MOST {
        if ours.len() % 2 == 0 {
            ours.push(replay(gpu)?);
            theirs.push(eager(gpu)?);
        } else {
            theirs.push(eager(gpu)?);
            ours.push(replay(gpu)?);
        }
    }
    let of = |all: &[[f64; 2]], at: usize| median(all.iter().map(|times| times[at]).collect());
    let pair = |at: usize| {
        let (eager, replay) = (of(&theirs, at), of(&ours, at));
        format!("{eager:.2} / {replay:.2} | {:.2}", eager / replay)
    };
    let count = ours.len();
    println!("| {kernels}{note} | {elements} | {} | {} | {count} |", pair(0), pair(1));
    Ok(())
}

/// A chain between the buffers, from the one with the number `first`.
fn instantiate(
    gpu: &mut Wgpu,
    expr: &Arc<Expr>,
    elements: u64,
    buffers: &[Memory; 2],
    first: u64,
    kernels: u64,
) -> Result<Exec, Error> {
    let (graph, ids) = chain(expr, elements, first, kernels)?;
    let bindings = ids.iter().zip(buffers);
    let bindings = bindings.fold(Bindings::new(), |all, (&id, memory)| all.memory(id, memory));
    Ok(gpu.instantiate(&graph, &Schedule::sequential(&graph), &bindings)?)
}

fn chain(
    expr: &Arc<Expr>,
    elements: u64,
    first: u64,
    kernels: u64,
) -> Result<(ComputeGraph, [phonograph_graph::BufferId; 2]), Error> {
    let mut b = GraphBuilder::new();
    let ids = ["x", "y"].map(|name| b.external_buffer(name, 4 * elements as usize));
    let view = |at: u64| View::contiguous(ids[at as usize % 2], DType::F32, &[elements]);
    for at in first..first + kernels {
        b.add_elementwise("step", expr.clone(), &[view(at)?], &[], &[view(at + 1)?]);
    }
    Ok((b.build()?, ids))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
