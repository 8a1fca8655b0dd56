//! When each node of a schedule would run, how long all of it would take, and what holds it up.
//!
//! In: a graph, a schedule of it, what each node costs, what hand-overs cost. Out: a start and an end for every node, and
//! the chain of nodes that the makespan consists of: each starts as soon as the one before it lets it.
//!
//! A stream runs its steps one after another; a wait lasts until what it waits for has ended, and the hand-over. All streams
//! run side by side. That is what the CPU backend does with as many workers as streams, and what a GPU does as long as it has
//! room. Graphs inside a node are part of its cost. O(steps + edges).

use phonograph_graph::{ComputeGraph, NodeId, Schedule, Step, StreamId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cost::Overheads;

/// When a node runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeSpan {
    /// The node.
    pub node: NodeId,
    /// Its stream.
    pub stream: StreamId,
    /// Nanoseconds from the start of the replay.
    pub start_ns: u64,
    /// Nanoseconds from the start of the replay.
    pub end_ns: u64,
}

/// Why a node of the chain did not start earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBy {
    /// The replay had just begun.
    Start,
    /// The node before it on its stream, on which it depends.
    Dependency,
    /// A node on another stream, on which it depends; the hand-over is part of the delay.
    HandOver,
    /// The node before it on its stream, on which it does not depend: the stream was busy.
    Stream,
}

/// A node of the chain that the makespan consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The node.
    pub node: NodeId,
    /// Its stream.
    pub stream: StreamId,
    /// Why it did not start earlier: the link before this one, or nothing.
    pub held_by: HeldBy,
}

/// What the makespan is due to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// There is nothing to run.
    Nothing,
    /// Nodes that depend on each other: no number of streams is faster.
    CriticalPath,
    /// Waiting from stream to stream takes a tenth of the time or more.
    HandOvers,
    /// All streams are busy nearly all the time: more streams would help.
    Work,
    /// One stream is busy all the time while others are not: its work is spread badly, or comes in large pieces.
    OneStream(StreamId),
    /// Streams that run nodes in an order that the graph does not ask for.
    StreamOrder,
}

/// How a schedule runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Simulation {
    /// Nanoseconds of the whole replay.
    pub makespan_ns: u64,
    /// One for each node, in issue order.
    pub spans: Vec<NodeSpan>,
    /// Nanoseconds in which each stream runs nodes, overhead included.
    pub busy_ns: Vec<u64>,
    /// The nodes that the makespan consists of, in order.
    pub chain: Vec<Link>,
    /// Hand-overs within the chain, in nanoseconds.
    pub handover_ns: u64,
    /// The longest path of nodes that depend on each other, also by the reuse of memory, their overhead included.
    pub critical_path_ns: u64,
    /// What it is due to.
    pub bound: Bound,
}

