//! What a device must be able to do so that many callers can share it and one of them can capture.
//!
//! All calls come from under one lock, in the order in which the work is to happen. A backend need not defend itself
//! against misuse, but it may answer as its driver does: whatever it refuses is handled.

use std::collections::BTreeMap;
use std::fmt;

use phonograph_graph::{NodeKind, Scalar};
use thiserror::Error;

use super::handle::{BufferKey, Slot, SlotKey};
use crate::pool::Place;

/// A stream of the backend, which serves every logical stream that folds onto it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PooledStreamId(pub u32);

impl PooledStreamId {
    /// The id as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a backend was asked to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// Memory for a page.
    Allocate,
    /// Bytes from the host.
    Write,
    /// Bytes to the host.
    Read,
    /// An operation made ready to run.
    Prepare,
    /// An operation, now.
    Run,
    /// One stream put behind another.
    Order,
    /// Waiting until a stream is done.
    Fence,
    /// The start of a recording.
    Begin,
    /// An operation into a recording.
    Record,
    /// The end of a recording.
    End,
    /// A recording made executable.
    Instantiate,
    /// An executable brought to the device.
    Upload,
    /// A replay.
    Launch,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Allocate => "allocate",
            Step::Write => "write",
            Step::Read => "read",
            Step::Prepare => "prepare",
            Step::Run => "run",
            Step::Order => "order",
            Step::Fence => "fence",
            Step::Begin => "begin",
            Step::Record => "record",
            Step::End => "end",
            Step::Instantiate => "instantiate",
            Step::Upload => "upload",
            Step::Launch => "launch",
        })
    }
}

/// A step that a backend could not do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{step} failed: {message}")]
pub struct BackendError {
    /// The step.
    pub step: Step,
    /// What the backend says.
    pub message: String,
}

impl BackendError {
    /// A step and what to say of it.
    pub fn new(step: Step, message: impl fmt::Display) -> Self {
        Self { step, message: message.to_string() }
    }
}

/// Who keeps the graph while it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GraphKind {
    /// The runtime: a stream that records can go on working, but waiting for it or reading from it is refused to the owner,
    /// because the graph could not do either.
    Software,
    /// The driver: a fence on a stream that records breaks the recording, so it is put off until the end.
    Hardware,
}

/// A buffer of an operation, and where it lies.
#[derive(Clone, Debug)]
pub struct Operand<P> {
    /// Which it is.
    pub key: BufferKey,
    /// For people.
    pub name: std::sync::Arc<str>,
    /// Its page.
    pub page: P,
    /// Its first byte there.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
    /// Where its page lies.
    pub place: Place,
}

/// An operation with its memory: buffer `n` of `kind` is `operands[n]`. No two of them overlap.
pub struct Placed<'a, P> {
    /// For people.
    pub name: &'a str,
    /// What to do.
    pub kind: &'a NodeKind,
    /// The buffers it touches.
    pub operands: &'a [Operand<P>],
    /// Its slots: slot `n` of `kind` is `slots[n]`.
    pub slots: &'a [Slot],
}

/// Names what was issued, so that a fence can say what of it has failed. Later work has a greater one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// How far work is that was issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Issued {
    /// It is done, and nothing of it failed.
    Done,
    /// It is under way; a fence will tell.
    Pending,
}

/// Work that was issued and has failed since.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Which.
    pub ticket: Ticket,
    /// How.
    pub error: BackendError,
}

/// How a thread waits for a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Waiting {
    /// It has nothing else to do, and is to go on as soon as possible: it may spin.
    Attentive,
    /// It sleeps until it is woken.
    Asleep,
}

/// Waits, once, until work is done; for a thread that does not hold the device, which others go on using.
pub type Wait = Box<dyn FnOnce() -> Result<(), BackendError> + Send>;

