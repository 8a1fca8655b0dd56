//! External events: how work outside a graph and work inside it wait for each other.
//!
//! The CPU has no asynchronous stream whose position an event could mark. What a record marks here is a
//! [`Ticket`]: whoever has work under way takes one and lets go of it when the work is done. A wait in a graph lasts
//! until no ticket is out; with none it passes at once, as a wait for an event that was never recorded does.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    /// Tickets that are out.
    pending: u64,
    /// How often a graph has recorded the event.
    recorded: u64,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

/// An event that a graph records, waits for, or both.
///
/// ```
/// use phonograph_runtime::cpu::Event;
///
/// let event = Event::new();
/// let ticket = event.ticket(); // a wait would block from here
/// std::thread::spawn(move || drop(ticket)); // … until this work is done
/// event.wait();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Event(Arc<Inner>);

impl Event {
    /// An event that nothing is under way for.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is two counters, right at every moment: a panic elsewhere cannot have left it half changed.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces work that waits are to wait for; letting go of the ticket ends it, also by unwinding.
    pub fn ticket(&self) -> Ticket {
        self.state().pending += 1;
        Ticket(self.clone())
    }

    /// Blocks until no ticket is out.
    pub fn wait(&self) {
        let idle = self.0.changed.wait_while(self.state(), |state| state.pending > 0);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
    }

    /// How often replays have recorded this event.
    pub fn recorded(&self) -> u64 {
        self.state().recorded
    }

    /// Blocks until the event has been recorded at least `count` times.
    pub fn wait_recorded(&self, count: u64) {
        let reached = self.0.changed.wait_while(self.state(), |state| state.recorded < count);
        drop(reached.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn record(&self) {
        self.state().recorded += 1;
        self.0.changed.notify_all();
    }
}

/// Work under way that an [`Event`] stands for.
#[must_use = "waits last until the ticket is dropped"]
pub struct Ticket(Event);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.state().pending -= 1;
        self.0.0.changed.notify_all();
    }
}
