//! From a graph and its schedule to tables that a replay walks.
//!
//! Streams fold onto workers. A node whose work is worth it is split into ranges of tiles, one a worker; the bits of
//! the result do not depend on how. Everything that can be wrong is found here, before anything has run.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use phonograph_graph::{
    Buffer, BufferId, BufferRole, ComputeGraph, Condition, EventId, NamedNode, NodeId, NodeKind,
    Schedule, SlotId, Step,
};
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::event::Event;
use super::exec::{
    ConditionValue, Exec, Op, Part, PointerSlot, Run, RunId, Runs, ScalarSlot, Task, Use, Work,
    WorkerScratch,
};
use super::kernels::{PrepareError, Prepared, Registry, ScalarSource};
use super::memory::{Allocation, DeviceToken, Memory, OutOfMemory};
use super::program::{ProgramBuilder, ProgramError, TaskId, WorkerId};
use crate::refused::{Refused, SlotExtent, can_be_disabled, check_bindings, check_graph};

/// A part of a split node is worth handing to another worker from this much work on; a hand-over costs about a microsecond.
const SPLIT_NS: u64 = 10_000;

/// Kernels take elements of any type to be aligned, given that their buffer is aligned so.
const MIN_ALIGN: u64 = 8;

/// What a graph refers to and the user provides.
#[derive(Clone, Debug)]
pub struct Bindings<'a> {
    registry: &'a Registry,
    memory: Vec<(BufferId, &'a Memory)>,
    events: Vec<(EventId, Event)>,
}

impl<'a> Bindings<'a> {
    /// Functions by name, and nothing else.
    pub fn new(registry: &'a Registry) -> Self {
        Self { registry, memory: Vec::new(), events: Vec::new() }
    }

    /// Memory for an external buffer or a pointer slot. An external buffer without any gets zeroed memory of its own
    /// ([`Exec::memory`]).
    pub fn memory(mut self, buffer: BufferId, memory: &'a Memory) -> Self {
        self.memory.push((buffer, memory));
        self
    }

    /// An event that the graph records or waits for. One that is not given is made ([`Exec::event`]).
    pub fn event(mut self, id: EventId, event: &Event) -> Self {
        self.events.push((id, event.clone()));
        self
    }
}

/// Why a graph cannot be instantiated on the CPU.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InstantiateError {
    /// What every backend refuses.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A node that cannot run here.
    #[error("node {node}: {source}")]
    Prepare {
        /// The node.
        node: NamedNode,
        /// Why.
        source: PrepareError,
    },
    /// A node of a kind or form that the CPU has no meaning for.
    #[error("node {node} cannot run on the CPU: {reason}")]
    Unsupported {
        /// The node.
        node: NamedNode,
        /// Why.
        reason: String,
    },
    /// A buffer that asks for so little alignment that the plan put it where the CPU cannot use it.
    #[error(
        "{buffer} lies at byte {offset} of its pool; on the CPU a buffer is aligned to {MIN_ALIGN} bytes at least, so declare it so"
    )]
    Misaligned {
        /// The buffer.
        buffer: BufferId,
        /// Its place.
        offset: u64,
    },
    /// No memory for the graph.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// More tasks or workers than the executor takes.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

fn named(graph: &ComputeGraph, id: NodeId) -> NamedNode {
    NamedNode { id, name: graph.node(id).name.to_string() }
}

pub(super) fn instantiate(
    device: &Arc<DeviceToken>,
    workers: u32,
    graph: &ComputeGraph,
    schedule: &Schedule,
    bindings: &Bindings<'_>,
) -> Result<Exec, InstantiateError> {
    check_graph(graph, schedule)?;
    let mut builder = Builder {
        registry: bindings.registry,
        runs: Vec::new(),
        arenas: Vec::new(),
        events: bindings.events.iter().cloned().collect(),
        scalar_slots: graph
            .slots()
            .iter()
            .map(|slot| ScalarSlot { value: slot.default, uses: Vec::new() })
            .collect(),
        pointer_slots: FxHashMap::default(),
    };
    let (bases, memory) = bind(device, graph, bindings, &mut builder.pointer_slots)?;
    let slots: Vec<SlotId> = (0..graph.slots().len()).map(SlotId::from_index).collect();
    let scope = builder.scope(graph, schedule, bases, slots)?;
    let mut run_of = vec![RunId(0); graph.node_count()];
    for id in graph.node_ids() {
        run_of[id.index()] = builder.node(graph, schedule, &scope, id, None)?;
    }
    let (program, tasks) = freeze(workers, graph, schedule, &run_of, &builder.runs)?;
    let scratch = builder.runs.iter().filter_map(|run| match &run.op {
        Op::Work(work) => Some(work.prepared.scratch_bytes()),
        _ => None,
    });
    let scratch = scratch.max().unwrap_or(0);
    Ok(Exec {
        device: device.clone(),
        program,
        tasks,
        runs: Runs(builder.runs.into()),
        run_of: run_of.into(),
        scratch: (0..workers).map(|_| WorkerScratch::new(scratch)).collect(),
        scalar_slots: builder.scalar_slots,
        pointer_slots: builder.pointer_slots,
        memory,
        events: builder.events,
        arenas: builder.arenas,
    })
}

