//! Running a closure under the driver's stream capture.
//!
//! In: a stream, a mode, a closure that may use any library on the stream. Out: the graph that the driver made of it. However
//! the closure ends, by a value, an error or a panic, the stream is not capturing afterwards. A capture that fails says by
//! which rule of [the model](phonograph_capture::model), and names the work that nothing joined: the calls inside the
//! closure are not seen, so what is known is what the driver tells before the end. O(nodes + edges).

use std::fmt;

use cudarc::driver::sys::{CUgraphNode, CUstream, CUstreamCaptureMode};
use phonograph_capture::model::Rule;
use phonograph_trace::CuResult;
use rustc_hash::FxHashSet;

use super::exec::Captured;
use super::read::{describe, edges_of, nodes_of};
use super::{ImportError, Imported};
use crate::captures::Capturing;
use crate::error::DriverError;
use crate::graph::Graph;
use crate::loader::{Driver, Feature, LoadError};
use crate::stream::Stream;
use crate::stream_capture::{self, CaptureInfo};

/// What the driver forbids while a stream captures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CaptureMode {
    /// Potentially unsafe calls (such as allocating) of every thread that is in global mode.
    #[default]
    Global,
    /// Those of this thread.
    ThreadLocal,
    /// None.
    Relaxed,
}

/// Why a closure was not captured. The stream is not capturing, whatever happened.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError<E> {
    /// The driver lacks what this needs; the closure was not called.
    #[error(transparent)]
    Load(LoadError),
    /// The capture could not begin; the closure was not called.
    #[error("the capture cannot begin: {0}")]
    Begin(DriverError),
    /// The closure's own error. What was captured is gone.
    #[error(transparent)]
    Work(E),
    /// The closure did well, and the capture failed.
    #[error("the capture failed: {0}")]
    End(Box<Diagnosis>),
    /// The graph was captured and cannot be read.
    #[error("the captured graph cannot be read: {0}")]
    Import(ImportError),
}

/// Why a capture failed, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// What the driver answered to the end.
    pub error: DriverError,
    /// The rule of the model by which it does; `None` for an answer that has nothing to do with capture.
    pub rule: Option<Rule>,
    /// The last pieces of work on streams that were not joined to the captured one; a few of them.
    pub unjoined: Vec<Unjoined>,
    /// How many more there are.
    pub more: usize,
}

/// A piece of work that nothing joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unjoined {
    /// The kind of its node.
    pub kind: &'static str,
    /// For a kernel the function's name, else empty.
    pub name: String,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let Some(rule) = self.rule else { return Ok(()) };
        write!(f, "\nrule {}: {}", rule.number(), rule.words())?;
        for Unjoined { kind, name } in &self.unjoined {
            write!(f, "\nnothing joins the work that ends with this {kind}")?;
            if !name.is_empty() {
                write!(f, ": {name}")?;
            }
        }
        if self.more > 0 {
            write!(f, "\nnor {} more", self.more)?;
        }
        let help = match rule {
            Rule::R9d => {
                "record an event after that work, on its stream, and let the captured stream wait for it"
            }
            Rule::R9c => {
                "a call inside broke the capture: waiting for a stream or an event, allocating, work on the legacy stream; in global mode it may be one of another thread. `phonograph trace -- PROGRAM` and then `phonograph explain` name the call and its line"
            }
            Rule::R9a => "something inside ended the capture itself",
            Rule::R9b => "begin the capture on the stream that the others are forked from",
            _ => return Ok(()),
        };
        write!(f, "\nhelp: {help}")
    }
}

