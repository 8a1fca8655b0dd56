//! An instantiated graph, and its replay.
//!
//! A replay walks frozen tables: an operation names a pipeline, a bind group and the offset of its uniform block, all
//! made at instantiation. O(operations), with no look-up and no allocation of ours.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use phonograph_graph::{BufferId, ConditionalKind, DType, NodeId, Scalar, SlotId};
use phonograph_kernels::wgsl::FAULT_WORDS;
use phonograph_runtime::cpu::kernels::KernelError;
use phonograph_runtime::cpu::{NodeFault, SetError};
use phonograph_runtime::refused::{NodePath, SlotExtent, check_value};
use rustc_hash::FxHashMap;

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::memory::Memory;
use crate::params::{Params, WordId};

/// Why a replay failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The graph was instantiated by another [`Wgpu`](crate::Wgpu).
    #[error("the graph was instantiated on another device")]
    OtherDevice,
    /// A pointer slot without memory.
    #[error("pointer slot {0} has no memory bound to it")]
    Unbound(BufferId),
    /// A node failed. The others have run; a conditional decides nothing after it.
    #[error("node {node}: {cause}")]
    Node {
        /// The node; for one in an inner graph, the way down to it.
        node: NodePath,
        /// What happened.
        cause: NodeFault,
    },
    /// The device refused or is lost. Commands of one submission run as one, so which of its nodes was at fault is not known.
    #[error("{stage}: {source}")]
    Device {
        /// What the replay was at.
        stage: Stage,
        /// What the device says.
        source: GpuError,
    },
}

/// What a replay is at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Its commands are encoded and handed to the queue.
    Submit,
    /// What a conditional decides by is waited for, and all work before that.
    Decide(NodePath),
    /// Its end is waited for.
    Finish,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Submit => f.write_str("submitting the graph"),
            Stage::Decide(node) => write!(f, "waiting for what node {node} decides by"),
            Stage::Finish => f.write_str("waiting for the graph"),
        }
    }
}

/// Says what the replay was at when the device refused.
fn during(stage: Stage) -> impl FnOnce(GpuError) -> ReplayError {
    move |source| ReplayError::Device { stage, source }
}

/// A compute pipeline of an [`Exec`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PipelineId(pub u32);

/// A bind group of an [`Exec`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupId(pub u32);

/// One dispatch.
#[derive(Debug)]
pub(crate) struct Op {
    pub pipeline: PipelineId,
    pub group: GroupId,
    /// Byte offset of the uniform block.
    pub block: u32,
    pub groups: [u32; 3],
    pub enabled: bool,
}

/// What a replay does, in order. Bodies of a branch follow it and are skipped but for the branch.
#[derive(Debug)]
pub(crate) enum Step {
    /// These operations, one after another.
    Run(Range<u32>),
    Branch(Branch),
}

/// A conditional.
#[derive(Debug)]
pub(crate) struct Branch {
    pub kind: ConditionalKind,
    pub place: Place,
    /// Byte offset of the value.
    pub offset: u64,
    pub dtype: DType,
    /// The steps of each body.
    pub bodies: Vec<Range<usize>>,
    /// The step after the last body.
    pub end: usize,
    /// The conditional.
    pub node: NodePath,
}

impl Branch {
    /// The value, of the word that it lies in.
    fn value(&self, word: u32) -> i64 {
        match self.dtype {
            DType::I32 => i64::from(word as i32),
            DType::U32 => i64::from(word),
            _ => i64::from(word >> (self.offset % 4 * 8) & 0xff),
        }
    }
}

/// A buffer of wgpu's that an [`Exec`] works on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Place {
    /// One that stays: its number among the exec's.
    Fixed(u32),
    /// What is bound to a pointer slot of the outermost graph.
    Slot(BufferId),
}

/// What a bind group is made of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GroupRecipe {
    pub layout: wgpu::BindGroupLayout,
    pub entries: Box<[Window]>,
}

/// A part of a buffer that is bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Window {
    pub place: Place,
    pub offset: u64,
    pub bytes: u64,
}

/// A pointer slot: what is bound, and every bind group that has it.
#[derive(Debug)]
pub(crate) struct PointerSlot {
    pub extent: SlotExtent,
    pub bound: Option<Memory>,
    pub uses: Vec<GroupId>,
}

#[derive(Debug)]
pub(crate) struct ScalarSlot {
    pub value: Scalar,
    pub uses: Vec<WordId>,
}

