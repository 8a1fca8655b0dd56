//! Which of given pairs of nodes the guaranteed order orders, exactly.
//!
//! `a` is before `b` when a path of edges leads from `a` to `b` whose last edge is full: then `a` is complete
//! before `b` starts. A path that ends in a weak edge only promises completion before `b`'s wait; beyond `b` it
//! counts again, since `b` completes after its wait.
//!
//! A pair is proved by the first of these that can: an edge; the nodes' places in a forest that hangs each node under its
//! latest producer (nested intervals); a short walk backwards that stops at nodes before `a`. What they leave open is
//! carried forward: 512 sources at a time, one bit each, through the nodes behind them and no further than the last
//! target. O(nodes + edges) and a walk a pair; at worst pairs' sources × edges / 64 word operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::checker::Violation;
use crate::{ComputeGraph, NodeId, Schedule};

/// What must have come before a node: everything complete when it starts, or when its grid-dependency wait returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum By {
    Start,
    Wait,
}

pub(super) struct GuaranteedOrder<'a> {
    graph: &'a ComputeGraph,
    /// Reuse edges by consumer.
    reuse: FxHashMap<NodeId, Vec<NodeId>>,
    /// Reuse edges by producer.
    after: FxHashMap<NodeId, Vec<NodeId>>,
    order: Vec<NodeId>,
    /// Place in `order`.
    position: Vec<u32>,
}

impl<'a> GuaranteedOrder<'a> {
    /// The order of the graph's edges alone.
    pub fn of_edges(graph: &'a ComputeGraph) -> Self {
        let order = graph.topological_order().to_vec();
        let (reuse, after) = (FxHashMap::default(), FxHashMap::default());
        let position = positions(&order);
        Self { graph, reuse, after, order, position }
    }

    /// The order of the graph's edges and the schedule's reuse edges; an error if they close a cycle.
    pub fn new(graph: &'a ComputeGraph, schedule: &Schedule) -> Result<Self, Violation> {
        let known =
            |&&(from, to): &&(NodeId, NodeId)| graph.get(from).is_some() && graph.get(to).is_some();
        let mut with_edges = Self::of_edges(graph);
        for &(from, to) in schedule.reuse.iter().filter(known) {
            with_edges.reuse.entry(to).or_default().push(from);
            with_edges.after.entry(from).or_default().push(to);
        }
        let forward =
            |&(from, to): &(NodeId, NodeId)| with_edges.position(from) < with_edges.position(to);
        if !schedule.reuse.iter().filter(known).all(forward) {
            with_edges.sort_again()?;
        }
        Ok(with_edges)
    }

