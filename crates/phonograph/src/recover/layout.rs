//! Ways to give the driver one order: on so many lanes, and its nodes made in one order or another, by which the driver
//! decides what follows what on a stream of its own.
//!
//! O(nodes · log nodes + edges) each, beyond the plan of a cap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;

use phonograph_graph::{ComputeGraph, Edge, EdgeData, GraphBuilder, GraphError, NodeId, Step};
use phonograph_plan::PlanError;
use phonograph_plan::analysis::{levels, redundant_edges};
use phonograph_plan::streams::{PlanOptions, schedule};

/// In which order nodes are made, as far as the edges leave it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Making {
    /// As captured.
    Captured,
    /// Level by level.
    Levels,
    /// Those first from which the longest path leads on.
    Longest,
    /// Each chain to its end, the longest first.
    Chains,
}

impl Making {
    /// All of them.
    pub const ALL: [Making; 4] =
        [Making::Captured, Making::Levels, Making::Longest, Making::Chains];
}

impl fmt::Display for Making {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Making::Captured => "as captured",
            Making::Levels => "by level",
            Making::Longest => "longest path first",
            Making::Chains => "chain by chain",
        })
    }
}

/// What runs on one lane, and so in the order in which it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lanes {
    /// Each chain of the flow of data: nothing waits for what it does not need.
    Chains,
    /// As many as may be busy at once: a node waits until the one before it on its lane is complete.
    AtMost(u32),
    /// So many, on which a node waits until the one before it has begun: what needs no order runs side by side on one lane.
    /// Between kernels only, from compute capability 9.0 on.
    Begun(u32),
    /// So many for each level, in the same way: a node waits for none of another level that it does not need.
    BegunByLevel(u32),
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lanes::Chains => f.write_str("no cap"),
            Lanes::AtMost(lanes) => write!(f, "at most {lanes}"),
            Lanes::Begun(lanes) => write!(f, "lanes by launch order, {lanes}"),
            Lanes::BegunByLevel(lanes) => write!(f, "lanes by launch order, {lanes} a level"),
        }
    }
}

/// On which lane each node runs, and when it is made.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Layout {
    /// Whether a node waits until the one before it on its lane has begun, not until that is complete.
    pub overlaps: bool,
    /// By node; nodes of a lane follow one another.
    pub lane: Vec<u32>,
    /// All nodes, as they are made, each after what it waits for.
    pub made: Vec<NodeId>,
}

impl Layout {
    /// Who is complete before whom, on top of the flow's order: the edges that no others imply.
    pub fn order(&self, flow: &ComputeGraph) -> Result<ComputeGraph, GraphError> {
        let mut edges: Vec<_> = flow.edges().map(|edge| (edge.from, edge.to)).collect();
        if !self.overlaps {
            edges.extend(self.neighbours());
        }
        ordered(flow, &edges)
    }

    /// The edges of this order, and those that keep a node on its lane behind one that it does not wait for. Those into a node
    /// end with the latter and begin with the one that the longest path comes by.
    pub fn edges(&self, order: &ComputeGraph, is_kernel: impl Fn(NodeId) -> bool) -> Vec<Edge> {
        let level = levels(order).level;
        let mut edges: Vec<Edge> =
            order.edges().map(|edge| Edge::full(edge.from, edge.to)).collect();
        if self.overlaps {
            let links = self.neighbours().filter(|&(from, to)| {
                is_kernel(from) && is_kernel(to) && !order.predecessors(to).contains(&from)
            });
            edges.extend(links.map(|(from, to)| Edge { from, to, data: EdgeData::LAUNCH_ORDER }));
        }
        edges.sort_by_key(|&Edge { from, to, data }| {
            (to, !data.is_full(), Reverse(level[from.index()]), from)
        });
        edges
    }

    /// Nodes of a lane that follow one another.
    fn neighbours(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let mut last = BTreeMap::<u32, NodeId>::new();
        self.made
            .iter()
            .filter_map(move |&node| Some((last.insert(self.lane[node.index()], node)?, node)))
    }
}

