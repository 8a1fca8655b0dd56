//! On a GPU through wgpu.

use anyhow::{Result, ensure};
use phonograph::graph::{ComputeGraph, Schedule};
use phonograph::wgpu::{Bindings, Wgpu};
use serde_json::json;

use super::report::{Fact, Outcome, Shown};
use super::{Args, data, replays, slot, user_memory};
use crate::Answer;

pub fn run(args: &Args, graph: &ComputeGraph, schedule: &Schedule) -> Result<Answer> {
    ensure!(
        args.profile.is_none(),
        "nodes are measured on the CPU; leave out --backend or --profile"
    );
    let mut gpu = Wgpu::new()?;
    let memory = user_memory(graph, |bytes| gpu.alloc(bytes))?;
    let bindings =
        memory.iter().fold(Bindings::new(), |all, (buffer, memory)| all.memory(*buffer, memory));
    let mut exec = gpu.instantiate(graph, schedule, &bindings)?;
    for text in &args.data {
        let (memory, bytes) = data(graph, &memory, text)?;
        gpu.write(memory, &bytes)?;
    }
    for text in &args.slots {
        let (slot, value) = slot(graph, text)?;
        exec.set(slot, value)?;
    }
    let Some(times) = replays(args, || gpu.replay(&mut exec))? else { return Ok(Answer::No) };
    let mut shown = Vec::new();
    for (buffer, memory) in &memory {
        shown.push(Shown::new(graph, *buffer, &gpu.read::<u8>(memory)?));
    }
    let (adapter, dispatches) = (gpu.adapter().to_string(), exec.dispatch_count());
    let facts = [
        Fact::new("adapter", json!(adapter), ""),
        Fact::new("dispatches", json!(dispatches), &format!("dispatches     {dispatches}")),
    ];
    let internal_bytes = exec.arena_bytes();
    Outcome { on: adapter, facts: &facts, internal_bytes, times: &times, shown }
        .print(args, graph)?;
    Ok(Answer::Yes)
}
