//! From a captured graph to the graph representation.
//!
//! In: a [`FinishedGraph`], the calls that the model answered, and their names. Out: a [`ComputeGraph`] with a node for each captured
//! one, in the order of capture, and exactly the captured edges with their data; nothing is inferred. Linear in nodes, edges and
//! operands.
//!
//! A capture script says less than a program does, and what it leaves out stays unknown:
//! - a kernel or host function that declares what it reads and writes touches that; one that does not may touch anything;
//! - memory whose size is not declared has 0 bytes, as in a driver's dump, and operands name all of it, however much that is;
//! - copies name their ends only if both and their sizes are declared, else they may touch anything; memsets always may, because
//!   a script does not say what they fill with, and a fill with a made-up value could be replayed;
//! - the launch of a kernel is [`KernelConfig::unknown`], so no backend replays it.
//!
//! Memory that the graph allocates is a new buffer at each allocation; all other memory is the user's, one buffer a name.

use std::sync::Arc;

use phonograph_graph as ir;
use phonograph_graph::{
    Access, Arg, Buffer, BufferId, BufferRole, ComputeGraph, Condition, ConditionalNode, Edge,
    EdgeData, Extent, GraphBuilder, GraphError, HostNode, KernelConfig, KernelNode, KernelRef,
    MemcpyDir, MemcpyNode, MemsetNode, Node, Pitched, Region, Space, Target,
};
use phonograph_trace::{Call, ConditionalKind, Function, MemoryId, Names, Port, Stream, Work};
use rustc_hash::FxHashMap;

use super::class::NodeKind;
use super::finished::{FinishedGraph, Inner};
use super::state::{CallIndex, CapturedNode};

/// Why a captured graph cannot be represented.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConvertError {
    /// The calls that were given are not those that the model answered.
    #[error("{0} did not make the node that it is said to have made")]
    OtherCalls(CallIndex),
    /// The representation has no such node.
    #[error("{call} ({function}) became a {} node, which cannot be represented", .kind.name())]
    Unsupported {
        /// The call.
        call: CallIndex,
        /// The function that it called.
        function: Function,
        /// The node's kind.
        kind: NodeKind,
    },
    /// The graph is not valid, say because it is too large.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl FinishedGraph {
    /// The graph with its work: `calls` are all that the model has answered, in order, and `names` theirs.
    ///
    /// # Errors
    /// [`ConvertError`].
    ///
    /// ```
    /// use phonograph_capture::model::{Effect, Model};
    /// use phonograph_trace::Script;
    ///
    /// let script = Script::parse("stream s\nbegin s global\nkernel s gemm reads a writes b\nkernel s relu\nend s\n")?;
    /// let mut model = Model::new(script.names.stream_kinds(), script.names.event_count());
    /// let last = script.calls.iter().map(|call| model.apply(call)).last().unwrap()?;
    /// let Effect::Ended(captured) = last.effect else { panic!("{last:?}") };
    /// let graph = captured.graph(&script.calls, &script.names)?;
    /// assert_eq!((&*graph.nodes()[0].name, graph.edge_count()), ("gemm", 1));
    /// assert!(graph.effects(0.into()).known().is_some() && graph.effects(1.into()).known().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn graph(&self, calls: &[Call], names: &Names) -> Result<ComputeGraph, ConvertError> {
        if self.expanded > MAX_EXPANDED {
            let (count, limit) = (self.expanded as usize, MAX_EXPANDED as usize);
            let what = "nodes, those of inner graphs included,";
            return Err(GraphError::TooMany { what, count, limit }.into());
        }
        let host = FxHashMap::default();
        Conversion { calls, names, levels: Vec::new(), host }.graph(self)
    }
}

/// Most nodes of a graph with everything inside: a few calls can nest copies of copies into more than any memory holds.
const MAX_EXPANDED: u64 = 1 << 22;

struct Conversion<'a> {
    calls: &'a [Call],
    names: &'a Names,
    /// The graphs that are being built, from the outermost to the one in hand.
    levels: Vec<Level>,
    /// Host memory, as the directions of copies tell, and whether it is pageable.
    host: FxHashMap<MemoryId, bool>,
}

struct Level {
    builder: GraphBuilder,
    /// What each piece of memory is at the node in hand.
    buffers: FxHashMap<MemoryId, BufferId>,
}

