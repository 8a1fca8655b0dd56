//! Every kind of node that every GPU runs, against the CPU backend: bit for bit, since none of it rounds. Names no backend; the
//! tests of each include it.

use phonograph_graph::{
    BufferId, Condition, ConditionalKind, DType, Edge, EdgeData, Expr, Extent, GraphBuilder,
    MemcpyDir, MemcpyNode, MemsetNode, NodeKind, Pitched, Region, Target, View,
};

use crate::case::{Case, Machine, add_one, check, device, view};
use crate::samples::nested;

#[test]
fn an_expression_runs() {
    let Some(mut gpu) = device() else { return };
    let mut b = GraphBuilder::new();
    let (x, t) = (b.external_buffer("x", 4000), b.alloc_buffer("t", 4000));
    b.add_elementwise("plus", add_one(), &[view(x, &[1000])], &[], &[view(t, &[1000])]);
    b.add_elementwise("plus", add_one(), &[view(t, &[1000])], &[], &[view(x, &[1000])]);
    check(&mut gpu, &Case::new(b.build().unwrap()));
}

#[test]
fn copies_and_fills_move_the_bytes_they_say() {
    let Some(mut gpu) = device() else { return };
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
    check(&mut gpu, &case);
}

#[test]
fn children_run_with_what_is_inside() {
    let Some(mut gpu) = device() else { return };
    check(&mut gpu, &Case::new(nested(|_, _| {})));
}

/// A graph whose node `kind` of `bodies` bodies decides by a value of `dtype`; body `i` adds 10^i.
fn deciding(kind: ConditionalKind, bodies: usize, dtype: DType) -> (GraphBuilder, BufferId) {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4);
    let which = b.external_buffer("which", dtype.size() as usize);
    let (xv, value) = (view(x, &[]), View::contiguous(which, dtype, &[]).unwrap());
    let bodies = (0..bodies).map(|i| {
        let mut body = GraphBuilder::new();
        let inside = body.outer_view(&b, xv);
        let by = 10f32.powi(i as i32);
        let add = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(by))).unwrap();
        body.add_elementwise("add", add.into(), &[inside], &[], &[inside]);
        if kind == ConditionalKind::While {
            let count = body.outer_view(&b, value);
            let less = Expr::build(|e| {
                let x = e.input(dtype);
                let one = match dtype {
                    DType::I32 => e.constant(1i32),
                    _ => e.constant(1u32),
                };
                e.output_as(x - one, dtype);
            });
            body.add_elementwise("count", less.unwrap().into(), &[count], &[], &[count]);
        }
        body.build().unwrap()
    });
    let bodies = bodies.collect();
    b.add_conditional("decide", kind, Condition::Value(value), bodies);
    (b, which)
}

#[test]
fn conditionals_decide_by_a_value_in_device_memory() {
    let Some(mut gpu) = device() else { return };
    use ConditionalKind::*;
    let bytes = |dtype: DType, value: i32| value.to_le_bytes()[..dtype.size() as usize].to_vec();
    for (kind, count, values) in [
        (If, 1, [0, 1, 7].as_slice()),
        (If, 2, &[0, 1]),
        (Switch, 3, &[0, 1, 2, 3, 200]),
        (While, 1, &[0, 1, 5]),
    ] {
        for dtype in [DType::I32, DType::U32, DType::U8, DType::Bool] {
            if (kind, dtype) == (While, DType::Bool) {
                continue; // Nothing can be subtracted from a bool.
            }
            for &value in values {
                let (b, which) = deciding(kind, count, dtype);
                let case = Case::new(b.build().unwrap()).with(which, &bytes(dtype, value));
                check(&mut gpu, &case);
            }
        }
    }
    let (b, which) = deciding(Switch, 2, DType::I32);
    check(&mut gpu, &Case::new(b.build().unwrap()).with(which, &(-1i32).to_le_bytes()));
}

#[test]
fn conditionals_nest_and_lie_in_children() {
    let Some(mut gpu) = device() else { return };
    // for (i = 3; i != 0; i--) if (flag) x += 1, all of it inside a child.
    let mut b = GraphBuilder::new();
    let (x, i, flag) =
        (b.external_buffer("x", 4), b.external_buffer("i", 4), b.external_buffer("flag", 1));
    let one = |buffer, dtype| View::contiguous(buffer, dtype, &[]).unwrap();
    let mut child = GraphBuilder::new();
    let iv = child.outer_view(&b, one(i, DType::I32));
    let (xv, fv) =
        (child.outer_view(&b, one(x, DType::F32)), child.outer_view(&b, one(flag, DType::Bool)));
    let mut body = GraphBuilder::new();
    let (bx, bi, bf) =
        (body.outer_view(&child, xv), body.outer_view(&child, iv), body.outer_view(&child, fv));
    let mut branch = GraphBuilder::new();
    let inside = branch.outer_view(&body, bx);
    branch.add_elementwise("plus", add_one(), &[inside], &[], &[inside]);
    let branch = vec![branch.build().unwrap()];
    body.add_conditional("if", ConditionalKind::If, Condition::Value(bf), branch);
    let less = Expr::build(|e| e.output(e.input(DType::I32) - e.constant(1i32))).unwrap();
    body.add_elementwise("count", less.into(), &[bi], &[], &[bi]);
    let body = vec![body.build().unwrap()];
    child.add_conditional("while", ConditionalKind::While, Condition::Value(iv), body);
    b.add_child("child", child.build().unwrap());
    let case = Case::new(b.build().unwrap()).with(i, &3i32.to_le_bytes()).with(flag, &[1]);
    check(&mut gpu, &case);
}

#[test]
fn memory_that_a_graph_allocates_is_there_in_every_replay() {
    let Some(mut gpu) = device() else { return };
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
        check(&mut gpu, &Case::new(b.build().unwrap()));
    }
}

#[test]
fn weak_edges_keep_the_order_of_data() {
    let Some(mut gpu) = device() else { return };
    if !gpu.takes_weak_edges() {
        return eprintln!("skipped: the device has no weak edges");
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
    let case = Case::new(graph).with(x, &vec![0; 4 << 20]);
    let found = gpu.replayed(&case);
    assert!(found[0].chunks_exact(4).all(|v| v == 60f32.to_le_bytes()));
}
