//! Graphs that others make: captured, read, edited, rebuilt, launched.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use cudarc::driver::sys::{self, CUgraphNode, CUstream};
use phonograph_capture::model::Rule;
use phonograph_cuda::{
    CaptureError, CaptureMode, Captured, Cuda, EditError, Event, Function, Memory, ReadOnly, Stream,
};
use phonograph_graph::{Effects, GraphBuilder, NodeId, NodeKind};
use phonograph_plan::passes::reduce_edges;

use crate::case::{cuda, expect};

/// Multiplies and adds, so that the order of two launches shows in the result.
const STEP: &str =
    "extern \"C\" __global__ void step(unsigned *x, unsigned by, unsigned char tail) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    x[at] = x[at] * 3u + by + tail;
}";

/// Runs in a cluster of two blocks and fails without one.
const CLUSTER: &str = "extern \"C\" __global__ void pair(unsigned *x) {
    unsigned count;
    asm volatile(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(count));
    x[blockIdx.x] += count;
}";

/// Needs more shared memory than a launch may have without asking: 32 KiB of its own, 32 KiB by launch.
const LARGE: &str = "extern \"C\" __global__ void large(unsigned *x) {
    __shared__ unsigned own[8192];
    extern __shared__ unsigned given[];
    for (unsigned at = threadIdx.x; at < 8192; at += blockDim.x) {
        own[at] = at;
        given[8191 - at] = at;
    }
    __syncthreads();
    x[threadIdx.x] += own[threadIdx.x * 7] + given[threadIdx.x];
}";

/// Launches `step` as any library would.
pub fn launch(function: &Function, stream: CUstream, memory: &Memory, by: u32) {
    let (mut address, mut by, mut tail) = (memory.address(), by, 5u8);
    let mut parameters =
        [(&raw mut address).cast::<c_void>(), (&raw mut by).cast(), (&raw mut tail).cast()];
    let (parameters, function) = (parameters.as_mut_ptr(), function.handle());
    // SAFETY: function and stream live; the parameters are the function's.
    expect(unsafe {
        sys::cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, parameters, ptr::null_mut())
    });
}

/// What the next piece of work on a capturing stream would wait for.
fn waits_for(stream: CUstream) -> Vec<CUgraphNode> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph, mut nodes, mut data, mut count) =
        (0, ptr::null_mut(), ptr::null(), ptr::null(), 0);
    // SAFETY: the stream is capturing; the results are copied before it goes on.
    unsafe {
        expect(sys::cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut nodes,
            &mut data,
            &mut count,
        ));
        std::slice::from_raw_parts(nodes, count).to_vec()
    }
}

/// A chain of `length` steps, each of which also waits for the `behind` before it.
fn chain(
    stream: &Stream,
    function: &Function,
    memory: &Memory,
    length: u32,
    behind: usize,
) -> Captured {
    let captured = stream.capture(CaptureMode::Relaxed, |raw| {
        let mut last: Vec<CUgraphNode> = Vec::new();
        for by in 0..length {
            let first = last.len().saturating_sub(behind);
            let before = &mut last[first..];
            let add =
                sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_ADD_CAPTURE_DEPENDENCIES;
            if !before.is_empty() {
                let (nodes, count) = (before.as_mut_ptr(), before.len());
                // SAFETY: the nodes are of this capture.
                expect(unsafe {
                    sys::cuStreamUpdateCaptureDependencies_v2(
                        raw,
                        nodes,
                        ptr::null(),
                        count,
                        add as u32,
                    )
                });
            }
            launch(function, raw, memory, by);
            last.extend(waits_for(raw));
        }
        Ok::<_, std::convert::Infallible>(())
    });
    captured.unwrap().0
}

/// Launches it `times` times on zeroed memory.
fn result(cuda: &mut Cuda, stream: &Stream, captured: Captured, memory: &Memory) -> Vec<u32> {
    cuda.write(memory, &vec![1u32; memory.bytes() as usize / 4]).unwrap();
    let mut exec = captured.instantiate().unwrap();
    exec.upload(stream).unwrap();
    for _ in 0..3 {
        // SAFETY: the memory lives until the launches are over, and nothing else uses it.
        unsafe { exec.launch(stream) }.unwrap();
    }
    drop(exec); // Waits.
    cuda.read::<u32>(memory).unwrap()
}

pub fn ready(cuda: &mut Cuda) -> (Stream, Function, Memory) {
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    let function = cuda.compile(STEP, "step").unwrap();
    (stream, function, cuda.alloc(256).unwrap())
}

