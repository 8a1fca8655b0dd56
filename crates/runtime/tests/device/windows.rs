//! Windows: who closes them, what a guard does, who may begin and abort, destroyed and replayed graphs. BEHAVIOURS D 1,
//! 3–5, 13 and 14.

use std::panic::{AssertUnwindSafe, catch_unwind};

use phonograph_runtime::capture::{CaptureError, Window};
use phonograph_runtime::streams::{Backend, Device, Step, Stream};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{NEIGHBOUR, OWNER, bytes, capture, filled, id, plus, recording, value};

in_every_mode!(
    d01_a_window_that_fails_to_open_is_aborted_and_the_stream_serves,
    d01_a_seal_that_fails_leaves_a_stream_that_serves,
    d04_an_abandoned_capture_tells_who_owned_it_and_what_had_doomed_it,
    d05_abort_closes_either_phase_and_the_stream_is_prepared_again,
    d03_a_neighbours_end_discards_and_a_late_owner_finds_nothing,
    d13_the_window_guard_ends_it_on_error_and_panic,
    d14_a_neighbour_can_neither_begin_nor_abort,
);

fn d03_a_neighbours_end_discards_and_a_late_owner_finds_nothing<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let (owner, x, y) = recording(&device);
    let neighbour = device.stream_of(id(NEIGHBOUR));
    let error = neighbour.end("stolen").unwrap_err();
    let CaptureError::Several { errors, .. } = &error else { panic!("{error}") };
    assert_eq!(errors[..], [CaptureError::Abandoned { owner: id(OWNER), caller: id(NEIGHBOUR) }]);
    assert!(trace.lock().unwrap().recordings.is_empty());
    let late = owner.end("late").unwrap_err();
    assert_eq!(late, CaptureError::NotRecording { caller: id(OWNER) });
    assert!(matches!(owner.read(&y), Err(CaptureError::Tainted { .. })));
    // The slot serves both again.
    neighbour.submit(&plus("y", &x, &y, 5.0)).unwrap();
    assert_eq!(value(&owner, &y), 6.0);
    let window = neighbour.prepare().unwrap();
    window.begin().unwrap();
    let error = owner.end("later still").unwrap_err();
    assert!(matches!(error, CaptureError::Several { .. }), "{error}");
    assert!(!device.status().any_active());
}

fn d13_the_window_guard_ends_it_on_error_and_panic<B: Backend>(device: Device<B>, trace: Shared) {
    let stream = device.stream_of(id(OWNER));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 1.0));
    let small = device.stream_of(id(2)).alloc("small", 1).unwrap();
    for records in [false, true] {
        for panics in [false, true] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let window = stream.prepare()?;
                if records {
                    window.begin()?;
                    stream.submit(&plus("y", &x, &y, 1.0))?;
                }
                assert!(!panics, "as asked");
                stream.write(&small, &[1, 2])?;
                window.end("graph")
            }));
            match outcome {
                Ok(result) => {
                    let error = result.unwrap_err();
                    assert!(matches!(error, CaptureError::Size { .. }), "{error}");
                }
                Err(_) => assert!(panics),
            }
            assert!(!device.status().any_active());
            assert!(trace.lock().unwrap().recordings.is_empty());
            assert_eq!(stream.read(&y).is_err(), records, "what was recorded was never written");
            stream.submit(&plus("y", &x, &y, 2.0)).unwrap();
            assert_eq!(value(&stream, &y), 3.0);
        }
    }
    // The guard of a window that somebody else has closed does not close the next one.
    let late = stream.prepare().unwrap();
    late.begin().unwrap();
    device.stream_of(id(NEIGHBOUR)).end("stolen").unwrap_err();
    let next = stream.prepare().unwrap();
    drop(late);
    assert!(device.status().is_capturing(id(OWNER)));
    drop(next);
    assert!(!device.status().is_capturing(id(OWNER)));
}