    /// A topological order of edges and reuse edges together.
    fn sort_again(&mut self) -> Result<(), Violation> {
        let graph = self.graph;
        let producers = |node: NodeId| self.producers(node).count() as u32;
        let mut missing: Vec<u32> = graph.node_ids().map(producers).collect();
        let mut order: Vec<NodeId> =
            graph.node_ids().filter(|node| missing[node.index()] == 0).collect();
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for successor in self.consumers(node) {
                missing[successor.index()] -= 1;
                if missing[successor.index()] == 0 {
                    order.push(successor);
                }
            }
        }
        if let Some(node) = graph.node_ids().find(|node| missing[node.index()] > 0) {
            return Err(Violation::ReuseCycle { node });
        }
        self.position = positions(&order);
        self.order = order;
        Ok(())
    }

    /// Place of a node in one topological order of the guaranteed order.
    pub fn position(&self, node: NodeId) -> u32 {
        self.position[node.index()]
    }

    /// The nodes that a node waits for, and whether with its start.
    fn producers(&self, node: NodeId) -> impl Iterator<Item = (NodeId, bool)> + '_ {
        let reuse = match self.reuse.is_empty() {
            true => None,
            false => self.reuse.get(&node),
        };
        let edges = self.graph.incoming(node).map(|edge| (edge.from, edge.data.is_full()));
        edges.chain(reuse.into_iter().flatten().map(|&from| (from, true)))
    }

    fn consumers(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let reuse = match self.after.is_empty() {
            true => None,
            false => self.after.get(&node),
        };
        self.graph.successors(node).iter().chain(reuse.into_iter().flatten()).copied()
    }

    /// The pairs (before, after) in which `before` may not be complete by the start (or wait) of `after`.
    pub fn unordered(&self, pairs: Vec<(NodeId, NodeId)>, by: By) -> Vec<(NodeId, NodeId)> {
        self.unordered_each(pairs.into_iter().map(|(a, b)| (a, b, by)).collect())
            .into_iter()
            .map(|(a, b, _)| (a, b))
            .collect()
    }

    /// The same where each pair says by when.
    pub fn unordered_each(
        &self,
        mut pairs: Vec<(NodeId, NodeId, By)>,
    ) -> Vec<(NodeId, NodeId, By)> {
        // Marks, a forest and walks cost a pass over the graph, which a few pairs do not.
        if pairs.len() > 64 {
            self.look_at_edges(&mut pairs);
            self.walk(&mut pairs);
        } else {
            let direct = |&(a, b, by): &(NodeId, NodeId, By)| {
                self.producers(b).any(|(from, full)| from == a && (full || by == By::Wait))
            };
            pairs.retain(|pair| !direct(pair));
        }
        pairs.sort_unstable_by_key(|&(a, b, by)| (self.position(a), self.position(b), by));
        pairs.dedup();
        let mut unordered = Vec::new();
        let mut rest = pairs.as_slice();
        let mut carry = Carry::new(self);
        let mut sources = Vec::with_capacity(BITS);
        while !rest.is_empty() {
            sources.clear();
            let mut length = 0;
            for &(source, _, _) in rest {
                if sources.last() != Some(&source) {
                    if sources.len() == BITS {
                        break;
                    }
                    sources.push(source);
                }
                length += 1;
            }
            let (chunk, later) = rest.split_at(length);
            rest = later;
            carry.judge(&sources, chunk, &mut unordered);
        }
        unordered
    }

    /// Removes the pairs that an edge proves. The producers of a node are looked at once, however many pairs end there: in a wide
    /// join as many as it has.
    fn look_at_edges(&self, pairs: &mut Vec<(NodeId, NodeId, By)>) {
        pairs.sort_unstable_by_key(|&(_, b, _)| b);
        // For each producer the consumer that it was marked for last, and whether by a full edge.
        let mut marked: Vec<Option<(NodeId, bool)>> = vec![None; self.order.len()];
        let mut target = None;
        pairs.retain(|&(a, b, by)| {
            if target.replace(b) != Some(b) {
                for (from, full) in self.producers(b) {
                    let before = marked[from.index()] == Some((b, true));
                    marked[from.index()] = Some((b, full || before));
                }
            }
            let proved = |(of, full)| of == b && (full || by == By::Wait);
            !marked[a.index()].is_some_and(proved)
        });
    }

    /// Removes the pairs that the forest or a short walk proves.
    fn walk(&self, pairs: &mut Vec<(NodeId, NodeId, By)>) {
        const LONGEST: usize = 64;
        let forest = Forest::new(self);
        let mut seen = vec![0u32; self.order.len()];
        let mut stack: Vec<NodeId> = Vec::new();
        let (mut walk, mut steps, mut proved) = (0u32, 0usize, 0usize);
        pairs.retain(|&(a, b, by)| {
            if forest.holds_under(a, b) {
                return false;
            }
            // Walks that prove too little for their steps are given up for good.
            if steps > 64 * (proved + 1024) || self.position(a) >= self.position(b) {
                return true;
            }
            walk += 1;
            stack.clear();
            let counted = |&(_, full): &(NodeId, bool)| full || by == By::Wait;
            stack.extend(self.producers(b).filter(counted).map(|(from, _)| from));
            let mut left = LONGEST;
            while let Some(node) = stack.pop() {
                if node == a || forest.holds_under(a, node) {
                    proved += 1;
                    return false;
                }
                if left == 0 {
                    break;
                }
                left -= 1;
                steps += 1;
                for (from, _) in self.producers(node) {
                    let behind = self.position(from) >= self.position(a);
                    if behind && std::mem::replace(&mut seen[from.index()], walk) != walk {
                        stack.push(from);
                    }
                }
            }
            true
        });
    }
}

fn positions(order: &[NodeId]) -> Vec<u32> {
    let mut position = vec![0; order.len()];
    for (place, node) in (0u32..).zip(order) {
        position[node.index()] = place;
    }
    position
}

/// Each node under the latest of those that are complete before it starts. The nodes under a node are an interval.
struct Forest {
    /// Where each node's interval starts, by node; the node itself is first in it.
    start: Vec<u32>,
    size: Vec<u32>,
}

