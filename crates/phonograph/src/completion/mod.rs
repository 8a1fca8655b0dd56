//! Who runs what futures wait for, and tells them.
//!
//! One thread for each stream that futures wait for, started with the first; what is on a stream is done in order, so nobody
//! is told late because of somebody before it. A thread sleeps while nothing is awaited. It takes futures in the order in
//! which they began to wait, runs what is queued there piece by piece, so that others get at the device in between, sleeps
//! until the device has done it, without the device's lock, and completes the future with what has failed of its own work.

mod table;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

pub(crate) use table::Ticket;
use table::{Promise, Table};

use crate::device::Run;
use crate::runtime::streams::Waiting;
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
    /// By stream; those whose thread runs.
    lanes: Box<[Mutex<Option<Arc<Shared>>>]>,
    table: Table<Result<()>>,
}

/// Completions of one stream, whose thread runs.
pub(crate) struct Lane {
    shared: Arc<Shared>,
    table: Table<Result<()>>,
}

impl Completions {
    /// For a device of so many streams. Nothing runs yet.
    pub fn new(streams: u32) -> Self {
        let lanes = (0..streams).map(|_| Mutex::default()).collect();
        Self { lanes, table: Table::default() }
    }

    /// The completions of a stream; starts its thread the first time.
    pub fn lane(&self, stream: u32) -> Result<Lane> {
        let lane = &self.lanes[stream as usize];
        let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match &*lane {
            Some(shared) => shared.clone(),
            None => {
                let shared = Arc::new(Shared::default());
                let theirs = shared.clone();
                let builder = thread::Builder::new().name(format!("phonograph stream {stream}"));
                builder.spawn(move || serve(&theirs)).map_err(|e| Error::Start(e.to_string()))?;
                lane.insert(shared).clone()
            }
        };
        Ok(Lane { shared, table: self.table.clone() })
    }

    /// Completions that are still to come or to be taken.
    pub fn pending(&self) -> usize {
        self.table.in_use()
    }
}

impl Lane {
    /// Completed once everything that `run`, an execution on this stream, has submitted is done.
    pub fn after(&self, run: Run) -> Ticket<Result<()>> {
        let (ticket, promise) = self.table.register();
        self.shared.lock().jobs.push_back((run, promise));
        self.shared.changed.notify_one();
        ticket
    }
}

impl Drop for Completions {
    /// Does not wait for the threads, each of which ends once its queue is empty.
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            let lane = lane.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(shared) = lane {
                shared.lock().closed = true;
                shared.changed.notify_one();
            }
        }
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
        let done = run.sync(Waiting::Asleep);
        // A waker that panics must not take the others' completions with it; its own is stored before it is called.
        if catch_unwind(AssertUnwindSafe(|| promise.complete(done))).is_err() {
            continue;
        }
    }
}
