//! A replay allocates nothing. Alone in its process, without the harness, whose threads allocate when they like: the
//! allocator counts for all threads.

mod counting;

use phonograph_graph::{Arg, DType, Expr, GraphBuilder, LibraryKernel, ReduceOp, Schedule, View};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::cpu::{Bindings, Cpu};

fn main() {
    let n = 1 << 18;
    let mut b = GraphBuilder::new();
    let (x, y) = (b.external_buffer("x", 4 * n), b.alloc_buffer("y", 4 * n));
    let sum = b.external_buffer("sum", 4);
    let by = b.slot("by", 1.0f32);
    let view = |buffer| View::contiguous(buffer, DType::F32, &[n as u64]).unwrap();
    let scale = Expr::build(|e| e.output((e.input(DType::F32) + e.param(DType::F32)).tanh()));
    b.add_elementwise("scale", scale.unwrap().into(), &[view(x)], &[Arg::Slot(by)], &[view(y)]);
    let reduce = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 };
    let total = View::contiguous(sum, DType::F32, &[]).unwrap();
    b.add_library("sum", reduce, &[view(y), total]);
    let graph = b.build().unwrap();
    let registry = Registry::new();
    for workers in [1, 2, 3] {
        let mut cpu = Cpu::new(workers).unwrap();
        let schedule = Schedule::sequential(&graph);
        let mut exec = cpu.instantiate(&graph, &schedule, &Bindings::new(&registry)).unwrap();
        cpu.replay(&mut exec).unwrap();
        let before = counting::allocations();
        for step in 0..50 {
            exec.set(by, step as f32).unwrap();
            cpu.replay(&mut exec).unwrap();
        }
        assert_eq!(counting::allocations() - before, 0, "{workers} workers");
        assert!(workers == 1 || exec.task_count() > 2, "nothing was split");
        println!("replays with {workers} workers allocate nothing");
    }
}
