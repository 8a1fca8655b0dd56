//! Analyses: on graphs of known figures, and against definitions on random ones.

use std::collections::BTreeSet;

use arbtest::arbtest;
use phonograph_graph::{
    ComputeGraph, ConditionalKind, DType, Edge, EdgeData, GraphBuilder, NodeId, View,
};
use phonograph_plan::analysis::{Levels, Summary, critical_path, redundant_edges};

fn graph(count: u32, edges: impl IntoIterator<Item = Edge>) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    for _ in 0..count {
        b.add_kernel("k", 1, 32, 0).finish();
    }
    for edge in edges {
        b.add_edge(edge);
    }
    b.build().unwrap()
}

fn full(from: u32, to: u32) -> Edge {
    Edge::full(NodeId(from), NodeId(to))
}

fn weak(from: u32, to: u32) -> Edge {
    Edge { from: NodeId(from), to: NodeId(to), data: EdgeData::PROGRAMMATIC }
}

/// The edges of a recorded capture of three streams beside the first, each a chain of sixteen kernels, that join.
fn multistream_3x4() -> ComputeGraph {
    let chains = [2..18, 18..34, 34..50];
    let inside = |chain: &std::ops::Range<u32>| {
        let (first, last) = (chain.start, chain.end - 1);
        let steps = (first + 1..=last).map(|to| full(to - 1, to));
        [full(1, first), full(last, 50)].into_iter().chain(steps).collect::<Vec<_>>()
    };
    let edges = [full(0, 1), full(1, 50), full(50, 51), full(51, 52)];
    graph(53, edges.into_iter().chain(chains.iter().flat_map(inside)))
}

