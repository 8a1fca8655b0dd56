//! Work written once, for a stream and for a scope.

use crate::Result;
use crate::device::Stream;
use crate::op::{DeviceOp, GraphNode};
use crate::scope::Scope;

/// Where work goes: to a stream, which executes it now, or to a scope, which records it.
///
/// What is written against this runs eagerly while it is being made to work, and is captured as it stands.
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! { fn add(x: &[f32], y: &mut [f32]) |_e| { y = x + y; } }
///
/// fn fibonacci(to: &impl Issue, a: &mut Tensor<f32>, b: &mut Tensor<f32>) -> Result<()> {
///     to.issue(add(&*a, &mut *b))?;
///     to.issue(add(&*b, &mut *a)).map(drop)
/// }
///
/// let device = Device::cpu(1)?;
/// let stream = device.stream(0);
/// let (mut a, mut b) = zip!(api::ones([1]), api::ones([1])).sync_on(&stream)?;
/// fibonacci(&stream, &mut a, &mut b)?; // 2, 3
/// let graph = CapturedGraph::scope(&stream, |s| fibonacci(s, &mut a, &mut b))?;
/// graph.launch().sync_on(&stream)?; // 5, 8
/// assert_eq!((b.to_vec()?, a.to_vec()?), (vec![5.0], vec![8.0]));
/// # Ok::<(), Error>(())
/// ```
pub trait Issue {
    /// Executes the operation and waits, or records it.
    ///
    /// # Errors
    /// As for [`sync_on`](DeviceOp::sync_on) and [`record`](Scope::record).
    #[track_caller]
    fn issue<O: GraphNode>(&self, op: O) -> Result<<O as DeviceOp>::Output>;
}

impl Issue for Stream {
    fn issue<O: GraphNode>(&self, op: O) -> Result<<O as DeviceOp>::Output> {
        op.sync_on(self)
    }
}

impl Issue for Scope<'_> {
    fn issue<O: GraphNode>(&self, op: O) -> Result<<O as DeviceOp>::Output> {
        self.record(op)
    }
}
