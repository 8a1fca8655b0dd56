//! C functions that make graphs of the CUDA driver faster, for programs in any language: a shared library,
//! `include/phonograph.h`, and `examples/pytorch.py`, which uses it on a graph that PyTorch captured.
//!
//! In: a raw `CUgraph` that is not instantiated yet. Out: the same graph without the edges that others imply, proved to keep
//! all order; or, on request, in the order that watching its memory shows to suffice (`recover`). Errors come as a number and a sentence; nothing panics across the border.

mod recover;

pub use recover::{
    PhonographBlock, PhonographGive, PhonographLimits, PhonographRecovered, phonograph_recover,
    phonograph_release,
};

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;

use phonograph::cuda::{Driver, EditError, Edited, Imported};
use phonograph::plan::passes::reduce_edges;

/// The graph was edited, or there was nothing to edit.
const OK: c_int = 0;
/// An argument that cannot be.
const INVALID: c_int = 1;
/// A graph that can only be looked at: it allocates, or has conditional nodes.
const READ_ONLY: c_int = 2;
/// The driver, or what it says, is in the way.
const FAILED: c_int = 3;

/// What was done to a graph and the graphs inside.
#[repr(C)]
pub struct PhonographEdited {
    /// Edges before.
    edges: u64,
    /// Edges that are gone.
    removed: u64,
}

/// Takes out of a graph of the driver, in place, every edge that others imply, and out of the child graphs inside.
///
/// `edited` may be null. `message` may be null; else it gets a terminated sentence on failure, cut to `capacity` bytes, and an
/// empty one on success. Gives 0, or 1 for a null graph, 2 for a graph that cannot be edited, 3 for everything else. Unless it
/// is the driver that refuses the edit, a graph is as it was after a failure.
///
/// # Safety
/// `graph` is null or a `CUgraph` that lives and that nobody else uses meanwhile; `edited` is null or points to a
/// [`PhonographEdited`]; `message` is null or points to `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn phonograph_reduce_edges(
    graph: *mut c_void,
    edited: *mut PhonographEdited,
    message: *mut c_char,
    capacity: usize,
) -> c_int {
    let outcome = catch_unwind(|| {
        if graph.is_null() {
            return Err((INVALID, "the graph is null".to_owned()));
        }
        // SAFETY: the caller's promise.
        unsafe { reduce(graph) }
    });
    // What panics would be a defect of this library, which may not unwind into its caller.
    let outcome =
        outcome.unwrap_or_else(|_| Err((FAILED, "a defect of phonograph: it panicked".to_owned())));
    let (code, text) = match outcome {
        Ok(done) => {
            if !edited.is_null() {
                let (edges, removed) = (done.edges as u64, done.removed as u64);
                // SAFETY: the caller's promise.
                unsafe { edited.write(PhonographEdited { edges, removed }) };
            }
            (OK, String::new())
        }
        Err(failure) => failure,
    };
    // SAFETY: the caller's promise.
    unsafe { deliver(&text, message, capacity) };
    code
}

/// # Safety
/// The handle is that of a graph that lives and that nobody else uses meanwhile.
unsafe fn reduce(graph: *mut c_void) -> Result<Edited, (c_int, String)> {
    let failed = |error: &dyn std::fmt::Display| (FAILED, error.to_string());
    Driver::load().map_err(|error| failed(&error))?;
    // SAFETY: the caller's promise; the driver is loaded.
    let mut imported = unsafe { Imported::read(graph.cast()) }.map_err(|error| failed(&error))?;
    if let Some(reason) = imported.read_only() {
        return Err((READ_ONLY, reason.to_string()));
    }
    let reduced = reduce_edges(imported.graph()).map_err(|error| failed(&error))?;
    imported.reduce_to(&reduced.graph).map_err(|error| match error {
        EditError::ReadOnly(reason) => (READ_ONLY, reason.to_string()),
        error => failed(&error),
    })
}

/// Writes a text with a terminator, cut at a character's border to fit.
///
/// # Safety
/// `message` is null or points to `capacity` bytes.
unsafe fn deliver(text: &str, message: *mut c_char, capacity: usize) {
    if message.is_null() || capacity == 0 {
        return;
    }
    let mut length = text.len().min(capacity - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: `length` bytes and a terminator fit the buffer.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), message.cast(), length);
        message.add(length).write(0);
    }
}
