//! A device that many callers share, on CUDA: pooled streams, memory pages, windows that the driver records.
//!
//! An eager operation is a graph of one node, launched on the pooled stream. A launch of such a graph costs no more than that
//! of its kernel, and everything that can be a node of a graph can so be done eagerly, by the same code; that it is kept for
//! the next time is the caller's doing.
//!
//! A window is a capture of the driver's, in its relaxed mode. What is recorded is lowered as any graph is, straight into
//! the graph that the driver records, behind what the stream has there already; so child graphs, conditionals and host
//! functions are recorded as well, and work that a library issues to the stream finds its place among them. Other streams
//! fork off and join by events, as they do for eager work.
//!
//! While a stream records, nothing here waits for it or for the whole device, either of which would break the capture.

mod adopt;
mod issued;
mod marks;
mod raw;

use std::collections::BTreeMap;
use std::fmt::Display;

use cudarc::driver::sys::{CUgraph, CUstreamCaptureMode};
use phonograph_graph::{
    BufferId, ComputeGraph, GraphBuilder, KernelRef, NodeKind, Scalar, Schedule, SlotId, Space,
};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::pool::Place;
use phonograph_runtime::streams::{
    Backend, BackendError, Failed, GraphKind, Issued, Placed, PooledStreamId, SlotKey, Step,
    Ticket, Wait, Waiting, external,
};
use rustc_hash::FxHashMap;

use crate::bindings::Bindings;
use crate::captures::Capturing;
use crate::cuda::Cuda;
use crate::error::DriverError;
use crate::graph::{Dependencies, Graph};
use crate::lower::Recorded;
use crate::memory::Memory;
use crate::module::Function;
use crate::stream::{Stream, order};
use crate::stream_capture::{self, CaptureInfo};
use issued::{Launches, Shared, lock, shared};
use marks::Marks;
pub use raw::RawGraph;

/// The stream that reads go on; no device has so many.
const READS: PooledStreamId = PooledStreamId(u32::MAX);
/// Nothing that another thread or stream does is held against a capture.
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

/// CUDA's first device of a [`Cuda`], shared: the backend of a [`Device`](phonograph_runtime::streams::Device).
///
/// ```
/// use phonograph_cuda::{Cuda, CudaBackend};
/// use phonograph_runtime::streams::Device;
///
/// let cuda = match Cuda::new() {
///     Ok(cuda) => cuda,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let device = Device::new(CudaBackend::new(cuda), 4)?;
/// let stream = device.stream();
/// let x = stream.alloc("x", 4)?;
/// stream.write(&x, b"here")?;
/// assert_eq!(stream.read(&x)?, b"here");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CudaBackend {
    cuda: Cuda,
    hosts: Registry,
    kernels: FxHashMap<String, Function>,
    /// Made when first used.
    streams: BTreeMap<PooledStreamId, Stream>,
    open: BTreeMap<PooledStreamId, (Capturing, Open)>,
    /// The stream that began the recording that a stream is in.
    members: BTreeMap<PooledStreamId, PooledStreamId>,
    launches: Launches,
    marks: Marks,
}

/// A capture that is open.
#[derive(Default)]
struct Open {
    recorded: Recorded,
    slots: BTreeMap<SlotKey, SlotId>,
}

/// A capture that has ended.
pub struct CudaRecording {
    open: Open,
    graph: Graph,
}

// SAFETY: the driver's handles in it may be used from any thread, one at a time, which owning them sees to.
unsafe impl Send for CudaRecording {}

/// A graph that can be launched. Launches that have not been waited for keep it as well.
pub struct CudaExec {
    exec: Shared,
    slots: BTreeMap<SlotKey, (SlotId, Scalar)>,
}

/// An operation ready to run.
pub struct CudaOperation(Shared);

/// Says which step something was wrong in.
fn at<E: Display>(step: Step) -> impl Fn(E) -> BackendError {
    move |error| BackendError::new(step, error)
}

