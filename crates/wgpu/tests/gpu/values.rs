//! What kernels compute, against the CPU backend: integers, conversions and copies bit for bit; floats within a number of
//! units of the last place that the module on WGSL explains. NaNs are left out where WGSL lets a device do as it likes.

use std::sync::Arc;

use crate::case::{Case, Machine, check, gpu, tensor, tensor_of};
use crate::operations::{every_operation, library, many_views, noise, product};
use phonograph_graph::{
    Arg, BinaryOp, BufferId, ComputeGraph, DType, Expr, FusedKernel, GraphBuilder, LibraryKernel,
    Op, ReduceOp, UnaryOp, View,
};
use phonograph_wgpu::Wgpu;

/// The types that WGSL has, in memory.
const TYPES: [DType; 7] =
    [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::U8, DType::Bool];

/// Elements of a type: limits, and numbers of everyday size. Floats are neither NaN nor infinite nor subnormal.
fn elements(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.7, 88.5, -104.5, 1e10, 0.49999997];
    let noise = noise(count + seed);
    let mut bytes = Vec::new();
    for (i, &bits) in noise[seed..].iter().enumerate() {
        // Shifted by the seed, so that two inputs meet in all combinations.
        let at = (i / (1 + seed % 3) + seed) % (3 * special.len());
        let everyday = (bits % 20_001) as f64 / 1000.0 - 10.0;
        let value = special.get(at).copied().unwrap_or(everyday);
        let raw = match dtype {
            DType::F32 => (value as f32).to_bits(),
            // Everyday exponents: of 5 bits and of 8.
            DType::F16 => (bits as u32 & 0x83ff) | (8 + (bits >> 20) as u32 % 16) << 10,
            DType::BF16 => (bits as u32 & 0x807f) | (115 + (bits >> 20) as u32 % 20) << 7,
            DType::I32 => match at % 7 {
                0 => i32::MIN as u32,
                1 => u32::MAX,
                2 => 0,
                3 => bits as u32,
                _ => everyday as i32 as u32,
            },
            DType::U32 if at.is_multiple_of(3) => bits as u32,
            DType::Bool => bits as u32 & 1,
            _ => everyday.abs() as u32,
        };
        bytes.extend(&raw.to_le_bytes()[..dtype.size() as usize]);
    }
    bytes
}

fn value(dtype: DType, bytes: &[u8]) -> f64 {
    use phonograph_graph::Scalar::*;
    match phonograph_graph::Scalar::from_le_bytes(dtype, bytes) {
        Some(F32(v)) => v.into(),
        Some(F16(v)) => v.to_f64(),
        Some(BF16(v)) => v.to_f64(),
        other => panic!("{other:?} is no float"),
    }
}

/// How far a result may be from the CPU's.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Within {
    /// Units of the last place of the CPU's result.
    ulps: f64,
    /// Besides.
    absolute: f64,
}

const EXACT: Within = Within { ulps: 0.0, absolute: 0.0 };

/// Every buffer of the case holds what the CPU gives, floats within their bound.
#[track_caller]
fn check_within(gpu: &mut Wgpu, case: &Case, bound: &dyn Fn(BufferId) -> (DType, Within)) {
    let (expected, found) = (case.on_cpu(), gpu.replayed(case));
    for ((&buffer, expected), found) in case.external().iter().zip(&expected).zip(&found) {
        let (dtype, within) = bound(buffer);
        let name = &case.graph.buffer(buffer).name;
        let size = dtype.size() as usize;
        for (at, (a, b)) in expected.chunks(size).zip(found.chunks(size)).enumerate() {
            if a == b {
                continue;
            }
            assert!(
                dtype.is_float(),
                "element {at} of {name} ({dtype}): {a:x?} on the CPU, {b:x?} on wgpu"
            );
            let (a, b) = (value(dtype, a), value(dtype, b));
            // What is out of a device's range is not compared: NaN, infinity, and subnormals that may be zero.
            let least = f64::from(f32::MIN_POSITIVE);
            if !a.is_finite() || a.abs() < least && b.abs() < 2.0 * least {
                continue;
            }
            let mantissa = match dtype {
                DType::F16 => 10,
                DType::BF16 => 7,
                _ => 23,
            };
            let ulp = 2f64.powi(a.abs().max(1e-38).log2().floor() as i32 - mantissa);
            let off = (a - b).abs();
            assert!(
                off <= within.ulps * ulp + within.absolute,
                "element {at} of {name} ({dtype}): {a:e} on the CPU, {b:e} on wgpu, {} ulp off",
                off / ulp
            );
        }
    }
}

