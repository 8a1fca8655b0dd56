//! What can be changed between replays, what a replay may find, the user's kernels, and what is refused.

use std::sync::Arc;

use crate::case::{add_one, check, gpu, view};
use crate::samples::{ROW_NUMBERS, WithSlots, axpy_case, numbered_rows, with_slots};
use phonograph_graph::{
    Access, Arg, Buffer, BufferId, BufferRole, DType, EventId, Expr, GraphBuilder, MemcpyDir,
    Region, Schedule, Space, View,
};
use phonograph_wgpu::{BindError, Bindings, ReplayError, SetError, Shader};

#[test]
fn slots_and_switches_change_the_replays_to_come() {
    let Some(mut gpu) = gpu() else { return };
    let WithSlots { graph, input, output, x, by, plus, in_child } = with_slots();
    let mut exec =
        gpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    assert_eq!(gpu.replay(&mut exec), Err(ReplayError::Unbound(input)));
    let memories: Vec<_> = (0..4).map(|_| gpu.alloc(400).unwrap()).collect();
    for (memory, value) in memories.iter().zip([1f32, 2.0]) {
        gpu.write(memory, &[value; 100]).unwrap();
    }
    for (round, (factor, enabled)) in
        [(2f32, true), (3.0, true), (3.0, false), (5.0, true)].into_iter().enumerate()
    {
        let (from, to) = (&memories[round % 2], &memories[2 + round % 2]);
        exec.bind(input, from).unwrap();
        exec.bind(output, to).unwrap();
        exec.set(by, factor).unwrap();
        exec.set_enabled(plus, enabled).unwrap();
        gpu.replay(&mut exec).unwrap();
        let x = (1 + round % 2) as f32 * factor + if enabled { 1.0 } else { 0.0 };
        let mut expected = vec![x + factor; 50];
        expected.resize(100, 1.0);
        assert_eq!(gpu.read::<f32>(to).unwrap(), expected, "round {round}");
    }
    assert_eq!(
        exec.bind(input, &memories[3]),
        Err(BindError::Set(SetError::Overlap { buffer: input, other: output }))
    );
    assert_eq!(exec.bind(x, &memories[0]), Err(BindError::Set(SetError::NotASlot(x))));
    let small = gpu.alloc(4).unwrap();
    assert!(matches!(
        exec.bind(input, &small),
        Err(BindError::Set(SetError::TooSmall { needed: 400, given: 4, .. }))
    ));
    assert!(matches!(exec.set(by, 1i32), Err(SetError::Type { .. })));
    assert_eq!(exec.set_enabled(in_child, false), Err(SetError::NotDisableable(in_child)));
}

#[test]
fn a_row_that_does_not_exist_is_an_error_of_the_replay() {
    let Some(mut gpu) = gpu() else { return };
    let (graph, rows) = numbered_rows();
    let mut exec =
        gpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let rows = exec.memory(rows).unwrap().clone();
    for (numbers, error) in ROW_NUMBERS {
        gpu.write(&rows, &numbers).unwrap();
        let said = gpu.replay(&mut exec).err().map_or(String::new(), |e| e.to_string());
        assert!(said.ends_with(error), "{said}");
        assert_eq!(said.is_empty(), error.is_empty(), "{said}");
    }
}

#[test]
fn memory_that_is_bound_away_stays_until_its_replay_is_over() {
    let Some(mut gpu) = gpu() else { return };
    const COUNT: u64 = 1 << 18;
    let mut b = GraphBuilder::new();
    let output = b.slot_buffer("output", 4 * COUNT as usize, Access::ReadWrite);
    let by = b.slot("by", 0.0f32);
    let out = view(output, &[COUNT]);
    let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let add: Arc<Expr> = add.into();
    for _ in 0..20 {
        b.add_elementwise("add", add.clone(), &[out], &[Arg::Slot(by)], &[out]);
    }
    let graph = b.build().unwrap();
    let mut exec =
        gpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    // Each memory is given up as soon as its replay is issued; the next must not be the same while that runs.
    let kept = gpu.alloc(4 * COUNT).unwrap();
    for round in 0..40 {
        let memory = gpu.alloc(4 * COUNT).unwrap();
        exec.set(by, round as f32).unwrap();
        exec.bind(output, &memory).unwrap();
        gpu.launch(&mut exec).unwrap();
    }
    exec.set(by, 1.0f32).unwrap();
    exec.bind(output, &kept).unwrap();
    gpu.replay(&mut exec).unwrap();
    assert!(gpu.read::<f32>(&kept).unwrap().iter().all(|&v| v == 20.0));
}

