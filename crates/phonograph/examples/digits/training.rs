//! Training and evaluation: instantiate, replay, read.

use std::error::Error;
use std::time::Instant;

use indicatif::ProgressBar;
use phonograph::graph::{BufferRole, ComputeGraph, Schedule, check_rewrite};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::analysis::{Summary, summary};
use phonograph::plan::passes::{Pass, optimize};
use phonograph::runtime::cpu::kernels::Registry;
use phonograph::runtime::cpu::{Bindings, Cpu, Exec, Memory, Profile};

use crate::Options;
use crate::data::{Digits, permutation};
use crate::network::{self, BATCH, PARAMETERS};

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
    /// The same of the graph that was not trained with: kernel by kernel, if the optimized one was.
    pub other_ns: u64,
    pub kernels: usize,
    pub other_kernels: usize,
    /// Median time of the same step run node by node from fresh instantiations.
    pub eager_ns: u64,
    pub summary: Summary,
    pub graph: ComputeGraph,
    pub schedule: Schedule,
    pub tasks: u32,
    pub waits: usize,
    pub unshared_bytes: u64,
    pub profile: Profile,
}

/// Trains with one seed and classifies the digits held out.
pub fn train(
    digits: &Digits,
    seed: u64,
    options: &Options,
    threads: u32,
    bar: &ProgressBar,
) -> Result<Outcome, Box<dyn Error>> {
    let mut cpu = Cpu::new(threads)?;
    let mut shared: Vec<(&str, Memory)> = Vec::new();
    for (name, extents) in PARAMETERS {
        shared.push((name, cpu.alloc(network::bytes(extents) as u64)?));
    }
    let initial = network::initialise(seed)?;
    let mut draw = ready(&cpu, &initial, &plan(&initial, threads)?, &shared)?;
    cpu.replay(&mut draw)?;

    let count = digits.train.labels.len();
    let step = network::training_step(count as u64)?;
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
    let mut exec = ready(&cpu, &graph, &schedule, &shared)?;
    write(&mut cpu, &graph, &exec, "pixels", &digits.train.pixels)?;
    write(&mut cpu, &graph, &exec, "labels", &digits.train.labels)?;
    let steps = options.steps;
    let batches = count as u32 / BATCH as u32;
    let mut times = Vec::with_capacity(steps as usize);
    for at in 0..steps {
        let (epoch, batch) = (at / batches, at % batches);
        if batch == 0 {
            let order = permutation(count, seed << 32 | u64::from(epoch));
            let order: Vec<i32> = order.into_iter().map(|row| row as i32).collect();
            let memory = exec.memory(step.order).ok_or("the order has memory")?.clone();
            cpu.slice_mut::<i32>(&memory)?.copy_from_slice(&order);
        }
        exec.set(step.start, batch * BATCH as u32)?;
        exec.set(step.rate, network::RATE * (1.0 - at as f32 / steps as f32))?;
        let start = Instant::now();
        cpu.replay(&mut exec)?;
        times.push(start.elapsed().as_nanos() as u64);
        bar.inc(1);
    }
    let loss = cpu.slice::<f32>(exec.memory(step.loss).ok_or("the loss has memory")?)?[0];
    let accuracy = evaluate(&mut cpu, digits, threads, &shared)?;
    let mut bits = 0xCBF2_9CE4_8422_2325u64;
    for (_, memory) in &shared {
        for &word in cpu.slice::<u32>(memory)? {
            bits = (bits ^ u64::from(word)).wrapping_mul(0x100_0000_01B3);
        }
    }
    // From here on the parameters are only a place to measure in.
    // Of a few replays the shortest shows what the graph asks for, not what else the machine did.
    let mut profile = cpu.replay_profiled(&mut exec)?;
    for _ in 0..8 {
        let next = cpu.replay_profiled(&mut exec)?;
        if next.total_ns < profile.total_ns {
            profile = next;
        }
    }
    let mut other_exec = ready(&cpu, &other, &plan(&other, threads)?, &shared)?;
    let (replay_ns, other_ns) = in_turns(&mut cpu, &mut exec, &mut other_exec)?;
    let eager_ns = eager(&mut cpu, &graph, &shared)?;
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
        tasks: exec.task_count(),
        waits: exec.wait_count(),
        unshared_bytes: internal.map(|b| b.bytes).sum(),
        graph,
        schedule,
        profile,
    })
}

fn plan(graph: &ComputeGraph, threads: u32) -> Result<Schedule, Box<dyn Error>> {
    let plan = ExecutionPlan::build(graph, threads as usize)?;
    Ok(plan.schedule().ok_or("a plan of a graph has a schedule")?.clone())
}

/// Instantiates a graph, which proves its schedule, with the parameters bound.
fn ready(
    cpu: &Cpu,
    graph: &ComputeGraph,
    schedule: &Schedule,
    shared: &[(&str, Memory)],
) -> Result<Exec, Box<dyn Error>> {
    let registry = Registry::new();
    let mut bindings = Bindings::new(&registry);
    for (name, memory) in shared {
        bindings = bindings.memory(network::buffer(graph, name)?, memory);
    }
    Ok(cpu.instantiate(graph, schedule, &bindings)?)
}

fn write<T: phonograph::runtime::cpu::kernels::Element>(
    cpu: &mut Cpu,
    graph: &ComputeGraph,
    exec: &Exec,
    name: &str,
    values: &[T],
) -> Result<(), Box<dyn Error>> {
    let memory =
        exec.memory(network::buffer(graph, name)?).ok_or("external buffers have memory")?;
    cpu.slice_mut::<T>(&memory.clone())?.copy_from_slice(values);
    Ok(())
}

/// The share of held-out digits that the second graph names right.
fn evaluate(
    cpu: &mut Cpu,
    digits: &Digits,
    threads: u32,
    shared: &[(&str, Memory)],
) -> Result<f64, Box<dyn Error>> {
    let labels = &digits.test.labels;
    let graph = network::classification(labels.len() as u64)?;
    let mut exec = ready(cpu, &graph, &plan(&graph, threads)?, shared)?;
    write(cpu, &graph, &exec, "pixels", &digits.test.pixels)?;
    cpu.replay(&mut exec)?;
    let guesses = exec.memory(network::buffer(&graph, "guesses")?).ok_or("guesses have memory")?;
    let guesses = cpu.slice::<i32>(guesses)?;
    let right = guesses.iter().zip(labels).filter(|(guess, label)| guess == label).count();
    Ok(right as f64 / labels.len() as f64)
}

fn kernels(graph: &ComputeGraph) -> usize {
    graph.nodes().iter().filter(|node| node.kernel().is_some()).count()
}

/// Median times of two graphs' replays, one after the other, so that both see the same machine.
fn in_turns(cpu: &mut Cpu, a: &mut Exec, b: &mut Exec) -> Result<(u64, u64), Box<dyn Error>> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..500 {
        for (exec, times) in [(&mut *a, &mut first), (&mut *b, &mut second)] {
            let start = Instant::now();
            cpu.replay(exec)?;
            times.push(start.elapsed().as_nanos() as u64);
        }
    }
    Ok((median(&mut first), median(&mut second)))
}

/// The step without recording it: every time, each operation is prepared again and run on its own.
fn eager(
    cpu: &mut Cpu,
    graph: &ComputeGraph,
    shared: &[(&str, Memory)],
) -> Result<u64, Box<dyn Error>> {
    let schedule = Schedule::sequential(graph);
    let mut times = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let mut exec = ready(cpu, graph, &schedule, shared)?;
        cpu.replay(&mut exec)?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(median(&mut times))
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}
