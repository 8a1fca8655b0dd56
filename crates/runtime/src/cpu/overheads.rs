//! What a replay costs beside its tasks, measured on the team itself.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Instant;

use super::program::{Program, ProgramBuilder, TaskId, WorkerId};
use super::team::Team;

/// What the executor costs, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overheads {
    /// Starting all workers for a replay and waiting until they are at rest.
    pub replay_ns: u64,
    /// Going from one task to the next of a worker.
    pub node_ns: u64,
    /// From the end of a task until one on another worker that waits for it starts; 0 with one worker.
    pub handover_ns: u64,
}

/// Tasks of a probe. A replay of it takes a fraction of a millisecond.
const TASKS: u32 = 1_000;
/// Replays of a probe, of which the fastest counts: everything else on the machine only makes them slower.
const REPLAYS: u32 = 64;

/// Measures with empty tasks: one a worker, a chain on one worker, a chain that changes workers with every task.
pub(super) fn measure(team: &mut Team) -> Overheads {
    let workers = team.workers();
    let spread = fastest(team, &tasks(workers, workers, workers, false));
    let node_ns = fastest(team, &tasks(workers, TASKS, 1, true)) / u64::from(TASKS);
    let handover_ns = if workers == 1 {
        0
    } else {
        let crossing = fastest(team, &tasks(workers, TASKS, 2, true));
        (crossing.saturating_sub(spread) / u64::from(TASKS)).saturating_sub(node_ns)
    };
    Overheads { replay_ns: spread, node_ns, handover_ns }
}

/// So many tasks on the first `used` workers in turn, each after the one before or on its own.
fn tasks(workers: u32, tasks: u32, used: u32, chained: bool) -> Program {
    let mut builder =
        ProgramBuilder::new(workers, NonZeroU32::MIN).expect("a team has as many workers");
    for task in 0..tasks {
        let previous = task.checked_sub(1).filter(|_| chained).map(TaskId);
        builder.task(WorkerId(task % used), previous).expect("its predecessor was issued");
    }
    builder.freeze()
}

fn fastest(team: &mut Team, program: &Program) -> u64 {
    let replays = (0..REPLAYS).map(|_| {
        let start = Instant::now();
        let replayed = team.replay(program, &|_| Ok::<(), Infallible>(()));
        replayed.expect("the program is made for the team, and its tasks do nothing");
        start.elapsed().as_nanos() as u64
    });
    replays.min().unwrap_or(0)
}
