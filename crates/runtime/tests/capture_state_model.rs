//! Every interleaving of two streams and a reader, by a model checker. This includes the state machine's own source, with
//! loom's primitives in place of the standard library's.

#[path = "../src/capture/state.rs"]
mod state;

/// What `state.rs` imports.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex};
}

use loom::cell::UnsafeCell;
use loom::thread;
use phonograph_runtime::capture::{
    CaptureEnd, CaptureError, LifecycleCall, LogicalStreamId, Window,
};
use state::{CaptureStatus, DeviceCaptures, StreamCaptureState};

/// In the same word of the record as [`TWIN`].
const OWNER: LogicalStreamId = LogicalStreamId { value: 1 };
const TWIN: LogicalStreamId = LogicalStreamId { value: 65 };
const NOBODY: LogicalStreamId = LogicalStreamId { value: 129 };

/// A whole life of a window, which checks what its own thread must see of it.
fn live(mut stream: StreamCaptureState, owner: LogicalStreamId) {
    let status = stream.device();
    stream.preparing(owner).unwrap().keep();
    assert!(status.is_capturing(owner) && status.any_active());
    stream.beginning(owner).unwrap().keep();
    assert!(status.is_capturing(owner) && status.any_recording() && status.any_active());
    assert_eq!(stream.end(owner).unwrap(), CaptureEnd::Owned { owner });
}

fn quiet(status: &CaptureStatus) -> bool {
    !status.any_active()
        && !status.any_recording()
        && ![OWNER, TWIN].iter().any(|&id| status.is_capturing(id))
}

/// Two windows whose owners share a word of the record; the main thread looks on.
#[test]
fn two_windows_and_a_reader() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let device = DeviceCaptures::default();
        let status = device.status();
        let threads = [OWNER, TWIN].map(|owner| {
            let stream = device.stream();
            thread::spawn(move || live(stream, owner))
        });
        if status.any_recording() {
            // Some window has been opened, so not all that follows can be read from before.
            assert!(!status.is_capturing(NOBODY));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(quiet(&status));
    });
}

/// One owner on two streams: the end of one window does not hide the other.
#[test]
fn one_owner_on_two_streams() {
    loom::model(|| {
        let device = DeviceCaptures::default();
        let status = device.status();
        let mut kept = device.stream();
        kept.prepare(OWNER).unwrap();
        let other = device.stream();
        let thread = thread::spawn(move || live(other, OWNER));
        assert!(status.is_capturing(OWNER) && status.any_active());
        thread.join().unwrap();
        assert!(status.is_capturing(OWNER) && !status.any_recording());
        drop(kept);
        assert!(quiet(&status));
    });
}

/// Pages are taken from the pool by a recording, and given back by a neighbour unless one records: never both at once.
#[test]
fn nothing_is_released_beside_a_recording() {
    loom::model(|| {
        let device = DeviceCaptures::default();
        let status = device.status();
        let pages = loom::sync::Arc::new(UnsafeCell::new(0u32));
        let mut stream = device.stream();
        let used = pages.clone();
        let thread = thread::spawn(move || {
            stream.prepare(OWNER).unwrap();
            stream.begin_as(OWNER).unwrap();
            used.with_mut(|p| {
                // SAFETY: loom checks that no other access is unordered with this one.
                unsafe { *p += 1 }
            });
            stream.end(OWNER).unwrap();
        });
        status.unless_recording(|| {
            pages.with_mut(|p| {
                // SAFETY: as above.
                unsafe { *p += 1 }
            });
        });
        thread.join().unwrap();
    });
}

/// The rest of the state machine, under the same primitives.
#[test]
fn refusals_leave_the_record() {
    loom::model(|| {
        let device = DeviceCaptures::default();
        let status = device.status();
        let mut stream = device.stream();
        assert_eq!(stream.begin(), Err(CaptureError::NotPrepared));
        stream.prepare(OWNER).unwrap();
        let phase = Window::Preparing;
        let busy = CaptureError::Busy { owner: OWNER, caller: TWIN, phase };
        assert_eq!(stream.prepare(TWIN), Err(busy));
        let call = LifecycleCall::Abort;
        let foreign = CaptureError::NotOwner { call, owner: OWNER, caller: TWIN };
        assert_eq!(stream.abort_as(TWIN), Err(foreign));
        assert!(stream.is_preparing() && !stream.is_recording() && stream.is_active());
        assert_eq!(stream.owner(), Some(OWNER));
        assert!(status.is_capturing(OWNER) && !status.is_capturing(TWIN));
        drop(stream.beginning(OWNER).unwrap());
        assert!(quiet(&status));
        stream.prepare(OWNER).unwrap();
        stream.abort();
        assert!(quiet(&status));
    });
}