impl Stream {
    /// Captures what `work` does on this stream, and on streams that it forks from it and joins again, into a graph.
    /// Nothing of that runs. `work` gets the raw handle and may hand it to any library; the device's context is current
    /// meanwhile. Inside, memory may be allocated and other streams waited for through this crate in every mode; what
    /// waits for the whole device ([`Device::synchronize`](crate::Device::synchronize), [`Cuda::read`](crate::Cuda::read)
    /// and `write`) is refused on this thread and waits for the end on others.
    ///
    /// # Errors
    /// [`CaptureError::Work`] is the closure's own error, before any of the end. [`CaptureError::End`] says which rule the
    /// capture broke. In every case, and when `work` panics, the capture is over and what it recorded is gone.
    pub fn capture<T, E>(
        &self,
        mode: CaptureMode,
        work: impl FnOnce(CUstream) -> Result<T, E>,
    ) -> Result<(Captured, T), CaptureError<E>> {
        Driver::load()
            .and_then(|driver| driver.offers(Feature::Foreign))
            .map_err(CaptureError::Load)?;
        let device = self.device();
        let current = device.enter().map_err(CaptureError::Begin)?;
        let window = Window::begin(self, mode).map_err(CaptureError::Begin)?;
        // An error or a panic drops the window, which ends the capture.
        let value = work(self.handle()).map_err(CaptureError::Work)?;
        let graph = window.end()?;
        // SAFETY: the driver has just handed over the graph, which `graph` owns; the result keeps both.
        let imported = unsafe { Imported::read(graph.handle()) }.map_err(CaptureError::Import)?;
        drop(current);
        Ok((Captured::new(imported, graph, None), value))
    }
}

/// An open capture, which is ended when this is dropped.
struct Window<'a> {
    stream: &'a Stream,
    open: bool,
    _capturing: Capturing,
}

impl<'a> Window<'a> {
    fn begin(stream: &'a Stream, mode: CaptureMode) -> Result<Self, DriverError> {
        let mode = match mode {
            CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        let capturing = Capturing::here();
        stream_capture::begin(stream, mode)?;
        Ok(Self { stream, open: true, _capturing: capturing })
    }

    fn end<E>(mut self) -> Result<Graph, CaptureError<E>> {
        // What is not joined can only be asked before the end, which destroys the graph then.
        let unjoined = unjoined(self.stream.handle()).map_err(CaptureError::Import)?;
        self.open = false;
        let ended = stream_capture::end(self.stream);
        ended.map_err(|error| CaptureError::End(Box::new(diagnose(error, unjoined))))
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        // A capture that had failed anyway gives no graph; the caller learns of the error inside.
        if let Err(error) = stream_capture::end(self.stream) {
            tracing::debug!(%error, "a capture ended without a graph");
        }
    }
}

/// How many pieces of work are named.
const SHOWN: usize = 5;

/// The nodes of a stream's capture that nothing depends on and the stream does not wait for: a few of them, and how many
/// more there are. None, if the stream is in no valid capture.
fn unjoined(stream: CUstream) -> Result<(Vec<Unjoined>, usize), ImportError> {
    // SAFETY: the stream lives, and nothing is issued to it between the closure and the end.
    let CaptureInfo::Active { graph, after, .. } = unsafe { CaptureInfo::of(stream) }? else {
        return Ok((Vec::new(), 0));
    };
    let mut followed: FxHashSet<CUgraphNode> = after.iter().map(|(node, _)| node).collect();
    // SAFETY: the capture's graph lives until the capture ends.
    let (all, edges) = unsafe { (nodes_of(graph)?, edges_of(graph)?) };
    followed.extend(edges.0);
    let mut loose = all.into_iter().filter(|node| !followed.contains(node));
    let mut shown = Vec::new();
    for node in loose.by_ref().take(SHOWN) {
        // SAFETY: the node is of the capture's graph.
        let (kind, name) = unsafe { describe(node) }?;
        shown.push(Unjoined { kind, name });
    }
    Ok((shown, loose.count()))
}

fn diagnose(error: DriverError, (unjoined, more): (Vec<Unjoined>, usize)) -> Diagnosis {
    let rule = match CuResult(error.code) {
        CuResult::STREAM_CAPTURE_UNJOINED => Some(Rule::R9d),
        CuResult::STREAM_CAPTURE_INVALIDATED => Some(Rule::R9c),
        CuResult::STREAM_CAPTURE_WRONG_THREAD => Some(Rule::R9e),
        CuResult::STREAM_CAPTURE_UNMATCHED => Some(Rule::R9b),
        CuResult::ILLEGAL_STATE => Some(Rule::R9a),
        _ => None,
    };
    // Work that nothing depends on is a fault only if the driver says so: a dependency update may have let go of it.
    let (unjoined, more) = if rule == Some(Rule::R9d) { (unjoined, more) } else { (Vec::new(), 0) };
    Diagnosis { error, rule, unjoined, more }
}
