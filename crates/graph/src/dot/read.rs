//! From statements to a graph: clusters become graphs, innermost first.
//!
//! In: the tables of the [parser](super::parse). Out: the graph of the one cluster that no node refers to. O(file),
//! apart from name look-ups; iterative over the tree of clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::interpret::{Described, describe, number};
use super::parse::{ClusterId, Document, NodeStatement, Statement};
use super::token::{Fault, shorten};
use super::write::attribute_value;
use crate::{
    Adjacency, Buffer, BufferId, BufferRole, ComputeGraph, Condition, ConditionalNode,
    DEFAULT_ALIGN, Edge, EventId, GraphBuilder, GraphError, HostNode, KernelNode, KernelRef, Node,
    NodeId, NodeKind, Space, StreamId, topology,
};

/// Why statements make no graph.
pub(super) enum Refusal {
    Fault(Fault),
    /// The representation refuses what was read.
    Graph {
        at: usize,
        cluster: String,
        source: Box<GraphError>,
    },
    /// Several clusters that no node refers to: how many, name and place of the first.
    Roots {
        count: usize,
        first: Vec<(String, usize)>,
    },
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Refusal::Fault(fault)
    }
}

/// The graph that `document` holds.
pub(super) fn graph_of(document: &Document) -> Result<ComputeGraph, Refusal> {
    let mut described = Vec::with_capacity(document.nodes.len());
    for node in &document.nodes {
        let NodeStatement { attributes, at, name, .. } = node;
        let label = attributes.label.as_deref().unwrap_or_default();
        let one = describe(label, attributes.shape.as_deref())
            .map_err(|problem| Fault::new(*at, format!("node `{}`: {problem}", shorten(name))))?;
        described.push(Some(one));
    }
    let tree = Tree::new(document, &described)?;
    let events = event_ids(&described);
    let mut local = vec![NodeId(0); document.nodes.len()];
    for cluster in &document.clusters {
        for (index, node) in cluster.nodes.iter().enumerate() {
            local[node.index()] = NodeId::from_index(index);
        }
    }
    let (built, names) = (BTreeMap::new(), BTreeMap::new());
    let mut reader = Reader { document, described, tree, events, local, built, names };
    // Parents come before their children, so the reverse has every child ready.
    for at in (0..reader.tree.order.len()).rev() {
        let cluster = reader.tree.order[at];
        let graph = reader.build(cluster)?;
        reader.built.insert(cluster, graph);
    }
    let root = reader.tree.order[0];
    reader.built.remove(&root).ok_or_else(|| Fault::new(0, "expected a graph").into())
}

// --- which cluster is inside which node -------------------------------------------------------------

struct Tree {
    /// The graphs inside each node, in the order that its label gives.
    inner: BTreeMap<u32, Vec<ClusterId>>,
    /// All clusters, each after the one it is in; the first is the outermost.
    order: Vec<ClusterId>,
}

