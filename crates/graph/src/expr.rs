//! Elementwise expressions: what one element of the output is, as a function of one element of each input.
//!
//! An expression is straight-line code in single-assignment form. It knows nothing of shapes: the node that
//! uses it gives a view for each input (broadcast to the shape of the outputs) and for each output. Types are
//! checked as the expression is built, so whoever holds an [`Expr`] holds a well-typed one. Backends interpret
//! it, vectorise it or generate source from it; planners fuse expressions by concatenating them.
//!
//! ```
//! use phonograph_graph::{DType, Expr};
//!
//! // gelu-like: 0.5 x (1 + erf(x / sqrt 2))
//! let expr = Expr::build(|e| {
//!     let x = e.input(DType::F32);
//!     let t = (x * std::f64::consts::FRAC_1_SQRT_2).erf();
//!     e.output(0.5 * x * (t + 1.0));
//! })?;
//! assert_eq!((expr.inputs().len(), expr.outputs().len()), (1, 1));
//! # Ok::<(), phonograph_graph::ExprError>(())
//! ```

use smallvec::SmallVec;

use crate::{DType, Scalar};

/// The most operations an expression may have; a bound on what is read from files and what fusion may grow.
pub const MAX_EXPR_OPS: usize = 4096;

/// A value of an expression: the result of the operation at this position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u16);

impl ValueId {
    /// Position of the operation that makes this value.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Operations of one operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // Each is the operation of its name.
pub enum UnaryOp {
    Neg,
    Abs,
    /// Logical for bool, bitwise for integers.
    Not,
    Exp,
    /// Natural logarithm.
    Log,
    Tanh,
    /// The error function.
    Erf,
    Sqrt,
    /// Rounds towards minus infinity.
    Floor,
}

/// Operations of two operands of one type.
///
/// Integer arithmetic wraps; division by zero of integers gives 0, and so does the remainder (a device kernel must not trap).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // Each is the operation of its name.
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    /// Remainder with the sign of the dividend.
    Rem,
    /// The smaller; of a NaN and a number, the number.
    Min,
    /// The larger; of a NaN and a number, the number.
    Max,
    /// Logical for bool, bitwise for integers.
    And,
    Or,
    Xor,
}

/// Comparisons of two operands of one type; the result is bool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // Each is the comparison of its name.
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// One operation of an expression; operands are earlier values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// The element of input `0`, converted to [`DType::computed`] of its type.
    Input(u16),
    /// The value of scalar argument `0`: a constant of the node or a slot.
    Param(u16),
    /// A constant.
    Const(Scalar),
    /// The position of the element along an axis of the output, as u32.
    Index(u8),
    /// See [`UnaryOp`].
    Unary(UnaryOp, ValueId),
    /// See [`BinaryOp`].
    Binary(BinaryOp, ValueId, ValueId),
    /// See [`CompareOp`].
    Compare(CompareOp, ValueId, ValueId),
    /// `Select(c, a, b)`: `a` where `c` holds, else `b`.
    Select(ValueId, ValueId, ValueId),
    /// Conversion. Float to integer truncates and saturates, NaN becomes 0; integer to integer wraps; anything to bool asks
    /// whether it differs from 0.
    Cast(DType, ValueId),
    /// The value as it is after it was stored as this type, f16, bf16 or u8, and loaded again. What two fused kernels
    /// hand over without a buffer between them.
    Round(DType, ValueId),
    /// A random u32, by counter: word `index % 4` of Philox4x32-10 with counter words `[index / 4, counter, 0, 0]` and key
    /// words `[key, 0]` (Salmon et al., SC 2011). All three operands are u32.
    Philox {
        /// Which random number.
        index: ValueId,
        /// Which draw; kept in device memory and advanced by the graph, so that replays differ.
        counter: ValueId,
        /// The seed.
        key: ValueId,
    },
}

