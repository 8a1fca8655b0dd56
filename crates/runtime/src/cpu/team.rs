//! The threads that replay a [`Program`].
//!
//! A team of N workers is N − 1 threads that live as long as the team, and the thread that calls
//! [`replay`](Team::replay), which is worker 0. A replay resets N counters, opens the gate, runs worker 0's steps, and
//! waits until all workers are at rest. On this path there is no lock and no allocation: only a task that fails takes a
//! mutex, to leave its failure. The body is a generic parameter, so a task is a direct call of it in a loop.
//!
//! When a task fails, its worker stops and leaves [`ABORTED`] as its progress; who waits for it sees that and stops
//! too, so nothing runs after a predecessor that failed. A flag makes the workers that do not wait for it stop at their
//! next task.
//!
//! # Why lending the body's borrows to the threads is sound
//!
//! `replay` puts the program, the body and the place for failures on its stack and hands the workers a pointer to it.
//! - The pointer is read only between the opening of the replay and the worker's final number, and every worker raises
//!   that exactly once a replay, after its last access: a panic of the body is caught before it.
//! - `replay` doesn't return, not even by unwinding, before it has seen all final numbers: a guard waits in its
//!   destructor. Seeing a final number synchronises with all that its worker did.
//! - `replay` takes `&mut self`, so no other thread can open the team meanwhile, and the body cannot hold the team.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crossbeam_utils::CachePadded;
use thiserror::Error;

use super::gate::{ABORTED, FINISHED, Gate, Patience};
use super::program::{Program, ProgramBuilder, Step, TaskId, WorkerId};
use crate::panics::message;

/// Why a team could not be made.
#[derive(Debug, Error)]
pub enum TeamError {
    /// A team has between one and [`ProgramBuilder::MAX_WORKERS`] workers.
    #[error("the CPU backend has 1 to {} workers, not {workers}", ProgramBuilder::MAX_WORKERS)]
    WorkerCount {
        /// The number that was asked for.
        workers: u32,
    },
    /// The operating system gave no thread.
    #[error("could not start worker {} of the team", .worker.0)]
    Spawn {
        /// The worker whose thread it is.
        worker: WorkerId,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Why a replay didn't run to its end.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ReplayError<E> {
    /// The program needs more workers than the team has. Nothing has run.
    #[error("the program is made for {program} workers, the team has {team}")]
    TeamTooSmall {
        /// Workers of the program.
        program: u32,
        /// Workers of the team.
        team: u32,
    },
    /// A task failed; tasks that had not started were skipped.
    #[error("{0}")]
    Failed(Failure<E>),
}

/// A task that failed: of several, the one with the smallest id among those that ran.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure<E> {
    /// The task.
    pub task: TaskId,
    /// What it did.
    pub cause: Cause<E>,
}

/// How a task failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Cause<E> {
    /// It panicked with this message.
    Panic(String),
    /// It returned this error.
    Error(E),
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Panic(message) => write!(f, "task {} panicked: {message}", self.task.0),
            Cause::Error(error) => write!(f, "task {} failed: {error}", self.task.0),
        }
    }
}

/// What the threads run next. Type-erased once a replay; the tasks are not.
struct Job {
    /// Runs one worker's share and returns its final number.
    run: unsafe fn(*const (), &Shared, WorkerId, &Thread) -> u64,
    /// The `Replay` on the stack of the thread that is worker 0.
    replay: *const (),
    caller: Thread,
}

/// The place where worker 0 leaves the job; `None` sends the threads home.
struct JobCell(UnsafeCell<Option<Job>>);

// SAFETY: worker 0 writes the cell only while all threads are at rest (`Gate::open` requires it, `&mut Team` and
// `wait_rest` provide it), the threads read it only between the opening and their final number, and both are ordered by
// the gate. The pointer inside is to a `Replay`, which is made of `Sync` parts: `Team::replay` asks for them.
unsafe impl Sync for JobCell {}
// SAFETY: as above; the cell holds no value that is tied to the thread that wrote it.
unsafe impl Send for JobCell {}

struct Shared {
    gate: Gate,
    job: JobCell,
    /// Set by a task that fails. On a line of its own: every worker reads it before every task.
    stop: CachePadded<AtomicBool>,
}

/// A fixed number of workers that replay programs.
///
/// More workers than cores are correct and slow: they hardly spin before they sleep.
///
/// ```
/// use std::convert::Infallible;
/// use std::num::NonZeroU32;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use phonograph_runtime::cpu::{ProgramBuilder, TaskId, Team, WorkerId};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = ProgramBuilder::new(2, NonZeroU32::MIN)?;
/// let a = builder.task(WorkerId(0), [])?;
/// let b = builder.task(WorkerId(1), [])?;
/// builder.task(WorkerId(0), [a, b])?;
/// let program = builder.freeze();
///
/// let values = [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)];
/// let mut team = Team::new(2)?;
/// team.replay(&program, &|task: TaskId| {
///     let value = match task.0 {
///         2 => values[0].load(Ordering::Relaxed) + values[1].load(Ordering::Relaxed),
///         leaf => leaf + 1,
///     };
///     values[task.index()].store(value, Ordering::Relaxed);
///     Ok::<(), Infallible>(())
/// })?;
/// assert_eq!(values[2].load(Ordering::Relaxed), 3);
/// # Ok(())
/// # }
/// ```
pub struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// How often the gate has been opened.
    opened: u64,
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("workers", &self.workers()).finish_non_exhaustive()
    }
}

