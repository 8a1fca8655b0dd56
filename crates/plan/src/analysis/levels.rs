//! ASAP levels: the earliest step at which each node could run if every node took one step.

use phonograph_graph::{ComputeGraph, NodeId};

/// The levels of a graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    /// Level of each node, by id: 0 for roots, else one more than the highest level among its predecessors.
    pub level: Vec<u32>,
    /// Number of nodes on each level.
    pub widths: Vec<u32>,
}

impl Levels {
    /// Level of a node.
    pub fn of(&self, node: NodeId) -> u32 {
        self.level[node.index()]
    }

    /// Nodes on the widest level; 0 for an empty graph. Not the width of the graph: nodes of different levels may
    /// also run side by side.
    pub fn max_width(&self) -> u32 {
        self.widths.iter().copied().max().unwrap_or(0)
    }
}

/// Computes the levels. O(nodes + edges).
pub fn levels(graph: &ComputeGraph) -> Levels {
    let mut level = vec![0u32; graph.node_count()];
    let mut widths = Vec::new();
    for &node in graph.topological_order() {
        let above = graph.predecessors(node).iter().map(|p| level[p.index()] + 1);
        let own = above.max().unwrap_or(0);
        level[node.index()] = own;
        if widths.len() <= own as usize {
            widths.push(0);
        }
        widths[own as usize] += 1;
    }
    Levels { level, widths }
}
