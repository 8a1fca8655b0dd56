//! What it costs to ask whether anybody captures: the question that every launch on a shared device asks first.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, criterion_group, criterion_main};
use phonograph_runtime::capture::{DeviceCaptures, LogicalStreamId};

fn questions(c: &mut Criterion) {
    let [idle, one, shared] = [0, 1, 2].map(|windows| {
        let device = DeviceCaptures::default();
        let streams = (0..windows).map(|window| {
            let mut stream = device.stream();
            let owner = LogicalStreamId { value: 5 + 64 * window };
            stream.prepare(owner).and_then(|()| stream.begin()).expect("a fresh stream");
            stream
        });
        let streams: Vec<_> = streams.collect();
        (device.status(), streams)
    });
    let id = LogicalStreamId { value: 5 };
    let bare = AtomicU64::new(0);
    c.bench_function("an atomic load", |b| b.iter(|| black_box(&bare).load(Ordering::Acquire)));
    for (name, (status, _streams)) in
        [("idle", &idle), ("one window", &one), ("two owners in a word", &shared)]
    {
        let mut group = c.benchmark_group(name);
        group.bench_function("any_recording", |b| b.iter(|| black_box(status).any_recording()));
        group.bench_function("any_active", |b| b.iter(|| black_box(status).any_active()));
        group.bench_function("is_capturing", |b| {
            b.iter(|| black_box(status).is_capturing(black_box(id)))
        });
        group.finish();
    }
}

fn transitions(c: &mut Criterion) {
    let mut stream = DeviceCaptures::default().stream();
    let owner = LogicalStreamId { value: 5 };
    c.bench_function("prepare, begin, end", |b| {
        b.iter(|| {
            stream.prepare(owner).and_then(|()| stream.begin()).expect("the window is closed");
            stream.end(owner)
        });
    });
}

criterion_group!(benches, questions, transitions);
criterion_main!(benches);
