//! Everything that a capture can be refused or broken for.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::LogicalStreamId;
use crate::pool::MAX_ALLOCATION;
use crate::streams::{BackendError, MAX_STREAMS};

/// A call of the lifecycle, to name it in errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LifecycleCall {
    /// Start of the warm-up.
    Prepare,
    /// Start of the recording.
    Begin,
    /// End of the recording.
    End,
    /// The way out of either.
    Abort,
}

impl fmt::Display for LifecycleCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LifecycleCall::Prepare => "prepare",
            LifecycleCall::Begin => "begin",
            LifecycleCall::End => "end",
            LifecycleCall::Abort => "abort",
        })
    }
}

/// Why a capture was refused, broken or discarded. Streams are printed in their `Debug` form, so that they can be found
/// in a log.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The stream has a capture under way; two never overlap on one.
    #[error(
        "prepare for {caller:?}: a capture of {owner:?} is {phase} on this stream; end or abort it first"
    )]
    Busy {
        /// Whose capture it is.
        owner: LogicalStreamId,
        /// Who wanted another.
        caller: LogicalStreamId,
        /// What it is doing.
        phase: Window,
    },
    /// The recording has begun already.
    #[error("begin: the capture of {owner:?} is recording already on this stream")]
    AlreadyRecording {
        /// Whose capture it is.
        owner: LogicalStreamId,
    },
    /// Begin without a warm-up before it.
    #[error("begin: no capture was prepared on this stream; prepare one and run the work once")]
    NotPrepared,
    /// End without a recording.
    #[error("end by {caller:?}: no capture is recording on this stream")]
    NotRecording {
        /// Who called.
        caller: LogicalStreamId,
    },
    /// A checked call by somebody who does not own the capture. Nothing has changed.
    #[error("{call} by {caller:?}: the capture on this stream belongs to {owner:?}")]
    NotOwner {
        /// The call.
        call: LifecycleCall,
        /// Whose capture it is.
        owner: LogicalStreamId,
        /// Who called.
        caller: LogicalStreamId,
    },
    /// The window was closed by another stream than its owner, and the recording discarded.
    #[error(
        "the capture of {owner:?} was closed by {caller:?}, which does not own it; what was recorded is discarded"
    )]
    Abandoned {
        /// Who prepared the window.
        owner: LogicalStreamId,
        /// Who closed it.
        caller: LogicalStreamId,
    },
    /// The owner asked for something in its own recording that a graph cannot do. The capture lives.
    #[error(
        "{request} by {owner:?}: its capture is recording, and a graph cannot do that; end it first"
    )]
    InWindow {
        /// What was asked for.
        request: Request,
        /// Who owns the capture.
        owner: LogicalStreamId,
    },
    /// A neighbour asked for something on a stream that records for somebody else. Nothing has run; what it would have
    /// written is tainted. The capture is not touched by it.
    #[error(
        "{request} by {caller:?}: the stream that serves it records a capture of {owner:?}; come again when that has ended"
    )]
    Neighbour {
        /// What was asked for.
        request: Request,
        /// Who owns the capture.
        owner: LogicalStreamId,
        /// Who asked.
        caller: LogicalStreamId,
    },
    /// Something that cannot be recorded was asked for in the window; the graph would lack it.
    #[error("{request} by {owner:?}: it cannot be recorded, and the graph would lack it")]
    Unrecordable {
        /// What was asked for.
        request: Request,
        /// Who owns the capture.
        owner: LogicalStreamId,
    },
    /// The window asked for memory that the pools do not hold, and that the graph would not own.
    #[error(transparent)]
    Unowned(Box<UnownedAllocation>),
    /// The recording is not worth a graph: something in it failed. It was closed without one.
    #[error("the capture of {owner:?} was doomed and gives no graph: {cause}{}", also(unowned))]
    Doomed {
        /// Who owns the capture.
        owner: LogicalStreamId,
        /// What failed first.
        cause: Box<CaptureError>,
        /// Every allocation that the window could not serve.
        unowned: Vec<UnownedAllocation>,
    },
    /// The owner gave the recording up; what it would have written was never written.
    #[error("the capture of {owner:?} was aborted; what it would have written was never written")]
    Aborted {
        /// Who owned the capture.
        owner: LogicalStreamId,
    },
    /// A buffer that does not hold what it should, because what would have written it was refused or failed.
    #[error("{buffer} is tainted until it is written anew: {cause}")]
    Tainted {
        /// The buffer's name.
        buffer: String,
        /// What was refused or failed.
        cause: Arc<CaptureError>,
    },
    /// The backend could not do a step.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An operation that is wrong in itself.
    #[error("operation {operation}: {problem}")]
    Operation {
        /// Its name.
        operation: String,
        /// What is wrong.
        problem: String,
    },
    /// Contents that do not fit a buffer.
    #[error("{buffer} has {bytes} bytes, not {given}")]
    Size {
        /// The buffer's name.
        buffer: String,
        /// Its bytes.
        bytes: u64,
        /// Bytes given.
        given: u64,
    },
    /// A buffer of the window that lies in memory which other graphs of its group overwrite, and that is more than scratch: it
    /// is read before it is written, or somebody still holds it. It would change under whoever reads it.
    #[error(
        "{buffer} lies in memory that {with} of its group overwrites, and {problem}; only scratch of the window can lie there"
    )]
    Shared {
        /// The buffer's name.
        buffer: String,
        /// The other graph.
        with: String,
        /// What makes it more than scratch.
        problem: &'static str,
    },
    /// A slot that cannot be set so.
    #[error("slot {slot} cannot be set: {problem}")]
    Slot {
        /// Its name.
        slot: String,
        /// What is wrong.
        problem: String,
    },
    /// An allocation larger than any.
    #[error("an allocation of {bytes} bytes; {MAX_ALLOCATION} is the most")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A buffer or a graph of another device.
    #[error("{what} belongs to another device")]
    OtherDevice {
        /// Its name.
        what: String,
    },
    /// A number of streams that no device has.
    #[error("a device has 1 to {MAX_STREAMS} streams, not {given}")]
    StreamCount {
        /// The number asked for.
        given: u32,
    },
    /// What a backend or a caller says in its own words about the state of a graph.
    #[error("{message}")]
    GraphState {
        /// The words.
        message: String,
    },
    /// Several at once, in the order in which they are to be read.
    #[error("{}", Listed(errors))]
    Several {
        /// The errors.
        errors: Vec<CaptureError>,
    },
}

