//! The kinds of nodes that not every GPU runs, what can be changed between replays, the user's kernels, and what is refused.

use std::sync::Arc;

use crate::case::{Case, check, cuda};
use crate::every_node::{add_one, view};
use phonograph_cuda::{Bindings, InstantiateError, ReplayError, SetError, SetNodeError, Stream};
use phonograph_graph::{
    Access, Arg, Buffer, BufferId, BufferRole, Condition, ConditionalKind, DType, EventId, Expr,
    Extent, GraphBuilder, KernelConfig, LibraryKernel, MemcpyDir, MemsetNode, NodeKind, Pitched,
    Region, Schedule, Space, Target, View,
};
use phonograph_runtime::cpu::kernels::{FnKernel, Param};

fn whole(b: &GraphBuilder, buffer: BufferId) -> Region {
    Region { buffer, offset: 0, bytes: b.buffer(buffer).bytes }
}

#[test]
fn host_functions_run_on_every_replay() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let (x, staged) = (b.external_buffer("x", 400), b.host_buffer("staged", 400));
    let download = whole(&b, x);
    b.add_region_copy("download", download, Region { buffer: staged, ..download });
    let touched = (Region { buffer: staged, ..download }, Access::ReadWrite);
    b.add_host("scale", "scale", &[touched]);
    b.add_region_copy("upload", Region { buffer: staged, ..download }, download);
    let mut case = Case::new(b.build().unwrap());
    case.registry.host("scale", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v = *v * 3.0 + 1.0);
        Ok(())
    });
    check(&mut cuda, &case);
}

#[test]
fn a_host_function_that_fails_or_panics_fails_the_replay() {
    let Some(mut cuda) = cuda() else { return };
    for panics in [false, true] {
        let mut b = GraphBuilder::new();
        let staged = b.host_buffer("staged", 4);
        b.add_host("callback", "f", &[(whole(&b, staged), Access::ReadWrite)]);
        let mut case = Case::new(b.build().unwrap());
        case.registry.host("f", &[Param::ReadWrite(DType::F32)], move |_| {
            assert!(!panics, "no");
            Err(phonograph_runtime::cpu::kernels::KernelError::Failed("no".to_owned()))
        });
        let mut exec = case.instantiate(&mut cuda, &Schedule::sequential(&case.graph));
        for _ in 0..2 {
            let error = cuda.replay(&mut exec).unwrap_err().to_string();
            let expected = if panics {
                "node n0 (callback): the function panicked: no"
            } else {
                "node n0 (callback): no"
            };
            assert_eq!(error, expected);
        }
    }
}

#[test]
fn host_functions_in_children_run_on_every_replay() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 400);
    let staged = b.host_buffer("staged", 400);
    let xv = view(x, &[100]);
    let mut child = GraphBuilder::new();
    let inside = child.outer_view(&b, xv);
    let t = child.alloc_buffer("t", 400);
    let tv = view(t, &[100]);
    child.add_elementwise("plus", add_one(), &[inside], &[], &[tv]);
    let mut grandchild = GraphBuilder::new();
    let (from, to) = (grandchild.outer_view(&child, tv), grandchild.outer_view(&child, inside));
    grandchild.add_elementwise("plus", add_one(), &[from], &[], &[to]);
    child.add_child("grandchild", grandchild.build().unwrap());
    let out = child.outer_buffer(&b, staged);
    let bytes = Region { buffer: inside.buffer, offset: 0, bytes: 400 };
    child.add_region_copy("download", bytes, Region { buffer: out, ..bytes });
    child.add_host("negate", "negate", &[(Region { buffer: out, ..bytes }, Access::ReadWrite)]);
    b.add_child("child", child.build().unwrap());
    b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    let mut case = Case::new(b.build().unwrap());
    case.registry.host("negate", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v = -*v);
        Ok(())
    });
    check(&mut cuda, &case);
}

