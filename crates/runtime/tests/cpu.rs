//! The CPU backend, kind of node by kind of node, on every number of workers, with the sequential schedule.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phonograph_graph::{
    Access, Arg, Buffer, BufferId, BufferRole, ComputeGraph, Condition, ConditionalKind, DType,
    EventId, Expr, Extent, GraphBuilder, LibraryKernel, MemcpyDir, MemcpyNode, MemsetNode, NodeId,
    Pitched, ReduceOp, Region, Schedule, Space, Target, View,
};
use phonograph_runtime::cpu::kernels::{FnKernel, KernelError, Param, Registry};
use phonograph_runtime::cpu::{
    Bindings, Cpu, Event, Exec, InstantiateError, NodeFault, ReplayError, SetError,
};
use phonograph_runtime::refused::Refused;

const WORKERS: [u32; 3] = [1, 2, 5];

fn view(buffer: BufferId, extents: &[u64]) -> View {
    View::contiguous(buffer, DType::F32, extents).unwrap()
}

fn add_one() -> Arc<Expr> {
    Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0))).unwrap().into()
}

/// Instantiates with the sequential schedule, which has to pass the checker on the way.
fn ready(cpu: &Cpu, graph: &ComputeGraph, bindings: &Bindings) -> Exec {
    cpu.instantiate(graph, &Schedule::sequential(graph), bindings).unwrap()
}

fn read(cpu: &Cpu, exec: &Exec, buffer: BufferId) -> Vec<f32> {
    cpu.slice(exec.memory(buffer).unwrap()).unwrap().to_vec()
}

#[test]
fn replays_keep_what_the_user_owns_and_follow_slots() {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4 * 1000);
    let t = b.alloc_buffer("t", 4 * 1000);
    let (xv, tv) = (view(x, &[1000]), view(t, &[1000]));
    let by = b.slot("by", 2.0f32);
    let scale = Expr::build(|e| e.output(e.input(DType::F32) * e.param(DType::F32))).unwrap();
    b.add_elementwise("plus", add_one(), &[xv], &[], &[tv]);
    b.add_elementwise("scale", scale.into(), &[tv], &[Arg::Slot(by)], &[xv]);
    let graph = b.build().unwrap();
    for workers in WORKERS {
        let mut cpu = Cpu::new(workers).unwrap();
        let registry = Registry::new();
        let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
        for (value, expected) in [(2.0, 2.0), (2.0, 6.0), (0.5, 3.5)] {
            exec.set(by, value as f32).unwrap();
            cpu.replay(&mut exec).unwrap();
            assert_eq!(read(&cpu, &exec, x), vec![expected as f32; 1000]);
        }
        assert_eq!(
            exec.set(by, 1i32),
            Err(SetError::Type { slot: by, expected: DType::F32, given: DType::I32 })
        );
    }
}

#[test]
fn copies_and_fills_move_the_bytes_they_say() {
    let mut b = GraphBuilder::new();
    let host = b.host_buffer("host", 64);
    let device = b.external_buffer("device", 64);
    let filled = b.external_buffer("filled", 64);
    let whole = |buffer| Region { buffer, offset: 0, bytes: 64 };
    b.add_region_copy("upload", whole(host), whole(device));
    let row = |buffer, offset| Pitched {
        target: Target::Buffer(buffer),
        offset,
        pitch: 16,
        slice_rows: 4,
    };
    let (value, element_size) = (0xABCD, 2);
    let extent = Extent { width: 8, height: 3, depth: 1 };
    b.add_fill("pattern", MemsetNode { dst: row(filled, 16), value, element_size, extent });
    let extent = Extent { width: 4, height: 2, depth: 1 };
    let (src, dst) = (row(device, 0), row(filled, 4));
    b.add_copy("rows", MemcpyNode { dir: MemcpyDir::DeviceToDevice, src, dst, extent });
    let graph = b.build().unwrap();
    let mut cpu = Cpu::new(2).unwrap();
    let registry = Registry::new();
    let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
    let source: Vec<u8> = (0..64).collect();
    let memory = exec.memory(host).unwrap().clone();
    cpu.slice_mut::<u8>(&memory).unwrap().copy_from_slice(&source);
    cpu.replay(&mut exec).unwrap();
    let bytes = |buffer| cpu.slice::<u8>(exec.memory(buffer).unwrap()).unwrap().to_vec();
    assert_eq!(bytes(device), source);
    let mut expected = vec![0u8; 64];
    for row in 1..4 {
        for pair in 0..4 {
            expected[row * 16 + pair * 2..][..2].copy_from_slice(&[0xCD, 0xAB]);
        }
    }
    expected[4..8].copy_from_slice(&[0, 1, 2, 3]);
    expected[20..24].copy_from_slice(&[16, 17, 18, 19]);
    assert_eq!(bytes(filled), expected);
}

