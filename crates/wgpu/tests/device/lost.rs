//! A shared device that is lost: whoever waits for what was submitted, or reads what it would have written, is told with the
//! step, and nothing hangs.

use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::Device;
use phonograph_wgpu::WgpuBackend;

use crate::work::{STREAMS, capture, filled, id, plus};

/// The error says that the device is lost.
#[track_caller]
fn lost<T>(result: Result<T, CaptureError>) {
    let Err(error) = result else { panic!("the device is lost") };
    assert!(error.to_string().contains("the device is lost: it was destroyed"), "{error}");
}

#[test]
fn a_lost_device_is_told_to_everybody_with_the_step() {
    let Some(gpu) = crate::modes::gpu() else { return };
    let wgpu = gpu.handles().0.clone();
    let device = Device::new(WgpuBackend::new(gpu), STREAMS).unwrap();
    let [mine, theirs] = [1, 2].map(|stream| device.stream_of(id(stream)));
    let [x, y, z] = ["x", "y", "z"].map(|name| filled(&mine, name, 1.0));
    let graph = capture(&mine, |s| s.submit(&plus("y", &x, &y, 1.0))).unwrap();
    mine.launch(&graph).unwrap();
    mine.sync().map(|synced| assert!(synced.is_done())).unwrap();
    wgpu.destroy();
    mine.launch(&graph).unwrap();
    theirs.submit(&plus("z", &x, &z, 1.0)).unwrap();
    lost(mine.sync());
    lost(theirs.sync());
    // Nobody takes what is in memory for what should have been written.
    for buffer in [&y, &z] {
        lost(theirs.read(buffer));
    }
    // New work and a new window fail as well, and end.
    mine.launch(&graph).map_or_else(|error| lost::<()>(Err(error)), |()| lost(mine.sync()));
    lost(capture(&theirs, |s| s.submit(&plus("x", &x, &x, 1.0))).map(drop));
    drop((x, y, z, graph));
    device.trim();
}
