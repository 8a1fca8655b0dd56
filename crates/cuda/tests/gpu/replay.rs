//! Many launches in flight: slots between them, graphs that touch the same memory on different streams, instances that
//! run at once.

use std::sync::Arc;

use phonograph_cuda::{Bindings, Exec, Memory, PoolError, Stream};
use phonograph_graph::{
    Access, Arg, ComputeGraph, Condition, ConditionalKind, DType, Edge, EdgeData, Expr,
    GraphBuilder, LibraryKernel, NodeId, Region, Schedule, SlotId, View,
};

use crate::case::{Case, check, cuda, packs, tensor};

/// `y = y * 3 + by`, some hundred times over: long enough that launches wait for one another.
fn long_chain() -> (ComputeGraph, View, SlotId) {
    let mut b = GraphBuilder::new();
    let y = tensor(&mut b, "y", &[256]);
    let by = b.slot("by", 0.0f32);
    let plus = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let plus = Arc::new(plus);
    for _ in 0..200 {
        b.add_elementwise("plus", plus.clone(), &[y], &[Arg::Slot(by)], &[y]);
    }
    (b.build().unwrap(), y, by)
}

#[test]
fn each_launch_sees_the_slots_that_were_set_before_it() {
    let Some(mut cuda) = cuda() else { return };
    let (graph, y, by) = long_chain();
    let schedule = Schedule::sequential(&graph);
    let mut exec = cuda.instantiate(&graph, &schedule, &Bindings::new()).unwrap();
    let streams = [(), ()].map(|()| Stream::new(&cuda.devices()[0].clone()).unwrap());
    // More than there is staging for, and nobody waits in between.
    let mut expected = 0f32;
    for round in 0..50u32 {
        exec.set(by, round as f32).unwrap();
        cuda.launch(&mut exec, &streams[round as usize % 3 % 2]).unwrap();
        expected += 200.0 * round as f32;
    }
    cuda.finish(&mut exec).unwrap();
    let found = cuda.read::<f32>(&exec.memory(y.buffer).unwrap().clone()).unwrap();
    assert_eq!(found, [expected; 256]);
}

#[test]
fn every_kind_of_kernel_reads_slots_from_the_block() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let slot = |b: &mut GraphBuilder, name: &str, dtype, extents: &[u64], access| {
        let bytes = 4 * extents.iter().product::<u64>() as usize;
        View::contiguous(b.slot_buffer(name, bytes, access), dtype, extents).unwrap()
    };
    let table = slot(&mut b, "table", DType::F32, &[8, 6], Access::Read);
    let rows = slot(&mut b, "rows", DType::I32, &[5], Access::Read);
    let sums = slot(&mut b, "sums", DType::F32, &[8, 6], Access::ReadWrite);
    let picked = tensor(&mut b, "picked", &[5, 6]);
    let weights = tensor(&mut b, "weights", &[6, 4]);
    let product = tensor(&mut b, "product", &[5, 4]);
    let total = tensor(&mut b, "total", &[5]);
    b.add_library("gather", LibraryKernel::Gather, &[table, rows, picked]);
    b.add_library("scatter", LibraryKernel::ScatterAdd, &[picked, rows, sums]);
    // From the middle of a slot, in two places.
    let middle = table.slice(0, 2, 5).unwrap();
    b.add_library("product", LibraryKernel::MatMul, &[middle, weights, product]);
    let sum = LibraryKernel::Reduce { op: phonograph_graph::ReduceOp::Sum, axis: 1 };
    b.add_library("sum", sum, &[middle, total]);
    let graph = b.build().unwrap();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let made = |cuda: &mut phonograph_cuda::Cuda, values: &[f32]| {
        let memory = cuda.alloc(values.len() as u64 * 4).unwrap();
        cuda.write(&memory, values).unwrap();
        memory
    };
    let numbers: Vec<f32> = (0..48).map(|v| v as f32).collect();
    let doubled: Vec<f32> = numbers.iter().map(|v| v * 2.0).collect();
    let tables = [made(&mut cuda, &numbers), made(&mut cuda, &doubled)];
    let lists = [[1i32, 7, 1, 0, 3], [2, 2, 2, 2, 6]].map(|list| {
        let memory = cuda.alloc(20).unwrap();
        cuda.write(&memory, &list).unwrap();
        (memory, list)
    });
    let ones = vec![1f32; 24];
    cuda.write(&exec.memory(weights.buffer).unwrap().clone(), &ones).unwrap();
    for round in [0usize, 1, 1, 0, 1] {
        let scale = (round + 1) as f32;
        let (list, at) = &lists[round];
        let zeros = made(&mut cuda, &[0.0; 48]);
        exec.bind(table.buffer, &tables[round]).unwrap();
        exec.bind(rows.buffer, list).unwrap();
        exec.bind(sums.buffer, &zeros).unwrap();
        cuda.replay(&mut exec).unwrap();
        let row = |r: usize| (0..6).map(move |c| (r * 6 + c) as f32 * scale);
        let expected: Vec<f32> = at.iter().flat_map(|&r| row(r as usize)).collect();
        let read = |cuda: &mut phonograph_cuda::Cuda, exec: &Exec, view: View| {
            cuda.read::<f32>(&exec.memory(view.buffer).unwrap().clone()).unwrap()
        };
        assert_eq!(read(&mut cuda, &exec, picked), expected);
        let mut scattered = vec![0f32; 48];
        for &r in at {
            row(r as usize).enumerate().for_each(|(c, v)| scattered[r as usize * 6 + c] += v);
        }
        assert_eq!(cuda.read::<f32>(&zeros).unwrap(), scattered);
        let totals: Vec<f32> = (2..7).map(|r| row(r).sum()).collect();
        assert_eq!(read(&mut cuda, &exec, total), totals);
        let products: Vec<f32> = totals.iter().flat_map(|&v| [v; 4]).collect();
        assert_eq!(read(&mut cuda, &exec, product), products);
    }
}

