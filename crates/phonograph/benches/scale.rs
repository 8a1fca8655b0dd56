//! A million nodes: building, every analysis, pass, planner and checker, in seconds and in bytes a node; how many
//! synchronisations full concurrency takes, chosen greedily and optimally.
//!
//! `cargo bench -p phonograph --bench scale [-- NAME…]` runs the tables whose name contains one of the words: `edges`,
//! `analyses`, `passes`, `syncs`, `files`. Seconds are the best of three runs, of the processor where Linux tells them: whatever else the
//! machine does is not counted, though it takes caches. Memory is how far the resident set of the process rose at most above
//! where it was, where Linux tells it: scratch and results together. What an allocator kept from before is not counted again, so
//! that small figures are lower bounds.

use std::time::Instant;

use phonograph::graph::{
    Access, Adjacency, Arg, ComputeGraph, DType, Edge, Expr, Extent, GraphBuilder, MemsetNode,
    NodeId, Pitched, Region, Target, View, check, check_rewrite, from_json, lost_order, races,
    to_json,
};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::analysis::{
    Budget, ReachIndex, conflicts, critical_path, dominators, levels, lifetimes, outlasting,
    redundant_edges, timing, width,
};
use phonograph::plan::generate::{Kind, generate};
use phonograph::plan::passes::{Pass, reduce_edges};
use phonograph::plan::streams::{Synchronisations, synchronisations};

const NODES: u32 = 1_000_000;
const RUNS: u32 = 3;

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Seconds that this thread has had a processor for, where Linux tells them.
fn on_processor() -> Option<f64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = times.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// What something took.
struct Cost {
    seconds: f64,
    /// A node, where Linux tells them.
    bytes: Option<u64>,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
        write!(f, "{:>9.3} {bytes:>10}", self.seconds)
    }
}

/// Runs `work` a few times: the best time and how far memory rose.
fn measured<T>(mut work: impl FnMut() -> T) -> (T, Cost) {
    // Writing 5 here sets the high-water mark back to what is resident now.
    let reset = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = status("VmRSS:").filter(|_| reset);
    let mut result = None;
    let mut seconds = f64::INFINITY;
    for _ in 0..RUNS {
        drop(result.take());
        let (clock, started) = (Instant::now(), on_processor());
        result = Some(work());
        let took = match (started, on_processor()) {
            (Some(started), Some(ended)) => ended - started,
            _ => clock.elapsed().as_secs_f64(),
        };
        seconds = seconds.min(took);
    }
    let rose = before.zip(status("VmHWM:")).map(|(before, most)| most.saturating_sub(before));
    let bytes = rose.map(|bytes| bytes / u64::from(NODES));
    (result.expect("it ran"), Cost { seconds, bytes })
}

/// The same, printed.
fn timed<T>(name: &str, work: impl FnMut() -> T) -> T {
    let (result, cost) = measured(work);
    println!("{name:<48} {cost}");
    result
}

fn heading(name: &str) {
    println!("\n{name:<48} {:>9} {:>10}", "seconds", "B a node");
}

/// Numbers that have nothing to do with one another (a linear congruential generator).
fn numbers(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

/// Two edges into each node from up to `window` before; one of them from the very one before, if it is to be a `chain`.
fn edges(window: u32, chain: bool) -> Vec<Edge> {
    let mut random = numbers(1);
    let mut from = move |to: u32| NodeId(to - 1 - random() % window.min(to));
    let two = |to: u32| {
        let one = if chain { NodeId(to - 1) } else { from(to) };
        [Edge::full(one, NodeId(to)), Edge::full(from(to), NodeId(to))]
    };
    (1..NODES).flat_map(two).collect()
}

/// The edges in an order that has nothing to do with the nodes'.
fn shuffled(mut edges: Vec<Edge>) -> Vec<Edge> {
    let mut random = numbers(7);
    for last in (1..edges.len()).rev() {
        edges.swap(last, random() as usize % (last + 1));
    }
    edges
}

fn build(nodes: u32, edges: &[Edge]) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    for _ in 0..nodes {
        b.add_kernel("k", 1, 32, 0).finish();
    }
    for &edge in edges {
        b.add_edge(edge);
    }
    b.build().expect("the edges close no cycle")
}

