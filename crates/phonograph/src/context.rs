//! Where an operation executes: on a stream now, or into a recording.

use std::cell::Cell;
use std::sync::Arc;

use crate::device::{Run, Stream};
use crate::eager::Once;
use crate::graph::{BufferId, DType, Schedule, View};
use crate::recorder::{OpRecorder, Recorded, Recording};
use crate::runtime::streams::{Adopted, Graph};
use crate::tensor::{Tensor, Window};
use crate::{Element, Error, Result};

#[derive(Clone, Copy)]
enum Mode<'a> {
    Eager,
    Recording(&'a Recording),
}

/// What [`DeviceOp::execute`](crate::DeviceOp::execute) is given. It stays on its thread.
///
/// Executing never waits: it hands work to the stream, or to the graph that is being recorded. What an operation returns is
/// therefore valid as a handle at once and as contents only when the stream, or a launch of the graph, has got there.
pub struct ExecutionContext<'a> {
    stream: &'a Stream,
    run: &'a Run,
    mode: Mode<'a>,
    submitted: Cell<bool>,
}

impl<'a> ExecutionContext<'a> {
    pub(crate) fn eager(stream: &'a Stream, run: &'a Run) -> Self {
        Self { stream, run, mode: Mode::Eager, submitted: Cell::new(false) }
    }

    pub(crate) fn recording(stream: &'a Stream, run: &'a Run, into: &'a Recording) -> Self {
        Self { stream, run, mode: Mode::Recording(into), submitted: Cell::new(false) }
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Whether this is a recording.
    pub fn is_recording(&self) -> bool {
        matches!(self.mode, Mode::Recording(..))
    }

    /// What tells this recording from every other while it lives.
    pub(crate) fn identity(&self) -> Option<&Arc<()>> {
        match self.mode {
            Mode::Eager => None,
            Mode::Recording(recording) => Some(&recording.identity),
        }
    }

    /// Whether anything was handed to the stream.
    pub(crate) fn submitted(&self) -> bool {
        self.submitted.get()
    }

    /// The execution, for bodies that are part of it.
    pub(crate) fn handle(&self) -> &Run {
        self.run
    }

    /// The execution, to hand work to.
    pub(crate) fn run(&self) -> &Run {
        self.submitted.set(true);
        self.run
    }

    /// A tensor with whatever its memory holds. In a recording it is the graph's: allocated now, once, and written by
    /// every launch.
    ///
    /// # Errors
    /// Extents that are no shape; [`Error::Device`].
    pub fn alloc<T: Element>(&self, name: &str, extents: &[u64]) -> Result<Tensor<T>> {
        let dtype: DType = T::DTYPE;
        let view = View::contiguous(BufferId(0), dtype, extents)?;
        let bytes = view.elements() * dtype.size();
        let buffer = self.run.alloc(name, bytes)?;
        Ok(Tensor::new(self.stream.device().clone(), buffer, view))
    }

    /// Memory of the host with these contents, for copies from there. In a recording it is the graph's, and nobody else writes
    /// it.
    pub(crate) fn staged<T: Element>(&self, name: &str, contents: &[T]) -> Result<Window> {
        let view = View::contiguous(BufferId(0), T::DTYPE, &[contents.len() as u64])?;
        let buffer = self.run.alloc_host(name, view.region().bytes)?;
        self.run.write(&buffer, T::bytes(contents))?;
        Ok(Window { device: self.stream.device().clone(), buffer, view })
    }

    /// Records a piece of work: into the graph, or to run once, now.
    ///
    /// # Errors
    /// Those of `work`, after which a recording that has taken some of its nodes can no longer be sealed; nodes that make
    /// no graph; [`Error::Device`].
    pub fn record<R>(&self, work: impl FnOnce(&mut OpRecorder) -> Result<R>) -> Result<R> {
        self.recording_of(|recording| {
            let mut recorder = recording.recorder.try_borrow_mut();
            match &mut recorder {
                Ok(recorder) => recorder.piece(work),
                // `work` has executed an operation with a context that it had brought along.
                Err(_) => {
                    let what = "recording inside a piece of recording";
                    Err(Error::NonReentrant { what, at: None })
                }
            }
        })
    }

    /// As [`record`](Self::record), for work that records bodies with operations of their own.
    pub(crate) fn recording_of<R>(&self, work: impl FnOnce(&Recording) -> Result<R>) -> Result<R> {
        match self.mode {
            Mode::Recording(recording) => work(recording),
            Mode::Eager => {
                let recording = Recording::once_only("eager");
                let result = work(&recording)?;
                match recording.into_recorder().once()? {
                    Once::Nothing => {}
                    Once::Operation(op) => self.run().submit(&op)?,
                    Once::Graph(recorded) => {
                        let schedule = Schedule::sequential(&recorded.graph);
                        let graph = seal(self.run, &recorded, &schedule)?;
                        self.run().launch(&graph, &[])?;
                    }
                }
                Ok(result)
            }
        }
    }
}

/// Makes a recording launchable.
pub(crate) fn seal(run: &Run, recorded: &Recorded, schedule: &Schedule) -> Result<Graph> {
    let Recorded { graph, buffers, slots, registry } = recorded;
    run.adopt(&Adopted { graph, schedule, buffers, slots, registry })
}
