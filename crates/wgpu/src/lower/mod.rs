//! From a graph and its schedule to the tables that a replay walks.
//!
//! In: a graph and a schedule, which the checker and the race check have to pass. Out: an [`Exec`]. Nodes become
//! dispatches in issue order, one each; child graphs lie flat among them. One queue runs dispatches that touch a common
//! buffer one after another, which is at least the guaranteed order, so edges, streams and events leave no trace. A step
//! of several nodes is as many dispatches: fusing is for passes over graphs. O(nodes + edges), besides compiling.

mod control;
mod kernel;
mod pools;
mod transfer;

use std::sync::Arc;

use phonograph_graph::{
    Buffer, BufferId, BufferRole, ComputeGraph, DEFAULT_ALIGN, NodeId, NodeKind, Schedule, SlotId,
    Space, Step as Scheduled,
};
use phonograph_runtime::refused::{
    NodePath, SlotExtent, can_be_disabled, check_bindings, check_graph,
};
use rustc_hash::FxHashMap;

use crate::bindings::{Bindings, InstantiateError};
use crate::error::GpuError;
use crate::exec::{
    Exec, FAULT_BYTES, Faults, GroupId, GroupRecipe, Op, PipelineId, Place, PointerSlot,
    ScalarSlot, Step,
};
use crate::gpu::Gpu;
use crate::memory::Memory;
use crate::params::ParamsBuilder;
use crate::pipelines::Pipelines;

/// Internal buffers lie in storage buffers of this usage.
const ARENA: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

pub(crate) fn instantiate(
    gpu: &Arc<Gpu>,
    pipelines: &mut Pipelines,
    graph: &ComputeGraph,
    schedule: &Schedule,
    bindings: &Bindings<'_>,
) -> Result<Exec, InstantiateError> {
    check_graph(graph, schedule)?;
    let slots = graph.slots().iter();
    let slots = slots.map(|slot| ScalarSlot { value: slot.default, uses: Vec::new() });
    let mut lowering = Lowering {
        gpu,
        pipelines,
        bindings,
        ops: Vec::new(),
        op_nodes: Vec::new(),
        steps: Vec::new(),
        used: Vec::new(),
        pipeline_ids: FxHashMap::default(),
        recipes: Vec::new(),
        group_ids: FxHashMap::default(),
        params: ParamsBuilder::new(gpu),
        buffers: Vec::new(),
        buffer_ids: FxHashMap::default(),
        arena_bytes: 0,
        nothing: None,
        memory: FxHashMap::default(),
        pointer_slots: FxHashMap::default(),
        scalar_slots: slots.collect(),
        faults: None,
        branches: false,
    };
    let bases = lowering.bind(graph)?;
    let slots = (0..graph.slots().len()).map(SlotId::from_index).collect();
    let mut scope = Scope { graph, schedule, path: Vec::new(), bases, slots };
    let mut switches = vec![None; graph.node_count()];
    lowering.graph(&mut scope, |id, ops| switches[id.index()] = Some(ops))?;
    for (id, switch) in graph.node_ids().zip(&mut switches) {
        if !can_be_disabled(&graph.node(id).kind) {
            *switch = None;
        }
    }
    lowering.finish(switches)
}

/// Where a buffer starts.
#[derive(Clone, Copy)]
struct Base {
    place: Place,
    offset: u64,
    /// Bytes of the buffer of wgpu's, or of the pointer slot.
    bytes: u64,
}

/// A graph that is being lowered, and what its ids stand for.
struct Scope<'g> {
    graph: &'g ComputeGraph,
    schedule: &'g Schedule,
    /// The nodes around it.
    path: Vec<(NodeId, String)>,
    /// `None` for an internal buffer that has no place: nothing of it is touched.
    bases: Vec<Option<Base>>,
    /// The slots of the outermost graph.
    slots: Vec<SlotId>,
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

    fn refused(&self, id: NodeId) -> impl Fn(GpuError) -> InstantiateError + '_ {
        move |source| InstantiateError::Node { node: self.path(id), source }
    }
}

