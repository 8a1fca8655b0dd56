//! Graphs made with the driver alone.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v3, CUgraph, CUgraphEdgeData,
    CUgraphExec, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUresult, CUstreamCaptureMode,
};
use phonograph_cuda::{Device, Event, Function, Stream};

/// A graph of one kernel many times.
pub struct Raw {
    graph: CUgraph,
    pub exec: CUgraphExec,
    device: Device,
    /// Nanoseconds of making the nodes, instantiating and uploading.
    pub took: [f64; 3],
}

/// A kernel launch on one stream.
pub struct Launch<'a> {
    pub function: &'a Function,
    pub blocks: u32,
    pub threads: u32,
    /// What the driver is given of the parameters.
    pub params: &'a [*mut c_void],
}

impl Launch<'_> {
    pub fn empty(function: &Function) -> Launch<'_> {
        Launch { function, blocks: 1, threads: 32, params: &[] }
    }

    fn issue(&self, stream: &Stream) {
        let params = self.params.as_ptr().cast_mut();
        let (function, stream) = (self.function.handle(), stream.handle());
        // SAFETY: the parameters are those of the function; stream and function live.
        unsafe {
            let (blocks, threads, none) = (self.blocks, self.threads, ptr::null_mut());
            expect(sys::cuLaunchKernel(
                function, blocks, 1, 1, threads, 1, 1, 0, stream, params, none,
            ));
        }
    }
}

/// A launch of one warp, of a kernel without parameters.
fn one_warp(kernel: &Function) -> CUDA_KERNEL_NODE_PARAMS {
    // SAFETY: numbers and pointers may all be 0.
    let mut params: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.func = kernel.handle();
    (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
    (params.blockDimX, params.blockDimY, params.blockDimZ) = (32, 1, 1);
    params
}

impl Raw {
    pub fn captured(
        device: &Device,
        kernel: &Launch<'_>,
        stream: &Stream,
        width: usize,
        length: usize,
    ) -> Self {
        let start = Instant::now();
        let streams: Vec<Stream> =
            (1..width).map(|_| Stream::new(device).expect("a stream")).collect();
        let event = || Event::new(device).expect("an event");
        let launch = |stream: &Stream| kernel.issue(stream);
        let mut graph = ptr::null_mut();
        // SAFETY: the device keeps its context, and the stream lives.
        unsafe {
            expect(sys::cuCtxSetCurrent(device.context()));
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            expect(sys::cuStreamBeginCapture_v2(stream.handle(), mode));
        }
        if width > 1 {
            launch(stream);
            let fork = event();
            fork.record(stream).expect("a record");
            streams.iter().for_each(|other| other.wait(&fork).expect("a wait"));
        }
        let all = std::iter::once(stream).chain(&streams);
        all.for_each(|stream| (0..length).for_each(|_| launch(stream)));
        if width > 1 {
            for other in &streams {
                let join = event();
                join.record(other).expect("a record");
                stream.wait(&join).expect("a wait");
            }
            launch(stream);
        }
        // SAFETY: the capture was begun above on this thread.
        unsafe { expect(sys::cuStreamEndCapture(stream.handle(), &mut graph)) };
        Self::ready(device, graph, stream, start)
    }

    /// A chain made node by node, by the call for kernels or by the one for any node and any edges.
    pub fn built(
        device: &Device,
        empty: &Function,
        stream: &Stream,
        length: usize,
        by_any: bool,
    ) -> Self {
        let start = Instant::now();
        let mut graph = ptr::null_mut();
        // SAFETY: the device keeps its context; the node before is one of the graph, and the function lives and has no
        // parameters.
        unsafe {
            expect(sys::cuCtxSetCurrent(device.context()));
            expect(sys::cuGraphCreate(&mut graph, 0));
            let params = one_warp(empty);
            let mut last: [CUgraphNode; 1] = [ptr::null_mut()];
            let mut any: CUgraphNodeParams = std::mem::zeroed();
            any.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
            let mut kernel: CUDA_KERNEL_NODE_PARAMS_v3 = std::mem::zeroed();
            kernel.func = empty.handle();
            (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (1, 1, 1);
            (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (32, 1, 1);
            any.__bindgen_anon_1.kernel = kernel;
            let full: CUgraphEdgeData = std::mem::zeroed();
            for at in 0..length {
                let (mut node, count, from) = (ptr::null_mut(), usize::from(at > 0), last.as_ptr());
                expect(match by_any {
                    true => sys::cuGraphAddNode_v2(&mut node, graph, from, &full, count, &mut any),
                    false => sys::cuGraphAddKernelNode_v2(&mut node, graph, from, count, &params),
                });
                last = [node];
            }
        }
        Self::ready(device, graph, stream, start)
    }

    /// The kernel for each node of a shape, which has of each node those before it.
    pub fn of(device: &Device, empty: &Function, stream: &Stream, shape: &[Vec<usize>]) -> Self {
        let start = Instant::now();
        let mut graph = ptr::null_mut();
        let mut nodes: Vec<CUgraphNode> = Vec::with_capacity(shape.len());
        // SAFETY: the device keeps its context; the nodes before are of the graph, and the function lives and has no parameters.
        unsafe {
            expect(sys::cuCtxSetCurrent(device.context()));
            expect(sys::cuGraphCreate(&mut graph, 0));
            let params = one_warp(empty);
            for from in shape {
                let from: Vec<CUgraphNode> = from.iter().map(|&from| nodes[from]).collect();
                let mut node = ptr::null_mut();
                let (first, count) = (from.as_ptr(), from.len());
                expect(sys::cuGraphAddKernelNode_v2(&mut node, graph, first, count, &params));
                nodes.push(node);
            }
        }
        Self::ready(device, graph, stream, start)
    }

    fn ready(device: &Device, graph: CUgraph, stream: &Stream, start: Instant) -> Self {
        let mut exec = ptr::null_mut();
        let mut times = [start.elapsed(); 3];
        // SAFETY: graph and stream live.
        unsafe {
            expect(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            times[1] = start.elapsed();
            expect(sys::cuGraphUpload(exec, stream.handle()));
            times[2] = start.elapsed();
        }
        let at = times.map(|time| time.as_nanos() as f64);
        let took = [at[0], at[1] - at[0], at[2] - at[1]];
        Self { graph, exec, device: device.clone(), took }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.device.synchronize().expect("the device works");
        // SAFETY: both are this value's own, and nothing runs.
        unsafe {
            expect(sys::cuGraphExecDestroy(self.exec));
            expect(sys::cuGraphDestroy(self.graph));
        }
    }
}

pub fn expect(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// Issues a run.
pub fn issue(exec: CUgraphExec, stream: &Stream) {
    // SAFETY: both handles live.
    unsafe { expect(sys::cuGraphLaunch(exec, stream.handle())) };
}
