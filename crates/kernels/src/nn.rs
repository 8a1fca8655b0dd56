//! Layers and losses, forward and backward. All tensors are f32 unless said; batches are the first axis.

use phonograph_graph::{DType, Expr, View};

use crate::expr;
use crate::ops::{Ops, OpsError, at, operand};

/// What a cross-entropy loss gives.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy {
    /// The mean loss of the batch, one element.
    pub loss: View,
    /// Its gradient with respect to the logits, `[n, classes]`.
    pub gradient: View,
}

/// What the backward pass of a linear layer gives.
#[derive(Clone, Copy, Debug)]
pub struct LinearGrads {
    /// With respect to the weights, `[inputs, outputs]`.
    pub weights: View,
    /// With respect to the bias, `[outputs]`.
    pub bias: View,
}

/// What a layer norm gives; the backward pass needs the last two.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// The result, `[n, features]`.
    pub output: View,
    /// Input less its mean, over its deviation, `[n, features]`.
    pub normalised: View,
    /// 1 over the deviation, `[n, 1]`.
    pub inverse_deviation: View,
}

/// Gradients of a layer norm.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormGrads {
    /// With respect to the input.
    pub input: View,
    /// With respect to the gain.
    pub gain: View,
    /// With respect to the bias.
    pub bias: View,
}

