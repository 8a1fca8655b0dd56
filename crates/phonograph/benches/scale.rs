//! A million nodes with two edges each: building, and every analysis and planner, in seconds; memory in bytes a node.
//!
//! `cargo bench -p phonograph --bench scale`. Memory is the growth of the resident set, where Linux tells it.

use std::time::Instant;

use phonograph::graph::{Adjacency, Edge, GraphBuilder, NodeId, check, from_json, to_json};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::analysis::{critical_path, levels, redundant_edges};

const NODES: u32 = 1_000_000;

/// Resident bytes of this process, if the system says.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Two edges into each node: from the one before, and from one up to `window` before.
fn edges(window: u32) -> Vec<Edge> {
    let mut state = 1u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let far = |to: u32, random: u32| to - 1 - random % window.min(to);
    (1..NODES)
        .flat_map(|to| {
            let from = far(to, random());
            [Edge::full(NodeId(to - 1), NodeId(to)), Edge::full(NodeId(from), NodeId(to))]
        })
        .collect()
}

/// The edges in an order that has nothing to do with the nodes'.
fn shuffled(mut edges: Vec<Edge>) -> Vec<Edge> {
    let mut state = 7u64;
    for last in (1..edges.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        edges.swap(last, (state >> 33) as usize % (last + 1));
    }
    edges
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{name:<44} {:>8.3} s", start.elapsed().as_secs_f64());
    result
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return; // `cargo test --benches` only asks whether it starts
    }
    for (name, edges) in [("in random order", shuffled(edges(1000))), ("in order", edges(1000))] {
        let before = resident();
        let graph = timed(&format!("build, edges {name}"), || {
            let mut b = GraphBuilder::new();
            for _ in 0..NODES {
                b.add_kernel("k", 1, 32, 0).finish();
            }
            for &edge in &edges {
                b.add_edge(edge);
            }
            b.build().expect("the edges go forward")
        });
        if let (Some(before), Some(after)) = (before, resident()) {
            // What the builder freed may stay resident: an upper bound.
            let bytes = after.saturating_sub(before) / u64::from(NODES);
            println!("{:<44} {bytes:>8} B a node", "  resident");
        }
        timed("  levels", || levels(&graph).max_width());
        timed("  critical path", || critical_path(&graph, |_| 1).cost);
        let redundant = timed("  redundant edges, window 1000", || redundant_edges(&graph).len());
        println!("{:<44} {redundant:>8}", "    found");
        let plan = timed("  plan on 4 streams", || ExecutionPlan::build(&graph, 4));
        let plan = plan.expect("a valid graph can be planned");
        let schedule = plan.schedule().expect("a plan of a graph has a schedule");
        let violations = timed("  check the plan", || check(&graph, schedule).len());
        assert_eq!(violations, 0);
        let json = timed("  write JSON", || to_json(&graph));
        timed("  read JSON", || {
            from_json(json.as_bytes()).map(|g| g.node_count()).expect("as written")
        });
        timed("  group the edges by consumer", || {
            Adjacency::group(NODES as usize, edges.iter().map(|e| (e.to, e.from))).rows()
        });
    }
}