impl CudaBackend {
    /// A device from the first of these devices. Matrix products are generated kernels: cuBLAS is captured while nodes are
    /// made, which no stream that records meanwhile would bear.
    pub fn new(cuda: Cuda) -> Self {
        Self {
            cuda: cuda.without_cublas(),
            hosts: Registry::new(),
            kernels: FxHashMap::default(),
            streams: BTreeMap::new(),
            open: BTreeMap::new(),
            members: BTreeMap::new(),
            launches: Launches::default(),
            marks: Marks::default(),
        }
    }

    /// Where host functions are found.
    pub fn hosts(mut self, registry: Registry) -> Self {
        self.hosts = registry;
        self
    }

    /// The kernel that operations call by this name.
    ///
    /// # Safety
    /// As for [`Bindings::kernel`].
    pub unsafe fn kernel(mut self, name: &str, function: &Function) -> Self {
        self.kernels.insert(name.to_owned(), function.clone());
        self
    }

    fn stream(&mut self, on: PooledStreamId) -> Result<Stream, DriverError> {
        if let Some(known) = self.streams.get(&on) {
            return Ok(known.clone());
        }
        let made = Stream::new(&self.cuda.devices()[0])?;
        Ok(self.streams.entry(on).or_insert(made).clone())
    }

    fn issue(
        &mut self,
        on: PooledStreamId,
        exec: &Shared,
        step: Step,
        ticket: Ticket,
    ) -> Result<Issued, BackendError> {
        let stream = self.stream(on).map_err(at(step))?;
        self.launches.issue(on, &stream, exec, step, ticket)?;
        Ok(Issued::Pending)
    }

    /// The graph that a stream records into, and what its next node comes after.
    fn position(stream: &Stream) -> Result<(CUgraph, Dependencies), BackendError> {
        let _current = stream.device().enter().map_err(at(Step::Record))?;
        // SAFETY: the stream lives, and the backend is borrowed by who issues to it.
        let info = unsafe { CaptureInfo::of(stream.handle()) };
        let problem = match info.map_err(at(Step::Record))? {
            CaptureInfo::Active { graph, after, .. } => return Ok((graph, after)),
            CaptureInfo::None => "the stream does not record",
            CaptureInfo::Invalidated => "the capture was invalidated",
        };
        Err(BackendError::new(Step::Record, problem))
    }
}

/// The graph of one operation.
fn alone(op: &Placed<'_, Memory>) -> Result<ComputeGraph, phonograph_graph::GraphError> {
    let mut builder = GraphBuilder::new();
    for operand in op.operands {
        let space = match operand.place {
            Place::Device => Space::Device(0),
            Place::Host => Space::Host { pageable: false },
        };
        builder.declare(external(&operand.name, operand.bytes, space));
    }
    for slot in op.slots {
        builder.slot(&slot.unique_name(), slot.default_value());
    }
    builder.add(op.name, op.kind.clone());
    builder.build()
}

/// Where the buffers of an operation lie.
fn parts(op: &Placed<'_, Memory>, step: Step) -> Result<Vec<Memory>, BackendError> {
    let of = op.operands.iter();
    of.map(|operand| part(&operand.page, operand.offset, operand.bytes, step)).collect()
}

fn part(page: &Memory, offset: u64, bytes: u64, step: Step) -> Result<Memory, BackendError> {
    let past_end = || BackendError::new(step, "a buffer reaches past the end of its page");
    page.part(offset, bytes).ok_or_else(past_end)
}

/// What the nodes of an operation may call and touch.
fn bindings<'a>(
    hosts: &'a Registry,
    kernels: &'a FxHashMap<String, Function>,
    kind: &NodeKind,
    parts: &'a [Memory],
) -> Bindings<'a> {
    let mut bindings = Bindings::new().hosts(hosts);
    let may_call = |name: &str| match kind {
        NodeKind::Kernel(kernel) => {
            matches!(&kernel.kernel, KernelRef::Named(called) if **called == *name)
        }
        _ => kind.has_inner_graphs(),
    };
    for (name, function) in kernels.iter().filter(|(name, _)| may_call(name)) {
        // SAFETY: `CudaBackend::kernel` was promised what this asks for.
        bindings = unsafe { bindings.kernel(name, function) };
    }
    let parts = parts.iter().enumerate();
    parts.fold(bindings, |b, (at, part)| b.memory(BufferId::from_index(at), part))
}

