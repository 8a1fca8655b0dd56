//! From nothing to an uploaded executable.

use std::time::Instant;

use phonograph_cuda::{Bindings, Cuda, Exec, Function, Stream};
use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, DType, Expr, GraphBuilder, Schedule, View,
};

use crate::raw::{Launch, Raw};
use crate::{Outcome, launch, median};

pub fn table(cuda: &mut Cuda, empty: &Function) -> Outcome {
    println!(
        "{:<22} {:>8} {:>32} {:>32} {:>32} {:>8}",
        "build, ns a node",
        "ours",
        "captured + instantiate + upload",
        "made, by the call for kernels",
        "made, by the one for any node",
        "ratio"
    );
    for length in [1000, 100_000] {
        let device = cuda.devices()[0].clone();
        let stream = Stream::new(&device)?;
        let graph = launch::fork_join(1, length);
        // SAFETY: the kernel does nothing.
        let bindings = unsafe { Bindings::new().kernel("empty", empty) };
        let (mut ours, mut captured) = (Vec::new(), Vec::new());
        let mut built = [const { Vec::new() }; 2];
        for _ in 0..rounds(length) {
            let exec = timed(cuda, &graph, &bindings, &mut ours)?;
            // Nobody else gets an executable whose handle is known.
            assert_eq!(exec.handles().len().min(1), 1);
            drop(exec);
            captured.push(Raw::captured(&device, &Launch::empty(empty), &stream, 1, length).took);
            for (by_any, built) in built.iter_mut().enumerate() {
                built.push(Raw::built(&device, empty, &stream, length, by_any == 1).took);
            }
        }
        let ours = median(ours);
        let (captured, sum) = parts(&captured, length);
        let [by_kernels, by_any] = built.map(|built| parts(&built, length).0);
        let name = format!("chain of {length}");
        let ratio = ours / sum;
        println!(
            "{name:<22} {ours:>8.0} {captured:>32} {by_kernels:>32} {by_any:>32} {ratio:>8.3}"
        );
    }
    again(cuda)?;
    generated(cuda)
}

/// Chains of a kernel with parameters, instantiated before and again.
fn again(cuda: &mut Cuda) -> Outcome {
    println!(
        "{:<22} {:>12} {:>12} {:>12} {:>32}    ratios",
        "build, ns a node", "first", "again", "all changed", "captured + instantiate + upload",
    );
    let scale = cuda.compile(SCALE, "scale")?;
    // SAFETY: launched with a thread for each element of its operands.
    let bindings = unsafe { Bindings::new().kernel("scale", &scale) };
    let device = cuda.devices()[0].clone();
    let stream = Stream::new(&device)?;
    let (from, to) = (cuda.alloc(128)?, cuda.alloc(128)?);
    for length in [1000, 10_000] {
        let (first, x, y) = chain(length, 0)?;
        let bindings = bindings.clone().memory(x, &from).memory(y, &to);
        let mut ours = [const { Vec::new() }; 3];
        let mut captured = Vec::new();
        for round in 0..rounds(length) as u32 {
            let exec = timed(cuda, &first, &bindings, &mut ours[0])?;
            // Nobody else gets an executable whose handle is known.
            assert_eq!((exec.renewed(), exec.handles().len().min(1)), (0, 1));
            drop(exec);
            drop(cuda.instantiate(&first, &Schedule::sequential(&first), &bindings)?);
            let exec = timed(cuda, &first, &bindings, &mut ours[1])?;
            assert!(exec.renewed() > 0);
            drop(exec);
            let (changed, ..) = chain(length, round + 1)?;
            let exec = timed(cuda, &changed, &bindings, &mut ours[2])?;
            assert!(exec.renewed() > 0);
            // The next round has to begin without one.
            assert_eq!(exec.handles().len().min(1), 1);
            drop(exec);
            let (mut by, mut addresses) = (round, [to.address(), from.address()]);
            let [y, x] = &mut addresses;
            let params = [(&raw mut *y).cast(), (&raw mut *x).cast(), (&raw mut by).cast()];
            let launch = Launch { function: &scale, blocks: 1, threads: 32, params: &params };
            captured.push(Raw::captured(&device, &launch, &stream, 1, length).took);
        }
        let [first, again, changed] = ours.map(median);
        let (captured, sum) = parts(&captured, length);
        let name = format!("chain of {length}");
        let ratios = [first, again, changed].map(|ours| format!("{:.3}", ours / sum));
        println!(
            "{name:<22} {first:>12.0} {again:>12.0} {changed:>12.0} {captured:>32}    {}",
            ratios.join(", ")
        );
    }
    Ok(())
}

const SCALE: &str = "extern \"C\" __global__ void scale(float *y, const float *x, unsigned by) { y[threadIdx.x] = x[threadIdx.x] * by; }";

/// A chain in which each node is given a number of its own; with its buffers.
fn chain(
    length: usize,
    from: u32,
) -> Result<(ComputeGraph, BufferId, BufferId), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let (x, y) = (b.external_buffer("x", 128), b.external_buffer("y", 128));
    let view = |buffer| View::contiguous(buffer, DType::F32, &[32]);
    let (xv, yv) = (view(x)?, view(y)?);
    for at in 0..length as u32 {
        let kernel = b.add_kernel("scale", 1, 32, 0).arg(Arg::View(yv, Access::ReadWrite));
        kernel.arg(Arg::View(xv, Access::Read)).arg(Arg::Scalar((from + at).into())).finish();
    }
    Ok((b.build()?, x, y))
}

fn rounds(length: usize) -> usize {
    (100_000 / length).clamp(3, 30)
}

/// An executable, and the nanoseconds a node that it took.
fn timed(
    cuda: &mut Cuda,
    graph: &ComputeGraph,
    bindings: &Bindings<'_>,
    times: &mut Vec<f64>,
) -> Result<Exec, Box<dyn std::error::Error>> {
    let schedule = Schedule::sequential(graph);
    let start = Instant::now();
    let exec = cuda.instantiate(graph, &schedule, bindings)?;
    times.push(start.elapsed().as_nanos() as f64 / graph.node_count() as f64);
    Ok(exec)
}

/// What making the nodes, instantiating and uploading took, a node, as a sum in words and as a number.
fn parts(times: &[[f64; 3]], length: usize) -> (String, f64) {
    let [nodes, instantiate, upload] =
        [0, 1, 2].map(|part| median(times.iter().map(|time| time[part] / length as f64).collect()));
    let sum = nodes + instantiate + upload;
    (format!("{nodes:.0} + {instantiate:.0} + {upload:.0} = {sum:.0}"), sum)
}

/// Nodes of which each has a kernel generated, all of one shape.
fn generated(cuda: &mut Cuda) -> Outcome {
    let mut b = GraphBuilder::new();
    let x = View::contiguous(b.external_buffer("x", 4096), DType::F32, &[1024])?;
    let plus = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?;
    let plus = std::sync::Arc::new(plus);
    for _ in 0..1000 {
        b.add_elementwise("plus", plus.clone(), &[x], &[], &[x]);
    }
    let graph = b.build()?;
    let mut times = Vec::new();
    for _ in 0..20 {
        let exec = timed(cuda, &graph, &Bindings::new(), &mut times)?;
        // Nobody else gets an executable whose handle is known.
        assert_eq!(exec.handles().len(), 1);
    }
    println!("{:<22} {:>8.0}", "1000 expressions, first", median(times));
    Ok(())
}
