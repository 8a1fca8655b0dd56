//! `phonograph diff`: what updating an instance of one graph from another would answer.

use std::path::PathBuf;

use anyhow::Result;
use phonograph::capture::update::{Graph, NodeLabel, Reason, diff};
use serde_json::json;

use crate::{Answer, harmless, input, print, print_json};

const EXAMPLES: &str = "\
Examples:
    phonograph diff old.dot new.dot     as cuGraphDebugDotPrint wrote them; the exit code is 1 if the update fails";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The graph that was instantiated: JSON or DOT, plain or gzip.
    from: PathBuf,
    /// The graph that it is to be updated from.
    to: PathBuf,
    /// The answer as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let [from, to] = [input::graph(&args.from)?, input::graph(&args.to)?];
    let found = diff(&Graph::from(&from), &Graph::from(&to));
    let taken = found.answer.reason == Reason::Success;
    if args.json {
        let label = |label: &NodeLabel| json!({ "node": label.words, "kind": label.kind });
        print_json(&json!({
            "reason": found.answer.reason.name(),
            "code": found.answer.reason.code(),
            "result": found.answer.result().to_string(),
            "rule": found.answer.rule.to_string(),
            "stopped": found.stopped.as_ref().map(|pair| pair.each_ref().map(label)),
            "error_node": found.error_node.as_ref().map(label),
            "error_from": found.error_from.as_ref().map(label),
            "change": found.change,
            "order": found.order.as_ref().map(|order| order.iter().map(|node| node.0).collect::<Vec<_>>()),
            "verdict": found.verdict(),
        }))?;
    } else {
        print(harmless(&format!("{found}")).as_bytes())?;
    }
    Ok(if taken { Answer::Yes } else { Answer::No })
}
