//! What can go wrong between an operation and its result.

use std::panic::Location;
use std::sync::Arc;

use thiserror::Error;

use crate::graph::{BufferId, ExprError, GraphError, ViewError};
use crate::kernels::OpsError;
use crate::plan::PlanError;
use crate::runtime::capture::CaptureError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was refused or has failed. Clones share what they say.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// The thread is inside a capture, a scope, or a closure of an operation that is being executed.
    #[error(
        "{what}{} inside a capture, a scope or an operation that executes: this thread executes one thing at a time, so nothing was done",
        place(.at)
    )]
    NonReentrant {
        /// What was asked for.
        what: &'static str,
        /// Where, if it was by a call of this crate from outside.
        at: Option<&'static Location<'static>>,
    },
    /// No scheduling policy, or one that has no stream.
    #[error("no stream to run on: {why}")]
    NoStream {
        /// What is missing.
        why: &'static str,
    },
    /// What the device says.
    #[error(transparent)]
    Device(#[from] CaptureError),
    /// Nodes that make no graph.
    #[error(transparent)]
    Graph(#[from] Arc<GraphError>),
    /// A graph that cannot be planned.
    #[error(transparent)]
    Plan(#[from] Arc<PlanError>),
    /// A window into a tensor that is not there.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Operands that do not go together.
    #[error(transparent)]
    Ops(#[from] OpsError),
    /// An expression that is not well typed.
    #[error(transparent)]
    Expr(#[from] ExprError),
    /// An operand that an operation does not take.
    #[error("{op}: {problem}")]
    Operand {
        /// The operation.
        op: String,
        /// What is wrong.
        problem: String,
    },
    /// A composed operation writes what it was only lent.
    #[error("{op} writes {buffer}, which it was given to read; lend it as `&mut`")]
    WritesInput {
        /// The operation.
        op: String,
        /// The buffer, as the recording numbers it.
        buffer: BufferId,
    },
    /// A stream or tensor of another device than the rest.
    #[error("{what} belongs to another device")]
    OtherDevice {
        /// What does.
        what: &'static str,
    },
    /// A shared operation was first executed by a capture, so what it gave has contents only where the graph was launched.
    #[error("the shared operation was recorded by a capture; launch that graph instead")]
    SharedInCapture,
    /// A value for a slot that the graph does not have.
    #[error("the graph has no slot {name:?}")]
    UnknownSlot {
        /// Its name.
        name: String,
    },
    /// A shape that a cache has no bucket for.
    #[error("no bucket for an input of {extents:?}")]
    NoBucket {
        /// The shape.
        extents: Vec<u64>,
    },
    /// A panic was caught inside a recording, which lacks the rest of an operation.
    #[error("a panic interrupted an operation that was being recorded")]
    Interrupted,
    /// What another backend than the device's is needed for.
    #[error("{what} needs a device on {backend}")]
    OtherBackend {
        /// What was asked for.
        what: &'static str,
        /// The backend.
        backend: &'static str,
    },
    /// The device could not be started.
    #[error("the device could not be started: {0}")]
    Start(String),
    /// An error of the caller's own.
    #[error(transparent)]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

fn place(at: &Option<&'static Location<'static>>) -> String {
    at.map_or_else(String::new, |at| format!(" (at {at})"))
}

impl Error {
    /// Carries an error of the caller's own through operations and scopes.
    ///
    /// ```
    /// use phonograph::prelude::*;
    ///
    /// let device = Device::cpu(1)?;
    /// let refused = CapturedGraph::<()>::scope(&device.stream(0), |_| {
    ///     Err(Error::other(std::io::Error::other("no file")))
    /// });
    /// assert_eq!(refused.unwrap_err().to_string(), "no file");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn other(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Error::Other(Arc::new(error))
    }

    pub(crate) fn operand(op: &str, problem: impl Into<String>) -> Self {
        Error::Operand { op: op.into(), problem: problem.into() }
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        Error::Graph(Arc::new(error))
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        Error::Plan(Arc::new(error))
    }
}