#[test]
fn children_and_conditionals_decide_by_device_values() {
    // while (x < 10) x += 1, inside a child; then if (flag) x += 100 else x += 1000.
    let build = |flag: i32| {
        let mut b = GraphBuilder::new();
        let x = b.external_buffer("x", 4);
        let go = b.alloc_buffer("go", 4);
        let which = b.external_buffer("which", 4);
        let one = |buffer, dtype| View::contiguous(buffer, dtype, &[]).unwrap();
        let less = Expr::build(|e| {
            let below = e.input(DType::F32).less(e.f32(10.0));
            e.output(below.cast(DType::I32));
        });
        let less: Arc<Expr> = less.unwrap().into();
        let set = Expr::build(|e| e.output(e.constant(flag))).unwrap();
        b.add_elementwise("which", set.into(), &[], &[], &[one(which, DType::I32)]);
        let mut child = GraphBuilder::new().named("count");
        let (cx, cgo) = (child.outer_buffer(&b, x), child.outer_buffer(&b, go));
        child.add_elementwise(
            "first",
            less.clone(),
            &[one(cx, DType::F32)],
            &[],
            &[one(cgo, DType::I32)],
        );
        let mut body = GraphBuilder::new();
        let (bx, bgo) = (body.outer_buffer(&child, cx), body.outer_buffer(&child, cgo));
        body.add_elementwise(
            "plus",
            add_one(),
            &[one(bx, DType::F32)],
            &[],
            &[one(bx, DType::F32)],
        );
        body.add_elementwise("test", less, &[one(bx, DType::F32)], &[], &[one(bgo, DType::I32)]);
        let condition = Condition::Value(one(cgo, DType::I32));
        child.add_conditional(
            "loop",
            ConditionalKind::While,
            condition,
            vec![body.build().unwrap()],
        );
        b.add_child("count", child.build().unwrap());
        let arm = |b: &GraphBuilder, by: f32| {
            let mut arm = GraphBuilder::new();
            let ax = one(arm.outer_buffer(b, x), DType::F32);
            let plus = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(by))).unwrap();
            arm.add_elementwise("arm", plus.into(), &[ax], &[], &[ax]);
            arm.build().unwrap()
        };
        let arms = vec![arm(&b, 100.0), arm(&b, 1000.0)];
        let condition = Condition::Value(one(which, DType::I32));
        b.add_conditional("choose", ConditionalKind::If, condition, arms);
        (b.build().unwrap(), x)
    };
    for workers in WORKERS {
        for (flag, expected) in [(1, 110.0), (0, 1010.0)] {
            let (graph, x) = build(flag);
            let mut cpu = Cpu::new(workers).unwrap();
            let registry = Registry::new();
            let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
            cpu.replay(&mut exec).unwrap();
            assert_eq!(read(&cpu, &exec, x), [expected]);
        }
    }
}

#[test]
fn user_kernels_and_host_callbacks_run_every_replay() {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4 * 256);
    let double =
        b.add_kernel("double", 4, 64, 0).arg(Arg::View(view(x, &[256]), Access::ReadWrite));
    double.finish();
    let whole = Region { buffer: x, offset: 0, bytes: 1024 };
    b.add_host("look", "look", &[(whole, Access::Read)]);
    let graph = b.build().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut registry = Registry::new();
    let sums = seen.clone();
    registry
        .register(
            "double",
            FnKernel::blocks(&[Param::ReadWrite(DType::F32)], |block| {
                block.write::<f32>(0)?.iter_mut().for_each(|v| *v *= 2.0);
                Ok(())
            }),
        )
        .host("look", &[Param::Read(DType::F32)], move |block| {
            sums.lock().unwrap().push(block.read::<f32>(0)?.iter().sum::<f32>());
            Ok(())
        });
    let mut cpu = Cpu::new(3).unwrap();
    let memory = cpu.alloc(1024).unwrap();
    cpu.slice_mut::<f32>(&memory).unwrap().fill(1.0);
    let mut exec = ready(&cpu, &graph, &Bindings::new(&registry).memory(x, &memory));
    cpu.replay(&mut exec).unwrap();
    cpu.replay(&mut exec).unwrap();
    assert_eq!(*seen.lock().unwrap(), [512.0, 1024.0]);
    let unregistered =
        cpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new(&Registry::new()));
    let message = unregistered.err().unwrap().to_string();
    assert!(
        message.contains("n0 (double)") && message.contains("no kernel is registered"),
        "{message}"
    );
}

