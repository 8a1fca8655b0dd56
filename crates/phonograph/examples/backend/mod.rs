//! Where an example runs: the CPU, or with `--backend` a GPU through wgpu or CUDA.

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