impl Op {
    /// The operands, in order; unused places are `None`.
    pub const fn operands(&self) -> [Option<ValueId>; 3] {
        match *self {
            Op::Input(_) | Op::Param(_) | Op::Const(_) | Op::Index(_) => [None, None, None],
            Op::Unary(_, a) | Op::Cast(_, a) | Op::Round(_, a) => [Some(a), None, None],
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => [Some(a), Some(b), None],
            Op::Select(c, a, b) => [Some(c), Some(a), Some(b)],
            Op::Philox { index, counter, key } => [Some(index), Some(counter), Some(key)],
        }
    }

    /// The same operation on other operands: `of` gives the new one for each.
    pub fn map_operands(self, of: impl Fn(ValueId) -> ValueId) -> Op {
        match self {
            Op::Input(_) | Op::Param(_) | Op::Const(_) | Op::Index(_) => self,
            Op::Unary(op, a) => Op::Unary(op, of(a)),
            Op::Binary(op, a, b) => Op::Binary(op, of(a), of(b)),
            Op::Compare(op, a, b) => Op::Compare(op, of(a), of(b)),
            Op::Select(c, a, b) => Op::Select(of(c), of(a), of(b)),
            Op::Cast(to, a) => Op::Cast(to, of(a)),
            Op::Round(to, a) => Op::Round(to, of(a)),
            Op::Philox { index, counter, key } => {
                Op::Philox { index: of(index), counter: of(counter), key: of(key) }
            }
        }
    }
}

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// An operand that is not an earlier value.
    #[error("operation {at} uses value {operand}, which does not come before it")]
    Operand {
        /// Position of the operation.
        at: usize,
        /// The operand.
        operand: usize,
    },
    /// An operation that its operand types do not have.
    #[error("operation {at}: {op} is not defined for {types}")]
    Types {
        /// Position of the operation.
        at: usize,
        /// Its name.
        op: String,
        /// The operand types.
        types: String,
    },
    /// An input or parameter that was not declared.
    #[error("operation {at} refers to {what} {index}, of which there are {count}")]
    Undeclared {
        /// Position of the operation.
        at: usize,
        /// `input` or `parameter`.
        what: &'static str,
        /// The number used.
        index: usize,
        /// How many are declared.
        count: usize,
    },
    /// An output whose value does not exist or cannot be stored as its type.
    #[error("output {index} of type {dtype} cannot hold {what}")]
    Output {
        /// Which output.
        index: usize,
        /// Its declared type.
        dtype: DType,
        /// What it was given.
        what: String,
    },
    /// Too many operations, inputs or outputs.
    #[error("an expression of {0} operations; the most is {MAX_EXPR_OPS}")]
    TooLarge(usize),
    /// No output: the expression would do nothing.
    #[error("an expression needs at least one output")]
    NoOutput,
}

/// Types: those of most expressions take no memory of their own, for one is made with every node that is recorded.
pub(crate) type Types = SmallVec<[DType; 8]>;
/// Values, and what they are stored as.
pub(crate) type Outputs = SmallVec<[(ValueId, DType); 4]>;

/// A well-typed elementwise expression.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Expr {
    inputs: Types,
    params: Types,
    ops: Vec<Op>,
    types: Types,
    outputs: Outputs,
}

impl Expr {
    /// Checks and assembles an expression from its parts. O(operations).
    ///
    /// # Errors
    /// [`ExprError`] for an operation of the wrong types, a value used before it is there, and more than
    /// [`MAX_EXPR_OPS`](crate::MAX_EXPR_OPS) operations.
    pub fn new(
        inputs: Vec<DType>,
        params: Vec<DType>,
        ops: Vec<Op>,
        outputs: Vec<(ValueId, DType)>,
    ) -> Result<Self, ExprError> {
        Self::of_parts(inputs.into(), params.into(), ops, Types::new(), outputs.into())
    }

