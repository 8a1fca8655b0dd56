//! A schedule of tasks for a team of workers, frozen so that replaying it is loads and calls.
//!
//! In: tasks in an *issue order* that is topological, each with its worker and its predecessors. Out: for each worker
//! a list of steps. A dependency inside a worker costs nothing, since a worker keeps the issue order. A dependency
//! between workers is a *progress counter*: each worker counts the tasks it has finished, and whoever needs the k-th
//! waits until that worker's counter has reached k, or, to wait less often, a rounder number. Counters only grow, so a
//! wait also covers every smaller one of the same pair of workers, and those are dropped; a count is published only
//! where some worker waits for it.
//!
//! Cost: building is linear in tasks and edges, with 9 bytes of scratch a task and 12 a remaining wait; the program
//! holds 12 bytes a step and nothing a task, because consecutive tasks of one worker are one step.
//!
//! # Why a program cannot deadlock
//!
//! A worker runs its tasks in issue order, and each wait stands directly before a task and is for tasks that were issued
//! before it. Suppose that every worker that isn't finished waits, and take the earliest task in issue order that has
//! not run. Everything before it has run, so its worker stands at this task, and the workers that it waits for have gone
//! past the publications it needs (a publication never blocks and stands directly after its task). Its waits are
//! therefore over: a contradiction. This needs that no wait is moved to an earlier task and none asks for a later one;
//! the builder does neither, also where it rounds waits up to its grain.

use std::num::NonZeroU32;

use thiserror::Error;

/// A task of a [`Program`]: its position in the issue order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The position as an index into per-task tables.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A worker of a team; worker 0 is the thread that calls `replay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

impl WorkerId {
    /// The worker as an index into per-worker tables.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why a program could not be built. The builder is unchanged by a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// A program has between one and [`ProgramBuilder::MAX_WORKERS`] workers.
    #[error("a program has 1 to {} workers, not {workers}", ProgramBuilder::MAX_WORKERS)]
    WorkerCount {
        /// The number that was asked for.
        workers: u32,
    },
    /// The task names a worker that the program doesn't have.
    #[error("task {} is assigned to worker {}, but the program has {workers} workers", .task.0, .worker.0)]
    WorkerOutOfRange {
        /// The task.
        task: TaskId,
        /// The worker it names.
        worker: WorkerId,
        /// How many workers there are.
        workers: u32,
    },
    /// A predecessor is the task itself, comes later in the issue order, or doesn't exist.
    #[error("task {} depends on task {}, which is not issued before it", .task.0, .predecessor.0)]
    PredecessorNotIssued {
        /// The task.
        task: TaskId,
        /// The predecessor it names.
        predecessor: TaskId,
    },
    /// Task ids are 32 bits wide.
    #[error("a program has at most {} tasks", u32::MAX)]
    TooManyTasks,
}

/// One instruction of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Run the tasks `first..end`; consecutive ids on one worker need no list.
    Run {
        /// The first task.
        first: TaskId,
        /// The task after the last.
        end: TaskId,
    },
    /// Go on when `worker` has finished `count` of its tasks.
    Wait {
        /// Whose counter.
        worker: WorkerId,
        /// What it must reach.
        count: u32,
    },
    /// Say that this worker has finished `count` of its tasks.
    Publish {
        /// The new value of this worker's counter.
        count: u32,
    },
}

/// A frozen schedule: what each worker runs, in which order, and where it waits for another.
///
/// Immutable and free of run-time state, so one program may be replayed by several teams at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    steps: Box<[Box<[Step]>]>,
    tasks: u32,
    waits: usize,
    solo: bool,
}

impl Program {
    /// How many workers the program is made for; a team needs at least as many.
    pub fn workers(&self) -> u32 {
        self.steps.len() as u32
    }

    /// How many tasks one replay runs; their ids are `0..tasks`.
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// How many waits between workers are left after the covered ones were dropped.
    pub fn waits(&self) -> usize {
        self.waits
    }

