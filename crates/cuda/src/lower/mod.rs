//! From a graph and its schedule to a graph of the driver, node by node.
//!
//! In: a graph and a schedule, which the checker and the race check have to pass. Out: an [`Exec`]. The driver's edges
//! are the graph's edges, with their data, and the reuse edges of the memory plan; streams and events of the schedule
//! leave no trace. A node becomes one node of the driver, or as many as it takes: a conditional has a kernel before it
//! that hands over the value, a fill of slices with gaps is a node for each slice, a product by cuBLAS is a child graph.
//! A step of several nodes is as many launches: fusing is for passes over graphs. O(nodes + edges), besides compiling.

mod control;
mod kernel;
mod product;
mod record;
mod transfer;
mod words;

pub(crate) use record::Recorded;

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{
    CUfunction, CUgraph, CUgraphInstantiate_flags, CUgraphInstantiateResult, CUgraphNode,
    CUgraphNodeParams,
};
use phonograph_graph::{
    Buffer, BufferId, BufferRole, ComputeGraph, EdgeKind, Effects, EventId, NodeId, NodeKind,
    Schedule, SlotId, Space, Step, check, races,
};
use phonograph_runtime::cpu::NodePath;
use phonograph_runtime::cpu::kernels::KernelError;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::bindings::{Bindings, InstantiateError};
use crate::cublas::Handle;
use crate::cuda::Kernels;
use crate::device::Device;
use crate::error::{DriverError, Version};
use crate::exec::{
    Exec, Faults, Front, HostCall, Launch, Op, OpId, PointerSlot, ScalarSlot, Use, Work, is_on_host,
};
use crate::graph::{Dependencies, Executable, Graph, Refused, add_node, edge_data};
use crate::memory::{Memory, Owner};
use crate::module::Function;
use crate::order::{Turn, Uses};
use crate::stream::Event;

pub(crate) use product::Blas;
pub use product::ProductBy;

/// What lowering works with, of the [`Cuda`](crate::Cuda) that it is for.
pub(crate) struct Target<'a> {
    pub driver: Version,
    pub devices: &'a [Device],
    pub kernels: &'a mut Kernels,
    pub owner: &'a Arc<Owner>,
    pub blas: &'a mut Blas,
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
    let device = &target.devices[0];
    // Current for all of it, so that no node has to make it so.
    let _current = device.enter()?;
    let driver_graph = Graph::new(device)?;
    let scalar_slots = graph.slots().iter();
    let scalar_slots = scalar_slots
        .map(|slot| {
            let (uses, word) = (Vec::new(), None);
            ScalarSlot { dtype: slot.dtype(), value: slot.default, uses, word }
        })
        .collect();
    let mut lowering = Lowering {
        target,
        bindings,
        ops: Vec::new(),
        hosts: Vec::new(),
        arenas: Vec::new(),
        memory: FxHashMap::default(),
        events: bindings.events.clone(),
        scalar_slots,
        pointer_slots: FxHashMap::default(),
        faults: None,
        host_fault: Arc::default(),
        named: FxHashMap::default(),
        recipes: FxHashMap::default(),
        products: Vec::new(),
        blas: Vec::new(),
        functions: FxHashMap::default(),
        words: words::Words::default(),
        changeable: false,
        has_priorities: false,
        allocated: Vec::new(),
    };
    let bases = lowering.bind(graph)?;
    let slots = (0..graph.slots().len()).map(SlotId::from_index).collect();
    let mut scope = Scope {
        graph,
        schedule,
        driver: driver_graph.handle(),
        place: Place::Outermost,
        path: Vec::new(),
        bases,
        slots,
        ends: vec![SmallVec::new(); graph.node_count()],
    };
    lowering.room_for_words(graph)?;
    lowering.graph(&mut scope)?;
    let mut flags = 0;
    if lowering.has_priorities {
        flags |= CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
    }
    if !lowering.allocated.is_empty() {
        flags |= CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
    }
    let executable = Executable::new(&driver_graph, u64::from(flags))
        .map_err(|refused| scope.explain(refused))?;
    let by_cublas = lowering.products.iter().filter(|(_, by)| *by == ProductBy::Cublas);
    let graphs: FxHashSet<NodeId> = by_cublas.map(|(path, _)| path.0[0].0).collect();
    let switches = graph.node_ids().zip(scope.ends).map(|(id, ends)| {
        let kind = &graph.node(id).kind;
        let can_be_disabled =
            matches!(kind, NodeKind::Kernel(_) | NodeKind::Memcpy(_) | NodeKind::Memset(_));
        (can_be_disabled && !graphs.contains(&id)).then_some(ends)
    });
    let block = lowering.block();
    let slots = lowering.pointer_slots.iter();
    let unbound = slots.filter(|(_, slot)| slot.bound.is_none()).map(|(&buffer, _)| buffer);
    let (written, is_opaque) = touched(graph);
    let front = Front { executable, turn: Turn::default(), pending: true };
    Ok(Exec {
        unbound: unbound.collect(),
        changed: Vec::new(),
        retired: Vec::new(),
        front,
        products: lowering.products,
        _blas: lowering.blas,
        written,
        is_opaque,
        uses: Uses::default(),
        everything: lowering.target.everything.clone(),
        block,
        _functions: lowering.functions.into_values().collect(),
        switches: switches.collect(),
        _graph: driver_graph,
        ops: lowering.ops,
        hosts: lowering.hosts,
        arenas: lowering.arenas,
        memory: lowering.memory,
        pointer_slots: lowering.pointer_slots,
        scalar_slots: lowering.scalar_slots,
        events: lowering.events,
        faults: lowering.faults,
        device: device.clone(),
        host_fault: lowering.host_fault,
        owner: lowering.target.owner.clone(),
        last: None,
    })
}

