//! Making a graph of the driver anew from another, node by node, with fewer edges.
//!
//! The other stays as it is and is kept: the driver's copies of parameters are its own, but what host functions and
//! libraries tie to a graph is not. Launch attributes are copied; without them kernels that run in clusters fault. What is
//! built node by node also instantiates faster than what was captured (1.3 against 3.2 µs a node on an H200).
//! O(nodes + edges), beyond the proof that all order stays.

use std::ffi::c_int;
use std::ptr;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUfunction_attribute,
    CUgraph, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};
use phonograph_graph::{ComputeGraph, NodeId, NodeKind};

use super::divert::{Diversion, Values, divert};
use super::edit::{EditError, compare};
use super::exec::Captured;
use super::read::{Read, read};
use super::{ImportError, Imported};
use crate::device::{Device, zeroed};
use crate::error::{DriverError, call};
use crate::graph::{Behind, Dependencies, Graph, add_child, add_node, child_of, params_of};
use crate::transfer::{Transfer, zeroed_copy};

impl Imported {
    /// A graph of one's own that does the same with the edges of `reduced`, which is [`graph`](Self::graph) with fewer edges.
    /// Copies and fills run in the device's context.
    ///
    /// # Errors
    /// As for [`reduce_to`](Self::reduce_to). The graph that was read is as it was in any case.
    pub fn rebuild(self, device: &Device, reduced: &ComputeGraph) -> Result<Captured, EditError> {
        // SAFETY: `Imported::read` was promised that the graph lives as long as `self`, which the result keeps.
        unsafe { rebuilt(&self.0, device, reduced) }
            .map(|(imported, graph)| Captured::new(imported, graph, Some(Box::new(self))))
    }
}

impl Captured {
    /// A graph that does the same with the edges of `reduced`, which is this graph with fewer edges. It keeps this one.
    ///
    /// # Errors
    /// As for [`Imported::reduce_to`].
    pub fn rebuild(self, reduced: &ComputeGraph) -> Result<Captured, EditError> {
        let device = self.device().clone();
        // SAFETY: the graph that was read is owned by `self`, which the result keeps.
        unsafe { rebuilt(&self.imported.0, &device, reduced) }
            .map(|(imported, graph)| Captured::new(imported, graph, Some(Box::new(self))))
    }
}

/// # Safety
/// What was read lives as long as the result.
unsafe fn rebuilt(
    source: &Read,
    device: &Device,
    reduced: &ComputeGraph,
) -> Result<(Imported, Graph), EditError> {
    compare(source, reduced, &mut Vec::new())?;
    let _current = device.enter().map_err(ImportError::from)?;
    let graph = Graph::new(device)?;
    // SAFETY: the caller's promise, and the graph was just made.
    unsafe {
        copy(source, reduced, graph.handle(), device)?;
        Ok((Imported(read(graph.handle())?), graph))
    }
}

/// Adds to an empty graph what was read, with the edges of `reduced`. Nesting is bounded, which reading has seen.
///
/// # Safety
/// Both graphs live; what was read has been compared with `reduced`.
pub(super) unsafe fn copy(
    source: &Read,
    reduced: &ComputeGraph,
    into: CUgraph,
    device: &Device,
) -> Result<(), EditError> {
    let mut made: Vec<CUgraphNode> = vec![ptr::null_mut(); source.nodes.len()];
    let mut behind = Behind::default();
    for &id in reduced.topological_order() {
        let mut after = Dependencies::default();
        for edge in reduced.incoming(id) {
            after.push_or_defer(made[edge.from.index()], source.data_of(&edge));
        }
        // SAFETY: the caller's promise.
        let node =
            unsafe { copy_node(source, id, &reduced.node(id).kind, &after, into, device, &[]) }?;
        behind.take(node, &after);
        made[id.index()] = node;
    }
    // SAFETY: the caller's promise; the nodes were just added.
    unsafe { behind.add(into) }.map_err(ImportError::from)?;
    Ok(())
}

/// Adds one node of what was read to a graph, with other addresses if `diversions` says so; of a child graph with the edges
/// of the kind given.
///
/// # Safety
/// Both graphs live; the kind is that of the node, inner edges aside.
pub(super) unsafe fn copy_node(
    source: &Read,
    id: NodeId,
    kind: &NodeKind,
    after: &Dependencies,
    into: CUgraph,
    device: &Device,
    diversions: &[Diversion],
) -> Result<CUgraphNode, EditError> {
    let node = source.nodes[id.index()];
    // SAFETY: the node is of the kind that was read; what its parameters point to is the driver's, or what the source
    // refers to, which lives as long.
    let make = || unsafe {
        Ok(match kind {
            NodeKind::Child(inner) => {
                let child = source.children.iter().find(|(child, _)| *child == id);
                let (_, child) = child.expect("a child graph that was read has a row");
                // The driver clones what a child node is made of; an empty one is filled after that.
                let empty = Graph::new(device)?;
                let added = add_child(into, after, empty.handle())?;
                copy(child, inner, child_of(added)?, device)?;
                added
            }
            kind => {
                let mut params = parameters(node, kind, device)?;
                let mut values = Values::default();
                divert(source, id, kind, diversions, &mut params, &mut values);
                let added = add_node(into, after, &mut params)?;
                if let NodeKind::Kernel(_) = kind {
                    call!(cuGraphKernelNodeCopyAttributes(added, node))?;
                }
                added
            }
        })
    };
    make().map_err(|error: EditError| error.at(id, &source.graph.node(id).name))
}

