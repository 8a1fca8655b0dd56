//! Captured graphs beside cuda-async 0.5.0 and the driver alone, in one process and in turn.
//!
//! `bench/cuda-async/build` builds it, on any machine; it runs where a GPU is. A chain of operations on one buffer of 256 bytes is
//! captured anew in each round and replayed a few times.
//!
//! - *record*: an operation, while capturing;
//! - *ready*: from the beginning of the capture until the executable is on the device;
//! - *replay*: a launch and its end, as a program would write it (`launch().sync_on(&stream)`);
//! - *in a row*: a launch, of as many that are handed over before the end of the last is waited for.
//!
//! Each side captures twice in a row and the second is timed, so that none pays for memory that the one before it gave back.
//!
//! `tracked` says that cuda-async's operations register what they write, as those that its macros generate do.
//! `-- behaviours` prints what both do in four situations instead.

mod behaviours;
mod ops;
mod sides;

use std::sync::Arc;
use std::time::Instant;

use cuda_core::{Context, DeviceBuffer};
use phonograph::prelude::*;

use ops::{ELEMENTS, Written};
use sides::{CudaAsync, Driver, Ours, Side, Work};

pub type Failure = Box<dyn std::error::Error>;

const NODES: u32 = 1000;
const ROUNDS: usize = 21;
const REPLAYS: usize = 20;

/// Nanoseconds.
#[derive(Default)]
struct Samples {
    record: Vec<f64>,
    ready: Vec<f64>,
    replay: Vec<f64>,
    in_a_row: Vec<f64>,
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn nanos(call: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let began = Instant::now();
    call()?;
    Ok(began.elapsed().as_nanos() as f64)
}

/// One round of one side.
fn round(side: &mut impl Side, work: Work, samples: &mut Samples) -> Result<(), Failure> {
    let before = side.contents()?;
    drop(side.capture(work, NODES)?);
    let captured = side.capture(work, NODES)?;
    samples.record.push(captured.record.as_nanos() as f64 / f64::from(NODES));
    samples.ready.push(captured.ready.as_nanos() as f64);
    let graph = captured.graph;
    side.replay(&graph)?;
    for _ in 0..REPLAYS {
        samples.replay.push(nanos(|| side.replay(&graph))?);
    }
    let in_a_row = nanos(|| {
        (0..REPLAYS).try_for_each(|_| side.launch(&graph))?;
        side.finish()
    });
    samples.in_a_row.push(in_a_row? / REPLAYS as f64);
    let replays = 2 * REPLAYS as u32 + 1;
    let after: Vec<u32> = match work {
        Work::Fills => vec![0x0707_0707; ELEMENTS as usize],
        Work::Kernels => before.iter().map(|value| value.wrapping_add(NODES * replays)).collect(),
    };
    assert_eq!(side.contents()?, after);
    Ok(())
}

fn row(name: &str, samples: &mut Samples, than: &mut Option<[f64; 4]>) {
    let values = [
        median(&mut samples.record),
        median(&mut samples.ready) / 1e3,
        median(&mut samples.replay) / 1e3,
        median(&mut samples.in_a_row) / 1e3,
    ];
    let driver = *than.get_or_insert(values);
    print!("  {name:<24}");
    for (value, driver) in values.iter().zip(driver) {
        print!(" {value:>9.2} ({:>5.2})", value / driver);
    }
    println!();
}

fn main() -> Result<(), Failure> {
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let context = Context::new(0)?;
    if std::env::args().any(|argument| argument == "behaviours") {
        return behaviours::print(&context, &device);
    }
    let module = context.load_module_from_ptx_src(ops::ADD_ONE)?;
    let function = Arc::new(module.load_function("add_one")?);
    let written = |tracked| {
        let buffer = DeviceBuffer::<u32>::zeroed(&context.default_stream(), ELEMENTS as usize)?;
        Ok::<_, Failure>(Written { storage: buffer.into_storage(), tracked })
    };
    let mut driver =
        Driver { stream: context.new_stream()?, to: written(false)?, function: function.clone() };
    let theirs = |tracked| {
        let (stream, to) = (context.new_stream()?, written(tracked)?);
        Ok::<_, Failure>(CudaAsync { stream, to, function: function.clone() })
    };
    let (mut tracked, mut untracked) = (theirs(true)?, theirs(false)?);
    let stream = device.stream(0);
    let mut ours = Ours { to: api::zeros::<u32>([ELEMENTS.into()]).sync_on(&stream)?, stream };

    println!(
        "{NODES} operations on one buffer, {ROUNDS} captures with {REPLAYS} replays each, medians in turn;"
    );
    println!("in brackets, over the driver's");
    for (work, title) in [(Work::Fills, "fills"), (Work::Kernels, "kernels")] {
        let mut samples: [Samples; 4] = Default::default();
        for _ in 0..ROUNDS {
            round(&mut driver, work, &mut samples[0])?;
            round(&mut tracked, work, &mut samples[1])?;
            round(&mut untracked, work, &mut samples[2])?;
            round(&mut ours, work, &mut samples[3])?;
        }
        println!(
            "{title:<26} {:>17} {:>17} {:>17} {:>17}",
            "record, ns", "ready, µs", "replay, µs", "in a row, µs"
        );
        let names = ["driver", "cuda-async, tracked", "cuda-async, untracked", "ours"];
        let mut than = None;
        for (name, samples) in names.iter().zip(&mut samples) {
            row(name, samples, &mut than);
        }
    }
    Ok(())
}
