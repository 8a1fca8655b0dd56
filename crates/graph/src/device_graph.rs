//! The form in which a plan reaches a driver: nodes with their whole parameters, and the edges between them.
//!
//! In: what lowering a plan gives. Out: for each node all that a backend needs to create it, and the edges with
//! their data. Nothing is a placeholder: a host callback stays a host callback, a child graph carries its own
//! nodes. An [`Empty`](DeviceNode::Empty) node is a barrier and nothing else.

use smallvec::SmallVec;

use crate::{
    Adjacency, Arg, Buffer, BufferId, Condition, ConditionalKind, CyclePath, Edge, EventId,
    GraphError, HostNode, KernelConfig, KernelNode, MAX_NESTING, MemcpyNode, MemoryPlan,
    MemsetNode, NamedNode, NodeId, Slot, SlotId, Target, topology,
};

/// A node, ready to be created.
#[derive(Clone, PartialEq, Debug)]
pub enum DeviceNode {
    /// A kernel launch.
    KernelLaunch {
        /// The function's name; for generated code a name for people.
        function_name: String,
        /// The launch.
        config: KernelConfig,
        /// The code and its arguments. More than one only where all run in this order as one launch.
        kernels: Vec<KernelNode>,
    },
    /// A copy.
    Memcpy {
        /// From where to where, and how much.
        copy: MemcpyNode,
    },
    /// A fill.
    Memset {
        /// What, and with which pattern.
        fill: MemsetNode,
    },
    /// A call of a host function.
    HostCallback {
        /// The function.
        host: HostNode,
    },
    /// Nothing but a point that others are ordered by.
    Empty,
    /// Records an event that work outside the graph waits for.
    EventRecord {
        /// The event.
        event_id: EventId,
    },
    /// Waits for an event that work outside the graph records.
    EventWait {
        /// The event.
        event_id: EventId,
    },
    /// Allocates a buffer.
    Alloc {
        /// The buffer.
        buffer: BufferId,
    },
    /// Frees a buffer.
    Free {
        /// The buffer.
        buffer: BufferId,
    },
    /// A whole graph.
    ChildGraph {
        /// The graph.
        graph: Box<DeviceGraph>,
    },
    /// Bodies that run or not.
    Conditional {
        /// Which kind.
        kind: ConditionalKind,
        /// What decides.
        condition: Condition,
        /// The bodies.
        bodies: Vec<DeviceGraph>,
    },
}

impl DeviceNode {
    /// What it is called in messages: the function's name, or the kind.
    pub fn name(&self) -> &str {
        match self {
            DeviceNode::KernelLaunch { function_name, .. } => function_name,
            DeviceNode::HostCallback { host } => &host.function,
            DeviceNode::Memcpy { .. } => "memcpy",
            DeviceNode::Memset { .. } => "memset",
            DeviceNode::Empty => "empty",
            DeviceNode::EventRecord { .. } => "event_record",
            DeviceNode::EventWait { .. } => "event_wait",
            DeviceNode::Alloc { .. } => "mem_alloc",
            DeviceNode::Free { .. } => "mem_free",
            DeviceNode::ChildGraph { .. } => "child_graph",
            DeviceNode::Conditional { .. } => "conditional",
        }
    }

    /// The graphs inside.
    pub fn inner_graphs(&self) -> &[DeviceGraph] {
        match self {
            DeviceNode::ChildGraph { graph } => std::slice::from_ref(graph),
            DeviceNode::Conditional { bodies, .. } => bodies,
            _ => &[],
        }
    }

