//! Graph files: plain or gzip, JSON or DOT, told apart by their contents.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use phonograph::graph::{ComputeGraph, from_dot, from_json};
use phonograph::trace::live::MAGIC;

/// The most bytes that are read of a file, after decompression. A gzip file of a few kilobytes can hold terabytes.
const MAX_BYTES: u64 = 1 << 30;

/// Whether a path stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// What messages call a file.
pub fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Reads a graph file; `-` is standard input.
pub fn graph(path: &Path) -> Result<ComputeGraph> {
    parse(&bytes(path)?).with_context(|| format!("{} is no graph", shown(path)))
}

/// Refuses an output that is one of these files: writing it would destroy what somebody meant to keep.
pub fn keep<'a>(files: impl IntoIterator<Item = &'a Path>, output: Option<&Path>) -> Result<()> {
    // What does not exist is overwritten by nothing; that it cannot be read, others tell.
    let Some((output, at)) = output.and_then(|path| Some((path, path.canonicalize().ok()?))) else {
        return Ok(());
    };
    if files.into_iter().any(|file| file.canonicalize().is_ok_and(|file| file == at)) {
        bail!("{} would be overwritten; name another file to write to", output.display());
    }
    Ok(())
}

/// The bytes of a file, decompressed; `-` is standard input.
pub fn bytes(path: &Path) -> Result<Vec<u8>> {
    read(path).with_context(|| format!("cannot read {}", shown(path)))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut file: Box<dyn Read> = if is_stdin(path) {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            bail!("it is a directory");
        }
        Box::new(file)
    };
    let mut start = Vec::with_capacity(2);
    file.by_ref().take(2).read_to_end(&mut start)?;
    let gzip = start == [0x1f, 0x8b];
    let whole = io::Cursor::new(start).chain(file);
    let mut bytes = Vec::new();
    if gzip {
        MultiGzDecoder::new(whole).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    } else {
        let mut whole = whole;
        whole.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        bail!("it holds more than {} MiB", MAX_BYTES >> 20);
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<ComputeGraph> {
    if bytes.starts_with(MAGIC) {
        bail!("it is a trace of driver calls, which `phonograph explain` reads");
    }
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => bail!("it is empty"),
        Some(b'{') => from_json(bytes).map_err(|error| match is_profile(bytes) {
            true => anyhow!("it is a trace of a profiler; give it beside a graph, with `--costs`"),
            false => error.into(),
        }),
        Some(_) => Ok(from_dot(bytes)?),
    }
}

/// Whether a file that is no graph has the member that traces in the Trace Event Format have.
fn is_profile(bytes: &[u8]) -> bool {
    const MEMBER: &[u8] = b"\"traceEvents\"";
    bytes.windows(MEMBER.len()).any(|part| part == MEMBER)
}