struct Lowering<'a> {
    gpu: &'a Arc<Gpu>,
    pipelines: &'a mut Pipelines,
    bindings: &'a Bindings<'a>,
    ops: Vec<Op>,
    /// The node of each operation.
    op_nodes: Vec<NodePath>,
    steps: Vec<Step>,
    used: Vec<wgpu::ComputePipeline>,
    pipeline_ids: FxHashMap<wgpu::ComputePipeline, PipelineId>,
    recipes: Vec<GroupRecipe>,
    group_ids: FxHashMap<GroupRecipe, GroupId>,
    params: ParamsBuilder,
    buffers: Vec<wgpu::Buffer>,
    buffer_ids: FxHashMap<wgpu::Buffer, u32>,
    arena_bytes: u64,
    /// What stands for buffers without a place.
    nothing: Option<Base>,
    memory: FxHashMap<BufferId, Memory>,
    pointer_slots: FxHashMap<BufferId, PointerSlot>,
    scalar_slots: Vec<ScalarSlot>,
    faults: Option<Faults>,
    branches: bool,
}

impl Lowering<'_> {
    /// Memory for the external buffers of the outermost graph, and its pointer slots.
    fn bind(&mut self, graph: &ComputeGraph) -> Result<Vec<Option<Base>>, InstantiateError> {
        let unsuited = |_: &Buffer, memory: &Memory| {
            let other = !memory.belongs_to(self.gpu);
            other.then(|| "belongs to another device".to_owned())
        };
        let given = check_bindings(graph, &self.bindings.memory, Memory::span, unsuited)?;
        let mut bases = Vec::with_capacity(graph.buffers().len());
        for (index, declared) in graph.buffers().iter().enumerate() {
            let buffer = BufferId::from_index(index);
            check_space(buffer, declared)?;
            let given = given.get(&buffer).map(|&memory| memory.clone());
            bases.push(match declared.role {
                BufferRole::External => {
                    let memory = match given {
                        Some(memory) => memory,
                        None => Memory::new(self.gpu, declared.bytes)
                            .map_err(no_memory(graph, buffer))?,
                    };
                    let base = self.fixed(memory.buffer().clone());
                    let offset = memory.offset();
                    self.memory.insert(buffer, memory);
                    Some(Base { offset, ..base })
                }
                BufferRole::Slot(_) => {
                    let (bytes, align) = (declared.bytes, declared.align);
                    let extent = SlotExtent { buffer, bytes, align };
                    let slot = PointerSlot { extent, bound: given, uses: Vec::new() };
                    self.pointer_slots.insert(buffer, slot);
                    let bytes = bytes.next_multiple_of(4).max(4);
                    Some(Base { place: Place::Slot(buffer), offset: 0, bytes })
                }
                BufferRole::Internal | BufferRole::Outer(_) => None,
            });
        }
        Ok(bases)
    }

    /// Keeps a buffer. One that is there already is the same place: parts of it share bindings.
    fn fixed(&mut self, buffer: wgpu::Buffer) -> Base {
        let bytes = buffer.size();
        let next = self.buffers.len() as u32;
        let at = *self.buffer_ids.entry(buffer).or_insert_with_key(|buffer| {
            self.buffers.push(buffer.clone());
            next
        });
        Base { place: Place::Fixed(at), offset: 0, bytes }
    }

    fn base(&mut self, scope: &Scope<'_>, buffer: BufferId) -> Result<Base, GpuError> {
        if let Some(base) = scope.bases[buffer.index()] {
            return Ok(base);
        }
        // Only a buffer of no bytes is used without a place, and nothing of it is touched.
        match self.nothing {
            Some(base) => Ok(base),
            None => {
                let base = self.gpu.buffer(4, ARENA).map(|buffer| self.fixed(buffer))?;
                self.nothing = Some(base);
                Ok(base)
            }
        }
    }

    /// Allocates the pools of the schedule and lowers the nodes in issue order; tells the operations of each.
    fn graph(
        &mut self,
        scope: &mut Scope<'_>,
        mut lowered: impl FnMut(NodeId, std::ops::Range<u32>),
    ) -> Result<(), InstantiateError> {
        self.place_internal(scope)?;
        let schedule = scope.schedule;
        for step in &schedule.steps {
            let Scheduled::Run { nodes, .. } = step else { continue };
            for &id in nodes {
                let first = self.ops.len() as u32;
                self.node(scope, id)?;
                lowered(id, first..self.ops.len() as u32);
            }
        }
        Ok(())
    }

    /// Allocates the parts of the pools and places the internal buffers.
    fn place_internal(&mut self, scope: &mut Scope<'_>) -> Result<(), InstantiateError> {
        for (index, declared) in scope.graph.buffers().iter().enumerate() {
            check_space(BufferId::from_index(index), declared)?;
        }
        let limits = &self.gpu.limits;
        let align = u64::from(limits.min_storage_buffer_offset_alignment).max(DEFAULT_ALIGN);
        for &space in scope.schedule.memory.pools.keys() {
            let (graph, schedule) = (scope.graph, scope.schedule);
            let cut = pools::cut(graph, schedule, space, align, limits.max_buffer_size);
            let mut parts = Vec::with_capacity(cut.parts.len());
            for (at, part) in cut.parts.iter().enumerate() {
                let buffer = self.gpu.buffer(part.end - part.start, ARENA);
                let buffer = buffer.map_err(|source| match cut.largest(graph, at) {
                    Some(largest) => no_memory(graph, largest)(source),
                    None => source.into(),
                })?;
                self.arena_bytes += buffer.size();
                parts.push(self.fixed(buffer));
            }
            for (index, part) in cut.part_of.iter().enumerate() {
                let offset = scope.schedule.memory.offset(BufferId::from_index(index));
                if let (&Some(part), Some(offset)) = (part, offset) {
                    let offset = offset - cut.parts[part].start;
                    scope.bases[index] = Some(Base { offset, ..parts[part] });
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, scope: &Scope<'_>, id: NodeId) -> Result<(), InstantiateError> {
        match &scope.graph.node(id).kind {
            NodeKind::Kernel(kernel) => self.kernel(scope, id, kernel),
            NodeKind::Memcpy(copy) => self.copy(scope, id, copy),
            NodeKind::Memset(fill) => self.fill(scope, id, fill),
            NodeKind::Empty => Ok(()),
            NodeKind::Alloc(buffer) | NodeKind::Free(buffer) => {
                if scope.graph.buffer(*buffer).role != BufferRole::Internal {
                    let reason = "it allocates or frees memory that is not internal to the graph";
                    return Err(scope.unsupported(id, reason));
                }
                Ok(())
            }
            NodeKind::Child(graph) => {
                self.inner(scope, id, graph, &scope.schedule.inner[&id][0]).map(|_| ())
            }
            NodeKind::Conditional(conditional) => self.conditional(scope, id, conditional),
            NodeKind::Host(_) => {
                let reason = "a software graph is one command buffer, which cannot call the host; split the graph there";
                Err(scope.unsupported(id, reason))
            }
            NodeKind::EventRecord(_) | NodeKind::EventWait(_) => {
                let reason = "wgpu has no events that other work could record or wait for; split the graph there";
                Err(scope.unsupported(id, reason))
            }
        }
    }

    /// Adds a dispatch.
    fn op(&mut self, op: Op, node: NodePath) {
        let at = self.ops.len() as u32;
        self.ops.push(op);
        self.op_nodes.push(node);
        match self.steps.last_mut() {
            Some(Step::Run(ops)) if ops.end == at => ops.end += 1,
            _ => self.steps.push(Step::Run(at..at + 1)),
        }
    }

    fn pipeline_id(&mut self, pipeline: wgpu::ComputePipeline) -> PipelineId {
        let next = PipelineId(self.used.len() as u32);
        *self.pipeline_ids.entry(pipeline).or_insert_with_key(|pipeline| {
            self.used.push(pipeline.clone());
            next
        })
    }

    fn group_id(&mut self, recipe: GroupRecipe) -> GroupId {
        if let Some(&id) = self.group_ids.get(&recipe) {
            return id;
        }
        let id = GroupId(self.recipes.len() as u32);
        for window in &recipe.entries {
            if let Place::Slot(slot) = window.place {
                let slot = self.pointer_slots.get_mut(&slot).expect("`bind` has one for each");
                slot.uses.push(id);
            }
        }
        self.recipes.push(recipe.clone());
        self.group_ids.insert(recipe, id);
        id
    }

    /// Makes what is left to make, and has wgpu look at all of it.
    fn finish(self, switches: Vec<Option<std::ops::Range<u32>>>) -> Result<Exec, InstantiateError> {
        let gpu = self.gpu;
        let params = self.params.finish(gpu, &self.pipelines.block)?;
        let readback = if self.faults.is_some() || self.branches {
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            Some(gpu.buffer(FAULT_BYTES + 4, usage)?)
        } else {
            None
        };
        let slots = self.pointer_slots.iter();
        let unbound = slots.filter(|(_, slot)| slot.bound.is_none()).map(|(&buffer, _)| buffer);
        let mut exec = Exec {
            gpu: gpu.clone(),
            ops: self.ops.into(),
            steps: self.steps.into(),
            pipelines: self.used.into(),
            recipes: self.recipes.into(),
            groups: Box::default(),
            params,
            buffers: self.buffers.into(),
            arena_bytes: self.arena_bytes,
            memory: self.memory,
            unbound: unbound.collect(),
            pointer_slots: self.pointer_slots,
            scalar_slots: self.scalar_slots,
            switches: switches.into(),
            faults: self.faults,
            readback,
            last: None,
        };
        let mut first_of_group = vec![None; exec.recipes.len()];
        for (op, node) in exec.ops.iter().zip(&self.op_nodes) {
            first_of_group[op.group.0 as usize].get_or_insert(node);
        }
        let mut groups = Vec::with_capacity(exec.recipes.len());
        for (recipe, node) in exec.recipes.iter().zip(first_of_group) {
            groups.push(exec.group(recipe).map_err(|source| match node {
                Some(node) => InstantiateError::Node { node: node.clone(), source },
                None => InstantiateError::Device(source),
            })?);
        }
        exec.groups = groups.into();
        rehearse(&exec, &self.op_nodes)?;
        Ok(exec)
    }
}

/// Encodes a replay without submitting it. If wgpu refuses, every dispatch is encoded alone to find the one at fault.
fn rehearse(exec: &Exec, nodes: &[NodePath]) -> Result<(), InstantiateError> {
    let encode = |ops: std::ops::Range<u32>| {
        exec.gpu.scoped(|| {
            let mut encoder = exec.gpu.device.create_command_encoder(&Default::default());
            exec.encode(&mut encoder, ops);
            encoder.finish();
        })
    };
    let Err(all) = encode(0..exec.ops.len() as u32) else { return Ok(()) };
    for (at, node) in (0..).zip(nodes) {
        if let Err(source) = encode(at..at + 1) {
            return Err(InstantiateError::Node { node: node.clone(), source });
        }
    }
    Err(all.into())
}

fn no_memory(
    graph: &ComputeGraph,
    buffer: BufferId,
) -> impl FnOnce(GpuError) -> InstantiateError + '_ {
    move |source| {
        let name = graph.buffer(buffer).name.to_string();
        InstantiateError::Memory { buffer, name, source }
    }
}

/// There is one device; host memory is memory of it.
fn check_space(id: BufferId, declared: &Buffer) -> Result<(), InstantiateError> {
    match declared.space {
        Space::Device(index) if index > 0 => Err(InstantiateError::Buffer {
            buffer: id,
            name: declared.name.to_string(),
            problem: format!("is declared on device {index}; a graph on wgpu has device 0 alone"),
        }),
        _ => Ok(()),
    }
}
