//! Devices and their streams, as operations see them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::completion::{Completions, Lane};
use crate::graph::Scalar;
use crate::lock::ExecutionLock;
use crate::machine::Machine;
use crate::policy::{Entered, Policy};
use crate::runtime::capture::LogicalStreamId;
use crate::runtime::cpu::{Cpu, kernels::Registry};
use crate::runtime::pool::Place;
use crate::runtime::streams::{
    self, Adopt, Adopted, Buffer, DeviceReport, Graph, Operation, Slot, SoftwareCpu, Synced,
    Waiting,
};
use crate::{Error, Result};

/// How many streams a device has unless told.
const STREAMS: u32 = 4;
/// The logical streams of executions start here, far above those of threads.
const FIRST_RUN: u64 = 1 << 32;

struct Inner {
    machine: Arc<dyn Machine>,
    completions: Completions,
    lanes: u32,
    next: AtomicU64,
}

/// A device: memory, streams, and threads that tell futures when their work is done. Clones share it.
///
/// ```
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(2)?;
/// let ones = api::ones::<f32>([2, 3]).sync_on(&device.stream(0))?;
/// assert_eq!(ones.to_vec()?, [1.0; 6]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Device(Arc<Inner>);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("streams", &self.streams()).finish_non_exhaustive()
    }
}

impl Device {
    /// The CPU, with this many worker threads and four streams.
    ///
    /// # Errors
    /// [`Error::Start`] without workers, or where threads cannot be had.
    pub fn cpu(workers: u32) -> Result<Self> {
        let cpu = Cpu::new(workers).map_err(|e| Error::Start(e.to_string()))?;
        Self::on(SoftwareCpu::new(cpu, Registry::new()), STREAMS)
    }

    /// The CUDA device of this number, with four streams. Its primary context is used, as by other libraries.
    ///
    /// ```
    /// use phonograph::prelude::*;
    ///
    /// let device = match Device::cuda(0) {
    ///     Ok(device) => device,
    ///     Err(error) => return Ok(println!("skipped: {error}")),
    /// };
    /// let ones = api::ones::<f32>([2, 3]).sync_on(&device.stream(0))?;
    /// assert_eq!(ones.to_vec()?, [1.0; 6]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Start`] says what this machine lacks.
    #[cfg(feature = "cuda-api")]
    pub fn cuda(ordinal: u32) -> Result<Self> {
        let cuda = crate::cuda::Cuda::on(&[ordinal]).map_err(|e| Error::Start(e.to_string()))?;
        Self::on(crate::cuda::CudaBackend::new(cuda), STREAMS)
    }

    /// The GPU that wgpu prefers, with four streams, which are an order and not parallelism. Functions of the host are refused
    /// there.
    ///
    /// ```
    /// use phonograph::prelude::*;
    ///
    /// let device = match Device::wgpu() {
    ///     Ok(device) => device,
    ///     Err(error) => return Ok(println!("skipped: {error}")),
    /// };
    /// let ones = api::ones::<f32>([2, 3]).sync_on(&device.stream(0))?;
    /// assert_eq!(ones.to_vec()?, [1.0; 6]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Start`] says what this machine lacks.
    #[cfg(feature = "wgpu")]
    pub fn wgpu() -> Result<Self> {
        let gpu = crate::wgpu::Wgpu::new().map_err(|e| Error::Start(e.to_string()))?;
        Self::on(crate::wgpu::WgpuBackend::new(gpu), STREAMS)
    }

    /// A device on whichever backend takes graphs as data, with so many streams.
    ///
    /// ```
    /// use phonograph::prelude::*;
    /// use phonograph::runtime::cpu::{Cpu, kernels::Registry};
    /// use phonograph::runtime::streams::DriverCpu;
    ///
    /// let cpu = Cpu::new(1).map_err(Error::other)?;
    /// let device = Device::on(DriverCpu::new(cpu, Registry::new()), 2)?;
    /// assert_eq!(device.streams(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Start`] where threads cannot be had; [`Error::Device`] for no streams, or more than the runtime has.
    pub fn on<B: Adopt>(backend: B, streams: u32) -> Result<Self> {
        let lanes = backend.lanes();
        let machine: Arc<dyn Machine> = Arc::new(streams::Device::new(backend, streams)?);
        let completions = Completions::new(streams);
        let next = AtomicU64::new(FIRST_RUN);
        Ok(Self(Arc::new(Inner { machine, completions, lanes, next })))
    }

