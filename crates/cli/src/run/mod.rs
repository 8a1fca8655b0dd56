//! `phonograph run`: replay a graph with real data.

mod cpu;
mod cuda;
mod wgpu;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use phonograph::graph::{
    Arg, BufferId, BufferRole, ComputeGraph, Condition, DType, KernelRef, NodeKind, Scalar, SlotId,
    View, display_name,
};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::generate::SPIN;
use phonograph::plan::streams::PlanOptions;
use phonograph::report::text::count;
use serde_json::{Value, json};

use crate::plan::time;
use crate::{Answer, GraphFile, costs, harmless, input, print, print_json, progress, short, title};

const EXAMPLES: &str = "\
Examples:
    phonograph run graph.json --replays 1000
    phonograph run graph.json --set rate=0.1 --data x=x.bin --json
    phonograph run graph.json --backend cuda --profile costs.json";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: GraphFile,
    /// How often to replay it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    replays: u64,
    /// Where to run it.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
    /// Worker threads, or on a GPU the streams that are planned for; the number of cores unless said.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Set a slot: `name=value`, the value in the slot's type.
    #[arg(long = "set", value_name = "SLOT=VALUE")]
    slots: Vec<String>,
    /// Fill an external buffer, by its name or number, from a file of raw bytes; without one it starts as zeros.
    #[arg(long = "data", value_name = "BUFFER=FILE")]
    data: Vec<String>,
    /// Plan with the costs of nodes from this file, which `--profile` wrote, or from a trace of PyTorch's profiler.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Then measure what each node takes, and write that to this file. The replays for it come on top.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The result as JSON.
    #[arg(long)]
    json: bool,
}

/// Where graphs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Backend {
    /// Worker threads of this process.
    Cpu,
    /// The first CUDA device.
    Cuda,
    /// The GPU that wgpu prefers.
    Wgpu,
}

/// A graph instantiated on a backend, with memory for the buffers that are the user's.
trait Machine {
    fn write(&mut self, buffer: BufferId, bytes: &[u8]) -> Result<()>;
    fn read(&mut self, buffer: BufferId) -> Result<Vec<u8>>;
    fn set(&mut self, slot: SlotId, value: Scalar) -> Result<()>;
    /// What the replay failed of is for the user to read.
    fn replay(&mut self) -> Result<(), String>;
    fn facts(&self) -> Facts;
    /// What each node takes.
    fn measure(&mut self, replays: u64) -> Result<Measured>;
}

/// What nodes take, how many of them were measured rather than assumed, and how if there is more than one way.
struct Measured {
    costs: costs::Costs,
    nodes: usize,
    by: Option<String>,
}

