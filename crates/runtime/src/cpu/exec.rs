//! An instantiated graph, and its replay.
//!
//! A replay walks frozen tables: a task names a run (a node with its operands resolved to addresses) and a range of
//! its tiles. It allocates nothing and takes no lock, but for what the user's functions, external events and the
//! packing of matrix products do.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use phonograph_graph::{BufferId, ConditionalKind, DType, NodeId, Scalar, SlotId};
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::event::Event;
use super::kernels::{KernelError, Operands, Prepared, Scratch};
use super::memory::{Allocation, DeviceToken, Memory};
use super::program::{Program, TaskId, WorkerId};
use super::team::{self, Cause, Team};
use crate::refused::{NodePath, SetError, SlotExtent, check_value};

/// A node, at any depth, that is ready to run: its place among an [`Exec`]'s runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct RunId(pub u32);

/// A prepared node with its operands.
pub(super) struct Work {
    pub prepared: Prepared,
    pub buffers: Box<[*mut u8]>,
    pub scalars: Box<[Scalar]>,
    pub workspace: Option<Allocation>,
}

impl Work {
    fn operands(&self) -> Operands<'_> {
        Operands {
            buffers: &self.buffers,
            scalars: &self.scalars,
            workspace: self.workspace.as_ref().map_or(std::ptr::null_mut(), Allocation::start),
        }
    }
}

/// The value that a conditional decides by.
pub(super) struct ConditionValue {
    pub address: *const u8,
    pub dtype: DType,
}

pub(super) enum Op {
    Work(Box<Work>),
    /// Only a point of order: an empty node, an allocation or a free, whose memory the plan has placed.
    Nothing,
    Record(Event),
    Wait(Event),
    /// The nodes of a child graph, one after another in their schedule's issue order.
    Child(Box<[RunId]>),
    Conditional {
        kind: ConditionalKind,
        value: ConditionValue,
        bodies: Box<[Box<[RunId]>]>,
    },
}

pub(super) struct Run {
    pub op: Op,
    pub enabled: bool,
    pub can_be_disabled: bool,
    /// The node, and the run of the node around it.
    pub node: NodeId,
    pub name: Arc<str>,
    pub parent: Option<RunId>,
}

#[derive(Clone)]
pub(super) struct Task {
    pub run: RunId,
    pub worker: WorkerId,
    pub part: Part,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Tiles(Range<u32>),
    /// After all tiles of a split node.
    Finish,
}

/// A pointer slot: what is bound, and every operand that looks into it.
pub(super) struct PointerSlot {
    pub extent: SlotExtent,
    pub bound: Option<Memory>,
    pub uses: Vec<Use>,
}

/// An operand of a run: its place in `Work::buffers`, or the condition of a conditional at this byte offset.
#[derive(Clone, Copy)]
pub(super) enum Use {
    Operand(RunId, usize),
    Condition(RunId, u64),
}

pub(super) struct ScalarSlot {
    pub value: Scalar,
    pub uses: Vec<(RunId, usize)>,
}

/// A graph made ready to replay on a [`Cpu`](super::Cpu). Keeps alive all memory that it touches.
pub struct Exec {
    pub(super) device: Arc<DeviceToken>,
    pub(super) program: Program,
    pub(super) tasks: Box<[Task]>,
    pub(super) runs: Runs,
    /// The run of each node of the outermost graph.
    pub(super) run_of: Box<[RunId]>,
    pub(super) scratch: Box<[WorkerScratch]>,
    pub(super) scalar_slots: Vec<ScalarSlot>,
    pub(super) pointer_slots: FxHashMap<BufferId, PointerSlot>,
    /// Memory bound to external buffers.
    pub(super) memory: FxHashMap<BufferId, Memory>,
    pub(super) events: FxHashMap<phonograph_graph::EventId, Event>,
    /// Internal memory, held for as long as the runs hold addresses in it.
    pub(super) arenas: Vec<Allocation>,
}

/// All runs. They hold addresses, which is why sharing them among workers has to be argued for.
pub(super) struct Runs(pub Box<[Run]>);

// SAFETY: the addresses lie in allocations that the `Exec` owns or shares (`arenas`, `memory`, `pointer_slots`), which are not
// tied to a thread. What they point to is touched only in a replay, under the exclusive borrow of the device, by tasks
// that the program orders wherever they conflict (`instantiate` refuses graphs in which they are not ordered).
unsafe impl Send for Runs {}
// SAFETY: as above; a shared `Runs` is only read.
unsafe impl Sync for Runs {}

