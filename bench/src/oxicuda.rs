//! Building and planning beside oxicuda-graph 0.5.5, in one process and in turn.
//!
//! `cargo run --release` in this folder. A graph has layers as wide as there are of them; each kernel depends on two of the layer
//! before, reads their buffers and writes one of its own. Edges are given explicitly, in the order of the nodes or shuffled,
//! and nothing is inferred, so both plan the same graph. A peer that would take more than a minute, judged by how its time grew, is
//! left out, and the table says so. `busiest` is the share of the kernels that the busiest stream has; `wrong` counts the pairs of buffers that share bytes although both may be live, by the
//! checker of this project; where there are too many to count them all the number ends in +.

use std::time::Instant;

use phonograph_graph as ours;
use phonograph_plan::memory::{self, MemoryOptions};
use phonograph_plan::{ExecutionPlan, PlanStep};

const SIZES: [u32; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];
const STREAMS: usize = 4;
const BYTES: usize = 4096;
const PATIENCE: f64 = 60.0;

type Failure = Box<dyn std::error::Error>;
type Edges = Vec<(u32, u32)>;

/// Edges by consumer, and the same shuffled.
fn edges(nodes: u32) -> [Edges; 2] {
    let mut state = 1u64;
    let mut random = move |below: u32| {
        // Knuth's multiplier; the high bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u32 % below
    };
    let width = nodes.isqrt();
    let mut ordered = Edges::new();
    for node in width..nodes {
        let above = (node / width - 1) * width;
        let first = above + random(width);
        ordered.push((first, node));
        ordered.push((above + (first - above + 1 + random(width - 1)) % width, node));
    }
    let mut shuffled = ordered.clone();
    for last in (1..shuffled.len()).rev() {
        shuffled.swap(last, random(last as u32 + 1) as usize);
    }
    [ordered, shuffled]
}

/// The producers of each node, by node.
fn producers(nodes: u32, edges: &Edges) -> Vec<Vec<u32>> {
    let mut producers = vec![Vec::new(); nodes as usize];
    for &(from, to) in edges {
        producers[to as usize].push(from);
    }
    producers
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}

/// Seconds, and what came out.
struct Outcome {
    build: f64,
    plan: f64,
    memory: f64,
    waits: usize,
    /// Percent of the nodes that are on the stream with the most.
    busiest: usize,
    pool: usize,
    wrong: String,
}

/// Percent of the nodes on the stream that occurs most.
fn busiest(streams: impl Iterator<Item = usize>) -> usize {
    let mut counts = [0; STREAMS];
    streams.for_each(|stream| counts[stream] += 1);
    let total: usize = counts.iter().sum();
    100 * counts.into_iter().max().unwrap_or(0) / total.max(1)
}

fn phonograph(nodes: u32, edges: &Edges) -> Result<(Outcome, ours::ComputeGraph), Failure> {
    let reads = producers(nodes, edges);
    let (build, graph) = timed(|| {
        let mut builder = ours::GraphBuilder::new().with_auto_infer_edges(false);
        for _ in 0..nodes {
            builder.alloc_buffer("buffer", BYTES);
        }
        for (node, reads) in (0..).zip(&reads) {
            let inputs = reads.iter().map(|&from| ours::BufferId(from));
            let kernel = builder.add_kernel("kernel", 8, 128, 0).inputs(inputs);
            kernel.outputs([ours::BufferId(node)]).finish();
        }
        for &(from, to) in edges {
            builder.dep(ours::NodeId(from), ours::NodeId(to));
        }
        builder.build()
    });
    let graph = graph?;
    let (plan, planned) = timed(|| ExecutionPlan::build(&graph, STREAMS));
    let planned = planned?;
    let (memory, placed) = timed(|| memory::plan(&graph, &MemoryOptions::default()));
    placed?;
    let schedule = planned.schedule().ok_or("a plan of a graph has a schedule")?;
    let launches =
        planned.steps.iter().filter(|step| matches!(step, PlanStep::KernelLaunch { .. }));
    let outcome = Outcome {
        build,
        plan,
        memory,
        waits: schedule.wait_count(),
        busiest: busiest(launches.map(|step| step.stream().index())),
        pool: planned.pool_bytes,
        wrong: ours::check(&graph, schedule).len().to_string(),
    };
    Ok((outcome, graph))
}

