//! Captured graphs of empty kernels whose nodes also depend on their last predecessors, as captured, with the edges that
//! others imply taken out in place, and rebuilt without them; side by side in one run. Without a device it says so and
//! measures nothing.
//!
//! - *replay*: from the call to the end of the work, a node, in turn; medians.
//! - *reduce*: finding the edges, proving the order and taking them out. *instantiate* without that.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use cudarc::driver::sys::{self, CUgraphNode, CUresult};
use phonograph_cuda::{CaptureMode, Captured, Cuda, ForeignExec, Function, Stream};
use phonograph_plan::passes::reduce_edges;

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
    let stream = Stream::new(&cuda.devices()[0])?;
    // The thread keeps to one context, as programs do.
    // SAFETY: the device keeps its context.
    unsafe { expect(sys::cuCtxSetCurrent(cuda.devices()[0].context())) };
    for (length, behind) in [(1000, 2), (1000, 4), (1000, 8), (10_000, 8)] {
        row(&stream, &empty, length, behind)?;
    }
    Ok(())
}

fn row(
    stream: &Stream,
    empty: &Function,
    length: usize,
    behind: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let nodes = length as f64;
    let since = |start: Instant| start.elapsed().as_nanos() as f64 / nodes;
    let start = Instant::now();
    let captured = chain(stream, empty, length, behind)?;
    let capture = since(start);
    let mut edited = chain(stream, empty, length, behind)?;
    let start = Instant::now();
    let reduced = reduce_edges(edited.graph())?.graph;
    let found = since(start);
    let removed = edited.reduce_to(&reduced)?.removed;
    let reduce = since(start);
    let rebuilt = chain(stream, empty, length, behind)?.rebuild(&reduced)?;
    let mut instantiate = Vec::new();
    let mut execs = Vec::new();
    for graph in [captured, edited, rebuilt] {
        let start = Instant::now();
        execs.push(graph.instantiate()?);
        instantiate.push(since(start));
        execs.last_mut().expect("just pushed").upload(stream)?;
    }
    let mut times = [const { Vec::new() }; 3];
    for turn in 0..150 {
        for at in 0..3 {
            let at = (at + turn) % 3;
            times[at].push(replay(&mut execs[at], stream)? / nodes);
        }
    }
    let [a, b, c] = times.map(median);
    println!("chain of {length}, last {behind} predecessors: {removed} edges implied");
    println!(
        "  replay ns a node: captured {a:.0}, reduced {b:.0} = {:.3}, rebuilt {c:.0} = {:.3}",
        b / a,
        c / a
    );
    println!(
        "  ns a node: capture and read {capture:.0}, find {found:.0}, find and take out {reduce:.0}; instantiate captured {:.0}, reduced {:.0}, rebuilt {:.0}",
        instantiate[0], instantiate[1], instantiate[2]
    );
    Ok(())
}

fn replay(exec: &mut ForeignExec, stream: &Stream) -> Result<f64, Box<dyn std::error::Error>> {
    let start = Instant::now();
    // SAFETY: the kernels touch nothing.
    unsafe { exec.launch(stream) }?;
    stream.synchronize()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// Captures a chain in which every kernel also depends on the last `behind` before it.
fn chain(
    stream: &Stream,
    empty: &Function,
    length: usize,
    behind: usize,
) -> Result<Captured, Box<dyn std::error::Error>> {
    let (captured, ()) = stream.capture(CaptureMode::Relaxed, |raw| {
        let mut last: Vec<CUgraphNode> = Vec::with_capacity(length);
        for _ in 0..length {
            let before = last.len().saturating_sub(behind);
            let (nodes, count) = (last[before..].as_mut_ptr(), last.len() - before);
            let none: *mut *mut c_void = ptr::null_mut();
            let add =
                sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_ADD_CAPTURE_DEPENDENCIES;
            let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            let (mut id, mut graph, mut now, mut data, mut waits) =
                (0, ptr::null_mut(), ptr::null(), ptr::null(), 0);
            // SAFETY: the nodes are of this capture; the function has no parameters; the stream waits for the one node that
            // was just made.
            unsafe {
                if count > 0 {
                    expect(sys::cuStreamUpdateCaptureDependencies_v2(
                        raw,
                        nodes,
                        ptr::null(),
                        count,
                        add as u32,
                    ));
                }
                expect(sys::cuLaunchKernel(empty.handle(), 1, 1, 1, 32, 1, 1, 0, raw, none, none));
                expect(sys::cuStreamGetCaptureInfo_v3(
                    raw,
                    &mut status,
                    &mut id,
                    &mut graph,
                    &mut now,
                    &mut data,
                    &mut waits,
                ));
                last.push(*now);
            }
        }
        Ok::<_, std::convert::Infallible>(())
    })?;
    Ok(captured)
}

fn expect(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
