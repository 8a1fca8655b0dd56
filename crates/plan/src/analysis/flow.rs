//! Who touches the same bytes one after the other: conflicts between neighbours, and the buffers that races leave open.
//!
//! In: a graph. Out: the pairs of nodes next to each other, in topological order, at some byte that one of them writes.
//! All other conflicts follow from these: where each of them is ordered, all are. For each buffer an ordered map of
//! disjoint segments remembers who wrote last and who has read since. O((operands + segments touched) · log segments);
//! memory about 64 bytes a buffer that is touched as a whole, and 100 bytes a segment of others.

use phonograph_graph::{BufferId, ComputeGraph, NodeId};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::order::{By, ordered};
use super::segments::Segments;

/// Two nodes that touch the same byte of a buffer, one of them writing, and no other in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conflict {
    /// The earlier in topological order.
    pub first: NodeId,
    /// The later.
    pub second: NodeId,
    /// The buffer.
    pub buffer: BufferId,
}

/// Who wrote some bytes last, and who has read them since.
#[derive(Clone, Default)]
struct Since {
    writer: Option<NodeId>,
    readers: SmallVec<[NodeId; 2]>,
}

/// The conflicts between neighbours, in topological order of the later node.
pub fn conflicts(graph: &ComputeGraph) -> Vec<Conflict> {
    let mut memory: Vec<Segments<Since>> = vec![Segments::default(); graph.buffers().len()];
    let mut found = Vec::new();
    for &node in graph.topological_order() {
        let operands = graph.operands(node);
        for (region, _) in operands.iter().filter(|(_, access)| access.reads()) {
            memory[region.buffer.index()].visit(region.offset, region.end(), |since| {
                conflict(&mut found, since.writer, node, region.buffer);
                if since.readers.last() != Some(&node) {
                    since.readers.push(node);
                }
            });
        }
        for (region, _) in operands.iter().filter(|(_, access)| access.writes()) {
            let segments = &mut memory[region.buffer.index()];
            segments.visit(region.offset, region.end(), |since| {
                conflict(&mut found, since.writer, node, region.buffer);
                for &reader in &since.readers {
                    conflict(&mut found, Some(reader), node, region.buffer);
                }
            });
            let since = Since { writer: Some(node), readers: SmallVec::new() };
            segments.assign(region.offset, region.end(), since);
        }
    }
    found
}

fn conflict(found: &mut Vec<Conflict>, first: Option<NodeId>, second: NodeId, buffer: BufferId) {
    if let Some(first) = first.filter(|&first| first != second) {
        let conflict = Conflict { first, second, buffer };
        if found.last() != Some(&conflict) {
            found.push(conflict);
        }
    }
}

/// The buffers for which some nodes race: what they hold depends on who comes first. Passes leave them alone. Costs what
/// [`conflicts`] costs, and [`ordered`] for conflicts without an edge.
pub fn raced_buffers(graph: &ComputeGraph) -> FxHashSet<BufferId> {
    let mut open = conflicts(graph);
    open.retain(|conflict| !graph.predecessors(conflict.second).contains(&conflict.first));
    let pairs: Vec<(NodeId, NodeId)> = open.iter().map(|c| (c.first, c.second)).collect();
    let ordered = ordered(graph, &pairs, By::Wait);
    open.iter().zip(ordered).filter(|(_, ordered)| !ordered).map(|(c, _)| c.buffer).collect()
}
