//! Reading a graph of the driver.
//!
//! In: a handle. Out: a [`ComputeGraph`] with every node, its launch or copy, and every edge with its data; the driver's
//! nodes in the same order; the bytes of the kernels' parameters. Kernels, copies and fills name raw memory, so all of
//! them have unknown effects. Node by node, about six calls of the driver each; what a function is called and how its
//! parameters lie is asked once.
//!
//! A graph that allocates, or has conditionals, is read from the driver's own dump instead: the driver tells of bodies
//! nowhere else, and neither kind of graph can be edited.

use std::ffi::{CString, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUarray, CUevent, CUgraph, CUgraphDebugDot_flags, CUgraphEdgeData, CUgraphNode,
    CUgraphNodeType, CUlaunchAttributeID, CUlaunchAttributeValue, CUmemorytype,
};
use phonograph_graph::{
    ComputeGraph, Edge, EdgeData, EdgeKind, EventId, Extent, GraphBuilder, HostNode, KernelConfig,
    KernelNode, KernelRef, MAX_DOT_BYTES, MAX_NESTING, MemcpyDir, MemcpyNode, MemsetNode, NodeId,
    NodeKind, Pitched, Target, from_dot,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::parameters::{Functions, Parameters};
use super::{ImportError, ReadOnly};
use crate::adopted::place_of;
use crate::device::zeroed;
use crate::error::call;
use crate::graph::{child_of, edge_data};
use crate::transfer::zeroed_copy;

/// A graph of the driver and what was read of it.
pub(super) struct Read {
    pub handle: CUgraph,
    pub graph: ComputeGraph,
    /// The driver's node of each node; empty for a graph that was read from a dump.
    pub nodes: Vec<CUgraphNode>,
    pub parameters: Parameters,
    pub children: Vec<(NodeId, Read)>,
    /// Edges of a port other than 0 that the driver has without a type.
    pub untyped: FxHashSet<(NodeId, NodeId, u8)>,
    pub read_only: Option<ReadOnly>,
}

impl Read {
    /// The data of an edge as the driver has it.
    pub fn data_of(&self, edge: &Edge) -> CUgraphEdgeData {
        let EdgeData { from_port, to_port, kind } = edge.data;
        let typed = !self.untyped.contains(&(edge.from, edge.to, from_port));
        edge_data(from_port, to_port, typed && kind == EdgeKind::Programmatic)
    }
}

/// Reads a graph.
///
/// # Safety
/// The handle is that of a graph that lives, which nobody changes meanwhile.
pub(super) unsafe fn read(handle: CUgraph) -> Result<Read, ImportError> {
    // SAFETY: the caller's promise.
    unsafe {
        match obstacle(handle, 0)? {
            None => Reader::default().read(handle),
            Some(reason) => dumped(handle, reason),
        }
    }
}

/// The driver's nodes of a graph, in its order.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn nodes_of(handle: CUgraph) -> Result<Vec<CUgraphNode>, ImportError> {
    let mut count = 0;
    // SAFETY: the caller's promise; without an array only the number is written.
    unsafe { call!(cuGraphGetNodes(handle, ptr::null_mut(), &mut count)) }?;
    let mut nodes = vec![ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: the array has room for as many as are asked for.
        unsafe { call!(cuGraphGetNodes(handle, nodes.as_mut_ptr(), &mut count)) }?;
        nodes.truncate(count);
    }
    Ok(nodes)
}

/// The edges of a graph: producer, consumer, data.
pub(crate) type Edges = (Vec<CUgraphNode>, Vec<CUgraphNode>, Vec<CUgraphEdgeData>);

/// The driver's edges of a graph.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn edges_of(handle: CUgraph) -> Result<Edges, ImportError> {
    let (none, mut count) = (ptr::null_mut(), 0);
    // SAFETY: the caller's promise; without arrays only the number is written.
    unsafe { call!(cuGraphGetEdges_v2(handle, none, none, ptr::null_mut(), &mut count)) }?;
    let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
    let mut data = vec![edge_data(0, 0, false); count];
    if count > 0 {
        let (from, to, data) = (from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr());
        // SAFETY: the arrays have room for as many as are asked for.
        unsafe { call!(cuGraphGetEdges_v2(handle, from, to, data, &mut count)) }?;
    }
    from.truncate(count);
    to.truncate(count);
    data.truncate(count);
    Ok((from, to, data))
}

