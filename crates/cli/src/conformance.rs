//! `phonograph conformance`: the model against recorded answers of a driver, or against those of this machine's.
//!
//! Every file is judged. The exit code is 2 if one of them is no recording, else 1 if an answer is wrong, else 0.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use phonograph::capture::conformance::{Tally, conformance};
use serde_json::json;

use crate::{Answer, harmless, input, print, print_json, record};

const EXAMPLES: &str = "\
Examples:
    phonograph conformance recording.jsonl -v
    phonograph conformance recording.jsonl --record answers     asks the driver of this machine";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Recordings: capture programs, update pairs or call tables, plain or gzip; the kind is found by itself.
    #[arg(required_unless_present_any = ["seeds", "answer"])]
    files: Vec<PathBuf>,
    /// Ask this machine's driver the questions of the files and seeds, write the answers to files of the same form in this
    /// folder, and compare those.
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// With `--record`: ask programs and updates made at random from this number; may be given several times.
    #[arg(long = "seed", value_name = "NUMBER", requires = "record")]
    seeds: Vec<u64>,
    /// How many programs and how many updates a seed makes.
    #[arg(long, default_value_t = 1000, requires = "seeds", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: u64,
    /// Answer the recording on standard input; what `--record` starts.
    #[arg(long, hide = true, conflicts_with_all = ["files", "record"])]
    answer: bool,
    /// Print the first divergence of each record that is not right.
    #[arg(short, long)]
    verbose: bool,
    /// The counts as JSON.
    #[arg(long)]
    json: bool,
}

/// Every file is judged, whatever is wrong with the others.
pub fn run(args: &Args) -> Result<Answer> {
    if args.answer {
        record::answer()?;
        return Ok(Answer::Yes);
    }
    let recorded;
    let files = match &args.record {
        Some(folder) => {
            recorded = record::record(folder, &args.files, &args.seeds, args.count)?;
            &recorded
        }
        None => &args.files,
    };
    let mut all_right = true;
    let mut unread = 0;
    let mut reports = Vec::new();
    for file in files {
        let name = input::shown(file);
        let tally = match tally(file) {
            Ok(tally) => tally,
            Err(error) => {
                unread += 1;
                let error = harmless(&format!("{error:#}"));
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
        bail!("{unread} of {} files cannot be read as recordings", files.len());
    }
    Ok(if all_right { Answer::Yes } else { Answer::No })
}

fn tally(file: &Path) -> Result<Tally> {
    conformance(&input::bytes(file)?).with_context(|| input::shown(file))
}
