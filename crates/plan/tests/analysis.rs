//! Analyses against brute force, and against graphs recorded from a real driver.

use std::fs;
use std::io::Read;
use std::path::Path;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{BufferId, ComputeGraph, Edge, EdgeData, GraphBuilder, NodeId, from_dot};
use phonograph_plan::analysis::{
    Budget, By, ReachIndex, critical_path, dominators, levels, lifetimes, ordered, post_dominators,
    redundant_edges, summary, timing, width,
};

fn recorded(file: &str) -> ComputeGraph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/data").join(file);
    let file = fs::File::open(path).unwrap();
    let mut dot = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut dot).unwrap();
    from_dot(&dot).unwrap()
}

#[test]
fn a_forked_capture_has_one_redundant_edge() {
    let graph = recorded("multistream_3x4.dot.gz");
    let found = summary(&graph);
    assert_eq!((found.nodes, found.edges), (53, 55));
    assert_eq!(redundant_edges(&graph), [Edge::full(NodeId(1), NodeId(50))]);
    assert_eq!(found.critical_path_nodes, 21);
    assert_eq!(found.max_width, 3);
}

#[test]
fn bytes_that_no_number_holds_are_the_largest_number() {
    let mut b = GraphBuilder::new();
    for _ in 0..1 << 16 {
        b.alloc_buffer("large", 1 << 48);
    }
    assert_eq!(summary(&b.build().unwrap()).internal_bytes, u64::MAX);
}

/// A random graph, edges forward in creation order, some of them weak.
fn random(u: &mut Unstructured) -> Result<ComputeGraph> {
    let nodes = u.int_in_range(1..=90)?;
    let reach = u.int_in_range(1..=nodes)?;
    let mut b = GraphBuilder::new();
    for _ in 0..nodes {
        b.add_kernel("k", 1, 1, 0).finish();
    }
    for to in 1..nodes {
        for _ in 0..u.int_in_range(0..=4)? {
            let from = to - u.int_in_range(1..=reach.min(to))?;
            let weak = u.ratio(1, 5)?;
            let data = if weak { EdgeData::PROGRAMMATIC } else { EdgeData::FULL };
            b.add_edge(Edge { from: NodeId(from), to: NodeId(to), data });
        }
    }
    Ok(b.build().expect("edges go forward"))
}

/// u is complete when v is complete, by edges of any kind.
fn reaches(graph: &ComputeGraph, u: NodeId, v: NodeId) -> bool {
    u == v || graph.is_reachable(u, v)
}

#[test]
fn redundant_edges_are_those_that_brute_force_finds() {
    arbtest::arbtest(|u| {
        let graph = random(u)?;
        let implied = |edge: &Edge| {
            graph.incoming(edge.to).any(|other| {
                let stronger = other.data.is_full() || !edge.data.is_full();
                let beside = other.from == edge.from && other != *edge && other.data.is_full();
                let around = other.from != edge.from && reaches(&graph, edge.from, other.from);
                stronger && (beside || around)
            })
        };
        let expected: Vec<Edge> = graph.edges().filter(implied).collect();
        assert_eq!(redundant_edges(&graph), expected);
        Ok(())
    })
    .budget_ms(1_500);
}

#[test]
fn the_critical_path_is_a_path_of_one_node_a_level() {
    arbtest::arbtest(|u| {
        let graph = random(u)?;
        let path = critical_path(&graph, |_| 1);
        assert_eq!(path.nodes.len(), levels(&graph).widths.len());
        assert_eq!(path.cost as usize, path.nodes.len());
        for pair in path.nodes.windows(2) {
            assert!(graph.predecessors(pair[1]).contains(&pair[0]));
        }
        Ok(())
    })
    .budget_ms(300);
}