/// How exact an operation is, given the magnitude of its result.
fn exactness(op: &Op, dtype: DType) -> Within {
    let ulps = match *op {
        _ if !dtype.is_float() => return EXACT,
        // Quotients are 2.5 units off, roots as much as one over a root of 2 units and a product.
        Op::Binary(BinaryOp::Div, ..) => 3.0,
        Op::Unary(UnaryOp::Sqrt, _) => 3.5,
        // The CPU's own error and as many roundings again, which a device may contract.
        Op::Unary(UnaryOp::Exp, _) => 4.0,
        Op::Unary(UnaryOp::Log, _) => 6.0,
        Op::Unary(UnaryOp::Tanh | UnaryOp::Erf, _) => 10.0,
        _ => return EXACT,
    };
    Within { ulps, absolute: 0.0 }
}

/// The operations of an expression in kernels of a few outputs each: devices bind only so many buffers.
#[test]
fn operations_give_the_same_values() {
    const COUNT: u64 = 3000;
    let Some(mut gpu) = gpu() else { return };
    let all = every_operation(&TYPES);
    assert!(all.ops().len() > 120, "{}", all.ops().len());
    let mut b = GraphBuilder::new();
    let (mut bounds, mut contents) = (Vec::new(), Vec::new());
    let mut view = |b: &mut GraphBuilder, name: &str, dtype: DType, within: Within| {
        let buffer = b.external_buffer(name, (COUNT * dtype.size()) as usize);
        bounds.push((buffer, (dtype, within)));
        View::contiguous(buffer, dtype, &[COUNT]).unwrap()
    };
    let mut inputs = Vec::new();
    for (seed, &dtype) in all.inputs().iter().enumerate() {
        let input = view(&mut b, &format!("input {seed}"), dtype, EXACT);
        contents.push((input.buffer, elements(dtype, COUNT as usize, seed % 3)));
        inputs.push(input);
    }
    for outputs in all.outputs().chunks(8) {
        let expr = Expr::new(all.inputs().to_vec(), vec![], all.ops().to_vec(), outputs.to_vec());
        let outputs: Vec<View> = outputs
            .iter()
            .map(|&(value, dtype)| {
                let op = all.ops()[value.index()];
                let mut within = exactness(&op, dtype);
                // What is stored with fewer digits may be rounded the other way.
                if within != EXACT && dtype != DType::F32 {
                    within.ulps = 1.0;
                }
                view(&mut b, &format!("{op:?} as {dtype}"), dtype, within)
            })
            .collect();
        b.add_elementwise("some", Arc::new(expr.unwrap()), &inputs, &[], &outputs);
    }
    let mut case = Case::new(b.build().unwrap());
    (case.contents, case.replays) = (contents, 1);
    check_within(&mut gpu, &case, &|buffer| {
        bounds.iter().find(|(id, _)| *id == buffer).map(|(_, bound)| *bound).unwrap()
    });
}

#[test]
fn strides_broadcasts_and_positions_reach_the_same_elements() {
    let Some(mut gpu) = gpu() else { return };
    check(&mut gpu, &Case::new(many_views()));
}