#[test]
fn failures_name_the_node_and_leave_the_graph_usable() {
    let mut b = GraphBuilder::new();
    let flag = Arc::new(AtomicU32::new(0));
    let nodes = ["fine", "fragile", "after"].map(|name| b.add_host_callback(name));
    b.chain(&nodes);
    let graph = b.build().unwrap();
    let after = Arc::new(AtomicU32::new(0));
    let mut registry = Registry::new();
    let (mode, ran) = (flag.clone(), after.clone());
    registry
        .host("fine", &[], |_| Ok(()))
        .host("fragile", &[], move |_| match mode.load(Ordering::Relaxed) {
            1 => panic!("as asked"),
            2 => Err(KernelError::Failed("no luck".into())),
            _ => Ok(()),
        })
        .host("after", &[], move |_| {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
    for workers in WORKERS {
        let mut cpu = Cpu::new(workers).unwrap();
        let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
        after.store(0, Ordering::Relaxed);
        for (mode, expected) in [(0, ""), (1, "as asked"), (0, ""), (2, "no luck"), (0, "")] {
            flag.store(mode, Ordering::Relaxed);
            match cpu.replay(&mut exec) {
                Ok(()) => assert_eq!(expected, ""),
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains(expected) && text.starts_with("node n1 (fragile)"),
                        "{text}"
                    );
                }
            }
        }
        assert_eq!(after.load(Ordering::Relaxed), 3, "a failed node's successors are skipped");
    }
}

#[test]
fn a_row_out_of_range_is_an_error_of_the_replay() {
    let mut b = GraphBuilder::new();
    let (table, rows, out) = (
        b.external_buffer("table", 4 * 12),
        b.external_buffer("rows", 4 * 2),
        b.external_buffer("out", 4 * 8),
    );
    let rows_view = View::contiguous(rows, DType::I32, &[2]).unwrap();
    b.add_library(
        "pick",
        LibraryKernel::Gather,
        &[view(table, &[3, 4]), rows_view, view(out, &[2, 4])],
    );
    let graph = b.build().unwrap();
    let mut cpu = Cpu::new(2).unwrap();
    let registry = Registry::new();
    let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
    let memory = exec.memory(rows).unwrap().clone();
    cpu.slice_mut::<i32>(&memory).unwrap().copy_from_slice(&[2, 3]);
    let failed = cpu.replay(&mut exec).unwrap_err();
    let ReplayError::Node { cause: NodeFault::Kernel(cause), .. } = failed else {
        panic!("{failed}");
    };
    assert_eq!(cause, KernelError::Row { position: 1, value: 3, rows: 3 });
    cpu.slice_mut::<i32>(&memory).unwrap().copy_from_slice(&[2, 0]);
    cpu.replay(&mut exec).unwrap();
}

#[test]
fn disabled_nodes_do_nothing() {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4);
    let v = view(x, &[1]);
    let nodes: Vec<NodeId> =
        (0..3).map(|_| b.add_elementwise("plus", add_one(), &[v], &[], &[v])).collect();
    let barrier = b.add_barrier("barrier");
    let graph = b.build().unwrap();
    let mut cpu = Cpu::new(2).unwrap();
    let registry = Registry::new();
    let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
    exec.set_enabled(nodes[1], false).unwrap();
    cpu.replay(&mut exec).unwrap();
    exec.set_enabled(nodes[1], true).unwrap();
    cpu.replay(&mut exec).unwrap();
    assert_eq!(read(&cpu, &exec, x), [5.0]);
    assert_eq!(exec.set_enabled(barrier, false), Err(SetError::NotDisableable(barrier)));
}

