//! Expressions written with operators: arithmetic on values appends operations.

use std::cell::RefCell;
use std::ops;

use crate::expr::result_type;
use crate::{BinaryOp, CompareOp, DType, Expr, ExprError, Op, Scalar, UnaryOp, ValueId};

impl Expr {
    /// Builds an expression with operators. The first mistake made inside is the error.
    ///
    /// # Errors
    /// [`ExprError`], of the first operation that is wrong.
    pub fn build(body: impl FnOnce(&ExprBuilder)) -> Result<Self, ExprError> {
        let builder = ExprBuilder { parts: RefCell::new(Parts::default()) };
        body(&builder);
        let Parts { inputs, params, ops, outputs } = builder.parts.into_inner();
        Expr::new(inputs, params, ops, outputs)
    }
}

#[derive(Default)]
struct Parts {
    inputs: Vec<DType>,
    params: Vec<DType>,
    ops: Vec<Op>,
    outputs: Vec<(ValueId, DType)>,
}

/// Collects the operations of an expression; made by [`Expr::build`].
pub struct ExprBuilder {
    parts: RefCell<Parts>,
}

/// A value inside [`Expr::build`]: arithmetic on it appends operations.
#[derive(Clone, Copy)]
pub struct Value<'e> {
    builder: &'e ExprBuilder,
    id: ValueId,
}

impl ExprBuilder {
    fn push(&self, op: Op) -> Value<'_> {
        let ops = &mut self.parts.borrow_mut().ops;
        // Past the limit the id saturates: `Expr::new` then reports `TooLarge`, the first thing it checks.
        let id = ValueId(ops.len().min(u16::MAX as usize) as u16);
        ops.push(op);
        Value { builder: self, id }
    }

    /// Declares the next input, stored as `dtype`, and loads it.
    pub fn input(&self, dtype: DType) -> Value<'_> {
        let index = {
            let inputs = &mut self.parts.borrow_mut().inputs;
            inputs.push(dtype);
            inputs.len() - 1
        };
        self.push(Op::Input(index as u16))
    }

    /// Declares the next scalar parameter.
    pub fn param(&self, dtype: DType) -> Value<'_> {
        let index = {
            let params = &mut self.parts.borrow_mut().params;
            params.push(dtype);
            params.len() - 1
        };
        self.push(Op::Param(index as u16))
    }

    /// A constant.
    pub fn constant(&self, value: impl Into<Scalar>) -> Value<'_> {
        self.push(Op::Const(value.into()))
    }

    /// A constant of type f32.
    pub fn f32(&self, value: f32) -> Value<'_> {
        self.constant(value)
    }

    /// The element's position along `axis` of the output, as u32.
    pub fn index(&self, axis: u8) -> Value<'_> {
        self.push(Op::Index(axis))
    }

    /// A counter-based random u32; see [`Op::Philox`].
    pub fn philox<'e>(&'e self, index: Value<'e>, counter: Value<'e>, key: Value<'e>) -> Value<'e> {
        self.push(Op::Philox { index: index.id, counter: counter.id, key: key.id })
    }

    /// Declares the next output: `value`, stored as its own type.
    pub fn output(&self, value: Value<'_>) {
        let dtype = value.dtype();
        self.output_as(value, dtype);
    }

    /// Declares the next output, stored as `dtype` (a storage type of the value's type).
    pub fn output_as(&self, value: Value<'_>, dtype: DType) {
        self.parts.borrow_mut().outputs.push((value.id, dtype));
    }
}

impl<'e> Value<'e> {
    /// The value's type; `f32` for a value that is already in error (the error is reported by [`Expr::build`]).
    fn dtype(self) -> DType {
        let parts = self.builder.parts.borrow();
        let mut types = Vec::with_capacity(parts.ops.len());
        for (at, op) in parts.ops.iter().enumerate().take(self.id.index() + 1) {
            match result_type(at, op, &types, &parts.inputs, &parts.params) {
                Ok(t) => types.push(t),
                Err(_) => return DType::F32,
            }
        }
        types.last().copied().unwrap_or(DType::F32)
    }

    fn unary(self, op: UnaryOp) -> Self {
        self.builder.push(Op::Unary(op, self.id))
    }

    fn binary(self, op: BinaryOp, other: Self) -> Self {
        self.builder.push(Op::Binary(op, self.id, other.id))
    }

    fn compare(self, op: CompareOp, other: Self) -> Self {
        self.builder.push(Op::Compare(op, self.id, other.id))
    }

    /// Conversion; see [`Op::Cast`].
    pub fn cast(self, to: DType) -> Self {
        self.builder.push(Op::Cast(to, self.id))
    }

    /// As stored as `to` and loaded again; see [`Op::Round`].
    pub fn round_to(self, to: DType) -> Self {
        self.builder.push(Op::Round(to, self.id))
    }

    /// `a` where this bool holds, else `b`.
    pub fn select(self, a: Self, b: Self) -> Self {
        self.builder.push(Op::Select(self.id, a.id, b.id))
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident => $op:ident),* $(,)?) => {
        impl<'e> Value<'e> {$(
            $(#[$doc])*
            pub fn $method(self) -> Self {
                self.unary(UnaryOp::$op)
            }
        )*}
    };
}
unary_methods! {
    /// Absolute value.
    abs => Abs,
    /// e to this power.
    exp => Exp,
    /// Natural logarithm.
    log => Log,
    /// Hyperbolic tangent.
    tanh => Tanh,
    /// The error function.
    erf => Erf,
    /// Square root.
    sqrt => Sqrt,
    /// The largest integer not above.
    floor => Floor,
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $method:ident => $kind:ident $op:path),* $(,)?) => {
        impl<'e> Value<'e> {$(
            $(#[$doc])*
            pub fn $method(self, other: Self) -> Self {
                self.$kind($op, other)
            }
        )*}
    };
}
binary_methods! {
    /// The smaller of two.
    min => binary BinaryOp::Min,
    /// The larger of two.
    max => binary BinaryOp::Max,
    /// Whether both are equal.
    equal => compare CompareOp::Eq,
    /// Whether both differ.
    not_equal => compare CompareOp::Ne,
    /// Whether this is less.
    less => compare CompareOp::Lt,
    /// Whether this is less or equal.
    less_equal => compare CompareOp::Le,
    /// Whether this is greater.
    greater => compare CompareOp::Gt,
    /// Whether this is greater or equal.
    greater_equal => compare CompareOp::Ge,
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl<'e> ops::$trait for Value<'e> {
            type Output = Value<'e>;
            fn $method(self, other: Self) -> Self {
                self.binary(BinaryOp::$op, other)
            }
        }
    )*};
}
operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem, BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor);

impl<'e> ops::Neg for Value<'e> {
    type Output = Value<'e>;
    fn neg(self) -> Self {
        self.unary(UnaryOp::Neg)
    }
}

impl<'e> ops::Not for Value<'e> {
    type Output = Value<'e>;
    fn not(self) -> Self {
        self.unary(UnaryOp::Not)
    }
}
