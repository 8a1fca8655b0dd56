//! cudarc beside this crate, on a device; without one, each test says why it is skipped.

use std::sync::Arc;

use phonograph::cuda::cudarc::driver::sys::{self, CUstream};
use phonograph::cuda::cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, result};
use phonograph::interop::{captured, raw_graph};
use phonograph::prelude::*;

kernel! {
    /// y ← 2 y
    fn double(y: &mut [f32]) |e| { y = y * e.f32(2.0); }
    /// y ← y + 1
    fn increment(y: &mut [f32]) |e| { y = y + e.f32(1.0); }
}

const LEN: u64 = 1 << 16;
const BYTES: usize = 4 * LEN as usize;

/// A device, with a stream of cudarc's.
fn both() -> Option<(Device, Arc<CudaStream>)> {
    let device = Device::cuda(0).map_err(|error| eprintln!("skipped: {error}")).ok()?;
    let context = CudaContext::new(0).unwrap();
    Some((device, context.new_stream().unwrap()))
}

/// Sets every byte to 0 on a stream.
fn clear(address: u64, on: CUstream) {
    // SAFETY: whoever calls this has so many bytes there, and a context that is current.
    unsafe { result::memset_d8_async(address, 0, BYTES, on) }.unwrap();
}

#[track_caller]
fn check(tensor: &Tensor<f32>, expected: f32) {
    let values = tensor.to_vec().unwrap();
    let wrong = values.iter().position(|value| *value != expected);
    assert_eq!(wrong.map(|at| (at, values[at])), None, "not {expected}");
}

#[test]
fn a_graph_is_launched_in_the_order_of_a_stream_of_cudarcs() {
    let Some((device, theirs)) = both() else { return };
    let stream = device.stream(0);
    let mut y = api::full([LEN], 5.0f32).sync_on(&stream).unwrap();
    let graph = CapturedGraph::scope(&stream, |s| {
        s.record(increment(&mut y))?;
        s.record(double(&mut y)).map(drop)
    });
    let graph = graph.unwrap();
    let address = y.cuda().unwrap().address();
    // A buffer of cudarc's, filled from ours after the launch.
    let mut copied = theirs.clone_htod(&vec![0.0f32; LEN as usize]).unwrap();
    for round in 0..20 {
        // On another stream in every round: what was executed there before is before what cudarc does.
        let here = device.stream(round);
        increment(&mut y).map(drop).sync_on(&here).unwrap();
        // SAFETY: the stream lives; it touches what it was lent.
        unsafe {
            here.lend((&mut y,), theirs.cu_stream()).unwrap();
            clear(address, theirs.cu_stream());
            here.take_back((&mut y,), theirs.cu_stream()).unwrap();
            graph.launch_on_raw(&here, theirs.cu_stream()).unwrap();
            let (to, _recorded) = copied.device_ptr_mut(&theirs);
            result::memcpy_dtod_async(to, address, BYTES, theirs.cu_stream()).unwrap();
            here.take_back((&y,), theirs.cu_stream()).unwrap();
        }
        // Ours, behind theirs, on yet another stream.
        increment(&mut y).map(drop).sync_on(&device.stream(round + 1)).unwrap();
        assert_eq!(theirs.clone_dtoh(&copied).unwrap(), vec![2.0; LEN as usize]);
        check(&y, 3.0);
    }
    assert!(!graph.cuda_graph().unwrap().is_null() && !graph.cuda_exec().unwrap().is_null());
    assert!(!stream.cuda().unwrap().handle().is_null());
}

#[test]
fn a_graph_that_an_earlier_ones_executable_serves_can_be_read() {
    let Some((device, _)) = both() else { return };
    let stream = device.stream(0);
    let mut y = api::full([LEN], 0.0f32).sync_on(&stream).unwrap();
    for round in 1..=3u32 {
        let graph = CapturedGraph::scope(&stream, |s| {
            (0..round).try_for_each(|_| s.record(increment(&mut y)).map(drop))?;
            s.record(double(&mut y)).map(drop)
        });
        drop(graph.unwrap());
        let graph = CapturedGraph::scope(&stream, |s| {
            (0..round).try_for_each(|_| s.record(increment(&mut y)).map(drop))?;
            s.record(double(&mut y)).map(drop)
        });
        let graph = graph.unwrap();
        let mut count = 0;
        // SAFETY: the graph lives; without room for nodes they are only counted.
        let counted = unsafe {
            sys::cuGraphGetNodes(graph.cuda_graph().unwrap(), std::ptr::null_mut(), &mut count)
        };
        assert_eq!((counted.result(), count), (Ok(()), round as usize + 1));
        graph.launch().sync_on(&stream).unwrap();
    }
    check(&y, ((1.0 * 2.0 + 2.0) * 2.0 + 3.0) * 2.0);
}