    fn buffers(&self, mut visit: impl FnMut(BufferId)) {
        let mut target = |target: Target| {
            if let Target::Buffer(buffer) = target {
                visit(buffer);
            }
        };
        match self {
            DeviceNode::KernelLaunch { kernels, .. } => {
                let args = kernels.iter().flat_map(|kernel| &kernel.args);
                args.filter_map(Arg::effect).for_each(|(region, _)| visit(region.buffer));
            }
            DeviceNode::Memcpy { copy } => {
                target(copy.src.target);
                target(copy.dst.target);
            }
            DeviceNode::Memset { fill } => target(fill.dst.target),
            DeviceNode::HostCallback { host } => {
                host.effects.iter().for_each(|(region, _)| visit(region.buffer));
            }
            DeviceNode::Alloc { buffer } | DeviceNode::Free { buffer } => visit(*buffer),
            DeviceNode::Conditional { condition: Condition::Value(view), .. } => visit(view.buffer),
            DeviceNode::Conditional { .. }
            | DeviceNode::ChildGraph { .. }
            | DeviceNode::Empty
            | DeviceNode::EventRecord { .. }
            | DeviceNode::EventWait { .. } => {}
        }
    }

    fn slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        let kernels = match self {
            DeviceNode::KernelLaunch { kernels, .. } => &kernels[..],
            _ => &[],
        };
        kernels.iter().flat_map(|kernel| &kernel.args).filter_map(|arg| match *arg {
            Arg::Slot(slot) => Some(slot),
            _ => None,
        })
    }
}

/// A graph that a driver backend creates node by node.
///
/// Node ids are places in [`nodes`](Self::nodes) and say nothing of the graph it was lowered from;
/// [`origins`](Self::origins) does. Lowering puts producers before consumers and makes it pass
/// [`validate`](Self::validate); one assembled by hand may not.
///
/// ```
/// use phonograph_graph::{DeviceGraph, DeviceNode, Edge, NodeId};
///
/// let (a, b) = (NodeId(0), NodeId(1));
/// let join = DeviceGraph::new(vec![DeviceNode::Empty, DeviceNode::Empty], vec![Edge::full(a, b)]);
/// assert!(join.validate().is_ok());
/// let knot = vec![Edge::full(a, b), Edge::full(b, a)];
/// assert!(DeviceGraph::new(vec![DeviceNode::Empty, DeviceNode::Empty], knot).validate().is_err());
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeviceGraph {
    nodes: Vec<DeviceNode>,
    /// By consumer; in the order given for one consumer.
    edges: Vec<Edge>,
    origins: Vec<SmallVec<[NodeId; 1]>>,
    buffers: Box<[Buffer]>,
    slots: Box<[Slot]>,
    memory: MemoryPlan,
}

impl DeviceGraph {
    /// A graph of these nodes and edges, unchecked, without buffers. O(edges · log edges).
    pub fn new(nodes: Vec<DeviceNode>, mut edges: Vec<Edge>) -> Self {
        edges.sort_by_key(|edge| edge.to); // stable: keeps the order within a consumer
        Self { nodes, edges, ..Self::default() }
    }

    /// Says which nodes of the graph each node was lowered from.
    pub fn with_origins(mut self, origins: Vec<SmallVec<[NodeId; 1]>>) -> Self {
        self.origins = origins;
        self
    }

    /// Declares the buffers and slots that operands name, and where the internal buffers lie.
    pub fn with_memory(mut self, buffers: &[Buffer], slots: &[Slot], memory: MemoryPlan) -> Self {
        (self.buffers, self.slots, self.memory) = (buffers.into(), slots.into(), memory);
        self
    }

    /// Number of nodes, not counting those of child graphs and bodies.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of edges, not counting those of child graphs and bodies.
    pub fn dependency_count(&self) -> usize {
        self.edges.len()
    }

    /// The nodes.
    pub fn nodes(&self) -> &[DeviceNode] {
        &self.nodes
    }

    /// The edges, grouped by consumer.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The edges into a node. O(log edges).
    pub fn incoming(&self, node: NodeId) -> &[Edge] {
        let from = self.edges.partition_point(|edge| edge.to < node);
        let rest = &self.edges[from..];
        &rest[..rest.partition_point(|edge| edge.to == node)]
    }

