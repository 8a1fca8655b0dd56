//! Four things that a program may well do with a captured graph, on both sides: what happened is printed, and ours is checked.

use std::fmt::Display;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cuda_async::cuda_graph::CudaGraph;
use cuda_async::device_box::DeviceBox;
use cuda_async::device_operation::{
    DeviceOp as _, ExecutionContext as TheirContext, value, with_context,
};
use cuda_async::error::DeviceError;
use cuda_core::{DeviceBuffer, Stream as TheirStream};
use phonograph::prelude::*;

use crate::Failure;
use crate::ops::{self, BYTES, ELEMENTS, OurFill, TheirFill, Written};

const PAUSE: Duration = Duration::from_millis(50);

fn told<T, E: Display>(what: &str, outcome: &Result<T, E>) {
    match outcome {
        Ok(_) => println!("    {what}: ok"),
        Err(error) => println!("    {what}: {error}"),
    }
}

fn their_buffer(stream: &TheirStream) -> Result<Written, Failure> {
    let buffer = DeviceBuffer::<u32>::zeroed(stream, ELEMENTS as usize)?;
    Ok(Written { storage: buffer.into_storage(), tracked: true })
}

/// A buffer that is made, and filled, by the operation.
fn their_zeros() -> impl cuda_async::device_operation::DeviceOp<Output = DeviceBox<[u32]>> {
    with_context(|cx: &TheirContext| {
        let stream = cx.get_cuda_stream().clone();
        // SAFETY: the memory is the box's from here on, and filled before anything reads it, in the order of the stream.
        let made = unsafe {
            cx.alloc_async(BYTES).and_then(|address| {
                cuda_core::memset_d8_async(address, 0, BYTES, &stream)?;
                Ok(DeviceBox::<[u32]>::from_raw_parts(address, ELEMENTS as usize, stream))
            })
        };
        Given(made)
    })
}

/// An operation that gives what it was made from.
struct Given<T>(Result<T, DeviceError>);

impl<T: Send> cuda_async::device_operation::DeviceOp for Given<T> {
    type Output = T;

    unsafe fn execute(self, _: &TheirContext) -> Result<T, DeviceError> {
        self.0
    }
}

impl<T: Send> std::future::IntoFuture for Given<T> {
    type Output = Result<T, DeviceError>;
    type IntoFuture = cuda_async::device_future::DeviceFuture<T, Self>;

    fn into_future(self) -> Self::IntoFuture {
        let error = DeviceError::Internal("the bench awaits nothing".into());
        cuda_async::device_future::DeviceFuture::failed(error)
    }
}

fn update_then_elsewhere(
    stream: &Arc<TheirStream>,
    other: &Arc<TheirStream>,
    device: &Device,
) -> Result<(), Failure> {
    println!("an update, then a launch on another stream");
    println!("  cuda-async");
    let to = their_buffer(stream)?;
    let graph =
        CudaGraph::scope(stream, |scope| scope.record(TheirFill { to: to.clone(), byte: 1 }))?;
    told("update", &graph.update(TheirFill { to: to.clone(), byte: 2 }));
    told("launch on another stream", &graph.launch().sync_on(other));
    told("launch on the graph's own", &graph.launch().sync_on(stream));
    told("launch on another stream after that", &graph.launch().sync_on(other));

    println!("  ours");
    let mut y = api::zeros::<u32>([ELEMENTS.into()]).sync_on(&device.stream(0))?;
    let graph = CapturedGraph::scope(&device.stream(0), |scope| {
        scope.record(ops::add_one(&mut y)).map(drop)
    })?;
    graph.update(OurFill { to: &mut y, byte: 1 })?;
    let launched = graph.launch().sync_on(&device.stream(1));
    told("update, launch on another stream", &launched);
    launched?;
    assert_eq!(y.to_vec()?, vec![0x0101_0102; ELEMENTS as usize]);
    Ok(())
}

