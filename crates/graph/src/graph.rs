//! The graph: nodes, buffers, slots and edges, immutable once built.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::region::Operands;
use crate::{
    Access, Adjacency, Arg, Buffer, BufferId, BufferRole, Condition, Edge, EdgeData, Effects,
    Extent, KernelRef, Node, NodeId, NodeKind, Observed, Pitched, Region, Slot, SlotId,
};

/// A directed acyclic graph of device operations: the one representation that everything that produces work
/// produces and everything that consumes work takes.
///
/// Made by [`GraphBuilder::build`](crate::GraphBuilder::build), which validates it: ids are in range, operands
/// lie within their buffers, kernels accept their operands, and there is no cycle. Storage is dense, about
/// 200 bytes a node with its edges, arguments apart. A clone shares it.
#[derive(Clone, PartialEq, Debug)]
pub struct ComputeGraph {
    parts: Arc<Parts>,
}

/// What a graph is made of.
#[derive(PartialEq, Debug)]
pub(crate) struct Parts {
    pub(crate) name: Arc<str>,
    pub(crate) nodes: Box<[Node]>,
    pub(crate) buffers: Box<[Buffer]>,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) predecessors: Adjacency,
    pub(crate) successors: Adjacency,
    /// Data of the edge to each entry of `predecessors.targets()`; `None` when every edge is full.
    pub(crate) edge_data: Option<Box<[EdgeData]>>,
    pub(crate) order: Box<[NodeId]>,
    /// What was seen of nodes whose effects are unknown, by ascending id.
    pub(crate) observed: Box<[(NodeId, Observed)]>,
}

impl ComputeGraph {
    /// A graph of parts that have been checked.
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// The graph's name, for people; may be empty.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Number of nodes, not counting those of child graphs and bodies.
    pub fn node_count(&self) -> usize {
        self.parts.nodes.len()
    }

    /// Number of edges, not counting those of child graphs and bodies.
    pub fn edge_count(&self) -> usize {
        self.parts.predecessors.targets().len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.parts.nodes.is_empty()
    }

    /// All nodes, in creation order; a node's id is its place.
    pub fn nodes(&self) -> &[Node] {
        &self.parts.nodes
    }

