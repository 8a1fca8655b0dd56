//! On the CPU.

use anyhow::Result;
use phonograph::graph::{ComputeGraph, Schedule};
use phonograph::plan::generate::SPIN;
use phonograph::runtime::cpu::kernels::{Registry, spin};
use phonograph::runtime::cpu::{Bindings, Cpu};
use serde_json::json;

use super::report::{Fact, Outcome, Shown};
use super::{Args, data, replays, slot, user_memory};
use crate::{Answer, costs};

pub fn run(args: &Args, graph: &ComputeGraph, schedule: &Schedule, threads: u32) -> Result<Answer> {
    let mut cpu = Cpu::new(threads)?;
    let mut registry = Registry::new();
    registry.register(SPIN, spin());
    let memory = user_memory(graph, |bytes| cpu.alloc(bytes))?;
    let bindings = memory
        .iter()
        .fold(Bindings::new(&registry), |all, (buffer, memory)| all.memory(*buffer, memory));
    let mut exec = cpu.instantiate(graph, schedule, &bindings)?;
    for text in &args.data {
        let (memory, bytes) = data(graph, &memory, text)?;
        cpu.slice_mut::<u8>(memory)?.copy_from_slice(&bytes);
    }
    for text in &args.slots {
        let (slot, value) = slot(graph, text)?;
        exec.set(slot, value)?;
    }
    let Some(times) = replays(args, || cpu.replay(&mut exec))? else { return Ok(Answer::No) };
    let mut shown = Vec::new();
    for (buffer, memory) in &memory {
        shown.push(Shown::new(graph, *buffer, cpu.slice::<u8>(memory)?));
    }
    let (tasks, waits) = (exec.task_count(), exec.wait_count());
    let facts = [
        Fact::new("workers", json!(cpu.workers()), ""),
        Fact::new("tasks", json!(tasks), &format!("tasks, waits   {tasks}, {waits}")),
        Fact::new("waits", json!(waits), ""),
    ];
    let on = format!("{} workers", cpu.workers());
    Outcome { on, facts: &facts, internal_bytes: exec.arena_bytes(), times: &times, shown }
        .print(args, graph)?;
    // Last, since these replays change what the graph changes.
    if let Some(path) = &args.profile {
        let measured = costs::measure(&mut cpu, &mut exec, args.replays)?;
        costs::write(path, graph, &measured)?;
    }
    Ok(Answer::Yes)
}
