//! Everything but kernels and transfers: host calls, events, allocations, and graphs inside nodes.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUgraph, CUgraphConditionalNodeType, CUgraphNode,
    CUgraphNodeType, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType,
};
use phonograph_graph::{
    BufferId, BufferRole, ComputeGraph, Condition, ConditionalKind, ConditionalNode, EventId,
    NodeId, Schedule, View,
};
use phonograph_kernels::cuda::set_condition;
use phonograph_runtime::cpu::kernels::{PrepareError, Prepared, Registry};
use smallvec::{SmallVec, smallvec};

use super::Lowering;
use super::bases::Base;
use super::scope::{Place, Scope};
use crate::bindings::InstantiateError;
use crate::device::zeroed;
use crate::error::{Version, call};
use crate::exec::is_on_host;
use crate::graph::{Dependencies, Graph, add_child, add_node, child_of, params_of};
use crate::host_call::{HostCall, call_host};
use crate::launch::{Launch, Values};
use crate::stream::Event;

/// The first driver with a second body of `if` and with `switch`.
const ELSE_AND_SWITCH: Version = Version { major: 12, minor: 8 };

impl Lowering<'_> {
    pub(super) fn empty(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY);
        let node = match self.noted(scope, scope.driver) {
            Some(made) => Ok(made.empty(after)),
            // SAFETY: the graph lives, and an empty node has no parameters.
            None => unsafe { add_node(scope.driver, after, &mut params) },
        };
        Ok(smallvec![node.map_err(scope.refused(id))?])
    }

    pub(super) fn host(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let none = Registry::new();
        let registry = self.bindings.hosts.unwrap_or(&none);
        let failed = |source: PrepareError| InstantiateError::Host { node: scope.path(id), source };
        let prepared = Prepared::new(scope.graph, id, registry).map_err(failed)?;
        let prepared = prepared.expect("a host node has work");
        let mut buffers = Vec::with_capacity(prepared.buffers().len());
        for &buffer in prepared.buffers() {
            let declared = scope.graph.buffer(buffer);
            if !is_on_host(declared) {
                let reason = format!(
                    "its function is given {buffer} ({}), which is in device memory; copy it to host memory first",
                    declared.name
                );
                return Err(scope.unsupported(id, reason));
            }
            let (address, slot) = self.resolve(scope, buffer);
            if slot.is_some() {
                let reason =
                    "its function is given a pointer slot; bind an external buffer instead";
                return Err(scope.unsupported(id, reason));
            }
            // Kernels take elements of any type to be aligned, given that their buffer is.
            if !address.is_multiple_of(8) {
                let reason = format!("{buffer} is not aligned to 8 bytes; declare it so");
                return Err(scope.unsupported(id, reason));
            }
            buffers.push(address as usize as *mut u8);
        }
        let (path, fault) = (scope.path(id), self.held.host_fault.clone());
        let call = Arc::new(HostCall { path, prepared, buffers: buffers.into(), fault });
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST);
        let mut host = zeroed::<cudarc::driver::sys::CUDA_HOST_NODE_PARAMS_v2>();
        host.fn_ = Some(call_host);
        host.userData = Arc::as_ptr(&call).cast_mut().cast();
        params.__bindgen_anon_1.host = host;
        // SAFETY: the user data is a shared `HostCall`, which stays where it is, is only read, and is kept by the `Exec`.
        let node = unsafe { add_node(scope.driver, after, &mut params) };
        let node = node.map_err(scope.refused(id))?;
        self.held.hosts.push(call);
        Ok(smallvec![node])
    }

    pub(super) fn event(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        event: EventId,
        is_record: bool,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let known = match self.events.get(&event) {
            Some(known) => known.clone(),
            None => {
                let made = Event::new(&self.target.devices[0])?;
                self.events.insert(event, made.clone());
                made
            }
        };
        let mut params;
        if is_record {
            params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD);
            params.__bindgen_anon_1.eventRecord.event = known.handle();
        } else {
            params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT);
            params.__bindgen_anon_1.eventWait.event = known.handle();
        }
        // SAFETY: the event is kept by the `Exec`.
        let node = unsafe { add_node(scope.driver, after, &mut params) };
        Ok(smallvec![node.map_err(scope.refused(id))?])
    }

    pub(super) fn alloc(
        &mut self,
        scope: &mut Scope<'_>,
        id: NodeId,
        buffer: BufferId,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let declared = scope.graph.buffer(buffer);
        if declared.role != BufferRole::Internal || is_on_host(declared) {
            let reason = "it allocates memory that is not internal to the graph and the device";
            return Err(scope.unsupported(id, reason));
        }
        if self.allocated.contains(&buffer) {
            return Err(scope.unsupported(id, format!("it allocates {buffer} a second time")));
        }
        let device = self.device_of(buffer, declared)?;
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        let mut alloc = zeroed::<cudarc::driver::sys::CUDA_MEM_ALLOC_NODE_PARAMS_v2>();
        alloc.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        alloc.poolProps.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        alloc.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        alloc.poolProps.location.id = device.ordinal() as c_int;
        alloc.bytesize = declared.bytes.max(1) as usize;
        params.__bindgen_anon_1.alloc = alloc;
        // SAFETY: the properties describe memory of a device that exists.
        let node = unsafe { add_node(scope.driver, after, &mut params) };
        let node = node.map_err(scope.refused(id))?;
        // SAFETY: the parameters are those of an allocation, into which the driver wrote the address.
        let address = unsafe { params.__bindgen_anon_1.alloc.dptr };
        if !address.is_multiple_of(declared.align) {
            let reason = format!("it asks for an alignment of {} bytes", declared.align);
            return Err(scope.unsupported(id, reason));
        }
        scope.bases[buffer.index()] = Base::Address(address);
        self.allocated.push(buffer);
        Ok(smallvec![node])
    }

    pub(super) fn free(
        &mut self,
        scope: &mut Scope<'_>,
        id: NodeId,
        buffer: BufferId,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let held = self.allocated.iter().position(|&known| known == buffer);
        let (Some(at), Base::Address(address)) = (held, scope.bases[buffer.index()]) else {
            let reason = format!("it frees {buffer}, which no node before it allocates");
            return Err(scope.unsupported(id, reason));
        };
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE);
        params.__bindgen_anon_1.free.dptr = address;
        // SAFETY: the address is that of an allocation node of this graph.
        let node = unsafe { add_node(scope.driver, after, &mut params) };
        let node = node.map_err(scope.refused(id))?;
        self.allocated.swap_remove(at);
        Ok(smallvec![node])
    }

    pub(super) fn child(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        graph: &ComputeGraph,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        // The driver clones the graph that a child node is made of; an empty one is filled after that, so that the nodes
        // inside can be told apart and changed later.
        let device = &self.target.devices[0];
        let empty = Graph::new(device)?;
        let _current = device.enter()?;
        // SAFETY: the graph lives until the node has its clone.
        let node = unsafe { add_child(scope.driver, after, empty.handle()) };
        let node = node.map_err(scope.refused(id))?;
        // SAFETY: the node was just added and is a child graph.
        let inside = unsafe { child_of(node) }.map_err(scope.refused(id))?;
        let place = if scope.place == Place::Body { Place::Body } else { Place::Child };
        self.inner(scope, id, graph, &scope.schedule.inner[&id][0], inside, place)?;
        Ok(smallvec![node])
    }

    pub(super) fn conditional(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &ConditionalNode,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let Condition::Value(value) = node.condition else {
            let reason = "it decides by a driver's handle; a value in device memory is needed";
            return Err(scope.unsupported(id, reason));
        };
        let driver = self.target.driver;
        let newer = node.kind == ConditionalKind::Switch || node.bodies.len() > 1;
        if newer && driver < ELSE_AND_SWITCH {
            let reason = format!(
                "a conditional `{}` of {} bodies needs a driver for CUDA {ELSE_AND_SWITCH}; this one is for {driver}",
                node.kind.name(),
                node.bodies.len()
            );
            return Err(scope.unsupported(id, reason));
        }
        let device = &self.target.devices[0];
        let context = device.context();
        let _current = device.enter()?;
        let mut handle = 0;
        // SAFETY: graph and context live; the handle's default is never used, because a kernel sets it in every run.
        unsafe { call!(cuGraphConditionalHandleCreate(&mut handle, scope.driver, context, 0, 0)) }
            .map_err(scope.refused(id))?;
        let set = self.setter(scope, scope.driver, id, handle, &value, after)?;
        let mut decided = Dependencies::default();
        decided.push_full(set);
        let mut conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            type_: match node.kind {
                ConditionalKind::If => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
                ConditionalKind::While => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
                ConditionalKind::Switch => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH,
            },
            size: node.bodies.len() as u32,
            phGraph_out: ptr::null_mut(),
            ctx: context,
        };
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL);
        params.__bindgen_anon_1.conditional = conditional;
        // SAFETY: the handle is of this graph and used by this node alone.
        let added = unsafe { add_node(scope.driver, &decided, &mut params) };
        let added = added.map_err(scope.refused(id))?;
        // SAFETY: the parameters are those of a conditional, into which the driver wrote where the bodies are: as many as
        // were asked for, owned by the node.
        let bodies: Vec<CUgraph> = unsafe {
            conditional = params.__bindgen_anon_1.conditional;
            std::slice::from_raw_parts(conditional.phGraph_out, node.bodies.len()).to_vec()
        };
        for (index, (body, inside)) in node.bodies.iter().zip(bodies).enumerate() {
            let schedule = &scope.schedule.inner[&id][index];
            let inner = self.inner(scope, id, body, schedule, inside, Place::Body)?;
            if node.kind == ConditionalKind::While {
                // After everything in the body the value is read again.
                let sinks = body.node_ids().filter(|&id| body.successors(id).is_empty());
                let last = sinks.flat_map(|id| inner.ends[id.index()].iter().copied());
                let last = Dependencies::on(last);
                self.setter(scope, inside, id, handle, &value, &last)?;
            }
        }
        Ok(smallvec![added])
    }

    /// Adds to `inside` a kernel that hands the value to the handle; the value and the node are of `scope`.
    fn setter(
        &mut self,
        scope: &Scope<'_>,
        inside: CUgraph,
        id: NodeId,
        handle: u64,
        value: &View,
        after: &Dependencies,
    ) -> Result<CUgraphNode, InstantiateError> {
        let device = self.target.devices[0].clone();
        let function = self.compiled(scope, id, &device, &set_condition(value.dtype))?;
        let address = self.view(scope, id, 1, value)?;
        let mut values = Values::default();
        values.push(handle);
        values.push(address);
        let one = (1, 1, 1);
        let handle = function.handle();
        let launch = Launch { function: handle, grid: one, block: one, shared_bytes: 0, values };
        self.kernel_node(scope, inside, id, &function, &launch, after)
    }

    /// Lowers a graph inside node `id` into a graph of the driver.
    fn inner<'g>(
        &mut self,
        around: &Scope<'_>,
        id: NodeId,
        graph: &'g ComputeGraph,
        schedule: &'g Schedule,
        driver: CUgraph,
        place: Place,
    ) -> Result<Scope<'g>, InstantiateError> {
        let base = |declared: &phonograph_graph::Buffer| match declared.role {
            BufferRole::Outer(outer) => around.bases[outer.index()],
            _ => Base::None,
        };
        let slots = graph.slots().iter().filter_map(|slot| slot.outer);
        let bases = graph.buffers().iter().map(base).collect();
        let slots = slots.map(|slot| around.slots[slot.index()]).collect();
        let path = around.path(id).0;
        let mut scope = Scope { place, path, ..Scope::new(graph, schedule, driver, bases, slots) };
        // Recursive over nesting, which graphs bound.
        self.graph(&mut scope)?;
        Ok(scope)
    }
}
