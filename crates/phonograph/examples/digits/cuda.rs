//! Training on CUDA: the same graphs, optimised for the device and replayed by the driver.

use std::error::Error;
use std::time::Instant;

use indicatif::ProgressBar;
use phonograph::cuda::{Bindings, Cuda, Exec, Memory};
use phonograph::graph::ComputeGraph;
use phonograph::plan::ExecutionPlan;
use phonograph::plan::passes::{Pass, optimize};
use phonograph::runtime::cpu::kernels::Element;

use crate::Options;
use crate::data::Digits;
use crate::device::Device;
use crate::network::{self, BATCH, PARAMETERS};
use crate::training::{self, COMPARED, TOLERANCE, kernels, median};

/// Lanes that the memory plan keeps apart.
const STREAMS: usize = 8;

/// What training with one seed gave.
pub struct Outcome {
    pub seed: u64,
    /// Share of the held-out digits that are named right.
    pub accuracy: f64,
    pub loss: f32,
    /// The largest relative difference of a loss from the CPU's among the first [`COMPARED`] steps.
    pub difference: f32,
    /// Time of a step while training, steps issued one after the other.
    pub step_ns: u64,
    /// Median time from the launch of a step, its slots set, to its end.
    pub alone_ns: u64,
    /// The same without setting slots.
    pub replay_ns: u64,
    pub kernels: usize,
}

