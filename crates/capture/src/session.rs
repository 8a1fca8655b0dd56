//! Sessions: several streams recorded into one graph, without a GPU and without the driver's rules.
//!
//! In: work issued to streams, events recorded and waited for. Out: one [`ComputeGraph`] that holds every stream's
//! work and exactly the order that streams and events gave it. A stream keeps the *set* of nodes that its next
//! operation depends on; an operation replaces the set by itself, a wait adds an event's set to it, an event is a
//! copy of the set at its record. So a wait that no work follows is passed on by the next event instead of lost.
//!
//! A session is forgiving where the driver is not: any active stream may end it, joined or not, and nothing has to
//! be created first. What the driver would answer is told by the driver model, a separate type.
//!
//! Costs: an operation costs its dependencies, an event or a wait the set it copies or adds.
//!
//! ```
//! use phonograph_capture::session::{CaptureEvent, StreamCapture, StreamId};
//!
//! let (main, side) = (StreamId(0), StreamId(1));
//! let (fork, join) = (CaptureEvent(0), CaptureEvent(1));
//! let mut session = StreamCapture::new();
//! session.begin_capture(main)?;
//! session.begin_capture(side)?;
//! let a = session.record_kernel(main, "a", 64, 256, 0)?;
//! session.record_event(main, fork)?;
//! session.wait_event(side, fork)?;
//! let b = session.record_kernel(side, "b", 64, 256, 0)?;
//! session.record_event(side, join)?;
//! let c = session.record_kernel(main, "c", 64, 256, 0)?;
//! session.wait_event(main, join)?;
//! let d = session.record_kernel(main, "d", 64, 256, 0)?;
//! let graph = session.end_capture(main)?;
//! assert_eq!(graph.predecessors(d), &[b, c]);
//! assert!(graph.is_reachable(a, b) && !graph.is_reachable(b, c));
//! # Ok::<(), phonograph_capture::session::SessionError>(())
//! ```

use std::fmt;
use std::sync::Arc;

use phonograph_graph::{
    Arg, Buffer, BufferId, Edge, EdgeData, Extent, GraphBuilder, GraphError, HostNode,
    KernelConfig, KernelNode, KernelRef, MemcpyNode, MemsetNode, NamedNode, Node, NodeKind,
    Pitched, Scalar, SlotId, Target,
};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

pub use phonograph_graph::{ComputeGraph, MemcpyDir, NodeId, StreamId};

/// An event of a session: recorded on one stream, waited for on others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CaptureEvent(pub u32);

impl fmt::Display for CaptureEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{}", self.0)
    }
}

/// Where a stream stands in a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CaptureStatus {
    /// Never begun.
    #[default]
    None,
    /// Recording.
    Active,
    /// Broken: it can neither record nor end, and no other stream can end the session.
    Invalidated,
}

impl fmt::Display for CaptureStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CaptureStatus::None => "none",
            CaptureStatus::Active => "active",
            CaptureStatus::Invalidated => "invalidated",
        })
    }
}

/// Why a session refuses a call. Every variant names the stream of the call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SessionError {
    /// A second begin.
    #[error("stream {stream} is capturing already; begin_capture needs a stream that is not")]
    AlreadyCapturing {
        /// The stream.
        stream: StreamId,
    },
    /// A call on a stream that was never begun.
    #[error("stream {stream} is not capturing; begin_capture makes it")]
    NotCapturing {
        /// The stream.
        stream: StreamId,
    },
    /// A call on a stream that was invalidated.
    #[error("the capture of stream {stream} was invalidated; record the session again")]
    Invalidated {
        /// The stream.
        stream: StreamId,
    },
    /// The end of a session that another stream has broken.
    #[error(
        "stream {stream} cannot end the session, which was invalidated on stream {culprit}; record it again"
    )]
    Poisoned {
        /// The stream that was to end.
        stream: StreamId,
        /// The stream that was invalidated first.
        culprit: StreamId,
    },
    /// A dependency that cannot be added. The stream is invalidated, the session poisoned.
    #[error("stream {stream}: a dependency cannot be added: {source}")]
    Dependency {
        /// The stream.
        stream: StreamId,
        /// What is wrong with it.
        source: GraphError,
    },
    /// What was recorded makes no valid graph.
    #[error("the session ended on stream {stream} gives no valid graph: {source}")]
    Graph {
        /// The stream that ended it.
        stream: StreamId,
        /// What is wrong.
        source: GraphError,
    },
}

