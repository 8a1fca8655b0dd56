//! The CPU as a shared device, in two modes.
//!
//! [`SoftwareCpu`] has no notion of capturing: work that is issued runs, whoever records. [`DriverCpu`] does as a driver in
//! its relaxed mode does: work that is *issued* to a stream that captures becomes part of the capture, whoever issued it; a
//! wait for such a stream, a copy that waits, or a launch on it breaks the capture, which then ends in an error, as does one
//! with streams that have not come back to where it began. The runtime above has to see to it that none of this happens.
//! Either records into a session, whose graph is instantiated, through the checker, with the schedule that it was recorded
//! by or one of the user's.

use std::collections::{BTreeMap, BTreeSet};

use phonograph_capture::session::{CaptureEvent, StreamCapture, StreamId};
use phonograph_graph::{
    BufferId, ComputeGraph, GraphBuilder, NodeKind, Scalar, Schedule, SlotId, Space,
};

use super::adopt::{Adopt, Adopted, BoundPage};
use super::backend::{
    Backend, BackendError, Failed, GraphKind, Issued, Operand, Placed, PooledStreamId, Step, Ticket,
};
use super::handle::{BufferKey, Slot, SlotKey};
use super::op::{external, remap};
use super::recorded::recorded_schedule;
use crate::cpu::kernels::Registry;
use crate::cpu::{Bindings, Cpu, Exec, Memory};
use crate::pool::Place;

const SPACE: Space = Space::Host { pageable: true };

/// The CPU with software graphs.
pub type SoftwareCpu = SharedCpu<false>;

/// The CPU behind a driver that captures streams by itself.
pub type DriverCpu = SharedCpu<true>;

/// How a recording is to be run.
type Plan = Box<dyn FnMut(&ComputeGraph) -> Schedule + Send>;

/// The CPU as a shared device, with or without a driver.
pub struct SharedCpu<const DRIVER: bool> {
    cpu: Cpu,
    registry: Registry,
    plan: Plan,
    open: BTreeMap<PooledStreamId, Captured>,
    /// The stream that began the recording that a stream is in.
    members: BTreeMap<PooledStreamId, PooledStreamId>,
}

/// A recording: a session, and what its buffers and slots stand for.
pub struct CpuRecording {
    session: StreamCapture,
    origin: StreamId,
    buffers: BTreeMap<BufferKey, (BufferId, Memory)>,
    slots: BTreeMap<SlotKey, SlotId>,
    events: u32,
}

struct Captured {
    recording: CpuRecording,
    /// The call that broke the capture.
    broken: Option<Step>,
    /// Streams that have done something that the origin has not waited for since.
    unjoined: BTreeSet<PooledStreamId>,
}

/// A graph that can be launched.
pub struct CpuExec {
    exec: Exec,
    slots: BTreeMap<SlotKey, SlotId>,
}

/// An operation ready to run; behind a driver also as it was given, which records it if its stream captures.
pub struct CpuOperation {
    exec: Exec,
    given: Option<Given>,
}

/// An operation as it was given.
struct Given {
    name: String,
    kind: NodeKind,
    operands: Vec<Operand<Memory>>,
    slots: Vec<Slot>,
}

