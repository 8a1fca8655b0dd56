//! Which of given pairs of nodes the guaranteed order orders, exactly.
//!
//! `a` is before `b` when a path of edges leads from `a` to `b` whose last edge is full: then `a` is complete
//! before `b` starts. A path that ends in a weak edge only promises completion before `b`'s wait; beyond `b` it
//! counts again, since `b` completes after its wait. Sources are taken 64 at a time, one bit each, in topological
//! order, and carried forward through the stretch of the graph between them and their targets.

use rustc_hash::FxHashMap;

use crate::checker::Violation;
use crate::{ComputeGraph, NodeId, Schedule};

/// What must have come before a node: everything complete when it starts, or when its grid-dependency wait returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Start,
    Wait,
}

pub(super) struct GuaranteedOrder<'a> {
    graph: &'a ComputeGraph,
    /// Reuse edges by consumer.
    reuse: FxHashMap<NodeId, Vec<NodeId>>,
    order: Vec<NodeId>,
    /// Place in `order`.
    position: Vec<u32>,
}

impl<'a> GuaranteedOrder<'a> {
    /// The order of the graph's edges and the schedule's reuse edges; an error if they close a cycle.
    pub fn new(graph: &'a ComputeGraph, schedule: &Schedule) -> Result<Self, Violation> {
        let known =
            |&&(from, to): &&(NodeId, NodeId)| graph.get(from).is_some() && graph.get(to).is_some();
        let mut reuse: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        let mut after: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        let mut missing: Vec<u32> =
            graph.node_ids().map(|node| graph.predecessors(node).len() as u32).collect();
        for &(from, to) in schedule.reuse.iter().filter(known) {
            reuse.entry(to).or_default().push(from);
            after.entry(from).or_default().push(to);
            missing[to.index()] += 1;
        }
        let mut order: Vec<NodeId> =
            graph.node_ids().filter(|node| missing[node.index()] == 0).collect();
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            let added = after.get(&node).into_iter().flatten();
            for &successor in graph.successors(node).iter().chain(added) {
                missing[successor.index()] -= 1;
                if missing[successor.index()] == 0 {
                    order.push(successor);
                }
            }
        }
        if let Some(node) = graph.node_ids().find(|node| missing[node.index()] > 0) {
            return Err(Violation::ReuseCycle { node });
        }
        let mut position = vec![0; order.len()];
        for (place, node) in (0u32..).zip(&order) {
            position[node.index()] = place;
        }
        Ok(Self { graph, reuse, order, position })
    }

    /// Place of a node in one topological order of the guaranteed order.
    pub fn position(&self, node: NodeId) -> u32 {
        self.position[node.index()]
    }

    /// The pairs (before, after) in which `before` may not be complete by the start (or wait) of `after`.
    pub fn unordered(&self, mut pairs: Vec<(NodeId, NodeId)>, by: By) -> Vec<(NodeId, NodeId)> {
        pairs.sort_unstable_by_key(|&(a, b)| (self.position(a), self.position(b)));
        pairs.dedup();
        let mut unordered = Vec::new();
        let mut rest = pairs.as_slice();
        let mut reached = Reached::default();
        while let Some(&(first, _)) = rest.first() {
            let mut sources: Vec<NodeId> = Vec::with_capacity(64);
            let mut length = 0;
            let mut last = self.position(first);
            for &(source, target) in rest {
                if sources.last() != Some(&source) {
                    if sources.len() == 64 {
                        break;
                    }
                    sources.push(source);
                }
                last = last.max(self.position(target));
                length += 1;
            }
            let (chunk, later) = rest.split_at(length);
            rest = later;
            let start = self.position(first);
            self.carry(&sources, start, last, &mut reached);
            for &(source, target) in chunk {
                let bit = sources.partition_point(|&s| self.position(s) < self.position(source));
                let at = self.position(target).checked_sub(start).map(|at| at as usize);
                let complete = match by {
                    By::Start => &reached.at_start,
                    By::Wait => &reached.at_wait,
                };
                let ordered = at.is_some_and(|at| complete[at] >> bit & 1 == 1);
                if !ordered {
                    unordered.push((source, target));
                }
            }
        }
        unordered
    }

    /// For each place from `start` to `last`: which sources are complete before the node there starts, and by its end.
    fn carry(&self, sources: &[NodeId], start: u32, last: u32, reached: &mut Reached) {
        reached.at_start.clear();
        reached.at_wait.clear();
        reached.at_end.clear();
        let mut source = sources.iter().peekable();
        for place in start..=last {
            let node = self.order[place as usize];
            let (mut at_start, mut weak) = (0u64, 0u64);
            let complete = |from: NodeId| match self.position(from).checked_sub(start) {
                Some(at) => reached.at_end[at as usize],
                None => 0,
            };
            for edge in self.graph.incoming(node) {
                let bits = complete(edge.from);
                if edge.data.is_full() {
                    at_start |= bits;
                } else {
                    weak |= bits;
                }
            }
            for &from in self.reuse.get(&node).into_iter().flatten() {
                at_start |= complete(from);
            }
            let own = match source.next_if(|&&s| s == node) {
                Some(_) => 1 << (sources.len() - source.len() - 1),
                None => 0,
            };
            reached.at_start.push(at_start);
            reached.at_wait.push(at_start | weak);
            reached.at_end.push(at_start | weak | own);
        }
    }
}

#[derive(Default)]
struct Reached {
    at_start: Vec<u64>,
    at_wait: Vec<u64>,
    at_end: Vec<u64>,
}
