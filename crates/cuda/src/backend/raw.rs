//! Graphs of the driver that somebody else has made, as something that nodes call by name, and the handles of what is shared.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUgraph, CUgraphExec, CUstream};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::PooledStreamId;

use super::issued::lock;
use super::{CudaBackend, CudaExec};
use crate::error::DriverError;
use crate::memory::Memory;
use crate::stream::{Stream, order};

/// A graph of the driver that somebody else has made. A node of a graph that calls a kernel by its name becomes a child
/// graph: the driver copies it.
pub struct RawGraph {
    handle: CUgraph,
    /// Dropped with the last graph that has a copy.
    _keep: Box<dyn Any + Send + Sync>,
}

// SAFETY: the handle is only read, when a node is made of it; whoever made this value has promised that nobody changes the graph.
unsafe impl Send for RawGraph {}
// SAFETY: as above.
unsafe impl Sync for RawGraph {}

impl RawGraph {
    /// A graph, and whatever has to live as long as it and copies of it: the graph itself, and what its nodes refer to.
    ///
    /// # Safety
    /// While `keep` lives, so do the graph, unchanged, and the memory, modules, user data and events of its nodes. Whatever
    /// runs it touches memory of the device only as the node that calls it declares.
    pub unsafe fn new(handle: CUgraph, keep: impl Any + Send + Sync) -> Self {
        Self { handle, _keep: Box::new(keep) }
    }

    /// The driver's handle.
    pub fn handle(&self) -> CUgraph {
        self.handle
    }

    /// Lets nodes call it by this name.
    pub fn register(self: &Arc<Self>, name: &str, registry: &mut Registry) {
        registry.other(name, self.clone());
    }
}

impl fmt::Debug for RawGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawGraph").field(&self.handle).finish()
    }
}

impl CudaExec {
    /// The driver's executable, for other users of the driver. Valid for as long as the graph.
    pub fn handle(&self) -> CUgraphExec {
        lock(&self.exec).exec.handles().next().expect("a graph has an executable")
    }

    /// The driver's graph, to be read: the executable may have been made of an earlier one like it, and then this one is made
    /// when it is first asked for. Valid for as long as the graph.
    ///
    /// # Errors
    /// What the driver refuses of it.
    pub fn graph_handle(&self) -> Result<CUgraph, DriverError> {
        lock(&self.exec).exec.graph_handle()
    }
}

impl CudaBackend {
    /// The driver's stream that a pooled one is. Waiting for it while it records breaks the recording.
    pub fn stream_of(&mut self, on: PooledStreamId) -> Result<Stream, DriverError> {
        self.stream(on)
    }

    /// Memory of somebody else's, as a page of the device's.
    ///
    /// # Safety
    /// So many bytes of the device's memory are there for as long as `keep` lives.
    pub unsafe fn page(
        &self,
        address: CUdeviceptr,
        bytes: u64,
        keep: impl Any + Send + Sync,
    ) -> Memory {
        // SAFETY: the caller's promise.
        unsafe { self.cuda.foreign(address, bytes, Box::new(keep)) }
    }

    /// What is issued to a stream from now on comes after what has been issued to one of somebody else's so far.
    ///
    /// # Safety
    /// The handle is that of a stream of the same context that lives and does not capture.
    pub unsafe fn after_raw(
        &mut self,
        on: PooledStreamId,
        other: CUstream,
    ) -> Result<(), DriverError> {
        let stream = self.stream(on)?;
        // SAFETY: the caller's promise, and the pooled stream lives.
        unsafe { order(stream.device(), other, stream.handle()) }
    }

    /// What is issued to a stream of somebody else's from now on comes after what has been issued to this one so far.
    ///
    /// # Safety
    /// As for [`after_raw`](Self::after_raw).
    pub unsafe fn before_raw(
        &mut self,
        on: PooledStreamId,
        other: CUstream,
    ) -> Result<(), DriverError> {
        let stream = self.stream(on)?;
        // SAFETY: the caller's promise, and the pooled stream lives.
        unsafe { order(stream.device(), stream.handle(), other) }
    }
}
