//! Matrix products by cuBLAS and by generated kernels, and sums of everything.

use phonograph_cuda::{Bindings, Cuda, Exec, ProductBy, Stream};
use phonograph_graph::{
    ComputeGraph, DType, GraphBuilder, LibraryKernel, ReduceOp, Schedule, View,
};

use crate::{Outcome, median, micros};

pub fn products(cuda: &mut Cuda) -> Outcome {
    println!("{:<22} {:>12} {:>12} {:>14}", "products, µs", "cuBLAS", "generated", "cuBLAS/ours");
    let mut generated = Cuda::new()?.without_cublas();
    for size in [256u64, 1024, 4096] {
        let repeats = if size > 1000 { 5 } else { 50 };
        let square: &[u64] = &[size, size];
        let graph = repeated(LibraryKernel::MatMul, &[square; 3], repeats)?;
        let schedule = Schedule::sequential(&graph);
        let mut by_cublas = cuda.instantiate(&graph, &schedule, &Bindings::new())?;
        if let (_, ProductBy::Generated { why }) = &by_cublas.products()[0] {
            println!("no product by cuBLAS: {why}");
            return Ok(());
        }
        let mut ours = generated.instantiate(&graph, &schedule, &Bindings::new())?;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let stream = Stream::new(&cuda.devices()[0].clone())?;
        for _ in 0..30 {
            a.push(time(cuda, &mut by_cublas, &stream)? / repeats as f64);
            b.push(time(&mut generated, &mut ours, &stream)? / repeats as f64);
        }
        let (a, b) = (median(a), median(b));
        println!("{:<22} {a:>12.2} {b:>12.2} {:>14.3}", format!("{size} × {size}"), a / b);
    }
    Ok(())
}

pub fn sums(cuda: &mut Cuda) -> Outcome {
    println!("{:<22} {:>12} {:>12}", "sums to one, µs", "time", "GB/s");
    let stream = Stream::new(&cuda.devices()[0].clone())?;
    for (name, elements) in [("64K", 1u64 << 16), ("1M", 1 << 20), ("64M", 64 << 20)] {
        let repeats = 20;
        let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 };
        let graph = repeated(sum, &[&[elements], &[]], repeats)?;
        let schedule = Schedule::sequential(&graph);
        let mut exec = cuda.instantiate(&graph, &schedule, &Bindings::new())?;
        let mut times = Vec::new();
        for _ in 0..20 {
            times.push(time(cuda, &mut exec, &stream)? / repeats as f64);
        }
        let took = median(times);
        println!("{name:<22} {took:>12.2} {:>12.0}", elements as f64 * 4.0 / took / 1e3);
    }
    Ok(())
}

/// A library kernel over f32, again and again.
fn repeated(
    kernel: LibraryKernel,
    operands: &[&[u64]],
    repeats: usize,
) -> Result<ComputeGraph, Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let mut views = Vec::new();
    for extents in operands {
        let bytes = 4 * extents.iter().product::<u64>() as usize;
        views.push(View::contiguous(b.external_buffer("x", bytes), DType::F32, extents)?);
    }
    for _ in 0..repeats {
        b.add_library("kernel", kernel, &views);
    }
    Ok(b.build()?)
}

fn time(
    cuda: &mut Cuda,
    exec: &mut Exec,
    stream: &Stream,
) -> Result<f64, Box<dyn std::error::Error>> {
    micros(|| {
        cuda.launch(exec, stream)?;
        Ok(stream.synchronize()?)
    })
}
