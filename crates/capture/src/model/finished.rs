//! A captured graph, as the model hands it over: which call made each node, and what it depends on. What the nodes *do* stands in the
//! calls; [`FinishedGraph::graph`] puts the two together.

use phonograph_trace::GraphId;

use super::class::NodeKind;
use super::state::{CallIndex, CapturedId, CapturedNode};

/// A captured graph.
#[derive(Clone, PartialEq, Debug)]
pub struct FinishedGraph {
    /// The begin of the capture.
    pub begun: CallIndex,
    /// The call that first captured into the graph: what the driver's capture id stands for.
    pub id: CallIndex,
    /// What the program calls the graph, if it has a name for it.
    pub name: Option<GraphId>,
    /// The nodes in the order of capture. Those of earlier captures into the same graph come first.
    pub nodes: Vec<CapturedNode>,
}

impl FinishedGraph {
    /// Every edge, by consumer, each from a dependency to the node that has it.
    pub fn edges(&self) -> impl Iterator<Item = (CapturedId, CapturedId)> + '_ {
        // There are no more nodes than calls, so the position fits.
        let consumers = self.nodes.iter().enumerate();
        consumers.flat_map(|(at, node)| {
            node.dependencies.iter().map(move |dependency| (dependency, CapturedId(at as u32)))
        })
    }

    /// Port and type of an edge: 1 and 1 if the consumer was launched with programmatic serialisation and the producer is a kernel.
    pub fn edge_data(&self, from: CapturedId, to: CapturedId) -> (u8, u8) {
        // R0: no recording has a programmatic launch after anything but a kernel; the documentation allows the type between kernels only.
        let programmatic = self.nodes[to.index()].programmatic
            && self.nodes[from.index()].kind == NodeKind::Kernel;
        if programmatic { (1, 1) } else { (0, 0) }
    }
}
