//! Which nodes become one kernel: convex groups, found by levels.
//!
//! In a pass, groups are visited in topological order, and each gets a level: one more than the highest among the
//! groups that it depends on. A group that can be merged with *all* of its predecessors of the highest level takes
//! their level instead. So every dependency between groups leads to a higher level: a path that left a group could not
//! come back to it, and groups of one level do not depend on one another. The same is done from the end, where a group
//! is merged with its successors, until neither direction finds anything. A pass is
//! linear in nodes and edges; the number of passes is bounded, and what the last one would have found is left.
//!
//! The idea of merging within levels is that of acyclic coarsening (Herrmann, Kho, Uçar, Kaya, Çatalyürek, CCGrid 2017).

use phonograph_graph::{ComputeGraph, NodeId};

use super::FusionOptions;
use super::group::{Group, Limits};
use super::renumber::Seen;
use crate::passes::{Left, Reason};

/// Passes, forwards and backwards in turn.
const PASSES: usize = 6;
/// Neighbours of one level that a group is merged with at once, at most.
const MOST_NEIGHBOURS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forwards,
    Backwards,
}

/// The groups so far. A group has the index of one of its members.
pub(super) struct Groups<'a> {
    graph: &'a ComputeGraph,
    limits: Limits,
    /// How many nodes name each buffer.
    users: &'a [u32],
    /// The group of each node.
    group_of: Vec<u32>,
    /// `None` for nodes that cannot be merged, and for groups that have gone into another.
    groups: Vec<Option<Box<Group>>>,
    /// Reductions and matrix products, until [`merge_library`](Self::merge_library) lets them take part.
    anchors: Vec<(NodeId, Group)>,
    level: Vec<u32>,
    /// Why a node was not merged with a neighbour, by node; the last reason found.
    reasons: Vec<Option<Reason>>,
}

impl<'a> Groups<'a> {
    /// Each node that may be merged in a group of its own.
    pub fn new(seen: &Seen<'a>, users: &'a [u32], options: &FusionOptions) -> Self {
        let graph = seen.graph;
        let count = graph.node_count();
        let mut apart = vec![false; count];
        if graph.has_weak_edges() {
            for edge in graph.edges().filter(|edge| !edge.data.is_full()) {
                apart[edge.from.index()] = true;
                apart[edge.to.index()] = true;
            }
        }
        let mut reasons = vec![None; count];
        let mut groups = Vec::with_capacity(count);
        let mut anchors = Vec::new();
        for node in graph.node_ids() {
            let mut group = Group::of(seen, node, users);
            if group.is_some() && apart[node.index()] {
                reasons[node.index()] = Some(Reason::WeakEdge);
                group = None;
            }
            if options.library && !apart[node.index()] {
                anchors.extend(Group::of_library(seen, node, users).map(|group| (node, group)));
            }
            groups.push(group.map(Box::new));
        }
        Self {
            graph,
            limits: Limits { ops: options.max_ops, operands: options.max_operands },
            users,
            group_of: (0..count as u32).collect(),
            groups,
            anchors,
            level: vec![0; count],
            reasons,
        }
    }

    /// Merges reductions and matrix products with what comes before and after them.
    pub fn merge_library(&mut self) {
        for (node, group) in std::mem::take(&mut self.anchors) {
            self.groups[node.index()] = Some(Box::new(group));
        }
        self.merge_dependent();
    }

    /// Merges whatever depends on one another, directly.
    pub fn merge_dependent(&mut self) {
        let mut idle = 0;
        for pass in 0..PASSES {
            let direction = match pass % 2 {
                0 => Direction::Forwards,
                _ => Direction::Backwards,
            };
            idle = if self.pass(direction) { 0 } else { idle + 1 };
            if idle == 2 {
                break;
            }
        }
    }

    /// Merges what does not depend on one another, has one level and one space of at most so many elements.
    pub fn merge_independent(&mut self, most_elements: u64) {
        self.relevel();
        let mut candidates: Vec<u32> = (0..self.groups.len() as u32)
            .filter(|&g| {
                let group = self.groups[g as usize].as_ref();
                group.is_some_and(|group| {
                    group.anchor.is_none() && group.space.elements() <= most_elements
                })
            })
            .collect();
        candidates.sort_by_key(|&g| {
            let space = self.groups[g as usize].as_ref().map(|group| group.space);
            (self.level[g as usize], space.map(|s| s.extents().to_vec()), g)
        });
        let mut into: Option<u32> = None;
        for group in candidates {
            let merged =
                into.filter(|&into| self.level[into as usize] == self.level[group as usize]);
            let merged = merged.and_then(|into| {
                let (first, second) =
                    (self.groups[into as usize].as_ref(), self.groups[group as usize].as_ref());
                Some((into, self.both(first?, second?).ok()?))
            });
            match merged {
                Some((into, merged)) => self.put(&[into, group], merged, into),
                None => into = Some(group),
            }
        }
    }

    /// The groups of several nodes, by their first node.
    pub fn found(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().flatten().filter(|group| group.members.len() > 1).map(|group| &**group)
    }

    /// The group of several nodes that a node is in.
    pub fn of(&self, node: NodeId) -> Option<&Group> {
        let group = self.groups[self.group_of[node.index()] as usize].as_deref();
        group.filter(|group| group.members.len() > 1)
    }

