//! Values, and operations written as closures.

use super::{DeviceOp, GraphNode};
use crate::Result;
use crate::context::ExecutionContext;

/// See [`value`].
#[must_use = "operations do nothing until they are executed"]
pub struct Value<T>(T);

/// An operation that does nothing and gives `value`: where a chain begins, or what a closure gives that has nothing to do.
///
/// ```
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let op = value([2, 3]).then(|extents| api::ones::<f32>(extents));
/// assert_eq!(op.sync_on(&device.stream(0))?.elements(), 6);
/// # Ok::<(), Error>(())
/// ```
pub fn value<T: Send>(value: T) -> Value<T> {
    Value(value)
}

crate::awaitable!([T: Send] Value<T>);

impl<T: Send> DeviceOp for Value<T> {
    type Output = T;

    unsafe fn execute(self, _: &ExecutionContext<'_>) -> Result<T> {
        Ok(self.0)
    }
}

// SAFETY: it does nothing.
unsafe impl<T: Send> GraphNode for Value<T> {}

/// See [`with_context`].
#[must_use = "operations do nothing until they are executed"]
pub struct WithContext<F>(F);

/// An operation written as a closure, which is given the context that it executes in.
///
/// ```
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let stream = device.stream(3);
/// let index = with_context(|cx| Ok(cx.stream().index()));
/// assert_eq!(index.sync_on(&stream)?, 3);
/// # Ok::<(), Error>(())
/// ```
pub fn with_context<T, F>(work: F) -> WithContext<F>
where
    T: Send,
    F: FnOnce(&ExecutionContext<'_>) -> Result<T> + Send,
{
    WithContext(work)
}

crate::awaitable!([T: Send, F: FnOnce(&ExecutionContext<'_>) -> Result<T> + Send] WithContext<F>);

impl<T: Send, F> DeviceOp for WithContext<F>
where
    F: FnOnce(&ExecutionContext<'_>) -> Result<T> + Send,
{
    type Output = T;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<T> {
        (self.0)(cx)
    }
}
