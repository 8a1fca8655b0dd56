//! Building a graph: nodes in program order, dependencies explicit, inferred from regions, or both.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::buffer::DEFAULT_ALIGN;
use crate::graph::{Parts, add_known_operands};
use crate::validate::{Tables, check_node, check_observed, check_tables, named};
use crate::{
    Access, Adjacency, Arg, Buffer, BufferId, BufferRole, ComputeGraph, Condition, ConditionalKind,
    ConditionalNode, CyclePath, Edge, EdgeData, EventId, Expr, Extent, FusedKernel, GraphError,
    HostNode, KernelConfig, KernelNode, KernelRef, LibraryKernel, MemcpyDir, MemcpyNode,
    MemsetNode, Node, NodeId, NodeKind, Observed, Operands, Pitched, Region, Scalar, Slot, SlotId,
    Space, StreamId, Target, View, infer, topology,
};

/// The most nodes and the most edges a graph can have.
pub const MAX_NODES: usize = (1 << 31) - 1;

/// Collects nodes and dependencies; [`build`](GraphBuilder::build) checks them once and freezes the graph.
///
/// ```
/// use phonograph_graph::{GraphBuilder, MemcpyDir};
///
/// let mut b = GraphBuilder::new();
/// let x = b.alloc_buffer("x", 4096);
/// let y = b.alloc_buffer("y", 4096);
/// let scale = b.add_kernel("scale", 4, 256, 0).inputs([x]).outputs([y]).finish();
/// let shift = b.add_kernel("shift", 4, 256, 0).inputs([y]).outputs([x]).finish();
/// let download = b.add_memcpy("download", MemcpyDir::DeviceToHost, 4096);
/// b.dep(shift, download);
/// let graph = b.build()?;
/// assert!(graph.is_reachable(scale, download)); // scale → shift was inferred from y
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
#[derive(Debug)]
pub struct GraphBuilder {
    name: Arc<str>,
    nodes: Vec<Node>,
    buffers: Vec<Buffer>,
    slots: Vec<Slot>,
    edges: Vec<Edge>,
    observed: BTreeMap<NodeId, Observed>,
    infer: bool,
}

impl Default for GraphBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphBuilder {
    /// An empty builder that infers data dependencies.
    pub fn new() -> Self {
        Self {
            name: "".into(),
            nodes: Vec::new(),
            buffers: Vec::new(),
            slots: Vec::new(),
            edges: Vec::new(),
            observed: BTreeMap::new(),
            infer: true,
        }
    }

    /// A builder that already holds all of a graph and infers nothing.
    pub(crate) fn from_parts(
        name: &str,
        nodes: Vec<Node>,
        buffers: Vec<Buffer>,
        slots: Vec<Slot>,
        edges: Vec<Edge>,
    ) -> Self {
        let observed = BTreeMap::new();
        Self { name: name.into(), nodes, buffers, slots, edges, observed, infer: false }
    }

    /// Names the graph.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Whether `build` adds the edges that regions demand in program order. On at first; off means explicit edges only.
    pub fn with_auto_infer_edges(mut self, infer: bool) -> Self {
        self.infer = infer;
        self
    }

    /// Number of nodes so far.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// A node added earlier.
    ///
    /// # Panics
    /// If the id is not of this builder.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// A buffer declared earlier.
    ///
    /// # Panics
    /// If the id is not of this builder.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    // --- declarations -----------------------------------------------------------------------------

    /// Declares a buffer.
    pub fn declare(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId::from_index(self.buffers.len() - 1)
    }

    /// Declares scratch memory of one replay, on device 0.
    pub fn alloc_buffer(&mut self, name: &str, bytes: usize) -> BufferId {
        self.declare_on_device(name, bytes, BufferRole::Internal)
    }

    /// Declares memory of the user's on device 0, whose contents last between replays.
    pub fn external_buffer(&mut self, name: &str, bytes: usize) -> BufferId {
        self.declare_on_device(name, bytes, BufferRole::External)
    }