/// The parameters of a node, in the form in which nodes are added.
///
/// # Safety
/// The node is of this kind, and its graph lives. What the result points to is the node's.
unsafe fn parameters(
    node: CUgraphNode,
    kind: &NodeKind,
    device: &Device,
) -> Result<CUgraphNodeParams, EditError> {
    use CUgraphNodeType as T;
    let context = device.context();
    // SAFETY: the caller's promise: each question is one for nodes of this kind.
    Ok(unsafe {
        match kind {
            NodeKind::Kernel(_) => {
                let mut from = zeroed::<CUDA_KERNEL_NODE_PARAMS>();
                call!(cuGraphKernelNodeGetParams_v2(node, &mut from))?;
                allow_shared_memory(&from, device)?;
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_KERNEL);
                let kernel = &mut params.__bindgen_anon_1.kernel;
                (kernel.func, kernel.kern, kernel.ctx) = (from.func, from.kern, from.ctx);
                (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) =
                    (from.gridDimX, from.gridDimY, from.gridDimZ);
                (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) =
                    (from.blockDimX, from.blockDimY, from.blockDimZ);
                kernel.sharedMemBytes = from.sharedMemBytes;
                (kernel.kernelParams, kernel.extra) = (from.kernelParams, from.extra);
                params
            }
            NodeKind::Memcpy(_) => {
                let mut from = zeroed_copy();
                call!(cuGraphMemcpyNodeGetParams(node, &mut from))?;
                Transfer::Copy(from, context).params()
            }
            NodeKind::Memset(_) => {
                let mut from = zeroed::<CUDA_MEMSET_NODE_PARAMS>();
                call!(cuGraphMemsetNodeGetParams(node, &mut from))?;
                Transfer::Fill(from, context).params()
            }
            NodeKind::Host(_) => {
                let mut from = zeroed::<CUDA_HOST_NODE_PARAMS>();
                call!(cuGraphHostNodeGetParams(node, &mut from))?;
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_HOST);
                let host = &mut params.__bindgen_anon_1.host;
                (host.fn_, host.userData) = (from.fn_, from.userData);
                params
            }
            NodeKind::EventRecord(_) => {
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_EVENT_RECORD);
                let event = &mut params.__bindgen_anon_1.eventRecord.event;
                call!(cuGraphEventRecordNodeGetEvent(node, event))?;
                params
            }
            NodeKind::EventWait(_) => {
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_WAIT_EVENT);
                let event = &mut params.__bindgen_anon_1.eventWait.event;
                call!(cuGraphEventWaitNodeGetEvent(node, event))?;
                params
            }
            NodeKind::Empty => params_of(T::CU_GRAPH_NODE_TYPE_EMPTY),
            NodeKind::Child(_)
            | NodeKind::Alloc(_)
            | NodeKind::Free(_)
            | NodeKind::Conditional(_) => return Err(ImportError::Changed.into()),
        }
    })
}

/// Lets a function have as much dynamic shared memory as a launch of it was captured with.
///
/// Libraries say before each launch how much that is. What they said last counts for a node that is made anew, and may be
/// less; whoever launches it next says it again.
///
/// # Safety
/// The parameters are those of a node of a graph that lives.
unsafe fn allow_shared_memory(
    launch: &CUDA_KERNEL_NODE_PARAMS,
    device: &Device,
) -> Result<(), DriverError> {
    use CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as ALLOWED;
    let wanted = launch.sharedMemBytes as c_int;
    if wanted == 0 {
        return Ok(());
    }
    let mut allowed = 0;
    let (function, kernel, device) = (launch.func, launch.kern, device.handle());
    // SAFETY: the caller's promise: what the node launches is loaded. A kernel that no context has loaded yet has no function.
    unsafe {
        if !function.is_null() {
            call!(cuFuncGetAttribute(&mut allowed, ALLOWED, function))?;
            if allowed < wanted {
                call!(cuFuncSetAttribute(function, ALLOWED, wanted))?;
            }
        } else if !kernel.is_null() {
            call!(cuKernelGetAttribute(&mut allowed, ALLOWED, kernel, device))?;
            if allowed < wanted {
                call!(cuKernelSetAttribute(ALLOWED, wanted, kernel, device))?;
            }
        }
    }
    Ok(())
}
