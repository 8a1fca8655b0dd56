//! `phonograph run`: replay a graph with real data.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use phonograph::graph::{Arg, BufferId, BufferRole, ComputeGraph, DType, NodeKind, Scalar, SlotId};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::generate::SPIN;
use phonograph::plan::streams::PlanOptions;
use phonograph::runtime::cpu::kernels::{Registry, spin};
use phonograph::runtime::cpu::{Bindings, Cpu, Exec, Memory};
use serde_json::json;

use crate::{Answer, GraphFile, costs, input, print, print_json, progress, run_cuda, title};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: GraphFile,
    /// How often to replay it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub replays: u64,
    /// Where to run it.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "cuda"])]
    backend: String,
    /// Worker threads, or for cuda streams to plan for; the number of cores unless said.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Set a slot: `name=value`, the value in the slot's type.
    #[arg(long = "set", value_name = "SLOT=VALUE")]
    pub slots: Vec<String>,
    /// Fill an external buffer from a file of raw bytes; without one it starts as zeros.
    #[arg(long = "data", value_name = "BUFFER=FILE")]
    pub data: Vec<String>,
    /// Plan with the costs of nodes from this file, which `--profile` wrote, or from a trace of PyTorch's profiler.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Then measure what each node takes, and write that to this file. The replays for it come on top.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// The result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// The graph's file.
    pub fn file(&self) -> &Path {
        &self.input.file
    }
}

pub fn run(args: &Args) -> Result<Answer> {
    let graph = input::graph(&args.input.file)?;
    let costs = args.costs.as_ref().map(|path| costs::Source::read(path, &graph)).transpose()?;
    let costs = costs.map(|source| source.costs(&graph));
    if args.backend == "cuda" {
        return run_cuda::run(args, &graph, costs.as_ref());
    }
    let cores = std::thread::available_parallelism()?.get();
    let threads = args.threads.unwrap_or(u32::try_from(cores)?.min(1024));
    let mut options = PlanOptions::at_most(threads);
    if let Some(costs) = &costs {
        (options.costs, options.overheads) = (Some(costs.nodes.as_slice()), costs.overheads);
    }
    let plan = ExecutionPlan::plan(&graph, &options)?;
    let mut cpu = Cpu::new(threads)?;
    let mut registry = Registry::new();
    registry.register(SPIN, spin());
    let memory = user_memory(&cpu, &graph)?;
    let bindings = memory
        .iter()
        .fold(Bindings::new(&registry), |all, (buffer, memory)| all.memory(*buffer, memory));
    let schedule = plan.schedule().context("a plan of a graph has a schedule")?;
    let mut exec = cpu.instantiate(&graph, schedule, &bindings)?;
    for text in &args.data {
        let (buffer, bytes) = parse_data(&graph, text)?;
        for (_, memory) in memory.iter().filter(|(id, _)| *id == buffer) {
            cpu.slice_mut::<u8>(memory)?.copy_from_slice(&bytes);
        }
    }
    for text in &args.slots {
        let (slot, value) = parse_slot(&graph, text)?;
        exec.set(slot, value)?;
    }
    let mut times = Vec::with_capacity(args.replays.min(1 << 20) as usize);
    let bar = progress(args.replays, "replaying");
    for _ in 0..args.replays {
        let start = Instant::now();
        if let Err(error) = cpu.replay(&mut exec) {
            bar.abandon();
            print_failure(args, &error.to_string())?;
            return Ok(Answer::No);
        }
        if times.len() < times.capacity() {
            times.push(start.elapsed());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    times.sort_unstable();
    report(args, &graph, &cpu, &exec, &memory, &times)?;
    // Last, since these replays change what the graph changes.
    if let Some(path) = &args.profile {
        let measured = costs::measure(&mut cpu, &mut exec, args.replays)?;
        costs::write(path, &graph, &measured)?;
    }
    Ok(Answer::Yes)
}

pub fn print_failure(args: &Args, error: &str) -> Result<()> {
    if args.json {
        return print_json(&json!({ "ok": false, "error": error }));
    }
    print(format!("replay failed: {error}\n").as_bytes())
}

/// Memory for every buffer that is the user's, pointer slots included.
fn user_memory(cpu: &Cpu, graph: &ComputeGraph) -> Result<Vec<(BufferId, Memory)>> {
    let buffers = graph.buffers().iter().enumerate();
    let users =
        buffers.filter(|(_, b)| matches!(b.role, BufferRole::External | BufferRole::Slot(_)));
    users.map(|(index, b)| Ok((BufferId::from_index(index), cpu.alloc(b.bytes)?))).collect()
}

fn split(text: &str) -> Result<(&str, &str)> {
    text.split_once('=').with_context(|| format!("`{text}` is not of the form name=value"))
}

/// The buffer that `BUFFER=FILE` names, and the file's bytes, which are as many as the buffer's.
pub fn parse_data(graph: &ComputeGraph, text: &str) -> Result<(BufferId, Vec<u8>)> {
    let (name, path) = split(text)?;
    let is_users = |role| matches!(role, BufferRole::External | BufferRole::Slot(_));
    let buffers = graph.buffers().iter().enumerate();
    let mut named = buffers.filter(|(_, b)| is_users(b.role) && *b.name == *name);
    let (index, buffer) =
        named.next().with_context(|| format!("the graph has no external buffer named `{name}`"))?;
    ensure!(named.next().is_none(), "several buffers are named `{name}`");
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {path}"))?;
    let (has, needs) = (file.metadata()?.len(), buffer.bytes);
    ensure!(has == needs, "{path} has {has} bytes, buffer `{name}` has {needs}");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, needs), &mut bytes)?;
    Ok((BufferId::from_index(index), bytes))
}