impl Backend for CudaBackend {
    type Page = Memory;
    type Prepared = CudaOperation;
    type Recording = CudaRecording;
    type Exec = CudaExec;

    fn graph_kind(&self) -> GraphKind {
        GraphKind::Hardware
    }

    fn allocate(&mut self, bytes: u64, place: Place) -> Result<Memory, BackendError> {
        let made = match place {
            Place::Device => self.cuda.alloc(bytes),
            Place::Host => self.cuda.alloc_host(bytes),
        };
        made.map_err(at(Step::Allocate))
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
        let stream = self.stream(on).map_err(at(Step::Write))?;
        page.write_on(&stream, offset, bytes).map_err(at(Step::Write))?;
        Ok(Issued::Pending)
    }

    fn read(
        &mut self,
        _: PooledStreamId,
        page: &Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        // What it comes after is done; it does not wait for whatever else there is on the stream.
        let stream = self.stream(READS).map_err(at(Step::Read))?;
        page.read_on(&stream, offset, into).map_err(at(Step::Read))
    }

    fn prepare(&mut self, op: &Placed<'_, Memory>) -> Result<CudaOperation, BackendError> {
        let graph = alone(op).map_err(at(Step::Prepare))?;
        let parts = parts(op, Step::Prepare)?;
        let bindings = bindings(&self.hosts, &self.kernels, op.kind, &parts);
        let schedule = Schedule::sequential(&graph);
        let exec = crate::lower::instantiate(self.cuda.target(), &graph, &schedule, &bindings);
        Ok(CudaOperation(shared(exec.map_err(at(Step::Prepare))?, Registry::new())))
    }

    fn run(
        &mut self,
        on: PooledStreamId,
        op: &mut CudaOperation,
        ticket: Ticket,
    ) -> Result<Issued, BackendError> {
        self.issue(on, &op.0, Step::Run, ticket)
    }

    fn release(&mut self, op: CudaOperation) {
        drop(op);
    }

    fn order(&mut self, on: PooledStreamId, after: PooledStreamId) -> Result<(), BackendError> {
        let step = Step::Order;
        let (later, earlier) =
            (self.stream(on).map_err(at(step))?, self.stream(after).map_err(at(step))?);
        // SAFETY: both streams live, on the one device.
        unsafe { order(later.device(), earlier.handle(), later.handle()) }.map_err(at(step))?;
        // The wait has made the driver record it, if the other records.
        if let Some(&origin) = self.members.get(&after) {
            self.members.insert(on, origin);
        }
        Ok(())
    }

    fn fence(&mut self, on: PooledStreamId) -> Result<Vec<Failed>, BackendError> {
        let stream = self.stream(on).map_err(at(Step::Fence))?;
        stream.synchronize().map_err(at(Step::Fence))?;
        self.settle(on, Ticket(u64::MAX))
    }

    fn mark(&mut self, on: PooledStreamId, waiting: Waiting) -> Result<Option<Wait>, BackendError> {
        let stream = self.stream(on).map_err(at(Step::Fence))?;
        self.marks.mark(&stream, waiting).map(Some).map_err(at(Step::Fence))
    }

