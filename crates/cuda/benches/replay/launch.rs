//! The call that issues a replay, and the replay: of our graph and of the same kernels captured by the driver.

use std::time::Instant;

use cudarc::driver::sys::{self, CUgraphExec};
use phonograph_cuda::{Bindings, Cuda, Function, Stream};
use phonograph_graph::{ComputeGraph, GraphBuilder, NodeId, Schedule};

use crate::raw::{Launch, Raw, expect, issue};
use crate::{Outcome, median};

pub fn table(cuda: &mut Cuda, empty: &Function) -> Outcome {
    println!(
        "{:<22} {:>30} {:>30}",
        "", "launch ns, ours − driver", "replay ns a node, ours/driver"
    );
    for length in [1, 10, 100, 1000, 10_000] {
        row(cuda, empty, &format!("chain of {length}"), 1, length)?;
    }
    for width in [4, 32] {
        row(cuda, empty, &format!("fork-join {width} × 100"), width, 100)?;
    }
    Ok(())
}

fn row(cuda: &mut Cuda, empty: &Function, name: &str, width: usize, length: usize) -> Outcome {
    let device = cuda.devices()[0].clone();
    let stream = Stream::new(&device)?;
    let graph = fork_join(width, length);
    // SAFETY: the kernel does nothing.
    let bindings = unsafe { Bindings::new().kernel("empty", empty) };
    let nodes = graph.node_count() as f64;
    let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings)?;
    let raw = Raw::captured(&device, &Launch::empty(empty), &stream, width, length);
    let handle = exec.handles().next().expect("a graph has an executable");
    // The thread keeps to one context, as programs do.
    // SAFETY: the device keeps its context.
    unsafe { expect(sys::cuCtxSetCurrent(device.context())) };
    let repeats = (12_000_000 / graph.node_count()).clamp(1000, 10_000);
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
            issue(exec, &stream);
            let called = start.elapsed().as_nanos() as f64;
            stream.synchronize().map(|()| [called, start.elapsed().as_nanos() as f64 / nodes])
        };
        // Whoever goes first pays for what the other left in the caches.
        let (a, b) = if turn % 2 == 0 {
            let a = ours(cuda, &mut exec)?;
            (a, driver(handle)?)
        } else {
            let b = driver(handle)?;
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
    println!(
        "{name:<22} {:>30} {:>30}",
        format!("{a:.0} − {b:.0} = {:.0}", a - b),
        format!("{c:.0} / {d:.0} = {:.3}", c / d),
    );
    Ok(())
}

/// `width` chains of `length` between a first and a last kernel; for a width of 1 a chain of `length`.
pub fn fork_join(width: usize, length: usize) -> ComputeGraph {
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
