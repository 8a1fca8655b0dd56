//! Ways to give the driver one order: with at most so many nodes side by side, and its nodes made in one order or another,
//! by which the driver decides what follows what on a stream of its own.
//!
//! O(nodes · lanes · degree + edges) each, in practice far below what instantiating costs.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;

use phonograph_graph::{ComputeGraph, GraphBuilder, GraphError, NodeId};
use phonograph_plan::analysis::{levels, redundant_edges};

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
    /// The graph's order, or that in at most so many lanes: its edges and those along each lane.
    pub fn new(graph: &ComputeGraph, cap: Option<u32>, costs: &[u64]) -> Result<Self, GraphError> {
        let mut edges: Vec<_> = graph.edges().map(|edge| (edge.from, edge.to)).collect();
        if let Some(cap) = cap {
            for lane in lanes(graph, &rests(graph, costs), costs, cap as usize) {
                edges.extend(lane.windows(2).map(|pair| (pair[0], pair[1])));
            }
        }
        // What nodes do is no matter here, only who waits for whom.
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
        let full = bare(&mut edges.into_iter())?;
        let implied: BTreeSet<(NodeId, NodeId)> =
            redundant_edges(&full).iter().map(|edge| (edge.from, edge.to)).collect();
        let needed = full.edges().map(|edge| (edge.from, edge.to));
        let graph = bare(&mut needed.filter(|pair| !implied.contains(pair)))?;
        let rest = rests(&graph, costs);
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

/// Cost of the longest path from each node on, its own included.
fn rests(graph: &ComputeGraph, costs: &[u64]) -> Vec<u64> {
    let mut rest = costs.to_vec();
    for &node in graph.topological_order().iter().rev() {
        let after = graph.successors(node).iter().map(|next| rest[next.index()]).max();
        rest[node.index()] += after.unwrap_or(0);
    }
    rest
}

/// Spreads nodes over lanes, chains staying together: waiting across lanes costs more than a launch. Those first from which
/// the longest path leads on; a node follows on the lane of one that it waits for, if that was the lane's last, else takes
/// a lane whose last node has nobody ready to follow, the one that is free first.
fn lanes(graph: &ComputeGraph, rest: &[u64], costs: &[u64], cap: usize) -> Vec<Vec<NodeId>> {
    let mut waits: Vec<usize> =
        graph.node_ids().map(|node| graph.predecessors(node).len()).collect();
    let mut ready: BTreeSet<(Reverse<u64>, NodeId)> = graph
        .node_ids()
        .filter(|node| waits[node.index()] == 0)
        .map(|node| (Reverse(rest[node.index()]), node))
        .collect();
    let mut lanes: Vec<Vec<NodeId>> = Vec::new();
    let mut ends = vec![0u64; graph.node_count()];
    while !ready.is_empty() {
        let is_ready = |node: &NodeId| ready.contains(&(Reverse(rest[node.index()]), *node));
        let end = |lane: &[NodeId]| lane.last().map_or(0, |last| ends[last.index()]);
        let follows = |lane: &[NodeId], node: NodeId| {
            lane.last().is_some_and(|last| graph.predecessors(node).contains(last))
        };
        let is_open = |lane: &[NodeId]| {
            lane.last().is_some_and(|last| graph.successors(*last).iter().any(is_ready))
        };
        // A node for which there is no lane yet waits until others have gone on.
        let place = |node: NodeId| -> Option<usize> {
            let along = (0..lanes.len()).filter(|&lane| follows(&lanes[lane], node));
            let closed = (0..lanes.len()).filter(|&lane| !is_open(&lanes[lane]));
            along
                .max_by_key(|&lane| end(&lanes[lane]))
                .or((lanes.len() < cap).then_some(lanes.len()))
                .or_else(|| closed.min_by_key(|&lane| end(&lanes[lane])))
        };
        let found = ready.iter().find_map(|&(key, node)| Some(((key, node), place(node)?)));
        // If all lanes are open, whoever is ready to follow on one has a place.
        let Some((entry, lane)) = found else { break };
        let node = entry.1;
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        let before = graph.predecessors(node).iter().map(|before| ends[before.index()]);
        let start = before.chain(lanes[lane].last().map(|last| ends[last.index()])).max();
        ends[node.index()] = start.unwrap_or(0) + costs[node.index()];
        lanes[lane].push(node);
        ready.remove(&entry);
        for &next in graph.successors(node) {
            waits[next.index()] -= 1;
            if waits[next.index()] == 0 {
                ready.insert((Reverse(rest[next.index()]), next));
            }
        }
    }
    lanes
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
        check(Making::Longest, [0, 4, 5, 1, 6, 2, 3, 7]);
        check(Making::Chains, [0, 4, 5, 6, 1, 2, 3, 7]);
        assert_eq!((capped.edges().len(), capped.depth()), (8, 5));
    }

    #[test]
    fn lanes_keep_chains_together() {
        let check = |branches: u32, cap: u32, edges: usize, depth: usize| {
            let mut b = GraphBuilder::new();
            let nodes = branches * 5;
            (0..=nodes).for_each(|_| {
                b.add_barrier("");
            });
            for node in 0..nodes {
                let next = if node % 5 == 4 { nodes } else { node + 1 };
                b.dep(NodeId(node), NodeId(next));
            }
            let capped =
                Capped::new(&b.build().unwrap(), Some(cap), &vec![1; nodes as usize + 1]).unwrap();
            let found = (capped.edges().len(), capped.depth());
            assert_eq!(found, (edges, depth), "{branches} branches on {cap} lanes");
        };
        check(8, 1, 40, 41);
        check(8, 2, 40, 21);
        check(8, 3, 40, 16);
        check(8, 4, 40, 11);
        check(8, 8, 40, 6);
        check(8, 16, 40, 6);
        let capped = Capped::new(&diamond(), Some(1), &[1; 8]).unwrap();
        assert_eq!((capped.edges().len(), capped.depth()), (7, 8));
    }
}
