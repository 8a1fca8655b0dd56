//! The bits that generated kernels give, against the CPU backend: all of them, but for matrix products, which are within
//! their stated error, and for which NaN a NaN is.

use std::sync::Arc;

use crate::case::{Case, check, cuda, fused_reduction, product_with_bias};
use crate::operations::{every_operation, library, many_views, noise, product};
use phonograph_cuda::{Cublas, ProductBy};
use phonograph_graph::{BufferId, DType, GraphBuilder, LibraryKernel, ReduceOp, Schedule, View};

const NUMBERS: [DType; 5] = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32];

/// Elements of a type: its limits, numbers of everyday size, and any bits.
fn elements(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        -3.7,
        1e-40,
        -1e-310,
        88.5,
        -104.5,
        710.0,
        1e10,
        -1e19,
        3e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        2147483648.0,
        4294967296.0,
        -2147483649.0,
        0.49999997,
    ];
    let noise = noise(count + seed);
    let mut bytes = Vec::new();
    for (i, &bits) in noise[seed..].iter().enumerate() {
        // Shifted by the seed, so that two inputs meet in all combinations.
        let at = (i / (1 + seed % 3) + seed) % (3 * special.len());
        let everyday = (bits % 20_001) as f64 / 1000.0 - 10.0;
        let value = special.get(at).copied().unwrap_or(everyday);
        let raw = if i % 5 == 4 {
            bits
        } else {
            match dtype {
                DType::F32 => (value as f32).to_bits().into(),
                DType::F64 => value.to_bits(),
                DType::F16 | DType::BF16 => bits,
                DType::I32 | DType::I64 => match at % 7 {
                    0 => (value as i64) as u64,
                    1 => i64::MIN as u64,
                    2 => u64::from(i32::MIN as u32),
                    3 => u64::MAX,
                    4 => 0,
                    _ => (everyday as i64) as u64,
                },
                DType::U32 | DType::U8 | DType::Bool => value as i64 as u64,
            }
        };
        bytes.extend(&raw.to_le_bytes()[..dtype.size() as usize]);
    }
    bytes
}

/// As [`check`], where elements of float types may be different NaNs.
#[track_caller]
fn check_values(cuda: &mut phonograph_cuda::Cuda, case: &Case, types: &[(BufferId, DType)]) {
    let found = case.on_cuda(cuda, &Schedule::sequential(&case.graph));
    compare(case, types, &found);
}

/// The contents of the external buffers are the CPU's, but for which NaN a NaN is.
#[track_caller]
pub fn compare(case: &Case, types: &[(BufferId, DType)], found: &[Vec<u8>]) {
    let expected = case.on_cpu();
    for ((buffer, expected), found) in case.external().iter().zip(&expected).zip(found) {
        let dtype = types.iter().find(|(id, _)| id == buffer).map_or(DType::U8, |(_, t)| *t);
        let size = dtype.size() as usize;
        for (at, (a, b)) in expected.chunks(size).zip(found.chunks(size)).enumerate() {
            let name = &case.graph.buffer(*buffer).name;
            assert!(
                a == b || is_nan(dtype, a) && is_nan(dtype, b),
                "element {at} of {name} ({dtype}): {a:x?} on the CPU, {b:x?} elsewhere"
            );
        }
    }
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    let word = |n: usize| bytes.iter().take(n).rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
    match dtype {
        DType::F32 => f32::from_bits(word(4) as u32).is_nan(),
        DType::F64 => f64::from_bits(word(8)).is_nan(),
        DType::F16 => word(2) & 0x7fff > 0x7c00,
        DType::BF16 => word(2) & 0x7fff > 0x7f80,
        _ => false,
    }
}

/// [`every_operation`] on inputs that hold all that is special.
pub fn operations() -> (Case, Vec<(BufferId, DType)>) {
    const COUNT: u64 = 20_000;
    let mut b = GraphBuilder::new();
    let (mut types, mut contents) = (Vec::new(), Vec::new());
    let mut view = |b: &mut GraphBuilder, name: &str, dtype: DType| {
        let buffer = b.external_buffer(name, (COUNT * dtype.size()) as usize);
        types.push((buffer, dtype));
        View::contiguous(buffer, dtype, &[COUNT]).unwrap()
    };
    let expr = every_operation(&DType::ALL);
    assert!(expr.ops().len() > 180, "{}", expr.ops().len());
    let mut inputs = Vec::new();
    for (seed, &dtype) in expr.inputs().iter().enumerate() {
        let input = view(&mut b, &format!("input {seed}"), dtype);
        contents.push((input.buffer, elements(dtype, COUNT as usize, seed % 3)));
        inputs.push(input);
    }
    let outputs: Vec<View> = expr
        .outputs()
        .iter()
        .map(|&(value, dtype)| {
            let op = expr.ops()[value.index()];
            view(&mut b, &format!("{op:?} as {dtype}"), dtype)
        })
        .collect();
    b.add_elementwise("all", Arc::new(expr), &inputs, &[], &outputs);
    let mut case = Case::new(b.build().unwrap());
    (case.contents, case.replays) = (contents, 1);
    (case, types)
}

