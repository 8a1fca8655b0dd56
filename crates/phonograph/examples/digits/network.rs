//! The graphs: one that draws the parameters, one training step, one that classifies.
//!
//! Each declares its parameters as external buffers of the same names and sizes; whoever instantiates them binds
//! the same memory.

use std::error::Error;

use phonograph::graph::{Arg, BufferId, ComputeGraph, DType, GraphBuilder, SlotId, View};
use phonograph::kernels::{Adam, AdamState, Ops, expr};

use crate::data::PIXELS;

/// Digits in a batch.
pub const BATCH: u64 = 128;
/// Width of the hidden layer.
const HIDDEN: u64 = 128;
const CLASSES: u64 = 10;
/// Deviation of the noise on the pixels, which range from 0 to 1.
const NOISE: f32 = 0.15;
/// Learning rate of the first step; it falls linearly to 0.
pub const RATE: f32 = 4e-3;

/// A tensor that lasts between replays: its name and extents.
pub type Persistent = (&'static str, &'static [u64]);

/// The parameters.
pub const PARAMETERS: [Persistent; 4] = [
    ("w1", &[PIXELS as u64, HIDDEN]),
    ("b1", &[HIDDEN]),
    ("w2", &[HIDDEN, CLASSES]),
    ("b2", &[CLASSES]),
];

/// Bytes of a tensor of f32, i32 or u32.
pub fn bytes(extents: &[u64]) -> usize {
    extents.iter().product::<u64>() as usize * 4
}

fn external(
    b: &mut GraphBuilder,
    name: &str,
    dtype: DType,
    extents: &[u64],
) -> Result<View, Box<dyn Error>> {
    Ok(View::contiguous(b.external_buffer(name, bytes(extents)), dtype, extents)?)
}

fn parameters(b: &mut GraphBuilder) -> Result<[View; 4], Box<dyn Error>> {
    let mut views = Vec::new();
    for (name, extents) in PARAMETERS {
        views.push(external(b, name, DType::F32, extents)?);
    }
    Ok(views.try_into().map_err(|_| "there are four parameters")?)
}

/// Draws the weights: normal, of variance 2 / inputs (He et al., 2015); biases start as the zeros that memory is.
pub fn initialise(seed: u64) -> Result<ComputeGraph, Box<dyn Error>> {
    let mut b = GraphBuilder::new().named("initialise");
    let [w1, _, w2, _] = parameters(&mut b)?;
    let mut ops = Ops::new(&mut b);
    let counter = ops.fill("counter", seed as u32, &[1])?;
    for (key, weights) in [(1, w1), (2, w2)] {
        let shape = weights.shape();
        let extents = shape.extents();
        let scale = (2.0 / extents[0] as f32).sqrt();
        let drawn = ops.normal("draw", counter, key, extents)?;
        let scaled = expr::unary(|e, x| x * e.f32(scale));
        ops.map_into("weights", scaled, &[drawn], &[], &[weights])?;
    }
    Ok(b.build()?)
}

/// A training step.
pub struct Step {
    pub graph: ComputeGraph,
    /// Where in the order of the digits the batch starts, u32.
    pub start: SlotId,
    /// The learning rate, f32.
    pub rate: SlotId,
    /// The order of the digits, `[digits]` i32.
    pub order: BufferId,
    pub loss: BufferId,
}