/// The nodes of a graph with these edges, those aside that others imply. Memory is no matter here, only who waits for whom.
pub(super) fn ordered(
    graph: &ComputeGraph,
    edges: &[(NodeId, NodeId)],
) -> Result<ComputeGraph, GraphError> {
    let bare = |edges: &mut dyn Iterator<Item = (NodeId, NodeId)>| {
        let mut builder = GraphBuilder::new();
        graph.node_ids().for_each(|_| {
            builder.add_barrier("");
        });
        edges.for_each(|(from, to)| {
            builder.dep(from, to);
        });
        builder.build()
    };
    let full = bare(&mut edges.iter().copied())?;
    let implied: BTreeSet<(NodeId, NodeId)> =
        redundant_edges(&full).iter().map(|edge| (edge.from, edge.to)).collect();
    let needed = full.edges().map(|edge| (edge.from, edge.to));
    bare(&mut needed.filter(|pair| !implied.contains(pair)))
}

/// An order on lanes.
pub(super) struct Laned {
    /// Who waits for whom, along lanes too.
    graph: ComputeGraph,
    overlaps: bool,
    lane: Vec<u32>,
    /// Cost of the longest path from each node on, its own included.
    rest: Vec<u64>,
}

impl Laned {
    /// A graph's order on these lanes.
    pub fn new(graph: &ComputeGraph, lanes: Lanes, costs: &[u64]) -> Result<Self, PlanError> {
        let mut edges: Vec<_> = graph.edges().map(|edge| (edge.from, edge.to)).collect();
        let mut lane = vec![0; graph.node_count()];
        let overlaps = matches!(lanes, Lanes::Begun(_) | Lanes::BegunByLevel(_));
        match lanes {
            Lanes::Chains => {
                for (at, chain) in (0..).zip(chains(graph)) {
                    chain.iter().for_each(|node| lane[node.index()] = at);
                }
            }
            Lanes::AtMost(cap) | Lanes::Begun(cap) | Lanes::BegunByLevel(cap) => {
                let options = PlanOptions { costs: Some(costs), ..PlanOptions::at_most(cap) };
                let plan = schedule(graph, &options)?;
                let mut last: Vec<Option<NodeId>> = vec![None; plan.streams as usize];
                for step in &plan.steps {
                    let Step::Run { nodes, stream } = step else { continue };
                    for &node in nodes {
                        let before = last[stream.index()].replace(node);
                        edges.extend(before.filter(|_| !overlaps).map(|before| (before, node)));
                        lane[node.index()] = stream.0;
                    }
                }
            }
        }
        if let Lanes::BegunByLevel(cap) = lanes {
            lane.iter_mut().zip(levels(graph).level).for_each(|(lane, level)| *lane += level * cap);
        }
        let graph = ordered(graph, &edges)?;
        let mut rest = costs.to_vec();
        for &node in graph.topological_order().iter().rev() {
            let after = graph.successors(node).iter().map(|next| rest[next.index()]).max();
            rest[node.index()] += after.unwrap_or(0);
        }
        Ok(Self { graph, overlaps, lane, rest })
    }

    /// With its nodes made in an order.
    pub fn layout(&self, how: Making) -> Layout {
        let level = levels(&self.graph).level;
        // The greatest comes first: what counts, then the earliest captured.
        let made = made(&self.graph, |node, made| {
            let rest = self.rest[node.index()];
            match how {
                Making::Captured => (0, 0),
                Making::Levels => (u64::from(u32::MAX - level[node.index()]), rest),
                Making::Longest => (rest, 0),
                Making::Chains => (made as u64, rest),
            }
        });
        Layout { overlaps: self.overlaps, lane: self.lane.clone(), made }
    }
}

/// A topological order: of the nodes that are ready the one with the greatest key, which is asked for when it becomes ready
/// and so many nodes have been made; of equal ones the earliest captured.
pub(super) fn made<K: Ord>(graph: &ComputeGraph, key: impl Fn(NodeId, usize) -> K) -> Vec<NodeId> {
    let mut waits: Vec<usize> =
        graph.node_ids().map(|node| graph.predecessors(node).len()).collect();
    let mut made = Vec::with_capacity(waits.len());
    let roots = graph.node_ids().filter(|node| waits[node.index()] == 0);
    let mut ready: BinaryHeap<_> = roots.map(|node| (key(node, 0), Reverse(node))).collect();
    while let Some((_, Reverse(node))) = ready.pop() {
        made.push(node);
        for &next in graph.successors(node) {
            waits[next.index()] -= 1;
            if waits[next.index()] == 0 {
                ready.push((key(next, made.len()), Reverse(next)));
            }
        }
    }
    made
}