#[test]
fn events_order_graphs_on_different_streams() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4);
    let xv = view(x, &[]);
    let plus = b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    let record = b.add_event_record("done", EventId(0));
    b.dep(plus, record);
    let first = Case::new(b.build().unwrap());
    let mut exec = first.instantiate(&mut cuda, &Schedule::sequential(&first.graph));
    let memory = exec.memory(x).unwrap().clone();
    let mut b = GraphBuilder::new();
    let wait = b.add_event_wait("wait", EventId(3));
    let y = b.external_buffer("y", 4);
    let yv = view(y, &[]);
    let plus = b.add_elementwise("plus", add_one(), &[yv], &[], &[yv]);
    b.dep(wait, plus);
    let graph = b.build().unwrap();
    let bindings =
        Bindings::new().memory(y, &memory).event(EventId(3), exec.event(EventId(0)).unwrap());
    let mut second = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    cuda.write(&memory, &[0f32]).unwrap();
    let streams: Vec<Stream> = (0..2).map(|_| Stream::new(&cuda.devices()[0]).unwrap()).collect();
    for _ in 0..10 {
        cuda.launch(&mut exec, &streams[0]).unwrap();
        cuda.launch(&mut second, &streams[1]).unwrap();
    }
    cuda.finish(&mut second).unwrap();
    assert_eq!(cuda.read::<f32>(&memory).unwrap(), [20.0]);
}

const AXPY: &str = r#"
extern "C" __global__ void axpy(const float *x, float *y, float a, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] + a * x[i];
}
"#;

#[test]
fn kernels_by_name_take_arguments_and_attributes() {
    let Some(mut cuda) = cuda() else { return };
    let plain = KernelConfig::linear(8, 128, 0);
    let least = cuda.devices()[0].priorities().unwrap();
    for config in [
        plain,
        KernelConfig { priority: least.1, ..plain },
        KernelConfig { cluster: (2, 1, 1), ..plain },
        KernelConfig { cooperative: true, ..plain },
        KernelConfig { shared_mem_bytes: 100 << 10, ..plain },
    ] {
        if config.cluster.0 > 1 && cuda.devices()[0].capability() < (9, 0) {
            continue;
        }
        let mut b = GraphBuilder::new();
        let (x, y) = (b.external_buffer("x", 4000), b.external_buffer("y", 4000));
        let a = b.slot("a", 0.5f32);
        b.add_kernel("axpy", 8, 128, 0)
            .config(config)
            .arg(Arg::View(view(x, &[1000]), Access::Read))
            .arg(Arg::Region(Region { buffer: y, offset: 0, bytes: 4000 }, Access::ReadWrite))
            .arg(Arg::Slot(a))
            .arg(Arg::Scalar(1000u32.into()))
            .finish();
        let mut case = Case::new(b.build().unwrap());
        case.kernels.push(("axpy", AXPY));
        let params = [
            Param::Read(DType::F32),
            Param::ReadWrite(DType::F32),
            Param::Scalar(DType::F32),
            Param::Scalar(DType::U32),
        ];
        case.registry.register(
            "axpy",
            FnKernel::whole(&params, |block| {
                let (x, y, a) =
                    (block.read::<f32>(0)?, block.write::<f32>(1)?, block.scalar::<f32>(2)?);
                y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
                Ok(())
            }),
        );
        check(&mut cuda, &case);
    }
}

#[test]
fn slots_and_switches_change_the_replays_to_come() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let input = b.slot_buffer("input", 400, Access::Read);
    let output = b.slot_buffer("output", 400, Access::ReadWrite);
    let x = b.external_buffer("x", 400);
    let (iv, xv) = (view(input, &[100]), view(x, &[100]));
    let by = b.slot("by", 2.0f32);
    let scale = Expr::build(|e| e.output(e.input(DType::F32) * e.param(DType::F32))).unwrap();
    b.add_elementwise("scale", scale.into(), &[iv], &[Arg::Slot(by)], &[xv]);
    let plus = b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    let mut child = GraphBuilder::new();
    let (from, to, slot) =
        (child.outer_view(&b, xv), child.outer_buffer(&b, output), child.outer_slot(&b, by));
    let sum = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let t = child.alloc_buffer("t", 400);
    child.add_elementwise("sum", sum.into(), &[from], &[Arg::Slot(slot)], &[view(t, &[100])]);
    let half = |buffer| Region { buffer, offset: 0, bytes: 200 };
    child.add_region_copy("out", half(t), half(to));
    let dst = Pitched::linear(Target::Buffer(to), 200);
    let (value, element_size, extent) = (1f32.to_bits(), 4, Extent::linear(200));
    child.add_fill("ones", MemsetNode { dst, value, element_size, extent });
    let in_child = b.add_child("child", child.build().unwrap());
    let graph = b.build().unwrap();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    assert_eq!(cuda.replay(&mut exec), Err(ReplayError::Unbound(input)));
    let memories: Vec<_> = (0..4).map(|_| cuda.alloc(400).unwrap()).collect();
    for (memory, value) in memories.iter().zip([1f32, 2.0]) {
        cuda.write(memory, &[value; 100]).unwrap();
    }
    for (round, (factor, enabled)) in
        [(2f32, true), (3.0, true), (3.0, false), (5.0, true)].into_iter().enumerate()
    {
        let (from, to) = (&memories[round % 2], &memories[2 + round % 2]);
        exec.bind(input, from).unwrap();
        exec.bind(output, to).unwrap();
        exec.set(by, factor).unwrap();
        exec.set_enabled(plus, enabled).unwrap();
        cuda.replay(&mut exec).unwrap();
        let x = (1 + round % 2) as f32 * factor + if enabled { 1.0 } else { 0.0 };
        let mut expected = vec![x + factor; 50];
        expected.resize(100, 1.0);
        assert_eq!(cuda.read::<f32>(to).unwrap(), expected, "round {round}");
    }
    assert_eq!(
        exec.bind(input, &memories[3]),
        Err(SetError::Overlap { buffer: input, other: output })
    );
    assert_eq!(exec.bind(x, &memories[0]), Err(SetError::NotASlot(x)));
    let small = cuda.alloc(4).unwrap();
    assert!(matches!(
        exec.bind(input, &small),
        Err(SetError::TooSmall { needed: 400, given: 4, .. })
    ));
    assert!(matches!(exec.set(by, 1i32), Err(SetError::Type { .. })));
    let refused = SetNodeError::Set(SetError::NotDisableable(in_child));
    assert_eq!(exec.set_enabled(in_child, false), Err(refused));
}

