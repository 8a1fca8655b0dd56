//! What nodes cost, and what a replay costs beside its nodes, measured by replaying.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Instant;

use super::device::Cpu;
use super::exec::{Exec, ReplayError};
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

/// Tasks of a probe. A replay of it takes some microseconds, so that some fall between what else the machine does.
const TASKS: u32 = 200;
/// Replays of a probe, of which the fastest counts: everything else on the machine only makes them slower.
const REPLAYS: u32 = 256;

impl Cpu {
    /// Measures what replays cost beside their nodes. Takes some milliseconds, in which all workers are busy.
    pub fn overheads(&mut self) -> Overheads {
        overheads(self.team())
    }

    /// Replays a graph as often as said, 15 times at most, with a clock at each node. For each node the median of the
    /// nanoseconds that it took, for one that is split among workers the sum of its parts.
    ///
    /// # Errors
    /// Those of [`replay`](Cpu::replay).
    pub fn node_costs(&mut self, exec: &mut Exec, replays: u64) -> Result<Vec<u64>, ReplayError> {
        const MOST: u64 = 15;
        let mut samples: Vec<Vec<u64>> = Vec::new();
        for _ in 0..replays.clamp(1, MOST) {
            let mut took = vec![0u64; exec.node_count()];
            for span in self.replay_profiled(exec)?.spans {
                took[span.node.index()] += span.end_ns.saturating_sub(span.start_ns);
            }
            samples.push(took);
        }
        let median = |node: usize| {
            let mut all: Vec<u64> = samples.iter().map(|took| took[node]).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        Ok((0..exec.node_count()).map(median).collect())
    }
}

/// Measures with empty tasks: one a worker, a chain on one worker, a chain that changes workers with every task.
fn overheads(team: &mut Team) -> Overheads {
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
