//! Calls a second through the model, on a long fork-join program.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use phonograph_capture::model::Model;
use phonograph_trace::{Call, EventId, Function, Mode, Stream, StreamId, StreamKind};

/// Three side streams, forked and joined `rounds` times with four kernels on each, in captures of a hundred rounds.
fn program(rounds: u32) -> Vec<Call> {
    let stream = |id| Stream::Created(StreamId(id));
    let event =
        |function, on, id| Call { event: Some(EventId(id)), ..Call::on(function, stream(on)) };
    let mut calls = Vec::new();
    for round in 0..rounds {
        if round % 100 == 0 {
            calls.push(Call {
                mode: Some(Mode::Global),
                ..Call::on(Function::StreamBeginCapture, stream(0))
            });
        }
        calls.push(Call::on(Function::LaunchKernel, stream(0)));
        calls.push(event(Function::EventRecord, 0, 0));
        for side in 1..4 {
            calls.push(event(Function::StreamWaitEvent, side, 0));
            calls.extend((0..4).map(|_| Call::on(Function::LaunchKernel, stream(side))));
            calls.push(event(Function::EventRecord, side, side));
            calls.push(event(Function::StreamWaitEvent, 0, side));
        }
        calls.push(Call::on(Function::LaunchKernel, stream(0)));
        if round % 100 == 99 {
            calls.push(Call::on(Function::StreamEndCapture, stream(0)));
        }
    }
    calls
}

fn fork_join(criterion: &mut Criterion) {
    let calls = program(10_000);
    let mut group = criterion.benchmark_group("model");
    group.sample_size(20);
    group.throughput(Throughput::Elements(calls.len() as u64));
    group.bench_function("fork_join", |bencher| {
        bencher.iter_batched(
            || Model::new(&[StreamKind::NonBlocking; 4], 4),
            |mut model| {
                for call in &calls {
                    let outcome = model.apply(call).expect("every call has its operands");
                    assert!(outcome.result.is_success());
                }
                model.calls()
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, fork_join);
criterion_main!(benches);
