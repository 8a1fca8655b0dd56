//! Operations of an expression as text: `input 0`, `const f32 0.5`, `mul v0 v1`, `cast u32 v2`.
//!
//! `v` and a number is the result of the operation at that place in the list. One table of names serves both ways.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::{BinaryOp, CompareOp, DType, Op, UnaryOp, ValueId};

const UNARY: [(&str, UnaryOp); 9] = [
    ("neg", UnaryOp::Neg),
    ("abs", UnaryOp::Abs),
    ("not", UnaryOp::Not),
    ("exp", UnaryOp::Exp),
    ("log", UnaryOp::Log),
    ("tanh", UnaryOp::Tanh),
    ("erf", UnaryOp::Erf),
    ("sqrt", UnaryOp::Sqrt),
    ("floor", UnaryOp::Floor),
];

const BINARY: [(&str, BinaryOp); 10] = [
    ("add", BinaryOp::Add),
    ("sub", BinaryOp::Sub),
    ("mul", BinaryOp::Mul),
    ("div", BinaryOp::Div),
    ("rem", BinaryOp::Rem),
    ("min", BinaryOp::Min),
    ("max", BinaryOp::Max),
    ("and", BinaryOp::And),
    ("or", BinaryOp::Or),
    ("xor", BinaryOp::Xor),
];

const COMPARE: [(&str, CompareOp); 6] = [
    ("eq", CompareOp::Eq),
    ("ne", CompareOp::Ne),
    ("lt", CompareOp::Lt),
    ("le", CompareOp::Le),
    ("gt", CompareOp::Gt),
    ("ge", CompareOp::Ge),
];

fn name_of<T: PartialEq>(table: &[(&'static str, T)], op: &T) -> &'static str {
    // Every operation is in its table, which a test makes sure of.
    table.iter().find(|(_, known)| known == op).map_or("", |&(name, _)| name)
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|&(_, op)| op)
}

/// An operation, written and read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct OpText(pub Op);

impl Display for OpText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Op::Input(index) => write!(f, "input {index}"),
            Op::Param(index) => write!(f, "param {index}"),
            Op::Const(scalar) => write!(f, "const {scalar}"),
            Op::Index(axis) => write!(f, "index {axis}"),
            Op::Unary(op, a) => write!(f, "{} v{}", name_of(&UNARY, &op), a.0),
            Op::Binary(op, a, b) => write!(f, "{} v{} v{}", name_of(&BINARY, &op), a.0, b.0),
            Op::Compare(op, a, b) => write!(f, "{} v{} v{}", name_of(&COMPARE, &op), a.0, b.0),
            Op::Select(c, a, b) => write!(f, "select v{} v{} v{}", c.0, a.0, b.0),
            Op::Cast(dtype, a) => write!(f, "cast {dtype} v{}", a.0),
            Op::Round(dtype, a) => write!(f, "round {dtype} v{}", a.0),
            Op::Philox { index, counter, key } => {
                write!(f, "philox v{} v{} v{}", index.0, counter.0, key.0)
            }
        }
    }
}

impl FromStr for OpText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        let op = match (name, words.as_slice()) {
            ("const", _) => Op::Const(rest.parse().map_err(|e| format!("`{}`: {e}", cut(text)))?),
            ("input", [index]) => Op::Input(number(text, index)?),
            ("param", [index]) => Op::Param(number(text, index)?),
            ("index", [axis]) => Op::Index(number(text, axis)?),
            ("cast" | "round", [dtype, a]) => {
                let dtype: DType = dtype.parse().map_err(|e| format!("`{}`: {e}", cut(text)))?;
                let op = if name == "cast" { Op::Cast } else { Op::Round };
                op(dtype, value(text, a)?)
            }
            ("select", [c, a, b]) => Op::Select(value(text, c)?, value(text, a)?, value(text, b)?),
            ("philox", [index, counter, key]) => Op::Philox {
                index: value(text, index)?,
                counter: value(text, counter)?,
                key: value(text, key)?,
            },
            (name, operands) => {
                let unary = named(&UNARY, name);
                let (binary, compare) = (named(&BINARY, name), named(&COMPARE, name));
                match (unary, binary, compare, operands) {
                    (Some(op), _, _, [a]) => Op::Unary(op, value(text, a)?),
                    (_, Some(op), _, [a, b]) => Op::Binary(op, value(text, a)?, value(text, b)?),
                    (_, _, Some(op), [a, b]) => Op::Compare(op, value(text, a)?, value(text, b)?),
                    _ => {
                        return Err(format!("`{}` is no operation such as `add v0 v1`", cut(text)));
                    }
                }
            }
        };
        Ok(OpText(op))
    }
}

/// An output, `f16 v4`: the type it is stored as, and the value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct OutputText(pub ValueId, pub DType);

impl Display for OutputText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} v{}", self.1, self.0.0)
    }
}

impl FromStr for OutputText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(' ');
        let (dtype, from) =
            parts.ok_or_else(|| format!("`{}` is no output such as `f32 v4`", cut(text)))?;
        let dtype = dtype.parse().map_err(|e| format!("`{}`: {e}", cut(text)))?;
        Ok(OutputText(value(text, from)?, dtype))
    }
}

fn number<T: FromStr>(op: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{}`: `{}` is no number that fits", cut(op), cut(text)))
}

fn value(op: &str, text: &str) -> Result<ValueId, String> {
    let parsed = text.strip_prefix('v').and_then(|digits| digits.parse().ok());
    parsed
        .map(ValueId)
        .ok_or_else(|| format!("`{}`: `{}` is no value such as `v0`", cut(op), cut(text)))
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scalar;

    #[test]
    fn operations_survive_their_text_form() {
        let [a, b, c] = [ValueId(0), ValueId(7), ValueId(65535)];
        let mut ops = vec![
            Op::Input(3),
            Op::Param(65535),
            Op::Const(Scalar::F32(-0.0)),
            Op::Const(Scalar::I64(i64::MIN)),
            Op::Index(5),
            Op::Select(a, b, c),
            Op::Cast(DType::Bool, c),
            Op::Round(DType::BF16, a),
            Op::Philox { index: a, counter: b, key: c },
        ];
        // Written out, so that a new operation is missed here and not in a file.
        use {BinaryOp as B, CompareOp as C, UnaryOp as U};
        let unary = [U::Neg, U::Abs, U::Not, U::Exp, U::Log, U::Tanh, U::Erf, U::Sqrt, U::Floor];
        let binary =
            [B::Add, B::Sub, B::Mul, B::Div, B::Rem, B::Min, B::Max, B::And, B::Or, B::Xor];
        let compare = [C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge];
        ops.extend(unary.map(|op| Op::Unary(op, b)));
        ops.extend(binary.map(|op| Op::Binary(op, a, b)));
        ops.extend(compare.map(|op| Op::Compare(op, a, b)));
        for op in ops {
            let text = OpText(op).to_string();
            assert_eq!(text.parse(), Ok(OpText(op)), "{text}");
        }
        for wrong in [
            "",
            "add",
            "add v0",
            "add v0 v1 v2",
            "add 0 1",
            "neg v65536",
            "const f32",
            "cast f31 v0",
        ] {
            assert!(wrong.parse::<OpText>().is_err(), "{wrong}");
        }
    }
}
