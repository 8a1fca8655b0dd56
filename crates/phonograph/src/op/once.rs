//! An operation whose work is done once, by whoever executes it first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};

use super::DeviceOp;
use crate::context::ExecutionContext;
use crate::{Error, Result};

enum State<O, S> {
    Waiting(O),
    /// What it gave, and the recording that it was first executed in.
    Done(S, Option<Arc<()>>),
    Failed(Error),
    /// Its closures panicked.
    Lost,
}

/// The work, and what became of it; `S` is made of the output.
pub(super) struct Once<O, S> {
    state: Mutex<State<O, S>>,
    /// Who executes it right now.
    by: Mutex<Option<ThreadId>>,
}

/// Says who executes, until it is dropped.
struct Executing<'a>(&'a Mutex<Option<ThreadId>>);

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<O: DeviceOp, S> Once<O, S> {
    pub fn new(op: O) -> Self {
        Self { state: Mutex::new(State::Waiting(op)), by: Mutex::new(None) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State<O, S>>> {
        match self.state.try_lock() {
            Ok(state) => return Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        // Another thread executes it, which takes as long as handing its work over. This one must not wait for itself.
        let by = *self.by.lock().unwrap_or_else(PoisonError::into_inner);
        if by == Some(thread::current().id()) {
            return Err(Error::NonReentrant { what: "a shared operation", at: None });
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does the work if it is to be done, and takes something of what it gave.
    pub fn take<T>(
        &self,
        cx: &ExecutionContext<'_>,
        keep: impl FnOnce(<O as DeviceOp>::Output) -> S,
        take: impl FnOnce(&mut S) -> T,
    ) -> Result<T> {
        let mut state = self.lock()?;
        if let State::Waiting(_) = &*state {
            let State::Waiting(op) = std::mem::replace(&mut *state, State::Lost) else {
                unreachable!("it has just been looked at")
            };
            *self.by.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
            let executing = Executing(&self.by);
            // SAFETY: as the caller's, who executes a share of this operation.
            let done = unsafe { op.execute(cx) };
            drop(executing);
            *state = match done {
                Ok(output) => State::Done(keep(output), cx.identity().cloned()),
                Err(error) => State::Failed(error),
            };
        }
        match &mut *state {
            State::Done(kept, place) => {
                let here = cx.identity();
                let elsewhere = place
                    .as_ref()
                    .is_some_and(|place| here.is_none_or(|here| !Arc::ptr_eq(place, here)));
                if elsewhere { Err(Error::SharedInCapture) } else { Ok(take(kept)) }
            }
            State::Failed(error) => Err(error.clone()),
            State::Waiting(_) | State::Lost => Err(Error::Interrupted),
        }
    }
}
