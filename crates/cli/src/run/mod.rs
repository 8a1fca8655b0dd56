//! `phonograph run`: replay a graph with real data.

mod cpu;
mod report;
mod wgpu;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use phonograph::graph::{Arg, BufferId, BufferRole, ComputeGraph, DType, NodeKind, Scalar, SlotId};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::streams::PlanOptions;
use serde_json::json;

use crate::{Answer, GraphFile, costs, input, print, print_json, progress};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: GraphFile,
    /// How often to replay it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    replays: u64,
    /// Where to run it.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "wgpu"])]
    backend: String,
    /// Worker threads of the CPU, and streams of the plan; the number of cores unless said.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Set a slot: `name=value`, the value in the slot's type.
    #[arg(long = "set", value_name = "SLOT=VALUE")]
    slots: Vec<String>,
    /// Fill an external buffer from a file of raw bytes; without one it starts as zeros.
    #[arg(long = "data", value_name = "BUFFER=FILE")]
    data: Vec<String>,
    /// Plan with the costs of nodes from this file, which `--profile` wrote, or from a trace of PyTorch's profiler.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Then measure what each node takes on the CPU, and write that to this file. The replays for it come on top.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The result as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let graph = input::graph(&args.input.file)?;
    let cores = std::thread::available_parallelism()?.get();
    let threads = args.threads.unwrap_or(u32::try_from(cores)?.min(1024));
    let costs = args.costs.as_ref().map(|path| costs::Source::read(path, &graph)).transpose()?;
    let costs = costs.map(|source| source.costs(&graph));
    let mut options = PlanOptions::at_most(threads);
    if let Some(costs) = &costs {
        (options.costs, options.overheads) = (Some(costs.nodes.as_slice()), costs.overheads);
    }
    let plan = ExecutionPlan::plan(&graph, &options)?;
    let schedule = plan.schedule().context("a plan of a graph has a schedule")?;
    match &*args.backend {
        "wgpu" => wgpu::run(args, &graph, schedule),
        _ => cpu::run(args, &graph, schedule, threads),
    }
}

/// Replays as often as asked and says how long each took; `None` once one has failed, which is then said.
fn replays<E: std::fmt::Display>(
    args: &Args,
    mut replay: impl FnMut() -> Result<(), E>,
) -> Result<Option<Vec<Duration>>> {
    let mut times = Vec::with_capacity(args.replays.min(1 << 20) as usize);
    let bar = progress(args.replays, "replaying");
    for _ in 0..args.replays {
        let start = Instant::now();
        if let Err(error) = replay() {
            bar.abandon();
            print_failure(args, &error.to_string())?;
            return Ok(None);
        }
        if times.len() < times.capacity() {
            times.push(start.elapsed());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    times.sort_unstable();
    Ok(Some(times))
}

fn print_failure(args: &Args, error: &str) -> Result<()> {
    if args.json {
        return print_json(&json!({ "ok": false, "error": error }));
    }
    print(format!("replay failed: {error}\n").as_bytes())
}

/// Memory for every buffer that is the user's, pointer slots included.
fn user_memory<M, E>(
    graph: &ComputeGraph,
    alloc: impl Fn(u64) -> Result<M, E>,
) -> Result<Vec<(BufferId, M)>>
where
    anyhow::Error: From<E>,
{
    let buffers = graph.buffers().iter().enumerate();
    let users =
        buffers.filter(|(_, b)| matches!(b.role, BufferRole::External | BufferRole::Slot(_)));
    users.map(|(index, b)| Ok((BufferId::from_index(index), alloc(b.bytes)?))).collect()
}

fn split(text: &str) -> Result<(&str, &str)> {
    text.split_once('=').with_context(|| format!("`{text}` is not of the form name=value"))
}

/// The memory that `--data` names and the bytes of its file.
fn data<'m, M>(
    graph: &ComputeGraph,
    memory: &'m [(BufferId, M)],
    text: &str,
) -> Result<(&'m M, Vec<u8>)> {
    let (name, path) = split(text)?;
    let mut named = memory.iter().filter(|(id, _)| *graph.buffer(*id).name == *name);
    let (id, memory) =
        named.next().with_context(|| format!("the graph has no external buffer named `{name}`"))?;
    ensure!(named.next().is_none(), "several buffers are named `{name}`");
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {path}"))?;
    let (has, needs) = (file.metadata()?.len(), graph.buffer(*id).bytes);
    ensure!(has == needs, "{path} has {has} bytes, buffer `{name}` has {needs}");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, needs), &mut bytes)?;
    Ok((memory, bytes))
}

/// The slot that `--set` names and its value.
fn slot(graph: &ComputeGraph, text: &str) -> Result<(SlotId, Scalar)> {
    let (name, value) = split(text)?;
    let known = graph.slots().iter().position(|slot| *slot.name == *name);
    let Some(index) = known else {
        let names: Vec<&str> = graph.slots().iter().map(|slot| &*slot.name).collect();
        bail!("the graph has no slot named `{name}`; it has: {}", names.join(", "));
    };
    let dtype = graph.slots()[index].dtype();
    Ok((SlotId::from_index(index), format!("{dtype} {value}").parse()?))
}

/// The type that the graph's kernels see in a buffer; bytes if none does.
fn element_type(graph: &ComputeGraph, buffer: BufferId) -> DType {
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