#[test]
fn a_row_that_does_not_exist_is_an_error_of_the_replay() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let rows = b.external_buffer("rows", 12);
    let table = b.external_buffer("table", 64);
    let (picked, sums) = (b.external_buffer("picked", 48), b.external_buffer("sums", 64));
    let rv = View::contiguous(rows, DType::I32, &[3]).unwrap();
    let (tv, pv, sv) = (view(table, &[4, 4]), view(picked, &[3, 4]), view(sums, &[4, 4]));
    b.add_library("gather", LibraryKernel::Gather, &[tv, rv, pv]);
    let mut child = GraphBuilder::new();
    let inside = [pv, rv, sv].map(|v| child.outer_view(&b, v));
    child.add_library("scatter", LibraryKernel::ScatterAdd, &inside);
    b.add_child("child", child.build().unwrap());
    let graph = b.build().unwrap();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let rows = exec.memory(rows).unwrap().clone();
    for (numbers, error) in [
        ([0i32, 1, 3], ""),
        ([0, 4, 1], "row number 4 at position 1 is not one of the 4 rows"),
        ([0, 1, -1], "row number -1 at position 2 is not one of the 4 rows"),
        ([3, 3, 3], ""),
    ] {
        cuda.write(&rows, &numbers).unwrap();
        let said = cuda.replay(&mut exec).err().map_or(String::new(), |e| e.to_string());
        assert!(said.ends_with(error), "{said}");
        assert_eq!(said.is_empty(), error.is_empty(), "{said}");
    }
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    let Some(mut cuda) = cuda() else { return };
    let mut check = |b: GraphBuilder, bindings: &Bindings, expected: &str| {
        let graph = b.build().unwrap();
        let error = cuda.instantiate(&graph, &Schedule::sequential(&graph), bindings);
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let none = Bindings::new();
    let mut b = GraphBuilder::new();
    b.add_kernel("nobody", 1, 1, 0).finish();
    check(b, &none, "node n0 (nobody): no kernel is bound as `nobody`");

    let mut b = GraphBuilder::new();
    let mut body = GraphBuilder::new();
    body.add_host_callback("f");
    let flag = b.external_buffer("flag", 4);
    let value = View::contiguous(flag, DType::I32, &[]).unwrap();
    b.add_conditional(
        "if",
        ConditionalKind::If,
        Condition::Value(value),
        vec![body.build().unwrap()],
    );
    check(
        b,
        &none,
        "node n0 (if) → n0 (f) cannot run on CUDA: the body of a conditional cannot hold a node of kind host",
    );

    let mut b = GraphBuilder::new();
    let mut child = GraphBuilder::new();
    let t = child.alloc_buffer("t", 4);
    child.add("alloc", NodeKind::Alloc(t));
    b.add_child("child", child.build().unwrap());
    check(
        b,
        &none,
        "node n0 (child) → n0 (alloc) cannot run on CUDA: a graph inside a node cannot hold",
    );

    let mut b = GraphBuilder::new();
    b.add_memcpy("untold", MemcpyDir::HostToDevice, 64);
    check(
        b,
        &none,
        "node n0 (untold) cannot run on CUDA: the source of the copy names no declared buffer",
    );

    let mut b = GraphBuilder::new();
    let far = b.declare(Buffer {
        name: "far".into(),
        bytes: 64,
        align: 256,
        role: BufferRole::External,
        space: Space::Device(9),
    });
    b.add_elementwise("plus", add_one(), &[view(far, &[16])], &[], &[view(far, &[16])]);
    check(b, &none, "b0 (far) is declared on device 9; 1 are open");

    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 64);
    b.add_host("f", "f", &[(Region { buffer: x, offset: 0, bytes: 64 }, Access::Read)]);
    let mut registry = phonograph_runtime::cpu::kernels::Registry::new();
    registry.host("f", &[Param::Read(DType::F32)], |_| Ok(()));
    check(
        b,
        &Bindings::new().hosts(&registry),
        "node n0 (f) cannot run on CUDA: its function is given b0 (x), which is in device memory",
    );
}

