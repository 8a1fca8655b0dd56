//! From an expression to statements of C: the one place where expressions become code.
//!
//! Each operation becomes a constant of its own, named after a prefix and its number, in the order of the expression.
//! Where inputs, parameters and positions come from is for the kernel around to say.

use std::fmt::Write;

use phonograph_graph::{BinaryOp, DType, Expr, Op, Scalar, UnaryOp, ValueId};

use super::{prelude, value};
use crate::code::sign;

/// An expression in its surroundings.
pub(super) struct Code<'a> {
    pub expr: &'a Expr,
    /// What the names of its values begin with.
    pub prefix: &'static str,
    /// An input as memory holds it.
    pub input: &'a dyn Fn(usize) -> String,
    /// The number of the parameter that comes first.
    pub first_param: usize,
    /// The name of the position along an axis.
    pub position: &'a dyn Fn(u8) -> String,
}

impl Code<'_> {
    /// Declares all values.
    pub fn declare(&self) -> String {
        let Self { expr, prefix, .. } = *self;
        let mut code = String::new();
        for (at, op) in expr.ops().iter().enumerate() {
            let dtype = expr.type_of(ValueId(at as u16));
            let computed = match *op {
                Op::Input(input) => {
                    let input = usize::from(input);
                    format!("{}({})", load(expr.inputs()[input]), (self.input)(input))
                }
                Op::Param(param) => {
                    let param = usize::from(param);
                    format!("{}(p{})", load(expr.params()[param]), self.first_param + param)
                }
                Op::Const(scalar) => constant(scalar),
                Op::Index(axis) => format!("(u32){}", (self.position)(axis)),
                _ => operation(op, prefix, &|id| expr.type_of(id)),
            };
            writeln!(code, "        const {} {prefix}{at} = {computed};", value(dtype))
                .expect("a string takes all");
        }
        code
    }

    /// An output as memory holds it.
    pub fn output(&self, output: usize) -> String {
        let (id, dtype) = self.expr.outputs()[output];
        format!("{}({}{})", store(dtype), self.prefix, id.0)
    }

    /// Stores an output to a view's element.
    pub fn store(&self, view: usize, element: &str, output: usize) -> String {
        format!("        x{view}[{element}] = {};\n", self.output(output))
    }
}

/// The beginning of a source with these expressions in it, whose parameters end in so many words.
pub(super) fn prelude<'a>(
    exprs: impl IntoIterator<Item = &'a Expr>,
    words: usize,
    enters: bool,
) -> String {
    if exprs.into_iter().flat_map(Expr::ops).any(calls) {
        prelude::with_functions(words, enters)
    } else {
        prelude::with_words(words, enters)
    }
}

/// Whether an operation is a call of a function that not every source has.
fn calls(op: &Op) -> bool {
    let transcendental =
        |op| matches!(op, UnaryOp::Exp | UnaryOp::Log | UnaryOp::Tanh | UnaryOp::Erf);
    match *op {
        Op::Unary(op, _) => transcendental(op),
        Op::Philox { .. } => true,
        _ => false,
    }
}

/// The function that makes a value of what memory holds.
fn load(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "load_f16",
        DType::BF16 => "load_bf16",
        DType::U8 => "(u32)",
        DType::Bool => "load_bool",
        DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 => "",
    }
}

fn store(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "store_f16",
        DType::BF16 => "store_bf16",
        DType::U8 => "(u8)",
        DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::Bool => "",
    }
}

/// A constant of a computed type, by its bits.
fn constant(scalar: Scalar) -> String {
    match scalar {
        Scalar::F32(v) => format!("f32_of({:#x}u)", v.to_bits()),
        Scalar::F64(v) => format!("f64_of({:#x}ull)", v.to_bits()),
        Scalar::I32(v) => format!("(i32){:#x}u", v as u32),
        Scalar::I64(v) => format!("(i64){:#x}ull", v as u64),
        Scalar::U32(v) => format!("{v:#x}u"),
        Scalar::Bool(v) => format!("(u8){}", u8::from(v)),
        Scalar::F16(_) | Scalar::BF16(_) | Scalar::U8(_) => {
            unreachable!("expressions have no constants of storage types")
        }
    }
}

