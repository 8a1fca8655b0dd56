//! Operations on their way into a graph.
//!
//! A recorder keeps a builder for the graph and one for each body that is being recorded inside it, and knows which buffer
//! of the device each declared buffer stands for. Edges are left to the builder, which infers them from regions in the order
//! of recording; only what names no memory at all (a host function without operands) is ordered here, as a barrier.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use crate::graph::{
    Access, Arg, BufferId, BufferRole, ComputeGraph, GraphBuilder, KernelRef, NodeId, NodeKind,
    Region, Space, View,
};
use crate::graph::{Buffer as Declared, SlotId};
use crate::kernels::Ops;
use crate::runtime::cpu::kernels::{Block, KernelError, Param, Registry};
use crate::runtime::pool::Place;
use crate::runtime::streams::{Buffer, BufferKey, Slot, SlotKey, external};
use crate::slot::{ScalarArg, ScalarKind};
use crate::tensor::Window;
use crate::{Error, Result};

/// Memory of the host that devices reach.
const HOST: Space = Space::Host { pageable: false };

#[derive(Default)]
struct Level {
    builder: GraphBuilder,
    buffers: FxHashMap<BufferKey, BufferId>,
    slots: FxHashMap<SlotKey, SlotId>,
    /// The last node that everything is ordered by, and the first after it.
    barrier: Option<NodeId>,
    since: usize,
}

/// Records operations; what [`ExecutionContext::record`](crate::ExecutionContext::record) hands out.
pub struct OpRecorder {
    /// The graph, then the bodies that are open, from the outside in.
    levels: Vec<Level>,
    buffers: Vec<(BufferId, Buffer)>,
    slots: Vec<(SlotId, Slot)>,
    /// Names of slots.
    names: Names,
    /// Names of buffers; none where nobody will read them.
    buffer_names: Option<Names>,
    registry: Registry,
    /// The first error of an operation that had been recorded in part.
    doomed: Option<Error>,
}

/// A recording that is open.
pub(crate) struct Recording {
    pub recorder: RefCell<OpRecorder>,
    /// Tells this recording from every other while it lives.
    pub identity: Arc<()>,
}

impl Recording {
    /// Of a graph that is kept and looked at.
    pub fn new(name: &str) -> Self {
        Self { recorder: RefCell::new(OpRecorder::new(name)), identity: Arc::default() }
    }

    /// Of what is executed once.
    pub fn once_only(name: &str) -> Self {
        Self { recorder: RefCell::new(OpRecorder::once_only(name)), identity: Arc::default() }
    }

    /// Closes it.
    pub fn into_recorder(self) -> OpRecorder {
        self.recorder.into_inner()
    }
}

/// What a recording leaves.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub graph: ComputeGraph,
    pub buffers: Vec<(BufferId, Buffer)>,
    pub slots: Vec<(SlotId, Slot)>,
    pub registry: Registry,
}

/// Names that are given once each: one that is taken gets a number behind it.
#[derive(Default)]
struct Names(FxHashMap<String, u64>);

impl Names {
    fn own(&mut self, name: &str) -> String {
        let mut own = name.to_owned();
        while self.0.contains_key(&own) {
            let given = self.0.entry(name.to_owned()).or_default();
            *given += 1;
            own = format!("{name} ({given})");
        }
        self.0.insert(own.clone(), 1);
        own
    }
}

impl OpRecorder {
    fn new(name: &str) -> Self {
        Self { buffer_names: Some(Names::default()), ..Self::once_only(name) }
    }

    fn once_only(name: &str) -> Self {
        let root = Level { builder: GraphBuilder::new().named(name), ..Level::default() };
        Self {
            levels: vec![root],
            buffers: Vec::new(),
            slots: Vec::new(),
            names: Names::default(),
            buffer_names: None,
            registry: Registry::new(),
            doomed: None,
        }
    }

    fn top(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the root stays")
    }

