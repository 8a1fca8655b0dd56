//! Random graphs with real data: whatever the plan and the number of workers, the CPU gives the bits that running the
//! nodes one after another gives.

#[path = "corpus/bounds.rs"]
mod bounds;
#[path = "corpus/cuda.rs"]
mod cuda;
#[path = "corpus/wgpu.rs"]
mod wgpu;

use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph::graph::{
    Access, Arg, BufferId, ComputeGraph, DType, Expr, GraphBuilder, LibraryKernel, ReduceOp,
    Region, Schedule, View, check, from_json, races, to_json,
};
use phonograph::plan::ExecutionPlan;
use phonograph::runtime::cpu::kernels::{FnKernel, Param, Registry};
use phonograph::runtime::cpu::{Bindings, Cpu};

const SIDE: u64 = 24;
const BYTES: usize = (SIDE * SIDE * 4) as usize;

/// Square f32 tensors, some of them external; products, sums, elementwise updates in place and out of place, of rows and
/// columns that are repeated, copies, user kernels, child graphs.
fn graph(u: &mut Unstructured, products: bool) -> Result<ComputeGraph> {
    let mut b = GraphBuilder::new();
    let externals = u.int_in_range(1..=3)?;
    let count = externals + u.int_in_range(1..=6)?;
    let views: Vec<View> = (0..count)
        .map(|i| {
            let name = format!("t{i}");
            let external = i < externals;
            let buffer = match external {
                true => b.external_buffer(&name, BYTES),
                false => b.alloc_buffer(&name, BYTES),
            };
            View::contiguous(buffer, DType::F32, &[SIDE, SIDE]).unwrap()
        })
        .collect();
    // Scratch holds nothing at first: every internal tensor is written before anything reads it.
    let mix: Arc<Expr> = Expr::build(|e| {
        let (x, y) = (e.input(DType::F32), e.input(DType::F32));
        e.output((x * e.f32(0.5) - y).tanh() + e.index(1).cast(DType::F32) * e.f32(0.01));
    })
    .unwrap()
    .into();
    for view in &views[externals..] {
        b.add_elementwise("start", mix.clone(), &[views[0], views[0]], &[], &[*view]);
    }
    for _ in 0..u.int_in_range(1..=20)? {
        let (x, y, z) = (*u.choose(&views)?, *u.choose(&views)?, *u.choose(&views)?);
        match u.int_in_range(0..=7)? {
            0 if products && x != z && y != z => {
                let y = if u.arbitrary()? { y.transpose(0, 1).unwrap() } else { y };
                b.add_library("product", LibraryKernel::MatMul, &[x, y, z]);
            }
            1 if x != z => {
                let row = z.slice(0, u.int_in_range(0..=SIDE - 1)?, 1).unwrap();
                let row = row.reshape(&[SIDE]).unwrap();
                let axis = u.int_in_range(0..=1)?;
                let op = *u.choose(&[ReduceOp::Sum, ReduceOp::Max])?;
                b.add_library("reduce", LibraryKernel::Reduce { op, axis }, &[x, row]);
            }
            2 if x != z => {
                let half = BYTES as u64 / 2;
                let from = Region { buffer: x.buffer, offset: 0, bytes: half };
                let to = Region { buffer: z.buffer, offset: half, bytes: half };
                b.add_region_copy("copy", from, to);
            }
            3 => {
                let arg = Arg::View(z, Access::ReadWrite);
                b.add_kernel("halve", SIDE as u32, SIDE as u32, 0).arg(arg).finish();
            }
            4 => {
                let mut inner = GraphBuilder::new();
                let [x, y, z] = [x, y, z].map(|view| inner.outer_view(&b, view));
                let t = inner.alloc_buffer("inner", BYTES);
                let t = View::contiguous(t, DType::F32, &[SIDE, SIDE]).unwrap();
                inner.add_elementwise("inner mix", mix.clone(), &[x, y], &[], &[t]);
                inner.add_elementwise("inner mix", mix.clone(), &[t, y], &[], &[z]);
                b.add_child("child", inner.build().unwrap());
            }
            5 => {
                // A row, a column or an element of its own, which a few rows or columns or all of a tensor meet next.
                let (extents, all) = *u.choose(&[
                    ([1, SIDE], [6, SIDE]),
                    ([SIDE, 1], [SIDE, 6]),
                    ([1, 1], [SIDE, SIDE]),
                ])?;
                let part = |view: View, [rows, columns]: [u64; 2]| {
                    view.slice(0, 0, rows).unwrap().slice(1, 0, columns).unwrap()
                };
                let row = b.alloc_buffer("row", (extents[0] * extents[1] * 4) as usize);
                let row = View::contiguous(row, DType::F32, &extents).unwrap();
                let inputs = [part(x, extents), part(y, extents)];
                b.add_elementwise("row", mix.clone(), &inputs, &[], &[row]);
                let [x, z] = [x, z].map(|view| part(view, all));
                let row = row.broadcast_to(x.shape()).unwrap();
                b.add_elementwise("rows", mix.clone(), &[x, row], &[], &[z]);
            }
            _ => {
                b.add_elementwise("mix", mix.clone(), &[x, y], &[], &[z]);
            }
        }
    }
    Ok(b.build().unwrap())
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    let halve = FnKernel::blocks(&[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v *= 0.5);
        Ok(())
    });
    registry.register("halve", halve);
    registry
}

/// What an external buffer holds at first.
fn contents(seed: usize) -> Vec<f32> {
    (0..BYTES / 4).map(|i| ((i + seed * 7) as f32).sin()).collect()
}

/// The bits of all external buffers after a few replays from fixed contents.
fn results(graph: &ComputeGraph, schedule: &Schedule, workers: u32) -> Vec<Vec<u32>> {
    let registry = registry();
    let mut cpu = Cpu::new(workers).unwrap();
    let mut exec = cpu.instantiate(graph, schedule, &Bindings::new(&registry)).unwrap();
    let buffers = (0..graph.buffers().len()).map(BufferId::from_index);
    let external: Vec<_> = buffers.filter_map(|buffer| exec.memory(buffer).cloned()).collect();
    for (seed, memory) in external.iter().enumerate() {
        cpu.slice_mut::<f32>(memory).unwrap().copy_from_slice(&contents(seed));
    }
    for _ in 0..3 {
        cpu.replay(&mut exec).unwrap();
    }
    external.iter().map(|memory| cpu.slice::<u32>(memory).unwrap().to_vec()).collect()
}

#[test]
fn plans_and_workers_do_not_change_a_bit() {
    arbtest::arbtest(|u| {
        let graph = graph(u, true)?;
        assert_eq!(races(&graph), []);
        let expected = results(&graph, &Schedule::sequential(&graph), 1);
        for workers in [1, 2, 3] {
            let plan = ExecutionPlan::build(&graph, u.int_in_range(1..=4)?).unwrap();
            let schedule = plan.schedule().unwrap();
            assert_eq!(check(&graph, schedule), []);
            assert_eq!(results(&graph, schedule, workers), expected, "{workers} workers, {plan}");
        }
        // What is written as JSON computes the same.
        let again = from_json(to_json(&graph).as_bytes()).unwrap();
        assert_eq!(results(&again, &Schedule::sequential(&again), 2), expected);
        Ok(())
    })
    .budget_ms(3_000);
}