/// The nodes that the next operation depends on, ascending.
#[derive(Clone, Debug, Default)]
struct Dependencies(SmallVec<[NodeId; 4]>);

impl Dependencies {
    fn of(node: NodeId) -> Self {
        Self(smallvec![node])
    }

    fn insert(&mut self, node: NodeId) {
        if let Err(at) = self.0.binary_search(&node) {
            self.0.insert(at, node);
        }
    }

    // Joins bring few nodes to a set that may have grown large: inserting them keeps a wide join from being quadratic.
    fn union(&mut self, other: &Self) {
        if other.0.len() < self.0.len() / 8 {
            other.0.iter().for_each(|&node| self.insert(node));
        } else {
            self.0.extend_from_slice(&other.0);
            self.0.sort_unstable();
            self.0.dedup();
        }
    }
}

#[derive(Debug, Default)]
struct Stream {
    status: CaptureStatus,
    next: Dependencies,
}

#[derive(Debug)]
struct Record {
    stream: StreamId,
    after: Dependencies,
}

/// A session that records streams into one graph.
#[derive(Debug)]
pub struct StreamCapture {
    builder: GraphBuilder,
    streams: FxHashMap<StreamId, Stream>,
    events: FxHashMap<CaptureEvent, Record>,
    /// The stream that was invalidated first.
    culprit: Option<StreamId>,
}

impl Default for StreamCapture {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamCapture {
    /// A session in which no stream captures yet. Its graph is ordered by streams and events alone.
    pub fn new() -> Self {
        Self {
            builder: GraphBuilder::new().with_auto_infer_edges(false),
            streams: FxHashMap::default(),
            events: FxHashMap::default(),
            culprit: None,
        }
    }

    /// Whether the graph also gets the edges that buffer regions demand in the order of recording. Off at first.
    pub fn with_auto_infer_edges(mut self, infer: bool) -> Self {
        self.builder = self.builder.with_auto_infer_edges(infer);
        self
    }

    /// Where a stream stands.
    pub fn status(&self, stream: StreamId) -> CaptureStatus {
        self.streams.get(&stream).map_or(CaptureStatus::None, |s| s.status)
    }

    /// Whether any stream is active.
    pub fn is_capturing(&self) -> bool {
        self.streams.values().any(|s| s.status == CaptureStatus::Active)
    }

    /// Number of nodes recorded so far, on all streams.
    pub fn node_count(&self) -> usize {
        self.builder.node_count()
    }

    // --- lifecycle --------------------------------------------------------------------------------

    /// Starts recording a stream; another stream joins it to the same graph.
    ///
    /// An invalidated stream may begin again and reads active, but the session cannot be saved.
    ///
    /// # Errors
    /// [`SessionError::AlreadyCapturing`].
    pub fn begin_capture(&mut self, stream: StreamId) -> Result<(), SessionError> {
        let state = self.streams.entry(stream).or_default();
        if state.status == CaptureStatus::Active {
            return Err(SessionError::AlreadyCapturing { stream });
        }
        *state = Stream { status: CaptureStatus::Active, ..Stream::default() };
        Ok(())
    }

    /// Ends the session on any active stream and hands over the graph of all streams; node ids are those returned.
    ///
    /// # Errors
    /// [`NotCapturing`](SessionError::NotCapturing), [`Invalidated`](SessionError::Invalidated),
    /// [`Poisoned`](SessionError::Poisoned), or [`Graph`](SessionError::Graph) where a node is refused: an operand out
    /// of bounds, a launch of no blocks.
    pub fn end_capture(mut self, stream: StreamId) -> Result<ComputeGraph, SessionError> {
        self.active(stream)?;
        if let Some(culprit) = self.culprit {
            return Err(SessionError::Poisoned { stream, culprit });
        }
        self.builder.build().map_err(|source| SessionError::Graph { stream, source })
    }

