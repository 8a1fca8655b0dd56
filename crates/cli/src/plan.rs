//! `phonograph plan`: streams, waits, memory and time for a graph, proved by the checker.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use phonograph::graph::{BufferRole, ComputeGraph, MAX_STREAMS, Schedule, Step};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::cost::ASSUMED_NODE_NS;
use phonograph::plan::memory::{self, BoundKind, MemoryReport};
use phonograph::plan::simulate::{Bound, HeldBy, Link, Simulation};
use phonograph::plan::streams::{StreamLimit, Synchronisations};
use phonograph::report::html as page;
use phonograph::report::text::{count, thousands};
use serde_json::json;

use crate::costs::Source;
use crate::planning::{Planned, schedule_of};
use crate::view::page::Look;
use crate::{Answer, GraphFile, deliver, harmless, input, title};

const EXAMPLES: &str = "\
Examples:
    phonograph plan graph.json --streams 4
    phonograph plan graph.json --svg -o plan.svg           when each node would run, and where buffers lie
    phonograph run graph.json --profile costs.json && phonograph plan graph.json --costs costs.json
    phonograph plan graph.json --memory-budget 1048576     less concurrency where that saves memory";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: GraphFile,
    /// The most streams to use, or `full`: as many as it takes for everything independent to run side by side.
    #[arg(long, default_value = "4", value_parser = stream_limit)]
    streams: StreamLimit,
    /// What nodes cost: a file that `run --profile` wrote, or a trace of PyTorch's profiler. Without, every node is taken to
    /// cost the same.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// The most bytes of memory for internal buffers; concurrency is given up where more would be needed.
    #[arg(long, value_name = "BYTES")]
    memory_budget: Option<u64>,
    #[command(flatten)]
    form: Form,
    /// Write to this file instead of standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Form {
    /// The plan's figures as JSON.
    #[arg(long)]
    json: bool,
    /// Print every step.
    #[arg(long)]
    steps: bool,
    /// Draw when each node would run, and where buffers lie.
    #[arg(long)]
    svg: bool,
    /// A page with the graph, when each node would run, and where buffers lie.
    #[arg(long)]
    html: bool,
    /// When each node would run, for Perfetto.
    #[arg(long)]
    trace: bool,
}

fn stream_limit(text: &str) -> Result<StreamLimit, String> {
    match (text, text.parse::<u32>()) {
        ("full", _) => Ok(StreamLimit::Full),
        (_, Ok(most)) if (1..=MAX_STREAMS).contains(&most) => Ok(StreamLimit::AtMost(most)),
        _ => Err(format!("a number from 1 to {MAX_STREAMS}, or `full`")),
    }
}

/// A plan with all that is said of it.
struct Report<'a> {
    title: String,
    graph: &'a ComputeGraph,
    plan: &'a ExecutionPlan,
    schedule: &'a Schedule,
    memory: &'a MemoryReport,
    bound: memory::Bound,
    run: &'a Simulation,
    costs: Option<&'a Source>,
    synchronisations: Option<Synchronisations>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let read = [Some(&args.input.file), args.costs.as_ref()].into_iter().flatten();
    input::keep(read.map(PathBuf::as_path), args.output.as_deref())?;
    let graph = input::graph(&args.input.file)?;
    let title = title(&args.input.file);
    let costs = args.costs.as_ref().map(|path| Source::read(path, &graph)).transpose()?;
    let planned = Planned::new(&graph, args.streams, costs.as_ref(), args.memory_budget)?;
    let Form { json, steps, svg, html, trace } = args.form;
    let text = if svg || html || trace {
        let look = Look::planned(graph, title, planned, costs)?;
        match () {
            () if svg => look.svg()?,
            () if html => page::html(&look.page()?)?,
            () => look.trace()?,
        }
    } else {
        let report = Report {
            title,
            graph: &graph,
            plan: &planned.plan,
            schedule: schedule_of(&planned.plan)?,
            memory: &planned.memory,
            bound: planned.memory.lower_bound_in_all(),
            run: &planned.run,
            costs: costs.as_ref(),
            synchronisations: planned.synchronisations,
        };
        match () {
            () if json => format!("{:#}\n", report.json()),
            () if steps => harmless(&(report.text() + &planned.plan.to_string())),
            () => harmless(&report.text()),
        }
    };
    deliver(text.as_bytes(), args.output.as_deref())?;
    Ok(Answer::Yes)
}

