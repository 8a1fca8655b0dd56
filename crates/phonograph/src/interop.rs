//! Other users of CUDA beside this crate: raw handles, streams that take turns, graphs that somebody else has made.
//!
//! A device of this crate uses the primary context, as cudarc, PyTorch and the CUDA runtime do, so handles go either way.
//!
//! - *Out*: [`Stream::cuda`], [`Tensor::cuda`], [`CapturedGraph::cuda_graph`], [`CapturedGraph::cuda_exec`] give the handles
//!   of the level below; those of [`crate::cuda`] give raw ones.
//! - *Streams*: [`Stream::lend`] puts a stream of somebody else's behind this one, [`Stream::take_back`] this one behind it.
//!   What happens in between, to tensors that both name, is ordered by that.
//! - *Memory*: [`Tensor::import`] takes a buffer of somebody else's for a tensor.
//! - *Graphs*: [`CapturedGraph::launch_on_raw`] launches in the order of somebody else's stream. [`raw_graph`] makes a graph of
//!   the driver's an operation, and [`captured`] whatever a library does on a stream.
//!
//! ```no_run
//! use phonograph::cuda::cudarc::driver::{CudaContext, result};
//! use phonograph::prelude::*;
//!
//! kernel! { fn double(y: &mut [f32]) |_e| { y = 2.0 * y; } }
//!
//! let device = Device::cuda(0)?;
//! let stream = device.stream(0);
//! let mut y = api::ones::<f32>([1024]).sync_on(&stream)?;
//! let graph = double(&mut y).map(drop).graph_on(&stream)?;
//!
//! // A stream of cudarc's, which fills the tensor, has the graph launched, and goes on after it.
//! let theirs = CudaContext::new(0).and_then(|context| context.new_stream()).map_err(Error::other)?;
//! let address = y.cuda()?.address();
//! // SAFETY: the stream lives; it writes what it was lent, and nobody else touches it meanwhile.
//! unsafe {
//!     stream.lend((&mut y,), theirs.cu_stream())?;
//!     result::memset_d8_async(address, 0, 4096, theirs.cu_stream()).map_err(Error::other)?;
//!     stream.take_back((&mut y,), theirs.cu_stream())?;
//!     graph.launch_on_raw(&stream, theirs.cu_stream())?;
//! }
//! theirs.synchronize().map_err(Error::other)?;
//! # Ok::<(), Error>(())
//! ```

use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;

use crate::context::ExecutionContext;
use crate::cuda::cudarc::driver::sys::{CUdeviceptr, CUgraph, CUgraphExec, CUstream};
use crate::cuda::{self, CudaBackend};
use crate::graph::{
    Access, Arg, BufferId, DEFAULT_ALIGN, KernelConfig, KernelNode, KernelRef, NodeKind, View,
};
use crate::lock::ExecutionLock;
use crate::op::{DeviceOp, GraphNode};
use crate::operand::Operands;
use crate::runtime::streams;
use crate::tensor::Tensor;
use crate::{CapturedGraph, Device, Element, Error, Result, Stream};

fn shared<'d>(device: &'d Device, what: &'static str) -> Result<&'d streams::Device<CudaBackend>> {
    device.shared().ok_or(Error::OtherBackend { what, backend: "CUDA" })
}

impl Stream {
    /// The driver's stream that this one is, on which everything executed so far has been issued. Its
    /// [`handle`](cuda::Stream::handle) is raw.
    ///
    /// # Errors
    /// [`Error::OtherBackend`]; what the driver says.
    pub fn cuda(&self) -> Result<cuda::Stream> {
        let device = shared(self.device(), "a stream's handle")?;
        let on = self.issued(device, &[])?;
        // SAFETY: nothing but a stream that was not used before is made.
        let made = unsafe { device.with_backend(|backend| backend.stream_of(on)) };
        made.map_err(Error::other)
    }

    /// Issues everything executed on this stream so far, and whatever else these buffers need to be in order.
    fn issued(
        &self,
        device: &streams::Device<CudaBackend>,
        touched: &[(streams::Buffer, bool)],
    ) -> Result<streams::PooledStreamId> {
        let id = self.run().id();
        Ok(device.stream_of(id).touch(touched)?)
    }

