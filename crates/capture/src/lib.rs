//! Capturing streams into a graph: [`session`], idealised, and [`model`], which answers as the CUDA driver does and
//! says why. [`check`], [`conformance`] and [`update`] are built on the model.
//!
//! ```
//! use phonograph_capture::check::check;
//! use phonograph_trace::Script;
//!
//! // The host waits for a stream whose work is only recorded.
//! let script = "stream main nonblocking\nbegin main global\nkernel main\nsync main\nend main\n";
//! let report = check(&Script::parse(script)?)?;
//! assert_eq!((report.errors(), report.graphs.len()), (1, 0));
//! assert!(report.findings[0].title.contains("STREAM_CAPTURE_UNSUPPORTED (900)"));
//! print!("{}", report.render(None, false)); // the call, the rule that it breaks, what follows, what to do
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Scripts, and traces of running programs, are read by `phonograph_trace`.
#![forbid(unsafe_code)]

pub mod check;
pub mod conformance;
mod deps;
pub mod model;
pub mod session;
pub mod update;

pub use deps::DependencySet;
