//! Slots set before a replay.

use phonograph_cuda::{Bindings, Cuda, Exec, Stream};
use phonograph_graph::{
    Access, Arg, ComputeGraph, DType, Expr, GraphBuilder, Schedule, SlotId, View,
};

use crate::{Outcome, median, micros};

const NODES: usize = 1000;
const ADD: &str = "extern \"C\" __global__ void add(float *x, float by) { x[threadIdx.x] += by; }";

pub fn table(cuda: &mut Cuda) -> Outcome {
    let stream = Stream::new(&cuda.devices()[0].clone())?;
    println!(
        "{:<22} {:>12} {:>12} {:>12} {:>14}",
        "slots, µs", "bare", "1 set", "100 set", "100 set: over"
    );
    let add = cuda.compile(ADD, "add")?;
    // SAFETY: launched with a thread for each element of its operand.
    let bindings = unsafe { Bindings::new().kernel("add", &add) };
    for (name, generated) in [("parameter block", true), ("node parameters", false)] {
        let (graph, slots) = chain(generated)?;
        let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings)?;
        let mut times = [const { Vec::new() }; 3];
        for turn in 0..600u32 {
            let which = turn as usize % 3;
            let set = [0, 1, 100][which];
            let run = |cuda: &mut Cuda, exec: &mut Exec| -> Outcome {
                for slot in slots.iter().step_by(NODES / 100).take(set) {
                    exec.set(*slot, turn as f32)?;
                }
                cuda.launch(exec, &stream)?;
                Ok(stream.synchronize()?)
            };
            times[which].push(micros(|| run(cuda, &mut exec))?);
        }
        let [bare, one, hundred] = times.map(median);
        println!("{name:<22} {bare:>12.1} {one:>12.1} {hundred:>12.1} {:>14.1}", hundred - bare);
    }
    Ok(())
}

/// A chain of additions in place, each of a slot of its own.
fn chain(generated: bool) -> Result<(ComputeGraph, Vec<SlotId>), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = View::contiguous(b.external_buffer("x", 128), DType::F32, &[32])?;
    let slots: Vec<SlotId> = (0..NODES).map(|at| b.slot(&format!("by{at}"), 0.0f32)).collect();
    let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32)))?;
    let add = std::sync::Arc::new(add);
    for slot in &slots {
        if generated {
            b.add_elementwise("add", add.clone(), &[x], &[Arg::Slot(*slot)], &[x]);
        } else {
            let operand = Arg::View(x, Access::ReadWrite);
            b.add_kernel("add", 1, 32, 0).arg(operand).arg(Arg::Slot(*slot)).finish();
        }
    }
    Ok((b.build()?, slots))
}
