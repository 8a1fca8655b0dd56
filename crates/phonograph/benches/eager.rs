//! What executing an operation costs, beside what it computes: tensors of four elements.
//!
//! `cargo bench -p phonograph --bench eager`, on CUDA with `-- cuda`. Every operation is made anew each time, as programs do, and
//! executed again and again; *execute* hands it to the stream, *sync* waits for each. Medians of 15 rounds.

use std::time::Instant;

use phonograph::kernels::expr;
use phonograph::prelude::*;

kernel! { fn add(by: f32, y: &mut [f32]) |_e| { y = y + by; } }

const ROUNDS: usize = 15;
const CALLS: u32 = 200;

fn device() -> Result<Device> {
    if !std::env::args().any(|argument| argument == "cuda") {
        return Device::cpu(1);
    }
    let cuda = phonograph_cuda::Cuda::new().map_err(Error::other)?;
    Device::on(phonograph_cuda::CudaBackend::new(cuda), 4)
}

/// Median time of a call, µs: handed over, and waited for each time.
fn measure(stream: &Stream, mut one: impl FnMut(&Stream, bool) -> Result<()>) -> Result<[f64; 2]> {
    let mut times = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        for (waits, times) in [false, true].into_iter().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..CALLS {
                one(stream, waits)?;
            }
            stream.sync()?;
            if round > 0 {
                times.push(start.elapsed());
            }
        }
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2].as_secs_f64() * 1e6 / f64::from(CALLS)
    }))
}

fn main() -> Result<()> {
    let device = match device() {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let stream = device.stream(0);
    let x = api::ones::<f32>([4]).sync_on(&stream)?;
    let mut y = api::zeros::<f32>([4]).sync_on(&stream)?;
    let rows = api::ones::<f32>([1, 4]).sync_on(&stream)?;
    let mut shares = api::zeros::<f32>([1, 4]).sync_on(&stream)?;
    let empty = value(()).graph_on(&stream)?; // what updates go through
    println!("{:<28} {:>10} {:>10}   µs each", "", "execute", "sync");
    let row = |name: &str, [execute, sync]: [f64; 2]| {
        println!("{name:<28} {execute:>10.2} {sync:>10.2}");
    };
    row(
        "a kernel",
        measure(&stream, |stream, waits| match waits {
            false => empty.update(add(1.0, &mut y).map(drop)),
            true => add(1.0, &mut y).map(drop).sync_on(stream),
        })?,
    );
    row(
        "a copy",
        measure(&stream, |stream, waits| match waits {
            false => empty.update(api::memcpy(&x, &mut y)),
            true => api::memcpy(&x, &mut y).sync_on(stream),
        })?,
    );
    row(
        "a store of two of four",
        measure(&stream, |stream, waits| {
            let store = api::store(vec![2.0f32; 2], y.view_mut().slice(0, 0..2)?);
            if waits { store.sync_on(stream) } else { empty.update(store) }
        })?,
    );
    row(
        "a softmax, composed",
        measure(&stream, |stream, waits| {
            let softmax = compose("softmax", (&rows, &mut shares), |ops, [x, y]| {
                let p = ops.softmax("p", x)?;
                ops.map_into("out", expr::identity(p.dtype), &[p], &[], &[y]).map(drop)
            });
            let softmax = softmax.map(drop);
            if waits { softmax.sync_on(stream) } else { empty.update(softmax) }
        })?,
    );
    row("a launch of one kernel", {
        let graph = add(1.0, &mut y).map(drop).graph_on(&stream)?;
        measure(&stream, |stream, waits| {
            if waits { graph.launch().sync_on(stream) } else { graph.update(graph.launch()) }
        })?
    });
    Ok(())
}
