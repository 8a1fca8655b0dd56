//! Waiting for a stream without the device: an event after what has been issued so far, taken from those that nobody waits for.

use std::sync::{Arc, Mutex, PoisonError};

use phonograph_runtime::streams::{BackendError, Step, Wait, Waiting};

use crate::error::DriverError;
use crate::stream::{Event, Stream};

/// Events that nobody waits for, by how they are waited for.
#[derive(Default)]
pub(super) struct Marks {
    attentive: Free,
    asleep: Free,
}

type Free = Arc<Mutex<Vec<Event>>>;

impl Marks {
    /// What waits for everything issued to the stream so far.
    pub fn mark(&mut self, stream: &Stream, waiting: Waiting) -> Result<Wait, DriverError> {
        let free = match waiting {
            Waiting::Attentive => self.attentive.clone(),
            Waiting::Asleep => self.asleep.clone(),
        };
        let known = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let event = match (known, waiting) {
            (Some(event), _) => event,
            (None, Waiting::Attentive) => Event::new(stream.device())?,
            (None, Waiting::Asleep) => Event::waited_for_asleep(stream.device())?,
        };
        event.record(stream)?;
        Ok(Box::new(move || {
            let waited = event.synchronize();
            free.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            waited.map_err(|error| BackendError::new(Step::Fence, error))
        }))
    }
}
