//! Graphs of known shape and any size, for benches, tests and demonstrations.
//!
//! In: a kind, how many nodes, a seed. Out: a graph of exactly that many nodes, the same for the same request on every
//! machine. O(nodes); the edges are few, two to four a node.
//!
//! | kind | shape | what it is hard for |
//! | --- | --- | --- |
//! | `chain` | each node after the one before | replaying: nothing runs side by side |
//! | `layered` | layers as wide as there are of them, each node after one to four of the layer before | choosing streams: wide, with many joins |
//! | `wavefront` | a square grid, each node after its left and upper neighbours | balance: narrow, wide, narrow |
//! | `tree` | a reduction, each node after two | handing over little |
//! | `long-edges` | each node after one of the 64 before it and after any earlier one | whatever searches between the ends of an edge |
//! | `transformer` | layers of a transformer's forward pass, with real kernels on real buffers | memory, fusion |
//!
//! All but the transformer are of kernels called [`SPIN`] whose blocks, 1 to 100, say how many microseconds each is to keep
//! a processor busy. They name no memory, so only their edges order them.

mod shapes;
mod transformer;

use std::fmt;
use std::str::FromStr;

use phonograph_graph::{ComputeGraph, GraphError, ViewError};

use crate::random;

/// The kernel that generated graphs consist of: each block keeps a processor busy for a microsecond.
pub const SPIN: &str = "spin";

/// A kind of graph that [`generate`] makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Each node after the one before.
    Chain,
    /// Layers, each node after some of the layer before.
    Layered,
    /// A square grid.
    Wavefront,
    /// A reduction to one node.
    Tree,
    /// The forward pass of a transformer.
    Transformer,
    /// Edges that span the graph.
    LongEdges,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] = [
        Kind::Chain,
        Kind::Layered,
        Kind::Wavefront,
        Kind::Tree,
        Kind::Transformer,
        Kind::LongEdges,
    ];

    /// The name by which it is asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Chain => "chain",
            Kind::Layered => "layered",
            Kind::Wavefront => "wavefront",
            Kind::Tree => "tree",
            Kind::Transformer => "transformer",
            Kind::LongEdges => "long-edges",
        }
    }

    /// The most nodes that it is generated with: what files of graphs hold, also in JSON.
    pub const fn max_nodes(self) -> u32 {
        match self {
            Kind::Transformer => 1 << 20,
            _ => 1 << 22,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = GenerateError;

    fn from_str(name: &str) -> Result<Self, GenerateError> {
        let named = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        named.ok_or_else(|| GenerateError::UnknownKind { name: name.chars().take(60).collect() })
    }
}

/// Why a graph was not generated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GenerateError {
    /// A kind that there is not.
    #[error("there is no kind of graph called `{name}`; there are {}", Kind::ALL.map(Kind::name).join(", "))]
    UnknownKind {
        /// What was asked for.
        name: String,
    },
    /// Too few nodes, or too many.
    #[error("a {kind} graph has 1 to {} nodes, not {nodes}", .kind.max_nodes())]
    Nodes {
        /// The kind.
        kind: Kind,
        /// What was asked for.
        nodes: u32,
    },
    /// A graph that building refuses.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A tensor that does not fit.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Makes a graph of `nodes` nodes.
///
/// ```
/// use phonograph_plan::generate::{Kind, generate};
///
/// let tree = generate(Kind::Tree, 7, 1)?;
/// assert_eq!((tree.node_count(), tree.edge_count()), (7, 6));
/// assert_eq!(generate("wavefront".parse()?, 1_000, 5)?, generate(Kind::Wavefront, 1_000, 5)?);
/// # Ok::<(), phonograph_plan::generate::GenerateError>(())
/// ```
///
/// # Errors
/// [`GenerateError::Nodes`] for none, or more than [`Kind::max_nodes`].
pub fn generate(kind: Kind, nodes: u32, seed: u64) -> Result<ComputeGraph, GenerateError> {
    if nodes == 0 || nodes > kind.max_nodes() {
        return Err(GenerateError::Nodes { kind, nodes });
    }
    let random = Random(random::Random::new(seed));
    match kind {
        Kind::Chain => shapes::chain(nodes, random),
        Kind::Layered => shapes::layered(nodes, random),
        Kind::Wavefront => shapes::wavefront(nodes, random),
        Kind::Tree => shapes::tree(nodes, random),
        Kind::LongEdges => shapes::long_edges(nodes, random),
        Kind::Transformer => transformer::transformer(nodes, random),
    }
}

/// Which graph a seed gives is published, and with it how numbers are cut to a range here.
struct Random(random::Random);

impl Random {
    /// A number below `end`, which is not 0. The bias is `end` in 2⁶⁴.
    fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.0.next()) * u128::from(end)) >> 64) as u32
    }
}