impl<'a> Conversion<'a> {
    /// Recursive over nesting, which the model bounds when graphs are put into each other.
    fn graph(&mut self, graph: &FinishedGraph) -> Result<ComputeGraph, ConvertError> {
        let name = graph.name.map_or("", |name| self.names.graph_name(name));
        let builder = GraphBuilder::new().named(name).with_auto_infer_edges(false);
        self.levels.push(Level { builder, buffers: FxHashMap::default() });
        for node in &graph.nodes {
            self.note_host_memory(self.call(node)?);
        }
        let mut inner = graph.inner.iter().peekable();
        for (at, node) in graph.nodes.iter().enumerate() {
            let inside = inner.next_if(|(holder, _)| holder.index() == at).map(|(_, inner)| inner);
            let node = self.node(node, inside)?;
            self.level().builder.add_node(node);
        }
        for edge in graph.edges() {
            let data = match edge.port {
                Port::Full => EdgeData::FULL,
                Port::Programmatic => EdgeData::PROGRAMMATIC,
                Port::LaunchOrder => EdgeData::LAUNCH_ORDER,
            };
            let (from, to) = (edge.from.0.into(), edge.to.0.into());
            self.level().builder.add_edge(Edge { from, to, data });
        }
        let level = self.levels.pop().expect("the level that was pushed above");
        Ok(level.builder.build()?)
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a graph is in hand")
    }

