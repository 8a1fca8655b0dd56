//! How nodes are spread over streams.

use std::collections::BTreeSet;

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use phonograph_graph::{
    ComputeGraph, Edge, EdgeData, GraphBuilder, MAX_STREAMS, NodeId, Schedule, Step, check,
};
use phonograph_plan::PlanError;
use phonograph_plan::cost::Overheads;
use phonograph_plan::memory;
use phonograph_plan::memory::MemoryOptions;
use phonograph_plan::simulate::{Bound, simulate};
use phonograph_plan::streams::{
    PlanOptions, StreamLimit, schedule, schedule_counted, synchronisations,
};

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

/// A random graph: layers, long edges, a chain with detours, or anything.
fn random(u: &mut Unstructured) -> Result<ComputeGraph> {
    let count: u32 = u.int_in_range(0..=40)?;
    let shape = u.int_in_range(0..=3)?;
    let weak: bool = u.ratio(1, 4)?;
    let mut b = GraphBuilder::new();
    for _ in 0..count {
        b.add_kernel("k", 1, 32, 0).finish();
    }
    for to in 1..count {
        let earliest = match shape {
            0 => to / 6 * 6 - 6 * u32::from(to >= 6),
            1 => to.saturating_sub(3),
            _ => 0,
        };
        let latest = if shape == 0 { (to / 6 * 6).saturating_sub(1) } else { to - 1 };
        for _ in 0..u.int_in_range(0..=3)? {
            if earliest <= latest && latest < to {
                let from = u.int_in_range(earliest..=latest)?;
                let weak = weak && u.arbitrary()?;
                let data = if weak { EdgeData::PROGRAMMATIC } else { EdgeData::FULL };
                b.add_edge(Edge { from: NodeId(from), to: NodeId(to), data });
            }
        }
    }
    Ok(b.build().unwrap())
}

/// `reach[a]` holds everything behind `a`.
fn reach(graph: &ComputeGraph) -> Vec<BTreeSet<NodeId>> {
    let mut reach = vec![BTreeSet::new(); graph.node_count()];
    for &node in graph.topological_order().iter().rev() {
        for &to in graph.successors(node) {
            let behind = reach[to.index()].clone();
            reach[node.index()].extend(behind);
            reach[node.index()].insert(to);
        }
    }
    reach
}

/// Right, no wait to spare, no record that nobody waits for, no two of one node.
#[track_caller]
fn check_lean(graph: &ComputeGraph, schedule: &Schedule) {
    assert_eq!(check(graph, schedule), []);
    let (mut recorded, mut awaited) = (Vec::new(), BTreeSet::new());
    for (at, step) in schedule.steps.iter().enumerate() {
        match step {
            Step::Wait { event, .. } => {
                awaited.insert(*event);
                let mut without = schedule.clone();
                without.steps.remove(at);
                assert_ne!(check(graph, &without), [], "step {at} of {schedule:?} is for nothing");
            }
            Step::Record { event, .. } => {
                let node = &schedule.steps[at - 1];
                assert!(matches!(node, Step::Run { .. }), "a record behind the node it is for");
                recorded.push(*event);
            }
            Step::Run { .. } => {}
        }
    }
    assert_eq!(recorded, awaited.into_iter().collect::<Vec<_>>(), "{schedule:?}");
}

/// The nodes of each stream in order.
fn by_stream(schedule: &Schedule) -> Vec<Vec<NodeId>> {
    let mut streams = vec![Vec::new(); schedule.streams as usize];
    for step in &schedule.steps {
        if let Step::Run { nodes, stream } = step {
            streams[stream.index()].extend_from_slice(nodes);
        }
    }
    streams
}

