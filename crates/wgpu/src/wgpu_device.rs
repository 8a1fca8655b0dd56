//! The backend: a device, the memory that graphs share, and the kernels compiled so far.

use std::sync::Arc;

use phonograph_graph::{ComputeGraph, Schedule};
use phonograph_runtime::cpu::kernels::Element;

use crate::adapter::{Adapter, adapters};
use crate::bindings::{Bindings, InstantiateError};
use crate::error::{GpuError, MemoryError, OpenError};
use crate::exec::{Exec, ReplayError};
use crate::gpu::Gpu;
use crate::lower;
use crate::memory::Memory;
use crate::pipelines::Pipelines;

/// A GPU through wgpu as a backend.
///
/// Launches of one `Wgpu` follow one another, and so do reads and writes of memory: what a program sees is what running
/// one after another gives.
///
/// ```
/// use phonograph_graph::{Arg, DType, Expr, GraphBuilder, Schedule, View};
/// use phonograph_wgpu::{Bindings, Wgpu};
///
/// let mut b = GraphBuilder::new();
/// let x = b.external_buffer("x", 16);
/// let view = View::contiguous(x, DType::F32, &[4])?;
/// let by = b.slot("by", 1.0f32);
/// let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32)))?;
/// b.add_elementwise("add", add.into(), &[view], &[Arg::Slot(by)], &[view]);
/// let graph = b.build()?;
///
/// let mut gpu = match Wgpu::new() {
///     Ok(gpu) => gpu,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let memory = gpu.alloc(16)?;
/// gpu.write(&memory, &[1.0f32, 2.0, 3.0, 4.0])?;
/// let schedule = Schedule::sequential(&graph);
/// let mut exec = gpu.instantiate(&graph, &schedule, &Bindings::new().memory(x, &memory))?;
/// gpu.replay(&mut exec)?;
/// exec.set(by, 10.0f32)?;
/// gpu.replay(&mut exec)?;
/// assert_eq!(gpu.read::<f32>(&memory)?, [12.0, 13.0, 14.0, 15.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Wgpu {
    gpu: Arc<Gpu>,
    adapter: Adapter,
    pipelines: Pipelines,
}

impl Wgpu {
    /// The first of the [`adapters`]: a real GPU if there is one.
    ///
    /// # Errors
    /// [`OpenError`] says what this machine lacks.
    pub fn new() -> Result<Self, OpenError> {
        let found = adapters();
        Self::on(found.first().ok_or(OpenError::NoAdapter)?)
    }

    /// A device of an adapter.
    ///
    /// # Errors
    /// [`OpenError`] if the adapter cannot compute or gives no device.
    pub fn on(adapter: &Adapter) -> Result<Self, OpenError> {
        let gpu = Gpu::open(adapter)?;
        let failed = |error: GpuError| OpenError::Device {
            adapter: adapter.name(),
            message: error.to_string(),
        };
        let pipelines = Pipelines::new(&gpu).map_err(failed)?;
        Ok(Self { gpu, adapter: adapter.clone(), pipelines })
    }

    /// The adapter that it is on.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// wgpu's device and queue, for other users of them.
    pub fn handles(&self) -> (&wgpu::Device, &wgpu::Queue) {
        (&self.gpu.device, &self.gpu.queue)
    }

    /// Zeroed memory.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], also for more than the device takes in one buffer.
    pub fn alloc(&self, bytes: u64) -> Result<Memory, GpuError> {
        Memory::new(&self.gpu, bytes)
    }

    /// The contents of memory, after all launches so far.
    ///
    /// # Errors
    /// [`MemoryError::OtherDevice`] for memory of another `Wgpu`, [`MemoryError::Size`] if it is not whole elements.
    pub fn read<T: Element>(&self, memory: &Memory) -> Result<Vec<T>, MemoryError> {
        self.ours(memory)?.read()
    }

    /// Replaces the contents of memory, after all launches so far and before any to come. Waits for nothing.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`MemoryError::Length`] unless there is a value for each element.
    pub fn write<T: Element>(&self, memory: &Memory, values: &[T]) -> Result<(), MemoryError> {
        self.ours(memory)?.write(values)
    }

    /// Some bytes of memory, after all launches so far.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`MemoryError::Range`] past the end.
    pub fn read_at(
        &self,
        memory: &Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), MemoryError> {
        self.ours(memory)?.read_bytes(offset, into)
    }

    /// Replaces some bytes of memory, after all launches so far and before any to come. Waits for nothing, unless the bytes
    /// do not fill words of 4: what else those hold has to be read first.
    ///
    /// # Errors
    /// As for [`read_at`](Self::read_at).
    pub fn write_at(&self, memory: &Memory, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.ours(memory)?.write_bytes(offset, bytes)
    }

    fn ours<'m>(&self, memory: &'m Memory) -> Result<&'m Memory, MemoryError> {
        if memory.belongs_to(&self.gpu) { Ok(memory) } else { Err(MemoryError::OtherDevice) }
    }

    /// Makes a graph ready to replay as `schedule` says.
    ///
    /// Everything that could be wrong is found here: the schedule goes through the checker, conflicting accesses must be
    /// ordered, kernels are compiled, memory must be there, and the command buffer of a replay is encoded once without
    /// being submitted, so that wgpu has validated every dispatch.
    ///
    /// # Errors
    /// [`InstantiateError`], which names the node.
    pub fn instantiate(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        bindings: &Bindings<'_>,
    ) -> Result<Exec, InstantiateError> {
        self.gpu.look()?;
        lower::instantiate(&self.gpu, &mut self.pipelines, graph, schedule, bindings)
    }

    /// Waits for everything submitted so far.
    ///
    /// # Errors
    /// [`GpuError`] if the device is lost or has refused something.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.gpu.wait_for_all()
    }

    /// What waits for everything submitted so far, without the device in hand.
    pub(crate) fn wait_for_submitted(
        &self,
    ) -> Result<impl FnOnce() -> Result<(), GpuError> + Send + 'static, GpuError> {
        let gpu = self.gpu.clone();
        gpu.check()?;
        // Writes wait for the next submission.
        let submission = gpu.queue.submit([]);
        Ok(move || gpu.wait(submission))
    }

    /// Runs the graph once and returns when all of it is done.
    ///
    /// # Errors
    /// [`ReplayError::Node`] for what a node could not do; the others have run, and the graph can be replayed again.
    pub fn replay(&mut self, exec: &mut Exec) -> Result<(), ReplayError> {
        match self.launch(exec) {
            Ok(()) => exec.finish(),
            // What a conditional was stopped by is told once; this also forgets it.
            Err(error @ ReplayError::Node { .. }) => exec.finish().and(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// Submits a run of the graph after all launches so far. Returns at once, unless the graph has conditionals: then when
    /// the last of them is decided.
    ///
    /// # Errors
    /// [`ReplayError`] for what is found before the launch; what a node could not do is said by [`finish`](Self::finish).
    pub fn launch(&mut self, exec: &mut Exec) -> Result<(), ReplayError> {
        if !Arc::ptr_eq(&exec.gpu, &self.gpu) {
            return Err(ReplayError::OtherDevice);
        }
        exec.launch()
    }

    /// Waits for the graph's launches so far.
    ///
    /// # Errors
    /// [`ReplayError::Node`] for the first thing that a node could not do since this was last asked.
    pub fn finish(&mut self, exec: &mut Exec) -> Result<(), ReplayError> {
        exec.finish()
    }
}