    /// Breaks the capture of a stream and with it the session.
    ///
    /// # Errors
    /// [`NotCapturing`](SessionError::NotCapturing) or [`Invalidated`](SessionError::Invalidated).
    pub fn invalidate(&mut self, stream: StreamId) -> Result<(), SessionError> {
        let state = self.active(stream)?;
        state.status = CaptureStatus::Invalidated;
        state.next = Dependencies::default();
        self.culprit.get_or_insert(stream);
        Ok(())
    }

    // --- streams and events -----------------------------------------------------------------------

    /// The event stands for all work and waits of the stream so far. Recording it again overwrites it.
    ///
    /// # Errors
    /// [`NotCapturing`](SessionError::NotCapturing) or [`Invalidated`](SessionError::Invalidated).
    pub fn record_event(
        &mut self,
        stream: StreamId,
        event: CaptureEvent,
    ) -> Result<(), SessionError> {
        let after = self.active(stream)?.next.clone();
        self.events.insert(event, Record { stream, after });
        Ok(())
    }

    /// Later work of the stream starts after what the event stands for; an event never recorded stands for nothing.
    ///
    /// # Errors
    /// [`NotCapturing`](SessionError::NotCapturing) or [`Invalidated`](SessionError::Invalidated).
    pub fn wait_event(
        &mut self,
        stream: StreamId,
        event: CaptureEvent,
    ) -> Result<(), SessionError> {
        let state = active(&mut self.streams, stream)?;
        // A stream is behind its own events already; adding them would only add edges.
        if let Some(record) = self.events.get(&event).filter(|r| r.stream != stream) {
            state.next.union(&record.after);
        }
        Ok(())
    }

    /// The next operation of the stream also depends on `node`.
    ///
    /// # Errors
    /// [`Dependency`](SessionError::Dependency) if there is no such node: the stream is invalidated, the session
    /// poisoned. [`NotCapturing`](SessionError::NotCapturing), [`Invalidated`](SessionError::Invalidated).
    pub fn add_dependency(&mut self, stream: StreamId, node: NodeId) -> Result<(), SessionError> {
        let count = self.builder.node_count();
        let state = self.active(stream)?;
        if node.index() < count {
            state.next.insert(node);
            return Ok(());
        }
        let to = NodeId::from_index(count);
        let source = GraphError::UnknownNode { from: node, to, missing: node, count };
        Err(self.refuse_dependency(stream, source))
    }

    // --- recording --------------------------------------------------------------------------------

