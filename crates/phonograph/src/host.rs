//! Functions on the host as operations: owned by the graph, called by every replay.

use std::fmt::Display;

use crate::context::ExecutionContext;
use crate::graph::{Access, Region};
use crate::lock::ExecutionLock;
use crate::op::{DeviceOp, GraphNode};
use crate::operand::Operands;
use crate::runtime::cpu::kernels::{Block, KernelError, Param};
use crate::{Element, Error, Result};

/// A function reaches so many of its operands; further ones only order it.
pub const HOST_ARGS: usize = 64;

/// The operands of a host function while it is called: the first [`HOST_ARGS`] of them.
pub struct HostArgs<'a, 'b>(&'a Block<'b>);

impl<'b> HostArgs<'_, 'b> {
    /// What operand `index` holds.
    ///
    /// # Errors
    /// For an operand that is not there, of another type, or lent to be written.
    pub fn read<T: Element>(&self, index: usize) -> Result<&'b [T], KernelError> {
        self.0.read(index)
    }

    /// Operand `index`, to be written; once a call.
    ///
    /// # Errors
    /// For an operand that is not there, of another type, lent to be read, or asked for before.
    pub fn write<T: Element>(&self, index: usize) -> Result<&'b mut [T], KernelError> {
        self.0.write(index)
    }
}

/// See [`host`].
#[must_use = "operations do nothing until they are executed"]
pub struct Host<A, F> {
    name: String,
    operands: A,
    function: F,
}

/// A function that the host runs when its turn comes, in a graph on every replay; the graph owns it. Operands must be dense.
/// One without operands is ordered behind all that was recorded before it, and before all that comes after.
///
/// It cannot execute operations or read tensors itself: the device waits for it. A tensor that it owns keeps its device.
///
/// On devices whose memory the host does not reach, it works on copies of the operands in page-locked memory, which the graph
/// makes before it and, of those that it may write, brings back after it.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::sync::Arc;
///
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let calls = Arc::new(AtomicU32::new(0));
/// let counter = calls.clone();
/// let count = host("count", (), move |_| -> Result<()> {
///     counter.fetch_add(1, Ordering::Relaxed);
///     Ok(())
/// });
/// let graph = count.graph_on(&device.stream(0))?;
/// for _ in 0..3 {
///     graph.launch().sync_on(&device.stream(0))?;
/// }
/// assert_eq!(calls.load(Ordering::Relaxed), 3);
/// # Ok::<(), Error>(())
/// ```
pub fn host<A, E, F>(name: &str, operands: A, function: F) -> Host<A, F>
where
    A: Operands,
    E: Display,
    F: Fn(&HostArgs<'_, '_>) -> Result<(), E> + Send + Sync + 'static,
{
    Host { name: name.into(), operands, function }
}

crate::awaitable!([A: Operands, E: Display, F: Fn(&HostArgs<'_, '_>) -> Result<(), E> + Send + Sync + 'static] Host<A, F>);

impl<A: Operands, E: Display, F> DeviceOp for Host<A, F>
where
    F: Fn(&HostArgs<'_, '_>) -> Result<(), E> + Send + Sync + 'static,
{
    type Output = A::Back;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<A::Back> {
        let Self { name, operands, function } = self;
        let windows = operands.windows();
        if windows.iter().any(|(window, _)| !window.view().is_contiguous()) {
            return Err(Error::operand(&name, "an operand is not dense; copy it first"));
        }
        let stages = !cx.stream().device().host_reaches_device();
        cx.record(|recorder| {
            let param = |dtype, writes| match writes {
                true => (Param::ReadWrite(dtype), Access::ReadWrite),
                false => (Param::Read(dtype), Access::Read),
            };
            let params = windows.iter().map(|(window, writes)| param(window.view().dtype, *writes));
            let (params, accesses): (Vec<_>, Vec<_>) = params.unzip();
            let reached = &params[..params.len().min(HOST_ARGS)];
            let called = recorder.host(&name, reached, move |block| {
                let _lock = ExecutionLock::hold();
                function(&HostArgs(block)).map_err(|e| KernelError::Failed(e.to_string()))
            });
            let regions = windows.iter().map(|(window, _)| recorder.view(window).region());
            let regions: Vec<Region> = regions.collect();
            let mut effects: Vec<_> = regions.iter().copied().zip(accesses).collect();
            let reached = if stages { effects.len().min(HOST_ARGS) } else { 0 };
            for (region, _) in &mut effects[..reached] {
                *region = recorder.stage(&name, *region);
            }
            let builder = recorder.builder();
            builder.add_host(&name, &called, &effects);
            for ((staged, access), region) in effects[..reached].iter().zip(&regions) {
                if access.writes() {
                    builder.add_region_copy(&name, *staged, *region);
                }
            }
            Ok(())
        })?;
        Ok(operands.back())
    }
}

// SAFETY: it records one node, and the function runs on replays alone.
unsafe impl<A: Operands, E: Display, F> GraphNode for Host<A, F> where
    F: Fn(&HostArgs<'_, '_>) -> Result<(), E> + Send + Sync + 'static
{
}
