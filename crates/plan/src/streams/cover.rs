//! Streams at full concurrency: every two nodes that may run side by side can, with the fewest synchronisations.
//!
//! In: a graph. Out: a stream for each node, and the pairs of nodes of which one has to wait for the other.
//!
//! 1. *Reduction.* Only edges that no other path implies may need a wait ([`redundant_edges`]).
//! 2. *Cover.* A stream that continues from a node to one of its consumers saves the wait between them; a node is continued
//!    by one and continues one at most. The most such pairs are a maximum matching of producers and consumers, so waits =
//!    edges − pairs is the least that any assignment to streams needs which keeps all concurrency (W. Kwon, G.-I. Yu, E.
//!    Jeong and B.-G. Chun, "Nimble", NeurIPS 2020, theorems 1 to 4).
//! 3. *Merging.* The cover has as many streams as it has chains, often more than can run at once. A stream that has ended goes on
//!    with a chain behind it: what ends is handed along the edges, each node passing what its consumers have not taken
//!    to the one issued last, so a chain only ever takes a stream whose nodes come before it anyway. That adds no order,
//!    hence no false dependency, and leaves the waits as they are.
//!
//! Cost: that of the reduction and of the matching; the rest is linear.

use phonograph_graph::{ComputeGraph, Edge, NodeId, StreamId};

use crate::analysis::redundant_edges;
use crate::matching::{Bipartite, Left, Right, maximum_matching};

/// What may be synchronised, and how much of it has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synchronisations {
    /// Edges of the graph, counted once for each pair of nodes.
    pub edges: usize,
    /// Those that no other path implies.
    pub reduced: usize,
    /// Waits left if each node, in order, goes on with the stream of its first producer that nobody goes on with, and
    /// edges are taken as they are.
    pub greedy: usize,
    /// The same on the edges that no other path implies.
    pub greedy_reduced: usize,
    /// The fewest with which all concurrency is kept.
    pub optimal: usize,
}

/// Counts synchronisations at full concurrency. Costs what a plan at full concurrency costs.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::streams::synchronisations;
///
/// // The first producer of `both` is the only one of `one`: whoever takes it first decides.
/// let mut b = GraphBuilder::new();
/// let [p, q, both, one] = ["p", "q", "both", "one"].map(|name| b.add_barrier(name));
/// b.dep(p, both).dep(q, both).dep(p, one);
/// let counts = synchronisations(&b.build()?);
/// assert_eq!((counts.reduced, counts.greedy, counts.optimal), (3, 2, 1));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn synchronisations(graph: &ComputeGraph) -> Synchronisations {
    let reduced = Reduced::of(graph);
    let every = graph.node_ids().map(|node| graph.predecessors(node));
    let kept = graph.node_ids().map(|node| reduced.producers(node));
    Synchronisations {
        edges: graph.edge_count(),
        reduced: reduced.targets.len(),
        greedy: graph.edge_count() - continued(graph, every),
        greedy_reduced: reduced.targets.len() - continued(graph, kept),
        optimal: reduced.targets.len() - reduced.cover().iter().flatten().count(),
    }
}

/// How many nodes go on with the stream of a producer if each takes the first that is left.
fn continued<'a>(graph: &ComputeGraph, producers: impl Iterator<Item = &'a [NodeId]>) -> usize {
    let rows: Vec<&[NodeId]> = producers.collect();
    let mut taken = vec![false; rows.len()];
    let order = graph.topological_order().iter();
    let goes_on = |node: &&NodeId| {
        let first = rows[node.index()].iter().find(|from| !taken[from.index()]);
        first.is_some_and(|from| !std::mem::replace(&mut taken[from.index()], true))
    };
    order.filter(goes_on).count()
}

/// Nodes on streams, and who waits.
pub(super) struct Cover {
    pub stream: Vec<StreamId>,
    pub streams: u32,
    /// (the node that waits, the node it waits for), grouped by the former, in no order.
    pub waits: Vec<(NodeId, NodeId)>,
}

