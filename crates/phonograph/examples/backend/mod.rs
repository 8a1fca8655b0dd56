//! Where an example runs: the CPU, or with `--backend` a GPU through wgpu or CUDA.

use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use phonograph::prelude::*;
use phonograph_wgpu::{Wgpu, WgpuBackend};

/// How many streams a device is opened with.
const STREAMS: u32 = 4;

/// What serves a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// Worker threads of this process.
    Cpu,
    /// The GPU that wgpu prefers.
    Wgpu,
    /// The first CUDA device.
    #[cfg(feature = "cuda")]
    Cuda,
}

#[derive(Parser)]
struct Options {
    /// Where to run. `cuda` is there with the feature of that name.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
}

impl Backend {
    /// What the command line asks for.
    pub fn asked_for() -> Self {
        Options::parse().backend
    }

    /// A device, on the CPU with so many workers.
    pub fn open(self, workers: u32) -> Result<Device> {
        match self {
            Self::Cpu => Device::cpu(workers),
            // As `Device::wgpu`, which is there with the feature `wgpu` alone.
            Self::Wgpu => {
                let gpu = Wgpu::new().map_err(|error| Error::Start(error.to_string()))?;
                Device::on(WgpuBackend::new(gpu), STREAMS)
            }
            #[cfg(feature = "cuda")]
            Self::Cuda => Device::cuda(0),
        }
    }
}

/// How long the same work took eagerly and replayed, the least of several rounds: the first one also makes kernels ready.
pub struct Times {
    eager: Duration,
    replay: Duration,
}

impl Times {
    pub fn new() -> Self {
        Self { eager: Duration::MAX, replay: Duration::MAX }
    }

    pub fn eagerly<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        least(&mut self.eager, work)
    }

    pub fn replayed<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        least(&mut self.replay, work)
    }

    /// Both, a piece of so many.
    pub fn tell(&self, what: &str, of: u32) {
        let us = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(of);
        println!("{what}: {:.1} µs eagerly, {:.1} µs replayed", us(self.eager), us(self.replay));
    }
}

fn least<R>(time: &mut Duration, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let start = Instant::now();
    let result = work();
    *time = (*time).min(start.elapsed());
    result
}

/// A device of every other backend that this machine has; the output says which it lacks.
#[cfg(test)]
pub fn others() -> Vec<Device> {
    let others = Backend::value_variants().iter().filter(|backend| **backend != Backend::Cpu);
    let opened = others.map(|backend| (backend, backend.open(1)));
    let there = opened.filter_map(|(backend, device)| match device {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("{backend:?} skipped: {error}");
            None
        }
    });
    there.collect()
}
