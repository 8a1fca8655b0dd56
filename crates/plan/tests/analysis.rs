//! Analyses against brute force, and against graphs recorded from a real driver.

use std::fs;
use std::io::Read;
use std::path::Path;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{ComputeGraph, Edge, EdgeData, GraphBuilder, NodeId, from_dot};
use phonograph_plan::analysis::{critical_path, levels, redundant_edges, summary};

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
