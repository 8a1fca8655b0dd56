//! `phonograph explain`: a traced program's calls through the model.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use phonograph::capture::check::{Traced, check_trace};
use phonograph::report::text::{count, thousands};
use phonograph::trace::CuResult;
use phonograph::trace::live::{Stop, Trace};
use serde_json::json;

use crate::check::Colour;
use crate::sites::Sites;
use crate::{Answer, harmless, input, print, print_json};

const EXAMPLES: &str = "\
Examples:
    phonograph explain phonograph.trace
    phonograph explain run.trace --json | jq '.findings[0].title'

Calls are written as `phonograph check --help` says; the number before each is its place among the recorded calls.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The trace, as `phonograph trace` writes it; plain or gzip, `-` for standard input.
    file: PathBuf,
    /// The findings as JSON.
    #[arg(long)]
    json: bool,
    /// Whether to colour the report.
    #[arg(long, visible_alias = "color", value_enum, default_value_t = Colour::Auto)]
    colour: Colour,
}

pub fn run(args: &Args) -> Result<Answer> {
    let name = input::shown(&args.file);
    let bytes = input::bytes(&args.file)?;
    let mut trace = Trace::read(&bytes).map_err(|error| anyhow!("{name}: {error}"))?;
    crate::sites::shorten_kernels(&mut trace);
    let traced = check_trace(&trace);
    let sites = Sites::of(&trace);
    let report = &traced.report;
    if args.json {
        let findings = report.findings.iter().map(|finding| {
            let mut value = serde_json::to_value(finding)?;
            value["site"] = serde_json::to_value(sites.lines(finding.at.call))?;
            Ok(value)
        });
        print_json(&json!({
            "captures": traced.captures,
            "failed": traced.failed,
            "other_launches": traced.other_launches,
            "graphs": report.graphs.iter().zip(&traced.launches).map(|(graph, launches)| {
                json!({ "nodes": graph.nodes.len(), "launches": launches })
            }).collect::<Vec<_>>(),
            "errors": report.errors(),
            "warnings": report.warnings(),
            "findings": findings.collect::<Result<Vec<_>>>()?,
        }))?;
    } else {
        let text = report.render_sites(&|call| sites.lines(call), args.colour.wanted());
        print(text.as_bytes())?;
        print(format!("{}\n", totals(&trace, &traced)).as_bytes())?;
    }
    Ok(if report.errors() == 0 { Answer::Yes } else { Answer::No })
}

/// A summary of a trace.
pub fn summary(trace: &Trace) -> String {
    totals(trace, &check_trace(trace))
}

/// Graphs that are listed one by one.
const LISTED: usize = 8;

/// Whatever a file says.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{} times", thousands(n)),
    }
}

fn totals(trace: &Trace, traced: &Traced) -> String {
    let graphs = &traced.report.graphs;
    let nodes: usize = graphs.iter().map(|graph| graph.nodes.len()).sum();
    let launches = sum(traced.launches.iter().copied());
    let mut out = format!(
        "{}, {} failed; {} with {}, launched {}",
        count(traced.captures, "capture"),
        traced.failed,
        count(graphs.len(), "graph"),
        count(nodes, "node"),
        times(launches),
    );
    let mut add = |text: String| out.write_str(&text).expect("a String takes everything");
    if graphs.len() > 1 {
        for (graph, launches) in graphs.iter().zip(&traced.launches).take(LISTED) {
            let name = graph.name.map_or("?", |name| trace.script.names.graph_name(name));
            add(format!(
                "\n  {name}: {}, launched {}",
                count(graph.nodes.len(), "node"),
                times(*launches)
            ));
        }
        if let Some(more @ 1..) = graphs.len().checked_sub(LISTED) {
            add(format!("\n  and {}", count(more, "more graph")));
        }
    }
    if traced.other_launches > 0 {
        let launches = times(traced.other_launches);
        add(format!("\ngraphs that were not captured are launched {launches}"));
    }
    if let [first, ..] = trace.drawings.as_slice() {
        let drawn = count(trace.drawings.len(), "graph");
        add(format!("\n{drawn} drawn when instantiated, the first as {}", harmless(&first.1)));
    }
    let passed = sum(trace.passed_over.iter().map(|(_, calls)| *calls));
    if passed > 0 {
        add(format!(
            "\n{} outside captures succeeded, and were only counted",
            count(passed as usize, "call")
        ));
    }
    for site in trace.failed.iter().take(LISTED) {
        let name = harmless(trace.function(site));
        add(format!(
            "\n{name} answered {}, which has nothing to do with captures",
            CuResult(site.raw.result)
        ));
    }
    if traced.skipped > 0 {
        add(format!("\n{} could not be interpreted", count(traced.skipped, "call")));
    }
    match trace.stop {
        Some(Stop::Ended) => {}
        Some(Stop::Full) => {
            add("\nthe trace is full: what the program did after that is not in it".to_owned())
        }
        Some(Stop::Failed) => {
            add("\nthe recorder failed: what the program did after that is not in it".to_owned())
        }
        None => {
            add("\nthe trace ends without an end: the program was killed, or still runs".to_owned())
        }
    }
    out
}
