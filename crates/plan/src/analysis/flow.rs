//! Who touches the same bytes one after the other: conflicts between neighbours, and the buffers that races leave open.
//!
//! In: a graph. Out: the pairs of nodes next to each other, in topological order, at some byte that one of them writes.
//! All other conflicts follow from these: where each of them is ordered, all are. For each buffer an ordered map of
//! disjoint segments remembers who wrote last and who has read since. O((operands + segments touched) · log segments);
//! memory about 100 bytes a segment.

use std::collections::BTreeMap;

use phonograph_graph::{BufferId, ComputeGraph, NodeId, Region};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::order::{By, ordered};

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

#[derive(Clone, Default)]
struct Since {
    end: u64,
    writer: Option<NodeId>,
    readers: SmallVec<[NodeId; 2]>,
}

/// The conflicts between neighbours, in topological order of the later node.
pub fn conflicts(graph: &ComputeGraph) -> Vec<Conflict> {
    let mut memory: Vec<BTreeMap<u64, Since>> = vec![BTreeMap::new(); graph.buffers().len()];
    let mut found = Vec::new();
    for &node in graph.topological_order() {
        let operands = graph.operands(node);
        let touched = |reads: bool| {
            let of_kind = operands
                .iter()
                .filter(move |(_, access)| if reads { access.reads() } else { access.writes() });
            of_kind.map(|&(region, _)| region).filter(|region| region.bytes > 0)
        };
        for region in touched(true) {
            for since in cut_out(&mut memory[region.buffer.index()], region) {
                conflict(&mut found, since.writer, node, region.buffer);
                if since.readers.last() != Some(&node) {
                    since.readers.push(node);
                }
            }
        }
        for region in touched(false) {
            let segments = &mut memory[region.buffer.index()];
            for since in cut_out(segments, region) {
                conflict(&mut found, since.writer, node, region.buffer);
                for &reader in &since.readers {
                    conflict(&mut found, Some(reader), node, region.buffer);
                }
            }
            let inside: SmallVec<[u64; 4]> =
                segments.range(region.offset..region.end()).map(|(&at, _)| at).collect();
            for at in inside {
                segments.remove(&at);
            }
            let end = region.end();
            let since = Since { end, writer: Some(node), readers: SmallVec::new() };
            segments.insert(region.offset, since);
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

/// The segments that make up a region, cut at its ends, with new ones where nobody has been.
fn cut_out(
    segments: &mut BTreeMap<u64, Since>,
    region: Region,
) -> impl Iterator<Item = &mut Since> {
    let (start, end) = (region.offset, region.end());
    for at in [start, end] {
        let spans = |(_, since): &(&u64, &mut Since)| since.end > at;
        if let Some((_, below)) = segments.range_mut(..at).next_back().filter(spans) {
            let above = below.clone();
            below.end = at;
            segments.insert(at, above);
        }
    }
    let mut reached = start;
    let mut gaps: SmallVec<[(u64, u64); 4]> = SmallVec::new();
    for (&from, since) in segments.range(start..end) {
        if reached < from {
            gaps.push((reached, from));
        }
        reached = since.end;
    }
    if reached < end {
        gaps.push((reached, end));
    }
    for (from, end) in gaps {
        segments.insert(from, Since { end, ..Since::default() });
    }
    segments.range_mut(start..end).map(|(_, since)| since)
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