/// The kind of a node.
///
/// # Safety
/// The node's graph lives.
unsafe fn kind_of(node: CUgraphNode) -> Result<Kind, ImportError> {
    let mut kind: u32 = 0;
    // SAFETY: the caller's promise; a kind is 32 bits. It is not one of the bindings' enum: a newer driver may have more.
    unsafe { call!(cuGraphNodeGetType(node, (&raw mut kind).cast())) }?;
    use CUgraphNodeType as T;
    let known = [
        (T::CU_GRAPH_NODE_TYPE_KERNEL, Kind::Kernel),
        (T::CU_GRAPH_NODE_TYPE_MEMCPY, Kind::Memcpy),
        (T::CU_GRAPH_NODE_TYPE_MEMSET, Kind::Memset),
        (T::CU_GRAPH_NODE_TYPE_HOST, Kind::Host),
        (T::CU_GRAPH_NODE_TYPE_GRAPH, Kind::Child),
        (T::CU_GRAPH_NODE_TYPE_EMPTY, Kind::Empty),
        (T::CU_GRAPH_NODE_TYPE_WAIT_EVENT, Kind::EventWait),
        (T::CU_GRAPH_NODE_TYPE_EVENT_RECORD, Kind::EventRecord),
        (T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, Kind::Other("external semaphore signal")),
        (T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, Kind::Other("external semaphore wait")),
        (T::CU_GRAPH_NODE_TYPE_MEM_ALLOC, Kind::Alloc),
        (T::CU_GRAPH_NODE_TYPE_MEM_FREE, Kind::Free),
        (T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, Kind::BatchMemOp),
        (T::CU_GRAPH_NODE_TYPE_CONDITIONAL, Kind::Conditional),
    ];
    let found = known.iter().find(|(number, _)| *number as u32 == kind);
    Ok(found.map_or(Kind::Other("unknown"), |&(_, kind)| kind))
}

/// What a node of the driver is.
#[derive(Clone, Copy)]
enum Kind {
    Kernel,
    Memcpy,
    Memset,
    Host,
    Child,
    Empty,
    EventWait,
    EventRecord,
    Alloc,
    Free,
    Conditional,
    BatchMemOp,
    /// One that the representation does not have.
    Other(&'static str),
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::Memcpy => "memcpy",
            Kind::Memset => "memset",
            Kind::Host => "host",
            Kind::Child => "child_graph",
            Kind::Empty => "empty",
            Kind::EventWait => "event_wait",
            Kind::EventRecord => "event_record",
            Kind::Alloc => "mem_alloc",
            Kind::Free => "mem_free",
            Kind::Conditional => "conditional",
            Kind::BatchMemOp => "batch of memory operations",
            Kind::Other(word) => word,
        }
    }
}

/// What recordings call the kind of a node.
///
/// # Safety
/// The node's graph lives.
pub(crate) unsafe fn kind_name(node: CUgraphNode) -> Result<&'static str, ImportError> {
    // SAFETY: the caller's promise.
    Ok(match unsafe { kind_of(node) }? {
        Kind::EventWait => "wait_event",
        Kind::BatchMemOp => "batch_mem_op",
        kind => kind.word(),
    })
}

/// The kind of a node, and for a kernel the name of its function.
///
/// # Safety
/// The node's graph lives.
pub(super) unsafe fn describe(node: CUgraphNode) -> Result<(&'static str, String), ImportError> {
    // SAFETY: the caller's promise.
    let kind = unsafe { kind_of(node) }?;
    let name = match kind {
        // SAFETY: the node is a kernel.
        Kind::Kernel => unsafe {
            let mut params = zeroed::<CUDA_KERNEL_NODE_PARAMS>();
            call!(cuGraphKernelNodeGetParams_v2(node, &mut params))?;
            Functions::default().of(&params)?.name.to_string()
        },
        _ => String::new(),
    };
    Ok((kind.word(), name))
}

