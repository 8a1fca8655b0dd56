//! Devices and their streams, as operations see them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::completion::{Completions, Ticket};
use crate::lock::ExecutionLock;
use crate::policy::{Entered, Policy};
use crate::runtime::capture::LogicalStreamId;
use crate::runtime::cpu::{Cpu, kernels::Registry};
use crate::runtime::streams::{self, SoftwareCpu, Synced};
use crate::{Error, Result};

/// What devices of this crate run on.
pub(crate) type Backend = SoftwareCpu;

/// How many streams a device has unless told.
const STREAMS: u32 = 4;
/// The logical streams of executions start here, far above those of threads.
const FIRST_RUN: u64 = 1 << 32;

struct Inner {
    shared: streams::Device<Backend>,
    completions: Completions,
    workers: u32,
    next: AtomicU64,
}

/// A device: memory, streams, and a thread that tells futures when their work is done. Clones share it.
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
        Self::cpu_with_streams(workers, STREAMS)
    }

    /// The CPU with a number of streams of one's own choice.
    ///
    /// # Errors
    /// As for [`cpu`](Self::cpu); [`Error::Device`] for no streams, or more than the runtime has.
    pub fn cpu_with_streams(workers: u32, streams: u32) -> Result<Self> {
        let cpu = Cpu::new(workers).map_err(|e| Error::Start(e.to_string()))?;
        let shared = streams::Device::new(SoftwareCpu::new(cpu, Registry::new()), streams)?;
        let completions = Completions::start()?;
        let next = AtomicU64::new(FIRST_RUN);
        Ok(Self(Arc::new(Inner { shared, completions, workers, next })))
    }

    /// How many streams it has.
    pub fn streams(&self) -> u32 {
        self.0.shared.max_streams()
    }

    /// Its workers.
    pub fn workers(&self) -> u32 {
        self.0.workers
    }

    /// The stream `index`, counted round.
    pub fn stream(&self, index: u32) -> Stream {
        Stream { device: self.clone(), index: index % self.streams() }
    }

    /// Makes this device, all streams in turn, what `.sync()` and `.await` use on this thread until the guard is dropped.
    pub fn enter(&self) -> Entered {
        Policy::from(self).enter()
    }

    /// The device of the runtime underneath: its report, its pools, its captures.
    pub fn shared(&self) -> &streams::Device<Backend> {
        &self.0.shared
    }

    /// Completions that futures still wait for or have not taken.
    pub fn pending(&self) -> usize {
        self.0.completions.pending()
    }

    pub(crate) fn same_as(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn after(&self, run: Run) -> Ticket<Result<()>> {
        self.0.completions.after(run)
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
    pub fn sync(&self) -> Result<()> {
        ExecutionLock::check("Stream::sync")?;
        self.run().sync()
    }

    /// One execution: a logical stream of its own, served by this stream, so that what fails of it is told from all else.
    pub(crate) fn run(&self) -> Run {
        let number = self.device.0.next.fetch_add(1, Ordering::Relaxed);
        let value = number.wrapping_mul(self.device.streams().into()) + u64::from(self.index);
        Run(self.device.0.shared.stream_of(LogicalStreamId { value }))
    }
}

/// One execution on a stream.
#[derive(Clone)]
pub(crate) struct Run(pub streams::Stream<Backend>);

impl Run {
    /// Waits until what it submitted is done, and tells what has failed of it.
    pub fn sync(&self) -> Result<()> {
        match self.0.sync()? {
            Synced::Done => Ok(()),
            // Executions own no window, so this is one of the runtime's that somebody opened for this very id.
            Synced::Deferred => Err(Error::NonReentrant { what: "waiting in a window" }),
        }
    }

    /// Runs one piece of work that waits on the stream.
    pub fn advance(&self) -> bool {
        self.0.advance()
    }
}