/// Edge reduction and its check, for edges near and far.
fn reductions() {
    heading("edges, two a node");
    let far = [("window 1,000", 1_000), ("window 100,000", 100_000), ("uniform", NODES)];
    for (name, window) in far {
        for chain in [false, true] {
            let also = if chain { " and a chain" } else { "" };
            let before = build(NODES, &edges(window, chain));
            let redundant =
                timed(&format!("redundant edges, {name}{also}"), || redundant_edges(&before).len());
            let done = timed("  the pass", || reduce_edges(&before).expect("a valid graph"));
            let lost = timed("  check of the pass", || {
                check_rewrite(&before, &done.graph, &done.image).len()
            });
            let order = timed("  check that the order is the same", || {
                lost_order(&before, &done.graph).len() + lost_order(&done.graph, &before).len()
            });
            assert_eq!((lost, order), (0, 0));
            println!("  {redundant} of {} edges are redundant", before.edge_count());
        }
    }
}

fn analyses() {
    heading("analyses, two edges a node, window 1,000");
    let graph = build(NODES, &edges(1_000, false));
    timed("levels", || levels(&graph).max_width());
    timed("earliest and latest starts", || timing(&graph, |_| 1).makespan);
    timed("critical path", || critical_path(&graph, |_| 1).cost);
    timed("dominators", || dominators(&graph).immediate(NodeId(0)));
    timed("width, bounds", || width(&graph, Budget { bytes: 0, steps: 0 }).upper);
    timed("exact index (over its budget)", || ReachIndex::new(&graph, Budget::default()).err());
    let schedule_of = |graph: &ComputeGraph| {
        ExecutionPlan::build(graph, 4).expect("a valid graph can be planned")
    };
    let plan = timed("plan on 4 streams", || schedule_of(&graph));
    let schedule = plan.schedule().expect("a plan of a graph has a schedule");
    let wrong = timed("check of the plan", || check(&graph, schedule).len());
    assert_eq!(wrong, 0);
    heading("analyses, real operands (see `passes`)");
    let graph = mixed();
    timed("conflicts", || conflicts(&graph).len());
    timed("outlasting buffers", || outlasting(&graph).len());
    timed("lifetimes", || lifetimes(&graph).len());
    timed("races (the checker's)", || races(&graph).len());
}

/// Twelve nodes over and over, on eight buffers of their own: two fills side by side, a copy to stage the input, three expressions
/// of which two may be fused, two copies side by side, an empty node, a result that nobody reads, and two kernels known by name.
fn mixed() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let scale = Expr::build(|e| e.output(e.input(DType::F32) * e.f32(0.5))).expect("well typed");
    let scale = std::sync::Arc::new(scale);
    const BYTES: u64 = 1024;
    let part = |buffer, offset, bytes| Region { buffer, offset, bytes };
    let mut last = None;
    for _ in 0..NODES / 12 {
        let [input, seen] = ["in", "seen"].map(|name| b.external_buffer(name, BYTES as usize));
        let output = b.external_buffer("out", 2 * BYTES as usize);
        let [staged, half, more, most, unread] = ["staged", "half", "more", "most", "unread"]
            .map(|name| b.alloc_buffer(name, BYTES as usize));
        let view = |buffer| View::contiguous(buffer, DType::F32, &[BYTES / 4]).expect("a row");
        for offset in [BYTES, BYTES + BYTES / 2] {
            let dst = Pitched::linear(Target::Buffer(output), offset);
            let extent = Extent::linear(BYTES / 2);
            b.add_fill("zero", MemsetNode { dst, value: 0, element_size: 4, extent });
        }
        let stage = b.add_region_copy("stage", part(input, 0, BYTES), part(staged, 0, BYTES));
        b.add_elementwise("half", scale.clone(), &[view(staged)], &[], &[view(half)]);
        b.add_elementwise("quarter", scale.clone(), &[view(half)], &[], &[view(more)]);
        let alone = b.add_elementwise("eighth", scale.clone(), &[view(more)], &[], &[view(most)]);
        b.set_fusible(alone, false);
        for offset in [0, BYTES / 2] {
            let (from, to) = (part(most, offset, BYTES / 2), part(output, offset, BYTES / 2));
            b.add_region_copy("store", from, to);
        }
        let empty = b.add_barrier("join");
        b.add_elementwise("unread", scale.clone(), &[view(half)], &[], &[view(unread)]);
        let updated = Arg::Region(part(output, 0, 2 * BYTES), Access::ReadWrite);
        let named = b.add_kernel("use", 1, 32, 0).inputs([input]).arg(updated).finish();
        b.add_kernel("look", 1, 32, 0).inputs([output]).outputs([seen]).finish();
        b.chain(&[stage, empty, named]).dep(stage, named);
        if let Some(last) = last {
            b.dep(last, stage);
        }
        last = Some(empty);
    }
    b.build().expect("a valid graph")
}

