//! Replays and builds of chains and fork-joins of empty kernels, through the backend and through the driver alone, side by
//! side in one run. Without a device it says so and measures nothing.
//!
//! - *launch*: the call that issues a replay, ours and the driver's of the same executable, in turn; medians.
//! - *replay*: from the call to the end of the work, a node, of our graph and of the captured one, in turn; medians.
//! - *build*: from nothing to an executable. The driver's is captured from a stream, ours is built from a graph.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUresult, CUstreamCaptureMode};
use phonograph_cuda::{Bindings, Cuda, Device, Event, Function, Stream};
use phonograph_graph::{ComputeGraph, GraphBuilder, NodeId, Schedule};

const EMPTY: &str = "extern \"C\" __global__ void empty() {}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut cuda = match Cuda::new() {
        Ok(cuda) => cuda,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let empty = cuda.compile(EMPTY, "empty")?;
    println!("{}", cuda.devices()[0].name());
    println!(
        "{:<22} {:>24} {:>30} {:>30}",
        "",
        "launch ns, ours − driver",
        "replay ns a node, ours/driver",
        "build ns a node, ours/captured"
    );
    for length in [1, 10, 100, 1000, 10_000] {
        row(&mut cuda, &empty, &format!("chain of {length}"), 1, length)?;
    }
    for width in [4, 32] {
        row(&mut cuda, &empty, &format!("fork-join {width} × 100"), width, 100)?;
    }
    Ok(())
}

fn row(
    cuda: &mut Cuda,
    empty: &Function,
    name: &str,
    width: usize,
    length: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let device = cuda.devices()[0].clone();
    let stream = Stream::new(&device)?;
    let graph = fork_join(width, length);
    let schedule = Schedule::sequential(&graph);
    // SAFETY: the kernel does nothing.
    let bindings = unsafe { Bindings::new().kernel("empty", empty) };
    let nodes = graph.node_count() as f64;
    let rounds = (200_000 / graph.node_count()).clamp(5, 50);
    let (mut build, mut capture) = (Vec::new(), Vec::new());
    let mut ready = None;
    for _ in 0..rounds {
        let start = Instant::now();
        let exec = cuda.instantiate(&graph, &schedule, &bindings)?;
        build.push(start.elapsed().as_nanos() as f64 / nodes);
        ready = Some(exec);
        let start = Instant::now();
        let raw = Raw::captured(&device, empty, &stream, width, length);
        capture.push(start.elapsed().as_nanos() as f64 / nodes);
        drop(raw);
    }
    let mut exec = ready.expect("there is at least one round");
    let raw = Raw::captured(&device, empty, &stream, width, length);
    // The thread keeps to one context, as programs do.
    // SAFETY: the device keeps its context.
    unsafe { expect(sys::cuCtxSetCurrent(device.context())) };
    let repeats = (10_000_000 / graph.node_count()).clamp(50, 10_000);
    let (mut launch, mut raw_launch) = (Vec::new(), Vec::new());
    let (mut replay, mut raw_replay) = (Vec::new(), Vec::new());
    for turn in 0..repeats {
        let ours =
            |cuda: &mut Cuda, exec: &mut _| -> Result<[f64; 2], Box<dyn std::error::Error>> {
                let start = Instant::now();
                cuda.launch(exec, &stream)?;
                let called = start.elapsed().as_nanos() as f64;
                stream.synchronize()?;
                Ok([called, start.elapsed().as_nanos() as f64 / nodes])
            };
        let driver = |exec: CUgraphExec| {
            let start = Instant::now();
            // SAFETY: both handles live.
            unsafe { expect(sys::cuGraphLaunch(exec, stream.handle())) };
            let called = start.elapsed().as_nanos() as f64;
            stream.synchronize().map(|()| [called, start.elapsed().as_nanos() as f64 / nodes])
        };
        // Whoever goes first pays for what the other left in the caches.
        let (a, b) = if turn % 2 == 0 {
            let a = ours(cuda, &mut exec)?;
            (a, driver(exec.handle())?)
        } else {
            let b = driver(exec.handle())?;
            (ours(cuda, &mut exec)?, b)
        };
        launch.push(a[0]);
        raw_launch.push(b[0]);
        if turn % 8 == 0 {
            replay.push(a[1]);
            raw_replay.push(driver(raw.exec)?[1]);
        }
    }
    let (a, b) = (median(launch), median(raw_launch));
    let (c, d) = (median(replay), median(raw_replay));
    let (e, f) = (median(build), median(capture));
    println!(
        "{name:<22} {:>24} {:>30} {:>30}",
        format!("{a:.0} − {b:.0} = {:.0}", a - b),
        format!("{c:.0} / {d:.0} = {:.3}", c / d),
        format!("{e:.0} / {f:.0} = {:.3}", e / f),
    );
    Ok(())
}

/// `width` chains of `length` between a first and a last kernel; for a width of 1 a chain of `length`.
fn fork_join(width: usize, length: usize) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let mut kernel = || b.add_kernel("empty", 1, 32, 0).finish();
    if width == 1 {
        let chain: Vec<NodeId> = (0..length).map(|_| kernel()).collect();
        b.chain(&chain);
        return b.build().expect("a chain");
    }
    let first = kernel();
    let chains: Vec<Vec<NodeId>> =
        (0..width).map(|_| (0..length).map(|_| kernel()).collect()).collect();
    let last = kernel();
    for chain in &chains {
        b.dep(first, chain[0]).chain(chain).dep(chain[length - 1], last);
    }
    b.build().expect("a fork-join")
}

/// The same graph, captured by the driver from launches on streams.
struct Raw {
    graph: CUgraph,
    exec: CUgraphExec,
    device: Device,
}

impl Raw {
    fn captured(
        device: &Device,
        empty: &Function,
        stream: &Stream,
        width: usize,
        length: usize,
    ) -> Self {
        let streams: Vec<Stream> =
            (1..width).map(|_| Stream::new(device).expect("a stream")).collect();
        let event = || Event::new(device).expect("an event");
        let launch = |stream: &Stream| {
            // SAFETY: the function has no parameters; stream and function live.
            unsafe {
                let none: *mut *mut c_void = ptr::null_mut();
                let (function, stream) = (empty.handle(), stream.handle());
                expect(sys::cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, none, none));
            }
        };
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the device keeps its context, and the stream lives.
        unsafe {
            expect(sys::cuCtxSetCurrent(device.context()));
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            expect(sys::cuStreamBeginCapture_v2(stream.handle(), mode));
        }
        if width > 1 {
            launch(stream);
            let fork = event();
            fork.record(stream).expect("a record");
            streams.iter().for_each(|other| other.wait(&fork).expect("a wait"));
        }
        let all = std::iter::once(stream).chain(&streams);
        all.for_each(|stream| (0..length).for_each(|_| launch(stream)));
        if width > 1 {
            for other in &streams {
                let join = event();
                join.record(other).expect("a record");
                stream.wait(&join).expect("a wait");
            }
            launch(stream);
        }
        // SAFETY: the capture was begun above on this thread.
        unsafe {
            expect(sys::cuStreamEndCapture(stream.handle(), &mut graph));
            expect(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            expect(sys::cuGraphUpload(exec, stream.handle()));
        }
        Self { graph, exec, device: device.clone() }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.device.synchronize().expect("the device works");
        // SAFETY: both are this value's own, and nothing runs.
        unsafe {
            expect(sys::cuGraphExecDestroy(self.exec));
            expect(sys::cuGraphDestroy(self.graph));
        }
    }
}

fn expect(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