    /// Declares a pointer slot on device 0: memory that the user binds before a replay, used with `access` at most.
    pub fn slot_buffer(&mut self, name: &str, bytes: usize, access: Access) -> BufferId {
        self.declare_on_device(name, bytes, BufferRole::Slot(access))
    }

    /// Declares page-locked host memory of the user's.
    pub fn host_buffer(&mut self, name: &str, bytes: usize) -> BufferId {
        self.declare(Buffer {
            name: name.into(),
            bytes: bytes as u64,
            align: DEFAULT_ALIGN,
            role: BufferRole::External,
            space: Space::Host { pageable: false },
        })
    }

    fn declare_on_device(&mut self, name: &str, bytes: usize, role: BufferRole) -> BufferId {
        let (name, bytes) = (name.into(), bytes as u64);
        self.declare(Buffer { name, bytes, align: DEFAULT_ALIGN, role, space: Space::Device(0) })
    }

    /// Declares a scalar that the user sets by `name` before a replay; `default` until then, and its type.
    pub fn slot(&mut self, name: &str, default: impl Into<Scalar>) -> SlotId {
        self.declare_slot(Slot { name: name.into(), default: default.into(), outer: None })
    }

    /// Declares a slot as it is.
    pub fn declare_slot(&mut self, slot: Slot) -> SlotId {
        self.slots.push(slot);
        SlotId::from_index(self.slots.len() - 1)
    }

    /// In the builder of a child graph or body: a stand-in for a buffer of the graph around it. Asking again gives the same one.
    pub fn outer_buffer(&mut self, around: &GraphBuilder, buffer: BufferId) -> BufferId {
        let role = BufferRole::Outer(buffer);
        if let Some(known) = self.buffers.iter().position(|b| b.role == role) {
            return BufferId::from_index(known);
        }
        let declared = around.buffer(buffer).clone();
        self.declare(Buffer { role, ..declared })
    }

    /// In the builder of a child graph or body: `view` of the graph around it, seen from inside.
    pub fn outer_view(&mut self, around: &GraphBuilder, view: View) -> View {
        let buffer = self.outer_buffer(around, view.buffer);
        view.in_buffer(buffer)
    }

    /// In the builder of a child graph or body: a stand-in for a slot of the graph around it. Asking again gives the same one.
    pub fn outer_slot(&mut self, around: &GraphBuilder, slot: SlotId) -> SlotId {
        let outer = Some(slot);
        if let Some(known) = self.slots.iter().position(|s| s.outer == outer) {
            return SlotId::from_index(known);
        }
        let declared = around.slots[slot.index()].clone();
        self.declare_slot(Slot { outer, ..declared })
    }

    // --- nodes ------------------------------------------------------------------------------------

    /// Adds any node.
    pub fn add(&mut self, name: &str, kind: NodeKind) -> NodeId {
        self.add_node(Node { name: name.into(), kind, stream: None })
    }

