//! Handwritten digits: a training step recorded once and replayed some thousands of times.
//!
//! A 64-128-10 network learns the 1,797 digits of `tests/data`. One graph is a whole training step: gather a batch by
//! a slot, forward, loss, backward, Adam with its step counter in device memory. A second graph classifies the
//! digits held out. Both are planned, proved by the checker and replayed with real data; the parameters are memory
//! that both are bound to.
//!
//! On a GPU (`--backend wgpu`) sums and products round as the device does, and 3000 steps let that grow: the parameters are
//! others, the share of digits that they name right is within 1.5 % of the CPU's.
//!
//! `cargo run --release --example digits` trains five seeds and prints their median; `--help` lists the options. With
//! `--features cuda` there is `--backend cuda`, which also compares the first losses with the CPU's.

#[cfg(feature = "cuda")]
mod cuda;
mod data;
mod device;
mod network;
mod report;
mod training;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use device::Device;
use training::Outcome;

/// Train a small network on handwritten digits through captured graphs.
#[derive(Parser)]
pub struct Options {
    /// Where to run. `cuda` needs the feature of that name, a device and NVRTC.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
    /// Worker threads; the number of cores unless said. The result is the same bits for any number. On a GPU the streams
    /// that are planned for.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Training steps for each seed.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// The first seed: of the parameters and the order of the digits.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds to train.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Run the training step kernel by kernel instead of fused. The result is the same bits.
    #[arg(long)]
    unfused: bool,
    /// Where to write the picture of the training step and of one replay of it.
    #[arg(long, default_value = "digits.html")]
    html: PathBuf,
}

/// Where graphs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Backend {
    /// Worker threads of this process.
    Cpu,
    /// The GPU that wgpu prefers.
    Wgpu,
    /// The first CUDA device.
    Cuda,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let cores = std::thread::available_parallelism()?.get();
    let threads = options.threads.unwrap_or(u32::try_from(cores)?.min(256));
    let digits = data::load()?;
    println!(
        "{} digits for training, {} held out; {} steps of {}",
        digits.train.labels.len(),
        digits.test.labels.len(),
        options.steps,
        network::BATCH,
    );
    if options.backend == Backend::Cuda {
        return on_cuda(&digits, &options, threads);
    }
    let mut device = Device::open(options.backend, threads)?;
    println!("on {}", device.name());
    let bar = progress(options.seeds * u64::from(options.steps))?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for seed in options.seed..options.seed + options.seeds {
        outcomes.push(training::train(&mut device, &digits, seed, &options, threads, &bar)?);
    }
    bar.finish_and_clear();
    report::page(&outcomes[0], &options.html)?;
    report::print(&mut outcomes);
    println!("wrote {}", options.html.display());
    Ok(())
}

#[cfg(feature = "cuda")]
fn on_cuda(digits: &data::Digits, options: &Options, threads: u32) -> Result<(), Box<dyn Error>> {
    let mut backend = phonograph::cuda::Cuda::new()?;
    println!("on {}", backend.devices()[0].name());
    let bar = progress(options.seeds * u64::from(options.steps))?;
    let mut outcomes = Vec::new();
    for seed in options.seed..options.seed + options.seeds {
        outcomes.push(cuda::train(&mut backend, digits, seed, options, threads, &bar)?);
    }
    bar.finish_and_clear();
    cuda::report(&mut outcomes)
}

#[cfg(not(feature = "cuda"))]
fn on_cuda(_: &data::Digits, _: &Options, _: u32) -> Result<(), Box<dyn Error>> {
    Err("this example was built without the feature `cuda`; build it with `--features cuda`".into())
}

fn progress(steps: u64) -> Result<ProgressBar, Box<dyn Error>> {
    if !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("training {wide_bar} {pos}/{len} steps, {eta} left")?;
    Ok(ProgressBar::new(steps).with_style(style))
}
