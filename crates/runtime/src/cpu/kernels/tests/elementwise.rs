//! Random well-typed expressions, and each operation of each type.

use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{
    Arg, BinaryOp, CompareOp, DType, Expr, GraphBuilder, Op, Scalar, UnaryOp, ValueId, View,
};

use super::reference::{Machine, positions};
use super::*;

const COMPUTED: [DType; 6] =
    [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::Bool];

const UNARY: [UnaryOp; 9] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Not,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Sqrt,
    UnaryOp::Floor,
];

const BINARY: [BinaryOp; 10] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
];

const COMPARE: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

fn scalar(u: &mut Unstructured, dtype: DType) -> Result<Scalar> {
    let bytes = any_bytes(u, dtype, 1)?;
    let value = reference::load(&bytes, 0, dtype);
    Ok(match (dtype, value) {
        (DType::F16, Scalar::F32(v)) => Scalar::F16(half::f16::from_f32(v)),
        (DType::BF16, Scalar::F32(v)) => Scalar::BF16(half::bf16::from_f32(v)),
        (DType::U8, Scalar::U32(v)) => Scalar::U8(v as u8),
        (_, value) => value,
    })
}

/// A random expression that uses all kinds of operations, on axes below `rank`.
fn any_expr(u: &mut Unstructured, rank: usize) -> Result<Expr> {
    let storage = |u: &mut Unstructured| u.choose(&DType::ALL).copied();
    let inputs: Vec<DType> =
        (0..u.int_in_range(0..=4)?).map(|_| storage(u)).collect::<Result<_>>()?;
    let params: Vec<DType> =
        (0..u.int_in_range(0..=2)?).map(|_| storage(u)).collect::<Result<_>>()?;
    let mut ops: Vec<Op> = (0..inputs.len()).map(|i| Op::Input(i as u16)).collect();
    ops.extend((0..params.len()).map(|i| Op::Param(i as u16)));
    let most = u.int_in_range(1..=40)?;
    while ops.len() < most {
        let types = types_of(&inputs, &params, &ops);
        let value = |u: &mut Unstructured, dtype: DType| -> Result<Option<ValueId>> {
            let fitting: Vec<usize> = (0..types.len()).filter(|&v| types[v] == dtype).collect();
            if fitting.is_empty() {
                return Ok(None);
            }
            // Late values more often, so that expressions get deep.
            let at = u.choose_index(fitting.len())?.max(u.choose_index(fitting.len())?);
            Ok(Some(ValueId(fitting[at] as u16)))
        };
        let dtype = *u.choose(&COMPUTED)?;
        let (a, b) = (value(u, dtype)?, value(u, dtype)?);
        let op = match (u.int_in_range(0..=9)?, a, b) {
            (0, ..) => Op::Const(scalar(u, dtype)?),
            (1, ..) if rank > 0 => Op::Index(u.choose_index(rank)? as u8),
            (2 | 3, Some(a), _) => Op::Unary(*u.choose(&UNARY)?, a),
            (4 | 5, Some(a), Some(b)) => Op::Binary(*u.choose(&BINARY)?, a, b),
            (6, Some(a), Some(b)) => Op::Compare(*u.choose(&COMPARE)?, a, b),
            (7, Some(a), Some(b)) => match value(u, DType::Bool)? {
                Some(c) => Op::Select(c, a, b),
                None => Op::Cast(DType::Bool, a),
            },
            (8, Some(a), _) if u.arbitrary()? => {
                Op::Round(*u.choose(&[DType::F16, DType::BF16, DType::U8])?, a)
            }
            (8, Some(a), _) => Op::Cast(*u.choose(&COMPUTED)?, a),
            (9, ..) => {
                let words = (value(u, DType::U32)?, value(u, DType::U32)?, value(u, DType::U32)?);
                match words {
                    (Some(index), Some(counter), Some(key)) => Op::Philox { index, counter, key },
                    _ => Op::Const(Scalar::U32(u.arbitrary()?)),
                }
            }
            _ => Op::Const(scalar(u, dtype)?),
        };
        let mut longer = ops.clone();
        longer.push(op);
        if is_typed(&inputs, &params, &longer) {
            ops = longer;
        }
    }
    let types = types_of(&inputs, &params, &ops);
    let outputs = (0..u.int_in_range(1..=3)?)
        .map(|_| {
            let value = u.choose_index(types.len())?.max(u.choose_index(types.len())?);
            let fitting: Vec<DType> =
                DType::ALL.into_iter().filter(|t| t.computed() == types[value]).collect();
            Ok((ValueId(value as u16), *u.choose(&fitting)?))
        })
        .collect::<Result<_>>()?;
    Ok(Expr::new(inputs, params, ops, outputs).unwrap())
}

fn is_typed(inputs: &[DType], params: &[DType], ops: &[Op]) -> bool {
    COMPUTED.iter().any(|&t| {
        let last = ValueId(ops.len() as u16 - 1);
        Expr::new(inputs.to_vec(), params.to_vec(), ops.to_vec(), vec![(last, t)]).is_ok()
    })
}

fn types_of(inputs: &[DType], params: &[DType], ops: &[Op]) -> Vec<DType> {
    if ops.is_empty() {
        return Vec::new();
    }
    let typed = COMPUTED.iter().find_map(|&t| {
        let last = ValueId(ops.len() as u16 - 1);
        Expr::new(inputs.to_vec(), params.to_vec(), ops.to_vec(), vec![(last, t)]).ok()
    });
    let expr = typed.expect("operations are added only where they are well typed");
    (0..ops.len()).map(|v| expr.type_of(ValueId(v as u16))).collect()
}

