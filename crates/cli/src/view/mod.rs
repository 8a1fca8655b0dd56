//! `phonograph view`: a local page of graphs, their schedules and their memory.

pub mod page;
mod server;
pub mod trace;

use std::path::PathBuf;

use anyhow::{Result, bail};
use phonograph::report::html::{Page, Served};

use crate::costs::Source;
use crate::{Answer, input, title};

const EXAMPLES: &str = "\
Examples:
    phonograph view graph.dot --open
    phonograph view before.json after.json     both, side by side, with what differs";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Graphs: JSON or DOT, plain or gzip. Two are also shown side by side.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The port on this machine; a free one if none is given.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Open the page in the browser.
    #[arg(long)]
    open: bool,
    /// The most streams of the schedule.
    #[arg(long, default_value_t = page::STREAMS, value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,
    /// What the nodes of the graph cost: a trace of PyTorch's profiler, or a file that `run --profile` wrote; for one graph.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer> {
    if args.costs.is_some() && args.files.len() > 1 {
        bail!("costs are those of one graph, and {} are given", args.files.len());
    }
    let mut looks = Vec::with_capacity(args.files.len());
    for file in &args.files {
        let graph = input::graph(file)?;
        let costs = args.costs.as_deref();
        let costs = costs.map(|path| Source::read(path, &graph)).transpose()?;
        looks.push(page::Look::new(graph, title(file), args.streams, costs)?);
    }
    let mut pages: Vec<Page> = Vec::with_capacity(looks.len() + 1);
    if let [before, after] = &looks[..] {
        pages.push(page::comparison(before, after)?);
    }
    for look in &looks {
        pages.push(look.page()?);
    }
    let names: Vec<String> = args.files.iter().map(|file| title(file)).collect();
    server::serve(Served::new(&names.join(", "), pages)?, args.port, args.open)?;
    Ok(Answer::Yes)
}
