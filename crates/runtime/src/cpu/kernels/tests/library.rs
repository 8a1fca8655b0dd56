//! Reductions, matrix products, gathers and scatters.

use phonograph_graph::{DType, GraphBuilder, LibraryKernel, ReduceOp, Scalar, View};

use super::reference::{number, positions};
use super::*;

/// A library kernel on views in buffers of their own, with these contents.
struct Case {
    graph: ComputeGraph,
    node: NodeId,
    before: Vec<Vec<u8>>,
    views: Vec<View>,
}

fn case(kernel: LibraryKernel, operands: Vec<(View, Vec<u8>)>) -> Case {
    let mut b = GraphBuilder::new();
    let mut before = Vec::new();
    let mut views = Vec::new();
    for (view, bytes) in operands {
        views.push(view.in_buffer(b.external_buffer("", bytes.len())));
        before.push(bytes);
    }
    let node = b.add_library("", kernel, &views);
    Case { graph: b.build().unwrap(), node, before, views }
}

fn operand(
    u: &mut Unstructured,
    dtype: DType,
    extents: &[u64],
    repeats: bool,
) -> Result<(View, Vec<u8>)> {
    let view = any_view(u, BufferId(0), dtype, extents, repeats)?;
    let elements = view.region().end().div_ceil(dtype.size()) + 1;
    Ok((view, any_bytes(u, dtype, elements as usize)?))
}

impl Case {
    /// Compares the last operand with the reference, to `ulps` times the machine's accuracy times `scale(position)`.
    fn check(&self, tolerance: impl Fn(&Machine, &[u64]) -> f64) {
        let mut expected = Machine::new(&self.graph, functions());
        expected.buffers = self.before.clone();
        let mut actual = run_in_every_order(&self.graph, self.node, &self.before);
        expected.run(&self.graph);
        let output = self.views.last().unwrap();
        let shape = output.shape();
        for at in positions(shape.extents()) {
            let (a, e) = (actual.get(output, &at), expected.get(output, &at));
            let near = (number(a) - number(e)).abs() <= tolerance(&expected, &at);
            // An overflow in one order of adding that the other does not have.
            let special = !number(a).is_finite() && !number(e).is_finite();
            assert!(
                same(a, e) || near || special && tolerance(&expected, &at).is_nan(),
                "{a} instead of {e} at {at:?} of {:?}",
                self.views
            );
            actual.set(output, &at, e);
        }
        assert!(actual.buffers == expected.buffers, "bytes outside of the output changed");
    }
}

const NUMBERS: [DType; 5] = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32];

fn epsilon(dtype: DType) -> f64 {
    if dtype == DType::F32 { f32::EPSILON.into() } else { f64::EPSILON }
}

fn reduce(
    u: &mut Unstructured,
    op: ReduceOp,
    dtype: DType,
    shape: &[u64],
    axis: usize,
) -> Result<()> {
    let input = operand(u, dtype, shape, true)?;
    let mut rest = shape.to_vec();
    rest.remove(axis);
    let result = if op == ReduceOp::ArgMax { DType::I32 } else { dtype };
    let output = operand(u, result, &rest, false)?;
    let case = case(LibraryKernel::Reduce { op, axis: axis as u8 }, vec![input, output]);
    case.check(|machine, at| {
        if op != ReduceOp::Sum || !dtype.is_float() {
            return 0.0;
        }
        let magnitude: f64 = (0..shape[axis])
            .map(|i| {
                let mut from = at.to_vec();
                from.insert(axis, i);
                number(machine.get(&case.views[0], &from)).abs()
            })
            .sum();
        // 32 additions in a lane, 5 across lanes, and the tree of chunks; the reference rounds once.
        let depth = 38.0 + (shape[axis].max(1) as f64).log2();
        let bound = magnitude * depth * epsilon(dtype);
        // Where the sum of magnitudes overflows, partial sums may.
        let largest = if dtype == DType::F32 { f32::MAX.into() } else { f64::MAX };
        if magnitude >= largest { f64::NAN } else { bound }
    });
    Ok(())
}

#[test]
fn reductions() {
    arbtest::arbtest(|u| {
        let rank = any_rank(u, 1)?;
        let mut shape = extents(u, rank, if cfg!(miri) { 100 } else { 3000 })?;
        let axis = u.choose_index(rank)?;
        let op = *u.choose(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax])?;
        if op != ReduceOp::Sum {
            shape[axis] = shape[axis].max(1);
        }
        let dtype = *u.choose(&NUMBERS)?;
        reduce(u, op, dtype, &shape, axis)
    })
    .budget_ms(1500);
}