/// That the schedule is right and conflicting accesses are ordered.
pub(crate) fn check_graph(
    graph: &ComputeGraph,
    schedule: &Schedule,
) -> Result<(), InstantiateError> {
    let violations = check(graph, schedule);
    if !violations.is_empty() {
        return Err(InstantiateError::Schedule(violations));
    }
    check_races(graph, &NodePath(Vec::new()))
}

/// The external buffers that the graph writes, and whether it may touch what it does not name.
fn touched(graph: &ComputeGraph) -> (FxHashSet<BufferId>, bool) {
    let (mut written, mut is_opaque) = (FxHashSet::default(), false);
    for id in graph.node_ids() {
        match graph.effects(id) {
            // What was observed holds for the inputs that were tried; waiting costs little.
            Effects::Observed(_) | Effects::Unknown => is_opaque = true,
            Effects::Known(operands) => {
                let writes = operands.into_iter().filter(|(_, access)| access.writes());
                let buffers = writes.map(|(region, _)| region.buffer);
                let external = |id: &BufferId| graph.buffer(*id).role == BufferRole::External;
                written.extend(buffers.filter(external));
            }
        }
    }
    (written, is_opaque)
}

/// Without an order between conflicting accesses the device would race, so such a graph is refused at any depth.
fn check_races(graph: &ComputeGraph, inside: &NodePath) -> Result<(), InstantiateError> {
    let races = races(graph);
    if !races.is_empty() {
        return Err(InstantiateError::Race { inside: inside.clone(), races });
    }
    for id in graph.node_ids() {
        let node = graph.node(id);
        for inner in node.kind.inner_graphs() {
            let mut path = inside.clone();
            path.0.push((id, node.name.to_string()));
            check_races(inner, &path)?;
        }
    }
    Ok(())
}

/// Where a buffer starts.
#[derive(Clone, Copy)]
enum Base {
    Address(u64),
    /// A pointer slot of the outermost graph.
    Slot(BufferId),
    /// An internal buffer that has no place: nothing of it is touched, or an allocation node is yet to come.
    None,
}

/// Where a graph stands, which decides what it may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outermost,
    Child,
    /// Somewhere inside a body of a conditional.
    Body,
}

/// A graph that is being lowered, and what its ids stand for.
struct Scope<'g> {
    graph: &'g ComputeGraph,
    schedule: &'g Schedule,
    driver: CUgraph,
    place: Place,
    /// The nodes around it.
    path: Vec<(NodeId, String)>,
    bases: Vec<Base>,
    /// The slots of the outermost graph.
    slots: Vec<SlotId>,
    /// Of each node that was lowered, the driver's nodes.
    ends: Vec<SmallVec<[CUgraphNode; 1]>>,
}