impl CpuRecording {
    fn begin(on: PooledStreamId) -> Result<Self, BackendError> {
        let mut session = StreamCapture::new();
        let origin = StreamId(on.0);
        session.begin_capture(origin).map_err(|e| BackendError::new(Step::Begin, e))?;
        let (buffers, slots) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { session, origin, buffers, slots, events: 0 })
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Record, e);
        let mut buffers = Vec::with_capacity(op.operands.len());
        for operand in op.operands {
            let id = match self.buffers.get(&operand.key) {
                Some((id, _)) => *id,
                None => {
                    let memory = part(operand).ok_or_else(|| wrong(&"past the end of the page"))?;
                    let declared = external(&operand.name, operand.bytes, SPACE);
                    let id = self.session.declare(declared);
                    self.buffers.insert(operand.key, (id, memory));
                    id
                }
            };
            buffers.push(id);
        }
        let slots = op.slots.iter().map(|slot| {
            let new = || self.session.slot(&slot.unique_name(), slot.default_value());
            *self.slots.entry(slot.key()).or_insert_with(new)
        });
        let slots: Vec<SlotId> = slots.collect();
        let buffer = |id: BufferId| buffers.get(id.index()).copied();
        let slot = |id: SlotId| slots.get(id.index()).copied();
        let kind = remap(op.kind, &buffer, &slot).map_err(|e| wrong(&e))?;
        self.session.record(StreamId(on.0), op.name, kind).map_err(|e| wrong(&e))?;
        Ok(())
    }

    /// Puts a stream behind another; it joins if it is new.
    fn order(
        &mut self,
        on: PooledStreamId,
        after: PooledStreamId,
        joins: bool,
    ) -> Result<(), BackendError> {
        let wrong = |e| BackendError::new(Step::Order, e);
        let [on, after] = [on, after].map(|stream| StreamId(stream.0));
        let event = CaptureEvent(self.events);
        self.events += 1;
        if joins {
            self.session.begin_capture(on).map_err(wrong)?;
        }
        self.session.record_event(after, event).map_err(wrong)?;
        self.session.wait_event(on, event).map_err(wrong)
    }
}

fn part(operand: &Operand<Memory>) -> Option<Memory> {
    operand.page.part(operand.offset, operand.bytes)
}

impl<const DRIVER: bool> SharedCpu<DRIVER> {
    /// A device from workers and the functions that operations name. Recordings run by the streams they were recorded on.
    pub fn new(cpu: Cpu, registry: Registry) -> Self {
        let plan = Box::new(recorded_schedule);
        Self { cpu, registry, plan, open: BTreeMap::new(), members: BTreeMap::new() }
    }

    /// Runs recordings as `plan` says from here on. The checker looks at each schedule; a wrong one fails the seal.
    pub fn planned_by(
        mut self,
        plan: impl FnMut(&ComputeGraph) -> Schedule + Send + 'static,
    ) -> Self {
        self.plan = Box::new(plan);
        self
    }

    /// A call that a capturing stream does not bear breaks the capture.
    fn outside(&mut self, on: PooledStreamId, step: Step) -> Result<(), BackendError> {
        match self.captured(on) {
            Some(captured) if DRIVER => {
                captured.broken.get_or_insert(step);
                Err(BackendError::new(step, "operation not permitted when stream is capturing"))
            }
            _ => Ok(()),
        }
    }

    /// The recording that a stream is in.
    fn captured(&mut self, on: PooledStreamId) -> Option<&mut Captured> {
        self.open.get_mut(self.members.get(&on)?)
    }

    fn take(&mut self, origin: PooledStreamId) -> Option<Captured> {
        self.members.retain(|_, began| *began != origin);
        self.open.remove(&origin)
    }

    fn executable(
        &self,
        registry: &Registry,
        graph: &ComputeGraph,
        schedule: &Schedule,
        memory: &[(BufferId, Memory)],
        step: Step,
    ) -> Result<Exec, BackendError> {
        let bindings = Bindings::new(registry);
        let bindings = memory.iter().fold(bindings, |b, (id, part)| b.memory(*id, part));
        let exec = self.cpu.instantiate(graph, schedule, &bindings);
        exec.map_err(|e| BackendError::new(step, e))
    }
}

impl<const DRIVER: bool> Backend for SharedCpu<DRIVER> {
    type Page = Memory;
    type Prepared = CpuOperation;
    type Recording = CpuRecording;
    type Exec = CpuExec;

    fn graph_kind(&self) -> GraphKind {
        if DRIVER { GraphKind::Hardware } else { GraphKind::Software }
    }

    /// All memory is the host's.
    fn allocate(&mut self, bytes: u64, _: Place) -> Result<Memory, BackendError> {
        self.cpu.alloc(bytes).map_err(|e| BackendError::new(Step::Allocate, e))
    }

