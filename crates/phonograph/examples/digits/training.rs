//! Training and evaluation: instantiate, replay, read.

use std::error::Error;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use phonograph::graph::{BufferId, BufferRole, ComputeGraph, Schedule, SlotId, check_rewrite};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::analysis::{Summary, summary};
use phonograph::plan::passes::{Pass, optimize};
use phonograph::runtime::cpu::Profile;
use phonograph::runtime::cpu::kernels::Element;

use crate::Options;
use crate::data::{Digits, permutation};
use crate::device::{Device, Exec, Memory};
use crate::network::{self, BATCH, PARAMETERS};

/// Of how many steps the losses are compared with the CPU's.
#[cfg(any(test, feature = "cuda"))]
pub const COMPARED: u32 = 20;
/// How far a loss may be from the CPU's, relative to it. Sums and products round as the device does, each sum by k ε Σ |aᵢ bᵢ| at
/// most: some 1e-5 of a loss. Adam then turns what is small into steps of full length, since it divides by the gradient's own
/// size.
#[cfg(any(test, feature = "cuda"))]
pub const TOLERANCE: f32 = 1e-2;
/// How long what is only measured may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What training with one seed gave.
pub struct Outcome {
    pub seed: u64,
    /// Share of the held-out digits that are named right.
    pub accuracy: f64,
    pub loss: f32,
    /// A hash of all parameters' bits, to compare runs.
    pub bits: u64,
    /// Median time of a step while training.
    pub step_ns: u64,
    /// Median time of a replay afterwards, in turns with the other graph's.
    pub replay_ns: u64,
    /// The same of the graph that was not trained with: kernel by kernel, if the fused one was.
    pub other_ns: u64,
    pub kernels: usize,
    pub other_kernels: usize,
    /// Median time of the same step run node by node from fresh instantiations.
    pub eager_ns: u64,
    pub summary: Summary,
    pub graph: ComputeGraph,
    pub schedule: Schedule,
    /// What a replay consists of, for people.
    pub parts: String,
    pub unshared_bytes: u64,
    /// When the nodes ran, if the device can tell.
    pub profile: Option<Profile>,
}

/// Trains with one seed and classifies the digits held out.
pub fn train(
    device: &mut Device,
    digits: &Digits,
    seed: u64,
    options: &Options,
    threads: u32,
    bar: &ProgressBar,
) -> Result<Outcome, Box<dyn Error>> {
    let shared = drawn(device, seed, threads)?;

    let count = digits.train.labels.len();
    let step = network::training_step(count as u64)?;
    let slots = (step.start, step.rate, step.order);
    // Passes keep the ids of buffers and slots.
    let mut wrong = None;
    let (optimized, _) = optimize(&step.graph, Pass::of_level(2), |before, done| {
        wrong = wrong.take().or(check_rewrite(before, &done.graph, &done.image).pop());
    })?;
    if let Some(violation) = wrong {
        return Err(violation.into());
    }
    let (graph, other) = match options.unfused {
        true => (step.graph, optimized),
        false => (optimized, step.graph),
    };
    let schedule = plan(&graph, threads)?;
    let mut exec = ready(device, &graph, &schedule, &shared)?;
    write(device, &graph, &exec, "pixels", &digits.train.pixels)?;
    write(device, &graph, &exec, "labels", &digits.train.labels)?;
    let steps = options.steps;
    let mut times = Vec::with_capacity(steps as usize);
    for at in 0..steps {
        prepare(device, &mut exec, &slots, at_step(at, seed, options, count))?;
        let start = Instant::now();
        device.replay(&mut exec)?;
        times.push(start.elapsed().as_nanos() as u64);
        bar.inc(1);
    }
    let loss = device.read::<f32>(&exec.memory(step.loss)?)?[0];
    let accuracy = evaluate(device, digits, threads, &shared)?;
    let mut bits = 0xCBF2_9CE4_8422_2325u64;
    for (_, memory) in &shared {
        for word in device.read::<u32>(memory)? {
            bits = (bits ^ u64::from(word)).wrapping_mul(0x100_0000_01B3);
        }
    }
    // From here on the parameters are only a place to measure in.
    // Of a few replays the shortest shows what the graph asks for, not what else the machine did.
    let profile = device.profile(&mut exec, 9)?;
    let mut other_exec = ready(device, &other, &plan(&other, threads)?, &shared)?;
    let (replay_ns, other_ns) = in_turns(device, &mut exec, &mut other_exec)?;
    let eager_ns = eager(device, &graph, &shared)?;
    let internal = graph.buffers().iter().filter(|b| b.role == BufferRole::Internal);
    Ok(Outcome {
        seed,
        accuracy,
        loss,
        bits,
        step_ns: median(&mut times),
        replay_ns,
        other_ns,
        kernels: kernels(&graph),
        other_kernels: kernels(&other),
        eager_ns,
        summary: summary(&graph),
        parts: exec.parts(),
        unshared_bytes: internal.map(|b| b.bytes).sum(),
        graph,
        schedule,
        profile,
    })
}

