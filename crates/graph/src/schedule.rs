//! A schedule: plan data that says in which order, on which stream and where in memory a graph runs.
//!
//! Planners make schedules, the checker proves them, backends run them as they are.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::{BufferId, BufferRole, ComputeGraph, EventId, NodeId, Space, StreamId};

/// The most streams of a schedule. The checker keeps a clock of every stream for every other; no real device has as many,
/// and a hostile schedule must not exhaust memory.
pub const MAX_STREAMS: u32 = 4096;

/// One step, issued to one stream. Steps of one stream run in issue order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Runs a node, or several fused into one launch.
    Run {
        /// The nodes; more than one only where all are fused into one launch, in this order.
        nodes: SmallVec<[NodeId; 2]>,
        /// The stream.
        stream: StreamId,
    },
    /// Records an event: it stands for everything issued to the stream so far.
    Record {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
    },
    /// Later steps of the stream start after what the event stands for (its latest record before this step).
    Wait {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
    },
}

impl Step {
    /// A step that runs one node.
    pub fn run(node: NodeId, stream: StreamId) -> Self {
        Step::Run { nodes: SmallVec::from_slice(&[node]), stream }
    }

    /// The stream that the step is issued to.
    pub const fn stream(&self) -> StreamId {
        match self {
            Step::Run { stream, .. } | Step::Record { stream, .. } | Step::Wait { stream, .. } => {
                *stream
            }
        }
    }
}

/// Where the internal buffers of a graph lie. One pool for each memory space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    /// Byte offset of each buffer in the pool of its space, by buffer id; `None` for buffers that the user binds.
    pub offsets: Vec<Option<u64>>,
    /// Size of each pool in bytes.
    pub pools: BTreeMap<Space, u64>,
}

impl MemoryPlan {
    /// Offset of a buffer in its pool.
    pub fn offset(&self, buffer: BufferId) -> Option<u64> {
        self.offsets.get(buffer.index()).copied().flatten()
    }

    /// Bytes of all pools.
    pub fn pool_bytes(&self) -> u64 {
        self.pools.values().sum()
    }
}

/// How a graph runs.
///
/// The *guaranteed order* is the graph's edges and `reuse`, nothing else: memory may be shared only along it.
/// Streams and events may order more; nothing relies on that.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// Number of streams; steps name streams below it.
    pub streams: u32,
    /// The steps in issue order.
    pub steps: Vec<Step>,
    /// Order added so that buffers can share memory: the first is complete before the second starts.
    pub reuse: Vec<(NodeId, NodeId)>,
    /// Placement of the internal buffers.
    pub memory: MemoryPlan,
    /// The schedules of the graphs inside a node (child graph, conditional bodies), in their order.
    pub inner: BTreeMap<NodeId, Vec<Schedule>>,
}

impl Schedule {
    /// The schedule that plans nothing: one stream, topological order, a place of its own for every internal buffer.
    /// What every other schedule is compared with. O(nodes + buffers).
    pub fn sequential(graph: &ComputeGraph) -> Self {
        let mut memory = MemoryPlan::default();
        for declared in graph.buffers() {
            let internal = declared.role == BufferRole::Internal;
            memory.offsets.push(internal.then(|| {
                let pool = memory.pools.entry(declared.space).or_default();
                let offset = pool.next_multiple_of(declared.align);
                *pool = offset + declared.bytes;
                offset
            }));
        }
        let order = graph.topological_order();
        let inner = order.iter().filter(|&&node| graph.node(node).kind.has_inner_graphs());
        let inner = inner.map(|&node| {
            let graphs = graph.node(node).kind.inner_graphs();
            (node, graphs.iter().map(Schedule::sequential).collect())
        });
        Self {
            streams: 1,
            steps: order.iter().map(|&node| Step::run(node, StreamId(0))).collect(),
            reuse: Vec::new(),
            memory,
            inner: inner.collect(),
        }
    }

    /// Bytes of all pools, those of inner graphs included.
    pub fn pool_bytes(&self) -> u64 {
        let inner = self.inner.values().flatten().map(Schedule::pool_bytes);
        self.memory.pool_bytes() + inner.sum::<u64>()
    }

    /// Number of waits, those of inner graphs not included.
    pub fn wait_count(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Wait { .. })).count()
    }
}