    /// Records composed operations, scratch tensors included; see [`Ops`].
    pub fn ops(&mut self) -> Ops<'_> {
        Ops::new(&mut self.top().builder)
    }

    /// The builder of the graph or body that is being recorded.
    pub fn builder(&mut self) -> &mut GraphBuilder {
        &mut self.top().builder
    }

    /// The window as the graph sees it; its buffer is declared when it is first asked for.
    pub fn view(&mut self, window: &Window) -> View {
        let key = window.buffer.key();
        let root = &mut self.levels[0];
        let mut id = *root.buffers.entry(key).or_insert_with(|| {
            let space = match window.buffer.place() {
                Place::Device => Space::Device(0),
                Place::Host => HOST,
            };
            let own = self.buffer_names.as_mut().map(|names| names.own(window.buffer.name()));
            let name = own.as_deref().unwrap_or(window.buffer.name());
            let id = root.builder.declare(external(name, window.buffer.bytes(), space));
            self.buffers.push((id, window.buffer.clone()));
            id
        });
        for depth in 1..self.levels.len() {
            let (around, inner) = self.levels.split_at_mut(depth);
            let (around, inner) = (&around[depth - 1], &mut inner[0]);
            let outer = id;
            id = *inner
                .buffers
                .entry(key)
                .or_insert_with(|| inner.builder.outer_buffer(&around.builder, outer));
        }
        window.view.in_buffer(id)
    }

    /// A scalar as the graph takes it.
    pub fn scalar(&mut self, scalar: &ScalarArg) -> Arg {
        match &scalar.0 {
            ScalarKind::Baked(value) => Arg::Scalar(*value),
            ScalarKind::Slot(slot) => Arg::Slot(self.slot(slot)),
        }
    }

    /// A slot as the graph has it; declared when it is first asked for.
    pub(crate) fn slot(&mut self, slot: &Slot) -> SlotId {
        let key = slot.key();
        let root = &mut self.levels[0];
        let mut id = *root.slots.entry(key).or_insert_with(|| {
            // Slots of a graph have names of their own; those of handles may be the same.
            let id = root.builder.slot(&self.names.own(slot.name()), slot.default_value());
            self.slots.push((id, slot.clone()));
            id
        });
        for depth in 1..self.levels.len() {
            let (around, inner) = self.levels.split_at_mut(depth);
            let (around, inner) = (&around[depth - 1], &mut inner[0]);
            let outer = id;
            id = *inner
                .slots
                .entry(key)
                .or_insert_with(|| inner.builder.outer_slot(&around.builder, outer));
        }
        id
    }

    /// Keeps a host function for as long as the graph lives; the name that nodes call it by.
    pub(crate) fn host<F>(&mut self, name: &str, params: &[Param], function: F) -> String
    where
        F: Fn(&Block<'_>) -> std::result::Result<(), KernelError> + Send + Sync + 'static,
    {
        let unique = unique(name);
        self.registry.host(&unique, params, function);
        unique
    }

    /// Keeps what only the backend knows how to run for as long as the graph lives; the name that nodes call it by.
    #[cfg(feature = "cuda-api")]
    pub(crate) fn other(&mut self, name: &str, it: Arc<dyn std::any::Any + Send + Sync>) -> String {
        let unique = unique(name);
        self.registry.other(&unique, it);
        unique
    }

    /// A region of page-locked scratch memory for the contents of this one, and the copy that brings them there.
    pub(crate) fn stage(&mut self, name: &str, region: Region) -> Region {
        let role = BufferRole::Internal;
        let builder = self.builder();
        let staged = Declared { role, ..external(name, region.bytes, HOST) };
        let staged = Region { buffer: builder.declare(staged), offset: 0, bytes: region.bytes };
        builder.add_region_copy(name, region, staged);
        staged
    }

    /// Keeps the functions of a graph that becomes part of this one.
    pub(crate) fn keep_functions(&mut self, of: &Registry) {
        self.registry = self.registry.with(of);
    }

    /// Runs a piece of recording, orders what it has added, and remembers if it stopped halfway.
    pub(crate) fn piece<R>(
        &mut self,
        work: impl FnOnce(&mut OpRecorder) -> Result<R>,
    ) -> Result<R> {
        let (depth, first) = (self.levels.len(), self.top().builder.node_count());
        let before = self.doomed.replace(Error::Interrupted);
        let done = work(self);
        let level = &mut self.levels[depth - 1];
        let swapped = level.builder.node_count() < first;
        let partly = done.is_err() && level.builder.node_count() != first;
        self.doomed = before;
        if swapped {
            let error = Error::operand("a composed operation", "replaced the builder it was lent");
            self.doomed.get_or_insert(error.clone());
            return Err(error);
        }
        level.order(first);
        if let (true, Err(error)) = (partly, &done) {
            self.doomed.get_or_insert(error.clone());
        }
        done
    }

    /// The nodes of the innermost graph from `first` on write nothing but `writable` and scratch.
    pub(crate) fn check_writes(
        &mut self,
        op: &str,
        first: usize,
        writable: &[BufferId],
    ) -> Result<()> {
        let builder = &self.top().builder;
        for at in first..builder.node_count() {
            let node = builder.node(NodeId::from_index(at));
            for (region, access) in written(&node.kind) {
                let scratch = builder.buffer(region).role == BufferRole::Internal;
                if access.writes() && !scratch && !writable.contains(&region) {
                    return Err(Error::WritesInput { op: op.into(), buffer: region });
                }
            }
        }
        Ok(())
    }

    /// Starts a body; what is recorded goes there until [`leave`](Self::leave).
    pub(crate) fn enter(&mut self) -> usize {
        self.levels.push(Level::default());
        self.levels.len() - 1
    }

    /// The body that `enter` started.
    pub(crate) fn leave(&mut self, depth: usize) -> Result<ComputeGraph> {
        self.levels.truncate(depth + 1);
        let level = self.levels.pop().filter(|_| !self.levels.is_empty());
        Ok(level.ok_or(Error::Interrupted)?.builder.build()?)
    }

    /// Throws bodies away that were not left.
    pub(crate) fn abandon(&mut self, depth: usize) {
        self.levels.truncate(depth);
    }

    /// What is recorded in the outermost graph, and what its buffers and slots stand for, unless it is beyond use.
    #[expect(clippy::type_complexity, reason = "taken apart at once")]
    pub(crate) fn so_far(
        &self,
    ) -> Option<(&GraphBuilder, &[(BufferId, Buffer)], &[(SlotId, Slot)])> {
        let usable = self.doomed.is_none();
        usable.then(|| (&self.levels[0].builder, &*self.buffers, &*self.slots))
    }

    pub(crate) fn finish(mut self) -> Result<Recorded> {
        if let Some(error) = self.doomed {
            return Err(error);
        }
        let root = self.levels.swap_remove(0);
        let graph = root.builder.build()?;
        Ok(Recorded { graph, buffers: self.buffers, slots: self.slots, registry: self.registry })
    }
}

