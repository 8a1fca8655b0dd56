//! Graphs on the first CUDA device.

use anyhow::{Result, ensure};
use phonograph::cuda::{Bindings, Cuda, Exec, Memory, ProductBy, Profiler, Spin};
use phonograph::graph::{BufferId, ComputeGraph, KernelRef, Scalar, Schedule, SlotId, Space};
use phonograph::plan::generate::SPIN;
use serde_json::json;

use super::{Facts, Measured, user_buffers};
use crate::costs::Costs;

pub struct Machine {
    cuda: Cuda,
    exec: Exec,
    memory: Vec<(BufferId, Memory)>,
    spin: Option<Spin>,
    graph: ComputeGraph,
    schedule: Schedule,
    /// The slots that were set.
    slots: Vec<(SlotId, Scalar)>,
}

impl Machine {
    pub fn new(graph: &ComputeGraph, schedule: &Schedule) -> Result<Self> {
        let mut cuda = Cuda::new()?;
        let mut memory = Vec::new();
        for buffer in user_buffers(graph) {
            let declared = graph.buffer(buffer);
            let made = match declared.space {
                Space::Host { .. } => cuda.alloc_host(declared.bytes)?,
                Space::Device(place) => cuda.alloc_on(place, declared.bytes)?,
                Space::Unknown => cuda.alloc(declared.bytes)?,
            };
            memory.push((buffer, made));
        }
        let spins = graph
            .nodes()
            .iter()
            .filter_map(|node| node.kernel())
            .any(|kernel| matches!(&kernel.kernel, KernelRef::Named(name) if **name == *SPIN));
        let spin = if spins { Some(Spin::new(&mut cuda)?) } else { None };
        let exec = cuda.instantiate(graph, schedule, &bindings(&memory, spin.as_ref()))?;
        let (graph, schedule) = (graph.clone(), schedule.clone());
        Ok(Self { cuda, exec, memory, spin, graph, schedule, slots: Vec::new() })
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
        self.slots.push((slot, value));
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

    fn measure(&mut self, replays: u64) -> Result<Measured> {
        let profiler = Profiler::start()?;
        let by = match profiler.without_cupti() {
            Some(reason) => format!("{} ({reason})", profiler.method()),
            None => profiler.method().to_string(),
        };
        // Anew, since the profiler knows only nodes that it has seen instantiated.
        let (graph, spin) = (&self.graph, self.spin.as_ref());
        let bindings = bindings(&self.memory, spin);
        let mut exec = profiler.instantiate(&mut self.cuda, graph, &self.schedule, &bindings)?;
        for &(slot, value) in &self.slots {
            exec.set(slot, value)?;
        }
        for _ in 0..replays {
            self.cuda.replay(&mut exec)?;
        }
        let measured = profiler.stop()?.of(&exec);
        let nodes = measured.iter().flatten().count();
        ensure!(nodes > 0 || graph.is_empty(), "the profiler saw none of the graph's nodes");
        let mut costs = Costs::assumed(graph);
        for (cost, measured) in costs.nodes.iter_mut().zip(measured) {
            *cost = measured.unwrap_or(*cost);
        }
        Ok(Measured { costs, nodes, by: Some(by) })
    }
}

fn bindings<'a>(memory: &'a [(BufferId, Memory)], spin: Option<&'a Spin>) -> Bindings<'a> {
    let bindings =
        memory.iter().fold(Bindings::new(), |all, (buffer, memory)| all.memory(*buffer, memory));
    match spin {
        Some(spin) => bindings.spin(SPIN, spin),
        None => bindings,
    }
}
