//! Every interleaving of the gate's protocol, by a model checker. This includes the gate's own source, with loom's
//! primitives in place of the standard library's.

#[path = "../src/cpu/gate.rs"]
mod gate;

/// What `gate.rs` imports.
mod sync {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::thread::{Thread, current, park, yield_now};
}

use gate::{ABORTED, FINISHED, Gate, Patience};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Sleep at once: every look before that would only repeat a state.
const IMPATIENT: Patience = Patience { looks: 0, pauses: 0, yields: 0 };

/// The gate and memory that its order must protect: loom reports any unordered pair of accesses.
struct Shared {
    gate: Gate,
    job: UnsafeCell<u64>,
    data: Vec<UnsafeCell<u64>>,
}

impl Shared {
    fn new(workers: u32, data: usize) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(workers, IMPATIENT),
            job: UnsafeCell::new(0),
            data: (0..data).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn write(&self, index: usize, value: u64) {
        self.data[index].with_mut(|p| {
            // SAFETY: loom checks that no other access is unordered with this one.
            unsafe { *p = value }
        });
    }

    #[track_caller]
    fn expect(&self, index: usize, value: u64) {
        self.data[index].with(|p| {
            // SAFETY: as in `write`.
            assert_eq!(unsafe { *p }, value);
        });
    }
}

/// Explores all interleavings with at most this many preemptions: the model checker's usual cut. Three threads with
/// two replays each are out of reach without it.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Starts a thread that lives as `team::serve` does, for some replays: wait for one, read the job, run, raise the final
/// number. Nobody joins it: a model ends when all threads have ended, and loom's own `join` does not bear
/// the late unpark that the protocol allows.
fn serve(
    shared: &Arc<Shared>,
    worker: u32,
    replays: u64,
    caller: &sync::Thread,
    run: impl Fn(&Shared, u64, &sync::Thread) -> u64 + 'static,
) {
    let (shared, caller) = (Arc::clone(shared), caller.clone());
    thread::spawn(move || {
        shared.gate.register(worker);
        for replay in 1..=replays {
            shared.gate.wait_open(worker, replay);
            let job = shared.job.with(|p| {
                // SAFETY: as in `Shared::write`.
                unsafe { *p }
            });
            let number = run(&shared, job, &caller);
            shared.gate.raise(worker, number, &caller);
        }
    });
}

fn open(shared: &Shared, replay: u64, job: u64, caller: &sync::Thread) {
    shared.job.with_mut(|p| {
        // SAFETY: as in `Shared::write`; this is the write that must not meet a reader of the last replay.
        unsafe { *p = job }
    });
    shared.gate.open(replay, caller);
}

/// Two replays of: worker 1 makes datum 0, worker 0 makes datum 1 from it.
#[test]
fn progress_and_reuse() {
    check(4, || {
        let shared = Shared::new(2, 2);
        let caller = sync::current();
        serve(&shared, 1, 2, &caller, |shared, job, caller| {
            shared.write(0, job);
            shared.gate.raise(1, 1, caller);
            FINISHED
        });
        for (replay, job) in [(1, 10), (2, 20)] {
            open(&shared, replay, job, &caller);
            let seen = shared.gate.wait(0, 1, 1);
            assert!(seen == 1 || seen == FINISHED);
            shared.expect(0, job);
            shared.write(1, job + 1);
            shared.gate.raise(0, FINISHED, &caller);
            shared.gate.wait_rest();
        }
    });
}

/// Three workers in a ring of waits: 0 before 1 before 2 before 0, each sleeping on another.
#[test]
fn ring_of_three() {
    check(2, || {
        let shared = Shared::new(3, 3);
        let caller = sync::current();
        let run = |worker: u32| {
            move |shared: &Shared, job: u64, caller: &sync::Thread| {
                assert!(shared.gate.wait(worker, worker - 1, 1) >= 1);
                shared.expect(worker as usize - 1, job);
                shared.write(worker as usize, job);
                shared.gate.raise(worker, 1, caller);
                FINISHED
            }
        };
        serve(&shared, 1, 1, &caller, run(1));
        serve(&shared, 2, 1, &caller, run(2));
        open(&shared, 1, 7, &caller);
        shared.write(0, 7);
        shared.gate.raise(0, 1, &caller);
        assert!(shared.gate.wait(0, 2, 1) >= 1);
        shared.expect(2, 7);
        shared.gate.raise(0, FINISHED, &caller);
        shared.gate.wait_rest();
    });
}

/// Two workers sleep on the same signal: the second finds the bit set.
#[test]
fn two_sleepers_on_one_signal() {
    check(2, || {
        let shared = Shared::new(3, 1);
        let caller = sync::current();
        let run = |worker: u32| {
            move |shared: &Shared, job: u64, _: &sync::Thread| {
                assert!(shared.gate.wait(worker, 0, 2) >= 2);
                shared.expect(0, job);
                FINISHED
            }
        };
        serve(&shared, 1, 1, &caller, run(1));
        serve(&shared, 2, 1, &caller, run(2));
        open(&shared, 1, 5, &caller);
        // Wakes both in vain.
        shared.gate.raise(0, 1, &caller);
        shared.write(0, 5);
        shared.gate.raise(0, 2, &caller);
        shared.gate.raise(0, FINISHED, &caller);
        shared.gate.wait_rest();
    });
}

/// Worker `failing` gives up before its publication; who waits for it gets away and knows.
fn check_abort(failing: u32) {
    check(3, move || {
        let shared = Shared::new(2, 0);
        let caller = sync::current();
        let share = move |worker: u32, shared: &Shared, caller: &sync::Thread| {
            if worker == failing {
                return ABORTED;
            }
            assert_eq!(shared.gate.wait(worker, failing, 1), ABORTED);
            shared.gate.raise(worker, 1, caller);
            ABORTED
        };
        serve(&shared, 1, 2, &caller, move |shared, _, caller| share(1, shared, caller));
        for replay in [1, 2] {
            open(&shared, replay, 1, &caller);
            let number = share(0, &shared, &caller);
            shared.gate.raise(0, number, &caller);
            shared.gate.wait_rest();
        }
    });
}

#[test]
fn abort_of_a_thread() {
    check_abort(1);
}

#[test]
fn abort_of_the_caller() {
    check_abort(0);
}
