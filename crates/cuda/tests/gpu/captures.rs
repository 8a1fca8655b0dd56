//! What captures and this crate's own calls do to each other: nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use cudarc::driver::sys;
use phonograph_cuda::{Bindings, CaptureMode, Cuda, MemoryError, Stream};
use phonograph_graph::{GraphBuilder, Schedule};

use crate::case::{add_one, cuda, expect, view};
use crate::foreign::{launch, ready};

/// Allocates, instantiates, replays on a stream of its own and lets go of everything, without a wait for the whole device.
fn work(cuda: &mut Cuda) {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 64);
    b.add_elementwise("plus", add_one(), &[view(x, &[16])], &[], &[view(x, &[16])]);
    let graph = b.build().unwrap();
    let (device, host) = (cuda.alloc(64).unwrap(), cuda.alloc_host(64).unwrap());
    let bindings = Bindings::new().memory(x, &device);
    let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    cuda.replay(&mut exec).unwrap();
    drop((exec, device, host));
}

#[test]
fn captures_of_every_mode_bear_what_goes_on_beside_them() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, memory) = ready(&mut cuda);
    let mut beside = Cuda::new().unwrap();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut waits = None;
            let captured = stream.capture(mode, |raw| {
                launch(&function, raw, &memory, 1);
                // On this thread and on another.
                work(&mut cuda);
                scope.spawn(|| work(&mut beside)).join().unwrap();
                // What waits for the whole device would break the capture: it is refused here, and waits elsewhere.
                let refused = stream.device().synchronize().unwrap_err();
                assert_eq!(refused.code, 900);
                let read = cuda.read::<u32>(&memory);
                assert!(matches!(read, Err(MemoryError::Driver(e)) if e.code == 900));
                let device = stream.device().clone();
                let ended = &ended;
                waits = Some(scope.spawn(move || {
                    device.synchronize().unwrap();
                    ended.load(Ordering::SeqCst)
                }));
                launch(&function, raw, &memory, 1);
                ended.store(true, Ordering::SeqCst);
                Ok::<_, String>(())
            });
            let (captured, ()) = captured.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            assert_eq!(captured.graph().node_count(), 2, "{mode:?}");
            assert!(waits.unwrap().join().unwrap(), "it waited for the capture's end");
        });
    }
    assert_eq!(cuda.read::<u32>(&memory).unwrap(), [0; 64], "nothing captured has run");
}

/// What keeping out of captures costs a wait, for the log.
#[test]
fn keeping_out_of_captures_takes_a_time_that_is_printed() {
    let Some(cuda) = cuda() else { return };
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    // SAFETY: the context lives as long as the device.
    expect(unsafe { sys::cuCtxSetCurrent(cuda.devices()[0].context()) });
    let median = |wait: &dyn Fn()| {
        let mut times: Vec<u128> = (0..5000)
            .map(|_| {
                let start = Instant::now();
                wait();
                start.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    // SAFETY: the stream lives.
    let bare = median(&|| expect(unsafe { sys::cuStreamSynchronize(stream.handle()) }));
    let ours = median(&|| stream.synchronize().unwrap());
    eprintln!(
        "waiting for an idle stream: {bare} ns by the driver, {ours} ns kept out of captures"
    );
}