impl Report<'_> {
    fn json(&self) -> serde_json::Value {
        let Self { graph, plan, schedule, run, .. } = self;
        /// Links of the chain that are listed.
        const LISTED: usize = 1000;
        let chain = run.chain.iter().take(LISTED).map(
            |link| json!({ "node": link.node.0, "stream": link.stream.0, "held_by": held_by(link.held_by) }),
        );
        let synchronisations = self.synchronisations.map(|counts| {
            json!({
                "edges": counts.edges,
                "reduced": counts.reduced,
                "greedy": counts.greedy,
                "greedy_reduced": counts.greedy_reduced,
                "optimal": counts.optimal,
            })
        });
        json!({
            "nodes": graph.node_count(),
            "streams": schedule.streams,
            "nodes_per_stream": nodes_per_stream(schedule),
            "waits": schedule.wait_count(),
            "events": plan.event_count,
            "reuse_edges": schedule.reuse.len(),
            "pool_bytes": schedule.pool_bytes(),
            "lower_bound_bytes": self.bound.bytes,
            "lower_bound": bound_kind(self.bound.kind),
            "memory_price": self.memory.price.map(|price| json!({
                "critical_path_before_ns": price.before,
                "critical_path_ns": price.after,
                "pool_bytes_before": price.bytes_before,
            })),
            "unshared_bytes": own_places(graph),
            "kernels": plan.kernel_count_original,
            "launches": plan.kernel_count_fused,
            "costs": if self.costs.is_some() { "given" } else { "assumed" },
            "makespan_ns": run.makespan_ns,
            "critical_path_ns": run.critical_path_ns,
            "balanced_ns": run.balanced_ns(),
            "busy_ns": run.busy_ns,
            "bound": bound(run.bound).0,
            "chain_nodes": run.chain.len(),
            "chain": chain.collect::<Vec<_>>(),
            "synchronisations": synchronisations,
            "checked": true,
        })
    }

    fn text(&self) -> String {
        let Self { title, graph, plan, schedule, run, .. } = self;
        let mut text = format!(
            "{title}: {} on {}, proved by the checker\n",
            count(graph.node_count(), "node"),
            count(schedule.streams as usize, "stream"),
        );
        let mut line = |name: &str, value: String| {
            writeln!(text, "  {name:<16} {value}").expect("a String takes all");
        };
        line("nodes a stream", listed(&nodes_per_stream(schedule)));
        let (waits, events) = (schedule.wait_count(), plan.event_count);
        line("waits", format!("{waits} on {}", count(events, "event")));
        if let Some(counts) = self.synchronisations {
            let Synchronisations { greedy, greedy_reduced, optimal, .. } = counts;
            line(
                "",
                format!(
                    "{optimal} is the least at full concurrency; greedily it is {greedy}, {greedy_reduced} after reducing the graph"
                ),
            );
        }
        line(
            "memory",
            format!(
                "{} B pooled; at full concurrency at least {} B ({} bound), {} B if nothing were shared",
                thousands(schedule.pool_bytes()),
                thousands(self.bound.bytes),
                bound_kind(self.bound.kind),
                thousands(own_places(graph))
            ),
        );
        if let Some(price) = self.memory.price {
            line(
                "",
                format!(
                    "instead of {} B, for {} in the graph and a critical path of {}, not {}",
                    thousands(price.bytes_before),
                    count(schedule.reuse.len(), "edge"),
                    time(price.after),
                    time(price.before)
                ),
            );
        }
        let (original, fused) = (plan.kernel_count_original, plan.kernel_count_fused);
        line("launches", format!("{fused} of {}", count(original, "kernel")));
        let costs = match self.costs {
            Some(_) => "from the costs given".to_owned(),
            None => format!("if every node takes {}", time(ASSUMED_NODE_NS)),
        };
        line("makespan", format!("{} {costs}", time(run.makespan_ns)));
        line(
            "",
            format!(
                "critical path {}, work over streams {}",
                time(run.critical_path_ns),
                time(run.balanced_ns())
            ),
        );
        for (index, said) in self.costs.map(Source::says).unwrap_or_default().iter().enumerate() {
            line(if index == 0 { "costs" } else { "" }, said.clone());
        }
        line("bound by", bound(run.bound).1);
        line("", chain(&run.chain));
        text
    }
}

