//! `phonograph trace`: run a CUDA program and record its driver calls.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use phonograph::trace::live::{MAGIC, Trace};

use crate::explain::summary;
use crate::{Answer, causes, harmless, input};

/// The library that the driver loads into the program.
const LIBRARY: &str = "libphonograph_inject.so";
/// The variable that names it, if it does not lie beside this command.
const NAMED: &str = "PHONOGRAPH_INJECT";
/// The driver's variable.
const INJECTION: &str = "CUDA_INJECTION64_PATH";
/// The library's variable: the folder for drawings of graphs.
const GRAPHS: &str = "PHONOGRAPH_GRAPHS";
/// NVTX's variable: who is told of ranges.
const RANGES: &str = "NVTX_INJECTION64_PATH";
/// The library's variable: the file to write.
const FILE: &str = "PHONOGRAPH_TRACE";

const EXAMPLES: &str = "\
Examples:
    phonograph trace -- python3 train.py && phonograph explain phonograph.trace
    phonograph trace -o run.trace --graphs graphs -- ./program --its-own arguments";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write. Other processes that the program starts get files of their own, with `.PID` behind the name.
    #[arg(short, long, value_name = "FILE", default_value = "phonograph.trace")]
    output: PathBuf,
    /// Have the driver draw every graph that is instantiated (the first 64) into this folder, for `show`, `view`, `optimize` and `diff`.
    #[arg(long, value_name = "DIR")]
    graphs: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let library = library()?;
    if let Some(other) = env::var_os(INJECTION) {
        bail!(
            "{INJECTION} names {} already, and the driver loads only one such library",
            other.display()
        );
    }
    let file = std::path::absolute(&args.output)?;
    for old in files(&file)? {
        refuse_other_files(&old)?;
        fs::remove_file(&old).with_context(|| format!("cannot replace {}", old.display()))?;
    }
    let [program, rest @ ..] = &args.command[..] else { bail!("there is no program to run") };
    let mut command = Command::new(program);
    command.args(rest).env(INJECTION, &library).env(FILE, &file);
    if env::var_os(RANGES).is_none() {
        command.env(RANGES, &library);
    }
    if let Some(folder) = &args.graphs {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        command.env(GRAPHS, std::path::absolute(folder)?);
    }
    leave_interrupts_to_the_program()?;
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
    let status = child.wait()?;
    // It cannot be told where nothing can, and the program has ended as it has.
    drop(report(&file));
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Answer::Exit(code as u8))
}

/// The library: beside this command, or where the variable says.
fn library() -> Result<PathBuf> {
    let beside = env::current_exe()?.with_file_name(LIBRARY);
    if beside.is_file() {
        return Ok(beside);
    }
    match env::var_os(NAMED).map(PathBuf::from) {
        Some(named) if named.is_file() => Ok(std::path::absolute(named)?),
        Some(named) => bail!("{NAMED} names {}, which is no file", named.display()),
        None => bail!(
            "{} is not there; build it (`cargo build --release -p phonograph-inject`) and put it there, or set {NAMED} to its path",
            beside.display()
        ),
    }
}

/// Only traces, and files of nothing, make way for a new one: a program named in the wrong place is not removed, nor a device.
fn refuse_other_files(old: &Path) -> Result<()> {
    let mut start = Vec::with_capacity(MAGIC.len());
    let is_file = fs::metadata(old).is_ok_and(|known| known.is_file());
    if is_file {
        let file = fs::File::open(old);
        file.and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start))
            .with_context(|| format!("cannot replace {}", old.display()))?;
    }
    ensure!(
        is_file && (start.is_empty() || start == MAGIC),
        "{} is there and no trace, so it is not replaced; name another file with --output",
        old.display()
    );
    Ok(())
}

/// The traces at a path: that file, and those of other processes beside it.
fn files(file: &Path) -> Result<Vec<PathBuf>> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().context("the output is no file")?.as_encoded_bytes();
    let mut files = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name);
        let ours = match rest {
            Some([]) => true,
            Some([b'.', pid @ ..]) => !pid.is_empty() && pid.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        if ours {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// A terminal sends its interrupt to this command too, which has to outlive the program.
fn leave_interrupts_to_the_program() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut interrupts = {
        let _inside = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?
    };
    thread::spawn(move || runtime.block_on(async { while interrupts.recv().await.is_some() {} }));
    Ok(())
}

/// What was recorded, on standard error: standard output is the program's.
fn report(file: &Path) -> io::Result<()> {
    let mut out = io::stderr().lock();
    let files = match files(file) {
        Ok(files) => files,
        Err(error) => return writeln!(out, "phonograph: {}", harmless(&causes(&error))),
    };
    if files.is_empty() {
        writeln!(
            out,
            "phonograph: nothing was recorded: the program did not initialise CUDA, or says above why not"
        )?;
    }
    for file in files {
        let trace = input::bytes(&file).and_then(|bytes| Ok(Trace::read(&bytes)?));
        let said = trace.map_or_else(|error| harmless(&causes(&error)), |trace| summary(&trace));
        writeln!(out, "\n{}: {said}", file.display())?;
    }
    Ok(())
}
