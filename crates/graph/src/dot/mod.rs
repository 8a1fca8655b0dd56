//! Graphviz DOT, in and out.
//!
//! [`from_dot`] reads what `cudaGraphDebugDotPrint` and `cuGraphDebugDotPrint` write, under any flags, and what
//! [`to_dot`] writes. [`to_dot`] follows the driver's layout, so that tools for its dumps read ours.
//!
//! # What is read
//!
//! One cluster for each graph; child graphs and conditional bodies are siblings of the graph that holds them and
//! are found by the name in the label (`graph_3`, which is `cluster_3`). *The* graph of a file is the cluster that
//! no node refers to; a file with several such clusters is refused, with their names.
//!
//! | kind | what the driver tells (more with more flags) | what stays unknown without |
//! | --- | --- | --- |
//! | kernel | mangled name; grid, block, shared bytes; cooperative; priority | [`KernelConfig::unknown`](crate::KernelConfig::unknown) |
//! | memset | value, bytes; address, pitch, element size, width, height | element size 0, [`Target::Unspecified`](crate::Target::Unspecified) |
//! | memcpy | direction, bytes; addresses, pitches, positions, extent, memory types | [`Target::Unspecified`](crate::Target::Unspecified) |
//! | host | address of the function, `userData` | a function without a name |
//! | event record, wait | handle: an [`EventId`](crate::EventId) for each, in order of appearance | an id of its own for each node |
//! | mem alloc, mem free | size, address, location: a buffer for each allocation, found again by a free's address | a buffer of 0 bytes for each node |
//! | child graph | its cluster | – |
//! | conditional | kind, bodies; handle | handle 0 |
//!
//! The memory types of a copy (`DEVICE to HOST PINNED`) and a `userData` that is not null become the name of the
//! node. Node and function handles, access policy windows and `topoId` are not kept. No argument is told, so the
//! effects of every kernel are unknown. The driver writes a programmatic edge like any other (its `headlabel`
//! numbers the edges into a node and is no port), and leaves out cluster sizes: both are read as if they were not
//! there.
//!
//! From its own files, [`from_dot`] reads back structure, kinds, names, functions, launches, extents, values,
//! streams, events and edge data. Expressions, library kernels, arguments and buffers do not survive (a kernel of
//! either kind comes back as one known by that name), nor what was observed, which a node has as `observed` and
//! `trials`; use [JSON](crate::to_json) to keep everything.

mod copy;
mod interpret;
mod parse;
mod read;
mod record;
mod token;
mod write;

use std::fmt;

use crate::{ComputeGraph, GraphError};
pub use write::to_dot;

/// The largest file that is read, in bytes: room for two million nodes as verbose as the driver gets.
pub const MAX_DOT_BYTES: usize = 1 << 30;
/// The most nodes that are read, those of child graphs and bodies included.
pub const MAX_DOT_NODES: usize = 1 << 22;
/// The most edges that are read, those of child graphs and bodies included.
pub const MAX_DOT_EDGES: usize = 1 << 24;

/// A place in a file; both count from 1, columns in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    fn of(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place { line, column: before[start..].chars().count() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a DOT file is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DotError {
    /// Larger than [`MAX_DOT_BYTES`].
    #[error("a file of {bytes} bytes; the most that is read is {MAX_DOT_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Text that is not DOT, or says what no graph can be.
    #[error("{place}: {problem}")]
    Syntax {
        /// Where.
        place: Place,
        /// What was expected, or what is wrong.
        problem: String,
    },
    /// Several graphs in one file.
    #[error("{count} graphs that no node refers to ({}); a file must hold one", list(*.count, .first))]
    Several {
        /// How many.
        count: usize,
        /// The name and place of the first few.
        first: Vec<(String, Place)>,
    },
    /// Well-formed, but no valid graph.
    #[error("{place}: {graph}: {source}")]
    Graph {
        /// Of the node or edge, or where the graph starts.
        place: Place,
        /// Name of the graph in the file, such as `graph_3`.
        graph: String,
        /// What is wrong.
        source: Box<GraphError>,
    },
}

impl DotError {
    /// Where it is, if it is somewhere.
    pub fn place(&self) -> Option<Place> {
        match self {
            DotError::TooLarge { .. } => None,
            DotError::Syntax { place, .. } | DotError::Graph { place, .. } => Some(*place),
            DotError::Several { first, .. } => first.first().map(|&(_, place)| place),
        }
    }
}

fn list(count: usize, first: &[(String, Place)]) -> String {
    let named = first.iter().map(|(name, place)| format!("{name} at line {}", place.line));
    let mut all: Vec<String> = named.collect();
    if count > first.len() {
        all.push("…".to_owned());
    }
    all.join(", ")
}

/// Reads a DOT file; the [module's page](self) says what and how. O(file · log names).
///
/// # Errors
/// Where the file is too large, is no DOT, names what it does not define, holds several graphs or none, or
/// describes a graph that [`GraphBuilder::build`](crate::GraphBuilder::build) refuses. Every error but the first
/// has a [`Place`].
///
/// ```
/// use phonograph_graph::from_dot;
///
/// let graph = from_dot(br#"digraph dot {
/// subgraph cluster_1 {
/// label="graph_1" graph[style="dashed"];
/// "graph_1_node_0"[style="bold" shape="octagon" label="0
/// addone
/// \<\<\<\{2,4\},128,0\>\>\>"];
/// "graph_1_node_1"[style="solid" shape="trapezium"label="1
/// MEMCPY
/// (DtoH,256)
/// "];
/// "graph_1_node_0" -> "graph_1_node_1";
/// }
/// }"#)?;
/// assert_eq!((graph.node_count(), graph.edge_count()), (2, 1));
/// assert_eq!(graph.nodes()[0].kernel().unwrap().config.grid, (2, 4, 1));
///
/// let error = from_dot(b"digraph {\n\"graph_1_node_0\" [label=\"0\n").unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 25: the quoted string that starts here never ends");
/// # Ok::<(), phonograph_graph::DotError>(())
/// ```
pub fn from_dot(bytes: &[u8]) -> Result<ComputeGraph, DotError> {
    if bytes.len() > MAX_DOT_BYTES {
        return Err(DotError::TooLarge { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let place = Place::of(&valid, valid.len());
        DotError::Syntax { place, problem: "expected text in UTF-8".to_owned() }
    })?;
    let syntax = |fault: token::Fault| DotError::Syntax {
        place: Place::of(text, fault.at),
        problem: fault.problem,
    };
    let document = parse::parse(text).map_err(syntax)?;
    read::graph_of(&document).map_err(|refusal| match refusal {
        read::Refusal::Fault(fault) => syntax(fault),
        read::Refusal::Graph { at, cluster, source } => {
            DotError::Graph { place: Place::of(text, at), graph: token::shorten(&cluster), source }
        }
        read::Refusal::Roots { count, first } => {
            let row = |(name, at): (String, usize)| (token::shorten(&name), Place::of(text, at));
            DotError::Several { count, first: first.into_iter().map(row).collect() }
        }
    })
}
