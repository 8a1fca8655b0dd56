//! A tiny network as a module: the same eagerly and from a graph, and trained in a captured step.

use phonograph::kernels::expr;
use phonograph::prelude::*;

use crate::common::device;

const BATCH: u64 = 4;
const WIDTH: u64 = 8;

kernel! {
    /// Gradient of half the squared error.
    fn difference(y: &[f32], target: &[f32], gradient: out [f32]) |_e| { gradient = y - target; }
    /// One step of gradient descent.
    fn descend(rate: slot f32, gradient: &[f32], value: &mut [f32]) |_e| {
        value = value - rate * gradient;
    }
}

/// Two layers with a relu between: input buffer, weights, their gradients.
struct Tensors {
    x: Tensor<f32>,
    w1: Tensor<f32>,
    b1: Tensor<f32>,
    w2: Tensor<f32>,
    b2: Tensor<f32>,
    inner: Tensor<f32>,
    y: Tensor<f32>,
    dy: Tensor<f32>,
    dx: Tensor<f32>,
    dw1: Tensor<f32>,
    db1: Tensor<f32>,
    dw2: Tensor<f32>,
    db2: Tensor<f32>,
}

impl Tensors {
    fn new(stream: &Stream) -> Result<Self> {
        // Weights without randomness, of both signs and no symmetry.
        let weights = |count: u64, scale: f32| -> Vec<f32> {
            (0..count).map(|at| scale * ((at * 7 % 11) as f32 - 5.0)).collect()
        };
        let zeros = |extents: &[u64]| api::zeros::<f32>(extents).sync_on(stream);
        Ok(Self {
            x: zeros(&[BATCH, 2])?,
            w1: api::upload(weights(2 * WIDTH, 0.15), [2, WIDTH]).sync_on(stream)?,
            b1: zeros(&[WIDTH])?,
            w2: api::upload(weights(WIDTH, 0.1), [WIDTH, 1]).sync_on(stream)?,
            b2: zeros(&[1])?,
            inner: zeros(&[BATCH, WIDTH])?,
            y: zeros(&[BATCH, 1])?,
            dy: zeros(&[BATCH, 1])?,
            dx: zeros(&[BATCH, 2])?,
            dw1: zeros(&[2, WIDTH])?,
            db1: zeros(&[WIDTH])?,
            dw2: zeros(&[WIDTH, 1])?,
            db2: zeros(&[1])?,
        })
    }

    #[allow(clippy::implied_bounds_in_impls)] // `GraphNode<Output = ()>` is ambiguous: futures have an output too
    fn forward(&mut self) -> impl GraphNode + DeviceOp<Output = ()> {
        let Self { x, w1, b1, w2, b2, inner, y, .. } = self;
        let operands = (&*x, &*w1, &*b1, &*w2, &*b2, inner, y);
        let op = compose("forward", operands, |ops, [x, w1, b1, w2, b2, inner, y]| {
            let before = ops.linear("hidden", x, w1, b1)?;
            ops.map_into("inner", expr::identity(before.dtype), &[before], &[], &[inner])?;
            let hidden = ops.relu("relu", before)?;
            let out = ops.linear("out", hidden, w2, b2)?;
            ops.map_into("y", expr::identity(out.dtype), &[out], &[], &[y]).map(drop)
        });
        op.map(drop)
    }

    #[allow(clippy::implied_bounds_in_impls)] // as above
    fn backward(&mut self) -> impl GraphNode + DeviceOp<Output = ()> {
        let Self { x, w1, w2, inner, dy, dx, dw1, db1, dw2, db2, .. } = self;
        let operands = (&*x, &*w1, &*w2, &*inner, &*dy, dx, dw1, db1, dw2, db2);
        let op =
            compose("backward", operands, |ops, [x, w1, w2, inner, dy, dx, dw1, db1, dw2, db2]| {
                let hidden = ops.relu("relu", inner)?;
                let second = ops.linear_backward("second", hidden, dy)?;
                let dhidden = ops.linear_backward_input("dhidden", w2, dy)?;
                let dinner = ops.relu_backward("dinner", inner, dhidden)?;
                let first = ops.linear_backward("first", x, dinner)?;
                let input = ops.linear_backward_input("dx", w1, dinner)?;
                let pairs = [
                    (first.weights, dw1),
                    (first.bias, db1),
                    (second.weights, dw2),
                    (second.bias, db2),
                    (input, dx),
                ];
                for (from, to) in pairs {
                    ops.map_into("gradient", expr::identity(from.dtype), &[from], &[], &[to])?;
                }
                Ok(())
            });
        op.map(drop)
    }
}

/// The network, with a graph for each pass.
struct Mlp {
    tensors: Tensors,
    forward: CapturedGraph<()>,
    backward: CapturedGraph<()>,
}