    /// Whether all tasks belong to worker 0: then the calling thread runs `0..tasks` alone.
    pub(crate) fn is_solo(&self) -> bool {
        self.solo
    }

    /// The steps of a worker; none for a worker beyond [`workers`](Self::workers).
    pub(crate) fn steps(&self, worker: WorkerId) -> &[Step] {
        self.steps.get(worker.index()).map_or(&[], |steps| steps)
    }
}

/// A wait before `task` for `worker` to have finished `count` of its tasks.
#[derive(Clone, Copy, Debug)]
struct PendingWait {
    task: TaskId,
    worker: WorkerId,
    count: u32,
}

/// Builds a [`Program`] task by task, in issue order.
///
/// ```
/// use std::num::NonZeroU32;
/// use phonograph_runtime::cpu::{ProgramBuilder, ProgramError, TaskId, WorkerId};
///
/// # fn main() -> Result<(), ProgramError> {
/// let mut builder = ProgramBuilder::new(2, NonZeroU32::MIN)?;
/// let load = builder.task(WorkerId(0), [])?;
/// let left = builder.task(WorkerId(0), [load])?;
/// let right = builder.task(WorkerId(1), [load])?;
/// builder.task(WorkerId(0), [left, right])?;
/// let refused = builder.task(WorkerId(0), [TaskId(9)]);
/// assert_eq!(refused, Err(ProgramError::PredecessorNotIssued { task: TaskId(4), predecessor: TaskId(9) }));
///
/// let program = builder.freeze();
/// assert_eq!((program.tasks(), program.workers(), program.waits()), (4, 2, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProgramBuilder {
    workers: u32,
    grain: NonZeroU32,
    /// Worker of each task.
    worker: Vec<WorkerId>,
    /// For each task, which of its worker's tasks it is, counted from 1: the count that says it is finished.
    count: Vec<u32>,
    /// Tasks so far of each worker.
    issued: Vec<u32>,
    /// `covered[w * workers + v]`: the count of worker v that worker w is already known to have waited for.
    covered: Vec<u32>,
    /// In issue order of `task`; at most one for each pair of a task and another worker.
    waits: Vec<PendingWait>,
}

impl ProgramBuilder {
    /// The most workers of a program. Building keeps a square table of what each worker has waited for: 4 MiB at most.
    pub const MAX_WORKERS: u32 = 1024;

    /// A builder for a team of `workers` whose progress is handed over in steps of about `grain` tasks.
    ///
    /// A wait is for a multiple of `grain` tasks, or for all that have been issued to that worker so far. A grain of 1 starts
    /// every task as early as possible; it is right for tasks longer than a hand-over, some 100 ns. For shorter tasks a
    /// grain of about as many as fit into a hand-over saves more waits than it delays tasks.
    ///
    /// # Errors
    /// [`ProgramError::WorkerCount`] for 0 or more than [`MAX_WORKERS`](Self::MAX_WORKERS).
    pub fn new(workers: u32, grain: NonZeroU32) -> Result<Self, ProgramError> {
        if workers == 0 || workers > Self::MAX_WORKERS {
            return Err(ProgramError::WorkerCount { workers });
        }
        let n = workers as usize;
        Ok(Self {
            workers,
            grain,
            worker: Vec::new(),
            count: Vec::new(),
            issued: vec![0; n],
            covered: vec![0; n * n],
            waits: Vec::new(),
        })
    }