#[test]
fn a_capture_is_read_with_names_launches_parameters_and_edges() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, memory) = ready(&mut cuda);
    let host = cuda.alloc_host(256).unwrap();
    let captured = stream.capture(CaptureMode::Global, |raw| {
        // SAFETY: both ranges live and are 256 bytes long.
        unsafe {
            expect(sys::cuMemsetD32Async(memory.address(), 7, 64, raw));
            launch(&function, raw, &memory, 9);
            let to = host.address() as usize as *mut c_void;
            expect(sys::cuMemcpyDtoHAsync_v2(to, memory.address(), 256, raw));
        }
        Ok::<_, String>("done")
    });
    let (captured, value) = captured.unwrap();
    assert_eq!((value, captured.read_only()), ("done", None));
    let graph = captured.graph();
    assert_eq!((graph.node_count(), graph.edge_count()), (3, 2));
    let of = |kind: &str| graph.node_ids().find(|&id| graph.node(id).kind.name() == kind).unwrap();
    let (set, step, copy) = (of("memset"), of("kernel"), of("memcpy"));
    assert_eq!(graph.predecessors(step), [set]);
    assert_eq!(graph.predecessors(copy), [step]);
    assert!(graph.node_ids().all(|id| graph.effects(id) == Effects::Unknown));
    let kernel = graph.node(step).kernel().unwrap();
    assert_eq!(kernel.kernel.name(), "step");
    assert_eq!((kernel.config.grid, kernel.config.block), ((2, 1, 1), (32, 1, 1)));
    let parameters: Vec<(usize, Vec<u8>)> =
        captured.parameters(step).unwrap().map(|p| (p.offset, p.bytes.to_vec())).collect();
    let expected = [
        (0, memory.address().to_le_bytes().to_vec()),
        (8, 9u32.to_le_bytes().to_vec()),
        (12, vec![5]),
    ];
    assert_eq!(parameters, expected);
    assert!(captured.parameters(copy).is_none());
    let NodeKind::Memset(fill) = &graph.node(set).kind else { panic!("a memset") };
    assert_eq!((fill.value, fill.element_size, fill.extent.bytes()), (7, 4, 256));
    let NodeKind::Memcpy(moved) = &graph.node(copy).kind else { panic!("a copy") };
    assert_eq!((moved.dir.to_string(), moved.extent.bytes()), ("DtoH".to_owned(), 256));
    let mut exec = captured.instantiate().unwrap();
    // SAFETY: both memories live until the run is over.
    unsafe { exec.launch(&stream) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(cuda.read::<u32>(&host).unwrap(), [7 * 3 + 9 + 5; 64]);
}

#[test]
fn errors_and_panics_inside_leave_the_stream_as_it_was() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, memory) = ready(&mut cuda);
    let failed = stream.capture(CaptureMode::Global, |raw| {
        launch(&function, raw, &memory, 1);
        Err::<(), _>("no")
    });
    assert!(matches!(failed, Err(CaptureError::Work("no"))), "{failed:?}");
    stream.synchronize().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.capture(CaptureMode::Global, |raw| -> Result<(), &str> {
            launch(&function, raw, &memory, 1);
            panic!("stop")
        })
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"stop"));
    stream.synchronize().unwrap();
    let (good, ()) = stream
        .capture(CaptureMode::Global, |raw| {
            launch(&function, raw, &memory, 1);
            Ok::<_, String>(())
        })
        .unwrap();
    assert_eq!(good.graph().node_count(), 1);
    assert_eq!(cuda.read::<u32>(&memory).unwrap(), [0; 64], "nothing has run");
}

#[test]
fn captures_that_fail_say_by_which_rule() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, memory) = ready(&mut cuda);
    let device = cuda.devices()[0].clone();
    let diagnosis = |failed: Result<(Captured, ()), CaptureError<String>>| match failed {
        Err(CaptureError::End(diagnosis)) => diagnosis,
        other => panic!("{other:?}"),
    };
    let (other, event) = (Stream::new(&device).unwrap(), Event::new(&device).unwrap());
    let unjoined = diagnosis(stream.capture(CaptureMode::Relaxed, |raw| {
        launch(&function, raw, &memory, 1);
        event.record(&stream).unwrap();
        other.wait(&event).unwrap();
        launch(&function, other.handle(), &memory, 1);
        Ok(())
    }));
    assert_eq!(unjoined.rule, Some(Rule::R9d));
    assert_eq!((unjoined.unjoined.len(), unjoined.more), (1, 0));
    let text = unjoined.to_string();
    assert!(text.contains("nothing joins the work that ends with this kernel: step"), "{text}");
    let broken = diagnosis(stream.capture(CaptureMode::Relaxed, |raw| {
        launch(&function, raw, &memory, 1);
        assert!(stream.synchronize().is_err());
        Ok(())
    }));
    assert_eq!((broken.rule, broken.error.code), (Some(Rule::R9c), 901));
    let ended = diagnosis(stream.capture(CaptureMode::Relaxed, |raw| {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is capturing, and the graph is destroyed once.
        unsafe {
            expect(sys::cuStreamEndCapture(raw, &mut graph));
            expect(sys::cuGraphDestroy(graph));
        }
        Ok(())
    }));
    assert_eq!((ended.rule, ended.error.code), (Some(Rule::R9a), 401));
    stream.synchronize().unwrap();
}