/// The scratch memory of one worker.
pub(super) struct WorkerScratch(CachePadded<UnsafeCell<Scratch>>);

// SAFETY: only tasks of one worker use a scratch, and a worker runs one task at a time (`Team`).
unsafe impl Sync for WorkerScratch {}

impl WorkerScratch {
    pub fn new(bytes: usize) -> Self {
        Self(CachePadded::new(UnsafeCell::new(Scratch::new(bytes))))
    }
}

/// Why a replay failed, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The graph was instantiated on another device.
    #[error("the graph was instantiated on another device")]
    OtherDevice,
    /// A pointer slot without memory.
    #[error("pointer slot {0} has no memory bound to it")]
    Unbound(BufferId),
    /// A node failed.
    #[error("node {node}: {cause}")]
    Node {
        /// The node; for one in an inner graph, the way down to it.
        node: NodePath,
        /// What happened.
        cause: NodeFault,
    },
}

/// What a node did.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeFault {
    /// It panicked.
    #[error("panicked: {0}")]
    Panic(String),
    /// It reported an error.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// When one task of a replay ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskSpan {
    /// The node of the outermost graph.
    pub node: NodeId,
    /// The worker.
    pub worker: WorkerId,
    /// Nanoseconds from the start of the replay to the start of the task.
    pub start_ns: u64,
    /// Nanoseconds from the start of the replay to the end of the task.
    pub end_ns: u64,
}

/// When the tasks of a replay ran. A node that was split has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// One for each task, in issue order.
    pub spans: Vec<TaskSpan>,
    /// Nanoseconds of the whole replay.
    pub total_ns: u64,
}

struct Fault {
    run: RunId,
    error: KernelError,
}

impl Exec {
    pub(super) fn node_count(&self) -> usize {
        self.run_of.len()
    }

    /// Number of tasks of a replay; a node that was split has several.
    pub fn task_count(&self) -> u32 {
        self.program.tasks()
    }

    /// Number of waits between workers in a replay.
    pub fn wait_count(&self) -> usize {
        self.program.waits()
    }

    /// Bytes of memory that the graph holds for its internal buffers.
    pub fn arena_bytes(&self) -> u64 {
        self.arenas.iter().map(Allocation::bytes).sum()
    }

    /// The memory of an external buffer or a bound pointer slot.
    pub fn memory(&self, buffer: BufferId) -> Option<&Memory> {
        let slot = || self.pointer_slots.get(&buffer).and_then(|slot| slot.bound.as_ref());
        self.memory.get(&buffer).or_else(slot)
    }

    /// An external event of the graph.
    pub fn event(&self, event: phonograph_graph::EventId) -> Option<&Event> {
        self.events.get(&event)
    }

    /// Sets a scalar slot for the replays to come. O(uses of the slot).
    ///
    /// # Errors
    /// [`SetError`] for a slot that the graph does not have, or a value of another type; the slot then keeps what it had.
    pub fn set(&mut self, slot: SlotId, value: impl Into<Scalar>) -> Result<(), SetError> {
        let value = value.into();
        let known = self.scalar_slots.get_mut(slot.index()).ok_or(SetError::UnknownSlot(slot))?;
        check_value(slot, known.value, value)?;
        known.value = value;
        for &(run, index) in &known.uses {
            if let Op::Work(work) = &mut self.runs.0[run.0 as usize].op {
                work.scalars[index] = value;
            }
        }
        Ok(())
    }

    /// Binds memory to a pointer slot for the replays to come. O(bound buffers + uses of the slot).
    ///
    /// # Errors
    /// [`SetError`] for what is no pointer slot, and for memory that is too small, another device's, or bound elsewhere
    /// already; the slot then keeps what it had.
    pub fn bind(&mut self, buffer: BufferId, memory: &Memory) -> Result<(), SetError> {
        let slots = self.pointer_slots.iter();
        let bound = slots.filter_map(|(id, slot)| Some((id, slot.bound.as_ref()?)));
        let taken = bound.chain(&self.memory).map(|(&id, memory)| (id, memory.span()));
        let slot = self.pointer_slots.get(&buffer).ok_or(SetError::NotASlot(buffer))?;
        if !Arc::ptr_eq(&memory.device, &self.device) {
            return Err(SetError::OtherDevice);
        }
        slot.extent.check(memory.span(), taken)?;
        let slot = self.pointer_slots.get_mut(&buffer).expect("it is there");
        slot.bound = Some(memory.clone());
        for &place in &slot.uses {
            let (Use::Operand(run, _) | Use::Condition(run, _)) = place;
            match (&mut self.runs.0[run.0 as usize].op, place) {
                (Op::Work(work), Use::Operand(_, index)) => {
                    work.buffers[index] = memory.start();
                }
                (Op::Conditional { value, .. }, Use::Condition(_, offset)) => {
                    value.address = memory.start().wrapping_add(offset as usize);
                }
                _ => unreachable!("`instantiate` notes uses with the operation they are of"),
            }
        }
        Ok(())
    }

