//! Graphs that were built as data, on a shared device.
//!
//! In: a graph, its schedule, and a buffer of the device for each of its external ones. Out: a [`Graph`](super::Graph) like
//! one that a window has recorded, but with slots, and holding its buffers itself: their slices are handed to nobody else
//! while it or a launch of it lives. Nothing runs, and no stream records meanwhile. O(nodes + operands).

use std::sync::Arc;

use phonograph_graph::{
    BufferId, BufferRole, ComputeGraph, NodeKind, Operands, Scalar, Schedule, SlotId,
};

use super::backend::{Backend, BackendError, Step};
use super::caught::{Caught, attempt};
use super::device::{Graph, Stream};
use super::handle::{Buffer, GraphToken, Slot, assign};
use super::server::Server;
use super::template::Use;
use super::window::Recorded;
use crate::capture::{CaptureError, LogicalStreamId, Request};
use crate::cpu::kernels::Registry;
use crate::pool::Slice;

/// The memory of an external buffer.
pub struct BoundPage<P> {
    /// The buffer of the graph.
    pub buffer: BufferId,
    /// The page that it lies in.
    pub page: P,
    /// Its first byte there.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// A graph to be adopted, with what its ids stand for.
pub struct Adopted<'a> {
    /// The graph.
    pub graph: &'a ComputeGraph,
    /// How it is to run.
    pub schedule: &'a Schedule,
    /// The memory of its external buffers, each given once.
    pub buffers: &'a [(BufferId, Buffer)],
    /// Its slots.
    pub slots: &'a [(SlotId, Slot)],
    /// The functions that it names beyond the backend's own; the executable keeps those that it uses.
    pub registry: &'a Registry,
}

/// A backend that takes graphs as data.
pub trait Adopt: Backend {
    /// Whether functions of the host reach memory of the device. Where they do not, whoever makes graphs gives them
    /// page-locked memory, and copies around it.
    const HOST_REACHES_DEVICE: bool;

    /// How many nodes of a graph can run at the same time: what a plan is to be made for. At least 1.
    fn lanes(&self) -> u32;

    /// Checks a graph and its schedule and makes it executable; `memory` is where its buffers lie.
    ///
    /// # Errors
    /// [`BackendError`] for a graph or a schedule that the backend does not take.
    fn adopt(
        &mut self,
        adopted: &Adopted<'_>,
        memory: &[BoundPage<Self::Page>],
    ) -> Result<Self::Exec, BackendError>;
}

impl<B: Adopt> Stream<B> {
    /// Makes a graph launchable.
    ///
    /// # Errors
    /// [`CaptureError::OtherDevice`]; [`CaptureError::Operation`] for a buffer without memory or with memory of another
    /// size; [`CaptureError::InWindow`] and [`CaptureError::Neighbour`] beside a recording on the stream that serves this one;
    /// [`CaptureError::Backend`]. After an error nothing of it is left.
    pub fn adopt(&self, adopted: &Adopted<'_>) -> Result<Graph, CaptureError> {
        self.lock().adopt(self.id(), adopted).map(Graph)
    }

    /// As [`launch`](Stream::launch), with values of slots for this launch alone.
    ///
    /// # Errors
    /// As for [`launch`](Stream::launch); [`CaptureError::Slot`] for one that the graph does not have, or of another type.
    pub fn launch_with(
        &self,
        graph: &Graph,
        values: &[(Slot, Scalar)],
    ) -> Result<(), CaptureError> {
        let mut all = graph.0.values();
        for (slot, value) in values {
            assign(&mut all, slot, *value)?;
        }
        self.lock().launch(self.id(), &graph.0, all)
    }

    /// Runs the oldest work that waits on the backend stream that serves this one, whoever has submitted it; false if there
    /// was none. It takes the device for one piece of work, where [`sync`](Stream::sync) takes it for all of them.
    pub fn advance(&self) -> bool {
        let server = &mut *self.lock();
        let on = server.fold(self.id());
        server.core.run_one(on)
    }
}

