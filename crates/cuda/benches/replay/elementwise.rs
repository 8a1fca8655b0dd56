//! Eight operations on every element: in one generated kernel, in one by hand, and in a kernel each.

use phonograph_cuda::{Bindings, Cuda, Exec, Stream};
use phonograph_graph::{
    Access, Arg, ComputeGraph, DType, Expr, ExprBuilder, GraphBuilder, Schedule, Value, View,
};

use crate::{Outcome, median, micros};

const BY_HAND: &str = r#"
__device__ float f(float x) {
    x = x * 1.01f; x = x + 0.5f; x = x < -3.0f ? -3.0f : x; x = x * x;
    x = x - 0.25f; x = fabsf(x); x = x * 0.5f; return x + 1.0f;
}
extern "C" __global__ void __launch_bounds__(256) by_hand(const float4 *x, float4 *y) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    const float4 v = x[i];
    y[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
}"#;

type Step = for<'e> fn(&'e ExprBuilder, Value<'e>) -> Value<'e>;

const STEPS: [Step; 8] = [
    |e, x| x * e.f32(1.01),
    |e, x| x + e.f32(0.5),
    |e, x| x.max(e.f32(-3.0)),
    |_, x| x * x,
    |e, x| x - e.f32(0.25),
    |_, x| x.abs(),
    |e, x| x * e.f32(0.5),
    |e, x| x + e.f32(1.0),
];

pub fn table(cuda: &mut Cuda) -> Outcome {
    let by_hand = cuda.compile(BY_HAND, "by_hand")?;
    let stream = Stream::new(&cuda.devices()[0].clone())?;
    println!(
        "{:<22} {:>10} {:>10} {:>10} {:>12} {:>14}",
        "eight operations, µs", "ours", "by hand", "unfused", "ours/by hand", "unfused/ours"
    );
    for (name, elements, repeats) in [("1M", 1u64 << 20, 50), ("64M", 64 << 20, 5)] {
        // SAFETY: launched with a thread for every four elements of two operands.
        let bindings = unsafe { Bindings::new().kernel("by_hand", &by_hand) };
        let graphs =
            [fused(elements, repeats)?, hand(elements, repeats)?, unfused(elements, repeats)?];
        let mut execs = Vec::new();
        for graph in &graphs {
            execs.push(cuda.instantiate(graph, &Schedule::sequential(graph), &bindings)?);
        }
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..30 {
            for (exec, times) in execs.iter_mut().zip(&mut times) {
                let mut run = |exec: &mut Exec| -> Outcome {
                    cuda.launch(exec, &stream)?;
                    Ok(stream.synchronize()?)
                };
                times.push(micros(|| run(exec))? / repeats as f64);
            }
        }
        let [ours, hand, unfused] = times.map(median);
        println!(
            "{name:<22} {ours:>10.2} {hand:>10.2} {unfused:>10.2} {:>12.3} {:>14.2}",
            ours / hand,
            unfused / ours
        );
    }
    Ok(())
}

type Built = Result<ComputeGraph, Box<dyn std::error::Error>>;

/// A tensor to read and one to write.
fn operands(b: &mut GraphBuilder, elements: u64) -> Result<[View; 2], Box<dyn std::error::Error>> {
    let mut view = |name| {
        let buffer = b.external_buffer(name, 4 * elements as usize);
        View::contiguous(buffer, DType::F32, &[elements])
    };
    Ok([view("x")?, view("y")?])
}

fn fused(elements: u64, repeats: usize) -> Built {
    let mut b = GraphBuilder::new();
    let [x, y] = operands(&mut b, elements)?;
    let all = Expr::build(|e| {
        e.output(STEPS.iter().fold(e.input(DType::F32), |value, step| step(e, value)));
    })?;
    let all = std::sync::Arc::new(all);
    for _ in 0..repeats {
        b.add_elementwise("all", all.clone(), &[x], &[], &[y]);
    }
    Ok(b.build()?)
}

fn hand(elements: u64, repeats: usize) -> Built {
    let mut b = GraphBuilder::new();
    let [x, y] = operands(&mut b, elements)?;
    for _ in 0..repeats {
        let kernel = b.add_kernel("by_hand", (elements / 1024) as u32, 256, 0);
        kernel.arg(Arg::View(x, Access::Read)).arg(Arg::View(y, Access::Write)).finish();
    }
    Ok(b.build()?)
}

fn unfused(elements: u64, repeats: usize) -> Built {
    let mut b = GraphBuilder::new();
    let [x, y] = operands(&mut b, elements)?;
    let between = b.external_buffer("between", 4 * elements as usize);
    let between = View::contiguous(between, DType::F32, &[elements])?;
    let exprs = STEPS.map(|step| Expr::build(|e| e.output(step(e, e.input(DType::F32)))));
    let exprs = exprs.into_iter().collect::<Result<Vec<_>, _>>()?;
    let exprs: Vec<_> = exprs.into_iter().map(std::sync::Arc::new).collect();
    for _ in 0..repeats {
        for (at, expr) in exprs.iter().enumerate() {
            let from = if at == 0 {
                x
            } else if at % 2 == 1 {
                between
            } else {
                y
            };
            let to = if at % 2 == 0 { between } else { y };
            b.add_elementwise("one", expr.clone(), &[from], &[], &[to]);
        }
    }
    Ok(b.build()?)
}
