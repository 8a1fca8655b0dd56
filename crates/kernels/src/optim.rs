//! Optimisers, in place. Counters live in device memory and the graph advances them, so that every replay is a step.

use std::sync::Arc;

use phonograph_graph::{Arg, DType, Expr, NodeId, View};

use crate::expr;
use crate::ops::{Ops, OpsError, at};

/// The constants of Adam (Kingma and Ba, 2015).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adam {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the denominator.
    pub epsilon: f32,
}

impl Default for Adam {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

/// A parameter under Adam; three tensors of one shape that last between replays.
#[derive(Clone, Copy, Debug)]
pub struct AdamState {
    /// The parameter itself.
    pub parameter: View,
    /// First moment, zeros at first.
    pub m: View,
    /// Second moment, zeros at first.
    pub v: View,
}

impl Ops<'_> {
    /// Adds 1 to a u32 counter in device memory.
    ///
    /// # Errors
    /// Those of [`map_into`](Self::map_into).
    pub fn advance(&mut self, name: &str, counter: View) -> Result<NodeId, OpsError> {
        let next = Expr::build(|e| e.output(e.input(DType::U32) + e.constant(1u32)));
        let next = next.expect("well typed").into();
        self.map_into(name, next, &[counter], &[], &[counter])
    }

    /// One step of gradient descent, in place: parameter -= rate × gradient. `rate` is an f32 scalar or slot.
    ///
    /// # Errors
    /// [`OpsError::View`] for a gradient that does not broadcast to the parameter.
    pub fn sgd(
        &mut self,
        name: &str,
        parameter: View,
        gradient: View,
        rate: Arg,
    ) -> Result<NodeId, OpsError> {
        let step = Expr::build(|e| {
            let (p, g) = (e.input(DType::F32), e.input(DType::F32));
            e.output(p - e.param(DType::F32) * g);
        });
        let step = step.expect("well typed").into();
        self.map_into(name, step, &[parameter, gradient], &[rate], &[parameter])
    }

    /// 1 - beta^t for both moments, `[2]`, from the step counter (u32, the first step is 1). Once a step, for all parameters.
    ///
    /// # Errors
    /// [`OpsError::View`] for a counter of more than one element.
    pub fn adam_corrections(
        &mut self,
        name: &str,
        adam: Adam,
        step: View,
    ) -> Result<View, OpsError> {
        let out = self.tensor(name, DType::F32, &[2])?;
        let expr = Expr::build(|e| {
            let first = e.index(0).equal(e.constant(0u32));
            let log = first.select(e.f32(adam.beta1.ln()), e.f32(adam.beta2.ln()));
            let t = e.input(DType::U32).cast(DType::F32);
            e.output(e.f32(1.0) - (t * log).exp());
        });
        self.map_into(name, expr.expect("well typed").into(), &[step], &[], &[out])?;
        Ok(out)
    }

    /// One step of Adam for a parameter, in place. `rate` is an f32 scalar or slot.
    ///
    /// # Errors
    /// [`OpsError::View`] for tensors that do not broadcast to the parameter's shape, and for corrections of fewer than two
    /// elements.
    pub fn adam(
        &mut self,
        name: &str,
        adam: Adam,
        state: AdamState,
        gradient: View,
        corrections: View,
        rate: Arg,
    ) -> Result<NodeId, OpsError> {
        let moment = |beta: f32, of: fn(phonograph_graph::Value) -> phonograph_graph::Value| {
            expr::binary(move |e, moment, g| moment * e.f32(beta) + of(g) * e.f32(1.0 - beta))
        };
        let first: Arc<Expr> = moment(adam.beta1, |g| g);
        let second: Arc<Expr> = moment(adam.beta2, |g| g * g);
        self.map_into(&format!("{name}.m"), first, &[state.m, gradient], &[], &[state.m])?;
        self.map_into(&format!("{name}.v"), second, &[state.v, gradient], &[], &[state.v])?;
        let view = at(name);
        let c1 = corrections.slice(0, 0, 1).map_err(view)?;
        let c2 = corrections.slice(0, 1, 1).map_err(view)?;
        let update = Expr::build(|e| {
            let (p, m, v) = (e.input(DType::F32), e.input(DType::F32), e.input(DType::F32));
            let (c1, c2) = (e.input(DType::F32), e.input(DType::F32));
            let denominator = (v / c2).sqrt() + e.f32(adam.epsilon);
            e.output(p - e.param(DType::F32) * (m / c1) / denominator);
        });
        let update = update.expect("well typed").into();
        let inputs = [state.parameter, state.m, state.v, c1, c2];
        self.map_into(name, update, &inputs, &[rate], &[state.parameter])
    }
}
