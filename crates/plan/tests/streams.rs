//! How nodes are spread over streams.

use phonograph_graph::{ComputeGraph, GraphBuilder, NodeId, Schedule, Step, check};
use phonograph_plan::streams::{PlanOptions, schedule};

fn graph(count: u32, edges: &[(u32, u32)]) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    for i in 0..count {
        b.add_kernel(&format!("k{i}"), 1, 32, 0).finish();
    }
    for &(from, to) in edges {
        b.dep(NodeId(from), NodeId(to));
    }
    b.build().unwrap()
}

/// The nodes of each stream in order, and the number of waits.
fn streams(graph: &ComputeGraph, most: u32) -> (Vec<Vec<u32>>, usize) {
    let schedule: Schedule = schedule(graph, &PlanOptions::at_most(most)).unwrap();
    assert_eq!(check(graph, &schedule), []);
    let mut streams = vec![Vec::new(); schedule.streams as usize];
    for step in &schedule.steps {
        if let Step::Run { nodes, stream } = step {
            streams[stream.index()].extend(nodes.iter().map(|n| n.0));
        }
    }
    (streams, schedule.wait_count())
}

#[test]
fn a_hundred_equal_independent_kernels_on_four_streams_are_25_each() {
    let (streams, waits) = streams(&graph(100, &[]), 4);
    assert_eq!(streams.iter().map(Vec::len).collect::<Vec<_>>(), [25; 4]);
    assert_eq!(waits, 0);
}

#[test]
fn a_chain_stays_on_one_stream() {
    let chain: Vec<(u32, u32)> = (1..50).map(|i| (i - 1, i)).collect();
    let (streams, waits) = streams(&graph(50, &chain), 8);
    assert_eq!((streams.len(), waits), (1, 0));
}

#[test]
fn independent_chains_each_have_a_stream() {
    let chains: Vec<(u32, u32)> = (3..60).map(|i| (i - 3, i)).collect();
    let (streams, waits) = streams(&graph(60, &chains), 8);
    assert_eq!((streams.len(), waits), (3, 0));
    assert!(streams.iter().all(|s| s.windows(2).all(|pair| pair[1] == pair[0] + 3)));
}

#[test]
fn a_fork_and_join_waits_once_for_each_branch_elsewhere() {
    let mut edges: Vec<(u32, u32)> = (1..=4).map(|i| (0, i)).collect();
    edges.extend((1..=4).map(|i| (i, 5)));
    let (streams, waits) = streams(&graph(6, &edges), 4);
    assert_eq!((streams.len(), waits), (4, 6));
}

#[test]
fn what_one_wait_brings_is_not_waited_for_again() {
    // b waits for a; c, behind b on another stream, knows of a through b, and d knows from c.
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 4), (0, 4), (2, 4)];
    let (_, waits) = streams(&graph(5, &edges), 3);
    assert_eq!(waits, 2);
}
