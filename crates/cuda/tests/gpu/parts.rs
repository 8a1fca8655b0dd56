//! A graph so large that it is launched in parts, and launches from threads with another context or none.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use phonograph_cuda::{Bindings, Stream};
use phonograph_graph::{Access, Arg, DType, Expr, GraphBuilder, NodeId, Schedule, View};

use crate::case::cuda;

const STEP: &str = "extern \"C\" __global__ void step(unsigned *y, unsigned by) { y[threadIdx.x] = y[threadIdx.x] * 3u + by; }";

/// Every so many nodes one takes a slot as a parameter of its own, and one reads it from the parameter block.
const APART: usize = 500;

#[test]
fn a_large_graph_in_parts_is_one_graph() {
    let Some(mut cuda) = cuda() else { return };
    let step = cuda.compile(STEP, "step").unwrap();
    let mut b = GraphBuilder::new();
    let y = View::contiguous(b.external_buffer("y", 128), DType::U32, &[32]).unwrap();
    let by = b.slot("by", 5u32);
    let expr = |by: bool| {
        Arc::new(
            Expr::build(|e| {
                let y = e.input(DType::U32) * e.constant(3u32);
                e.output(y + if by { e.param(DType::U32) } else { e.constant(1u32) });
            })
            .unwrap(),
        )
    };
    let (plain, with_slot) = (expr(false), expr(true));
    let nodes: Vec<NodeId> = (0..40_000)
        .map(|at| match at % APART {
            7 => {
                let kernel = b.add_kernel("step", 1, 32, 0);
                kernel.arg(Arg::View(y, Access::ReadWrite)).arg(Arg::Slot(by)).finish()
            }
            8 => b.add_elementwise("slot", with_slot.clone(), &[y], &[Arg::Slot(by)], &[y]),
            _ => b.add_elementwise("plain", plain.clone(), &[y], &[], &[y]),
        })
        .collect();
    let graph = b.build().unwrap();
    // SAFETY: launched with a thread for each element.
    let bindings = unsafe { Bindings::new().kernel("step", &step) };
    let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    assert_eq!(exec.handles().len(), 9);
    let streams = [(), ()].map(|()| Stream::new(&cuda.devices()[0].clone()).unwrap());
    let mut expected = 0u32;
    let disabled = [3, 20_000, 20_008, 39_999];
    for round in 0..4u32 {
        exec.set(by, 10 + round).unwrap();
        for at in disabled {
            exec.set_enabled(nodes[at], round < 2).unwrap();
        }
        cuda.launch(&mut exec, &streams[round as usize % 2]).unwrap();
        for at in (0..nodes.len()).filter(|at| round < 2 || !disabled.contains(at)) {
            let add = if matches!(at % APART, 7 | 8) { 10 + round } else { 1 };
            expected = expected.wrapping_mul(3).wrapping_add(add);
        }
    }
    cuda.finish(&mut exec).unwrap();
    let memory = exec.memory(y.buffer).unwrap().clone();
    assert_eq!(cuda.read::<u32>(&memory).unwrap(), [expected; 32]);
}

#[test]
fn launches_need_no_current_context() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let y = View::contiguous(b.external_buffer("y", 16), DType::U32, &[4]).unwrap();
    let plus = Expr::build(|e| e.output(e.input(DType::U32) + e.constant(1u32))).unwrap();
    b.add_elementwise("plus", plus.into(), &[y], &[], &[y]);
    let graph = b.build().unwrap();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let stream = Stream::new(&cuda.devices()[0].clone()).unwrap();
    cuda.launch(&mut exec, &stream).unwrap();
    std::thread::scope(|threads| {
        // A thread that has never called the driver.
        threads.spawn(|| cuda.launch(&mut exec, &stream).unwrap());
    });
    let mut other = ptr::null_mut();
    // SAFETY: device 0 exists; the context is current on this thread until it is destroyed.
    unsafe {
        let mut params = std::mem::zeroed::<sys::CUctxCreateParams>();
        assert_eq!(sys::cuCtxCreate_v4(&mut other, &mut params, 0, 0), CUresult::CUDA_SUCCESS);
    }
    cuda.launch(&mut exec, &stream).unwrap();
    cuda.launch(&mut exec, &stream).unwrap();
    cuda.finish(&mut exec).unwrap();
    // SAFETY: nothing was made in it.
    unsafe { assert_eq!(sys::cuCtxDestroy_v2(other), CUresult::CUDA_SUCCESS) };
    let memory = exec.memory(y.buffer).unwrap().clone();
    assert_eq!(cuda.read::<u32>(&memory).unwrap(), [4; 4]);
}