#[test]
fn multistream_3x4_has_one_redundant_edge_and_a_critical_path_of_21() {
    let summary = Summary::of(&multistream_3x4());
    assert_eq!((summary.nodes, summary.edges, summary.redundant_edges), (53, 55, 1));
    assert_eq!(summary.graphs[0].redundant, [full(1, 50)]);
    assert_eq!((summary.critical_path_nodes, summary.max_width), (21, 3));
    insta::assert_snapshot!(summary, @r"
    53 nodes (53 kernel)
    55 edges, 1 of them redundant
    critical path of 21 nodes
    at most 3 nodes side by side
    ");
}

#[test]
fn a_path_that_ends_in_a_weak_edge_makes_no_full_edge_redundant() {
    let redundant = |edges: &[Edge]| redundant_edges(&graph(4, edges.iter().copied()));
    assert_eq!(redundant(&[full(0, 1), full(1, 2), full(0, 2)]), [full(0, 2)]);
    assert_eq!(redundant(&[full(0, 1), weak(1, 2), full(0, 2)]), []);
    assert_eq!(redundant(&[weak(0, 1), full(1, 2), full(0, 2)]), [full(0, 2)]);
    // A weak edge asks for less: any other path will do.
    assert_eq!(redundant(&[full(0, 1), weak(1, 2), weak(0, 2)]), [weak(0, 2)]);
    assert_eq!(redundant(&[full(0, 1), weak(0, 1)]), [weak(0, 1)]);
    let other = Edge { data: EdgeData::LAUNCH_ORDER, ..weak(0, 1) };
    assert_eq!(redundant(&[weak(0, 1), other]), []);
    // 0 → 3 leads through 2 → 3 alone once 1 → 3 is gone.
    assert_eq!(
        redundant(&[full(0, 1), full(1, 2), full(2, 3), full(1, 3), full(0, 3)]),
        [full(0, 3), full(1, 3)]
    );
}

#[test]
fn figures_of_inner_graphs_are_summed_and_paths_say_where() {
    let triangle = |b: &mut GraphBuilder| {
        let [x, y, z] = ["x", "y", "z"].map(|n| b.add_barrier(n));
        b.chain(&[x, y, z]).dep(x, z);
    };
    let body = |wide: u32| {
        let mut b = GraphBuilder::new();
        triangle(&mut b);
        (0..wide).for_each(|_| assert!(b.add_memset("m", 4, 0).0 >= 3));
        b.build().unwrap()
    };
    let mut nested = GraphBuilder::new();
    nested.add_child("inner", body(0));
    let mut b = GraphBuilder::new();
    let flag = b.external_buffer("flag", 4);
    let value = View::contiguous(flag, DType::I32, &[1]).unwrap();
    let condition = phonograph_graph::Condition::Value(value);
    let (first, second) = (body(0), body(7));
    let child = b.add_child("child", nested.build().unwrap());
    let choice = b.add_conditional("if", ConditionalKind::If, condition, vec![first, second]);
    let summary = Summary::of(&b.build().unwrap());
    assert_eq!((summary.nodes, summary.edges, summary.redundant_edges), (19, 9, 3));
    assert_eq!((summary.critical_path_nodes, summary.max_width), (3, 8));
    let paths: Vec<_> = summary.graphs.iter().map(|g| g.path.clone()).collect();
    assert_eq!(
        paths,
        [
            vec![],
            vec![(child, 0)],
            vec![(child, 0), (NodeId(0), 0)],
            vec![(choice, 0)],
            vec![(choice, 1)]
        ]
    );
    assert_eq!((summary.kinds["empty"], summary.kinds["memset"]), (9, 7));
}

#[test]
fn an_empty_graph_has_figures_too() {
    let summary = Summary::of(&graph(0, []));
    assert_eq!((summary.nodes, summary.critical_path_nodes, summary.max_width), (0, 0, 0));
}

/// What is complete when each node starts, and when it passes its wait.
fn order(graph: &ComputeGraph, without: &[Edge]) -> (Vec<BTreeSet<NodeId>>, Vec<BTreeSet<NodeId>>) {
    let (mut start, mut wait) =
        (vec![BTreeSet::new(); graph.node_count()], vec![BTreeSet::new(); graph.node_count()]);
    for &node in graph.topological_order() {
        for edge in graph.incoming(node).filter(|edge| !without.contains(edge)) {
            let mut complete = wait[edge.from.index()].clone();
            complete.insert(edge.from);
            if edge.data.is_full() {
                start[node.index()].extend(&complete);
            }
            wait[node.index()].extend(complete);
        }
    }
    (start, wait)
}

#[test]
fn redundant_edges_are_exactly_those_that_the_order_does_without() {
    arbtest(|u| {
        let count: u32 = u.int_in_range(1..=14)?;
        let mut edges = Vec::new();
        for _ in 0..u.int_in_range(0..=3 * count)? {
            let to = u.int_in_range(0..=count - 1)?;
            let from = u.int_in_range(0..=to)?;
            if from < to {
                edges.push(if u.ratio(1, 3)? { weak(from, to) } else { full(from, to) });
            }
        }
        // Creation order need not be topological.
        let flip = u.arbitrary()?;
        let place = |n: NodeId| NodeId(if flip { count - 1 - n.0 } else { n.0 });
        let edges = edges.into_iter().map(|e| Edge { from: place(e.from), to: place(e.to), ..e });
        let graph = graph(count, edges);
        let redundant = redundant_edges(&graph);
        let whole = order(&graph, &[]);
        assert_eq!(order(&graph, &redundant), whole, "left out {redundant:?} of {graph:?}");
        for edge in graph.edges().filter(|edge| !redundant.contains(edge)) {
            let left_out: Vec<Edge> = redundant.iter().copied().chain([edge]).collect();
            assert_ne!(order(&graph, &left_out), whole, "{edge:?} is redundant in {graph:?}");
        }
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn redundant_edges_are_found_across_chunks_of_sources() {
    // A chain of 5000 with an edge over every 1500 nodes, and one over all.
    let count = 5000;
    let long = [full(0, 1500), full(1000, 2500), full(3499, 4999), full(0, 4999)];
    let graph = graph(count, (1..count).map(|to| full(to - 1, to)).chain(long));
    let mut expected = long.to_vec();
    expected.sort_unstable();
    assert_eq!(redundant_edges(&graph), expected);
}

#[test]
fn levels_and_critical_paths_are_longest_paths() {
    arbtest(|u| {
        let count: u32 = u.int_in_range(1..=12)?;
        let mut edges = Vec::new();
        for _ in 0..u.int_in_range(0..=2 * count)? {
            let to = u.int_in_range(0..=count - 1)?;
            let from = u.int_in_range(0..=to)?;
            edges.extend((from < to).then(|| full(from, to)));
        }
        let costs: Vec<u64> =
            (0..count).map(|_| u.int_in_range(0..=9)).collect::<Result<_, _>>()?;
        let graph = graph(count, edges);
        // Relaxing every edge `count` times finds longest paths whatever the order.
        let mut depth = vec![0; count as usize];
        let mut until = costs.clone();
        for _ in 0..count {
            for Edge { from, to, .. } in graph.edges() {
                let (from, to) = (from.index(), to.index());
                depth[to] = depth[to].max(depth[from] + 1);
                until[to] = until[to].max(until[from] + costs[to]);
            }
        }
        let levels = Levels::new(&graph);
        for node in graph.node_ids() {
            assert_eq!(levels.of(node), depth[node.index()]);
        }
        let widest = (0..count).map(|l| depth.iter().filter(|&&d| d == l).count()).max();
        assert_eq!(Some(levels.max_width()), widest);
        let path = critical_path(&graph, |node| costs[node.index()]);
        assert_eq!(Some(path.cost), until.iter().copied().max());
        assert_eq!(path.nodes.iter().map(|n| costs[n.index()]).sum::<u64>(), path.cost);
        assert!(path.nodes.windows(2).all(|p| graph.successors(p[0]).contains(&p[1])));
        Ok(())
    })
    .budget_ms(500);
}
