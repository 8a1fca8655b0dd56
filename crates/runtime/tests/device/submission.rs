//! Eager work and replays: logical streams, the order of submission, what is refused at once.

use std::thread;

use phonograph_graph::NodeKind;
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::{Backend, Buffer, Device, Operation, Step, Stream};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{OWNER, bytes, capture, filled, id, plus, value};

in_every_mode!(
    logical_streams_fold_by_their_value,
    work_of_several_streams_on_one_buffer_runs_in_the_order_of_submission,
    replays_from_several_threads_are_all_executed,
    wrong_operations_are_refused_before_anything_runs,
);

fn logical_streams_fold_by_their_value<B: Backend>(device: Device<B>, _: Shared) {
    for (value, pooled) in [(0, 0), (1, 1), (5, 1), (u64::MAX, 3)] {
        assert_eq!(device.stream_of(id(value)).pooled().0, pooled);
    }
    let here = device.stream().id();
    assert_eq!(device.stream().id(), here);
    let other = device.clone();
    assert_ne!(thread::spawn(move || other.stream().id()).join().unwrap(), here);
    let pinned = device.stream_of(here);
    assert_eq!(thread::spawn(move || pinned.id()).join().unwrap(), here);
}

fn work_of_several_streams_on_one_buffer_runs_in_the_order_of_submission<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let streams = [0, 1, 2, 3, 4].map(|value| device.stream_of(id(value)));
    let x = filled(&streams[0], "x", 1.0);
    let double = |_: &Stream<B>| plus("x", &x, &x, 1.0);
    for round in 0..40 {
        let stream = &streams[round * 7 % 5];
        if round % 10 == 9 {
            stream.write(&x, &bytes(0.0)).unwrap();
        } else {
            stream.submit(&double(stream)).unwrap();
        }
    }
    assert_eq!(value(&streams[2], &x), 0.0);
    // A slice that is dropped with work queued on another stream is not written by whoever gets it next.
    let y = filled(&streams[0], "y", 1.0);
    streams[1].submit(&plus("late", &x, &y, 7.0)).unwrap();
    let slice = y.slice();
    drop(y);
    streams[1].sync().map(|synced| assert!(synced.is_done())).unwrap();
    let z = filled(&streams[0], "z", 2.0);
    assert_eq!(z.slice(), slice);
    assert_eq!(value(&streams[0], &z), 2.0);
}

fn replays_from_several_threads_are_all_executed<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let x = filled(&stream, "x", 0.0);
    let graph = capture(&stream, |s| s.submit(&plus("x", &x, &x, 1.0))).unwrap();
    stream.write(&x, &bytes(0.0)).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream();
                for _ in 0..10 {
                    stream.launch(&graph).unwrap();
                }
                stream.sync().map(|synced| assert!(synced.is_done())).unwrap();
            });
        }
    });
    assert_eq!(value(&stream, &x), 40.0);
}

fn wrong_operations_are_refused_before_anything_runs<B: Backend>(device: Device<B>, trace: Shared) {
    let stream = device.stream_of(id(OWNER));
    let x = stream.alloc("x", 8).unwrap();
    let problem = |kind, buffers: &[Buffer]| {
        let error = Operation::new("op", kind, buffers).unwrap_err();
        assert!(matches!(error, CaptureError::Operation { .. }), "{error}");
        error.to_string()
    };
    let short = {
        let whole = stream.alloc("whole", 16).unwrap();
        plus("op", &whole, &whole, 1.0).kind().clone()
    };
    let outside = problem(short.clone(), std::slice::from_ref(&x));
    assert!(outside.contains("(x), which has 8"), "{outside}");
    assert!(problem(short, &[]).contains("not given"));
    assert!(problem(NodeKind::Alloc(phonograph_graph::BufferId(0)), &[]).contains("allocates"));
    assert!(matches!(stream.alloc("huge", u64::MAX), Err(CaptureError::TooLarge { .. })));
    assert!(matches!(stream.write(&x, &[0]), Err(CaptureError::Size { given: 1, .. })));
    let (foreign, _) = crate::modes::another();
    let theirs = foreign.stream_of(id(OWNER)).alloc("theirs", 16).unwrap();
    assert!(matches!(stream.read(&theirs), Err(CaptureError::OtherDevice { .. })));
    let op = plus("op", &theirs, &theirs, 1.0);
    assert!(matches!(stream.submit(&op), Err(CaptureError::OtherDevice { .. })));
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Run), None);
}