/// Nodes with nothing beside them on the way from one to the next, as long as that goes on: all nodes, each in one chain, by
/// first node.
pub(super) fn chains(graph: &ComputeGraph) -> Vec<Vec<NodeId>> {
    let follows = |node: NodeId| match graph.predecessors(node) {
        &[before] if graph.successors(before).len() == 1 => Some(before),
        _ => None,
    };
    let mut chains = Vec::new();
    for first in graph.node_ids().filter(|&node| follows(node).is_none()) {
        let mut chain = vec![first];
        let mut last = first;
        while let &[next] = graph.successors(last) {
            if follows(next).is_none() {
                break;
            }
            chain.push(next);
            last = next;
        }
        chains.push(chain);
    }
    chains
}

/// Nodes on the longest path of a graph.
pub(super) fn depth(graph: &ComputeGraph) -> usize {
    levels(graph).level.iter().max().map_or(0, |level| *level as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two chains of three from one node to one, captured one after the other.
    fn diamond() -> ComputeGraph {
        let mut b = GraphBuilder::new();
        (0..8).for_each(|_| {
            b.add_barrier("");
        });
        for (from, to) in [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6), (3, 7), (6, 7)] {
            b.dep(NodeId(from), NodeId(to));
        }
        b.build().unwrap()
    }

    #[test]
    fn nodes_are_made_in_the_order_that_is_asked_for() {
        // The second chain is the longer one.
        let costs = [1, 1, 1, 1, 2, 2, 2, 1];
        let lanes = Laned::new(&diamond(), Lanes::Chains, &costs).unwrap();
        let check = |how, expected: [u32; 8]| {
            let layout = lanes.layout(how);
            assert_eq!(layout.made, expected.map(NodeId), "{how}");
            let order = layout.order(&diamond()).unwrap();
            assert_eq!((order.edge_count(), depth(&order)), (8, 5));
        };
        check(Making::Captured, [0, 1, 2, 3, 4, 5, 6, 7]);
        check(Making::Levels, [0, 4, 1, 5, 2, 6, 3, 7]);
        check(Making::Longest, [0, 4, 5, 1, 2, 6, 3, 7]);
        check(Making::Chains, [0, 4, 5, 6, 1, 2, 3, 7]);
    }

    #[test]
    fn a_cap_of_one_is_a_chain() {
        let lanes = Laned::new(&diamond(), Lanes::AtMost(1), &[1; 8]).unwrap();
        let layout = lanes.layout(Making::Captured);
        let order = layout.order(&diamond()).unwrap();
        assert_eq!((order.edge_count(), depth(&order)), (7, 8));
        assert!(layout.edges(&order, |_| true).iter().all(|edge| edge.data.is_full()));
    }

    #[test]
    fn kernels_on_a_lane_wait_until_the_one_before_has_begun() {
        let check = |lanes, is_kernel: fn(NodeId) -> bool, expected: &[(u32, u32)]| {
            let layout = Laned::new(&diamond(), lanes, &[1; 8]).unwrap().layout(Making::Levels);
            let order = layout.order(&diamond()).unwrap();
            assert_eq!((order.edge_count(), depth(&order)), (8, 5), "nothing waits longer");
            let edges = layout.edges(&order, is_kernel);
            let begun = edges.iter().filter(|edge| edge.data == EdgeData::LAUNCH_ORDER);
            let begun: Vec<(u32, u32)> = begun.map(|edge| (edge.from.0, edge.to.0)).collect();
            assert_eq!(begun, expected, "{lanes}");
        };
        // In the order 0 1 4 2 5 3 6 7.
        let all = |_| true;
        check(Lanes::Begun(1), all, &[(4, 2), (5, 3), (1, 4), (2, 5), (3, 6)]);
        check(Lanes::Begun(2), all, &[]);
        check(Lanes::BegunByLevel(1), all, &[(1, 4), (2, 5), (3, 6)]);
        check(Lanes::Begun(1), |node| node != NodeId(5), &[(4, 2), (1, 4), (3, 6)]);
    }

    #[test]
    fn chains_end_where_something_else_goes_on_or_comes_in() {
        let expected = [vec![0], vec![1, 2, 3], vec![4, 5, 6], vec![7]];
        let expected = expected.map(|chain| chain.into_iter().map(NodeId).collect::<Vec<_>>());
        assert_eq!(chains(&diamond()), expected);
    }
}
