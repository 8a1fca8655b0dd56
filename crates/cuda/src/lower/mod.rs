//! From a graph and its schedule to a graph of the driver, node by node.
//!
//! In: a graph and a schedule, which the checker and the race check have to pass. Out: an [`Exec`]. The driver's edges
//! are the graph's edges, with their data, and the reuse edges of the memory plan; streams and events of the schedule
//! leave no trace. A node becomes one node of the driver, or as many as it takes: a conditional has a kernel before it
//! that hands over the value, a fill of slices with gaps is a node for each slice, a product by cuBLAS is a child graph.
//! A step of several nodes is as many launches: fusing is for passes over graphs. A graph that begins or ends in many places gets a
//! kernel before all others and one behind them (`ends`), a very large one becomes several of the driver's, one after
//! another (`parts`). Nodes of the outermost graph are noted before they are made ([`made`](crate::made)): where an earlier
//! graph's executable serves, they never are. O(nodes + edges), besides compiling.

mod bases;
mod control;
mod ends;
mod foreign;
mod kernel;
mod parts;
mod product;
mod record;
mod scope;
mod transfer;
mod words;

pub(crate) use record::Recorded;

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{CUfunction, CUgraph, CUgraphNode};
use phonograph_graph::{
    BufferId, BufferRole, ComputeGraph, EdgeKind, EventId, NodeId, NodeKind, Operands, Schedule,
    SlotId, Step,
};
use phonograph_runtime::cpu::kernels::KernelError;
use phonograph_runtime::refused::{NodePath, can_be_disabled, check_graph};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::adopted::Adopted;
use crate::bindings::{Bindings, InstantiateError};
use crate::cublas::Handle;
use crate::cuda::Kernels;
use crate::device::Device;
use crate::error::Version;
use crate::exec::{Exec, Faults};
use crate::front::{Front, PartId};
use crate::graph::{Behind, Dependencies, data_of};
use crate::host_call::HostCall;
use crate::made::Made;
use crate::memory::{Memory, Owner};
use crate::module::Function;
use crate::order::{Turn, Uses};
use crate::profile::Split;
use crate::slots::{Op, OpId, PointerSlot, ScalarSlot, Work};
use crate::spares::Spares;
use crate::stream::{Event, Stream};

pub(crate) use product::Blas;
pub use product::ProductBy;
use scope::{Place, Scope};

/// What lowering works with, of the [`Cuda`](crate::Cuda) that it is for.
pub(crate) struct Target<'a> {
    pub driver: Version,
    pub devices: &'a [Device],
    pub kernels: &'a mut Kernels,
    pub owner: &'a Arc<Owner>,
    pub blas: &'a mut Blas,
    /// Executables that can be taken instead of making some.
    pub spares: &'a Arc<Spares>,
    /// Launches of all executables.
    pub everything: &'a Arc<Uses>,
}

pub(crate) fn instantiate(
    target: Target<'_>,
    graph: &ComputeGraph,
    schedule: &Schedule,
    bindings: &Bindings<'_>,
) -> Result<Exec, InstantiateError> {
    check_graph(graph, schedule)?;
    instantiate_checked(target, graph, schedule, bindings, How::default())
}

/// How a graph is made executable.
#[derive(Clone, Copy, Default)]
pub(crate) struct How<'a> {
    /// The stream on which it is uploaded, if it is.
    pub upload: Option<&'a Stream>,
    /// Whether the nodes run one after another, with events recorded between them.
    pub timed: bool,
    /// Whether a large graph may become several executables.
    pub in_parts: bool,
    /// Whether the driver has to instantiate it even if there is an executable that could be brought up to date.
    pub anew: bool,
}