    /// The nodes of the graph that a node was lowered from; none if it comes from no graph.
    pub fn origins(&self, node: NodeId) -> &[NodeId] {
        self.origins.get(node.index()).map_or(&[], |nodes| nodes)
    }

    /// The declared buffers; operands name them by their place.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The declared slots; arguments name them by their place.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Where the internal buffers lie.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// An order in which nodes can be created, producers first: the order they are in, if it is one.
    /// O(nodes + edges), iterative.
    ///
    /// # Errors
    /// [`UnknownNode`](GraphError::UnknownNode), [`SelfEdge`](GraphError::SelfEdge), [`WeakEdge`](GraphError::WeakEdge)
    /// or [`Cycle`](GraphError::Cycle), naming the nodes.
    pub fn creation_order(&self) -> Result<Box<[NodeId]>, GraphError> {
        let count = self.nodes.len();
        for &Edge { from, to, data } in &self.edges {
            if let Some(missing) = [from, to].into_iter().find(|id| id.index() >= count) {
                return Err(GraphError::UnknownNode { from, to, missing, count });
            }
            if from == to {
                return Err(GraphError::SelfEdge { node: self.named(from) });
            }
            let kernels = [from, to]
                .iter()
                .all(|id| matches!(self.nodes[id.index()], DeviceNode::KernelLaunch { .. }));
            if !data.is_full() && !kernels {
                return Err(GraphError::WeakEdge { from: self.named(from), to: self.named(to) });
            }
        }
        let predecessors = Adjacency::group(count, self.edges.iter().map(|e| (e.to, e.from)));
        let successors = Adjacency::group(count, self.edges.iter().map(|e| (e.from, e.to)));
        topology::order(&predecessors, &successors).map_err(|cycle| {
            GraphError::Cycle(CyclePath(cycle.into_iter().map(|id| self.named(id)).collect()))
        })
    }

    /// Checks edges and references, inner graphs included. O(nodes + edges + operands).
    ///
    /// # Errors
    /// Those of [`creation_order`](Self::creation_order); [`UnknownBuffer`](GraphError::UnknownBuffer),
    /// [`UnknownSlot`](GraphError::UnknownSlot); [`Inner`](GraphError::Inner) for a fault inside a node, and
    /// [`TooMany`](GraphError::TooMany) where graphs nest deeper than [`MAX_NESTING`].
    pub fn validate(&self) -> Result<(), GraphError> {
        self.validate_at(1)
    }

    // Recursive, but no deeper than the bound that it checks.
    fn validate_at(&self, depth: usize) -> Result<(), GraphError> {
        if depth > MAX_NESTING {
            let (what, limit) = ("nested graphs", MAX_NESTING);
            return Err(GraphError::TooMany { what, count: depth, limit });
        }
        self.creation_order()?;
        for (index, node) in self.nodes.iter().enumerate() {
            let id = NodeId::from_index(index);
            let mut unknown = None;
            node.buffers(|buffer| {
                if buffer.index() >= self.buffers.len() {
                    unknown.get_or_insert(buffer);
                }
            });
            if let Some(buffer) = unknown {
                return Err(GraphError::UnknownBuffer { node: self.named(id), buffer });
            }
            if let Some(slot) = node.slots().find(|slot| slot.index() >= self.slots.len()) {
                return Err(GraphError::UnknownSlot { node: self.named(id), slot });
            }
            for graph in node.inner_graphs() {
                graph.validate_at(depth + 1).map_err(|source| GraphError::Inner {
                    node: self.named(id),
                    source: Box::new(source),
                })?;
            }
        }
        Ok(())
    }

