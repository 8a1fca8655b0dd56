//! `phonograph generate`: graphs of known shape and any size.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use phonograph::graph::{MAX_JSON_BYTES, to_dot, to_json};
use phonograph::plan::generate::{Kind, generate};

use crate::{Answer, deliver};

const EXAMPLES: &str = "\
Examples:
    phonograph generate transformer --nodes 200 -o graph.json
    phonograph generate wavefront --nodes 10000 | phonograph plan -";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// chain, layered (layers, each node after some of the one before), wavefront (a square grid), tree (a reduction), transformer (its
    /// forward pass, with real kernels and buffers) or long-edges (each node also after one far away).
    kind: Kind,
    /// How many nodes.
    #[arg(long)]
    nodes: u32,
    /// Another seed gives another graph of the same shape.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write to this file instead of standard output: DOT if its name ends in `.dot`, else JSON.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let graph = generate(args.kind, args.nodes, args.seed)?;
    let dot = args.output.as_ref().and_then(|path| path.extension()).is_some_and(|e| e == "dot");
    let text = if dot { to_dot(&graph) } else { to_json(&graph) };
    ensure!(
        dot || text.len() <= MAX_JSON_BYTES,
        "{} nodes make a file of {} MiB, more than the {} MiB that are read back",
        args.nodes,
        text.len() >> 20,
        MAX_JSON_BYTES >> 20
    );
    deliver(text.as_bytes(), args.output.as_deref())?;
    Ok(Answer::Yes)
}
