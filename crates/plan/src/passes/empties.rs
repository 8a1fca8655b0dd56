//! Empty nodes dissolve: whoever waited for them waits for what they waited for.
//!
//! Only where that takes no more edges than before: an empty node between three producers and three consumers
//! stands for nine edges with six. O(nodes + edges).

use phonograph_graph::{ComputeGraph, NodeKind, Rebuild};

use super::contract::contract;
use super::{Change, Left, PassError, PassReport, Reason, Rewritten, on_every_graph};

const PASS: &str = "dissolve empties";

/// Dissolves empty nodes where edges do not multiply.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::passes::dissolve_empties;
///
/// let mut b = GraphBuilder::new();
/// let [x, y] = ["x", "y"].map(|name| b.add_kernel(name, 1, 32, 0).finish());
/// let pause = b.add_barrier("pause");
/// b.chain(&[x, pause, y]);
/// let rewritten = dissolve_empties(&b.build()?)?;
/// assert_eq!((rewritten.graph.node_count(), rewritten.graph.edge_count()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PassError`], if the graph that comes out is not valid.
pub fn dissolve_empties(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &|graph| {
        let mut report = PassReport::new(PASS);
        let is_empty = |node| matches!(graph.node(node).kind, NodeKind::Empty);
        if !graph.node_ids().any(is_empty) {
            return Ok(Rewritten::unchanged(graph, report));
        }
        let contracted = contract(graph, is_empty);
        let mut stay = vec![false; graph.node_count()];
        for &(node, without, with) in &contracted.stay {
            stay[node.index()] = true;
            report.left.push(Left { node, why: Reason::EdgesMultiply { without, with } });
        }
        let mut rebuild = Rebuild::new(graph);
        for node in graph.node_ids().filter(|&node| is_empty(node) && !stay[node.index()]) {
            rebuild.drop_node(node);
            report.changed.push(Change::Dropped { node });
        }
        if report.changed.is_empty() {
            return Ok(Rewritten::unchanged(graph, report));
        }
        rebuild.edges(contracted.edges);
        Rewritten::rebuilt(rebuild, report)
    })
}