    fn named(&self, id: NodeId) -> NamedNode {
        NamedNode { id, name: self.nodes[id.index()].name().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, EdgeData, Extent, MemcpyDir, Pitched, Region};

    fn kernel(name: &str, args: &[Arg]) -> DeviceNode {
        let config = KernelConfig::linear(1, 32, 0);
        let kernel = KernelNode {
            kernel: crate::KernelRef::Named(name.into()),
            config,
            args: args.into(),
            fusible: false,
        };
        DeviceNode::KernelLaunch { function_name: name.into(), config, kernels: vec![kernel] }
    }

    /// A graph of `count` empty nodes with these edges gives this error, or none.
    fn check(count: usize, edges: &[(u32, u32)], error: &str) {
        let edges = edges.iter().map(|&(a, b)| Edge::full(NodeId(a), NodeId(b))).collect();
        let graph = DeviceGraph::new(vec![DeviceNode::Empty; count], edges);
        let found = graph.validate().err().map_or(String::new(), |e| e.to_string());
        assert_eq!(found, error);
    }

    #[test]
    fn c04_a_cycle_an_unknown_id_and_an_edge_to_itself_are_errors_naming_the_nodes() {
        check(3, &[(0, 1), (2, 1), (0, 2)], "");
        check(2, &[(0, 0)], "node n0 (empty) depends on itself");
        check(2, &[(0, 7)], "edge n0 → n7: there is no node n7 (the graph has 2)");
        check(
            4,
            &[(0, 1), (1, 2), (2, 3), (3, 1)],
            "the dependencies form a cycle: n2 (empty) → n3 (empty) → n1 (empty) → n2 (empty)",
        );
    }

    #[test]
    fn c04_faults_inside_nodes_are_found_and_placed() {
        let knot = vec![Edge::full(NodeId(0), NodeId(0))];
        let inner = Box::new(DeviceGraph::new(vec![DeviceNode::Empty], knot));
        let graph = DeviceGraph::new(
            vec![DeviceNode::Empty, DeviceNode::ChildGraph { graph: inner }],
            vec![],
        );
        assert_eq!(
            graph.validate().unwrap_err().to_string(),
            "inside node n1 (child_graph): node n0 (empty) depends on itself"
        );
        let mut deep = DeviceGraph::default();
        for _ in 0..MAX_NESTING {
            deep = DeviceGraph::new(vec![DeviceNode::ChildGraph { graph: Box::new(deep) }], vec![]);
        }
        assert!(deep.validate().unwrap_err().to_string().contains("too many nested graphs"));
    }

    #[test]
    fn c04_unknown_buffers_and_slots_are_errors() {
        let region = Region { buffer: BufferId(3), offset: 0, bytes: 4 };
        for (node, error) in [
            (kernel("k", &[Arg::Region(region, Access::Read)]), "node n0 (k) refers to buffer b3"),
            (kernel("k", &[Arg::Slot(SlotId(1))]), "node n0 (k) refers to slot1"),
            (DeviceNode::Free { buffer: BufferId(2) }, "node n0 (mem_free) refers to buffer b2"),
            (
                DeviceNode::Memcpy {
                    copy: MemcpyNode {
                        dir: MemcpyDir::DeviceToHost,
                        src: Pitched::linear(Target::Unspecified, 0),
                        dst: Pitched::linear(Target::Buffer(BufferId(4)), 0),
                        extent: Extent::linear(4),
                    },
                },
                "node n0 (memcpy) refers to buffer b4",
            ),
        ] {
            let message = DeviceGraph::new(vec![node], vec![]).validate().unwrap_err().to_string();
            assert!(message.starts_with(error), "{message}");
        }
    }

    #[test]
    fn edges_keep_their_data_and_weak_ones_need_kernels() {
        let weak = Edge { from: NodeId(0), to: NodeId(1), data: EdgeData::LAUNCH_ORDER };
        let graph = DeviceGraph::new(vec![kernel("a", &[]), kernel("b", &[])], vec![weak]);
        graph.validate().unwrap();
        assert_eq!(graph.incoming(NodeId(1)), &[weak]);
        let graph = DeviceGraph::new(vec![kernel("a", &[]), DeviceNode::Empty], vec![weak]);
        assert!(matches!(graph.validate(), Err(GraphError::WeakEdge { .. })));
    }
}