impl Tree {
    fn new(document: &Document, described: &[Option<Described>]) -> Result<Self, Refusal> {
        let clusters = &document.clusters;
        // The file itself is a graph only where nodes lie outside of every cluster, or where there is no cluster.
        let first = usize::from(clusters[0].nodes.is_empty() && clusters.len() > 1);
        let mut by_name: BTreeMap<String, ClusterId> = BTreeMap::new();
        for (index, cluster) in clusters.iter().enumerate().skip(1) {
            let name = graph_name(&cluster.name);
            if by_name.insert(name, ClusterId(index as u32)).is_some() {
                let name = shorten(&cluster.name);
                return Err(Fault::new(cluster.at, format!("a second cluster `{name}`")).into());
            }
        }
        let mut inner: BTreeMap<u32, Vec<ClusterId>> = BTreeMap::new();
        let mut parent: Vec<Option<Statement>> = vec![None; clusters.len()];
        for (index, one) in described.iter().enumerate() {
            let names: &[String] = match one {
                Some(Described::Child(name)) => std::slice::from_ref(name),
                Some(Described::Conditional { bodies, .. }) => bodies,
                _ => continue,
            };
            let node = &document.nodes[index];
            for name in names {
                let fault = |problem: String| {
                    let node = shorten(&node.name);
                    Fault::new(document.nodes[index].at, format!("node `{node}` {problem}"))
                };
                let cluster = *by_name.get(name).ok_or_else(|| {
                    fault(format!("refers to `{}`, which is no cluster", shorten(name)))
                })?;
                // Each node has a graph of its own; sharing would let a small file stand for a huge graph.
                if parent[cluster.index()].replace(Statement(index as u32)).is_some() {
                    let problem = format!("refers to `{}`, as another does", shorten(name));
                    return Err(fault(problem).into());
                }
                inner.entry(index as u32).or_default().push(cluster);
            }
        }
        let roots: Vec<ClusterId> = (first..clusters.len())
            .filter(|&index| parent[index].is_none())
            .map(|index| ClusterId(index as u32))
            .collect();
        if roots.len() > 1 {
            let row = |id: &ClusterId| &clusters[id.index()];
            // Finding a place costs a walk through the text, so a message gets a few.
            let first = roots.iter().take(6).map(|id| (graph_name(&row(id).name), row(id).at));
            return Err(Refusal::Roots { count: roots.len(), first: first.collect() });
        }
        let mut order = roots;
        let mut next = 0;
        while next < order.len() {
            for node in &clusters[order[next].index()].nodes {
                order.extend(inner.get(&node.0).into_iter().flatten());
            }
            next += 1;
        }
        // Every cluster has at most one parent: what the outermost does not lead to leads round to itself.
        if order.len() < clusters.len() - first {
            let mut reached = vec![false; clusters.len()];
            order.iter().for_each(|id| reached[id.index()] = true);
            let lost = (first..clusters.len()).find(|&index| !reached[index]).unwrap_or(first);
            let (name, at) = (graph_name(&clusters[lost].name), clusters[lost].at);
            let problem = format!("`{}` is inside itself", shorten(&name));
            return Err(Fault::new(at, problem).into());
        }
        Ok(Self { inner, order })
    }
}

/// Labels call `cluster_3` by the name `graph_3`.
fn graph_name(cluster: &str) -> String {
    match cluster.strip_prefix("cluster_") {
        Some(number) => format!("graph_{number}"),
        None => cluster.to_owned(),
    }
}

// --- events -----------------------------------------------------------------------------------------

/// The event of each node that has one. Handles become ids in order of appearance; an event that a file does not
/// name is one of its own. Ids as this crate writes them (`e5`) stay what they are, and new ones keep clear of them.
fn event_ids(described: &[Option<Described>]) -> BTreeMap<u32, EventId> {
    let handles = || {
        described.iter().enumerate().filter_map(|(index, one)| match one {
            Some(Described::EventRecord(handle) | Described::EventWait(handle)) => {
                Some((index as u32, handle.as_deref()))
            }
            _ => None,
        })
    };
    let written = handles().filter_map(|(_, handle)| written_id(handle?));
    let mut next = written.max().map_or(0, |id| id.saturating_add(1));
    let mut known: BTreeMap<&str, EventId> = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (node, handle) in handles() {
        let old = handle.and_then(|handle| {
            written_id(handle).map(EventId).or_else(|| known.get(handle).copied())
        });
        let id = old.unwrap_or_else(|| {
            let fresh = EventId(next);
            next = next.saturating_add(1);
            known.extend(handle.map(|handle| (handle, fresh)));
            fresh
        });
        ids.insert(node, id);
    }
    ids
}

fn written_id(handle: &str) -> Option<u32> {
    handle.strip_prefix('e')?.parse().ok()
}

// --- one cluster ------------------------------------------------------------------------------------

struct Reader<'a, 'd> {
    document: &'a Document<'d>,
    described: Vec<Option<Described>>,
    tree: Tree,
    events: BTreeMap<u32, EventId>,
    /// The number of each node in its own graph.
    local: Vec<NodeId>,
    built: BTreeMap<ClusterId, ComputeGraph>,
    /// Names repeat a lot: the same kernel is launched many times.
    names: BTreeMap<String, Arc<str>>,
}

