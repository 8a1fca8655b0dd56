//! Asking the driver to update an executable graph from another one.

use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS_v2, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUevent, CUgraph, CUgraphConditionalNodeType,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUkernelNodeAttrID, CUkernelNodeAttrValue, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationType, CUmemLocationType, CUmemorytype,
};
use phonograph_capture::update::REASONS;
use phonograph_trace::CuResult;
use phonograph_trace::recording::{ErrorNode, Node, UpdatePair};

use super::{RecordError, Recorder, nothing_on_host};
use crate::device::zeroed;
use crate::error::call;
use crate::graph::{Dependencies, Executable, Graph, add_node, edge_data, params_of};
use crate::launch::one_thread;
use crate::module::Function;
use crate::stream::Event;
use crate::transfer::{Transfer, zeroed_copy};

/// Bytes from one row of a copy to the next, and rows from one slice to the next.
const PITCH: usize = 512;
const SLICE: usize = 4;

impl Recorder {
    /// The pair with this driver's answer.
    ///
    /// # Errors
    /// [`RecordError::Words`] for a graph that cannot be built or a first one that cannot be instantiated.
    pub fn update(&self, asked: &UpdatePair) -> Result<UpdatePair, RecordError> {
        let problem =
            |step: usize, error: String| RecordError::Words { id: asked.id.clone(), step, error };
        let _current = self.device.enter()?;
        let a = self.built(&asked.a).map_err(|(step, error)| problem(step, error))?;
        let b = self.built(&asked.b).map_err(|(step, error)| problem(step, error))?;
        let executable = Executable::new(&a.graph, 0)
            .map_err(|refused| problem(0, format!("the first graph: {}", refused.error)))?;
        // The numbers of a newer driver may be none of the bindings' enum.
        let mut info = std::mem::MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
        let fields = info.as_mut_ptr();
        // SAFETY: both live; the outcome is written into `info`, all of whose fields are plain.
        let done =
            unsafe { call!(cuGraphExecUpdate_v2(executable.handle(), b.graph.handle(), fields)) };
        // SAFETY: the outcome is 32 bits, the others are handles; zero or what the driver wrote.
        let (outcome, node, from) = unsafe {
            (
                (&raw const (*fields).result).cast::<u32>().read(),
                (&raw const (*fields).errorNode).read(),
                (&raw const (*fields).errorFromNode).read(),
            )
        };
        let named = |node: CUgraphNode| {
            let place = b.nodes.iter().position(|&known| known == node);
            (!node.is_null()).then(|| place.map_or(ErrorNode::Inner, ErrorNode::Top))
        };
        let update = REASONS.get(outcome as usize).copied().map(str::to_owned);
        Ok(UpdatePair {
            result: CuResult(done.map_or_else(|error| error.code, |()| 0)),
            update: update.unwrap_or_else(|| outcome.to_string()),
            error_node: named(node),
            error_from: named(from),
            ..asked.clone()
        })
    }

    /// Builds a graph of the driver; else says which node is at fault.
    fn built(&self, nodes: &[Node]) -> Result<Built, (usize, String)> {
        let driver = |error: crate::error::DriverError| (0, error.to_string());
        let graph = Graph::new(&self.device).map_err(driver)?;
        let mut events = Vec::new();
        for _ in 0..2 {
            events.push(Event::new(&self.device).map_err(driver)?);
        }
        let mut built = Built { nodes: Vec::new(), graph, events, inside: Vec::new() };
        let handle = built.graph.handle();
        let nodes = self.add_all(handle, nodes, &mut built)?;
        built.nodes = nodes;
        Ok(built)
    }

