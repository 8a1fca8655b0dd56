//! Transitive reduction: the edges that other paths already imply.
//!
//! A full edge u → v is implied when u reaches another producer of v that v waits for in full: that producer is
//! complete before v starts, and whatever it depended on, by an edge of any kind, was complete before it. A path
//! whose last edge is weak implies no full edge. A weak edge is implied by any other path, and by a full edge beside it.
//!
//! Most edges are settled nearby: a producer that no other producer lies above is needed; one further up the consumer's
//! own chain is not; and a short search backwards from the other producers, cut off at the level and place of the
//! edge's own, often ends. What it leaves is asked of [`order`](super::order), exactly, at its cost. Where searches
//! do not pay they are given up.

use phonograph_graph::{ComputeGraph, Edge, NodeId};

use super::levels;
use super::order::{By, Query, answer, positions};

/// The redundant edges, by consumer and then in the order in which they were given. All of them can be removed
/// together. O(nodes × edges / 1024) at worst; near-linear where edges are local or little depends on one node.
pub fn redundant_edges(graph: &ComputeGraph) -> Vec<Edge> {
    // In chains and trees nothing is implied, and most of what is captured is a chain.
    if graph.node_ids().all(|node| graph.predecessors(node).len() < 2) {
        return Vec::new();
    }
    let places = graph.predecessor_lists();
    let position = positions(graph);
    let level = levels(graph).level;
    let chain = Chains::cut(graph, &position);
    let mut search = Search::new(graph, &position, &level);
    let mut redundant = vec![false; graph.edge_count()];
    let mut queries = Vec::new();
    let mut asked: Vec<(usize, Edge)> = Vec::new();
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
        asked.clear();
        for (place, edge) in range.zip(graph.incoming(node)) {
            let full = edge.data.is_full();
            if !full && graph.incoming(node).any(|o| o.from == edge.from && o.data.is_full()) {
                redundant[place] = true;
            } else if Some(level[edge.from.index()]) < if full { by_full } else { by_any } {
                if chain.around(edge.from, node) {
                    redundant[place] = true;
                } else {
                    asked.push((place, edge));
                }
            }
        }
        search.settle(node, &mut asked, &mut redundant);
        queries.extend(asked.iter().map(|&(place, edge)| {
            let by = if edge.data.is_full() { By::Start } else { By::Wait };
            let (from, to) = (position[edge.from.index()], position[node.index()]);
            Query { from, to, tag: place as u32, by, around: true }
        }));
    }
    answer(graph, &position, queries, |place| redundant[place as usize] = true);
    graph.edges().zip(redundant).filter_map(|(edge, implied)| implied.then_some(edge)).collect()
}

/// Short searches backwards.
struct Search<'a> {
    graph: &'a ComputeGraph,
    position: &'a [u32],
    level: &'a [u32],
    /// By node the last consumer, counted from 1, whose search came by.
    seen: Vec<u32>,
    stack: Vec<NodeId>,
    steps: usize,
    settled: usize,
}

impl<'a> Search<'a> {
    /// Nodes that one search looks at, at most.
    const LONGEST: usize = 256;

    fn new(graph: &'a ComputeGraph, position: &'a [u32], level: &'a [u32]) -> Self {
        let seen = vec![0; graph.node_count()];
        Self { graph, position, level, seen, stack: Vec::new(), steps: 0, settled: 0 }
    }

    /// Whether searches have found enough for what they cost: 64 nodes an edge are about what a sweep costs.
    fn pays(&self) -> bool {
        self.steps <= 64 * (self.settled + 1024)
    }

    /// Judges the edges into `node` that are `asked` about; those that stay asked it could not settle.
    fn settle(&mut self, node: NodeId, asked: &mut Vec<(usize, Edge)>, redundant: &mut [bool]) {
        let (position, level) = (self.position, self.level);
        let all_full = || self.graph.incoming(node).all(|edge| edge.data.is_full());
        if asked.is_empty() || !self.pays() || self.graph.has_weak_edges() && !all_full() {
            return;
        }
        let lowest = |of: &[u32]| asked.iter().map(|(_, edge)| of[edge.from.index()]).min();
        let (first, lowest) = (lowest(position).unwrap_or(0), lowest(level).unwrap_or(0));
        let stamp = node.0 + 1;
        let mut left = Self::LONGEST;
        self.stack.extend_from_slice(self.graph.predecessors(node));
        'search: while let Some(above) = self.stack.pop() {
            for &from in self.graph.predecessors(above) {
                let at = from.index();
                if position[at] < first || level[at] < lowest || self.seen[at] == stamp {
                    continue;
                }
                if left == 0 {
                    break 'search;
                }
                left -= 1;
                self.seen[at] = stamp;
                self.stack.push(from);
            }
        }
        self.stack.clear();
        self.steps += Self::LONGEST - left;
        let before = asked.len();
        asked.retain(|&(place, edge)| {
            let found = self.seen[edge.from.index()] == stamp;
            redundant[place] |= found;
            !found && left == 0
        });
        self.settled += before - asked.len();
    }
}

/// Chains of edges, each node followed by its nearest successor that follows no other.
pub(crate) struct Chains {
    /// The first node of each node's chain.
    chain: Vec<NodeId>,
    before: Vec<Option<NodeId>>,
}

impl Chains {
    /// Chains of full edges.
    pub fn cut(graph: &ComputeGraph, position: &[u32]) -> Self {
        Self::of(graph, position, |edge| edge.data.is_full())
    }

    /// Chains of edges of any kind.
    pub fn cut_by_any_edge(graph: &ComputeGraph, position: &[u32]) -> Self {
        Self::of(graph, position, |_| true)
    }

    fn of(graph: &ComputeGraph, position: &[u32], counts: impl Fn(&Edge) -> bool) -> Self {
        let mut chain: Vec<NodeId> = graph.node_ids().collect();
        let mut before = vec![None; graph.node_count()];
        let mut continued = vec![false; graph.node_count()];
        for &node in graph.topological_order() {
            let free = graph.incoming(node).filter(&counts).map(|edge| edge.from);
            let free = free.filter(|from| !continued[from.index()]);
            // The latest producer: the nearest one.
            if let Some(from) = free.max_by_key(|from| position[from.index()]) {
                continued[from.index()] = true;
                chain[node.index()] = chain[from.index()];
                before[node.index()] = Some(from);
            }
        }
        Self { chain, before }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.before.iter().filter(|before| before.is_none()).count()
    }

    /// For each node the number of its chain, and its place on it.
    pub fn numbered(&self, graph: &ComputeGraph) -> (Vec<u32>, Vec<u32>) {
        let (mut chain, mut place) = (vec![0u32; self.chain.len()], vec![0u32; self.chain.len()]);
        let mut chains = 0;
        for &node in graph.topological_order() {
            (chain[node.index()], place[node.index()]) = match self.before[node.index()] {
                Some(from) => (chain[from.index()], place[from.index()] + 1),
                None => {
                    chains += 1;
                    (chains - 1, 0)
                }
            };
        }
        (chain, place)
    }

    /// Whether the chain of both leads from `from` to `to`, which it has an edge to, through a node between.
    fn around(&self, from: NodeId, to: NodeId) -> bool {
        self.chain[from.index()] == self.chain[to.index()] && self.before[to.index()] != Some(from)
    }
}
