//! Captures on a shared device, in both modes of the CPU: BEHAVIOURS D 3, 4, 7–11 and 13–17.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::common::{Shared, bytes, failing, filled, id, plus, value};
use phonograph_graph::NodeKind;
use phonograph_runtime::capture::{CaptureError, Request, Window};
use phonograph_runtime::cpu::Cpu;
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{
    Backend, Buffer, Device, Graph, GraphKind, MAX_STREAMS, Operation, SoftwareCpu, Step, Stream,
    Synced, TrimReport,
};

in_both_modes!(
    logical_streams_fold_by_their_value,
    d03_a_neighbours_end_discards_and_a_late_owner_finds_nothing,
    d07_warm_up_runs_for_real_and_the_window_is_served_from_what_is_held,
    d07_an_allocation_that_no_page_serves_dooms_and_d17_reports_it,
    d08_the_owners_read_and_profile_are_refused_and_the_capture_lives,
    d08_a_write_in_the_window_dooms_and_the_first_cause_is_named,
    d08_destructors_in_the_window_wait_for_its_end,
    d09_a_neighbour_on_the_slot_is_refused_and_told_and_taints_its_destinations,
    d09_a_neighbours_failure_does_not_doom,
    d10_what_a_doomed_capture_would_have_written_is_tainted_until_rewritten,
    d10_what_a_failed_operation_would_have_written_is_tainted,
    d11_pages_of_a_sealed_graph_are_guarded_until_it_is_gone,
    d11_nothing_is_released_while_a_stream_records,
    d13_the_window_guard_ends_it_on_error_and_panic,
    d14_a_neighbour_can_neither_begin_nor_abort,
    d15_a_neighbours_launch_is_never_recorded,
    d16_replay_refuses_tainted_inputs,
    replays_from_several_threads_are_all_executed,
    a_graph_destroyed_while_a_replay_is_enqueued_lives_until_it_is_done,
    retention_says_what_each_graph_keeps,
    work_of_several_streams_on_one_buffer_runs_in_the_order_of_submission,
    the_device_goes_after_what_is_queued_and_leaves_nothing,
    wrong_operations_are_refused_before_anything_runs,
);

/// Served by pooled stream 1; so are 5 and 9.
const OWNER: u64 = 1;
const NEIGHBOUR: u64 = 5;

/// Captures `body` after running it once as a warm-up.
fn capture<B: Backend>(
    stream: &Stream<B>,
    body: impl Fn(&Stream<B>) -> Result<(), CaptureError>,
) -> Result<Graph, CaptureError> {
    let window = stream.prepare()?;
    body(stream)?;
    window.begin()?;
    body(stream)?;
    window.end("graph")
}

/// A window that records, with `x = 1`, `y = x + 1` in it.
fn recording<B: Backend>(device: &Device<B>) -> (Stream<B>, Buffer, Buffer) {
    let owner = device.stream_of(id(OWNER));
    let (x, y) = (filled(&owner, "x", 1.0), filled(&owner, "y", 0.0));
    let window = owner.prepare().unwrap();
    owner.submit(&plus("warm", &x, &y, 1.0)).unwrap();
    window.begin().unwrap();
    owner.submit(&plus("step", &x, &y, 1.0)).unwrap();
    std::mem::forget(window); // the tests say how it ends
    (owner, x, y)
}

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

fn d07_warm_up_runs_for_real_and_the_window_is_served_from_what_is_held<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 0.0));
    let mut kept = Vec::new();
    let mut body = |keep: bool| {
        let mut from = x.clone();
        for step in 0..70 {
            // More than a page of small slices, and some large ones.
            let scratch = stream.alloc("scratch", 16).unwrap();
            let large = (step < 3).then(|| stream.alloc("large", 3 << 20).unwrap());
            stream.submit(&plus(&format!("step {step}"), &from, &scratch, 1.0)).unwrap();
            if keep {
                kept.push((scratch.clone(), large));
            }
            from = scratch;
        }
        stream.submit(&plus("last", &from, &y, 1.0)).unwrap();
    };
    let window = stream.prepare().unwrap();
    body(true); // what the warm-up allocates stays with the user
    assert_eq!(value(&stream, &y), 72.0, "it has run");
    window.begin().unwrap();
    let before = trace.lock().unwrap().calls[&Step::Allocate];
    stream.write(&x, &bytes(0.0)).unwrap_err(); // a doomed window is served all the same
    body(false);
    assert_eq!(trace.lock().unwrap().calls[&Step::Allocate], before);
    drop(window);
    stream.write(&x, &bytes(10.0)).unwrap();
    let window = stream.prepare().unwrap();
    body(false);
    window.begin().unwrap();
    let before = trace.lock().unwrap().calls[&Step::Allocate];
    body(false);
    let graph = window.end("graph").unwrap();
    assert_eq!(trace.lock().unwrap().calls[&Step::Allocate], before);
    stream.write(&x, &bytes(20.0)).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &y), 91.0);
}

