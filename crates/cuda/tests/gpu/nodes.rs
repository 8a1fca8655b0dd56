//! Every kind of node against the CPU backend.

use phonograph_cuda::{Bindings, Stream};
use phonograph_graph::{
    Access, BufferId, DType, Edge, EdgeData, EventId, Extent, GraphBuilder, MemcpyDir, MemcpyNode,
    MemsetNode, NodeKind, Pitched, Region, Schedule, Target,
};
use phonograph_runtime::cpu::kernels::Param;

use crate::case::{Case, add_one, check, cuda, view};

fn whole(b: &GraphBuilder, buffer: BufferId) -> Region {
    Region { buffer, offset: 0, bytes: b.buffer(buffer).bytes }
}

#[test]
fn an_expression_runs() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let (x, t) = (b.external_buffer("x", 4000), b.alloc_buffer("t", 4000));
    b.add_elementwise("plus", add_one(), &[view(x, &[1000])], &[], &[view(t, &[1000])]);
    b.add_elementwise("plus", add_one(), &[view(t, &[1000])], &[], &[view(x, &[1000])]);
    check(&mut cuda, &Case::new(b.build().unwrap()));
}

#[test]
fn copies_and_fills_move_the_bytes_they_say() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let host = b.host_buffer("host", 512);
    let back = b.host_buffer("back", 512);
    let device = b.external_buffer("device", 512);
    let other = b.external_buffer("other", 512);
    let filled = b.external_buffer("filled", 4096);
    let all = |buffer| Region { buffer, offset: 0, bytes: 256 };
    b.add_region_copy("upload", all(host), all(device));
    b.add_region_copy("move", all(device), Region { offset: 256, ..all(other) });
    b.add_region_copy("download", Region { offset: 128, ..all(other) }, all(back));
    b.add_region_copy("on the host", all(host), Region { offset: 256, ..all(back) });
    let end = |buffer, offset, pitch, slice_rows| {
        let target = Target::Buffer(buffer);
        Pitched { target, offset, pitch, slice_rows }
    };
    let dir = MemcpyDir::DeviceToDevice;
    let extent = Extent { width: 12, height: 3, depth: 1 };
    let (src, dst) = (end(device, 4, 16, 0), end(filled, 3, 20, 0));
    b.add_copy("rows", MemcpyNode { dir, src, dst, extent });
    let extent = Extent { width: 5, height: 2, depth: 3 };
    let (src, dst) = (end(device, 0, 8, 3), end(filled, 100, 10, 4));
    b.add_copy("slices", MemcpyNode { dir, src, dst, extent });
    // Columns of the same rows of one buffer.
    let extent = Extent { width: 8, height: 4, depth: 1 };
    let (src, dst) = (end(other, 0, 16, 0), end(other, 8, 16, 0));
    b.add_copy("columns", MemcpyNode { dir, src, dst, extent });
    let dir = MemcpyDir::HostToDevice;
    let extent = Extent { width: 7, height: 3, depth: 2 };
    let (src, dst) = (end(host, 1, 9, 4), end(filled, 300, 16, 3));
    b.add_copy("from the host", MemcpyNode { dir, src, dst, extent });
    let nothing = Extent { width: 0, height: 1, depth: 1 };
    b.add_copy("nothing", MemcpyNode { dir, src, dst, extent: nothing });
    let mut fill = |offset, value, element_size, pitch, slice_rows, (width, height, depth)| {
        let (dst, extent) =
            (end(filled, offset, pitch, slice_rows), Extent { width, height, depth });
        b.add_fill("fill", MemsetNode { dst, value, element_size, extent });
    };
    fill(1001, 0xAB, 1, 0, 0, (37, 1, 1));
    fill(1100, 0xABCD, 2, 0, 0, (30, 1, 1));
    fill(1200, 0x1234_5678, 4, 0, 0, (60, 1, 1));
    fill(1300, 0x77, 1, 16, 0, (9, 5, 1));
    fill(1400, 0x7788, 2, 32, 4, (8, 4, 3));
    fill(1800, 0x0102_0304, 4, 32, 5, (8, 4, 3));
    fill(2400, 0x0102_0304, 4, 32, 5, (0, 4, 3));
    let case =
        Case::new(b.build().unwrap()).with(host, &(0..=255).chain(0..=255).collect::<Vec<u8>>());
    check(&mut cuda, &case);
}

#[test]
fn host_functions_run_on_every_replay() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let (x, staged) = (b.external_buffer("x", 400), b.host_buffer("staged", 400));
    let download = whole(&b, x);
    b.add_region_copy("download", download, Region { buffer: staged, ..download });
    let touched = (Region { buffer: staged, ..download }, Access::ReadWrite);
    b.add_host("scale", "scale", &[touched]);
    b.add_region_copy("upload", Region { buffer: staged, ..download }, download);
    let mut case = Case::new(b.build().unwrap());
    case.registry.host("scale", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v = *v * 3.0 + 1.0);
        Ok(())
    });
    check(&mut cuda, &case);
}

