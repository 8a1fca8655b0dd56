//! Taint: what was refused or failed cannot be read until it is written anew. BEHAVIOURS D 10 and 16.

use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::{Backend, Device, Step};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{OWNER, bytes, failing, filled, id, plus, recording, value};

in_every_mode!(
    d10_what_a_doomed_capture_would_have_written_is_tainted_until_rewritten,
    d10_what_a_failed_operation_would_have_written_is_tainted,
    d16_replay_refuses_tainted_inputs,
);

fn d10_what_a_doomed_capture_would_have_written_is_tainted_until_rewritten<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let (owner, x, y) = recording(&device);
    let z = device.stream_of(id(2)).alloc("z", 16).unwrap();
    owner.write(&z, &bytes(1.0)).unwrap_err();
    owner.end("graph").unwrap_err();
    for (buffer, tainted) in [(&x, false), (&y, true), (&z, true)] {
        let read = owner.read(buffer);
        assert_eq!(matches!(read, Err(CaptureError::Tainted { .. })), tainted, "{buffer:?}");
    }
    // A tainted input taints what is made of it; a whole write clears.
    let w = filled(&owner, "w", 0.0);
    let error = owner.submit(&plus("w", &y, &w, 1.0)).unwrap_err();
    assert!(matches!(&error, CaptureError::Tainted { buffer, .. } if buffer == "y"), "{error}");
    let error = owner.read(&w).unwrap_err();
    assert!(error.to_string().contains("write of z"), "the first cause is told: {error}");
    owner.submit(&plus("y", &x, &y, 1.0)).unwrap();
    owner.submit(&plus("w", &y, &w, 1.0)).unwrap();
    owner.write(&z, &bytes(9.0)).unwrap();
    assert_eq!([value(&owner, &y), value(&owner, &w), value(&owner, &z)], [2.0, 3.0, 9.0]);
    assert_eq!(device.report().tainted, 0);
}

fn d10_what_a_failed_operation_would_have_written_is_tainted<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 1.0));
    let broken = failing(&stream, "broken", &x);
    stream.submit(&broken).unwrap();
    stream.submit(&plus("y", &x, &y, 1.0)).unwrap();
    let CaptureError::Several { errors } = stream.sync().unwrap_err() else { panic!() };
    assert!(matches!(&errors[..], [CaptureError::Backend(_), CaptureError::Tainted { .. }]));
    assert!(stream.read(&x).is_err() && stream.read(&y).is_err());
    // Also by a replay that fails.
    stream.write(&x, &bytes(1.0)).unwrap();
    stream.write(&y, &bytes(1.0)).unwrap();
    let window = stream.prepare().unwrap();
    window.begin().unwrap();
    stream.submit(&broken).unwrap();
    let graph = window.end("graph").unwrap();
    assert_eq!(value(&stream, &x), 1.0);
    stream.launch(&graph).unwrap();
    assert!(stream.sync().is_err());
    assert!(stream.read(&x).is_err());
    assert_eq!(value(&stream, &y), 1.0);
}

fn d16_replay_refuses_tainted_inputs<B: Backend>(device: Device<B>, trace: Shared) {
    let (owner, x, y) = recording(&device);
    let graph = owner.end("graph").unwrap();
    // Taint x, by a capture that would have written it.
    let window = owner.prepare().unwrap();
    window.begin().unwrap();
    owner.submit(&plus("x", &y, &x, 1.0)).unwrap();
    drop(window);
    let error = owner.launch(&graph).unwrap_err();
    assert!(matches!(&error, CaptureError::Tainted { buffer, .. } if buffer == "x"), "{error}");
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Launch), None);
    assert!(owner.read(&y).is_err(), "what it would have written is tainted");
    owner.write(&x, &bytes(4.0)).unwrap();
    owner.launch(&graph).unwrap();
    assert_eq!(value(&owner, &y), 5.0);
    // A tainted input stays one when its handle is gone.
    let window = owner.prepare().unwrap();
    window.begin().unwrap();
    owner.submit(&plus("x", &y, &x, 1.0)).unwrap();
    drop((window, x));
    assert!(owner.launch(&graph).is_err());
    drop(graph);
    owner.write(&y, &bytes(0.0)).unwrap();
    assert_eq!(device.report().tainted, 0, "and is forgotten with the graph");
}