impl Mlp {
    fn new(stream: &Stream) -> Result<Self> {
        let mut tensors = Tensors::new(stream)?;
        let forward = tensors.forward().graph_on(stream)?;
        let backward = tensors.backward().graph_on(stream)?;
        Ok(Self { tensors, forward, backward })
    }
}

impl Module for Mlp {
    type Input = Vec<f32>;
    type Output = Vec<f32>;

    fn forward(&mut self, input: Vec<f32>) -> Result<Vec<f32>> {
        self.forward.update(api::store(input, &mut self.tensors.x))?;
        self.forward.launch().sync_on(self.forward.stream())?;
        self.tensors.y.to_vec()
    }
}

impl Backward for Mlp {
    fn backward(&mut self, gradient: Vec<f32>) -> Result<Vec<f32>> {
        self.backward.update(api::store(gradient, &mut self.tensors.dy))?;
        self.backward.launch().sync_on(self.backward.stream())?;
        self.tensors.dx.to_vec()
    }
}

impl Parameterized for Mlp {
    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        let Tensors { w1, b1, w2, b2, dw1, db1, dw2, db2, .. } = &mut self.tensors;
        let named = [("w1", w1, dw1), ("b1", b1, db1), ("w2", w2, dw2), ("b2", b2, db2)];
        let all =
            named.map(|(name, value, gradient)| Parameter { name, value, gradient: &*gradient });
        all.into()
    }
}

/// Exclusive or, which needs the hidden layer.
const INPUT: [f32; 8] = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
const TARGET: [f32; 4] = [0.0, 1.0, 1.0, 0.0];

#[test]
fn a_module_gives_the_eager_result() {
    let device = device();
    let stream = device.stream(0);
    let mut module = Mlp::new(&stream).unwrap();
    let replayed = module.forward(INPUT.into()).unwrap();
    let mut tensors = Tensors::new(&stream).unwrap();
    api::store(INPUT, &mut tensors.x).sync_on(&stream).unwrap();
    tensors.forward().sync_on(&stream).unwrap();
    assert_eq!(replayed, tensors.y.to_vec().unwrap());
    assert!(replayed.iter().any(|y| *y != replayed[0]), "{replayed:?}");
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let device = device();
    let mut module = Mlp::new(&device.stream(0)).unwrap();
    // L = sum of the outputs; inputs off the kinks of relu.
    let input: Vec<f32> =
        INPUT.iter().enumerate().map(|(at, x)| x + 0.1 * at as f32 + 0.05).collect();
    module.forward(input.clone()).unwrap();
    let gradient = module.backward(vec![1.0; 4]).unwrap();
    // The network is piecewise linear, so a central difference within a piece is exact up to rounding: the outputs are below
    // 16, their sum is off by at most 8 units of 2^-20 or so, divided by the step.
    let step = 1.0 / 1024.0;
    let mut loss = |input: &[f32]| module.forward(input.to_vec()).unwrap().iter().sum::<f32>();
    for at in 0..input.len() {
        let [mut up, mut down] = [input.clone(), input.clone()];
        up[at] += step;
        down[at] -= step;
        let difference = (loss(&up) - loss(&down)) / (2.0 * step);
        assert!(
            (difference - gradient[at]).abs() < 8.0 * 2f32.powi(-20) / step,
            "{at}: {difference} {gradient:?}"
        );
    }
}

#[test]
fn a_captured_step_trains_it() {
    let device = device();
    let stream = device.stream(0);
    let mut module = Mlp::new(&stream).unwrap();
    let target = api::upload(TARGET, [BATCH, 1]).sync_on(&stream).unwrap();
    api::store(INPUT, &mut module.tensors.x).sync_on(&stream).unwrap();
    let rate = Slot::new("rate", 0.1f32);
    let step = CapturedGraph::scope(&stream, |s| {
        s.record(module.tensors.forward())?;
        let Tensors { y, dy, .. } = &mut module.tensors;
        s.record(difference(&*y, &target, dy))?;
        s.record(module.tensors.backward())?;
        for parameter in module.parameters() {
            s.record(descend(&rate, parameter.gradient, parameter.value))?;
        }
        Ok(())
    });
    let step = step.unwrap();
    let loss = |y: Vec<f32>| -> f32 { y.iter().zip(TARGET).map(|(y, t)| (y - t).powi(2)).sum() };
    let before = loss(module.forward(INPUT.into()).unwrap());
    for at in 0..2000u32 {
        step.launch().with(&rate, if at < 1000 { 0.1 } else { 0.03 }).sync_on(&stream).unwrap();
    }
    let after = loss(module.forward(INPUT.into()).unwrap());
    assert!(before > 0.5 && after < 0.01, "{before} → {after}");
}