    /// Adds nodes to a graph in their order. The nesting is that of the recording's JSON, which its reader bounds.
    fn add_all(
        &self,
        graph: CUgraph,
        nodes: &[Node],
        built: &mut Built,
    ) -> Result<Vec<CUgraphNode>, (usize, String)> {
        let mut made: Vec<CUgraphNode> = Vec::with_capacity(nodes.len());
        // Allocations that no node has freed yet, the last one at the end.
        let mut allocated: Vec<u64> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let here = |error: String| (at, error);
            let mut after = Dependencies::default();
            let deps = node.dependencies();
            for (place, &dep) in deps.deps.iter().enumerate() {
                let Some(&producer) = made.get(dep) else {
                    return Err(here(format!("it depends on node {dep}, which comes later")));
                };
                let port = deps.ports.get(place).copied().unwrap_or(0);
                after.push(producer, edge_data(port, 0, port > 0));
            }
            let added = self.add(graph, node, &after, built, &mut allocated).map_err(here)?;
            made.push(added);
        }
        Ok(made)
    }

    fn add(
        &self,
        graph: CUgraph,
        node: &Node,
        after: &Dependencies,
        built: &mut Built,
        allocated: &mut Vec<u64>,
    ) -> Result<CUgraphNode, String> {
        use CUgraphNodeType as T;
        let add = |params: &mut CUgraphNodeParams| {
            // SAFETY: the memory, functions and events are the recorder's or are kept with the graph, which is never launched;
            // the parameters are those of a node of their type.
            unsafe { add_node(graph, after, params) }.map_err(|error| error.to_string())
        };
        Ok(match node {
            Node::Kernel {
                function, grid, block, shared, priority, cooperative, cluster, ..
            } => {
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_KERNEL);
                let mut launch = one_thread(self.function(function)?);
                (launch.gridDimX, launch.blockDimX) = (*grid, *block);
                launch.sharedMemBytes = *shared;
                params.__bindgen_anon_1.kernel = launch;
                let added = add(&mut params)?;
                set_attributes(added, *priority, *cooperative, *cluster)?;
                added
            }
            Node::Memcpy { direction, bytes, rows, depth, offset, .. } => {
                let mut copy = self.copy_of(direction, *offset)?;
                copy.WidthInBytes = *bytes as usize;
                (copy.Height, copy.Depth) = (*rows as usize, *depth as usize);
                add(&mut Transfer::Copy(copy, self.device.context()).params())?
            }
            Node::Memset { offset, value, element, width, height, pitch, .. } => {
                let mut fill = zeroed::<CUDA_MEMSET_NODE_PARAMS>();
                fill.dst = self.arena.address() + offset;
                fill.pitch = if *pitch == 0 { PITCH } else { *pitch as usize };
                (fill.value, fill.elementSize) = (*value, *element);
                (fill.width, fill.height) = (*width as usize, *height as usize);
                add(&mut Transfer::Fill(fill, self.device.context()).params())?
            }
            Node::Host { function, .. } => {
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_HOST);
                let mut host = zeroed::<cudarc::driver::sys::CUDA_HOST_NODE_PARAMS_v2>();
                host.fn_ =
                    Some(if *function == 0 { nothing_on_host } else { nothing_else_on_host });
                params.__bindgen_anon_1.host = host;
                add(&mut params)?
            }
            Node::Empty { .. } => add(&mut params_of(T::CU_GRAPH_NODE_TYPE_EMPTY))?,
            Node::EventRecord { event, .. } => {
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_EVENT_RECORD);
                params.__bindgen_anon_1.eventRecord.event = event_of(built, *event)?;
                add(&mut params)?
            }
            Node::EventWait { event, .. } => {
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_WAIT_EVENT);
                params.__bindgen_anon_1.eventWait.event = event_of(built, *event)?;
                add(&mut params)?
            }
            Node::Child { graph: nodes, kernels, .. } => {
                let inside = Graph::new(&self.device).map_err(|error| error.to_string())?;
                let chain;
                let nodes = if nodes.is_empty() {
                    chain = chain_of(*kernels);
                    &chain
                } else {
                    nodes
                };
                let inner = |(at, error)| format!("inside, node {at}: {error}");
                self.add_all(inside.handle(), nodes, built).map_err(inner)?;
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_GRAPH);
                params.__bindgen_anon_1.graph.graph = inside.handle();
                let added = add(&mut params)?;
                // The node has a clone; what the clone refers to is kept.
                built.inside.push(inside);
                added
            }
            Node::Conditional { r#type, kernels, .. } => {
                let mut params = self.conditional(graph, r#type)?;
                let added = add(&mut params)?;
                // SAFETY: adding the node has filled in the array of its one body.
                let body = unsafe { *params.__bindgen_anon_1.conditional.phGraph_out };
                let inner = |(at, error)| format!("inside, node {at}: {error}");
                self.add_all(body, &chain_of(*kernels), built).map_err(inner)?;
                added
            }
            Node::Alloc { bytes, .. } => {
                let access = self.access();
                let mut alloc = zeroed::<CUDA_MEM_ALLOC_NODE_PARAMS_v2>();
                alloc.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
                alloc.poolProps.location = access.location;
                (alloc.accessDescs, alloc.accessDescCount) = (&access, 1);
                alloc.bytesize = (*bytes).max(1) as usize;
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_MEM_ALLOC);
                params.__bindgen_anon_1.alloc = alloc;
                let added = add(&mut params)?;
                // SAFETY: adding the node has filled in the address.
                allocated.push(unsafe { params.__bindgen_anon_1.alloc.dptr });
                added
            }
            Node::Free { .. } => {
                let address = allocated.pop().ok_or("it frees what nothing allocated")?;
                let mut params = params_of(T::CU_GRAPH_NODE_TYPE_MEM_FREE);
                params.__bindgen_anon_1.free.dptr = address;
                add(&mut params)?
            }
        })
    }

    /// The function that recordings name so.
    fn function(&self, name: &str) -> Result<&Function, String> {
        match name {
            "" | "noop" => Ok(&self.kernel),
            "addone" => Ok(&self.other_kernel),
            "noop@module2" => Ok(&self.second_module[0]),
            "addone@module2" => Ok(&self.second_module[1]),
            other => Err(format!("there is no function `{other}`")),
        }
    }

    /// A copy of nothing in this direction, with the memory of pairs at its ends.
    fn copy_of(&self, direction: &str, offset: u64) -> Result<CUDA_MEMCPY3D, String> {
        let device = self.arena.address() + offset;
        let host = self.pinned.address() as usize;
        let (from_host, to_host) = match direction {
            "htod" => (true, false),
            "dtoh" => (false, true),
            "dtod" => (false, false),
            other => return Err(format!("there is no direction `{other}`")),
        };
        let kind = |host| match host {
            true => CUmemorytype::CU_MEMORYTYPE_HOST,
            false => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        };
        let mut copy = zeroed_copy();
        (copy.srcMemoryType, copy.dstMemoryType) = (kind(from_host), kind(to_host));
        copy.srcHost = ptr::with_exposed_provenance(host);
        copy.dstHost = ptr::with_exposed_provenance_mut(host);
        copy.srcDevice = if to_host { device } else { device + SOURCES };
        copy.dstDevice = device;
        (copy.srcPitch, copy.dstPitch) = (PITCH, PITCH);
        (copy.srcHeight, copy.dstHeight) = (SLICE, SLICE);
        Ok(copy)
    }

    /// The parameters of a conditional of one body that decides by a new handle of the graph.
    fn conditional(&self, graph: CUgraph, kind: &str) -> Result<CUgraphNodeParams, String> {
        let context = self.device.context();
        let mut conditional = zeroed::<CUDA_CONDITIONAL_NODE_PARAMS>();
        conditional.type_ = match kind {
            "if" => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
            "while" => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
            other => return Err(format!("there is no conditional `{other}`")),
        };
        (conditional.size, conditional.ctx) = (1, context);
        let handle = &mut conditional.handle;
        // SAFETY: the graph and the context live; 0 is no flag and no default.
        unsafe { call!(cuGraphConditionalHandleCreate(handle, graph, context, 0, 0)) }
            .map_err(|error| error.to_string())?;
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL);
        params.__bindgen_anon_1.conditional = conditional;
        Ok(params)
    }

    /// That the device reads and writes what a node allocates.
    fn access(&self) -> CUmemAccessDesc {
        let mut access = zeroed::<CUmemAccessDesc>();
        access.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = self.device.ordinal() as c_int;
        access.flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        access
    }
}

