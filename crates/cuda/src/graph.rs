//! The driver's graphs: made node by node, instantiated, launched.
//!
//! A [`Graph`] owns the driver's graph with everything in it; graphs inside nodes are borrowed from it.

use std::ptr;

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v3, CUgraph,
    CUgraphEdgeData, CUgraphExec, CUgraphInstantiateResult, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType, CUresult, cuGraphLaunch,
};
use phonograph_graph::{EdgeData, EdgeKind};
use phonograph_runtime::cpu::NodePath;

use crate::bindings::InstantiateError;
use crate::captures::relaxed;
use crate::device::{Device, zeroed};
use crate::error::{DriverError, call, log_drop};
use crate::stream::Stream;

/// A graph of the driver, with its nodes.
pub(crate) struct Graph {
    handle: CUgraph,
    device: Device,
}

/// What a node waits for, each with the data of the edge.
#[derive(Default)]
pub(crate) struct Dependencies {
    nodes: Vec<CUgraphNode>,
    data: Vec<CUgraphEdgeData>,
    /// Whether an edge is not a full one.
    has_data: bool,
    /// Edges that the node is added without.
    behind: Vec<(CUgraphNode, CUgraphEdgeData)>,
}

impl Dependencies {
    /// Forgets all edges, but not the room for them.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.data.clear();
        self.has_data = false;
        self.behind.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.behind.is_empty()
    }

    /// The nodes, each with the data of the edge from it.
    pub fn iter(&self) -> impl Iterator<Item = (CUgraphNode, CUgraphEdgeData)> + '_ {
        let with_node = self.nodes.iter().copied().zip(self.data.iter().copied());
        with_node.chain(self.behind.iter().copied())
    }

    /// Full edges from these nodes, none of which is given twice.
    pub fn on(nodes: impl IntoIterator<Item = CUgraphNode>) -> Self {
        let mut after = Self::default();
        nodes.into_iter().for_each(|node| after.push(node, edge_data(0, 0, false)));
        after
    }

    /// Adds an edge that is not there yet.
    pub fn push(&mut self, node: CUgraphNode, data: CUgraphEdgeData) {
        self.nodes.push(node);
        self.data.push(data);
        self.has_data |= data != edge_data(0, 0, false);
    }

    /// Adds an edge that is not there yet to a node of a graph that is made whole: one at launch order is for [`Behind`].
    pub fn push_or_defer(&mut self, node: CUgraphNode, data: CUgraphEdgeData) {
        if data.from_port == EdgeData::LAUNCH_ORDER.from_port {
            self.behind.push((node, data));
        } else {
            self.push(node, data);
        }
    }

    /// Adds a full edge, unless it is there already: the driver refuses an edge that is given twice.
    pub fn push_full(&mut self, node: CUgraphNode) {
        let full = edge_data(0, 0, false);
        let known = self.nodes.iter().zip(&self.data).any(|(n, d)| *n == node && *d == full);
        if !known {
            self.push(node, full);
        }
    }
}

/// A graph's edges at launch order, which are added behind all others.
///
/// Where one of them comes before a full edge of the graph, even between other nodes, a driver of version 580 starts kernels
/// that do not wait for themselves before what full edges lead from is complete: in 266 of 595 random graphs on an H200 whose
/// edges were added by the node that they lead to, in none of them with these last.
#[derive(Default)]
pub(crate) struct Behind {
    from: Vec<CUgraphNode>,
    to: Vec<CUgraphNode>,
    data: Vec<CUgraphEdgeData>,
}

impl Behind {
    /// Takes over those that a node was added without.
    pub fn take(&mut self, node: CUgraphNode, after: &Dependencies) {
        for &(from, data) in &after.behind {
            self.from.push(from);
            self.to.push(node);
            self.data.push(data);
        }
    }

    /// Adds them.
    ///
    /// # Safety
    /// The graph lives, and the nodes are its.
    pub unsafe fn add(&self, graph: CUgraph) -> Result<(), DriverError> {
        if self.from.is_empty() {
            return Ok(());
        }
        let (from, to, data) = (self.from.as_ptr(), self.to.as_ptr(), self.data.as_ptr());
        // SAFETY: the caller's promise; the lists are of the same length.
        unsafe { call!(cuGraphAddDependencies_v2(graph, from, to, data, self.from.len())) }
    }
}

