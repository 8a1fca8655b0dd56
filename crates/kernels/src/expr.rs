//! Common elementwise expressions on f32.
//!
//! Each call builds a new expression; they are small. All are well typed, which the tests of this file show once and
//! for all, so building them cannot fail.

use std::sync::Arc;

use phonograph_graph::{DType, Expr, ExprBuilder, Scalar, Value};

fn build(body: impl FnOnce(&ExprBuilder)) -> Arc<Expr> {
    Arc::new(Expr::build(body).expect("the expressions of this file are well typed"))
}

/// Of one f32.
pub fn unary(body: impl for<'e> FnOnce(&'e ExprBuilder, Value<'e>) -> Value<'e>) -> Arc<Expr> {
    build(|e| e.output(body(e, e.input(DType::F32))))
}

/// Of two f32.
pub fn binary(
    body: impl for<'e> FnOnce(&'e ExprBuilder, Value<'e>, Value<'e>) -> Value<'e>,
) -> Arc<Expr> {
    build(|e| e.output(body(e, e.input(DType::F32), e.input(DType::F32))))
}

/// Of three f32.
pub fn ternary(
    body: impl for<'e> FnOnce(&'e ExprBuilder, Value<'e>, Value<'e>, Value<'e>) -> Value<'e>,
) -> Arc<Expr> {
    build(|e| {
        let (x, y, z) = (e.input(DType::F32), e.input(DType::F32), e.input(DType::F32));
        e.output(body(e, x, y, z));
    })
}

/// The element as it is, for copies.
pub fn identity(dtype: DType) -> Arc<Expr> {
    build(|e| e.output_as(e.input(dtype), dtype))
}

/// Conversion from one storage type to another; see [`Op::Cast`](phonograph_graph::Op::Cast).
pub fn cast(from: DType, to: DType) -> Arc<Expr> {
    build(|e| {
        let value = e.input(from);
        let wide = if from.computed() == to.computed() { value } else { value.cast(to.computed()) };
        e.output_as(wide, to);
    })
}

/// A scalar, which whoever runs it gives as an argument.
pub fn scalar(dtype: DType) -> Arc<Expr> {
    build(|e| e.output_as(e.param(dtype), dtype))
}

/// A constant.
pub fn constant(value: Scalar) -> Arc<Expr> {
    build(|e| {
        let wide = match value {
            Scalar::F16(v) => Scalar::F32(v.to_f32()),
            Scalar::BF16(v) => Scalar::F32(v.to_f32()),
            Scalar::U8(v) => Scalar::U32(v.into()),
            other => other,
        };
        e.output_as(e.constant(wide), value.dtype());
    })
}

/// The position along an axis, as `dtype`.
pub fn iota(axis: u8, dtype: DType) -> Arc<Expr> {
    build(|e| {
        let index = e.index(axis);
        let wide =
            if dtype.computed() == DType::U32 { index } else { index.cast(dtype.computed()) };
        e.output_as(wide, dtype);
    })
}

/// max(x, 0).
pub fn relu() -> Arc<Expr> {
    unary(|e, x| x.max(e.f32(0.0)))
}

/// Gradient of [`relu`]: of (x, dy), dy where x is above 0, else 0.
pub fn relu_backward() -> Arc<Expr> {
    binary(|e, x, dy| x.greater(e.f32(0.0)).select(dy, e.f32(0.0)))
}

/// x Φ(x), with Φ the normal distribution function (Hendrycks and Gimpel, 2016).
pub fn gelu() -> Arc<Expr> {
    unary(|e, x| {
        let phi = (x * e.f32(std::f32::consts::FRAC_1_SQRT_2)).erf() + e.f32(1.0);
        x * phi * e.f32(0.5)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expression_is_well_typed() {
        for from in DType::ALL {
            identity(from);
            scalar(from);
            constant(Scalar::zero(from));
            for to in DType::ALL {
                cast(from, to);
            }
        }
        for dtype in DType::ALL {
            iota(0, dtype);
        }
        for expr in [relu(), relu_backward(), gelu()] {
            assert_eq!(expr.outputs().len(), 1);
        }
    }
}