/// Where a buffer starts.
#[derive(Clone, Copy)]
enum Base {
    Address(*mut u8),
    /// A pointer slot of the outermost graph: known once memory is bound.
    Slot(BufferId),
    /// An internal buffer that nothing uses.
    None,
}

type Bound = (Vec<Base>, FxHashMap<BufferId, Memory>);

/// Memory for the external buffers of the outermost graph, and its pointer slots.
fn bind(
    device: &Arc<DeviceToken>,
    graph: &ComputeGraph,
    bindings: &Bindings<'_>,
    slots: &mut FxHashMap<BufferId, PointerSlot>,
) -> Result<Bound, InstantiateError> {
    let unsuited = |_: &Buffer, memory: &Memory| {
        let other = !Arc::ptr_eq(&memory.device, device);
        other.then(|| "belongs to another device".to_owned())
    };
    let given = check_bindings(graph, &bindings.memory, Memory::span, unsuited)?;
    let mut memory = FxHashMap::default();
    let mut bases = Vec::with_capacity(graph.buffers().len());
    for (index, declared) in graph.buffers().iter().enumerate() {
        let buffer = BufferId::from_index(index);
        bases.push(match declared.role {
            BufferRole::External => {
                let bound = match given.get(&buffer) {
                    Some(&memory) => memory.clone(),
                    None => Memory::new(device, declared.bytes, declared.align)?,
                };
                let base = Base::Address(bound.start());
                memory.insert(buffer, bound);
                base
            }
            BufferRole::Slot(_) => {
                let bound = given.get(&buffer).map(|&memory| memory.clone());
                let extent = SlotExtent { buffer, bytes: declared.bytes, align: declared.align };
                slots.insert(buffer, PointerSlot { extent, bound, uses: Vec::new() });
                Base::Slot(buffer)
            }
            // The caller places internal buffers; a graph that is outermost has nothing around it.
            BufferRole::Internal | BufferRole::Outer(_) => Base::None,
        });
    }
    Ok((bases, memory))
}

/// What the ids of one graph, outermost or inner, stand for.
struct Scope {
    bases: Vec<Base>,
    /// The slots of the outermost graph.
    slots: Vec<SlotId>,
}

struct Builder<'a> {
    registry: &'a Registry,
    runs: Vec<Run>,
    arenas: Vec<Allocation>,
    events: FxHashMap<EventId, Event>,
    scalar_slots: Vec<ScalarSlot>,
    pointer_slots: FxHashMap<BufferId, PointerSlot>,
}

