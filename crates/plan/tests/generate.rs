//! Generated graphs: shapes, sizes, and that a request always gives the same.

use phonograph_graph::{ComputeGraph, NodeId, check, races};
use phonograph_plan::ExecutionPlan;
use phonograph_plan::analysis::levels;
use phonograph_plan::generate::{GenerateError, Kind, generate};

#[track_caller]
fn made(kind: Kind, nodes: u32) -> ComputeGraph {
    let graph = generate(kind, nodes, 7).unwrap();
    assert_eq!(graph.node_count(), nodes as usize, "{kind}");
    graph
}

#[test]
fn every_kind_makes_exactly_as_many_nodes_and_a_graph_that_can_be_planned() {
    for kind in Kind::ALL {
        for nodes in [1, 2, 3, 10, 64, 65, 333, 2000] {
            let graph = made(kind, nodes);
            assert_eq!(graph, made(kind, nodes), "{kind}");
            assert_eq!(races(&graph), [], "{kind}");
            let plan = ExecutionPlan::build(&graph, 3).unwrap();
            assert_eq!(check(&graph, plan.schedule().unwrap()), [], "{kind} of {nodes}");
        }
        let other = generate(kind, 2000, 8).unwrap();
        assert_ne!(other, made(kind, 2000), "{kind}: the seed matters");
        assert_eq!(kind.name().parse(), Ok(kind));
    }
}

#[test]
fn shapes() {
    let figures = |kind| {
        let graph = made(kind, 10_000);
        let levels = levels(&graph);
        (graph.edge_count(), levels.widths.len(), levels.max_width())
    };
    assert_eq!(figures(Kind::Chain), (9_999, 10_000, 1));
    assert_eq!(figures(Kind::Wavefront), (2 * 100 * 99, 199, 100));
    assert_eq!(figures(Kind::Tree).0, 9_999);
    let (edges, depth, width) = figures(Kind::Layered);
    assert!((20_000..25_000).contains(&edges), "{edges}");
    assert_eq!((depth, width), (100, 100));
    let long = made(Kind::LongEdges, 10_000);
    let span = |to: NodeId| long.predecessors(to).iter().map(|from| to.0 - from.0).max();
    let spans: u64 = long.node_ids().filter_map(span).map(u64::from).sum();
    assert!(spans > 10_000 * 2_000, "{spans}");
}

#[test]
fn refusals() {
    for (kind, nodes) in
        [(Kind::Chain, 0), (Kind::Chain, (1 << 22) + 1), (Kind::Transformer, 1 << 21)]
    {
        assert_eq!(generate(kind, nodes, 0).err(), Some(GenerateError::Nodes { kind, nodes }));
    }
    let unknown = "ring".parse::<Kind>().unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "there is no kind of graph called `ring`; there are chain, layered, wavefront, tree, transformer, long-edges"
    );
}
