//! Streams at full concurrency: every two nodes that may run side by side can, with the fewest synchronisations.
//!
//! In: a graph. Out: a stream for each node, and the pairs of nodes of which one has to wait for the other.
//!
//! 1. *Reduction.* Only edges that no other path implies may need a wait ([`redundant_edges`]).
//! 2. *Cover.* A stream that continues from a node to one of its consumers saves the wait between them; a node is continued
//!    by one and continues one at most. The most such pairs are a maximum matching of producers and consumers, so waits =
//!    edges − pairs is the least that any assignment to streams needs which keeps all concurrency (W. Kwon, G.-I. Yu, E.
//!    Jeong and B.-G. Chun, "Nimble", NeurIPS 2020, theorems 1 to 4).
//! 3. *Merging.* The cover has as many chains as nodes that go on with nobody, often more than can run at once. A chain
//!    goes on with the stream of one that ended before it in the graph, found by a short search backwards from its first
//!    node. That adds no order, hence no false dependency, and leaves the waits as they are.
//!
//! Cost: that of the reduction and of the matching; the rest is linear.

use phonograph_graph::{ComputeGraph, Edge, NodeId, StreamId};

use super::guaranteed;
use crate::analysis::redundant_edges;
use crate::error::PlanError;
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

/// Counts synchronisations at full concurrency, of a graph and the order that the reuse of memory adds to it. Costs what a
/// plan at full concurrency costs.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::streams::synchronisations;
///
/// // The first producer of `both` is the only one of `one`: whoever takes it first decides.
/// let mut b = GraphBuilder::new();
/// let [p, q, both, one] = ["p", "q", "both", "one"].map(|name| b.add_barrier(name));
/// b.dep(p, both).dep(q, both).dep(p, one);
/// let counts = synchronisations(&b.build()?, &[])?;
/// assert_eq!((counts.reduced, counts.greedy, counts.optimal), (3, 2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PlanError::Graph`] for reuse edges that name other nodes than the graph's, or close a cycle with its edges.
pub fn synchronisations(
    graph: &ComputeGraph,
    reuse: &[(NodeId, NodeId)],
) -> Result<Synchronisations, PlanError> {
    let ordered = guaranteed(graph, reuse)?;
    Ok(Reduced::of(&ordered).synchronisations(&ordered))
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

/// The edges that no other path implies, by consumer, and the most pairs of nodes that go on with one another.
pub(super) struct Reduced {
    offsets: Vec<u32>,
    targets: Vec<NodeId>,
    /// For each node the one whose stream it goes on with.
    previous: Vec<Option<NodeId>>,
}

impl Reduced {
    /// Of a graph without weak edges.
    pub fn of(graph: &ComputeGraph) -> Self {
        let redundant = redundant_edges(graph);
        // By consumer, and for each in the order of its edges, as they are gone through here.
        let mut rest = redundant.iter().peekable();
        let mut reduced = Self {
            offsets: Vec::with_capacity(graph.node_count() + 1),
            targets: Vec::with_capacity(graph.edge_count() - redundant.len()),
            previous: Vec::new(),
        };
        reduced.offsets.push(0);
        for node in graph.node_ids() {
            let needed = |edge: &Edge| rest.next_if(|implied| *implied == edge).is_none();
            let needed = graph.incoming(node).filter(needed).map(|edge| edge.from);
            reduced.targets.extend(needed);
            reduced.offsets.push(reduced.targets.len() as u32);
        }
        reduced.previous = reduced.most_pairs();
        reduced
    }

    /// Assigns every node of the graph.
    pub fn cover(&self, graph: &ComputeGraph) -> Cover {
        let (stream, streams) = merge(graph, &self.previous);
        let crossing = |&(to, from): &(NodeId, NodeId)| stream[to.index()] != stream[from.index()];
        let edges = graph
            .node_ids()
            .flat_map(|node| self.producers(node).iter().map(move |&from| (node, from)));
        let waits = edges.filter(crossing).collect();
        Cover { stream, streams, waits }
    }

    /// Counts for the graph. O(nodes + edges).
    pub fn synchronisations(&self, graph: &ComputeGraph) -> Synchronisations {
        let every = graph.node_ids().map(|node| graph.predecessors(node));
        let kept = graph.node_ids().map(|node| self.producers(node));
        Synchronisations {
            edges: graph.edge_count(),
            reduced: self.targets.len(),
            greedy: graph.edge_count() - continued(graph, every),
            greedy_reduced: self.targets.len() - continued(graph, kept),
            optimal: self.targets.len() - self.previous.iter().flatten().count(),
        }
    }

    fn producers(&self, node: NodeId) -> &[NodeId] {
        let (from, to) = (self.offsets[node.index()], self.offsets[node.index() + 1]);
        &self.targets[from as usize..to as usize]
    }

    fn most_pairs(&self) -> Vec<Option<NodeId>> {
        let targets: Vec<u32> = self.targets.iter().map(|node| node.0).collect();
        let nodes = (self.offsets.len() - 1) as u32;
        let graph = Bipartite::new(&self.offsets, &targets, nodes);
        let matching = maximum_matching(graph.expect("rows of nodes, one for each node"));
        let producer = |Right(node)| NodeId(node);
        (0..nodes).map(|node| matching.right_of(Left(node)).map(producer)).collect()
    }
}

/// Numbers the chains, and lets a chain go on with a stream that ended before it.
fn merge(graph: &ComputeGraph, previous: &[Option<NodeId>]) -> (Vec<StreamId>, u32) {
    let mut ended = Ended::new(graph, previous);
    let mut stream = vec![StreamId(0); graph.node_count()];
    let mut streams = 0;
    for &node in graph.topological_order() {
        stream[node.index()] = match previous[node.index()].or_else(|| ended.take_before(node)) {
            Some(before) => stream[before.index()],
            None => {
                streams += 1;
                StreamId(streams - 1)
            }
        };
    }
    (stream, streams)
}

/// The ends of chains whose streams nobody has gone on with, to be found from behind.
///
/// All that lies before a node has been issued before it, so what is left there only becomes less: where nothing is, nothing
/// will ever be, and where there is one way back, it stays the only one.
struct Ended<'a> {
    graph: &'a ComputeGraph,
    /// By node, whether it ends a chain whose stream nobody has gone on with.
    free: Vec<bool>,
    /// By node, where to look instead of at it and before it; itself if it is not known better.
    instead: Vec<u32>,
    /// The search in which each node was last seen.
    seen: Vec<u32>,
    search: u32,
    queue: Vec<NodeId>,
}