    /// Enables or disables a node of the outermost graph for the replays to come. A disabled node does nothing; its
    /// neighbours are ordered as before.
    ///
    /// # Errors
    /// [`SetError`] for a node that the graph does not have, or one that cannot be disabled.
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<(), SetError> {
        let run = self.run_of.get(node.index()).ok_or(SetError::UnknownNode(node))?;
        let run = &mut self.runs.0[run.0 as usize];
        if !run.can_be_disabled {
            return Err(SetError::NotDisableable(node));
        }
        run.enabled = enabled;
        Ok(())
    }

    pub(super) fn replay(
        &mut self,
        team: &mut Team,
        device: &Arc<DeviceToken>,
    ) -> Result<(), ReplayError> {
        self.check_ready(device)?;
        let this = &*self;
        let body = |task: TaskId| {
            let task = &this.tasks[task.index()];
            // SAFETY: `Team` runs each task once, after its predecessors, and the tasks of a worker one at a time. The
            // device is borrowed exclusively, so nothing else touches memory that is bound to graphs of it.
            unsafe { this.run_task(task) }
        };
        team.replay(&self.program, &body).map_err(|error| self.explain(error))
    }

    pub(super) fn replay_profiled(
        &mut self,
        team: &mut Team,
        device: &Arc<DeviceToken>,
    ) -> Result<Profile, ReplayError> {
        self.check_ready(device)?;
        let this = &*self;
        let times: Vec<[AtomicU64; 2]> =
            this.tasks.iter().map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
        let start = Instant::now();
        let now = || start.elapsed().as_nanos() as u64;
        let body = |id: TaskId| {
            let task = &this.tasks[id.index()];
            let [began, ended] = &times[id.index()];
            began.store(now(), Ordering::Relaxed);
            // SAFETY: as in `replay`.
            let result = unsafe { this.run_task(task) };
            ended.store(now(), Ordering::Relaxed);
            result
        };
        team.replay(&self.program, &body).map_err(|error| self.explain(error))?;
        let total_ns = now();
        let spans = self.tasks.iter().zip(&times).map(|(task, [began, ended])| TaskSpan {
            node: self.runs.0[task.run.0 as usize].node,
            worker: task.worker,
            start_ns: began.load(Ordering::Relaxed),
            end_ns: ended.load(Ordering::Relaxed),
        });
        Ok(Profile { spans: spans.collect(), total_ns })
    }

    fn check_ready(&self, device: &Arc<DeviceToken>) -> Result<(), ReplayError> {
        if !Arc::ptr_eq(device, &self.device) {
            return Err(ReplayError::OtherDevice);
        }
        let unbound = self.pointer_slots.iter().filter(|(_, slot)| slot.bound.is_none());
        match unbound.map(|(&buffer, _)| buffer).min() {
            Some(buffer) => Err(ReplayError::Unbound(buffer)),
            None => Ok(()),
        }
    }

    /// # Safety
    /// Called from a replay of `self.program`, for a task of it, in place of that task, with the device borrowed exclusively.
    unsafe fn run_task(&self, task: &Task) -> Result<(), Fault> {
        // SAFETY: this task runs on `task.worker`, which runs nothing else meanwhile.
        let scratch = unsafe { &mut *self.scratch[task.worker.index()].0.get() };
        let run = &self.runs.0[task.run.0 as usize];
        let Op::Work(work) = &run.op else {
            // SAFETY: the caller's promise.
            return unsafe { self.run_node(task.run, scratch) };
        };
        if !run.enabled {
            return Ok(());
        }
        let on = work.operands();
        let failed = |error| Fault { run: task.run, error };
        // SAFETY: operands are addresses of whole buffers, as `Prepared` asks for; the program orders this task against
        // every other that conflicts with it; tiles of the parts of one node are disjoint, and `Finish` comes after all.
        unsafe {
            match &task.part {
                Part::Whole => run_whole(work, scratch).map_err(failed),
                Part::Tiles(tiles) => {
                    work.prepared.run(&on, tiles.clone(), scratch).map_err(failed)
                }
                Part::Finish => {
                    work.prepared.finish(&on);
                    Ok(())
                }
            }
        }
    }

