//! The checker: proves a schedule of a graph, or says everything that is wrong with it.
//!
//! It shares no code with the planners and trusts nothing that they say: it recomputes what each stream and event
//! guarantees, and what the graph's own order guarantees, and compares. Three parts, one file each: each node
//! runs once and fused groups are convex (`coverage`), every dependency is ordered by streams and events
//! (`streams`), and no two buffers that may live at once share bytes (`memory`).
//!
//! Cost: O(steps + edges + waits × streams) for the first two; for memory O(buffers log buffers) interval
//! look-ups and, per 64 nodes that hand memory over, one pass over the part of the graph between hand-over and
//! take-over.

mod coverage;
mod memory;
mod races;
mod reach;
mod rewrite;
mod streams;

pub use races::{Race, races};
pub use rewrite::{RewriteViolation, Seen, check_rewrite, lost_order};

use std::fmt;

use crate::{BufferId, ComputeGraph, EventId, NodeId, NodeKind, Schedule, Space, StreamId};

/// Place of a step in a schedule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(pub u32);

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}", self.0)
    }
}

/// Something wrong with a schedule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A step names a node that the graph does not have.
    #[error("{step} runs {node}, which the graph does not have")]
    UnknownNode {
        /// The step.
        step: StepId,
        /// The node.
        node: NodeId,
    },
    /// A step names a stream that the schedule does not have.
    #[error("{step} uses stream {stream}, but the schedule has {streams}")]
    UnknownStream {
        /// The step.
        step: StepId,
        /// The stream.
        stream: StreamId,
        /// How many there are.
        streams: u32,
    },
    /// A step that runs nothing.
    #[error("{step} runs no node")]
    EmptyStep {
        /// The step.
        step: StepId,
    },
    /// A node that no step runs.
    #[error("{node} is never run")]
    Missing {
        /// The node.
        node: NodeId,
    },
    /// A node that runs more than once.
    #[error("{node} runs twice, in {first} and {second}")]
    Repeated {
        /// The node.
        node: NodeId,
        /// Where first.
        first: StepId,
        /// Where again.
        second: StepId,
    },
    /// A fused group with a node that may not be fused.
    #[error("{step} fuses {node}, which is not marked fusible")]
    NotFusible {
        /// The step.
        step: StepId,
        /// The node.
        node: NodeId,
    },
    /// A fused group that a path leaves and enters again.
    #[error("{step} is not convex: a path leaves the group and comes back through {through}")]
    NotConvex {
        /// The step.
        step: StepId,
        /// A node outside on the path.
        through: NodeId,
    },
    /// A wait for an event that no earlier step records.
    #[error("{step} waits for {event}, which no earlier step records")]
    WaitBeforeRecord {
        /// The step.
        step: StepId,
        /// The event.
        event: EventId,
    },
    /// An edge of the graph that streams and events do not order.
    #[error("nothing makes {to} wait for {from}, although the graph has the edge")]
    UnorderedEdge {
        /// Producer.
        from: NodeId,
        /// Consumer.
        to: NodeId,
    },
    /// A reuse edge that streams and events do not order.
    #[error("nothing makes {to} wait for {from}, whose memory it takes over")]
    UnorderedReuse {
        /// The earlier user of the memory.
        from: NodeId,
        /// The later one.
        to: NodeId,
    },
    /// A reuse edge from or to a node that the graph does not have.
    #[error("reuse edge {from} → {to} names a node that the graph does not have")]
    UnknownReuse {
        /// Producer.
        from: NodeId,
        /// Consumer.
        to: NodeId,
    },
    /// Reuse edges that close a cycle with the graph's edges.
    #[error("the reuse edges close a cycle through {node}")]
    ReuseCycle {
        /// A node on it.
        node: NodeId,
    },
    /// An internal buffer in use without a place.
    #[error("{buffer} is used but has no place in memory")]
    NoPlace {
        /// The buffer.
        buffer: BufferId,
    },
    /// A place for a buffer that is not the planner's to place.
    #[error("{buffer} is bound by the user and must not be placed")]
    NotOurs {
        /// The buffer.
        buffer: BufferId,
    },
    /// A place for a buffer that the graph does not have.
    #[error("{buffer} has a place, but the graph does not have it")]
    UnknownBuffer {
        /// The buffer.
        buffer: BufferId,
    },
    /// A buffer that is not aligned as it asks.
    #[error("{buffer} lies at {offset}, which is not a multiple of {align}")]
    Misaligned {
        /// The buffer.
        buffer: BufferId,
        /// Where it lies.
        offset: u64,
        /// What it asks for.
        align: u64,
    },
    /// A buffer that reaches past its pool.
    #[error("{buffer} ends at {end}, past its pool in {space:?} of {bytes} bytes")]
    OutsidePool {
        /// The buffer.
        buffer: BufferId,
        /// One past its last byte.
        end: u64,
        /// The pool's memory.
        space: Space,
        /// The pool's size.
        bytes: u64,
    },
    /// Two buffers that share bytes and may live at once.
    #[error("{first} and {second} share bytes, but {late} may run before {early} is complete")]
    Shared {
        /// One buffer.
        first: BufferId,
        /// The other.
        second: BufferId,
        /// A user of the first.
        early: NodeId,
        /// A user of the second that is not ordered after it.
        late: NodeId,
    },
    /// A node with inner graphs without a schedule for each.
    #[error("{node} holds {graphs} inner graphs but has {schedules} schedules for them")]
    InnerCount {
        /// The node.
        node: NodeId,
        /// Inner graphs.
        graphs: usize,
        /// Schedules.
        schedules: usize,
    },
    /// Something wrong with the schedule of an inner graph.
    #[error("inside {node}, graph {index}: {violation}")]
    Inner {
        /// The node.
        node: NodeId,
        /// Which of its graphs.
        index: u32,
        /// What is wrong.
        violation: Box<Violation>,
    },
}

