//! How workers wait for one another: monotone signals that a waiter first watches and then sleeps on.
//!
//! A *signal* is a number that one worker at a time raises and others wait for. It is one atomic word, the number
//! shifted left by one, and a lowest bit that says "somebody sleeps on this". Because number and bit are one word, no
//! wake-up can be lost: a sleeper sets the bit by a read-modify-write that also returns the number, and whoever raises
//! the number swaps the word and sees the bit. There is no second location to race with, hence no fence.
//!
//! | word before | by | to | then |
//! | --- | --- | --- | --- |
//! | number reached | waiter | sets the bit (harmless: the next raise looks for sleepers in vain) | goes on |
//! | number not reached | waiter | sets the bit | parks, looks again when woken, for whatever reason |
//! | bit clear | raiser | new number, bit clear | nothing to do |
//! | bit set | raiser | new number, bit clear | unparks every waiter that is registered on this signal |
//!
//! A waiter registers (writes which signal it sleeps on) before it sets the bit, with release order; the raiser's swap
//! acquires, so it sees the registration of every waiter whose bit it took, also of the second who found the bit set.
//! An unpark that comes late wakes a thread that sleeps on something else or not at all; everybody looks again.
//!
//! A waiter that watches for long in vain learns to sleep sooner, see [`Restraint`].
//!
//! The signals of a team are the progress of each worker, and one that opens a replay. A worker's progress ends at
//! [`FINISHED`] or [`ABORTED`], above all counts, so whoever waits for a worker always gets away, and can see that
//! what it waited for did not happen. After it has raised that, a worker touches nothing that belongs to the replay.

use std::sync::{OnceLock, atomic};

use crossbeam_utils::CachePadded;

use super::sync::{AtomicU32, AtomicU64, Ordering, Thread, current, park, spin_loop, yield_now};

/// The number of a worker that has run all its tasks. Larger than every count.
pub(crate) const FINISHED: u64 = ABORTED - 1;
/// The number of a worker that skipped tasks because one failed.
pub(crate) const ABORTED: u64 = u64::MAX >> 1;

const SLEEPERS: u64 = 1;
const NOT_WAITING: u32 = u32::MAX;

/// How long to watch a signal before sleeping on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Looks with nothing between them: the other worker is about to arrive.
    pub(crate) looks: u32,
    /// Looks with a pause instruction between them.
    pub(crate) pauses: u32,
    /// Looks with the core offered to another thread between them.
    pub(crate) yields: u32,
}

#[derive(Debug)]
struct Waiter {
    /// The signal that this worker sleeps on or is about to.
    on: AtomicU32,
    /// Set by the worker's own thread before it first waits; never for worker 0, whose thread may change.
    thread: OnceLock<Thread>,
    restraint: Restraint,
}

/// The signals of a team of N workers, and who sleeps on them.
///
/// Worker 0 is the thread that runs the replay. `caller` is its handle wherever it may have to be woken; it must stay
/// valid after the replay, so a worker passes a handle that it owns.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Progress of worker w at w, the opening of replays at N.
    signals: Box<[CachePadded<AtomicU64>]>,
    waiters: Box<[CachePadded<Waiter>]>,
    patience: Patience,
}

