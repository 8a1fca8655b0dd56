//! One data type for a driver call, and the formats that hold calls.
//!
//! In: the text of a script that a person wrote, or a recording of a real driver's answers. Out: [`Call`]s, the one form that
//! everything downstream takes (the capture model, the diagnosis, a live recorder). Parsing is one pass, linear in the text, and
//! bounded: see [`limits`]. A [`script`] is for people to write.
//!
//! ```
//! use phonograph_trace::{Function, Script};
//!
//! let script = Script::parse("stream main nonblocking\nbegin main global\nkernel main gemm reads a writes b\nend main\n")?;
//! assert_eq!(script.calls.len(), 3);
//! assert_eq!(script.calls[1].function, Function::LaunchKernel);
//! assert_eq!(script.words(&script.calls[1]), "kernel main gemm reads a writes b");
//! # Ok::<(), phonograph_trace::SyntaxError>(())
//! ```
#![forbid(unsafe_code)]

mod call;
mod function;
mod ids;
pub mod limits;
mod line;
pub mod live;
mod names;
pub mod recording;
mod result;
pub mod script;
mod words;

pub use call::{Build, Call, ConditionalKind, Flags, Mode, Place, Port, Stream, StreamKind, Work};
pub use function::Function;
pub use ids::{EventId, GraphId, MemoryId, NodeId, StreamId, ThreadId};
pub use line::{OpError, SyntaxError};
pub use names::{Names, Undeclared};
pub use result::CuResult;
pub use script::{SCRIPT_FORMAT, Script};
