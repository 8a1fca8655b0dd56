//! Replays of random programs: every task once, after its predecessors, whatever fails.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use phonograph_runtime::cpu::{
    Cause, Program, ProgramBuilder, TaskId, Team, TeamError, TeamReplayError, WorkerId,
};

/// Predecessors of each task, and its worker.
struct Assigned {
    predecessors: Vec<Vec<u32>>,
    worker: Vec<u32>,
}

fn random_tasks(u: &mut Unstructured<'_>, workers: u32, most: u32) -> Result<Assigned> {
    let tasks = u.int_in_range(0..=most)?;
    let degree = u.int_in_range(0..=4)?;
    // A short reach makes chains, a long one makes wide graphs.
    let reach = u.int_in_range(1..=most)?;
    // Long runs on a worker, or a new one for every task.
    let stay: bool = u.arbitrary()?;
    let mut assigned = Assigned { predecessors: Vec::new(), worker: Vec::new() };
    let mut worker = 0;
    for task in 0..tasks {
        let mut own = Vec::new();
        if task > 0 {
            for _ in 0..u.int_in_range(0..=degree)? {
                own.push(u.int_in_range(task.saturating_sub(reach)..=task - 1)?);
            }
        }
        if !stay || u.ratio(1, 8)? {
            worker = u.int_in_range(0..=workers - 1)?;
        }
        assigned.predecessors.push(own);
        assigned.worker.push(worker);
    }
    Ok(assigned)
}

impl Assigned {
    fn freeze(&self, workers: u32, grain: u32) -> Program {
        let grain = NonZeroU32::new(grain).expect("a grain");
        let mut builder = ProgramBuilder::new(workers, grain).expect("worker count");
        for (predecessors, &worker) in self.predecessors.iter().zip(&self.worker) {
            let predecessors = predecessors.iter().map(|&p| TaskId(p));
            builder.task(WorkerId(worker), predecessors).expect("a topological order");
        }
        builder.freeze()
    }

    /// All that cannot run if these fail.
    fn behind(&self, failing: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut behind = BTreeSet::new();
        for (task, predecessors) in self.predecessors.iter().enumerate() {
            if predecessors.iter().any(|p| failing.contains(p) || behind.contains(p)) {
                behind.insert(task as u32);
            }
        }
        behind
    }
}

/// Replays once. The tasks in `failing` fail: odd ones panic, even ones return an error.
#[track_caller]
fn check(team: &mut Team, program: &Program, tasks: &Assigned, failing: &BTreeSet<u32>) {
    let n = tasks.predecessors.len();
    let clock = AtomicU64::new(1);
    let runs: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    let start: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
    let end: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
    let outcome = team.replay(program, &|task: TaskId| {
        start[task.index()].store(clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        runs[task.index()].fetch_add(1, Ordering::Relaxed);
        if failing.contains(&task.0) {
            if task.0 % 2 == 1 {
                panic!("task {} gives up", task.0);
            }
            return Err(task.0);
        }
        end[task.index()].store(clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    });
    let ran = |task: usize| runs[task].load(Ordering::Relaxed);
    let behind = tasks.behind(failing);
    for (task, predecessors) in tasks.predecessors.iter().enumerate() {
        let times = ran(task);
        assert!(times <= 1, "task {task} ran {times} times");
        assert!(times == 1 || !failing.is_empty(), "task {task} did not run");
        if times == 0 {
            continue;
        }
        assert!(!behind.contains(&(task as u32)), "task {task} ran after a failure it depends on");
        for &p in predecessors {
            let ended = end[p as usize].load(Ordering::Relaxed);
            let started = start[task].load(Ordering::Relaxed);
            assert!(
                0 < ended && ended < started,
                "task {task} ran before its predecessor {p} ended"
            );
        }
    }
    let first = failing.iter().copied().find(|&task| ran(task as usize) == 1);
    match (outcome, first) {
        (Ok(()), None) => {
            assert!(failing.is_empty(), "a failing task was skipped, and nothing failed")
        }
        (Err(TeamReplayError::Failed(failure)), Some(task)) => {
            assert_eq!(failure.task, TaskId(task));
            let cause = match task % 2 {
                1 => Cause::Panic(format!("task {task} gives up")),
                _ => Cause::Error(task),
            };
            assert_eq!(failure.cause, cause);
        }
        (outcome, first) => {
            panic!("replay said {outcome:?}, the first failure to run is {first:?}")
        }
    }
}

/// A panic's payload whose destructor panics.
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the bomb gives up");
    }
}

/// Runs `f` with the panics of tasks kept off the terminal; those of the test's own thread are printed.
fn quietly(f: impl FnOnce()) {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let expected = match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
            (Some(message), _) => message.ends_with("gives up"),
            (_, Some(message)) => message.ends_with("gives up"),
            (None, None) => payload.is::<Bomb>(),
        };
        if !expected {
            default(info);
        }
    }));
    f();
}

