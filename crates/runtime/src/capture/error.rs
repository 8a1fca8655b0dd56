//! Everything that a capture can be refused or broken for.

use std::fmt;

use thiserror::Error;

use super::LogicalStreamId;

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
