//! What a device limits: work beyond the largest launch is done by the threads that there are; what cannot be helped is refused
//! with the node and the limit.

use crate::case::{Case, check, gpu, tensor_of};
use phonograph_graph::{
    Access, Arg, BufferId, DType, Expr, GraphBuilder, LibraryKernel, ReduceOp, Schedule, View,
};
use phonograph_kernels::wgsl::MAX_GROUPS;
use phonograph_wgpu::{Bindings, Shader, Wgpu};

/// Elements for which a launch of one thread each would be too large.
const TOO_MANY: u64 = 256 * MAX_GROUPS as u64 + 1000;

#[test]
fn expressions_reach_elements_beyond_the_largest_launch() {
    let Some(mut gpu) = gpu() else { return };
    let mut b = GraphBuilder::new();
    let x = tensor_of(&mut b, "x", DType::U32, &[TOO_MANY]);
    let place = Expr::build(|e| e.output(e.index(0) * e.constant(3u32) + e.constant(7u32)));
    b.add_elementwise("places", place.unwrap().into(), &[], &[], &[x]);
    let graph = b.build().unwrap();
    let mut exec =
        gpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    gpu.replay(&mut exec).unwrap();
    let found = gpu.read::<u32>(exec.memory(x.buffer).unwrap()).unwrap();
    let wrong = found.iter().zip(0u32..).position(|(&found, at)| found != at * 3 + 7);
    assert_eq!((found.len() as u64, wrong), (TOO_MANY, None));
}

/// A library kernel that wants more workgroups than one launch has, or more threads.
fn large(kernel: LibraryKernel, operands: &[(DType, &[u64])]) -> Case {
    let mut b = GraphBuilder::new();
    let views =
        operands.iter().map(|&(dtype, extents)| tensor_of(&mut b, "operand", dtype, extents));
    let views: Vec<View> = views.collect();
    b.add_library("large", kernel, &views);
    let mut case = Case::new(b.build().unwrap());
    case.replays = 1;
    // Integers, whose sums are the same in any order, and row numbers that are there.
    for (view, &(dtype, _)) in views.iter().zip(operands) {
        if dtype != DType::F32 {
            let words = (0..view.elements()).flat_map(|at| (at as u32 % 61).to_le_bytes());
            case.contents.push((view.buffer, words.collect()));
        }
    }
    case
}

#[test]
fn library_kernels_reach_results_beyond_the_largest_launch() {
    let Some(mut gpu) = gpu() else { return };
    let many = u64::from(MAX_GROUPS) + 1000;
    let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
    check(&mut gpu, &large(sum, &[(DType::I32, &[many, 2]), (DType::I32, &[many])]));
    let width = TOO_MANY.div_ceil(64);
    let (table, picked) = ([64, width], [65, width]);
    let gather = [(DType::U32, &table[..]), (DType::I32, &[65]), (DType::U32, &picked)];
    check(&mut gpu, &large(LibraryKernel::Gather, &gather));
    let scatter = [(DType::I32, &[2, width][..]), (DType::I32, &[2]), (DType::I32, &table)];
    check(&mut gpu, &large(LibraryKernel::ScatterAdd, &scatter));
    // One product each, which no order of a sum could change.
    let one = [many, 1, 1];
    let product = [(DType::F32, &one[..]), (DType::F32, &one), (DType::F32, &one)];
    check(&mut gpu, &large(LibraryKernel::MatMul, &product));
}

const COPY: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn copy(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = x[id.x]; }
";

/// Why a graph with the kernel `copy` is refused.
fn refusal(gpu: &mut Wgpu, b: GraphBuilder, source: &str) -> String {
    let (graph, shader) = (b.build().unwrap(), Shader::new(source, "copy").unwrap());
    let bindings = Bindings::new().kernel("copy", &shader);
    let exec = gpu.instantiate(&graph, &Schedule::sequential(&graph), &bindings);
    exec.map(drop).unwrap_err().to_string()
}

fn copy(b: &mut GraphBuilder, grid: u32, x: View, y: View) {
    b.add_kernel("copy", grid, 64, 0)
        .arg(Arg::View(x, Access::Read))
        .arg(Arg::View(y, Access::ReadWrite))
        .finish();
}

