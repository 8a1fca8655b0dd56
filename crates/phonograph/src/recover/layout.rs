//! Ways to give the driver one order: with at most so many nodes side by side, and its nodes made in one order or another,
//! by which the driver decides what follows what on a stream of its own.
//!
//! O(nodes · log nodes + edges) each, beyond the plan of a cap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;

use phonograph_cuda::Ends;
use phonograph_graph::{ComputeGraph, GraphBuilder, GraphError, NodeId, Step};
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

/// On which lane each node runs, and when it is made.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Layout {
    /// By node; nodes of a lane follow one another.
    pub lane: Vec<u32>,
    /// All nodes, as they are made, each after what it waits for.
    pub made: Vec<NodeId>,
    pub ends: Ends,
}

impl Layout {
    /// The order that it asks for on top of the flow's: the edges that no others imply.
    pub fn order(&self, flow: &ComputeGraph) -> Result<ComputeGraph, GraphError> {
        let mut edges: Vec<_> = flow.edges().map(|edge| (edge.from, edge.to)).collect();
        let mut last = BTreeMap::<u32, NodeId>::new();
        for &node in &self.made {
            let before = last.insert(self.lane[node.index()], node);
            edges.extend(before.map(|before| (before, node)));
        }
        ordered(flow, &edges)
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

/// An order under a cap.
pub(super) struct Capped {
    /// Who waits for whom, along lanes too.
    graph: ComputeGraph,
    lane: Vec<u32>,
    /// Cost of the longest path from each node on, its own included.
    rest: Vec<u64>,
}

impl Capped {
    /// The graph's order, each chain on a lane of its own, or that on at most so many lanes.
    pub fn new(graph: &ComputeGraph, cap: Option<u32>, costs: &[u64]) -> Result<Self, PlanError> {
        let mut edges: Vec<_> = graph.edges().map(|edge| (edge.from, edge.to)).collect();
        let mut lane = vec![0; graph.node_count()];
        if let Some(cap) = cap {
            let options = PlanOptions { costs: Some(costs), ..PlanOptions::at_most(cap) };
            let plan = schedule(graph, &options)?;
            let mut last: Vec<Option<NodeId>> = vec![None; plan.streams as usize];
            for step in &plan.steps {
                let Step::Run { nodes, stream } = step else { continue };
                for &node in nodes {
                    edges.extend(last[stream.index()].replace(node).map(|before| (before, node)));
                    lane[node.index()] = stream.0;
                }
            }
        } else {
            for (at, chain) in (0..).zip(chains(graph)) {
                chain.iter().for_each(|node| lane[node.index()] = at);
            }
        }
        let graph = ordered(graph, &edges)?;
        let mut rest = costs.to_vec();
        for &node in graph.topological_order().iter().rev() {
            let after = graph.successors(node).iter().map(|next| rest[next.index()]).max();
            rest[node.index()] += after.unwrap_or(0);
        }
        Ok(Self { graph, lane, rest })
    }

    /// The kernels to add to it that may gain something: none, one where several nodes come after nothing, and one where nothing
    /// comes after several.
    pub fn ends(&self) -> impl Iterator<Item = Ends> + use<> {
        let ends = |neighbours: fn(&ComputeGraph, NodeId) -> &[NodeId]| {
            self.graph.node_ids().filter(|&node| neighbours(&self.graph, node).is_empty()).count()
        };
        let beginning = ends(ComputeGraph::predecessors) > 1;
        let end = ends(ComputeGraph::successors) > 1;
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let possible = move |&(one, other): &(bool, bool)| (beginning || !one) && (end || !other);
        all.into_iter().filter(possible).map(|(beginning, end)| Ends { beginning, end })
    }

    /// With its nodes made in an order.
    pub fn layout(&self, how: Making, ends: Ends) -> Layout {
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
        Layout { lane: self.lane.clone(), made, ends }
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

/// The edges of an order; those into a node begin with the one that the longest path comes by.
pub(super) fn edges(order: &ComputeGraph) -> Vec<(NodeId, NodeId)> {
    let level = levels(order).level;
    let mut edges: Vec<_> = order.edges().map(|edge| (edge.from, edge.to)).collect();
    edges.sort_by_key(|&(from, to)| (to, Reverse(level[from.index()]), from));
    edges
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
        let capped = Capped::new(&diamond(), None, &costs).unwrap();
        let check = |how, expected: [u32; 8]| {
            let layout = capped.layout(how, Ends::default());
            assert_eq!(layout.made, expected.map(NodeId), "{how}");
            let order = layout.order(&diamond()).unwrap();
            assert_eq!((edges(&order).len(), depth(&order)), (8, 5));
        };
        check(Making::Captured, [0, 1, 2, 3, 4, 5, 6, 7]);
        check(Making::Levels, [0, 4, 1, 5, 2, 6, 3, 7]);
        check(Making::Longest, [0, 4, 5, 1, 2, 6, 3, 7]);
        check(Making::Chains, [0, 4, 5, 6, 1, 2, 3, 7]);
    }

    #[test]
    fn a_cap_of_one_is_a_chain() {
        let layout = Capped::new(&diamond(), Some(1), &[1; 8])
            .unwrap()
            .layout(Making::Captured, Ends::default());
        let order = layout.order(&diamond()).unwrap();
        assert_eq!((edges(&order).len(), depth(&order)), (7, 8));
    }

    #[test]
    fn ends_are_added_where_there_are_several() {
        let check = |edges: &[(u32, u32)], nodes: u32, expected: &[(bool, bool)]| {
            let mut b = GraphBuilder::new();
            (0..nodes).for_each(|_| {
                b.add_barrier("");
            });
            edges.iter().for_each(|&(from, to)| {
                b.dep(NodeId(from), NodeId(to));
            });
            let costs = vec![1; nodes as usize];
            let capped = Capped::new(&b.build().unwrap(), None, &costs).unwrap();
            let found: Vec<_> = capped.ends().map(|ends| (ends.beginning, ends.end)).collect();
            assert_eq!(found, expected, "{edges:?}");
        };
        let (none, beginning, end) = ((false, false), (true, false), (false, true));
        check(&[(0, 1), (1, 2)], 3, &[none]);
        check(&[(0, 2), (1, 2)], 3, &[none, beginning]);
        check(&[(0, 1), (0, 2)], 3, &[none, end]);
        check(&[(0, 1)], 3, &[none, beginning, end, (true, true)]);
    }

    #[test]
    fn chains_end_where_something_else_goes_on_or_comes_in() {
        let expected = [vec![0], vec![1, 2, 3], vec![4, 5, 6], vec![7]];
        let expected = expected.map(|chain| chain.into_iter().map(NodeId).collect::<Vec<_>>());
        assert_eq!(chains(&diamond()), expected);
    }
}