    fn settle(&mut self, on: PooledStreamId, up_to: Ticket) -> Result<Vec<Failed>, BackendError> {
        let failed = self.launches.settle(on, up_to);
        if self.open.is_empty() {
            self.launches.let_go();
        }
        failed
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        let stream = self.stream(on).map_err(at(Step::Begin))?;
        let capturing = Capturing::open_ended();
        stream_capture::begin(&stream, RELAXED).map_err(at(Step::Begin))?;
        self.open.insert(on, (capturing, Open::default()));
        self.members.insert(on, on);
        Ok(())
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let stream = self.stream(on).map_err(at(Step::Record))?;
        let (into, after) = Self::position(&stream)?;
        let open = self.members.get(&on).and_then(|origin| self.open.get_mut(origin));
        let Some((_, Open { recorded, slots })) = open else {
            return Err(BackendError::new(Step::Record, "nobody here began this capture"));
        };
        let own = op.slots.iter().map(|slot| {
            let new = || recorded.slot(slot.default_value());
            *slots.entry(slot.key()).or_insert_with(new)
        });
        let own: Vec<SlotId> = own.collect();
        let graph = alone(op).map_err(at(Step::Record))?;
        let parts = parts(op, Step::Record)?;
        let bindings = bindings(&self.hosts, &self.kernels, op.kind, &parts);
        let nodes = recorded.add(self.cuda.target(), into, &after, &graph, &own, &bindings);
        let nodes = nodes.map_err(at(Step::Record))?;
        // SAFETY: the nodes were just added to the graph that this stream records into.
        unsafe { stream_capture::advance(&stream, nodes) }.map_err(at(Step::Record))
    }

    fn end(&mut self, on: PooledStreamId) -> Result<CudaRecording, BackendError> {
        self.members.retain(|_, origin| *origin != on);
        let open = self.open.remove(&on);
        let (_capturing, open) =
            open.ok_or_else(|| BackendError::new(Step::End, "the stream does not record"))?;
        let stream = self.stream(on).map_err(at(Step::End))?;
        let graph = stream_capture::end(&stream).map_err(at(Step::End))?;
        Ok(CudaRecording { open, graph })
    }

    fn discard(&mut self, on: PooledStreamId) {
        if !self.open.contains_key(&on) {
            return;
        }
        // Streams that are not joined would stay in a capture that nobody can end.
        let members: Vec<_> =
            self.members.iter().filter(|(_, origin)| **origin == on).map(|(&on, _)| on).collect();
        for member in members.into_iter().filter(|&member| member != on) {
            if let Err(error) = self.order(on, member) {
                tracing::debug!(%error, "a stream of a capture that is given up is not joined");
            }
        }
        if let Err(error) = self.end(on) {
            tracing::debug!(%error, "a capture that is given up had been broken");
        }
    }

    fn instantiate(&mut self, recording: CudaRecording) -> Result<CudaExec, BackendError> {
        let CudaRecording { open: Open { recorded, slots }, graph } = recording;
        let exec = recorded.seal(self.cuda.target(), graph).map_err(at(Step::Instantiate))?;
        let slots = slots.into_iter().map(|(key, slot)| {
            let value = exec.scalar_slots[slot.index()].value;
            (key, (slot, value))
        });
        let slots = slots.collect();
        Ok(CudaExec { exec: shared(exec, Registry::new()), slots })
    }

    fn upload(&mut self, on: PooledStreamId, exec: &mut CudaExec) -> Result<(), BackendError> {
        let stream = self.stream(on).map_err(at(Step::Upload))?;
        let executable = &mut lock(&exec.exec).exec.front.executable;
        executable.upload(&stream).map_err(at(Step::Upload))
    }

    fn launch(
        &mut self,
        on: PooledStreamId,
        exec: &mut CudaExec,
        values: &BTreeMap<SlotKey, Scalar>,
        ticket: Ticket,
    ) -> Result<Issued, BackendError> {
        for (key, (slot, current)) in &mut exec.slots {
            if let Some(&value) = values.get(key).filter(|value| *value != current) {
                lock(&exec.exec).exec.set(*slot, value).map_err(at(Step::Launch))?;
                *current = value;
            }
        }
        self.issue(on, &exec.exec, Step::Launch, ticket)
    }

    fn destroy(&mut self, exec: CudaExec) {
        drop(exec);
    }
}
