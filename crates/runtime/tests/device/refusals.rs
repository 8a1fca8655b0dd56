//! What is refused or put off while a stream records, and to whom. BEHAVIOURS D 8, 9 and 15.

use phonograph_runtime::capture::{CaptureError, Request};
use phonograph_runtime::streams::{Backend, Device, Step, Synced};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{NEIGHBOUR, OWNER, bytes, capture, failing, filled, id, plus, recording, value};

in_every_mode!(
    d08_the_owners_read_and_profile_are_refused_and_the_capture_lives,
    d08_a_write_in_the_window_dooms_and_the_first_cause_is_named,
    d08_destructors_in_the_window_wait_for_its_end,
    d09_a_neighbour_on_the_slot_is_refused_and_told_and_taints_its_destinations,
    d09_a_neighbours_failure_does_not_doom,
    d09_a_failure_in_the_window_belongs_to_the_capture,
    d15_a_neighbours_launch_is_never_recorded,
);

fn d08_the_owners_read_and_profile_are_refused_and_the_capture_lives<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let (owner, x, y) = recording(&device);
    let refused = |request| CaptureError::InWindow { request, owner: id(OWNER) };
    assert_eq!(owner.read(&x).unwrap_err(), refused(Request::Read("x".into())));
    let op = plus("timed", &x, &y, 1.0);
    assert_eq!(owner.profile(&op).unwrap_err(), refused(Request::Profile("timed".into())));
    let hardware = owner.sync() == Ok(Synced::Deferred);
    let fences = |trace: &Shared| trace.lock().unwrap().calls[&Step::Fence];
    let before = fences(&trace);
    if !hardware {
        assert_eq!(owner.sync().unwrap_err(), refused(Request::Sync));
    }
    let graph = owner.end("graph").unwrap();
    assert_eq!(fences(&trace) - before, u64::from(hardware), "a deferred fence comes at the end");
    owner.write(&x, &bytes(7.0)).unwrap();
    owner.launch(&graph).unwrap();
    assert_eq!(value(&owner, &y), 8.0);
    assert!(owner.profile(&op).unwrap().as_nanos() > 0);
}

fn d08_a_write_in_the_window_dooms_and_the_first_cause_is_named<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let (owner, x, y) = recording(&device);
    let graph = {
        let other = device.stream_of(id(2));
        let z = filled(&other, "z", 0.0);
        capture(&other, |s| s.submit(&plus("z", &z, &z, 1.0))).unwrap()
    };
    let first = owner.write(&x, &bytes(3.0)).unwrap_err();
    let request = Request::Write("x".into());
    assert_eq!(first, CaptureError::Unrecordable { request, owner: id(OWNER) });
    assert!(matches!(owner.launch(&graph), Err(CaptureError::Unrecordable { .. })));
    owner.submit(&plus("more", &x, &y, 1.0)).unwrap();
    let error = owner.end("graph").unwrap_err();
    let cause = Box::new(first);
    assert_eq!(error, CaptureError::Doomed { owner: id(OWNER), cause, unowned: Vec::new() });
    assert!(trace.lock().unwrap().recordings.is_empty(), "closed all the same");
    assert!(!device.status().any_active());
    owner.write(&x, &bytes(3.0)).unwrap();
    capture(&owner, |s| s.submit(&plus("again", &x, &y, 1.0))).unwrap();
}

fn d08_destructors_in_the_window_wait_for_its_end<B: Backend>(device: Device<B>, trace: Shared) {
    let stream = device.stream_of(id(2));
    let z = filled(&stream, "z", 0.0);
    let graph = capture(&stream, |s| s.submit(&plus("z", &z, &z, 1.0))).unwrap();
    let (owner, x, _) = recording(&device);
    drop(graph);
    drop(x);
    stream.sync().map(|synced| assert!(synced.is_done())).unwrap();
    assert_eq!(trace.lock().unwrap().execs, 1, "while a stream records, nothing is destroyed");
    let held = device.report().classes;
    let recorded = owner.end("graph").unwrap();
    assert_eq!(trace.lock().unwrap().execs, 1, "the old one is gone, the new one is there");
    assert_eq!(held.len(), device.report().classes.len());
    drop(recorded);
    stream.sync().map(|synced| assert!(synced.is_done())).unwrap();
    assert_eq!(trace.lock().unwrap().execs, 0);
}

