//! `phonograph check`: a capture script through the model.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use phonograph::capture::check::check;
use phonograph::trace::Script;
use serde_json::json;

use crate::{Answer, harmless, input, print, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// The script: one call a line, as `phonograph_trace::script` describes; `-` for standard input.
    script: PathBuf,
    /// The findings as JSON.
    #[arg(long)]
    json: bool,
    /// Whether to colour the report.
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    colour: Colour,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    Always,
    Never,
}

impl Colour {
    fn wanted(self) -> bool {
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        match self {
            Colour::Auto => allowed && io::stdout().is_terminal(),
            Colour::Always => true,
            Colour::Never => false,
        }
    }
}

pub fn run(args: &Args) -> Result<Answer> {
    let name = args.script.display().to_string();
    let bytes = input::bytes(&args.script).with_context(|| format!("cannot read {name}"))?;
    let text = String::from_utf8(bytes).with_context(|| format!("{name} is no text"))?;
    // Places are written as compilers write them: file:line:column.
    let script = Script::parse(&text).map_err(|error| anyhow!("{name}:{error}"))?;
    let report = check(&script)?;
    if args.json {
        print_json(&json!({
            "errors": report.errors(),
            "warnings": report.warnings(),
            "graphs": report.graphs.len(),
            "findings": serde_json::to_value(&report.findings)?,
        }))?;
    } else {
        print(report.render(Some(&harmless(&text)), args.colour.wanted()).as_bytes())?;
    }
    Ok(if report.errors() == 0 { Answer::Yes } else { Answer::No })
}
