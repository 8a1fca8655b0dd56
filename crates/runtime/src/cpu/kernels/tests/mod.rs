//! Every kind of work against the reference evaluator, for random shapes and strides and every way to run the tiles.

mod elementwise;
mod fused;
mod library;
mod memory;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{
    BufferId, ComputeGraph, DType, GraphBuilder, MAX_RANK, NodeId, Scalar, UnaryOp, View,
};

use super::math::Math;
use super::{KernelError, Operands, Prepared, Registry, ScalarSource, Scratch};

// The tests of the composed helpers use the same evaluator.
#[allow(dead_code)]
#[path = "../../../../../kernels/tests/common/reference.rs"]
mod reference;
use reference::{Functions, Machine};

/// The functions under test elsewhere ([`super::math`]), so that everything around them can be compared bit for bit.
fn functions() -> Functions {
    fn apply<T: Math>(op: UnaryOp, a: T) -> T {
        match op {
            UnaryOp::Exp => a.exp(),
            UnaryOp::Log => a.log(),
            UnaryOp::Tanh => a.tanh(),
            UnaryOp::Erf => a.erf(),
            other => panic!("{other:?} is evaluated by the reference itself"),
        }
    }
    Functions { f32: apply::<f32>, f64: apply::<f64> }
}

/// How the tiles of a node are run.
#[derive(Clone, Copy, Debug)]
enum Order {
    AtOnce,
    OneByOne,
    Reversed,
    InPairs,
}

const ORDERS: [Order; 4] = [Order::AtOnce, Order::OneByOne, Order::Reversed, Order::InPairs];

/// Runs one node on memory that is aligned as a backend's is.
fn run_node(
    graph: &ComputeGraph,
    node: NodeId,
    registry: &Registry,
    machine: &mut Machine,
    order: Order,
) -> std::result::Result<(), KernelError> {
    let prepared = Prepared::new(graph, node, registry).unwrap().unwrap();
    let mut memory: Vec<Vec<u64>> = machine
        .buffers
        .iter()
        .map(|bytes| {
            let mut words = vec![0u64; bytes.len().div_ceil(8) + 1];
            // SAFETY: `words` holds at least as many bytes, and any bytes are u64.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    words.as_mut_ptr().cast(),
                    bytes.len(),
                )
            };
            words
        })
        .collect();
    let pointers: Vec<*mut u8> = memory.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
    let buffers: Vec<*mut u8> = prepared.buffers().iter().map(|b| pointers[b.index()]).collect();
    let scalars: Vec<Scalar> = prepared
        .scalars()
        .iter()
        .map(|source| match *source {
            ScalarSource::Constant(value) => value,
            ScalarSource::Slot(slot) => machine.slots[slot.index()],
        })
        .collect();
    let mut workspace = vec![0u128; prepared.workspace_bytes().div_ceil(16)];
    let mut scratch = Scratch::new(prepared.scratch_bytes());
    let on =
        Operands { buffers: &buffers, scalars: &scalars, workspace: workspace.as_mut_ptr().cast() };
    let tiles = prepared.tiles();
    let parts: Vec<std::ops::Range<u32>> = match order {
        Order::AtOnce => std::iter::once(0..tiles).collect(),
        Order::OneByOne => (0..tiles).map(|t| t..t + 1).collect(),
        Order::Reversed => (0..tiles).rev().map(|t| t..t + 1).collect(),
        Order::InPairs => (0..tiles).step_by(2).map(|t| t..(t + 2).min(tiles)).collect(),
    };
    let result = parts.into_iter().try_for_each(|part| {
        // SAFETY: the memory is as large as declared, and nothing else uses it.
        unsafe { prepared.run(&on, part, &mut scratch) }
    });
    if result.is_ok() {
        // SAFETY: as above; all tiles have run.
        unsafe { prepared.finish(&on) };
    }
    for (bytes, words) in machine.buffers.iter_mut().zip(&memory) {
        // SAFETY: as above, the other way.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr().cast(), bytes.as_mut_ptr(), bytes.len())
        };
    }
    result
}

/// Runs a node in every order and gives the memory after it, which is the same each time.
fn run_in_every_order(graph: &ComputeGraph, node: NodeId, before: &[Vec<u8>]) -> Machine {
    let mut results = ORDERS.map(|order| {
        let mut machine = Machine::new(graph, functions());
        machine.buffers = before.to_vec();
        run_node(graph, node, &Registry::new(), &mut machine, order).unwrap();
        machine
    });
    for (order, result) in ORDERS.iter().zip(&results).skip(1) {
        assert!(result.buffers == results[0].buffers, "{order:?} differs");
    }
    std::mem::replace(&mut results[0], Machine::new(graph, functions()))
}