/// What kernels note that they could not do.
#[derive(Debug)]
pub(crate) struct Faults {
    pub record: Place,
    /// The node of each number that the record may name.
    pub nodes: Vec<FaultNode>,
}

/// A node that looks up rows.
#[derive(Debug)]
pub(crate) struct FaultNode {
    pub path: NodePath,
    pub rows: u64,
    /// Whether row numbers have a sign.
    pub signed: bool,
}

/// A graph made ready to replay on a [`Wgpu`](crate::Wgpu). Keeps alive all that it touches.
#[derive(Debug)]
pub struct Exec {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) ops: Box<[Op]>,
    pub(crate) steps: Box<[Step]>,
    pub(crate) pipelines: Box<[wgpu::ComputePipeline]>,
    pub(crate) recipes: Box<[GroupRecipe]>,
    /// `None` while a pointer slot in it has no memory.
    pub(crate) groups: Box<[Option<wgpu::BindGroup>]>,
    pub(crate) params: Params,
    pub(crate) buffers: Box<[wgpu::Buffer]>,
    pub(crate) arena_bytes: u64,
    pub(crate) memory: FxHashMap<BufferId, Memory>,
    pub(crate) pointer_slots: FxHashMap<BufferId, PointerSlot>,
    /// The pointer slots without memory.
    pub(crate) unbound: BTreeSet<BufferId>,
    pub(crate) scalar_slots: Vec<ScalarSlot>,
    /// Of each node of the outermost graph, its operations; `None` where it cannot be disabled.
    pub(crate) switches: Box<[Option<Range<u32>>]>,
    pub(crate) faults: Option<Faults>,
    /// Where the host reads a fault record and, after it, the word that a branch decides by; if there is any of them.
    pub(crate) readback: Option<wgpu::Buffer>,
    pub(crate) last: Option<wgpu::SubmissionIndex>,
}

/// Bytes of a fault record.
pub(crate) const FAULT_BYTES: u64 = 4 * FAULT_WORDS as u64;

impl Exec {
    /// Whether a run may fail for what its data are, or has to be decided on its way.
    pub(crate) fn may_fail(&self) -> bool {
        self.readback.is_some()
    }

    /// Number of dispatches, those of all bodies included.
    pub fn dispatch_count(&self) -> usize {
        self.ops.len()
    }

    /// Bytes of memory that the graph holds for its internal buffers.
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// The memory of an external buffer, or what is bound to a pointer slot.
    pub fn memory(&self, buffer: BufferId) -> Option<&Memory> {
        let slot = || self.pointer_slots.get(&buffer)?.bound.as_ref();
        self.memory.get(&buffer).or_else(slot)
    }

    /// Sets a scalar slot for the replays to come. O(uses of the slot).
    pub fn set(&mut self, slot: SlotId, value: impl Into<Scalar>) -> Result<(), SetError> {
        let value = value.into();
        let known = self.scalar_slots.get_mut(slot.index()).ok_or(SetError::UnknownSlot(slot))?;
        check_value(slot, known.value, value)?;
        known.value = value;
        for &word in &known.uses {
            self.params.set(word, value.to_bits() as u32);
        }
        Ok(())
    }

    /// Binds memory to a pointer slot for the replays to come. O(bound buffers + uses of the slot).
    ///
    /// # Errors
    /// [`BindError`]; the slot then keeps what it had.
    pub fn bind(&mut self, buffer: BufferId, memory: &Memory) -> Result<(), BindError> {
        let slots = self.pointer_slots.iter();
        let bound = slots.filter_map(|(id, slot)| Some((id, slot.bound.as_ref()?)));
        let taken = bound.chain(&self.memory).map(|(&id, memory)| (id, memory.span()));
        let slot = self.pointer_slots.get(&buffer).ok_or(SetError::NotASlot(buffer))?;
        if !memory.belongs_to(&self.gpu) {
            return Err(SetError::OtherDevice.into());
        }
        slot.extent.check(memory.span(), taken)?;
        let slot = self.pointer_slots.get_mut(&buffer).expect("it is there");
        let before = slot.bound.replace(memory.clone());
        let uses = std::mem::take(&mut slot.uses);
        let made: Result<Vec<_>, GpuError> =
            uses.iter().map(|&GroupId(at)| self.group(&self.recipes[at as usize])).collect();
        let slot = self.pointer_slots.get_mut(&buffer).expect("it was there before");
        match made {
            Ok(groups) => {
                for (&GroupId(at), group) in uses.iter().zip(groups) {
                    self.groups[at as usize] = group;
                }
                slot.uses = uses;
                self.unbound.remove(&buffer);
                Ok(())
            }
            Err(error) => {
                (slot.bound, slot.uses) = (before, uses);
                Err(error.into())
            }
        }
    }

