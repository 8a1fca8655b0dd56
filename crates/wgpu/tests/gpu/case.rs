//! One graph with its data, run on the CPU and on wgpu.

use phonograph_graph::{BufferId, BufferRole, ComputeGraph, DType, GraphBuilder, Schedule, View};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::cpu::{self, Cpu};
use phonograph_wgpu::{Bindings, Exec, Shader, Wgpu};

/// The backend, or the reason why there is none in the output.
pub fn gpu() -> Option<Wgpu> {
    match Wgpu::new() {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A graph, the contents of its external buffers at first, and the functions that it calls.
pub struct Case {
    pub graph: ComputeGraph,
    pub contents: Vec<(BufferId, Vec<u8>)>,
    /// Kernels by name for the CPU.
    pub registry: Registry,
    /// Kernels by name for wgpu.
    pub kernels: Vec<(&'static str, Shader)>,
    pub replays: usize,
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
        let bindings = cpu::Bindings::new(&self.registry);
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

    /// Instantiates on wgpu with the contents in place.
    pub fn instantiate(&self, gpu: &mut Wgpu, schedule: &Schedule) -> Exec {
        let bindings = self.kernels.iter();
        let bindings = bindings.fold(Bindings::new(), |b, (name, shader)| b.kernel(name, shader));
        let exec = gpu.instantiate(&self.graph, schedule, &bindings);
        let exec = exec.unwrap_or_else(|error| panic!("{error}"));
        for buffer in self.external() {
            gpu.write(exec.memory(buffer).unwrap(), &self.first(buffer)).unwrap();
        }
        exec
    }

    pub fn on_gpu(&self, gpu: &mut Wgpu) -> Vec<Vec<u8>> {
        let mut exec = self.instantiate(gpu, &Schedule::sequential(&self.graph));
        (0..self.replays).for_each(|_| gpu.replay(&mut exec).unwrap());
        let external = self.external();
        let memory = external.iter().map(|&buffer| exec.memory(buffer).unwrap());
        memory.map(|memory| gpu.read::<u8>(memory).unwrap()).collect()
    }
}

/// The case gives the same bytes on the CPU and on wgpu.
#[track_caller]
pub fn check(gpu: &mut Wgpu, case: &Case) {
    let (expected, found) = (case.on_cpu(), case.on_gpu(gpu));
    for ((buffer, expected), found) in case.external().iter().zip(&expected).zip(&found) {
        let at = expected.iter().zip(found).position(|(a, b)| a != b);
        let name = &case.graph.buffer(*buffer).name;
        assert_eq!(at, None, "{name} differs there: {expected:?} on the CPU, {found:?} on wgpu");
    }
}

/// A tensor of f32 in an external buffer of its own.
pub fn tensor(b: &mut GraphBuilder, name: &str, extents: &[u64]) -> View {
    let buffer = b.external_buffer(name, 4 * extents.iter().product::<u64>() as usize);
    View::contiguous(buffer, DType::F32, extents).unwrap()
}
