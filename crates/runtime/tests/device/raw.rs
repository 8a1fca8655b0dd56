//! Memory and work of somebody else's on a shared device.

use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::pool::Place;
use phonograph_runtime::streams::{Backend, Buffer, Device, Stream};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{LEN, OWNER, bytes, capture, filled, id, plus, recording, value};

in_every_mode!(
    memory_of_somebody_elses_goes_back_when_nothing_uses_it_any_more,
    what_somebody_else_touches_is_in_the_order_of_the_stream,
);

fn imported<B: Backend>(device: &Device<B>, stream: &Stream<B>, name: &str) -> Buffer {
    // SAFETY: the page is new, and all of it is the buffer's.
    unsafe {
        let page = device.with_backend(|backend| backend.allocate(4 * LEN, Place::Device)).unwrap();
        stream.import(name, page, 4 * LEN).unwrap()
    }
}

fn memory_of_somebody_elses_goes_back_when_nothing_uses_it_any_more<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let (one, two) = (device.stream_of(id(1)), device.stream_of(id(2)));
    let x = filled(&one, "x", 1.0);
    let pages = || trace.lock().unwrap().pages;
    let before = pages();
    let y = imported(&device, &one, "y");
    assert_eq!(pages(), before + 1);
    one.write(&y, &bytes(5.0)).unwrap();
    two.submit(&plus("x", &y, &x, 1.0)).unwrap();
    assert_eq!(value(&two, &x), 6.0);
    // What is submitted keeps it, and it is handed to nobody else.
    one.submit(&plus("y", &x, &y, 1.0)).unwrap();
    drop(y);
    let other = filled(&one, "other", 9.0);
    one.sync().map(|synced| assert!(synced.is_done())).unwrap();
    device.report();
    assert_eq!(pages(), before, "it went back");
    assert_eq!(value(&one, &other), 9.0);
    // A graph keeps it, too.
    let y = imported(&device, &two, "y");
    two.write(&y, &bytes(2.0)).unwrap();
    let graph = capture(&one, |stream| stream.submit(&plus("x", &y, &x, 1.0))).unwrap();
    drop(y);
    device.trim();
    one.launch(&graph).unwrap();
    assert_eq!((value(&one, &x), pages()), (3.0, before + 1));
    drop(graph);
    one.sync().map(|synced| assert!(synced.is_done())).unwrap();
    device.report();
    assert_eq!(pages(), before);
}

fn what_somebody_else_touches_is_in_the_order_of_the_stream<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let streams = [1, 2].map(|stream| device.stream_of(id(stream)));
    let x = filled(&streams[0], "x", 1.0);
    streams[0].submit(&plus("x", &x, &x, 1.0)).unwrap();
    let on = streams[1].touch(&[(x.clone(), true)]).unwrap();
    assert_eq!(on, streams[1].pooled());
    streams[0].submit(&plus("x", &x, &x, 1.0)).unwrap();
    assert_eq!(value(&streams[1], &x), 3.0);
    let (owner, y, _) = recording(&device);
    let refused = owner.touch(&[(y, true)]).unwrap_err();
    assert!(matches!(refused, CaptureError::InWindow { owner, .. } if owner == id(OWNER)));
}
