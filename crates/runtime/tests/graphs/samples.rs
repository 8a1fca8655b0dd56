//! Graphs that several tests run, on any GPU.

use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, DType, Expr, Extent, GraphBuilder, LibraryKernel,
    MemsetNode, NodeId, Pitched, Region, SlotId, Target, View,
};
use phonograph_runtime::cpu::kernels::{FnKernel, Param};

use crate::case::{Case, add_one, view};

/// A graph with something of everything that can be changed between replays: `output` is `input` times `by`, and one more
/// where `plus` is enabled, plus `by`, in its first half, and ones in its second.
pub struct WithSlots {
    pub graph: ComputeGraph,
    pub input: BufferId,
    pub output: BufferId,
    pub x: BufferId,
    pub by: SlotId,
    pub plus: NodeId,
    pub in_child: NodeId,
}

pub fn with_slots() -> WithSlots {
    let mut b = GraphBuilder::new();
    let input = b.slot_buffer("input", 400, Access::Read);
    let output = b.slot_buffer("output", 400, Access::ReadWrite);
    let x = b.external_buffer("x", 400);
    let (iv, xv) = (view(input, &[100]), view(x, &[100]));
    let by = b.slot("by", 2.0f32);
    let scale = Expr::build(|e| e.output(e.input(DType::F32) * e.param(DType::F32))).unwrap();
    b.add_elementwise("scale", scale.into(), &[iv], &[Arg::Slot(by)], &[xv]);
    let plus = b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    let mut child = GraphBuilder::new();
    let (from, to, slot) =
        (child.outer_view(&b, xv), child.outer_buffer(&b, output), child.outer_slot(&b, by));
    let sum = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let t = child.alloc_buffer("t", 400);
    child.add_elementwise("sum", sum.into(), &[from], &[Arg::Slot(slot)], &[view(t, &[100])]);
    let half = |buffer| Region { buffer, offset: 0, bytes: 200 };
    child.add_region_copy("out", half(t), half(to));
    let dst = Pitched::linear(Target::Buffer(to), 200);
    let (value, element_size, extent) = (1f32.to_bits(), 4, Extent::linear(200));
    child.add_fill("ones", MemsetNode { dst, value, element_size, extent });
    let in_child = b.add_child("child", child.build().unwrap());
    WithSlots { graph: b.build().unwrap(), input, output, x, by, plus, in_child }
}

/// What the first three rows of a table are gathered by and added by again in a child: row numbers in the buffer, of which
/// 0 to 3 are right.
pub fn numbered_rows() -> (ComputeGraph, BufferId) {
    let mut b = GraphBuilder::new();
    let rows = b.external_buffer("rows", 12);
    let table = b.external_buffer("table", 64);
    let (picked, sums) = (b.external_buffer("picked", 48), b.external_buffer("sums", 64));
    let rv = View::contiguous(rows, DType::I32, &[3]).unwrap();
    let (tv, pv, sv) = (view(table, &[4, 4]), view(picked, &[3, 4]), view(sums, &[4, 4]));
    b.add_library("gather", LibraryKernel::Gather, &[tv, rv, pv]);
    let mut child = GraphBuilder::new();
    let inside = [pv, rv, sv].map(|v| child.outer_view(&b, v));
    child.add_library("scatter", LibraryKernel::ScatterAdd, &inside);
    b.add_child("child", child.build().unwrap());
    (b.build().unwrap(), rows)
}

/// Row numbers for [`numbered_rows`], and how the error of a replay on them ends; nothing where there is none.
pub const ROW_NUMBERS: [([i32; 3], &str); 4] = [
    ([0, 1, 3], ""),
    ([0, 4, 1], "row number 4 at position 1 is not one of the 4 rows"),
    ([0, 1, -1], "row number -1 at position 2 is not one of the 4 rows"),
    ([3, 3, 3], ""),
];

/// A graph in a graph in a graph; the one in the middle also has what `also` puts behind its download to host memory, which it
/// is given.
pub fn nested(also: impl FnOnce(&mut GraphBuilder, Region)) -> ComputeGraph {
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
    also(&mut child, Region { buffer: out, ..bytes });
    b.add_child("child", child.build().unwrap());
    b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    b.build().unwrap()
}

/// A graph with kernels called `axpy`, which is this source on the GPU: y ← y + a x, of tensors x and y, a and a length.
pub fn axpy_case(graph: ComputeGraph, source: &'static str) -> Case {
    let mut case = Case::new(graph);
    case.kernels.push(("axpy", source));
    let params = [
        Param::Read(DType::F32),
        Param::ReadWrite(DType::F32),
        Param::Scalar(DType::F32),
        Param::Scalar(DType::U32),
    ];
    case.registry.register(
        "axpy",
        FnKernel::whole(&params, |block| {
            let (x, y, a) =
                (block.read::<f32>(0)?, block.write::<f32>(1)?, block.scalar::<f32>(2)?);
            y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
            Ok(())
        }),
    );
    case
}