#[test]
fn a_host_function_that_fails_or_panics_fails_the_replay() {
    let Some(mut cuda) = cuda() else { return };
    for panics in [false, true] {
        let mut b = GraphBuilder::new();
        let staged = b.host_buffer("staged", 4);
        b.add_host("callback", "f", &[(whole(&b, staged), Access::ReadWrite)]);
        let mut case = Case::new(b.build().unwrap());
        case.registry.host("f", &[Param::ReadWrite(DType::F32)], move |_| {
            assert!(!panics, "no");
            Err(phonograph_runtime::cpu::kernels::KernelError::Failed("no".to_owned()))
        });
        let mut exec = case.instantiate(&mut cuda, &Schedule::sequential(&case.graph));
        for _ in 0..2 {
            let error = cuda.replay(&mut exec).unwrap_err().to_string();
            let expected = if panics {
                "node n0 (callback): the function panicked: no"
            } else {
                "node n0 (callback): no"
            };
            assert_eq!(error, expected);
        }
    }
}

#[test]
fn children_run_with_what_is_inside() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 400);
    let staged = b.host_buffer("staged", 400);
    let xv = view(x, &[100]);
    let mut child = GraphBuilder::new();
    let inside = child.outer_view(&b, xv);
    let t = child.alloc_buffer("t", 400);
    let tv = view(t, &[100]);
    child.add_elementwise("plus", add_one(), &[inside], &[], &[tv]);
    let mut grandchild = GraphBuilder::new();
    let (from, to) = (grandchild.outer_view(&child, tv), grandchild.outer_view(&child, inside));
    grandchild.add_elementwise("plus", add_one(), &[from], &[], &[to]);
    child.add_child("grandchild", grandchild.build().unwrap());
    let out = child.outer_buffer(&b, staged);
    let bytes = Region { buffer: inside.buffer, offset: 0, bytes: 400 };
    child.add_region_copy("download", bytes, Region { buffer: out, ..bytes });
    child.add_host("negate", "negate", &[(Region { buffer: out, ..bytes }, Access::ReadWrite)]);
    b.add_child("child", child.build().unwrap());
    b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    let mut case = Case::new(b.build().unwrap());
    case.registry.host("negate", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v = -*v);
        Ok(())
    });
    check(&mut cuda, &case);
}

#[test]
fn events_order_graphs_on_different_streams() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4);
    let xv = view(x, &[]);
    let plus = b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    let record = b.add_event_record("done", EventId(0));
    b.dep(plus, record);
    let first = Case::new(b.build().unwrap());
    let mut exec = first.instantiate(&mut cuda, &Schedule::sequential(&first.graph));
    let memory = exec.memory(x).unwrap().clone();
    let mut b = GraphBuilder::new();
    let wait = b.add_event_wait("wait", EventId(3));
    let y = b.external_buffer("y", 4);
    let yv = view(y, &[]);
    let plus = b.add_elementwise("plus", add_one(), &[yv], &[], &[yv]);
    b.dep(wait, plus);
    let graph = b.build().unwrap();
    let bindings =
        Bindings::new().memory(y, &memory).event(EventId(3), exec.event(EventId(0)).unwrap());
    let mut second = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    cuda.write(&memory, &[0f32]).unwrap();
    let streams: Vec<Stream> = (0..2).map(|_| Stream::new(&cuda.devices()[0]).unwrap()).collect();
    for _ in 0..10 {
        cuda.launch(&mut exec, &streams[0]).unwrap();
        cuda.launch(&mut second, &streams[1]).unwrap();
    }
    cuda.finish(&mut second).unwrap();
    assert_eq!(cuda.read::<f32>(&memory).unwrap(), [20.0]);
}

#[test]
fn memory_that_a_graph_allocates_is_there_in_every_replay() {
    let Some(mut cuda) = cuda() else { return };
    for frees in [true, false] {
        let mut b = GraphBuilder::new();
        let (x, t) = (b.external_buffer("x", 4000), b.alloc_buffer("t", 4000));
        let (xv, tv) = (view(x, &[1000]), view(t, &[1000]));
        b.add("alloc", NodeKind::Alloc(t));
        b.add_elementwise("plus", add_one(), &[xv], &[], &[tv]);
        b.add_elementwise("plus", add_one(), &[tv], &[], &[xv]);
        if frees {
            b.add("free", NodeKind::Free(t));
        }
        check(&mut cuda, &Case::new(b.build().unwrap()));
    }
}

#[test]
fn weak_edges_keep_the_order_of_data() {
    let Some(mut cuda) = cuda() else { return };
    if cuda.devices()[0].capability() < (9, 0) {
        return eprintln!("skipped: weak edges need compute capability 9.0");
    }
    let mut b = GraphBuilder::new().with_auto_infer_edges(false);
    let x = b.external_buffer("x", 4 << 20);
    let xv = view(x, &[1 << 20]);
    let nodes: Vec<_> =
        (0..20).map(|_| b.add_elementwise("plus", add_one(), &[xv], &[], &[xv])).collect();
    for (at, pair) in nodes.windows(2).enumerate() {
        let data = if at % 2 == 0 { EdgeData::PROGRAMMATIC } else { EdgeData::LAUNCH_ORDER };
        b.add_edge(Edge { from: pair[0], to: pair[1], data });
    }
    let graph = b.build().unwrap();
    let case = Case::new(graph).with(x, &vec![0f32; 1 << 20]);
    let found = case.on_cuda(&mut cuda, &Schedule::sequential(&case.graph));
    assert!(found[0].chunks_exact(4).all(|v| v == 60f32.to_le_bytes()));
}
