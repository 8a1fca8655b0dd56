//! What a device must be able to do so that many callers can share it and one of them can capture.
//!
//! All calls come from under one lock, in the order in which the work is to happen. A backend need not defend itself
//! against misuse, but it may answer as its driver does: whatever it refuses is handled.

use std::fmt;

use phonograph_graph::NodeKind;
use thiserror::Error;

use crate::pool::PageId;

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
    /// An operation, now.
    Run,
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
            Step::Run => "run",
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

/// An operation with its memory: buffer `n` of `kind` is the page at `pages[n]`.
pub struct Placed<'a, P> {
    /// For people.
    pub name: &'a str,
    /// What to do.
    pub kind: &'a NodeKind,
    /// The pages it touches.
    pub pages: &'a [(PageId, P)],
}

/// A device. See the module's source for the contract.
pub trait Backend: Send + 'static {
    /// Memory of a page; clones name the same memory.
    type Page: Clone + Send;
    /// What a recording leaves.
    type Recording: Send;
    /// A graph that can be launched. Keeps alive what it needs, apart from pages.
    type Exec: Send;

    /// Who keeps the graph.
    fn graph_kind(&self) -> GraphKind;
    /// Zeroed memory.
    fn allocate(&mut self, bytes: u64) -> Result<Self::Page, BackendError>;
    /// Gives memory back. Never called for pages that a recording or an executable may use.
    fn free(&mut self, page: Self::Page);
    /// Copies to a page.
    fn write(
        &mut self,
        on: PooledStreamId,
        page: &Self::Page,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError>;
    /// Copies from a page. Comes after a fence.
    fn read(
        &mut self,
        on: PooledStreamId,
        page: &Self::Page,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError>;
    /// Issues an operation.
    fn run(&mut self, on: PooledStreamId, op: &Placed<'_, Self::Page>) -> Result<(), BackendError>;
    /// Waits until everything issued to a stream is done.
    fn fence(&mut self, on: PooledStreamId) -> Result<(), BackendError>;
    /// Starts recording a stream.
    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError>;
    /// Adds an operation to a recording.
    fn record(
        &mut self,
        on: PooledStreamId,
        op: &Placed<'_, Self::Page>,
    ) -> Result<(), BackendError>;
    /// Ends a recording. After an error it is [discarded](Self::discard).
    fn end(&mut self, on: PooledStreamId) -> Result<Self::Recording, BackendError>;
    /// Ends a recording and throws it away. Nothing if the stream does not record.
    fn discard(&mut self, on: PooledStreamId);
    /// Checks and plans a recording and makes it executable.
    fn instantiate(&mut self, recording: Self::Recording) -> Result<Self::Exec, BackendError>;
    /// Brings an executable to the device, so that its first launch is as fast as the others.
    fn upload(&mut self, on: PooledStreamId, exec: &mut Self::Exec) -> Result<(), BackendError>;
    /// Issues a replay.
    fn launch(&mut self, on: PooledStreamId, exec: &mut Self::Exec) -> Result<(), BackendError>;
    /// Destroys an executable that nothing will launch any more.
    fn destroy(&mut self, exec: Self::Exec);
}
