//! The critical path: the chain of dependent nodes that costs most. No number of streams runs the graph faster.

use phonograph_graph::{ComputeGraph, NodeId};

/// A longest path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CriticalPath {
    /// Its nodes, in order.
    pub nodes: Vec<NodeId>,
    /// The sum of their costs.
    pub cost: u64,
}

/// The path of greatest cost, in whatever unit `cost` has; of equally long ones, the one through the oldest nodes.
/// O(nodes + edges). With a cost of 1 a node it is the path of the most nodes.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::analysis::critical_path;
///
/// let mut b = GraphBuilder::new();
/// let [x, y, z] = ["x", "y", "z"].map(|name| b.add_barrier(name));
/// b.dep(x, z);
/// let graph = b.build()?;
/// assert_eq!(critical_path(&graph, |_| 1).nodes, [x, z]);
/// assert_eq!(critical_path(&graph, |node| if node == y { 10 } else { 1 }).nodes, [y]);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn critical_path(graph: &ComputeGraph, cost: impl Fn(NodeId) -> u64) -> CriticalPath {
    let mut total = vec![0u64; graph.node_count()];
    let mut end: Option<NodeId> = None;
    for &node in graph.topological_order() {
        let before = graph.predecessors(node).iter().map(|p| total[p.index()]).max();
        total[node.index()] = before.unwrap_or(0).saturating_add(cost(node));
        if end.is_none_or(|best| total[node.index()] > total[best.index()]) {
            end = Some(node);
        }
    }
    let longest = |nodes: &[NodeId]| {
        nodes.iter().copied().max_by_key(|n| (total[n.index()], std::cmp::Reverse(*n)))
    };
    let cost = end.map_or(0, |node| total[node.index()]);
    let mut nodes: Vec<NodeId> =
        std::iter::successors(end, |&node| longest(graph.predecessors(node))).collect();
    nodes.reverse();
    CriticalPath { nodes, cost }
}