/// What changes before a step.
pub struct AtStep {
    /// The order of the digits, at the start of an epoch.
    pub order: Option<Vec<i32>>,
    pub start: u32,
    pub rate: f32,
}

/// What changes before step `at` over `count` digits.
pub fn at_step(at: u32, seed: u64, options: &Options, count: usize) -> AtStep {
    let batches = count as u32 / BATCH as u32;
    let (epoch, batch) = (at / batches, at % batches);
    let order = || permutation(count, seed << 32 | u64::from(epoch));
    AtStep {
        order: (batch == 0).then(|| order().into_iter().map(|row| row as i32).collect()),
        start: batch * BATCH as u32,
        rate: network::RATE * (1.0 - at as f32 / options.steps as f32),
    }
}

fn prepare(
    device: &mut Device,
    exec: &mut Exec,
    (start, rate, order): &(SlotId, SlotId, BufferId),
    now: AtStep,
) -> Result<(), Box<dyn Error>> {
    if let Some(rows) = &now.order {
        device.write(&exec.memory(*order)?, rows)?;
    }
    exec.set(*start, now.start)?;
    exec.set(*rate, now.rate)
}

/// The losses of the first steps.
#[cfg(any(test, feature = "cuda"))]
pub fn losses(
    device: &mut Device,
    digits: &Digits,
    seed: u64,
    options: &Options,
    threads: u32,
) -> Result<Vec<f32>, Box<dyn Error>> {
    let shared = drawn(device, seed, threads)?;
    let count = digits.train.labels.len();
    let step = network::training_step(count as u64)?;
    let slots = (step.start, step.rate, step.order);
    let mut exec = ready(device, &step.graph, &plan(&step.graph, threads)?, &shared)?;
    write(device, &step.graph, &exec, "pixels", &digits.train.pixels)?;
    write(device, &step.graph, &exec, "labels", &digits.train.labels)?;
    let loss = exec.memory(step.loss)?;
    let mut losses = Vec::with_capacity(COMPARED as usize);
    for at in 0..options.steps.min(COMPARED) {
        prepare(device, &mut exec, &slots, at_step(at, seed, options, count))?;
        device.replay(&mut exec)?;
        losses.push(device.read::<f32>(&loss)?[0]);
    }
    Ok(losses)
}

/// The parameters as a seed draws them.
fn drawn(
    device: &mut Device,
    seed: u64,
    threads: u32,
) -> Result<Vec<(&'static str, Memory)>, Box<dyn Error>> {
    let mut shared = Vec::new();
    for (name, extents) in PARAMETERS {
        shared.push((name, device.alloc(network::bytes(extents) as u64)?));
    }
    let initial = network::initialise(seed)?;
    let mut draw = ready(device, &initial, &plan(&initial, threads)?, &shared)?;
    device.replay(&mut draw)?;
    Ok(shared)
}

