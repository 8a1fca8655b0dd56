//! Whatever was ordered before is ordered after, or lies in one node.
//!
//! It is enough to ask for every edge of the graph before, and for every path between nodes that stay which leads
//! through nodes that are gone: all other order follows from these. Most edges are edges of the graph after as well; the
//! rest goes to `reach`.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::checker::reach::{By, GuaranteedOrder};
use crate::checker::rewrite::RewriteViolation;
use crate::{ComputeGraph, Image, KernelRef, NodeId};

/// `strict`: every full edge must be complete before start, whatever the consumer is.
pub(super) fn check(
    before: &ComputeGraph,
    after: &ComputeGraph,
    image: &Image,
    strict: bool,
    found: &mut Vec<RewriteViolation>,
) {
    let needed = |node: NodeId, full: bool| match full && (strict || !waits_first(after, node)) {
        true => By::Start,
        false => By::Wait,
    };
    let mut pairs: Vec<(NodeId, NodeId, By)> = Vec::new();
    let mut through = Through::new(before, image);
    for &node in before.topological_order() {
        let Some(to) = image.of(node) else {
            if !through.collect(node) {
                found.push(RewriteViolation::Unproved { node });
                return;
            }
            continue;
        };
        for edge in before.incoming(node) {
            let by = needed(to, edge.data.is_full());
            match image.of(edge.from) {
                Some(from) if from == to => {}
                Some(from) => {
                    let kept = after
                        .incoming(to)
                        .any(|edge| edge.from == from && (edge.data.is_full() || by == By::Wait));
                    if !kept {
                        pairs.push((from, to, by));
                    }
                }
                None => {
                    let waiting = through.before_of(edge.from);
                    pairs.extend(waiting.iter().map(|&from| (from, to, by)));
                }
            }
        }
    }
    drop(through);
    let order = GuaranteedOrder::of_edges(after);
    let lost = order.unordered_each(pairs);
    if lost.is_empty() {
        return;
    }
    // Told in terms of the graph before; of merged nodes the first.
    let mut was: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    for node in before.node_ids() {
        if let Some(image) = image.of(node) {
            was.entry(image).or_insert(node);
        }
    }
    let of = |node: NodeId| was.get(&node).copied().unwrap_or(node);
    let lost = lost.into_iter().map(|(from, to, _)| (of(from), of(to)));
    found.extend(lost.map(|(from, to)| RewriteViolation::OrderLost { from, to }));
}

/// Whether a node touches memory only after its grid-dependency wait: kernels that backends generate do.
fn waits_first(graph: &ComputeGraph, node: NodeId) -> bool {
    let kernel = graph.node(node).kernel();
    kernel.is_some_and(|kernel| !matches!(kernel.kernel, KernelRef::Named(_)))
}

/// For nodes that are gone, the images of those that stay and lead to them through nodes that are gone.
struct Through<'a> {
    before: &'a ComputeGraph,
    image: &'a Image,
    /// Whether a path through nodes that are gone leads on to one that stays.
    leads_on: Vec<bool>,
    waiting: FxHashMap<NodeId, Vec<NodeId>>,
    room: usize,
}

impl<'a> Through<'a> {
    fn new(before: &'a ComputeGraph, image: &'a Image) -> Self {
        let mut leads_on = Vec::new();
        if image.nodes.iter().any(Option::is_none) {
            leads_on = vec![false; before.node_count()];
            for &node in before.topological_order().iter().rev() {
                leads_on[node.index()] = image.of(node).is_some()
                    || before.successors(node).iter().any(|next| leads_on[next.index()]);
            }
        }
        // Passes bound how far edges multiply; without a bound a hostile image could ask for all pairs.
        let room = 8 * (before.node_count() + before.edge_count()) + (1 << 16);
        Self { before, image, leads_on, waiting: FxHashMap::default(), room }
    }

    /// Collects for one node; those before it come first. Whether there was room.
    fn collect(&mut self, node: NodeId) -> bool {
        if !self.leads_on[node.index()] {
            return true;
        }
        let mut seen = FxHashSet::default();
        let mut waiting = Vec::new();
        for &from in self.before.predecessors(node) {
            let one = self.image.of(from);
            let several = self.waiting.get(&from).into_iter().flatten().copied();
            waiting.extend(one.into_iter().chain(several).filter(|&from| seen.insert(from)));
        }
        // Each is asked about once for every edge that leads on.
        let asked = waiting.len() * (1 + self.before.successors(node).len());
        self.waiting.insert(node, waiting);
        match self.room.checked_sub(asked) {
            Some(room) => self.room = room,
            None => return false,
        }
        true
    }

    fn before_of(&self, node: NodeId) -> &[NodeId] {
        self.waiting.get(&node).map_or(&[], Vec::as_slice)
    }
}
