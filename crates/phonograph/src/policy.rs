//! Which stream an operation runs on when nobody names one.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::device::{Device, Stream};
use crate::{Error, Result};

type Choose = dyn Fn() -> Option<Stream> + Send + Sync;

#[derive(Clone)]
enum Kind {
    RoundRobin(Arc<[Stream]>, Arc<AtomicUsize>),
    Explicit(Arc<Choose>),
}

/// A scheduling policy. Clones go on together.
///
/// ```
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let turns = Policy::round_robin([device.stream(0), device.stream(1)]);
/// let order: Vec<u32> = (0..3).map(|_| turns.stream().unwrap().index()).collect();
/// assert_eq!(order, [0, 1, 0]);
/// assert!(Policy::round_robin([]).stream().is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Policy(Kind);

impl Policy {
    /// These streams in turn. Without any, whatever is scheduled fails.
    pub fn round_robin(streams: impl IntoIterator<Item = Stream>) -> Self {
        Self(Kind::RoundRobin(streams.into_iter().collect(), Arc::default()))
    }

    /// One stream, always.
    pub fn single(stream: &Stream) -> Self {
        Self::round_robin([stream.clone()])
    }

    /// The stream that `choose` names each time; `None` fails what was to be scheduled.
    pub fn explicit(choose: impl Fn() -> Option<Stream> + Send + Sync + 'static) -> Self {
        Self(Kind::Explicit(Arc::new(choose)))
    }

    /// The stream for the next operation.
    ///
    /// # Errors
    /// [`Error::NoStream`].
    pub fn stream(&self) -> Result<Stream> {
        match &self.0 {
            Kind::RoundRobin(streams, turn) => {
                let at = turn.fetch_add(1, Ordering::Relaxed).checked_rem(streams.len());
                let why = "the policy has no streams";
                at.map(|at| streams[at].clone()).ok_or(Error::NoStream { why })
            }
            Kind::Explicit(choose) => {
                choose().ok_or(Error::NoStream { why: "the policy names none" })
            }
        }
    }

    /// Makes it the policy of this thread until the guard is dropped.
    pub fn enter(&self) -> Entered {
        let before = CURRENT.replace(Some(self.clone()));
        Entered { before, _here: PhantomData }
    }

    /// The policy of this thread.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) const NONE_ENTERED: Error = Error::NoStream {
        why: "no policy was entered on this thread; see Device::enter, .sync_on() and .schedule()",
    };
}

impl From<&Device> for Policy {
    /// All streams of a device in turn.
    fn from(device: &Device) -> Self {
        Self::round_robin((0..device.streams()).map(|index| device.stream(index)))
    }
}

impl From<&Stream> for Policy {
    fn from(stream: &Stream) -> Self {
        Self::single(stream)
    }
}

impl From<&Policy> for Policy {
    fn from(policy: &Policy) -> Self {
        policy.clone()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Policy>> = const { RefCell::new(None) };
}

/// A policy is in force on this thread. Guards end in the reverse of their order.
#[must_use = "the policy ends with the guard"]
pub struct Entered {
    before: Option<Policy>,
    _here: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}
