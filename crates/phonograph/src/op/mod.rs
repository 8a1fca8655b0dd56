//! Operations that are written down before anything runs.

mod boxed;
mod map;
mod once;
mod shared;
mod then;
mod unzip;
mod value;
mod zip;

use std::future::IntoFuture;

pub use boxed::BoxedOp;
pub use map::{Inspect, Map};
pub use shared::SharedOp;
pub use then::{Then, ThenUnchecked};
pub use unzip::{First, Second};
pub use value::{Value, WithContext, value, with_context};
pub use zip::Zip;

use crate::Result;
use crate::captured::CapturedGraph;
use crate::context::ExecutionContext;
use crate::device::Stream;
use crate::future::{self, DeviceFuture};
use crate::policy::Policy;

/// Work for a device: lazy, and consumed when it is executed.
///
/// Nothing happens before `.sync()`, `.sync_on(&stream)`, `.await`, a capture or a scope executes it. Whoever implements it
/// says [`awaitable!`](crate::awaitable) as well, so that it can be awaited.
///
/// ```
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let _entered = device.enter();
/// let total = zip!(api::ones::<f32>([3]), api::full([3], 2.0f32))
///     .then(|(x, y)| add(x, y))
///     .map(|y| (y.elements(), y));
/// let (elements, y) = total.sync()?;
/// assert_eq!((elements, y.to_vec()?), (3, vec![3.0; 3]));
///
/// kernel! {
///     /// y ← x + y
///     fn add(x: &[f32], y: &mut [f32]) |_e| { y = x + y; }
/// }
/// # Ok::<(), Error>(())
/// ```
pub trait DeviceOp:
    Sized
    + Send
    + IntoFuture<Output = Result<<Self as DeviceOp>::Output>, IntoFuture = DeviceFuture<Self>>
{
    /// What it gives. Tensors in it are handles: their contents are there when the work is done.
    type Output: Send;

    /// Hands the work to the context's stream, or to the graph that is being recorded, and does not wait for it.
    ///
    /// # Safety
    /// The output must be taken for what it is: handles whose contents are there only once the stream, or a launch of the
    /// graph, has got there. The thread's execution lock must be held, which it is wherever a context is handed out.
    ///
    /// # Errors
    /// Whatever the operation refuses. What it had handed over before that happens nevertheless, unless it was recorded.
    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<<Self as DeviceOp>::Output>;

    /// This, then what `next` makes of its output, on the same stream.
    ///
    /// `next` runs while the operation is executed, before its work is done; it can use the output in further operations,
    /// and cannot execute anything itself.
    fn then<O, F>(self, next: F) -> Then<Self, F>
    where
        O: DeviceOp,
        F: FnOnce(<Self as DeviceOp>::Output) -> O + Send,
    {
        Then { first: self, next }
    }

    /// As [`then`](Self::then), but `next` may execute operations itself, which happens at once, in a capture too.
    ///
    /// # Safety
    /// `next` must not let eager work read or overwrite what this operation, or what was recorded before it, is to compute:
    /// in a capture that has not been computed, and in a replay it would not happen again.
    unsafe fn then_unchecked<O, F>(self, next: F) -> ThenUnchecked<Self, F>
    where
        O: DeviceOp,
        F: FnOnce(<Self as DeviceOp>::Output) -> O + Send,
    {
        ThenUnchecked { first: self, next }
    }

    /// The output changed on the host while the operation is executed.
    fn map<T, F>(self, change: F) -> Map<Self, F>
    where
        T: Send,
        F: FnOnce(<Self as DeviceOp>::Output) -> T + Send,
    {
        Map { of: self, change }
    }

    /// Looks at the output while the operation is executed.
    fn inspect<F>(self, look: F) -> Inspect<Self, F>
    where
        F: FnOnce(&<Self as DeviceOp>::Output) + Send,
    {
        Inspect { of: self, look }
    }

    /// Of no type but its output's.
    fn boxed<'a>(self) -> BoxedOp<'a, <Self as DeviceOp>::Output>
    where
        Self: 'a,
    {
        BoxedOp::new(self)
    }

    /// An operation that can be cloned and executed several times: its work is done once, by the first.
    fn shared(self) -> SharedOp<Self>
    where
        <Self as DeviceOp>::Output: Clone,
    {
        SharedOp::new(self)
    }

    /// An operation for each half of the output. The work is done once, by the first of them.
    fn unzip<A, B>(self) -> (First<Self, A, B>, Second<Self, A, B>)
    where
        Self: DeviceOp<Output = (A, B)>,
        A: Send,
        B: Send,
    {
        unzip::unzip(self)
    }

    /// Executes on a stream of the policy that is [in force](crate::Device::enter) on this thread, and waits.
    ///
    /// # Errors
    /// [`NonReentrant`](crate::Error::NonReentrant), [`NoStream`](crate::Error::NoStream), and what the work says.
    #[track_caller]
    fn sync(self) -> Result<<Self as DeviceOp>::Output> {
        future::sync(self)
    }

    /// Executes on this stream and waits.
    ///
    /// # Errors
    /// [`NonReentrant`](crate::Error::NonReentrant), and what the work says.
    #[track_caller]
    fn sync_on(self, stream: &Stream) -> Result<<Self as DeviceOp>::Output> {
        future::sync_on(self, stream, ".sync_on()")
    }

    /// To be awaited, by a policy: a device, a stream, or a [`Policy`].
    #[track_caller]
    fn schedule(self, policy: impl Into<Policy>) -> DeviceFuture<Self> {
        DeviceFuture::by(self, policy.into())
    }

    /// Captured for replays on this stream; see [`CapturedGraph::capture`].
    ///
    /// # Errors
    /// As for [`CapturedGraph::capture`].
    #[track_caller]
    fn graph_on(self, stream: &Stream) -> Result<CapturedGraph<<Self as DeviceOp>::Output>> {
        CapturedGraph::capture(stream, self)
    }
}

/// An operation that becomes nodes of a graph and nothing else.
///
/// Kernels, copies and values are; so are combinations of them, as long as what their closures give is. Operations that
/// allocate, boxed and shared ones are not, nor is what runs with a context of its own.
///
/// # Safety
/// Executing it must neither allocate nor free memory of the device, nor execute anything besides recording: a scope
/// relies on it that a replay does all of what it was given.
pub unsafe trait GraphNode: DeviceOp {}

/// Lets an operation be awaited: `awaitable!([generics] Type)`.
///
/// ```
/// use phonograph::prelude::*;
///
/// struct Twice<O>(O);
/// phonograph::awaitable!([O: DeviceOp<Output = u32>] Twice<O>);
/// impl<O: DeviceOp<Output = u32>> DeviceOp for Twice<O> {
///     type Output = u32;
///     unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<u32> {
///         // SAFETY: as the caller's.
///         Ok(2 * unsafe { self.0.execute(cx)? })
///     }
/// }
/// let device = Device::cpu(1)?;
/// assert_eq!(Twice(value(4)).sync_on(&device.stream(0))?, 8);
/// # Ok::<(), Error>(())
/// ```
#[macro_export]
macro_rules! awaitable {
    ([$($generics:tt)*] $op:ty) => {
        impl<$($generics)*> ::std::future::IntoFuture for $op {
            type Output = $crate::Result<<$op as $crate::DeviceOp>::Output>;
            type IntoFuture = $crate::DeviceFuture<$op>;

            #[track_caller]
            fn into_future(self) -> Self::IntoFuture {
                $crate::DeviceFuture::new(self)
            }
        }
    };
}
