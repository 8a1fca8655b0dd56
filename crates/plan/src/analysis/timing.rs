//! When each node can start at the earliest and must start at the latest, if nothing but dependencies held it up.
//!
//! In: a graph and a cost for each node. Out: its earliest start (as soon as possible), its latest start that does not
//! delay the end (as late as possible), and the slack in between. Two passes over the graph: O(nodes + edges), 16
//! bytes a node. (The critical path method: Kelley and Walker, 1959.)

use phonograph_graph::{ComputeGraph, NodeId};

/// Earliest and latest starts, in the unit of the costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Earliest start of each node, by id.
    pub earliest: Vec<u64>,
    /// Latest start of each node that delays nothing, by id.
    pub latest: Vec<u64>,
    /// The end of the last node: what the graph takes on any number of streams.
    pub makespan: u64,
}

impl Timing {
    /// How long a node can be held up without delaying the end; 0 on a critical path.
    pub fn slack(&self, node: NodeId) -> u64 {
        self.latest[node.index()] - self.earliest[node.index()]
    }

    /// The nodes without slack, by id: every critical path runs through these alone.
    pub fn critical(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.earliest.len()).map(NodeId::from_index).filter(|&node| self.slack(node) == 0)
    }
}

/// Earliest and latest starts under costs. Every edge counts as a full one. Sums that 64 bits do not hold stay at their
/// highest value.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::analysis::timing;
///
/// let mut b = GraphBuilder::new();
/// let [x, long, short, z] = ["x", "long", "short", "z"].map(|name| b.add_barrier(name));
/// b.chain(&[x, long, z]).chain(&[x, short, z]);
/// let graph = b.build()?;
/// let timing = timing(&graph, |node| if node == long { 10 } else { 1 });
/// assert_eq!(timing.makespan, 12);
/// assert_eq!((timing.slack(long), timing.slack(short)), (0, 9));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn timing(graph: &ComputeGraph, cost: impl Fn(NodeId) -> u64) -> Timing {
    let mut earliest = vec![0u64; graph.node_count()];
    let mut makespan = 0;
    for &node in graph.topological_order() {
        let ends = graph.predecessors(node).iter().map(|&from| {
            let start: u64 = earliest[from.index()];
            start.saturating_add(cost(from))
        });
        let start = ends.max().unwrap_or(0);
        earliest[node.index()] = start;
        makespan = makespan.max(start.saturating_add(cost(node)));
    }
    let mut latest = vec![0u64; graph.node_count()];
    for &node in graph.topological_order().iter().rev() {
        let end = graph.successors(node).iter().map(|to| latest[to.index()]).min();
        // Where sums have met their limit, no start is later than it can be early.
        let start = end.unwrap_or(makespan).saturating_sub(cost(node));
        latest[node.index()] = start.max(earliest[node.index()]);
    }
    Timing { earliest, latest, makespan }
}
