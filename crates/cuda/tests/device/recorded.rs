//! A window on CUDA from end to end.

use phonograph_cuda::{Cuda, CudaBackend};
use phonograph_runtime::streams::{Backend, Device, GraphKind};

use crate::modes::cuda;
use crate::work::{LEN, bytes, filled, id, plus, value};

#[test]
fn a_window_becomes_a_graph_of_the_driver_that_replays_on_new_contents() {
    let Some((device, _)) = cuda() else { return };
    assert_eq!(device.graph_kind(), GraphKind::Hardware);
    let stream = device.stream_of(id(1));
    let (x, y) = (filled(&stream, "x", 1.0), filled(&stream, "y", 0.0));
    let window = stream.prepare().unwrap();
    let body = || {
        let t = stream.alloc("t", 4 * LEN)?;
        stream.submit(&plus("t", &x, &t, 1.0))?;
        stream.submit(&plus("y", &t, &y, 10.0))
    };
    body().unwrap();
    assert_eq!(value(&stream, &y), 12.0);
    window.begin().unwrap();
    body().unwrap();
    let graph = window.end("two sums").unwrap();
    for x_now in [100.0, 200.0] {
        stream.write(&x, &bytes(x_now)).unwrap();
        stream.launch(&graph).unwrap();
        assert_eq!(value(&stream, &y), x_now + 11.0);
    }
}

/// The rule that the runtime keeps: what waits for a stream that records breaks its capture, and the driver says so.
#[test]
fn the_driver_breaks_a_capture_whose_stream_is_waited_for() {
    if cuda().is_none() {
        return;
    }
    let on = phonograph_runtime::streams::PooledStreamId(0);
    let mut backend = CudaBackend::new(Cuda::new().unwrap());
    backend.begin(on).unwrap();
    let fence = backend.fence(on).unwrap_err();
    assert!(fence.message.contains("CAPTURE"), "{fence}");
    let end = backend.end(on).err().expect("the capture is broken");
    assert!(end.message.contains("CAPTURE_INVALIDATED"), "{end}");
    // The stream serves again.
    backend.fence(on).unwrap();
    let device = Device::new(backend, 1).unwrap();
    assert_eq!(value(&device.stream(), &filled(&device.stream(), "x", 3.0)), 3.0);
}
