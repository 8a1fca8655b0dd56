//! `phonograph check`: a capture script through the model.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use phonograph::capture::check::{Report, Source, check};
use phonograph::capture::model::FinishedGraph;
use phonograph::graph::to_json;
use phonograph::trace::{SCRIPT_FORMAT, Script};
use serde_json::json;

use crate::{Answer, deliver, harmless, input, print, print_json};

#[derive(clap::Args)]
#[command(after_long_help = SCRIPT_FORMAT)]
pub struct Args {
    /// The script: one call a line, in the form that is described below (`--help`); `-` for standard input.
    script: PathBuf,
    /// The findings as JSON.
    #[arg(long)]
    json: bool,
    /// Whether to colour the report.
    #[arg(long, visible_alias = "color", value_enum, default_value_t = Colour::Auto)]
    colour: Colour,
    /// Write the captured graph, or the one built by hand, to this file, as JSON for `show`, `plan` and `diff`.
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Of several graphs the one to write: its name (`end S as NAME`, `graph NAME`), or its number, from 1; without this they are listed.
    #[arg(long, value_name = "GRAPH", requires = "graph")]
    pick: Option<String>,
}

/// When a report is coloured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    Always,
    Never,
}

impl Colour {
    pub fn wanted(self) -> bool {
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        match self {
            Colour::Auto => allowed && io::stdout().is_terminal(),
            Colour::Always => true,
            Colour::Never => false,
        }
    }
}

pub fn run(args: &Args) -> Result<Answer> {
    input::keep([args.script.as_path()], args.graph.as_deref())?;
    let name = input::shown(&args.script);
    let bytes = input::bytes(&args.script)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        anyhow!("{name}:{line}: this is not UTF-8 text")
    })?;
    // Places are written as compilers write them: file:line:column.
    let script = Script::parse(&text).map_err(|error| anyhow!("{name}:{error}"))?;
    let report = check(&script).map_err(|error| anyhow!("{name}: {error}"))?;
    let graphs = latest(&report);
    if args.json {
        let captured = graphs.iter().map(|graph| {
            json!({
                "name": graph.name.map(|name| script.names.graph_name(name)),
                "line": script.calls[graph.begun.index()].place.map(|place| place.line),
                "nodes": graph.nodes.len(),
                "edges": graph.edges().count(),
            })
        });
        print_json(&json!({
            "errors": report.errors(),
            "warnings": report.warnings(),
            "graphs": captured.collect::<Vec<_>>(),
            "findings": serde_json::to_value(&report.findings)?,
        }))?;
    } else {
        let (name, text) = (&harmless(&name), &harmless(&text));
        let source = Source { name, text };
        print(report.render(Some(source), args.colour.wanted()).as_bytes())?;
    }
    let failed = graphs.is_empty() && report.errors() > 0;
    if let Some(file) = args.graph.as_ref().filter(|_| failed) {
        // The report says why; this is its answer, not a wrong use.
        writeln!(
            io::stderr(),
            "error: {} is not written: no capture ends with a graph, and none is built",
            file.display()
        )?;
    } else if let Some(file) = &args.graph {
        let graph = chosen(&graphs, args.pick.as_deref(), &script)
            .with_context(|| format!("{} is not written", file.display()))?;
        let graph = graph.graph(&script.calls, &script.names)?;
        deliver(to_json(&graph).as_bytes(), Some(file))?;
    }
    Ok(if report.errors() == 0 { Answer::Yes } else { Answer::No })
}

/// The graphs that were captured or built by hand, without the bodies of conditionals, which lie in other graphs. One that is captured
/// into several times counts once, as the script left it.
fn latest(report: &Report) -> Vec<&FinishedGraph> {
    let mut at: HashMap<_, usize> = HashMap::new();
    let mut graphs: Vec<&FinishedGraph> = Vec::new();
    for graph in report.graphs.iter().chain(&report.built).filter(|graph| !graph.body) {
        let place = *at.entry((graph.id, graph.name)).or_insert(graphs.len());
        match graphs.get_mut(place) {
            Some(earlier) => *earlier = graph,
            None => graphs.push(graph),
        }
    }
    graphs
}

/// Graphs that an error lists one by one.
const LISTED: usize = 10;

fn chosen<'a>(
    graphs: &[&'a FinishedGraph],
    pick: Option<&str>,
    script: &Script,
) -> Result<&'a FinishedGraph> {
    let name = |graph: &FinishedGraph| graph.name.map(|name| script.names.graph_name(name));
    let list = || {
        let shown = (1..).zip(graphs).take(LISTED).map(|(number, graph): (usize, _)| {
            let line = script.calls[graph.begun.index()].place.map_or(0, |place| place.line);
            let name = name(graph).map_or(String::new(), |name| format!(" `{name}`"));
            let nodes = graph.nodes.len();
            let plural = if nodes == 1 { "" } else { "s" };
            format!("{number}{name} (begun on line {line}, {nodes} node{plural})")
        });
        let more = if graphs.len() > LISTED { ", …" } else { "" };
        format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
    };
    match (graphs, pick) {
        ([], _) => bail!("no capture ends with a graph, and none is built"),
        ([graph], None) => Ok(*graph),
        (_, None) => {
            bail!("there are {} graphs; choose one with --pick: {}", graphs.len(), list())
        }
        (_, Some(pick)) => {
            let named = graphs.iter().find(|graph| name(graph) == Some(pick));
            let numbered = || graphs.get(pick.parse::<usize>().ok()?.checked_sub(1)?);
            let graph = named.or_else(numbered);
            graph.copied().with_context(|| format!("there is no graph `{pick}`, only {}", list()))
        }
    }
}
