//! Redundant edges: those that the rest of the graph implies (transitive reduction), exactly.
//!
//! In: a graph. Out: every edge without which the same nodes are complete before the same nodes start, and before they
//! pass their waits. A full edge `u → v` is redundant if another path leads from `u` to `v` that ends in a full edge; a
//! path that ends in a weak edge promises less. A weak edge is redundant if any other path leads there, a full edge
//! between the same two nodes included. All can be left out at once: the last edge of such a path, taken as late as
//! possible, is never redundant itself.
//!
//! The method: sources are taken in topological order, 1024 at a time, one bit each, and carried forward through the
//! part of the graph that edges from them span. Edges that stay near cost that part once per 1024 nodes; edges that
//! span everything make it quadratic, divided by 1024 · 64. Scratch is 128 bytes for each node of the part.

use std::ops::BitOrAssign;

use phonograph_graph::{ComputeGraph, Edge, EdgeData, NodeId};

const WORDS: usize = 16;
const BITS: usize = 64 * WORDS;

/// A set of sources.
#[derive(Clone, Copy)]
struct Bits([u64; WORDS]);

impl Bits {
    const EMPTY: Bits = Bits([0; WORDS]);

    fn has(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn insert(&mut self, bit: usize) {
        self.0[bit / 64] |= 1 << (bit % 64);
    }
}

impl BitOrAssign<&Bits> for Bits {
    fn bitor_assign(&mut self, other: &Bits) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }
}

/// All redundant edges of a graph, sorted; graphs inside nodes are not looked into.
///
/// ```
/// use phonograph_graph::{Edge, GraphBuilder};
/// use phonograph_plan::analysis::redundant_edges;
///
/// let mut b = GraphBuilder::new();
/// let [x, y, z] = ["x", "y", "z"].map(|n| b.add_barrier(n));
/// b.chain(&[x, y, z]).dep(x, z);
/// assert_eq!(redundant_edges(&b.build()?), [Edge::full(x, z)]);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn redundant_edges(graph: &ComputeGraph) -> Vec<Edge> {
    let order = graph.topological_order();
    let mut position = vec![0u32; order.len()];
    for (at, node) in (0..).zip(order) {
        position[node.index()] = at;
    }
    let at = |node: NodeId| position[node.index()] as usize;
    let mut redundant = Vec::new();
    // By place after the chunk's first: the sources that come before the node there.
    let mut before: Vec<Bits> = Vec::new();
    for (chunk, sources) in order.chunks(BITS).enumerate() {
        let start = chunk * BITS;
        // Only a node of two edges and more can have a redundant one.
        let shared = |to: &&NodeId| graph.predecessors(**to).len() > 1;
        let reached = sources.iter().flat_map(|&source| graph.successors(source));
        let Some(end) = reached.filter(shared).map(|&to| at(to)).max() else { continue };
        before.clear();
        for &node in &order[start..=end] {
            let (mut all, mut full) = (Bits::EMPTY, Bits::EMPTY);
            let mut from_chunk = 0;
            for edge in graph.incoming(node) {
                let Some(from) = at(edge.from).checked_sub(start) else { continue };
                all |= &before[from];
                if edge.data.is_full() {
                    full |= &before[from];
                }
                from_chunk += usize::from(from < BITS);
            }
            if from_chunk > 0 && graph.predecessors(node).len() > 1 {
                for edge in graph.incoming(node) {
                    let from = at(edge.from).wrapping_sub(start);
                    let implied = match edge.data.is_full() {
                        true => from < BITS && full.has(from),
                        false => from < BITS && (all.has(from) || is_doubled(graph, edge)),
                    };
                    if implied {
                        redundant.push(edge);
                    }
                }
            }
            for edge in graph.incoming(node) {
                let from = at(edge.from).wrapping_sub(start);
                if from < BITS {
                    all.insert(from);
                }
            }
            before.push(all);
        }
    }
    redundant.sort_unstable();
    redundant
}

/// Whether there is a full edge between the same nodes.
fn is_doubled(graph: &ComputeGraph, edge: Edge) -> bool {
    graph.incoming(edge.to).any(|e| e.from == edge.from && e.data == EdgeData::FULL)
}
