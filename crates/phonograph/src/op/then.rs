//! One operation after another.

use super::{DeviceOp, GraphNode};
use crate::Result;
use crate::context::ExecutionContext;
use crate::lock::ExecutionLock;

/// See [`DeviceOp::then`].
#[must_use = "operations do nothing until they are executed"]
pub struct Then<A, F> {
    pub(super) first: A,
    pub(super) next: F,
}

crate::awaitable!([A: DeviceOp, O: DeviceOp, F: FnOnce(<A as DeviceOp>::Output) -> O + Send] Then<A, F>);

impl<A: DeviceOp, O: DeviceOp, F> DeviceOp for Then<A, F>
where
    F: FnOnce(<A as DeviceOp>::Output) -> O + Send,
{
    type Output = <O as DeviceOp>::Output;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<<O as DeviceOp>::Output> {
        // SAFETY: as the caller's.
        let first = unsafe { self.first.execute(cx)? };
        // SAFETY: the same; the closure cannot wait for contents, because the lock is held.
        unsafe { (self.next)(first).execute(cx) }
    }
}

// SAFETY: both operations are nodes, and the closure executes nothing, because the lock is held.
unsafe impl<A: GraphNode, O: GraphNode, F> GraphNode for Then<A, F> where
    F: FnOnce(<A as DeviceOp>::Output) -> O + Send
{
}

/// See [`DeviceOp::then_unchecked`].
#[must_use = "operations do nothing until they are executed"]
pub struct ThenUnchecked<A, F> {
    pub(super) first: A,
    pub(super) next: F,
}

crate::awaitable!([A: DeviceOp, O: DeviceOp, F: FnOnce(<A as DeviceOp>::Output) -> O + Send] ThenUnchecked<A, F>);

impl<A: DeviceOp, O: DeviceOp, F> DeviceOp for ThenUnchecked<A, F>
where
    F: FnOnce(<A as DeviceOp>::Output) -> O + Send,
{
    type Output = <O as DeviceOp>::Output;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<<O as DeviceOp>::Output> {
        // SAFETY: as the caller's.
        let first = unsafe { self.first.execute(cx)? };
        let next = ExecutionLock::lifted(|| (self.next)(first));
        // SAFETY: as the caller's; what the closure has executed, whoever made this operation answers for.
        unsafe { next.execute(cx) }
    }
}