/// The first few of many.
fn listed(counts: &[usize]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = counts.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = counts.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(", … and {more} more") } else { String::new() };
    shown.join(", ") + &more
}

/// A duration in the unit that suits it.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// What a makespan is due to: a word for machines, a sentence for people.
fn bound(bound: Bound) -> (&'static str, String) {
    match bound {
        Bound::Nothing => ("nothing", "nothing: the graph is empty".into()),
        Bound::CriticalPath => {
            ("critical_path", "the critical path: more streams would not help".into())
        }
        Bound::HandOvers => ("hand_overs", "waits between streams".into()),
        Bound::Work => ("work", "the work: all streams are busy nearly all the time".into()),
        Bound::OneStream(stream) => {
            ("one_stream", format!("stream {stream}, which is busy while others wait"))
        }
        Bound::StreamOrder => {
            ("stream_order", "the order of nodes on streams, where the graph asks for none".into())
        }
    }
}

const fn held_by(cause: HeldBy) -> &'static str {
    match cause {
        HeldBy::Start => "start",
        HeldBy::Dependency => "dependency",
        HeldBy::HandOver => "hand_over",
        HeldBy::Stream => "stream",
    }
}

/// The nodes that the makespan consists of, with how each follows from the one before.
fn chain(links: &[Link]) -> String {
    const SHOWN: usize = 6;
    let mut text = String::new();
    for (at, link) in links.iter().enumerate() {
        if links.len() > 2 * SHOWN && at == SHOWN {
            write!(text, " … {} more …", links.len() - 2 * SHOWN).expect("a String takes all");
        }
        if links.len() > 2 * SHOWN && (SHOWN..links.len() - SHOWN).contains(&at) {
            continue;
        }
        text += match link.held_by {
            HeldBy::Start => "",
            HeldBy::Dependency => " → ",
            HeldBy::HandOver => " ⇒ ",
            HeldBy::Stream => " | ",
        };
        text += &link.node.to_string();
    }
    let counts = |cause| links.iter().filter(|link| link.held_by == cause).count();
    let (after, over, busy) =
        (counts(HeldBy::Dependency), counts(HeldBy::HandOver), counts(HeldBy::Stream));
    format!(
        "{text} (→ {after} after a dependency, ⇒ {over} after one on another stream, | {busy} when the stream was free)"
    )
}

fn nodes_per_stream(schedule: &Schedule) -> Vec<usize> {
    let mut counts = vec![0; schedule.streams as usize];
    for step in &schedule.steps {
        if let Step::Run { nodes, stream } = step {
            counts[stream.index()] += nodes.len();
        }
    }
    counts
}

const fn bound_kind(kind: BoundKind) -> &'static str {
    match kind {
        BoundKind::Antichain => "antichain",
        BoundKind::Level => "level",
    }
}

/// Bytes of the internal buffers that nodes name, at every depth, each in a place of its own.
fn own_places(graph: &ComputeGraph) -> u64 {
    let mut named = vec![false; graph.buffers().len()];
    for (region, _) in graph.node_ids().flat_map(|node| graph.operands(node)) {
        named[region.buffer.index()] = true;
    }
    let own = graph.buffers().iter().zip(named);
    let internal = own.filter(|(buffer, named)| *named && buffer.role == BufferRole::Internal);
    let inner = graph.nodes().iter().flat_map(|node| node.kind.inner_graphs());
    internal.map(|(buffer, _)| buffer.bytes).sum::<u64>() + inner.map(own_places).sum::<u64>()
}