/// Why the graph cannot be edited, if something in it says so.
///
/// # Safety
/// As for [`read`].
unsafe fn obstacle(handle: CUgraph, depth: usize) -> Result<Option<ReadOnly>, ImportError> {
    if depth > MAX_NESTING {
        return Err(ImportError::TooDeep);
    }
    // SAFETY: the caller's promise.
    let nodes = unsafe { nodes_of(handle) }?;
    for node in nodes {
        // SAFETY: the node is of a graph that lives. Nesting is bounded above.
        let reason = unsafe {
            match kind_of(node)? {
                Kind::Alloc | Kind::Free => Some(ReadOnly::Allocates),
                Kind::Conditional => Some(ReadOnly::Conditional),
                Kind::Child => obstacle(child_of(node)?, depth + 1)?,
                _ => None,
            }
        };
        if reason.is_some() {
            return Ok(reason);
        }
    }
    Ok(None)
}

#[derive(Default)]
struct Reader {
    functions: Functions,
    /// Events in order of appearance, for all graphs inside.
    events: FxHashMap<CUevent, EventId>,
    /// Names of nodes other than kernels: their kinds.
    names: FxHashMap<&'static str, Arc<str>>,
}

impl Reader {
    /// # Safety
    /// As for [`read`]; nesting is bounded, which `obstacle` has seen.
    unsafe fn read(&mut self, handle: CUgraph) -> Result<Read, ImportError> {
        // SAFETY: the caller's promise.
        let (nodes, edges) = unsafe { (nodes_of(handle)?, edges_of(handle)?) };
        let mut builder = GraphBuilder::new().with_auto_infer_edges(false);
        let mut parameters = Parameters::default();
        let mut children = Vec::new();
        let mut places = FxHashMap::default();
        for (at, &node) in nodes.iter().enumerate() {
            let id = NodeId::from_index(at);
            places.insert(node, id);
            // SAFETY: the node is of a graph that lives.
            let (name, kind) = unsafe { self.node(id, node, &mut parameters, &mut children) }?;
            builder.add_node(phonograph_graph::Node { name, kind, stream: None });
        }
        let mut untyped = FxHashSet::default();
        let (from, to, data) = edges;
        for ((from, to), data) in from.iter().zip(&to).zip(&data) {
            let (Some(&from), Some(&to)) = (places.get(from), places.get(to)) else {
                return Err(ImportError::Changed);
            };
            // An event that is recorded when a kernel has launched gives edges of a port other than 0 and of no type; the
            // consumer does not wait for the producer's end.
            let is_full = data.type_ == 0 && data.from_port == 0;
            let kind = if is_full { EdgeKind::Full } else { EdgeKind::Programmatic };
            if data.type_ == 0 && !is_full {
                untyped.insert((from, to, data.from_port));
            }
            let data = EdgeData { from_port: data.from_port, to_port: data.to_port, kind };
            builder.add_edge(Edge { from, to, data });
        }
        let graph = builder.build()?;
        Ok(Read { handle, graph, nodes, parameters, children, untyped, read_only: None })
    }