    /// Adds a node as it is.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId::from_index(self.nodes.len() - 1)
    }

    /// Starts a kernel that is known by its function's name; a launch of `blocks` × `threads` with `shared_bytes` of shared
    /// memory.
    pub fn add_kernel(
        &mut self,
        name: &str,
        blocks: u32,
        threads: u32,
        shared_bytes: u32,
    ) -> KernelNodeBuilder<'_> {
        let config = KernelConfig::linear(blocks, threads, shared_bytes);
        KernelNodeBuilder {
            builder: self,
            name: name.into(),
            config,
            fusible: false,
            args: Vec::new(),
            stream: None,
        }
    }

    /// Adds an elementwise kernel: `inputs` (each of the outputs' shape; see [`View::broadcast_to`]), `scalars`
    /// ([`Arg::Scalar`] or [`Arg::Slot`]), `outputs`.
    pub fn add_elementwise(
        &mut self,
        name: &str,
        expr: Arc<Expr>,
        inputs: &[View],
        scalars: &[Arg],
        outputs: &[View],
    ) -> NodeId {
        // One after the other, for a view is many words and a chain moves each twice.
        let mut args = Vec::with_capacity(inputs.len() + outputs.len() + scalars.len());
        args.extend(inputs.iter().map(|&v| Arg::View(v, Access::Read)));
        args.extend(outputs.iter().map(|&v| Arg::View(v, Access::Write)));
        args.extend_from_slice(scalars);
        let elements = outputs.first().map_or(1, View::elements);
        let kernel = KernelRef::Elementwise(expr);
        self.add_generated(name, kernel, elements, args.into_boxed_slice(), true)
    }

    /// Adds a kernel of the library on its operands in order.
    pub fn add_library(&mut self, name: &str, kernel: LibraryKernel, operands: &[View]) -> NodeId {
        // One access too many or too few is left to `build`, which reports the count.
        let accesses = kernel.accesses().iter().copied().chain(std::iter::repeat(Access::Read));
        let args: Box<[Arg]> =
            operands.iter().zip(accesses).map(|(&v, a)| Arg::View(v, a)).collect();
        let elements = operands.last().map_or(1, View::elements);
        let fusible = matches!(kernel, LibraryKernel::Reduce { .. } | LibraryKernel::MatMul);
        self.add_generated(name, KernelRef::Library(kernel), elements, args, fusible)
    }

    /// Adds a kernel of the library with expressions before and after it, on its tensors in order
    /// ([`FusedKernel`]), then its scalars.
    pub fn add_fused(
        &mut self,
        name: &str,
        kernel: Arc<FusedKernel>,
        operands: &[View],
        scalars: &[Arg],
    ) -> NodeId {
        let reads = kernel.operands().after_inputs.end;
        let access = |at: usize| if at < reads { Access::Read } else { Access::Write };
        let views = operands.iter().enumerate().map(|(at, &view)| Arg::View(view, access(at)));
        let args: Box<[Arg]> = views.chain(scalars.iter().copied()).collect();
        let elements = operands.last().map_or(1, View::elements);
        self.add_generated(name, KernelRef::Fused(kernel), elements, args, true)
    }

    fn add_generated(
        &mut self,
        name: &str,
        kernel: KernelRef,
        elements: u64,
        args: Box<[Arg]>,
        fusible: bool,
    ) -> NodeId {
        let config = suggested_launch(elements);
        self.add(name, NodeKind::Kernel(KernelNode { kernel, config, args, fusible }))
    }

    /// Adds a copy of which only direction and size are said; [`add_copy`](Self::add_copy) says from where to where.
    pub fn add_memcpy(&mut self, name: &str, dir: MemcpyDir, bytes: usize) -> NodeId {
        let end = Pitched::linear(Target::Unspecified, 0);
        let extent = Extent::linear(bytes as u64);
        self.add_copy(name, MemcpyNode { dir, src: end, dst: end, extent })
    }

    /// Adds a copy between two regions of equal size; the direction follows from where their buffers live.
    ///
    /// The length copied is that of `src`; `build` refuses it where `dst` is too short.
    pub fn add_region_copy(&mut self, name: &str, src: Region, dst: Region) -> NodeId {
        let space = |region: Region| self.buffers.get(region.buffer.index()).map(|b| b.space);
        let dir = match (space(src), space(dst)) {
            (Some(Space::Host { .. }), Some(Space::Host { .. })) => MemcpyDir::HostToHost,
            (Some(Space::Host { .. }), _) => MemcpyDir::HostToDevice,
            (_, Some(Space::Host { .. })) => MemcpyDir::DeviceToHost,
            (Some(Space::Device(a)), Some(Space::Device(b))) if a != b => {
                MemcpyDir::PeerToPeer { src_device: a, dst_device: b }
            }
            _ => MemcpyDir::DeviceToDevice,
        };
        let end = |r: Region| Pitched::linear(Target::Buffer(r.buffer), r.offset);
        let extent = Extent::linear(src.bytes);
        self.add_copy(name, MemcpyNode { dir, src: end(src), dst: end(dst), extent })
    }

    /// Adds a copy.
    pub fn add_copy(&mut self, name: &str, copy: MemcpyNode) -> NodeId {
        self.add(name, NodeKind::Memcpy(Box::new(copy)))
    }

    /// Adds a byte fill of which only size and value are said; [`add_fill`](Self::add_fill) says where.
    pub fn add_memset(&mut self, name: &str, bytes: usize, value: u8) -> NodeId {
        let dst = Pitched::linear(Target::Unspecified, 0);
        let extent = Extent::linear(bytes as u64);
        let value = u32::from(value);
        self.add_fill(name, MemsetNode { dst, value, element_size: 1, extent })
    }

    /// Adds a fill.
    pub fn add_fill(&mut self, name: &str, fill: MemsetNode) -> NodeId {
        self.add(name, NodeKind::Memset(Box::new(fill)))
    }

    /// Adds a node that does nothing but be waited for.
    pub fn add_barrier(&mut self, name: &str) -> NodeId {
        self.add(name, NodeKind::Empty)
    }

    /// Adds a call of the host function registered as `function`. Nothing is known of what it touches, so nothing is
    /// inferred; [`add_host`](Self::add_host) says.
    pub fn add_host_callback(&mut self, function: &str) -> NodeId {
        self.add_host(function, function, &[])
    }

    /// Adds a call of a host function that touches these regions.
    pub fn add_host(&mut self, name: &str, function: &str, effects: &[(Region, Access)]) -> NodeId {
        let host = HostNode { function: function.into(), effects: SmallVec::from_slice(effects) };
        self.add(name, NodeKind::Host(Box::new(host)))
    }

    /// Adds a record of an event that work outside the graph waits for.
    pub fn add_event_record(&mut self, name: &str, event: EventId) -> NodeId {
        self.add(name, NodeKind::EventRecord(event))
    }

    /// Adds a wait for an event that work outside the graph records.
    pub fn add_event_wait(&mut self, name: &str, event: EventId) -> NodeId {
        self.add(name, NodeKind::EventWait(event))
    }

    /// Adds a whole graph as one node.
    pub fn add_child(&mut self, name: &str, graph: ComputeGraph) -> NodeId {
        self.add(name, NodeKind::Child(Box::new(graph)))
    }

    /// Adds a conditional node.
    pub fn add_conditional(
        &mut self,
        name: &str,
        kind: ConditionalKind,
        condition: Condition,
        bodies: Vec<ComputeGraph>,
    ) -> NodeId {
        let conditional = ConditionalNode { kind, condition, bodies };
        self.add(name, NodeKind::Conditional(Box::new(conditional)))
    }

    /// Whether planners may merge a kernel with its neighbours. At first they may for elementwise kernels; no for one
    /// that will be disabled for some replays. Nodes that are no kernels are not merged in any case.
    ///
    /// # Panics
    /// If the id is not of this builder.
    pub fn set_fusible(&mut self, kernel: NodeId, fusible: bool) -> &mut Self {
        if let NodeKind::Kernel(kernel) = &mut self.nodes[kernel.index()].kind {
            kernel.fusible = fusible;
        }
        self
    }

    /// Adds what experiments showed of a node whose own parameters do not tell what it touches.
    pub fn observe(&mut self, node: NodeId, observed: Observed) -> &mut Self {
        self.observed.insert(node, observed);
        self
    }

    // --- dependencies -----------------------------------------------------------------------------

    /// `to` starts after `from` is complete. Ids are checked by [`build`](Self::build).
    pub fn dep(&mut self, from: NodeId, to: NodeId) -> &mut Self {
        self.add_edge(Edge::full(from, to))
    }

    /// Adds an edge with its data.
    pub fn add_edge(&mut self, edge: Edge) -> &mut Self {
        self.edges.push(edge);
        self
    }

    /// Each node after the one before it.
    pub fn chain(&mut self, nodes: &[NodeId]) -> &mut Self {
        self.edges.extend(nodes.windows(2).map(|pair| Edge::full(pair[0], pair[1])));
        self
    }

    /// `join` after all of `nodes`.
    pub fn fan_in(&mut self, nodes: &[NodeId], join: NodeId) -> &mut Self {
        self.edges.extend(nodes.iter().map(|&node| Edge::full(node, join)));
        self
    }

    /// All of `nodes` after `fork`.
    pub fn fan_out(&mut self, fork: NodeId, nodes: &[NodeId]) -> &mut Self {
        self.edges.extend(nodes.iter().map(|&node| Edge::full(fork, node)));
        self
    }

    /// Checks everything and freezes the graph. O(nodes + edges + operands), whatever the order of the edges.
    ///
    /// Edges given twice count once; inferred ones come after explicit ones. One search finds a cycle, if there is
    /// one, and the error names its nodes.
    ///
    /// # Errors
    /// [`GraphError`], with the names of the nodes: ids that are not there, a cycle, an edge from a node to itself, a weak
    /// edge of what is no kernel, operands out of bounds or not accepted, too many nodes or edges.
    pub fn build(self) -> Result<ComputeGraph, GraphError> {
        let Self { name, nodes, buffers, slots, mut edges, observed, infer } = self;
        let count = nodes.len();
        if count > MAX_NODES {
            return Err(GraphError::TooMany { what: "nodes", count, limit: MAX_NODES });
        }
        let tables = Tables { buffers: &buffers, slots: &slots };
        check_tables(&tables)?;
        for (index, node) in nodes.iter().enumerate() {
            check_node(&tables, NodeId::from_index(index), node)?;
        }
        for (&node, observed) in &observed {
            check_observed(&tables, &nodes, node, observed)?;
        }
        for edge in &edges {
            check_edge(&nodes, edge)?;
        }
        if infer {
            let operands = |id: NodeId, found: &mut Operands| match observed.get(&id) {
                Some(observed) => found.extend_from_slice(&observed.operands),
                None => add_known_operands(&nodes[id.index()], found),
            };
            edges.extend(infer::infer(buffers.len(), count, operands));
        }
        if edges.len() > MAX_NODES {
            let count = edges.len();
            return Err(GraphError::TooMany { what: "edges", count, limit: MAX_NODES });
        }
        let (predecessors, edge_data) = incoming(count, edges);
        let outgoing = (0..count as u32)
            .map(NodeId)
            .flat_map(|to| predecessors.of(to).iter().map(move |&from| (from, to)));
        let successors = Adjacency::group(count, outgoing);
        let order = topology::order(&predecessors, &successors).map_err(|cycle| {
            let named = cycle.into_iter().map(|id| named(id, &nodes[id.index()]));
            GraphError::Cycle(CyclePath(named.collect()))
        })?;
        Ok(ComputeGraph::new(Parts {
            name,
            nodes: nodes.into_boxed_slice(),
            buffers: buffers.into_boxed_slice(),
            slots: slots.into_boxed_slice(),
            predecessors,
            successors,
            edge_data,
            order,
            observed: observed.into_iter().collect(),
        }))
    }
}

