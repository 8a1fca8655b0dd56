//! What is left of a panic that was caught: its words, and its payload, which may panic once more when it goes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The words of a panic, or that it has none; its payload goes.
pub(crate) fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    quietly(|| drop(payload));
    text.unwrap_or_else(|| "a value that is not text".to_owned())
}

/// Lets go of something, which may run destructors of the user's, where their panics must not reach: the thread of whoever uses
/// the device next, a worker that others wait for, a driver that called. The panic hook has told of them.
pub(crate) fn quietly(work: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
        // Its own destructor may panic too.
        std::mem::forget(payload);
    }
}