    /// Enables or disables a node of the outermost graph for the replays to come. A disabled node does nothing; its
    /// neighbours are ordered as before.
    ///
    /// # Errors
    /// [`SetError::NotDisableable`] for nodes other than kernels, copies and fills.
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<(), SetError> {
        let ops = self.switches.get(node.index()).ok_or(SetError::UnknownNode(node))?;
        let ops = ops.clone().ok_or(SetError::NotDisableable(node))?;
        for op in &mut self.ops[ops.start as usize..ops.end as usize] {
            op.enabled = enabled;
        }
        Ok(())
    }

    /// A buffer, and where in it the place starts.
    fn buffer(&self, place: Place) -> Option<(&wgpu::Buffer, u64)> {
        match place {
            Place::Fixed(at) => Some((&self.buffers[at as usize], 0)),
            Place::Slot(id) => {
                let bound = self.pointer_slots[&id].bound.as_ref()?;
                Some((bound.buffer(), bound.offset()))
            }
        }
    }

    /// Makes a bind group; `None` if a slot in it has no memory.
    pub(crate) fn group(&self, recipe: &GroupRecipe) -> Result<Option<wgpu::BindGroup>, GpuError> {
        let mut entries = Vec::with_capacity(recipe.entries.len());
        for (binding, window) in (0..).zip(&recipe.entries) {
            let Some((buffer, start)) = self.buffer(window.place) else { return Ok(None) };
            let (offset, size) = (start + window.offset, wgpu::BufferSize::new(window.bytes));
            let bound = wgpu::BufferBinding { buffer, offset, size };
            let resource = wgpu::BindingResource::Buffer(bound);
            entries.push(wgpu::BindGroupEntry { binding, resource });
        }
        let layout = &recipe.layout;
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        self.gpu.scoped(|| Some(self.gpu.device.create_bind_group(&descriptor)))
    }