#[test]
fn reductions_add_in_the_order_of_the_cpu() {
    let Some(mut gpu) = gpu() else { return };
    for dtype in [DType::F32, DType::I32, DType::U32] {
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax] {
            let out = if op == ReduceOp::ArgMax { DType::I32 } else { dtype };
            for length in [1, 33, 1025, 2500] {
                for (extents, axis) in [([3, length], 1), ([length, 3], 0)] {
                    let (graph, types) = library(
                        LibraryKernel::Reduce { op, axis },
                        &[(dtype, &extents), (out, &[3])],
                    );
                    let mut case = Case::new(graph);
                    case.contents = vec![(types[0].0, elements(dtype, 3 * length as usize, 1))];
                    case.replays = 1;
                    check(&mut gpu, &case);
                }
            }
        }
    }
    let long = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
    let (graph, _) = library(long, &[(DType::F32, &[3, 40_000]), (DType::F32, &[3])]);
    check(&mut gpu, &Case::new(graph));
    let none = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 };
    let (graph, _) = library(none, &[(DType::F32, &[0, 3]), (DType::F32, &[3])]);
    check(&mut gpu, &Case::new(graph));
}

#[test]
fn rows_are_gathered_and_added_in_order() {
    let Some(mut gpu) = gpu() else { return };
    for numbers in [DType::I32, DType::U32] {
        for dtype in TYPES {
            let rows: Vec<u8> =
                noise(500).iter().flat_map(|v| ((v % 37) as u32).to_le_bytes()).collect();
            for width in [1, 7, 300] {
                let (table, picked) = ([37, width], [500, width]);
                let operands = [(dtype, &table[..]), (numbers, &[500]), (dtype, &picked)];
                let (graph, types) = library(LibraryKernel::Gather, &operands);
                let mut case = Case::new(graph);
                case.contents = vec![
                    (types[0].0, elements(dtype, 37 * width as usize, 2)),
                    (types[1].0, rows.clone()),
                ];
                check(&mut gpu, &case);
                if [DType::F32, DType::I32, DType::U32].contains(&dtype) {
                    let operands = [(dtype, &picked[..]), (numbers, &[500]), (dtype, &table)];
                    let (graph, types) = library(LibraryKernel::ScatterAdd, &operands);
                    let mut case = Case::new(graph);
                    let source = elements(dtype, 500 * width as usize, 1);
                    case.contents = vec![(types[1].0, rows.clone()), (types[0].0, source)];
                    check(&mut gpu, &case);
                }
            }
        }
    }
}

#[test]
fn products_are_within_their_error() {
    let Some(mut gpu) = gpu() else { return };
    for (batch, m, k, n) in
        [(1, 1, 1, 1), (1, 64, 64, 64), (3, 65, 33, 70), (2, 5, 0, 6), (1, 200, 1000, 3)]
    {
        for transposed in [false, true] {
            let (graph, [x, y, z]) = product([batch, m, k, n], transposed);
            let mut case = Case::new(graph);
            case.replays = 1;
            let found = gpu.replayed(&case);
            let floats = |bytes: &[u8]| -> Vec<f64> {
                bytes.chunks_exact(4).map(|bytes| value(DType::F32, bytes)).collect()
            };
            let at = |view: &View, b: u64, i: u64, j: u64| {
                let strides = view.strides();
                (b * strides[0] + i * strides[1] + j * strides[2]) as usize
            };
            let [xs, ys, zs] = [0, 1, 2].map(|at| floats(&found[at]));
            for (b, i, j) in
                (0..batch).flat_map(|b| (0..m).flat_map(move |i| (0..n).map(move |j| (b, i, j))))
            {
                let terms = (0..k).map(|l| xs[at(&x, b, i, l)] * ys[at(&y, b, l, j)]);
                let (sum, size) =
                    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                let bound = (k + 1) as f64 * 2f64.powi(-24) * size;
                let off = (zs[at(&z, b, i, j)] - sum).abs();
                assert!(
                    off <= bound,
                    "[{b}, {i}, {j}] of {m}×{k}×{n} is {off:e} off, the bound {bound:e}"
                );
            }
        }
    }
}