/// Extents with few elements in all, axes of 0 and 1 among them.
fn extents(u: &mut Unstructured, rank: usize, most: u64) -> Result<Vec<u64>> {
    let mut left = most;
    let mut extents = Vec::new();
    for _ in 0..rank {
        let extent = match u.int_in_range(0..=15)? {
            0 => 0,
            1..=3 => 1,
            4..=9 => u.int_in_range(1..=left.min(5))?,
            _ => u.int_in_range(1..=left)?,
        };
        left = (left / extent.max(1)).max(1);
        extents.push(extent);
    }
    Ok(extents)
}

/// A view of these extents into `buffer`: permuted axes, gaps, an offset; axes repeated if `repeats`.
fn any_view(
    u: &mut Unstructured,
    buffer: BufferId,
    dtype: DType,
    extents: &[u64],
    repeats: bool,
) -> Result<View> {
    let mut order: Vec<usize> = (0..extents.len()).collect();
    if u.ratio(1, 3)? {
        for i in (1..order.len()).rev() {
            order.swap(i, u.int_in_range(0..=i)?);
        }
    }
    let gaps = u.ratio(1, 3)?;
    let mut strides = vec![0; extents.len()];
    let mut step = 1;
    for &axis in order.iter().rev() {
        if gaps && u.ratio(1, 2)? {
            step += u.int_in_range(0..=3)?;
        }
        if repeats && u.ratio(1, 6)? {
            continue;
        }
        strides[axis] = step;
        step *= extents[axis].max(1);
    }
    let offset = u.int_in_range(0..=3)? * dtype.size();
    Ok(View::strided(buffer, dtype, offset, extents, &strides).unwrap())
}

/// [`any_view`] of a buffer of its own, and what that holds.
fn any_operand(
    b: &mut GraphBuilder,
    contents: &mut Vec<Vec<u8>>,
    u: &mut Unstructured,
    dtype: DType,
    extents: &[u64],
    repeats: bool,
) -> Result<View> {
    let probe = any_view(u, BufferId(0), dtype, extents, repeats)?;
    let bytes = (probe.region().end() + 8).next_multiple_of(8);
    contents.push(any_bytes(u, dtype, (bytes / dtype.size()) as usize)?);
    Ok(probe.in_buffer(b.external_buffer("", bytes as usize)))
}

fn any_rank(u: &mut Unstructured, least: usize) -> Result<usize> {
    u.int_in_range(least..=MAX_RANK)
}

/// Bytes for a buffer of elements of `dtype`: ordinary numbers, with extremes, infinities and NaN among them.
fn any_bytes(u: &mut Unstructured, dtype: DType, elements: usize) -> Result<Vec<u8>> {
    let mut state: u64 = u.arbitrary::<u64>()? | 1;
    let tame = u.ratio(1, 2)?;
    let mut bytes = vec![0; elements * dtype.size() as usize];
    for chunk in bytes.chunks_mut(dtype.size() as usize) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let random = state >> 16;
        let small = ((random % 2001) as f64 - 1000.0) / 64.0;
        let raw = if tame || !random.is_multiple_of(8) { None } else { Some(random >> 3) };
        let value: [u8; 8] = match (dtype, raw) {
            (DType::F32, None) => u64::from((small as f32).to_bits()).to_le_bytes(),
            (DType::F64, None) => small.to_bits().to_le_bytes(),
            (DType::F16, None) => u64::from(half::f16::from_f64(small).to_bits()).to_le_bytes(),
            (DType::BF16, None) => u64::from(half::bf16::from_f64(small).to_bits()).to_le_bytes(),
            (DType::Bool, None) => (random % 2).to_le_bytes(),
            (_, None) => (small as i64).to_le_bytes(),
            (DType::F32, Some(raw)) => {
                let special = [
                    f32::NAN,
                    f32::INFINITY,
                    f32::NEG_INFINITY,
                    -0.0,
                    f32::MIN_POSITIVE / 8.0,
                    f32::MAX,
                ];
                let bits = special.get(raw as usize % 12).map_or(raw as u32, |v| v.to_bits());
                u64::from(bits).to_le_bytes()
            }
            (_, Some(raw)) => [raw, u64::MAX, 1 << 63, 1 << 31, 0x7fff_ffff, raw << 40]
                [raw as usize % 6]
                .to_le_bytes(),
        };
        chunk.copy_from_slice(&value[..chunk.len()]);
    }
    Ok(bytes)
}

/// Equal bits, or NaN both times.
fn same(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::F32(a), Scalar::F32(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (Scalar::F64(a), Scalar::F64(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (a, b) => a == b,
    }
}