/// A device. See the module's source for the contract.
pub trait Backend: Send + 'static {
    /// Memory of a page; clones name the same memory.
    type Page: Clone + Send;
    /// An operation that has been checked and made ready to run.
    type Prepared: Send;
    /// What a recording leaves.
    type Recording: Send;
    /// A graph that can be launched. Keeps alive what it needs, apart from pages.
    type Exec: Send;

    /// Who keeps the graph.
    fn graph_kind(&self) -> GraphKind;
    /// Zeroed memory.
    fn allocate(&mut self, bytes: u64, place: Place) -> Result<Self::Page, BackendError>;
    /// Gives memory back. Never called for pages that a recording, an executable or a prepared operation may use.
    fn free(&mut self, page: Self::Page);
    /// Copies to a page. The bytes are the caller's again when it returns.
    fn write(
        &mut self,
        on: PooledStreamId,
        page: &Self::Page,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Issued, BackendError>;
    /// Copies from a page. Comes after a fence.
    fn read(
        &mut self,
        on: PooledStreamId,
        page: &Self::Page,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError>;
    /// Makes an operation ready to run, its slots at their defaults.
    fn prepare(&mut self, op: &Placed<'_, Self::Page>) -> Result<Self::Prepared, BackendError>;
    /// Issues an operation. It may be under way already, on this stream or one that this is behind.
    fn run(
        &mut self,
        on: PooledStreamId,
        op: &mut Self::Prepared,
        ticket: Ticket,
    ) -> Result<Issued, BackendError>;
    /// Lets go of an operation that nobody will run any more. Not while a stream records.
    fn release(&mut self, op: Self::Prepared);
    /// What is issued to `on` from now on comes after everything issued to `after` so far. If `after` records, `on` joins
    /// its recording, or is in it already.
    fn order(&mut self, on: PooledStreamId, after: PooledStreamId) -> Result<(), BackendError>;
    /// Waits until everything issued to a stream is done; what has failed of it since the last fence, each with the step
    /// that it was issued by.
    fn fence(&mut self, on: PooledStreamId) -> Result<Vec<Failed>, BackendError>;
    /// What waits until everything issued to a stream so far is done, after which [`settle`](Self::settle) tells of it.
    /// `None` where work is done when it has been issued, or only a fence can wait for it. Not while the stream records.
    fn mark(
        &mut self,
        _on: PooledStreamId,
        _waiting: Waiting,
    ) -> Result<Option<Wait>, BackendError> {
        Ok(None)
    }
    /// As [`fence`](Self::fence), for work of a stream up to this ticket, all of which is done: waits for more only where
    /// nothing could be told otherwise.
    fn settle(&mut self, on: PooledStreamId, _up_to: Ticket) -> Result<Vec<Failed>, BackendError> {
        self.fence(on)
    }
    /// Starts a recording with a stream.
    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError>;
    /// Adds an operation to the recording that a stream is in.
    fn record(
        &mut self,
        on: PooledStreamId,
        op: &Placed<'_, Self::Page>,
    ) -> Result<(), BackendError>;
    /// Ends the recording that began with this stream, which is behind all others in it. After an error it is
    /// [discarded](Self::discard).
    fn end(&mut self, on: PooledStreamId) -> Result<Self::Recording, BackendError>;
    /// Ends the recording that began with this stream, in whatever state it is, and throws it away. Nothing if there is none.
    fn discard(&mut self, on: PooledStreamId);
    /// Checks and plans a recording and makes it executable.
    fn instantiate(&mut self, recording: Self::Recording) -> Result<Self::Exec, BackendError>;
    /// Brings an executable to the device, so that its first launch is as fast as the others.
    fn upload(&mut self, on: PooledStreamId, exec: &mut Self::Exec) -> Result<(), BackendError>;
    /// Issues a replay with these values of its slots.
    fn launch(
        &mut self,
        on: PooledStreamId,
        exec: &mut Self::Exec,
        values: &BTreeMap<SlotKey, Scalar>,
        ticket: Ticket,
    ) -> Result<Issued, BackendError>;
    /// Destroys an executable that nothing will launch any more. Not while a stream records.
    fn destroy(&mut self, exec: Self::Exec);
}
