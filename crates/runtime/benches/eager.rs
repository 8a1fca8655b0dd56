//! What an eager operation costs on a shared device, beside what it computes: four elements here.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use phonograph_graph::{
    Access, Arg, BufferId, DType, Expr, KernelConfig, KernelNode, KernelRef, NodeKind, View,
};
use phonograph_runtime::cpu::Cpu;
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{Backend, Device, DriverCpu, Operation, SoftwareCpu, Stream};

/// `x = x + 1`.
fn increment() -> NodeKind {
    let view = View::contiguous(BufferId(0), DType::F32, &[4]).expect("four elements");
    let expr = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0))).expect("a sum");
    NodeKind::Kernel(KernelNode {
        kernel: KernelRef::Elementwise(expr.into()),
        config: KernelConfig::linear(1, 1, 0),
        args: [Arg::View(view, Access::Read), Arg::View(view, Access::Write)].into(),
        fusible: true,
    })
}

fn measure<B: Backend>(c: &mut Criterion, mode: &str, device: Device<B>) {
    let stream: Stream<B> = device.stream();
    let buffer = || {
        let buffer = stream.alloc("x", 16).expect("16 bytes");
        stream.write(&buffer, &[0; 16]).expect("16 bytes");
        buffer
    };
    let x = buffer();
    let sync = || assert!(stream.sync().expect("nothing fails").is_done());
    let again = Operation::new("again", increment(), std::slice::from_ref(&x)).expect("it fits");
    let mut group = c.benchmark_group(mode);
    const BATCH: u64 = 64;
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("one operation, submitted again", |b| {
        b.iter(|| {
            for _ in 0..BATCH {
                stream.submit(&again).expect("a free stream");
            }
            sync();
        });
    });
    let kind = increment();
    group.bench_function("an operation made anew each time", |b| {
        b.iter(|| {
            for _ in 0..BATCH {
                let made = Operation::new("anew", kind.clone(), std::slice::from_ref(&x));
                stream.submit(&made.expect("it fits")).expect("a free stream");
            }
            sync();
        });
    });
    group.bench_function("an operation made, not submitted", |b| {
        b.iter(|| {
            for _ in 0..BATCH {
                black_box(Operation::new("made", kind.clone(), std::slice::from_ref(&x)).is_ok());
            }
        });
    });
    group.finish();
}

fn eager(c: &mut Criterion) {
    let cpu = || Cpu::new(1).expect("one worker");
    let streams = 4;
    let software = Device::new(SoftwareCpu::new(cpu(), Registry::new()), streams);
    measure(c, "software graphs", software.expect("four streams"));
    let driver = Device::new(DriverCpu::new(cpu(), Registry::new()), streams);
    measure(c, "behind a driver", driver.expect("four streams"));
}

criterion_group!(benches, eager);
criterion_main!(benches);
