//! `phonograph conformance`: the model against recorded answers of a driver.
//!
//! Every file is judged. The exit code is 2 if one of them is no recording, else 1 if an answer is wrong, else 0.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use phonograph::capture::conformance::{Tally, conformance};
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

/// Every file is judged, whatever is wrong with the others.
pub fn run(args: &Args) -> Result<Answer> {
    let mut all_right = true;
    let mut unread = 0;
    let mut reports = Vec::new();
    for file in &args.files {
        let name = file.display().to_string();
        let tally = match tally(file) {
            Ok(tally) => tally,
            Err(error) => {
                unread += 1;
                let error = harmless(&format!("{name}: {error:#}"));
                writeln!(io::stderr(), "error: {error}")?;
                reports.push(json!({ "file": name, "error": error }));
                continue;
            }
        };
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
        print_json(&json!({ "all_right": all_right && unread == 0, "files": reports }))?;
    }
    if unread > 0 {
        bail!("{unread} of {} files cannot be read as recordings", args.files.len());
    }
    Ok(if all_right { Answer::Yes } else { Answer::No })
}

fn tally(file: &Path) -> Result<Tally> {
    Ok(conformance(&input::bytes(file).context("cannot be read")?)?)
}
