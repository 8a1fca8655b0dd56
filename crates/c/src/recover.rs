//! `phonograph_recover`: a captured graph gets back the parallelism that one stream took from it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use phonograph::cuda::{Block, Device, Driver, Ends, Imported, Memory, Watch};
use phonograph::graph::{NodeId, to_json};
use phonograph::plan::recover::Verdict;
use phonograph::recover::{Known, Options, Report, SEED, Tried, recover};

use crate::{FAILED, INVALID, OK, READ_ONLY, deliver};

/// A piece of device memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PhonographBlock {
    /// Where it begins, a multiple of 4.
    address: u64,
    /// Its size, a multiple of 4.
    bytes: u64,
    /// A sum of [`SCRATCH`] and [`FRESH`].
    known: u64,
}

/// Nobody looks at what a block holds after a replay: it may be filled with zeros, and nodes may get copies of their own.
const SCRATCH: u64 = 1;
/// Nobody has written a block yet, so that nothing can depend on what it holds: it may be filled with anything.
const FRESH: u64 = 2;

/// Writes input number `sample` where the graph expects its inputs, and waits until it is there. 0 for success.
pub type PhonographGive = unsafe extern "C" fn(user: *mut c_void, sample: u32) -> c_int;

/// How far to go.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PhonographLimits {
    /// Inputs on which nodes are observed, at least 2; 0 for 3.
    samples: u32,
    /// Inputs on which every order is verified; 0 for 20.
    inputs: u32,
    /// Whether zeros may be put into memory where none have been seen (0 or 1).
    zeros: u32,
    /// Whether what is being done is written to the standard error: 1 for every second, 2 for every step.
    progress: u32,
    /// Seconds after which the observation stops and the graph stays as it is; 0 for 120.
    seconds: f64,
    /// Bytes of device memory for copies; 0 for 8 GiB.
    saved_bytes: u64,
    /// Bytes of scratch memory that the graph may get for good; 0 for 1 GiB.
    workspace_bytes: u64,
    /// Nodes, by number in the driver's list, that keep their place and are run on nothing that captured order does not
    /// give them: such as wait for what they find in memory. Null for none.
    excluded: *const u32,
    /// How many.
    excluded_count: usize,
}

/// What came of it.
#[repr(C)]
pub struct PhonographRecovered {
    /// Nodes.
    nodes: u64,
    /// Nodes on the longest path as captured.
    captured_depth: u64,
    /// Nodes on the longest path that the nodes' effects ask for.
    recovered_depth: u64,
    /// Runs of single nodes.
    runs: u64,
    /// Nodes that keep their place among all others.
    opaque: u64,
    /// Orders that verification found missing.
    missed: u64,
    /// Microseconds of a replay as captured.
    captured_us: f64,
    /// Microseconds of a replay of the graph as it is now.
    recovered_us: f64,
    /// Bytes of scratch memory that the graph has got.
    workspace_bytes: u64,
    /// Runs of nodes that use it.
    workspace_users: u64,
    /// Inputs on which the bytes were the same.
    inputs: u32,
    /// The cap of what was chosen: 0 for the captured order, 4294967295 for no cap.
    cap: u32,
    /// How the observation ended. 0: what was found is verified. Else the graph is as captured, since 1: there was not time
    /// enough, 2: copies would have taken more memory than allowed, 3: the results of `unexplained` differ in another order.
    ended: u32,
    /// That node, by number in captured order; 0 if there is none.
    unexplained: u32,
    /// Kernels that do nothing and that the graph has beside its own: one before nodes that come after nothing, one behind those
    /// that nothing comes after.
    added: u32,
}

fn added(ends: Ends) -> u32 {
    u32::from(ends.beginning) + u32::from(ends.end)
}