    /// The same, where the types of the first operations are known to be these.
    pub(crate) fn of_parts(
        inputs: Types,
        params: Types,
        ops: Vec<Op>,
        mut types: Types,
        outputs: Outputs,
    ) -> Result<Self, ExprError> {
        let size = ops.len() + inputs.len() + params.len() + outputs.len();
        if size > MAX_EXPR_OPS {
            return Err(ExprError::TooLarge(size));
        }
        types.reserve(ops.len() - types.len());
        for (at, op) in ops.iter().enumerate().skip(types.len()) {
            types.push(result_type(at, op, &types, &inputs, &params)?);
        }
        if outputs.is_empty() {
            return Err(ExprError::NoOutput);
        }
        for (index, &(value, dtype)) in outputs.iter().enumerate() {
            let what = match types.get(value.index()) {
                Some(&t) if t == dtype.computed() => continue,
                Some(t) => format!("a value of type {t}; cast it first"),
                None => format!("value {}, which does not exist", value.0),
            };
            return Err(ExprError::Output { index, dtype, what });
        }
        Ok(Self { inputs, params, ops, types, outputs })
    }

    /// Storage types of the inputs.
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// Types of the scalar parameters.
    pub fn params(&self) -> &[DType] {
        &self.params
    }

    /// The operations, each using earlier values only.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The type of a value.
    pub fn type_of(&self, value: ValueId) -> DType {
        self.types[value.index()]
    }

    /// The outputs: which value is stored, as which type.
    pub fn outputs(&self) -> &[(ValueId, DType)] {
        &self.outputs
    }
}

