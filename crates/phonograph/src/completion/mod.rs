//! Who runs what futures wait for, and tells them.
//!
//! One thread for each device, which sleeps while nothing is awaited. It takes streams in the order in which futures began to
//! wait, runs what is queued there piece by piece, so that others get at the device in between, and completes the future with
//! what has failed of its own work.

mod table;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

pub(crate) use table::Ticket;
use table::{Promise, Table};

use crate::device::Run;
use crate::{Error, Result};

/// The primitives that `table` is built on. The model checker's test includes `table.rs` beside a module of the same name
/// that has loom's.
mod sync {
    pub(crate) use std::sync::{Arc, Mutex};
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Run, Promise<Result<()>>)>,
    /// The device is gone; what is queued is still done.
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device's side: hands out completions.
pub(crate) struct Completions {
    shared: Arc<Shared>,
    table: Table<Result<()>>,
}

impl Completions {
    /// Starts the thread.
    pub fn start() -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let builder = thread::Builder::new().name("phonograph completions".into());
        builder.spawn(move || serve(&theirs)).map_err(|e| Error::Start(e.to_string()))?;
        Ok(Self { shared, table: Table::default() })
    }

    /// Completed once everything that `run` has submitted is done.
    pub fn after(&self, run: Run) -> Ticket<Result<()>> {
        let (ticket, promise) = self.table.register();
        self.shared.lock().jobs.push_back((run, promise));
        self.shared.changed.notify_one();
        ticket
    }

    /// Completions that are still to come or to be taken.
    pub fn pending(&self) -> usize {
        self.table.in_use()
    }
}

impl Drop for Completions {
    /// Does not wait for the thread, which ends once its queue is empty.
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

fn serve(shared: &Shared) {
    loop {
        let mut queue = shared.lock();
        let (run, promise) = loop {
            if let Some(job) = queue.jobs.pop_front() {
                break job;
            }
            if queue.closed {
                return;
            }
            queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        while run.advance() {}
        let done = run.sync();
        // A waker that panics must not take the others' completions with it; its own is stored before it is called.
        if catch_unwind(AssertUnwindSafe(|| promise.complete(done))).is_err() {
            continue;
        }
    }
}