impl Ops<'_> {
    /// max(x, 0).
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub fn relu(&mut self, name: &str, x: View) -> Result<View, OpsError> {
        self.map(name, expr::relu(), &[x], &[])
    }

    /// Gradient of relu: `x` is its input, `dy` the gradient of its output.
    ///
    /// # Errors
    /// [`OpsError::View`] for operands without a common shape.
    pub fn relu_backward(&mut self, name: &str, x: View, dy: View) -> Result<View, OpsError> {
        self.map(name, expr::relu_backward(), &[x, dy], &[])
    }

    /// See [`expr::gelu`].
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub fn gelu(&mut self, name: &str, x: View) -> Result<View, OpsError> {
        self.map(name, expr::gelu(), &[x], &[])
    }

    /// x W + b: `[n, inputs]` times `[inputs, outputs]` plus `[outputs]`.
    ///
    /// # Errors
    /// Those of [`matmul`](Self::matmul) and [`add`](Self::add).
    pub fn linear(
        &mut self,
        name: &str,
        x: View,
        weights: View,
        bias: View,
    ) -> Result<View, OpsError> {
        let product = self.matmul(&format!("{name}.product"), x, weights)?;
        self.add(name, product, bias)
    }

    /// Gradients of a linear layer's parameters: xᵀ dy and the column sums of dy.
    ///
    /// # Errors
    /// Those of [`matmul`](Self::matmul) and [`sum`](Self::sum); [`OpsError::View`] for an `x` of fewer than two axes.
    pub fn linear_backward(
        &mut self,
        name: &str,
        x: View,
        dy: View,
    ) -> Result<LinearGrads, OpsError> {
        let xt = transposed(name, x)?;
        let weights = self.matmul(&format!("{name}.weights"), xt, dy)?;
        let bias = self.sum(&format!("{name}.bias"), dy, 0)?;
        Ok(LinearGrads { weights, bias })
    }

    /// Gradient of a linear layer's input: dy Wᵀ.
    ///
    /// # Errors
    /// Those of [`matmul`](Self::matmul); [`OpsError::View`] for weights of fewer than two axes.
    pub fn linear_backward_input(
        &mut self,
        name: &str,
        weights: View,
        dy: View,
    ) -> Result<View, OpsError> {
        let wt = transposed(name, weights)?;
        self.matmul(name, dy, wt)
    }

    /// Along the last of two axes: x less its maximum, and the sum of the exponentials of that, `[n, 1]`.
    fn shifted_exp(&mut self, name: &str, x: View) -> Result<(View, View, View), OpsError> {
        if x.shape().rank() != 2 {
            return Err(operand(name, format!("of shape {:?}; it needs two axes", x.shape())));
        }
        let view = at(name);
        let max = self.max(&format!("{name}.max"), x, 1)?.unsqueeze(1).map_err(view)?;
        let subtract = expr::binary(|_, x, y| x - y);
        let shifted = self.map(&format!("{name}.shifted"), subtract, &[x, max], &[])?;
        let exp = self.map(&format!("{name}.exp"), expr::unary(|_, x| x.exp()), &[shifted], &[])?;
        let sum = self.sum(&format!("{name}.sum"), exp, 1)?.unsqueeze(1).map_err(view)?;
        Ok((shifted, exp, sum))
    }

    /// Softmax along the last of two axes.
    ///
    /// # Errors
    /// [`OpsError::Operand`] for another number of axes than two.
    pub fn softmax(&mut self, name: &str, x: View) -> Result<View, OpsError> {
        let (_, exp, sum) = self.shifted_exp(name, x)?;
        self.map(name, expr::binary(|_, x, y| x / y), &[exp, sum], &[])
    }

    /// The logarithm of the softmax along the last of two axes, without cancellation.
    ///
    /// # Errors
    /// [`OpsError::Operand`] for another number of axes than two.
    pub fn log_softmax(&mut self, name: &str, x: View) -> Result<View, OpsError> {
        let (shifted, _, sum) = self.shifted_exp(name, x)?;
        self.map(name, expr::binary(|_, x, s| x - s.log()), &[shifted, sum], &[])
    }

    /// Mean cross-entropy between the softmax of `logits` `[n, classes]` and `labels` `[n]` (i32), with its gradient.
    /// A label outside the classes counts as a class of no probability: its loss is only the logarithm of the sum.
    ///
    /// # Errors
    /// [`OpsError::Operand`] for labels that are not i32 or not one a row, and for logits of another number of axes than two.
    pub fn cross_entropy(
        &mut self,
        name: &str,
        logits: View,
        labels: View,
    ) -> Result<CrossEntropy, OpsError> {
        let n = labels.shape().elements();
        if labels.dtype != DType::I32 || logits.shape().extents().first() != Some(&n) {
            let (dtype, shape) = (labels.dtype, labels.shape());
            return Err(operand(name, format!("labels of type {dtype} and shape {shape:?}")));
        }
        let view = at(name);
        let (shifted, exp, sum) = self.shifted_exp(name, logits)?;
        let labels = labels.unsqueeze(1).map_err(view)?;
        let pick = Expr::build(|e| {
            let (x, label) = (e.input(DType::F32), e.input(DType::I32));
            let own = e.index(1).cast(DType::I32).equal(label);
            e.output(own.select(x, e.f32(0.0)));
        });
        let pick = pick.expect("well typed").into();
        let picked = self.map(&format!("{name}.pick"), pick, &[shifted, labels], &[])?;
        let picked = self.sum(&format!("{name}.picked"), picked, 1)?;
        let sums = sum.reshape(&[n]).map_err(view)?;
        let each = expr::binary(|_, sum, own| sum.log() - own);
        let each = self.map(&format!("{name}.each"), each, &[sums, picked], &[])?;
        let loss = self.mean(name, each, 0)?;
        let share = 1.0 / n as f32;
        let gradient = Expr::build(|e| {
            let (exp, sum) = (e.input(DType::F32), e.input(DType::F32));
            let own = e.index(1).cast(DType::I32).equal(e.input(DType::I32));
            let target = own.select(e.f32(1.0), e.f32(0.0));
            e.output((exp / sum - target) * e.f32(share));
        });
        let gradient = gradient.expect("well typed").into();
        let inputs = [exp, sum, labels];
        let gradient = self.map(&format!("{name}.gradient"), gradient, &inputs, &[])?;
        Ok(CrossEntropy { loss, gradient })
    }

    /// Normalises each row of `[n, features]` to mean 0 and deviation 1, then scales by `gain` and adds `bias`.
    ///
    /// # Errors
    /// [`OpsError::View`] for an `x` without a second axis, and for a gain or bias that does not broadcast to it.
    pub fn layer_norm(
        &mut self,
        name: &str,
        x: View,
        gain: View,
        bias: View,
        epsilon: f32,
    ) -> Result<LayerNorm, OpsError> {
        let view = at(name);
        let mean = self.mean(&format!("{name}.mean"), x, 1)?.unsqueeze(1).map_err(view)?;
        let subtract = expr::binary(|_, x, y| x - y);
        let centred = self.map(&format!("{name}.centred"), subtract, &[x, mean], &[])?;
        let squares = self.multiply(&format!("{name}.squares"), centred, centred)?;
        let variance = self.mean(&format!("{name}.variance"), squares, 1)?;
        let invert = expr::unary(|e, v| e.f32(1.0) / (v + e.f32(epsilon)).sqrt());
        let inverse = self.map(&format!("{name}.inverse"), invert, &[variance], &[])?;
        let inverse_deviation = inverse.unsqueeze(1).map_err(view)?;
        let normalised =
            self.multiply(&format!("{name}.normalised"), centred, inverse_deviation)?;
        let scaled = expr::ternary(|_, x, gain, bias| x * gain + bias);
        let output = self.map(name, scaled, &[normalised, gain, bias], &[])?;
        Ok(LayerNorm { output, normalised, inverse_deviation })
    }

    /// Gradients of a layer norm from the gradient of its output.
    ///
    /// # Errors
    /// [`OpsError::View`] for operands that do not broadcast to the layer's shape.
    pub fn layer_norm_backward(
        &mut self,
        name: &str,
        forward: &LayerNorm,
        gain: View,
        dy: View,
    ) -> Result<LayerNormGrads, OpsError> {
        let view = at(name);
        let bias = self.sum(&format!("{name}.bias"), dy, 0)?;
        let weighted = self.multiply(&format!("{name}.weighted"), dy, forward.normalised)?;
        let gain_gradient = self.sum(&format!("{name}.gain"), weighted, 0)?;
        let inner = self.multiply(&format!("{name}.inner"), dy, gain)?;
        let mean = self.mean(&format!("{name}.mean"), inner, 1)?.unsqueeze(1).map_err(view)?;
        let along = self.multiply(&format!("{name}.along"), inner, forward.normalised)?;
        let slope = self.mean(&format!("{name}.slope"), along, 1)?.unsqueeze(1).map_err(view)?;
        let input = Expr::build(|e| {
            let (g, x) = (e.input(DType::F32), e.input(DType::F32));
            let (mean, slope) = (e.input(DType::F32), e.input(DType::F32));
            e.output((g - mean - x * slope) * e.input(DType::F32));
        });
        let inputs = [inner, forward.normalised, mean, slope, forward.inverse_deviation];
        let input = self.map(name, input.expect("well typed").into(), &inputs, &[])?;
        Ok(LayerNormGrads { input, gain: gain_gradient, bias })
    }
}

fn transposed(name: &str, x: View) -> Result<View, OpsError> {
    x.transpose(0, 1).map_err(at(name))
}
