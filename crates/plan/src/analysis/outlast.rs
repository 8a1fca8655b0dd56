//! Which buffers' contents somebody may look at after the graph, or in its next round.
//!
//! The user's buffers and stand-ins for buffers of the graph around; memory that a node allocates; and buffers of the
//! graph's own that may be read before they are written, since what they hold may be meant to carry over. An internal
//! buffer has no address outside the operands that name it, so nodes with unknown effects cannot look into it.

use phonograph_graph::{BufferId, BufferRole, ComputeGraph, Effects, NodeKind};

use super::bytes::Bytes;

/// Why the contents of a buffer matter after the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlasts {
    /// It is the user's, or a node allocates it.
    Exported,
    /// It may be read before it is written.
    Carried,
}

/// For each buffer why its contents matter after the graph; `None` if they don't. O(operands · log intervals).
pub fn outlasting(graph: &ComputeGraph) -> Vec<Option<Outlasts>> {
    let mut found: Vec<Option<Outlasts>> = graph
        .buffers()
        .iter()
        .map(|buffer| (buffer.role != BufferRole::Internal).then_some(Outlasts::Exported))
        .collect();
    let mut written = Bytes::none(graph);
    for &node in graph.topological_order() {
        if let NodeKind::Alloc(buffer) = graph.node(node).kind {
            found[buffer.index()] = Some(Outlasts::Exported);
        }
        let operands = graph.operands(node);
        for (region, _) in operands.iter().filter(|(_, access)| access.reads()) {
            let outlasts = &mut found[region.buffer.index()];
            if outlasts.is_none() && !written.holds(*region) {
                *outlasts = Some(Outlasts::Carried);
            }
        }
        for (region, _) in operands.iter().filter(|(_, access)| access.writes()) {
            if found[region.buffer.index()].is_none() {
                written.add(*region);
            }
        }
    }
    found
}

/// Whether nodes of which nothing is known may read or write the user's buffers while this graph runs. Of a graph inside
/// another one only the graph around could tell, so there it is taken that they may.
pub struct Watch<'a> {
    graph: &'a ComputeGraph,
    unknown: bool,
}

impl<'a> Watch<'a> {
    /// Asks every node for its effects. O(operands).
    pub fn of(graph: &'a ComputeGraph) -> Self {
        let unknown = graph.node_ids().any(|node| graph.effects(node) == Effects::Unknown);
        Self { graph, unknown }
    }

    /// Whether somebody unknown may look into this buffer at any time.
    pub fn sees(&self, buffer: BufferId) -> bool {
        match self.graph.buffer(buffer).role {
            BufferRole::Internal => false,
            BufferRole::Outer(_) => true,
            BufferRole::External | BufferRole::Slot(_) => self.unknown,
        }
    }
}
