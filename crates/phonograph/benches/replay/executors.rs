//! Generated graphs, the two executors that replay them, and a check of the order: what `bench/cpu` measures as well.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use phonograph_plan::generate::{Kind, generate};
use phonograph_plan::lanes::{LaneInput, assign_lanes};
use phonograph_runtime::cpu::{Program, ProgramBuilder, TaskId, Team, WorkerId};

pub type Failure = Box<dyn std::error::Error>;

/// What the lanes are told: a call, and a cache line that goes to another core and wakes its spinning owner.
const CALL_NS: u64 = 2;
const HANDOVER_NS: u64 = 100;

/// The predecessors of each task.
pub struct Graph {
    pub name: &'static str,
    pub offsets: Vec<u32>,
    pub targets: Vec<u32>,
}

impl Graph {
    pub fn generate(kind: Kind, tasks: u32) -> Result<Self, Failure> {
        let graph = generate(kind, tasks, 1)?;
        let predecessors = graph.predecessor_lists();
        Ok(Self {
            name: kind.name(),
            offsets: predecessors.offsets().to_vec(),
            targets: predecessors.targets().iter().map(|node| node.0).collect(),
        })
    }

    pub fn tasks(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn predecessors(&self, task: u32) -> &[u32] {
        &self.targets
            [self.offsets[task as usize] as usize..self.offsets[task as usize + 1] as usize]
    }
}

/// Graphs of so many tasks; the tree has as many leaves.
pub const GRAPHS: [(Kind, u32); 4] =
    [(Kind::Chain, 1), (Kind::Wavefront, 1), (Kind::Layered, 1), (Kind::Tree, 2)];

/// The baseline: a counter of missing predecessors a task; a task goes on with one successor that it made ready and
/// spawns the others.
pub struct RayonGraph {
    offsets: Vec<u32>,
    successors: Vec<u32>,
    in_degree: Vec<u32>,
    missing: Vec<AtomicU32>,
    roots: Vec<u32>,
}

impl RayonGraph {
    pub fn new(graph: &Graph) -> Self {
        let tasks = graph.tasks() as u32;
        let mut successors = vec![Vec::new(); graph.tasks()];
        for task in 0..tasks {
            graph.predecessors(task).iter().for_each(|&p| successors[p as usize].push(task));
        }
        let mut offsets = vec![0];
        offsets.extend(successors.iter().scan(0, |sum, list| {
            *sum += list.len() as u32;
            Some(*sum)
        }));
        let in_degree: Vec<u32> =
            (0..tasks).map(|task| graph.predecessors(task).len() as u32).collect();
        Self {
            offsets,
            successors: successors.concat(),
            missing: in_degree.iter().map(|&n| AtomicU32::new(n)).collect(),
            roots: (0..tasks).filter(|&task| in_degree[task as usize] == 0).collect(),
            in_degree,
        }
    }

    pub fn replay(&self, pool: &rayon::ThreadPool, body: &(impl Fn(u32) + Sync)) {
        // A spawn for each root of a wide graph would measure the spawning alone.
        let share = self.roots.len().div_ceil(16 * pool.current_num_threads()).max(1);
        pool.scope(|scope| {
            for roots in self.roots.chunks(share) {
                scope
                    .spawn(move |scope| roots.iter().for_each(|&root| self.run(scope, root, body)));
            }
        });
    }

    fn run<'s>(&'s self, scope: &rayon::Scope<'s>, mut task: u32, body: &'s (impl Fn(u32) + Sync)) {
        loop {
            body(task);
            // Ready for the next replay; nobody looks at it before.
            self.missing[task as usize].store(self.in_degree[task as usize], Ordering::Relaxed);
            let list =
                self.offsets[task as usize] as usize..self.offsets[task as usize + 1] as usize;
            let mut own = None;
            for &successor in &self.successors[list] {
                if self.missing[successor as usize].fetch_sub(1, Ordering::AcqRel) != 1 {
                    continue;
                }
                match own {
                    None => own = Some(successor),
                    Some(_) => scope.spawn(move |scope| self.run(scope, successor, body)),
                }
            }
            match own {
                Some(successor) => task = successor,
                None => return,
            }
        }
    }
}

pub struct Frozen {
    pub program: Program,
    /// The task of each position in the issue order.
    pub order: Vec<u32>,
    pub lanes_ms: f64,
    pub freeze_ms: f64,
}

pub fn freeze(graph: &Graph, workers: u32) -> Result<Frozen, Failure> {
    let cost = vec![CALL_NS; graph.tasks()];
    let began = Instant::now();
    let lanes = assign_lanes(LaneInput {
        offsets: &graph.offsets,
        targets: &graph.targets,
        cost: &cost,
        lanes: workers,
        handover: HANDOVER_NS,
    })?;
    let lanes_ms = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    let mut position = vec![0; graph.tasks()];
    let mut builder = ProgramBuilder::new(workers, lanes.grain)?;
    for &task in &lanes.order {
        let predecessors = graph.predecessors(task).iter().map(|&p| TaskId(position[p as usize]));
        position[task as usize] =
            builder.task(WorkerId(lanes.lane[task as usize].0), predecessors)?.0;
    }
    let program = builder.freeze();
    let freeze_ms = began.elapsed().as_secs_f64() * 1e3;
    Ok(Frozen { program, order: lanes.order, lanes_ms, freeze_ms })
}

/// Checks the order that both executors keep.
pub fn check_executors(
    graph: &Graph,
    (rayon, pool): (&RayonGraph, &rayon::ThreadPool),
    (team, frozen): (&mut Team, &Frozen),
) -> Result<(), Failure> {
    check(graph, "rayon", |body| {
        rayon.replay(pool, &body);
        Ok(())
    })?;
    check(graph, "phonograph", |body| {
        Ok(team.replay(&frozen.program, &|task: TaskId| {
            body(frozen.order[task.index()]);
            Ok::<(), Infallible>(())
        })?)
    })
}

/// Runs an executor once and checks that every task starts after its predecessors have ended.
pub fn check(
    graph: &Graph,
    executor: &str,
    replay: impl FnOnce(&(dyn Fn(u32) + Sync)) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let clock = AtomicU32::new(1);
    let at: Vec<AtomicU32> = (0..graph.tasks()).map(|_| AtomicU32::new(0)).collect();
    replay(&|task| {
        at[task as usize].store(clock.fetch_add(1, Ordering::AcqRel), Ordering::Release)
    })?;
    let at = |task: u32| at[task as usize].load(Ordering::Acquire);
    for task in 0..graph.tasks() as u32 {
        let before = graph.predecessors(task).iter().map(|&p| at(p)).max().unwrap_or(0);
        assert!(
            at(task) > before,
            "{executor}, {}: task {task} ran too early or not at all",
            graph.name
        );
    }
    assert_eq!(clock.into_inner() as usize, graph.tasks() + 1, "{executor}, {}: runs", graph.name);
    Ok(())
}

/// Nanoseconds a task.
pub fn timed(tasks: usize, replay: impl FnOnce()) -> f64 {
    let began = Instant::now();
    replay();
    began.elapsed().as_secs_f64() * 1e9 / tasks as f64
}

pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