#[test]
fn random_programs() {
    quietly(|| {
        for workers in [1, 2, 3, 5, 8] {
            let mut team = Team::new(workers).expect("team");
            arbtest(|u| {
                let tasks = random_tasks(u, workers, 200)?;
                let program = tasks.freeze(workers, *u.choose(&[1, 1, 3, 20])?);
                let none = BTreeSet::new();
                check(&mut team, &program, &tasks, &none);
                let n = tasks.predecessors.len() as u32;
                for _ in 0..3 {
                    let mut failing = BTreeSet::new();
                    for _ in 0..if n == 0 { 0 } else { u.int_in_range(0..=3)? } {
                        failing.insert(u.int_in_range(0..=n - 1)?);
                    }
                    check(&mut team, &program, &tasks, &failing);
                }
                for _ in 0..5 {
                    check(&mut team, &program, &tasks, &none);
                }
                Ok(())
            })
            .budget_ms(600);
        }
    });
}

/// A program for few workers on a larger team, and two programs in turn.
#[test]
fn one_team_many_programs() {
    let mut team = Team::new(6).expect("team");
    arbtest(|u| {
        let (few, many) = (random_tasks(u, 2, 60)?, random_tasks(u, 6, 60)?);
        let programs = (few.freeze(2, 1), many.freeze(6, 5));
        for _ in 0..5 {
            check(&mut team, &programs.0, &few, &BTreeSet::new());
            check(&mut team, &programs.1, &many, &BTreeSet::new());
        }
        Ok(())
    })
    .budget_ms(500);
}

/// Far more workers than cores, with dependencies that hop between all of them.
#[test]
fn sixty_four_workers() {
    quietly(|| {
        let workers = 64;
        let tasks = Assigned {
            predecessors: (0..2000_u32)
                .map(|task| [1, 7, 64].iter().filter(|&&d| d <= task).map(|d| task - d).collect())
                .collect(),
            worker: (0..2000).map(|task| (task * 29 + task / 64) % workers).collect(),
        };
        let program = tasks.freeze(workers, 1);
        let mut team = Team::new(workers).expect("team");
        let began = Instant::now();
        for round in 0..20 {
            check(&mut team, &program, &tasks, &BTreeSet::new());
            check(&mut team, &program, &tasks, &BTreeSet::from([round * 97 + 1, 1990]));
        }
        assert!(began.elapsed() < Duration::from_secs(30), "took {:?}", began.elapsed());
    });
}

/// Workers sleep while a task is long, and are woken.
#[test]
fn long_tasks() {
    let tasks = Assigned {
        predecessors: vec![vec![], vec![0], vec![1], vec![0, 2], vec![3]],
        worker: vec![0, 1, 2, 0, 1],
    };
    let program = tasks.freeze(3, 1);
    let mut team = Team::new(3).expect("team");
    for _ in 0..3 {
        let done = AtomicU32::new(0);
        team.replay(&program, &|task: TaskId| {
            std::thread::sleep(Duration::from_millis(15));
            let before = done.fetch_add(1, Ordering::Relaxed);
            if before == task.0 { Ok(()) } else { Err((task, before)) }
        })
        .expect("a chain in disguise runs in order");
        assert_eq!(done.load(Ordering::Relaxed), 5);
        // Long enough for the threads to sleep at the gate.
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// A team may be handed from thread to thread: the one to wake changes.
#[test]
fn callers_change() {
    let tasks = Assigned {
        predecessors: vec![vec![], vec![0], vec![1], vec![2], vec![3]],
        worker: vec![1, 0, 1, 0, 1],
    };
    let program = tasks.freeze(2, 1);
    let mut team = Team::new(2).expect("team");
    for _ in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3 {
                    check(&mut team, &program, &tasks, &BTreeSet::new());
                }
            });
        });
    }
}

#[test]
fn refusals() {
    assert!(matches!(Team::new(0), Err(TeamError::WorkerCount { workers: 0 })));
    assert!(matches!(Team::new(1025), Err(TeamError::WorkerCount { workers: 1025 })));
    let program = ProgramBuilder::new(3, NonZeroU32::MIN).expect("worker count").freeze();
    let mut team = Team::new(2).expect("team");
    let outcome = team.replay(&program, &|_| Err("ran"));
    assert_eq!(outcome, Err(TeamReplayError::TeamTooSmall { program: 3, team: 2 }));
}

/// A payload that panics when dropped, in a thread of the team.
#[test]
#[cfg_attr(miri, ignore = "leaks on purpose what a panic's payload panics with")]
fn hostile_payloads() {
    quietly(|| {
        let mut builder = ProgramBuilder::new(2, NonZeroU32::MIN).expect("worker count");
        let first = builder.task(WorkerId(1), []).expect("task");
        builder.task(WorkerId(0), [first]).expect("task");
        let program = builder.freeze();
        let mut team = Team::new(2).expect("team");
        for _ in 0..3 {
            let outcome = team.replay(&program, &|task: TaskId| -> std::result::Result<(), ()> {
                assert_eq!(task, TaskId(0), "the successor ran");
                panic::panic_any(Bomb);
            });
            let Err(TeamReplayError::Failed(failure)) = outcome else { panic!("{outcome:?}") };
            assert_eq!(failure.task, TaskId(0));
            assert_eq!(failure.cause, Cause::Panic("a value that is not text".to_owned()));
        }
    });
}
