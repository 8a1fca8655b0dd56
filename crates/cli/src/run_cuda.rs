//! `phonograph run --backend cuda`: replay a graph on the first CUDA device.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use phonograph::cuda::{Bindings, Cuda, Exec, Memory, Profiler};
use phonograph::graph::{BufferId, BufferRole, ComputeGraph, Schedule, Space};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::streams::PlanOptions;
use phonograph::runtime::cpu::kernels::Registry;
use serde_json::json;

use crate::costs::{self, Costs};
use crate::run::{Args, element_type, first_values, parse_data, parse_slot, print_failure};
use crate::{Answer, print, print_json, progress, title};

/// Streams to plan for where none are said: how nodes may overlap is the driver's to decide, by the graph's edges.
const STREAMS: u32 = 8;

pub fn run(args: &Args, graph: &ComputeGraph, costs: Option<&Costs>) -> Result<Answer> {
    let mut options = PlanOptions::at_most(args.threads.unwrap_or(STREAMS));
    if let Some(costs) = costs {
        (options.costs, options.overheads) = (Some(costs.nodes.as_slice()), costs.overheads);
    }
    let plan = ExecutionPlan::plan(graph, &options)?;
    let schedule = plan.schedule().context("a plan of a graph has a schedule")?;
    let mut cuda = Cuda::new()?;
    let memory = user_memory(&cuda, graph)?;
    for text in &args.data {
        let (buffer, bytes) = parse_data(graph, text)?;
        let (_, memory) = memory
            .iter()
            .find(|(id, _)| *id == buffer)
            .context("only buffers of the user's can be filled")?;
        cuda.write(memory, &bytes)?;
    }
    let mut exec = instantiate(args, graph, schedule, &mut cuda, &memory)?;
    let mut times = Vec::with_capacity(args.replays.min(1 << 20) as usize);
    let bar = progress(args.replays, "replaying");
    for _ in 0..args.replays {
        let start = Instant::now();
        if let Err(error) = cuda.replay(&mut exec) {
            bar.abandon();
            print_failure(args, &error.to_string())?;
            return Ok(Answer::No);
        }
        if times.len() < times.capacity() {
            times.push(start.elapsed());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    times.sort_unstable();
    report(args, graph, &mut cuda, &memory, &times)?;
    drop(exec);
    // Last, since these replays change what the graph changes; and instantiated anew, since only then the profiler knows the
    // nodes.
    if let Some(path) = &args.profile {
        let profiler = Profiler::start()?;
        let mut exec = instantiate(args, graph, schedule, &mut cuda, &memory)?;
        for _ in 0..args.replays {
            cuda.replay(&mut exec)?;
        }
        let measured = profiler.stop()?.of(&exec);
        let known = measured.iter().flatten().count();
        ensure!(known > 0 || graph.is_empty(), "the profiler saw none of the graph's nodes");
        let Costs { nodes, overheads } = Costs::assumed(graph);
        let nodes = measured.iter().zip(nodes).map(|(ns, assumed)| ns.unwrap_or(assumed));
        costs::write(path, graph, &Costs { nodes: nodes.collect(), overheads })?;
        if !args.json {
            let count = graph.node_count();
            let text =
                format!("  profile        {known} of {count} nodes measured, the others assumed\n");
            print(text.as_bytes())?;
        }
    }
    Ok(Answer::Yes)
}

/// Memory for every buffer that is the user's, pointer slots included.
fn user_memory(cuda: &Cuda, graph: &ComputeGraph) -> Result<Vec<(BufferId, Memory)>> {
    let buffers = graph.buffers().iter().enumerate();
    let users =
        buffers.filter(|(_, b)| matches!(b.role, BufferRole::External | BufferRole::Slot(_)));
    users
        .map(|(index, buffer)| {
            let memory = match buffer.space {
                Space::Host { .. } => cuda.alloc_host(buffer.bytes)?,
                Space::Device(place) => cuda.alloc_on(place, buffer.bytes)?,
                Space::Unknown => cuda.alloc(buffer.bytes)?,
            };
            Ok((BufferId::from_index(index), memory))
        })
        .collect()
}

fn instantiate(
    args: &Args,
    graph: &ComputeGraph,
    schedule: &Schedule,
    cuda: &mut Cuda,
    memory: &[(BufferId, Memory)],
) -> Result<Exec> {
    let registry = Registry::new();
    let bindings = memory
        .iter()
        .fold(Bindings::new().hosts(&registry), |all, (id, memory)| all.memory(*id, memory));
    let mut exec = cuda.instantiate(graph, schedule, &bindings)?;
    for text in &args.slots {
        let (slot, value) = parse_slot(graph, text)?;
        exec.set(slot, value)?;
    }
    Ok(exec)
}

fn report(
    args: &Args,
    graph: &ComputeGraph,
    cuda: &mut Cuda,
    memory: &[(BufferId, Memory)],
    times: &[Duration],
) -> Result<()> {
    let median = times[times.len() / 2].as_secs_f64() * 1e6;
    let least = times[0].as_secs_f64() * 1e6;
    let mut buffers = Vec::new();
    for (buffer, memory) in memory {
        let dtype = element_type(graph, *buffer);
        let values = first_values(&cuda.read::<u8>(memory)?, dtype);
        buffers.push((graph.buffer(*buffer).name.to_string(), dtype, memory.bytes(), values));
    }
    let device = cuda.devices()[0].name().to_owned();
    if args.json {
        let buffers = buffers.iter().map(|(name, dtype, bytes, values)| {
            json!({ "name": name, "dtype": dtype.name(), "bytes": bytes, "first": values })
        });
        return print_json(&json!({
            "ok": true,
            "replays": args.replays,
            "nodes": graph.node_count(),
            "device": device,
            "median_us": median,
            "least_us": least,
            "buffers": buffers.collect::<Vec<_>>(),
        }));
    }
    let mut text = format!(
        "{}: {} nodes, {} replays on {device}\n  time a replay  {median:.1} µs (median), {least:.1} µs (least)\n",
        title(args.file()),
        graph.node_count(),
        args.replays,
    );
    for (name, dtype, bytes, values) in buffers {
        let more = if bytes > dtype.size() * values.len() as u64 { ", …" } else { "" };
        text += &format!("  {name:<14} {dtype} [{}{more}]\n", values.join(", "));
    }
    print(text.as_bytes())
}
