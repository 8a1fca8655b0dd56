//! A plan of a graph, proved by the checker: what `plan`, `show` and `view` have in common.

use anyhow::{Context, Result, bail};
use phonograph::graph::{ComputeGraph, Schedule, check};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::memory::{self, MemoryOptions, MemoryReport};
use phonograph::plan::simulate::{Simulation, simulate};
use phonograph::plan::streams::{
    PlanOptions, StreamLimit, Synchronisations, schedule_counted, schedule_in,
};

use crate::costs::{Costs, Source};

/// A plan and what it rests on.
pub struct Planned {
    pub plan: ExecutionPlan,
    pub memory: MemoryReport,
    pub run: Simulation,
    /// Counted where concurrency is full; under a cap there is no such minimum.
    pub synchronisations: Option<Synchronisations>,
}

impl Planned {
    /// Plans memory, then streams, by the costs that are known, and has the plan proved. Without costs
    /// everything that may run side by side does, if the streams suffice.
    pub fn new(
        graph: &ComputeGraph,
        streams: StreamLimit,
        source: Option<&Source>,
        memory_budget: Option<u64>,
    ) -> Result<Self> {
        let Costs { nodes: costs, overheads } =
            source.map_or_else(|| Costs::assumed(graph), |source| source.costs(graph));
        // A fiftieth of a second of search: nobody waits for that at a prompt.
        let (steps, bytes) = (20_000, memory_budget);
        let by = MemoryOptions { steps, bytes, costs: &costs };
        let memory = memory::plan(graph, &by)?;
        let known = source.is_some().then_some(costs.as_slice());
        let options = PlanOptions { streams, costs: known, overheads, memory: by };
        let (schedule, synchronisations) = match streams {
            StreamLimit::Full => {
                let (schedule, counts) = schedule_counted(graph, &options, &memory)?;
                (schedule, Some(counts))
            }
            StreamLimit::AtMost(_) => (schedule_in(graph, &options, &memory)?, None),
        };
        let plan = ExecutionPlan::with_schedule(graph, schedule)?;
        let schedule = schedule_of(&plan)?;
        let violations = check(graph, schedule);
        if let Some(first) = violations.first() {
            bail!("the plan is wrong, which is a bug: {first} ({} in all)", violations.len());
        }
        let run = simulate(graph, schedule, &costs, overheads);
        Ok(Self { plan, memory, run, synchronisations })
    }
}

/// The schedule of a plan that was made of a graph.
pub fn schedule_of(plan: &ExecutionPlan) -> Result<&Schedule> {
    plan.schedule().context("a plan of a graph has a schedule")
}
