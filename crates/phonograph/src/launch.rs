//! Launches of captured graphs.

use std::fmt;
use std::sync::Arc;

use crate::audit::{self, Audit, Auditor};
use crate::captured::Sealed;
use crate::context::ExecutionContext;
use crate::device::Stream;
use crate::graph::{
    BufferId, BufferRole, ComputeGraph, GraphBuilder, Scalar, Slot as Declared, SlotId, View,
};
use crate::op::{DeviceOp, GraphNode};
use crate::recorder::OpRecorder;
use crate::runtime::streams;
use crate::slot::Slot;
use crate::tensor::Window;
use crate::{Element, Error, Result};

/// One launch of a [`CapturedGraph`](crate::CapturedGraph). Recorded, it becomes a child graph.
#[must_use = "operations do nothing until they are executed"]
pub struct GraphLaunch {
    sealed: Arc<Sealed>,
    /// The slots that were given a value; the others have their defaults.
    values: Vec<(streams::Slot, Scalar)>,
    wrong: Option<Error>,
}

impl fmt::Debug for GraphLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphLaunch").field("values", &self.values).finish_non_exhaustive()
    }
}

impl GraphLaunch {
    pub(crate) fn new(sealed: Arc<Sealed>) -> Self {
        Self { sealed, values: Vec::new(), wrong: None }
    }

    /// Sets a slot for this launch. A slot that the graph does not have is an error of the execution.
    pub fn with<T: Element + Into<Scalar>>(mut self, slot: &Slot<T>, value: T) -> Self {
        if self.sealed.slot(&slot.shared).is_some() {
            self.values.push((slot.shared.clone(), value.into()));
        } else {
            let name = slot.shared.name().to_owned();
            self.wrong.get_or_insert(Error::UnknownSlot { name });
        }
        self
    }

    /// Runs the program that was captured, as it is now, and this launch on the same contents, and tells the first node in
    /// which they differ and why: against graphs that have gone stale unnoticed.
    ///
    /// Afterwards the graph's buffers hold what the launch has left there. Operations that the program issues elsewhere than to
    /// the auditor happen, and are not watched.
    ///
    /// ```
    /// use phonograph::audit::Cause;
    /// use phonograph::prelude::*;
    ///
    /// kernel! { fn add(by: f32, y: &mut [f32]) |_e| { y = y + by; } }
    ///
    /// let device = Device::cpu(1)?;
    /// let stream = device.stream(0);
    /// let mut y = api::zeros::<f32>([4]).sync_on(&stream)?;
    /// let mut rate = 0.5;
    /// let graph = add(rate, &mut y).map(drop).graph_on(&stream)?;
    ///
    /// rate = 0.25; // the graph has baked the old one
    /// let audit = graph.launch().audit(&stream, |to| to.issue(add(rate, &mut y)).map(drop))?;
    /// let first = audit.first.expect("it is stale");
    /// assert_eq!(first.name, "add");
    /// assert!(matches!(first.cause, Cause::FrozenScalar { .. }));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`NonReentrant`](crate::Error::NonReentrant) inside a capture, what the program says, and what its nodes say.
    #[track_caller]
    pub fn audit(
        self,
        stream: &Stream,
        program: impl FnOnce(&Auditor<'_>) -> Result<()>,
    ) -> Result<Audit> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        audit::audit(&self.sealed, &self.values, stream, program)
    }

    /// As a child of what is being recorded.
    fn record(&self, recorder: &mut OpRecorder) -> Result<()> {
        let recorded = &self.sealed.recorded;
        let mut outer: Vec<Option<BufferId>> = vec![None; recorded.graph.buffers().len()];
        for (id, buffer) in &recorded.buffers {
            let view = View::contiguous(BufferId(0), crate::graph::DType::U8, &[buffer.bytes()])?;
            let window =
                Window { device: self.sealed.device.clone(), buffer: buffer.clone(), view };
            outer[id.index()] = Some(recorder.view(&window).buffer);
        }
        let slots = recorded.slots.iter().map(|(_, slot)| {
            // A value that was given is this launch's; a slot that was left open stays open.
            let given = self.values.iter().rev().find(|(given, _)| given.key() == slot.key());
            let frozen = given.map(|(_, value)| streams::Slot::new(slot.name(), *value));
            recorder.slot(frozen.as_ref().unwrap_or(slot))
        });
        let slots: Vec<SlotId> = slots.collect();
        let child = inside(&recorded.graph, &outer, &slots)?;
        recorder.keep_functions(&recorded.registry);
        recorder.builder().add_child("launch", child);
        Ok(())
    }
}

/// The same graph, to be inside another.
pub(crate) fn inside(
    graph: &ComputeGraph,
    outer: &[Option<BufferId>],
    slots: &[SlotId],
) -> Result<ComputeGraph> {
    let mut builder = GraphBuilder::new().named(graph.name()).with_auto_infer_edges(false);
    for (declared, outer) in graph.buffers().iter().zip(outer) {
        let role = outer.map_or(declared.role, BufferRole::Outer);
        builder.declare(crate::graph::Buffer { role, ..declared.clone() });
    }
    for (declared, outer) in graph.slots().iter().zip(slots) {
        builder.declare_slot(Declared { outer: Some(*outer), ..declared.clone() });
    }
    for node in graph.nodes() {
        builder.add_node(node.clone());
    }
    for edge in graph.edges() {
        builder.add_edge(edge);
    }
    Ok(builder.build()?)
}

crate::awaitable!([] GraphLaunch);

impl DeviceOp for GraphLaunch {
    type Output = ();

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<()> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        if !self.sealed.device.same_as(cx.stream().device()) {
            return Err(Error::OtherDevice { what: "the graph" });
        }
        if cx.is_recording() {
            return cx.record(|recorder| self.record(recorder));
        }
        cx.run().launch(&self.sealed.graph, &self.values)
    }
}

// SAFETY: it is a launch, or a child graph; neither allocates, frees, or executes anything while it is recorded.
unsafe impl GraphNode for GraphLaunch {}
