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
    let places = Places::new(graph);
    let mut redundant = Vec::new();
    // By place after the chunk's first: the sources that come before the node there, itself not counted.
    let mut before: Vec<Bits> = Vec::new();
    for start in (0..graph.node_count()).step_by(BITS) {
        let end = places.end_of_reach[start / BITS];
        before.clear();
        for place in start..end {
            let incoming = places.incoming(place);
            // Edges from before the chunk carry nothing of it.
            let from = |place: u32| (place as usize).checked_sub(start);
            let mut all = Bits::EMPTY;
            let mut direct = 0;
            for from in incoming.iter().filter_map(|&place| from(place)) {
                all |= &before[from];
                direct += usize::from(from < BITS);
            }
            if direct > 0 && incoming.len() > 1 {
                let node = graph.topological_order()[place];
                let full = match graph.has_weak_edges() {
                    true => complete_by_full(graph, node, incoming, start, &before),
                    false => all,
                };
                for (edge, &place) in graph.incoming(node).zip(incoming) {
                    let Some(from) = from(place).filter(|&from| from < BITS) else { continue };
                    let implied = match edge.data.is_full() {
                        true => full.has(from),
                        false => all.has(from) || is_doubled(graph, edge),
                    };
                    if implied {
                        redundant.push(edge);
                    }
                }
            }
            for from in incoming.iter().filter_map(|&place| from(place)).filter(|&f| f < BITS) {
                all.insert(from);
            }
            before.push(all);
        }
    }
    redundant.sort_unstable();
    redundant
}

/// The graph with places in topological order for nodes.
struct Places {
    offsets: Vec<u32>,
    sources: Vec<u32>,
    /// By chunk of sources: one past the last place where an edge from them could be redundant.
    end_of_reach: Vec<usize>,
}

impl Places {
    fn new(graph: &ComputeGraph) -> Self {
        let order = graph.topological_order();
        let mut place = vec![0u32; order.len()];
        for (at, node) in (0..).zip(order) {
            place[node.index()] = at;
        }
        let mut offsets = Vec::with_capacity(order.len() + 1);
        let mut sources = Vec::with_capacity(graph.edge_count());
        let mut end_of_reach: Vec<usize> = (0..order.len()).step_by(BITS).collect();
        offsets.push(0);
        for (at, &node) in order.iter().enumerate() {
            sources.extend(graph.predecessors(node).iter().map(|from| place[from.index()]));
            offsets.push(sources.len() as u32);
            // Only a node of two edges and more can have a redundant one.
            if graph.predecessors(node).len() > 1 {
                for from in graph.predecessors(node) {
                    end_of_reach[place[from.index()] as usize / BITS] = at + 1;
                }
            }
        }
        Self { offsets, sources, end_of_reach }
    }

    fn incoming(&self, place: usize) -> &[u32] {
        &self.sources[self.offsets[place] as usize..self.offsets[place + 1] as usize]
    }
}

/// The sources on paths to `node` of two edges and more that end in a full one.
fn complete_by_full(
    graph: &ComputeGraph,
    node: NodeId,
    incoming: &[u32],
    start: usize,
    before: &[Bits],
) -> Bits {
    let mut full = Bits::EMPTY;
    for (edge, &place) in graph.incoming(node).zip(incoming) {
        if let Some(from) = (place as usize).checked_sub(start).filter(|_| edge.data.is_full()) {
            full |= &before[from];
        }
    }
    full
}

/// Whether there is a full edge between the same nodes.
fn is_doubled(graph: &ComputeGraph, edge: Edge) -> bool {
    graph.incoming(edge.to).any(|e| e.from == edge.from && e.data == EdgeData::FULL)
}