#[test]
fn the_users_kernels_are_refused_what_a_device_cannot_bind_or_launch() {
    let Some(mut gpu) = gpu() else { return };
    let mut b = GraphBuilder::new();
    let (x, y) =
        (tensor_of(&mut b, "x", DType::F32, &[64]), tensor_of(&mut b, "y", DType::F32, &[64]));
    copy(&mut b, MAX_GROUPS + 1, x, y);
    let said = refusal(&mut gpu, b, COPY);
    let expected = "node n0 (copy) cannot run on wgpu: its grid has more than 65535 blocks";
    assert!(said.starts_with(expected), "{said}");

    let limits = gpu.handles().0.limits();
    let (align, most) =
        (limits.min_storage_buffer_offset_alignment, limits.max_compute_workgroup_storage_size);
    let words = most / 4 + 1;
    let source = format!(
        "var<workgroup> shared_words: array<u32, {words}>;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64)
fn copy(@builtin(global_invocation_id) id: vec3<u32>) {{ shared_words[id.x] = x[id.x]; x[0] = shared_words[0]; }}"
    );
    let mut b = GraphBuilder::new();
    let x = tensor_of(&mut b, "x", DType::U32, &[64]);
    b.add_kernel("copy", 1, 64, 0).arg(Arg::View(x, Access::ReadWrite)).finish();
    let said = refusal(&mut gpu, b, &source);
    let expected = format!(
        "node n0 (copy) cannot run on wgpu: its variables take {} bytes of workgroup memory; this device has {most}",
        4 * words
    );
    assert_eq!(said, expected);

    if align > 4 {
        let mut b = GraphBuilder::new();
        let (x, y) =
            (tensor_of(&mut b, "x", DType::F32, &[65]), tensor_of(&mut b, "y", DType::F32, &[64]));
        copy(&mut b, 1, x.slice(0, 1, 64).unwrap(), y);
        let said = refusal(&mut gpu, b, COPY);
        let expected = format!(
            "node n0 (copy) cannot run on wgpu: argument 0 starts at byte 4 of its buffer; this device binds memory at multiples of {align} bytes"
        );
        assert_eq!(said, expected);
    }

    // The strictest device binds at multiples of 256 bytes, which every device takes.
    let mut b = GraphBuilder::new();
    let (x, y) =
        (tensor_of(&mut b, "x", DType::F32, &[128]), tensor_of(&mut b, "y", DType::F32, &[64]));
    copy(&mut b, 1, x.slice(0, 64, 64).unwrap(), y);
    let (graph, shader) = (b.build().unwrap(), Shader::new(COPY, "copy").unwrap());
    let bindings = Bindings::new().kernel("copy", &shader);
    let mut exec = gpu.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    let numbers: Vec<f32> = (0u8..128).map(f32::from).collect();
    gpu.write(exec.memory(x.buffer).unwrap(), &numbers).unwrap();
    gpu.replay(&mut exec).unwrap();
    assert_eq!(gpu.read::<f32>(exec.memory(y.buffer).unwrap()).unwrap(), numbers[64..]);
}

#[test]
fn a_buffer_longer_than_a_binding_is_bound_in_parts() {
    let Some(mut gpu) = gpu() else { return };
    let limits = gpu.handles().0.limits();
    let most = limits.max_storage_buffer_binding_size;
    let bytes = most + (1 << 20);
    if bytes > limits.max_buffer_size || bytes > 1 << 29 {
        return eprintln!("skipped: this device binds {most} bytes at once");
    }
    let graph = |both: bool| {
        let mut b = GraphBuilder::new();
        let buffer = b.external_buffer("long", bytes as usize);
        let at = |byte| View::strided(buffer, DType::F32, byte, &[1000], &[1]).unwrap();
        let (first, last) = (at(0), at(bytes - 4000));
        let plus = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0))).unwrap();
        let plus = std::sync::Arc::new(plus);
        if both {
            b.add_elementwise("both", plus, &[first], &[], &[last]);
        } else {
            b.add_elementwise("first", plus.clone(), &[first], &[], &[first]);
            b.add_elementwise("last", plus, &[last], &[], &[last]);
        }
        b.build().unwrap()
    };
    let memory = gpu.alloc(bytes).unwrap();
    let bindings = Bindings::new().memory(BufferId(0), &memory);
    let parts = graph(false);
    let mut exec = gpu.instantiate(&parts, &Schedule::sequential(&parts), &bindings).unwrap();
    gpu.replay(&mut exec).unwrap();
    for (start, expected) in [(0, 1.0), (4000, 0.0), (bytes - 8000, 0.0), (bytes - 4000, 1.0f32)] {
        let mut found = [0; 4000];
        gpu.read_at(&memory, start, &mut found).unwrap();
        assert!(found.chunks(4).all(|word| word == expected.to_le_bytes()), "from {start} on");
    }
    let both = graph(true);
    let error = gpu.instantiate(&both, &Schedule::sequential(&both), &bindings).map(drop);
    let expected = format!(
        "node n0 (both) cannot run on wgpu: its operands in one buffer span {bytes} bytes; this device binds {most}"
    );
    assert_eq!(error.unwrap_err().to_string(), expected);
}