pub(crate) fn result_type(
    at: usize,
    op: &Op,
    types: &[DType],
    inputs: &[DType],
    params: &[DType],
) -> Result<DType, ExprError> {
    let mut operands = [DType::Bool; 3];
    for (slot, value) in operands.iter_mut().zip(op.operands()) {
        if let Some(value) = value {
            *slot = *types
                .get(value.index())
                .ok_or(ExprError::Operand { at, operand: value.index() })?;
        }
    }
    let [a, b, c] = operands;
    let bad = |op: &dyn std::fmt::Debug, types: &[DType]| {
        let types: Vec<_> = types.iter().map(|t| t.name()).collect();
        Err(ExprError::Types { at, op: format!("{op:?}"), types: types.join(" and ") })
    };
    let declared = |what, index: u16, table: &[DType]| {
        let (index, count) = (index as usize, table.len());
        let undeclared = ExprError::Undeclared { at, what, index, count };
        table.get(index).map(|t| t.computed()).ok_or(undeclared)
    };
    match *op {
        Op::Input(i) => declared("input", i, inputs),
        Op::Param(i) => declared("parameter", i, params),
        Op::Const(scalar) if scalar.dtype() == scalar.dtype().computed() => Ok(scalar.dtype()),
        Op::Const(scalar) => bad(&"Const", &[scalar.dtype()]),
        Op::Index(axis) if (axis as usize) < crate::MAX_RANK => Ok(DType::U32),
        Op::Index(axis) => bad(&format!("Index along axis {axis}"), &[]),
        Op::Unary(op, _) => {
            let fits = match op {
                UnaryOp::Neg | UnaryOp::Abs => !matches!(a, DType::Bool | DType::U32),
                UnaryOp::Not => !a.is_float(),
                _ => a.is_float(),
            };
            if fits { Ok(a) } else { bad(&op, &[a]) }
        }
        Op::Binary(op, ..) => {
            let fits = match op {
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !a.is_float(),
                _ => a != DType::Bool,
            };
            if fits && a == b { Ok(a) } else { bad(&op, &[a, b]) }
        }
        Op::Compare(op, ..) => {
            if a == b {
                Ok(DType::Bool)
            } else {
                bad(&op, &[a, b])
            }
        }
        Op::Select(..) => {
            if a == DType::Bool && b == c {
                Ok(b)
            } else {
                bad(&"Select", &[a, b, c])
            }
        }
        Op::Cast(to, _) if to == to.computed() => Ok(to),
        Op::Cast(to, _) => bad(&format!("Cast to the storage type {to}"), &[a]),
        Op::Round(to, _) if to != to.computed() && to.computed() == a => Ok(a),
        Op::Round(to, _) => bad(&format!("Round to {to}"), &[a]),
        Op::Philox { .. } => {
            if [a, b, c] == [DType::U32; 3] {
                Ok(DType::U32)
            } else {
                bad(&"Philox", &[a, b, c])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    #[test]
    fn mistakes_are_named() {
        let mixed = Expr::build(|e| {
            let x = e.input(DType::F32);
            let n = e.input(DType::I32);
            e.output(x + n);
        });
        assert_eq!(
            mixed.unwrap_err().to_string(),
            "operation 2: Add is not defined for f32 and i32"
        );
        let stored = Expr::build(|e| {
            let x = e.input(DType::F32);
            e.output_as(x, DType::I32);
        });
        assert!(matches!(stored, Err(ExprError::Output { index: 0, .. })));
        let fraction = Expr::build(|e| e.output(e.input(DType::I32) * 0.5));
        let said = "operation 2: Mul is not defined for i32 and f64";
        assert_eq!(fraction.unwrap_err().to_string(), said);
        let negative = Expr::build(|e| e.output(e.input(DType::U32).max(-1)));
        let said = "operation 2: Max is not defined for u32 and i64";
        assert_eq!(negative.unwrap_err().to_string(), said);
        for large in [
            Expr::build(|e| e.output(e.input(DType::F32) + 16_777_217)), // 2^24 + 1
            Expr::build(|e| e.output(e.input(DType::F32) * 1e39)),
        ] {
            assert!(matches!(large, Err(ExprError::Types { at: 2, .. })));
        }
        assert_eq!(Expr::build(|_| {}), Err(ExprError::NoOutput));
        let forward = vec![Op::Unary(UnaryOp::Neg, ValueId(0))];
        assert!(Expr::new(vec![], vec![], forward, vec![(ValueId(0), DType::F32)]).is_err());
        let endless = Expr::build(|e| {
            let mut x = e.input(DType::F32);
            for _ in 0..70_000 {
                x = x + x;
            }
            e.output_as(x, DType::F32);
        });
        assert!(matches!(endless, Err(ExprError::TooLarge(_))));
    }

    #[test]
    fn numbers_are_constants_of_the_type_beside_them() {
        let check = |dtype, constant: Scalar, body: fn(Value<'_>) -> Value<'_>| {
            let expr = Expr::build(|e| e.output(body(e.input(dtype)))).expect("it is well typed");
            assert!(expr.ops().contains(&Op::Const(constant)), "{expr:?} has no {constant}");
        };
        check(DType::F32, Scalar::F32(0.1), |x| x * 0.1);
        check(DType::F64, Scalar::F64(0.1), |x| 0.1 - x);
        check(DType::F16, Scalar::F32(2.0), |x| x / 2);
        check(DType::F64, Scalar::F64(-3.0), |x| -3 + x);
        check(DType::I32, Scalar::I32(-7), |n| n.min(-7));
        check(DType::U8, Scalar::U32(1), |n| 1 & n);
        check(DType::I64, Scalar::I64(1 << 40), |n| n % 1_099_511_627_776);
        check(DType::F32, Scalar::F32(0.0), |x| x.greater(0.0).select(x, 0.0));
    }

    #[test]
    fn storage_types_compute_wider() {
        let expr = Expr::build(|e| {
            let x = e.input(DType::F16);
            e.output_as(x * x, DType::BF16);
        })
        .unwrap();
        assert_eq!(expr.type_of(ValueId(0)), DType::F32);
        assert_eq!(expr.outputs(), &[(ValueId(1), DType::BF16)]);
    }
}
