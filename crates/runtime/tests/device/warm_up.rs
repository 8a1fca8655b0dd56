//! Warm-up: what it primes, what the window is served from, what it could not be served. BEHAVIOURS D 7 and 17.

use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::{Backend, Device, Step, Stream};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{OWNER, bytes, capture, filled, id, plus, recording, value};

in_every_mode!(
    d07_what_is_dropped_in_a_window_is_handed_out_in_neither_phase,
    d07_warm_up_runs_for_real_and_the_window_is_served_from_what_is_held,
    d07_an_allocation_that_no_page_serves_dooms_and_d17_reports_it,
);

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

fn d07_what_is_dropped_in_a_window_is_handed_out_in_neither_phase<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let slices = || {
        let dropped = stream.alloc("dropped", 700).unwrap().slice();
        let next = stream.alloc("next", 700).unwrap().slice();
        (dropped, next)
    };
    let (dropped, next) = slices();
    assert_eq!(dropped, next, "outside of a window");
    let window = stream.prepare().unwrap();
    let mut taken = std::collections::BTreeSet::new();
    for phase in ["warm-up", "recording"] {
        let (dropped, next) = slices();
        assert!(taken.insert(dropped) && taken.insert(next), "{phase}");
        if phase == "warm-up" {
            window.begin().unwrap();
        }
    }
    drop(window);
    let (dropped, next) = slices();
    assert_eq!(dropped, next);
}