impl Reader<'_, '_> {
    fn build(&mut self, cluster: ClusterId) -> Result<ComputeGraph, Refusal> {
        let row = &self.document.clusters[cluster.index()];
        let name = match &row.graph_name {
            Some(name) => attribute_value(name),
            None if cluster == ClusterId(0) => row.name.clone().into_owned(),
            None => graph_name(&row.name),
        };
        let mut builder = GraphBuilder::new().named(&name).with_auto_infer_edges(false);
        let outermost = self.tree.order.first() == Some(&cluster);
        let buffers = self.buffers(cluster, outermost, &mut builder);
        for &statement in &row.nodes {
            let Some(described) = self.described[statement.index()].take() else { continue };
            let node = self.node(statement, described, &buffers);
            builder.add_node(node);
        }
        let mut places = Vec::with_capacity(row.edges.len());
        for &edge in &row.edges {
            let edge = &self.document.edges[edge as usize];
            let [from, to] = [edge.from, edge.to].map(|end| self.local[end.index()]);
            builder.add_edge(Edge { from, to, data: edge.data });
            places.push((from, to, edge.at));
        }
        builder.build().map_err(|source| {
            let node = |id: NodeId| {
                let statement = row.nodes.get(id.index())?;
                Some(self.document.nodes[statement.index()].at)
            };
            let at = match &source {
                GraphError::WeakEdge { from, to } => {
                    let ends = (from.id, to.id);
                    places.iter().find(|(f, t, _)| (*f, *t) == ends).map(|&(.., at)| at)
                }
                other => other.node().and_then(node),
            };
            let (at, cluster) = (at.unwrap_or(row.at), graph_name(&row.name));
            Refusal::Graph { at, cluster, source: Box::new(source) }
        })
    }

    /// Declares a buffer for each allocation and each free of something else; which one each node has.
    fn buffers(
        &self,
        cluster: ClusterId,
        outermost: bool,
        builder: &mut GraphBuilder,
    ) -> BTreeMap<u32, BufferId> {
        let mut of: BTreeMap<u32, BufferId> = BTreeMap::new();
        let mut by_address: BTreeMap<&str, Vec<(usize, BufferId)>> = BTreeMap::new();
        let nodes = &self.document.clusters[cluster.index()].nodes;
        let frees =
            |node: &Statement| matches!(self.described[node.index()], Some(Described::Free { .. }));
        // Only a free has to know what comes before it.
        let rank = if nodes.iter().any(frees) { self.ranks(cluster) } else { vec![0; nodes.len()] };
        let mut declare = |name: &str, bytes, role, space| {
            let name = name.into();
            builder.declare(Buffer { name, bytes, align: DEFAULT_ALIGN, role, space })
        };
        for (index, node) in nodes.iter().enumerate() {
            if let Some(Described::Alloc { bytes, address, space }) = &self.described[node.index()]
            {
                let name = address.as_deref().unwrap_or_default();
                let bytes = bytes.unwrap_or(0);
                let buffer = declare(name, bytes, BufferRole::Internal, *space);
                of.insert(node.0, buffer);
                if let Some(address) = address {
                    by_address.entry(address).or_default().push((rank[index], buffer));
                }
            }
        }
        by_address.values_mut().for_each(|all| all.sort_unstable());
        for (index, node) in nodes.iter().enumerate() {
            if let Some(Described::Free { address }) = &self.described[node.index()] {
                // An address that was freed may be given out again: the last allocation before this counts.
                let allocated = address.as_deref().and_then(|address| by_address.get(address));
                let matching = allocated.and_then(|all| {
                    let before = all.partition_point(|&(allocated, _)| allocated < rank[index]);
                    before.checked_sub(1).map(|last| all[last].1)
                });
                let buffer = matching.unwrap_or_else(|| {
                    let role = if outermost { BufferRole::External } else { BufferRole::Internal };
                    declare(address.as_deref().unwrap_or_default(), 0, role, Space::Unknown)
                });
                of.insert(node.0, buffer);
            }
        }
        of
    }