    /// # Safety
    /// The node is of a graph that lives.
    unsafe fn node(
        &mut self,
        id: NodeId,
        node: CUgraphNode,
        parameters: &mut Parameters,
        children: &mut Vec<(NodeId, Read)>,
    ) -> Result<(Arc<str>, NodeKind), ImportError> {
        // SAFETY: the caller's promise; each question is one for nodes of the kind that was found.
        unsafe {
            let kind = kind_of(node)?;
            let name = self.names.entry(kind.word()).or_insert_with(|| kind.word().into()).clone();
            Ok(match kind {
                Kind::Kernel => {
                    let mut params = zeroed::<CUDA_KERNEL_NODE_PARAMS>();
                    call!(cuGraphKernelNodeGetParams_v2(node, &mut params))?;
                    let function = self.functions.of(&params)?;
                    parameters.push(id, &function, &params);
                    let name = function.name.clone();
                    let kernel = KernelRef::Named(name.clone());
                    let config = launch(node, &params)?;
                    let args = Box::default();
                    (name, NodeKind::Kernel(KernelNode { kernel, config, args, fusible: false }))
                }
                Kind::Memcpy => {
                    let mut params = zeroed_copy();
                    call!(cuGraphMemcpyNodeGetParams(node, &mut params))?;
                    (name, NodeKind::Memcpy(Box::new(copy(&params)?)))
                }
                Kind::Memset => {
                    let mut params = zeroed::<CUDA_MEMSET_NODE_PARAMS>();
                    call!(cuGraphMemsetNodeGetParams(node, &mut params))?;
                    (name, NodeKind::Memset(Box::new(fill(&params))))
                }
                Kind::Host => {
                    let mut params = zeroed::<CUDA_HOST_NODE_PARAMS>();
                    call!(cuGraphHostNodeGetParams(node, &mut params))?;
                    let function = params.fn_.map_or(0, |function| function as usize);
                    let function = format!("{function:#x}").into();
                    let host = HostNode { function, effects: SmallVec::new() };
                    (name, NodeKind::Host(Box::new(host)))
                }
                Kind::Child => {
                    let read = self.read(child_of(node)?)?;
                    let graph = read.graph.clone();
                    children.push((id, read));
                    (name, NodeKind::Child(Box::new(graph)))
                }
                Kind::Empty => (name, NodeKind::Empty),
                Kind::EventRecord => {
                    let mut event = ptr::null_mut();
                    call!(cuGraphEventRecordNodeGetEvent(node, &mut event))?;
                    (name, NodeKind::EventRecord(self.event(event)))
                }
                Kind::EventWait => {
                    let mut event = ptr::null_mut();
                    call!(cuGraphEventWaitNodeGetEvent(node, &mut event))?;
                    (name, NodeKind::EventWait(self.event(event)))
                }
                // `obstacle` has seen that there are none, unless someone changes the graph.
                Kind::Alloc | Kind::Free | Kind::Conditional => return Err(ImportError::Changed),
                Kind::BatchMemOp | Kind::Other(_) => {
                    return Err(ImportError::Unrepresentable { node: id, kind: kind.word() });
                }
            })
        }
    }

    fn event(&mut self, event: CUevent) -> EventId {
        let next = EventId::from_index(self.events.len());
        *self.events.entry(event).or_insert(next)
    }
}

/// # Safety
/// The node is a kernel of a graph that lives.
unsafe fn launch(
    node: CUgraphNode,
    params: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<KernelConfig, ImportError> {
    let attribute = |which| -> Result<CUlaunchAttributeValue, ImportError> {
        let mut value = zeroed::<CUlaunchAttributeValue>();
        // SAFETY: the caller's promise; every attribute fits the union, which is what is written.
        unsafe { call!(cuGraphKernelNodeGetAttribute(node, which, &mut value)) }?;
        Ok(value)
    };
    let cluster = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)?;
    let cooperative = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)?;
    let priority = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY)?;
    // SAFETY: each union was filled by the question for this very attribute.
    let (cluster, cooperative, priority) =
        unsafe { (cluster.clusterDim, cooperative.cooperative != 0, priority.priority) };
    Ok(KernelConfig {
        grid: (params.gridDimX, params.gridDimY, params.gridDimZ),
        block: (params.blockDimX, params.blockDimY, params.blockDimZ),
        shared_mem_bytes: params.sharedMemBytes,
        // The driver writes 0 where no cluster was asked for.
        cluster: (cluster.x.max(1), cluster.y.max(1), cluster.z.max(1)),
        cooperative,
        priority,
    })
}

/// One end of a copy, as the driver has it.
struct End {
    memory: CUmemorytype,
    host: u64,
    device: u64,
    array: CUarray,
    position: [usize; 3],
    pitch: usize,
    height: usize,
}

