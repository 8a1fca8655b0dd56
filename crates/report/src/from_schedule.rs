//! From a schedule to its pictures: when each node would run, and where each buffer lies.
//!
//! In: a graph or its picture, a [`Schedule`], and when each node runs. Out: a [`Timeline`] and a [`Skyline`]. Times
//! are given, not guessed. Linear in steps and operands, but for sorting.

use std::collections::{BTreeMap, HashMap};

use phonograph_graph::{ComputeGraph, NodeId, Schedule, Space, Step, StreamId};

use crate::from_graph::graphs_in;
use crate::picture::{GroupIx, LaneIx, NodeClass, NodeIx, Picture};
use crate::skyline::{Block, Moment, Pool, Skyline};
use crate::timeline::{Lane, Span, SpanAt, SpanIx, Timeline, Unit};

/// When a node ran, or would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The node, of the main graph.
    pub node: NodeId,
    /// Its stream.
    pub stream: StreamId,
    /// In the timeline's unit, on any clock that all runs share.
    pub start: u64,
    /// In the timeline's unit; not before the start.
    pub end: u64,
    /// Whether the whole would be shorter if this were.
    pub critical: bool,
}

/// A timeline of one lane for each of `streams` streams. What a simulation says becomes a drawing here; runs of one stream
/// are given in order. Linear.
///
/// ```
/// use phonograph_graph::{GraphBuilder, StreamId};
/// use phonograph_report::timeline::Unit;
/// use phonograph_report::{Marks, Run, picture_of, timeline_of};
///
/// let mut b = GraphBuilder::new();
/// let node = b.add_barrier("x");
/// let picture = picture_of(&b.build()?, "one", None, &mut |_| Marks::default());
/// let run = Run { node, stream: StreamId(0), start: 0, end: 7, critical: true };
/// let timeline = timeline_of(&picture, "in turn", 1, Unit::Steps, [run]);
/// assert_eq!(timeline.lanes[0].spans[0].end, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If a run names a stream that is not below `streams`.
pub fn timeline_of(
    picture: &Picture,
    title: &str,
    streams: u32,
    unit: Unit,
    runs: impl IntoIterator<Item = Run>,
) -> Timeline {
    let lane = |stream| Lane { name: format!("stream {stream}"), spans: Vec::new() };
    let mut lanes: Vec<Lane> = (0..streams).map(lane).collect();
    let drawn = picture.groups.first().map_or(&[][..], |group| &group.nodes);
    for Run { node, stream, start, end, critical } in runs {
        let drawn = drawn.get(node.index());
        lanes[stream.index()].spans.push(Span {
            label: drawn.map_or_else(|| node.to_string(), |node| node.label.clone()),
            class: drawn.map_or(NodeClass::Summary, |node| node.class),
            start,
            end,
            node: drawn.map(|_| (GroupIx(0), NodeIx(node.0))),
            critical,
        });
    }
    Timeline { title: title.to_owned(), lanes, unit }
}

/// The dependencies of a picture's main graph between the spans of its timeline, redundant ones left out: arrows for
/// a trace.
pub fn dependencies(picture: &Picture, timeline: &Timeline) -> Vec<(SpanAt, SpanAt)> {
    let mut ran: HashMap<NodeIx, SpanAt> = HashMap::new();
    for (l, lane) in timeline.lanes.iter().enumerate() {
        for (s, span) in lane.spans.iter().enumerate() {
            if let Some((GroupIx(0), node)) = span.node {
                let at = SpanAt { lane: LaneIx(l as u32), span: SpanIx(s as u32) };
                ran.entry(node).or_insert(at);
            }
        }
    }
    let edges = picture.groups.first().into_iter().flat_map(|group| &group.edges);
    edges
        .filter(|edge| !edge.redundant)
        .filter_map(|edge| Some((*ran.get(&edge.from)?, *ran.get(&edge.to)?)))
        .collect()
}

/// Where the internal buffers of a graph and the graphs inside it lie, and from which node to which each is used, in
/// the order of issue. The bound is the most bytes in use at one moment of that order.
pub fn skyline_of(graph: &ComputeGraph, schedule: &Schedule, title: &str) -> Skyline {
    let mut pools = Vec::new();
    let mut groups = 0;
    add_pools(graph, schedule, "", &mut groups, &mut pools);
    Skyline { title: title.to_owned(), pools }
}

/// Groups are numbered as [`picture_of`](crate::picture_of()) numbers them. Recursive over nesting, which building a
/// graph bounds.
fn add_pools(
    graph: &ComputeGraph,
    schedule: &Schedule,
    inside: &str,
    groups: &mut u32,
    pools: &mut Vec<Pool>,
) {
    let group = GroupIx(*groups);
    *groups += 1;
    let mut order = Vec::with_capacity(graph.node_count());
    let mut uses: HashMap<u32, (Moment, Moment)> = HashMap::new();
    for step in &schedule.steps {
        let Step::Run { nodes, .. } = step else { continue };
        for &node in nodes {
            let now = Moment(order.len() as u32);
            order.push(NodeIx(node.0));
            for (region, _) in graph.operands(node) {
                let (_, last) = uses.entry(region.buffer.0).or_insert((now, now));
                *last = now;
            }
        }
    }
    let mut here: BTreeMap<Space, Pool> = BTreeMap::new();
    for (id, buffer) in (0u32..).zip(graph.buffers()) {
        let Some(offset) = schedule.memory.offsets.get(id as usize).copied().flatten() else {
            continue;
        };
        let pool = here.entry(buffer.space).or_insert_with(|| Pool {
            name: format!("{}{inside}", space(buffer.space)),
            bytes: schedule.memory.pools.get(&buffer.space).copied().unwrap_or(0),
            group,
            order: order.clone(),
            ..Pool::default()
        });
        // Places begin at multiples of the alignment, shared or not.
        let place = buffer.bytes.checked_next_multiple_of(buffer.align).unwrap_or(u64::MAX);
        pool.unshared = pool.unshared.saturating_add(place);
        // A buffer that nothing names has a place but no life.
        if let Some(&(first, last)) = uses.get(&id) {
            let label = buffer.name.to_string();
            pool.blocks.push(Block { label, offset, bytes: buffer.bytes, first, last });
        }
    }
    for mut pool in here.into_values() {
        let most = pool.live().into_iter().max().unwrap_or(0);
        pool.bound = Some((most, "in use at once".to_owned()));
        pools.push(pool);
    }
    for id in graph.node_ids() {
        let node = graph.node(id);
        for (index, inner) in node.kind.inner_graphs().iter().enumerate() {
            match schedule.inner.get(&id).and_then(|all| all.get(index)) {
                Some(planned) => {
                    let inside = format!("{inside} in {}", node.name);
                    add_pools(inner, planned, &inside, groups, pools);
                }
                // Numbers have to agree all the same.
                None => *groups += graphs_in(inner),
            }
        }
    }
}

fn space(space: Space) -> String {
    match space {
        Space::Device(device) => format!("memory of device {device}"),
        Space::Host { pageable: false } => "page-locked host memory".to_owned(),
        Space::Host { pageable: true } => "pageable host memory".to_owned(),
        Space::Unknown => "memory".to_owned(),
    }
}
