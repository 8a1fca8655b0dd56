//! A schedule for a graph: which stream runs what, and which events order streams among each other.
//!
//! In: a graph and how many streams may be used. Out: a [`Schedule`] in which every edge is ordered by streams and events,
//! with the internal buffers placed and the graphs inside nodes scheduled too.
//!
//! Two ways lead to streams. At full concurrency (`cover`), what is independent is on different streams and waits are
//! the fewest possible. Under a cap order and streams come from [`lane_candidates`]: levels cut into equal parts, or a list
//! schedule by cost, the critical path first. If no costs are given and the cap leaves full concurrency, that
//! is taken. Else all that fit are simulated, and the one with the lowest price is taken: the makespan and, spread over
//! the streams, a hand-over for every wait, or a tenth of a node where hand-overs are said to be for free. `waits` says who
//! has to wait for whom: no wait can be left out, and a node is recorded at most once, right behind it.
//!
//! Streams order at least what the graph and the reuse of memory demand; nothing relies on what they order beyond.

mod cover;
mod waits;

use std::borrow::Cow;
use std::collections::BTreeMap;

use phonograph_graph::{ComputeGraph, GraphBuilder, MAX_STREAMS, NodeId, Schedule, StreamId};

use cover::{Cover, Reduced};
pub use cover::{Synchronisations, synchronisations};

use crate::analysis::levels;
use crate::cost::{Overheads, assumed};
use crate::error::PlanError;
use crate::lanes::{LaneInput, Lanes, lane_candidates};
use crate::memory::{self, MAX_POOL_BYTES, MemoryOptions, MemoryReport};

/// How many streams a schedule may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamLimit {
    /// As many as it takes for everything that is independent to run side by side.
    Full,
    /// This many, or fewer.
    AtMost(u32),
}

/// What a schedule is to be like.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions<'a> {
    /// How many streams.
    pub streams: StreamLimit,
    /// What each node costs, in nanoseconds, by node; if not given, what [`assumed`] says. Graphs inside nodes
    /// are planned with assumed costs.
    pub costs: Option<&'a [u64]>,
    /// What it costs to go from node to node and from stream to stream.
    pub overheads: Overheads,
    /// How memory is planned, by the costs above.
    pub memory: MemoryOptions<'a>,
}

impl PlanOptions<'_> {
    /// At most so many streams; assumed costs, hand-overs for free, as much memory as it takes.
    pub fn at_most(streams: u32) -> Self {
        Self {
            streams: StreamLimit::AtMost(streams),
            costs: None,
            overheads: Overheads::default(),
            memory: MemoryOptions::default(),
        }
    }
}

/// Schedules a graph and the graphs inside it.
///
/// ```
/// use phonograph_graph::{GraphBuilder, check};
/// use phonograph_plan::streams::{PlanOptions, schedule};
///
/// let mut b = GraphBuilder::new();
/// let [fork, left, right, join] = ["fork", "left", "right", "join"].map(|n| b.add_barrier(n));
/// b.fan_out(fork, &[left, right]).fan_in(&[left, right], join);
/// let graph = b.build()?;
/// let schedule = schedule(&graph, &PlanOptions::at_most(4))?;
/// assert!(check(&graph, &schedule).is_empty());
/// assert_eq!((schedule.streams, schedule.wait_count()), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PlanError::NoStreams`]; [`PlanError::TooManyStreams`] if full concurrency needs more than [`MAX_STREAMS`], or more than
/// that many are asked for and could be used; [`PlanError::Costs`] for costs of another graph;
/// [`PlanError::TooLarge`] for internal buffers beyond all addresses.
pub fn schedule(graph: &ComputeGraph, options: &PlanOptions<'_>) -> Result<Schedule, PlanError> {
    refuse(graph, options)?;
    // Memory first: what sharing bytes adds to the order, streams have to keep.
    let by = MemoryOptions { costs: options.costs.unwrap_or(&[]), ..options.memory };
    let planned = memory::plan(graph, &by)?;
    schedule_in(graph, options, &planned)
}

