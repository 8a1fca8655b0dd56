//! What one replay costs the host, by how many buffers the graph tracks, and by how many graphs write the same buffer.
//!
//! `cargo bench -p phonograph --bench tracked`, on CUDA with `--features cuda` and `-- cuda`. The graph has one node that does
//! nothing and names a part of each buffer: a host function, on CUDA an empty graph of the driver's. Whatever grows with their
//! number is bookkeeping. *launch* hands a launch to the stream without waiting; *replay* is a launch and its end. *taken
//! turns* adds a conflict: the launches alternate between two streams, so that each waits for the one before. Medians of 15
//! rounds, the counts in turns within a round, so that all see the same machine. The second table has graphs of one kernel that
//! all write one tensor, each launched before, and times one of them; last, how long it takes until all are given back.

use std::time::{Duration, Instant};

use phonograph::prelude::*;
use phonograph::runtime::streams::{Adopt, SoftwareCpu};

const COUNTS: [usize; 4] = [1, 10, 100, 1000];
const ROUNDS: usize = 15;
const REPLAYS: u32 = 200;
/// Graphs that write the same tensor.
const GRAPHS: [usize; 5] = [1, 10, 100, 1000, 10_000];

kernel! {
    /// y ← y + by
    fn add(by: f32, y: &mut [f32]) |_e| { y = y + by; }
}

/// A graph that names all of these.
type Touch = fn(&Device, Vec<Tensor<f32>>) -> Result<CapturedGraph<()>>;

fn main() -> Result<()> {
    #[cfg(feature = "cuda")]
    if std::env::args().any(|argument| argument == "cuda") {
        let touch: Touch = |device, tensors| {
            // SAFETY: nothing is captured, so nothing is touched.
            let op =
                unsafe { phonograph::interop::captured(device, "touch", tensors, (), |_| ()) }?;
            op.map(drop).graph_on(&device.stream(0))
        };
        return match Device::cuda(0) {
            Ok(device) => {
                measure::<phonograph::cuda::CudaBackend>(&device, touch)?;
                beside_others::<phonograph::cuda::CudaBackend>(&device)
            }
            Err(error) => {
                println!("skipped: {error}");
                Ok(())
            }
        };
    }
    let device = Device::cpu(1)?;
    measure::<SoftwareCpu>(&device, |device, tensors| {
        let op = host("touch", tensors, |_| Ok::<(), Error>(()));
        op.map(drop).graph_on(&device.stream(0))
    })?;
    beside_others::<SoftwareCpu>(&device)
}

fn measure<B: Adopt>(device: &Device, touch: Touch) -> Result<()> {
    let streams = [device.stream(0), device.stream(1)];
    let mut graphs = Vec::new();
    for count in COUNTS {
        let tensors: Result<Vec<Tensor<f32>>> =
            (0..count).map(|_| api::zeros::<f32>([16]).sync_on(&streams[0])).collect();
        let graph = touch(device, tensors?)?;
        assert_eq!(graph.graph().buffers().len(), count);
        graphs.push(graph);
    }
    let shared = device.shared::<B>().expect("it is the device's backend");
    let mut times = vec![[const { Vec::<Duration>::new() }; 3]; COUNTS.len()];
    for _ in 0..ROUNDS {
        for (graph, times) in graphs.iter().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..REPLAYS {
                graph.launch().sync_on(&streams[0])?;
            }
            times[1].push(start.elapsed());
            let start = Instant::now();
            for turn in 0..REPLAYS {
                graph.launch().sync_on(&streams[turn as usize % 2])?;
            }
            times[2].push(start.elapsed());
            // Fewer than the stream runs by itself, so that only the handing over is timed.
            let stream = shared.stream();
            let start = Instant::now();
            for _ in 0..16 {
                stream.launch(graph.shared())?;
            }
            times[0].push(start.elapsed() * REPLAYS / 16);
            assert!(stream.sync()?.is_done());
        }
    }
    println!("{:>8} {:>12} {:>12} {:>12}   µs each", "buffers", "launch", "replay", "taken turns");
    for (count, mut times) in COUNTS.into_iter().zip(times) {
        let median = times.each_mut().map(|times| {
            times.sort_unstable();
            let scale = f64::from(REPLAYS);
            times[ROUNDS / 2].as_secs_f64() * 1e6 / scale
        });
        let [launch, replay, turns] = median;
        println!("{count:>8} {launch:>12.2} {replay:>12.2} {turns:>12.2}");
    }
    Ok(())
}

fn beside_others<B: Adopt>(device: &Device) -> Result<()> {
    let stream = device.stream(0);
    let shared = device.shared::<B>().expect("it is the device's backend");
    let mut y = api::zeros::<f32>([16]).sync_on(&stream)?;
    let mut graphs: Vec<CapturedGraph<()>> = Vec::new();
    println!("\n{:>8} {:>12} {:>12}   µs each", "graphs", "launch", "replay");
    for count in GRAPHS {
        while graphs.len() < count {
            graphs.push(add(1.0, &mut y).map(drop).graph_on(&stream)?);
        }
        for graph in &graphs {
            graph.launch().sync_on(&stream)?;
        }
        let graph = &graphs[count / 2];
        let mut times = [const { Vec::<Duration>::new() }; 2];
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..REPLAYS {
                graph.launch().sync_on(&stream)?;
            }
            times[1].push(start.elapsed() / REPLAYS);
            let stream = shared.stream();
            let start = Instant::now();
            for _ in 0..16 {
                stream.launch(graph.shared())?;
            }
            times[0].push(start.elapsed() / 16);
            assert!(stream.sync()?.is_done());
        }
        let [launch, replay] = times.map(|mut times| {
            times.sort_unstable();
            times[ROUNDS / 2].as_secs_f64() * 1e6
        });
        println!("{count:>8} {launch:>12.2} {replay:>12.2}");
    }
    let start = Instant::now();
    drop(graphs);
    assert_eq!(device.report().graphs, 0);
    println!("all given back in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
