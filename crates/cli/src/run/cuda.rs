//! Graphs on the first CUDA device.

use anyhow::{Result, bail};
use phonograph::cuda::{Bindings, Cuda, Exec, Memory, ProductBy, Spin};
use phonograph::graph::{BufferId, ComputeGraph, KernelRef, Scalar, Schedule, SlotId, Space};
use phonograph::plan::generate::SPIN;
use serde_json::json;

use super::{Facts, user_buffers};
use crate::costs;

pub struct Machine {
    cuda: Cuda,
    exec: Exec,
    memory: Vec<(BufferId, Memory)>,
}

impl Machine {
    pub fn new(graph: &ComputeGraph, schedule: &Schedule) -> Result<Self> {
        let mut cuda = Cuda::new()?;
        let mut memory = Vec::new();
        for buffer in user_buffers(graph) {
            let declared = graph.buffer(buffer);
            let made = match declared.space {
                Space::Host { .. } => cuda.alloc_host(declared.bytes)?,
                _ => cuda.alloc(declared.bytes)?,
            };
            memory.push((buffer, made));
        }
        let mut bindings = memory
            .iter()
            .fold(Bindings::new(), |all, (buffer, memory)| all.memory(*buffer, memory));
        let spins = graph
            .nodes()
            .iter()
            .filter_map(|node| node.kernel())
            .any(|kernel| matches!(&kernel.kernel, KernelRef::Named(name) if **name == *SPIN));
        let spin = if spins { Some(Spin::new(&mut cuda)?) } else { None };
        if let Some(spin) = &spin {
            bindings = bindings.spin(SPIN, spin);
        }
        let exec = cuda.instantiate(graph, schedule, &bindings)?;
        Ok(Self { cuda, exec, memory })
    }

    fn memory(&self, buffer: BufferId) -> Memory {
        let found = self.memory.iter().find(|(known, _)| *known == buffer);
        found.expect("each buffer of the user's has memory").1.clone()
    }
}

impl super::Machine for Machine {
    fn write(&mut self, buffer: BufferId, bytes: &[u8]) -> Result<()> {
        Ok(self.cuda.write(&self.memory(buffer), bytes)?)
    }

    fn read(&mut self, buffer: BufferId) -> Result<Vec<u8>> {
        Ok(self.cuda.read(&self.memory(buffer))?)
    }

    fn set(&mut self, slot: SlotId, value: Scalar) -> Result<()> {
        Ok(self.exec.set(slot, value)?)
    }

    fn replay(&mut self) -> Result<(), String> {
        self.cuda.replay(&mut self.exec).map_err(|error| error.to_string())
    }

    fn facts(&self) -> Facts {
        let name = self.cuda.devices()[0].name();
        let products = self.exec.products();
        let by_cublas = products.iter().filter(|(_, by)| *by == ProductBy::Cublas).count();
        let mut text = Vec::new();
        if !products.is_empty() {
            text.push(("products", format!("{by_cublas} of {} by cuBLAS", products.len())));
        }
        Facts {
            place: name.to_owned(),
            text,
            json: vec![
                ("device", json!(name)),
                ("products", json!(products.len())),
                ("products_by_cublas", json!(by_cublas)),
            ],
        }
    }

    fn measure(&mut self, _: u64) -> Result<costs::Costs> {
        bail!("nodes are measured on the CPU")
    }
}
