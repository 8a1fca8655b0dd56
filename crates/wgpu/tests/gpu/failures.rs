//! What goes wrong on a device: told as what it is, with the node or the step, by whatever is asked; no panic, no wait for ever.

use crate::case::{add_one, gpu};
use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, Condition, ConditionalKind, DType, Expr, GraphBuilder,
    LibraryKernel, Schedule, View,
};
use phonograph_wgpu::{
    Bindings, Exec, GpuError, InstantiateError, Memory, MemoryError, ReplayError, Shader, Stage,
    Wgpu,
};

/// `x += 1`, `kernels` times.
fn chain(kernels: usize) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let x = View::contiguous(b.external_buffer("x", 4096), DType::F32, &[1024]).unwrap();
    for _ in 0..kernels {
        b.add_elementwise("plus", add_one(), &[x], &[], &[x]);
    }
    b.build().unwrap()
}

/// A graph whose one node decides by `x`, which is not 0.
fn deciding() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let which = View::contiguous(b.external_buffer("x", 4096), DType::I32, &[1024]).unwrap();
    let first = which.slice(0, 0, 1).unwrap();
    let mut body = GraphBuilder::new();
    let inside = body.outer_view(&b, which);
    let less = Expr::build(|e| e.output(e.input(DType::I32) - e.constant(1i32))).unwrap();
    body.add_elementwise("less", less.into(), &[inside], &[], &[inside]);
    let bodies = vec![body.build().unwrap()];
    b.add_conditional("until", ConditionalKind::While, Condition::Value(first), bodies);
    b.build().unwrap()
}

/// A graph that notes rows that do not exist.
fn gathering() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let x = View::contiguous(b.external_buffer("x", 4096), DType::F32, &[32, 32]).unwrap();
    let rows = View::contiguous(b.external_buffer("rows", 12), DType::I32, &[3]).unwrap();
    let to = View::contiguous(b.external_buffer("to", 384), DType::F32, &[3, 32]).unwrap();
    b.add_library("gather", LibraryKernel::Gather, &[x, rows, to]);
    b.build().unwrap()
}

fn instantiate(
    gpu: &mut Wgpu,
    graph: &ComputeGraph,
    memory: &Memory,
) -> Result<Exec, InstantiateError> {
    let bindings = Bindings::new().memory(BufferId(0), memory);
    gpu.instantiate(graph, &Schedule::sequential(graph), &bindings)
}

/// A device with memory and a graph on it, which is then lost.
struct Lost {
    gpu: Wgpu,
    memory: Memory,
    exec: Exec,
}

impl Lost {
    /// `before` works on the device until it is destroyed.
    fn new(graph: &ComputeGraph, before: impl FnOnce(&mut Wgpu, &mut Exec)) -> Option<Self> {
        let mut gpu = gpu()?;
        let memory = gpu.alloc(4096).unwrap();
        gpu.write(&memory, &[3i32; 1024]).unwrap();
        let mut exec = instantiate(&mut gpu, graph, &memory).unwrap();
        before(&mut gpu, &mut exec);
        gpu.handles().0.destroy();
        Some(Self { gpu, memory, exec })
    }

    /// All that can be asked of the device goes on saying that it is lost.
    fn stays(mut self) {
        for _ in 0..2 {
            let lost = |error: GpuError| assert!(matches!(error, GpuError::Lost(_)), "{error}");
            let memory = |result: Result<(), MemoryError>| match result {
                Err(MemoryError::Device(error)) => lost(error),
                other => panic!("{other:?}"),
            };
            memory(self.gpu.read::<u8>(&self.memory).map(drop));
            memory(self.gpu.write(&self.memory, &[0u8; 4096]));
            memory(self.gpu.write_at(&self.memory, 1, &[1]));
            lost(self.gpu.alloc(4).unwrap_err());
            lost(self.gpu.synchronize().unwrap_err());
            for graph in [chain(3), deciding(), gathering()] {
                match instantiate(&mut self.gpu, &graph, &self.memory).map(drop) {
                    Err(InstantiateError::Device(source)) => lost(source),
                    other => panic!("{other:?}"),
                }
            }
            for result in [self.gpu.replay(&mut self.exec), self.gpu.launch(&mut self.exec)] {
                match result.unwrap_err() {
                    ReplayError::Device { stage: Stage::Submit, source } => lost(source),
                    other => panic!("{other}"),
                }
            }
        }
    }
}

/// The replay says that the device is lost, and at what.
#[track_caller]
fn check(error: ReplayError, expected: &Stage) {
    let ReplayError::Device { stage, source: GpuError::Lost(message) } = error else {
        panic!("{error}")
    };
    assert_eq!((&stage, message.as_str()), (expected, "it was destroyed"));
}

#[test]
fn a_lost_device_is_told_by_the_replay_that_finds_it() {
    for graph in [chain(3), gathering()] {
        let Some(mut lost) = Lost::new(&graph, |_, _| {}) else { return };
        check(lost.gpu.replay(&mut lost.exec).unwrap_err(), &Stage::Finish);
        lost.stays();
    }
}

#[test]
fn a_device_that_is_lost_under_way_is_told_at_the_end() {
    let launched = |gpu: &mut Wgpu, exec: &mut Exec| gpu.launch(exec).unwrap();
    for graph in [chain(500), gathering()] {
        let Some(mut lost) = Lost::new(&graph, launched) else { return };
        check(lost.gpu.finish(&mut lost.exec).unwrap_err(), &Stage::Finish);
        lost.stays();
    }
}

