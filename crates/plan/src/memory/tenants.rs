//! The buffers of a graph that have to be placed, and their first and last users in the guaranteed order.
//!
//! A user is a node that names the buffer. One whose effects are unknown may touch anything that has an address
//! elsewhere, but an internal buffer has none outside the operands that name it.
//!
//! O(operands · log operands) and what the index of the order costs.

use phonograph_graph::{Access, BufferId, BufferRole, ComputeGraph, NodeId, NodeKind, Region};
use smallvec::SmallVec;

use crate::precedence::Precedence;

/// Users that must be asked about to hand a buffer's bytes over, at most; with more it keeps its bytes for itself.
const MAX_ENDS: usize = 64;

/// A buffer to be placed.
pub(super) struct Tenant {
    pub buffer: BufferId,
    pub bytes: u64,
    pub align: u64,
    /// The users that none of the others is certainly before, and those that none is certainly after.
    pub first: SmallVec<[NodeId; 2]>,
    pub last: SmallVec<[NodeId; 2]>,
    /// Places of the first and the last user in topological order.
    pub from: u32,
    pub to: u32,
    /// Whether it may share bytes with others.
    pub shares: Sharing,
}

/// Whether a buffer may share bytes with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// With those wholly before or after it.
    Allowed,
    /// With none: what its bytes held before a replay shows, or they outlive it.
    Forbidden,
    /// With none, but only because too little is known to tell.
    Unknown,
}

impl Tenant {
    /// Whether every user is certainly complete before any user of `other` starts.
    pub fn is_before(&self, other: &Tenant, precedence: &Precedence<'_>) -> bool {
        let ordered = |&a: &NodeId| other.first.iter().all(|&b| precedence.before_start(a, b));
        self.to < other.from && self.last.iter().all(ordered)
    }
}

/// One operand of an internal buffer.
#[derive(Clone, Copy)]
struct Use {
    buffer: BufferId,
    node: NodeId,
    /// Place of the node in topological order.
    at: u32,
    region: Region,
    access: Access,
}

/// The internal buffers, in order of their ids.
///
/// `order` is a topological order; places in it are what tenants have as their `from` and `to`.
pub(super) fn tenants(
    graph: &ComputeGraph,
    precedence: &Precedence<'_>,
    order: &[NodeId],
) -> Vec<Tenant> {
    let mut uses = Vec::new();
    // Whether a node allocates the buffer, and whether one frees it.
    let mut by_node = vec![(false, false); graph.buffers().len()];
    for (at, &node) in order.iter().enumerate() {
        match graph.node(node).kind {
            NodeKind::Alloc(buffer) => by_node[buffer.index()].0 = true,
            NodeKind::Free(buffer) => by_node[buffer.index()].1 = true,
            _ => {}
        }
        for (region, access) in graph.operands(node) {
            let buffer = region.buffer;
            if graph.buffer(buffer).role == BufferRole::Internal {
                uses.push(Use { buffer, node, at: at as u32, region, access });
            }
        }
    }
    uses.sort_by_key(|u| u.buffer); // stable: topological order for each buffer
    let mut uses = uses.chunk_by(|a, b| a.buffer == b.buffer).peekable();
    let buffers = graph.buffers().iter().enumerate();
    let internal = buffers.filter(|(_, declared)| declared.role == BufferRole::Internal);
    internal
        .map(|(index, declared)| {
            let buffer = BufferId::from_index(index);
            let uses = uses.next_if(|uses| uses[0].buffer == buffer).unwrap_or(&[]);
            let (first, last) = ends(precedence, uses);
            let outlives = by_node[index] == (true, false);
            Tenant {
                buffer,
                bytes: declared.bytes,
                align: declared.align,
                from: uses.first().map_or(0, |u| u.at),
                to: uses.last().map_or(0, |u| u.at),
                shares: match first.len().max(last.len()) > MAX_ENDS {
                    _ if outlives => Sharing::Forbidden,
                    true => Sharing::Unknown,
                    false => sharing(precedence, uses, declared.bytes),
                },
                first,
                last,
            }
        })
        .collect()
}

type Ends = SmallVec<[NodeId; 2]>;

/// Leaves out users that are ordered against a neighbour or the outermost: what is wholly before all others is so
/// before these. O(users).
fn ends(precedence: &Precedence, uses: &[Use]) -> (Ends, Ends) {
    let mut users: Vec<NodeId> = uses.iter().map(|u| u.node).collect();
    users.dedup();
    let (Some(&front), Some(&back)) = (users.first(), users.last()) else {
        return Default::default();
    };
    let before = |a: NodeId, b: NodeId| precedence.before_start(a, b);
    let is_first =
        |&at: &usize| at == 0 || !before(front, users[at]) && !before(users[at - 1], users[at]);
    let is_last = |&at: &usize| {
        at + 1 == users.len() || !before(users[at], back) && !before(users[at], users[at + 1])
    };
    let all = 0..users.len();
    let first = all.clone().filter(is_first).map(|at| users[at]).collect();
    let last = all.filter(is_last).map(|at| users[at]).collect();
    (first, last)
}

/// Whether every byte read was certainly written before, in the same replay: then it may share.
fn sharing(precedence: &Precedence<'_>, uses: &[Use], bytes: u64) -> Sharing {
    /// Pairs of a read and a write that are compared; beyond, the buffer counts as read before written.
    const MOST: usize = 4096;
    let Some(opening) = uses.first() else { return Sharing::Allowed };
    let whole = opening.access == Access::Write
        && opening.region.offset == 0
        && opening.region.end() >= bytes;
    let writes: SmallVec<[&Use; 8]> = uses.iter().filter(|u| u.access == Access::Write).collect();
    let mut compared = 0;
    for read in uses.iter().filter(|u| u.access.reads() && u.region.bytes > 0) {
        if whole && precedence.before_wait(opening.node, read.node) {
            continue;
        }
        compared += writes.len();
        if compared > MOST {
            return Sharing::Unknown;
        }
        let earlier = writes.iter().filter(|write| precedence.before_wait(write.node, read.node));
        let mut written: Vec<(u64, u64)> =
            earlier.map(|write| (write.region.offset, write.region.end())).collect();
        written.sort_unstable();
        let covered = written.iter().fold(read.region.offset, |covered, &(start, end)| {
            if start <= covered { covered.max(end) } else { covered }
        });
        if covered < read.region.end() {
            return match precedence.is_exact() {
                true => Sharing::Forbidden,
                false => Sharing::Unknown,
            };
        }
    }
    Sharing::Allowed
}