/// The slot that `SLOT=VALUE` names, and the value in its type.
pub fn parse_slot(graph: &ComputeGraph, text: &str) -> Result<(SlotId, Scalar)> {
    let (name, value) = split(text)?;
    let known = graph.slots().iter().position(|slot| *slot.name == *name);
    let Some(index) = known else {
        let names: Vec<&str> = graph.slots().iter().map(|slot| &*slot.name).collect();
        bail!("the graph has no slot named `{name}`; it has: {}", names.join(", "));
    };
    let dtype = graph.slots()[index].dtype();
    Ok((SlotId::from_index(index), format!("{dtype} {value}").parse()?))
}

fn report(
    args: &Args,
    graph: &ComputeGraph,
    cpu: &Cpu,
    exec: &Exec,
    memory: &[(BufferId, Memory)],
    times: &[Duration],
) -> Result<()> {
    let median = times[times.len() / 2].as_secs_f64() * 1e6;
    let least = times[0].as_secs_f64() * 1e6;
    let mut buffers = Vec::new();
    for (buffer, memory) in memory {
        let dtype = element_type(graph, *buffer);
        let values = first_values(cpu.slice::<u8>(memory)?, dtype);
        buffers.push((graph.buffer(*buffer).name.to_string(), dtype, memory.bytes(), values));
    }
    if args.json {
        let buffers = buffers.iter().map(|(name, dtype, bytes, values)| {
            json!({ "name": name, "dtype": dtype.name(), "bytes": bytes, "first": values })
        });
        return print_json(&json!({
            "ok": true,
            "replays": args.replays,
            "nodes": graph.node_count(),
            "workers": cpu.workers(),
            "tasks": exec.task_count(),
            "waits": exec.wait_count(),
            "internal_bytes": exec.arena_bytes(),
            "median_us": median,
            "least_us": least,
            "buffers": buffers.collect::<Vec<_>>(),
        }));
    }
    let mut text = format!(
        "{}: {} nodes, {} replays on {} workers\n  time a replay  {median:.1} µs (median), {least:.1} µs (least)\n  tasks, waits   {}, {}\n  own memory     {} B\n",
        title(&args.input.file),
        graph.node_count(),
        args.replays,
        cpu.workers(),
        exec.task_count(),
        exec.wait_count(),
        exec.arena_bytes(),
    );
    for (name, dtype, bytes, values) in buffers {
        let more = if bytes > dtype.size() * values.len() as u64 { ", …" } else { "" };
        text += &format!("  {name:<14} {dtype} [{}{more}]\n", values.join(", "));
    }
    print(text.as_bytes())
}

/// The type that the graph's kernels see in a buffer; bytes if none does.
pub fn element_type(graph: &ComputeGraph, buffer: BufferId) -> DType {
    let kernels = graph.nodes().iter().filter_map(|node| match &node.kind {
        NodeKind::Kernel(kernel) => Some(kernel),
        _ => None,
    });
    let mut views = kernels.flat_map(|kernel| kernel.args.iter()).filter_map(|arg| match arg {
        Arg::View(view, _) if view.buffer == buffer => Some(view.dtype),
        _ => None,
    });
    views.next().unwrap_or(DType::U8)
}

/// The first few elements.
pub fn first_values(bytes: &[u8], dtype: DType) -> Vec<String> {
    const SHOWN: usize = 6;
    let elements = bytes.chunks_exact(dtype.size() as usize).take(SHOWN);
    let scalars = elements.filter_map(|element| Scalar::from_le_bytes(dtype, element));
    // A scalar is written with its type in front, which the line says once.
    scalars.map(|s| s.to_string().split_off(dtype.name().len() + 1)).collect()
}