impl Scope<'_> {
    fn path(&self, id: NodeId) -> NodePath {
        let mut path = self.path.clone();
        path.push((id, self.graph.node(id).name.to_string()));
        NodePath(path)
    }

    fn unsupported(&self, id: NodeId, reason: impl Into<String>) -> InstantiateError {
        InstantiateError::Unsupported { node: self.path(id), reason: reason.into() }
    }

    fn refused(&self, id: NodeId) -> impl Fn(DriverError) -> InstantiateError + '_ {
        move |source| InstantiateError::Node { node: self.path(id), source }
    }

    /// Whether an edge to the node or from it is not a full one.
    fn has_weak_edges(&self, id: NodeId) -> bool {
        let weak = |to: NodeId| {
            let mut edges = self.graph.incoming(to);
            edges.any(|edge| (edge.from == id || to == id) && !edge.data.is_full())
        };
        let mut near = self.graph.successors(id).iter().copied().chain([id]);
        self.graph.has_weak_edges() && near.any(weak)
    }

    /// Names the node that the driver could not instantiate, if it is one of this graph.
    fn explain(&self, refused: Refused) -> InstantiateError {
        let Refused { error: source, verdict, node } = refused;
        let found = self.ends.iter().position(|ends| !node.is_null() && ends.contains(&node));
        match found {
            Some(at) => InstantiateError::Node { node: self.path(NodeId::from_index(at)), source },
            None => {
                let said = verdict != CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
                let verdict = if said { format!("{verdict:?}") } else { String::new() };
                InstantiateError::Graph { source, verdict }
            }
        }
    }
}

struct Lowering<'a> {
    target: Target<'a>,
    bindings: &'a Bindings<'a>,
    ops: Vec<Op>,
    hosts: Vec<Arc<HostCall>>,
    arenas: Vec<Memory>,
    memory: FxHashMap<BufferId, Memory>,
    events: FxHashMap<EventId, Event>,
    scalar_slots: Vec<ScalarSlot>,
    pointer_slots: FxHashMap<BufferId, PointerSlot>,
    faults: Option<Faults>,
    host_fault: Arc<Mutex<Option<(NodePath, KernelError)>>>,
    /// What the driver says of the kernels that were bound by name, asked once.
    named: FxHashMap<Arc<str>, kernel::Named>,
    /// The generated kernels so far.
    recipes: FxHashMap<kernel::Shape, Rc<kernel::Recipe>>,
    /// The functions that nodes launch, by their handles.
    functions: FxHashMap<CUfunction, Function>,
    words: words::Words,
    products: Vec<(NodePath, ProductBy)>,
    blas: Vec<Arc<Mutex<Handle>>>,
    /// Whether the operation that comes next has a parameter that changes.
    changeable: bool,
    has_priorities: bool,
    /// Buffers that allocation nodes made and no node has freed.
    allocated: Vec<BufferId>,
}