#[test]
fn operations_give_the_same_bits() {
    let Some(mut cuda) = cuda() else { return };
    let (case, types) = operations();
    check_values(&mut cuda, &case, &types);
}

#[test]
fn strides_broadcasts_and_positions_reach_the_same_elements() {
    let Some(mut cuda) = cuda() else { return };
    check(&mut cuda, &Case::new(many_views()));
}

#[test]
fn reductions_give_the_same_bits() {
    let Some(mut cuda) = cuda() else { return };
    for dtype in NUMBERS {
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax] {
            let out = if op == ReduceOp::ArgMax { DType::I32 } else { dtype };
            for length in [1, 31, 33, 1000, 1025, 5000, 40_000] {
                for (extents, axis) in [([3, length], 1), ([length, 3], 0)] {
                    let (graph, types) = library(
                        LibraryKernel::Reduce { op, axis },
                        &[(dtype, &extents), (out, &[3])],
                    );
                    let mut case = Case::new(graph);
                    case.contents = vec![(types[0].0, elements(dtype, 3 * length as usize, 1))];
                    case.replays = 1;
                    check_values(&mut cuda, &case, &types);
                    // Sums of everyday numbers, in which nothing drowns in a NaN.
                    if dtype.is_float() {
                        let values = noise(3 * length as usize).into_iter();
                        let values = values.map(|v| (v % 20_001) as f64 / 1000.0 - 10.0);
                        let bytes: Vec<u8> = match dtype {
                            DType::F32 => values.flat_map(|v| (v as f32).to_le_bytes()).collect(),
                            _ => values.flat_map(f64::to_le_bytes).collect(),
                        };
                        case.contents = vec![(types[0].0, bytes)];
                        check_values(&mut cuda, &case, &types);
                    }
                }
            }
        }
    }
    // So many outputs that each is a thread's.
    for length in [31, 1025] {
        let (graph, types) = library(
            LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 },
            &[(DType::F32, &[length, 8200]), (DType::F32, &[8200])],
        );
        let mut case = Case::new(graph);
        case.replays = 1;
        check_values(&mut cuda, &case, &types);
    }
    let (graph, types) = library(
        LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 },
        &[(DType::F32, &[0, 3]), (DType::F32, &[3])],
    );
    check_values(&mut cuda, &Case::new(graph), &types);
}

/// So few outputs that several blocks share each.
#[test]
fn long_reductions_give_the_same_bits() {
    let Some(mut cuda) = cuda() else { return };
    for (op, dtype, out) in [
        (ReduceOp::Sum, DType::F32, DType::F32),
        (ReduceOp::Sum, DType::I64, DType::I64),
        (ReduceOp::Max, DType::F32, DType::F32),
        (ReduceOp::ArgMax, DType::F64, DType::I32),
    ] {
        for (outputs, length) in [(1, 1 << 20), (1, 262_144 + 4097), (3, 300_001), (100, 9000)] {
            let (graph, types) = library(
                LibraryKernel::Reduce { op, axis: 1 },
                &[(dtype, &[outputs, length]), (out, &[outputs])],
            );
            let count = (outputs * length) as usize;
            let everyday = |v: u64| (v % 20_001) as f64 / 1000.0 - 10.0;
            let values = noise(count).into_iter();
            let bytes: Vec<u8> = match dtype {
                DType::F32 => values.flat_map(|v| (everyday(v) as f32).to_le_bytes()).collect(),
                DType::F64 => values.flat_map(|v| everyday(v).to_le_bytes()).collect(),
                _ => values.flat_map(u64::to_le_bytes).collect(),
            };
            let mut case = Case::new(graph);
            case.contents = vec![(types[0].0, bytes)];
            check_values(&mut cuda, &case, &types);
        }
    }
    check(&mut cuda, &Case::new(fused_reduction(ReduceOp::Sum, &[2, 600_000], 1)));
}

#[test]
fn rows_are_gathered_and_added_in_order() {
    let Some(mut cuda) = cuda() else { return };
    for numbers in [DType::I32, DType::U32] {
        for dtype in DType::ALL {
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
                check_values(&mut cuda, &case, &types);
                if NUMBERS.contains(&dtype) {
                    let operands = [(dtype, &picked[..]), (numbers, &[500]), (dtype, &table)];
                    let (graph, types) = library(LibraryKernel::ScatterAdd, &operands);
                    let mut case = Case::new(graph);
                    case.contents = vec![(types[1].0, rows.clone())];
                    if !dtype.is_float() {
                        case.contents.push((types[0].0, elements(dtype, 500 * width as usize, 1)));
                    }
                    check_values(&mut cuda, &case, &types);
                }
            }
        }
    }
}

