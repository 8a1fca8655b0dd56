//! Two instances of a chain of small kernels, one after the other and at once.

use phonograph_cuda::{Bindings, Cuda};
use phonograph_graph::{ComputeGraph, DType, Expr, GraphBuilder, Schedule, View};

use crate::{Outcome, median, micros};

const NODES: usize = 1000;

pub fn table(cuda: &mut Cuda) -> Outcome {
    let graph = chain()?;
    let mut pool = cuda.pool(&graph, &Schedule::sequential(&graph), &Bindings::new(), 2)?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..100 {
        // One alone, both on one stream, both on their own.
        for (which, times) in times.iter_mut().enumerate() {
            times.push(micros(|| {
                let (first, stream) = pool.next();
                let first_stream = stream.clone();
                cuda.launch(first, &first_stream)?;
                let (second, stream) = pool.next();
                match which {
                    0 => {}
                    1 => cuda.launch(second, &first_stream)?,
                    _ => cuda.launch(second, stream)?,
                }
                for instance in pool.instances() {
                    cuda.finish(instance)?;
                }
                Ok(())
            })?);
        }
    }
    let [alone, row, overlapping] = times.map(median);
    println!(
        "instances of a chain of {NODES}, µs: one {alone:.0}, two on one stream {row:.0}, two on two {overlapping:.0}"
    );
    Ok(())
}

/// From `x` through `y` back and forth between two tensors that it writes first.
fn chain() -> Result<ComputeGraph, Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let mut view = |name| View::contiguous(b.external_buffer(name, 4096), DType::F32, &[1024]);
    let (x, y, z) = (view("x")?, view("y")?, view("z")?);
    let plus = std::sync::Arc::new(Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?);
    let mut from = x;
    for at in 0..NODES {
        let to = if at % 2 == 0 { y } else { z };
        b.add_elementwise("plus", plus.clone(), &[from], &[], &[to]);
        from = to;
    }
    Ok(b.build()?)
}
