//! `phonograph doctor`: what works on this machine.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use phonograph::cuda::{
    self, Device, Driver, Feature, Nvrtc, Profiler, TESTED_DRIVER, find_library,
};
use phonograph::graph::{BufferId, ComputeGraph, DType, Expr, GraphBuilder, Schedule, View};
use phonograph::runtime::cpu::kernels::Registry;
use phonograph::runtime::cpu::{Bindings, Cpu};
use phonograph::wgpu::{self, Adapter, Wgpu};
use serde_json::json;

use crate::{Answer, harmless, print, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// The findings as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let cores = std::thread::available_parallelism()?.get();
    let cpu = probe_cpu(u32::try_from(cores)?.min(64));
    let works = cpu.is_ok();
    let cpu = match &cpu {
        Ok(()) => format!("works, {cores} workers by default"),
        Err(error) => format!("does not work: {error:#}"),
    };
    let cuda = Cuda::look();
    let adapters = wgpu::adapters();
    let (wgpu_works, wgpu) = match probe_wgpu() {
        Ok(()) => (true, "works".to_owned()),
        Err(error) => (false, format!("does not work: {error:#}")),
    };
    let features = features();
    if args.json {
        print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cores": cores,
            "cpu_features": features,
            "cuda": cuda.libraries.iter().map(|(name, said)| (*name, said.clone())).collect::<BTreeMap<_, _>>(),
            "cuda_devices": cuda.devices,
            "wgpu_adapters": adapters.iter().map(Adapter::to_string).collect::<Vec<_>>(),
            "backends": {
                "cpu": { "works": works, "detail": cpu },
                "cuda": { "works": cuda.works, "detail": cuda.detail },
                "wgpu": { "works": wgpu_works, "detail": wgpu },
            },
        }))?;
    } else {
        let version = env!("CARGO_PKG_VERSION");
        let target = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
        let features = if features.is_empty() { "none known".into() } else { features.join(", ") };
        let mut text = format!(
            "phonograph {version} on {target}\n  cores        {cores}\n  vector units {features}\n"
        );
        for (name, said) in &cuda.libraries {
            writeln!(text, "  {name:<12} {said}")?;
        }
        for (at, device) in cuda.devices.iter().enumerate() {
            let name = format!("device {at}");
            writeln!(text, "  {name:<12} {device}")?;
        }
        for (at, adapter) in adapters.iter().enumerate() {
            let name = format!("adapter {at}");
            writeln!(text, "  {name:<12} {adapter}")?;
        }
        write!(
            text,
            "  backend cpu  {cpu}\n  backend cuda {}\n  backend wgpu {wgpu}\n",
            cuda.detail
        )?;
        print(harmless(&text).as_bytes())?;
    }
    Ok(if works { Answer::Yes } else { Answer::No })
}

/// What there is of CUDA, piece by piece, and whether it works as a whole.
struct Cuda {
    libraries: Vec<(&'static str, String)>,
    devices: Vec<String>,
    works: bool,
    detail: String,
}

impl Cuda {
    fn look() -> Self {
        let driver = Driver::load();
        let said = |found: Result<String, String>| match found {
            Ok(found) => found,
            Err(problem) => format!("no: {problem}"),
        };
        let nvrtc = Nvrtc::load().map(|nvrtc| format!("{} ({})", nvrtc.version(), nvrtc.library()));
        let libraries = vec![
            ("cuda driver", said(driver.clone().map(about).map_err(|e| e.to_string()))),
            ("nvrtc", said(nvrtc.map_err(|e| e.to_string()))),
            ("cupti", said(Profiler::cupti().map(str::to_owned).map_err(|e| e.to_string()))),
            ("cublas", said(find_library("cublas"))),
        ];
        let count = driver.map_or(0, Driver::devices);
        let describe = |ordinal| match Device::open(ordinal) {
            Ok(device) => {
                let ((major, minor), name) = (device.capability(), device.name());
                let (units, memory) = (device.multiprocessors(), device.memory_bytes() >> 20);
                format!(
                    "{name}, compute capability {major}.{minor}, {units} multiprocessors, {memory} MiB"
                )
            }
            Err(error) => format!("cannot be opened: {error}"),
        };
        let devices = (0..count).map(describe).collect();
        let (works, detail) = match probe_cuda() {
            Ok(()) => (true, "works".to_owned()),
            Err(error) => (false, format!("does not work: {error:#}")),
        };
        Self { libraries, devices, works, detail }
    }
}

fn about(driver: &Driver) -> String {
    let (version, library) = (driver.version(), driver.library());
    let age = if version < TESTED_DRIVER {
        format!(", older than tested, which is {TESTED_DRIVER}")
    } else {
        String::new()
    };
    let lacks: String = Feature::ALL
        .into_iter()
        .filter_map(|feature| driver.offers(feature).err())
        .map(|error| format!("; {error}"))
        .collect();
    format!("for CUDA {version} ({library}){age}{lacks}")
}

/// The graph that backends are tried with: x + 1 on 1024 elements.
fn probe() -> Result<(ComputeGraph, BufferId)> {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4096);
    let view = View::contiguous(x, DType::F32, &[1024])?;
    let add = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?;
    b.add_elementwise("add", add.into(), &[view], &[], &[view]);
    Ok((b.build()?, x))
}

fn check_probe(values: &[f32]) -> Result<()> {
    anyhow::ensure!(values.iter().all(|&v| v == 2.0), "two replays of x + 1 gave {}", values[0]);
    Ok(())
}

/// Replays a graph of one node on the first device and looks at what it computed.
fn probe_cuda() -> Result<()> {
    let (graph, x) = probe()?;
    let mut cuda = cuda::Cuda::new()?;
    let schedule = Schedule::sequential(&graph);
    let mut exec = cuda.instantiate(&graph, &schedule, &cuda::Bindings::new())?;
    cuda.replay(&mut exec)?;
    cuda.replay(&mut exec)?;
    let memory = exec.memory(x).context("the buffer has no memory")?;
    check_probe(&cuda.read(memory)?)
}

/// Replays a graph of one node on the first adapter and looks at what it computed.
fn probe_wgpu() -> Result<()> {
    let (graph, x) = probe()?;
    let mut gpu = Wgpu::new()?;
    let schedule = Schedule::sequential(&graph);
    let mut exec = gpu.instantiate(&graph, &schedule, &wgpu::Bindings::new())?;
    gpu.replay(&mut exec)?;
    gpu.replay(&mut exec)?;
    let memory = exec.memory(x).context("the buffer has no memory")?;
    check_probe(&gpu.read(memory)?)
}

/// Replays a graph of one node and looks at what it computed.
fn probe_cpu(workers: u32) -> Result<()> {
    let (graph, x) = probe()?;
    let mut cpu = Cpu::new(workers)?;
    let registry = Registry::new();
    let mut exec =
        cpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new(&registry))?;
    cpu.replay(&mut exec)?;
    cpu.replay(&mut exec)?;
    let memory = exec.memory(x).context("the buffer has no memory")?;
    check_probe(cpu.slice(memory)?)
}

/// The vector extensions that matrix products and elementwise loops can use.
fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let found = [
        ("sse4.2", std::arch::is_x86_feature_detected!("sse4.2")),
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let found: [(&str, bool); 0] = [];
    found.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}