/// The same for a graph that [`check_graph`] has found right.
pub(crate) fn instantiate_checked(
    target: Target<'_>,
    graph: &ComputeGraph,
    schedule: &Schedule,
    bindings: &Bindings<'_>,
    how: How<'_>,
) -> Result<Exec, InstantiateError> {
    let device = &target.devices[0];
    // Current for all of it, so that no node has to make it so.
    let _current = device.enter()?;
    let scalar_slots = graph.slots().iter().map(|slot| ScalarSlot::new(slot.default)).collect();
    let mut lowering = Lowering::new(target, bindings, Held { scalar_slots, ..Held::default() });
    lowering.events = bindings.events.clone();
    let bases = lowering.bind(graph)?;
    let slots = (0..graph.slots().len()).map(SlotId::from_index).collect();
    let mut scope = Scope::new(graph, schedule, ptr::null_mut(), bases, slots);
    lowering.room_for_words(graph)?;
    let (origins, mut executables) = lowering.outermost(&mut scope, how)?;
    let by_cublas = lowering.held.products.iter().filter(|(_, by)| *by == ProductBy::Cublas);
    let by_cublas: FxHashSet<NodeId> = by_cublas.map(|(path, _)| path.0[0].0).collect();
    let switches = graph.node_ids().zip(scope.ends).map(|(id, ends)| {
        let can_be_disabled = can_be_disabled(&graph.node(id).kind) && !by_cublas.contains(&id);
        can_be_disabled.then_some(ends)
    });
    let block = lowering.block();
    let slots = lowering.pointer_slots.iter();
    let unbound = slots.filter(|(_, slot)| slot.bound.is_none()).map(|(&buffer, _)| buffer);
    let (written, is_opaque) = touched(graph);
    let executable = executables.remove(0);
    let rest = executables.into();
    let front = Front { executable, turn: Turn::default(), pending: true, rest };
    let given = bindings.memory.iter().map(|&(buffer, memory)| (buffer, memory));
    let adopted = Adopted::new(graph, given, !lowering.pointer_slots.is_empty());
    Ok(Exec {
        adopted,
        split: lowering.split,
        unbound: unbound.collect(),
        changed: Vec::new(),
        retired: Vec::new(),
        front,
        products: lowering.held.products,
        _blas: lowering.blas,
        written,
        is_opaque,
        uses: Uses::default(),
        everything: lowering.target.everything.clone(),
        block,
        functions: lowering.held.functions.into_values().collect(),
        switches: switches.collect(),
        parts: scope.parts.into(),
        origins,
        ops: lowering.held.ops,
        hosts: lowering.held.hosts,
        arenas: lowering.held.arenas,
        memory: lowering.memory,
        pointer_slots: lowering.pointer_slots,
        scalar_slots: lowering.held.scalar_slots,
        events: lowering.events,
        faults: lowering.held.faults,
        device: device.clone(),
        host_fault: lowering.held.host_fault,
        owner: lowering.target.owner.clone(),
        last: None,
        renewed: lowering.renewed,
        spares: Arc::downgrade(lowering.target.spares),
        is_changed: Cell::new(false),
    })
}

/// The external buffers that the graph writes, and whether it may touch what it does not name.
fn touched(graph: &ComputeGraph) -> (FxHashSet<BufferId>, bool) {
    let (mut written, mut is_opaque) = (FxHashSet::default(), false);
    let mut operands = Operands::new();
    for id in graph.node_ids() {
        // What was observed holds for the inputs that were tried; waiting costs little.
        if graph.observed(id).is_some() || graph.is_opaque(id) {
            is_opaque = true;
            continue;
        }
        operands.clear();
        graph.add_operands(id, &mut operands);
        let writes = operands.iter().filter(|(_, access)| access.writes());
        let buffers = writes.map(|(region, _)| region.buffer);
        written.extend(buffers.filter(|id| graph.buffer(*id).role == BufferRole::External));
    }
    (written, is_opaque)
}

/// What the nodes so far refer to, and what is said of them.
#[derive(Default)]
struct Held {
    ops: Vec<Op>,
    hosts: Vec<Arc<HostCall>>,
    arenas: Vec<Memory>,
    scalar_slots: Vec<ScalarSlot>,
    words: words::Words,
    /// The functions that nodes launch, by their handles.
    functions: FxHashMap<CUfunction, Function>,
    products: Vec<(NodePath, ProductBy)>,
    faults: Option<Faults>,
    host_fault: Arc<Mutex<Option<(NodePath, KernelError)>>>,
    has_priorities: bool,
    /// What the driver says of the kernels that were bound by name, asked once.
    named: FxHashMap<Arc<str>, Arc<kernel::Named>>,
}

struct Lowering<'a> {
    target: Target<'a>,
    bindings: &'a Bindings<'a>,
    held: Held,
    memory: FxHashMap<BufferId, Memory>,
    events: FxHashMap<EventId, Event>,
    pointer_slots: FxHashMap<BufferId, PointerSlot>,
    /// The generated kernels so far.
    recipes: FxHashMap<kernel::Shape, Rc<kernel::Recipe>>,
    blas: Vec<Arc<Mutex<Handle>>>,
    /// Whether the operation that comes next has a parameter that changes.
    changeable: bool,
    /// The part of the outermost graph that nodes are added to.
    part: PartId,
    /// Buffers that allocation nodes made and no node has freed.
    allocated: Vec<BufferId>,
    /// What times the nodes of the outermost graph.
    split: Option<Split>,
    /// The nodes of this part, as long as they are noted and not added to the driver's graph.
    made: Option<Made>,
    /// How many parts are executables of earlier graphs.
    renewed: usize,
}

