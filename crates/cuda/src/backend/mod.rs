//! A device that many callers share, on CUDA: pooled streams, memory pages, windows that the driver records.
//!
//! An eager operation is a graph of one node, instantiated and launched on the pooled stream: a launch of such a graph costs
//! no more than that of its kernel, and everything that can be a node of a graph can so be done eagerly, by the same code.
//! A window is a capture of the driver's, in its relaxed mode. What is recorded is lowered as any graph is, straight into
//! the graph that the driver records, behind what the stream has there already; so child graphs, conditionals and host
//! functions are recorded as well, and work that a library issues to the stream finds its place among them.
//!
//! While a stream records, nothing here waits for it or for the whole device, either of which would break the capture.

mod capture;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use phonograph_graph::{
    Buffer, BufferId, BufferRole, ComputeGraph, DEFAULT_ALIGN, GraphBuilder, Schedule, Space,
};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{Backend, BackendError, GraphKind, Placed, PooledStreamId, Step};
use rustc_hash::FxHashMap;

use crate::bindings::Bindings;
use crate::cuda::Cuda;
use crate::error::DriverError;
use crate::exec::Exec;
use crate::graph::Graph;
use crate::lower::Recorded;
use crate::memory::Memory;
use crate::module::Function;
use crate::stream::Stream;
use capture::Status;

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
    open: BTreeMap<PooledStreamId, Recorded>,
    /// What has been issued to each stream since it was last waited for, and may have something to report.
    issued: BTreeMap<PooledStreamId, Vec<Arc<Mutex<Exec>>>>,
}

/// A capture that has ended.
pub struct CudaRecording {
    recorded: Recorded,
    graph: Graph,
}

// SAFETY: the driver's handles in it may be used from any thread, one at a time, which owning them sees to.
unsafe impl Send for CudaRecording {}

/// A graph that can be launched. Launches that have not been waited for keep it as well.
pub struct CudaExec(Arc<Mutex<Exec>>);

impl CudaBackend {
    /// A device from the first of these devices.
    pub fn new(cuda: Cuda) -> Self {
        Self {
            cuda,
            hosts: Registry::new(),
            kernels: FxHashMap::default(),
            streams: BTreeMap::new(),
            open: BTreeMap::new(),
            issued: BTreeMap::new(),
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

    fn issue(&mut self, on: PooledStreamId, exec: &Arc<Mutex<Exec>>) -> Result<(), String> {
        let stream = self.stream(on).map_err(|e| e.to_string())?;
        let launched = exec.lock().unwrap_or_else(PoisonError::into_inner).launch(&stream);
        launched.map_err(|e| e.to_string())?;
        self.issued.entry(on).or_default().push(exec.clone());
        Ok(())
    }
}

/// The graph of one operation.
fn alone(op: &Placed<'_, Memory>) -> Result<ComputeGraph, phonograph_graph::GraphError> {
    let mut builder = GraphBuilder::new();
    for (id, page) in op.pages {
        builder.declare(Buffer {
            name: id.to_string().into(),
            bytes: page.bytes(),
            align: DEFAULT_ALIGN,
            role: BufferRole::External,
            space: Space::Device(0),
        });
    }
    builder.add(op.name, op.kind.clone());
    builder.build()
}

/// What the nodes of an operation may call and touch.
fn bindings<'a>(
    hosts: &'a Registry,
    kernels: &'a FxHashMap<String, Function>,
    op: &'a Placed<'_, Memory>,
) -> Bindings<'a> {
    let mut bindings = Bindings::new().hosts(hosts);
    for (name, function) in kernels {
        // SAFETY: `CudaBackend::kernel` was promised what this asks for.
        bindings = unsafe { bindings.kernel(name, function) };
    }
    let pages = op.pages.iter().enumerate();
    pages.fold(bindings, |b, (at, (_, page))| b.memory(BufferId::from_index(at), page))
}

impl Backend for CudaBackend {
    type Page = Memory;
    type Recording = CudaRecording;
    type Exec = CudaExec;

    fn graph_kind(&self) -> GraphKind {
        GraphKind::Hardware
    }

