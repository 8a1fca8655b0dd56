//! Rows about single calls: made beside a capture, or on a capturing stream.

use serde::{Deserialize, Serialize};

use crate::{CuResult, Mode, StreamKind};

/// A call made while a stream captures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MatrixRow {
    /// The function, with what it is called on in parentheses.
    pub call: String,
    /// The capture's mode.
    pub mode: Mode,
    /// Who calls.
    pub thread: MatrixThread,
    /// How the capturing stream was created.
    pub stream: StreamKind,
    /// What the call answered.
    pub result: CuResult,
    /// The capturing stream's status after it.
    pub capture: CaptureStatus,
    /// What ending the capture answered.
    pub end: CuResult,
}

/// The thread that makes the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatrixThread {
    /// The one that began the capture.
    Same,
    /// Another one.
    Other,
}

/// The status of the capturing stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureStatus {
    /// Not capturing.
    None,
    /// Capturing.
    Active,
    /// The capture is broken.
    Invalidated,
}

/// A call on a stream that captures one kernel before it and one after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRow {
    /// The function, with its variant in parentheses.
    pub call: String,
    /// The capture's mode.
    pub mode: Mode,
    /// What the call answered.
    pub result: CuResult,
    /// The stream's status after it.
    pub capture: CaptureStatus,
    /// What the second kernel answered.
    pub kernel_after: CuResult,
    /// What ending the capture answered.
    pub end: CuResult,
    /// The kinds of the finished graph's nodes.
    pub nodes: Vec<String>,
    /// Its edges: from, to, port of the producer, type.
    #[serde(default)]
    pub edges: Vec<(usize, usize, u8, u8)>,
    /// What instantiating it answered, if there was a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instantiate: Option<CuResult>,
}

impl NodeRow {
    pub(super) fn check(&self) -> Result<(), String> {
        match self.edges.iter().find(|(from, to, ..)| *from.max(to) >= self.nodes.len()) {
            Some((from, to, ..)) => {
                Err(format!("edge {from} to {to} among {} nodes", self.nodes.len()))
            }
            None => Ok(()),
        }
    }
}
