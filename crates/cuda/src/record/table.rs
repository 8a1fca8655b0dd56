//! Tables of single calls: made beside a capture, or on the capturing stream itself.
//!
//! Each row is a capture of its own, on threads of its own. A row names its call as the tables do: the function, and in
//! brackets what it is called on.

use std::ptr;
use std::thread;

use cudarc::driver::sys::{CUgraph, CUstream};
use phonograph_trace::CuResult;
use phonograph_trace::recording::{CaptureStatus, MatrixRow, MatrixThread, NodeRow};

use super::scene::Scene;
use super::{RecordError, Recorder};
use crate::captures::relaxed;
use crate::error::{DriverError, call};
use crate::foreign::{ImportError, edges_of, kind_name, nodes_of};
use crate::graph::{Executable, Graph};
use crate::stream_capture::CaptureInfo;

impl Recorder {
    /// The row of a call beside a capture, with this driver's answers.
    ///
    /// # Errors
    /// [`RecordError::Unsupported`] for a call that is not known.
    pub fn beside(&self, asked: &MatrixRow) -> Result<MatrixRow, RecordError> {
        let unknown = || unsupported(&asked.call);
        let _current = self.device.enter()?;
        let scene = Scene::new(self, asked.stream)?;
        let answered = thread::scope(|scope| {
            let same = scope.spawn(|| -> Result<Option<[u32; 3]>, DriverError> {
                let _current = self.device.enter()?;
                scene.begin(asked.mode)?;
                scene.kernel()?;
                let called = match asked.thread {
                    MatrixThread::Same => scene.beside(&asked.call),
                    MatrixThread::Other => {
                        let other = scope.spawn(|| {
                            let entered = self.device.enter();
                            entered.map(|_current| scene.beside(&asked.call))
                        });
                        joined(other.join())?
                    }
                };
                let status = status(scene.capturing)?;
                let ended = end(scene.capturing).map(|graph| scene.keep(graph));
                Ok(called.map(|called| [code(&called), status, code(&ended)]))
            });
            joined(same.join())
        })?;
        let [result, status, end] = answered.ok_or_else(unknown)?;
        scene.finish()?;
        let (result, end) = (settled(result), settled(end));
        Ok(MatrixRow { result, capture: status_of(status), end, ..asked.clone() })
    }

    /// The row of a call on a capturing stream, with this driver's answers.
    ///
    /// # Errors
    /// [`RecordError::Unsupported`] for a call that is not known.
    pub fn on_stream(&self, asked: &NodeRow) -> Result<NodeRow, RecordError> {
        let _current = self.device.enter()?;
        let scene = Scene::new(self, phonograph_trace::StreamKind::NonBlocking)?;
        let answered = thread::scope(|scope| {
            let made = scope.spawn(|| -> Result<Option<NodeRow>, DriverError> {
                let _current = self.device.enter()?;
                scene.begin(asked.mode)?;
                scene.kernel()?;
                let Some(called) = scene.on_stream(&asked.call) else {
                    end(scene.capturing).map(|graph| scene.keep(graph))?;
                    return Ok(None);
                };
                let status = status(scene.capturing)?;
                let after = scene.kernel();
                let ended = end(scene.capturing);
                let mut row = NodeRow {
                    result: settled(code(&called)),
                    capture: status_of(status),
                    kernel_after: settled(code(&after)),
                    end: settled(code(&ended)),
                    nodes: Vec::new(),
                    edges: Vec::new(),
                    instantiate: None,
                    ..asked.clone()
                };
                if let Ok(graph) = ended {
                    scene.keep(graph);
                    self.finished(graph, &mut row)?;
                }
                Ok(Some(row))
            });
            joined(made.join())
        })?;
        scene.finish()?;
        answered.ok_or_else(|| unsupported(&asked.call))
    }

    /// Notes what is in a finished graph.
    fn finished(&self, graph: CUgraph, row: &mut NodeRow) -> Result<(), DriverError> {
        let _relaxed = relaxed()?;
        let driver = |error: ImportError| match error {
            ImportError::Driver(error) => error,
            other => unreachable!("listing nodes and edges fails in the driver only: {other}"),
        };
        // SAFETY: the graph lives until the scene is over; the nodes are its own.
        let (nodes, (from, to, data)) = unsafe {
            let nodes = nodes_of(graph).map_err(driver)?;
            for &node in &nodes {
                row.nodes.push(kind_name(node).map_err(driver)?.to_owned());
            }
            (nodes, edges_of(graph).map_err(driver)?)
        };
        let place = |node| nodes.iter().position(|&known| known == node).unwrap_or(usize::MAX);
        for ((from, to), data) in from.iter().zip(&to).zip(&data) {
            row.edges.push((place(*from), place(*to), data.from_port, data.type_));
        }
        row.edges.sort_unstable();
        // SAFETY: the graph lives; the borrowed handle is forgotten, not destroyed.
        let borrowed = std::mem::ManuallyDrop::new(unsafe { Graph::adopt(&self.device, graph) });
        let made = Executable::new(&borrowed, 0).map_err(|refused| refused.error);
        row.instantiate = Some(settled(code(&made)));
        Ok(())
    }
}

fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn unsupported(call: &str) -> RecordError {
    RecordError::Unsupported { id: call.to_owned(), step: 0, op: call.to_owned() }
}

fn code<T>(result: &Result<T, DriverError>) -> u32 {
    result.as_ref().err().map_or(0, |error| error.code)
}

/// Recordings write that work is not ready as success.
fn settled(code: u32) -> CuResult {
    match CuResult(code) {
        CuResult::NOT_READY => CuResult::SUCCESS,
        other => other,
    }
}

fn status(stream: CUstream) -> Result<u32, DriverError> {
    // SAFETY: the scene's streams live, and it is this thread's.
    Ok(match unsafe { CaptureInfo::of(stream) }? {
        CaptureInfo::None => 0,
        CaptureInfo::Active { .. } => 1,
        CaptureInfo::Invalidated => 2,
    })
}

fn status_of(status: u32) -> CaptureStatus {
    match status {
        0 => CaptureStatus::None,
        1 => CaptureStatus::Active,
        _ => CaptureStatus::Invalidated,
    }
}

fn end(stream: CUstream) -> Result<CUgraph, DriverError> {
    let mut graph = ptr::null_mut();
    // SAFETY: the stream lives.
    unsafe { call!(cuStreamEndCapture(stream, &mut graph)) }?;
    Ok(graph)
}
