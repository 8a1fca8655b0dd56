//! What becomes of a capture that fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use phonograph::graph::{KernelConfig, KernelNode, KernelRef, NodeKind};
use phonograph::prelude::*;

use crate::common::*;

/// The stream serves, nothing of the capture is left, and the lock is free.
#[track_caller]
fn usable(device: &Device, y: &mut Tensor<f32>) {
    assert_eq!(device.report().graphs, 0);
    let stream = device.stream(0);
    let before = value_of(y);
    let graph = add(1.0, &mut *y).map(drop).graph_on(&stream).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    drop(graph);
    assert_eq!((value_of(y), device.report().graphs), (before + 1.0, 0));
}

#[derive(Debug, thiserror::Error)]
#[error("mine")]
struct Mine;

#[test]
fn an_error_inside_reaches_the_caller_unchanged_and_leaves_the_stream_usable() {
    let device = device();
    let mut y = four(&device.stream(0), 1.0);
    let failed = CapturedGraph::<()>::scope(&device.stream(0), |s| {
        s.record(add(1.0, &mut y))?;
        Err(Error::other(Mine))
    });
    let Err(Error::Other(error)) = failed else { panic!("{failed:?}") };
    assert!(error.is::<Mine>());
    usable(&device, &mut y);
}

#[test]
fn a_panic_inside_reaches_the_caller_unchanged_and_leaves_the_stream_usable() {
    let device = device();
    let mut y = four(&device.stream(0), 1.0);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        CapturedGraph::<()>::scope(&device.stream(0), |s| {
            s.record(add(1.0, &mut y))?;
            std::panic::resume_unwind(Box::new(42u8))
        })
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&42u8));
    usable(&device, &mut y);
}

/// Records a node that no builder accepts, and gives `then`.
fn unbuildable(then: Result<()>) -> impl DeviceOp<Output = ()> {
    with_context(move |cx| {
        cx.record(|recorder| {
            let (a, b) = (recorder.builder().add_barrier("a"), recorder.builder().add_barrier("b"));
            recorder.builder().chain(&[a, b, a]);
            Ok(())
        })?;
        then
    })
}

#[test]
fn a_recording_error_wins_over_an_end_error() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let both = unbuildable(Err(Error::other(Mine))).graph_on(&stream).unwrap_err();
    assert!(matches!(both, Error::Other(_)), "{both}");
    let end = unbuildable(Ok(())).graph_on(&stream).unwrap_err();
    assert!(matches!(end, Error::Graph(_)), "{end}");
    usable(&device, &mut y);
}

#[test]
fn a_failed_instantiation_destroys_everything_made() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let held =
        || -> u64 { device.report().classes.iter().map(|(_, class)| class.held_bytes).sum() };
    let before = held();
    let op = api::ones::<f32>([1000]).then(|x| {
        with_context(move |cx| {
            cx.record(|recorder| {
                let kernel = KernelNode {
                    kernel: KernelRef::Named("nobody knows it".into()),
                    config: KernelConfig::linear(1, 1, 0),
                    args: Box::default(),
                    fusible: false,
                };
                recorder.builder().add("unknown", NodeKind::Kernel(kernel));
                Ok(())
            })?;
            Ok(x)
        })
    });
    let error = op.graph_on(&stream).unwrap_err();
    assert!(error.to_string().contains("nobody knows it"), "{error}");
    assert_eq!(held(), before, "what it had allocated is back");
    usable(&device, &mut y);
}

#[test]
fn a_refused_operation_inside_a_scope_leaves_the_rest() {
    let device = device();
    let stream = device.stream(0);
    let (mut y, mut long) = (four(&stream, 1.0), api::zeros::<f32>([5]).sync_on(&stream).unwrap());
    let graph = CapturedGraph::scope(&stream, |s| {
        let refused = s.record(api::memcpy(&y, &mut long)).unwrap_err();
        assert_eq!(refused.to_string(), "memcpy: copies [4] to [5]");
        s.record(add(1.0, &mut y)).map(drop)
    });
    graph.unwrap().launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 2.0);
}

#[test]
fn an_operation_that_was_recorded_in_part_dooms_the_capture() {
    let device = device();
    let stream = device.stream(0);
    let (x, mut y) = (four(&stream, 1.0), four(&stream, 1.0));
    let doomed = CapturedGraph::scope(&stream, |s| {
        // Writes what it was lent to read; refused once that has been recorded.
        let refused = s.record(compose("bad", (&x, &y), |ops, [x, y]| {
            ops.map_into("write", phonograph::kernels::expr::relu(), &[x], &[], &[y]).map(drop)
        }));
        assert!(matches!(refused, Err(Error::WritesInput { .. })), "{:?}", refused.map(drop));
        Ok(())
    });
    assert!(matches!(doomed, Err(Error::WritesInput { .. })), "{doomed:?}");
    usable(&device, &mut y);
}

/// Whichever comes first, and though both are the first that their device has: one is not taken for the other.
#[test]
fn tensors_of_two_devices_do_not_go_together() {
    let devices = [device(), device()];
    let streams = devices.each_ref().map(|device| device.stream(0));
    let mut x = four(&streams[0], 1.0);
    let mut y = four(&streams[1], 2.0);
    for stream in &streams {
        for refused in [
            sum(&x, &mut y).map(drop).sync_on(stream),
            double(&x, &mut y).map(drop).sync_on(stream),
            api::memcpy(&x, &mut y).sync_on(stream),
            sum(&x, &mut y).graph_on(stream).map(drop),
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("another device"), "{error}");
        }
    }
    let graph = add(1.0, &mut x).map(drop).graph_on(&streams[0]).unwrap();
    let error = graph.launch().sync_on(&streams[1]).unwrap_err();
    assert!(matches!(error, Error::OtherDevice { .. }), "{error}");
    let mixed = zip!(graph.launch(), add(1.0, &mut y)).graph_on(&streams[0]).map(drop);
    let error = mixed.unwrap_err().to_string();
    assert!(error.contains("another device"), "{error}");
    assert_eq!((value_of(&x), value_of(&y)), (1.0, 2.0));
}

#[test]
fn a_failing_launch_taints_what_it_writes_until_it_is_written_anew() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let fails = host("fails", (&mut y,), |_| Err("as asked")).map(drop).graph_on(&stream).unwrap();
    assert!(fails.launch().sync_on(&stream).unwrap_err().to_string().contains("as asked"));
    let error = add(1.0, &mut y).map(drop).sync_on(&stream).unwrap_err();
    assert!(error.to_string().contains("as asked"), "{error}");
    api::store(vec![2.0; 4], &mut y).sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 2.0);
}

/// Panics when it goes.
struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("spite");
        }
    }
}

#[test]
fn what_a_graph_owned_and_panics_when_it_goes_hits_nobody() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let owned = Spiteful;
    let function = host("owner", (), move |_| -> Result<()> {
        let _still_owned = &owned;
        Ok(())
    });
    let graph = function.graph_on(&stream).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    // It goes with the next use of the device, whosever that is: here, and on the threads that wake futures.
    drop(graph);
    usable(&device, &mut y);
    let thrown = host("thrower", (), |_| -> Result<()> { std::panic::panic_any(Spiteful) });
    let failed = thrown.sync_on(&stream).unwrap_err().to_string();
    assert!(failed.contains("panicked"), "{failed}");
    usable(&device, &mut y);
}
