//! Expressions written with operators: arithmetic on values appends operations.

use std::cell::RefCell;
use std::ops;

use crate::expr::{Outputs, Types, result_type};
use crate::{BinaryOp, CompareOp, DType, Expr, ExprError, Op, Scalar, UnaryOp, ValueId};

impl Expr {
    /// Builds an expression with operators. The first mistake made inside is the error.
    ///
    /// # Errors
    /// [`ExprError`], of the first operation that is wrong.
    pub fn build(body: impl FnOnce(&ExprBuilder)) -> Result<Self, ExprError> {
        let builder = ExprBuilder { parts: RefCell::new(Parts::default()) };
        body(&builder);
        let Parts { inputs, params, ops, types, outputs } = builder.parts.into_inner();
        Expr::of_parts(inputs, params, ops, types, outputs)
    }
}

#[derive(Default)]
struct Parts {
    inputs: Types,
    params: Types,
    ops: Vec<Op>,
    /// Of the operations before the first that is wrong.
    types: Types,
    outputs: Outputs,
}

/// Collects the operations of an expression; made by [`Expr::build`].
pub struct ExprBuilder {
    parts: RefCell<Parts>,
}

/// A value inside [`Expr::build`]: arithmetic on it appends operations.
///
/// Numbers beside it become constants of its type: `2.0 * x`, `x.max(0.0)`, `n - 1`.
#[derive(Clone, Copy)]
pub struct Value<'e> {
    builder: &'e ExprBuilder,
    id: ValueId,
}

impl ExprBuilder {
    fn push(&self, op: Op) -> Value<'_> {
        let Parts { inputs, params, ops, types, .. } = &mut *self.parts.borrow_mut();
        let at = ops.len();
        if types.len() == at
            && let Ok(of) = result_type(at, &op, types, inputs, params)
        {
            types.push(of);
        }
        // Past the limit the id saturates: then `TooLarge` is reported, which is looked for first.
        let id = ValueId(at.min(u16::MAX as usize) as u16);
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
    /// The value's type; `f32` behind a mistake, which [`Expr::build`] reports.
    fn dtype(self) -> DType {
        let types = &self.builder.parts.borrow().types;
        types.get(self.id.index()).copied().unwrap_or(DType::F32)
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
    pub fn select(self, a: Self, b: impl IntoValue<'e>) -> Self {
        let b = b.beside(a);
        self.builder.push(Op::Select(self.id, a.id, b.id))
    }
}

/// What can stand beside a value: another value, or a number.
///
/// A number becomes a constant of that value's type where this type has it: an integer beside floats, too, but no fraction
/// beside integers. One that it does not have stays what it is, so that [`Expr::build`] refuses the operation.
pub trait IntoValue<'e> {
    /// The value, beside this one.
    fn beside(self, value: Value<'e>) -> Value<'e>;
}

impl<'e> IntoValue<'e> for Value<'e> {
    fn beside(self, _: Value<'e>) -> Value<'e> {
        self
    }
}

impl<'e> IntoValue<'e> for f64 {
    fn beside(self, value: Value<'e>) -> Value<'e> {
        let narrow = self as f32;
        match value.dtype() {
            DType::F32 if narrow.is_finite() || !self.is_finite() => value.builder.constant(narrow),
            _ => value.builder.constant(self),
        }
    }
}

impl<'e> IntoValue<'e> for i64 {
    fn beside(self, value: Value<'e>) -> Value<'e> {
        let scalar = match value.dtype() {
            DType::F32 => Some(self as f32).filter(|v| *v as i64 == self).map(Scalar::F32),
            DType::F64 => Some(self as f64).filter(|v| *v as i64 == self).map(Scalar::F64),
            DType::I32 => self.try_into().ok().map(Scalar::I32),
            DType::U32 => self.try_into().ok().map(Scalar::U32),
            _ => None,
        };
        value.builder.constant(scalar.unwrap_or(Scalar::I64(self)))
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
            pub fn $method(self, other: impl IntoValue<'e>) -> Self {
                self.$kind($op, other.beside(self))
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
        impl<'e, V: IntoValue<'e>> ops::$trait<V> for Value<'e> {
            type Output = Value<'e>;
            fn $method(self, other: V) -> Self {
                self.binary(BinaryOp::$op, other.beside(self))
            }
        }
        operators!(f64: $trait $method $op);
        operators!(i64: $trait $method $op);
    )*};
    ($number:ident: $trait:ident $method:ident $op:ident) => {
        impl<'e> ops::$trait<Value<'e>> for $number {
            type Output = Value<'e>;
            fn $method(self, other: Value<'e>) -> Value<'e> {
                self.beside(other).binary(BinaryOp::$op, other)
            }
        }
    };
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