    /// Ids of all nodes, in creation order.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.parts.nodes.len() as u32).map(NodeId)
    }

    /// The node with this id.
    ///
    /// # Panics
    /// If the id is not of this graph; [`get`](Self::get) asks.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.parts.nodes[id.index()]
    }

    /// The node with this id, if the graph has it.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.parts.nodes.get(id.index())
    }

    /// All declared buffers; a buffer's id is its place.
    pub fn buffers(&self) -> &[Buffer] {
        &self.parts.buffers
    }

    /// The buffer with this id.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.parts.buffers[id.index()]
    }

    /// All declared slots; a slot's id is its place.
    pub fn slots(&self) -> &[Slot] {
        &self.parts.slots
    }

    /// The slot with this id.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn slot(&self, id: SlotId) -> &Slot {
        &self.parts.slots[id.index()]
    }

    /// The nodes that `id` depends on, in the order in which the dependencies were given.
    pub fn predecessors(&self, id: NodeId) -> &[NodeId] {
        self.parts.predecessors.of(id)
    }

    /// The nodes that depend on `id`.
    pub fn successors(&self, id: NodeId) -> &[NodeId] {
        self.parts.successors.of(id)
    }

    /// The edges into `id`, in the order in which they were given.
    pub fn incoming(&self, id: NodeId) -> impl ExactSizeIterator<Item = Edge> + '_ {
        self.parts.predecessors.range(id).map(move |at| Edge {
            from: self.parts.predecessors.targets()[at],
            to: id,
            data: self.parts.edge_data.as_ref().map_or(EdgeData::FULL, |data| data[at]),
        })
    }

    /// All edges, grouped by consumer.
    pub fn edges(&self) -> impl Iterator<Item = Edge> + '_ {
        self.node_ids().flat_map(|id| self.incoming(id))
    }

    /// Whether some edge is not a full one.
    pub fn has_weak_edges(&self) -> bool {
        self.parts.edge_data.is_some()
    }

    /// The incoming adjacency, for algorithms over the whole graph.
    pub fn predecessor_lists(&self) -> &Adjacency {
        &self.parts.predecessors
    }

    /// A topological order; creation order wherever that is one.
    pub fn topological_order(&self) -> &[NodeId] {
        &self.parts.order
    }

    /// Whether a path leads from `a` to `b`; a node does not reach itself. O(nodes + edges).
    pub fn is_reachable(&self, a: NodeId, b: NodeId) -> bool {
        if a.index() >= self.parts.nodes.len() || b.index() >= self.parts.nodes.len() {
            return false;
        }
        let mut seen = FixedBitSet::with_capacity(self.parts.nodes.len());
        let mut stack = vec![a];
        while let Some(node) = stack.pop() {
            for &next in self.successors(node) {
                if next == b {
                    return true;
                }
                if !seen.put(next.index()) {
                    stack.push(next);
                }
            }
        }
        false
    }

    /// The declared memory that a node names, in terms of this graph's buffers. O(operands), for a node with inner
    /// graphs O(their operands).
    ///
    /// A node with unknown effects may touch more than it names; [`effects`](Self::effects) tells. Of one that was observed
    /// it is what was seen.
    pub fn operands(&self, id: NodeId) -> Operands {
        let mut found = Operands::new();
        self.add_operands(id, &mut found);
        found
    }

    /// Adds the operands of a node to others: they are many words, and passes over a graph need not move them.
    pub fn add_operands(&self, id: NodeId, found: &mut Operands) {
        match self.observed(id) {
            Some(observed) => found.extend_from_slice(&observed.operands),
            None => add_operands_of(&self.parts.nodes[id.index()], found),
        }
    }

    /// What a node may touch: its operands, or what was seen, or anything. Costs as much as [`operands`](Self::operands).
    pub fn effects(&self, id: NodeId) -> Effects {
        match self.observed(id) {
            Some(observed) => Effects::Observed(observed.clone()),
            None => effects_of(&self.parts.nodes[id.index()]),
        }
    }

    /// What experiments showed of a node whose own parameters do not tell what it touches. O(log observed nodes).
    pub fn observed(&self, id: NodeId) -> Option<&Observed> {
        let at = self.parts.observed.binary_search_by_key(&id, |(node, _)| *node).ok()?;
        Some(&self.parts.observed[at].1)
    }

    /// Whether a node may touch memory that neither it names nor anybody has seen: its [`effects`](Self::effects) are unknown.
    pub fn is_opaque(&self, id: NodeId) -> bool {
        self.observed(id).is_none() && is_opaque(&self.parts.nodes[id.index()])
    }

    /// All that was observed, by node.
    pub(crate) fn all_observed(&self) -> &[(NodeId, Observed)] {
        &self.parts.observed
    }
}

fn effects_of(node: &Node) -> Effects {
    if is_opaque(node) { Effects::Unknown } else { Effects::Known(operands_of(node)) }
}

/// Adds the operands of a node, unless it may touch others.
pub(crate) fn add_known_operands(node: &Node, found: &mut Operands) {
    if !is_opaque(node) {
        add_operands_of(node, found);
    }
}

/// Whether a node may touch memory that it does not name.
pub(crate) fn is_opaque(node: &Node) -> bool {
    match &node.kind {
        // A kernel known by name alone may touch anything; one that declares operands touches those.
        NodeKind::Kernel(kernel) => {
            let named = matches!(kernel.kernel, KernelRef::Named(_));
            named && kernel.args.iter().all(|arg| arg.effect().is_none())
        }
        NodeKind::Memcpy(copy) => {
            copy.src.region(copy.extent).is_none() || copy.dst.region(copy.extent).is_none()
        }
        NodeKind::Memset(set) => set.dst.region(set.extent).is_none(),
        NodeKind::Host(host) => host.effects.is_empty(),
        // What outsiders do before or after an external event is not for this graph to know.
        NodeKind::EventRecord(_) | NodeKind::EventWait(_) => true,
        NodeKind::Empty | NodeKind::Alloc(_) | NodeKind::Free(_) => false,
        NodeKind::Child(graph) => has_opaque(graph),
        NodeKind::Conditional(conditional) => {
            matches!(conditional.condition, Condition::Handle(_))
                || conditional.bodies.iter().any(has_opaque)
        }
    }
}

