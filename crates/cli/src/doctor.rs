//! `phonograph doctor`: what works on this machine.

use anyhow::Result;
use phonograph::graph::{DType, Expr, GraphBuilder, Schedule, View};
use phonograph::runtime::cpu::kernels::Registry;
use phonograph::runtime::cpu::{Bindings, Cpu};
use serde_json::json;

use crate::{Answer, print, print_json};

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
    let said = match &cpu {
        Ok(()) => format!("works, {cores} workers by default"),
        Err(error) => format!("does not work: {error:#}"),
    };
    let features = features();
    if args.json {
        print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cores": cores,
            "cpu_features": features,
            "backends": { "cpu": { "works": works, "detail": said } },
        }))?;
    } else {
        let version = env!("CARGO_PKG_VERSION");
        let target = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
        let features = if features.is_empty() { "none known".into() } else { features.join(", ") };
        let text = format!(
            "phonograph {version} on {target}\n  cores        {cores}\n  vector units {features}\n  backend cpu  {said}\n"
        );
        print(text.as_bytes())?;
    }
    Ok(if works { Answer::Yes } else { Answer::No })
}

/// Replays a graph of one node and looks at what it computed.
fn probe_cpu(workers: u32) -> Result<()> {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4096);
    let view = View::contiguous(x, DType::F32, &[1024])?;
    let add = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?;
    b.add_elementwise("add", add.into(), &[view], &[], &[view]);
    let graph = b.build()?;
    let mut cpu = Cpu::new(workers)?;
    let registry = Registry::new();
    let mut exec =
        cpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new(&registry))?;
    cpu.replay(&mut exec)?;
    cpu.replay(&mut exec)?;
    let memory = exec.memory(x).ok_or_else(|| anyhow::anyhow!("the buffer has no memory"))?;
    let values = cpu.slice::<f32>(memory)?;
    anyhow::ensure!(values.iter().all(|&v| v == 2.0), "two replays of x + 1 gave {}", values[0]);
    Ok(())
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
