//! A schedule for a graph: which stream runs what, and which events order streams among each other.
//!
//! In: a graph and the most streams to use. Out: a [`Schedule`] in which every edge is ordered by streams and events,
//! with the internal buffers placed and the graphs inside nodes scheduled too.
//!
//! The order and the streams come from [`assign_lanes`], at one unit a node and hand-overs for free: what is
//! independent goes to different streams, what is a chain stays on one. [`synchronise`] then adds events. A stream keeps
//! a vector clock: how many nodes of every other stream are complete before its next node starts. A node waits only
//! for predecessors beyond that clock, the one issued last first, because what it waited for itself is then known too.
//! A node is recorded at most once, right behind it, whoever waits for it.
//!
//! Cost: linear in nodes and edges, and one row of a counter per stream for every node that waits.

use std::collections::{BTreeMap, VecDeque};

use phonograph_graph::{ComputeGraph, EventId, NodeId, Schedule, Step, StreamId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::PlanError;
use crate::lanes::{LaneInput, MAX_LANES, assign_lanes};
use crate::memory::{self, MAX_POOL_BYTES, MemoryOptions};

/// Rows of clocks kept, in counters. Older rows are forgotten, which can only make a wait that was not needed.
const CLOCK_BUDGET: usize = 1 << 25;

/// Schedules a graph and the graphs inside it on at most `streams` streams (and no more than [`MAX_LANES`]).
///
/// ```
/// use phonograph_graph::{GraphBuilder, check};
/// use phonograph_plan::streams::schedule;
///
/// let mut b = GraphBuilder::new();
/// let [fork, left, right, join] = ["fork", "left", "right", "join"].map(|n| b.add_barrier(n));
/// b.fan_out(fork, &[left, right]).fan_in(&[left, right], join);
/// let graph = b.build()?;
/// let schedule = schedule(&graph, 4)?;
/// assert!(check(&graph, &schedule).is_empty());
/// assert_eq!((schedule.streams, schedule.wait_count()), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PlanError::NoStreams`]; [`PlanError::TooLarge`] for internal buffers beyond all addresses.
pub fn schedule(graph: &ComputeGraph, streams: usize) -> Result<Schedule, PlanError> {
    if streams == 0 {
        return Err(PlanError::NoStreams);
    }
    let most = streams.min(graph.node_count()).clamp(1, MAX_LANES as usize) as u32;
    let memory = memory::plan(graph, &MemoryOptions::default())?.memory;
    let (order, stream, used) = assign(graph, most)?;
    let steps = synchronise(graph, &[], &order, &stream, used);
    let mut inner = BTreeMap::new();
    let mut pools = memory.pool_bytes();
    for (index, node) in graph.nodes().iter().enumerate() {
        let graphs = node.kind.inner_graphs();
        if !graphs.is_empty() {
            // Graphs nest at most `MAX_NESTING` deep, which building them bounded.
            let schedules = graphs.iter().map(|graph| schedule(graph, streams));
            let schedules: Vec<Schedule> = schedules.collect::<Result<_, _>>()?;
            for schedule in &schedules {
                pools = pools.saturating_add(schedule.pool_bytes());
                if pools > MAX_POOL_BYTES {
                    let what = "memory for internal buffers";
                    return Err(PlanError::TooLarge { what, bytes: pools });
                }
            }
            inner.insert(NodeId::from_index(index), schedules);
        }
    }
    Ok(Schedule { streams: used, steps, reuse: Vec::new(), memory, inner })
}

/// An issue order, the stream of each node, and how many streams are used.
fn assign(graph: &ComputeGraph, most: u32) -> Result<(Vec<NodeId>, Vec<StreamId>, u32), PlanError> {
    let predecessors = graph.predecessor_lists();
    let targets: Vec<u32> = predecessors.targets().iter().map(|node| node.0).collect();
    let cost = vec![1; graph.node_count()];
    let lanes = assign_lanes(LaneInput {
        offsets: predecessors.offsets(),
        targets: &targets,
        cost: &cost,
        lanes: most,
        handover: 0,
    })?;
    // Lanes that nothing runs on leave no gap among the streams.
    let mut number: Vec<Option<StreamId>> = vec![None; most as usize];
    let mut used = 0;
    let order: Vec<NodeId> = lanes.order.iter().map(|&task| NodeId(task)).collect();
    for &node in &order {
        number[lanes.lane[node.index()].0 as usize].get_or_insert_with(|| {
            used += 1;
            StreamId(used - 1)
        });
    }
    let stream = lanes.lane.iter().filter_map(|lane| number[lane.0 as usize]).collect();
    Ok((order, stream, used))
}

/// The steps that run `order` on the streams given (by node), every edge and every pair of `reuse` ordered.
///
/// `order` must be a topological order of both.
pub fn synchronise(
    graph: &ComputeGraph,
    reuse: &[(NodeId, NodeId)],
    order: &[NodeId],
    stream: &[StreamId],
    streams: u32,
) -> Vec<Step> {
    let waits = Waits::find(graph, reuse, order, stream, streams as usize);
    let mut steps = Vec::with_capacity(order.len() + 2 * waits.sources.len());
    let mut events = 0;
    let mut event_of: FxHashMap<NodeId, EventId> = FxHashMap::default();
    let mut next = 0;
    for &node in order {
        let stream = stream[node.index()];
        while let Some(&(_, source)) = waits.sources.get(next).filter(|(to, _)| *to == node) {
            steps.push(Step::Wait { event: event_of[&source], stream });
            next += 1;
        }
        steps.push(Step::run(node, stream));
        if waits.recorded[node.index()] {
            let event = EventId(events);
            events += 1;
            event_of.insert(node, event);
            steps.push(Step::Record { event, stream });
        }
    }
    steps
}

/// Which nodes have to wait for which, across streams.
struct Waits {
    /// (the node that waits, the node it waits for), in issue order of the former.
    sources: Vec<(NodeId, NodeId)>,
    /// By node, whether any waits for it.
    recorded: Vec<bool>,
}

impl Waits {
    fn find(
        graph: &ComputeGraph,
        reuse: &[(NodeId, NodeId)],
        order: &[NodeId],
        stream: &[StreamId],
        streams: usize,
    ) -> Self {
        let mut added: FxHashMap<NodeId, SmallVec<[NodeId; 2]>> = FxHashMap::default();
        for &(from, to) in reuse {
            added.entry(to).or_default().push(from);
        }
        let mut found = Waits { sources: Vec::new(), recorded: vec![false; order.len()] };
        // Place on its stream from 1 on, place in the order, and the clock it ran under, of each node issued.
        let mut place = vec![0u32; order.len()];
        let mut issued = vec![0u32; order.len()];
        let mut ran_under = vec![0u32; order.len()];
        let mut clocks = Clocks::new(streams);
        let mut needed: SmallVec<[NodeId; 8]> = SmallVec::new();
        for (at, &node) in order.iter().enumerate() {
            let own = stream[node.index()].index();
            let added = added.get(&node).into_iter().flatten();
            let before = graph.predecessors(node).iter().chain(added);
            let place_of = |n: NodeId| (stream[n.index()].index(), place[n.index()]);
            needed.clear();
            needed.extend(before.copied().filter(|&n| !clocks.covers(own, place_of(n))));
            needed.sort_unstable_by_key(|n| std::cmp::Reverse(issued[n.index()]));
            for &source in &needed {
                if !clocks.covers(own, place_of(source)) {
                    found.sources.push((node, source));
                    found.recorded[source.index()] = true;
                    clocks.wait(own, place_of(source), ran_under[source.index()]);
                }
            }
            place[node.index()] = clocks.issue(own);
            issued[node.index()] = at as u32;
            ran_under[node.index()] = clocks.version[own];
        }
        found
    }
}

/// The vector clock of every stream, and old versions of them.
struct Clocks {
    streams: usize,
    /// `now[s * streams + t]`: how many nodes of `t` are complete before the next node of `s` starts.
    now: Vec<u32>,
    count: Vec<u32>,
    /// The number of the row that holds the stream's clock, 0 for one that has not waited yet.
    version: Vec<u32>,
    /// Whether the clock has changed since that row.
    changed: Vec<bool>,
    rows: VecDeque<Box<[u32]>>,
    /// Number of the first row kept.
    first: u32,
}

impl Clocks {
    fn new(streams: usize) -> Self {
        Self {
            streams,
            now: vec![0; streams * streams],
            count: vec![0; streams],
            version: vec![0; streams],
            changed: vec![false; streams],
            rows: VecDeque::new(),
            first: 1,
        }
    }

    fn row(&mut self, stream: usize) -> &mut [u32] {
        &mut self.now[stream * self.streams..(stream + 1) * self.streams]
    }

    fn covers(&self, stream: usize, (other, place): (usize, u32)) -> bool {
        other == stream || self.now[stream * self.streams + other] >= place
    }

    /// `stream` waits for the node at that place, which ran under row `version`.
    fn wait(&mut self, stream: usize, (other, place): (usize, u32), version: u32) {
        let known = version.checked_sub(self.first).map(|at| at as usize);
        if let Some(known) = known.and_then(|at| self.rows.get(at)) {
            let from = stream * self.streams;
            for (own, &seen) in self.now[from..from + self.streams].iter_mut().zip(known) {
                *own = (*own).max(seen);
            }
        }
        let own = &mut self.row(stream)[other];
        *own = (*own).max(place);
        self.changed[stream] = true;
    }

    /// Issues a node to `stream`: its place there.
    fn issue(&mut self, stream: usize) -> u32 {
        if std::mem::take(&mut self.changed[stream]) {
            let row = self.row(stream).into();
            self.rows.push_back(row);
            self.version[stream] = self.first + (self.rows.len() - 1) as u32;
            if self.rows.len() * self.streams > CLOCK_BUDGET {
                self.rows.pop_front();
                self.first += 1;
            }
        }
        self.count[stream] += 1;
        self.count[stream]
    }
}
