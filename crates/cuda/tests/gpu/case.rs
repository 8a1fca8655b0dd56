//! One graph with its data, run on the CPU and on CUDA.

use std::cell::Cell;

use phonograph_cuda::{Bindings, Cuda, Exec, Function};
use phonograph_graph::{BufferId, BufferRole, ComputeGraph, Schedule};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::cpu::{self, Cpu};

/// The backend, or the reason why there is none in the output.
pub fn cuda() -> Option<Cuda> {
    match Cuda::new() {
        Ok(cuda) => Some(cuda),
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
    /// Kernels by name and host functions for the CPU; the host functions for CUDA, too.
    pub registry: Registry,
    /// Kernels by name for CUDA: name and source.
    pub kernels: Vec<(&'static str, &'static str)>,
    pub replays: usize,
}

impl Case {
    pub fn new(graph: ComputeGraph) -> Self {
        let (contents, kernels) = (Vec::new(), Vec::new());
        Self { graph, contents, registry: Registry::new(), kernels, replays: 3 }
    }

    pub fn with<T: Copy>(mut self, buffer: BufferId, values: &[T]) -> Self {
        // SAFETY: the tests give slices of plain numbers, every byte of which is initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
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

    /// Instantiates on CUDA with the contents in place.
    pub fn instantiate(&self, cuda: &mut Cuda, schedule: &Schedule) -> Exec {
        let compile = |&(name, source): &(&'static str, &str)| {
            (name, cuda.compile(source, name).unwrap_or_else(|error| panic!("{error}")))
        };
        let functions: Vec<(&str, Function)> = self.kernels.iter().map(compile).collect();
        let mut bindings = Bindings::new().hosts(&self.registry);
        for (name, function) in &functions {
            // SAFETY: the kernels of the cases keep to their operands; the check of the results would tell.
            bindings = unsafe { bindings.kernel(name, function) };
        }
        let exec = cuda.instantiate(&self.graph, schedule, &bindings);
        let exec = exec.unwrap_or_else(|error| panic!("{error}"));
        for buffer in self.external() {
            cuda.write(exec.memory(buffer).unwrap(), &self.first(buffer)).unwrap();
        }
        exec
    }

    pub fn on_cuda(&self, cuda: &mut Cuda, schedule: &Schedule) -> Vec<Vec<u8>> {
        let mut exec = self.instantiate(cuda, schedule);
        (0..self.replays).for_each(|_| cuda.replay(&mut exec).unwrap());
        let external = self.external();
        let memory = external.iter().map(|&buffer| exec.memory(buffer).unwrap());
        memory.map(|memory| cuda.read::<u8>(memory).unwrap()).collect()
    }
}

/// The case gives the same bytes on the CPU and on CUDA.
#[track_caller]
pub fn check(cuda: &mut Cuda, case: &Case) {
    let differ = Cell::new(0);
    let (expected, found) = (case.on_cpu(), case.on_cuda(cuda, &Schedule::sequential(&case.graph)));
    for ((buffer, expected), found) in case.external().iter().zip(&expected).zip(&found) {
        let at = expected.iter().zip(found).position(|(a, b)| a != b);
        if let Some(at) = at {
            differ.set(differ.get() + 1);
            let word =
                |bytes: &[u8]| bytes[at / 4 * 4..].iter().take(4).copied().collect::<Vec<_>>();
            let name = &case.graph.buffer(*buffer).name;
            eprintln!(
                "{buffer} ({name}) differs at byte {at}: {:?} on the CPU, {:?} on CUDA",
                word(expected),
                word(found)
            );
        }
    }
    assert_eq!(differ.get(), 0, "buffers differ");
}
