//! One graph with its data, run on the CPU and on a GPU. Names no backend; the tests of each include it.

use std::sync::Arc;

use phonograph_graph::{
    BufferId, BufferRole, ComputeGraph, DType, Expr, GraphBuilder, Schedule, View,
};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::cpu::{Bindings, Cpu};

/// A graph, the contents of its external buffers at first, and the functions that it calls.
pub struct Case {
    pub graph: ComputeGraph,
    pub contents: Vec<(BufferId, Vec<u8>)>,
    /// Kernels by name and host functions for the CPU; the host functions also for a GPU that calls any.
    pub registry: Registry,
    /// Kernels by name for the GPU: name and source.
    pub kernels: Vec<(&'static str, &'static str)>,
    pub replays: usize,
}

/// A backend.
pub trait Machine {
    /// What the external buffers of the case hold after its replays.
    fn replayed(&mut self, case: &Case) -> Vec<Vec<u8>>;

    /// Whether edges need not be full ones.
    fn takes_weak_edges(&self) -> bool;
}

impl Case {
    pub fn new(graph: ComputeGraph) -> Self {
        let (contents, kernels) = (Vec::new(), Vec::new());
        Self { graph, contents, registry: Registry::new(), kernels, replays: 3 }
    }

    pub fn with(mut self, buffer: BufferId, bytes: &[u8]) -> Self {
        self.contents.push((buffer, bytes.to_vec()));
        self
    }

    pub fn external(&self) -> Vec<BufferId> {
        let external = |id: &BufferId| self.graph.buffer(*id).role == BufferRole::External;
        (0..self.graph.buffers().len()).map(BufferId::from_index).filter(external).collect()
    }

    /// What a buffer holds at first: what the case says, else numbers that differ.
    pub fn first(&self, buffer: BufferId) -> Vec<u8> {
        if let Some((_, bytes)) = self.contents.iter().find(|(id, _)| *id == buffer) {
            return bytes.clone();
        }
        let count = self.graph.buffer(buffer).bytes as usize;
        let value = |i: usize| ((i + buffer.index() * 7) as f32).sin();
        let mut bytes: Vec<u8> =
            (0..count.div_ceil(4)).flat_map(|i| value(i).to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }

    pub fn on_cpu(&self) -> Vec<Vec<u8>> {
        let mut cpu = Cpu::new(2).unwrap();
        let schedule = Schedule::sequential(&self.graph);
        let bindings = Bindings::new(&self.registry);
        let mut exec = cpu.instantiate(&self.graph, &schedule, &bindings).unwrap();
        for buffer in self.external() {
            let memory = exec.memory(buffer).unwrap().clone();
            cpu.slice_mut::<u8>(&memory).unwrap().copy_from_slice(&self.first(buffer));
        }
        (0..self.replays).for_each(|_| cpu.replay(&mut exec).unwrap());
        let external = self.external();
        let memory = external.iter().map(|&buffer| exec.memory(buffer).unwrap());
        memory.map(|memory| cpu.slice::<u8>(memory).unwrap().to_vec()).collect()
    }
}

/// The case gives the same bytes on the CPU and on the GPU.
#[track_caller]
pub fn check(machine: &mut impl Machine, case: &Case) {
    let (expected, found) = (case.on_cpu(), machine.replayed(case));
    for ((buffer, expected), found) in case.external().iter().zip(&expected).zip(&found) {
        let Some(at) = expected.iter().zip(found).position(|(a, b)| a != b) else { continue };
        let word = |bytes: &[u8]| bytes[at / 4 * 4..].iter().take(4).copied().collect::<Vec<_>>();
        let name = &case.graph.buffer(*buffer).name;
        panic!(
            "{buffer} ({name}) differs at byte {at}: {:?} on the CPU, {:?} on the GPU",
            word(expected),
            word(found)
        );
    }
}

/// A dense view of f32 of a whole buffer.
pub fn view(buffer: BufferId, extents: &[u64]) -> View {
    View::contiguous(buffer, DType::F32, extents).unwrap()
}

/// x + 1.
pub fn add_one() -> Arc<Expr> {
    Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0))).unwrap().into()
}

/// A tensor of f32 in an external buffer of its own.
pub fn tensor(b: &mut GraphBuilder, name: &str, extents: &[u64]) -> View {
    tensor_of(b, name, DType::F32, extents)
}

/// A tensor in an external buffer of its own.
pub fn tensor_of(b: &mut GraphBuilder, name: &str, dtype: DType, extents: &[u64]) -> View {
    let bytes = dtype.size() * extents.iter().product::<u64>();
    View::contiguous(b.external_buffer(name, bytes as usize), dtype, extents).unwrap()
}