#[test]
fn edges_that_others_imply_are_taken_out_in_place_or_left_out_of_a_copy() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, memory) = ready(&mut cuda);
    let plain = chain(&stream, &function, &memory, 40, 0);
    assert_eq!(plain.graph().edge_count(), 39);
    let expected = result(&mut cuda, &stream, plain, &memory);
    let mut edited = chain(&stream, &function, &memory, 40, 8);
    assert_eq!(edited.graph().edge_count(), 39 + 7 * 32 + 21);
    let reduced = reduce_edges(edited.graph()).unwrap().graph;
    let done = edited.reduce_to(&reduced).unwrap();
    assert_eq!((done.edges, done.removed), (39 + 7 * 32 + 21, 7 * 32 + 21));
    assert_eq!(*edited.graph(), reduced);
    // SAFETY: the graph lives and nobody changes it.
    let read_anew = unsafe { phonograph_cuda::Imported::read(edited.handle()) }.unwrap();
    assert_eq!(*read_anew.graph(), reduced, "the driver has it so");
    assert_eq!(result(&mut cuda, &stream, edited, &memory), expected);
    let source = chain(&stream, &function, &memory, 40, 8);
    let rebuilt = source.rebuild(&reduced).unwrap();
    assert_eq!(*rebuilt.graph(), reduced);
    assert_eq!(result(&mut cuda, &stream, rebuilt, &memory), expected);
}

#[test]
fn what_would_lose_an_order_is_refused() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, memory) = ready(&mut cuda);
    let mut captured = chain(&stream, &function, &memory, 5, 3);
    let before = captured.graph().clone();
    let mut rebuild = phonograph_graph::Rebuild::new(&before);
    rebuild.edges(before.edges().skip(1).collect());
    let (lost, _) = rebuild.build().unwrap();
    let refused = captured.reduce_to(&lost);
    assert!(matches!(refused, Err(EditError::Order { .. })), "{refused:?}");
    let mut other = GraphBuilder::new();
    other.add_barrier("alone");
    let refused = captured.reduce_to(&other.build().unwrap());
    assert!(matches!(refused, Err(EditError::Other { .. })), "{refused:?}");
    // SAFETY: the graph lives and nobody changes it.
    let read_anew = unsafe { phonograph_cuda::Imported::read(captured.handle()) }.unwrap();
    assert_eq!(*read_anew.graph(), before);
}