fn allocating(stream: &Arc<TheirStream>, device: &Device) -> Result<(), Failure> {
    println!("an operation that allocates, captured and launched twice");
    println!("  cuda-async");
    match CudaGraph::capture(stream.clone(), their_zeros()) {
        Ok(graph) => {
            told("first launch", &graph.launch().sync_on(stream));
            told("second launch", &graph.launch().sync_on(stream));
        }
        Err(error) => println!("    capture: {error}"),
    }

    println!("  ours");
    let mut graph = api::full([ELEMENTS.into()], 3u32).graph_on(&device.stream(0))?;
    for which in ["first launch", "second launch"] {
        let launched = graph.launch().sync_on(&device.stream(0));
        told(which, &launched);
        launched?;
    }
    let made = graph.take_output().ok_or("a capture has an output")?;
    assert_eq!(made.to_vec()?, vec![3; ELEMENTS as usize]);
    Ok(())
}

fn shared(
    stream: &Arc<TheirStream>,
    other: &Arc<TheirStream>,
    device: &Device,
) -> Result<(), Failure> {
    println!("a shared result that a capture has made, executed on another stream");
    println!("  cuda-async");
    let to = their_buffer(stream)?;
    let fill = TheirFill { to, byte: 1 }.shared();
    let graph = CudaGraph::capture(stream.clone(), fill.clone());
    told("capture", &graph);
    told("on another stream, before a launch", &fill.clone().sync_on(other));
    if let Ok(graph) = &graph {
        told("launch", &graph.launch().sync_on(stream));
        told("on another stream, after it", &fill.clone().sync_on(other));
    }
    told("something else on another stream", &value(1).sync_on(other));

    println!("  ours");
    let made = api::full([ELEMENTS.into()], 3u32).map(Arc::new).shared();
    let mut graph = made.clone().graph_on(&device.stream(0))?;
    let elsewhere = made.clone().sync_on(&device.stream(1));
    told("on another stream", &elsewhere);
    assert!(matches!(elsewhere, Err(phonograph::Error::SharedInCapture)));
    graph.launch().sync_on(&device.stream(0))?;
    let output = graph.take_output().ok_or("a capture has an output")?;
    assert_eq!(output.to_vec()?, vec![3; ELEMENTS as usize]);
    println!("    the graph's output after a launch: ok");
    Ok(())
}

fn zero_while_capturing(
    stream: &Arc<TheirStream>,
    other: &Arc<TheirStream>,
    device: &Device,
) -> Result<(), Failure> {
    println!("a buffer zeroed on the capturing stream, past the scope");
    println!("  cuda-async");
    let mut buffer = DeviceBuffer::<u32>::zeroed(stream, ELEMENTS as usize)?;
    let to = their_buffer(stream)?;
    let graph = CudaGraph::scope(stream, |scope| {
        told("zero", &buffer.zero_async(stream));
        // A thread of cuda-async's looks every millisecond whether that is done.
        thread::sleep(PAUSE);
        let recorded = scope.record(TheirFill { to: to.clone(), byte: 1 });
        told("the next operation", &recorded);
        recorded
    });
    told("capture", &graph);
    if let Ok(graph) = &graph {
        told("launch", &graph.launch().sync_on(stream));
    }
    told("read what was zeroed", &buffer.to_host_vec(stream));
    thread::sleep(PAUSE);
    told("zero it on another stream", &buffer.zero_async(other));

    println!("  ours");
    let mut y = api::zeros::<u32>([ELEMENTS.into()]).sync_on(&device.stream(0))?;
    let graph = CapturedGraph::scope(&device.stream(0), |scope| {
        let zeroed = OurFill { to: &mut y, byte: 0 }.sync_on(&device.stream(0));
        told("zero", &zeroed);
        assert!(matches!(zeroed, Err(phonograph::Error::NonReentrant { .. })));
        scope.record(ops::add_one(&mut y)).map(drop)
    });
    told("capture", &graph);
    graph?.launch().sync_on(&device.stream(0))?;
    assert_eq!(y.to_vec()?, vec![1; ELEMENTS as usize]);
    println!("    launch: ok");
    Ok(())
}

/// Each on streams of its own, since what fails may stay with a stream.
pub fn print(context: &Arc<cuda_core::Context>, device: &Device) -> Result<(), Failure> {
    let streams = || Ok::<_, Failure>((context.new_stream()?, context.new_stream()?));
    let (stream, other) = streams()?;
    update_then_elsewhere(&stream, &other, device)?;
    let (stream, _) = streams()?;
    allocating(&stream, device)?;
    let (stream, other) = streams()?;
    shared(&stream, &other, device)?;
    let (stream, other) = streams()?;
    zero_while_capturing(&stream, &other, device)
}
