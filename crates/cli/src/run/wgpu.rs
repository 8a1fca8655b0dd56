//! Graphs on a GPU through wgpu.

use anyhow::{Result, bail};
use phonograph::graph::{BufferId, ComputeGraph, Scalar, Schedule, SlotId};
use phonograph::report::text::thousands;
use phonograph::wgpu::{Bindings, Exec, Memory, Wgpu};
use serde_json::json;

use super::{Facts, Measured, user_buffers};

pub struct Machine {
    gpu: Wgpu,
    exec: Exec,
    memory: Vec<(BufferId, Memory)>,
}

impl Machine {
    pub fn new(graph: &ComputeGraph, schedule: &Schedule) -> Result<Self> {
        let mut gpu = Wgpu::new()?;
        let mut memory = Vec::new();
        for buffer in user_buffers(graph) {
            memory.push((buffer, gpu.alloc(graph.buffer(buffer).bytes)?));
        }
        let bindings = memory
            .iter()
            .fold(Bindings::new(), |all, (buffer, memory)| all.memory(*buffer, memory));
        let exec = gpu.instantiate(graph, schedule, &bindings)?;
        Ok(Self { gpu, exec, memory })
    }

    fn memory(&self, buffer: BufferId) -> Memory {
        let found = self.memory.iter().find(|(known, _)| *known == buffer);
        found.expect("each buffer of the user's has memory").1.clone()
    }
}

impl super::Machine for Machine {
    fn write(&mut self, buffer: BufferId, bytes: &[u8]) -> Result<()> {
        Ok(self.gpu.write(&self.memory(buffer), bytes)?)
    }

    fn read(&mut self, buffer: BufferId) -> Result<Vec<u8>> {
        Ok(self.gpu.read(&self.memory(buffer))?)
    }

    fn set(&mut self, slot: SlotId, value: Scalar) -> Result<()> {
        Ok(self.exec.set(slot, value)?)
    }

    fn replay(&mut self) -> Result<(), String> {
        self.gpu.replay(&mut self.exec).map_err(|error| error.to_string())
    }

    fn facts(&self) -> Facts {
        let (adapter, dispatches) = (self.gpu.adapter().to_string(), self.exec.dispatch_count());
        let bytes = self.exec.arena_bytes();
        Facts {
            place: adapter.clone(),
            text: vec![
                ("dispatches", dispatches.to_string()),
                ("own memory", format!("{} B", thousands(bytes))),
            ],
            json: vec![
                ("adapter", json!(adapter)),
                ("dispatches", json!(dispatches)),
                ("internal_bytes", json!(bytes)),
            ],
        }
    }

    fn measure(&mut self, _: u64) -> Result<Measured> {
        bail!("nodes are measured on the CPU and on CUDA")
    }
}
