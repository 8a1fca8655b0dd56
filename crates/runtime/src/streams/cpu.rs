//! The CPU as a shared device, in two modes.
//!
//! [`SoftwareCpu`] has no notion of capturing: work that is issued runs, whoever records. [`DriverCpu`] does as a driver in
//! its relaxed mode does: work that is *issued* to a stream that captures becomes part of the capture, whoever issued it; a
//! wait for such a stream, a copy that waits, or a launch on it breaks the capture, which then ends in an error. The runtime
//! above has to see to it that neither happens. Either records into a session, whose graph is instantiated with the
//! sequential schedule, through the checker.

use std::collections::BTreeMap;

use phonograph_capture::session::{StreamCapture, StreamId};
use phonograph_graph::{
    Buffer, BufferId, BufferRole, ComputeGraph, DEFAULT_ALIGN, GraphBuilder, Scalar, Schedule,
    SlotId, Space,
};

use super::adopt::{Adopt, BoundPage};
use super::backend::{Backend, BackendError, GraphKind, Placed, PooledStreamId, Step};
use super::op::remap;
use crate::cpu::kernels::Registry;
use crate::cpu::{Bindings, Cpu, Exec, Memory};
use crate::pool::PageId;

struct Core {
    cpu: Cpu,
    registry: Registry,
}

impl Core {
    fn allocate(&mut self, bytes: u64) -> Result<Memory, BackendError> {
        self.cpu.alloc(bytes).map_err(|e| BackendError::new(Step::Allocate, e))
    }

    fn write(&mut self, page: &Memory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Write, e);
        let all = self.cpu.slice_mut::<u8>(page).map_err(|e| wrong(&e))?;
        let start = offset as usize;
        let part = all.get_mut(start..start + bytes.len());
        part.ok_or_else(|| wrong(&"past the end of the page"))?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, page: &Memory, offset: u64, into: &mut [u8]) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Read, e);
        let all = self.cpu.slice::<u8>(page).map_err(|e| wrong(&e))?;
        let start = offset as usize;
        let part = all.get(start..start + into.len());
        into.copy_from_slice(part.ok_or_else(|| wrong(&"past the end of the page"))?);
        Ok(())
    }

    fn run(&mut self, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Run, e);
        let mut builder = GraphBuilder::new();
        for (id, page) in op.pages {
            builder.declare(declared(*id, page));
        }
        builder.add(op.name, op.kind.clone());
        let graph = builder.build().map_err(|e| wrong(&e))?;
        let pages = op.pages.iter().enumerate();
        let pages = pages.map(|(at, (_, page))| (BufferId::from_index(at), page.clone()));
        let mut exec = self.instantiate(&graph, &Vec::from_iter(pages), Step::Run)?;
        self.cpu.replay(&mut exec).map_err(|e| wrong(&e))
    }

    fn instantiate(
        &self,
        graph: &ComputeGraph,
        pages: &[(BufferId, Memory)],
        step: Step,
    ) -> Result<Exec, BackendError> {
        let schedule = Schedule::sequential(graph);
        let bindings = Bindings::new(&self.registry);
        let bindings = pages.iter().fold(bindings, |b, (id, page)| b.memory(*id, page));
        let exec = self.cpu.instantiate(graph, &schedule, &bindings);
        exec.map_err(|e| BackendError::new(step, e))
    }

    fn adopt(
        &self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        pages: &[BoundPage<Memory>],
        registry: &Registry,
    ) -> Result<Exec, BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Instantiate, e);
        let mut parts = Vec::with_capacity(pages.len());
        for BoundPage { buffer, page, offset, bytes } in pages {
            let part = page.part(*offset, *bytes);
            parts.push((*buffer, part.ok_or_else(|| wrong(&"past the end of the page"))?));
        }
        let registry = self.registry.with(registry);
        let bindings = Bindings::new(&registry);
        let bindings = parts.iter().fold(bindings, |b, (id, part)| b.memory(*id, part));
        self.cpu.instantiate(graph, schedule, &bindings).map_err(|e| wrong(&e))
    }

    fn launch(&mut self, exec: &mut Exec) -> Result<(), BackendError> {
        self.cpu.replay(exec).map_err(|e| BackendError::new(Step::Launch, e))
    }
}

