//! What the model knows about a call that the driver refuses: the rule, the earlier calls that led to it, and what it broke.

use phonograph_trace::{CuResult, EventId, MemoryId, Mode, Stream, ThreadId};

use super::class::NodeKind;
use super::finished::PathStep;
use super::rule::Rule;
use super::state::{Broken, CallIndex};

/// A refused call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The call.
    pub call: CallIndex,
    /// What the driver answers.
    pub result: CuResult,
    /// The rule that the call breaks.
    pub rule: Rule,
    /// The earlier calls that led to it, in the order of the program.
    pub causes: Vec<Cause>,
    /// The captures that were valid until this call.
    pub invalidated: Vec<Victim>,
    /// The call that broke the capture before, if this refusal only follows from it.
    pub consequence_of: Option<Broken>,
    /// For unjoined work: the nodes that nothing joins.
    pub loose: Vec<LooseNode>,
    /// For a node that no conditional's body can hold: the way to it, from the outermost graph.
    pub path: Vec<PathStep>,
    /// For work on the legacy stream: a blocking stream that takes part in the first capture that it would break.
    pub blocking: Option<Stream>,
}

/// An earlier call and its part in a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    /// The call.
    pub call: CallIndex,
    /// Its part.
    pub role: Role,
}

/// The part of an earlier call in a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Role {
    /// It began a capture.
    Begun { origin: Stream, mode: Mode, thread: ThreadId },
    /// It forked `stream` into the capture by waiting for `event`.
    Forked { stream: Stream, event: EventId },
    /// It recorded `event` on `stream`, in a capture or not.
    Recorded { event: EventId, stream: Stream, captured: bool },
    /// It broke a capture.
    Broke { result: CuResult },
    /// It closed a capture.
    Closed,
    /// It destroyed the graph.
    GraphDestroyed,
    /// It allocated `memory`.
    Allocated { memory: MemoryId },
    /// It freed `memory` first.
    Freed { memory: MemoryId },
    /// It made an edge that is not full.
    WeakEdge,
    /// It made a node that holds the graph with the fault.
    Holds,
    /// It made a node where no such node can be.
    Forbidden,
}

/// A capture that a call broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The begin of the capture.
    pub begun: CallIndex,
    /// The stream that began it.
    pub origin: Stream,
    /// Its mode.
    pub mode: Mode,
    /// The thread that began it.
    pub thread: ThreadId,
}

/// A node that would have to be joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LooseNode {
    /// The call that made the node.
    pub call: CallIndex,
    /// Its kind.
    pub kind: NodeKind,
    /// The stream it was made on.
    pub stream: Stream,
}
