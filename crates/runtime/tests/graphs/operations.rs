//! Expressions and kernels of the library on operands of many kinds, for the tests of what a GPU computes.

use std::sync::Arc;

use phonograph_graph::{
    BinaryOp, BufferId, CompareOp, ComputeGraph, DType, Expr, GraphBuilder, LibraryKernel, Op,
    UnaryOp, ValueId, View,
};

use crate::case::{tensor, view};

/// Numbers without a pattern, the same in every run.
pub fn noise(count: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// One expression of every operation on each of these types, with three inputs of each. Each result is an output, and some are
/// stored as the types that only memory has, too.
pub fn every_operation(types: &[DType]) -> Expr {
    use {BinaryOp as B, CompareOp as C, UnaryOp as U};
    let inputs: Vec<DType> = types.iter().flat_map(|&t| [t; 3]).collect();
    let loads: Vec<Op> = (0..inputs.len() as u16).map(Op::Input).collect();
    let truth = types.iter().position(|&t| t == DType::Bool).expect("a bool to select by");
    let truth = ValueId(3 * truth as u16);
    let mut candidates = Vec::new();
    for (number, &t) in (0..).zip(types) {
        let [a, b, c] = [0, 1, 2].map(|i| ValueId(3 * number + i));
        let unary = [U::Neg, U::Abs, U::Not, U::Exp, U::Log, U::Tanh, U::Erf, U::Sqrt, U::Floor];
        candidates.extend(unary.map(|op| Op::Unary(op, a)));
        let binary =
            [B::Add, B::Sub, B::Mul, B::Div, B::Rem, B::Min, B::Max, B::And, B::Or, B::Xor];
        candidates.extend(binary.map(|op| Op::Binary(op, a, b)));
        let compare = [C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge];
        candidates.extend(compare.map(|op| Op::Compare(op, a, b)));
        candidates.extend(types.iter().map(|&to| Op::Cast(to, a)));
        candidates.extend([DType::F16, DType::BF16, DType::U8].map(|to| Op::Round(to, a)));
        candidates.push(Op::Select(truth, b, c));
        if t == DType::U32 {
            candidates.push(Op::Philox { index: a, counter: b, key: c });
        }
    }
    let of = |ops: Vec<Op>, outputs| Expr::new(inputs.clone(), vec![], ops, outputs);
    let fits = |&op: &Op| {
        let ops = loads.iter().copied().chain([op]).collect();
        of(ops, vec![(ValueId(0), DType::F32)]).is_ok()
    };
    let ops: Vec<Op> = loads.iter().copied().chain(candidates.into_iter().filter(fits)).collect();
    let plain = of(ops.clone(), vec![(ValueId(0), DType::F32)]).unwrap();
    let results = (0..ops.len() as u16).map(ValueId);
    let mut outputs: Vec<_> = results.map(|value| (value, plain.type_of(value))).collect();
    for t in [DType::F16, DType::BF16, DType::U8] {
        let wide = outputs.iter().filter(|(_, wide)| *wide == t.computed()).step_by(7);
        let narrow: Vec<_> = wide.map(|&(value, _)| (value, t)).collect();
        outputs.extend(narrow);
    }
    of(ops, outputs).unwrap()
}

/// Elementwise kernels on views that are transposed, repeated, cut out, empty, and one of positions.
pub fn many_views() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let (x, y, z) = (
        b.external_buffer("x", 4 * 600),
        b.external_buffer("y", 4 * 600),
        b.external_buffer("z", 4 * 600),
    );
    let sum: Arc<Expr> =
        Expr::build(|e| e.output(e.input(DType::F32) + e.input(DType::F32))).unwrap().into();
    let (xv, yv, zv) = (view(x, &[10, 12, 5]), view(y, &[5, 12, 10]), view(z, &[10, 12, 5]));
    b.add_elementwise("transposed", sum.clone(), &[xv, yv.transpose(0, 2).unwrap()], &[], &[zv]);
    let row = view(y, &[5]).broadcast_to(xv.shape()).unwrap();
    let column = View::strided(y, DType::F32, 8, &[10, 12, 5], &[1, 0, 0]).unwrap();
    b.add_elementwise("broadcast", sum.clone(), &[row, column], &[], &[xv]);
    let one = view(z, &[1]).broadcast_to(xv.shape()).unwrap();
    b.add_elementwise("one", sum.clone(), &[one, xv], &[], &[yv.transpose(0, 2).unwrap()]);
    let part = xv.slice(0, 2, 3).unwrap().slice(2, 1, 3).unwrap();
    let from = yv.transpose(0, 2).unwrap().slice(0, 0, 3).unwrap().slice(2, 2, 3).unwrap();
    b.add_elementwise("slices", sum.clone(), &[part, from], &[], &[part]);
    let place = Expr::build(|e| {
        let place =
            e.index(0) * e.constant(10_000u32) + e.index(1) * e.constant(100u32) + e.index(2);
        e.output(place.cast(DType::F32));
    });
    b.add_elementwise("positions", place.unwrap().into(), &[], &[], &[zv]);
    let none = view(x, &[0, 4]);
    b.add_elementwise("nothing", sum, &[none, none], &[], &[view(y, &[0, 4])]);
    b.build().unwrap()
}

/// A library kernel on operands of these types and extents, each in a buffer of its own.
pub fn library(
    kernel: LibraryKernel,
    operands: &[(DType, &[u64])],
) -> (ComputeGraph, Vec<(BufferId, DType)>) {
    let mut b = GraphBuilder::new();
    let views: Vec<View> = operands
        .iter()
        .map(|&(dtype, extents)| {
            let bytes = extents.iter().product::<u64>() * dtype.size();
            let buffer = b.external_buffer("operand", bytes as usize);
            View::contiguous(buffer, dtype, extents).unwrap()
        })
        .collect();
    b.add_library("kernel", kernel, &views);
    (b.build().unwrap(), views.iter().map(|v| (v.buffer, v.dtype)).collect())
}

/// Products of `batch` m×k by k×n matrices, and its operands: the first of each two transposed, or the second.
pub fn product([batch, m, k, n]: [u64; 4], transposed: bool) -> (ComputeGraph, [View; 3]) {
    let mut b = GraphBuilder::new();
    let mut operand = |rows: u64, columns: u64, turn: bool| {
        let extents = if turn { [batch, columns, rows] } else { [batch, rows, columns] };
        let view = tensor(&mut b, "operand", &extents);
        if turn { view.transpose(1, 2).unwrap() } else { view }
    };
    let operands = [operand(m, k, transposed), operand(k, n, !transposed), operand(m, n, false)];
    b.add_library("product", LibraryKernel::MatMul, &operands);
    (b.build().unwrap(), operands)
}