    fn free(&mut self, page: Memory) {
        drop(page);
    }

    fn write(
        &mut self,
        on: PooledStreamId,
        page: &Memory,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Issued, BackendError> {
        self.outside(on, Step::Write)?;
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Write, e);
        let all = self.cpu.slice_mut::<u8>(page).map_err(|e| wrong(&e))?;
        let start = offset as usize;
        let part = all.get_mut(start..start + bytes.len());
        part.ok_or_else(|| wrong(&"past the end of the page"))?.copy_from_slice(bytes);
        Ok(Issued::Done)
    }

    fn read(
        &mut self,
        on: PooledStreamId,
        page: &Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        self.outside(on, Step::Read)?;
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Read, e);
        let all = self.cpu.slice::<u8>(page).map_err(|e| wrong(&e))?;
        let start = offset as usize;
        let part = all.get(start..start + into.len());
        into.copy_from_slice(part.ok_or_else(|| wrong(&"past the end of the page"))?);
        Ok(())
    }

    fn prepare(&mut self, op: &Placed<'_, Memory>) -> Result<CpuOperation, BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Prepare, e);
        let mut builder = GraphBuilder::new();
        let mut memory = Vec::with_capacity(op.operands.len());
        for operand in op.operands {
            let id = builder.declare(external(&operand.name, operand.bytes, SPACE));
            memory.push((id, part(operand).ok_or_else(|| wrong(&"past the end of the page"))?));
        }
        for slot in op.slots {
            builder.slot(&slot.unique_name(), slot.default_value());
        }
        builder.add(op.name, op.kind.clone());
        let graph = builder.build().map_err(|e| wrong(&e))?;
        let schedule = Schedule::sequential(&graph);
        let exec = self.executable(&self.registry, &graph, &schedule, &memory, Step::Prepare)?;
        let given = DRIVER.then(|| Given {
            name: op.name.into(),
            kind: op.kind.clone(),
            operands: op.operands.into(),
            slots: op.slots.into(),
        });
        Ok(CpuOperation { exec, given })
    }

    /// On a stream that captures, the driver records instead.
    fn run(
        &mut self,
        on: PooledStreamId,
        op: &mut CpuOperation,
        _: Ticket,
    ) -> Result<Issued, BackendError> {
        if let (Some(Given { name, kind, operands, slots }), true) =
            (&op.given, self.members.contains_key(&on))
        {
            self.record(on, &Placed { name, kind, operands, slots })?;
            return Ok(Issued::Done);
        }
        self.cpu.replay(&mut op.exec).map_err(|e| BackendError::new(Step::Run, e))?;
        Ok(Issued::Done)
    }

    fn release(&mut self, op: CpuOperation) {
        drop(op);
    }

    fn order(&mut self, on: PooledStreamId, after: PooledStreamId) -> Result<(), BackendError> {
        let wrong = |problem: &str| Err(BackendError::new(Step::Order, problem));
        let (mine, theirs) = (self.members.get(&on).copied(), self.members.get(&after).copied());
        match (mine, theirs) {
            (None, None) => return Ok(()), // work is done when it has been issued
            (Some(_), None) => return wrong("the stream records; what it waits for does not"),
            (Some(mine), Some(theirs)) if mine != theirs => {
                return wrong("the streams are in different recordings");
            }
            _ => {}
        }
        let Some(captured) = self.captured(after) else { return wrong("nothing records") };
        if let Some(by) = captured.broken {
            return Err(broken(Step::Order, by));
        }
        captured.recording.order(on, after, mine.is_none())?;
        if captured.recording.origin == StreamId(on.0) {
            captured.unjoined.remove(&after);
        } else {
            captured.unjoined.insert(on);
        }
        if let Some(origin) = theirs {
            self.members.insert(on, origin);
        }
        Ok(())
    }

    fn fence(&mut self, on: PooledStreamId) -> Result<Vec<Failed>, BackendError> {
        self.outside(on, Step::Fence)?;
        Ok(Vec::new()) // work is done when it has been issued
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        self.outside(on, Step::Begin)?;
        let recording = CpuRecording::begin(on)?;
        self.open.insert(on, Captured { recording, broken: None, unjoined: BTreeSet::new() });
        self.members.insert(on, on);
        Ok(())
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let captured = self.captured(on).ok_or_else(|| not_recording(Step::Record))?;
        if let Some(by) = captured.broken {
            return Err(broken(Step::Record, by));
        }
        captured.recording.record(on, op)?;
        if captured.recording.origin != StreamId(on.0) {
            captured.unjoined.insert(on);
        }
        Ok(())
    }

    fn end(&mut self, on: PooledStreamId) -> Result<CpuRecording, BackendError> {
        let Captured { recording, broken: by, unjoined } =
            self.take(on).ok_or_else(|| not_recording(Step::End))?;
        match (by, unjoined.first()) {
            (Some(by), _) => Err(broken(Step::End, by)),
            (None, Some(stream)) if DRIVER => {
                let problem = format!("{stream:?} was forked and has not been joined");
                Err(BackendError::new(Step::End, problem))
            }
            (None, _) => Ok(recording),
        }
    }

    fn discard(&mut self, on: PooledStreamId) {
        drop(self.take(on));
    }

    fn instantiate(&mut self, recording: CpuRecording) -> Result<CpuExec, BackendError> {
        let CpuRecording { session, origin, buffers, slots, .. } = recording;
        let graph = session.end_capture(origin);
        let graph = graph.map_err(|e| BackendError::new(Step::Instantiate, e))?;
        let schedule = (self.plan)(&graph);
        let memory = Vec::from_iter(buffers.into_values());
        let step = Step::Instantiate;
        let exec = self.executable(&self.registry, &graph, &schedule, &memory, step)?;
        Ok(CpuExec { exec, slots })
    }

    /// The executable is where it runs.
    fn upload(&mut self, on: PooledStreamId, _: &mut CpuExec) -> Result<(), BackendError> {
        self.outside(on, Step::Upload)
    }

    fn launch(
        &mut self,
        on: PooledStreamId,
        exec: &mut CpuExec,
        values: &BTreeMap<SlotKey, Scalar>,
        _: Ticket,
    ) -> Result<Issued, BackendError> {
        self.outside(on, Step::Launch)?;
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Launch, e);
        for (key, &value) in values {
            if let Some(&slot) = exec.slots.get(key) {
                exec.exec.set(slot, value).map_err(|e| wrong(&e))?;
            }
        }
        self.cpu.replay(&mut exec.exec).map_err(|e| wrong(&e))?;
        Ok(Issued::Done)
    }

    fn destroy(&mut self, exec: CpuExec) {
        drop(exec);
    }
}

impl<const DRIVER: bool> Adopt for SharedCpu<DRIVER> {
    const HOST_REACHES_DEVICE: bool = true;

    fn lanes(&self) -> u32 {
        self.cpu.workers()
    }

    fn adopt(
        &mut self,
        adopted: &Adopted<'_>,
        memory: &[BoundPage<Memory>],
    ) -> Result<CpuExec, BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Instantiate, e);
        let registry = self.registry.with(adopted.registry);
        let mut parts = Vec::with_capacity(memory.len());
        for BoundPage { buffer, page, offset, bytes } in memory {
            let part = page.part(*offset, *bytes);
            parts.push((*buffer, part.ok_or_else(|| wrong(&"past the end of the page"))?));
        }
        let Adopted { graph, schedule, .. } = adopted;
        let exec = self.executable(&registry, graph, schedule, &parts, Step::Instantiate)?;
        let slots = adopted.slots.iter().map(|(id, slot)| (slot.key(), *id)).collect();
        Ok(CpuExec { exec, slots })
    }
}

fn not_recording(step: Step) -> BackendError {
    BackendError::new(step, "the stream does not record")
}

fn broken(step: Step, by: Step) -> BackendError {
    BackendError::new(step, format_args!("the capture was invalidated by a {by}"))
}