/// Everything that is wrong with `schedule` as a way to run `graph`; empty if it is right.
///
/// ```
/// use phonograph_graph::{GraphBuilder, Schedule, Step, StreamId, check};
///
/// let mut b = GraphBuilder::new();
/// let (x, y) = (b.add_barrier("x"), b.add_barrier("y"));
/// b.dep(x, y);
/// let graph = b.build()?;
///
/// let on = |stream| StreamId(stream);
/// let steps = vec![Step::run(x, on(0)), Step::run(y, on(1))];
/// let schedule = Schedule { streams: 2, steps, ..Schedule::default() };
/// assert_eq!(check(&graph, &schedule)[0].to_string(),
///     "nothing makes n1 wait for n0, although the graph has the edge");
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn check(graph: &ComputeGraph, schedule: &Schedule) -> Vec<Violation> {
    let mut found = Vec::new();
    coverage::check(graph, schedule, &mut found);
    streams::check(graph, schedule, &mut found);
    memory::check(graph, schedule, &mut found);
    check_inner(graph, schedule, &mut found);
    found
}

fn check_inner(graph: &ComputeGraph, schedule: &Schedule, found: &mut Vec<Violation>) {
    for (index, node) in graph.nodes().iter().enumerate() {
        let node_id = NodeId::from_index(index);
        let graphs = node.kind.inner_graphs();
        let schedules = schedule.inner.get(&node_id).map_or(&[][..], Vec::as_slice);
        if graphs.len() != schedules.len() {
            let (graphs, schedules) = (graphs.len(), schedules.len());
            found.push(Violation::InnerCount { node: node_id, graphs, schedules });
        }
        for (index, (graph, schedule)) in (0..).zip(graphs.iter().zip(schedules)) {
            // Inner graphs nest at most `MAX_NESTING` deep: the graph was built, and building bounds it.
            found.extend(check(graph, schedule).into_iter().map(|violation| Violation::Inner {
                node: node_id,
                index,
                violation: Box::new(violation),
            }));
        }
    }
    for (&node, schedules) in &schedule.inner {
        let known = graph.get(node).map(|n| &n.kind).is_some_and(NodeKind::has_inner_graphs);
        if !known && !schedules.is_empty() {
            let schedules = schedules.len();
            found.push(Violation::InnerCount { node, graphs: 0, schedules });
        }
    }
}
