//! Operations as futures, for any executor.
//!
//! The first poll executes the operation, which hands its work to a stream; the stream's thread sleeps until the device has
//! done it, and wakes the task. Handing it over takes the device's lock, which on the CPU is held while a piece of work runs: a
//! first poll may wait for that one, and does itself what the work comes after on other streams, or its own stream once that
//! has a long queue. Else it waits for nothing that is queued. Dropping the future never waits: what the work
//! touches belongs to the stream's queue until it is done, and a completion that nobody waits for is forgotten.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::completion::Ticket;
use crate::context::ExecutionContext;
use crate::device::Stream;
use crate::lock::ExecutionLock;
use crate::op::DeviceOp;
use crate::policy::Policy;
use crate::runtime::streams::Waiting;
use crate::{Error, Result};

enum State<O: DeviceOp> {
    /// To be executed on a stream of the policy, if there is one.
    Ready(O, Option<Policy>, &'static Location<'static>),
    Waiting(<O as DeviceOp>::Output, Ticket<Result<()>>),
    Over,
}

/// An operation that is awaited. Made by `.await` or [`schedule`](DeviceOp::schedule).
#[must_use = "futures do nothing unless they are awaited"]
pub struct DeviceFuture<O: DeviceOp>(State<O>);

// Nothing is pinned: the operation and its output are moved out before they are used.
impl<O: DeviceOp> Unpin for DeviceFuture<O> {}

impl<O: DeviceOp> DeviceFuture<O> {
    /// To be scheduled by the policy that is in force on this thread now.
    #[track_caller]
    pub fn new(op: O) -> Self {
        Self(State::Ready(op, Policy::current(), Location::caller()))
    }

    #[track_caller]
    pub(crate) fn by(op: O, policy: Policy) -> Self {
        Self(State::Ready(op, Some(policy), Location::caller()))
    }
}

impl<O: DeviceOp> Future for DeviceFuture<O> {
    type Output = Result<<O as DeviceOp>::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.get_mut().0;
        if let State::Ready(..) = state {
            let State::Ready(op, policy, at) = std::mem::replace(state, State::Over) else {
                unreachable!("it has just been looked at")
            };
            match start(op, policy, at) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok((output, None)) => return Poll::Ready(Ok(output)),
                Ok((output, Some(ticket))) => *state = State::Waiting(output, ticket),
            }
        }
        let State::Waiting(_, ticket) = state else {
            panic!("a future was polled after it had completed");
        };
        let Poll::Ready(done) = ticket.poll(cx.waker()) else { return Poll::Pending };
        let State::Waiting(output, _) = std::mem::replace(state, State::Over) else {
            unreachable!("it has just been looked at")
        };
        Poll::Ready(done.map(|()| output))
    }
}

type Started<O> = (<O as DeviceOp>::Output, Option<Ticket<Result<()>>>);

/// Executes on a stream of the policy; the ticket is for when that is done.
fn start<O: DeviceOp>(
    op: O,
    policy: Option<Policy>,
    at: &'static Location<'static>,
) -> Result<Started<O>> {
    ExecutionLock::check_at(".await", at)?;
    let lock = ExecutionLock::take(".await")?;
    let stream = policy.ok_or(Policy::NONE_ENTERED)?.stream()?;
    let (run, completions) = (stream.run(), stream.completions()?);
    let cx = ExecutionContext::eager(&stream, &run);
    // SAFETY: the lock is held, and the context is of this execution alone. Nobody is told that the output has contents
    // before the ticket says so.
    let output = unsafe { op.execute(&cx) };
    let submitted = cx.submitted();
    drop(lock);
    let ticket = submitted.then(|| completions.after(run));
    // After an error the ticket goes: what had been submitted is done, and its failures are taken, by nobody.
    Ok((output?, ticket))
}

/// Executes on a stream and waits.
#[track_caller]
pub(crate) fn sync_on<O: DeviceOp>(
    op: O,
    stream: &Stream,
    what: &'static str,
) -> Result<<O as DeviceOp>::Output> {
    let lock = ExecutionLock::take(what)?;
    let run = stream.run();
    let cx = ExecutionContext::eager(stream, &run);
    // SAFETY: the lock is held, and the context is of this execution alone, which is waited for before the output is
    // given to anybody.
    let output = unsafe { op.execute(&cx) };
    let submitted = cx.submitted();
    drop(lock);
    let done = if submitted { run.sync(Waiting::Attentive) } else { Ok(()) };
    let output = output?; // the first error
    done.map(|()| output)
}

/// Executes on a stream without waiting; what fails shows in what it would have written.
#[track_caller]
pub(crate) fn enqueue_on<O: DeviceOp>(
    op: O,
    stream: &Stream,
    what: &'static str,
) -> Result<<O as DeviceOp>::Output> {
    let policy = Policy::single(stream);
    ExecutionLock::check(what)?;
    let (output, _forgotten) = start(op, Some(policy), Location::caller())?;
    Ok(output)
}

#[track_caller]
pub(crate) fn sync<O: DeviceOp>(op: O) -> Result<<O as DeviceOp>::Output> {
    ExecutionLock::check(".sync()")?;
    let policy = Policy::current().ok_or::<Error>(Policy::NONE_ENTERED)?;
    sync_on(op, &policy.stream()?, ".sync()")
}