/// An operation on earlier values.
fn operation(op: &Op, prefix: &str, type_of: &dyn Fn(ValueId) -> DType) -> String {
    let v = |id: ValueId| format!("{prefix}{}", id.0);
    match *op {
        Op::Unary(op, a) => unary(op, type_of(a), &v(a)),
        Op::Binary(op, a, b) => binary(op, type_of(a), &v(a), &v(b)),
        Op::Compare(op, a, b) => {
            let sign = sign(op);
            format!("(u8)({} {sign} {})", v(a), v(b))
        }
        Op::Select(c, a, b) => format!("{} ? {} : {}", v(c), v(a), v(b)),
        Op::Cast(to, a) => cast(type_of(a), to, &v(a)),
        Op::Round(to, a) => format!("{}({}({}))", load(to), store(to), v(a)),
        Op::Philox { index, counter, key } => {
            format!("philox({}, {}, {})", v(index), v(counter), v(key))
        }
        Op::Input(_) | Op::Param(_) | Op::Const(_) | Op::Index(_) => {
            unreachable!("these are no operations on values")
        }
    }
}

fn unary(op: UnaryOp, dtype: DType, a: &str) -> String {
    let float = if dtype == DType::F32 { "f32" } else { "f64" };
    let math = if dtype == DType::F32 { "f" } else { "" };
    match op {
        UnaryOp::Neg if dtype.is_float() => format!("-{a}"),
        UnaryOp::Neg => format!("neg({a})"),
        UnaryOp::Abs if dtype.is_float() => format!("fabs{math}({a})"),
        UnaryOp::Abs => format!("{a} < 0 ? neg({a}) : {a}"),
        UnaryOp::Not if dtype == DType::Bool => format!("(u8)({a} ^ 1)"),
        UnaryOp::Not => format!("~{a}"),
        UnaryOp::Exp => format!("{float}_exp({a})"),
        UnaryOp::Log => format!("{float}_log({a})"),
        UnaryOp::Tanh => format!("{float}_tanh({a})"),
        UnaryOp::Erf => format!("{float}_erf({a})"),
        UnaryOp::Sqrt => format!("sqrt{math}({a})"),
        UnaryOp::Floor => format!("floor{math}({a})"),
    }
}

fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> String {
    let math = if dtype == DType::F32 { "f" } else { "" };
    // Signed overflow is undefined in C, so integers are added as unsigned ones.
    let wrap = |sign: &str| match dtype {
        DType::I32 => format!("(i32)((u32){a} {sign} (u32){b})"),
        DType::I64 => format!("(i64)((u64){a} {sign} (u64){b})"),
        _ => format!("{a} {sign} {b}"),
    };
    let bits = |sign: &str| match dtype {
        DType::Bool => format!("(u8)({a} {sign} {b})"),
        _ => format!("{a} {sign} {b}"),
    };
    match op {
        BinaryOp::Add => wrap("+"),
        BinaryOp::Sub => wrap("-"),
        BinaryOp::Mul => wrap("*"),
        BinaryOp::Div if dtype.is_float() => format!("{a} / {b}"),
        BinaryOp::Div => format!("quotient({a}, {b})"),
        BinaryOp::Rem if dtype.is_float() => format!("fmod{math}({a}, {b})"),
        BinaryOp::Rem => format!("modulo({a}, {b})"),
        BinaryOp::Min if dtype.is_float() => format!("{a} < {b} || {b} != {b} ? {a} : {b}"),
        BinaryOp::Max if dtype.is_float() => format!("{a} > {b} || {b} != {b} ? {a} : {b}"),
        BinaryOp::Min => format!("{a} < {b} ? {a} : {b}"),
        BinaryOp::Max => format!("{a} > {b} ? {a} : {b}"),
        BinaryOp::And => bits("&"),
        BinaryOp::Or => bits("|"),
        BinaryOp::Xor => bits("^"),
    }
}

fn cast(from: DType, to: DType, a: &str) -> String {
    let target = value(to);
    match to {
        DType::Bool => format!("(u8)({a} != 0)"),
        _ if from.is_float() && !to.is_float() => format!("to_{target}({a})"),
        _ => format!("({target}){a}"),
    }
}
