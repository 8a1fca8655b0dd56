//! Waiting for a device that others go on using.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use phonograph_runtime::streams::Waiting;

use crate::modes::late;
use crate::work::{failing, filled, id, plus, value};

/// The device is free while somebody waits: if it were not, the others would wait for who waits for them.
#[test]
fn others_submit_while_somebody_waits() {
    let (device, trace) = late();
    let (one, two) = (device.stream_of(id(1)), device.stream_of(id(2)));
    let (x, y) = (filled(&one, "x", 1.0), filled(&two, "y", 1.0));
    let (waits, waiting) = mpsc::channel();
    let (done, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    trace.lock().unwrap().wait = Some(Arc::new(move || {
        waits.send(()).expect("somebody listens");
        let done = wait.lock().unwrap().recv();
        assert!(done.is_err(), "it is over when the other end is gone");
    }));
    one.submit(&plus("x", &x, &x, 1.0)).unwrap();
    thread::scope(|scope| {
        let waited = scope.spawn(|| one.sync_while(Waiting::Asleep));
        waiting.recv().unwrap();
        trace.lock().unwrap().wait = None;
        // On the stream that is waited for, too.
        one.submit(&plus("x", &x, &x, 10.0)).unwrap();
        let op = failing(&two, "late", &y);
        two.submit(&op).unwrap();
        assert!(two.sync().is_err());
        drop(done);
        assert!(waited.join().unwrap().unwrap().is_done(), "the failure is not its own");
    });
    assert_eq!(value(&one, &x), 12.0);
    assert!(two.read(&y).is_err());
}

/// What came after the wait began is not told with it, and not lost.
#[test]
fn a_wait_tells_what_was_before_it_and_leaves_what_comes_after() {
    let (device, trace) = late();
    let stream = device.stream_of(id(1));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 1.0));
    let (fails, after) = (failing(&stream, "first", &x), failing(&stream, "second", &y));
    stream.submit(&fails).unwrap();
    let (theirs, late) = (device.stream_of(id(1)), std::sync::Mutex::new(Some(after)));
    trace.lock().unwrap().wait = Some(Arc::new(move || {
        if let Some(op) = late.lock().unwrap().take() {
            theirs.submit(&op).unwrap();
        }
    }));
    let first = stream.sync().unwrap_err().to_string();
    assert!(stream.read(&x).is_err());
    trace.lock().unwrap().wait = None;
    let second = stream.sync().unwrap_err().to_string();
    assert!(stream.read(&y).is_err());
    assert!(!first.contains("several") && !second.contains("several"), "{first}\n{second}");
}