/// What there is to say of a graph on a backend.
struct Facts {
    place: String,
    text: Vec<(&'static str, String)>,
    json: Vec<(&'static str, Value)>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let given = args.data.iter().filter_map(|text| Some(Path::new(text.split_once('=')?.1)));
    let read = given.chain([args.input.file.as_path()]);
    input::keep(read, args.profile.as_deref())?;
    let graph = input::graph(&args.input.file)?;
    refuse_kernels_without_code(&graph, args.backend)?;
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
    if args.profile.is_some() && args.backend == Backend::Wgpu {
        bail!("`--profile` measures on the CPU and on CUDA; leave out `--backend wgpu`");
    }
    let mut machine: Box<dyn Machine> = match args.backend {
        Backend::Cpu => Box::new(cpu::Machine::new(&graph, schedule, threads)?),
        Backend::Cuda => Box::new(cuda::Machine::new(&graph, schedule)?),
        Backend::Wgpu => Box::new(wgpu::Machine::new(&graph, schedule)?),
    };
    let machine = &mut *machine;
    for text in &args.data {
        load(machine, &graph, text)?;
    }
    for text in &args.slots {
        set(machine, &graph, text)?;
    }
    let mut times = Vec::with_capacity(args.replays.min(1 << 20) as usize);
    let bar = progress(args.replays, "replaying");
    for _ in 0..args.replays {
        let start = Instant::now();
        if let Err(error) = machine.replay() {
            bar.abandon();
            print_failure(args, &error)?;
            return Ok(Answer::No);
        }
        if times.len() < times.capacity() {
            times.push(start.elapsed());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    times.sort_unstable();
    report(args, &graph, machine, &times)?;
    // Last, since these replays change what the graph changes.
    if let Some(path) = &args.profile {
        let Measured { costs, nodes, by } = machine.measure(args.replays)?;
        costs::write(path, &graph, &costs)?;
        let count = graph.node_count();
        if !args.json && (nodes < count || by.is_some()) {
            let by = by.map_or_else(String::new, |by| format!(" by {by}"));
            let others = if nodes < count { ", the others assumed" } else { "" };
            let text = format!("  profile        {nodes} of {count} nodes measured{by}{others}\n");
            print(harmless(&text).as_bytes())?;
        }
    }
    Ok(Answer::Yes)
}

/// A file tells of some kernels only what they are called: their code is in the program that the graph is of.
fn refuse_kernels_without_code(graph: &ComputeGraph, backend: Backend) -> Result<()> {
    let has_code = |name: &str| name == SPIN && backend != Backend::Wgpu;
    let mut rest = vec![graph];
    while let Some(graph) = rest.pop() {
        for id in graph.node_ids() {
            let node = graph.node(id);
            if let NodeKind::Kernel(kernel) = &node.kind
                && let KernelRef::Named(name) = &kernel.kernel
                && !has_code(name)
            {
                bail!(
                    "node {id} is kernel `{}`, of which the file has only the name; what files describe in full can be run here: \
                     expressions, kernels of the library, copies and fills",
                    short(&display_name(name)),
                );
            }
            rest.extend(node.kind.inner_graphs());
        }
    }
    Ok(())
}

fn print_failure(args: &Args, error: &str) -> Result<()> {
    if args.json {
        return print_json(&json!({ "ok": false, "error": error }));
    }
    print(harmless(&format!("replay failed: {error}\n")).as_bytes())
}

/// The buffers that are the user's, pointer slots included.
fn user_buffers(graph: &ComputeGraph) -> impl Iterator<Item = BufferId> + '_ {
    let buffers = graph.buffers().iter().enumerate();
    let users =
        buffers.filter(|(_, b)| matches!(b.role, BufferRole::External | BufferRole::Slot(_)));
    users.map(|(index, _)| BufferId::from_index(index))
}

fn split<'t>(text: &'t str, form: &str) -> Result<(&'t str, &'t str)> {
    text.split_once('=').with_context(|| format!("`{text}` is not of the form {form}"))
}

/// The names that there are, after a wrong one.
fn known<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has: {}", names.join(", "))
    }
}

fn load(machine: &mut dyn Machine, graph: &ComputeGraph, text: &str) -> Result<()> {
    let (name, path) = split(text, "buffer=file")?;
    let buffer = buffer(graph, name)?;
    let needs = graph.buffer(buffer).bytes;
    let unfit = |has: &str| format!("{path} has {has} bytes, buffer `{name}` has {needs}");
    let cannot = || format!("cannot read {path}");
    let file = File::open(path).with_context(cannot)?;
    let known = file.metadata().with_context(cannot)?;
    // What is no file, such as a pipe, says how much it holds by ending.
    ensure!(!known.is_file() || known.len() == needs, unfit(&known.len().to_string()));
    let mut bytes = Vec::new();
    file.take(needs.saturating_add(1)).read_to_end(&mut bytes).with_context(cannot)?;
    let has = bytes.len() as u64;
    ensure!(has <= needs, unfit("more"));
    ensure!(has == needs, unfit(&has.to_string()));
    machine.write(buffer, &bytes)
}

/// The buffer of this name, or else of this number, as references in files are.
fn buffer(graph: &ComputeGraph, name: &str) -> Result<BufferId> {
    let named = user_buffers(graph).filter(|id| *graph.buffer(*id).name == *name);
    let number = || name.parse().ok().map(BufferId);
    let numbered = || user_buffers(graph).find(|id| Some(*id) == number());
    match named.collect::<Vec<_>>()[..] {
        [one] => Ok(one),
        [] => numbered().with_context(|| {
            let known = known(user_buffers(graph).map(|id| &*graph.buffer(id).name));
            format!("the graph has no external buffer named `{name}`; {known}")
        }),
        ref several => {
            let numbers: Vec<String> = several.iter().map(|id| id.0.to_string()).collect();
            bail!("several buffers are named `{name}`; give one's number: {}", numbers.join(", "))
        }
    }
}

