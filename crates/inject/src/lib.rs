//! A shared library that the CUDA driver loads into a program to record the driver calls that matter to captures.
//!
//! In: `CUDA_INJECTION64_PATH` names this library, so that the driver calls [`InitializeInjection`] when the program initialises
//! CUDA; `PHONOGRAPH_TRACE` names the file to write; `NVTX_INJECTION64_PATH`, if it names this library too, has it know the program's ranges; `PHONOGRAPH_GRAPHS` may name a folder for drawings of the graphs that are instantiated. Out: that file, a [trace](phonograph_trace::live) that is readable at any time,
//! also after the program was killed. Processes that the program starts write to files of their own, with `.PID` behind the name.
//!
//! What it costs the program: calls outside captures that succeed are counted by one atomic addition, and a replay of the same graph
//! by one more under an uncontended lock. Inside captures, and for calls that fail, the Python stack and the native one are taken, tens
//! of microseconds each. Memory is bounded: one mapped window of the file and tables of fixed size.
//!
//! What it promises its host: no lock is held while anything outside this library runs that could wait for another thread; nothing
//! panics across the border; a forked child records nothing; Python's lock is never taken. Where CUPTI is missing, or another tool
//! is subscribed to it, that is said on standard error and the program runs on unrecorded.

mod call;
mod cupti;
mod driver;
mod functions;
#[cfg(test)]
mod layout;
mod native;
mod nvtx;
mod python;
mod recorder;
mod sink;
mod tables;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The variable with the file to write.
pub const FILE: &str = "PHONOGRAPH_TRACE";
/// The variable with the most bytes to write.
pub const LIMIT: &str = "PHONOGRAPH_TRACE_LIMIT";

/// Called by the driver while the program initialises CUDA. Says on standard error what keeps it from recording.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    match catch_unwind(AssertUnwindSafe(call::start)) {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => say(&problem),
        Err(_) => say("the recorder could not start"),
    }
    // Anything else would make the driver fail; the program is to run all the same.
    1
}

/// One line on standard error. Nothing is done if that fails: the program's own output is none of this library's business.
fn say(problem: &str) {
    let line = format!("phonograph: {problem}; the program runs unrecorded\n");
    // SAFETY: the pointer and length are those of a live string; a failed write is without consequence.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
