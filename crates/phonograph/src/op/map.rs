//! Outputs changed or looked at on the host.

use super::{DeviceOp, GraphNode};
use crate::Result;
use crate::context::ExecutionContext;

/// See [`DeviceOp::map`].
#[must_use = "operations do nothing until they are executed"]
pub struct Map<A, F> {
    pub(super) of: A,
    pub(super) change: F,
}

crate::awaitable!([A: DeviceOp, T: Send, F: FnOnce(<A as DeviceOp>::Output) -> T + Send] Map<A, F>);

impl<A: DeviceOp, T: Send, F> DeviceOp for Map<A, F>
where
    F: FnOnce(<A as DeviceOp>::Output) -> T + Send,
{
    type Output = T;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<T> {
        // SAFETY: as the caller's.
        let output = unsafe { self.of.execute(cx)? };
        Ok((self.change)(output))
    }
}

// SAFETY: the operation is a node, and the closure executes nothing, because the lock is held.
unsafe impl<A: GraphNode, T: Send, F> GraphNode for Map<A, F> where
    F: FnOnce(<A as DeviceOp>::Output) -> T + Send
{
}

/// See [`DeviceOp::inspect`].
#[must_use = "operations do nothing until they are executed"]
pub struct Inspect<A, F> {
    pub(super) of: A,
    pub(super) look: F,
}

crate::awaitable!([A: DeviceOp, F: FnOnce(&<A as DeviceOp>::Output) + Send] Inspect<A, F>);

impl<A: DeviceOp, F> DeviceOp for Inspect<A, F>
where
    F: FnOnce(&<A as DeviceOp>::Output) + Send,
{
    type Output = <A as DeviceOp>::Output;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<<A as DeviceOp>::Output> {
        // SAFETY: as the caller's.
        let output = unsafe { self.of.execute(cx)? };
        (self.look)(&output);
        Ok(output)
    }
}

// SAFETY: as for `Map`.
unsafe impl<A: GraphNode, F> GraphNode for Inspect<A, F> where
    F: FnOnce(&<A as DeviceOp>::Output) + Send
{
}