fn d09_a_neighbour_on_the_slot_is_refused_and_told_and_taints_its_destinations<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let neighbour = device.stream_of(id(NEIGHBOUR));
    let (a, b) = (filled(&neighbour, "a", 1.0), filled(&neighbour, "b", 1.0));
    let (owner, x, y) = recording(&device);
    let refused =
        |request| CaptureError::Neighbour { request, owner: id(OWNER), caller: id(NEIGHBOUR) };
    let op = plus("neighbour's", &a, &b, 1.0);
    let told = neighbour.submit(&op).unwrap_err();
    assert_eq!(told, refused(Request::Submit("neighbour's".into())));
    assert!(told.to_string().contains(&format!("{:?}", id(OWNER))));
    assert!(told.to_string().contains(&format!("{:?}", id(NEIGHBOUR))));
    assert_eq!(neighbour.write(&a, &bytes(2.0)).unwrap_err(), refused(Request::Write("a".into())));
    assert_eq!(neighbour.read(&x).unwrap_err(), refused(Request::Read("x".into())));
    let request = Request::Allocate("c".into());
    assert_eq!(neighbour.alloc("c", 1).unwrap_err(), refused(request));
    assert_eq!(neighbour.sync().unwrap(), Synced::Done, "all of its own is behind the window");
    // Elsewhere on the device nothing is refused.
    let elsewhere = device.stream_of(id(6));
    let far = filled(&elsewhere, "far", 4.0);
    assert_eq!(value(&elsewhere, &far), 4.0);
    for tainted in [&a, &b] {
        let error = elsewhere.read(tainted).unwrap_err();
        assert!(matches!(error, CaptureError::Tainted { .. }), "{error}");
    }
    let graph = owner.end("graph").unwrap(); // not doomed by any of it
    neighbour.write(&a, &bytes(2.0)).unwrap();
    neighbour.submit(&op).unwrap();
    neighbour.launch(&graph).unwrap();
    assert_eq!([value(&neighbour, &b), value(&neighbour, &y)], [3.0, 2.0]);
}

fn d09_a_neighbours_failure_does_not_doom<B: Backend>(device: Device<B>, _: Shared) {
    let neighbour = device.stream_of(id(NEIGHBOUR));
    let a = filled(&neighbour, "a", 1.0);
    neighbour.submit(&failing(&neighbour, "broken", &a)).unwrap(); // waits in the queue that the window shares
    let (owner, ..) = recording(&device);
    owner.end("graph").unwrap();
    let told = neighbour.sync().unwrap_err();
    assert!(matches!(&told, CaptureError::Backend(e) if e.step == Step::Run), "{told}");
    assert_eq!(neighbour.sync().unwrap(), Synced::Done, "told once");
    assert_eq!(owner.sync().unwrap(), Synced::Done);
}

fn d15_a_neighbours_launch_is_never_recorded<B: Backend>(device: Device<B>, trace: Shared) {
    let neighbour = device.stream_of(id(NEIGHBOUR));
    let z = filled(&neighbour, "z", 0.0);
    let count = capture(&neighbour, |s| s.submit(&plus("count", &z, &z, 1.0))).unwrap();
    let before = value(&neighbour, &z);
    let (owner, ..) = recording(&device);
    let runs = trace.lock().unwrap().calls[&Step::Run];
    assert!(neighbour.launch(&count).is_err());
    assert!(neighbour.submit(&plus("z", &z, &z, 1.0)).is_err());
    assert_eq!(trace.lock().unwrap().calls[&Step::Run], runs, "nothing reached the stream");
    let graph = owner.end("graph").unwrap();
    assert_eq!(device.retained().last().unwrap().nodes, 1);
    neighbour.write(&z, &bytes(before)).unwrap();
    owner.launch(&graph).unwrap();
    assert_eq!(value(&owner, &z), before, "the owner's replay does nothing of the neighbour's");
}

fn d09_a_failure_in_the_window_belongs_to_the_capture<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let neighbour = device.stream_of(id(NEIGHBOUR));
    let a = filled(&neighbour, "a", 1.0);
    let (owner, x, y) = recording(&device);
    let next = trace.lock().unwrap().calls[&Step::Record];
    trace.lock().unwrap().fail = Some((Step::Record, next));
    let failed = owner.submit(&plus("fails", &x, &y, 1.0)).unwrap_err();
    assert_eq!(neighbour.sync().unwrap(), Synced::Done, "none of the neighbour's business");
    let doomed = owner.end("graph").unwrap_err();
    let cause = Box::new(failed);
    assert_eq!(doomed, CaptureError::Doomed { owner: id(OWNER), cause, unowned: Vec::new() });
    assert_eq!([neighbour.sync().unwrap(), owner.sync().unwrap()], [Synced::Done; 2]);
    assert_eq!(value(&neighbour, &a), 1.0);
}
