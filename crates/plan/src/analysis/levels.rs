//! Levels and the critical path.
//!
//! In: a graph, for the critical path also what each node costs. Out: for each node the earliest level it can be in, and
//! the longest path. Weak edges count like full ones: a consumer can overlap the end of its producer, but not end before
//! it. O(nodes + edges), iterative.

use phonograph_graph::{ComputeGraph, NodeId};

/// The earliest level of each node: 0 without predecessors, else one more than the highest of theirs (ASAP).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    level: Vec<u32>,
    widths: Vec<usize>,
}

impl Levels {
    /// The levels of a graph.
    pub fn new(graph: &ComputeGraph) -> Self {
        let mut level = vec![0u32; graph.node_count()];
        let mut widths: Vec<usize> = Vec::new();
        for &node in graph.topological_order() {
            let before = graph.predecessors(node).iter().map(|from| level[from.index()] + 1);
            let own = before.max().unwrap_or(0);
            level[node.index()] = own;
            if own as usize == widths.len() {
                widths.push(0);
            }
            widths[own as usize] += 1;
        }
        Self { level, widths }
    }

    /// The level of a node.
    ///
    /// # Panics
    /// If the node is not of the graph.
    pub fn of(&self, node: NodeId) -> u32 {
        self.level[node.index()]
    }

    /// How many nodes each level has.
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// How many nodes the widest level has; 0 for an empty graph.
    pub fn max_width(&self) -> usize {
        self.widths.iter().copied().max().unwrap_or(0)
    }
}

/// A longest path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CriticalPath {
    /// Its nodes, first to last.
    pub nodes: Vec<NodeId>,
    /// What they cost together.
    pub cost: u64,
}

/// The costliest path through a graph, each node at `cost` (saturating); of equals the one through the nodes created
/// first, seen from its end. At cost 1 it is the one of the most nodes.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::analysis::critical_path;
///
/// let mut b = GraphBuilder::new();
/// let [a, short, long, end] = ["a", "short", "long", "end"].map(|n| b.add_barrier(n));
/// b.fan_out(a, &[short, long]).fan_in(&[short, long], end);
/// let path = critical_path(&b.build()?, |node| if node == long { 500 } else { 10 });
/// assert_eq!((path.nodes, path.cost), (vec![a, long, end], 520));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn critical_path(graph: &ComputeGraph, cost: impl Fn(NodeId) -> u64) -> CriticalPath {
    let mut until = vec![0u64; graph.node_count()];
    let mut through: Vec<Option<NodeId>> = vec![None; graph.node_count()];
    let longest = |nodes: &mut dyn Iterator<Item = NodeId>, until: &[u64]| {
        nodes.max_by_key(|node| (until[node.index()], std::cmp::Reverse(*node)))
    };
    for &node in graph.topological_order() {
        let from = longest(&mut graph.predecessors(node).iter().copied(), &until);
        let before = from.map_or(0, |from| until[from.index()]);
        through[node.index()] = from;
        until[node.index()] = before.saturating_add(cost(node));
    }
    let Some(last) = longest(&mut graph.node_ids(), &until) else {
        return CriticalPath::default();
    };
    let mut nodes: Vec<NodeId> =
        std::iter::successors(Some(last), |node| through[node.index()]).collect();
    nodes.reverse();
    CriticalPath { nodes, cost: until[last.index()] }
}
