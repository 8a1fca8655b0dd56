//! Random tensors by counter: the same counter and key give the same numbers on every backend.
//!
//! The draw counter lives in device memory; [`Ops::advance`] moves it on, so that every replay draws afresh.

use std::f32::consts::PI;

use phonograph_graph::{Arg, DType, Expr, ExprBuilder, Scalar, Value, View};

use crate::ops::{Ops, OpsError};

/// The number of the element in a packed tensor of these extents.
fn element<'e>(e: &'e ExprBuilder, extents: &[u64]) -> Value<'e> {
    let mut index = e.constant(0u32);
    for (axis, &extent) in (0u8..).zip(extents) {
        index = index * e.constant(extent as u32) + e.index(axis);
    }
    index
}

/// A u32 as f32 in [0, 1): its upper 24 bits.
fn unit<'e>(e: &'e ExprBuilder, bits: Value<'e>) -> Value<'e> {
    (bits / e.constant(256u32)).cast(DType::F32) * e.f32(1.0 / (1 << 24) as f32)
}

/// cos(2 π u) for u in [0, 1), by its series about the middle: the last term is below 2e-7.
fn cos_turn<'e>(e: &'e ExprBuilder, u: Value<'e>) -> Value<'e> {
    let x = (u - e.f32(0.5)) * e.f32(2.0 * PI);
    let square = x * x;
    let mut sum = e.f32(1.0);
    for k in (1..=9).rev() {
        let ratio = -1.0 / ((2 * k - 1) * (2 * k)) as f32;
        sum = e.f32(1.0) + sum * square * e.f32(ratio);
    }
    -sum
}

impl Ops<'_> {
    /// Uniform f32 in [0, 1). `counter` is one u32: the draw.
    ///
    /// # Errors
    /// [`OpsError::View`] for extents that are no shape, and for a counter of more than one element.
    pub fn uniform(
        &mut self,
        name: &str,
        counter: View,
        key: u32,
        extents: &[u64],
    ) -> Result<View, OpsError> {
        let expr = Expr::build(|e| {
            let counter = e.input(DType::U32);
            e.output(unit(e, e.philox(element(e, extents), counter, e.param(DType::U32))));
        });
        let out = self.tensor(name, DType::F32, extents)?;
        let key = [Arg::Scalar(Scalar::U32(key))];
        self.map_into(name, expr.expect("well typed").into(), &[counter], &key, &[out])?;
        Ok(out)
    }

    /// Standard normal f32 (Box and Muller, 1958). `counter` is one u32: the draw.
    ///
    /// # Errors
    /// [`OpsError::View`] for extents that are no shape, and for a counter of more than one element.
    pub fn normal(
        &mut self,
        name: &str,
        counter: View,
        key: u32,
        extents: &[u64],
    ) -> Result<View, OpsError> {
        let expr = Expr::build(|e| {
            let (counter, key) = (e.input(DType::U32), e.param(DType::U32));
            let first = element(e, extents) * e.constant(2u32);
            let radius = e.f32(1.0) - unit(e, e.philox(first, counter, key)); // in (0, 1]
            let angle = unit(e, e.philox(first + e.constant(1u32), counter, key));
            e.output((radius.log() * e.f32(-2.0)).sqrt() * cos_turn(e, angle));
        });
        let out = self.tensor(name, DType::F32, extents)?;
        let key = [Arg::Scalar(Scalar::U32(key))];
        self.map_into(name, expr.expect("well typed").into(), &[counter], &key, &[out])?;
        Ok(out)
    }
}