fn declared(id: PageId, page: &Memory) -> Buffer {
    Buffer {
        name: id.to_string().into(),
        bytes: page.bytes(),
        align: DEFAULT_ALIGN,
        role: BufferRole::External,
        space: Space::Host { pageable: true },
    }
}

/// A recording: a session of one stream, and the pages that its buffers stand for.
#[derive(Debug)]
pub struct CpuRecording {
    session: StreamCapture,
    stream: StreamId,
    pages: BTreeMap<PageId, (BufferId, Memory)>,
}

impl CpuRecording {
    fn begin(on: PooledStreamId) -> Result<Self, BackendError> {
        let mut session = StreamCapture::new();
        let stream = StreamId(on.0);
        session.begin_capture(stream).map_err(|e| BackendError::new(Step::Begin, e))?;
        Ok(Self { session, stream, pages: BTreeMap::new() })
    }

    fn record(&mut self, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Record, e);
        let buffers = op.pages.iter().map(|(id, page)| {
            let new = || (self.session.declare(declared(*id, page)), page.clone());
            self.pages.entry(*id).or_insert_with(new).0
        });
        let buffers: Vec<BufferId> = buffers.collect();
        let kind = remap(op.kind, |id| Some((*buffers.get(id.index())?, 0)));
        let kind = kind.map_err(|e| wrong(&e))?;
        self.session.record(self.stream, op.name, kind).map_err(|e| wrong(&e))?;
        Ok(())
    }

    fn seal(self, core: &Core) -> Result<Exec, BackendError> {
        let graph = self.session.end_capture(self.stream);
        let graph = graph.map_err(|e| BackendError::new(Step::Instantiate, e))?;
        core.instantiate(&graph, &Vec::from_iter(self.pages.into_values()), Step::Instantiate)
    }
}

/// The CPU with software graphs.
pub struct SoftwareCpu {
    core: Core,
    open: BTreeMap<PooledStreamId, CpuRecording>,
}

impl SoftwareCpu {
    /// A device from workers and the functions that operations name.
    pub fn new(cpu: Cpu, registry: Registry) -> Self {
        Self { core: Core { cpu, registry }, open: BTreeMap::new() }
    }
}

impl Backend for SoftwareCpu {
    type Page = Memory;
    type Recording = CpuRecording;
    type Exec = Exec;

    fn graph_kind(&self) -> GraphKind {
        GraphKind::Software
    }

    fn allocate(&mut self, bytes: u64) -> Result<Memory, BackendError> {
        self.core.allocate(bytes)
    }

    fn free(&mut self, page: Memory) {
        drop(page);
    }

    fn write(
        &mut self,
        _: PooledStreamId,
        page: &Memory,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.core.write(page, offset, bytes)
    }

    fn read(
        &mut self,
        _: PooledStreamId,
        page: &Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        self.core.read(page, offset, into)
    }

    fn run(&mut self, _: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        self.core.run(op)
    }

    /// Work is done when it has been issued.
    fn fence(&mut self, _: PooledStreamId) -> Result<(), BackendError> {
        Ok(())
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        self.open.insert(on, CpuRecording::begin(on)?);
        Ok(())
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let open = self.open.get_mut(&on);
        open.ok_or_else(|| not_recording(Step::Record))?.record(op)
    }

    fn end(&mut self, on: PooledStreamId) -> Result<CpuRecording, BackendError> {
        self.open.remove(&on).ok_or_else(|| not_recording(Step::End))
    }

    fn discard(&mut self, on: PooledStreamId) {
        self.open.remove(&on);
    }

    fn instantiate(&mut self, recording: CpuRecording) -> Result<Exec, BackendError> {
        recording.seal(&self.core)
    }

    /// The executable is where it runs.
    fn upload(&mut self, _: PooledStreamId, _: &mut Exec) -> Result<(), BackendError> {
        Ok(())
    }

    fn launch(&mut self, _: PooledStreamId, exec: &mut Exec) -> Result<(), BackendError> {
        self.core.launch(exec)
    }

    fn destroy(&mut self, exec: Exec) {
        drop(exec);
    }
}

impl Adopt for SoftwareCpu {
    fn adopt(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        memory: &[BoundPage<Memory>],
        registry: &Registry,
    ) -> Result<Exec, BackendError> {
        self.core.adopt(graph, schedule, memory, registry)
    }

