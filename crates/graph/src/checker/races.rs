//! Conflicting accesses that no order separates.

use crate::checker::reach::{By, GuaranteedOrder};
use crate::{ComputeGraph, NodeId, Operands, infer};

/// Two nodes that touch the same bytes, at least one writing, while nothing orders them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{first} and {second} touch the same memory, one of them writes, and no edge orders them")]
pub struct Race {
    /// The one created first.
    pub first: NodeId,
    /// The other.
    pub second: NodeId,
}

/// The races of a graph: empty for every graph whose edges include its data dependencies, as those built with
/// inference do.
///
/// A weak edge orders: it may join only kernels that wait for their producer before they touch memory.
///
/// Only declared operands count, and those that were observed, as far as the trials went. A graph from elsewhere, of whose
/// nodes the effects are unknown, has none that could be told. Inner graphs are for the caller to ask about. Of many nodes
/// that race for the same bytes, each is reported against its neighbours in topological order, which is enough to show that
/// there is a race. Costs what inference costs, and a pass over the graph per 64 conflicting nodes.
pub fn races(graph: &ComputeGraph) -> Vec<Race> {
    races_of(graph, |node, found| graph.add_operands(node, found))
}

/// The same if nodes touched the operands that `add_operands` adds to a list.
pub(super) fn races_of(
    graph: &ComputeGraph,
    add_operands: impl Fn(NodeId, &mut Operands),
) -> Vec<Race> {
    // In any topological order, if each conflict with the next user of the same bytes is ordered, all are.
    let order = graph.topological_order();
    let node_at = |place: NodeId| order[place.index()];
    let operands = |place: NodeId, found: &mut Operands| add_operands(node_at(place), found);
    let conflicts = infer::infer(graph.buffers().len(), order.len(), operands)
        .into_iter()
        .map(|edge| (node_at(edge.from), node_at(edge.to)))
        .collect();
    let loose = GuaranteedOrder::of_edges(graph).unordered(conflicts, By::Wait).into_iter();
    loose.map(|(a, b)| Race { first: a.min(b), second: a.max(b) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, EdgeData, GraphBuilder, Observed, Region};

    #[test]
    fn conflicts_without_an_edge_are_races() {
        let build = |edge: Option<EdgeData>| {
            let mut b = GraphBuilder::new().with_auto_infer_edges(false);
            let x = b.alloc_buffer("x", 64);
            let from = b.add_kernel("write", 1, 1, 0).outputs([x]).finish();
            let to = b.add_kernel("read", 1, 1, 0).inputs([x]).finish();
            if let Some(data) = edge {
                b.add_edge(crate::Edge { from, to, data });
            }
            races(&b.build().unwrap())
        };
        let race = Race { first: NodeId(0), second: NodeId(1) };
        assert_eq!(build(None), [race]);
        assert_eq!(build(Some(EdgeData::FULL)), []);
        // The reader may start early, but touches memory only after its wait.
        assert_eq!(build(Some(EdgeData::PROGRAMMATIC)), []);
    }

    #[test]
    fn what_was_observed_races_as_what_is_declared() {
        let build = |infer: bool| {
            let mut b = GraphBuilder::new().with_auto_infer_edges(infer);
            let x = b.external_buffer("x", 64);
            for (offset, access) in
                [(0, Access::ReadWrite), (32, Access::Write), (16, Access::Read)]
            {
                let node = b.add_kernel("opaque", 1, 1, 0).finish();
                let region = Region { buffer: x, offset, bytes: 32 };
                b.observe(node, Observed::new(&[(region, access)], 5));
            }
            b.build().unwrap()
        };
        let race = |first| Race { first: NodeId(first), second: NodeId(2) };
        assert_eq!(races(&build(false)), [race(0), race(1)]);
        assert_eq!(races(&build(true)), []);
    }
}