fn has_opaque(graph: &ComputeGraph) -> bool {
    graph.node_ids().any(|id| graph.is_opaque(id))
}

fn operands_of(node: &Node) -> Operands {
    let mut found = Operands::new();
    add_operands_of(node, &mut found);
    found
}

fn add_operands_of(node: &Node, found: &mut Operands) {
    let first = found.len();
    add_declared_operands(node, found);
    if let NodeKind::Conditional(_) = node.kind {
        // A body may not run, so what it writes may also be left as it was.
        for (_, access) in &mut found[first..] {
            if *access == Access::Write {
                *access = Access::ReadWrite;
            }
        }
    }
}

/// The operands as the node, or the nodes inside, declare them.
pub(crate) fn declared_operands(node: &Node) -> Operands {
    let mut found = Operands::new();
    add_declared_operands(node, &mut found);
    found
}

fn add_declared_operands(node: &Node, found: &mut Operands) {
    match &node.kind {
        NodeKind::Kernel(kernel) => found.extend(kernel.args.iter().filter_map(Arg::effect)),
        NodeKind::Memcpy(copy) => {
            if let Some(src) = copy.src.region(copy.extent) {
                found.push((src, Access::Read));
            }
            if let Some(dst) = copy.dst.region(copy.extent) {
                found.push((dst, fill(&copy.dst, copy.extent)));
            }
        }
        NodeKind::Memset(set) => {
            if let Some(dst) = set.dst.region(set.extent) {
                found.push((dst, fill(&set.dst, set.extent)));
            }
        }
        NodeKind::Host(host) => found.extend(host.effects.iter().copied()),
        NodeKind::Empty | NodeKind::EventRecord(_) | NodeKind::EventWait(_) => {}
        NodeKind::Alloc(buffer) | NodeKind::Free(buffer) => {
            let whole = Region { buffer: *buffer, offset: 0, bytes: u64::MAX };
            found.push((whole, Access::Write));
        }
        NodeKind::Child(graph) => inner_operands(graph, found),
        NodeKind::Conditional(conditional) => {
            conditional.bodies.iter().for_each(|body| inner_operands(body, found));
            if let Condition::Value(view) = conditional.condition {
                found.push((view.region(), Access::Read));
            }
        }
    }
}

/// Writing fewer bytes than the region spans leaves the gaps as they were.
const fn fill(end: &Pitched, extent: Extent) -> Access {
    let rows = extent.height > 1 && end.pitch > extent.width;
    let slices = extent.depth > 1 && end.slice_rows > extent.height;
    if rows || slices { Access::ReadWrite } else { Access::Write }
}

/// Adds what the nodes of an inner graph do to buffers of the graph around it.
fn inner_operands(graph: &ComputeGraph, found: &mut Operands) {
    let mut places: BTreeMap<(BufferId, u64, u64), usize> = BTreeMap::new();
    for node in graph.node_ids() {
        for (region, access) in graph.operands(node) {
            let BufferRole::Outer(buffer) = graph.buffer(region.buffer).role else { continue };
            let region = Region { buffer, ..region };
            // The order inside does not show outside: several accesses to one region are one, both ways.
            match places.entry((buffer, region.offset, region.bytes)) {
                Entry::Occupied(place) => {
                    let known = &mut found[*place.get()].1;
                    if *known != access {
                        *known = Access::ReadWrite;
                    }
                }
                Entry::Vacant(place) => {
                    place.insert(found.len());
                    found.push((region, access));
                }
            }
        }
    }
}
