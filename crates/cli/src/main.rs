//! The `phonograph` command: look at task graphs, plan them, replay them.
//!
//! Exit codes: 0 if all is well, 1 if the answer is no (a replay, call or update failed), 2 for bad input or use; `trace` passes on that
//! of the program it ran.

mod check;
mod conformance;
mod costs;
mod diff;
mod doctor;
mod explain;
mod generate;
mod input;
mod optimize;
mod plan;
mod plan_memory;
mod planning;
mod record;
mod run;
mod show;
mod sites;
mod symbols;
mod trace;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use phonograph::report::terminal::{WIDTH, ascii};

/// Record GPU work once, replay it many times: look at task graphs, plan them, replay them.
#[derive(Parser)]
#[command(name = "phonograph", version, arg_required_else_help = true, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
To begin with:
    phonograph doctor                                                what works on this machine
    phonograph generate transformer --nodes 200 -o graph.json && phonograph show graph.json
    phonograph trace -- python3 train.py && phonograph explain phonograph.trace

`phonograph help COMMAND` says more of each, with examples.

Exit codes: 0 if all is well; 1 if the answer is no: a replay, a call or an update failed; 2 for bad input or \
use. `trace` ends with that of the program it ran.";

#[derive(Subcommand)]
enum Command {
    /// What a graph is made of: kinds, critical path, width, redundant edges; or draw it.
    Show(show::Args),
    /// Rewrite a graph so that it does the same with fewer edges and nodes.
    Optimize(optimize::Args),
    /// A local page to look at graphs in: zoom, search, schedules, memory, two graphs side by side.
    View(view::Args),
    /// Streams, waits and memory for a graph.
    Plan(plan::Args),
    /// Place lifetimes in memory.
    PlanMemory(plan_memory::Args),
    /// Replay a graph with real data.
    Run(run::Args),
    /// Write a graph of known shape and any size.
    Generate(generate::Args),
    /// What updating an instance of one graph from another would answer, and why.
    Diff(diff::Args),
    /// Run a script of driver calls through the stream-capture model and explain what fails.
    Check(check::Args),
    /// Run a CUDA program and record which driver calls its captures and graphs are made of.
    ///
    /// The program runs as it would, with its own exit code. CUPTI takes one tool at a time: while a program is traced, a profiler inside
    /// it (PyTorch's, for one) records nothing from the GPU; a program that already is profiled runs untraced, and says so.
    Trace(trace::Args),
    /// Which call broke a traced program's capture, where it was made, why it is refused and what to do.
    Explain(explain::Args),
    /// Compare the model with recorded answers of a driver.
    Conformance(conformance::Args),
    /// What works on this machine.
    Doctor(doctor::Args),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// How a command ended that did what it was asked.
enum Answer {
    Yes,
    No,
    /// As the program that was run.
    Exit(u8),
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(told) => return tell(&told),
    };
    let result = match command {
        Command::Show(args) => show::run(&args),
        Command::Optimize(args) => optimize::run(&args),
        Command::View(args) => view::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::PlanMemory(args) => plan_memory::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "phonograph", &mut script);
            print(&script).map(|()| Answer::Yes)
        }
    };
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Exit(code)) => ExitCode::from(code),
        Err(error) => {
            // Nothing is left to report to if standard error itself is gone.
            if writeln!(io::stderr(), "error: {}", harmless(&causes(&error))).is_err() {
                return ExitCode::from(3);
            }
            ExitCode::from(2)
        }
    }
}

/// Prints what stands in the place of a command: help, the version, or what is wrong with the arguments.
fn tell(told: &clap::Error) -> ExitCode {
    let printed = told.print().and_then(|()| io::stdout().flush());
    let failed = printed.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    if let (Some(error), false) = (&failed, told.use_stderr()) {
        // As for errors below.
        let written = writeln!(io::stderr(), "error: cannot write to standard output: {error}");
        return ExitCode::from(if written.is_ok() { 2 } else { 3 });
    }
    ExitCode::from(if failed.is_some() { 3 } else { told.exit_code() as u8 })
}

/// An error and its causes, without those that the one before them tells.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

/// Writes to standard output: to a terminal without Unicode what it can show. A reader that has seen enough and closed
/// the pipe is no error.
fn print(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    let plain = match str::from_utf8(bytes) {
        Ok(text) if out.is_terminal() && !has_unicode() => Some(ascii(text)),
        _ => None,
    };
    let bytes = plain.as_ref().map_or(bytes, String::as_bytes);
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Whether the locale says that terminals have Unicode. Where locales are no habit, they have.
fn has_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_lowercase();
    !cfg!(unix) || locale.contains("utf-8") || locale.contains("utf8")
}

/// Columns of the terminal that standard output is; if it is none, as many as everybody can read.
fn terminal_width() -> usize {
    const WIDEST: u16 = 160;
    let size = console::Term::stdout().size_checked();
    size.filter(|_| io::stdout().is_terminal())
        .map_or(WIDTH, |(_, columns)| columns.min(WIDEST).into())
}

/// The text with nothing in it that a terminal would obey; columns stay where they are.
fn harmless(text: &str) -> String {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if obeyed(c) { ' ' } else { c }).collect()
}

/// Enough of a name to be recognised on one line of a terminal, and nothing that a terminal would obey.
fn short(name: &str) -> String {
    const WIDTH: usize = 72;
    let mut short: String = name.chars().filter(|c| !c.is_control()).take(WIDTH).collect();
    if name.chars().nth(WIDTH).is_some() {
        short.push('…');
    }
    short
}

/// Writes to a file, or to standard output without one.
fn deliver(bytes: &[u8], output: Option<&Path>) -> Result<()> {
    match output {
        None => print(bytes),
        Some(path) => {
            std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
        }
    }
}

/// Prints a JSON report.
fn print_json(report: &serde_json::Value) -> Result<()> {
    print(format!("{report:#}\n").as_bytes())
}

/// A bar on standard error, hidden where nobody watches.
fn progress(steps: u64, what: &'static str) -> indicatif::ProgressBar {
    if !io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let style = indicatif::ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}")
        .expect("the template is a constant that the tests run");
    indicatif::ProgressBar::new(steps).with_style(style).with_message(what)
}

/// The name to show for a file: its own, without the folders.
fn title(path: &Path) -> String {
    match path.file_name() {
        Some(name) if !input::is_stdin(path) => name.to_string_lossy().into_owned(),
        _ => input::shown(path),
    }
}

/// The file argument that all commands on graphs share.
#[derive(clap::Args)]
struct GraphFile {
    /// A graph: JSON or DOT (as the CUDA driver dumps it), plain or gzip; `-` for standard input.
    file: PathBuf,
}
