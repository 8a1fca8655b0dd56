//! What the shared device costs on CUDA: eager operations beside bare launches of the same kernel, recording, and replays of
//! windows of one and of several streams. Without a device it says so and measures nothing.
//!
//! - *eager*: from the first call until a batch is done, an operation; medians, in turn with the driver's own launches.
//! - *record*: an operation in a window; *seal*: from there to an executable on the device, a node.
//! - *replay*: from the launch until it is done, a node.

use std::ptr;
use std::time::Instant;

use cudarc::driver::sys::{self, CUresult};
use phonograph_cuda::{Cuda, CudaBackend, Function, Stream as DriverStream};
use phonograph_graph::{KernelConfig, KernelNode, KernelRef, NodeKind};
use phonograph_runtime::capture::LogicalStreamId;
use phonograph_runtime::streams::{Device, Graph, Operation, Stream};

const EMPTY: &str = "extern \"C\" __global__ void empty() {}";
const BATCH: usize = 1000;
const ROUNDS: usize = 21;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut cuda = match Cuda::new() {
        Ok(cuda) => cuda,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let empty = cuda.compile(EMPTY, "empty")?;
    println!("{}", cuda.devices()[0].name());
    let raw = DriverStream::new(&cuda.devices()[0])?;
    // SAFETY: the kernel does nothing.
    let backend = unsafe { CudaBackend::new(cuda).kernel("empty", &empty) };
    let device = Device::new(backend, 64)?;
    let stream = device.stream_of(LogicalStreamId { value: 0 });

    let again = operation()?;
    let (mut bare, mut same, mut anew) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(launches(&empty, &raw)?);
        same.push(batch(&stream, || Ok(stream.submit(&again)?))?);
        anew.push(batch(&stream, || Ok(stream.submit(&again.on(&[])?)?))?);
    }
    println!("eager, ns an operation, batches of {BATCH}:");
    println!("  the driver's own launch of the kernel  {:>8.0}", median(bare));
    println!("  one operation, submitted again         {:>8.0}", median(same));
    println!("  its template, taken up anew            {:>8.0}", median(anew));

    println!("{:<30} {:>10} {:>10} {:>10}", "window", "record", "seal", "replay");
    for width in [1, 2, 4, 8, 32] {
        let (mut record, mut seal, mut replay) = (Vec::new(), Vec::new(), Vec::new());
        let nodes = (BATCH / width * width) as f64;
        for _ in 0..ROUNDS.min(7) {
            let (graph, recorded, sealed) = window(&device, &again, width)?;
            record.push(recorded / nodes);
            seal.push(sealed / nodes);
            for _ in 0..ROUNDS {
                let start = Instant::now();
                stream.launch(&graph)?;
                done(&stream)?;
                replay.push(start.elapsed().as_nanos() as f64 / nodes);
            }
        }
        println!(
            "{:<30} {:>10.0} {:>10.0} {:>10.0}",
            format!("{width} × {}, ns a node", BATCH / width),
            median(record),
            median(seal),
            median(replay)
        );
    }
    Ok(())
}

fn operation() -> Outcome<Operation> {
    let kernel = KernelNode {
        kernel: KernelRef::Named("empty".into()),
        config: KernelConfig::linear(1, 32, 0),
        args: [].into(),
        fusible: false,
    };
    Ok(Operation::new("empty", NodeKind::Kernel(kernel), &[])?)
}

fn done(stream: &Stream<CudaBackend>) -> Outcome<()> {
    match stream.sync()?.is_done() {
        true => Ok(()),
        false => Err("a wait outside of a window was put off".into()),
    }
}

fn batch(stream: &Stream<CudaBackend>, submit: impl Fn() -> Outcome<()>) -> Outcome<f64> {
    done(stream)?;
    let start = Instant::now();
    for _ in 0..BATCH {
        submit()?;
    }
    done(stream)?;
    Ok(start.elapsed().as_nanos() as f64 / BATCH as f64)
}

/// The driver's launches of the kernel.
fn launches(empty: &Function, on: &DriverStream) -> Outcome<f64> {
    let none = ptr::null_mut();
    // SAFETY: the context is that of the stream, which lives; the kernel has no parameters and does nothing.
    let launch = || unsafe {
        sys::cuLaunchKernel(empty.handle(), 1, 1, 1, 32, 1, 1, 0, on.handle(), none, none)
    };
    // SAFETY: the context lives as long as the device; it stays current on this thread for all that follows.
    let current = unsafe { sys::cuCtxSetCurrent(on.device().context()) };
    on.synchronize()?;
    let start = Instant::now();
    for _ in 0..BATCH {
        if launch() != CUresult::CUDA_SUCCESS {
            return Err("the driver refuses a launch".into());
        }
    }
    on.synchronize()?;
    let elapsed = start.elapsed().as_nanos() as f64 / BATCH as f64;
    match current {
        CUresult::CUDA_SUCCESS => Ok(elapsed),
        refused => Err(format!("the driver refuses a context: {refused:?}").into()),
    }
}

/// A window of so many streams, its operations dealt out in turn: the graph, and nanoseconds for recording and for sealing.
fn window(
    device: &Device<CudaBackend>,
    op: &Operation,
    width: usize,
) -> Outcome<(Graph, f64, f64)> {
    let streams: Vec<Stream<CudaBackend>> =
        (0..width as u64).map(|value| device.stream_of(LogicalStreamId { value })).collect();
    let others: Vec<&Stream<CudaBackend>> = streams[1..].iter().collect();
    let window = streams[0].prepare_with(&others)?;
    window.begin()?;
    let start = Instant::now();
    for _ in 0..BATCH / width {
        for stream in &streams {
            stream.submit(op)?;
        }
    }
    let recorded = start.elapsed();
    let graph = window.end("branches")?;
    let sealed = start.elapsed() - recorded;
    Ok((graph, recorded.as_nanos() as f64, sealed.as_nanos() as f64))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
