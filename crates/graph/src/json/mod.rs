//! JSON, in and out: the format that keeps everything.
//!
//! [`to_json`] writes a graph, [`from_json`] reads it back equal (a NaN comes back as a NaN). The format is
//! versioned, can be written by hand, and keeps nothing of how the representation stores things.
//!
//! ```
//! let graph = phonograph_graph::from_json(br#"{
//!   "phonograph": 1,
//!   "graph": {
//!     "buffers": [
//!       {"name": "x", "bytes": 4096, "role": "external"},
//!       {"name": "y", "bytes": 4096}
//!     ],
//!     "slots": [{"name": "factor", "default": "f32 0.5"}],
//!     "nodes": [
//!       {"name": "scale", "kernel": {
//!         "elementwise": {
//!           "inputs": ["f32"], "params": ["f32"],
//!           "ops": ["input 0", "param 0", "mul v0 v1"],
//!           "outputs": ["f32 v2"]
//!         },
//!         "args": [
//!           {"buffer": "x", "access": "read", "dtype": "f32", "shape": [1024]},
//!           {"buffer": "y", "access": "write", "dtype": "f32", "shape": [1024]},
//!           {"slot": "factor"}
//!         ]
//!       }},
//!       {"name": "download", "memcpy": {"direction": "DtoH", "src": {"buffer": "y"}, "width": 4096}}
//!     ],
//!     "edges": [["scale", "download"]]
//!   }
//! }"#)?;
//! assert_eq!((graph.node_count(), graph.edge_count()), (2, 1));
//! # Ok::<(), phonograph_graph::JsonError>(())
//! ```
//!
//! # Members
//!
//! What has a default may be left out. Unknown members are errors. A *reference* is a row's number or its name,
//! where that is unique. Sizes, offsets and pitches are bytes; extents of launches are `8`, `[8, 8]` or `[8, 8, 4]`.
//!
//! | object | members |
//! | --- | --- |
//! | file | `phonograph` (1), `graph` |
//! | graph | `name` (empty), `buffers`, `slots` (none), `nodes`, `edges` (left out: those that the operands demand in the order of the nodes; for small graphs) |
//! | buffer | `bytes`, `name` (empty), `align` (256), `role` (`"internal"`; `"external"`, `{"slot": access}`, `{"outer": reference into the graph around}`), `space` (`{"device": 0}`; `"pinned"`, `"pageable"`, `"unknown"`) |
//! | slot | `default` (a scalar), `name` (empty), `outer` (reference into the graph around) |
//! | node | one of the kinds below, `name` (empty), `stream` (none), `observed` (nothing) |
//! | `observed` | what experiments showed of a node that does not tell itself: `operands` (none), bytes with their access; `trials`, how often it was run |
//! | edge | `[from, to]`, or `from`, `to`, `kind` (`"full"`; `"programmatic"`, which needs `from_port`), `from_port`, `to_port` (0) |
//!
//! | kind of node | members |
//! | --- | --- |
//! | `kernel` | one of `function` (the node's name), `elementwise` (an expression), `library` (with `axis` for a reduction, `before` and `after` for expressions fused to it); `grid` and `block` (unknown; for expressions and library kernels one thread an element); `shared_mem_bytes`, `priority` (0); `cluster` (1); `cooperative`, `fusible` (false); `args` (none) |
//! | `memcpy` | `direction` (`"HtoD"`, `"DtoH"`, `"DtoD"`, `"HtoH"`, `{"PtoP": {"src_device": 0, "dst_device": 1}}`), `src`, `dst`, `width`, `height`, `depth` (1) |
//! | `memset` | `dst`, `value`, `element_size` (1), `width` (bytes), `height`, `depth` (1) |
//! | `src`, `dst` | `buffer` (reference) or `address` (`"0x7f00"`) or neither (unspecified), `offset`, `pitch`, `slice_rows` (0) |
//! | `host` | `function` (the node's name), `effects` (unknown): bytes with their access |
//! | `empty` | none: `{}` |
//! | `event_record`, `event_wait` | the number of the event, bare |
//! | `mem_alloc`, `mem_free` | a reference to the buffer, bare |
//! | `child_graph` | a graph |
//! | `conditional` | `kind` (`"if"`, `"while"`, `"switch"`), `condition` (a tensor without access) or `handle`, `bodies` (graphs) |
//!
//! An argument is a scalar (`"f32 0.5"`, `"i64 -3"`, `"bool true"`, `"f32 inf"`, `"f32 NaN"`), `{"slot":
//! reference}`, bytes (`buffer`, `access`, `offset` (0), `bytes` (to the end)) or a tensor (`buffer`, `access`,
//! `dtype`, `shape`, `strides` in elements (packed), `offset` (0)). Access is `"read"`, `"write"` or `"both"`.
//!
//! An expression has `inputs`, `params` (types; none), `ops` and `outputs`. Each operation is a line: `input 0`,
//! `param 0`, `const f32 0.5`, `index 0`, `neg v0`, `add v0 v1`, `lt v0 v1`, `select v2 v0 v1`, `cast f32 v0`, `round f16 v0`,
//! `philox v0 v1 v2`; `vN` is the result of line N, from 0. An output is `f32 v2`: stored as this type, that value.