    /// The place of each node of a cluster in a topological order; file order where there is a cycle (`build` will
    /// say so).
    fn ranks(&self, cluster: ClusterId) -> Vec<usize> {
        let row = &self.document.clusters[cluster.index()];
        let count = row.nodes.len();
        let ends: Vec<(NodeId, NodeId)> = row
            .edges
            .iter()
            .map(|&edge| &self.document.edges[edge as usize])
            .map(|edge| (self.local[edge.from.index()], self.local[edge.to.index()]))
            .collect();
        let predecessors = Adjacency::group(count, ends.iter().map(|&(from, to)| (to, from)));
        let successors = Adjacency::group(count, ends.iter().copied());
        let mut rank: Vec<usize> = (0..count).collect();
        if let Ok(order) = topology::order(&predecessors, &successors) {
            order.iter().enumerate().for_each(|(place, node)| rank[node.index()] = place);
        }
        rank
    }

    fn shared(&mut self, name: String) -> Arc<str> {
        if let Some(known) = self.names.get(&name) {
            return known.clone();
        }
        let shared: Arc<str> = name.as_str().into();
        self.names.insert(name, shared.clone());
        shared
    }

    fn node(
        &mut self,
        statement: Statement,
        described: Described,
        buffers: &BTreeMap<u32, BufferId>,
    ) -> Node {
        let attributes = &self.document.nodes[statement.index()].attributes;
        let stream = attributes.stream.map(StreamId);
        let told = attributes.function.as_deref().map(attribute_value);
        let given = attributes.node_name.as_deref().map(attribute_value);
        let mut name = String::new();
        let kind = match described {
            Described::Kernel { function, config } => {
                let function = told.unwrap_or(function);
                name.clone_from(&function);
                let kernel = KernelRef::Named(self.shared(function));
                let kernel = KernelNode { kernel, config, args: Box::new([]), fusible: false };
                NodeKind::Kernel(kernel)
            }
            Described::Memcpy { node, memory } => {
                name = memory;
                NodeKind::Memcpy(Box::new(node))
            }
            Described::Memset(node) => NodeKind::Memset(Box::new(node)),
            Described::Host { function, user_data } => {
                // A pointer of zeros tells two calls of one function apart no more than none does.
                let data = user_data.filter(|data| number(data, "").is_ok_and(|n| n != 0));
                name = data.map_or_else(String::new, |data| format!("userData {data}"));
                let function = self.shared(told.unwrap_or(function));
                let effects = smallvec::SmallVec::new();
                NodeKind::Host(Box::new(HostNode { function, effects }))
            }
            Described::Empty => NodeKind::Empty,
            Described::EventRecord(_) => NodeKind::EventRecord(self.events[&statement.0]),
            Described::EventWait(_) => NodeKind::EventWait(self.events[&statement.0]),
            Described::Alloc { .. } => NodeKind::Alloc(buffers[&statement.0]),
            Described::Free { .. } => NodeKind::Free(buffers[&statement.0]),
            // The tree gave every child node exactly one graph, or was refused.
            Described::Child(_) => NodeKind::Child(Box::new(self.inner(statement).remove(0))),
            Described::Conditional { kind, handle, .. } => {
                let condition = Condition::Handle(handle.unwrap_or(0));
                let bodies = self.inner(statement);
                NodeKind::Conditional(Box::new(ConditionalNode { kind, condition, bodies }))
            }
        };
        Node { name: self.shared(given.unwrap_or(name)), kind, stream }
    }

    /// The graphs inside a node, built before.
    fn inner(&mut self, statement: Statement) -> Vec<ComputeGraph> {
        let clusters = self.tree.inner.remove(&statement.0).unwrap_or_default();
        clusters.iter().filter_map(|cluster| self.built.remove(cluster)).collect()
    }
}
