//! Transitive reduction: the edges that other paths already imply.
//!
//! A full edge u → v is implied when u reaches another producer of v that v waits for in full: that producer is
//! complete before v starts, and whatever it depended on, by an edge of any kind, was complete before it. A path
//! whose last edge is weak implies no full edge. A weak edge is implied by any other path, and by a full edge beside it.
//!
//! Exact, by reachability in chunks: 64 to 1024 sources at a time, neighbours in topological order, one bit each,
//! carried forward through the stretch of the graph up to the last edge in question. Local edges make short
//! stretches and near-linear time; edges across the whole graph cost nodes × edges / 1024 word operations, and never more
//! than 128 bytes a node of scratch. (After A. Goralčíková and V. Koubek, MFCS 1979, in blocked form.)

use phonograph_graph::{ComputeGraph, Edge, NodeId};

/// The most words of a chunk: 1024 sources.
const MAX_WORDS: usize = 16;

/// The redundant edges, by consumer and then in the order in which they were given. All of them can be removed
/// together. O(nodes × edges / 1024) at worst; near-linear where edges are local.
pub fn redundant_edges(graph: &ComputeGraph) -> Vec<Edge> {
    let order = graph.topological_order();
    let mut position = vec![0u32; order.len()];
    for (place, node) in (0u32..).zip(order) {
        position[node.index()] = place;
    }
    let at = |node: NodeId| position[node.index()];
    let mut redundant = shadowed(graph);
    // For each place, the last place with an edge from it that another producer might imply.
    let mut last_asked = vec![0u32; order.len()];
    for &node in order {
        let producers = graph.predecessors(node);
        let latest = producers.iter().map(|&p| at(p)).max().unwrap_or(0);
        for &producer in producers.iter().filter(|&&p| at(p) < latest) {
            last_asked[at(producer) as usize] = at(node);
        }
    }
    let words = (order.len().div_ceil(64)).clamp(1, MAX_WORDS);
    let mut ancestors: Vec<u64> = Vec::new();
    let mut start = 0;
    while start < order.len() {
        let end = (start + 64 * words).min(order.len());
        let last = last_asked[start..end].iter().copied().max().unwrap_or(0) as usize;
        if last > start {
            let chunk = Chunk { graph, position: &position, start, end, words };
            chunk.sweep(last, &mut ancestors, &mut redundant);
        }
        start = end;
    }
    redundant.sort_unstable_by_key(|&(place, _)| place);
    redundant.dedup();
    redundant.into_iter().map(|(_, edge)| edge).collect()
}

/// Place of an edge among all: consumer, then its place among the consumer's edges.
type Place = (NodeId, u32);

/// Weak edges beside a full edge between the same nodes.
fn shadowed(graph: &ComputeGraph) -> Vec<(Place, Edge)> {
    let mut found = Vec::new();
    if graph.has_weak_edges() {
        for node in graph.node_ids() {
            for (index, edge) in (0u32..).zip(graph.incoming(node)) {
                let mut others = graph.incoming(node);
                let full = Edge::full(edge.from, node);
                if !edge.data.is_full() && others.any(|other| other == full) {
                    found.push(((node, index), edge));
                }
            }
        }
    }
    found
}

/// Sources at places `start..end`, one bit each.
struct Chunk<'a> {
    graph: &'a ComputeGraph,
    position: &'a [u32],
    start: usize,
    end: usize,
    words: usize,
}

impl Chunk<'_> {
    /// Carries ancestors forward to place `last`, judging the edges on the way.
    fn sweep(&self, last: usize, ancestors: &mut Vec<u64>, redundant: &mut Vec<(Place, Edge)>) {
        let (graph, words) = (self.graph, self.words);
        ancestors.clear();
        ancestors.resize((last + 1 - self.start) * words, 0);
        let mut by_full = [0u64; MAX_WORDS];
        let mut by_any = [0u64; MAX_WORDS];
        for place in self.start..=last {
            let node = graph.topological_order()[place];
            let row = (place - self.start) * words;
            let (done, rest) = ancestors.split_at_mut(row);
            by_full[..words].fill(0);
            by_any[..words].fill(0);
            let mut asked = false;
            for edge in graph.incoming(node) {
                let Some(producer) = self.row(edge.from) else { continue };
                asked |= self.bit(edge.from).is_some();
                let above = &done[producer * words..][..words];
                let into = if edge.data.is_full() { &mut by_full } else { &mut by_any };
                for (word, bits) in into.iter_mut().zip(above) {
                    *word |= bits;
                }
            }
            for (any, full) in by_any[..words].iter_mut().zip(&by_full) {
                *any |= full;
            }
            if asked {
                for (index, edge) in (0u32..).zip(graph.incoming(node)) {
                    let Some(bit) = self.bit(edge.from) else { continue };
                    let implying = if edge.data.is_full() { &by_full } else { &by_any };
                    if implying[bit / 64] >> (bit % 64) & 1 == 1 {
                        redundant.push(((node, index), edge));
                    }
                }
                for edge in graph.incoming(node) {
                    if let Some(bit) = self.bit(edge.from) {
                        by_any[bit / 64] |= 1 << (bit % 64);
                    }
                }
            }
            rest[..words].copy_from_slice(&by_any[..words]);
        }
    }

    /// Row of a node; `None` if it lies before the chunk and so descends from no source.
    fn row(&self, node: NodeId) -> Option<usize> {
        (self.position[node.index()] as usize).checked_sub(self.start)
    }

    /// Bit of a node, if it is a source.
    fn bit(&self, node: NodeId) -> Option<usize> {
        self.row(node).filter(|&bit| bit < self.end - self.start)
    }
}
