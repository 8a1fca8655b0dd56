//! Transitive reduction: the edges that other paths already imply.
//!
//! A full edge u → v is implied when u reaches another producer of v that v waits for in full: that producer is
//! complete before v starts, and whatever it depended on, by an edge of any kind, was complete before it. A path
//! whose last edge is weak implies no full edge. A weak edge is implied by any other path, and by a full edge beside it.
//!
//! Most edges are settled by a look: a producer that no other producer lies above is needed; one on the consumer's own
//! chain is not. The rest is asked of [`order`](super::order), exactly, at its cost.

use phonograph_graph::{ComputeGraph, Edge, NodeId};

use super::levels;
use super::order::{By, Query, answer, positions};

/// The redundant edges, by consumer and then in the order in which they were given. All of them can be removed
/// together. O(nodes × edges / 1024) at worst; near-linear where edges are local or little depends on one node.
pub fn redundant_edges(graph: &ComputeGraph) -> Vec<Edge> {
    let places = graph.predecessor_lists();
    let position = positions(graph);
    let level = levels(graph).level;
    let chain = Chains::cut(graph, &position);
    let mut redundant = vec![false; graph.edge_count()];
    let mut queries = Vec::new();
    for node in graph.node_ids() {
        let range = places.range(node);
        if range.len() < 2 {
            continue;
        }
        // Only a producer on a higher level can have another above it.
        let highest = |full: bool| {
            let counts = graph.incoming(node).filter(|edge| edge.data.is_full() || !full);
            counts.map(|edge| level[edge.from.index()]).max()
        };
        let (by_full, by_any) = (highest(true), highest(false));
        for (place, edge) in range.clone().zip(graph.incoming(node)) {
            let full = edge.data.is_full();
            if !full && graph.incoming(node).any(|o| o.from == edge.from && o.data.is_full()) {
                redundant[place] = true;
                continue;
            }
            if Some(level[edge.from.index()]) >= if full { by_full } else { by_any } {
                continue;
            }
            if chain.around(edge.from, node) {
                redundant[place] = true;
                continue;
            }
            let by = if full { By::Start } else { By::Wait };
            let (from, to) = (position[edge.from.index()], position[node.index()]);
            queries.push(Query { from, to, tag: place as u32, by, around: true });
        }
    }
    answer(graph, &position, queries, |place| redundant[place as usize] = true);
    graph.edges().zip(redundant).filter_map(|(edge, implied)| implied.then_some(edge)).collect()
}

/// Chains of full edges, each node followed by its nearest successor that has no chain yet.
struct Chains {
    chain: Vec<u32>,
    before: Vec<Option<NodeId>>,
}

impl Chains {
    fn cut(graph: &ComputeGraph, position: &[u32]) -> Self {
        let mut chain: Vec<u32> = (0..graph.node_count() as u32).collect();
        let mut before = vec![None; graph.node_count()];
        let mut continued = vec![false; graph.node_count()];
        for &node in graph.topological_order() {
            let free = graph.incoming(node).filter(|edge| edge.data.is_full());
            let free = free.map(|edge| edge.from).filter(|from| !continued[from.index()]);
            // The latest producer: the nearest one.
            if let Some(from) = free.max_by_key(|from| position[from.index()]) {
                continued[from.index()] = true;
                chain[node.index()] = chain[from.index()];
                before[node.index()] = Some(from);
            }
        }
        Self { chain, before }
    }

    /// Whether the chain of both leads from `from` to `to` through a node between.
    fn around(&self, from: NodeId, to: NodeId) -> bool {
        self.chain[from.index()] == self.chain[to.index()] && self.before[to.index()] != Some(from)
    }
}
