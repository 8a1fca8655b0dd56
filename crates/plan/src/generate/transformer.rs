//! The forward pass of a transformer (pre-norm, causal, learned positions), operation by operation, cut off after so
//! many nodes: token gather, then layers of attention and a two-layer perceptron, each weight and activation a buffer or a
//! part of one. The seed chooses the sizes.

use std::sync::Arc;

use phonograph_graph::{
    ComputeGraph, DType, Expr, ExprBuilder, GraphBuilder, LibraryKernel, ReduceOp, Shape, Value,
    View,
};

use super::{GenerateError, Random};

/// Extents of the model.
struct Sizes {
    tokens: u64,
    features: u64,
    heads: u64,
}

pub(super) fn transformer(nodes: u32, mut random: Random) -> Result<ComputeGraph, GenerateError> {
    let sizes = Sizes {
        tokens: 16 << random.below(3),
        features: 32 << random.below(3),
        heads: 2 << random.below(2),
    };
    let mut pass = Pass { builder: GraphBuilder::new().named("transformer"), left: nodes };
    pass.record(&sizes)?;
    Ok(pass.builder.build()?)
}

/// Records operations until the nodes are used up; from then on nothing is recorded, and what would be read later is a
/// tensor that nothing fills.
struct Pass {
    builder: GraphBuilder,
    left: u32,
}

type Made = Result<View, GenerateError>;

impl Pass {
    fn record(&mut self, sizes: &Sizes) -> Result<(), GenerateError> {
        let &Sizes { tokens, features, .. } = sizes;
        const VOCABULARY: u64 = 256;
        let table = self.weights("embedding", &[&[VOCABULARY, features], &[tokens, features]])?;
        let ids = self.builder.external_buffer("tokens", (tokens * 4) as usize);
        let ids = View::contiguous(ids, DType::I32, &[tokens])?;
        let embedded = self.tensor("embedded", &[tokens, features])?;
        self.library("gather", LibraryKernel::Gather, &[table[0], ids, embedded]);
        let mut x = self.map("position", sum(), &[embedded, table[1]])?;
        let mut layer = 0;
        while self.left > 0 {
            x = self.layer(&format!("layer{layer}"), x, sizes)?;
            layer += 1;
        }
        Ok(())
    }

    fn layer(&mut self, layer: &str, x: View, sizes: &Sizes) -> Made {
        let &Sizes { tokens, features, heads } = sizes;
        let (head, hidden) = (features / heads, 4 * features);
        let shapes: [&[u64]; 8] = [
            &[2, features],
            &[features, features],
            &[features, features],
            &[features, features],
            &[features, features],
            &[2, features],
            &[features, hidden],
            &[hidden, features],
        ];
        let weights = self.weights(&format!("{layer}.weights"), &shapes)?;
        let name = |what: &str| format!("{layer}.{what}");
        let normed = self.norm(&name("norm1"), x, weights[0])?;
        // [tokens, features] as [heads, tokens, head].
        let split =
            |view: View| -> Made { Ok(view.reshape(&[tokens, heads, head])?.transpose(0, 1)?) };
        let query = split(self.matmul(&name("query"), normed, weights[1])?)?;
        let key = split(self.matmul(&name("key"), normed, weights[2])?)?;
        let value = split(self.matmul(&name("value"), normed, weights[3])?)?;
        let scores = self.matmul(&name("scores"), query, key.transpose(1, 2)?)?;
        let masked = self.map(&name("mask"), causal(head), &[scores])?;
        let shares = self.softmax(&name("softmax"), masked)?;
        let mixed = self.matmul(&name("mix"), shares, value)?;
        let joined = self.tensor(&name("heads"), &[tokens, features])?;
        self.map_into(&name("join"), copy(), &[mixed], split(joined)?)?;
        let out = self.matmul(&name("out"), joined, weights[4])?;
        let x = self.map(&name("residual1"), sum(), &[x, out])?;
        let normed = self.norm(&name("norm2"), x, weights[5])?;
        let up = self.matmul(&name("up"), normed, weights[6])?;
        let active = self.map(&name("gelu"), gelu(), &[up])?;
        let down = self.matmul(&name("down"), active, weights[7])?;
        self.map(&name("residual2"), sum(), &[x, down])
    }

    /// Layer norm over the last of two axes; `scale` holds gain and bias.
    fn norm(&mut self, name: &str, x: View, scale: View) -> Made {
        let step = |what: &str| format!("{name}.{what}");
        let features = x.shape().extents()[1];
        let total = self.reduce(&step("sum"), ReduceOp::Sum, x)?;
        let centred = self.map(&step("centre"), centre(features), &[x, total])?;
        let squares = self.map(&step("square"), square(), &[centred])?;
        let spread = self.reduce(&step("spread"), ReduceOp::Sum, squares)?;
        let (gain, bias) = (scale.slice(0, 0, 1)?, scale.slice(0, 1, 1)?);
        self.map(&step("scale"), normalise(features), &[centred, spread, gain, bias])
    }

    /// Softmax over the last axis.
    fn softmax(&mut self, name: &str, x: View) -> Made {
        let step = |what: &str| format!("{name}.{what}");
        let most = self.reduce(&step("max"), ReduceOp::Max, x)?;
        let powers = self.map(&step("exp"), exp_of_difference(), &[x, most])?;
        let total = self.reduce(&step("sum"), ReduceOp::Sum, powers)?;
        self.map(&step("divide"), quotient(), &[powers, total])
    }