#[test]
fn chunks_meet_at_their_borders() {
    // Long edges across several chunks of 1024 sources, each beside a chain that implies it.
    let mut b = GraphBuilder::new();
    let nodes: Vec<_> = (0..5000).map(|_| b.add_barrier("n")).collect();
    b.chain(&nodes);
    let long = [(0, 4999), (1023, 1025), (1024, 3000), (2047, 2049), (10, 1500)];
    for (from, to) in long {
        b.dep(nodes[from], nodes[to]);
    }
    let mut expected = long.map(|(from, to)| Edge::full(nodes[from], nodes[to]));
    expected.sort_by_key(|edge| edge.to);
    assert_eq!(redundant_edges(&b.build().unwrap()), expected);
}

/// A random graph whose nodes were not created in topological order.
fn shuffled(u: &mut Unstructured) -> Result<ComputeGraph> {
    let graph = random(u)?;
    let mut to: Vec<NodeId> = graph.node_ids().collect();
    for last in (1..to.len()).rev() {
        to.swap(last, u.int_in_range(0..=last)?);
    }
    let mut b = GraphBuilder::new();
    let buffers: Vec<BufferId> = (0..5).map(|_| b.alloc_buffer("x", 16)).collect();
    for _ in graph.nodes() {
        let used: Vec<BufferId> = (0..u.int_in_range(0..=2)?)
            .map(|_| u.choose(&buffers).copied())
            .collect::<Result<_>>()?;
        b.add_kernel("k", 1, 1, 0).inputs(used).finish();
    }
    for edge in graph.edges() {
        b.add_edge(Edge { from: to[edge.from.index()], to: to[edge.to.index()], ..edge });
    }
    Ok(b.build().expect("renamed"))
}

/// By brute force: a is complete before b starts, or waits.
fn before(graph: &ComputeGraph, a: NodeId, b: NodeId, by: By) -> bool {
    let counts = |edge: &Edge| edge.data.is_full() || by == By::Wait;
    a != b && graph.incoming(b).filter(counts).any(|edge| reaches(graph, a, edge.from))
}

#[test]
fn the_order_of_pairs_is_what_brute_force_finds() {
    arbtest::arbtest(|u| {
        let graph = shuffled(u)?;
        let all = graph.node_ids().flat_map(|a| graph.node_ids().map(move |b| (a, b)));
        let pairs: Vec<_> = all.filter(|_| u.ratio(1, 4).unwrap_or(true)).collect();
        let index = ReachIndex::new(&graph, Budget::default()).unwrap();
        for by in [By::Start, By::Wait] {
            for (&(a, b), found) in pairs.iter().zip(ordered(&graph, &pairs, by)) {
                let expected = before(&graph, a, b, by);
                assert_eq!(found, expected, "{a} {b} {by:?}");
                assert_eq!(index.before(a, b, by), expected, "{a} {b} {by:?}");
            }
        }
        Ok(())
    })
    .budget_ms(700);
}

#[test]
fn nodes_have_as_much_slack_as_they_can_be_held_up() {
    arbtest::arbtest(|u| {
        let graph = shuffled(u)?;
        let costs: Vec<u64> =
            graph.node_ids().map(|_| u.int_in_range(0..=9)).collect::<Result<_>>()?;
        let cost = |node: NodeId| costs[node.index()];
        let found = timing(&graph, cost);
        assert_eq!(found.makespan, critical_path(&graph, cost).cost);
        let node = NodeId(u.int_in_range(0..=graph.node_count() as u32 - 1)?);
        for (more, end) in [(0, 0), (1, 1), (5, 5)] {
            let held = |n: NodeId| cost(n) + if n == node { found.slack(node) + more } else { 0 };
            assert_eq!(timing(&graph, held).makespan, found.makespan + end);
        }
        Ok(())
    })
    .budget_ms(300);
}

/// Whether a path leads from a root to a node without stepping on another.
fn avoids(graph: &ComputeGraph, node: NodeId, without: NodeId) -> bool {
    let mut reached = vec![false; graph.node_count()];
    for &at in graph.topological_order() {
        let producers = graph.predecessors(at);
        let from = |from: &NodeId| reached[from.index()];
        reached[at.index()] = at != without && (producers.is_empty() || producers.iter().any(from));
    }
    reached[node.index()]
}