#[test]
fn products_by_generated_kernels_are_within_their_error() {
    let Some(cuda) = cuda() else { return };
    check_products(&mut cuda.without_cublas(), "cuBLAS is not wanted");
}

#[test]
fn products_by_cublas_are_within_their_error() {
    let Some(mut cuda) = cuda() else { return };
    match Cublas::load() {
        Ok(cublas) => eprintln!("cuBLAS is {}", cublas.library()),
        Err(error) => return eprintln!("skipped: {error}"),
    }
    check_products(&mut cuda, "");
}

/// Each product is within k ε Σ |aᵢ bᵢ| of the exact value, in whatever order the sums are made. All are by a generated kernel
/// for this reason, or, without one, large ones are by cuBLAS.
fn check_products(cuda: &mut phonograph_cuda::Cuda, why_generated: &str) {
    for (batch, m, k, n) in [
        (1, 1, 1, 1),
        (1, 64, 64, 64),
        (3, 65, 33, 70),
        (2, 5, 0, 6),
        (1, 200, 1000, 3),
        // Enough for large tiles, and for cuBLAS.
        (2, 400, 100, 500),
        (3, 165, 133, 170),
        (1, 129, 2000, 19),
        (1, 1500, 1500, 1),
    ] {
        for transposed in [false, true] {
            let (graph, [x, y, z]) = product([batch, m, k, n], transposed);
            let mut case = Case::new(graph);
            case.replays = 1;
            let (cpu, gpu) =
                (case.on_cpu(), case.on_cuda(cuda, &Schedule::sequential(&case.graph)));
            let by = match (k, why_generated) {
                (0, "") => ProductBy::Generated { why: "it is empty".to_owned() },
                (_, "") if batch * m * k * n > 1 << 21 => ProductBy::Cublas,
                (_, "") => ProductBy::Generated { why: "it is small".to_owned() },
                (_, why) => ProductBy::Generated { why: why.to_owned() },
            };
            let exec = case.instantiate(cuda, &Schedule::sequential(&case.graph));
            assert_eq!(exec.products()[0].1, by);
            let floats = |bytes: &[u8]| -> Vec<f32> {
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
            };
            let at = |view: &View, b: u64, i: u64, j: u64| {
                let strides = view.strides();
                (b * strides[0] + i * strides[1] + j * strides[2]) as usize
            };
            let (a, bs) = (floats(&cpu[0]), floats(&cpu[1]));
            let (c, d) = (floats(&cpu[2]), floats(&gpu[2]));
            for (b, i, j) in
                (0..batch).flat_map(|b| (0..m).flat_map(move |i| (0..n).map(move |j| (b, i, j))))
            {
                let terms =
                    (0..k).map(|l| f64::from(a[at(&x, b, i, l)]) * f64::from(bs[at(&y, b, l, j)]));
                let (sum, size) =
                    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                let bound = k as f64 * 2f64.powi(-24) * size;
                for (who, value) in [("CPU", c[at(&z, b, i, j)]), ("CUDA", d[at(&z, b, i, j)])] {
                    let off = (f64::from(value) - sum).abs();
                    assert!(
                        off <= bound,
                        "{who}: [{b}, {i}, {j}] of {m}×{k}×{n} is {off:e} off, the bound {bound:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn work_around_reductions_gives_the_same_bits() {
    let Some(mut cuda) = cuda() else { return };
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax] {
        for (extents, axis) in [
            (&[3, 5][..], 0),
            (&[3, 5], 1),
            (&[4, 1500], 1),
            (&[1500, 4], 0),
            (&[2, 40_000], 1),
            (&[3, 9000], 0),
            (&[3, 70, 4], 1),
            (&[3, 70, 4], 0),
            (&[3, 70, 4], 2),
        ] {
            check(&mut cuda, &Case::new(fused_reduction(op, extents, axis)));
        }
    }
}

#[test]
fn work_after_a_product_is_the_same_in_one_kernel_as_in_two() {
    let Some(cuda) = cuda() else { return };
    let mut cuda = cuda.without_cublas();
    for extents in [[0, 70, 33, 65], [3, 5, 64, 130]] {
        let [one, two] = [true, false].map(|in_one| {
            let case = Case::new(product_with_bias(extents, in_one));
            let schedule = Schedule::sequential(&case.graph);
            let found = case.on_cuda(&mut cuda, &schedule);
            found[3].clone()
        });
        assert_eq!(one, two);
    }
}