/// Where the sources of copies within the device lie, seen from the destination.
const SOURCES: u64 = 1 << 16;
/// Bytes of the memory that all copies and fills of a pair lie in.
pub(super) const ARENA: u64 = 1 << 17;

struct Built {
    nodes: Vec<CUgraphNode>,
    graph: Graph,
    events: Vec<Event>,
    inside: Vec<Graph>,
}

fn event_of(built: &Built, event: u32) -> Result<CUevent, String> {
    let known = built.events.get(event as usize);
    known.map(Event::handle).ok_or_else(|| format!("there is no event {event}"))
}

fn chain_of(kernels: usize) -> Vec<Node> {
    let node = |at: usize| {
        let deps = phonograph_trace::recording::Dependencies {
            deps: at.checked_sub(1).into_iter().collect(),
            ports: Vec::new(),
        };
        Node::Kernel {
            function: "noop".to_owned(),
            grid: 1,
            block: 1,
            shared: 0,
            priority: 0,
            cooperative: 0,
            cluster: 1,
            deps,
        }
    };
    (0..kernels).map(node).collect()
}

fn set_attributes(
    node: CUgraphNode,
    priority: i32,
    cooperative: u8,
    cluster: u32,
) -> Result<(), String> {
    use CUkernelNodeAttrID as A;
    let set = |which, change: &dyn Fn(&mut CUkernelNodeAttrValue)| {
        let mut value = zeroed::<CUkernelNodeAttrValue>();
        change(&mut value);
        // SAFETY: the node was just added as a kernel; the value is that of the attribute.
        unsafe { call!(cuGraphKernelNodeSetAttribute(node, which, &value)) }
            .map_err(|error| error.to_string())
    };
    if priority != 0 {
        set(A::CU_LAUNCH_ATTRIBUTE_PRIORITY, &|value| value.priority = priority)?;
    }
    if cooperative != 0 {
        let cooperative = c_int::from(cooperative);
        set(A::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &|value| value.cooperative = cooperative)?;
    }
    if cluster > 1 {
        set(A::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &|value| {
            (value.clusterDim.x, value.clusterDim.y, value.clusterDim.z) = (cluster, 1, 1);
        })?;
    }
    Ok(())
}

/// Another function for host nodes.
unsafe extern "C" fn nothing_else_on_host(_data: *mut c_void) {
    // Were it empty, the linker could make it one with the other.
    std::hint::black_box(());
}