/// Simulates a replay.
///
/// ```
/// use phonograph_graph::{GraphBuilder, NodeId};
/// use phonograph_plan::cost::Overheads;
/// use phonograph_plan::simulate::{Bound, simulate};
/// use phonograph_plan::streams::{PlanOptions, schedule};
///
/// let mut b = GraphBuilder::new();
/// let [fork, left, right, join] = ["fork", "left", "right", "join"].map(|n| b.add_barrier(n));
/// b.fan_out(fork, &[left, right]).fan_in(&[left, right], join);
/// let graph = b.build()?;
/// let costs = [1_000, 40_000, 30_000, 1_000];
/// let schedule = schedule(&graph, &PlanOptions { costs: Some(&costs), ..PlanOptions::at_most(2) })?;
/// let run = simulate(&graph, &schedule, &costs, Overheads { handover_ns: 500, ..Overheads::default() });
/// assert_eq!((run.makespan_ns, run.bound), (42_000, Bound::CriticalPath));
/// assert_eq!(run.chain.iter().map(|link| link.node).collect::<Vec<_>>(), [fork, left, join]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If the schedule is not right for the graph (see [`check`](phonograph_graph::check)), or there is not one cost a node.
pub fn simulate(
    graph: &ComputeGraph,
    schedule: &Schedule,
    costs: &[u64],
    overheads: Overheads,
) -> Simulation {
    assert_eq!(costs.len(), graph.node_count(), "one cost a node");
    let cost = |node: NodeId| costs[node.index()].saturating_add(overheads.node_ns);
    let streams = schedule.streams as usize;
    let reuse: FxHashSet<(NodeId, NodeId)> = schedule.reuse.iter().copied().collect();
    let mut free =
        vec![Ready { at: overheads.replay_ns / 2, by: None, handed_over: false }; streams];
    let mut events: FxHashMap<_, Ready> = FxHashMap::default();
    let mut spans = Vec::with_capacity(graph.node_count());
    let mut busy = vec![0u64; streams];
    let mut links: Vec<(Option<NodeId>, Link)> = Vec::with_capacity(graph.node_count());
    let mut place = vec![0u32; graph.node_count()];
    let mut last: Option<(u64, NodeId)> = None;
    for step in &schedule.steps {
        match step {
            Step::Run { nodes, stream } => {
                for &node in nodes {
                    let ready = free[stream.index()];
                    let depends = |from| {
                        reuse.contains(&(from, node)) || graph.predecessors(node).contains(&from)
                    };
                    let held_by = match ready.by {
                        None => HeldBy::Start,
                        Some(_) if ready.handed_over => HeldBy::HandOver,
                        Some(from) if depends(from) => HeldBy::Dependency,
                        Some(_) => HeldBy::Stream,
                    };
                    place[node.index()] = links.len() as u32;
                    links.push((ready.by, Link { node, stream: *stream, held_by }));
                    let end = ready.at.saturating_add(cost(node));
                    spans.push(NodeSpan { node, stream: *stream, start_ns: ready.at, end_ns: end });
                    busy[stream.index()] = busy[stream.index()].saturating_add(cost(node));
                    free[stream.index()] = Ready { at: end, by: Some(node), handed_over: false };
                    if last.is_none_or(|(latest, _)| end > latest) {
                        last = Some((end, node));
                    }
                }
            }
            Step::Record { event, stream } => {
                events.insert(*event, free[stream.index()]);
            }
            Step::Wait { event, stream } => {
                let recorded = events[event];
                let at = recorded.at.saturating_add(overheads.handover_ns);
                if at > free[stream.index()].at {
                    free[stream.index()] = Ready { at, by: recorded.by, handed_over: true };
                }
            }
        }
    }
    let end = last.map_or(0, |(end, _)| end);
    let mut chain = Vec::new();
    let mut next = last.map(|(_, node)| node);
    while let Some(node) = next {
        let (by, link) = links[place[node.index()] as usize];
        chain.push(link);
        next = by;
    }
    chain.reverse();
    let handed_over = chain.iter().filter(|link| link.held_by == HeldBy::HandOver).count() as u64;
    let mut simulation = Simulation {
        makespan_ns: end.saturating_add(overheads.replay_ns.div_ceil(2)),
        spans,
        busy_ns: busy,
        chain,
        handover_ns: handed_over.saturating_mul(overheads.handover_ns),
        critical_path_ns: 0,
        bound: Bound::Nothing,
    };
    simulation.critical_path_ns = critical_path(graph, schedule, &simulation.spans);
    simulation.bound = simulation.judge();
    simulation
}

/// The cost of the longest path through the guaranteed order, of which issue order is a topological one.
fn critical_path(graph: &ComputeGraph, schedule: &Schedule, issued: &[NodeSpan]) -> u64 {
    let mut reuse: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
    for &(from, to) in &schedule.reuse {
        reuse.entry(to).or_default().push(from);
    }
    let mut path = vec![0u64; graph.node_count()];
    for &NodeSpan { node, start_ns, end_ns, .. } in issued {
        let before = graph.predecessors(node).iter().chain(reuse.get(&node).into_iter().flatten());
        let longest = before.map(|from| path[from.index()]).max().unwrap_or(0);
        path[node.index()] = longest.saturating_add(end_ns - start_ns);
    }
    path.into_iter().max().unwrap_or(0)
}

/// When a stream can go on, and who made it so.
#[derive(Clone, Copy)]
struct Ready {
    at: u64,
    by: Option<NodeId>,
    handed_over: bool,
}

impl Simulation {
    /// Nanoseconds that all streams together would take if none was ever idle.
    pub fn balanced_ns(&self) -> u64 {
        let work: u128 = self.busy_ns.iter().map(|&ns| u128::from(ns)).sum();
        let share = work.div_ceil(self.busy_ns.len().max(1) as u128);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn judge(&self) -> Bound {
        let Some(first) = self.chain.first() else { return Bound::Nothing };
        let is = |part: u64, percent: u128| {
            part > 0 && u128::from(part) * 100 >= u128::from(self.makespan_ns) * percent
        };
        let busy_stream = self.chain.iter().any(|link| link.held_by == HeldBy::Stream);
        if is(self.handover_ns, 10) {
            Bound::HandOvers
        } else if !busy_stream || is(self.critical_path_ns, 95) {
            Bound::CriticalPath
        } else if is(self.balanced_ns(), 95) {
            Bound::Work
        } else if self.chain.iter().all(|link| link.stream == first.stream) {
            Bound::OneStream(first.stream)
        } else {
            Bound::StreamOrder
        }
    }
}