impl Team {
    /// Starts the threads of a team of `workers`: one fewer than that.
    ///
    /// # Errors
    /// [`TeamError::WorkerCount`] for 0 or more than [`ProgramBuilder::MAX_WORKERS`]; [`TeamError::Spawn`] if a thread
    /// doesn't start, after those that did have ended.
    pub fn new(workers: u32) -> Result<Self, TeamError> {
        if workers == 0 || workers > ProgramBuilder::MAX_WORKERS {
            return Err(TeamError::WorkerCount { workers });
        }
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        let shared = Arc::new(Shared {
            gate: Gate::new(workers, patience(workers as usize, cores)),
            job: JobCell(UnsafeCell::new(None)),
            stop: CachePadded::new(AtomicBool::new(false)),
        });
        let mut team =
            Self { shared, threads: Vec::with_capacity(workers as usize - 1), opened: 0 };
        for worker in (1..workers).map(WorkerId) {
            let shared = Arc::clone(&team.shared);
            let thread = thread::Builder::new()
                .name(format!("phonograph-{}", worker.0))
                .spawn(move || serve(&shared, worker))
                .map_err(|source| TeamError::Spawn { worker, source })?;
            team.threads.push(thread);
        }
        Ok(team)
    }

    /// How many workers there are, the calling thread included.
    pub fn workers(&self) -> u32 {
        self.threads.len() as u32 + 1
    }

    /// Runs every task of `program` once, each after its predecessors, and returns when all workers are at rest.
    ///
    /// What a task wrote is visible to its successors and, afterwards, to the caller. A program whose tasks are all
    /// on worker 0 runs in the calling thread, without an atomic operation. The calling thread may be left with an
    /// unpark token, as after any use of [`thread::park`].
    ///
    /// # Errors
    /// [`ReplayError::TeamTooSmall`] before anything has run. [`ReplayError::Failed`] if a task returned an error
    /// or panicked: tasks that had not started were skipped, and team and program are as usable as before. The body
    /// is called again by the next replay, so it must bear a panic that left its data half changed.
    pub fn replay<F, E>(&mut self, program: &Program, body: &F) -> Result<(), ReplayError<E>>
    where
        F: Fn(TaskId) -> Result<(), E> + Sync,
        E: Send,
    {
        if program.workers() > self.workers() {
            return Err(ReplayError::TeamTooSmall {
                program: program.workers(),
                team: self.workers(),
            });
        }
        if program.is_solo() {
            return attempt(|at| run_tasks(TaskId(0), TaskId(program.tasks()), body, at, || false))
                .map(|_| ())
                .map_err(ReplayError::Failed);
        }
        let caller = thread::current();
        let replay = Replay { program, body, failures: Mutex::new(Vec::new()) };
        let job = Job {
            run: run_worker::<F, E>,
            replay: ptr::from_ref(&replay).cast(),
            caller: caller.clone(),
        };
        {
            let opened = self.open(job, &caller);
            let number = replay.run(opened.0, WorkerId(0), &caller);
            opened.0.gate.raise(0, number, &caller);
        }
        let failures = replay.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failures.into_iter().min_by_key(|failure| failure.task) {
            Some(failure) => Err(ReplayError::Failed(failure)),
            None => Ok(()),
        }
    }

    /// Leaves the job for the threads and starts them; the guard waits for their rest.
    fn open(&mut self, job: Job, caller: &Thread) -> Opened<'_> {
        // SAFETY: all threads are at rest: the guard of the last opening has waited for them, and `&mut self` says that
        // it is gone and that no other thread is here.
        unsafe { *self.shared.job.0.get() = Some(job) };
        self.shared.stop.store(false, Ordering::Relaxed);
        self.opened += 1;
        self.shared.gate.open(self.opened, caller);
        Opened(&self.shared)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.opened += 1;
        // SAFETY: as in `open`. The threads that never started because a spawn failed read nothing.
        unsafe { *self.shared.job.0.get() = None };
        self.shared.gate.open(self.opened, &thread::current());
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

/// A replay in progress. Waits, when dropped, until all threads are at rest: what they borrow may go only then.
struct Opened<'a>(&'a Shared);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.gate.wait_rest();
    }
}