    fn allocate(&mut self, bytes: u64) -> Result<Memory, BackendError> {
        self.cuda.alloc(bytes).map_err(|e| BackendError::new(Step::Allocate, e))
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
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Write, e);
        let stream = self.stream(on).map_err(|e| wrong(&e))?;
        page.write_on(&stream, offset, bytes).map_err(|e| wrong(&e))
    }

    fn read(
        &mut self,
        on: PooledStreamId,
        page: &Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Read, e);
        let stream = self.stream(on).map_err(|e| wrong(&e))?;
        page.read_on(&stream, offset, into).map_err(|e| wrong(&e))
    }

    fn run(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Run, e);
        let graph = alone(op).map_err(|e| wrong(&e))?;
        let bindings = bindings(&self.hosts, &self.kernels, op);
        let schedule = Schedule::sequential(&graph);
        let exec = crate::lower::instantiate(self.cuda.target(), &graph, &schedule, &bindings);
        let exec = Arc::new(Mutex::new(exec.map_err(|e| wrong(&e))?));
        self.issue(on, &exec).map_err(|e| wrong(&e))
    }

    fn fence(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Fence, e);
        let stream = self.stream(on).map_err(|e| wrong(&e))?;
        stream.synchronize().map_err(|e| wrong(&e))?;
        let mut first = Ok(());
        for exec in self.issued.remove(&on).into_iter().flatten() {
            let mut exec = exec.lock().unwrap_or_else(PoisonError::into_inner);
            let done = exec.finish().map_err(|e| BackendError::new(Step::Run, e));
            first = first.and(done);
        }
        first
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        let wrong = |e: DriverError| BackendError::new(Step::Begin, e);
        let stream = self.stream(on).map_err(wrong)?;
        capture::begin(&stream).map_err(wrong)?;
        self.open.insert(on, Recorded::default());
        Ok(())
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, Memory>) -> Result<(), BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::Record, e);
        let stream = self.stream(on).map_err(|e| wrong(&e))?;
        let at = match capture::status(&stream).map_err(|e| wrong(&e))? {
            Status::Recording(at) => at,
            Status::Idle => return Err(wrong(&"the stream does not record")),
            Status::Broken => return Err(wrong(&"the capture was invalidated")),
        };
        let recorded = self.open.get_mut(&on).ok_or_else(|| wrong(&"nobody began this capture"))?;
        let graph = alone(op).map_err(|e| wrong(&e))?;
        let bindings = bindings(&self.hosts, &self.kernels, op);
        let target = self.cuda.target();
        let nodes = recorded.add(target, at.graph, &at.after, &graph, &[], &bindings);
        let nodes = nodes.map_err(|e| wrong(&e))?;
        // SAFETY: the nodes were just added to the graph that this stream records into.
        unsafe { capture::advance(&stream, nodes) }.map_err(|e| wrong(&e))
    }

    fn end(&mut self, on: PooledStreamId) -> Result<CudaRecording, BackendError> {
        let wrong = |e: &dyn std::fmt::Display| BackendError::new(Step::End, e);
        let recorded = self.open.remove(&on).ok_or_else(|| wrong(&"the stream does not record"))?;
        let stream = self.stream(on).map_err(|e| wrong(&e))?;
        let graph = capture::end(&stream).map_err(|e| wrong(&e))?;
        Ok(CudaRecording { recorded, graph })
    }

    fn discard(&mut self, on: PooledStreamId) {
        if self.open.contains_key(&on)
            && let Err(error) = self.end(on)
        {
            tracing::debug!(%error, "a capture that was given up had been broken");
        }
    }

    fn instantiate(&mut self, recording: CudaRecording) -> Result<CudaExec, BackendError> {
        let CudaRecording { recorded, graph } = recording;
        let exec = recorded.seal(self.cuda.target(), graph);
        let exec = exec.map_err(|e| BackendError::new(Step::Instantiate, e))?;
        Ok(CudaExec(Arc::new(Mutex::new(exec))))
    }

    fn upload(&mut self, on: PooledStreamId, exec: &mut CudaExec) -> Result<(), BackendError> {
        let wrong = |e: DriverError| BackendError::new(Step::Upload, e);
        let stream = self.stream(on).map_err(wrong)?;
        let mut exec = exec.0.lock().unwrap_or_else(PoisonError::into_inner);
        exec.executable.upload(&stream).map_err(wrong)
    }

    fn launch(&mut self, on: PooledStreamId, exec: &mut CudaExec) -> Result<(), BackendError> {
        self.issue(on, &exec.0).map_err(|e| BackendError::new(Step::Launch, e))
    }

    fn destroy(&mut self, exec: CudaExec) {
        drop(exec);
    }
}