/// `to = from * 2 + 1` through a long chain in between.
fn link(cuda: &mut phonograph_cuda::Cuda, from: &Memory, to: &Memory) -> Exec {
    let mut b = GraphBuilder::new();
    let (x, y) = (tensor(&mut b, "x", &[64]), tensor(&mut b, "y", &[64]));
    let t = View::contiguous(b.alloc_buffer("t", 256), DType::F32, &[64]).unwrap();
    let step =
        |f: f32| Arc::new(Expr::build(|e| e.output(e.input(DType::F32) * e.f32(f))).unwrap());
    let (double, same) = (step(2.0), step(1.0));
    let plus = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0))).unwrap();
    b.add_elementwise("double", double, &[x], &[], &[t]);
    for _ in 0..100 {
        b.add_elementwise("same", same.clone(), &[t], &[], &[t]);
    }
    b.add_elementwise("plus", plus.into(), &[t], &[], &[y]);
    let graph = b.build().unwrap();
    let bindings = Bindings::new().memory(x.buffer, from).memory(y.buffer, to);
    cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap()
}

#[test]
fn launches_on_any_streams_give_what_one_after_another_gives() {
    let Some(mut cuda) = cuda() else { return };
    let device = cuda.devices()[0].clone();
    let memories: Vec<Memory> = (0..4).map(|_| cuda.alloc(256).unwrap()).collect();
    let pairs: Vec<(usize, usize)> =
        (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
    let mut execs: Vec<Exec> =
        pairs.iter().map(|&(a, b)| link(&mut cuda, &memories[a], &memories[b])).collect();
    arbtest::arbtest(|u| {
        // Streams come and go.
        let streams: Vec<Stream> = (0..3).map(|_| Stream::new(&device).unwrap()).collect();
        let mut values = [1f32, 2.0, 3.0, 4.0];
        for (memory, value) in memories.iter().zip(values) {
            cuda.write(memory, &[value; 64]).unwrap();
        }
        for _ in 0..u.int_in_range(1..=12)? {
            let (which, stream) = (u.choose_index(pairs.len())?, u.choose_index(3)?);
            cuda.launch(&mut execs[which], &streams[stream]).unwrap();
            let (from, to) = pairs[which];
            values[to] = values[from] * 2.0 + 1.0;
        }
        for (memory, value) in memories.iter().zip(values) {
            assert_eq!(cuda.read::<f32>(memory).unwrap(), [value; 64]);
        }
        Ok(())
    })
    .budget_ms(1_000);
}

#[test]
fn instances_of_a_graph_run_at_once_with_what_is_theirs() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let x = tensor(&mut b, "x", &[128]);
    let y = tensor(&mut b, "y", &[128]);
    let flag = View::contiguous(b.external_buffer("flag", 4), DType::Bool, &[1]).unwrap();
    let by = b.slot("by", 0.0f32);
    let copy = Expr::build(|e| e.output(e.input(DType::F32))).unwrap();
    b.add_elementwise("first", copy.into(), &[x], &[], &[y]);
    let plus = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let plus = Arc::new(plus);
    for _ in 0..100 {
        b.add_elementwise("plus", plus.clone(), &[y], &[Arg::Slot(by)], &[y]);
    }
    let large = Expr::build(|e| e.output(e.param(DType::F32).greater(e.f32(2.5)))).unwrap();
    b.add_elementwise("large", large.into(), &[], &[Arg::Slot(by)], &[flag]);
    let mut body = GraphBuilder::new();
    let inside = body.outer_view(&b, y);
    let negate = Expr::build(|e| e.output(-e.input(DType::F32))).unwrap();
    body.add_elementwise("negate", negate.into(), &[inside], &[], &[inside]);
    let condition = Condition::Value(flag);
    b.add_conditional("if", ConditionalKind::If, condition, vec![body.build().unwrap()]);
    let graph = b.build().unwrap();
    let shared = cuda.alloc(512).unwrap();
    let start: Vec<f32> = (0..128).map(|v| v as f32).collect();
    cuda.write(&shared, &start).unwrap();
    let schedule = Schedule::sequential(&graph);
    let bindings = Bindings::new().memory(x.buffer, &shared);
    let mut pool = cuda.pool(&graph, &schedule, &bindings, 3).unwrap();
    for round in 0..4 {
        let value = |at: usize| (at + round) as f32;
        for at in 0..3 {
            let (instance, stream) = pool.next();
            instance.set(by, value(at)).unwrap();
            cuda.launch(instance, stream).unwrap();
        }
        for (at, instance) in pool.instances().enumerate() {
            cuda.finish(instance).unwrap();
            let memory = instance.memory(y.buffer).unwrap().clone();
            let sign = if value(at) > 2.5 { -1.0 } else { 1.0 };
            let expected: Vec<f32> = start.iter().map(|v| sign * (v + 100.0 * value(at))).collect();
            assert_eq!(cuda.read::<f32>(&memory).unwrap(), expected, "round {round}, {at}");
        }
    }
    let bound = bindings.memory(y.buffer, &shared);
    let refused = cuda.pool(&graph, &schedule, &bound, 2).unwrap_err();
    assert!(matches!(refused, PoolError::Shared { .. } | PoolError::Instantiate(_)), "{refused}");
    assert!(matches!(cuda.pool(&graph, &schedule, &Bindings::new(), 0), Err(PoolError::Empty)));
    let (carried, ..) = long_chain();
    let schedule = Schedule::sequential(&carried);
    let refused = cuda.pool(&carried, &schedule, &Bindings::new(), 2);
    assert!(matches!(refused, Err(PoolError::Carried { .. })));
}