/// Finds what the nodes of a graph read and write by running them one at a time and watching `blocks`, and puts the graph
/// into the fastest order that this allows and that gives the same bytes; it stays as it is if none is faster. The memory is
/// left as it was found.
///
/// The graph is of kernels, copies and fills on one device, whose number is `device`, and not instantiated yet. The blocks
/// hold everything that one of its nodes may write and another one may touch; they do not overlap. `save` is null or the path
/// of a file to write: the graph with what each node reads and writes, as `phonograph show` draws it. `limits` may be null,
/// `recovered` and `message` too, and `workspaces` if no block is scratch. It gets a handle for [`phonograph_release`] if the
/// graph uses scratch memory of its own afterwards, else null. Gives what
/// [`phonograph_reduce_edges`](crate::phonograph_reduce_edges) gives.
///
/// # Safety
/// `graph` is a `CUgraph` that lives, with all that its nodes refer to; nobody else uses it, or that memory, meanwhile.
/// `blocks` points to `count` blocks of memory of the device, `save` to a terminated text if it is not null. `give` may be called from this thread with `user`. The others are
/// null or point to what their types say, those of `limits` to as many numbers, `message` to `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn phonograph_recover(
    graph: *mut c_void,
    device: u32,
    blocks: *const PhonographBlock,
    count: usize,
    give: Option<PhonographGive>,
    user: *mut c_void,
    limits: *const PhonographLimits,
    save: *const c_char,
    recovered: *mut PhonographRecovered,
    workspaces: *mut *mut c_void,
    message: *mut c_char,
    capacity: usize,
) -> c_int {
    if !workspaces.is_null() {
        // SAFETY: the caller's promise.
        unsafe { workspaces.write(ptr::null_mut()) };
    }
    let outcome = catch_unwind(|| {
        let Some(give) = give.filter(|_| !graph.is_null() && (!blocks.is_null() || count == 0))
        else {
            return Err((INVALID, "the graph, the blocks or the inputs are null".to_owned()));
        };
        // SAFETY: the caller's promise.
        let given =
            unsafe { if count == 0 { &[] } else { std::slice::from_raw_parts(blocks, count) } };
        if let Some(at) = given.iter().position(|block| block.known & !(SCRATCH | FRESH) != 0) {
            let text = format!("{} says nothing about block {at}", given[at].known);
            return Err((INVALID, text));
        }
        if workspaces.is_null() && given.iter().any(|block| block.known & SCRATCH != 0) {
            let text =
                "there is scratch memory, and nowhere to give a handle of the graph's own to";
            return Err((INVALID, text.to_owned()));
        }
        // SAFETY: the caller's promise.
        let (limits, save) = unsafe { (limits.as_ref().copied(), path(save)?) };
        // Before anything has run: a file that cannot be written is no reason to throw what was found away.
        let save = save
            .map(File::create)
            .transpose()
            .map_err(|error| (FAILED, format!("the file to save to cannot be written: {error}")))?;
        let mut give = |sample: u32| {
            // SAFETY: the caller's promise.
            match unsafe { give(user, sample) } {
                0 => Ok(()),
                code => Err(format!("the function gave {code}")),
            }
        };
        // SAFETY: the caller's promise.
        let report = unsafe { work(graph, device, given, &mut give, limits) }?;
        let saved = match save {
            Some(mut file) => file.write_all(to_json(&report.graph).as_bytes()),
            None => Ok(()),
        };
        Ok((report, saved))
    });
    // What panics would be a defect of this library, which may not unwind into its caller.
    let outcome =
        outcome.unwrap_or_else(|_| Err((FAILED, "a defect of phonograph: it panicked".to_owned())));
    let (code, text) = match outcome {
        Ok((report, saved)) => {
            if !recovered.is_null() {
                // SAFETY: the caller's promise.
                unsafe { recovered.write(summary(&report)) };
            }
            if !report.workspaces.is_empty() {
                let kept: Kept = Box::new(report.workspaces);
                // SAFETY: the caller's promise: there is scratch memory, so the place for the handle is not null.
                unsafe { workspaces.write(Box::into_raw(kept).cast()) };
            }
            match saved {
                Ok(()) => (OK, String::new()),
                Err(error) => (FAILED, format!("the graph is recovered, but not saved: {error}")),
            }
        }
        Err(failure) => failure,
    };
    // SAFETY: the caller's promise.
    unsafe { deliver(&text, message, capacity) };
    code
}

/// The path that a text gives, if it is not null.
///
/// # Safety
/// The text is null or terminated, and lives as long as the result.
unsafe fn path<'a>(text: *const c_char) -> Result<Option<&'a Path>, (c_int, String)> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| (INVALID, "the path to save to is not UTF-8".to_owned()));
    text.map(|text| Some(Path::new(text)))
}

/// What a handle of workspaces points to.
type Kept = Box<Vec<Memory>>;

/// Gives scratch memory back that a recovered graph uses, once the graph and all that was instantiated of it are gone.
///
/// # Safety
/// `workspaces` is null or what [`phonograph_recover`] gave, and is not used again. The primary context of the device lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn phonograph_release(workspaces: *mut c_void) {
    if !workspaces.is_null() {
        // SAFETY: the caller's promise.
        let kept = unsafe { Kept::from_raw(workspaces.cast()) };
        // A last replay may still be running.
        let waited = kept.iter().try_for_each(|memory| memory.device().synchronize());
        match waited {
            Ok(()) => drop(kept),
            // After a fault of a kernel there is nothing to give back.
            Err(_) => std::mem::forget(kept),
        }
    }
}

// The header says the same; a program in C prints its sizes in a test.
const _: () = {
    assert!(size_of::<PhonographBlock>() == 24);
    assert!(size_of::<PhonographLimits>() == 56);
    assert!(size_of::<PhonographRecovered>() == 104);
};

