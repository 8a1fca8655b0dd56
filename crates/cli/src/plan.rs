//! `phonograph plan`: streams, waits and memory for a graph, proved by the checker.

use anyhow::{Context, Result, bail};
use phonograph::graph::{BufferRole, ComputeGraph, Schedule, Step, check};
use phonograph::plan::ExecutionPlan;
use serde_json::json;

use crate::{Answer, GraphFile, input, print, print_json, title};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: GraphFile,
    /// The most streams to use.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,
    /// The plan's figures as JSON.
    #[arg(long)]
    json: bool,
    /// Print every step.
    #[arg(long, conflicts_with = "json")]
    steps: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let graph = input::graph(&args.input.file)?;
    let plan = ExecutionPlan::build(&graph, args.streams as usize)?;
    let schedule = plan.schedule().context("a plan of a graph has a schedule")?;
    let violations = check(&graph, schedule);
    if let Some(first) = violations.first() {
        bail!("the plan is wrong, which is a bug: {first} ({} in all)", violations.len());
    }
    let own_places = own_places(&graph);
    let streams = nodes_per_stream(schedule);
    if args.json {
        print_json(&json!({
            "nodes": graph.node_count(),
            "streams": schedule.streams,
            "nodes_per_stream": streams,
            "waits": schedule.wait_count(),
            "events": plan.event_count,
            "reuse_edges": schedule.reuse.len(),
            "pool_bytes": schedule.pool_bytes(),
            "unshared_bytes": own_places,
            "kernels": plan.kernel_count_original,
            "launches": plan.kernel_count_fused,
            "checked": true,
        }))?;
        return Ok(Answer::Yes);
    }
    let per_stream: Vec<String> = streams.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{}: {} nodes on {} streams, proved by the checker\n",
        title(&args.input.file),
        graph.node_count(),
        schedule.streams
    );
    let mut line = |name: &str, value: String| text += &format!("  {name:<16} {value}\n");
    line("nodes a stream", per_stream.join(", "));
    line("waits", format!("{} on {} events", schedule.wait_count(), plan.event_count));
    line(
        "memory",
        format!("{} B pooled, {own_places} B if nothing were shared", schedule.pool_bytes()),
    );
    line(
        "launches",
        format!("{} of {} kernels", plan.kernel_count_fused, plan.kernel_count_original),
    );
    if args.steps {
        text += &plan.to_string();
    }
    print(text.as_bytes())?;
    Ok(Answer::Yes)
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

/// Bytes of internal buffers at every depth, each in a place of its own.
fn own_places(graph: &ComputeGraph) -> u64 {
    let internal = graph.buffers().iter().filter(|b| b.role == BufferRole::Internal);
    let inner = graph.nodes().iter().flat_map(|node| node.kind.inner_graphs());
    internal.map(|b| b.bytes).sum::<u64>() + inner.map(own_places).sum::<u64>()
}
