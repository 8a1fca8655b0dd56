//! A device that many callers share, on wgpu: software graphs.
//!
//! An eager operation is a graph of one node. A window keeps what is recorded as nodes of one graph, each operation a child
//! graph, and instantiates that when it ends; a graph that was built as data is instantiated as it is. There is one queue,
//! so streams that wait for one another do so already: work runs in the order in which it is issued or recorded. Work that
//! may fail for what its data are (gather, scatter-add) or that the host has to decide on its way (conditionals) is waited
//! for when it is issued; everything else is told by a fence.

use std::collections::BTreeMap;
use std::fmt::Display;

use phonograph_graph::{
    BufferId, BufferRole, ComputeGraph, GraphBuilder, GraphError, Scalar, Schedule, Slot, SlotId,
    Space,
};
use phonograph_runtime::pool::Place;
use phonograph_runtime::streams::{
    Adopt, Adopted, Backend, BackendError, BoundPage, BufferKey, Failed, GraphKind, Issued, Placed,
    PooledStreamId, SlotKey, Step, Ticket, Wait, Waiting, external,
};
use rustc_hash::FxHashMap;

use crate::bindings::Bindings;
use crate::exec::Exec;
use crate::memory::Memory;
use crate::shader::Shader;
use crate::wgpu_device::Wgpu;

const SPACE: Space = Space::Device(0);

/// A [`Wgpu`], shared: the backend of a [`Device`](phonograph_runtime::streams::Device).
///
/// ```
/// use phonograph_runtime::streams::Device;
/// use phonograph_wgpu::{Wgpu, WgpuBackend};
///
/// let gpu = match Wgpu::new() {
///     Ok(gpu) => gpu,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let device = Device::new(WgpuBackend::new(gpu), 4)?;
/// let stream = device.stream();
/// let x = stream.alloc("x", 4)?;
/// stream.write(&x, b"here")?;
/// assert_eq!(stream.read(&x)?, b"here");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WgpuBackend {
    gpu: Wgpu,
    kernels: FxHashMap<String, Shader>,
    open: BTreeMap<PooledStreamId, WgpuRecording>,
    /// The stream that began the recording that a stream is in.
    members: BTreeMap<PooledStreamId, PooledStreamId>,
}

/// A recording: a graph that is being built, and what its buffers and slots stand for.
#[derive(Default)]
pub struct WgpuRecording {
    builder: GraphBuilder,
    memory: BTreeMap<BufferKey, (BufferId, Memory)>,
    slots: BTreeMap<SlotKey, SlotId>,
}

/// A graph that can be launched.
pub struct WgpuExec {
    exec: Exec,
    slots: BTreeMap<SlotKey, SlotId>,
}

/// An operation ready to run.
pub struct WgpuOperation(Exec);

/// Says which step something was wrong in.
fn at<E: Display>(step: Step) -> impl Fn(E) -> BackendError {
    move |error| BackendError::new(step, error)
}

impl WgpuBackend {
    /// A device to be shared.
    pub fn new(gpu: Wgpu) -> Self {
        let (kernels, open, members) = (FxHashMap::default(), BTreeMap::new(), BTreeMap::new());
        Self { gpu, kernels, open, members }
    }

    /// The kernel that operations call by this name. A page holds several buffers, so one that reads some and writes others
    /// may be refused: wgpu wants those in buffers of its own apart.
    pub fn kernel(mut self, name: &str, shader: &Shader) -> Self {
        self.kernels.insert(name.to_owned(), shader.clone());
        self
    }

    fn executable(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        memory: &[(BufferId, Memory)],
        step: Step,
    ) -> Result<Exec, BackendError> {
        let kernels = self.kernels.iter();
        let bindings = kernels.fold(Bindings::new(), |b, (name, shader)| b.kernel(name, shader));
        let bindings = memory.iter().fold(bindings, |b, (id, part)| b.memory(*id, part));
        self.gpu.instantiate(graph, schedule, &bindings).map_err(at(step))
    }

    fn issue(gpu: &mut Wgpu, exec: &mut Exec, step: Step) -> Result<Issued, BackendError> {
        if exec.may_fail() {
            gpu.replay(exec).map_err(at(step))?;
            return Ok(Issued::Done);
        }
        gpu.launch(exec).map_err(at(step))?;
        Ok(Issued::Pending)
    }

    /// The recording that a stream is in.
    fn recording(&mut self, on: PooledStreamId) -> Option<&mut WgpuRecording> {
        self.open.get_mut(self.members.get(&on)?)
    }