/// # Safety
/// As for [`phonograph_recover`].
unsafe fn work(
    graph: *mut c_void,
    device: u32,
    given: &[PhonographBlock],
    give: &mut dyn FnMut(u32) -> Result<(), String>,
    limits: Option<PhonographLimits>,
) -> Result<Report, (c_int, String)> {
    let failed = |error: &dyn std::fmt::Display| (FAILED, error.to_string());
    Driver::load().map_err(|error| failed(&error))?;
    let device = Device::open(device).map_err(|error| failed(&error))?;
    // SAFETY: the caller's promise; the driver is loaded.
    let imported = unsafe { Imported::read(graph.cast()) }.map_err(|error| failed(&error))?;
    if let Some(reason) = imported.read_only() {
        return Err((READ_ONLY, reason.to_string()));
    }
    let block = |&PhonographBlock { address, bytes, .. }: &_| Block { address, bytes };
    let blocks: Vec<Block> = given.iter().map(block).collect();
    // SAFETY: the caller's promise.
    let mut watch =
        unsafe { Watch::new(imported, &device, &blocks) }.map_err(|error| failed(&error))?;
    let known = |block: &PhonographBlock| Known {
        scratch: block.known & SCRATCH != 0,
        fresh: block.known & FRESH != 0,
    };
    let mut options = Options { blocks: given.iter().map(known).collect(), ..Options::default() };
    let (mut seconds, mut shown) = (120.0, 0);
    if let Some(given) = limits {
        let or = |value: u32, other: u32| if value == 0 { other } else { value };
        options.limits.samples = or(given.samples, options.limits.samples);
        options.inputs = or(given.inputs, options.inputs);
        options.limits.zeros = given.zeros != 0;
        if given.saved_bytes != 0 {
            options.limits.saved_bytes = given.saved_bytes;
        }
        if given.workspace_bytes != 0 {
            options.limits.private_bytes = given.workspace_bytes;
        }
        if given.seconds > 0.0 {
            seconds = given.seconds;
        }
        if !given.excluded.is_null() {
            // SAFETY: the caller's promise.
            let excluded =
                unsafe { std::slice::from_raw_parts(given.excluded, given.excluded_count) };
            options.excluded = excluded.iter().copied().map(NodeId).collect();
        }
        shown = given.progress;
    }
    let (start, mut told) = (Instant::now(), None);
    let report = recover(&mut watch, give, &options, &mut |progress| {
        let due = told.is_none_or(|(stage, at): (_, Instant)| {
            shown > 1 || stage != progress.stage || at.elapsed() > Duration::from_secs(1)
        });
        if shown > 0 && due {
            told = Some((progress.stage, Instant::now()));
            eprintln!("phonograph: {:?} {} of {}", progress.stage, progress.done, progress.of);
        }
        if start.elapsed().as_secs_f64() > seconds {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| failed(&error))?;
    if shown > 0 {
        tell(&report);
    }
    Ok(report)
}

/// Writes what was tried to the standard error.
fn tell(report: &Report) {
    eprintln!("phonograph: as captured {:.1} us", report.captured_micros);
    eprintln!("phonograph: {} layouts searched, seed {SEED}", report.searched);
    for tried in &report.tried {
        let Tried { cap, making, changes, ends, edges, depth, micros, right } = tried;
        let cap = cap.map_or("no cap".to_owned(), |cap| format!("at most {cap}"));
        let right = match right {
            Some(true) => ", equal",
            Some(false) => ", NOT equal",
            None => "",
        };
        eprintln!(
            "phonograph: {micros:.1} us, {cap}, made {making}, {changes} changes, {} kernels added: {edges} edges, longest path {depth}{right}",
            added(*ends)
        );
    }
}

fn summary(report: &Report) -> PhonographRecovered {
    let found = &report.recovered;
    let chosen = report.chosen.map(|at| &report.tried[at]);
    let (ended, unexplained) = match found.verdict {
        Verdict::Verified { .. } => (0, 0),
        Verdict::Stopped => (1, 0),
        Verdict::Full => (2, 0),
        Verdict::Unexplained { node } => (3, node.0),
    };
    PhonographRecovered {
        nodes: found.observed.len() as u64,
        captured_depth: report.captured_depth as u64,
        recovered_depth: report.recovered_depth() as u64,
        runs: found.runs,
        opaque: found.observed.iter().filter(|seen| seen.opaque.is_some()).count() as u64,
        missed: found.missed.len() as u64,
        captured_us: report.captured_micros,
        recovered_us: chosen.map_or(report.captured_micros, |tried| tried.micros),
        workspace_bytes: report.workspaces.iter().map(Memory::bytes).sum(),
        workspace_users: found.private.len() as u64,
        inputs: report.inputs,
        cap: chosen.map_or(0, |tried| tried.cap.unwrap_or(u32::MAX)),
        ended,
        unexplained,
        added: chosen.map_or(0, |tried| added(tried.ends)),
    }
}