    /// Puts a stream of somebody else's behind this one, and behind whatever was executed anywhere on these tensors, so that it
    /// may read them, and write those that are lent to be written.
    ///
    /// # Errors
    /// [`Error::NonReentrant`] inside a capture; [`Error::OtherBackend`]; what the device and the driver say.
    ///
    /// # Safety
    /// The handle is that of a stream of the device's primary context that lives and does not capture. Until
    /// [`take_back`](Self::take_back) nothing is executed that writes these tensors, or reads what is written there.
    #[track_caller]
    pub unsafe fn lend(&self, tensors: impl Operands, to: CUstream) -> Result<()> {
        ExecutionLock::check("Stream::lend")?;
        let device = shared(self.device(), "lending to a raw stream")?;
        let on = self.issued(device, &touched(&tensors))?;
        // SAFETY: the caller's promise; what is lent was touched.
        let done = unsafe { device.with_backend(|backend| backend.before_raw(on, to)) };
        done.map_err(Error::other)
    }

    /// Puts this stream, and whatever is executed anywhere on these tensors from now on, behind what has been issued to a
    /// stream of somebody else's.
    ///
    /// # Errors
    /// As for [`lend`](Self::lend).
    ///
    /// # Safety
    /// As for [`lend`](Self::lend), up to here.
    #[track_caller]
    pub unsafe fn take_back(&self, tensors: impl Operands, from: CUstream) -> Result<()> {
        ExecutionLock::check("Stream::take_back")?;
        let device = shared(self.device(), "taking back from a raw stream")?;
        let on = self.issued(device, &[])?;
        // SAFETY: the caller's promise.
        let done = unsafe { device.with_backend(|backend| backend.after_raw(on, from)) };
        done.map_err(Error::other)?;
        self.issued(device, &touched(&tensors)).map(drop)
    }
}

fn touched(tensors: &impl Operands) -> Vec<(streams::Buffer, bool)> {
    let windows = tensors.windows();
    windows.iter().map(|(window, writes)| (window.buffer().clone(), *writes)).collect()
}

impl<T: Element> Tensor<T> {
    /// A tensor in memory of somebody else's: dense elements of these extents, from an address that is a multiple of 256 on.
    /// `keep` is dropped when the tensor, the graphs that use it, and all work on it are gone and done.
    ///
    /// # Errors
    /// [`Error::OtherBackend`]; [`Error::Operand`] for an address that is not aligned; extents that are no shape.
    ///
    /// # Safety
    /// While `keep` lives, so many elements are there, in memory of the device, and in no other tensor. As long as the tensor
    /// or a graph with it lives, others touch them only where it was [lent](Stream::lend). Whatever has been issued on them is
    /// done, or the stream that it was issued to has been [taken back](Stream::take_back) from.
    pub unsafe fn import(
        on: &Stream,
        address: CUdeviceptr,
        extents: impl AsRef<[u64]>,
        keep: impl Any + Send + Sync,
    ) -> Result<Self> {
        let device = shared(on.device(), "a tensor in raw memory")?;
        let view = View::contiguous(BufferId(0), T::DTYPE, extents.as_ref())?;
        if !address.is_multiple_of(DEFAULT_ALIGN) {
            let problem = format!("the address is not a multiple of {DEFAULT_ALIGN}");
            return Err(Error::operand("Tensor::import", problem));
        }
        let bytes = view.region().bytes;
        // SAFETY: a page is made of memory that is there, and imported once.
        let buffer = unsafe {
            let page = device.with_backend(|backend| backend.page(address, bytes, keep));
            device.stream_of(on.run().id()).import("imported", page, bytes)?
        };
        Ok(Tensor::new(on.device().clone(), buffer, view))
    }

    /// Its memory, whose [`address`](cuda::Memory::address) is raw. Valid for as long as the tensor: after that, it is somebody
    /// else's although the handle keeps it allocated.
    ///
    /// # Errors
    /// [`Error::OtherBackend`].
    pub fn cuda(&self) -> Result<cuda::Memory> {
        let device = shared(self.device(), "a tensor's address")?;
        let (page, offset) = device.page_of(self.buffer())?;
        let part = page.part(offset, self.buffer().bytes());
        part.ok_or_else(|| {
            Error::operand("Tensor::cuda", "the tensor lies past the end of its page")
        })
    }
}

impl<T> CapturedGraph<T> {
    /// The driver's graph; valid for as long as this one, or a launch of it. To be read, not changed.
    ///
    /// # Errors
    /// [`Error::OtherBackend`].
    pub fn cuda_graph(&self) -> Result<CUgraph> {
        let device = shared(self.stream().device(), "a graph's handle")?;
        device.with_exec(self.shared(), cuda::CudaExec::graph_handle)?.map_err(Error::other)
    }