#[test]
fn pointer_slots_are_rebound_between_replays() {
    let mut b = GraphBuilder::new();
    let input = b.slot_buffer("input", 16, Access::Read);
    let sum = b.external_buffer("sum", 4);
    let reduce = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 };
    b.add_library("sum", reduce, &[view(input, &[4]), view(sum, &[])]);
    let graph = b.build().unwrap();
    let mut cpu = Cpu::new(2).unwrap();
    let registry = Registry::new();
    let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
    assert_eq!(cpu.replay(&mut exec), Err(ReplayError::Unbound(input)));
    for value in [1.0f32, 2.0] {
        let memory = cpu.alloc(16).unwrap();
        cpu.slice_mut::<f32>(&memory).unwrap().fill(value);
        exec.bind(input, &memory).unwrap();
        cpu.replay(&mut exec).unwrap();
        assert_eq!(read(&cpu, &exec, sum), [4.0 * value]);
    }
    let small = cpu.alloc(8).unwrap();
    assert_eq!(
        exec.bind(input, &small),
        Err(SetError::TooSmall { buffer: input, needed: 16, given: 8 })
    );
    let taken = exec.memory(sum).unwrap().clone();
    assert_eq!(exec.bind(input, &taken), Err(SetError::Overlap { buffer: input, other: sum }));
    let foreign = Cpu::new(1).unwrap().alloc(16).unwrap();
    assert_eq!(exec.bind(input, &foreign), Err(SetError::OtherDevice));
}

#[test]
fn memory_is_bound_where_a_buffer_may_begin() {
    const ALIGN: u64 = 1 << 16;
    let (role, space) = (BufferRole::Slot(Access::Read), Space::Unknown);
    let mut b = GraphBuilder::new();
    let input = b.declare(Buffer { name: "input".into(), bytes: 16, align: ALIGN, role, space });
    let sum = b.external_buffer("sum", 4);
    let reduce = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 };
    b.add_library("sum", reduce, &[view(input, &[4]), view(sum, &[])]);
    let graph = b.build().unwrap();
    let cpu = Cpu::new(1).unwrap();
    let memory = cpu.alloc_aligned(512, ALIGN).unwrap();
    let beside = memory.part(256, 256).unwrap();
    let registry = Registry::new();
    let mut exec = ready(&cpu, &graph, &Bindings::new(&registry).memory(input, &memory));
    let misaligned = SetError::Misaligned { buffer: input, align: ALIGN };
    assert_eq!(exec.bind(input, &beside), Err(misaligned));
    exec.bind(input, &memory).unwrap();
}

#[test]
fn external_events_join_work_outside() {
    let mut b = GraphBuilder::new();
    let wait = b.add_event_wait("wait", EventId(0));
    let record = b.add_event_record("record", EventId(1));
    b.dep(wait, record);
    let graph = b.build().unwrap();
    let (before, after) = (Event::new(), Event::new());
    let registry = Registry::new();
    let mut cpu = Cpu::new(2).unwrap();
    let bindings = Bindings::new(&registry).event(EventId(0), &before).event(EventId(1), &after);
    let mut exec = ready(&cpu, &graph, &bindings);
    cpu.replay(&mut exec).unwrap(); // nothing under way: the wait passes
    let done = Arc::new(AtomicU32::new(0));
    let (ticket, flag) = (before.ticket(), done.clone());
    let outside = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        flag.store(1, Ordering::SeqCst);
        drop(ticket);
    });
    let (recorded, flag) = (after.clone(), done.clone());
    let waiting = std::thread::spawn(move || {
        recorded.wait_recorded(2);
        flag.load(Ordering::SeqCst)
    });
    cpu.replay(&mut exec).unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1, "the graph waited for the work outside");
    assert_eq!(waiting.join().unwrap(), 1, "work outside waited for the graph");
    assert_eq!(after.recorded(), 2);
    outside.join().unwrap();
}