impl<'a> Lowering<'a> {
    /// Memory for the external buffers of the outermost graph, and its pointer slots.
    fn bind(&mut self, graph: &ComputeGraph) -> Result<Vec<Base>, InstantiateError> {
        let problem = |buffer, problem: String| InstantiateError::Binding { buffer, problem };
        let mut given: FxHashMap<BufferId, &Memory> = FxHashMap::default();
        for (at, &(buffer, memory)) in self.bindings.memory.iter().enumerate() {
            let Some(declared) = graph.buffers().get(buffer.index()) else {
                return Err(problem(buffer, "is for a buffer that the graph does not have".into()));
            };
            if !matches!(declared.role, BufferRole::External | BufferRole::Slot(_)) {
                return Err(problem(
                    buffer,
                    format!("is for {}, which is internal", declared.name),
                ));
            }
            if !memory.belongs_to(self.target.owner) {
                return Err(problem(buffer, "belongs to another device".into()));
            }
            let on_host = is_on_host(declared);
            let device = self.device_of(buffer, declared)?;
            if memory.is_on_host() != on_host || !(on_host || memory.device().is(device)) {
                let place = if on_host { "in host memory" } else { "on that device" };
                return Err(problem(
                    buffer,
                    format!("is not {place}, where {} is declared", declared.name),
                ));
            }
            if memory.bytes() < declared.bytes {
                let (has, needs) = (memory.bytes(), declared.bytes);
                let name = &declared.name;
                return Err(problem(buffer, format!("has {has} bytes; {name} needs {needs}")));
            }
            if !memory.address().is_multiple_of(declared.align) {
                return Err(problem(buffer, format!("is not aligned to {} bytes", declared.align)));
            }
            let earlier = &self.bindings.memory[..at];
            if let Some((other, _)) = earlier.iter().find(|(_, m)| m.overlaps(memory)) {
                return Err(problem(
                    buffer,
                    format!("is bound to {other} as well; operands must not overlap"),
                ));
            }
            given.insert(buffer, memory);
        }
        let mut bases = Vec::with_capacity(graph.buffers().len());
        for (index, declared) in graph.buffers().iter().enumerate() {
            let buffer = BufferId::from_index(index);
            let given = given.get(&buffer).map(|&memory| memory.clone());
            bases.push(match declared.role {
                BufferRole::External => {
                    let memory = match given {
                        Some(memory) => memory,
                        None => self.allocate(buffer, declared, declared.bytes)?,
                    };
                    let base = Base::Address(memory.address());
                    self.memory.insert(buffer, memory);
                    base
                }
                BufferRole::Slot(access) => {
                    let writes = access.writes();
                    let (bytes, on_host) = (declared.bytes, is_on_host(declared));
                    // The driver wants every node to name memory of the right kind from the start.
                    let stand_in = match given {
                        Some(_) => None,
                        None => Some(self.allocate(buffer, declared, bytes)?),
                    };
                    let uses = Vec::new();
                    let slot = PointerSlot { bytes, on_host, writes, bound: given, stand_in, uses };
                    self.pointer_slots.insert(buffer, slot);
                    Base::Slot(buffer)
                }
                BufferRole::Internal | BufferRole::Outer(_) => Base::None,
            });
        }
        Ok(bases)
    }