    /// Appends a task to the issue order and returns its id, which is its position. Takes time in the number of
    /// predecessors.
    ///
    /// # Errors
    /// [`ProgramError::WorkerOutOfRange`], [`ProgramError::PredecessorNotIssued`], [`ProgramError::TooManyTasks`].
    pub fn task<P>(&mut self, worker: WorkerId, predecessors: P) -> Result<TaskId, ProgramError>
    where
        P: IntoIterator<Item = TaskId, IntoIter: Clone>,
    {
        let task = match u32::try_from(self.worker.len()) {
            Ok(id) if id < u32::MAX => TaskId(id),
            _ => return Err(ProgramError::TooManyTasks),
        };
        if worker.0 >= self.workers {
            return Err(ProgramError::WorkerOutOfRange { task, worker, workers: self.workers });
        }
        let predecessors = predecessors.into_iter();
        if let Some(predecessor) = predecessors.clone().find(|p| *p >= task) {
            return Err(ProgramError::PredecessorNotIssued { task, predecessor });
        }
        let row = worker.index() * self.workers as usize;
        let own_waits = self.waits.len();
        for predecessor in predecessors {
            let other = self.worker[predecessor.index()];
            let count = self.count[predecessor.index()];
            let covered = &mut self.covered[row + other.index()];
            if other == worker || count <= *covered {
                continue;
            }
            // No task that is issued later may be waited for, or workers could wait for one another.
            let whole = count.checked_next_multiple_of(self.grain.get()).unwrap_or(u32::MAX);
            let count = whole.min(self.issued[other.index()]);
            *covered = count;
            match self.waits[own_waits..].iter_mut().find(|wait| wait.worker == other) {
                Some(wait) => wait.count = count,
                None => self.waits.push(PendingWait { task, worker: other, count }),
            }
        }
        let issued = &mut self.issued[worker.index()];
        *issued += 1;
        self.worker.push(worker);
        self.count.push(*issued);
        Ok(task)
    }