impl Builder<'_> {
    /// Allocates the pools of a schedule and places the internal buffers.
    fn scope(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        mut bases: Vec<Base>,
        slots: Vec<SlotId>,
    ) -> Result<Scope, InstantiateError> {
        let mut pools = FxHashMap::default();
        for (&space, &bytes) in &schedule.memory.pools {
            let align = graph.buffers().iter().filter(|b| b.space == space).map(|b| b.align);
            let pool = Allocation::new(bytes, align.max().unwrap_or(1))?;
            pools.insert(space, pool.start());
            self.arenas.push(pool);
        }
        for (index, declared) in graph.buffers().iter().enumerate() {
            let buffer = BufferId::from_index(index);
            let offset = schedule.memory.offset(buffer);
            if let (BufferRole::Internal, Some(offset)) = (declared.role, offset) {
                if !offset.is_multiple_of(MIN_ALIGN) {
                    return Err(InstantiateError::Misaligned { buffer, offset });
                }
                let start = pools[&declared.space]; // the checker has seen that the buffer lies in it
                bases[index] = Base::Address(start.wrapping_add(offset as usize));
            }
        }
        Ok(Scope { bases, slots })
    }

    /// Prepares a node and, before it, all that is inside.
    fn node(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        scope: &Scope,
        id: NodeId,
        parent: Option<RunId>,
    ) -> Result<RunId, InstantiateError> {
        let node = graph.node(id);
        let unsupported = |reason: &str| InstantiateError::Unsupported {
            node: named(graph, id),
            reason: reason.to_owned(),
        };
        let run = RunId(u32::try_from(self.runs.len()).map_err(|_| ProgramError::TooManyTasks)?);
        let can_be_disabled = can_be_disabled(&node.kind);
        let name = node.name.clone();
        let (op, enabled) = (Op::Nothing, true);
        self.runs.push(Run { op, enabled, can_be_disabled, node: id, name, parent });
        let prepared = Prepared::new(graph, id, self.registry)
            .map_err(|source| InstantiateError::Prepare { node: named(graph, id), source })?;
        let op = match (prepared, &node.kind) {
            (Some(prepared), _) => Op::Work(Box::new(self.work(scope, run, prepared)?)),
            (None, NodeKind::EventRecord(event)) => {
                Op::Record(self.events.entry(*event).or_default().clone())
            }
            (None, NodeKind::EventWait(event)) => {
                Op::Wait(self.events.entry(*event).or_default().clone())
            }
            (None, NodeKind::Alloc(buffer) | NodeKind::Free(buffer)) => {
                if graph.buffer(*buffer).role != BufferRole::Internal {
                    let reason = "it allocates or frees memory that is not internal to the graph";
                    return Err(unsupported(reason));
                }
                Op::Nothing
            }
            (None, NodeKind::Child(inner)) => {
                Op::Child(self.inner(scope, inner, &schedule.inner[&id][0], run)?)
            }
            (None, NodeKind::Conditional(conditional)) => {
                let Condition::Value(view) = conditional.condition else {
                    return Err(unsupported(
                        "it decides by a driver's handle; a value in device memory is needed",
                    ));
                };
                let bodies = conditional.bodies.iter().zip(&schedule.inner[&id]);
                let bodies = bodies.map(|(body, schedule)| self.inner(scope, body, schedule, run));
                let bodies = bodies.collect::<Result<Box<[_]>, _>>()?;
                let place = Use::Condition(run, view.offset);
                let base = self.resolve(scope, view.buffer, place);
                let address = base.wrapping_add(view.offset as usize);
                let value = ConditionValue { address, dtype: view.dtype };
                Op::Conditional { kind: conditional.kind, value, bodies }
            }
            (None, _) => Op::Nothing,
        };
        self.runs[run.0 as usize].op = op;
        Ok(run)
    }

    fn work(
        &mut self,
        scope: &Scope,
        run: RunId,
        prepared: Prepared,
    ) -> Result<Work, InstantiateError> {
        let resolve =
            |(at, &buffer): (usize, &BufferId)| self.resolve(scope, buffer, Use::Operand(run, at));
        let buffers = prepared.buffers().iter().enumerate().map(resolve).collect();
        let scalar = |(at, source): (usize, &ScalarSource)| match *source {
            ScalarSource::Constant(value) => value,
            ScalarSource::Slot(slot) => {
                let slot = &mut self.scalar_slots[scope.slots[slot.index()].index()];
                slot.uses.push((run, at));
                slot.value
            }
        };
        let scalars = prepared.scalars().iter().enumerate().map(scalar).collect();
        let workspace = match prepared.workspace_bytes() {
            0 => None,
            bytes => Some(Allocation::new(bytes as u64, 16)?),
        };
        Ok(Work { prepared, buffers, scalars, workspace })
    }

    /// The nodes of an inner graph in issue order.
    fn inner(
        &mut self,
        around: &Scope,
        graph: &ComputeGraph,
        schedule: &Schedule,
        parent: RunId,
    ) -> Result<Box<[RunId]>, InstantiateError> {
        let base = |declared: &phonograph_graph::Buffer| match declared.role {
            BufferRole::Outer(outer) => around.bases[outer.index()],
            _ => Base::None,
        };
        let bases = graph.buffers().iter().map(base).collect();
        let outer = graph.slots().iter().filter_map(|slot| slot.outer);
        let slots = outer.map(|slot| around.slots[slot.index()]).collect();
        let scope = self.scope(graph, schedule, bases, slots)?;
        let mut runs = Vec::with_capacity(graph.node_count());
        for (_, node) in issued(schedule) {
            runs.push(self.node(graph, schedule, &scope, node, Some(parent))?);
        }
        Ok(runs.into())
    }

    /// The address of a buffer; for a pointer slot also notes who has to be told of a new one.
    fn resolve(&mut self, scope: &Scope, buffer: BufferId, place: Use) -> *mut u8 {
        match scope.bases[buffer.index()] {
            Base::Address(address) => address,
            Base::Slot(slot) => {
                let slot = self.pointer_slots.get_mut(&slot).expect("`bind` has one for each");
                slot.uses.push(place);
                slot.bound.as_ref().map_or(std::ptr::null_mut(), |m| m.start())
            }
            // Only a buffer of no bytes is used without a place, and nothing of it is touched.
            Base::None => std::ptr::NonNull::<u64>::dangling().as_ptr().cast(),
        }
    }
}