const AXPY: &str = "
struct Scalars { a: f32, n: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> scalars: Scalars;
@compute @workgroup_size(128)
fn axpy(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < scalars.n { y[id.x] += scalars.a * x[id.x]; }
}
";

/// `axpy` of `x` to `y`, both of 1000 elements.
fn axpy(b: &mut GraphBuilder, x: BufferId, y: BufferId, a: Arg) {
    b.add_kernel("axpy", 8, 128, 0)
        .arg(Arg::View(view(x, &[1000]), Access::Read))
        .arg(Arg::Region(Region { buffer: y, offset: 0, bytes: 4000 }, Access::ReadWrite))
        .arg(a)
        .arg(Arg::Scalar(1000u32.into()))
        .finish();
}

#[test]
fn kernels_by_name_take_the_users_wgsl() {
    let Some(mut gpu) = gpu() else { return };
    let mut b = GraphBuilder::new();
    let (x, y) = (b.external_buffer("x", 4000), b.external_buffer("y", 4000));
    let a = b.slot("a", 0.5f32);
    axpy(&mut b, x, y, Arg::Slot(a));
    axpy(&mut b, y, x, Arg::Scalar(0.25f32.into()));
    check(&mut gpu, &axpy_case(b.build().unwrap(), AXPY));
}

#[test]
fn pools_are_cut_where_the_users_kernels_read_and_write() {
    let Some(mut gpu) = gpu() else { return };
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4000);
    // Each of three scratch buffers is read by a kernel that writes another, so no two can share a buffer of wgpu's; the
    // fourth can. The plan gives all of them one pool.
    let [s, t, u, v] = ["s", "t", "u", "v"].map(|name| b.alloc_buffer(name, 4000));
    let a = Arg::Scalar(0.5f32.into());
    for buffer in [s, t, u, v] {
        b.add_elementwise("start", add_one(), &[view(x, &[1000])], &[], &[view(buffer, &[1000])]);
    }
    for (from, to) in [(s, t), (t, u), (u, s)] {
        axpy(&mut b, from, to, a);
    }
    let mut child = GraphBuilder::new();
    let (from, to) = (child.outer_buffer(&b, s), child.outer_buffer(&b, v));
    axpy(&mut child, from, to, a);
    b.add_child("child", child.build().unwrap());
    axpy(&mut b, v, x, a);
    let mut case = axpy_case(b.build().unwrap(), AXPY);
    case.replays = 2;
    let schedule = Schedule::sequential(&case.graph);
    let exec = case.instantiate(&mut gpu, &schedule);
    assert!(exec.arena_bytes() >= schedule.pool_bytes());
    check(&mut gpu, &case);
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    let Some(mut gpu) = gpu() else { return };
    let axpy_shader = Shader::new(AXPY, "axpy").unwrap();
    let mut check = |b: GraphBuilder, expected: &str| {
        let graph = b.build().unwrap();
        let bindings = Bindings::new().kernel("axpy", &axpy_shader);
        let error = gpu.instantiate(&graph, &Schedule::sequential(&graph), &bindings);
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let mut b = GraphBuilder::new();
    b.add_kernel("nobody", 1, 1, 0).finish();
    check(b, "node n0 (nobody): no kernel is bound as `nobody`");

    let mut b = GraphBuilder::new();
    let mut child = GraphBuilder::new();
    child.add_host_callback("f");
    b.add_child("child", child.build().unwrap());
    check(b, "node n0 (child) → n0 (f) cannot run on wgpu: a software graph is one command buffer");

    let mut b = GraphBuilder::new();
    b.add_event_record("done", EventId(0));
    check(b, "node n0 (done) cannot run on wgpu: wgpu has no events");

    let mut b = GraphBuilder::new();
    b.add_memcpy("untold", MemcpyDir::HostToDevice, 64);
    check(b, "node n0 (untold) cannot run on wgpu: the source of the copy names no declared");

    for (dtype, bytes) in [(DType::F64, 8), (DType::I64, 8)] {
        let mut b = GraphBuilder::new();
        let x = View::contiguous(b.external_buffer("x", bytes), dtype, &[1]).unwrap();
        let copy = Expr::build(|e| e.output(e.input(dtype))).unwrap();
        b.add_elementwise("wide", copy.into(), &[x], &[], &[x]);
        check(b, &format!("node n0 (wide): it works on {dtype}, which WGSL does not have"));
    }

    let mut b = GraphBuilder::new();
    let (name, role) = ("far".into(), BufferRole::External);
    let far = b.declare(Buffer { name, bytes: 64, align: 256, role, space: Space::Device(9) });
    b.add_elementwise("plus", add_one(), &[view(far, &[16])], &[], &[view(far, &[16])]);
    check(b, "b0 (far) is declared on device 9; a graph on wgpu has device 0 alone");

    let mut b = GraphBuilder::new();
    let (x, y) = (b.external_buffer("x", 4000), b.external_buffer("y", 4000));
    axpy(&mut b, x, y, Arg::Scalar(1f64.into()));
    check(b, "node n0 (axpy) cannot run on wgpu: argument 2 is a scalar of type f64");

    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4000);
    b.add_kernel("axpy", 1, 64, 0).arg(Arg::View(view(x, &[16]), Access::Read)).finish();
    check(b, "node n0 (axpy) cannot run on wgpu: its block is [64, 1, 1], the shader's workgroup");

    // Two bindings where the shader has them, but the second is not written.
    let mut b = GraphBuilder::new();
    let (x, y) = (b.external_buffer("x", 64), b.external_buffer("y", 64));
    let mut kernel = b.add_kernel("axpy", 1, 128, 0);
    for buffer in [x, y] {
        kernel = kernel.arg(Arg::View(view(buffer, &[16]), Access::Read));
    }
    kernel.arg(Arg::Scalar(1f32.into())).arg(Arg::Scalar(16u32.into())).finish();
    check(b, "node n0 (axpy): wgpu refuses: ");
}

#[test]
fn mistakes_in_shaders_are_told() {
    let refused = Shader::new("fn f(", "f").unwrap_err().to_string();
    assert!(refused.starts_with("the source does not parse: "), "{refused}");
    let missing = Shader::new(AXPY, "axpby").unwrap_err().to_string();
    let expected = "there is no compute entry point `axpby` in the source; there is: axpy";
    assert_eq!(missing, expected);
}