#[test]
fn long_chains_with_weak_edges_keep_the_order_of_data() {
    let Some(mut cuda) = cuda() else { return };
    if cuda.devices()[0].capability() < (9, 0) {
        return eprintln!("skipped: no programmatic edges before compute capability 9.0");
    }
    let mut b = GraphBuilder::new().with_auto_infer_edges(false);
    // Of many blocks, so that some of a kernel run before others of the one before have begun.
    let x = tensor(&mut b, "x", &[1 << 18]);
    let turned = x.reshape(&[512, 512]).unwrap().transpose(0, 1).unwrap();
    let step = Expr::build(|e| e.output(e.input(DType::F32) * e.f32(0.5) + e.f32(1.0))).unwrap();
    let step = Arc::new(step);
    let y = tensor(&mut b, "y", &[512, 512]);
    let square = x.reshape(&[512, 512]).unwrap();
    let nodes: Vec<NodeId> = (0..64)
        .map(|at| {
            let (from, to) = if at % 2 == 0 { (turned, y) } else { (y, square) };
            b.add_elementwise("step", step.clone(), &[from], &[], &[to])
        })
        .collect();
    for pair in nodes.windows(2) {
        b.add_edge(Edge { from: pair[0], to: pair[1], data: EdgeData::PROGRAMMATIC });
    }
    check(&mut cuda, &Case::new(b.build().unwrap()));
}

#[test]
fn packs_and_their_rest_give_the_same_bits() {
    let Some(mut cuda) = cuda() else { return };
    // No whole number of packs; one element past an aligned start, and a whole pack.
    for (elements, skip) in [(1u64 << 18, 0u64), ((1 << 18) + 3, 0), (1 << 18, 1), (1 << 18, 4)] {
        check(&mut cuda, &packs(elements, skip).0);
    }
}

/// Copies whose ends are slots still change by their nodes' parameters.
#[test]
fn slots_of_copies_and_kernels_change_together() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let input = b.slot_buffer("input", 256, Access::Read);
    let x = View::contiguous(b.external_buffer("x", 256), DType::F32, &[64]).unwrap();
    let y = tensor(&mut b, "y", &[64]);
    let whole = Region { buffer: input, offset: 0, bytes: 256 };
    b.add_region_copy("copy", whole, Region { buffer: x.buffer, ..whole });
    let from = View::contiguous(input, DType::F32, &[64]).unwrap();
    let sum = Expr::build(|e| e.output(e.input(DType::F32) + e.input(DType::F32))).unwrap();
    b.add_elementwise("sum", sum.into(), &[from, x], &[], &[y]);
    let graph = b.build().unwrap();
    let memories = [1f32, 2.0, 3.0].map(|value| {
        let memory = cuda.alloc(256).unwrap();
        cuda.write(&memory, &[value; 64]).unwrap();
        memory
    });
    let schedule = Schedule::sequential(&graph);
    let mut exec = cuda.instantiate(&graph, &schedule, &Bindings::new()).unwrap();
    let stream = Stream::new(&cuda.devices()[0].clone()).unwrap();
    for round in 0..9usize {
        exec.bind(input, &memories[round % 3]).unwrap();
        cuda.launch(&mut exec, &stream).unwrap();
        let y = exec.memory(y.buffer).unwrap().clone();
        assert_eq!(cuda.read::<f32>(&y).unwrap(), [2.0 * (round % 3 + 1) as f32; 64]);
    }
}