impl Gate {
    pub(crate) fn new(workers: u32, patience: Patience) -> Self {
        let waiter = || Waiter {
            on: AtomicU32::new(NOT_WAITING),
            thread: OnceLock::new(),
            restraint: Restraint::default(),
        };
        Self {
            signals: (0..=workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            waiters: (0..workers).map(|_| CachePadded::new(waiter())).collect(),
            patience,
        }
    }

    fn opening(&self) -> u32 {
        self.waiters.len() as u32
    }

    /// Names the calling thread as the one to wake for `worker`; once, before it waits.
    pub(crate) fn register(&self, worker: u32) {
        self.waiters[worker as usize].thread.get_or_init(current);
    }

    /// Starts replay number `replay`, counted from 1. Everything that the caller wrote before is visible to the
    /// workers. All workers must be at rest: they have raised their final number, or never started.
    pub(crate) fn open(&self, replay: u64, caller: &Thread) {
        for progress in &self.signals[..self.waiters.len()] {
            progress.store(0, Ordering::Relaxed);
        }
        self.raise(self.opening(), replay, caller);
    }

    /// Waits, as `worker`, for replay number `replay`.
    pub(crate) fn wait_open(&self, worker: u32, replay: u64) {
        self.watch(worker, self.opening(), replay, self.patience);
    }

    /// Waits, as worker 0, until every other worker has raised its final number.
    pub(crate) fn wait_rest(&self) {
        for worker in 1..self.opening() {
            self.watch(0, worker, FINISHED, self.patience);
        }
    }

    /// Raises signal `on`, which no other thread raises at this time.
    #[inline]
    pub(crate) fn raise(&self, on: u32, number: u64, caller: &Thread) {
        let before = self.signals[on as usize].swap(number << 1, Ordering::AcqRel);
        if before & SLEEPERS != 0 {
            self.wake(on, caller);
        }
    }

    #[cold]
    fn wake(&self, on: u32, caller: &Thread) {
        for (worker, waiter) in self.waiters.iter().enumerate() {
            if waiter.on.load(Ordering::Relaxed) != on {
                continue;
            }
            match (worker, waiter.thread.get()) {
                (0, _) => caller.unpark(),
                (_, Some(thread)) => thread.unpark(),
                (_, None) => unreachable!("a worker registers before it waits"),
            }
        }
    }

    /// Waits, as `worker`, until worker `other` has raised its progress to `number`, and returns what it is. What the
    /// other wrote before is visible then.
    #[inline]
    pub(crate) fn wait(&self, worker: u32, other: u32, number: u64) -> u64 {
        let seen = self.signals[other as usize].load(Ordering::Acquire) >> 1;
        if seen >= number { seen } else { self.wait_long(worker, other, number) }
    }

    #[cold]
    fn wait_long(&self, worker: u32, other: u32, number: u64) -> u64 {
        let restraint = &self.waiters[worker as usize].restraint;
        if restraint.holds() {
            let short = Patience { pauses: 0, ..self.patience };
            return self.watch(worker, other, number, short).0;
        }
        let (seen, slept) = self.watch(worker, other, number, self.patience);
        restraint.learn(slept);
        seen
    }

    /// Waits, as `worker`, until signal `on` is at least `number`. Returns what it is, and whether the worker slept.
    fn watch(&self, worker: u32, on: u32, number: u64, patience: Patience) -> (u64, bool) {
        let signal = &self.signals[on as usize];
        let Patience { looks, pauses, yields } = patience;
        for look in 0..looks + pauses + yields {
            let seen = signal.load(Ordering::Acquire) >> 1;
            if seen >= number {
                return (seen, false);
            }
            if look >= looks + pauses {
                yield_now();
            } else if look >= looks {
                spin_loop();
            }
        }
        let registration = &self.waiters[worker as usize].on;
        registration.store(on, Ordering::Relaxed);
        let mut slept = false;
        loop {
            let seen = signal.fetch_or(SLEEPERS, Ordering::AcqRel) >> 1;
            if seen >= number {
                registration.store(NOT_WAITING, Ordering::Relaxed);
                return (seen, slept);
            }
            park();
            slept = true;
        }
    }
}

/// Whether watching pays at present.
///
/// When both workers run, a signal arrives within the patience and sleeping instead would cost a wake-up, some twenty
/// times a short task, on every hand-over; and since that delays the other worker past its own patience, both would go
/// on sleeping. When somebody else's thread has the core of the worker waited for, watching is in vain and keeps the
/// second core from it. So each wait that had to sleep makes more of the following ones short, up to
/// [`Restraint::MOST`], and each that didn't makes them fewer. On two cores beside a third busy thread a wavefront of
/// short tasks replays several times faster for it.
///
/// Only the worker itself uses this, so it is no part of the protocol and not visible to the model checker.
#[derive(Debug, Default)]
struct Restraint {
    /// How many of the next waits are short.
    short: atomic::AtomicU32,
    /// How many became short after the last long one that slept, less what was learnt since.
    backoff: atomic::AtomicU32,
}

impl Restraint {
    const MOST: u32 = 255;

    /// Counts a wait and says whether it should be short.
    fn holds(&self) -> bool {
        let short = self.short.load(Ordering::Relaxed);
        self.short.store(short.saturating_sub(1), Ordering::Relaxed);
        short > 0
    }

    /// Takes note of a long wait.
    fn learn(&self, slept: bool) {
        let backoff = self.backoff.load(Ordering::Relaxed);
        let backoff = if slept { (2 * backoff + 1).min(Self::MOST) } else { backoff / 2 };
        self.backoff.store(backoff, Ordering::Relaxed);
        self.short.store(if slept { backoff } else { 0 }, Ordering::Relaxed);
    }
}
