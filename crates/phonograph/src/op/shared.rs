//! Operations that several others build on.

use std::sync::Arc;

use super::DeviceOp;
use super::once::Once;
use crate::Result;
use crate::context::ExecutionContext;

/// See [`DeviceOp::shared`].
///
/// If a capture executes it first, its contents are that graph's: executed anywhere else it is then an
/// [error](crate::Error::SharedInCapture).
#[must_use = "operations do nothing until they are executed"]
pub struct SharedOp<O: DeviceOp>(Arc<Once<O, <O as DeviceOp>::Output>>);

impl<O: DeviceOp> Clone for SharedOp<O> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<O: DeviceOp> SharedOp<O> {
    pub(super) fn new(op: O) -> Self {
        Self(Arc::new(Once::new(op)))
    }
}

crate::awaitable!([T: Clone + Send, O: DeviceOp<Output = T>] SharedOp<O>);

impl<T: Clone + Send, O: DeviceOp<Output = T>> DeviceOp for SharedOp<O> {
    type Output = T;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<T> {
        self.0.take(cx, |output| output, |output| output.clone())
    }
}
