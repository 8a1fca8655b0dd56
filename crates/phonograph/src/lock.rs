//! One execution at a time on each thread.
//!
//! While a thread captures, or runs the closures of an operation that executes, it must not start or await other work: in a
//! capture that work would run at once instead of being recorded, and what it reads would not have been computed. The lock
//! is the thread's own, so nobody waits for it and other threads go on.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

use crate::{Error, Result};

thread_local! {
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Held while a thread executes or records. Stays on its thread.
#[must_use]
pub(crate) struct ExecutionLock {
    before: bool,
    _here: PhantomData<*const ()>,
}

impl ExecutionLock {
    /// Takes the lock for `what`, or says that it is held.
    #[track_caller]
    pub fn take(what: &'static str) -> Result<Self> {
        Self::check(what)?;
        Ok(Self::set(true))
    }

    /// Whether `what` may be done now.
    #[track_caller]
    pub fn check(what: &'static str) -> Result<()> {
        Self::check_at(what, Location::caller())
    }

    /// As `check`, for what was asked for there.
    pub fn check_at(what: &'static str, at: &'static Location<'static>) -> Result<()> {
        if HELD.get() { Err(Error::NonReentrant { what, at: Some(at) }) } else { Ok(()) }
    }

    /// Holds the lock whoever else does: around host functions, which a launch calls wherever it runs.
    pub fn hold() -> Self {
        Self::set(true)
    }

    /// Lifts the lock for the time of a call.
    pub fn lifted<R>(work: impl FnOnce() -> R) -> R {
        let _lifted = Self::set(false);
        work()
    }

    fn set(held: bool) -> Self {
        Self { before: HELD.replace(held), _here: PhantomData }
    }
}

impl Drop for ExecutionLock {
    fn drop(&mut self) {
        HELD.set(self.before);
    }
}