mod declared;
mod edge;
mod expr;
mod path;
mod read;
mod value;
mod wire;
mod write;

use crate::builder::suggested_launch;
use crate::{Arg, ComputeGraph, GraphError, KernelConfig, KernelRef, View};
pub use write::to_json;

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The largest file that is read, in bytes.
pub const MAX_JSON_BYTES: usize = 1 << 29;
/// The most nodes that are read, those of child graphs and bodies included.
pub const MAX_JSON_NODES: usize = 1 << 22;
/// The most operands in a file that leaves out edges: a bound on what inferring them can cost.
pub const MAX_INFERRED_OPERANDS: usize = 1 << 12;

/// Why a JSON file is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JsonError {
    /// Larger than [`MAX_JSON_BYTES`].
    #[error("a file of {bytes} bytes; the most that is read is {MAX_JSON_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Another version of the format.
    #[error("version {found} of the format; this reads version {VERSION}")]
    Version {
        /// The version that the file says.
        found: u64,
    },
    /// Text that is not JSON, a member that is unknown, missing or of the wrong form.
    #[error("line {line}, column {column}: {problem}")]
    Syntax {
        /// Line, from 1; 0 where the file ends before its first.
        line: usize,
        /// Column in bytes, from 1; 0 at the end of a line.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// A value that means nothing where it stands.
    #[error("{path}: {problem}")]
    Value {
        /// The way to it, such as `graph.nodes[12].kernel.args[1]`.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// Well-formed, but no valid graph.
    #[error("{path}: {source}")]
    Graph {
        /// The way to the node, edge, buffer or slot.
        path: String,
        /// What is wrong.
        source: Box<GraphError>,
    },
}

/// Reads a graph in the format of the [module's page](self). O(file · log names).
///
/// # Errors
/// Where the file is larger than [`MAX_JSON_BYTES`], of another version, no JSON of this format, holds more than
/// [`MAX_JSON_NODES`] nodes or graphs nested more than [`MAX_NESTING`](crate::MAX_NESTING) deep, or describes a
/// graph that [`GraphBuilder::build`](crate::GraphBuilder::build) refuses.
///
/// ```
/// let wrong = br#"{"phonograph": 1, "graph": {
///   "buffers": [{"name": "x", "bytes": 16}],
///   "nodes": [{"name": "f", "kernel": {"args": [{"buffer": "x", "access": "read", "bytes": 17}]}}]
/// }}"#;
/// assert_eq!(
///     phonograph_graph::from_json(wrong).unwrap_err().to_string(),
///     "graph.nodes[0].kernel.args[0]: node n0 (f) touches bytes 0..17 of buffer b0 (x), which has 16"
/// );
/// ```
pub fn from_json(bytes: &[u8]) -> Result<ComputeGraph, JsonError> {
    if bytes.len() > MAX_JSON_BYTES {
        return Err(JsonError::TooLarge { bytes: bytes.len() });
    }
    let document: value::Object<wire::Document> =
        serde_json::from_slice(bytes).map_err(|error| {
            // A newer format may well hold members that are unknown here: its version is the better answer.
            match serde_json::from_slice::<wire::Envelope>(bytes) {
                Ok(envelope) if envelope.phonograph != VERSION => {
                    JsonError::Version { found: envelope.phonograph }
                }
                _ => syntax(&error),
            }
        })?;
    read::graph_of(document.0.graph.0)
}

fn syntax(error: &serde_json::Error) -> JsonError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let place = format!(" at line {line} column {column}");
    let problem = text.strip_suffix(&place).unwrap_or(&text).to_owned();
    JsonError::Syntax { line, column, problem }
}

/// The launch of a kernel that says none: unknown for a function, one thread an element of the output for what
/// backends generate.
fn default_launch(kernel: &KernelRef, args: &[Arg]) -> KernelConfig {
    let mut views = args.iter().filter_map(Arg::view);
    let shape = match kernel {
        KernelRef::Named(_) => return KernelConfig::unknown(),
        KernelRef::Elementwise(expr) => views.nth(expr.inputs().len()),
        KernelRef::Library(_) | KernelRef::Fused(_) => views.next_back(),
    };
    suggested_launch(shape.map_or(1, View::elements))
}
