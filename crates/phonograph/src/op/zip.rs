//! Operations side by side.

use super::{DeviceOp, GraphNode};
use crate::Result;
use crate::context::ExecutionContext;

/// Two operations; see [`zip!`](crate::zip).
#[must_use = "operations do nothing until they are executed"]
pub struct Zip<A, B>(pub(crate) A, pub(crate) B);

impl<A, B> Zip<A, B> {
    /// Both.
    pub fn new(a: A, b: B) -> Self {
        Self(a, b)
    }
}

crate::awaitable!([A: DeviceOp, B: DeviceOp] Zip<A, B>);

impl<A: DeviceOp, B: DeviceOp> DeviceOp for Zip<A, B> {
    type Output = (<A as DeviceOp>::Output, <B as DeviceOp>::Output);

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<<Self as DeviceOp>::Output> {
        // SAFETY: as the caller's.
        let a = unsafe { self.0.execute(cx)? };
        // SAFETY: the same.
        let b = unsafe { self.1.execute(cx)? };
        Ok((a, b))
    }
}

// SAFETY: both are nodes.
unsafe impl<A: GraphNode, B: GraphNode> GraphNode for Zip<A, B> {}

/// Operations side by side, with the tuple of their outputs.
///
/// Executed, they go to the stream one after the other. Recorded, they become parallel branches: nothing orders them but the
/// memory that they share, and that in the order given here, so that a replay gives what executing them gives.
///
/// ```
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let (a, b, c) = zip!(value(1), value("two"), value(3.0)).sync_on(&device.stream(0))?;
/// assert_eq!((a, b, c), (1, "two", 3.0));
/// # Ok::<(), Error>(())
/// ```
#[macro_export]
macro_rules! zip {
    ($a:expr, $b:expr $(,)?) => {
        $crate::op::Zip::new($a, $b)
    };
    ($a:expr, $b:expr, $c:expr $(,)?) => {
        $crate::DeviceOp::map($crate::zip!($crate::zip!($a, $b), $c), |((a, b), c)| (a, b, c))
    };
    ($a:expr, $b:expr, $c:expr, $d:expr $(,)?) => {
        $crate::DeviceOp::map($crate::zip!($crate::zip!($a, $b, $c), $d), |((a, b, c), d)| {
            (a, b, c, d)
        })
    };
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr $(,)?) => {
        $crate::DeviceOp::map(
            $crate::zip!($crate::zip!($a, $b, $c, $d), $e),
            |((a, b, c, d), e)| (a, b, c, d, e),
        )
    };
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(,)?) => {
        $crate::DeviceOp::map(
            $crate::zip!($crate::zip!($a, $b, $c, $d, $e), $f),
            |((a, b, c, d, e), f)| (a, b, c, d, e, f),
        )
    };
}
