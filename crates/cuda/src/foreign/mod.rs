//! Graphs that others made: captured by the driver from whatever a library does on a stream, or handed over as a raw
//! handle, and read into a [`ComputeGraph`].
//!
//! - [`Stream::capture`](crate::Stream::capture) runs a closure under capture: [`Captured`].
//! - [`Imported::read`] reads a graph that somebody else owns.
//! - [`Imported::reduce_to`] takes edges out of the driver's graph, in place, before it is instantiated.
//! - [`Imported::rebuild`] makes a graph anew instead, and leaves the other as it is.
//! - [`Captured::instantiate`] makes a [`ForeignExec`], which launches it.
//!
//! What such a graph's nodes touch is not known, so all that can be done to it is to take out edges that others imply.
//! Edges cost: a chain whose nodes also wait for their eight last predecessors replays 3.4 times slower on an H200.
//!
//! ```
//! use phonograph_cuda::{CaptureMode, Cuda, Stream};
//!
//! let cuda = match Cuda::new() {
//!     Ok(cuda) => cuda,
//!     Err(error) => return Ok(println!("skipped: {error}")),
//! };
//! let stream = Stream::new(&cuda.devices()[0])?;
//! let captured = stream.capture(CaptureMode::Relaxed, |_raw| {
//!     // Any library may work on `_raw` here.
//!     Ok::<_, std::convert::Infallible>(())
//! });
//! let (captured, ()) = captured?;
//! assert!(captured.graph().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod divert;
mod edit;
mod exec;
mod parameters;
mod read;
mod rebuild;
mod watch;
mod window;

use cudarc::driver::sys::{CUgraph, CUgraphNode};
use phonograph_graph::{ComputeGraph, GraphError, MAX_NESTING, NodeId};

use crate::error::DriverError;
use crate::loader::{Driver, Feature, LoadError};
use read::Read;

pub(crate) use read::{edges_of, kind_name, nodes_of};

pub use divert::Diversion;
pub use edit::{EditError, Edited};
pub use exec::{Captured, ForeignExec, LaunchError};
pub use parameters::Parameter;
pub use watch::{Arranged, Arrangement, Block, Ends, Last, Saved, Watch, WatchError};
pub use window::{CaptureError, CaptureMode, Diagnosis, Unjoined};

/// Why a graph of the driver cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// No driver, or one that lacks what this needs.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A node of a kind that a [`ComputeGraph`] does not have.
    #[error("node {node} of the driver's graph is of a kind that cannot be represented: {kind}")]
    Unrepresentable {
        /// The node, by its place in the driver's order.
        node: NodeId,
        /// The kind.
        kind: &'static str,
    },
    /// Child graphs that nest too deep.
    #[error("the driver's graph nests child graphs more than {MAX_NESTING} deep")]
    TooDeep,
    /// Somebody changed the graph while it was read.
    #[error("the driver's graph was changed while it was read")]
    Changed,
    /// The driver's dump of the graph, which is how graphs with allocations or conditionals are read.
    #[error("the driver's dump of the graph cannot be read: {0}")]
    Dump(String),
    /// What was read is no valid graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Why a graph can be looked at but not edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadOnly {
    /// It, or a graph inside, has nodes that allocate or free: the driver edits and copies no such graph.
    #[error("the graph has nodes that allocate or free memory, which the driver lets nobody edit")]
    Allocates,
    /// It, or a graph inside, has conditionals, whose bodies the driver shows in its dump only.
    #[error("the graph has conditional nodes, whose bodies the driver shows in its dump only")]
    Conditional,
}

/// A graph of the driver that somebody else owns, and what was read of it.
pub struct Imported(Read);

impl Imported {
    /// Reads a graph, with the graphs inside. O(nodes + edges), about six calls of the driver a node.
    ///
    /// # Errors
    /// [`ImportError`] if the driver refuses or the graph has nodes of kinds that cannot be represented.
    ///
    /// # Safety
    /// The handle is that of a graph of the driver that lives as long as this value, and that nobody else changes
    /// meanwhile. Where kernels are of a module that is not loaded yet, their context is current.
    pub unsafe fn read(handle: CUgraph) -> Result<Self, ImportError> {
        Driver::load()?.offers(Feature::Foreign)?;
        // SAFETY: the caller's promise.
        Ok(Self(unsafe { read::read(handle) }?))
    }

    /// The graph. Its nodes are in the driver's order; kernels, copies and fills name raw memory, so that their effects
    /// are unknown.
    pub fn graph(&self) -> &ComputeGraph {
        &self.0.graph
    }

    /// The driver's handle.
    pub fn handle(&self) -> CUgraph {
        self.0.handle
    }

    /// The driver's node, for other users of the driver; `None` for a graph that is [`read_only`](Self::read_only).
    pub fn node(&self, node: NodeId) -> Option<CUgraphNode> {
        self.0.nodes.get(node.index()).copied()
    }

    /// Why the graph cannot be edited, if it cannot.
    pub fn read_only(&self) -> Option<ReadOnly> {
        self.0.read_only
    }

    /// The parameters of a kernel in order, as their function declares them; `None` for other nodes, where the driver does
    /// not tell, and for graphs that are [`read_only`](Self::read_only).
    pub fn parameters(
        &self,
        kernel: NodeId,
    ) -> Option<impl ExactSizeIterator<Item = Parameter<'_>>> {
        self.0.parameters.of(kernel)
    }
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Imported")
            .field("nodes", &self.0.graph.node_count())
            .field("edges", &self.0.graph.edge_count())
            .field("read_only", &self.0.read_only)
            .finish_non_exhaustive()
    }
}