/// The data of an edge of a graph, as the driver has it.
pub(crate) fn data_of(edge: EdgeData) -> CUgraphEdgeData {
    edge_data(edge.from_port, edge.to_port, edge.kind == EdgeKind::Programmatic)
}

/// The data of an edge, as the driver has it.
pub(crate) fn edge_data(from_port: u8, to_port: u8, programmatic: bool) -> CUgraphEdgeData {
    let mut data = zeroed::<CUgraphEdgeData>();
    (data.from_port, data.to_port, data.type_) = (from_port, to_port, u8::from(programmatic));
    data
}

// SAFETY: the handle may be used from any thread, one at a time; nobody shares a `Graph`.
unsafe impl Send for Graph {}

impl Graph {
    pub fn new(device: &Device) -> Result<Self, DriverError> {
        let _current = device.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: 0 is the only flag there is.
        unsafe { call!(cuGraphCreate(&mut handle, 0)) }?;
        Ok(Self { handle, device: device.clone() })
    }

    /// A graph that the driver has handed over.
    ///
    /// # Safety
    /// The handle is that of a graph that lives and that nobody else destroys.
    pub unsafe fn adopt(device: &Device, handle: CUgraph) -> Self {
        Self { handle, device: device.clone() }
    }

    pub fn handle(&self) -> CUgraph {
        self.handle
    }

    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let current = self.device.enter();
        // SAFETY: the handle is this value's own. Executables made of it do not need it.
        log_drop(unsafe { call!(cuGraphDestroy(self.handle)) });
        log_drop(current.map(drop));
    }
}

/// Adds a node to a graph, or to one inside a node.
///
/// # Safety
/// The graph lives, the dependencies are its nodes, and the parameters are those of a node of their type, with memory,
/// functions and user data that live as long as the graph and its executables.
pub(crate) unsafe fn add_node(
    graph: CUgraph,
    after: &Dependencies,
    params: &mut CUgraphNodeParams,
) -> Result<CUgraphNode, DriverError> {
    let mut node = ptr::null_mut();
    // SAFETY: the caller's promise; both lists are of the same length.
    unsafe {
        call!(cuGraphAddNode_v2(
            &mut node,
            graph,
            after.nodes.as_ptr(),
            after.data.as_ptr(),
            after.nodes.len(),
            params
        ))
    }?;
    Ok(node)
}

/// Adds a kernel node without attributes.
///
/// # Safety
/// As for [`add_node`].
pub(crate) unsafe fn add_kernel(
    graph: CUgraph,
    after: &Dependencies,
    kernel: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUgraphNode, DriverError> {
    if after.has_data {
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL);
        let mut with_context = zeroed::<CUDA_KERNEL_NODE_PARAMS_v3>();
        with_context.func = kernel.func;
        with_context.gridDimX = kernel.gridDimX;
        with_context.gridDimY = kernel.gridDimY;
        with_context.gridDimZ = kernel.gridDimZ;
        with_context.blockDimX = kernel.blockDimX;
        with_context.blockDimY = kernel.blockDimY;
        with_context.blockDimZ = kernel.blockDimZ;
        with_context.sharedMemBytes = kernel.sharedMemBytes;
        with_context.kernelParams = kernel.kernelParams;
        params.__bindgen_anon_1.kernel = with_context;
        // SAFETY: the caller's promise.
        return unsafe { add_node(graph, after, &mut params) };
    }
    let (mut node, from, count) = (ptr::null_mut(), after.nodes.as_ptr(), after.nodes.len());
    // SAFETY: the caller's promise. This call has less to look at than the one for any node: 0.05 to 0.1 µs.
    unsafe { call!(cuGraphAddKernelNode_v2(&mut node, graph, from, count, kernel)) }?;
    Ok(node)
}

/// Adds a node with a copy of another graph inside.
///
/// # Safety
/// As for [`add_node`], and the other graph lives until this returns; what its nodes refer to lives as long as the copy.
pub(crate) unsafe fn add_child(
    graph: CUgraph,
    after: &Dependencies,
    other: CUgraph,
) -> Result<CUgraphNode, DriverError> {
    let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH);
    params.__bindgen_anon_1.graph.graph = other;
    // SAFETY: the caller's promise.
    unsafe { add_node(graph, after, &mut params) }
}