impl Level {
    /// Orders the nodes from `first` on behind the barrier, and makes one of those that name no memory.
    fn order(&mut self, first: usize) {
        for at in first..self.builder.node_count() {
            let id = NodeId::from_index(at);
            let opaque = names_no_memory(&self.builder.node(id).kind);
            if opaque {
                for before in self.since..at {
                    self.builder.dep(NodeId::from_index(before), id);
                }
                self.since = at + 1;
            }
            if let Some(barrier) = self.barrier {
                self.builder.dep(barrier, id);
            }
            if opaque {
                self.barrier = Some(id);
            }
        }
    }
}

/// A name that no other function has: a graph may become part of another one, with functions of its own.
fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{name}#{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether it is, or has inside, a function or foreign graph without operands.
fn names_no_memory(kind: &NodeKind) -> bool {
    // Few have graphs inside, and the others are looked at without a list.
    let (mut next, mut kinds) = (Some(kind), Vec::new());
    while let Some(kind) = next {
        let silent = match kind {
            NodeKind::Host(host) => host.effects.is_empty(),
            NodeKind::Kernel(kernel) => {
                let named = matches!(kernel.kernel, KernelRef::Named(_));
                named && kernel.args.iter().all(|arg| arg.effect().is_none())
            }
            _ => false,
        };
        if silent {
            return true;
        }
        let inside = kind.inner_graphs().iter().flat_map(ComputeGraph::nodes);
        kinds.extend(inside.map(|node| &node.kind));
        next = kinds.pop();
    }
    false
}

/// The buffers that a node names, with how it uses them.
fn written(kind: &NodeKind) -> Vec<(BufferId, Access)> {
    match kind {
        NodeKind::Kernel(kernel) => {
            let effects = kernel.args.iter().filter_map(Arg::effect);
            effects.map(|(region, access)| (region.buffer, access)).collect()
        }
        NodeKind::Memcpy(copy) => {
            let dst = copy.dst.region(copy.extent);
            dst.map(|region| (region.buffer, Access::Write)).into_iter().collect()
        }
        NodeKind::Memset(fill) => {
            let dst = fill.dst.region(fill.extent);
            dst.map(|region| (region.buffer, Access::Write)).into_iter().collect()
        }
        NodeKind::Host(host) => {
            host.effects.iter().map(|(region, access)| (region.buffer, *access)).collect()
        }
        _ => Vec::new(),
    }
}
