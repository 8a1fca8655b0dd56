//! Where a call of a traced program was made, in lines that a person can follow.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use phonograph::capture::model::CallIndex;
use phonograph::trace::live::{Operand, Site, Trace};

use phonograph::graph::display_name;

use crate::harmless;
use crate::symbols::Symbols;

/// Longest source line that is shown, in characters.
const SOURCE: usize = 100;
/// Longest kernel name that is shown.
const KERNEL: usize = 60;
/// Frames of one stack that are shown.
const FRAMES: usize = 3;
/// Modules whose frames say nothing about the program: the recorder, CUDA, and what Python calls C functions through.
const QUIET: [&str; 10] = [
    "libphonograph_inject",
    "libcupti",
    "libcuda",
    "libc.so",
    "libnvidia",
    "libpthread",
    "libpython",
    "libffi",
    "_ctypes",
    "python",
];
/// The largest source file that is looked into, in bytes.
const LARGEST: u64 = 1 << 24;

/// The places of a trace's calls.
pub struct Sites<'a> {
    trace: &'a Trace,
    /// Lines of source files that were read; none if a file cannot be.
    sources: RefCell<HashMap<String, Option<Vec<String>>>>,
    symbols: RefCell<Symbols>,
}

/// A line of a Python stack.
struct Frame<'a> {
    file: &'a str,
    line: usize,
    function: &'a str,
}

impl<'a> Sites<'a> {
    pub fn of(trace: &'a Trace) -> Self {
        Self { trace, sources: RefCell::default(), symbols: RefCell::new(Symbols::new()) }
    }

    /// Where a call was made, the most telling line first.
    pub fn lines(&self, call: CallIndex) -> Vec<String> {
        let Some(site) = self.trace.sites.get(call.index()) else { return Vec::new() };
        let stack = self.trace.python(site).unwrap_or("");
        let frames: Vec<Frame<'_>> = stack.lines().filter_map(frame).collect();
        let own = frames.iter().position(|frame| !is_library(frame.file));
        let mut lines: Vec<String> = Vec::new();
        let from = own.unwrap_or(0);
        for frame in frames.iter().skip(from).filter(|frame| !is_library(frame.file)).take(FRAMES) {
            let Frame { file, line, function } = frame;
            let source = self.source(file, *line).map_or(String::new(), |text| format!(": {text}"));
            lines.push(format!("{file}:{line} in {function}{source}"));
        }
        // What a program calls in a package says more than where the package ends up calling.
        if let Some(frame) = frames.get(from.saturating_sub(1)).filter(|_| own != Some(0)) {
            let Frame { file, line, function } = frame;
            lines.push(format!("through {}:{line} in {function}", inside(file)));
        }
        let native = self.native(site);
        lines.extend(native.iter().take(if lines.is_empty() { FRAMES } else { 1 }).cloned());
        if let Some(ranges) = self.trace.ranges(site) {
            lines.push(format!("in range {ranges}"));
        }
        lines.iter().map(|line| harmless(line)).collect()
    }

    fn source(&self, file: &str, line: usize) -> Option<String> {
        let mut sources = self.sources.borrow_mut();
        let lines = sources.entry(file.to_owned()).or_insert_with(|| {
            let small =
                fs::metadata(file).is_ok_and(|data| data.is_file() && data.len() <= LARGEST);
            let text = small.then(|| fs::read(file).ok()).flatten()?;
            Some(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
        });
        let text = lines.as_ref()?.get(line.checked_sub(1)?)?.trim();
        (!text.is_empty()).then(|| text.chars().take(SOURCE).collect())
    }

    /// The native frames that are neither the recorder's nor CUDA's nor Python's: those with a line of source if there are any, else
    /// the innermost one.
    fn native(&self, site: &Site) -> Vec<String> {
        let mut symbols = self.symbols.borrow_mut();
        let placed = self.trace.native(site).iter().filter_map(|address| {
            let module = self.trace.modules.iter().find(|module| module.range.contains(address))?;
            let name = Path::new(&module.path).file_name()?.to_str()?;
            let quiet = QUIET.iter().any(|quiet| name.starts_with(quiet));
            // The call is in front of where it returns to.
            (!quiet).then(|| (module, name, address.wrapping_sub(module.bias).wrapping_sub(1)))
        });
        let mut named = Vec::new();
        let mut bare = None;
        for (module, name, address) in placed {
            let found = symbols.find(&module.path, address);
            let function =
                found.function.as_deref().map(|symbol| display_name(symbol).into_owned());
            match (found.line, function) {
                // What the compiler puts between a launch and the driver.
                (Some((file, _)), _)
                    if file.contains("/include/crt/") || file.ends_with(".stub.c") => {}
                (Some((file, line)), function) => {
                    let function =
                        function.map_or(String::new(), |function| format!(" in {function}"));
                    named.push(format!("{file}:{line}{function}"));
                }
                (None, Some(function)) => {
                    let function: String = function.chars().take(SOURCE).collect();
                    bare.get_or_insert(format!("from {function} ({name})"));
                }
                (None, None) => {
                    bare.get_or_insert(format!("from {name}+{address:#x}"));
                }
            }
        }
        if named.is_empty() { bare.into_iter().collect() } else { named }
    }
}

/// `  File "train.py", line 12 in step`.
fn frame(line: &str) -> Option<Frame<'_>> {
    let rest = line.trim().strip_prefix("File \"")?;
    let (file, rest) = rest.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(Frame { file, line: line.parse().ok()?, function })
}

/// Whether a file belongs to a package or to Python itself, so that the program's author did not write it.
fn is_library(file: &str) -> bool {
    ["/site-packages/", "/dist-packages/", "/lib/python3"].iter().any(|part| file.contains(part))
        || file.starts_with('<')
}

/// A package's file from the package on.
fn inside(file: &str) -> &str {
    ["/site-packages/", "/dist-packages/"]
        .iter()
        .find_map(|part| file.split_once(part))
        .map_or(file, |(_, inside)| inside)
}

/// Gives kernels names that fit on a line, each worked out once however often it is launched.
pub fn shorten_kernels(trace: &mut Trace) {
    let mut short: HashMap<u64, Arc<str>> = HashMap::new();
    for (call, site) in trace.script.calls.iter_mut().zip(&trace.sites) {
        let Some(work) = &mut call.work else { continue };
        let Some(text) = site.raw.operands.get(Operand::Name) else { continue };
        work.name = short.entry(text).or_insert_with(|| kernel(&work.name).into()).clone();
    }
}

fn kernel(name: &str) -> String {
    let shown = display_name(name);
    let mut short: String = shown.chars().filter(|c| !c.is_control()).take(KERNEL).collect();
    if shown.chars().nth(KERNEL).is_some() {
        short.push('…');
    }
    short
}