#[test]
fn at_full_concurrency_only_dependent_nodes_share_a_stream_and_waits_are_the_fewest() {
    arbtest(|u| {
        let graph = random(u)?;
        let options = PlanOptions { streams: StreamLimit::Full, ..PlanOptions::at_most(1) };
        let schedule = schedule(&graph, &options).unwrap();
        check_lean(&graph, &schedule);
        let behind = reach(&graph);
        for stream in by_stream(&schedule) {
            for pair in stream.windows(2) {
                assert!(behind[pair[0].index()].contains(&pair[1]), "{pair:?} on one stream");
            }
        }
        let counts = synchronisations(&graph, &schedule.reuse).unwrap();
        assert_eq!(schedule.wait_count(), counts.optimal);
        let planned = memory::plan(&graph, &options.memory).unwrap();
        assert_eq!(schedule_counted(&graph, &options, &planned), Ok((schedule.clone(), counts)));
        assert!(counts.optimal <= counts.greedy_reduced && counts.greedy_reduced <= counts.greedy);
        // As many as can run at once, by levels at least, and no more than chains of a cover.
        let width = phonograph_plan::analysis::levels(&graph).max_width();
        assert!(schedule.streams >= width);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn under_a_cap_no_wait_is_to_spare_whatever_nodes_cost() {
    arbtest(|u| {
        let graph = random(u)?;
        let most = u.int_in_range(1..=6)?;
        let highest = *u.choose(&[0, 1, 1_000, 1_000_000])?;
        let costs = (0..graph.node_count()).map(|_| u.int_in_range(0..=highest));
        let costs: Vec<u64> = costs.collect::<Result<_>>()?;
        let overheads =
            Overheads { handover_ns: u.int_in_range(0..=highest)?, ..Overheads::default() };
        let options = PlanOptions { costs: Some(&costs), overheads, ..PlanOptions::at_most(most) };
        let schedule = schedule(&graph, &options).unwrap();
        assert!(schedule.streams <= most);
        check_lean(&graph, &schedule);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn costs_spread_the_work_evenly_with_the_critical_path_first() {
    // One long chain, and short nodes that fill the other stream.
    let mut edges: Vec<(u32, u32)> = (1..10).map(|i| (i - 1, i)).collect();
    edges.push((9, 110));
    edges.extend((10..110).map(|i| (i, 110)));
    let graph = graph(111, &edges);
    let costs: Vec<u64> = (0..111).map(|i| if i < 10 { 10_000 } else { 1_000 }).collect();
    let options = PlanOptions { costs: Some(&costs), ..PlanOptions::at_most(2) };
    let schedule = schedule(&graph, &options).unwrap();
    assert_eq!(check(&graph, &schedule), []);
    let run = simulate(&graph, &schedule, &costs, Overheads::default());
    assert_eq!((run.makespan_ns, run.bound), (101_000, Bound::CriticalPath));
}

#[test]
fn more_streams_than_a_schedule_has_are_refused_and_fewer_asked_for() {
    let wide = graph(5_000, &[]);
    let options = PlanOptions { streams: StreamLimit::Full, ..PlanOptions::at_most(1) };
    let too_many = PlanError::TooManyStreams { needed: 5_000, limit: MAX_STREAMS };
    assert_eq!(schedule(&wide, &options), Err(too_many.clone()));
    assert_eq!(schedule(&wide, &PlanOptions::at_most(u32::MAX)), Err(too_many));
    let widest = schedule(&wide, &PlanOptions::at_most(MAX_STREAMS)).unwrap();
    assert_eq!(widest.streams, MAX_STREAMS);
    // A cap that cannot matter is no reason to refuse.
    let chain = graph(3, &[(0, 1), (1, 2)]);
    assert_eq!(schedule(&chain, &PlanOptions::at_most(u32::MAX)).unwrap().streams, 1);
    assert_eq!(schedule(&chain, &PlanOptions::at_most(0)), Err(PlanError::NoStreams));
    let costs = [1, 2];
    let options = PlanOptions { costs: Some(&costs), ..PlanOptions::at_most(1) };
    assert_eq!(schedule(&chain, &options), Err(PlanError::Costs { given: 2, nodes: 3 }));
}

/// The streams of a cover are merged: a fork into three, joined, again and again, needs no more than three.
#[test]
fn streams_that_have_ended_are_gone_on_with() {
    let mut edges = Vec::new();
    for fork in (0..400).step_by(4) {
        edges.extend((1..4).flat_map(|branch| [(fork, fork + branch), (fork + branch, fork + 4)]));
    }
    let graph = graph(401, &edges);
    let options = PlanOptions { streams: StreamLimit::Full, ..PlanOptions::at_most(1) };
    let schedule = schedule(&graph, &options).unwrap();
    check_lean(&graph, &schedule);
    assert_eq!((schedule.streams, schedule.wait_count()), (3, 400));
}

#[test]
fn graphs_inside_nodes_are_scheduled_with_the_same_limits() {
    let mut b = GraphBuilder::new();
    b.add_child("child", graph(12, &[]));
    let outer = b.build().unwrap();
    let options = PlanOptions { streams: StreamLimit::Full, ..PlanOptions::at_most(1) };
    for (options, streams) in [(options, 12), (PlanOptions::at_most(5), 5)] {
        let schedule = schedule(&outer, &options).unwrap();
        assert_eq!(check(&outer, &schedule), []);
        assert_eq!(schedule.inner[&NodeId(0)][0].streams, streams);
    }
}

/// Pairs of kernels, each over a buffer of its own, which may all run side by side, in memory for less than half of them.
#[test]
fn what_the_reuse_of_memory_adds_to_the_order_is_kept_with_no_wait_to_spare() {
    for pairs in [4usize, 10] {
        let mut b = GraphBuilder::new();
        for pair in 0..pairs {
            let buffer = b.alloc_buffer(&format!("b{pair}"), 1024);
            b.add_kernel("write", 1, 32, 0).outputs([buffer]).finish();
            b.add_kernel("read", 1, 32, 0).inputs([buffer]).finish();
        }
        let graph = b.build().unwrap();
        for streams in [StreamLimit::AtMost(1), StreamLimit::AtMost(3), StreamLimit::Full] {
            let memory = MemoryOptions { bytes: Some(2048), ..MemoryOptions::default() };
            let options = PlanOptions { streams, memory, ..PlanOptions::at_most(1) };
            let schedule = schedule(&graph, &options).unwrap();
            assert!(schedule.pool_bytes() <= 2048 && !schedule.reuse.is_empty());
            let costs = vec![1_000; graph.node_count()];
            let run = simulate(&graph, &schedule, &costs, Overheads::default());
            // Two buffers at a time: half of the pairs one after another, at least.
            assert!(run.critical_path_ns >= 1_000 * pairs as u64, "{run:?}");
            assert!(run.makespan_ns >= run.critical_path_ns);
            check_lean(&graph, &schedule);
        }
    }
}
