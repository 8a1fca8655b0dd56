//! What the model remembers: streams, events, captures, graphs and memory, with the calls that made them so.

use std::sync::Arc;

use phonograph_trace::{
    ConditionalKind, CuResult, EventId, GraphId, Mode, Stream, StreamId, StreamKind, ThreadId,
};

use super::class::NodeKind;
use super::finished::{CapturedEdge, FinishedGraph};
use super::rule::Rule;
use super::slab::Slot;
use crate::deps::DependencySet;
use rustc_hash::{FxHashMap, FxHashSet};

/// The position of a call in the program, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
pub struct CallIndex(pub u32);

impl CallIndex {
    /// The position in dense storage.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for CallIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "call {}", self.0)
    }
}

/// The position of a node in its graph, in the order of capture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CapturedId(pub u32);

impl CapturedId {
    /// The position in dense storage.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A stream that can capture: a created one, or the default stream of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum StreamKey {
    Created(StreamId),
    /// By position among the threads that have used theirs.
    PerThread(u32),
}

impl StreamKey {
    /// The operand that names the stream on its own thread.
    pub(super) fn operand(self) -> Stream {
        match self {
            Self::Created(id) => Stream::Created(id),
            Self::PerThread(_) => Stream::PerThread,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct StreamState {
    pub(super) kind: StreamKind,
    pub(super) destroyed: bool,
    pub(super) membership: Option<Membership>,
    /// The call that closed the last capture that it was in.
    pub(super) closed: Option<CallIndex>,
}

/// A stream's part in a capture.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) capture: Slot,
    /// Where the stream stands in the capture's list of streams.
    pub(super) position: u32,
    pub(super) set: DependencySet<CapturedId>,
    /// The wait that forked the stream; none for the origin.
    pub(super) fork: Option<Fork>,
}

/// How a stream came into a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fork {
    /// The wait.
    pub(super) wait: CallIndex,
    /// The event it waited for.
    pub(super) event: EventId,
    /// The record of that event.
    pub(super) record: CallIndex,
    /// The stream it was recorded on.
    pub(super) from: StreamKey,
}

#[derive(Clone, Debug)]
pub(super) struct EventState {
    pub(super) destroyed: bool,
    pub(super) record: Record,
}

#[derive(Clone, Debug)]
pub(super) enum Record {
    Fresh,
    Plain { call: CallIndex },
    Captured { capture: Slot, set: DependencySet<CapturedId>, call: CallIndex, on: StreamKey },
}

#[derive(Clone, Debug)]
pub(super) struct Capture {
    pub(super) begun: CallIndex,
    /// The call that first captured into the graph: what the driver's capture id stands for (R4).
    pub(super) id: CallIndex,
    pub(super) origin: StreamKey,
    pub(super) mode: Mode,
    pub(super) thread: ThreadId,
    pub(super) graph: Slot,
    pub(super) broken: Option<Broken>,
    pub(super) closed: Option<CallIndex>,
    pub(super) streams: Vec<StreamKey>,
    /// How many of them are blocking.
    pub(super) blocking: u32,
    /// How streams that were destroyed had come in: work of theirs may still have to be joined.
    pub(super) left: FxHashMap<StreamKey, Fork>,
    /// How many loose nodes there are (R8).
    pub(super) loose: u32,
    /// The graph's nodes before this one are of earlier captures.
    pub(super) first_node: u32,
    /// Where the capture stands in the list of open ones.
    pub(super) position: u32,
}

impl Capture {
    /// Open and valid: what an event needs to be waited for.
    pub(super) fn live(&self) -> bool {
        self.closed.is_none() && self.broken.is_none()
    }
}

/// The call that made a capture invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The call.
    pub call: CallIndex,
    /// What it answered.
    pub result: CuResult,
    /// The rule it broke.
    pub rule: Rule,
}

#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) id: CallIndex,
    /// What the program calls it, if it has a name for it and may capture into it again.
    pub(super) name: Option<GraphId>,
    pub(super) nodes: Vec<CapturedNode>,
    /// Why it does not exist any more.
    pub(super) destroyed: Option<CallIndex>,
    pub(super) capture: Option<Slot>,
    /// Edges added by hand, in order, and as a set.
    pub(super) edges: Vec<CapturedEdge>,
    pub(super) known_edges: FxHashSet<(CapturedId, CapturedId)>,
    /// What child nodes and conditionals hold.
    pub(super) inner: Vec<(CapturedId, Inside)>,
    /// The conditional that it is a body of.
    pub(super) within: Option<(Slot, CapturedId)>,
    /// How many graphs are around it.
    pub(super) depth: u32,
    /// Executables that were made of it and not destroyed.
    pub(super) executables: u32,
    /// Whether a launch of the last of them frees what the launch before has left.
    pub(super) auto_free: bool,
    /// Whether the program added to it by hand.
    pub(super) built: bool,
    /// The call that made the first edge that is not full.
    pub(super) weak_edge: Option<CallIndex>,
    /// Allocations that the graph makes and does not free.
    pub(super) leaves: u32,
    /// Allocations of other graphs that it frees, by the call that made each.
    pub(super) frees: FxHashSet<CallIndex>,
    /// How often it was launched, and how many allocations of the last launch are not freed yet.
    pub(super) launches: u32,
    pub(super) outstanding: u32,
}

/// The graphs inside a node.
#[derive(Clone, Debug)]
pub(super) enum Inside {
    Child(Arc<FinishedGraph>),
    Bodies(ConditionalKind, Vec<Slot>),
}

impl Graph {
    pub(super) fn new(id: CallIndex, name: Option<GraphId>) -> Self {
        Self {
            id,
            name,
            nodes: Vec::new(),
            destroyed: None,
            capture: None,
            edges: Vec::new(),
            known_edges: FxHashSet::default(),
            inner: Vec::new(),
            within: None,
            depth: 0,
            executables: 0,
            auto_free: false,
            built: false,
            weak_edge: None,
            leaves: 0,
            frees: FxHashSet::default(),
            launches: 0,
            outstanding: 0,
        }
    }
}

/// A node of a captured graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedNode {
    /// The call that became the node.
    pub call: CallIndex,
    /// None if the program added it by hand.
    pub(super) on: Option<StreamKey>,
    /// What it is.
    pub kind: NodeKind,
    /// Its edges from kernels are programmatic: port 1, type 1.
    pub programmatic: bool,
    /// It copies from or to pageable memory.
    pub(super) pageable: bool,
    /// What it depends on.
    pub dependencies: DependencySet<CapturedId>,
    pub(super) loose: bool,
}

impl CapturedNode {
    /// The stream it was made on; none if the program added it by hand.
    pub fn stream(&self) -> Option<Stream> {
        self.on.map(StreamKey::operand)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Memory {
    Pool,
    Graph {
        graph: Slot,
        capture: CallIndex,
        allocated: CallIndex,
        /// In the same graph.
        freed: Option<CallIndex>,
        /// In another graph first.
        elsewhere: Option<CallIndex>,
        /// The launch of the graph after which the program last freed it.
        freed_after_launch: u32,
    },
    Freed {
        freed: CallIndex,
    },
}