    fn set(&mut self, exec: &mut Exec, slot: SlotId, value: Scalar) -> Result<(), BackendError> {
        set(exec, slot, value)
    }
}

struct Captured {
    recording: CpuRecording,
    /// The call that broke the capture.
    broken: Option<Step>,
}

/// The CPU behind a driver that captures streams by itself.
pub struct DriverCpu {
    core: Core,
    open: BTreeMap<PooledStreamId, Captured>,
}

impl DriverCpu {
    /// A device from workers and the functions that operations name.
    pub fn new(cpu: Cpu, registry: Registry) -> Self {
        Self { core: Core { cpu, registry }, open: BTreeMap::new() }
    }

    /// A call that a capturing stream does not bear breaks the capture.
    fn outside(&mut self, on: PooledStreamId, step: Step) -> Result<(), BackendError> {
        match self.open.get_mut(&on) {
            None => Ok(()),
            Some(captured) => {
                captured.broken.get_or_insert(step);
                Err(BackendError::new(step, "operation not permitted when stream is capturing"))
            }
        }
    }
}

impl Backend for DriverCpu {
    type Page = Memory;
    type Recording = CpuRecording;
    type Exec = Exec;

    fn graph_kind(&self) -> GraphKind {
        GraphKind::Hardware
    }

    fn allocate(&mut self, bytes: u64) -> Result<Memory, BackendError> {
        self.core.allocate(bytes)
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
    ) -> Result<(), BackendError> {
        self.outside(on, Step::Write)?;
        self.core.write(page, offset, bytes)
    }

    fn read(
        &mut self,
        on: PooledStreamId,
        page: &Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        self.outside(on, Step::Read)?;
        self.core.read(page, offset, into)
    }

    /// On a stream that captures, the driver records instead.
    fn run(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        if self.open.contains_key(&on) { self.record(on, op) } else { self.core.run(op) }
    }

    fn fence(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        self.outside(on, Step::Fence)
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        self.outside(on, Step::Begin)?;
        let recording = CpuRecording::begin(on)?;
        self.open.insert(on, Captured { recording, broken: None });
        Ok(())
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let captured = self.open.get_mut(&on).ok_or_else(|| not_recording(Step::Record))?;
        match captured.broken {
            Some(by) => Err(broken(Step::Record, by)),
            None => captured.recording.record(op),
        }
    }

    fn end(&mut self, on: PooledStreamId) -> Result<CpuRecording, BackendError> {
        let captured = self.open.remove(&on).ok_or_else(|| not_recording(Step::End))?;
        match captured.broken {
            Some(by) => Err(broken(Step::End, by)),
            None => Ok(captured.recording),
        }
    }

    fn discard(&mut self, on: PooledStreamId) {
        self.open.remove(&on);
    }

    fn instantiate(&mut self, recording: CpuRecording) -> Result<Exec, BackendError> {
        recording.seal(&self.core)
    }

    fn upload(&mut self, on: PooledStreamId, _: &mut Exec) -> Result<(), BackendError> {
        self.outside(on, Step::Upload)
    }

    fn launch(&mut self, on: PooledStreamId, exec: &mut Exec) -> Result<(), BackendError> {
        self.outside(on, Step::Launch)?;
        self.core.launch(exec)
    }

    fn destroy(&mut self, exec: Exec) {
        drop(exec);
    }
}

impl Adopt for DriverCpu {
    fn adopt(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        memory: &[BoundPage<Memory>],
        registry: &Registry,
    ) -> Result<Exec, BackendError> {
        self.core.adopt(graph, schedule, memory, registry)
    }

    fn set(&mut self, exec: &mut Exec, slot: SlotId, value: Scalar) -> Result<(), BackendError> {
        set(exec, slot, value)
    }
}

fn set(exec: &mut Exec, slot: SlotId, value: Scalar) -> Result<(), BackendError> {
    exec.set(slot, value).map_err(|e| BackendError::new(Step::Launch, e))
}

fn not_recording(step: Step) -> BackendError {
    BackendError::new(step, "the stream does not record")
}

fn broken(step: Step, by: Step) -> BackendError {
    BackendError::new(step, format_args!("the capture was invalidated by a {by}"))
}