fn set(machine: &mut dyn Machine, graph: &ComputeGraph, text: &str) -> Result<()> {
    let (name, value) = split(text, "slot=value")?;
    let found = graph.slots().iter().position(|slot| *slot.name == *name);
    let Some(index) = found else {
        let known = known(graph.slots().iter().map(|slot| &*slot.name));
        bail!("the graph has no slot named `{name}`; {known}");
    };
    let dtype = graph.slots()[index].dtype();
    let scalar = format!("{dtype} {value}").parse::<Scalar>();
    let scalar = scalar.with_context(|| format!("slot `{name}` cannot be set"))?;
    machine.set(SlotId::from_index(index), scalar)
}

fn report(
    args: &Args,
    graph: &ComputeGraph,
    machine: &mut dyn Machine,
    times: &[Duration],
) -> Result<()> {
    let [median, least] = [times[times.len() / 2], times[0]];
    let mut buffers = Vec::new();
    for buffer in user_buffers(graph) {
        let (declared, dtype) = (graph.buffer(buffer), element_type(graph, buffer));
        let values = values(&machine.read(buffer)?, dtype);
        buffers.push((declared.name.to_string(), dtype, declared.bytes, values));
    }
    let facts = machine.facts();
    if args.json {
        let buffers = buffers.iter().map(|(name, dtype, bytes, values)| {
            json!({ "name": name, "dtype": dtype.name(), "bytes": bytes, "first": values })
        });
        let mut report = json!({
            "ok": true,
            "replays": args.replays,
            "nodes": graph.node_count(),
            "median_us": median.as_secs_f64() * 1e6,
            "least_us": least.as_secs_f64() * 1e6,
            "buffers": buffers.collect::<Vec<_>>(),
        });
        facts.json.into_iter().for_each(|(name, value)| report[name] = value);
        return print_json(&report);
    }
    let mut text = format!(
        "{}: {}, {} on {}\n  time a replay  {} (median), {} (least)\n",
        title(&args.input.file),
        count(graph.node_count(), "node"),
        count(args.replays as usize, "replay"),
        facts.place,
        time(median.as_nanos() as u64),
        time(least.as_nanos() as u64),
    );
    for (name, value) in facts.text {
        text += &format!("  {name:<14} {value}\n");
    }
    for (name, dtype, bytes, values) in buffers {
        let more = if bytes > dtype.size() * values.len() as u64 { ", …" } else { "" };
        text += &format!("  {name:<14} {dtype} [{}{more}]\n", values.join(", "));
    }
    print(harmless(&text).as_bytes())
}

/// The type that the kernels and conditions of a graph and the graphs inside see in a buffer; bytes if none does.
fn element_type(graph: &ComputeGraph, buffer: BufferId) -> DType {
    let mut rest = vec![(graph, buffer)];
    while let Some((graph, buffer)) = rest.pop() {
        for node in graph.nodes() {
            let views: Vec<&View> = match &node.kind {
                NodeKind::Kernel(kernel) => {
                    let views = kernel.args.iter().filter_map(|arg| match arg {
                        Arg::View(view, _) => Some(view),
                        _ => None,
                    });
                    views.collect()
                }
                NodeKind::Conditional(conditional) => match &conditional.condition {
                    Condition::Value(view) => vec![view],
                    Condition::Handle(_) => Vec::new(),
                },
                _ => Vec::new(),
            };
            if let Some(view) = views.into_iter().find(|view| view.buffer == buffer) {
                return view.dtype;
            }
            for inner in node.kind.inner_graphs() {
                let inside =
                    inner.buffers().iter().position(|b| b.role == BufferRole::Outer(buffer));
                rest.extend(inside.map(|index| (inner, BufferId::from_index(index))));
            }
        }
    }
    DType::U8
}

/// The first few elements.
fn values(bytes: &[u8], dtype: DType) -> Vec<String> {
    const SHOWN: usize = 6;
    let elements = bytes.chunks_exact(dtype.size() as usize).take(SHOWN);
    let scalars = elements.filter_map(|element| Scalar::from_le_bytes(dtype, element));
    // A scalar is written with its type in front, which the line says once.
    scalars.map(|s| s.to_string().split_off(dtype.name().len() + 1)).collect()
}