#[test]
fn a_loss_that_a_conditional_finds_is_told_with_its_node() {
    let graph = deciding();
    let Some(mut lost) = Lost::new(&graph, |gpu, exec| gpu.replay(exec).unwrap()) else { return };
    let error = lost.gpu.replay(&mut lost.exec).unwrap_err();
    let said = error.to_string();
    assert_eq!(
        said,
        "waiting for what node n0 (until) decides by: the device is lost: it was destroyed"
    );
    lost.stays();
}

#[test]
fn a_lost_device_is_told_by_whatever_is_asked_first() {
    let graph = chain(3);
    for first in 0..6 {
        let Some(mut lost) = Lost::new(&graph, |_, _| {}) else { return };
        let (gpu, memory) = (&mut lost.gpu, &lost.memory);
        let error = match first {
            0 => gpu.read::<u8>(memory).unwrap_err().to_string(),
            1 => gpu.write(memory, &[0u8; 4096]).unwrap_err().to_string(),
            2 => gpu.write_at(memory, 1, &[1]).unwrap_err().to_string(),
            3 => gpu.alloc(64).unwrap_err().to_string(),
            4 => gpu.synchronize().unwrap_err().to_string(),
            _ => instantiate(gpu, &graph, memory).unwrap_err().to_string(),
        };
        assert!(error.ends_with("the device is lost: it was destroyed"), "{error}");
        lost.stays();
    }
}

#[test]
fn memory_that_the_device_does_not_have_is_told_with_its_buffer() {
    let Some(mut gpu) = gpu() else { return };
    let too_much = usize::try_from(gpu.handles().0.limits().max_buffer_size + 4).unwrap();
    type Declare = fn(&mut GraphBuilder, &str, usize) -> BufferId;
    for (declare, name) in [
        (GraphBuilder::external_buffer as Declare, "outside"),
        (GraphBuilder::alloc_buffer as Declare, "inside"),
    ] {
        let mut b = GraphBuilder::new();
        let small = View::contiguous(b.alloc_buffer("small", 4), DType::F32, &[1]).unwrap();
        let large = View::contiguous(declare(&mut b, name, too_much), DType::F32, &[1]).unwrap();
        b.add_elementwise("plus", add_one(), &[large], &[], &[small]);
        b.add_elementwise("plus", add_one(), &[small], &[], &[large]);
        let graph = b.build().unwrap();
        let error = gpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new());
        match error.map(drop).unwrap_err() {
            InstantiateError::Memory { buffer, name: said, source: GpuError::OutOfMemory(_) } => {
                assert_eq!((buffer, said.as_str()), (BufferId(1), name));
            }
            other => panic!("{other}"),
        }
    }
    // The device serves on.
    let memory = gpu.alloc(4096).unwrap();
    let mut exec = instantiate(&mut gpu, &chain(3), &memory).unwrap();
    gpu.replay(&mut exec).unwrap();
    assert_eq!(gpu.read::<f32>(&memory).unwrap(), [3.0; 1024]);
}

/// Graphs of two nodes, of which the second is a kernel of the user's that wgpu refuses.
#[test]
fn kernels_that_wgpu_refuses_are_told_with_their_node() {
    const LONGER: &str = "@group(0) @binding(0) var<storage, read_write> x: array<f32, 100000>;";
    const ELSEWHERE: &str = "@group(0) @binding(7) var<storage, read_write> x: array<f32>;";
    let Some(mut gpu) = gpu() else { return };
    for head in [LONGER, ELSEWHERE] {
        let source = format!(
            "{head}
@compute @workgroup_size(64)
fn spoil(@builtin(global_invocation_id) id: vec3<u32>) {{ x[id.x] += 1.0; }}"
        );
        let shader = Shader::new(&source, "spoil").unwrap();
        let mut b = GraphBuilder::new();
        let x = View::contiguous(b.external_buffer("x", 4096), DType::F32, &[1024]).unwrap();
        b.add_elementwise("plus", add_one(), &[x], &[], &[x]);
        b.add_kernel("spoil", 16, 64, 0).arg(Arg::View(x, Access::ReadWrite)).finish();
        let graph = b.build().unwrap();
        let bindings = Bindings::new().kernel("spoil", &shader);
        let error = gpu.instantiate(&graph, &Schedule::sequential(&graph), &bindings);
        match error.map(drop) {
            Err(InstantiateError::Node { node, source: GpuError::Validation(message) }) => {
                assert_eq!(node.to_string(), "n1 (spoil)");
                assert!(message.to_lowercase().contains("binding"), "{message}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn what_a_replay_is_refused_for_is_told_by_it_and_by_no_other() {
    let Some(mut gpu) = gpu() else { return };
    let [mine, other] = [0, 1].map(|_| gpu.alloc(4096).unwrap());
    let mut exec = instantiate(&mut gpu, &chain(2), &mine).unwrap();
    let mut beside = instantiate(&mut gpu, &chain(2), &other).unwrap();
    gpu.replay(&mut exec).unwrap();
    // Another user of wgpu's buffer gives it up.
    mine.buffer().destroy();
    for _ in 0..2 {
        match gpu.launch(&mut exec).unwrap_err() {
            ReplayError::Device { stage: Stage::Submit, source: GpuError::Validation(message) } => {
                assert!(message.contains("destroyed"), "{message}");
            }
            other => panic!("{other}"),
        }
    }
    gpu.replay(&mut beside).unwrap();
    assert_eq!(gpu.read::<f32>(&other).unwrap(), [2.0; 1024]);
}