#[test]
#[cfg_attr(miri, ignore = "too many elements to interpret")]
fn long_reductions_are_split_and_finished() {
    arbtest::arbtest(|u| {
        let axis = u.int_in_range(0..=1)?;
        let mut shape = [u.int_in_range(1..=3)?; 2];
        shape[axis] = u.int_in_range(16_000..=90_000)?;
        let op = *u.choose(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax])?;
        let dtype = *u.choose(&NUMBERS)?;
        reduce(u, op, dtype, &shape, axis)
    })
    .budget_ms(1500);
}

/// The tree depends on the length alone: the same numbers laid out in any way give the same bits.
#[test]
#[cfg_attr(miri, ignore = "too many elements to interpret")]
fn sums_do_not_depend_on_the_layout() {
    let (rows, len) = (40u64, 50_000u64);
    let value = |row: u64, i: u64| ((row * 31 + i * i) % 1009) as f32 * 0.1 - 50.0;
    let sums = |extents: &[u64], transposed: bool| {
        let view = View::contiguous(BufferId(0), DType::F32, extents).unwrap();
        let view = if transposed { view.transpose(0, 1).unwrap() } else { view };
        let output = View::contiguous(BufferId(1), DType::F32, &[rows]).unwrap();
        let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
        let zeros = |n: u64| vec![0; n as usize * 4];
        let mut case = case(sum, vec![(view, zeros(rows * len)), (output, zeros(rows))]);
        let mut machine = Machine::new(&case.graph, functions());
        for (row, i) in (0..rows).flat_map(|r| (0..len).map(move |i| (r, i))) {
            machine.set(&case.views[0], &[row, i], Scalar::F32(value(row, i)));
        }
        case.before = machine.buffers;
        run_in_every_order(&case.graph, case.node, &case.before).buffers.swap_remove(1)
    };
    assert!(sums(&[rows, len], false) == sums(&[len, rows], true));
}

#[test]
fn a_sum_of_nothing_is_zero_and_nan_is_the_largest_only_alone() {
    let of = |op, values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let input = View::contiguous(BufferId(0), DType::F32, &[values.len() as u64]).unwrap();
        let result = if op == ReduceOp::ArgMax { DType::I32 } else { DType::F32 };
        let output = View::contiguous(BufferId(1), result, &[]).unwrap();
        let case =
            case(LibraryKernel::Reduce { op, axis: 0 }, vec![(input, bytes), (output, vec![9; 4])]);
        number(run_in_every_order(&case.graph, case.node, &case.before).get(&case.views[1], &[]))
    };
    let nan = f32::NAN;
    assert_eq!(of(ReduceOp::Sum, &[]).to_bits(), 0);
    assert_eq!(of(ReduceOp::Max, &[nan, -3.0, nan]), -3.0);
    assert!(of(ReduceOp::Max, &[nan, nan]).is_nan());
    assert_eq!(of(ReduceOp::ArgMax, &[nan, -3.0, -3.0, nan]), 1.0);
    assert_eq!(of(ReduceOp::ArgMax, &[nan, nan]), 0.0);
    assert_eq!(of(ReduceOp::ArgMax, &[f32::NEG_INFINITY; 40]), 0.0);
}

fn product(
    u: &mut Unstructured,
    dtype: DType,
    batch: Option<u64>,
    m: u64,
    n: u64,
    k: u64,
) -> Result<()> {
    let shape =
        |rows: u64, columns: u64| batch.into_iter().chain([rows, columns]).collect::<Vec<_>>();
    let tame = |(view, mut bytes): (View, Vec<u8>)| {
        // Infinities meet zeros in products; what comes of it is not the matter here.
        for chunk in bytes.chunks_mut(dtype.size() as usize) {
            if !number(reference::load(chunk, 0, dtype)).abs().is_normal()
                || number(reference::load(chunk, 0, dtype)).abs() > 1e6
            {
                chunk.fill(0);
            }
        }
        (view, bytes)
    };
    let (a, b) = (
        tame(operand(u, dtype, &shape(m, k), true)?),
        tame(operand(u, dtype, &shape(k, n), true)?),
    );
    let c = operand(u, dtype, &shape(m, n), false)?;
    let case = case(LibraryKernel::MatMul, vec![a, b, c]);
    case.check(|machine, at| {
        let rank = at.len();
        let magnitude: f64 = (0..k)
            .map(|i| {
                let (mut of_a, mut of_b) = (at.to_vec(), at.to_vec());
                (of_a[rank - 1], of_b[rank - 2]) = (i, i);
                let [a, b] =
                    [(0, of_a), (1, of_b)].map(|(v, at)| number(machine.get(&case.views[v], &at)));
                (a * b).abs()
            })
            .sum();
        // A product that underflows is off by half a subnormal step, whatever its magnitude.
        let step =
            if dtype == DType::F32 { f64::from(f32::from_bits(1)) } else { f64::from_bits(1) };
        (k + 2) as f64 * (magnitude * epsilon(dtype) + step)
    });
    Ok(())
}