    /// How many streams it has.
    pub fn streams(&self) -> u32 {
        self.0.machine.streams()
    }

    /// How many nodes of a graph it can run at the same time; on the CPU, its workers.
    pub fn lanes(&self) -> u32 {
        self.0.lanes
    }

    /// The stream `index`, counted round.
    pub fn stream(&self, index: u32) -> Stream {
        Stream { device: self.clone(), index: index % self.streams() }
    }

    /// Makes this device, all streams in turn, what `.sync()` and `.await` use on this thread until the guard is dropped.
    pub fn enter(&self) -> Entered {
        Policy::from(self).enter()
    }

    /// What its pools hold. O(pages).
    pub fn report(&self) -> DeviceReport {
        self.0.machine.report()
    }

    /// The device of the runtime underneath, with its captures, if it is on this backend.
    pub fn shared<B: Adopt>(&self) -> Option<&streams::Device<B>> {
        let machine: &dyn Any = &*self.0.machine;
        machine.downcast_ref()
    }

    /// Completions that futures still wait for or have not taken.
    pub fn pending(&self) -> usize {
        self.0.completions.pending()
    }

    pub(crate) fn same_as(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn host_reaches_device(&self) -> bool {
        self.0.machine.host_reaches_device()
    }
}

/// A stream of a device: what is executed on it happens in that order. Clones are the same stream.
#[derive(Clone)]
pub struct Stream {
    device: Device,
    index: u32,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.index).finish()
    }
}

impl Stream {
    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its place among the device's streams.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Waits until everything that was executed on this stream is done.
    ///
    /// # Errors
    /// [`Error::NonReentrant`] inside a capture. What failed is told to whoever executed it, and by tensors that it would
    /// have written.
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        ExecutionLock::check("Stream::sync")?;
        self.run().sync(Waiting::Attentive)
    }

    /// One execution: a logical stream of its own, served by this stream, so that what fails of it is told from all else.
    pub(crate) fn run(&self) -> Run {
        let number = self.device.0.next.fetch_add(1, Ordering::Relaxed);
        let value = number.wrapping_mul(self.device.streams().into()) + u64::from(self.index);
        Run { machine: self.device.0.machine.clone(), on: LogicalStreamId { value } }
    }

    /// Who tells when executions on this stream are done.
    pub(crate) fn completions(&self) -> Result<Lane> {
        self.device.0.completions.lane(self.index)
    }
}

/// One execution on a stream.
#[derive(Clone)]
pub(crate) struct Run {
    machine: Arc<dyn Machine>,
    on: LogicalStreamId,
}

impl Run {
    /// The logical stream.
    #[cfg(feature = "cuda-api")]
    pub fn id(&self) -> LogicalStreamId {
        self.on
    }

    /// Memory of the device.
    pub fn alloc(&self, name: &str, bytes: u64) -> Result<Buffer> {
        Ok(self.machine.alloc(self.on, name, bytes, Place::Device)?)
    }

    /// Memory of the host that the device reaches.
    pub fn alloc_host(&self, name: &str, bytes: u64) -> Result<Buffer> {
        Ok(self.machine.alloc(self.on, name, bytes, Place::Host)?)
    }

    pub fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<()> {
        Ok(self.machine.write(self.on, buffer, bytes)?)
    }

    pub fn read(&self, buffer: &Buffer) -> Result<Vec<u8>> {
        Ok(self.machine.read(self.on, buffer)?)
    }

    pub fn submit(&self, op: &Operation) -> Result<()> {
        Ok(self.machine.submit(self.on, op)?)
    }

    pub fn adopt(&self, adopted: &Adopted<'_>) -> Result<Graph> {
        Ok(self.machine.adopt(self.on, adopted)?)
    }

    /// Launches a graph with these values of its slots, and defaults for the others.
    pub fn launch(&self, graph: &Graph, values: &[(Slot, Scalar)]) -> Result<()> {
        Ok(self.machine.launch(self.on, graph, values)?)
    }

    /// Waits until what it submitted is done, and tells what has failed of it.
    pub fn sync(&self, waiting: Waiting) -> Result<()> {
        match self.machine.sync(self.on, waiting)? {
            Synced::Done => Ok(()),
            // Executions own no window, so this is one of the runtime's that somebody opened for this very id.
            Synced::Deferred => Err(Error::NonReentrant { what: "waiting in a window", at: None }),
        }
    }

    /// Runs one piece of work that waits on the stream.
    pub fn advance(&self) -> bool {
        self.machine.advance(self.on)
    }
}