fn passes() {
    let (mut graph, cost) = measured(mixed);
    println!("\na million nodes of twelve kinds, edges inferred, built in {cost} B a node");
    println!(
        "{:<18} {:>9} {:>10} {:>9} {:>10} {:>9} {:>9}  what it did",
        "pass", "seconds", "B a node", "check, s", "B a node", "nodes", "edges"
    );
    for pass in Pass::ALL {
        let (done, cost) = measured(|| pass.run(&graph).expect("a valid graph"));
        let (wrong, check) = measured(|| check_rewrite(&graph, &done.graph, &done.image));
        assert_eq!(wrong, []);
        let (nodes, edges) = (done.graph.node_count(), done.graph.edge_count());
        let counts: Vec<String> =
            done.report.counts().iter().map(|(what, count)| format!("{count} {what}")).collect();
        let did = counts.join(", ");
        println!("{:<18} {cost} {check} {nodes:>9} {edges:>9}  {did}", pass.name());
        graph = done.graph;
    }
}

/// Waits at full concurrency: of a graph as it is generated, and of the same nodes and edges numbered at random, since greedy
/// choices go by the order of edges.
fn syncs() {
    const NODES: u32 = 100_000;
    println!(
        "\n{:<30} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "waits of 100,000 nodes", "edges", "reduced", "greedy", "of these", "fewest", "seconds"
    );
    let row = |name: &str, graph: &ComputeGraph| {
        let (counts, Cost { seconds, .. }) = measured(|| synchronisations(graph, &[]));
        let Synchronisations { edges, reduced, greedy, greedy_reduced, optimal } =
            counts.expect("the graph's own order has no cycle");
        println!(
            "{name:<30} {edges:>9} {reduced:>9} {greedy:>9} {greedy_reduced:>9} {optimal:>9} {seconds:>9.3}"
        );
    };
    for kind in Kind::ALL {
        let graph = generate(kind, NODES, 1).expect("few enough nodes");
        row(kind.name(), &graph);
        let mut number: Vec<u32> = (0..NODES).collect();
        let mut random = numbers(7);
        for last in (1..number.len()).rev() {
            number.swap(last, random() as usize % (last + 1));
        }
        let renumbered = |node: NodeId| NodeId(number[node.index()]);
        let edges = graph.edges().map(|e| Edge::full(renumbered(e.from), renumbered(e.to)));
        let edges = shuffled(edges.collect());
        row(&format!("{}, in random order", kind.name()), &build(NODES, &edges));
    }
}

fn files() {
    heading("building and files, two edges a node, window 1,000");
    let ordered = edges(1_000, true);
    for (name, edges) in [("in random order", &shuffled(ordered.clone())), ("in order", &ordered)] {
        let graph = timed(&format!("build, edges {name}"), || build(NODES, edges));
        timed("  group the edges by consumer", || {
            Adjacency::group(NODES as usize, edges.iter().map(|e| (e.to, e.from))).rows()
        });
        let json = timed("  write JSON", || to_json(&graph));
        timed("  read JSON", || {
            from_json(json.as_bytes()).map(|g| g.node_count()).expect("as written")
        });
    }
}

fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if std::env::args().any(|arg| arg == "--test") {
        return; // `cargo test --benches` only asks whether it starts
    }
    let tables: [(&str, fn()); 5] = [
        ("edges", reductions),
        ("analyses", analyses),
        ("passes", passes),
        ("syncs", syncs),
        ("files", files),
    ];
    for (name, table) in tables {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            table();
        }
    }
}