#[test]
fn a_copy_keeps_clusters_and_child_graphs() {
    let Some(mut cuda) = cuda() else { return };
    if cuda.devices()[0].capability() < (9, 0) {
        return eprintln!("skipped: the device has no clusters");
    }
    let (stream, function, memory) = ready(&mut cuda);
    let pair = cuda.compile(CLUSTER, "pair").unwrap();
    let inner = chain(&stream, &function, &memory, 6, 4);
    let captured = stream.capture(CaptureMode::Relaxed, |raw| {
        let mut address = memory.address();
        let mut parameters = [(&raw mut address).cast::<c_void>()];
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { pad: [0; 64] },
        };
        (attribute.value.clusterDim.x, attribute.value.clusterDim.y) = (2, 1);
        attribute.value.clusterDim.z = 1;
        let config = sys::CUlaunchConfig {
            gridDimX: 4,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: raw,
            attrs: &mut attribute,
            numAttrs: 1,
        };
        let (function, parameters) = (pair.handle(), parameters.as_mut_ptr());
        // SAFETY: the function takes one address; the configuration lives during the call.
        expect(unsafe { sys::cuLaunchKernelEx(&config, function, parameters, ptr::null_mut()) });
        Ok::<_, String>(())
    });
    let (captured, ()) = captured.unwrap();
    let kernel = captured.node(NodeId(0)).unwrap();
    let mut child: CUgraphNode = ptr::null_mut();
    // SAFETY: both graphs live; the child is cloned.
    expect(unsafe {
        sys::cuGraphAddChildGraphNode(&mut child, captured.handle(), &kernel, 1, inner.handle())
    });
    // SAFETY: the graph lives for as long as what is read of it.
    let imported = unsafe { phonograph_cuda::Imported::read(captured.handle()) }.unwrap();
    let config = imported.graph().nodes()[0].kernel().unwrap().config;
    assert_eq!(config.cluster, (2, 1, 1));
    let NodeKind::Child(inside) = &imported.graph().nodes()[1].kind else { panic!("a child") };
    assert_eq!((inside.node_count(), inside.edge_count()), (6, 5 + 3 * 2 + 3));
    let reduced = reduce_edges(imported.graph()).unwrap().graph;
    let device = cuda.devices()[0].clone();
    let rebuilt = imported.rebuild(&device, &reduced).unwrap();
    assert_eq!(*rebuilt.graph(), reduced);
    let found = result(&mut cuda, &stream, rebuilt, &memory);
    // SAFETY: as above.
    let mut imported = unsafe { phonograph_cuda::Imported::read(captured.handle()) }.unwrap();
    assert_eq!(imported.reduce_to(&reduced).unwrap().removed, 3 * 2 + 3);
    assert_eq!(*imported.graph(), reduced);
    assert_eq!(result(&mut cuda, &stream, captured, &memory), found);
}

#[test]
fn a_copy_may_have_the_shared_memory_that_was_captured() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, _, memory) = ready(&mut cuda);
    let large = cuda.compile(LARGE, "large").unwrap();
    let allowed = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let bytes = 32 << 10;
    let allow = |bytes| {
        // SAFETY: the function lives.
        expect(unsafe { sys::cuFuncSetAttribute(large.handle(), allowed, bytes) });
    };
    allow(bytes);
    let captured = stream.capture(CaptureMode::Relaxed, |raw| {
        let mut address = memory.address();
        let mut parameters = [(&raw mut address).cast::<c_void>()];
        let (function, parameters, none) =
            (large.handle(), parameters.as_mut_ptr(), ptr::null_mut());
        // SAFETY: function and stream live; the parameter is the function's.
        expect(unsafe {
            sys::cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, bytes as u32, raw, parameters, none)
        });
        Ok::<_, String>(())
    });
    let (captured, ()) = captured.unwrap();
    // A library that has gone on to a launch with less.
    allow(0);
    // SAFETY: the captured graph lives as long as what is read of it.
    let imported = unsafe { phonograph_cuda::Imported::read(captured.handle()) }.unwrap();
    let same = imported.graph().clone();
    let rebuilt = imported.rebuild(&cuda.devices()[0].clone(), &same).unwrap();
    let mut value = 0;
    // SAFETY: the function lives.
    expect(unsafe { sys::cuFuncGetAttribute(&mut value, allowed, large.handle()) });
    assert_eq!(value, bytes, "as much as the node has");
    let found = result(&mut cuda, &stream, rebuilt, &memory);
    let expected: Vec<u32> = (0..64).map(|at| 1 + 3 * (at * 7 + 8191 - at)).collect();
    assert_eq!(found, expected);
    drop(captured);
}

#[test]
fn graphs_that_allocate_are_read_only() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, memory) = ready(&mut cuda);
    let captured = stream.capture(CaptureMode::Relaxed, |raw| {
        let mut address = 0;
        // SAFETY: the stream is capturing.
        expect(unsafe { sys::cuMemAllocAsync(&mut address, 1024, raw) });
        launch(&function, raw, &memory, 1);
        // SAFETY: the graph allocated it.
        expect(unsafe { sys::cuMemFreeAsync(address, raw) });
        Ok::<_, String>(())
    });
    let (mut captured, ()) = captured.unwrap();
    assert_eq!(captured.read_only(), Some(ReadOnly::Allocates));
    let kinds: Vec<_> = captured.graph().nodes().iter().map(|node| node.kind.name()).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    let graph = captured.graph().clone();
    let refused = captured.reduce_to(&graph);
    assert_eq!(refused, Err(EditError::ReadOnly(ReadOnly::Allocates)));
    let values = result(&mut cuda, &stream, captured, &memory);
    assert_eq!(values[0], ((3 + 6) * 3 + 6) * 3 + 6);
}