    fn take(&mut self, origin: PooledStreamId) -> Option<WgpuRecording> {
        self.members.retain(|_, began| *began != origin);
        self.open.remove(&origin)
    }
}

/// The graph of one operation. `role` and `outer` say what its buffers and slots are of a graph around it, if there is one.
fn alone(
    op: &Placed<'_, Memory>,
    role: impl Fn(usize) -> BufferRole,
    outer: impl Fn(usize) -> Option<SlotId>,
) -> Result<ComputeGraph, GraphError> {
    let mut builder = GraphBuilder::new();
    for (at, operand) in op.operands.iter().enumerate() {
        let declared = external(&operand.name, operand.bytes, SPACE);
        builder.declare(phonograph_graph::Buffer { role: role(at), ..declared });
    }
    for (at, slot) in op.slots.iter().enumerate() {
        let (name, default) = (slot.unique_name().into(), slot.default_value());
        builder.declare_slot(Slot { name, default, outer: outer(at) });
    }
    builder.add(op.name, op.kind.clone());
    builder.build()
}

/// Where the buffers of an operation lie.
fn parts(op: &Placed<'_, Memory>, step: Step) -> Result<Vec<Memory>, BackendError> {
    let parts = op.operands.iter();
    parts.map(|operand| part(&operand.page, operand.offset, operand.bytes, step)).collect()
}

fn part(page: &Memory, offset: u64, bytes: u64, step: Step) -> Result<Memory, BackendError> {
    let part = page.part(offset, bytes);
    part.ok_or_else(|| BackendError::new(step, "a buffer reaches past the end of its page"))
}

impl WgpuRecording {
    fn record(&mut self, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let parts = parts(op, Step::Record)?;
        let buffers = op.operands.iter().zip(parts).map(|(operand, part)| {
            let new = || {
                let declared = external(&operand.name, operand.bytes, SPACE);
                (self.builder.declare(declared), part)
            };
            self.memory.entry(operand.key).or_insert_with(new).0
        });
        let buffers: Vec<BufferId> = buffers.collect();
        let slots = op.slots.iter().map(|slot| {
            let new = || self.builder.slot(&slot.unique_name(), slot.default_value());
            *self.slots.entry(slot.key()).or_insert_with(new)
        });
        let slots: Vec<SlotId> = slots.collect();
        let graph = alone(op, |at| BufferRole::Outer(buffers[at]), |at| Some(slots[at]));
        self.builder.add_child(op.name, graph.map_err(at(Step::Record))?);
        Ok(())
    }
}

impl Backend for WgpuBackend {
    type Page = Memory;
    type Prepared = WgpuOperation;
    type Recording = WgpuRecording;
    type Exec = WgpuExec;

    fn graph_kind(&self) -> GraphKind {
        GraphKind::Software
    }

    /// All memory is the device's.
    fn allocate(&mut self, bytes: u64, _: Place) -> Result<Memory, BackendError> {
        self.gpu.alloc(bytes).map_err(at(Step::Allocate))
    }

    /// wgpu keeps it until what was submitted with it is done.
    fn free(&mut self, page: Memory) {
        drop(page);
    }