    /// The driver's executable; valid for as long as this graph, or a launch of it. What is launched past this crate is not in
    /// the order of its tensors: see [`launch_on_raw`](Self::launch_on_raw).
    ///
    /// # Errors
    /// [`Error::OtherBackend`].
    pub fn cuda_exec(&self) -> Result<CUgraphExec> {
        let device = shared(self.stream().device(), "a graph's handle")?;
        Ok(device.with_exec(self.shared(), cuda::CudaExec::handle)?)
    }

    /// Launches behind what has been issued to a stream of somebody else's, which then waits for the launch: as if it were
    /// launched there. What it touches stays in order with what is executed on this device. Does not wait.
    ///
    /// # Errors
    /// As for [`Stream::lend`].
    ///
    /// # Safety
    /// The handle is that of a stream of the device's primary context that lives and does not capture.
    #[track_caller]
    pub unsafe fn launch_on_raw(&self, by: &Stream, stream: CUstream) -> Result<()> {
        // SAFETY: the caller's promise; no tensors are lent.
        unsafe {
            by.take_back((), stream)?;
            crate::future::enqueue_on(self.launch(), by, "launch_on_raw")?;
            by.lend((), stream)
        }
    }
}

/// See [`raw_graph`] and [`captured`].
#[must_use = "operations do nothing until they are executed"]
pub struct RawGraph<A> {
    name: String,
    operands: A,
    graph: Arc<cuda::RawGraph>,
}

/// A graph of the driver that somebody else has made, as an operation on these tensors, which it gives back. Without
/// tensors it may touch anything: it is ordered behind all that was recorded before it, and before all that comes after.
/// Recorded, it becomes a child graph.
///
/// # Safety
/// While `keep` lives, so do the graph, unchanged, and whatever its nodes refer to. It touches no memory of the device but
/// what these tensors own, and writes none of those that are given to be read.
pub unsafe fn raw_graph<A: Operands>(
    name: &str,
    operands: A,
    graph: CUgraph,
    keep: impl Any + Send + Sync,
) -> RawGraph<A> {
    // SAFETY: the caller's promise.
    let graph = Arc::new(unsafe { cuda::RawGraph::new(graph, keep) });
    RawGraph { name: name.into(), operands, graph }
}

/// What `work` issues to a stream, through whatever library, as an operation on these tensors. It is captured now, on a stream
/// of its own, and executed with the operation.
///
/// # Errors
/// What the driver says about the capture, with the rule that was broken.
///
/// # Safety
/// As for [`raw_graph`], of what `work` issues; `keep` is whatever that refers to.
pub unsafe fn captured<A: Operands>(
    device: &Device,
    name: &str,
    operands: A,
    keep: impl Any + Send + Sync,
    work: impl FnOnce(CUstream),
) -> Result<RawGraph<A>> {
    let stream = {
        let own = device.stream(0).cuda()?;
        cuda::Stream::new(own.device()).map_err(Error::other)?
    };
    let captured = stream.capture(cuda::CaptureMode::Relaxed, |raw| {
        work(raw);
        Ok::<(), Infallible>(())
    });
    let (captured, ()) = captured.map_err(|error| Error::Other(Arc::new(error)))?;
    let graph = captured.handle();
    // SAFETY: the captured graph is kept, and nobody else has it; the rest is the caller's promise.
    Ok(unsafe { raw_graph(name, operands, graph, (std::sync::Mutex::new(captured), keep)) })
}

crate::awaitable!([A: Operands] RawGraph<A>);

impl<A: Operands> DeviceOp for RawGraph<A> {
    type Output = A::Back;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<A::Back> {
        let Self { name, operands, graph } = self;
        shared(cx.stream().device(), "a raw graph")?;
        cx.record(|recorder| {
            let called = recorder.other(&name, graph);
            let windows = operands.windows();
            let args = windows.iter().map(|(window, writes)| {
                let access = if *writes { Access::ReadWrite } else { Access::Read };
                Arg::Region(recorder.view(window).region(), access)
            });
            let kernel = KernelNode {
                kernel: KernelRef::Named(called.into()),
                config: KernelConfig::linear(1, 1, 0),
                args: args.collect(),
                fusible: false,
            };
            recorder.builder().add(&name, NodeKind::Kernel(kernel));
            Ok(())
        })?;
        Ok(operands.back())
    }
}

// SAFETY: it records one node; whoever made it has promised what it touches.
unsafe impl<A: Operands> GraphNode for RawGraph<A> {}
