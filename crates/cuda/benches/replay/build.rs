//! From nothing to an uploaded executable.

use phonograph_cuda::{Bindings, Cuda, Function, Stream};
use phonograph_graph::{DType, Expr, GraphBuilder, Schedule, View};

use crate::raw::{Launch, Raw};
use crate::{Outcome, launch, median, micros};

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
        let schedule = Schedule::sequential(&graph);
        // SAFETY: the kernel does nothing.
        let bindings = unsafe { Bindings::new().kernel("empty", empty) };
        let (mut ours, mut captured) = (Vec::new(), Vec::new());
        let mut built = [const { Vec::new() }; 2];
        for _ in 0..(100_000 / length).clamp(3, 30) {
            let mut exec = None;
            let took = micros(|| {
                exec = Some(cuda.instantiate(&graph, &schedule, &bindings)?);
                Ok(())
            })?;
            ours.push(took * 1e3 / length as f64);
            drop(exec);
            captured.push(Raw::captured(&device, &Launch::empty(empty), &stream, 1, length).took);
            for (by_any, built) in built.iter_mut().enumerate() {
                built.push(Raw::built(&device, empty, &stream, length, by_any == 1).took);
            }
        }
        let parts = |times: &[[f64; 3]]| {
            [0, 1, 2]
                .map(|part| median(times.iter().map(|time| time[part] / length as f64).collect()))
        };
        let text = |[nodes, instantiate, upload]: [f64; 3]| {
            let sum = nodes + instantiate + upload;
            format!("{nodes:.0} + {instantiate:.0} + {upload:.0} = {sum:.0}")
        };
        let (ours, captured) = (median(ours), parts(&captured));
        let built = [0, 1].map(|which| text(parts(&built[which])));
        println!(
            "{:<22} {ours:>8.0} {:>32} {:>32} {:>32} {:>8.3}",
            format!("chain of {length}"),
            text(captured),
            built[0],
            built[1],
            ours / captured.iter().sum::<f64>(),
        );
    }
    generated(cuda)
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
    let schedule = Schedule::sequential(&graph);
    let mut times = Vec::new();
    for _ in 0..20 {
        times.push(micros(|| {
            cuda.instantiate(&graph, &schedule, &Bindings::new())?;
            Ok(())
        })?);
    }
    println!("{:<22} {:>8.0}", "1000 expressions", median(times));
    Ok(())
}