impl<'a> Lowering<'a> {
    fn new(target: Target<'a>, bindings: &'a Bindings<'a>, held: Held) -> Self {
        Self {
            target,
            bindings,
            held,
            memory: FxHashMap::default(),
            events: FxHashMap::default(),
            pointer_slots: FxHashMap::default(),
            recipes: FxHashMap::default(),
            blas: Vec::new(),
            changeable: false,
            part: PartId(0),
            allocated: Vec::new(),
            split: None,
            made: None,
            renewed: 0,
        }
    }

    /// Allocates the pools of the schedule and lowers the nodes of a graph inside a node, in issue order.
    fn graph(&mut self, scope: &mut Scope<'_>) -> Result<(), InstantiateError> {
        self.place_internal(scope)?;
        let order: Vec<NodeId> = issued(scope.schedule).collect();
        self.nodes(scope, &reuse(scope.schedule), &order)
    }

    /// Lowers nodes, in issue order.
    fn nodes(
        &mut self,
        scope: &mut Scope<'_>,
        reuse: &FxHashMap<NodeId, Vec<NodeId>>,
        order: &[NodeId],
    ) -> Result<(), InstantiateError> {
        // Issue order puts producers first: the checker has seen that streams and events keep every edge.
        let (mut after, mut behind) = (Dependencies::default(), Behind::default());
        // With several devices, nodes of one would wait for kernels of another.
        let has_ends = scope.place == Place::Outermost
            && self.split.is_none()
            && self.target.devices.len() == 1;
        if has_ends {
            self.begin_as_one(scope, reuse, order)?;
        }
        for &id in order {
            after.clear();
            if let Some(of_those_before) = self.make_before(scope, id)? {
                behind = of_those_before;
            }
            let graph = scope.graph;
            for edge in graph.incoming(id) {
                if !self.is_here(scope, edge.from) {
                    continue;
                }
                let programmatic = edge.data.kind == EdgeKind::Programmatic;
                if programmatic && self.target.devices.iter().any(|d| d.capability() < (9, 0)) {
                    let reason =
                        "a weak edge leads to it; devices before compute capability 9.0 have none";
                    return Err(scope.unsupported(id, reason));
                }
                let data = data_of(edge.data);
                scope.is_followed[edge.from.index()] = true;
                scope.ends[edge.from.index()]
                    .iter()
                    .for_each(|&end| after.push_or_defer(end, data));
            }
            for &from in reuse.get(&id).into_iter().flatten() {
                if !self.is_here(scope, from) {
                    continue;
                }
                scope.is_followed[from.index()] = true;
                scope.ends[from.index()].iter().for_each(|&end| after.push_full(end));
            }
            if after.is_empty() {
                scope.beginnings.next().into_iter().for_each(|first| after.push_full(first));
            }
            let outermost = scope.place == Place::Outermost;
            match self.split.as_ref().filter(|_| outermost) {
                None => {
                    let ends = self.node(scope, id, &after)?;
                    // A kernel is one node of the driver. One that is noted is noted with all its edges.
                    if self.noted(scope, scope.driver).is_none() {
                        ends.iter().take(1).for_each(|&node| behind.take(node, &after));
                    }
                    scope.ends[id.index()] = ends;
                }
                Some(split) => {
                    // One after another is an order that keeps every other.
                    let ends = self.node(scope, id, &split.after())?;
                    self.time(scope, id, &ends)?;
                    scope.ends[id.index()] = ends;
                }
            }
        }
        if has_ends {
            self.end_as_one(scope, order)?;
        }
        // SAFETY: the nodes were added to this graph, which lives.
        Ok(unsafe { behind.add(scope.driver) }?)
    }

    /// Whether a node is in the part that nodes are added to. What is in another is launched before it.
    fn is_here(&self, scope: &Scope<'_>, id: NodeId) -> bool {
        scope.parts.is_empty() || scope.parts[id.index()] == self.part
    }

    /// Records an event after a node.
    fn time(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        ends: &SmallVec<[CUgraphNode; 1]>,
    ) -> Result<(), InstantiateError> {
        let Some(split) = &mut self.split else { return Ok(()) };
        let takes_time = !matches!(
            scope.graph.node(id).kind,
            NodeKind::Empty | NodeKind::EventRecord(_) | NodeKind::EventWait(_)
        );
        split.passed(scope.driver, id, ends, takes_time).map_err(scope.refused(id))
    }

