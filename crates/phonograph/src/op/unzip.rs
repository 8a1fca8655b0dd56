//! The halves of an operation's output, each as an operation.

use std::sync::Arc;

use super::DeviceOp;
use super::once::Once;
use crate::context::ExecutionContext;
use crate::{Error, Result};

type Halves<A, B> = (Option<A>, Option<B>);
type Work<O, A, B> = Arc<Once<O, Halves<A, B>>>;

/// The first half of what [`unzip`](DeviceOp::unzip) took apart.
#[must_use = "operations do nothing until they are executed"]
pub struct First<O: DeviceOp, A, B>(Work<O, A, B>);

/// The second half.
#[must_use = "operations do nothing until they are executed"]
pub struct Second<O: DeviceOp, A, B>(Work<O, A, B>);

pub(super) fn unzip<A: Send, B: Send, O: DeviceOp<Output = (A, B)>>(
    op: O,
) -> (First<O, A, B>, Second<O, A, B>) {
    let work = Arc::new(Once::new(op));
    (First(work.clone()), Second(work))
}

fn keep<A, B>((a, b): (A, B)) -> Halves<A, B> {
    (Some(a), Some(b))
}

crate::awaitable!([A: Send, B: Send, O: DeviceOp<Output = (A, B)>] First<O, A, B>);
crate::awaitable!([A: Send, B: Send, O: DeviceOp<Output = (A, B)>] Second<O, A, B>);

impl<A: Send, B: Send, O: DeviceOp<Output = (A, B)>> DeviceOp for First<O, A, B> {
    type Output = A;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<A> {
        // Each half is one operation, which is consumed: nobody has taken it before.
        self.0.take(cx, keep, |halves| halves.0.take())?.ok_or(Error::Interrupted)
    }
}

impl<A: Send, B: Send, O: DeviceOp<Output = (A, B)>> DeviceOp for Second<O, A, B> {
    type Output = B;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<B> {
        self.0.take(cx, keep, |halves| halves.1.take())?.ok_or(Error::Interrupted)
    }
}