    /// The device that a buffer lives on; for host memory any.
    fn device_of(&self, id: BufferId, declared: &Buffer) -> Result<&'a Device, InstantiateError> {
        let bad = |problem| {
            let name = declared.name.to_string();
            Err(InstantiateError::Buffer { buffer: id, name, problem })
        };
        match declared.space {
            Space::Device(index) => match self.target.devices.get(index as usize) {
                Some(device) => Ok(device),
                None => {
                    let open = self.target.devices.len();
                    bad(format!("is declared on device {index}; {open} are open"))
                }
            },
            Space::Host { pageable: true } => {
                bad("is declared in pageable host memory; page-locked memory is needed".to_owned())
            }
            Space::Host { pageable: false } | Space::Unknown => Ok(&self.target.devices[0]),
        }
    }

    /// Zeroed memory where a buffer is declared.
    fn allocate(
        &self,
        id: BufferId,
        declared: &Buffer,
        bytes: u64,
    ) -> Result<Memory, InstantiateError> {
        let device = self.device_of(id, declared)?;
        let owner = self.target.owner;
        let memory = if is_on_host(declared) {
            Memory::on_host(owner, device, bytes)?
        } else {
            Memory::on_device(owner, device, bytes)?
        };
        if !memory.address().is_multiple_of(declared.align) {
            let problem = format!("asks for an alignment of {} bytes", declared.align);
            let name = declared.name.to_string();
            return Err(InstantiateError::Buffer { buffer: id, name, problem });
        }
        Ok(memory)
    }

    /// Allocates the pools of the schedule and lowers the nodes in issue order.
    fn graph(&mut self, scope: &mut Scope<'_>) -> Result<(), InstantiateError> {
        self.place_internal(scope)?;
        let mut reuse: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        for &(from, to) in &scope.schedule.reuse {
            reuse.entry(to).or_default().push(from);
        }
        // Issue order puts producers first: the checker has seen that streams and events keep every edge.
        let mut after = Dependencies::default();
        for id in issued(scope.schedule) {
            after.clear();
            for edge in scope.graph.incoming(id) {
                let programmatic = edge.data.kind == EdgeKind::Programmatic;
                if programmatic && self.target.devices.iter().any(|d| d.capability() < (9, 0)) {
                    let reason =
                        "a weak edge leads to it; devices before compute capability 9.0 have none";
                    return Err(scope.unsupported(id, reason));
                }
                let data = edge_data(edge.data.from_port, edge.data.to_port, programmatic);
                scope.ends[edge.from.index()].iter().for_each(|&end| after.push(end, data));
            }
            for from in reuse.get(&id).into_iter().flatten() {
                scope.ends[from.index()].iter().for_each(|&end| after.push_full(end));
            }
            scope.ends[id.index()] = self.node(scope, id, &after)?;
        }
        Ok(())
    }

    fn place_internal(&mut self, scope: &mut Scope<'_>) -> Result<(), InstantiateError> {
        let mut pools: FxHashMap<Space, u64> = FxHashMap::default();
        for (index, declared) in scope.graph.buffers().iter().enumerate() {
            let buffer = BufferId::from_index(index);
            let offset = scope.schedule.memory.offset(buffer);
            let (BufferRole::Internal, Some(offset)) = (declared.role, offset) else { continue };
            let start = match pools.get(&declared.space) {
                Some(&start) => start,
                None => {
                    let bytes = scope.schedule.memory.pools[&declared.space];
                    let pool = self.allocate(buffer, declared, bytes)?;
                    let start = *pools.entry(declared.space).or_insert(pool.address());
                    self.arenas.push(pool);
                    start
                }
            };
            if !start.is_multiple_of(declared.align) {
                let problem = format!("asks for an alignment of {} bytes", declared.align);
                let name = declared.name.to_string();
                return Err(InstantiateError::Buffer { buffer, name, problem });
            }
            scope.bases[index] = Base::Address(start + offset);
        }
        Ok(())
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
            NodeKind::Kernel(kernel) => self.kernel(scope, id, kernel, after),
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

    /// The address of a buffer as it is now, and the pointer slot that it is.
    fn resolve(&self, scope: &Scope<'_>, buffer: BufferId) -> (u64, Option<BufferId>) {
        match scope.bases[buffer.index()] {
            Base::Address(address) => (address, None),
            Base::Slot(slot) => {
                let known = &self.pointer_slots[&slot];
                let memory = known.bound.as_ref().or(known.stand_in.as_ref());
                (memory.map_or(0, Memory::address), Some(slot))
            }
            // Only a buffer of no bytes is used without a place, and nothing of it is touched.
            Base::None => (0, None),
        }
    }

    /// Notes that an address is to be changed when memory is bound to the slot.
    fn note(&mut self, slot: Option<BufferId>, place: Use) {
        if let Some(slot) = slot {
            self.changeable |= !matches!(place, Use::Word(..));
            let slot = self.pointer_slots.get_mut(&slot).expect("`bind` has one for each");
            slot.uses.push(place);
        }
    }

    fn next_op(&self) -> OpId {
        OpId(self.ops.len() as u32)
    }

    /// Adds to `graph` a node whose parameters can be changed later if a slot is among them, for a node of `scope`.
    ///
    /// # Safety
    /// As for [`add_node`]; the parameters are those of `work`.
    unsafe fn add(
        &mut self,
        scope: &Scope<'_>,
        graph: CUgraph,
        id: NodeId,
        after: &Dependencies,
        params: &mut CUgraphNodeParams,
        work: Work,
    ) -> Result<CUgraphNode, InstantiateError> {
        // SAFETY: the caller's promise.
        let node = unsafe { add_node(graph, after, params) }.map_err(scope.refused(id))?;
        if let Work::Kernel(Launch { function, .. }) = &work {
            self.functions.entry(function.handle()).or_insert_with(|| function.clone());
        }
        if std::mem::take(&mut self.changeable) {
            self.ops.push(Op { node, work, changed: false });
        }
        Ok(node)
    }
}

/// The nodes of a schedule in issue order.
pub(crate) fn issued(schedule: &Schedule) -> impl Iterator<Item = NodeId> + '_ {
    let runs = schedule.steps.iter().filter_map(|step| match step {
        Step::Run { nodes, .. } => Some(nodes),
        Step::Record { .. } | Step::Wait { .. } => None,
    });
    runs.flatten().copied()
}