    /// Lowers one node; gives the driver's nodes whose completion is its own.
    fn node(
        &mut self,
        scope: &mut Scope<'_>,
        id: NodeId,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let node = scope.graph.node(id);
        let only_in = |allowed: bool, place: &str| {
            if allowed {
                return Ok(());
            }
            let reason = format!("{place} cannot hold a node of kind {}", node.kind.name());
            Err(scope.unsupported(id, reason))
        };
        match &node.kind {
            NodeKind::Host(_) | NodeKind::EventRecord(_) | NodeKind::EventWait(_) => {
                only_in(scope.place != Place::Body, "the body of a conditional")?;
            }
            NodeKind::Alloc(_) | NodeKind::Free(_) => {
                only_in(scope.place == Place::Outermost, "a graph inside a node")?;
            }
            _ => {}
        }
        match &node.kind {
            NodeKind::Kernel(kernel) => match self.foreign(scope, id, kernel, after)? {
                Some(nodes) => Ok(nodes),
                None => self.kernel(scope, id, kernel, after),
            },
            NodeKind::Memcpy(copy) => self.copy(scope, id, copy, after),
            NodeKind::Memset(fill) => self.fill(scope, id, fill, after),
            NodeKind::Host(_) => self.host(scope, id, after),
            NodeKind::Empty => self.empty(scope, id, after),
            NodeKind::EventRecord(event) => self.event(scope, id, *event, true, after),
            NodeKind::EventWait(event) => self.event(scope, id, *event, false, after),
            NodeKind::Alloc(buffer) => self.alloc(scope, id, *buffer, after),
            NodeKind::Free(buffer) => self.free(scope, id, *buffer, after),
            NodeKind::Child(graph) => self.child(scope, id, graph, after),
            NodeKind::Conditional(conditional) => self.conditional(scope, id, conditional, after),
        }
    }

    /// All that is in a body of a conditional runs on the device that decides.
    fn check_body(
        &self,
        scope: &Scope<'_>,
        id: NodeId,
        device: u32,
    ) -> Result<(), InstantiateError> {
        if scope.place == Place::Body && device != self.target.devices[0].ordinal() {
            let reason = "the body of a conditional cannot hold work of another device";
            return Err(scope.unsupported(id, reason));
        }
        Ok(())
    }

    fn next_op(&self) -> OpId {
        OpId(self.held.ops.len() as u32)
    }

    /// Makes the nodes that were only noted so far if this one cannot be noted, nor then those after it; gives their edges that
    /// have to come behind all others.
    fn make_before(
        &mut self,
        scope: &mut Scope<'_>,
        id: NodeId,
    ) -> Result<Option<Behind>, InstantiateError> {
        if self.made.is_none() || scope.place != Place::Outermost {
            return Ok(None);
        }
        let is_plain = match &scope.graph.node(id).kind {
            NodeKind::Kernel(kernel) => self.is_plain(scope, id, kernel)?,
            NodeKind::Memcpy(_) | NodeKind::Memset(_) | NodeKind::Empty => true,
            _ => false,
        };
        let Some(mut made) = self.made.take_if(|_| !is_plain) else { return Ok(None) };
        // SAFETY: the graph lives, and what the nodes name is what the `Exec` will hold.
        let nodes = unsafe { made.make(&self.target.devices[0], scope.driver) };
        let (nodes, behind) = nodes.map_err(|refused| scope.explain(self.part, refused))?;
        made.settle(nodes);
        for end in scope.ends_in(self.part).flat_map(|(_, ends)| ends) {
            *end = made.now(*end);
        }
        scope.beginnings.kernels_mut().iter_mut().for_each(|node| *node = made.now(*node));
        for op in self.held.ops.iter_mut().filter(|op| op.part == self.part) {
            op.node = made.now(op.node);
        }
        Ok(Some(behind))
    }

    /// What notes the nodes for this graph of the driver's instead of adding them, if it is the outermost and they are noted.
    fn noted(&mut self, scope: &Scope<'_>, graph: CUgraph) -> Option<&mut Made> {
        let outermost = scope.place == Place::Outermost && graph == scope.driver;
        self.made.as_mut().filter(|_| outermost)
    }

    /// Notes a node of the driver's that was added: its parameters are kept if a slot is among them.
    fn added(&mut self, node: CUgraphNode, work: impl FnOnce() -> Work) {
        if std::mem::take(&mut self.changeable) {
            self.held.ops.push(Op { node, work: work(), part: self.part, changed: false });
        }
    }
}

/// Of each node, those whose memory it takes over.
fn reuse(schedule: &Schedule) -> FxHashMap<NodeId, Vec<NodeId>> {
    let mut reuse: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
    for &(from, to) in &schedule.reuse {
        reuse.entry(to).or_default().push(from);
    }
    reuse
}

/// The nodes of a schedule in issue order.
pub(crate) fn issued(schedule: &Schedule) -> impl Iterator<Item = NodeId> + '_ {
    let runs = schedule.steps.iter().filter_map(|step| match step {
        Step::Run { nodes, .. } => Some(nodes),
        Step::Record { .. } | Step::Wait { .. } => None,
    });
    runs.flatten().copied()
}