impl Forest {
    fn new(order: &GuaranteedOrder) -> Self {
        let count = order.order.len();
        let parents: Vec<Option<NodeId>> = (0..count as u32)
            .map(|node| {
                let full = order.producers(NodeId(node)).filter(|&(_, full)| full);
                full.map(|(from, _)| from).max_by_key(|&from| order.position(from))
            })
            .collect();
        let mut size = vec![1u32; count];
        for node in order.order.iter().rev() {
            if let Some(parent) = parents[node.index()] {
                size[parent.index()] += size[node.index()];
            }
        }
        let (mut start, mut free) = (vec![0u32; count], vec![0u32; count]);
        let mut roots = 0;
        for node in &order.order {
            let room = match parents[node.index()] {
                Some(parent) => &mut free[parent.index()],
                None => &mut roots,
            };
            start[node.index()] = *room;
            *room += size[node.index()];
            free[node.index()] = start[node.index()] + 1;
        }
        Self { start, size }
    }

    fn holds_under(&self, above: NodeId, below: NodeId) -> bool {
        let from = self.start[above.index()];
        above != below
            && (from..from + self.size[above.index()]).contains(&self.start[below.index()])
    }
}

const WORDS: usize = 8;
/// Sources carried at once.
const BITS: usize = 64 * WORDS;

type Row = [u64; WORDS];

/// Carries sources forward.
struct Carry<'a> {
    order: &'a GuaranteedOrder<'a>,
    /// Places behind a source, the first on top.
    ahead: BinaryHeap<Reverse<u32>>,
    /// Place in `rows` of each node that was reached, else the highest number.
    row: Vec<u32>,
    /// The sources complete when the node ends.
    rows: Vec<Row>,
    reached: Vec<NodeId>,
}

const NOT_REACHED: u32 = u32::MAX;
const AHEAD: u32 = u32::MAX - 1;

impl<'a> Carry<'a> {
    fn new(order: &'a GuaranteedOrder<'a>) -> Self {
        let row = vec![NOT_REACHED; order.order.len()];
        Self { order, ahead: BinaryHeap::new(), row, rows: Vec::new(), reached: Vec::new() }
    }

    /// Adds the pairs that are not ordered. `sources` are theirs, in order.
    fn judge(
        &mut self,
        sources: &[NodeId],
        pairs: &[(NodeId, NodeId, By)],
        unordered: &mut Vec<(NodeId, NodeId, By)>,
    ) {
        let order = self.order;
        let last = pairs.iter().map(|&(_, b, _)| order.position(b)).max().unwrap_or(0);
        for &source in sources {
            self.meet(source);
        }
        let mut source = sources.iter().enumerate().peekable();
        while let Some(Reverse(place)) = self.ahead.pop() {
            let node = order.order[place as usize];
            let mut row = self.complete(node, By::Wait);
            if let Some((bit, _)) = source.next_if(|&(_, &source)| source == node) {
                row[bit / 64] |= 1 << (bit % 64);
            }
            self.row[node.index()] = self.rows.len() as u32;
            self.rows.push(row);
            self.reached.push(node);
            for next in order.consumers(node) {
                if order.position(next) <= last {
                    self.meet(next);
                }
            }
        }
        let bit = |a: NodeId| sources.partition_point(|&s| order.position(s) < order.position(a));
        let loose = pairs.iter().filter(|&&(a, b, by)| {
            let bit = bit(a);
            a == b || self.complete(b, by)[bit / 64] >> (bit % 64) & 1 == 0
        });
        unordered.extend(loose);
        for node in self.reached.drain(..) {
            self.row[node.index()] = NOT_REACHED;
        }
        self.rows.clear();
    }

    fn meet(&mut self, node: NodeId) {
        if self.row[node.index()] == NOT_REACHED {
            self.row[node.index()] = AHEAD;
            self.ahead.push(Reverse(self.order.position(node)));
        }
    }

    /// The sources complete when a node starts, or waits.
    fn complete(&self, node: NodeId, by: By) -> Row {
        let mut complete = [0; WORDS];
        for (from, full) in self.order.producers(node) {
            let row = self.row[from.index()];
            if (full || by == By::Wait) && row < AHEAD {
                for (word, bits) in complete.iter_mut().zip(&self.rows[row as usize]) {
                    *word |= bits;
                }
            }
        }
        complete
    }
}