/// [`schedule`] for a graph whose memory is planned already, graphs inside included; [`PlanOptions::memory`] does not count.
///
/// # Errors
/// As for [`schedule`], and [`PlanError::Unplanned`] where the memory is that of another graph.
pub fn schedule_in(
    graph: &ComputeGraph,
    options: &PlanOptions<'_>,
    planned: &MemoryReport,
) -> Result<Schedule, PlanError> {
    refuse(graph, options)?;
    let ordered = guaranteed(graph, &planned.reuse)?;
    let inner = inside(graph, options, planned)?;
    let finished = |candidate: Candidate| candidate.finished(planned, inner);
    let independent = side_by_side(&ordered);
    let most = match options.streams {
        StreamLimit::Full => return Ok(finished(full(&ordered, independent)?.0)),
        StreamLimit::AtMost(most) => most.min(graph.node_count().max(1) as u32),
    };
    if most > MAX_STREAMS {
        return Ok(finished(full(&ordered, independent)?.0));
    }
    let mut candidates = Vec::new();
    if independent <= most && affordable(&ordered) {
        match full(&ordered, independent).map(|(full, _)| full) {
            Ok(full) if full.streams <= most && options.costs.is_none() => {
                return Ok(finished(full));
            }
            Ok(full) => candidates.extend((full.streams <= most).then_some(full)),
            Err(PlanError::TooManyStreams { .. }) => {} // more than `most` in any case
            Err(other) => return Err(other),
        }
    }
    let costs = options.costs.map_or_else(|| Cow::from(assumed(graph)), Cow::from);
    candidates.extend(capped(&ordered, most, &costs, options.overheads)?);
    let work = costs.iter().fold(0u64, |sum, &ns| sum.saturating_add(ns));
    let wait_ns = options.overheads.handover_ns.max(work / (10 * costs.len().max(1) as u64));
    let price = |candidate: &Candidate| {
        let waits = candidate.waits.len() as u128 * u128::from(wait_ns);
        let makespan = candidate.makespan(&costs, options.overheads);
        u128::from(makespan) + waits / u128::from(candidate.streams.max(1))
    };
    let cheapest = candidates.into_iter().min_by_key(price);
    Ok(finished(cheapest.expect("there is one candidate at least")))
}

/// [`schedule_in`] at full concurrency, whatever [`PlanOptions::streams`] says of this graph, and the synchronisations that were
/// counted on the way. O(nodes + edges) beyond what the schedule costs.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::memory::{self, MemoryOptions};
/// use phonograph_plan::streams::{PlanOptions, StreamLimit, schedule_counted};
///
/// let mut b = GraphBuilder::new();
/// let [fork, left, right, join] = ["fork", "left", "right", "join"].map(|n| b.add_barrier(n));
/// b.fan_out(fork, &[left, right]).fan_in(&[left, right], join);
/// let graph = b.build()?;
/// let planned = memory::plan(&graph, &MemoryOptions::default())?;
/// let options = PlanOptions { streams: StreamLimit::Full, ..PlanOptions::at_most(1) };
/// let (schedule, counts) = schedule_counted(&graph, &options, &planned)?;
/// assert_eq!((schedule.wait_count(), counts.optimal), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As for [`schedule_in`].
pub fn schedule_counted(
    graph: &ComputeGraph,
    options: &PlanOptions<'_>,
    planned: &MemoryReport,
) -> Result<(Schedule, Synchronisations), PlanError> {
    refuse(graph, options)?;
    let ordered = guaranteed(graph, &planned.reuse)?;
    let (candidate, reduced) = full(&ordered, side_by_side(&ordered))?;
    let inner = inside(graph, options, planned)?;
    Ok((candidate.finished(planned, inner), reduced.synchronisations(&ordered)))
}

fn refuse(graph: &ComputeGraph, options: &PlanOptions<'_>) -> Result<(), PlanError> {
    if options.streams == StreamLimit::AtMost(0) {
        return Err(PlanError::NoStreams);
    }
    if let Some(given) = options.costs.map(<[u64]>::len).filter(|&n| n != graph.node_count()) {
        return Err(PlanError::Costs { given, nodes: graph.node_count() });
    }
    Ok(())
}

