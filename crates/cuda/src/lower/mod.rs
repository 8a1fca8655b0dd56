//! From a graph and its schedule to a graph of the driver, node by node.
//!
//! In: a graph and a schedule, which the checker and the race check have to pass. Out: an [`Exec`]. The driver's edges
//! are the graph's edges, with their data, and the reuse edges of the memory plan; streams and events of the schedule
//! leave no trace. A node becomes one node of the driver, or as many as it takes: a conditional has a kernel before it
//! that hands over the value, a fill of slices with gaps is a node for each slice, a product by cuBLAS is a child graph.
//! A step of several nodes is as many launches: fusing is for passes over graphs. O(nodes + edges), besides compiling.

mod bases;
mod control;
mod foreign;
mod kernel;
mod product;
mod record;
mod scope;
mod transfer;
mod words;

pub(crate) use record::Recorded;

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{CUfunction, CUgraphInstantiate_flags, CUgraphNode};
use phonograph_graph::{
    BufferId, BufferRole, ComputeGraph, EdgeKind, Effects, EventId, NodeId, NodeKind, Schedule,
    SlotId, Step, check,
};
use phonograph_runtime::cpu::kernels::KernelError;
use phonograph_runtime::cpu::{NodePath, first_races};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::adopted::Adopted;
use crate::bindings::{Bindings, InstantiateError};
use crate::cublas::Handle;
use crate::cuda::Kernels;
use crate::device::Device;
use crate::error::Version;
use crate::exec::{Exec, Faults, Front, HostCall, Op, OpId, PointerSlot, ScalarSlot, Work};
use crate::graph::{Dependencies, Executable, Graph, edge_data};
use crate::launch::Launch;
use crate::memory::{Memory, Owner};
use crate::module::Function;
use crate::order::{Turn, Uses};
use crate::profile::Split;
use crate::stream::Event;

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
    /// Launches of all executables.
    pub everything: &'a Arc<Uses>,
}

/// With `timed` the nodes run one after another, and events are recorded between them.
pub(crate) fn instantiate(
    target: Target<'_>,
    graph: &ComputeGraph,
    schedule: &Schedule,
    bindings: &Bindings<'_>,
    timed: bool,
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
        split: if timed { Some(Split::begin(device, driver_graph.handle())?) } else { None },
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
    let given = bindings.memory.iter().map(|&(buffer, memory)| (buffer, memory));
    let adopted = Adopted::new(graph, given, !lowering.pointer_slots.is_empty());
    Ok(Exec {
        adopted,
        split: lowering.split,
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
    // The device would race where conflicting accesses have no order.
    match first_races(graph) {
        Some((inside, races)) => Err(InstantiateError::Race { inside, races }),
        None => Ok(()),
    }
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
    named: FxHashMap<Arc<str>, Arc<kernel::Named>>,
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
    /// What times the nodes of the outermost graph.
    split: Option<Split>,
}

impl<'a> Lowering<'a> {
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
            let outermost = scope.place == Place::Outermost;
            match self.split.as_ref().filter(|_| outermost) {
                None => scope.ends[id.index()] = self.node(scope, id, &after)?,
                Some(split) => {
                    // One after another is an order that keeps every other.
                    let ends = self.node(scope, id, &split.after())?;
                    self.time(scope, id, &ends)?;
                    scope.ends[id.index()] = ends;
                }
            }
        }
        Ok(())
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
        OpId(self.ops.len() as u32)
    }

    /// Notes a node of the driver's that was added: its function is kept, and the parameters if a slot is among them.
    fn added(&mut self, node: CUgraphNode, work: Work) {
        if let Work::Kernel(Launch { function, .. }) = &work {
            self.functions.entry(function.handle()).or_insert_with(|| function.clone());
        }
        if std::mem::take(&mut self.changeable) {
            self.ops.push(Op { node, work, changed: false });
        }
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