#[test]
fn matrix_products() {
    arbtest::arbtest(|u| {
        let dtype = *u.choose(&[DType::F32, DType::F64])?;
        let side = |u: &mut Unstructured| u.int_in_range(0..=20);
        let batch = if u.arbitrary()? { Some(u.int_in_range(0..=3)?) } else { None };
        let (m, n, k) = (side(u)?, side(u)?, side(u)?);
        product(u, dtype, batch, m, n, k)
    })
    .budget_ms(1000);
}

#[test]
#[cfg_attr(miri, ignore = "too many elements to interpret")]
fn matrix_products_of_several_tiles() {
    let bytes: Vec<u8> =
        (0..4096u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let u = &mut Unstructured::new(&bytes);
    product(u, DType::F32, None, 300, 200, 150).unwrap();
    product(u, DType::F64, None, 5, 2000, 850).unwrap();
}

fn row_numbers(u: &mut Unstructured, count: u64, rows: u64) -> Result<(View, Vec<u8>)> {
    let dtype = *u.choose(&[DType::I32, DType::U32])?;
    let (view, mut bytes) = operand(u, dtype, &[count], false)?;
    for chunk in bytes.chunks_mut(4) {
        let row = u32::from_le_bytes(chunk.try_into().unwrap()) % rows.max(1) as u32;
        chunk.copy_from_slice(&row.to_le_bytes());
    }
    Ok((view, bytes))
}

#[test]
fn gathers() {
    arbtest::arbtest(|u| {
        let rank = any_rank(u, 1)?;
        let mut table = extents(u, rank, 600)?;
        table[0] = table[0].max(1);
        let count = u.int_in_range(0..=40)?;
        let dtype = *u.choose(&DType::ALL)?;
        let mut picked = table.clone();
        picked[0] = count;
        let operands = vec![
            operand(u, dtype, &table, true)?,
            row_numbers(u, count, table[0])?,
            operand(u, dtype, &picked, false)?,
        ];
        // Bytes are moved as they are: a bool that is 7 stays 7, so compare memory, not values.
        let case = case(LibraryKernel::Gather, operands);
        if dtype != DType::Bool {
            case.check(|_, _| 0.0);
        }
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn scatters() {
    arbtest::arbtest(|u| {
        let rank = any_rank(u, 1)?;
        let most = if u.ratio(1, 8)? { 5000 } else { 600 };
        let mut sum = extents(u, rank, most)?;
        sum[0] = sum[0].max(1);
        let count = u.int_in_range(0..=60)?;
        let dtype = *u.choose(&NUMBERS)?;
        let mut source = sum.clone();
        source[0] = count;
        let operands = vec![
            operand(u, dtype, &source, true)?,
            row_numbers(u, count, sum[0])?,
            operand(u, dtype, &sum, false)?,
        ];
        case(LibraryKernel::ScatterAdd, operands).check(|_, _| 0.0);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn a_row_that_does_not_exist_is_an_error() {
    let check = |kernel, numbers: &[i32], expected| {
        let n = numbers.len() as u64;
        let bytes: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        let view = |dtype, extents: &[u64]| View::contiguous(BufferId(0), dtype, extents).unwrap();
        let table = (view(DType::F32, &[5, 2]), vec![1; 40]);
        let rows = (view(DType::I32, &[n]), bytes);
        let picked = (view(DType::F32, &[n, 2]), vec![2; 8 * n as usize]);
        let operands = if kernel == LibraryKernel::Gather {
            vec![table, rows, picked]
        } else {
            vec![picked, rows, table]
        };
        let case = case(kernel, operands);
        for order in ORDERS {
            let mut machine = Machine::new(&case.graph, functions());
            machine.buffers = case.before.clone();
            let result = run_node(&case.graph, case.node, &Registry::new(), &mut machine, order);
            assert_eq!(result.unwrap_err(), expected);
            assert!(machine.buffers == case.before, "something was written");
        }
    };
    for kernel in [LibraryKernel::Gather, LibraryKernel::ScatterAdd] {
        check(kernel, &[4, 0, 5], KernelError::Row { position: 2, value: 5, rows: 5 });
        check(kernel, &[0, -1, 7], KernelError::Row { position: 1, value: -1, rows: 5 });
    }
}