/// The guaranteed order as a graph of full edges: streams make everything wait for completion.
fn guaranteed<'a>(
    graph: &'a ComputeGraph,
    reuse: &[(NodeId, NodeId)],
) -> Result<Cow<'a, ComputeGraph>, PlanError> {
    if reuse.is_empty() && !graph.has_weak_edges() {
        return Ok(Cow::Borrowed(graph));
    }
    let mut builder = GraphBuilder::new().with_auto_infer_edges(false);
    for _ in graph.nodes() {
        builder.add_barrier("");
    }
    for (from, to) in graph.edges().map(|edge| (edge.from, edge.to)).chain(reuse.iter().copied()) {
        builder.dep(from, to);
    }
    Ok(Cow::Owned(builder.build()?))
}

type Inner = BTreeMap<NodeId, Vec<Schedule>>;

/// The schedules of the graphs inside nodes, in the memory that is planned for them.
fn inside(
    graph: &ComputeGraph,
    options: &PlanOptions<'_>,
    planned: &MemoryReport,
) -> Result<Inner, PlanError> {
    let mut pools = planned.memory.pool_bytes();
    let mut inner = BTreeMap::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        let graphs = node.kind.inner_graphs();
        if !graphs.is_empty() {
            let node = NodeId::from_index(index);
            let reports = planned.inner.get(&node).map_or(&[][..], Vec::as_slice);
            if reports.len() != graphs.len() {
                return Err(PlanError::Unplanned { node });
            }
            // Graphs nest at most `MAX_NESTING` deep, which building them bounded.
            let options = PlanOptions { costs: None, ..*options };
            let both = graphs.iter().zip(reports);
            let schedules = both.map(|(graph, report)| schedule_in(graph, &options, report));
            let schedules: Vec<Schedule> = schedules.collect::<Result<_, _>>()?;
            for schedule in &schedules {
                pools = pools.saturating_add(schedule.pool_bytes());
                if pools > MAX_POOL_BYTES {
                    let what = "memory for internal buffers";
                    return Err(PlanError::TooLarge { what, bytes: pools });
                }
            }
            inner.insert(node, schedules);
        }
    }
    Ok(inner)
}

/// Nodes in issue order, on streams, with their waits in issue order.
struct Candidate {
    order: Vec<NodeId>,
    stream: Vec<StreamId>,
    streams: u32,
    waits: Vec<waits::Wait>,
}

impl Candidate {
    fn finished(self, planned: &MemoryReport, inner: Inner) -> Schedule {
        Schedule {
            streams: self.streams,
            steps: waits::steps(&self.order, &self.stream, &self.waits),
            reuse: planned.reuse.clone(),
            memory: planned.memory.clone(),
            inner,
        }
    }

    /// What [`simulate`](crate::simulate::simulate) says of it, without steps and without reasons.
    fn makespan(&self, costs: &[u64], overheads: Overheads) -> u64 {
        let mut end = vec![0u64; self.order.len()];
        let mut free = vec![0u64; self.streams as usize];
        let mut waits = self.waits.iter().peekable();
        for &node in &self.order {
            let free = &mut free[self.stream[node.index()].index()];
            while let Some((_, from)) = waits.next_if(|(to, _)| *to == node) {
                *free = (*free).max(end[from.index()].saturating_add(overheads.handover_ns));
            }
            let cost = costs[node.index()].saturating_add(overheads.node_ns);
            *free = free.saturating_add(cost);
            end[node.index()] = *free;
        }
        free.into_iter().max().unwrap_or(0)
    }
}

/// Nodes that are certainly independent of each other, as many as is easily known: those of a level, or those that nothing
/// depends on.
fn side_by_side(graph: &ComputeGraph) -> u32 {
    let last = graph.node_ids().filter(|&node| graph.successors(node).is_empty()).count();
    levels(graph).max_width().max(last as u32)
}