    /// The user's tensors of these shapes, one after another in one buffer.
    fn weights(&mut self, name: &str, shapes: &[&[u64]]) -> Result<Vec<View>, GenerateError> {
        let lengths = shapes.iter().map(|shape| Ok(Shape::new(shape)?.elements() * 4));
        let lengths: Vec<u64> = lengths.collect::<Result<_, GenerateError>>()?;
        let buffer = self.builder.external_buffer(name, lengths.iter().sum::<u64>() as usize);
        let mut offset = 0;
        let mut views = Vec::with_capacity(shapes.len());
        for (shape, bytes) in shapes.iter().zip(lengths) {
            let mut view = View::contiguous(buffer, DType::F32, shape)?;
            view.offset = offset;
            views.push(view);
            offset += bytes;
        }
        Ok(views)
    }

    fn tensor(&mut self, name: &str, extents: &[u64]) -> Made {
        let bytes = Shape::new(extents)?.elements() * 4;
        let buffer = match self.left {
            // The last node's result is the user's, or all would be for nothing.
            1 => self.builder.external_buffer(name, bytes as usize),
            _ => self.builder.alloc_buffer(name, bytes as usize),
        };
        Ok(View::contiguous(buffer, DType::F32, extents)?)
    }

    /// Counts a node; whether it is still to be recorded.
    fn take(&mut self) -> bool {
        let taken = self.left > 0;
        self.left -= u32::from(taken);
        taken
    }

    fn library(&mut self, name: &str, kernel: LibraryKernel, operands: &[View]) {
        if self.take() {
            self.builder.add_library(name, kernel, operands);
        }
    }

    /// Reduces the last axis and keeps it with an extent of 1.
    fn reduce(&mut self, name: &str, op: ReduceOp, x: View) -> Made {
        let shape = x.shape();
        let axis = shape.rank() - 1;
        let out = self.tensor(name, &shape.extents()[..axis])?;
        self.library(name, LibraryKernel::Reduce { op, axis: axis as u8 }, &[x, out]);
        Ok(out.unsqueeze(axis)?)
    }

    fn matmul(&mut self, name: &str, a: View, b: View) -> Made {
        let mut extents = a.shape().extents().to_vec();
        let last = extents.len() - 1;
        extents[last] = b.shape().extents()[last];
        let out = self.tensor(name, &extents)?;
        self.library(name, LibraryKernel::MatMul, &[a, b, out]);
        Ok(out)
    }

    /// An elementwise operation of the first input's shape.
    fn map(&mut self, name: &str, expr: Arc<Expr>, inputs: &[View]) -> Made {
        let out = self.tensor(name, inputs[0].shape().extents())?;
        self.map_into(name, expr, inputs, out)?;
        Ok(out)
    }

    fn map_into(
        &mut self,
        name: &str,
        expr: Arc<Expr>,
        inputs: &[View],
        out: View,
    ) -> Result<(), GenerateError> {
        let wide = inputs.iter().map(|view| view.broadcast_to(out.shape()));
        let wide = wide.collect::<Result<Vec<View>, _>>()?;
        if self.take() {
            self.builder.add_elementwise(name, expr, &wide, &[], &[out]);
        }
        Ok(())
    }
}

/// An expression whose inputs and output are f32.
fn expr<const N: usize>(
    body: impl for<'e> FnOnce(&'e ExprBuilder, [Value<'e>; N]) -> Value<'e>,
) -> Arc<Expr> {
    let built = Expr::build(|e| {
        let inputs = std::array::from_fn(|_| e.input(DType::F32));
        e.output(body(e, inputs));
    });
    Arc::new(
        built.expect("the expressions of this file are well typed, and a test builds them all"),
    )
}

fn sum() -> Arc<Expr> {
    expr(|_, [x, y]| x + y)
}

fn copy() -> Arc<Expr> {
    expr(|_, [x]| x)
}

fn square() -> Arc<Expr> {
    expr(|_, [x]| x * x)
}

fn quotient() -> Arc<Expr> {
    expr(|_, [x, y]| x / y)
}

fn exp_of_difference() -> Arc<Expr> {
    expr(|_, [x, y]| (x - y).exp())
}

/// A row less its mean; the second input is its sum.
fn centre(features: u64) -> Arc<Expr> {
    expr(|e, [x, total]| x - total * e.f32(1.0 / features as f32))
}

/// Over the deviation, scaled and shifted; the second input is the sum of the row's squares.
fn normalise(features: u64) -> Arc<Expr> {
    expr(|e, [x, spread, gain, bias]| {
        let variance = spread * e.f32(1.0 / features as f32);
        x / (variance + e.f32(1e-5)).sqrt() * gain + bias
    })
}

/// Scores over the root of the head's extent; of later tokens nearly minus infinity.
fn causal(head: u64) -> Arc<Expr> {
    expr(|e, [score]| {
        let scaled = score * e.f32(1.0 / (head as f32).sqrt());
        e.index(2).less_equal(e.index(1)).select(scaled, e.f32(-1e9))
    })
}

fn gelu() -> Arc<Expr> {
    expr(|e, [x]| {
        let share = (x * e.f32(std::f32::consts::FRAC_1_SQRT_2)).erf() + e.f32(1.0);
        x * share * e.f32(0.5)
    })
}
