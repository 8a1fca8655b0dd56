//! Graphs captured from operations.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::Result;
use crate::context::{ExecutionContext, seal};
use crate::device::Stream;
use crate::future;
use crate::graph::{ComputeGraph, Schedule, SlotId};
use crate::launch::GraphLaunch;
use crate::lock::ExecutionLock;
use crate::op::{DeviceOp, GraphNode};
use crate::plan::ExecutionPlan;
use crate::plan::streams::{PlanOptions, schedule};
use crate::recorder::{Recorded, Recording};
use crate::runtime::streams::{Graph, Slot};
use crate::scope::Scope;

/// A graph that can be launched, and what it was made from.
pub(crate) struct Sealed {
    pub graph: Graph,
    pub recorded: Recorded,
    schedule: Schedule,
    /// Made of the schedule when somebody asks, since a launch does not.
    plan: OnceLock<ExecutionPlan>,
    pub device: crate::Device,
}

impl Sealed {
    /// The graph's own number of a slot.
    pub fn slot(&self, slot: &Slot) -> Option<SlotId> {
        let mut known = self.recorded.slots.iter();
        known.find(|(_, known)| known.key() == slot.key()).map(|(id, _)| *id)
    }
}

/// A graph captured from an operation, with the operation's output.
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! {
///     /// y ← a x + y
///     fn axpy(a: slot f32, x: &[f32], y: &mut [f32]) |_e| { y = a * x + y; }
/// }
///
/// let device = Device::cpu(2)?;
/// let stream = device.stream(0);
/// let x = api::ones::<f32>([4]).sync_on(&stream)?;
/// let mut y = api::zeros::<f32>([4]).sync_on(&stream)?;
///
/// let a = Slot::new("a", 1.0f32);
/// let graph = CapturedGraph::scope(&stream, |s| {
///     s.record(axpy(&a, &x, &mut y))?;
///     s.record(axpy(&a, &x, &mut y)).map(drop)
/// })?;
/// assert_eq!(y.to_vec()?, [0.0; 4]); // nothing has run
///
/// graph.launch().sync_on(&stream)?;
/// graph.launch().with(&a, 10.0f32).sync_on(&stream)?;
/// assert_eq!(y.to_vec()?, [22.0; 4]);
/// # Ok::<(), Error>(())
/// ```
pub struct CapturedGraph<T> {
    output: Option<T>,
    sealed: Arc<Sealed>,
    stream: Stream,
}

impl<T> fmt::Debug for CapturedGraph<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = &self.sealed.recorded.graph;
        f.debug_struct("CapturedGraph").field("nodes", &graph.node_count()).finish_non_exhaustive()
    }
}

impl<T: Send> CapturedGraph<T> {
    /// Consumes an operation into a graph for replays. Nothing of it runs, and there is no warm-up: what it allocates is
    /// the graph's, and written anew by every launch.
    ///
    /// # Errors
    /// [`NonReentrant`](crate::Error::NonReentrant) inside another capture, which goes on. The operation's own. Then what the
    /// graph, its plan, its instantiation or its upload say; after any of them nothing is left, and the stream is as it was.
    #[track_caller]
    pub fn capture<O: DeviceOp<Output = T>>(stream: &Stream, op: O) -> Result<Self> {
        Self::record(stream, "capture", |cx, _| {
            // SAFETY: the lock is held; the output is kept for after a launch.
            unsafe { op.execute(cx) }
        })
    }

    /// Captures what is recorded in a [`Scope`], operation by operation.
    ///
    /// # Errors
    /// As for [`capture`](Self::capture); the first are those that `body` gives, unchanged.
    #[track_caller]
    pub fn scope(stream: &Stream, body: impl FnOnce(&Scope<'_>) -> Result<T>) -> Result<Self> {
        Self::record(stream, "scope", |_, scope| body(scope))
    }

    #[track_caller]
    fn record(
        stream: &Stream,
        what: &'static str,
        body: impl FnOnce(&ExecutionContext<'_>, &Scope<'_>) -> Result<T>,
    ) -> Result<Self> {
        let lock = ExecutionLock::take(what)?;
        let run = stream.run();
        let recording = Recording::new("captured");
        let cx = ExecutionContext::recording(stream, &run, &recording);
        let output = body(&cx, &Scope::new(stream, &run, &recording))?;
        drop(lock);
        let recorded = recording.into_recorder().finish()?;
        let options = PlanOptions::at_most(stream.device().lanes());
        let schedule = schedule(&recorded.graph, &options)?;
        let graph = seal(&run, &recorded, &schedule)?;
        let device = stream.device().clone();
        let plan = OnceLock::new();
        let sealed = Arc::new(Sealed { graph, recorded, schedule, plan, device });
        Ok(Self { output: Some(output), sealed, stream: stream.clone() })
    }

    /// What the operation gave, once. Shapes can be looked at right away, contents after a launch.
    pub fn take_output(&mut self) -> Option<T> {
        self.output.take()
    }
}

impl<T> CapturedGraph<T> {
    /// Executes an operation on the graph's stream, to change what the next launch finds, and does not wait for it. A launch
    /// on whichever stream, and everything else that touches the same memory, comes after it.
    ///
    /// The CPU has no queue below the device's, so whoever hands work over there waits for the piece that runs at that moment, and
    /// does itself what the work comes after on other streams.
    ///
    /// Takes only operations that a replay could do too, and that give nothing: whatever they allocated would be lost.
    ///
    /// # Errors
    /// [`NonReentrant`](crate::Error::NonReentrant), and what the operation refuses. What fails later taints what it would have
    /// written, so that the launch that reads it fails and says why.
    #[track_caller]
    pub fn update<O: GraphNode + DeviceOp<Output = ()>>(&self, op: O) -> Result<()> {
        future::enqueue_on(op, &self.stream, "update")
    }

    /// A launch: an operation for whichever stream. It shares the graph, which lives until the last of both is gone.
    pub fn launch(&self) -> GraphLaunch {
        GraphLaunch::new(self.sealed.clone())
    }

    /// The stream that it was captured for.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The graph as data: look at it, draw it, save it.
    pub fn graph(&self) -> &ComputeGraph {
        &self.sealed.recorded.graph
    }

    /// How it is run. O(nodes) when it is first asked for.
    pub fn plan(&self) -> &ExecutionPlan {
        let Sealed { recorded, schedule, plan, .. } = &*self.sealed;
        plan.get_or_init(|| {
            let plan = ExecutionPlan::with_schedule(&recorded.graph, schedule.clone());
            plan.expect("the graph was made executable by this schedule")
        })
    }

    /// The graph of the runtime underneath.
    pub fn shared(&self) -> &Graph {
        &self.sealed.graph
    }
}
