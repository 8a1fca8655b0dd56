//! What nodes and the machinery around them cost, in nanoseconds: what planning and simulation go by.
//!
//! Costs come from a measurement or are assumed; nothing here guesses what a kernel does.

use phonograph_graph::{ComputeGraph, NodeKind};

/// What a node is taken to cost where nothing is known: a microsecond, a short kernel.
pub const ASSUMED_NODE_NS: u64 = 1_000;

/// What running a graph costs beside its nodes. The default is none of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overheads {
    /// Starting and ending a replay.
    pub replay_ns: u64,
    /// Going from one node to the next on a stream.
    pub node_ns: u64,
    /// From the end of a node until one on another stream that waits for it can start.
    pub handover_ns: u64,
}

/// The costs to assume if none are given, by node: [`ASSUMED_NODE_NS`] for each, nothing for nodes that only order others,
/// and for a node with graphs inside what those cost one node after another (of several bodies the most expensive; of a
/// loop one turn).
pub fn assumed(graph: &ComputeGraph) -> Vec<u64> {
    graph.nodes().iter().map(|node| assumed_of(&node.kind)).collect()
}

// Recursive over nesting, which building a graph bounds.
fn assumed_of(kind: &NodeKind) -> u64 {
    let whole = |graph: &ComputeGraph| {
        let costs = graph.nodes().iter().map(|node| assumed_of(&node.kind));
        costs.fold(0, u64::saturating_add)
    };
    match kind {
        NodeKind::Empty | NodeKind::Alloc(_) | NodeKind::Free(_) => 0,
        NodeKind::EventRecord(_) | NodeKind::EventWait(_) => 0,
        NodeKind::Child(graph) => whole(graph),
        NodeKind::Conditional(conditional) => {
            conditional.bodies.iter().map(whole).max().unwrap_or(0)
        }
        NodeKind::Kernel(_) | NodeKind::Memcpy(_) | NodeKind::Memset(_) | NodeKind::Host(_) => {
            ASSUMED_NODE_NS
        }
    }
}
