//! `phonograph optimize`: rewrite a graph so that it does the same with less, each pass proved by the rewrite checker.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use phonograph::graph::{ComputeGraph, Image, check_rewrite, to_dot, to_json};
use phonograph::plan::analysis::{Budget, Width, levels, summary, width};
use phonograph::plan::passes::{Pass, PassReport, optimize};
use phonograph::plan::streams::StreamLimit;
use phonograph::report::html::html_of;
use serde_json::{Value, json};

use crate::planning::{Planned, schedule_of};
use crate::view::page::{Look, rewriting};
use crate::{Answer, GraphFile, deliver, harmless, input, print, print_json, progress, title};

const EXAMPLES: &str = "\
Examples:
    phonograph optimize graph.json faster.json                what was changed, what was left and why
    phonograph optimize graph.dot fewer.dot -O1               only edges and empty nodes, as any driver's graph allows
    phonograph optimize graph.json faster.json --html both.html";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: GraphFile,
    /// Where the graph goes: a `.json` or `.dot` file.
    output: PathBuf,
    /// How much to do: 0 nothing; 1 edges and empty nodes; 2 also copies, fills, dead nodes, fusion and in-place updates; 3 also programmatic edges.
    #[arg(short = 'O', long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=3))]
    level: u8,
    /// Run this pass, then the next one that is named, instead of those of a level.
    #[arg(long = "pass", value_name = "PASS", conflicts_with = "level")]
    passes: Vec<Pass>,
    /// The most streams for the waits and memory in the table.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,
    /// The report as JSON.
    #[arg(long)]
    json: bool,
    /// Also write a page to this file: the graph before and after, side by side.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let write = format_of(&args.output)?;
    if args.html.as_ref() == Some(&args.output) {
        bail!("{} cannot hold both the graph and the page", args.output.display());
    }
    input::keep([args.input.file.as_path(), &args.output], args.html.as_deref())?;
    let graph = input::graph(&args.input.file)?;
    let passes = match args.passes.as_slice() {
        [] => Pass::of_level(args.level),
        passes => passes,
    };
    let bar = progress(passes.len() as u64, "passes");
    let mut wrong = None;
    let mut image = Image::identity(graph.node_count());
    let (optimized, reports) = optimize(&graph, passes, |before, done| {
        let violations = check_rewrite(before, &done.graph, &done.image);
        if let Some(first) = violations.into_iter().next() {
            wrong.get_or_insert((done.report.pass, first));
        }
        image = image.then(&done.image);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    if let Some((pass, violation)) = wrong {
        bail!("the pass “{pass}” is wrong, which is a bug: {violation}");
    }
    let streams = StreamLimit::AtMost(args.streams);
    let before = Planned::new(&graph, streams, None, None)?;
    let after = Planned::new(&optimized, streams, None, None)?;
    let figures = [Figures::of(&graph, &before)?, Figures::of(&optimized, &after)?];
    deliver(write(&optimized).as_bytes(), Some(&args.output))?;
    if let Some(path) = &args.html {
        let title = title(&args.input.file);
        let before = Look::planned(graph, title.clone(), before, None)?;
        let after = Look::planned(optimized, format!("{title}, optimized"), after, None)?;
        let pages = [rewriting(&before, &after, &image)?, before.page()?, after.page()?];
        deliver(html_of(&title, &pages)?.as_bytes(), Some(path))?;
    }
    if args.json {
        let [before, after] = figures.map(|figures| figures.json());
        let passes: Vec<Value> = reports.iter().map(report).collect();
        print_json(&json!({
            "before": before, "after": after, "passes": passes, "checked": true,
        }))?;
    } else {
        let mut text = format!("{}, proved by the checker\n", title(&args.input.file));
        text += &table(&figures);
        text += "passes, with the ids of the graph that each of them got\n";
        for report in &reports {
            text += &format!("{report}\n");
        }
        print(harmless(&text).as_bytes())?;
    }
    Ok(Answer::Yes)
}

/// How to write a file of this name.
fn format_of(path: &Path) -> Result<fn(&ComputeGraph) -> String> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Ok(to_json),
        Some("dot" | "gv") => Ok(to_dot),
        _ => bail!(
            "{} ends in neither .json nor .dot, so it is unclear what to write",
            path.display()
        ),
    }
}

/// What the table compares. Sums count graphs inside nodes, too; width, levels, waits are those of the outermost graph.
struct Figures {
    nodes: usize,
    edges: usize,
    kernels: usize,
    redundant_edges: usize,
    critical_path_nodes: usize,
    levels: usize,
    width: Width,
    waits: usize,
    pool_bytes: u64,
}

impl Figures {
    fn of(graph: &ComputeGraph, planned: &Planned) -> Result<Self> {
        let found = summary(graph);
        let schedule = schedule_of(&planned.plan)?;
        Ok(Self {
            nodes: found.nodes,
            edges: found.edges,
            kernels: found.kinds.get("kernel").copied().unwrap_or(0),
            redundant_edges: found.redundant.len(),
            critical_path_nodes: found.critical_path_nodes,
            levels: levels(graph).widths.len(),
            width: width(graph, Budget::default()),
            waits: schedule.wait_count(),
            pool_bytes: schedule.pool_bytes(),
        })
    }

    fn json(&self) -> Value {
        json!({
            "nodes": self.nodes,
            "edges": self.edges,
            "kernels": self.kernels,
            "redundant_edges": self.redundant_edges,
            "critical_path_nodes": self.critical_path_nodes,
            "levels": self.levels,
            "width": [self.width.lower, self.width.upper],
            "waits": self.waits,
            "pool_bytes": self.pool_bytes,
        })
    }

    fn rows(&self) -> [(&'static str, String); 9] {
        let width = match self.width.exact() {
            Some(width) => width.to_string(),
            None => format!("{} to {}", self.width.lower, self.width.upper),
        };
        [
            ("nodes", self.nodes.to_string()),
            ("edges", self.edges.to_string()),
            ("kernels", self.kernels.to_string()),
            ("redundant edges", self.redundant_edges.to_string()),
            ("critical path", self.critical_path_nodes.to_string()),
            ("levels", self.levels.to_string()),
            ("width", width),
            ("waits", self.waits.to_string()),
            ("memory, B", self.pool_bytes.to_string()),
        ]
    }
}

fn table([before, after]: &[Figures; 2]) -> String {
    let mut text = format!("  {:<16} {:>16} {:>16}\n", "", "before", "after");
    for ((name, before), (_, after)) in before.rows().into_iter().zip(after.rows()) {
        text += &format!("  {name:<16} {before:>16} {after:>16}\n");
    }
    text
}

/// What a pass says, its lists cut off where no one reads on.
fn report(report: &PassReport) -> Value {
    const MOST: usize = 1000;
    let left = report
        .left
        .iter()
        .take(MOST)
        .map(|left| json!({ "node": left.node.0, "why": left.why.to_string() }));
    let changes = report.changed.iter().take(MOST).map(ToString::to_string);
    let inner = report.inner.iter().map(|(node, graph, inner)| {
        let mut inner = self::report(inner);
        inner["inside"] = json!([node.0, graph]);
        inner
    });
    json!({
        "pass": report.pass,
        "counts": report.counts(),
        "changes": changes.collect::<Vec<_>>(),
        "left": left.collect::<Vec<_>>(),
        "left_count": report.left.len(),
        "inner": inner.collect::<Vec<_>>(),
    })
}