/// Trains with one seed and classifies the digits held out.
pub fn train(
    cuda: &mut Cuda,
    digits: &Digits,
    seed: u64,
    options: &Options,
    threads: u32,
    bar: &ProgressBar,
) -> Result<Outcome, Box<dyn Error>> {
    let mut shared: Vec<(&str, Memory)> = Vec::new();
    for (name, extents) in PARAMETERS {
        shared.push((name, cuda.alloc(network::bytes(extents) as u64)?));
    }
    let initial = network::initialise(seed)?;
    let (_, mut draw) = ready(cuda, &initial, options, &shared)?;
    cuda.replay(&mut draw)?;

    let count = digits.train.labels.len();
    let step = network::training_step(count as u64)?;
    let (graph, mut exec) = ready(cuda, &step.graph, options, &shared)?;
    write(cuda, &graph, &exec, "pixels", &digits.train.pixels)?;
    write(cuda, &graph, &exec, "labels", &digits.train.labels)?;
    let order = exec.memory(step.order).ok_or("the order has memory")?.clone();
    let loss = exec.memory(step.loss).ok_or("the loss has memory")?.clone();
    let stream = phonograph::cuda::Stream::new(&cuda.devices()[0].clone())?;

    let mut cpu = Device::open(crate::Backend::Cpu, threads)?;
    let expected = training::losses(&mut cpu, digits, seed, options, threads)?;
    let mut difference = 0f32;
    let mut start = Instant::now();
    for at in 0..options.steps {
        let now = training::at_step(at, seed, options, count);
        if let Some(rows) = &now.order {
            cuda.write(&order, rows)?;
        }
        exec.set(step.start, now.start)?;
        exec.set(step.rate, now.rate)?;
        cuda.launch(&mut exec, &stream)?;
        if let Some(expected) = expected.get(at as usize) {
            let found = cuda.read::<f32>(&loss)?[0];
            let now = (found - expected).abs() / expected;
            // A NaN is no small difference.
            difference = if now.is_nan() { f32::INFINITY } else { difference.max(now) };
            start = Instant::now();
        }
        bar.inc(1);
    }
    cuda.finish(&mut exec)?;
    let timed = u64::from(options.steps).saturating_sub(expected.len() as u64).max(1);
    let step_ns = start.elapsed().as_nanos() as u64 / timed;
    let last_loss = cuda.read::<f32>(&loss)?[0];
    let accuracy = evaluate(cuda, digits, options, &shared)?;
    // From here on the parameters are only a place to measure in.
    let (mut alone, mut replay) = (Vec::new(), Vec::new());
    for turn in 0..2000u32 {
        let with_slots = turn % 2 == 0;
        let start = Instant::now();
        if with_slots {
            exec.set(step.start, turn % 9 * BATCH as u32)?;
            exec.set(step.rate, 1e-4 / (turn + 1) as f32)?;
        }
        cuda.launch(&mut exec, &stream)?;
        stream.synchronize()?;
        let times = if with_slots { &mut alone } else { &mut replay };
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(Outcome {
        seed,
        accuracy,
        loss: last_loss,
        difference,
        step_ns,
        alone_ns: median(&mut alone),
        replay_ns: median(&mut replay),
        kernels: kernels(&graph),
    })
}

/// Optimises a graph for the device and instantiates it with the parameters bound.
fn ready(
    cuda: &mut Cuda,
    graph: &ComputeGraph,
    options: &Options,
    shared: &[(&str, Memory)],
) -> Result<(ComputeGraph, Exec), Box<dyn Error>> {
    let weak_edges = cuda.devices()[0].capability() >= (9, 0);
    let level = if weak_edges { 3 } else { 2 };
    let passes = Pass::of_level(level).iter().copied();
    let passes: Vec<Pass> =
        passes.filter(|&pass| !(options.unfused && pass == Pass::Fusion)).collect();
    // Passes keep the ids of buffers and slots.
    let (graph, _) = optimize(graph, &passes, |_, _| {})?;
    let plan = ExecutionPlan::build(&graph, STREAMS)?;
    let schedule = plan.schedule().ok_or("a plan of a graph has a schedule")?;
    let mut bindings = Bindings::new();
    for (name, memory) in shared {
        bindings = bindings.memory(network::buffer(&graph, name)?, memory);
    }
    let exec = cuda.instantiate(&graph, schedule, &bindings)?;
    Ok((graph, exec))
}

fn write<T: Element>(
    cuda: &mut Cuda,
    graph: &ComputeGraph,
    exec: &Exec,
    name: &str,
    values: &[T],
) -> Result<(), Box<dyn Error>> {
    let memory = exec.memory(network::buffer(graph, name)?);
    Ok(cuda.write(memory.ok_or("external buffers have memory")?, values)?)
}

/// The share of held-out digits that the second graph names right.
fn evaluate(
    cuda: &mut Cuda,
    digits: &Digits,
    options: &Options,
    shared: &[(&str, Memory)],
) -> Result<f64, Box<dyn Error>> {
    let graph = network::classification(digits.test.labels.len() as u64)?;
    let (graph, mut exec) = ready(cuda, &graph, options, shared)?;
    write(cuda, &graph, &exec, "pixels", &digits.test.pixels)?;
    cuda.replay(&mut exec)?;
    let guesses = exec.memory(network::buffer(&graph, "guesses")?).ok_or("guesses have memory")?;
    Ok(training::share_right(&cuda.read::<i32>(guesses)?, &digits.test.labels))
}

/// Prints the figures; the last line is the median accuracy.
///
/// # Errors
/// If a loss is farther from the CPU's than [`TOLERANCE`].
pub fn report(outcomes: &mut [Outcome]) -> Result<(), Box<dyn Error>> {
    let micros = |ns: u64| ns as f64 / 1e3;
    for outcome in &*outcomes {
        println!(
            "  seed {:<4} accuracy {:.1} %, last loss {:.4}; first {COMPARED} losses within {:.1e} of the CPU's; {} kernels; a step {:.1} µs in a row, {:.1} µs alone, {:.1} µs without new slots",
            outcome.seed,
            outcome.accuracy * 100.0,
            outcome.loss,
            outcome.difference,
            outcome.kernels,
            micros(outcome.step_ns),
            micros(outcome.alone_ns),
            micros(outcome.replay_ns),
        );
    }
    outcomes.sort_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let median = outcomes[outcomes.len() / 2].accuracy;
    println!("accuracy {:.1} % (median of {})", median * 100.0, outcomes.len());
    match outcomes.iter().find(|outcome| outcome.difference > TOLERANCE) {
        Some(off) => Err(format!(
            "seed {}: a loss is {:.1e} from the CPU's; the tolerance is {TOLERANCE:.0e}",
            off.seed, off.difference
        )
        .into()),
        None => Ok(()),
    }
}
