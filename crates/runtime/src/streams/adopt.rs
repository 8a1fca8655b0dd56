//! Graphs that were built as data, on a shared device.
//!
//! In: a graph, its schedule, and a buffer of the device for each of its external ones. Out: a [`Graph`](super::Graph) like
//! one that a window has recorded, but with slots, and holding its buffers itself: their slices are handed to nobody else
//! while it or a launch of it lives. Nothing runs, and no stream records meanwhile. O(nodes + operands).

use std::sync::Arc;

use phonograph_graph::{
    BufferId, ComputeGraph, NodeId, NodeKind, Region, Scalar, Schedule, SlotId,
};
use rustc_hash::FxHashMap;

use super::backend::{Backend, BackendError, Step};
use super::caught::{Caught, attempt};
use super::device::{Graph, Stream};
use super::op::{Buffer, GraphToken, Use, uses};
use super::server::{Sealed, Server};
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

/// A backend that takes graphs as data.
pub trait Adopt: Backend {
    /// Checks a graph and its schedule and makes it executable. `registry` has the functions that it names beyond the
    /// backend's own; the executable keeps those that it uses.
    fn adopt(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        memory: &[BoundPage<Self::Page>],
        registry: &Registry,
    ) -> Result<Self::Exec, BackendError>;
    /// Sets a slot for the launches to come.
    fn set(
        &mut self,
        exec: &mut Self::Exec,
        slot: SlotId,
        value: Scalar,
    ) -> Result<(), BackendError>;
}

impl<B: Adopt> Stream<B> {
    /// Makes a graph launchable whose external buffers lie in `buffers`, each given once.
    ///
    /// # Errors
    /// [`CaptureError::OtherDevice`]; [`CaptureError::Operation`] for a buffer without memory or with memory of another
    /// size; [`CaptureError::InWindow`] and [`CaptureError::Neighbour`] beside a recording on the stream that serves this one;
    /// [`CaptureError::Backend`]. After an error nothing of it is left.
    pub fn adopt(
        &self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        buffers: &[(BufferId, Buffer)],
        registry: &Registry,
    ) -> Result<Graph, CaptureError> {
        self.lock().adopt(self.id(), graph, schedule, buffers, registry).map(Graph)
    }

    /// As [`launch`](Stream::launch), with values for slots. They are set when the launch runs and stay for later ones that
    /// give none.
    ///
    /// # Errors
    /// As for [`launch`](Stream::launch). A slot that is not there or of another type fails the launch, as the next sync tells.
    pub fn launch_with(
        &self,
        graph: &Graph,
        values: &[(SlotId, Scalar)],
    ) -> Result<(), CaptureError> {
        self.lock().launch(self.id(), &graph.0, values.into())
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
        graph: &ComputeGraph,
        schedule: &Schedule,
        buffers: &[(BufferId, Buffer)],
        registry: &Registry,
    ) -> Result<Arc<GraphToken>, CaptureError> {
        self.own(buffers.iter().map(|(_, buffer)| buffer))?;
        self.admit(caller, Request::Launch(graph.name().into()))?;
        let recorded = recorded(graph, buffers)?;
        let memory = buffers.iter().map(|(id, buffer)| {
            let Slice { page, offset } = buffer.slice();
            let page = self.core.pools.memory(page).clone();
            BoundPage { buffer: *id, page, offset, bytes: buffer.bytes() }
        });
        let memory = Vec::from_iter(memory);
        let mut exec = self.core.backend.adopt(graph, schedule, &memory, registry)?;
        if let Err(failed) = self.core.backend.upload(self.fold(caller), &mut exec) {
            self.core.backend.destroy(exec);
            return Err(failed.into());
        }
        let touch = recorded.touch().into();
        let held = buffers.iter().map(|(_, buffer)| buffer.clone()).collect();
        Ok(self.core.enter(Sealed { exec, recorded, touch, held, set: Some(set_all::<B>) }))
    }
}

fn set_all<B: Adopt>(
    backend: &mut Caught<B>,
    exec: &mut B::Exec,
    values: &[(SlotId, Scalar)],
) -> Result<(), BackendError> {
    values.iter().try_for_each(|&(slot, value)| backend.set(exec, slot, value))
}

impl<B: Adopt> Adopt for Caught<B> {
    fn adopt(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        memory: &[BoundPage<B::Page>],
        registry: &Registry,
    ) -> Result<B::Exec, BackendError> {
        attempt(Step::Instantiate, || self.0.adopt(graph, schedule, memory, registry))
    }

    fn set(&mut self, exec: &mut B::Exec, slot: SlotId, value: Scalar) -> Result<(), BackendError> {
        attempt(Step::Launch, || self.0.set(exec, slot, value))
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
    let mut place: FxHashMap<BufferId, usize> = FxHashMap::default();
    for (at, (id, buffer)) in buffers.iter().enumerate() {
        let declared = graph.buffers().get(id.index());
        let declared = declared.ok_or_else(|| wrong(format!("it has no {id}")))?;
        if declared.bytes != buffer.bytes() {
            let (name, has, needs) = (buffer.name(), buffer.bytes(), declared.bytes);
            return Err(wrong(format!("{name} has {has} bytes, {id} has {needs}")));
        }
        if place.insert(*id, at).is_some() {
            return Err(wrong(format!("{id} is given twice")));
        }
    }
    let mut recorded = Recorded::default();
    recorded.name = graph.name().into();
    for &id in graph.topological_order() {
        let node = graph.node(id);
        let used = uses_of(graph, id, buffers, &place);
        let used = used.map_err(|buffer| {
            wrong(format!("{id} ({}) uses {buffer}, which has no memory", node.name))
        })?;
        recorded.note_node(&node.name, used.iter().map(|&(at, used)| (&buffers[at].1, used)));
    }
    Ok(recorded)
}

/// The places in `buffers` of what a node uses, or a buffer of the user's that is not there.
fn uses_of(
    graph: &ComputeGraph,
    id: NodeId,
    buffers: &[(BufferId, Buffer)],
    place: &FxHashMap<BufferId, usize>,
) -> Result<Vec<(usize, Use)>, BufferId> {
    let effects = graph.effects(id);
    let Some(regions) = effects.known() else {
        // A host function reaches the memory of a device through what it declares only.
        let host = matches!(graph.node(id).kind, NodeKind::Host(_));
        let all = if host { 0 } else { buffers.len() };
        return Ok((0..all)
            .map(|at| (at, Use { reads: true, writes: true, whole: false }))
            .collect());
    };
    let mut own: Vec<usize> = Vec::new();
    let mut local = Vec::new();
    for (region, access) in regions {
        let Some(&at) = place.get(&region.buffer) else {
            if graph.buffer(region.buffer).role == phonograph_graph::BufferRole::Internal {
                continue;
            }
            return Err(region.buffer);
        };
        let index = own.iter().position(|&known| known == at).unwrap_or_else(|| {
            own.push(at);
            own.len() - 1
        });
        local.push((Region { buffer: BufferId::from_index(index), ..*region }, *access));
    }
    let of: Vec<Buffer> = own.iter().map(|&at| buffers[at].1.clone()).collect();
    Ok(own.into_iter().zip(uses(&of, &local)).collect())
}