    /// Nodes that could be merged and depend on another such node, but were not merged with it; `known` reasons say more
    /// than what was found here.
    pub fn left(&self, known: &[(NodeId, Reason)]) -> Vec<Left> {
        let mut reasons = self.reasons.clone();
        for &(node, why) in known {
            reasons[node.index()] = Some(why);
        }
        let mut left = Vec::new();
        for node in self.graph.node_ids() {
            let Some(why) = reasons[node.index()] else { continue };
            let alone = match &self.groups[self.group_of[node.index()] as usize] {
                Some(group) => group.members.len() == 1,
                None => true,
            };
            if alone {
                left.push(Left { node, why });
            }
        }
        left
    }

    /// Group ids in an order in which each comes after all that it depends on.
    fn order(&self) -> Vec<u32> {
        let mut waits: Vec<u32> = vec![0; self.groups.len()];
        for edge in self.graph.edges() {
            let (from, to) = (self.group_of[edge.from.index()], self.group_of[edge.to.index()]);
            if from != to {
                waits[to as usize] += 1;
            }
        }
        let is_group = |g: u32| self.group_of[g as usize] == g;
        let mut order: Vec<u32> = (0..self.groups.len() as u32)
            .filter(|&g| is_group(g) && waits[g as usize] == 0)
            .collect();
        let mut at = 0;
        while let Some(&group) = order.get(at) {
            at += 1;
            self.for_members(group, |member| {
                for &next in self.graph.successors(member) {
                    let next = self.group_of[next.index()];
                    if next != group {
                        waits[next as usize] -= 1;
                        if waits[next as usize] == 0 {
                            order.push(next);
                        }
                    }
                }
            });
        }
        order
    }

    fn for_members(&self, group: u32, mut f: impl FnMut(NodeId)) {
        match &self.groups[group as usize] {
            Some(group) => group.members.iter().for_each(|&member| f(member)),
            None => f(NodeId(group)),
        }
    }

    /// The highest level among the neighbours of a group, and the groups that have it, in ascending order.
    fn highest(&self, group: u32, direction: Direction) -> (Option<u32>, Vec<u32>) {
        let (mut highest, mut found) = (None, Vec::new());
        self.for_members(group, |member| {
            let neighbours = match direction {
                Direction::Forwards => self.graph.predecessors(member),
                Direction::Backwards => self.graph.successors(member),
            };
            for neighbour in neighbours {
                let neighbour = self.group_of[neighbour.index()];
                if neighbour == group {
                    continue;
                }
                let level = Some(self.level[neighbour as usize]);
                if level > highest {
                    highest = level;
                    found.clear();
                }
                if level == highest && found.last() != Some(&neighbour) {
                    found.push(neighbour);
                }
            }
        });
        found.sort_unstable();
        found.dedup();
        (highest, found)
    }

    /// Levels of the groups as they are, from the start.
    fn relevel(&mut self) {
        for group in self.order() {
            let (highest, _) = self.highest(group, Direction::Forwards);
            self.level[group as usize] = highest.map_or(0, |level| level + 1);
        }
    }

    /// One pass; whether it merged anything.
    fn pass(&mut self, direction: Direction) -> bool {
        let mut order = self.order();
        if direction == Direction::Backwards {
            order.reverse();
        }
        let mut any = false;
        for group in order {
            let (highest, neighbours) = self.highest(group, direction);
            let Some(highest) = highest else {
                self.level[group as usize] = 0;
                continue;
            };
            match self.with_all(group, &neighbours, direction) {
                Ok(merged) => {
                    let (level, into) = (highest, neighbours[0]);
                    let all: Vec<u32> = neighbours.iter().copied().chain([group]).collect();
                    self.put(&all, merged, into);
                    self.level[into as usize] = level;
                    any = true;
                }
                Err(why) => {
                    self.level[group as usize] = highest + 1;
                    if let (Some(why), Some(own)) = (why, &self.groups[group as usize]) {
                        for &member in &own.members {
                            self.reasons[member.index()] = Some(why);
                        }
                    }
                }
            }
        }
        any
    }

    /// A group merged with all these neighbours; `Err(None)` where there is nothing to say about why not.
    fn with_all(
        &self,
        group: u32,
        neighbours: &[u32],
        direction: Direction,
    ) -> Result<Group, Option<Reason>> {
        let Some(own) = &self.groups[group as usize] else { return Err(None) };
        let mut others: Vec<&Group> =
            neighbours.iter().filter_map(|&n| self.groups[n as usize].as_deref()).collect();
        // They do not depend on one another: elementwise work may as well come after a matrix product.
        others.sort_by_key(|other| other.anchor.is_none());
        if others.is_empty() {
            return Err(None);
        }
        if others.len() < neighbours.len() || others.len() > MOST_NEIGHBOURS {
            return Err(Some(Reason::PathAround));
        }
        let mut all = others[0].clone();
        for other in &others[1..] {
            all = self.both(&all, other)?;
        }
        let merged = match direction {
            Direction::Forwards => self.both(&all, own)?,
            Direction::Backwards => self.both(own, &all)?,
        };
        match others.iter().all(|other| other.shares_a_view(own)) {
            true => Ok(merged),
            false => Err(Some(Reason::NothingShared)),
        }
    }

    fn both(&self, earlier: &Group, later: &Group) -> Result<Group, Reason> {
        earlier.then(later, self.graph, self.users, self.limits)
    }

    /// Replaces groups by the one that they became, under the id `into`, one of theirs.
    fn put(&mut self, gone: &[u32], merged: Group, into: u32) {
        for &group in gone {
            self.groups[group as usize] = None;
        }
        for member in &merged.members {
            self.group_of[member.index()] = into;
        }
        self.groups[into as usize] = Some(Box::new(merged));
    }
}
