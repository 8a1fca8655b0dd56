//! What a graph is made of, in figures, the graphs inside its nodes included.
//!
//! In: a graph. Out: for it and for every child graph and body the figures and lists of the other analyses, and their
//! totals. Costs what they cost.

use std::collections::BTreeMap;
use std::fmt;

use phonograph_graph::{ComputeGraph, Edge, NodeId};

use crate::analysis::{Levels, critical_path, redundant_edges};

/// Figures of one graph, those inside it not counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphSummary {
    /// Where it is: from the outermost graph on, the node that holds the next graph and which of its graphs that is.
    pub path: Vec<(NodeId, usize)>,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of edges.
    pub edges: usize,
    /// The redundant edges.
    pub redundant: Vec<Edge>,
    /// The nodes of a longest path.
    pub critical_path: Vec<NodeId>,
    /// Nodes in the widest level.
    pub max_width: usize,
}

/// Figures of a graph with all that is inside.
///
/// ```
/// use phonograph_graph::{GraphBuilder, MemcpyDir};
/// use phonograph_plan::analysis::Summary;
///
/// let mut inner = GraphBuilder::new();
/// let copy = inner.add_memcpy("copy", MemcpyDir::DeviceToDevice, 64);
/// let fill = inner.add_memset("fill", 64, 0);
/// inner.dep(copy, fill);
/// let mut b = GraphBuilder::new();
/// b.add_child("child", inner.build()?);
/// let summary = Summary::of(&b.build()?);
/// assert_eq!((summary.nodes, summary.edges, summary.critical_path_nodes), (3, 1, 2));
/// assert_eq!(summary.kinds["memset"], 1);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Nodes in all.
    pub nodes: usize,
    /// Edges in all.
    pub edges: usize,
    /// Redundant edges in all.
    pub redundant_edges: usize,
    /// Nodes of the longest path within any one of the graphs.
    pub critical_path_nodes: usize,
    /// Nodes in the widest level of any one of the graphs.
    pub max_width: usize,
    /// How many nodes there are of each kind, by [`NodeKind::name`](phonograph_graph::NodeKind::name).
    pub kinds: BTreeMap<&'static str, usize>,
    /// Each graph: first the outermost, then those inside, in the order of the nodes that hold them.
    pub graphs: Vec<GraphSummary>,
}

impl Summary {
    /// The figures of `graph`.
    pub fn of(graph: &ComputeGraph) -> Self {
        let mut summary = Self {
            nodes: 0,
            edges: 0,
            redundant_edges: 0,
            critical_path_nodes: 0,
            max_width: 0,
            kinds: BTreeMap::new(),
            graphs: Vec::new(),
        };
        let mut left = vec![(Vec::new(), graph)];
        while let Some((path, graph)) = left.pop() {
            let inner_from = left.len();
            for (index, node) in graph.nodes().iter().enumerate() {
                *summary.kinds.entry(node.kind.name()).or_default() += 1;
                for (which, inner) in node.kind.inner_graphs().iter().enumerate() {
                    let mut path = path.clone();
                    path.push((NodeId::from_index(index), which));
                    left.push((path, inner));
                }
            }
            left[inner_from..].reverse();
            let one = GraphSummary {
                path,
                nodes: graph.node_count(),
                edges: graph.edge_count(),
                redundant: redundant_edges(graph),
                critical_path: critical_path(graph, |_| 1).nodes,
                max_width: Levels::new(graph).max_width(),
            };
            summary.nodes += one.nodes;
            summary.edges += one.edges;
            summary.redundant_edges += one.redundant.len();
            summary.critical_path_nodes = summary.critical_path_nodes.max(one.critical_path.len());
            summary.max_width = summary.max_width.max(one.max_width);
            summary.graphs.push(one);
        }
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> =
            self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(f, "{} nodes ({})", self.nodes, kinds.join(", "))?;
        writeln!(f, "{} edges, {} of them redundant", self.edges, self.redundant_edges)?;
        writeln!(f, "critical path of {} nodes", self.critical_path_nodes)?;
        writeln!(f, "at most {} nodes side by side", self.max_width)
    }
}
