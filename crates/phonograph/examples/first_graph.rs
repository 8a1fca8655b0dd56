//! Record a graph of two kernels, plan it, replay it on the CPU with a slot set anew.

use phonograph::graph::{Arg, DType, Expr, GraphBuilder, View};
use phonograph::plan::ExecutionPlan;
use phonograph::runtime::cpu::kernels::Registry;
use phonograph::runtime::cpu::{Bindings, Cpu};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // y = gain · x², recorded once; `gain` is a slot, set before a replay.
    let mut b = GraphBuilder::new();
    let x = View::contiguous(b.external_buffer("x", 4096), DType::F32, &[1024])?;
    let square = View::contiguous(b.alloc_buffer("square", 4096), DType::F32, &[1024])?;
    let y = View::contiguous(b.external_buffer("y", 4096), DType::F32, &[1024])?;
    let gain = b.slot("gain", 1.0f32);
    let times = Expr::build(|e| e.output(e.input(DType::F32) * e.input(DType::F32)))?;
    let scale = Expr::build(|e| e.output(e.input(DType::F32) * e.param(DType::F32)))?;
    b.add_elementwise("square", times.into(), &[x, x], &[], &[square]);
    b.add_elementwise("scale", scale.into(), &[square], &[Arg::Slot(gain)], &[y]);
    let graph = b.build()?; // the dependency was inferred from `square`

    let plan = ExecutionPlan::build(&graph, 2)?;
    let (mut cpu, registry) = (Cpu::new(2)?, Registry::new());
    let input = cpu.alloc(4096)?;
    cpu.slice_mut(&input)?.fill(3.0f32);
    let schedule = plan.schedule().ok_or("a plan of a graph has a schedule")?;
    let bindings = Bindings::new(&registry).memory(x.buffer, &input);
    let mut exec = cpu.instantiate(&graph, schedule, &bindings)?; // checked here

    for value in [1.0f32, 10.0] {
        exec.set(gain, value)?;
        cpu.replay(&mut exec)?;
        let memory = exec.memory(y.buffer).ok_or("external buffers have memory")?;
        println!("gain {value}: y[0] = {}", cpu.slice::<f32>(memory)?[0]);
        assert_eq!(cpu.slice::<f32>(memory)?, &[9.0 * value; 1024]);
    }
    Ok(())
}