    /// Records a kernel known by its function's name; not fusible.
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub fn record_kernel(
        &mut self,
        stream: StreamId,
        function: &str,
        blocks: u32,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<NodeId, SessionError> {
        self.record_launch(
            stream,
            function,
            KernelConfig::linear(blocks, threads, shared_bytes),
            &[],
        )
    }

    /// Records a kernel known by its function's name, with its whole launch configuration and its arguments; not fusible.
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub fn record_launch(
        &mut self,
        stream: StreamId,
        function: &str,
        config: KernelConfig,
        args: &[Arg],
    ) -> Result<NodeId, SessionError> {
        let name: Arc<str> = function.into();
        let kernel = KernelNode {
            kernel: KernelRef::Named(name.clone()),
            config,
            args: args.into(),
            fusible: false,
        };
        self.add(stream, name, NodeKind::Kernel(kernel), EdgeData::FULL)
    }

    /// Records a copy of which only direction and size are said.
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub fn record_memcpy(
        &mut self,
        stream: StreamId,
        name: &str,
        dir: MemcpyDir,
        bytes: usize,
    ) -> Result<NodeId, SessionError> {
        let end = Pitched::linear(Target::Unspecified, 0);
        let extent = Extent::linear(bytes as u64);
        let copy = MemcpyNode { dir, src: end, dst: end, extent };
        self.record(stream, name, NodeKind::Memcpy(Box::new(copy)))
    }

    /// Records a byte fill of which only size and value are said.
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub fn record_memset(
        &mut self,
        stream: StreamId,
        name: &str,
        bytes: usize,
        value: u8,
    ) -> Result<NodeId, SessionError> {
        let fill = MemsetNode {
            dst: Pitched::linear(Target::Unspecified, 0),
            value: u32::from(value),
            element_size: 1,
            extent: Extent::linear(bytes as u64),
        };
        self.record(stream, name, NodeKind::Memset(Box::new(fill)))
    }

    /// Records a call of a host function, found by its name.
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub fn record_host_callback(
        &mut self,
        stream: StreamId,
        function: &str,
    ) -> Result<NodeId, SessionError> {
        let host = HostNode { function: function.into(), effects: SmallVec::new() };
        self.record(stream, function, NodeKind::Host(Box::new(host)))
    }

    /// Records any operation, complete with its operands; buffers come from [`declare`](Self::declare).
    ///
    /// What the node refers to is checked by [`end_capture`](Self::end_capture).
    ///
    /// # Errors
    /// [`NotCapturing`](SessionError::NotCapturing) or [`Invalidated`](SessionError::Invalidated).
    pub fn record(
        &mut self,
        stream: StreamId,
        name: &str,
        kind: NodeKind,
    ) -> Result<NodeId, SessionError> {
        self.add(stream, name.into(), kind, EdgeData::FULL)
    }

    /// Records an operation whose dependencies are of this kind, as a programmatic dependent launch makes them.
    ///
    /// # Errors
    /// [`Dependency`](SessionError::Dependency) if a weak dependency is not one of a kernel on kernels: nothing is
    /// recorded, the stream is invalidated, the session poisoned. Else those of [`record`](Self::record).
    pub fn record_with_edges(
        &mut self,
        stream: StreamId,
        name: &str,
        kind: NodeKind,
        edges: EdgeData,
    ) -> Result<NodeId, SessionError> {
        self.add(stream, name.into(), kind, edges)
    }

    /// Declares a buffer for the operands of later operations.
    pub fn declare(&mut self, buffer: Buffer) -> BufferId {
        self.builder.declare(buffer)
    }

    /// Declares a scalar that the user sets by `name` before a replay; `default` until then, and its type.
    pub fn slot(&mut self, name: &str, default: impl Into<Scalar>) -> SlotId {
        self.builder.slot(name, default)
    }

    fn add(
        &mut self,
        stream: StreamId,
        name: Arc<str>,
        kind: NodeKind,
        edges: EdgeData,
    ) -> Result<NodeId, SessionError> {
        let state = active(&mut self.streams, stream)?;
        let node = Node { name, kind, stream: Some(stream) };
        let id = NodeId::from_index(self.builder.node_count());
        if !edges.is_full() {
            let builder = &self.builder;
            let both = |&&from: &&NodeId| node.kernel().and(builder.node(from).kernel()).is_some();
            if let Some(&from) = state.next.0.iter().find(|from| !both(from)) {
                let named = |id, node: &Node| NamedNode { id, name: node.name.to_string() };
                let from = named(from, builder.node(from));
                let source = GraphError::WeakEdge { from, to: named(id, &node) };
                return Err(self.refuse_dependency(stream, source));
            }
        }
        for &from in &state.next.0 {
            self.builder.add_edge(Edge { from, to: id, data: edges });
        }
        state.next = Dependencies::of(id);
        Ok(self.builder.add_node(node))
    }

    fn refuse_dependency(&mut self, stream: StreamId, source: GraphError) -> SessionError {
        match self.invalidate(stream) {
            Ok(()) => SessionError::Dependency { stream, source },
            Err(refused) => refused,
        }
    }

    fn active(&mut self, stream: StreamId) -> Result<&mut Stream, SessionError> {
        active(&mut self.streams, stream)
    }
}

fn active(
    streams: &mut FxHashMap<StreamId, Stream>,
    stream: StreamId,
) -> Result<&mut Stream, SessionError> {
    match streams.get_mut(&stream) {
        Some(state) if state.status == CaptureStatus::Active => Ok(state),
        Some(_) => Err(SessionError::Invalidated { stream }),
        None => Err(SessionError::NotCapturing { stream }),
    }
}
