//! A replay allocates nothing. Alone in its process, without the harness, whose threads allocate when they like: the
//! allocator counts for all threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use phonograph_graph::{Arg, DType, Expr, GraphBuilder, LibraryKernel, ReduceOp, Schedule, View};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::cpu::{Bindings, Cpu};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

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
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for step in 0..50 {
            exec.set(by, step as f32).unwrap();
            cpu.replay(&mut exec).unwrap();
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{workers} workers");
        assert!(workers == 1 || exec.task_count() > 2, "nothing was split");
        println!("replays with {workers} workers allocate nothing");
    }
}