fn d07_an_allocation_that_no_page_serves_dooms_and_d17_reports_it<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let (owner, ..) = recording(&device);
    let unowned = |name: &str, bytes| {
        let error = owner.alloc(name, bytes).unwrap_err();
        let CaptureError::Unowned(report) = error else { panic!("{error}") };
        assert_eq!((&report.name[..], report.bytes), (name, bytes));
        *report
    };
    let first = unowned("first", 5 << 20);
    assert_eq!((&first.after[..], first.number, first.warm_up.len()), ("step", 1, 0));
    let second = unowned("second", 5 << 20);
    assert_eq!(second.number, 2);
    let error = owner.end("graph").unwrap_err();
    let cause = Box::new(CaptureError::Unowned(Box::new(first.clone())));
    let (owner_id, unowned) = (id(OWNER), vec![first, second]);
    assert_eq!(error, CaptureError::Doomed { owner: owner_id, cause, unowned });
    // With a warm-up that had fewer of them.
    let window = owner.prepare().unwrap();
    drop(owner.alloc("activations", 5 << 20).unwrap());
    window.begin().unwrap();
    let served = owner.alloc("activations", 5 << 20).unwrap();
    let error = owner.alloc("gradients", 5 << 20).unwrap_err();
    assert_eq!(
        error.to_string(),
        "allocation of gradients (5242880 bytes, 5242880 with rounding) after the start: number 2 \
         of its size in the window, of which the warm-up allocated 1 (activations)"
    );
    drop(served);
    assert!(window.end("graph").is_err());
    // As the report asks: the same work in both.
    let work = |stream: &Stream<B>| {
        let both = ["activations", "gradients"].map(|name| stream.alloc(name, 5 << 20));
        both.into_iter().try_for_each(|buffer| buffer.map(drop))
    };
    capture(&owner, work).unwrap();
}

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
    neighbour.submit(&failing("broken", &a)).unwrap(); // waits in the queue that the window shares
    let (owner, ..) = recording(&device);
    owner.end("graph").unwrap();
    let told = neighbour.sync().unwrap_err();
    assert!(matches!(&told, CaptureError::Backend(e) if e.step == Step::Run), "{told}");
    assert_eq!(neighbour.sync().unwrap(), Synced::Done, "told once");
    assert_eq!(owner.sync().unwrap(), Synced::Done);
}

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
    stream.submit(&failing("broken", &x)).unwrap();
    stream.submit(&plus("y", &x, &y, 1.0)).unwrap();
    let CaptureError::Several { errors } = stream.sync().unwrap_err() else { panic!() };
    assert!(matches!(&errors[..], [CaptureError::Backend(_), CaptureError::Tainted { .. }]));
    assert!(stream.read(&x).is_err() && stream.read(&y).is_err());
    // Also by a replay that fails.
    stream.write(&x, &bytes(1.0)).unwrap();
    stream.write(&y, &bytes(1.0)).unwrap();
    let window = stream.prepare().unwrap();
    window.begin().unwrap();
    stream.submit(&failing("broken", &x)).unwrap();
    let graph = window.end("graph").unwrap();
    assert_eq!(value(&stream, &x), 1.0);
    stream.launch(&graph).unwrap();
    assert!(stream.sync().is_err());
    assert!(stream.read(&x).is_err());
    assert_eq!(value(&stream, &y), 1.0);
}

fn d11_pages_of_a_sealed_graph_are_guarded_until_it_is_gone<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 1.0));
    let build = || capture(&stream, |s| s.submit(&plus("y", &x, &y, 1.0))).unwrap();
    let (first, second) = (build(), build());
    let page = x.slice().page;
    drop((x, y));
    let mut taken = Vec::new();
    let mut take = |guarded: bool| {
        let buffer = stream.alloc("later", 16).unwrap();
        assert_eq!(buffer.slice().page != page, guarded);
        taken.push(buffer);
    };
    take(true);
    device.trim();
    stream.launch(&first).unwrap(); // still has its memory
    stream.sync().map(|synced| assert!(synced.is_done())).unwrap();
    drop(first);
    take(true);
    drop(second);
    take(false);
    drop(taken);
    assert!(matches!(device.trim(), TrimReport::Released { pages: 2, .. }));
    assert_eq!((trace.lock().unwrap().pages, device.report().classes.len()), (0, 0));
}