#[test]
fn what_a_library_does_is_an_operation_eager_and_in_a_graph() {
    let Some((device, theirs)) = both() else { return };
    let stream = device.stream(0);
    let ones = theirs.clone_htod(&vec![1.0f32; LEN as usize]).unwrap();
    let from = ones.device_ptr(&theirs).0;
    theirs.synchronize().unwrap();
    let keep = Arc::new(ones);
    let mut y = api::full([LEN], 5.0f32).sync_on(&stream).unwrap();
    let to = y.cuda().unwrap().address();
    let copy = || {
        // SAFETY: the copy writes the tensor, from a buffer that is kept. Nothing else is touched.
        let op = unsafe {
            captured(&device, "copy of theirs", (), keep.clone(), |raw| {
                result::memcpy_dtod_async(to, from, BYTES, raw).unwrap();
            })
        };
        op.unwrap()
    };
    copy().sync_on(&stream).unwrap();
    check(&y, 1.0);
    // Without operands it is behind everything before it and before everything after it.
    let op = copy();
    let graph = CapturedGraph::scope(&stream, |s| {
        s.record(double(&mut y))?;
        s.record(op)?;
        s.record(double(&mut y))?;
        s.record(increment(&mut y)).map(drop)
    });
    let graph = graph.unwrap();
    assert_eq!(Arc::strong_count(&keep), 2, "the graph keeps what its node copies from");
    for _ in 0..3 {
        graph.launch().sync_on(&stream).unwrap();
        check(&y, 3.0);
    }
    drop(graph);
    device.report(); // lets go of what has been dropped
    assert_eq!(Arc::strong_count(&keep), 1);
}

#[test]
fn a_raw_graph_on_declared_tensors_is_ordered_by_them() {
    let Some((device, _)) = both() else { return };
    let streams = [device.stream(0), device.stream(1)];
    let mut x = api::full([LEN], 5.0f32).sync_on(&streams[0]).unwrap();
    let mut y = api::full([LEN], 7.0f32).sync_on(&streams[0]).unwrap();
    let address = x.cuda().unwrap().address();
    let own = phonograph::cuda::Stream::new(streams[0].cuda().unwrap().device()).unwrap();
    let made = own.capture(phonograph::cuda::CaptureMode::Relaxed, |raw| {
        clear(address, raw);
        Ok::<(), std::convert::Infallible>(())
    });
    let (made, ()) = made.unwrap();
    let handle = made.handle();
    let made = Arc::new(std::sync::Mutex::new(made));
    for round in 0..20 {
        increment(&mut x).map(drop).sync_on(&streams[round % 2]).unwrap();
        // SAFETY: the graph is kept, and writes x.
        let op = unsafe { raw_graph("clear", (&mut x,), handle, made.clone()) };
        op.map(drop).sync_on(&streams[(round + 1) % 2]).unwrap();
        increment(&mut x).map(drop).sync_on(&streams[round % 2]).unwrap();
        check(&x, 1.0);
    }
    // Beside it, what touches other memory: two nodes that nothing orders.
    // SAFETY: as above.
    let op = unsafe { raw_graph("clear", (&mut x,), handle, made.clone()) };
    let graph = zip!(op, double(&mut y)).map(drop).graph_on(&streams[0]).unwrap();
    assert_eq!((graph.graph().node_count(), graph.graph().edge_count()), (2, 0));
    graph.launch().sync_on(&streams[0]).unwrap();
    check(&x, 0.0);
    check(&y, 14.0);
}

#[test]
fn a_buffer_of_cudarcs_is_a_tensor_until_nothing_uses_it() {
    let Some((device, theirs)) = both() else { return };
    let stream = device.stream(0);
    let slice = theirs.clone_htod(&vec![3.0f32; LEN as usize]).unwrap();
    let address = slice.device_ptr(&theirs).0;
    theirs.synchronize().unwrap();
    let slice = Arc::new(slice);
    // SAFETY: the buffer is kept, what was issued on it is done, and it is read by its owner only when all of this is.
    let mut y = unsafe { Tensor::<f32>::import(&stream, address, [LEN], slice.clone()) }.unwrap();
    assert_eq!(y.cuda().unwrap().address(), address);
    let graph = double(&mut y).map(drop).graph_on(&stream).unwrap();
    increment(&mut y).map(drop).sync_on(&device.stream(1)).unwrap();
    graph.launch().sync_on(&device.stream(2)).unwrap();
    drop(y);
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(Arc::strong_count(&slice), 2, "the graph keeps it");
    graph.update(graph.launch()).unwrap();
    drop(graph);
    for index in 0..device.streams() {
        device.stream(index).sync().unwrap();
    }
    device.report(); // lets go of what has been dropped
    assert_eq!(Arc::strong_count(&slice), 1);
    assert_eq!(theirs.clone_dtoh(&*slice).unwrap(), vec![32.0; LEN as usize]);
    // SAFETY: nothing is done with it.
    let crooked = unsafe { Tensor::<f32>::import(&stream, address + 4, [4], ()) };
    assert!(crooked.unwrap_err().to_string().contains("multiple of 256"));
}

#[test]
fn other_backends_have_no_handles_of_cudas() {
    let device = Device::cpu(1).unwrap();
    let stream = device.stream(0);
    let y = api::ones::<f32>([4]).sync_on(&stream).unwrap();
    let other = |error: Error| {
        assert!(matches!(error, Error::OtherBackend { backend: "CUDA", .. }), "{error}");
    };
    other(y.cuda().map(drop).unwrap_err());
    other(stream.cuda().map(drop).unwrap_err());
    let graph = value(()).graph_on(&stream).unwrap();
    other(graph.cuda_exec().map(drop).unwrap_err());
    // SAFETY: nothing is called with the handle, which is none.
    let op = unsafe { raw_graph("none", (), std::ptr::null_mut(), ()) };
    other(op.sync_on(&stream).unwrap_err());
}
