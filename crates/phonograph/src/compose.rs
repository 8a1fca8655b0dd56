//! Operations composed of several nodes, with scratch tensors of their own.

use crate::Result;
use crate::context::ExecutionContext;
use crate::graph::View;
use crate::kernels::{Ops, OpsError};
use crate::op::{DeviceOp, GraphNode};
use crate::operand::Operands;

/// See [`compose`].
#[must_use = "operations do nothing until they are executed"]
pub struct Compose<A, F> {
    name: String,
    operands: A,
    body: F,
}

/// An operation whose nodes `body` records with [`Ops`]: matrix products, softmax, losses, optimisers. What it needs between
/// its nodes is scratch, which the plan places. It gives its operands back.
///
/// ```
/// use phonograph::kernels::expr;
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let _entered = device.enter();
/// let x = api::upload(vec![0.0f32, 0.0, 0.0, 5.0], [2, 2]).sync()?;
/// let mut y = api::zeros::<f32>([2, 2]).sync()?;
/// compose("softmax", (&x, &mut y), |ops, [x, y]| {
///     let p = ops.softmax("p", x)?;
///     ops.map_into("out", expr::identity(p.dtype), &[p], &[], &[y]).map(drop)
/// })
/// .sync()?;
/// assert_eq!(&y.to_vec()?[..2], [0.5, 0.5]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// Executed: those of `body`; [`WritesInput`](crate::Error::WritesInput) if its nodes write an operand that was given to be read.
pub fn compose<A, F>(name: &str, operands: A, body: F) -> Compose<A, F>
where
    A: Operands,
    F: FnOnce(&mut Ops<'_>, A::Views) -> Result<(), OpsError> + Send,
{
    Compose { name: name.into(), operands, body }
}

crate::awaitable!([A: Operands, F: FnOnce(&mut Ops<'_>, A::Views) -> Result<(), OpsError> + Send] Compose<A, F>);

impl<A: Operands, F> DeviceOp for Compose<A, F>
where
    F: FnOnce(&mut Ops<'_>, A::Views) -> Result<(), OpsError> + Send,
{
    type Output = A::Back;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<A::Back> {
        let Self { name, operands, body } = self;
        let windows = operands.windows();
        cx.record(|recorder| {
            let views: Vec<View> = windows.iter().map(|(w, _)| recorder.view(w)).collect();
            let first = recorder.builder().node_count();
            body(&mut recorder.ops(), A::views(&views))?;
            let writable = views.iter().zip(&windows).filter(|(_, (_, writes))| *writes);
            let writable: Vec<_> = writable.map(|(view, _)| view.buffer).collect();
            recorder.check_writes(&name, first, &writable)
        })?;
        Ok(operands.back())
    }
}

// SAFETY: it records nodes; scratch is the graph's, and whatever else the body did with the builder, instantiation checks.
unsafe impl<A: Operands, F> GraphNode for Compose<A, F> where
    F: FnOnce(&mut Ops<'_>, A::Views) -> Result<(), OpsError> + Send
{
}
