//! How well a simulated makespan predicts a replay on the CPU: four graphs of 1 to 100 µs bodies, on one and two workers.
//!
//! Costs of nodes and overheads are measured on the device itself; the graph is planned with them, simulated, and replayed.
//! The columns are milliseconds of the fastest replay and of the simulation, their ratio, the time in which the worker that
//! does most is busy, and what the simulation says the makespan is due to. Replays go on for five seconds, and the fastest
//! counts: whatever else runs on the machine makes them longer than predicted, the more the longer a replay is.
//!
//! `cargo bench -p phonograph --bench predict`; without `--bench`, as `cargo test` does it, small graphs and no figures.

use std::time::{Duration, Instant};

use phonograph::graph::ComputeGraph;
use phonograph::plan::ExecutionPlan;
use phonograph::plan::cost::Overheads;
use phonograph::plan::generate::{Kind, SPIN, generate};
use phonograph::plan::simulate::simulate;
use phonograph::plan::streams::PlanOptions;
use phonograph::runtime::cpu::kernels::{Registry, spin};
use phonograph::runtime::cpu::{Bindings, Cpu, Exec};

type Failure = Box<dyn std::error::Error>;

fn instantiate(cpu: &Cpu, graph: &ComputeGraph, options: &PlanOptions) -> Result<Exec, Failure> {
    let plan = ExecutionPlan::plan(graph, options)?;
    let mut registry = Registry::new();
    registry.register(SPIN, spin());
    let schedule = plan.schedule().ok_or("a plan of a graph has a schedule")?;
    Ok(cpu.instantiate(graph, schedule, &Bindings::new(&registry))?)
}

fn row(kind: Kind, nodes: u32, workers: u32, time: Duration) -> Result<String, Failure> {
    let graph = generate(kind, nodes, 1)?;
    let mut cpu = Cpu::new(workers)?;
    let mut exec = instantiate(&cpu, &graph, &PlanOptions::at_most(workers))?;
    let costs = cpu.node_costs(&mut exec, 15)?;
    let measured = cpu.overheads();
    let overheads = Overheads {
        replay_ns: measured.replay_ns,
        node_ns: measured.node_ns,
        handover_ns: measured.handover_ns,
    };
    let options = PlanOptions { costs: Some(&costs), overheads, ..PlanOptions::at_most(workers) };
    let plan = ExecutionPlan::plan(&graph, &options)?;
    let schedule = plan.schedule().ok_or("a plan of a graph has a schedule")?;
    let predicted = simulate(&graph, schedule, &costs, overheads);
    let mut exec = instantiate(&cpu, &graph, &options)?;
    let mut fastest = u64::MAX;
    let began = Instant::now();
    while fastest == u64::MAX || began.elapsed() < time {
        let start = Instant::now();
        cpu.replay(&mut exec)?;
        fastest = fastest.min(start.elapsed().as_nanos() as u64);
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    Ok(format!(
        "{:<10} {nodes:>6} {workers:>7} {:>10.3} {:>10.3} {:>6.3} {:>10.3} {:>6} {:>5} {:>5}  {:?}",
        kind.name(),
        ms(fastest),
        ms(predicted.makespan_ns),
        fastest as f64 / predicted.makespan_ns as f64,
        ms(predicted.busy_ns.iter().copied().max().unwrap_or(0)),
        schedule.wait_count(),
        overheads.node_ns,
        overheads.handover_ns,
        predicted.bound,
    ))
}

fn main() -> Result<(), Failure> {
    let measure = std::env::args().any(|arg| arg == "--bench");
    let (sizes, time): (&[u32], u64) = if measure { (&[100, 1_000], 5) } else { (&[20], 0) };
    let time = Duration::from_secs(time);
    println!(
        "{:<10} {:>6} {:>7} {:>10} {:>10} {:>6} {:>10} {:>6} {:>5} {:>5}  bound",
        "graph",
        "nodes",
        "workers",
        "replay ms",
        "simulated",
        "ratio",
        "busiest",
        "waits",
        "node",
        "hand"
    );
    for kind in [Kind::Chain, Kind::Wavefront, Kind::Layered, Kind::Tree] {
        for &nodes in sizes {
            for workers in [1, 2] {
                println!("{}", row(kind, nodes, workers, time)?);
            }
        }
    }
    Ok(())
}