    /// Compiles the steps of each worker. Linear in tasks and waits.
    pub fn freeze(self) -> Program {
        let mut awaited: Vec<Vec<bool>> =
            self.issued.iter().map(|&tasks| vec![false; tasks as usize + 1]).collect();
        for wait in &self.waits {
            awaited[wait.worker.index()][wait.count as usize] = true;
        }
        let mut steps = vec![Vec::new(); self.workers as usize];
        let mut waits = self.waits.iter().peekable();
        for (index, &worker) in self.worker.iter().enumerate() {
            let task = TaskId(index as u32);
            let end = TaskId(task.0 + 1);
            let own = &mut steps[worker.index()];
            while let Some(wait) = waits.next_if(|wait| wait.task == task) {
                own.push(Step::Wait { worker: wait.worker, count: wait.count });
            }
            match own.last_mut() {
                Some(Step::Run { end: open, .. }) if *open == task => *open = end,
                _ => own.push(Step::Run { first: task, end }),
            }
            let count = self.count[index];
            if awaited[worker.index()][count as usize] {
                own.push(Step::Publish { count });
            }
        }
        Program {
            solo: self.issued[1..].iter().all(|&tasks| tasks == 0),
            steps: steps.into_iter().map(Vec::into_boxed_slice).collect(),
            tasks: self.worker.len() as u32,
            waits: self.waits.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds from `(worker, predecessors)` and prints the steps of each worker.
    fn compiled(workers: u32, grain: u32, tasks: &[(u32, &[u32])]) -> String {
        let grain = NonZeroU32::new(grain).expect("a grain");
        let mut builder = ProgramBuilder::new(workers, grain).expect("worker count");
        for &(worker, predecessors) in tasks {
            builder.task(WorkerId(worker), predecessors.iter().map(|&p| TaskId(p))).expect("task");
        }
        let program = builder.freeze();
        let words = |step: &Step| match *step {
            Step::Run { first, end } => format!("run {}..{}", first.0, end.0),
            Step::Wait { worker, count } => format!("wait w{}>={count}", worker.0),
            Step::Publish { count } => format!("publish {count}"),
        };
        (0..workers)
            .map(|w| program.steps(WorkerId(w)).iter().map(words).collect::<Vec<_>>().join(", "))
            .collect::<Vec<_>>()
            .join(" | ")
    }

    #[track_caller]
    fn check(workers: u32, tasks: &[(u32, &[u32])], expected: &str) {
        assert_eq!(compiled(workers, 1, tasks), expected);
    }

    #[test]
    fn grain() {
        let tasks: &[(u32, &[u32])] =
            &[(0, &[]), (0, &[]), (0, &[]), (1, &[0]), (1, &[1]), (0, &[]), (1, &[2])];
        let expected = [
            (
                1,
                "run 0..1, publish 1, run 1..2, publish 2, run 2..3, publish 3, run 5..6 | wait w0>=1, run 3..4, wait w0>=2, run 4..5, wait w0>=3, run 6..7",
            ),
            (
                2,
                "run 0..2, publish 2, run 2..3, run 5..6, publish 4 | wait w0>=2, run 3..5, wait w0>=4, run 6..7",
            ),
            // Not 4: that task comes later than the first that waits.
            (4, "run 0..3, publish 3, run 5..6 | wait w0>=3, run 3..5, run 6..7"),
            (u32::MAX, "run 0..3, publish 3, run 5..6 | wait w0>=3, run 3..5, run 6..7"),
        ];
        for (grain, expected) in expected {
            assert_eq!(compiled(2, grain, tasks), expected, "grain {grain}");
        }
    }

    #[test]
    fn steps() {
        check(1, &[], "");
        // A dependency inside a worker costs nothing.
        check(1, &[(0, &[]), (0, &[0]), (0, &[0, 1])], "run 0..3");
        check(
            2,
            &[(0, &[]), (0, &[]), (1, &[0])],
            "run 0..1, publish 1, run 1..2 | wait w0>=1, run 2..3",
        );
        // Two predecessors on one worker: one wait, for the later, whatever their order; and only that is published.
        check(2, &[(0, &[]), (0, &[]), (1, &[1, 0])], "run 0..2, publish 2 | wait w0>=2, run 2..3");
        check(2, &[(0, &[]), (0, &[]), (1, &[0, 1])], "run 0..2, publish 2 | wait w0>=2, run 2..3");
        // What an earlier wait covers is not waited for again.
        check(
            2,
            &[(0, &[]), (0, &[]), (1, &[1]), (1, &[0]), (1, &[1, 0])],
            "run 0..2, publish 2 | wait w0>=2, run 2..5",
        );
        // Alternating assignment: runs of one.
        check(
            2,
            &[(0, &[]), (1, &[]), (0, &[1]), (1, &[0])],
            "run 0..1, publish 1, wait w1>=1, run 2..3 | run 1..2, publish 1, wait w0>=1, run 3..4",
        );
        check(
            3,
            &[(0, &[]), (1, &[]), (2, &[0, 1, 0])],
            "run 0..1, publish 1 | run 1..2, publish 1 | wait w0>=1, wait w1>=1, run 2..3",
        );
    }

    #[test]
    fn refusals_leave_the_builder_unchanged() {
        assert_eq!(
            ProgramBuilder::new(0, NonZeroU32::MIN).err(),
            Some(ProgramError::WorkerCount { workers: 0 })
        );
        assert_eq!(
            ProgramBuilder::new(1025, NonZeroU32::MIN).err(),
            Some(ProgramError::WorkerCount { workers: 1025 })
        );
        let mut builder = ProgramBuilder::new(2, NonZeroU32::MIN).expect("worker count");
        let first = builder.task(WorkerId(0), []).expect("task");
        let own = TaskId(1);
        assert_eq!(
            builder.task(WorkerId(1), [first, own]),
            Err(ProgramError::PredecessorNotIssued { task: own, predecessor: own })
        );
        assert_eq!(
            builder.task(WorkerId(2), [first]),
            Err(ProgramError::WorkerOutOfRange { task: own, worker: WorkerId(2), workers: 2 })
        );
        assert_eq!(builder.task(WorkerId(1), [first]), Ok(own));
        let program = builder.freeze();
        assert_eq!((program.tasks(), program.waits(), program.is_solo()), (2, 1, false));
    }
}