/// One thread for each of `elements`.
pub(crate) fn suggested_launch(elements: u64) -> KernelConfig {
    const THREADS: u64 = 256;
    let blocks = elements.div_ceil(THREADS).clamp(1, i32::MAX as u64) as u32;
    KernelConfig::linear(blocks, THREADS as u32, 0)
}

fn check_edge(nodes: &[Node], edge: &Edge) -> Result<(), GraphError> {
    let &Edge { from, to, data } = edge;
    let node = |id: NodeId| {
        let count = nodes.len();
        nodes.get(id.index()).ok_or(GraphError::UnknownNode { from, to, missing: id, count })
    };
    let (producer, consumer) = (node(from)?, node(to)?);
    if from == to {
        return Err(GraphError::SelfEdge { node: named(from, producer) });
    }
    if !data.is_full() && (producer.kernel().is_none() || consumer.kernel().is_none()) {
        return Err(GraphError::WeakEdge { from: named(from, producer), to: named(to, consumer) });
    }
    Ok(())
}

/// Groups edges by consumer, in the order given, each once.
fn incoming(nodes: usize, edges: Vec<Edge>) -> (Adjacency, Option<Box<[EdgeData]>>) {
    if edges.iter().all(|edge| edge.data == EdgeData::FULL) {
        let all = Adjacency::group(nodes, edges.iter().map(|e| (e.to, e.from)));
        drop(edges);
        let rows = || (0..nodes as u32).map(NodeId);
        let pairs = || rows().flat_map(|to| all.of(to).iter().map(move |&from| (to, from)));
        let distinct = || {
            // The last consumer that each producer was seen with, shifted by one: 0 is none.
            let mut seen_with = vec![0u32; nodes];
            pairs().filter(move |&(to, from)| {
                std::mem::replace(&mut seen_with[from.index()], to.0 + 1) != to.0 + 1
            })
        };
        if distinct().count() == all.targets().len() {
            return (all, None);
        }
        let kept: Vec<(NodeId, NodeId)> = distinct().collect();
        return (Adjacency::group(nodes, kept.iter().copied()), None);
    }
    let mut seen = FxHashSet::default();
    let mut kept: Vec<Edge> = edges.into_iter().filter(|edge| seen.insert(*edge)).collect();
    let adjacency = Adjacency::group(nodes, kept.iter().map(|e| (e.to, e.from)));
    kept.sort_by_key(|edge| edge.to); // stable: the same order within a consumer as in the adjacency
    let data = kept.iter().map(|edge| edge.data).collect();
    (adjacency, Some(data))
}