    /// Encodes operations, leaving out what is disabled.
    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder, ops: Range<u32>) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let (mut pipeline, mut group, mut block) = (None, None, None);
        for op in &self.ops[ops.start as usize..ops.end as usize] {
            let Some(bound) = &self.groups[op.group.0 as usize] else { continue };
            if !op.enabled {
                continue;
            }
            if pipeline.replace(op.pipeline) != Some(op.pipeline) {
                pass.set_pipeline(&self.pipelines[op.pipeline.0 as usize]);
            }
            if group.replace(op.group) != Some(op.group) {
                pass.set_bind_group(0, bound, &[]);
            }
            if block.replace(op.block) != Some(op.block) {
                pass.set_bind_group(1, &self.params.group, &[op.block]);
            }
            let [x, y, z] = op.groups;
            pass.dispatch_workgroups(x, y, z);
        }
    }

    /// Submits a run.
    pub(crate) fn launch(&mut self) -> Result<(), ReplayError> {
        if let Some(&buffer) = self.unbound.first() {
            return Err(ReplayError::Unbound(buffer));
        }
        self.gpu.check().map_err(during(Stage::Submit))?;
        self.params.flush(&self.gpu);
        let mut encoder = Some(self.encoder());
        let run = self.steps(0..self.steps.len(), &mut encoder);
        let mut encoder = encoder.unwrap_or_else(|| self.encoder());
        self.copy_faults(&mut encoder);
        let submitted = self.submit(encoder).map_err(during(Stage::Submit));
        // Also after a run that a node has stopped: finishing it forgets the fault.
        run.and(submitted.map(|last| self.last = Some(last)))
    }

    /// Hands commands to the queue. What wgpu refuses of them was not submitted.
    fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<wgpu::SubmissionIndex, GpuError> {
        let submission = self.gpu.queue.submit([encoder.finish()]);
        self.gpu.check().map(|()| submission)
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn copy_faults(&self, encoder: &mut wgpu::CommandEncoder) {
        if let (Some(faults), Some(readback)) = (&self.faults, &self.readback) {
            let (record, _) = self.buffer(faults.record).expect("a record is no slot");
            encoder.copy_buffer_to_buffer(record, 0, readback, 0, FAULT_BYTES);
        }
    }

    /// Does steps: encodes them, and submits what is encoded where a branch wants to know. Recursive over nesting, which
    /// graphs bound.
    fn steps(
        &self,
        steps: Range<usize>,
        encoder: &mut Option<wgpu::CommandEncoder>,
    ) -> Result<(), ReplayError> {
        let mut at = steps.start;
        while at < steps.end {
            match &self.steps[at] {
                Step::Run(ops) => {
                    self.encode(encoder.get_or_insert_with(|| self.encoder()), ops.clone());
                    at += 1;
                }
                Step::Branch(branch) => {
                    self.branch(branch, encoder)?;
                    at = branch.end;
                }
            }
        }
        Ok(())
    }

    fn branch(
        &self,
        branch: &Branch,
        encoder: &mut Option<wgpu::CommandEncoder>,
    ) -> Result<(), ReplayError> {
        let body = |at: usize| branch.bodies.get(at).cloned();
        match branch.kind {
            ConditionalKind::If => {
                let chosen = if self.decide(branch, encoder)? != 0 { body(0) } else { body(1) };
                chosen.map_or(Ok(()), |body| self.steps(body, encoder))
            }
            ConditionalKind::While => {
                while self.decide(branch, encoder)? != 0 {
                    body(0).map_or(Ok(()), |body| self.steps(body, encoder))?;
                }
                Ok(())
            }
            ConditionalKind::Switch => {
                let value = self.decide(branch, encoder)?;
                let chosen = usize::try_from(value).ok().and_then(body);
                chosen.map_or(Ok(()), |body| self.steps(body, encoder))
            }
        }
    }

    /// Submits what is encoded, waits for it and reads the value that a branch decides by.
    fn decide(
        &self,
        branch: &Branch,
        encoder: &mut Option<wgpu::CommandEncoder>,
    ) -> Result<i64, ReplayError> {
        let mut encoder = encoder.take().unwrap_or_else(|| self.encoder());
        let readback = self.readback.as_ref().expect("made for graphs with branches");
        let place = self.buffer(branch.place);
        let (buffer, start) = place.expect("a launch without memory was refused");
        let word = start + branch.offset - branch.offset % 4;
        self.copy_faults(&mut encoder);
        encoder.copy_buffer_to_buffer(buffer, word, readback, FAULT_BYTES, 4);
        let submitted = self.submit(encoder);
        let words = submitted.and_then(|last| self.gpu.mapped(readback, last, words_of));
        let words = words.map_err(|e| during(Stage::Decide(branch.node.clone()))(e))?;
        self.fault(&words)?;
        Ok(branch.value(words[FAULT_WORDS]))
    }

    /// The fault that a record tells of.
    fn fault(&self, words: &[u32]) -> Result<(), ReplayError> {
        let Some(faults) = &self.faults else { return Ok(()) };
        if words[0] == 0 {
            return Ok(());
        }
        let node = &faults.nodes[words[1] as usize];
        let (position, value) = (u64::from(words[2]), words[3]);
        let value = if node.signed { i64::from(value as i32) } else { i64::from(value) };
        let error = KernelError::Row { position, value, rows: node.rows };
        let cause = NodeFault::Kernel(error);
        Err(ReplayError::Node { node: node.path.clone(), cause })
    }

    /// Waits for the runs so far and reports the first fault among them.
    pub(crate) fn finish(&mut self) -> Result<(), ReplayError> {
        let waited = |result: Result<(), GpuError>| result.map_err(during(Stage::Finish));
        let Some(last) = self.last.clone() else { return waited(self.gpu.check()) };
        let (Some(faults), Some(readback)) = (&self.faults, &self.readback) else {
            return waited(self.gpu.wait(last));
        };
        let words = self.gpu.mapped(readback, last, words_of).map_err(during(Stage::Finish))?;
        let fault = self.fault(&words);
        if fault.is_err() {
            let (record, _) = self.buffer(faults.record).expect("a record is no slot");
            let mut encoder = self.encoder();
            encoder.clear_buffer(record, 0, None);
            self.copy_faults(&mut encoder);
            self.last = Some(self.submit(encoder).map_err(during(Stage::Finish))?);
        }
        fault
    }
}

fn words_of(bytes: &[u8]) -> [u32; FAULT_WORDS + 1] {
    std::array::from_fn(|at| {
        let word = bytes[at * 4..at * 4 + 4].try_into().expect("four bytes");
        u32::from_le_bytes(word)
    })
}

/// Why memory could not be bound to a pointer slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// No such slot, or memory that does not fit it.
    #[error(transparent)]
    Set(#[from] SetError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] GpuError),
}