    /// Runs a node with all that is inside it. Recursive over nesting, which graphs bound.
    ///
    /// # Safety
    /// As for `run_task`.
    unsafe fn run_node(&self, id: RunId, scratch: &mut Scratch) -> Result<(), Fault> {
        let run = &self.runs.0[id.0 as usize];
        match &run.op {
            Op::Work(work) => {
                // SAFETY: the caller's promise; nodes inside one task run one after another.
                unsafe { run_whole(work, scratch) }.map_err(|error| Fault { run: id, error })
            }
            Op::Nothing => Ok(()),
            Op::Record(event) => {
                event.record();
                Ok(())
            }
            Op::Wait(event) => {
                event.wait();
                Ok(())
            }
            // SAFETY: the caller's promise.
            Op::Child(nodes) => unsafe { self.run_all(nodes, scratch) },
            Op::Conditional { kind, value, bodies } => {
                // SAFETY: the node reads its condition, so nothing that writes it runs meanwhile.
                let read = || unsafe { value.read() };
                // SAFETY: the caller's promise.
                let mut run = |body: Option<&Box<[RunId]>>| unsafe {
                    body.map_or(Ok(()), |nodes| self.run_all(nodes, scratch))
                };
                match kind {
                    ConditionalKind::If => run(bodies.get(usize::from(read() == 0))),
                    ConditionalKind::Switch => {
                        run(usize::try_from(read()).map_or(None, |chosen| bodies.get(chosen)))
                    }
                    ConditionalKind::While => {
                        while read() != 0 {
                            run(bodies.first())?;
                        }
                        Ok(())
                    }
                }
            }
        }
    }

    /// # Safety
    /// As for `run_task`.
    unsafe fn run_all(&self, nodes: &[RunId], scratch: &mut Scratch) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        nodes.iter().try_for_each(|&node| unsafe { self.run_node(node, scratch) })
    }

    fn explain(&self, error: team::ReplayError<Fault>) -> ReplayError {
        let failure = match error {
            team::ReplayError::Failed(failure) => failure,
            team::ReplayError::TeamTooSmall { .. } => {
                unreachable!("the program was made for the workers of the device it is tied to")
            }
        };
        let (run, cause) = match failure.cause {
            Cause::Panic(message) => {
                (self.tasks[failure.task.index()].run, NodeFault::Panic(message))
            }
            Cause::Error(Fault { run, error }) => (run, NodeFault::Kernel(error)),
        };
        let mut path = Vec::new();
        let mut next = Some(run);
        while let Some(RunId(id)) = next {
            let run = &self.runs.0[id as usize];
            path.push((run.node, run.name.to_string()));
            next = run.parent;
        }
        path.reverse();
        ReplayError::Node { node: NodePath(path), cause }
    }
}

/// # Safety
/// As for [`Exec::run_task`], with the node's task undivided.
unsafe fn run_whole(work: &Work, scratch: &mut Scratch) -> Result<(), KernelError> {
    let on = work.operands();
    // SAFETY: the caller's promise; all tiles run here, each once, then the finish.
    unsafe {
        work.prepared.run(&on, 0..work.prepared.tiles(), scratch)?;
        work.prepared.finish(&on);
    }
    Ok(())
}

impl ConditionValue {
    /// # Safety
    /// The address is of one element of the type, and nothing writes it meanwhile.
    unsafe fn read(&self) -> i64 {
        // SAFETY: the caller's promise; an element may lie unaligned in a user's buffer.
        unsafe {
            match self.dtype.size() {
                1 => i64::from(self.address.read()),
                4 if self.dtype == DType::I32 => {
                    i64::from(self.address.cast::<i32>().read_unaligned())
                }
                4 => i64::from(self.address.cast::<u32>().read_unaligned()),
                size => unreachable!("a condition of {size} bytes; building refuses it"),
            }
        }
    }
}