/// The nodes of a schedule in issue order, with their streams.
fn issued(schedule: &Schedule) -> impl Iterator<Item = (u32, NodeId)> + '_ {
    let runs = schedule.steps.iter().filter_map(|step| match step {
        Step::Run { nodes, stream } => Some((stream.0, nodes)),
        Step::Record { .. } | Step::Wait { .. } => None,
    });
    runs.flat_map(|(stream, nodes)| nodes.iter().map(move |&node| (stream, node)))
}

/// Orders and places the tasks: issue order is the schedule's, dependencies are the guaranteed order's.
fn freeze(
    workers: u32,
    graph: &ComputeGraph,
    schedule: &Schedule,
    run_of: &[RunId],
    runs: &[Run],
) -> Result<(super::program::Program, Box<[Task]>), InstantiateError> {
    let mut reuse: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
    for &(from, to) in &schedule.reuse {
        reuse.entry(to).or_default().push(from);
    }
    // A node is longer than a hand-over, so every task starts as early as it can.
    let mut builder = ProgramBuilder::new(workers, NonZeroU32::MIN)?;
    let mut tasks: Vec<Task> = Vec::with_capacity(graph.node_count());
    // The tasks whose completion is the node's: its parts, or the one that finishes it.
    let mut ends: Vec<Range<u32>> = vec![0..0; graph.node_count()];
    for (stream, node) in issued(schedule) {
        let run = run_of[node.index()];
        let home = WorkerId(stream % workers);
        let mut add = |worker, part, after: &mut dyn Iterator<Item = TaskId>| {
            let after: smallvec::SmallVec<[TaskId; 8]> = after.collect();
            tasks.push(Task { run, worker, part });
            builder.task(worker, after.iter().copied())
        };
        let before = graph.predecessors(node).iter().chain(reuse.get(&node).into_iter().flatten());
        let mut before = before.flat_map(|from| ends[from.index()].clone()).map(TaskId);
        let parts = match &runs[run.0 as usize].op {
            Op::Work(work) => split(&work.prepared, workers),
            _ => 1,
        };
        ends[node.index()] = if parts == 1 {
            let task = add(home, Part::Whole, &mut before)?;
            task.0..task.0 + 1
        } else {
            let Op::Work(work) = &runs[run.0 as usize].op else { unreachable!("only work splits") };
            let before: Vec<TaskId> = before.collect();
            let tiles = u64::from(work.prepared.tiles());
            let cut = |part: u32| (tiles * u64::from(part) / u64::from(parts)) as u32;
            let mut all = Vec::with_capacity(parts as usize);
            for part in 0..parts {
                let worker = WorkerId((home.0 + part) % workers);
                let tiles = Part::Tiles(cut(part)..cut(part + 1));
                all.push(add(worker, tiles, &mut before.iter().copied())?);
            }
            if work.prepared.needs_finish() {
                let task = add(home, Part::Finish, &mut all.into_iter())?;
                task.0..task.0 + 1
            } else {
                all[0].0..all[0].0 + parts
            }
        };
    }
    Ok((builder.freeze(), tasks.into()))
}

/// Into how many parts a node is split.
fn split(prepared: &Prepared, workers: u32) -> u32 {
    let worth = u32::try_from(prepared.cost_ns() / SPLIT_NS).unwrap_or(u32::MAX);
    prepared.tiles().min(workers).min(worth).max(1)
}