#[test]
fn kernels_by_name_are_checked_against_their_parameters() {
    let Some(mut cuda) = cuda() else { return };
    let function = cuda.compile(AXPY, "axpy").unwrap();
    let mut check = |args: &[Arg], threads: u32, expected: &str| {
        let mut b = GraphBuilder::new();
        b.external_buffer("x", 64);
        let mut kernel = b.add_kernel("axpy", 1, threads, 0);
        for &arg in args {
            kernel = kernel.arg(arg);
        }
        kernel.finish();
        let graph = b.build().unwrap();
        // SAFETY: every graph with it is refused.
        let bindings = unsafe { Bindings::new().kernel("axpy", &function) };
        let made = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings);
        let error = made.map(|_| ()).unwrap_err();
        assert!(matches!(error, InstantiateError::Arguments { .. }), "{error}");
        assert_eq!(error.to_string(), format!("node n0 (axpy): {expected}"));
    };
    let x = Arg::View(view(BufferId(0), &[16]), Access::Read);
    let (a, n) = (Arg::Scalar(1f32.into()), Arg::Scalar(16u32.into()));
    check(&[x, x, a], 32, "`axpy` has 4 parameters, the node 3 arguments");
    let double = Arg::Scalar(1f64.into());
    check(&[x, x, double, n], 32, "parameter 2 of `axpy` has 4 bytes, the argument 8");
    check(&[x, x, a, n], 2048, "blocks of 2048 threads; `axpy` can have 1024 on this device");
}

#[test]
fn two_devices_work_on_one_graph() {
    let mut cuda = match phonograph_cuda::Cuda::on(&[0, 1]) {
        Ok(cuda) => cuda,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut b = GraphBuilder::new();
    let mut declare = |name: &str, device, role| {
        let space = Space::Device(device);
        b.declare(Buffer { name: name.into(), bytes: 4000, align: 256, role, space })
    };
    let x = declare("x", 0, BufferRole::External);
    let far = declare("far", 1, BufferRole::Internal);
    let kept = declare("kept", 1, BufferRole::External);
    let all = |buffer| Region { buffer, offset: 0, bytes: 4000 };
    let [xv, fv, kv] = [x, far, kept].map(|buffer| view(buffer, &[1000]));
    b.add_region_copy("there", all(x), all(far));
    b.add_elementwise("plus", add_one(), &[fv], &[], &[fv]);
    b.add_elementwise("read a peer", add_one(), &[xv], &[], &[kv]);
    let dst = Pitched::linear(Target::Buffer(kept), 100);
    let (value, element_size, extent) = (7, 1, Extent::linear(64));
    b.add_fill("fill", MemsetNode { dst, value, element_size, extent });
    b.add_region_copy("back", all(far), all(x));
    check(&mut cuda, &Case::new(b.build().unwrap()));
}

#[test]
fn memory_that_is_bound_away_stays_until_its_replay_is_over() {
    let Some(mut cuda) = cuda() else { return };
    const COUNT: u64 = 1 << 22;
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
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    // Each memory is given up as soon as its replay is issued; the next must not be the same while that runs.
    let kept = cuda.alloc(4 * COUNT).unwrap();
    for round in 0..200 {
        let memory = cuda.alloc(4 * COUNT).unwrap();
        exec.set(by, round as f32).unwrap();
        exec.bind(output, &memory).unwrap();
        cuda.launch(&mut exec, &stream).unwrap();
    }
    exec.set(by, 1.0f32).unwrap();
    exec.bind(output, &kept).unwrap();
    cuda.replay(&mut exec).unwrap();
    assert!(cuda.read::<f32>(&kept).unwrap().iter().all(|&v| v == 20.0));
}
