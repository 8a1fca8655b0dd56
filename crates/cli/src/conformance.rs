//! `phonograph conformance`: the model against recorded answers of a driver.

use std::path::PathBuf;

use anyhow::{Context, Result};
use phonograph::capture::conformance::conformance;
use serde_json::json;

use crate::{Answer, harmless, input, print, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// Recordings: capture programs, update pairs or call tables, plain or gzip; the kind is found by itself.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print the first divergence of each record that is not right.
    #[arg(short, long)]
    verbose: bool,
    /// The counts as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let mut all_right = true;
    let mut reports = Vec::new();
    for file in &args.files {
        let name = file.display().to_string();
        let bytes = input::bytes(file).with_context(|| format!("cannot read {name}"))?;
        let tally = conformance(&bytes).with_context(|| format!("{name} is no recording"))?;
        all_right &= tally.all_right();
        let divergences = tally.divergences.iter().filter(|_| args.verbose);
        if args.json {
            reports.push(json!({
                "file": name,
                "unit": tally.unit,
                "right": tally.right,
                "total": tally.total,
                "steps_right": tally.steps.map(|(right, _)| right),
                "steps_total": tally.steps.map(|(_, total)| total),
                "divergences": divergences.map(ToString::to_string).collect::<Vec<_>>(),
            }));
            continue;
        }
        let mut text = format!("{name}: {tally}\n");
        for divergence in divergences {
            text += &format!("  {}\n", harmless(&divergence.to_string()));
        }
        print(text.as_bytes())?;
    }
    if args.json {
        print_json(&json!({ "all_right": all_right, "files": reports }))?;
    }
    Ok(if all_right { Answer::Yes } else { Answer::No })
}