fn plan(graph: &ComputeGraph, threads: u32) -> Result<Schedule, Box<dyn Error>> {
    let plan = ExecutionPlan::build(graph, threads as usize)?;
    Ok(plan.schedule().ok_or("a plan of a graph has a schedule")?.clone())
}

/// Instantiates a graph, which proves its schedule, with the parameters bound.
fn ready(
    device: &mut Device,
    graph: &ComputeGraph,
    schedule: &Schedule,
    shared: &[(&str, Memory)],
) -> Result<Exec, Box<dyn Error>> {
    let mut bound = Vec::new();
    for (name, memory) in shared {
        bound.push((network::buffer(graph, name)?, memory.clone()));
    }
    device.instantiate(graph, schedule, &bound)
}

fn write<T: Element>(
    device: &mut Device,
    graph: &ComputeGraph,
    exec: &Exec,
    name: &str,
    values: &[T],
) -> Result<(), Box<dyn Error>> {
    device.write(&exec.memory(network::buffer(graph, name)?)?, values)
}

/// The share of held-out digits that the second graph names right.
fn evaluate(
    device: &mut Device,
    digits: &Digits,
    threads: u32,
    shared: &[(&str, Memory)],
) -> Result<f64, Box<dyn Error>> {
    let labels = &digits.test.labels;
    let graph = network::classification(labels.len() as u64)?;
    let mut exec = ready(device, &graph, &plan(&graph, threads)?, shared)?;
    write(device, &graph, &exec, "pixels", &digits.test.pixels)?;
    device.replay(&mut exec)?;
    let guesses = device.read::<i32>(&exec.memory(network::buffer(&graph, "guesses")?)?)?;
    Ok(share_right(&guesses, labels))
}

pub fn share_right(guesses: &[i32], labels: &[i32]) -> f64 {
    let right = guesses.iter().zip(labels).filter(|(guess, label)| guess == label).count();
    right as f64 / labels.len() as f64
}

pub fn kernels(graph: &ComputeGraph) -> usize {
    graph.nodes().iter().filter(|node| node.kernel().is_some()).count()
}

/// Median times of two graphs' replays, one after the other, so that both see the same machine.
fn in_turns(device: &mut Device, a: &mut Exec, b: &mut Exec) -> Result<(u64, u64), Box<dyn Error>> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while first.len() < 500 && begun.elapsed() < PATIENCE {
        for (exec, times) in [(&mut *a, &mut first), (&mut *b, &mut second)] {
            let start = Instant::now();
            device.replay(exec)?;
            times.push(start.elapsed().as_nanos() as u64);
        }
    }
    Ok((median(&mut first), median(&mut second)))
}

/// The step without recording it: every time, each operation is prepared again and run on its own.
fn eager(
    device: &mut Device,
    graph: &ComputeGraph,
    shared: &[(&str, Memory)],
) -> Result<u64, Box<dyn Error>> {
    let schedule = Schedule::sequential(graph);
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.len() < 20 && begun.elapsed() < PATIENCE {
        let start = Instant::now();
        let mut exec = ready(device, graph, &schedule, shared)?;
        device.replay(&mut exec)?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(median(&mut times))
}

pub fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

#[test]
fn a_gpu_starts_with_nearly_the_losses_of_the_cpu() -> Result<(), Box<dyn Error>> {
    use clap::Parser;

    let digits = crate::data::load()?;
    let options = Options::parse_from(["digits"]);
    let first = |backend| -> Result<Vec<f32>, Box<dyn Error>> {
        losses(&mut Device::open(backend, 2)?, &digits, 1, &options, 2)
    };
    let found = match first(crate::Backend::Wgpu) {
        Ok(found) => found,
        Err(error) if error.is::<phonograph_wgpu::OpenError>() => {
            eprintln!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let expected = first(crate::Backend::Cpu)?;
    assert_eq!(found.len(), COMPARED as usize);
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let off = (found - expected).abs() / expected;
        assert!(off <= TOLERANCE, "step {step}: {found}, not {expected}");
    }
    assert!(found[COMPARED as usize - 1] < found[0], "it learns: {found:?}");
    Ok(())
}
