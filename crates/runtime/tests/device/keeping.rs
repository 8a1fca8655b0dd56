//! What graphs keep, and for how long; what goes back when. BEHAVIOURS D 11.

use phonograph_runtime::streams::{Backend, Device, RetainedBuffer, Step, Synced, TrimReport};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{OWNER, bytes, capture, filled, id, plus, recording, value};

in_every_mode!(
    d11_pages_of_a_sealed_graph_are_guarded_until_it_is_gone,
    d11_nothing_is_released_while_a_stream_records,
    retention_says_what_each_graph_keeps,
    d11_a_graph_destroyed_while_a_replay_is_enqueued_lives_until_it_is_done,
    the_device_goes_after_what_is_queued_and_leaves_nothing,
);

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

fn retention_says_what_each_graph_keeps<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 0.0));
    let far = filled(&device.stream_of(id(2)), "far", 0.0);
    let first = capture(&stream, |s| s.submit(&plus("y", &x, &y, 1.0))).unwrap();
    let second = capture(&stream, |s| s.submit(&plus("far", &x, &far, 1.0))).unwrap();
    let page = 64 * 256;
    let [one, two] = &device.retained()[..] else { panic!() };
    assert_eq!((one.nodes, one.page_bytes(), one.exclusive_bytes), (1, page, 0));
    let buffer = |name: &str, released| RetainedBuffer { name: name.into(), bytes: 16, released };
    assert_eq!(one.buffers, [buffer("x", false), buffer("y", false)]);
    assert_eq!((one.bystander_bytes, one.released_bytes()), (page - 2 * 256, 0));
    assert_eq!((two.page_bytes(), two.exclusive_bytes), (2 * page, page));
    drop(first);
    let [two] = &device.retained()[..] else { panic!() };
    assert_eq!((two.page_bytes(), two.exclusive_bytes), (2 * page, 2 * page));
    // Scratch that only the graph keeps, and a launch that has not been issued.
    drop(far);
    stream.launch(&second).unwrap();
    let other_handle = second.clone();
    let [two] = &device.retained()[..] else { panic!() };
    assert_eq!((two.released_bytes(), two.holders), (16, 3));
    assert_eq!(two.buffers[1], buffer("far", true));
    stream.sync().map(|synced| assert!(synced.is_done())).unwrap();
    drop((second, other_handle));
    assert_eq!(device.retained(), []);
}

fn d11_a_graph_destroyed_while_a_replay_is_enqueued_lives_until_it_is_done<B: Backend>(
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