/// Runs an expression and compares every byte of every buffer with the reference.
fn check(u: &mut Unstructured, expr: Expr, extents: &[u64]) -> Result<()> {
    let mut b = GraphBuilder::new();
    let mut contents = Vec::new();
    let mut buffer = |b: &mut GraphBuilder, u: &mut Unstructured, dtype, shape, repeats| {
        any_operand(b, &mut contents, u, dtype, shape, repeats)
    };
    let outputs: Vec<View> = expr
        .outputs()
        .iter()
        .map(|&(_, dtype)| buffer(&mut b, u, dtype, extents, false))
        .collect::<Result<_>>()?;
    let mut inputs: Vec<View> = Vec::new();
    for &dtype in expr.inputs() {
        let fitting = outputs.iter().find(|v| v.dtype == dtype);
        inputs.push(match fitting {
            Some(&output) if u.ratio(1, 3)? => output,
            _ => buffer(&mut b, u, dtype, extents, true)?,
        });
    }
    let params: Vec<Arg> = expr
        .params()
        .iter()
        .enumerate()
        .map(|(i, &dtype)| {
            let value = scalar(u, dtype)?;
            Ok(if u.ratio(1, 2)? {
                Arg::Scalar(value)
            } else {
                Arg::Slot(b.slot(&i.to_string(), value))
            })
        })
        .collect::<Result<_>>()?;
    let node = b.add_elementwise("", Arc::new(expr.clone()), &inputs, &params, &outputs);
    let graph = b.build().unwrap();
    let mut expected = Machine::new(&graph, functions());
    expected.buffers = contents;
    let actual = run_in_every_order(&graph, node, &expected.buffers);
    expected.run(&graph);
    let mut actual = actual;
    for (view, output) in outputs.iter().zip(expr.outputs()) {
        for at in positions(extents) {
            let (a, e) = (actual.get(view, &at), expected.get(view, &at));
            assert!(same(a, e), "{a} instead of {e} at {at:?} of {output:?} {view:?} in {expr:?}");
            // What is left must be equal to the byte; a NaN need not be.
            expected.set(view, &at, a);
            actual.set(view, &at, a);
        }
    }
    assert!(actual.buffers == expected.buffers, "bytes outside of the outputs changed: {expr:?}");
    Ok(())
}

#[test]
fn random_expressions_give_what_the_reference_gives() {
    arbtest::arbtest(|u| {
        let rank = any_rank(u, 0)?;
        let extents = extents(u, rank, 400)?;
        let expr = any_expr(u, rank)?;
        check(u, expr, &extents)
    })
    .budget_ms(1500);
}

#[test]
#[cfg_attr(miri, ignore = "too many elements to interpret")]
fn long_rows_and_several_tiles() {
    arbtest::arbtest(|u| {
        let extents = [u.int_in_range(1..=3)?, u.int_in_range(5000..=70_000)?];
        let expr = any_expr(u, 2)?;
        check(u, expr, &extents)
    })
    .budget_ms(1500);
}

/// Elements for each of many expressions: a few blocks, or less for an interpreter.
const A_ROW: u64 = if cfg!(miri) { 9 } else { 1500 };

#[test]
fn every_operation_of_every_type() {
    let each = |op: Op, types: [DType; 3]| {
        let operands = op.operands().iter().flatten().count();
        let inputs = types[..operands].to_vec();
        let mut ops: Vec<Op> = (0..operands).map(|i| Op::Input(i as u16)).collect();
        ops.push(op);
        if !is_typed(&inputs, &[], &ops) {
            return false;
        }
        let result = *types_of(&inputs, &[], &ops).last().unwrap();
        let expr =
            Expr::new(inputs, vec![], ops, vec![(ValueId(operands as u16), result)]).unwrap();
        let mut bytes = Vec::new();
        for i in 0..(3 * A_ROW as u32).min(4096) {
            bytes.extend(i.wrapping_mul(2_654_435_761).to_le_bytes());
        }
        check(&mut Unstructured::new(&bytes), expr, &[A_ROW]).unwrap();
        true
    };
    let [a, b, c] = [ValueId(0), ValueId(1), ValueId(2)];
    let mut tested = 0;
    for t in COMPUTED {
        let pair = [t, t, t];
        tested += UNARY.iter().filter(|&&op| each(Op::Unary(op, a), pair)).count();
        tested += BINARY.iter().filter(|&&op| each(Op::Binary(op, a, b), pair)).count();
        tested += COMPARE.iter().filter(|&&op| each(Op::Compare(op, a, b), pair)).count();
        tested += COMPUTED.iter().filter(|&&to| each(Op::Cast(to, a), pair)).count();
        tested += usize::from(each(Op::Select(a, b, c), [DType::Bool, t, t]));
        tested += DType::ALL.iter().filter(|&&to| each(Op::Round(to, a), pair)).count();
    }
    let unary = 2 * 8 + 2 * 3 + 1 + 1;
    let binary = 2 * 7 + 3 * 10 + 3;
    assert_eq!(tested, unary + binary + 6 * 6 + 6 * 6 + 6 + 3);
}

#[test]
fn divisions_by_constants() {
    for by in [0u32, 1, 2, 3, 256, 1 << 31, u32::MAX] {
        let expr = Expr::build(|e| e.output(e.input(DType::U32) / e.constant(by))).unwrap();
        let mut bytes = Vec::new();
        for i in 0..(3 * A_ROW as u32).min(4096) {
            bytes.extend(i.wrapping_mul(2_654_435_761).to_le_bytes());
        }
        check(&mut Unstructured::new(&bytes), expr, &[A_ROW]).unwrap();
    }
}
