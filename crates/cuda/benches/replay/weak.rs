//! Chains with programmatic edges.

use std::ffi::c_void;

use phonograph_cuda::{Bindings, Cuda, Stream};
use phonograph_graph::{
    ComputeGraph, DType, Edge, EdgeData, Expr, GraphBuilder, NodeId, Schedule, View,
};
use phonograph_kernels::cuda::{self, ENTRY, Param};

use crate::raw::{Launch, Raw, issue};
use crate::{Outcome, median, micros};

const NODES: usize = 1000;

pub fn table(cuda: &mut Cuda) -> Outcome {
    let device = cuda.devices()[0].clone();
    if device.capability() < (9, 0) {
        println!("no programmatic edges before compute capability 9.0");
        return Ok(());
    }
    let stream = Stream::new(&device)?;
    let (full, weak) = (chain(EdgeData::FULL)?, chain(EdgeData::PROGRAMMATIC)?);
    let [mut full, mut weak] = [&full, &weak].map(|graph| {
        let schedule = Schedule::sequential(graph);
        cuda.instantiate(graph, &schedule, &Bindings::new()).expect("it runs on this device")
    });
    // The same launches, captured.
    let graph = chain(EdgeData::FULL)?;
    let kernel = cuda::kernel(graph.nodes()[0].kernel().expect("a kernel"))?;
    let function = cuda.compile(&kernel.source, ENTRY)?;
    let memory = cuda.alloc(128)?;
    let values: Vec<Vec<u64>> = kernel
        .params
        .iter()
        .map(|param| match param {
            Param::Words(words) => words.clone(),
            _ => vec![memory.address()],
        })
        .collect();
    let params: Vec<*mut c_void> =
        values.iter().map(|value| value.as_ptr().cast_mut().cast()).collect();
    let (blocks, threads) = (kernel.blocks, kernel.threads);
    let launch = Launch { function: &function, blocks, threads, params: &params };
    let raw = Raw::captured(&device, &launch, &stream, 1, NODES);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..200 {
        let mut launched = [&mut full, &mut weak].map(|exec| {
            micros(|| {
                cuda.launch(exec, &stream)?;
                Ok(stream.synchronize()?)
            })
        });
        for (times, took) in times.iter_mut().zip(&mut launched) {
            times.push(std::mem::replace(took, Ok(0.0))?);
        }
        times[2].push(micros(|| {
            issue(raw.exec, &stream);
            Ok(stream.synchronize()?)
        })?);
    }
    let [full, weak, captured] = times.map(|times| median(times) * 1e3 / NODES as f64);
    println!(
        "chain of {NODES} expressions, ns a node: captured {captured:.0}, ours {full:.0}, with programmatic edges {weak:.0} = {:.3} × captured",
        weak / captured
    );
    Ok(())
}

fn chain(data: EdgeData) -> Result<ComputeGraph, Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new().with_auto_infer_edges(false);
    let x = View::contiguous(b.external_buffer("x", 128), DType::F32, &[32])?;
    let plus = std::sync::Arc::new(Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?);
    let nodes: Vec<NodeId> =
        (0..NODES).map(|_| b.add_elementwise("plus", plus.clone(), &[x], &[], &[x])).collect();
    for pair in nodes.windows(2) {
        b.add_edge(Edge { from: pair[0], to: pair[1], data });
    }
    Ok(b.build()?)
}