/// The graph inside a child node.
///
/// # Safety
/// The node is a child node whose graph lives.
pub(crate) unsafe fn child_of(node: CUgraphNode) -> Result<CUgraph, DriverError> {
    let mut child = ptr::null_mut();
    // SAFETY: the caller's promise. The graph is not copied: it is the one in the node.
    unsafe { call!(cuGraphChildGraphNodeGetGraph(node, &mut child)) }?;
    Ok(child)
}

/// The parameters of a node of this type, all others zero.
pub(crate) fn params_of(kind: CUgraphNodeType) -> CUgraphNodeParams {
    let mut params = zeroed::<CUgraphNodeParams>();
    params.type_ = kind;
    params
}

/// Why a graph could not be instantiated: the driver's error, its verdict, and the node if it names one.
pub(crate) struct Refused {
    pub error: DriverError,
    verdict: CUgraphInstantiateResult,
    node: CUgraphNode,
}

// SAFETY: the node is only compared with others.
unsafe impl Send for Refused {}

impl Refused {
    /// An error that says nothing of a node.
    pub fn of_graph(error: DriverError) -> Self {
        let verdict = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
        Self { error, verdict, node: ptr::null_mut() }
    }

    /// A node that could not be made.
    pub fn of_node(error: DriverError, node: CUgraphNode) -> Self {
        Self { node, ..Self::of_graph(error) }
    }

    /// The error that says so, of the node if `find` knows it.
    pub fn explain(self, find: impl FnOnce(CUgraphNode) -> Option<NodePath>) -> InstantiateError {
        let Self { error: source, verdict, node } = self;
        let node = if node.is_null() { None } else { find(node) };
        if let Some(node) = node {
            return InstantiateError::Node { node, source };
        }
        let said = verdict != CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
        let verdict = if said { format!("{verdict:?}") } else { String::new() };
        InstantiateError::Graph { source, verdict }
    }
}

/// An instantiated graph.
pub(crate) struct Executable {
    handle: CUgraphExec,
    device: Device,
}

// SAFETY: the handle may be used from any thread, one at a time, which `&mut` sees to.
unsafe impl Send for Executable {}

impl Executable {
    /// Instantiates a graph. The flags are the driver's.
    pub fn new(graph: &Graph, flags: u64) -> Result<Self, Refused> {
        let _current = graph.device.enter().map_err(Refused::of_graph)?;
        let _relaxed = relaxed().map_err(Refused::of_graph)?;
        let mut handle = ptr::null_mut();
        let mut params = zeroed::<CUDA_GRAPH_INSTANTIATE_PARAMS>();
        params.flags = flags;
        // SAFETY: the graph lives.
        let made =
            unsafe { call!(cuGraphInstantiateWithParams(&mut handle, graph.handle, &mut params)) };
        let (verdict, node) = (params.result_out, params.hErrNode_out);
        made.map_err(|error| Refused { error, verdict, node })?;
        Ok(Self { handle, device: graph.device.clone() })
    }

    pub fn handle(&self) -> CUgraphExec {
        self.handle
    }

    /// The executable in a value of its own. This one is none any more.
    pub fn take(&mut self) -> Self {
        let handle = std::mem::replace(&mut self.handle, ptr::null_mut());
        Self { handle, device: self.device.clone() }
    }

    /// Brings what the device needs of it there, so that the first launch costs no more than the others.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        // SAFETY: both handles live.
        unsafe { call!(cuGraphUpload(self.handle, stream.handle())) }
    }

    /// Issues a run of the graph to the stream.
    ///
    /// The driver finds the context by the stream, whichever is current. A launch of a large graph leaves the caches empty, so
    /// to ask before each launch which one that is cost more than everything else around the call.
    #[inline]
    pub fn launch(&mut self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both handles live.
        match unsafe { cuGraphLaunch(self.handle, stream.handle()) } {
            CUresult::CUDA_SUCCESS => Ok(()),
            _ => self.launch_inside(stream),
        }
    }

    /// The same in the graph's context, for a driver that refuses anything else.
    #[cold]
    fn launch_inside(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        // SAFETY: both handles live.
        unsafe { call!(cuGraphLaunch(self.handle, stream.handle())) }
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if self.handle.is_null() {
            return;
        }
        let current = self.device.enter();
        let relaxed = relaxed();
        // SAFETY: the handle is this value's own; its owner has waited for its last launch.
        log_drop(unsafe { call!(cuGraphExecDestroy(self.handle)) });
        log_drop(relaxed.map(drop));
        log_drop(current.map(drop));
    }
}
