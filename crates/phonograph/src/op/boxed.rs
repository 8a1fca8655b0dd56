//! Operations of one type, whatever they do.

use super::DeviceOp;
use crate::Result;
use crate::context::ExecutionContext;

type Execute<'a, T> = dyn FnOnce(&ExecutionContext<'_>) -> Result<T> + Send + 'a;

/// See [`DeviceOp::boxed`].
#[must_use = "operations do nothing until they are executed"]
pub struct BoxedOp<'a, T>(Box<Execute<'a, T>>);

impl<'a, T: Send> BoxedOp<'a, T> {
    pub(super) fn new<O: DeviceOp<Output = T> + 'a>(op: O) -> Self {
        // SAFETY: the closure is called by `execute` alone, whose caller has promised the same.
        Self(Box::new(move |cx| unsafe { op.execute(cx) }))
    }
}

crate::awaitable!(['a, T: Send] BoxedOp<'a, T>);

impl<T: Send> DeviceOp for BoxedOp<'_, T> {
    type Output = T;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<T> {
        (self.0)(cx)
    }
}
