//! Taking nodes out of a graph without losing the order that they gave.
//!
//! In: a graph and nodes to take out. Out: the edges that stand for theirs, and which nodes have to stay, empty, because
//! more edges would be needed in their place than they have. Whoever was ordered through nodes that are gone is
//! ordered directly. O(nodes + edges): edges never multiply.

use phonograph_graph::{ComputeGraph, Edge, EdgeData, NodeId};
use rustc_hash::{FxHashMap, FxHashSet};

/// A graph's edges without some of its nodes.
pub(crate) struct Contracted {
    /// All edges, in terms of the graph as it was; none of them has an end at a node that is gone.
    pub edges: Vec<Edge>,
    /// The nodes that had to stay as empty ones, with their edges and the edges that it would take without them.
    pub stay: Vec<(NodeId, usize, usize)>,
}

/// Takes out the nodes for which `goes` holds.
pub(crate) fn contract(graph: &ComputeGraph, goes: impl Fn(NodeId) -> bool) -> Contracted {
    let mut edges = Vec::with_capacity(graph.edge_count());
    let mut stay = Vec::new();
    let mut emptied: FxHashSet<NodeId> = FxHashSet::default();
    // For each node that is gone, those that stay and lead to it.
    let mut waiting: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
    let mut seen = FxHashSet::default();
    for &node in graph.topological_order() {
        if goes(node) {
            seen.clear();
            let mut before = Vec::new();
            for &from in graph.predecessors(node) {
                match waiting.get(&from) {
                    None => before.extend(Some(from).filter(|&from| seen.insert(from))),
                    Some(others) => {
                        before.extend(others.iter().copied().filter(|&from| seen.insert(from)));
                    }
                }
            }
            let (ins, outs) = (before.len(), graph.successors(node).len());
            if ins * outs > ins + outs {
                edges.extend(before.iter().map(|&from| Edge::full(from, node)));
                emptied.insert(node);
                stay.push((node, ins + outs, ins * outs));
            } else {
                waiting.insert(node, if outs == 0 { Vec::new() } else { before });
            }
            continue;
        }
        for edge in graph.incoming(node) {
            match waiting.get(&edge.from) {
                Some(before) => edges.extend(before.iter().map(|&from| {
                    // A weak edge to the node lets its start go ahead; so may one from whoever came before, if it can.
                    let weak = !edge.data.is_full() && graph.node(from).kernel().is_some();
                    let data = if weak && !emptied.contains(&from) {
                        EdgeData::PROGRAMMATIC
                    } else {
                        EdgeData::FULL
                    };
                    Edge { from, to: node, data }
                })),
                // What does nothing cannot let others go ahead.
                None if emptied.contains(&edge.from) => edges.push(Edge::full(edge.from, node)),
                None => edges.push(edge),
            }
        }
    }
    Contracted { edges, stay }
}