    fn call(&self, node: &CapturedNode) -> Result<&'a Call, ConvertError> {
        self.calls.get(node.call.index()).ok_or(ConvertError::OtherCalls(node.call))
    }

    fn note_host_memory(&mut self, call: &Call) {
        let Some(work) = &call.work else { return };
        let host = match call.function {
            Function::MemcpyHtoDAsync | Function::MemcpyHtoAAsync => &work.reads,
            Function::MemcpyDtoHAsync | Function::MemcpyAtoHAsync => &work.writes,
            _ => return,
        };
        self.host.extend(host.iter().map(|memory| (*memory, call.flags.pageable)));
    }

    fn node(&mut self, node: &CapturedNode, inside: Option<&Inner>) -> Result<Node, ConvertError> {
        let call = self.call(node)?;
        let other = || ConvertError::OtherCalls(node.call);
        let nothing = Work::default();
        let work = call.work.as_deref().unwrap_or(&nothing);
        let (name, kind): (Arc<str>, ir::NodeKind) = match node.kind {
            NodeKind::Kernel => {
                let name = work.name.clone();
                let kernel = KernelNode {
                    kernel: KernelRef::Named(name.clone()),
                    config: KernelConfig::unknown(),
                    args: self.operands(work).map(|(r, access)| Arg::Region(r, access)).collect(),
                    fusible: false,
                };
                (name, ir::NodeKind::Kernel(kernel))
            }
            NodeKind::Host => {
                let name = work.name.clone();
                let effects = self.operands(work).collect();
                (name.clone(), ir::NodeKind::Host(HostNode { function: name, effects }.into()))
            }
            NodeKind::Memcpy => (self.copy_name(work), self.copy(call, work)),
            NodeKind::Memset => {
                let dst = Pitched::linear(Target::Unspecified, 0);
                let bytes = work.writes.first().and_then(|memory| self.names.memory_bytes(*memory));
                let extent = Extent::linear(bytes.unwrap_or(0));
                let fill = MemsetNode { dst, value: 0, element_size: 0, extent };
                let name = work.writes.first().map_or("", |memory| self.names.memory_name(*memory));
                (name.into(), ir::NodeKind::Memset(fill.into()))
            }
            NodeKind::EventRecord | NodeKind::WaitEvent => {
                let event = call.event.ok_or_else(other)?;
                let id = ir::EventId(event.0);
                let kind = match node.kind {
                    NodeKind::EventRecord => ir::NodeKind::EventRecord(id),
                    _ => ir::NodeKind::EventWait(id),
                };
                (self.names.event_name(event).into(), kind)
            }
            NodeKind::MemAlloc => {
                let memory = call.memory.ok_or_else(other)?;
                let buffer = self.declare(memory, BufferRole::Internal);
                (self.names.memory_name(memory).into(), ir::NodeKind::Alloc(buffer))
            }
            NodeKind::MemFree => {
                let memory = call.memory.ok_or_else(other)?;
                let buffer = self.buffer(memory);
                (self.names.memory_name(memory).into(), ir::NodeKind::Free(buffer))
            }
            NodeKind::Empty => ("".into(), ir::NodeKind::Empty),
            NodeKind::ChildGraph => {
                let Some(Inner::Child(child)) = inside else { return Err(other()) };
                let graph = self.graph(child)?;
                (graph.name().into(), ir::NodeKind::Child(graph.into()))
            }
            NodeKind::Conditional => {
                let Some(Inner::Bodies(kind, bodies)) = inside else { return Err(other()) };
                let kind = match kind {
                    ConditionalKind::If => ir::ConditionalKind::If,
                    ConditionalKind::While => ir::ConditionalKind::While,
                    ConditionalKind::Switch => ir::ConditionalKind::Switch,
                };
                let bodies = bodies.iter().map(|body| self.graph(body));
                let bodies = bodies.collect::<Result<Vec<_>, _>>()?;
                // What decides is a handle of the driver's, which a script does not tell.
                let condition = Condition::Handle(0);
                let conditional = ConditionalNode { kind, condition, bodies };
                (kind.name().into(), ir::NodeKind::Conditional(conditional.into()))
            }
            kind @ NodeKind::BatchMemOp => {
                let (call, function) = (node.call, call.function);
                return Err(ConvertError::Unsupported { call, function, kind });
            }
        };
        let stream = match node.stream() {
            Some(Stream::Created(id)) => Some(ir::StreamId(id.0)),
            Some(Stream::Legacy | Stream::PerThread) | None => None,
        };
        let given = call.build.as_ref().and_then(|build| build.node);
        let name = given.map_or(name, |given| self.names.node_name(given).into());
        Ok(Node { name, kind, stream })
    }

    /// What the work reads, then what it writes, each memory once.
    fn operands(&mut self, work: &Work) -> impl Iterator<Item = (Region, Access)> + use<> {
        let mut operands: Vec<(Region, Access)> = Vec::new();
        let mut places: FxHashMap<MemoryId, usize> = FxHashMap::default();
        let reads = work.reads.iter().map(|memory| (*memory, Access::Read));
        // A script does not say that all of it is written, so what was there before may show.
        let writes = work.writes.iter().map(|memory| (*memory, Access::ReadWrite));
        for (memory, access) in reads.chain(writes) {
            let region = self.region(memory);
            let place = *places.entry(memory).or_insert(operands.len());
            match operands.get_mut(place) {
                Some((_, known)) if *known != access => *known = Access::ReadWrite,
                Some(_) => {}
                None => operands.push((region, access)),
            }
        }
        operands.into_iter()
    }

    /// All of a piece of memory.
    fn region(&mut self, memory: MemoryId) -> Region {
        let bytes = self.names.memory_bytes(memory).unwrap_or(u64::MAX);
        Region { buffer: self.buffer(memory), offset: 0, bytes }
    }

    fn buffer(&mut self, memory: MemoryId) -> BufferId {
        self.buffer_at(self.levels.len() - 1, memory)
    }

    /// The buffer of a level; what no node there allocates belongs to the level around it, and in the end to the user.
    fn buffer_at(&mut self, level: usize, memory: MemoryId) -> BufferId {
        if let Some(buffer) = self.levels[level].buffers.get(&memory) {
            return *buffer;
        }
        let role = match level.checked_sub(1) {
            None => BufferRole::External,
            Some(around) => BufferRole::Outer(self.buffer_at(around, memory)),
        };
        self.declare_at(level, memory, role)
    }

    fn declare(&mut self, memory: MemoryId, role: BufferRole) -> BufferId {
        self.declare_at(self.levels.len() - 1, memory, role)
    }

    fn declare_at(&mut self, level: usize, memory: MemoryId, role: BufferRole) -> BufferId {
        let host = self.host.get(&memory);
        let buffer = Buffer {
            name: self.names.memory_name(memory).into(),
            bytes: self.names.memory_bytes(memory).unwrap_or(0),
            align: ir::DEFAULT_ALIGN,
            role,
            space: host.map_or(Space::Unknown, |pageable| Space::Host { pageable: *pageable }),
        };
        let level = &mut self.levels[level];
        let buffer = level.builder.declare(buffer);
        level.buffers.insert(memory, buffer);
        buffer
    }

    fn copy_name(&self, work: &Work) -> Arc<str> {
        match (work.reads.first(), work.writes.first()) {
            (Some(from), Some(to)) => {
                let [from, to] = [from, to].map(|memory| self.names.memory_name(*memory));
                format!("{from} to {to}").into()
            }
            (Some(one), None) | (None, Some(one)) => self.names.memory_name(*one).into(),
            (None, None) => "".into(),
        }
    }

    fn copy(&mut self, call: &Call, work: &Work) -> ir::NodeKind {
        let on_host = |memory: Option<&MemoryId>| memory.is_some_and(|m| self.host.contains_key(m));
        let dir = match call.function {
            Function::MemcpyHtoDAsync | Function::MemcpyHtoAAsync => MemcpyDir::HostToDevice,
            Function::MemcpyDtoHAsync | Function::MemcpyAtoHAsync => MemcpyDir::DeviceToHost,
            // What nothing else says to be the host's counts as the device's, as in a driver's dump.
            _ => match (on_host(work.reads.first()), on_host(work.writes.first())) {
                (true, true) => MemcpyDir::HostToHost,
                (true, false) => MemcpyDir::HostToDevice,
                (false, true) => MemcpyDir::DeviceToHost,
                (false, false) => MemcpyDir::DeviceToDevice,
            },
        };
        let untold = Pitched::linear(Target::Unspecified, 0);
        let mut copy = MemcpyNode { dir, src: untold, dst: untold, extent: Extent::linear(0) };
        if let ([from], [to]) = (&work.reads[..], &work.writes[..]) {
            let bytes = [from, to].map(|memory| self.names.memory_bytes(*memory));
            if let [Some(source), Some(target)] = bytes {
                copy.extent = Extent::linear(source.min(target));
                let end = |buffer| Pitched::linear(Target::Buffer(buffer), 0);
                (copy.src, copy.dst) = (end(self.buffer(*from)), end(self.buffer(*to)));
            }
        }
        ir::NodeKind::Memcpy(copy.into())
    }
}