fn d14_a_neighbour_can_neither_begin_nor_abort<B: Backend>(device: Device<B>, trace: Shared) {
    let (owner, neighbour) = (device.stream_of(id(OWNER)), device.stream_of(id(NEIGHBOUR)));
    let window = owner.prepare().unwrap();
    assert!(matches!(neighbour.begin(), Err(CaptureError::NotOwner { .. })));
    assert!(matches!(neighbour.abort(), Err(CaptureError::NotOwner { .. })));
    let phase = Window::Preparing;
    let busy = CaptureError::Busy { owner: id(OWNER), caller: id(NEIGHBOUR), phase };
    assert_eq!(neighbour.prepare().err(), Some(busy));
    assert_eq!(
        trace.lock().unwrap().calls.get(&Step::Begin),
        None,
        "none of it reached the device"
    );
    window.begin().unwrap();
    assert!(matches!(neighbour.abort(), Err(CaptureError::NotOwner { .. })));
    window.end("empty").unwrap();
}

/// Lets the next call of a step fail.
fn fail_next(trace: &Shared, step: Step) {
    let mut trace = trace.lock().unwrap();
    let time = trace.calls.get(&step).copied().unwrap_or_default();
    trace.fail = Some((step, time));
}

/// The stream captures and replays.
fn serves<B: Backend>(stream: &Stream<B>) {
    let (x, y) = (filled(stream, "x", 1.0), filled(stream, "y", 0.0));
    let graph = capture(stream, |s| s.submit(&plus("y", &x, &y, 1.0))).unwrap();
    stream.write(&x, &bytes(6.0)).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(value(stream, &y), 7.0);
}

fn d01_a_window_that_fails_to_open_is_aborted_and_the_stream_serves<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    for step in [Step::Fence, Step::Begin] {
        let window = stream.prepare().unwrap();
        fail_next(&trace, step);
        let failed = window.begin().unwrap_err();
        assert!(matches!(&failed, CaptureError::Backend(e) if e.step == step), "{failed}");
        assert!(!device.status().any_active() && trace.lock().unwrap().recordings.is_empty());
        assert_eq!(window.begin().unwrap_err(), CaptureError::NotPrepared);
        serves(&stream);
    }
}

fn d01_a_seal_that_fails_leaves_a_stream_that_serves<B: Backend>(device: Device<B>, trace: Shared) {
    for step in [Step::End, Step::Instantiate, Step::Upload] {
        let (owner, _, y) = recording(&device);
        fail_next(&trace, step);
        let failed = owner.end("graph").unwrap_err();
        assert!(matches!(&failed, CaptureError::Backend(e) if e.step == step), "{failed}");
        assert!(!device.status().any_active() && trace.lock().unwrap().recordings.is_empty());
        assert_eq!(trace.lock().unwrap().execs, 0);
        assert!(matches!(owner.read(&y), Err(CaptureError::Tainted { .. })));
        serves(&owner);
        assert!(owner.sync().unwrap().is_done()); // and takes the graph of that back
    }
}

fn d04_an_abandoned_capture_tells_who_owned_it_and_what_had_doomed_it<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let (owner, x, _) = recording(&device);
    let cause = owner.write(&x, &bytes(2.0)).unwrap_err();
    let error = device.stream_of(id(NEIGHBOUR)).end("stolen").unwrap_err();
    let CaptureError::Several { errors } = &error else { panic!("{error}") };
    let doomed =
        CaptureError::Doomed { owner: id(OWNER), cause: Box::new(cause), unowned: Vec::new() };
    let abandoned = CaptureError::Abandoned { owner: id(OWNER), caller: id(NEIGHBOUR) };
    assert_eq!(errors[..], [abandoned, doomed]);
    for told in [format!("{:?}", id(OWNER)), format!("{:?}", id(NEIGHBOUR)), "write of x".into()] {
        assert!(error.to_string().contains(&told), "{error}");
    }
}

fn d05_abort_closes_either_phase_and_the_stream_is_prepared_again<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    stream.abort().unwrap(); // nothing is open
    std::mem::forget(stream.prepare().unwrap());
    stream.abort().unwrap();
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Begin), None);
    let (owner, _, y) = recording(&device);
    owner.abort().unwrap();
    assert!(!device.status().any_active() && trace.lock().unwrap().recordings.is_empty());
    let error = owner.read(&y).unwrap_err();
    let aborted = CaptureError::Aborted { owner: id(OWNER) };
    assert!(matches!(&error, CaptureError::Tainted { cause, .. } if **cause == aborted), "{error}");
    serves(&owner);
}