#[test]
fn dominators_are_on_every_path() {
    arbtest::arbtest(|u| {
        let graph = shuffled(u)?;
        let mut reversed = GraphBuilder::new();
        for _ in graph.nodes() {
            reversed.add_barrier("n");
        }
        for edge in graph.edges() {
            reversed.dep(edge.to, edge.from);
        }
        let reversed = reversed.build().unwrap();
        let (from_start, to_end) = (dominators(&graph), post_dominators(&graph));
        for node in graph.node_ids().filter(|_| u.ratio(1, 8).unwrap_or(true)) {
            for (graph, tree) in [(&graph, &from_start), (&reversed, &to_end)] {
                let expected: Vec<NodeId> = graph
                    .node_ids()
                    .filter(|&above| above == node || !avoids(graph, node, above))
                    .collect();
                let found: Vec<NodeId> =
                    graph.node_ids().filter(|&above| tree.dominates(above, node)).collect();
                assert_eq!(found, expected, "{node}");
                let immediate = expected.iter().filter(|&&above| above != node);
                let immediate = immediate.copied().find(|&above| {
                    expected.iter().all(|&other| other == node || tree.dominates(other, above))
                });
                assert_eq!(tree.immediate(node), immediate, "{node}");
            }
        }
        Ok(())
    })
    .budget_ms(700);
}

#[test]
fn the_width_is_shown_by_an_antichain_and_bounded_by_chains() {
    arbtest::arbtest(|u| {
        let graph = shuffled(u)?;
        let found = width(&graph, Budget::default());
        let exact = found.exact().expect("a small graph fits the budget");
        assert_eq!(found.antichain.len(), exact);
        for &a in &found.antichain {
            for &b in &found.antichain {
                assert!(!graph.is_reachable(a, b), "{a} {b}");
            }
        }
        // Nothing wider: as many chains as the antichain has nodes cover the graph (one augmenting path at a time).
        let count = graph.node_count();
        let mut next: Vec<Option<NodeId>> = vec![None; count];
        for from in graph.node_ids() {
            augment(&graph, from, &mut vec![false; count], &mut next);
        }
        let chains = count - next.iter().flatten().count();
        assert_eq!(chains, exact);
        let bounded = width(&graph, Budget { bytes: 0, steps: 0 });
        assert!(bounded.lower <= exact && exact <= bounded.upper);
        assert_eq!(bounded.exceeded.is_none(), bounded.exact().is_some());
        Ok(())
    })
    .budget_ms(700);
}

/// `before[b]` is the node before `b` on its chain.
fn augment(
    graph: &ComputeGraph,
    from: NodeId,
    seen: &mut [bool],
    before: &mut [Option<NodeId>],
) -> bool {
    graph.node_ids().any(|to| {
        if seen[to.index()] || !graph.is_reachable(from, to) {
            return false;
        }
        seen[to.index()] = true;
        let free = before[to.index()].is_none_or(|other| augment(graph, other, seen, before));
        if free {
            before[to.index()] = Some(from);
        }
        free
    })
}

#[test]
fn lifetimes_end_with_the_users_that_none_comes_after() {
    arbtest::arbtest(|u| {
        let graph = shuffled(u)?;
        for (index, life) in lifetimes(&graph).iter().enumerate() {
            let uses = |node: &NodeId| {
                graph.operands(*node).iter().any(|(region, _)| region.buffer.index() == index)
            };
            let users: Vec<NodeId> =
                graph.topological_order().iter().copied().filter(uses).collect();
            let earlier = |a: NodeId, b: NodeId| before(&graph, a, b, By::Start);
            let alone = |first: bool| -> Vec<NodeId> {
                let meets = |&user: &NodeId| {
                    !users.iter().any(|&o| if first { earlier(o, user) } else { earlier(user, o) })
                };
                users.iter().copied().filter(meets).collect()
            };
            assert!(!life.bounded);
            assert_eq!((life.first.to_vec(), life.last.to_vec()), (alone(true), alone(false)));
        }
        Ok(())
    })
    .budget_ms(700);
}
