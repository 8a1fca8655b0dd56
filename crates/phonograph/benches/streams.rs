//! Planning a million nodes: seconds and bytes a node of each step, waits and streams that come out.
//!
//! `cargo bench -p phonograph --bench streams [-- NODES]`. Seconds are those of the processor. Bytes are what a step had
//! allocated at most, beside its input. In the second half of a graph's rows the same nodes and edges were given to the
//! builder in random order, with random numbers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use phonograph::graph::{ComputeGraph, GraphBuilder, NodeId, check};
use phonograph::plan::cost::Overheads;
use phonograph::plan::generate::{Kind, generate};
use phonograph::plan::simulate::simulate;
use phonograph::plan::streams::{PlanOptions, StreamLimit, schedule};

/// Counts bytes in use.
struct Counting;

static NOW: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

fn count(freed: usize, taken: usize) {
    NOW.fetch_sub(freed as u64, Ordering::Relaxed);
    let now = NOW.fetch_add(taken as u64, Ordering::Relaxed) + taken as u64;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Seconds that this thread has had a processor for, where Linux tells them: others on the machine do not count.
fn on_processor() -> Option<f64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = times.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// What `work` gives, its seconds, and the bytes a node that it had allocated at most.
fn measured<T>(nodes: u32, work: impl FnOnce() -> T) -> (T, f64, u64) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let (clock, started) = (Instant::now(), on_processor());
    let result = work();
    let seconds = match (started, on_processor()) {
        (Some(started), Some(ended)) => ended - started,
        _ => clock.elapsed().as_secs_f64(),
    };
    (result, seconds, (PEAK.load(Ordering::Relaxed) - before) / u64::from(nodes))
}

fn timed<T>(what: &str, nodes: u32, work: impl FnOnce() -> T) -> T {
    let (result, seconds, bytes) = measured(nodes, work);
    print!("  {what:<28} {seconds:>8.3} s {bytes:>5} B a node");
    result
}

/// The same graph with nodes and edges in an order that has nothing to do with the graph's.
fn shuffled(graph: &ComputeGraph) -> ComputeGraph {
    let mut state = 7u64;
    let mut shuffle = |list: &mut Vec<(NodeId, NodeId)>| {
        for last in (1..list.len()).rev() {
            // Knuth's multiplier; the high bits are the good ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            list.swap(last, (state >> 33) as usize % (last + 1));
        }
    };
    let mut number: Vec<(NodeId, NodeId)> = graph.node_ids().map(|id| (id, id)).collect();
    shuffle(&mut number);
    let mut edges: Vec<(NodeId, NodeId)> = graph
        .edges()
        .map(|edge| (number[edge.from.index()].0, number[edge.to.index()].0))
        .collect();
    shuffle(&mut edges);
    let mut builder = GraphBuilder::new().with_auto_infer_edges(false);
    for _ in graph.nodes() {
        builder.add_kernel("spin", 1, 32, 0).finish();
    }
    for (from, to) in edges {
        builder.dep(from, to);
    }
    timed("build", graph.node_count() as u32, || builder.build().expect("no cycle came in"))
}

/// Prints the plans of a graph.
fn plans(graph: &ComputeGraph, nodes: u32) {
    let costs: Vec<u64> = graph.nodes().iter().map(|node| 1_000 + node.name.len() as u64).collect();
    let overheads = Overheads { handover_ns: 500, ..Overheads::default() };
    for (name, streams, costs) in [
        ("plan, 4 streams", StreamLimit::AtMost(4), None),
        ("plan, 4 streams, costs", StreamLimit::AtMost(4), Some(&costs[..])),
        ("plan, 64 streams", StreamLimit::AtMost(64), None),
        ("plan, full concurrency", StreamLimit::Full, None),
    ] {
        let overheads = if costs.is_some() { overheads } else { Overheads::default() };
        let options = PlanOptions { streams, costs, overheads, ..PlanOptions::at_most(1) };
        match timed(name, nodes, || schedule(graph, &options)) {
            Ok(found) => {
                println!("   {} streams, {} waits", found.streams, found.wait_count());
                if streams == StreamLimit::AtMost(4) {
                    let wrong = timed("  check", nodes, || check(graph, &found).len());
                    println!();
                    assert_eq!(wrong, 0, "{name}");
                    let costs: Vec<u64> =
                        costs.map_or_else(|| vec![1_000; nodes as usize], Vec::from);
                    let run =
                        timed("  simulate", nodes, || simulate(graph, &found, &costs, overheads));
                    println!("   {:?}", run.bound);
                }
            }
            Err(error) => println!("   {error}"),
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let bench = std::env::args().any(|argument| argument == "--bench");
    let nodes = arguments.next().map_or(if bench { 1_000_000 } else { 1_000 }, |text| {
        text.parse().expect("a number of nodes")
    });
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Transformer) {
        println!("{kind}, {nodes} nodes");
        let graph =
            timed("generate", nodes, || generate(kind, nodes, 1).expect("few enough nodes"));
        println!();
        plans(&graph, nodes);
        println!("{kind}, {nodes} nodes, in random order");
        let graph = shuffled(&graph);
        println!();
        plans(&graph, nodes);
    }
}