fn oxicuda(nodes: u32, edges: &Edges, same: &ours::ComputeGraph) -> Result<Outcome, Failure> {
    use oxicuda_graph as theirs;
    let reads = producers(nodes, edges);
    let (build, graph) = timed(|| {
        let mut builder = theirs::GraphBuilder::new().with_auto_infer_edges(false);
        for _ in 0..nodes {
            builder.alloc_buffer("buffer", BYTES);
        }
        for (node, reads) in (0..).zip(&reads) {
            let inputs = reads.iter().map(|&from| theirs::BufferId(from));
            let kernel = builder.add_kernel("kernel", 8, 128, 0).inputs(inputs);
            kernel.outputs([theirs::BufferId(node)]).finish();
        }
        for &(from, to) in edges {
            builder.dep(theirs::NodeId(from), theirs::NodeId(to));
        }
        builder.build()
    });
    let graph = graph?;
    let (plan, planned) = timed(|| theirs::ExecutionPlan::build(&graph, STREAMS));
    let planned = planned?;
    let (memory, placed) = timed(|| theirs::optimizer::memory::analyse(&graph));
    let placed = placed?;
    let waits = planned.steps.iter();
    let waits = waits.filter(|step| matches!(step, theirs::PlanStep::EventWait { .. })).count();
    let wrong = if nodes <= 10_000 { violations(same, &placed) } else { "not counted".into() };
    let launches = planned.steps.iter().filter(|step| step.is_compute());
    let busiest = busiest(launches.map(|step| step.stream().0 as usize));
    Ok(Outcome { build, plan, memory, waits, busiest, pool: planned.pool_bytes, wrong })
}

/// Pairs of buffers that their placement lets share bytes wrongly, whatever the streams: everything else is put right.
fn violations(
    graph: &ours::ComputeGraph,
    placed: &oxicuda_graph::optimizer::memory::MemoryPlan,
) -> String {
    let mut schedule = ours::Schedule::sequential(graph);
    for assigned in &placed.assignments {
        schedule.memory.offsets[assigned.buf.0 as usize] = Some(assigned.offset as u64);
    }
    for bytes in schedule.memory.pools.values_mut() {
        *bytes = placed.total_bytes as u64;
    }
    // The checker looks at as many pairs that share bytes as anyone would read of.
    const MOST: usize = 1 << 20;
    let wrong = ours::check(graph, &schedule).len();
    if wrong >= MOST { format!("{wrong}+") } else { wrong.to_string() }
}

fn row(name: &str, nodes: u32, order: &str, outcome: &Outcome) {
    let Outcome { build, plan, memory, waits, busiest, pool, wrong } = outcome;
    println!(
        "{nodes:>7} {order:<8} {name:<14} {build:>9.4} {plan:>9.4} {memory:>9.4} {waits:>7} {busiest:>6} % {pool:>11} {wrong:>12}"
    );
}

fn main() -> Result<(), Failure> {
    println!("seconds on one thread; {STREAMS} streams");
    println!(
        "{:>7} {:<8} {:<14} {:>9} {:>9} {:>9} {:>7} {:>8} {:>11} {:>12}",
        "nodes",
        "edges",
        "",
        "build",
        "plan",
        "memory",
        "waits",
        "busiest",
        "pool bytes",
        "wrong pairs"
    );
    // For each order of edges the sizes and seconds of the last two runs of the peer.
    let mut history: [Vec<(u32, f64)>; 2] = Default::default();
    for nodes in SIZES {
        for ((order, edges), past) in
            ["ordered", "shuffled"].iter().zip(edges(nodes)).zip(&mut history)
        {
            let (outcome, graph) = phonograph(nodes, &edges)?;
            row("phonograph", nodes, order, &outcome);
            let expected = match past[..] {
                [.., (small, before), (large, last)] => {
                    let power = (last / before).ln() / (f64::from(large) / f64::from(small)).ln();
                    last * (f64::from(nodes) / f64::from(large)).powf(power.max(1.0))
                }
                _ => 0.0,
            };
            if expected > PATIENCE {
                println!(
                    "{nodes:>7} {order:<8} {:<14} left out: about {expected:.0} s, judged by its growth",
                    "oxicuda-graph"
                );
                continue;
            }
            let outcome = oxicuda(nodes, &edges, &graph)?;
            past.push((nodes, outcome.build + outcome.plan + outcome.memory));
            row("oxicuda-graph", nodes, order, &outcome);
        }
    }
    Ok(())
}