/// Records one training step over `digits` digits.
pub fn training_step(digits: u64) -> Result<Step, Box<dyn Error>> {
    let mut b = GraphBuilder::new().named("training step");
    let pixels = external(&mut b, "pixels", DType::F32, &[digits, PIXELS as u64])?;
    let labels = external(&mut b, "labels", DType::I32, &[digits])?;
    let order = external(&mut b, "order", DType::I32, &[digits])?;
    let loss = external(&mut b, "loss", DType::F32, &[])?;
    let count = external(&mut b, "step", DType::U32, &[1])?;
    let weights = parameters(&mut b)?;
    let mut states = Vec::new();
    for ((name, extents), parameter) in PARAMETERS.into_iter().zip(weights) {
        let m = external(&mut b, &format!("{name}.m"), DType::F32, extents)?;
        let v = external(&mut b, &format!("{name}.v"), DType::F32, extents)?;
        states.push(AdamState { parameter, m, v });
    }
    let [w1, b1, w2, b2] = weights;
    let start = b.slot("start", 0u32);
    let rate = b.slot("rate", RATE);
    let mut ops = Ops::new(&mut b);

    let places = ops.tensor("batch.places", DType::U32, &[BATCH])?;
    let place = phonograph::graph::Expr::build(|e| e.output(e.index(0) + e.param(DType::U32)))?;
    ops.map_into("batch.places", place.into(), &[], &[Arg::Slot(start)], &[places])?;
    let chosen = ops.gather("batch.chosen", order, places)?;
    let clean = ops.gather("batch.pixels", pixels, chosen)?;
    // A little noise, drawn afresh by every replay, keeps the network from learning the digits by heart.
    let noise = ops.normal("noise", count, 3, &[BATCH, PIXELS as u64])?;
    let x =
        ops.map("batch.noisy", expr::binary(|e, x, n| x + n * e.f32(NOISE)), &[clean, noise], &[])?;
    let y = ops.gather("batch.labels", labels, chosen)?;

    let inner = ops.linear("hidden", x, w1, b1)?;
    let hidden = ops.relu("hidden.relu", inner)?;
    let logits = ops.linear("logits", hidden, w2, b2)?;
    let entropy = ops.cross_entropy("loss", logits, y)?;
    ops.map_into("loss.out", expr::identity(DType::F32), &[entropy.loss], &[], &[loss])?;

    let second = ops.linear_backward("d.logits", hidden, entropy.gradient)?;
    let d_hidden = ops.linear_backward_input("d.hidden", w2, entropy.gradient)?;
    let d_inner = ops.relu_backward("d.relu", inner, d_hidden)?;
    let first = ops.linear_backward("d.inner", x, d_inner)?;

    let adam = Adam::default();
    ops.advance("adam.step", count)?;
    let corrections = ops.adam_corrections("adam.corrections", adam, count)?;
    let gradients = [first.weights, first.bias, second.weights, second.bias];
    for (((name, _), state), gradient) in PARAMETERS.into_iter().zip(states).zip(gradients) {
        ops.adam(&format!("adam.{name}"), adam, state, gradient, corrections, Arg::Slot(rate))?;
    }
    Ok(Step { graph: b.build()?, start, rate, order: order.buffer, loss: loss.buffer })
}

/// Records the classification of `digits` digits into `guesses`, `[digits]` i32.
pub fn classification(digits: u64) -> Result<ComputeGraph, Box<dyn Error>> {
    let mut b = GraphBuilder::new().named("classification");
    let pixels = external(&mut b, "pixels", DType::F32, &[digits, PIXELS as u64])?;
    let guesses = external(&mut b, "guesses", DType::I32, &[digits])?;
    let [w1, b1, w2, b2] = parameters(&mut b)?;
    let mut ops = Ops::new(&mut b);
    let inner = ops.linear("hidden", pixels, w1, b1)?;
    let hidden = ops.relu("hidden.relu", inner)?;
    let logits = ops.linear("logits", hidden, w2, b2)?;
    let best = ops.argmax("best", logits, 1)?;
    ops.map_into("guesses", expr::identity(DType::I32), &[best], &[], &[guesses])?;
    Ok(b.build()?)
}

/// The buffer of this name.
pub fn buffer(graph: &ComputeGraph, name: &str) -> Result<BufferId, String> {
    let found = graph.buffers().iter().position(|buffer| *buffer.name == *name);
    found.map(BufferId::from_index).ok_or_else(|| format!("the graph has no buffer `{name}`"))
}