impl<B: Adopt> Server<B> {
    fn adopt(
        &mut self,
        caller: LogicalStreamId,
        adopted: &Adopted<'_>,
    ) -> Result<Arc<GraphToken>, CaptureError> {
        let Adopted { graph, buffers, slots, .. } = *adopted;
        self.own(buffers.iter().map(|(_, buffer)| buffer))?;
        self.admit(caller, Request::Launch(graph.name().into()))?;
        let mut recorded = recorded(graph, buffers)?;
        recorded.slots = slots.iter().map(|(_, slot)| slot.clone()).collect();
        let memory = buffers.iter().map(|(id, buffer)| {
            let Slice { page, offset } = buffer.slice();
            let page = self.core.pools.memory(page).clone();
            BoundPage { buffer: *id, page, offset, bytes: buffer.bytes() }
        });
        let memory = Vec::from_iter(memory);
        let mut exec = self.core.backend.adopt(adopted, &memory)?;
        if let Err(failed) = self.core.backend.upload(self.fold(caller), &mut exec) {
            self.core.backend.destroy(exec);
            return Err(failed.into());
        }
        let held = buffers.iter().map(|(_, buffer)| buffer.clone()).collect();
        Ok(self.core.enter(exec, recorded, held))
    }
}

impl<B: Adopt> Adopt for Caught<B> {
    const HOST_REACHES_DEVICE: bool = B::HOST_REACHES_DEVICE;

    fn lanes(&self) -> u32 {
        self.0.lanes()
    }

    fn adopt(
        &mut self,
        adopted: &Adopted<'_>,
        memory: &[BoundPage<B::Page>],
    ) -> Result<B::Exec, BackendError> {
        attempt(Step::Instantiate, || self.0.adopt(adopted, memory))
    }
}

/// What the graph touches, node by node in topological order.
fn recorded(
    graph: &ComputeGraph,
    buffers: &[(BufferId, Buffer)],
) -> Result<Recorded, CaptureError> {
    let wrong = |problem: String| {
        let operation = graph.name().to_owned();
        CaptureError::Operation { operation, problem }
    };
    let mut place: Vec<Option<usize>> = vec![None; graph.buffers().len()];
    for (at, (id, buffer)) in buffers.iter().enumerate() {
        let declared = graph.buffers().get(id.index());
        let declared = declared.ok_or_else(|| wrong(format!("it has no {id}")))?;
        if declared.bytes != buffer.bytes() {
            let (name, has, needs) = (buffer.name(), buffer.bytes(), declared.bytes);
            return Err(wrong(format!("{name} has {has} bytes, {id} has {needs}")));
        }
        if place[id.index()].replace(at).is_some() {
            return Err(wrong(format!("{id} is given twice")));
        }
    }
    let mut recorded = Recorded::default();
    recorded.name = graph.name().into();
    recorded.nodes = graph.node_count() as u64;
    let mut operands = Operands::new();
    // What the node at hand does to each buffer, and which those are.
    let mut uses: Vec<Option<Use>> = vec![None; buffers.len()];
    let mut used: Vec<usize> = Vec::new();
    for &id in graph.topological_order() {
        if graph.is_opaque(id) {
            // A host function reaches the memory of a device through what it declares only.
            if !matches!(graph.node(id).kind, NodeKind::Host(_)) {
                let anything = Use { reads: true, writes: true, whole: false };
                recorded.note_uses(buffers.iter().map(|(_, buffer)| (buffer, anything)));
            }
            continue;
        }
        operands.clear();
        graph.add_operands(id, &mut operands);
        for &(region, access) in &operands {
            let Some(at) = place[region.buffer.index()] else {
                if graph.buffer(region.buffer).role == BufferRole::Internal {
                    continue;
                }
                let (name, buffer) = (&graph.node(id).name, region.buffer);
                return Err(wrong(format!("{id} ({name}) uses {buffer}, which has no memory")));
            };
            let known = uses[at].get_or_insert_with(|| {
                used.push(at);
                Use::default()
            });
            known.add(access, region.bytes == buffers[at].1.bytes());
        }
        let all = used.drain(..).filter_map(|at| Some((&buffers[at].1, uses[at].take()?)));
        recorded.note_uses(all);
    }
    Ok(recorded)
}