/// Nothing is left at a node and before it.
const NOTHING: u32 = u32::MAX;

impl<'a> Ended<'a> {
    fn new(graph: &'a ComputeGraph, previous: &[Option<NodeId>]) -> Self {
        let nodes = graph.node_count();
        let mut free = vec![true; nodes];
        for node in previous.iter().flatten() {
            free[node.index()] = false;
        }
        Self {
            graph,
            free,
            instead: (0..nodes as u32).collect(),
            seen: vec![0; nodes],
            search: 0,
            queue: Vec::new(),
        }
    }

    /// Takes the stream of a chain that ended before `node`; the end of that chain. Looks at the nearest nodes first.
    fn take_before(&mut self, node: NodeId) -> Option<NodeId> {
        /// Nodes looked at; farther ends are given up, at the price of a stream more.
        const MOST: usize = 256;
        self.search += 1;
        self.queue.clear();
        self.push_before(node);
        let mut next = 0;
        while let Some(&at) = self.queue.get(next) {
            next += 1;
            if self.free[at.index()] {
                self.free[at.index()] = false;
                return Some(at);
            }
            if next == MOST {
                return None;
            }
            self.instead[at.index()] = match self.push_before(at) {
                Ways::None => NOTHING,
                Ways::One(only) => only.0,
                Ways::Several => at.0,
            };
        }
        // Everything was seen, and nothing found.
        for at in &self.queue {
            self.instead[at.index()] = NOTHING;
        }
        None
    }

    /// Queues the places before a node that are not queued yet.
    fn push_before(&mut self, node: NodeId) -> Ways {
        let mut ways = Ways::None;
        for &from in self.graph.predecessors(node) {
            let Some(place) = self.look_up(from) else { continue };
            ways = match ways {
                Ways::None => Ways::One(place),
                Ways::One(other) if other == place => ways,
                _ => Ways::Several,
            };
            if std::mem::replace(&mut self.seen[place.index()], self.search) != self.search {
                self.queue.push(place);
            }
        }
        ways
    }

    /// Where to look instead of at a node; shortens the way there for the next time.
    fn look_up(&mut self, node: NodeId) -> Option<NodeId> {
        let mut place = node.0;
        while place != NOTHING && self.instead[place as usize] != place {
            let further = self.instead[place as usize];
            if further != NOTHING {
                self.instead[place as usize] = self.instead[further as usize];
            }
            place = further;
        }
        (place != NOTHING).then_some(NodeId(place))
    }
}

/// Where something may be left before a node.
#[derive(Clone, Copy)]
enum Ways {
    None,
    One(NodeId),
    Several,
}
