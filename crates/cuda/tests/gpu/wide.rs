//! Graphs with many kernels side by side, which are given one beginning and one end, against the CPU: bit for bit.

use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{
    Arg, ComputeGraph, DType, Expr, Extent, GraphBuilder, MemsetNode, NodeId, Pitched, Schedule,
    Target, View,
};
use phonograph_plan::streams::{PlanOptions, schedule};

use crate::case::{Case, cuda};

const WORDS: u64 = 64;
const BYTES: usize = 4 * WORDS as usize;

/// What a node reads, twice, and writes, by the numbers of buffers; some are fills.
struct Step {
    from: [usize; 2],
    to: usize,
    is_fill: bool,
}

/// Nodes on random buffers. Few buffers make a narrow graph, many a wide one.
fn steps(u: &mut Unstructured<'_>, nodes: usize) -> Result<(usize, Vec<Step>)> {
    let buffers = *u.choose(&[20, 300, 1000])?;
    let one = |u: &mut Unstructured<'_>| u.int_in_range(0..=buffers - 1);
    let step = |u: &mut Unstructured<'_>| {
        Ok(Step { from: [one(u)?, one(u)?], to: one(u)?, is_fill: u.ratio(1, 20)? })
    };
    let steps = (0..nodes).map(|_| step(u)).collect::<Result<_>>()?;
    Ok((buffers, steps))
}

/// A graph of these nodes, whose edges follow from what they touch. Every other buffer is internal: its memory is another's
/// as well.
fn graph(buffers: usize, steps: &[Step], by: u32) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let all: Vec<View> = (0..buffers)
        .map(|at| {
            let name = format!("x{at}");
            let buffer = match at % 2 {
                0 => b.external_buffer(&name, BYTES),
                _ => b.alloc_buffer(&name, BYTES),
            };
            View::contiguous(buffer, DType::U32, &[WORDS]).unwrap()
        })
        .collect();
    let mix = Expr::build(|e| {
        let (x, y, by) = (e.input(DType::U32), e.input(DType::U32), e.param(DType::U32));
        e.output(x * e.constant(3u32) + y * e.constant(5u32) + by);
    });
    let mix: Arc<Expr> = mix.unwrap().into();
    let mut is_written = vec![false; buffers];
    for (at, step) in (0u32..).zip(steps) {
        // What is internal holds nothing before a node writes it.
        let from =
            step.from.map(|from| if from % 2 == 1 && !is_written[from] { from - 1 } else { from });
        is_written[step.to] = true;
        let to = all[step.to];
        if step.is_fill {
            let dst = Pitched::linear(Target::Buffer(to.buffer), 0);
            let extent = Extent::linear(BYTES as u64);
            b.add_fill("fill", MemsetNode { dst, value: by + at, element_size: 4, extent });
        } else {
            let by = [Arg::Scalar((by.wrapping_mul(at)).into())];
            b.add_elementwise("mix", mix.clone(), &from.map(|from| all[from]), &by, &[to]);
        }
    }
    b.build().unwrap()
}

#[test]
fn wide_graphs_leave_what_they_leave_on_the_cpu() {
    let Some(mut cuda) = cuda() else { return };
    let (mut count, mut renewed) = (0, 0);
    arbtest::arbtest(|u| {
        let (buffers, steps) = steps(u, 1000)?;
        for by in [1u32, 7, 100] {
            let mut case = Case::new(graph(buffers, &steps, by));
            case.replays = 2;
            let schedule = schedule(&case.graph, &PlanOptions::at_most(8)).unwrap();
            let mut exec = case.instantiate(&mut cuda, &schedule);
            renewed += exec.renewed();
            for _ in 0..case.replays {
                cuda.replay(&mut exec).unwrap();
            }
            for (buffer, expected) in case.external().into_iter().zip(case.on_cpu()) {
                let memory = exec.memory(buffer).unwrap().clone();
                assert!(
                    cuda.read::<u8>(&memory).unwrap() == expected,
                    "{buffer} of {buffers}, {by}"
                );
            }
            count += 1;
        }
        Ok(())
    })
    .budget_ms(3000);
    // The second and the third of each are like the first, whose executable they get.
    assert!(renewed >= count / 3 * 2, "{renewed} of {count}");
    println!("{count} graphs compared");
}

#[test]
fn kernels_side_by_side_are_disabled_one_by_one() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let plus = Expr::build(|e| e.output(e.input(DType::U32) + e.constant(1u32))).unwrap();
    let plus = Arc::new(plus);
    let all: Vec<(NodeId, View)> = (0..200)
        .map(|at| {
            let buffer = b.external_buffer(&format!("x{at}"), BYTES);
            let x = View::contiguous(buffer, DType::U32, &[WORDS]).unwrap();
            (b.add_elementwise("plus", plus.clone(), &[x], &[], &[x]), x)
        })
        .collect();
    let graph = b.build().unwrap();
    let bindings = phonograph_cuda::Bindings::new();
    let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    let is_off = |at: usize, round: usize| round == 1 && (at.is_multiple_of(3) || at >= 190);
    for round in 0..3 {
        for (at, (node, _)) in all.iter().enumerate() {
            exec.set_enabled(*node, !is_off(at, round)).unwrap();
        }
        cuda.replay(&mut exec).unwrap();
    }
    for (at, (_, x)) in all.iter().enumerate() {
        let memory = exec.memory(x.buffer).unwrap().clone();
        let expected = if is_off(at, 1) { 2 } else { 3 };
        assert_eq!(cuda.read::<u32>(&memory).unwrap(), [expected; WORDS as usize], "{at}");
    }
}

#[test]
fn thousands_side_by_side_are_launched_in_parts() {
    let Some(mut cuda) = cuda() else { return };
    let (count, each) = (20_000u64, 8u64);
    let mut b = GraphBuilder::new();
    let whole = |b: &mut GraphBuilder, name: &str| {
        let buffer = b.external_buffer(name, (4 * count * each) as usize);
        View::contiguous(buffer, DType::U32, &[count * each]).unwrap()
    };
    let (x, y) = (whole(&mut b, "x"), whole(&mut b, "y"));
    let plus = Expr::build(|e| e.output(e.input(DType::U32) * e.constant(3u32) + e.constant(1u32)));
    let plus: Arc<Expr> = plus.unwrap().into();
    b.add_elementwise("before", plus.clone(), &[y], &[], &[x]);
    for at in 0..count {
        let part = x.slice(0, at * each, each).unwrap();
        b.add_elementwise("plus", plus.clone(), &[part], &[], &[part]);
    }
    b.add_elementwise("behind", plus, &[x], &[], &[y]);
    let mut case = Case::new(b.build().unwrap());
    case.replays = 2;
    let schedule = Schedule::sequential(&case.graph);
    let mut exec = case.instantiate(&mut cuda, &schedule);
    for _ in 0..case.replays {
        cuda.replay(&mut exec).unwrap();
    }
    for (buffer, expected) in case.external().into_iter().zip(case.on_cpu()) {
        let memory = exec.memory(buffer).unwrap().clone();
        assert!(cuda.read::<u8>(&memory).unwrap() == expected, "{buffer}");
    }
    assert_eq!(exec.handles().len(), 4);
}