/// A reduction of `extents` with as much work before and after it as there can be: several inputs and outputs, scalars and
/// positions. Nothing of it rounds, so that the order of reductions shows.
fn fused_reduction(op: ReduceOp, extents: &[u64], axis: usize) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let rank = extents.len() as u8;
    let before = Expr::build(|e| {
        let (x, y, by) = (e.input(DType::I32), e.input(DType::I32), e.param(DType::I32));
        let place = (0..rank).fold(e.constant(0u32), |sum, a| sum + e.index(a));
        let shifted = x * by + y + place.cast(DType::I32);
        e.output(shifted);
        e.output_as(shifted.cast(DType::U32), DType::U8);
    });
    let after = Expr::build(|e| {
        let (sum, bias, by) = (e.input(DType::I32), e.input(DType::I32), e.param(DType::I32));
        let value = sum * by + bias + e.index(0).cast(DType::I32);
        e.output(value);
        e.output(value.cast(DType::F32));
    });
    let library = LibraryKernel::Reduce { op, axis: axis as u8 };
    let fused = FusedKernel { library, before: before.ok(), after: after.ok() };
    let mut rest = extents.to_vec();
    rest.remove(axis);
    let mut operand =
        |name: &str, dtype: DType, extents: &[u64]| tensor_of(&mut b, name, dtype, extents);
    let x = operand("x", DType::I32, extents);
    let y = operand("y", DType::I32, &extents[extents.len() - 1..]);
    let y = y.broadcast_to(x.shape()).unwrap();
    let bias = operand("bias", DType::I32, &rest);
    let bytes = operand("bytes", DType::U8, extents);
    let (out, float) = (operand("out", DType::I32, &rest), operand("float", DType::F32, &rest));
    let scalars = [3i32, -5].map(|v| Arg::Scalar(v.into()));
    b.add_fused("fused", fused.into(), &[x, y, bias, bytes, out, float], &scalars);
    b.build().unwrap()
}

#[test]
fn work_around_reductions_sees_the_same_elements() {
    let Some(mut gpu) = gpu() else { return };
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax] {
        for (extents, axis) in [
            (&[3, 5][..], 0),
            (&[3, 5], 1),
            (&[4, 1500], 1),
            (&[1500, 4], 0),
            (&[2, 9000], 1),
            (&[3, 70, 4], 1),
            (&[3, 70, 4], 0),
            (&[3, 70, 4], 2),
        ] {
            check(&mut gpu, &Case::new(fused_reduction(op, extents, axis)));
        }
    }
}

/// A matrix product and what is done to it, in one node or in two.
fn product_with_bias(extents: [u64; 4], in_one: bool) -> ComputeGraph {
    let [batch, m, k, n] = extents;
    let shape = |rows: u64, columns: u64| match batch {
        0 => vec![rows, columns],
        _ => vec![batch, rows, columns],
    };
    let mut b = GraphBuilder::new();
    let (x, y) = (tensor(&mut b, "x", &shape(m, k)), tensor(&mut b, "y", &shape(k, n)));
    let (bias, out) = (tensor(&mut b, "bias", &[n]), tensor(&mut b, "out", &shape(m, n)));
    let product = tensor(&mut b, "product", &shape(m, n));
    let bias = bias.broadcast_to(out.shape()).unwrap();
    let after = Expr::build(|e| {
        let (sum, bias) = (e.input(DType::F32), e.input(DType::F32));
        let row = e.index(out.shape().rank() as u8 - 2);
        e.output((sum + bias) + row.cast(DType::F32));
    });
    let after = after.unwrap();
    if in_one {
        let library = LibraryKernel::MatMul;
        let fused = FusedKernel { library, before: None, after: Some(after) };
        b.add_fused("fused", fused.into(), &[x, y, bias, out], &[]);
    } else {
        b.add_library("product", LibraryKernel::MatMul, &[x, y, product]);
        b.add_elementwise("after", after.into(), &[product, bias], &[], &[out]);
    }
    b.build().unwrap()
}

#[test]
fn work_after_a_product_is_the_same_in_one_kernel_as_in_two() {
    let Some(mut gpu) = gpu() else { return };
    for extents in [[0, 70, 33, 65], [3, 5, 64, 130]] {
        let [one, two] = [true, false].map(|in_one| {
            let found = gpu.replayed(&Case::new(product_with_bias(extents, in_one)));
            found[3].clone()
        });
        assert_eq!(one, two);
    }
}