/// At full concurrency, for which so many streams are needed at least.
fn full(graph: &ComputeGraph, least: u32) -> Result<(Candidate, Reduced), PlanError> {
    let too_many = |needed| PlanError::TooManyStreams { needed, limit: MAX_STREAMS };
    if least > MAX_STREAMS {
        return Err(too_many(least));
    }
    let reduced = Reduced::of(graph);
    let Cover { stream, streams, mut waits } = reduced.cover(graph);
    if streams > MAX_STREAMS {
        return Err(too_many(streams));
    }
    let order = graph.topological_order().to_vec();
    if order.windows(2).any(|pair| pair[0] > pair[1]) {
        let mut issued = vec![0u32; order.len()];
        for (at, node) in (0..).zip(&order) {
            issued[node.index()] = at;
        }
        waits.sort_by_key(|(to, _)| issued[to.index()]);
    }
    Ok((Candidate { order, stream, streams, waits }, reduced))
}

/// Whether reducing the graph is in proportion to the rest of planning. Under a cap it only improves the result.
fn affordable(graph: &ComputeGraph) -> bool {
    /// Words that the reduction may go through for each node: about a second a million nodes.
    const WORDS_A_NODE: u64 = 1 << 12;
    let order = graph.topological_order();
    let mut position = vec![0u32; order.len()];
    for (place, node) in (0u32..).zip(order) {
        position[node.index()] = place;
    }
    // Sources go in blocks of a thousand, each as far as the longest edge from it.
    const BLOCK: usize = 1024;
    let mut furthest = vec![0u32; order.len().div_ceil(BLOCK)];
    for edge in graph.edges() {
        let reach = &mut furthest[position[edge.from.index()] as usize / BLOCK];
        *reach = (*reach).max(position[edge.to.index()]);
    }
    let swept = furthest.iter().zip(0..).map(|(&end, block): (&u32, u64)| {
        u64::from(end).saturating_sub(block * BLOCK as u64) * (BLOCK as u64 / 64)
    });
    swept.sum::<u64>() <= WORDS_A_NODE * order.len() as u64
}

/// Ways to run a graph on at most `most` streams.
fn capped(
    graph: &ComputeGraph,
    most: u32,
    costs: &[u64],
    overheads: Overheads,
) -> Result<Vec<Candidate>, PlanError> {
    let predecessors = graph.predecessor_lists();
    let targets: Vec<u32> = predecessors.targets().iter().map(|node| node.0).collect();
    let cost: Vec<u64> = costs.iter().map(|ns| ns.saturating_add(overheads.node_ns)).collect();
    let lanes = lane_candidates(LaneInput {
        offsets: predecessors.offsets(),
        targets: &targets,
        cost: &cost,
        lanes: most,
        handover: overheads.handover_ns,
    })?;
    Ok(lanes.into_iter().map(|lanes| on_streams(graph, most, &lanes)).collect())
}

fn on_streams(graph: &ComputeGraph, most: u32, lanes: &Lanes) -> Candidate {
    // Lanes that nothing runs on leave no gap among the streams.
    let mut number: Vec<Option<StreamId>> = vec![None; most as usize];
    let mut streams = 0;
    let order: Vec<NodeId> = lanes.order.iter().map(|&task| NodeId(task)).collect();
    for &node in &order {
        number[lanes.lane[node.index()].0 as usize].get_or_insert_with(|| {
            streams += 1;
            StreamId(streams - 1)
        });
    }
    let stream: Vec<StreamId> =
        lanes.lane.iter().filter_map(|lane| number[lane.0 as usize]).collect();
    let waits = waits::waits(graph, &order, &stream, streams);
    Candidate { order, stream, streams, waits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Kind, generate};
    use crate::simulate::simulate;

    #[test]
    fn candidates_are_judged_as_they_are_simulated() {
        let overheads = Overheads { replay_ns: 0, node_ns: 10, handover_ns: 700 };
        for kind in Kind::ALL {
            let graph = generate(kind, 300, 1).unwrap();
            let costs: Vec<u64> = (0..300).map(|node| 100 + node * 37 % 900).collect();
            for candidate in capped(&graph, 3, &costs, overheads).unwrap() {
                let schedule = Schedule {
                    streams: candidate.streams,
                    steps: waits::steps(&candidate.order, &candidate.stream, &candidate.waits),
                    ..Schedule::default()
                };
                let run = simulate(&graph, &schedule, &costs, overheads);
                assert_eq!(candidate.makespan(&costs, overheads), run.makespan_ns, "{kind}");
            }
        }
    }
}