fn copy(params: &CUDA_MEMCPY3D) -> Result<MemcpyNode, ImportError> {
    let src = End {
        memory: params.srcMemoryType,
        host: params.srcHost as usize as u64,
        device: params.srcDevice,
        array: params.srcArray,
        position: [params.srcXInBytes, params.srcY, params.srcZ],
        pitch: params.srcPitch,
        height: params.srcHeight,
    };
    let dst = End {
        memory: params.dstMemoryType,
        host: params.dstHost as usize as u64,
        device: params.dstDevice,
        array: params.dstArray,
        position: [params.dstXInBytes, params.dstY, params.dstZ],
        pitch: params.dstPitch,
        height: params.dstHeight,
    };
    let dir = match (src.is_host()?, dst.is_host()?) {
        (true, true) => MemcpyDir::HostToHost,
        (true, false) => MemcpyDir::HostToDevice,
        (false, true) => MemcpyDir::DeviceToHost,
        (false, false) => MemcpyDir::DeviceToDevice,
    };
    let extent = Extent {
        width: params.WidthInBytes as u64,
        height: params.Height as u64,
        depth: params.Depth as u64,
    };
    Ok(MemcpyNode { dir, src: src.pitched(), dst: dst.pitched(), extent })
}

impl End {
    fn is_host(&self) -> Result<bool, ImportError> {
        Ok(match self.memory {
            CUmemorytype::CU_MEMORYTYPE_HOST => true,
            CUmemorytype::CU_MEMORYTYPE_DEVICE | CUmemorytype::CU_MEMORYTYPE_ARRAY => false,
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => {
                // An address that the driver does not know is ordinary memory of the host.
                place_of(self.device)?.is_none_or(|place| place.on_host)
            }
        })
    }

    fn pitched(&self) -> Pitched {
        let address = match self.memory {
            CUmemorytype::CU_MEMORYTYPE_HOST => self.host,
            _ => self.device,
        };
        // An array is a handle, not an address; bytes within it cannot be named.
        let target = match address {
            0 => Target::Unspecified,
            _ if !self.array.is_null() => Target::Unspecified,
            address => Target::Address(address),
        };
        let [x, y, z] = self.position.map(|at| at as u64);
        let (pitch, slice_rows) = (self.pitch as u64, self.height as u64);
        let row = z.saturating_mul(slice_rows).saturating_add(y);
        let offset = row.saturating_mul(pitch).saturating_add(x);
        Pitched { target, offset, pitch, slice_rows }
    }
}

fn fill(params: &CUDA_MEMSET_NODE_PARAMS) -> MemsetNode {
    let element = u64::from(params.elementSize);
    MemsetNode {
        dst: Pitched {
            target: Target::Address(params.dst),
            offset: 0,
            pitch: params.pitch as u64,
            slice_rows: 0,
        },
        value: params.value,
        element_size: params.elementSize as u8,
        // The driver counts elements of a row, the representation bytes.
        extent: Extent {
            width: (params.width as u64).saturating_mul(element),
            height: params.height as u64,
            depth: 1,
        },
    }
}

/// Reads a graph from the driver's dump of it.
///
/// # Safety
/// As for [`read`].
unsafe fn dumped(handle: CUgraph, reason: ReadOnly) -> Result<Read, ImportError> {
    let folder = tempfile::tempdir().map_err(|error| ImportError::Dump(error.to_string()))?;
    let path = folder.path().join("graph.dot");
    let problem = |error: std::io::Error| ImportError::Dump(format!("{}: {error}", path.display()));
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|error| ImportError::Dump(error.to_string()))?;
    let verbose = CUgraphDebugDot_flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE as c_uint;
    // SAFETY: the caller's promise; the path is terminated.
    unsafe { call!(cuGraphDebugDotPrint(handle, name.as_ptr(), verbose)) }?;
    let length = std::fs::metadata(&path).map_err(problem)?.len();
    if length > MAX_DOT_BYTES as u64 {
        return Err(ImportError::Dump(format!("{length} bytes; {MAX_DOT_BYTES} are read at most")));
    }
    let bytes = std::fs::read(&path).map_err(problem)?;
    let graph = from_dot(&bytes).map_err(|error| ImportError::Dump(error.to_string()))?;
    Ok(Read {
        handle,
        graph,
        nodes: Vec::new(),
        parameters: Parameters::default(),
        children: Vec::new(),
        untyped: FxHashSet::default(),
        read_only: Some(reason),
    })
}