/// Assigns every node of a graph without weak edges.
pub(super) fn cover(graph: &ComputeGraph) -> Cover {
    let reduced = Reduced::of(graph);
    let previous = reduced.cover();
    let (stream, streams) = merge(graph, &previous);
    let crossing = |&(to, from): &(NodeId, NodeId)| stream[to.index()] != stream[from.index()];
    let edges = graph
        .node_ids()
        .flat_map(|node| reduced.producers(node).iter().map(move |&from| (node, from)));
    let waits = edges.filter(crossing).collect();
    Cover { stream, streams, waits }
}

/// The edges that no other path implies, by consumer.
struct Reduced {
    offsets: Vec<u32>,
    targets: Vec<NodeId>,
}

impl Reduced {
    fn of(graph: &ComputeGraph) -> Self {
        let redundant = redundant_edges(graph);
        // By consumer, and for each in the order of its edges, as they are gone through here.
        let mut rest = redundant.iter().peekable();
        let mut reduced = Self {
            offsets: Vec::with_capacity(graph.node_count() + 1),
            targets: Vec::with_capacity(graph.edge_count() - redundant.len()),
        };
        reduced.offsets.push(0);
        for node in graph.node_ids() {
            let needed = |edge: &Edge| rest.next_if(|implied| *implied == edge).is_none();
            let needed = graph.incoming(node).filter(needed).map(|edge| edge.from);
            reduced.targets.extend(needed);
            reduced.offsets.push(reduced.targets.len() as u32);
        }
        reduced
    }

    fn producers(&self, node: NodeId) -> &[NodeId] {
        let (from, to) = (self.offsets[node.index()], self.offsets[node.index() + 1]);
        &self.targets[from as usize..to as usize]
    }

    /// For each node the one whose stream it goes on with: the most pairs.
    fn cover(&self) -> Vec<Option<NodeId>> {
        let targets: Vec<u32> = self.targets.iter().map(|node| node.0).collect();
        let nodes = (self.offsets.len() - 1) as u32;
        let graph = Bipartite::new(&self.offsets, &targets, nodes);
        let matching = maximum_matching(graph.expect("rows of nodes, one for each node"));
        let producer = |Right(node)| NodeId(node);
        (0..nodes).map(|node| matching.right_of(Left(node)).map(producer)).collect()
    }
}

/// No stream, the end of a list.
const NONE: u32 = u32::MAX;

/// Numbers the chains, and lets a chain go on with a stream that ended before it.
fn merge(graph: &ComputeGraph, previous: &[Option<NodeId>]) -> (Vec<StreamId>, u32) {
    let order = graph.topological_order();
    let mut continued = vec![false; order.len()];
    for node in previous.iter().flatten() {
        continued[node.index()] = true;
    }
    // The consumer issued last: all others have had their choice by then.
    let mut heir = vec![NONE; order.len()];
    for &node in order {
        for from in graph.predecessors(node) {
            heir[from.index()] = node.0;
        }
    }
    let mut stream = vec![NONE; order.len()];
    // The streams that have ended at or before each node, as a list through `below`: its first and its last.
    let mut ended: Vec<(u32, u32)> = vec![(NONE, NONE); order.len()];
    let mut below: Vec<u32> = Vec::new();
    for &node in order {
        let own = match previous[node.index()] {
            Some(from) => stream[from.index()],
            None => {
                let has = |from: &&NodeId| ended[from.index()].0 != NONE;
                match graph.predecessors(node).iter().find(has) {
                    Some(from) => {
                        let list = &mut ended[from.index()];
                        let taken = list.0;
                        *list = match below[taken as usize] {
                            NONE => (NONE, NONE),
                            next => (next, list.1),
                        };
                        below[taken as usize] = NONE;
                        taken
                    }
                    None => {
                        below.push(NONE);
                        (below.len() - 1) as u32
                    }
                }
            }
        };
        stream[node.index()] = own;
        let mut list = if continued[node.index()] { (NONE, NONE) } else { (own, own) };
        for from in graph.predecessors(node) {
            if heir[from.index()] == node.0 {
                let handed = std::mem::replace(&mut ended[from.index()], (NONE, NONE));
                match (list, handed) {
                    (_, (NONE, _)) => {}
                    ((NONE, _), _) => list = handed,
                    ((first, last), (next, end)) => {
                        below[last as usize] = next;
                        list = (first, end);
                    }
                }
            }
        }
        ended[node.index()] = list;
    }
    (stream.into_iter().map(StreamId).collect(), below.len() as u32)
}