fn d11_nothing_is_released_while_a_stream_records<B: Backend>(device: Device<B>, trace: Shared) {
    let other = device.stream_of(id(2));
    let idle = || {
        drop(filled(&other, "idle", 0.0));
        assert_eq!(other.sync().unwrap(), Synced::Done);
    };
    let (owner, _x, _y) = recording(&device);
    idle();
    let pages = trace.lock().unwrap().pages;
    assert_eq!(device.trim(), TrimReport::Recording);
    assert_eq!(trace.lock().unwrap().pages, pages);
    owner.abort().unwrap();
    let one = TrimReport::Released { pages: 1, bytes: 64 * 256 };
    assert_eq!(device.trim(), one);
    // A warm-up keeps the pages of its stream, of no other.
    let window = owner.prepare().unwrap();
    drop(owner.alloc("primed", 1 << 20).unwrap());
    idle();
    assert_eq!(device.trim(), one);
    drop(window);
    assert_eq!(device.trim(), TrimReport::Released { pages: 1, bytes: 1 << 20 });
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

fn a_graph_destroyed_while_a_replay_is_enqueued_lives_until_it_is_done<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 0.0));
    let graph = capture(&stream, |s| s.submit(&plus("y", &x, &y, 1.0))).unwrap();
    stream.write(&x, &bytes(5.0)).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Launch), None, "enqueued, not run");
    drop((graph, x));
    device.trim();
    assert_eq!(trace.lock().unwrap().execs, 1);
    assert_eq!(device.report().graphs, 1);
    assert_eq!(value(&stream, &y), 6.0);
    assert_eq!(device.report().graphs, 0);
    assert_eq!(trace.lock().unwrap().execs, 0);
}

fn retention_says_what_each_graph_keeps<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 0.0));
    let far = filled(&device.stream_of(id(2)), "far", 0.0);
    let first = capture(&stream, |s| s.submit(&plus("y", &x, &y, 1.0))).unwrap();
    let second = capture(&stream, |s| s.submit(&plus("far", &x, &far, 1.0))).unwrap();
    let page = 64 * 256;
    let [one, two] = &device.retained()[..] else { panic!() };
    assert_eq!((one.nodes, one.page_bytes(), one.exclusive_bytes), (1, page, 0));
    assert_eq!(one.buffers, [("x".to_owned(), 16), ("y".to_owned(), 16)]);
    assert_eq!((two.page_bytes(), two.exclusive_bytes), (2 * page, page));
    drop(first);
    let [two] = &device.retained()[..] else { panic!() };
    assert_eq!((two.page_bytes(), two.exclusive_bytes), (2 * page, 2 * page));
    drop(second);
    assert_eq!(device.retained(), []);
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

fn the_device_goes_after_what_is_queued_and_leaves_nothing<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(2));
    let x = filled(&stream, "x", 1.0);
    let graph = capture(&stream, |s| s.submit(&plus("x", &x, &x, 1.0))).unwrap();
    stream.launch(&graph).unwrap();
    let window = device.stream_of(id(OWNER)).prepare().unwrap();
    window.begin().unwrap();
    drop((device, stream));
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Launch), None, "the window keeps the device");
    drop(window);
    let trace = trace.lock().unwrap();
    assert_eq!(trace.calls[&Step::Launch], 1);
    assert_eq!((trace.pages, trace.recordings.len(), trace.execs), (0, 0, 0));
    drop((x, graph)); // outlive it, and do no harm
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
    let (foreign, _) = crate::common::software();
    let theirs = foreign.stream_of(id(OWNER)).alloc("theirs", 16).unwrap();
    assert!(matches!(stream.read(&theirs), Err(CaptureError::OtherDevice { .. })));
    let op = plus("op", &theirs, &theirs, 1.0);
    assert!(matches!(stream.submit(&op), Err(CaptureError::OtherDevice { .. })));
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Run), None);
}

#[test]
fn a_device_has_a_number_of_streams_that_makes_sense() {
    for (given, served) in [(0, false), (1, true), (MAX_STREAMS, true), (MAX_STREAMS + 1, false)] {
        let backend = SoftwareCpu::new(Cpu::new(1).unwrap(), Registry::new());
        let error = Device::new(backend, given).map(|device| device.max_streams());
        let expected = if served { Ok(given) } else { Err(CaptureError::StreamCount { given }) };
        assert_eq!(error, expected);
    }
}

#[test]
fn the_modes_are_what_they_say() {
    let kinds = [GraphKind::Software, GraphKind::Hardware];
    let (software, driver) = (crate::common::software().0, crate::common::driver().0);
    assert_eq!([software.graph_kind(), driver.graph_kind()], kinds);
}