impl CaptureError {
    /// An error in words, for a backend whose own error has no variant here.
    pub fn graph_state(message: impl Into<String>) -> Self {
        CaptureError::GraphState { message: message.into() }
    }
}

/// A window that is open, in one of its two phases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Window {
    /// Warm-up: work runs, and what it allocates is kept.
    Preparing,
    /// Recording: work becomes nodes.
    Recording,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Window::Preparing => "preparing",
            Window::Recording => "recording",
        })
    }
}

/// Something asked of a stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Memory.
    Allocate(String),
    /// The contents of a buffer.
    Read(String),
    /// A buffer's contents anew.
    Write(String),
    /// To wait.
    Sync,
    /// The time that an operation takes.
    Profile(String),
    /// To run an operation.
    Submit(String),
    /// To replay a graph.
    Launch(String),
    /// To come after what another stream has been given.
    Order(LogicalStreamId),
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Allocate(name) => write!(f, "allocation of {name}"),
            Request::Read(name) => write!(f, "read of {name}"),
            Request::Write(name) => write!(f, "write of {name}"),
            Request::Sync => f.write_str("sync"),
            Request::Profile(name) => write!(f, "profile of {name}"),
            Request::Submit(name) => write!(f, "operation {name}"),
            Request::Launch(name) => write!(f, "launch of {name}"),
            Request::Order(other) => write!(f, "order after {other:?}"),
        }
    }
}

/// An allocation of a window that no page held could serve, and what the warm-up had of its kind.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "allocation of {name} ({bytes} bytes, {slice_bytes} with rounding) after {after}: number {number} of its size in the window, {}",
    warm(.warm_up)
)]
pub struct UnownedAllocation {
    /// Its name.
    pub name: String,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes of its size class.
    pub slice_bytes: u64,
    /// The operation recorded before it.
    pub after: String,
    /// How many of its class the window had asked for, this one included.
    pub number: u64,
    /// What the warm-up allocated of this class, by name.
    pub warm_up: Vec<String>,
}

fn warm(names: &[String]) -> String {
    match names {
        [] => "of which the warm-up allocated none; run the same work in it".to_owned(),
        names => format!("of which the warm-up allocated {} ({})", names.len(), names.join(", ")),
    }
}

fn also(unowned: &[UnownedAllocation]) -> String {
    match unowned.len() {
        0 => String::new(),
        1 => " (an allocation could not be served)".to_owned(),
        count => format!(" ({count} allocations could not be served)"),
    }
}

struct Listed<'a>(&'a [CaptureError]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            let separator = if at > 0 { "; " } else { "" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}