/// What a replay lends to the workers.
struct Replay<'a, F, E> {
    program: &'a Program,
    body: &'a F,
    /// Only a worker whose task failed takes the lock, once.
    failures: Mutex<Vec<Failure<E>>>,
}

/// # Safety
/// `replay` points to a `Replay<F, E>` that lives until this returns, with `F: Sync` and `E: Send`.
unsafe fn run_worker<F, E>(
    replay: *const (),
    shared: &Shared,
    worker: WorkerId,
    caller: &Thread,
) -> u64
where
    F: Fn(TaskId) -> Result<(), E>,
{
    // SAFETY: the caller's promise.
    let replay = unsafe { &*replay.cast::<Replay<'_, F, E>>() };
    replay.run(shared, worker, caller)
}

impl<F, E> Replay<'_, F, E>
where
    F: Fn(TaskId) -> Result<(), E>,
{
    /// Runs one worker's steps and returns its final number; never unwinds.
    fn run(&self, shared: &Shared, worker: WorkerId, caller: &Thread) -> u64 {
        match attempt(|at| self.run_steps(shared, worker, caller, at)) {
            Ok(End::All) => FINISHED,
            Ok(End::Stopped) => ABORTED,
            Err(failure) => {
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                shared.stop.store(true, Ordering::Relaxed);
                ABORTED
            }
        }
    }

    fn run_steps(
        &self,
        shared: &Shared,
        worker: WorkerId,
        caller: &Thread,
        at: &Cell<TaskId>,
    ) -> Result<End, E> {
        let stopped = || shared.stop.load(Ordering::Relaxed);
        for step in self.program.steps(worker) {
            match *step {
                Step::Run { first, end } => {
                    if let End::Stopped = run_tasks(first, end, self.body, at, stopped)? {
                        return Ok(End::Stopped);
                    }
                }
                Step::Wait { worker: other, count } => {
                    if shared.gate.wait(worker.0, other.0, u64::from(count)) == ABORTED {
                        return Ok(End::Stopped);
                    }
                }
                Step::Publish { count } => shared.gate.raise(worker.0, u64::from(count), caller),
            }
        }
        Ok(End::All)
    }
}

/// How a worker's share ended when none of its tasks failed.
enum End {
    All,
    Stopped,
}

/// Runs tasks until one fails or `stopped` says so, and leaves in `at` which one runs.
#[inline]
fn run_tasks<F, E>(
    first: TaskId,
    end: TaskId,
    body: &F,
    at: &Cell<TaskId>,
    stopped: impl Fn() -> bool,
) -> Result<End, E>
where
    F: Fn(TaskId) -> Result<(), E>,
{
    for task in (first.0..end.0).map(TaskId) {
        if stopped() {
            return Ok(End::Stopped);
        }
        at.set(task);
        body(task)?;
    }
    Ok(End::All)
}

/// Turns an error or a panic of the task that `work` left in its cell into a [`Failure`].
fn attempt<E>(work: impl FnOnce(&Cell<TaskId>) -> Result<End, E>) -> Result<End, Failure<E>> {
    let at = Cell::new(TaskId(0));
    let cause = match catch_unwind(AssertUnwindSafe(|| work(&at))) {
        Ok(Ok(end)) => return Ok(end),
        Ok(Err(error)) => Cause::Error(error),
        Err(payload) => Cause::Panic(message(payload)),
    };
    Err(Failure { task: at.get(), cause })
}

/// The life of a thread: wait for a replay, run its share, say that it is at rest.
fn serve(shared: &Shared, worker: WorkerId) {
    shared.gate.register(worker.0);
    // The handle with which to wake worker 0. It is the thread's own, because waking comes after the final number, when
    // the replay may be gone; and it is kept, because cloning it every time would share a reference count.
    let mut caller = thread::current();
    for replay in 1.. {
        shared.gate.wait_open(worker.0, replay);
        // SAFETY: the gate is open and this worker's final number is not raised, so worker 0 doesn't write the cell.
        let Some(job) = (unsafe { &*shared.job.0.get() }) else {
            return;
        };
        if job.caller.id() != caller.id() {
            caller = job.caller.clone();
        }
        // SAFETY: `Team::replay` made `run` and `replay` for one another, and it waits for this worker's final number
        // before the `Replay` goes; its bounds give `F: Sync` and `E: Send`.
        let number = unsafe { (job.run)(job.replay, shared, worker, &caller) };
        shared.gate.raise(worker.0, number, &caller);
    }
}

/// How long to watch before sleeping. With a core for each worker: longer than it takes to wake a thread, some 20 µs on
/// an idle virtual machine, or two workers that once slept would find each other asleep for ever after. A pause is 10 to
/// 50 ns. With fewer cores, the worker waited for may need this very core.
fn patience(workers: usize, cores: usize) -> Patience {
    if workers <= cores {
        Patience { looks: 256, pauses: 4096, yields: 0 }
    } else {
        Patience { looks: 8, pauses: 0, yields: 2 }
    }
}
