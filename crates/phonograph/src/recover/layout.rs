//! Ways to give the driver one order: with at most so many nodes side by side, and its nodes made in one order or another,
//! by which the driver decides what follows what on a stream of its own.
//!
//! O(nodes · log nodes + edges) each, beyond the plan of a cap.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;

use phonograph_graph::{ComputeGraph, GraphBuilder, NodeId, Step};
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

/// An order under a cap: edges that no others imply.
pub(super) struct Capped {
    graph: ComputeGraph,
    /// Cost of the longest path from each node on, its own included.
    rest: Vec<u64>,
}

impl Capped {
    /// The graph's order, or that on at most so many streams: its edges and those along each stream.
    pub fn new(graph: &ComputeGraph, cap: Option<u32>, costs: &[u64]) -> Result<Self, PlanError> {
        // Memory is no matter here, only who waits for whom.
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
        let mut edges: Vec<_> = graph.edges().map(|edge| (edge.from, edge.to)).collect();
        if let Some(cap) = cap {
            let options = PlanOptions { costs: Some(costs), ..PlanOptions::at_most(cap) };
            let plan = schedule(graph, &options)?;
            let mut last: Vec<Option<NodeId>> = vec![None; plan.streams as usize];
            for step in &plan.steps {
                let Step::Run { nodes, stream } = step else { continue };
                for &node in nodes {
                    edges.extend(last[stream.index()].replace(node).map(|before| (before, node)));
                }
            }
        }
        let full = bare(&mut edges.into_iter())?;
        let implied: BTreeSet<(NodeId, NodeId)> =
            redundant_edges(&full).iter().map(|edge| (edge.from, edge.to)).collect();
        let needed = full.edges().map(|edge| (edge.from, edge.to));
        let graph = bare(&mut needed.filter(|pair| !implied.contains(pair)))?;
        let mut rest = costs.to_vec();
        for &node in graph.topological_order().iter().rev() {
            let after = graph.successors(node).iter().map(|next| rest[next.index()]).max();
            rest[node.index()] += after.unwrap_or(0);
        }
        Ok(Self { graph, rest })
    }

    /// Nodes on the longest path.
    pub fn depth(&self) -> usize {
        depth(&self.graph)
    }

    /// The edges; those into a node begin with the one that the longest path comes by.
    pub fn edges(&self) -> Vec<(NodeId, NodeId)> {
        let level = levels(&self.graph).level;
        let mut edges: Vec<_> = self.graph.edges().map(|edge| (edge.from, edge.to)).collect();
        edges.sort_by_key(|&(from, to)| (to, Reverse(level[from.index()]), from));
        edges
    }

    /// The nodes in the order in which they are to be made.
    pub fn making(&self, how: Making) -> Vec<NodeId> {
        let level = levels(&self.graph).level;
        let mut waits: Vec<usize> =
            self.graph.node_ids().map(|node| self.graph.predecessors(node).len()).collect();
        let mut made = Vec::with_capacity(waits.len());
        // The greatest comes first: what counts, then the earliest captured.
        let key = |node: NodeId, made: usize| -> (u64, u64, Reverse<NodeId>) {
            let rest = self.rest[node.index()];
            let (first, second) = match how {
                Making::Captured => (0, 0),
                Making::Levels => (u64::from(u32::MAX - level[node.index()]), rest),
                Making::Longest => (rest, 0),
                Making::Chains => (made as u64, rest),
            };
            (first, second, Reverse(node))
        };
        let roots = self.graph.node_ids().filter(|node| waits[node.index()] == 0);
        let mut ready: BinaryHeap<_> = roots.map(|node| key(node, 0)).collect();
        while let Some((_, _, Reverse(node))) = ready.pop() {
            made.push(node);
            for &next in self.graph.successors(node) {
                waits[next.index()] -= 1;
                if waits[next.index()] == 0 {
                    ready.push(key(next, made.len()));
                }
            }
        }
        made
    }
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
            assert_eq!(capped.making(how), expected.map(NodeId), "{how}");
        };
        check(Making::Captured, [0, 1, 2, 3, 4, 5, 6, 7]);
        check(Making::Levels, [0, 4, 1, 5, 2, 6, 3, 7]);
        check(Making::Longest, [0, 4, 5, 1, 2, 6, 3, 7]);
        check(Making::Chains, [0, 4, 5, 6, 1, 2, 3, 7]);
        assert_eq!((capped.edges().len(), capped.depth()), (8, 5));
    }

    #[test]
    fn a_cap_of_one_is_a_chain() {
        let capped = Capped::new(&diamond(), Some(1), &[1; 8]).unwrap();
        assert_eq!((capped.edges().len(), capped.depth()), (7, 8));
    }
}
