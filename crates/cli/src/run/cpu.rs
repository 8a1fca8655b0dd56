//! Graphs on the CPU.

use anyhow::Result;
use phonograph::graph::{BufferId, ComputeGraph, Scalar, Schedule, SlotId};
use phonograph::plan::generate::SPIN;
use phonograph::report::text::thousands;
use phonograph::runtime::cpu::kernels::{Registry, spin};
use phonograph::runtime::cpu::{Bindings, Cpu, Exec, Memory};
use serde_json::json;

use super::{Facts, Measured, user_buffers};
use crate::costs;

pub struct Machine {
    cpu: Cpu,
    exec: Exec,
    memory: Vec<(BufferId, Memory)>,
}

impl Machine {
    pub fn new(graph: &ComputeGraph, schedule: &Schedule, threads: u32) -> Result<Self> {
        let cpu = Cpu::new(threads)?;
        let mut registry = Registry::new();
        registry.register(SPIN, spin());
        let mut memory = Vec::new();
        for buffer in user_buffers(graph) {
            let declared = graph.buffer(buffer);
            memory.push((buffer, cpu.alloc_aligned(declared.bytes, declared.align)?));
        }
        let bindings = memory
            .iter()
            .fold(Bindings::new(&registry), |all, (buffer, memory)| all.memory(*buffer, memory));
        let exec = cpu.instantiate(graph, schedule, &bindings)?;
        Ok(Self { cpu, exec, memory })
    }

    fn memory(&self, buffer: BufferId) -> Memory {
        let found = self.memory.iter().find(|(known, _)| *known == buffer);
        found.expect("each buffer of the user's has memory").1.clone()
    }
}

impl super::Machine for Machine {
    fn write(&mut self, buffer: BufferId, bytes: &[u8]) -> Result<()> {
        let memory = self.memory(buffer);
        self.cpu.slice_mut::<u8>(&memory)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, buffer: BufferId) -> Result<Vec<u8>> {
        Ok(self.cpu.slice::<u8>(&self.memory(buffer))?.to_vec())
    }

    fn set(&mut self, slot: SlotId, value: Scalar) -> Result<()> {
        Ok(self.exec.set(slot, value)?)
    }

    fn replay(&mut self) -> Result<(), String> {
        self.cpu.replay(&mut self.exec).map_err(|error| error.to_string())
    }

    fn facts(&self) -> Facts {
        let (workers, tasks) = (self.cpu.workers(), self.exec.task_count());
        let (waits, bytes) = (self.exec.wait_count(), self.exec.arena_bytes());
        Facts {
            place: format!("{workers} workers"),
            text: vec![
                ("tasks, waits", format!("{tasks}, {waits}")),
                ("own memory", format!("{} B", thousands(bytes))),
            ],
            json: vec![
                ("workers", json!(workers)),
                ("tasks", json!(tasks)),
                ("waits", json!(waits)),
                ("internal_bytes", json!(bytes)),
            ],
        }
    }

    fn measure(&mut self, replays: u64) -> Result<Measured> {
        let costs = costs::measure(&mut self.cpu, &mut self.exec, replays)?;
        Ok(Measured { nodes: costs.nodes.len(), costs, by: None })
    }
}
