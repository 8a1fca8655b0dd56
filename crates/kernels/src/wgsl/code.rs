//! From an expression to statements of WGSL: the one place where expressions become code.
//!
//! Each operation becomes a value of its own, named after a prefix and its number, in the order of the expression.
//! Where inputs, parameters and positions come from is for the kernel around to say.

use std::fmt::Write;

use phonograph_graph::{BinaryOp, CompareOp, DType, Expr, Op, Scalar, UnaryOp, ValueId};

use super::block::{Block, Word};
use super::operand::{from_bits, to_bits};
use super::{WgslError, value};
use crate::code::sign;

/// An expression in its surroundings.
pub(super) struct Code<'a> {
    pub expr: &'a Expr,
    /// What the names of its values begin with.
    pub prefix: &'static str,
    /// The value of an input.
    pub input: &'a dyn Fn(usize) -> String,
    /// The numbers of the node's arguments that are its parameters.
    pub params: &'a [usize],
    /// The position along an axis, a u32.
    pub position: &'a dyn Fn(u8) -> String,
}

impl Code<'_> {
    /// Declares all values.
    ///
    /// # Errors
    /// [`WgslError::Type`] for a value of a type that WGSL lacks.
    pub fn declare(&self, block: &mut Block) -> Result<String, WgslError> {
        let Self { expr, prefix, .. } = *self;
        let mut params = Vec::with_capacity(expr.params().len());
        for (&dtype, &argument) in expr.params().iter().zip(self.params) {
            value(dtype)?;
            params.push(from_bits(dtype, &block.word(Word::Scalar(argument, dtype))));
        }
        let mut code = String::new();
        for (at, op) in expr.ops().iter().enumerate() {
            let dtype = expr.type_of(ValueId(at as u16));
            let computed = match *op {
                Op::Input(input) => (self.input)(usize::from(input)),
                Op::Param(param) => params[usize::from(param)].clone(),
                Op::Const(scalar) => constant(scalar)?,
                Op::Index(axis) => (self.position)(axis),
                _ => operation(op, prefix, &|id| expr.type_of(id)),
            };
            writeln!(code, "    let {prefix}{at}: {} = {computed};", value(dtype)?)
                .expect("a string takes all");
        }
        Ok(code)
    }

    /// An output's value.
    pub fn output(&self, output: usize) -> String {
        format!("{}{}", self.prefix, self.expr.outputs()[output].0.0)
    }

    /// Stores an output to a view's element.
    pub fn store(&self, view: usize, element: &str, output: usize) -> String {
        format!("    store{view}({element}, {});\n", self.output(output))
    }
}

/// A constant of a computed type, by its bits: a literal cannot be NaN or infinite.
fn constant(scalar: Scalar) -> Result<String, WgslError> {
    Ok(match scalar {
        Scalar::F32(v) => format!("f32_of({:#x}u)", v.to_bits()),
        Scalar::I32(v) => format!("bitcast<i32>({:#x}u)", v as u32),
        Scalar::U32(v) => format!("{v:#x}u"),
        Scalar::Bool(v) => v.to_string(),
        other => return Err(WgslError::Type(other.dtype())),
    })
}

/// An operation on earlier values.
fn operation(op: &Op, prefix: &str, type_of: &dyn Fn(ValueId) -> DType) -> String {
    let v = |id: ValueId| format!("{prefix}{}", id.0);
    match *op {
        Op::Unary(op, a) => unary(op, type_of(a), &v(a)),
        Op::Binary(op, a, b) => binary(op, type_of(a), &v(a), &v(b)),
        Op::Compare(op, a, b) => compare(op, type_of(a), &v(a), &v(b)),
        Op::Select(c, a, b) => format!("select({}, {}, {})", v(b), v(a), v(c)),
        Op::Cast(to, a) => cast(type_of(a), to, &v(a)),
        Op::Round(to, a) => from_bits(to, &to_bits(to, &v(a))),
        Op::Philox { index, counter, key } => {
            format!("philox({}, {}, {})", v(index), v(counter), v(key))
        }
        Op::Input(_) | Op::Param(_) | Op::Const(_) | Op::Index(_) => {
            unreachable!("these are no operations on values")
        }
    }
}

fn unary(op: UnaryOp, dtype: DType, a: &str) -> String {
    match op {
        UnaryOp::Neg => format!("-{a}"),
        UnaryOp::Abs => format!("abs({a})"),
        UnaryOp::Not if dtype == DType::Bool => format!("!{a}"),
        UnaryOp::Not => format!("~{a}"),
        UnaryOp::Exp => format!("f32_exp({a})"),
        UnaryOp::Log => format!("f32_log({a})"),
        UnaryOp::Tanh => format!("f32_tanh({a})"),
        UnaryOp::Erf => format!("f32_erf({a})"),
        UnaryOp::Sqrt => format!("sqrt({a})"),
        UnaryOp::Floor => format!("floor({a})"),
    }
}

fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> String {
    let float = dtype.is_float();
    let t = dtype.name();
    match op {
        BinaryOp::Add => format!("{a} + {b}"),
        BinaryOp::Sub => format!("{a} - {b}"),
        BinaryOp::Mul => format!("{a} * {b}"),
        BinaryOp::Div if float => format!("{a} / {b}"),
        BinaryOp::Div => format!("{t}_quotient({a}, {b})"),
        BinaryOp::Rem => format!("{t}_remainder({a}, {b})"),
        BinaryOp::Min if float => format!("select({b}, {a}, {a} < {b} || is_nan({b}))"),
        BinaryOp::Max if float => format!("select({b}, {a}, {a} > {b} || is_nan({b}))"),
        BinaryOp::Min => format!("min({a}, {b})"),
        BinaryOp::Max => format!("max({a}, {b})"),
        BinaryOp::And => format!("{a} & {b}"),
        BinaryOp::Or => format!("{a} | {b}"),
        BinaryOp::Xor if dtype == DType::Bool => format!("{a} != {b}"),
        BinaryOp::Xor => format!("{a} ^ {b}"),
    }
}

fn compare(op: CompareOp, dtype: DType, a: &str, b: &str) -> String {
    let sign = sign(op);
    // Booleans have no order in WGSL.
    match dtype {
        DType::Bool => format!("u32({a}) {sign} u32({b})"),
        _ => format!("{a} {sign} {b}"),
    }
}

fn cast(from: DType, to: DType, a: &str) -> String {
    match to {
        DType::Bool if from == DType::Bool => a.to_owned(),
        DType::Bool => format!("{a} != {}(0)", from.name()),
        DType::I32 | DType::U32 if from.is_float() => format!("{}_from_f32({a})", to.name()),
        _ => format!("{}({a})", to.name()),
    }
}