/// A kernel by name, under construction; [`finish`](Self::finish) adds it.
#[must_use = "the kernel is added by `finish`"]
pub struct KernelNodeBuilder<'a> {
    builder: &'a mut GraphBuilder,
    name: Arc<str>,
    config: KernelConfig,
    fusible: bool,
    args: Vec<Arg>,
    stream: Option<StreamId>,
}

impl KernelNodeBuilder<'_> {
    /// Whether planners may merge it with its neighbours; no, unless said.
    pub fn fusible(mut self, fusible: bool) -> Self {
        self.fusible = fusible;
        self
    }

    /// Buffers that it reads, whole.
    pub fn inputs(self, buffers: impl IntoIterator<Item = BufferId>) -> Self {
        self.whole(buffers, Access::Read)
    }

    /// Buffers that it writes, whole.
    pub fn outputs(self, buffers: impl IntoIterator<Item = BufferId>) -> Self {
        self.whole(buffers, Access::Write)
    }

    fn whole(mut self, buffers: impl IntoIterator<Item = BufferId>, access: Access) -> Self {
        for buffer in buffers {
            // An unknown id is reported by `build`, with the node's name.
            let bytes = self.builder.buffers.get(buffer.index()).map_or(0, |b| b.bytes);
            self.args.push(Arg::Region(Region { buffer, offset: 0, bytes }, access));
        }
        self
    }

    /// The next argument.
    pub fn arg(mut self, arg: Arg) -> Self {
        self.args.push(arg);
        self
    }

    /// The whole launch configuration.
    pub fn config(mut self, config: KernelConfig) -> Self {
        self.config = config;
        self
    }

    /// The stream it was recorded on.
    pub fn on_stream(mut self, stream: StreamId) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Adds the kernel.
    pub fn finish(self) -> NodeId {
        let kernel = KernelNode {
            kernel: KernelRef::Named(self.name.clone()),
            config: self.config,
            args: self.args.into_boxed_slice(),
            fusible: self.fusible,
        };
        let (name, kind) = (self.name, NodeKind::Kernel(kernel));
        self.builder.add_node(Node { name, kind, stream: self.stream })
    }
}
