//! Recording operation by operation.

use std::marker::PhantomData;

use crate::Result;
use crate::context::ExecutionContext;
use crate::device::{Run, Stream};
use crate::op::{DeviceOp, GraphNode};
use crate::recorder::Recording;

/// Where operations are recorded one by one: what [`CapturedGraph::scope`](crate::CapturedGraph::scope) and the bodies of
/// conditionals are given.
///
/// # Why `record` is sound
///
/// [`record`](Self::record) is safe to call, gives the operation's output at once, and lets go of everything that the
/// operation had borrowed, although nothing has been computed. That is sound because:
///
/// 1. **It leaves nothing behind but handles.** An operation becomes nodes that name buffers by handles of their own, which
///    the recording keeps and the graph takes over. No node points into what the operation had borrowed: a tensor can be
///    dropped while the graph that touches it lives, and its memory is handed to nobody else before the graph, and the last
///    launch of it, are gone.
/// 2. **Within an operation nothing aliases.** What it writes it holds as `&mut` (or owns) until it is recorded, so
///    the compiler has refused every operation that reads or writes the same part twice.
/// 3. **Between operations aliasing is order.** The borrows end with `record`, so the next operation may read what this
///    one writes, or overwrite what it reads. Every node names the regions that it touches, and the graph has an edge for
///    every pair that conflicts, in the order of recording; an instance is refused by an independent check if any conflict were
///    unordered. So a replay gives what executing the operations in that order gives.
/// 4. **Nothing reads what has not been computed.** The output is a handle. Its contents are reached by operations, which are
///    ordered like all others, or by waiting for the device ([`Tensor::to_vec`](crate::Tensor::to_vec)), which the thread's
///    execution lock refuses for as long as the scope is open. After that, reading gives what the last thing executed
///    has left there, a launch or not: numbers, which are valid whatever their bits.
/// 5. **Nothing runs meanwhile.** The lock also refuses `.sync()`, `.await`, updates and captures on this thread. Only
///    [`then_unchecked`](DeviceOp::then_unchecked), which is `unsafe`, gets around it, and a scope does not take it: it is no
///    [`GraphNode`].
/// 6. **A replay does all of it.** A scope takes only [`GraphNode`]s, which neither allocate nor free, so there is no
///    work that happens while recording and is missing from the graph. Scalars are baked unless they are
///    [slots](crate::Slot), as the kernel's signature says.
/// 7. **It stays where it is.** A scope is neither `Send` nor `Sync`, and lent for a lifetime of the scope's own, so it
///    neither leaves the thread that holds the lock nor survives the recording.
/// 8. **It ends in order.** An error or a panic drops the recording with all that it holds, and gives the lock back. Nothing
///    had been handed to the device but contents of the host's for memory that the graph was to own.
pub struct Scope<'s> {
    stream: &'s Stream,
    run: &'s Run,
    into: &'s Recording,
    /// Neither `Send` nor `Sync`, and of no other lifetime.
    _here: PhantomData<(*const (), Exactly<'s>)>,
}

/// Of this lifetime and no other.
type Exactly<'s> = fn(&'s ()) -> &'s ();

impl<'s> Scope<'s> {
    pub(crate) fn new(stream: &'s Stream, run: &'s Run, into: &'s Recording) -> Self {
        Self { stream, run, into, _here: PhantomData }
    }

    /// The stream of the capture.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Records an operation; its output, whose contents are there after a launch.
    ///
    /// # Errors
    /// Those of the operation. If it had been recorded in part, the graph cannot be sealed any more.
    pub fn record<O: GraphNode>(&self, op: O) -> Result<<O as DeviceOp>::Output> {
        let cx = ExecutionContext::recording(self.stream, self.run, self.into);
        // SAFETY: the lock is held, by whoever has made this scope, which does not leave the thread. The output is a handle; why
        // nobody takes it for more is said above.
        unsafe { op.execute(&cx) }
    }
}