#[test]
fn wrong_schedules_races_and_bindings_are_refused_before_anything_runs() {
    let mut b = GraphBuilder::new().with_auto_infer_edges(false);
    let x = b.external_buffer("x", 4);
    let v = view(x, &[1]);
    for _ in 0..2 {
        b.add_elementwise("plus", add_one(), &[v], &[], &[v]);
    }
    let racy = b.build().unwrap();
    let cpu = Cpu::new(2).unwrap();
    let registry = Registry::new();
    let refused = |graph: &ComputeGraph, schedule: &Schedule, bindings: &Bindings| {
        cpu.instantiate(graph, schedule, bindings).err().unwrap()
    };
    let none = Bindings::new(&registry);
    let race = refused(&racy, &Schedule::sequential(&racy), &none);
    assert!(matches!(race, InstantiateError::Refused(Refused::Race { .. })), "{race}");
    let empty = refused(&racy, &Schedule::default(), &none);
    assert!(
        matches!(&empty, InstantiateError::Refused(Refused::Schedule(found)) if found.len() == 2),
        "{empty}"
    );
    let crooked = {
        let mut b = GraphBuilder::new();
        let buffers: Vec<BufferId> = [1, 4]
            .map(|bytes| {
                let (name, role, space) = ("t".into(), BufferRole::Internal, Space::Device(0));
                b.declare(Buffer { name, bytes, align: 1, role, space })
            })
            .into();
        b.add_kernel("k", 1, 1, 0).outputs(buffers).finish();
        b.build().unwrap()
    };
    let crooked = refused(&crooked, &Schedule::sequential(&crooked), &none);
    assert_eq!(crooked, InstantiateError::Misaligned { buffer: BufferId(1), offset: 1 });
    let small = cpu.alloc(2).unwrap();
    let b = {
        let mut b = GraphBuilder::new();
        let x = b.external_buffer("x", 4);
        let v = view(x, &[1]);
        b.add_elementwise("plus", add_one(), &[v], &[], &[v]);
        b.build().unwrap()
    };
    let bound = refused(&b, &Schedule::sequential(&b), &Bindings::new(&registry).memory(x, &small));
    assert_eq!(bound.to_string(), "the memory bound to b0 has 2 bytes; x needs 4");
}

#[test]
fn results_are_the_same_bits_for_every_number_of_workers() {
    // Large enough that nodes are split among the workers.
    let mut b = GraphBuilder::new();
    let (m, k, n) = (192u64, 300, 200);
    let bytes = |rows: u64, columns: u64| (rows * columns * 4) as usize;
    let (a, w) = (b.external_buffer("a", bytes(m, k)), b.external_buffer("w", bytes(k, n)));
    let (c, t) = (b.alloc_buffer("c", bytes(m, n)), b.alloc_buffer("t", bytes(m, n)));
    let out = b.external_buffer("out", bytes(1, n));
    b.add_library(
        "product",
        LibraryKernel::MatMul,
        &[view(a, &[m, k]), view(w, &[k, n]), view(c, &[m, n])],
    );
    let squash =
        Expr::build(|e| e.output((e.input(DType::F32) * e.f32(0.01)).tanh().exp())).unwrap();
    b.add_elementwise("squash", squash.into(), &[view(c, &[m, n])], &[], &[view(t, &[m, n])]);
    let reduce = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 };
    b.add_library("sum", reduce, &[view(t, &[m, n]), view(out, &[n])]);
    let graph = b.build().unwrap();
    let registry = Registry::new();
    let mut first: Option<Vec<f32>> = None;
    for workers in [1, 2, 3, 5, 8] {
        let mut cpu = Cpu::new(workers).unwrap();
        let mut exec = ready(&cpu, &graph, &Bindings::new(&registry));
        for (buffer, seed) in [(a, 0.37f32), (w, 0.71)] {
            let memory = exec.memory(buffer).unwrap().clone();
            let values = cpu.slice_mut::<f32>(&memory).unwrap();
            values.iter_mut().enumerate().for_each(|(i, v)| *v = (i as f32 * seed).sin());
        }
        let profile = cpu.replay_profiled(&mut exec).unwrap();
        assert_eq!(profile.spans.len(), exec.task_count() as usize);
        assert!(workers == 1 || exec.task_count() > 3, "nothing was split");
        let result = read(&cpu, &exec, out);
        assert_eq!(*first.get_or_insert(result.clone()), result, "{workers} workers");
    }
}
