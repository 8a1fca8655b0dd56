//! The figures of a graph and the graphs inside it, for reports.

use std::collections::BTreeMap;

use phonograph_graph::{ComputeGraph, Edge, NodeId};

use super::{critical_path, levels, redundant_edges};

/// A redundant edge, and the way to the graph that it is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedundantEdge {
    /// For an inner graph: the node that holds it and which of its graphs it is, from the outermost on.
    pub inside: Vec<(NodeId, u32)>,
    /// The edge.
    pub edge: Edge,
}

/// What a graph is made of. Sums count the graph, its child graphs and conditional bodies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Graphs: this one and those inside.
    pub graphs: usize,
    /// Nodes.
    pub nodes: usize,
    /// Edges.
    pub edges: usize,
    /// Edges that other paths imply, by graph.
    pub redundant: Vec<RedundantEdge>,
    /// Nodes on the longest path within any one of the graphs.
    pub critical_path_nodes: usize,
    /// Nodes on the widest ASAP level of any one of the graphs.
    pub max_width: usize,
    /// Nodes of each kind, by [`NodeKind::name`](phonograph_graph::NodeKind::name).
    pub kinds: BTreeMap<&'static str, usize>,
    /// Declared bytes of internal buffers; [`u64::MAX`] if they are more than that.
    pub internal_bytes: u64,
}

/// Summarises a graph. Costs what [`redundant_edges`] costs.
pub fn summary(graph: &ComputeGraph) -> Summary {
    let mut found = Summary::default();
    add(graph, &mut Vec::new(), &mut found);
    found
}

/// Recursive over nesting, which building a graph bounds.
fn add(graph: &ComputeGraph, inside: &mut Vec<(NodeId, u32)>, found: &mut Summary) {
    found.graphs += 1;
    found.nodes += graph.node_count();
    found.edges += graph.edge_count();
    let located = |edge| RedundantEdge { inside: inside.clone(), edge };
    found.redundant.extend(redundant_edges(graph).into_iter().map(located));
    let longest = critical_path(graph, |_| 1).nodes.len();
    found.critical_path_nodes = found.critical_path_nodes.max(longest);
    found.max_width = found.max_width.max(levels(graph).max_width() as usize);
    let internal = |b: &&phonograph_graph::Buffer| b.role == phonograph_graph::BufferRole::Internal;
    let bytes = graph.buffers().iter().filter(internal).map(|b| b.bytes);
    found.internal_bytes = bytes.fold(found.internal_bytes, u64::saturating_add);
    for id in graph.node_ids() {
        let kind = &graph.node(id).kind;
        *found.kinds.entry(kind.name()).or_default() += 1;
        for (index, inner) in (0..).zip(kind.inner_graphs()) {
            inside.push((id, index));
            add(inner, inside, found);
            inside.pop();
        }
    }
}