    fn write(
        &mut self,
        _: PooledStreamId,
        page: &Memory,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Issued, BackendError> {
        self.gpu.write_at(page, offset, bytes).map_err(at(Step::Write))?;
        Ok(Issued::Pending)
    }

    fn read(
        &mut self,
        _: PooledStreamId,
        page: &Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        self.gpu.read_at(page, offset, into).map_err(at(Step::Read))
    }

    fn prepare(&mut self, op: &Placed<'_, Memory>) -> Result<WgpuOperation, BackendError> {
        let graph = alone(op, |_| BufferRole::External, |_| None).map_err(at(Step::Prepare))?;
        let parts = parts(op, Step::Prepare)?.into_iter().enumerate();
        let memory: Vec<_> = parts.map(|(at, part)| (BufferId::from_index(at), part)).collect();
        let schedule = Schedule::sequential(&graph);
        Ok(WgpuOperation(self.executable(&graph, &schedule, &memory, Step::Prepare)?))
    }

    fn run(
        &mut self,
        _: PooledStreamId,
        op: &mut WgpuOperation,
        _: Ticket,
    ) -> Result<Issued, BackendError> {
        Self::issue(&mut self.gpu, &mut op.0, Step::Run)
    }

    fn release(&mut self, op: WgpuOperation) {
        drop(op);
    }

    /// The queue keeps the order; a stream that waits for one that records is in its recording from then on.
    fn order(&mut self, on: PooledStreamId, after: PooledStreamId) -> Result<(), BackendError> {
        let wrong = |problem: &str| Err(BackendError::new(Step::Order, problem));
        match (self.members.get(&on), self.members.get(&after)) {
            (None, None) => Ok(()),
            (Some(_), None) => wrong("the stream records; what it waits for does not"),
            (Some(mine), Some(theirs)) if mine != theirs => {
                wrong("the streams are in different recordings")
            }
            (_, Some(&origin)) => {
                self.members.insert(on, origin);
                Ok(())
            }
        }
    }

    fn fence(&mut self, _: PooledStreamId) -> Result<Vec<Failed>, BackendError> {
        self.gpu.synchronize().map_err(at(Step::Fence))?;
        Ok(Vec::new())
    }

    fn mark(&mut self, _: PooledStreamId, _: Waiting) -> Result<Option<Wait>, BackendError> {
        let wait = self.gpu.wait_for_submitted().map_err(at(Step::Fence))?;
        Ok(Some(Box::new(|| wait().map_err(at(Step::Fence)))))
    }

    /// What may fail by itself was waited for when it was issued; a loss is told by the wait.
    fn settle(&mut self, _: PooledStreamId, _: Ticket) -> Result<Vec<Failed>, BackendError> {
        Ok(Vec::new())
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        self.open.insert(on, WgpuRecording::default());
        self.members.insert(on, on);
        Ok(())
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        self.recording(on).ok_or_else(|| not_recording(Step::Record))?.record(op)
    }

    fn end(&mut self, on: PooledStreamId) -> Result<WgpuRecording, BackendError> {
        self.take(on).ok_or_else(|| not_recording(Step::End))
    }

    fn discard(&mut self, on: PooledStreamId) {
        drop(self.take(on));
    }

    fn instantiate(&mut self, recording: WgpuRecording) -> Result<WgpuExec, BackendError> {
        let WgpuRecording { builder, memory, slots } = recording;
        let graph = builder.build().map_err(at(Step::Instantiate))?;
        let memory = Vec::from_iter(memory.into_values());
        // Work is recorded in an order that it may run in, and one queue takes nothing else.
        let schedule = Schedule::sequential(&graph);
        let exec = self.executable(&graph, &schedule, &memory, Step::Instantiate)?;
        Ok(WgpuExec { exec, slots })
    }

    /// The executable is where it runs.
    fn upload(&mut self, _: PooledStreamId, _: &mut WgpuExec) -> Result<(), BackendError> {
        Ok(())
    }

    fn launch(
        &mut self,
        _: PooledStreamId,
        exec: &mut WgpuExec,
        values: &BTreeMap<SlotKey, Scalar>,
        _: Ticket,
    ) -> Result<Issued, BackendError> {
        for (key, &value) in values {
            if let Some(&slot) = exec.slots.get(key) {
                exec.exec.set(slot, value).map_err(at(Step::Launch))?;
            }
        }
        Self::issue(&mut self.gpu, &mut exec.exec, Step::Launch)
    }

    fn destroy(&mut self, exec: WgpuExec) {
        drop(exec);
    }
}

impl Adopt for WgpuBackend {
    const HOST_REACHES_DEVICE: bool = false;

    /// One queue, where the next dispatch that touches the same buffer waits: what is planned apart would not run apart.
    fn lanes(&self) -> u32 {
        1
    }

    /// The functions that come with the graph are the host's, which a software graph cannot call: a node that names one is
    /// refused.
    fn adopt(
        &mut self,
        adopted: &Adopted<'_>,
        memory: &[BoundPage<Memory>],
    ) -> Result<WgpuExec, BackendError> {
        let step = Step::Instantiate;
        let parts = memory.iter().map(|BoundPage { buffer, page, offset, bytes }| {
            Ok((*buffer, part(page, *offset, *bytes, step)?))
        });
        let parts = parts.collect::<Result<Vec<_>, BackendError>>()?;
        let exec = self.executable(adopted.graph, adopted.schedule, &parts, step)?;
        let slots = adopted.slots.iter().map(|(id, slot)| (slot.key(), *id)).collect();
        Ok(WgpuExec { exec, slots })
    }
}

fn not_recording(step: Step) -> BackendError {
    BackendError::new(step, "the stream does not record")
}
