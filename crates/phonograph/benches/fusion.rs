//! A chain of eight f32 operations over 1K to 64M elements: eight kernels, one fused kernel, one loop written by hand.
//!
//! `cargo bench -p phonograph --bench fusion`. One worker each. The competitors take turns, because the machine may be
//! shared; the table has the best and the median of each. The loop by hand is compiled for AVX2 where there is AVX2, as the
//! backend's loops are.

use std::hint::black_box;
use std::time::Instant;

use phonograph::graph::{ComputeGraph, DType, Expr, GraphBuilder, Value, View};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::fusion::{FusionOptions, fuse};
use phonograph::runtime::cpu::kernels::Registry;
use phonograph::runtime::cpu::{Bindings, Cpu, Exec};

/// One operation a kernel: eight, of which two read a second tensor, two the first one again.
fn chain(elements: u64) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let bytes = elements as usize * 4;
    let view = |buffer| View::contiguous(buffer, DType::F32, &[elements]).expect("a shape");
    let (x, y) = (view(b.external_buffer("x", bytes)), view(b.external_buffer("y", bytes)));
    let mut last = x;
    type Two = for<'e> fn(Value<'e>, Value<'e>) -> Value<'e>;
    let steps: [(Option<View>, f32, Two); 8] = [
        (None, 1.25, |a, c| a * c),
        (None, 0.5, |a, c| a + c),
        (Some(y), 0.0, |a, y| a * y),
        (None, -4.0, |a, c| a.max(c)),
        (Some(x), 0.0, |a, x| a - x),
        (None, 0.75, |a, c| a * c),
        (None, 4.0, |a, c| a.min(c)),
        (Some(y), 0.0, |a, y| a + y),
    ];
    let count = steps.len();
    for (at, (other, constant, op)) in steps.into_iter().enumerate() {
        let expr = Expr::build(|e| {
            let a = e.input(DType::F32);
            let second = match other {
                Some(_) => e.input(DType::F32),
                None => e.f32(constant),
            };
            e.output(op(a, second));
        });
        let to = match at + 1 == count {
            true => view(b.external_buffer("z", bytes)),
            false => view(b.alloc_buffer("t", bytes)),
        };
        let inputs: Vec<View> = [Some(last), other].into_iter().flatten().collect();
        b.add_elementwise("step", expr.expect("well typed").into(), &inputs, &[], &[to]);
        last = to;
    }
    b.build().expect("a chain")
}

#[inline(always)]
fn by_hand(x: &[f32], y: &[f32], z: &mut [f32]) {
    for ((z, &x), &y) in z.iter_mut().zip(x).zip(y) {
        let a = (x * 1.25 + 0.5) * y;
        let a = if a > -4.0 { a } else { -4.0 } - x;
        let a = a * 0.75;
        *z = if a < 4.0 { a } else { 4.0 } + y;
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_hand_avx2(x: &[f32], y: &[f32], z: &mut [f32]) {
    by_hand(x, y, z);
}

fn hand(x: &[f32], y: &[f32], z: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { by_hand_avx2(x, y, z) };
    }
    by_hand(x, y, z);
}

fn ready(cpu: &mut Cpu, graph: &ComputeGraph) -> Exec {
    let plan = ExecutionPlan::build(graph, 1).expect("a plan");
    let registry = Registry::new();
    let schedule = plan.schedule().expect("a plan of a graph");
    let exec = cpu.instantiate(graph, schedule, &Bindings::new(&registry)).expect("a right plan");
    for (at, buffer) in graph.buffers().iter().enumerate() {
        if &*buffer.name == "x" || &*buffer.name == "y" {
            let memory = exec.memory(phonograph::graph::BufferId::from_index(at));
            let memory = memory.expect("external").clone();
            for (i, v) in cpu.slice_mut::<f32>(&memory).expect("own").iter_mut().enumerate() {
                *v = ((i * 7 + at) % 1000) as f32 / 250.0 - 2.0;
            }
        }
    }
    exec
}

fn result<'c>(cpu: &'c Cpu, graph: &ComputeGraph, exec: &'c Exec) -> &'c [f32] {
    let at = graph.buffers().iter().position(|b| &*b.name == "z").expect("an output");
    let memory = exec.memory(phonograph::graph::BufferId::from_index(at)).expect("external");
    cpu.slice(memory).expect("own")
}

/// Best and median of a few, in nanoseconds.
fn figures(times: &mut [f64]) -> (f64, f64) {
    times.sort_unstable_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn main() {
    let test = std::env::args().any(|arg| arg == "--test");
    let most = if test { 12 } else { 26 };
    println!(
        "{:>9}  {:>22}  {:>22}  {:>22}  {:>12}  {:>12}",
        "elements", "by hand, best/median", "fused", "eight kernels", "fused/hand", "unfused/fused"
    );
    for log in (10..=most).step_by(2) {
        let elements = 1u64 << log;
        let graph = chain(elements);
        let fused = fuse(&graph, &FusionOptions::default()).expect("fusion of a chain").graph;
        assert_eq!(fused.node_count(), 1);
        let mut cpu = Cpu::new(1).expect("one worker");
        let mut one = ready(&mut cpu, &fused);
        let mut eight = ready(&mut cpu, &graph);
        let mut z = vec![0f32; elements as usize];
        let value = |i: usize, at: usize| ((i * 7 + at) % 1000) as f32 / 250.0 - 2.0;
        let x: Vec<f32> = (0..elements as usize).map(|i| value(i, 0)).collect();
        let y: Vec<f32> = (0..elements as usize).map(|i| value(i, 1)).collect();
        let repeat = ((1 << 20) >> log).max(1);
        let rounds = if test { 2 } else { (1 << 30 >> log).clamp(9, 101) };
        let mut times = [vec![], vec![], vec![]];
        for _ in 0..rounds {
            let mut timed = |which: usize, work: &mut dyn FnMut()| {
                let start = Instant::now();
                for _ in 0..repeat {
                    work();
                }
                times[which].push(start.elapsed().as_nanos() as f64 / repeat as f64);
            };
            timed(0, &mut || hand(black_box(&x), black_box(&y), black_box(&mut z)));
            timed(1, &mut || cpu.replay(&mut one).expect("nothing can fail"));
            timed(2, &mut || cpu.replay(&mut eight).expect("nothing can fail"));
        }
        assert!(result(&cpu, &fused, &one) == z, "fused differs from the loop by hand");
        assert!(result(&cpu, &graph, &eight) == z, "eight kernels differ from the loop by hand");
        let [hand, fused, unfused] = times.each_mut().map(|t| figures(t));
        let cell = |(best, median): (f64, f64)| format!("{:.2}/{:.2} µs", best / 1e3, median / 1e3);
        println!(
            "{elements:>9}  {:>22}  {:>22}  {:>22}  {:>5.2}/{:<5.2}   {:>5.2}/{:<5.2}",
            cell(hand),
            cell(fused),
            cell(unfused),
            fused.0 / hand.0,
            fused.1 / hand.1,
            unfused.0 / fused.0,
            unfused.1 / fused.1,
        );
    }
}
