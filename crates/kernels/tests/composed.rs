//! Composed operations against formulas in f64 and against finite differences, through the reference evaluator.

#[path = "common/reference.rs"]
#[allow(dead_code)] // The evaluator serves several test targets; each uses a part of it.
mod reference;

use phonograph_graph::{Arg, ComputeGraph, DType, Expr, GraphBuilder, Scalar, UnaryOp, View};
use phonograph_kernels::{Adam, AdamState, LinearGrads, Ops};
use reference::{Functions, Machine};

fn function(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not => panic!("not a function of libraries"),
    }
}

fn machine(graph: &ComputeGraph) -> Machine {
    let functions = Functions { f32: |op, x| function(op, x.into()) as f32, f64: function };
    Machine::new(graph, functions)
}

fn input(b: &mut GraphBuilder, name: &str, dtype: DType, extents: &[u64]) -> View {
    let bytes = extents.iter().product::<u64>() * dtype.size();
    View::contiguous(b.external_buffer(name, bytes as usize), dtype, extents).unwrap()
}

fn floats(b: &mut GraphBuilder, name: &str, extents: &[u64]) -> View {
    input(b, name, DType::F32, extents)
}

/// Values that look random and differ by `seed`.
fn wave(elements: u64, seed: f64) -> Vec<f64> {
    (0..elements).map(|i| ((i as f64 * 12.9898 + seed * 78.233).sin() * 3.0).sin() * 1.5).collect()
}

fn fill(machine: &mut Machine, view: View, values: &[f64]) {
    let shape = view.shape();
    for (at, &value) in reference::positions(shape.extents()).zip(values) {
        let scalar = match view.dtype {
            DType::F32 => Scalar::F32(value as f32),
            DType::I32 => Scalar::I32(value as i32),
            _ => Scalar::U32(value as u32),
        };
        machine.set(&view, &at, scalar);
    }
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= tolerance * e.abs().max(1.0), "element {i}: {f}, not {e}");
    }
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    row.iter().map(|x| (x - max).exp() / sum).collect()
}

#[test]
fn softmax_is_the_formula_also_for_large_values() {
    let mut b = GraphBuilder::new();
    let x = floats(&mut b, "x", &[5, 7]);
    let mut ops = Ops::new(&mut b);
    let (p, log) = (ops.softmax("p", x).unwrap(), ops.log_softmax("log", x).unwrap());
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    let values: Vec<f64> = wave(35, 1.0).iter().map(|v| v * 200.0).collect();
    fill(&mut machine, x, &values);
    machine.run(&graph);
    let rows = machine.numbers(&x);
    let expected: Vec<f64> = rows.chunks(7).flat_map(softmax).collect();
    close(&machine.numbers(&p), &expected, 1e-5);
    let logs: Vec<f64> = rows
        .chunks(7)
        .flat_map(|row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            row.iter().map(move |x| x - max - sum.ln()).collect::<Vec<_>>()
        })
        .collect();
    close(&machine.numbers(&log), &logs, 1e-5);
}

/// The gradient of `loss` (of all inputs) with respect to each element of `values`, by central differences.
fn differences(values: &[f64], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    (0..values.len())
        .map(|i| {
            let moved = |by: f64| {
                let mut moved = values.to_vec();
                moved[i] += by;
                loss(&moved)
            };
            (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
        })
        .collect()
}

#[test]
fn cross_entropy_and_its_gradient() {
    let (n, classes) = (6usize, 4usize);
    let mut b = GraphBuilder::new();
    let logits = floats(&mut b, "logits", &[n as u64, classes as u64]);
    let labels = input(&mut b, "labels", DType::I32, &[n as u64]);
    let entropy = Ops::new(&mut b).cross_entropy("loss", logits, labels).unwrap();
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    let chosen: Vec<f64> = (0..n).map(|i| (i * 7 % classes) as f64).collect();
    fill(&mut machine, logits, &wave((n * classes) as u64, 2.0));
    fill(&mut machine, labels, &chosen);
    machine.run(&graph);
    let values = machine.numbers(&logits);
    let loss = |values: &[f64]| {
        let rows = values.chunks(classes).zip(&chosen);
        rows.map(|(row, &label)| -softmax(row)[label as usize].ln()).sum::<f64>() / n as f64
    };
    close(&machine.numbers(&entropy.loss), &[loss(&values)], 1e-5);
    close(&machine.numbers(&entropy.gradient), &differences(&values, loss), 1e-5);
}

#[test]
fn linear_layers_and_relu_have_the_gradients_of_their_formulas() {
    let (n, inputs, outputs) = (3usize, 5usize, 4usize);
    let mut b = GraphBuilder::new();
    let x = floats(&mut b, "x", &[n as u64, inputs as u64]);
    let w = floats(&mut b, "w", &[inputs as u64, outputs as u64]);
    let bias = floats(&mut b, "bias", &[outputs as u64]);
    let weight = floats(&mut b, "weight", &[n as u64, outputs as u64]);
    let mut ops = Ops::new(&mut b);
    let y = ops.linear("y", x, w, bias).unwrap();
    let out = ops.relu("out", y).unwrap();
    // The loss is the sum of weight · relu(x w + bias).
    let dy = ops.relu_backward("dy", y, weight).unwrap();
    let LinearGrads { weights: dw, bias: db } = ops.linear_backward("dw", x, dy).unwrap();
    let dx = ops.linear_backward_input("dx", w, dy).unwrap();
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    for (view, seed) in [(x, 1.0), (w, 2.0), (bias, 3.0), (weight, 4.0)] {
        fill(&mut machine, view, &wave(view.elements(), seed));
    }
    machine.run(&graph);
    let [xs, ws, bs, cs] = [x, w, bias, weight].map(|view| machine.numbers(&view));
    let forward = |xs: &[f64], ws: &[f64], bs: &[f64]| -> Vec<f64> {
        (0..n * outputs)
            .map(|i| {
                let (row, column) = (i / outputs, i % outputs);
                let product = |k: usize| xs[row * inputs + k] * ws[k * outputs + column];
                ((0..inputs).map(product).sum::<f64>() + bs[column]).max(0.0)
            })
            .collect()
    };
    let loss = |xs: &[f64], ws: &[f64], bs: &[f64]| -> f64 {
        forward(xs, ws, bs).iter().zip(&cs).map(|(y, c)| y * c).sum()
    };
    close(&machine.numbers(&out), &forward(&xs, &ws, &bs), 1e-5);
    close(&machine.numbers(&dx), &differences(&xs, |xs| loss(xs, &ws, &bs)), 1e-4);
    close(&machine.numbers(&dw), &differences(&ws, |ws| loss(&xs, ws, &bs)), 1e-4);
    close(&machine.numbers(&db), &differences(&bs, |bs| loss(&xs, &ws, bs)), 1e-4);
}

#[test]
fn layer_norm_forward_and_backward() {
    let (n, features, epsilon) = (3usize, 6usize, 1e-5f32);
    let extents = [n as u64, features as u64];
    let mut b = GraphBuilder::new();
    let x = floats(&mut b, "x", &extents);
    let gain = floats(&mut b, "gain", &extents[1..]);
    let bias = floats(&mut b, "bias", &extents[1..]);
    let dy = floats(&mut b, "dy", &extents);
    let mut ops = Ops::new(&mut b);
    let norm = ops.layer_norm("norm", x, gain, bias, epsilon).unwrap();
    let grads = ops.layer_norm_backward("back", &norm, gain, dy).unwrap();
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    for (view, seed) in [(x, 1.0), (gain, 2.0), (bias, 3.0), (dy, 4.0)] {
        fill(&mut machine, view, &wave(view.elements(), seed));
    }
    machine.run(&graph);
    let [xs, gs, bs, ds] = [x, gain, bias, dy].map(|view| machine.numbers(&view));
    let forward = |xs: &[f64], gs: &[f64], bs: &[f64]| -> Vec<f64> {
        xs.chunks(features)
            .flat_map(|row| {
                let mean = row.iter().sum::<f64>() / features as f64;
                let variance =
                    row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / features as f64;
                let deviation = (variance + f64::from(epsilon)).sqrt();
                let place = |(i, x): (usize, &f64)| (x - mean) / deviation * gs[i] + bs[i];
                row.iter().enumerate().map(place).collect::<Vec<_>>()
            })
            .collect()
    };
    let loss = |xs: &[f64], gs: &[f64], bs: &[f64]| -> f64 {
        forward(xs, gs, bs).iter().zip(&ds).map(|(y, d)| y * d).sum()
    };
    close(&machine.numbers(&norm.output), &forward(&xs, &gs, &bs), 1e-5);
    close(&machine.numbers(&grads.input), &differences(&xs, |xs| loss(xs, &gs, &bs)), 1e-4);
    close(&machine.numbers(&grads.gain), &differences(&gs, |gs| loss(&xs, gs, &bs)), 1e-4);
    close(&machine.numbers(&grads.bias), &differences(&bs, |bs| loss(&xs, &gs, bs)), 1e-4);
}

#[test]
fn adam_counts_its_steps_on_the_device() {
    let mut b = GraphBuilder::new();
    let [p, g, m, v] = ["p", "g", "m", "v"].map(|name| floats(&mut b, name, &[4]));
    let count = input(&mut b, "count", DType::U32, &[1]);
    let rate = b.slot("rate", 0.1f32);
    let adam = Adam::default();
    let mut ops = Ops::new(&mut b);
    ops.advance("step", count).unwrap();
    let corrections = ops.adam_corrections("corrections", adam, count).unwrap();
    let state = AdamState { parameter: p, m, v };
    ops.adam("adam", adam, state, g, corrections, Arg::Slot(rate)).unwrap();
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    fill(&mut machine, p, &wave(4, 1.0));
    let mut expected: Vec<[f64; 3]> = machine.numbers(&p).iter().map(|&p| [p, 0.0, 0.0]).collect();
    let (b1, b2) = (f64::from(adam.beta1), f64::from(adam.beta2));
    for step in 1..=5 {
        fill(&mut machine, g, &wave(4, 10.0 + f64::from(step)));
        machine.run(&graph);
        for ([p, m, v], g) in expected.iter_mut().zip(machine.numbers(&g)) {
            *m = b1 * *m + (1.0 - b1) * g;
            *v = b2 * *v + (1.0 - b2) * g * g;
            let (mean, square) = (*m / (1.0 - b1.powi(step)), *v / (1.0 - b2.powi(step)));
            *p -= 0.1 * mean / (square.sqrt() + f64::from(adam.epsilon));
        }
        let parameters: Vec<f64> = expected.iter().map(|[p, ..]| *p).collect();
        close(&machine.numbers(&p), &parameters, 2e-4);
    }
    assert_eq!(machine.numbers(&count), [5.0]);
}

#[test]
fn gradient_descent_is_the_formula_and_rounding_that_of_the_type() {
    let mut b = GraphBuilder::new();
    let p = floats(&mut b, "p", &[2, 3]);
    let g = floats(&mut b, "g", &[3]); // the same for both rows
    let rate = b.slot("rate", 0.25f32);
    let half = Expr::build(|e| e.output(e.input(DType::F32).round_to(DType::F16)));
    let mut ops = Ops::new(&mut b);
    ops.sgd("sgd", p, g, Arg::Slot(rate)).unwrap();
    let rounded = ops.map("half", half.unwrap().into(), &[p], &[]).unwrap();
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    fill(&mut machine, p, &[1.0, 2048.5, -3.0, 0.1, 65520.0, 0.0]);
    fill(&mut machine, g, &[4.0, 2.0, 0.0]);
    machine.run(&graph);
    let expected = [0.0, 2048.0, -3.0, -0.9, 65519.5, 0.0];
    close(&machine.numbers(&p), &expected, 1e-7);
    // Half precision has 11 bits, and 65520 is the first that it rounds to infinity.
    assert_eq!(machine.numbers(&rounded), [0.0, 2048.0, -3.0, -0.89990234375, 65504.0, 0.0]);
}

#[test]
fn random_numbers_are_spread_and_drawn_afresh() {
    let mut b = GraphBuilder::new();
    let count = input(&mut b, "count", DType::U32, &[1]);
    let mut ops = Ops::new(&mut b);
    let uniform = ops.uniform("uniform", count, 7, &[50, 80]).unwrap();
    let normal = ops.normal("normal", count, 7, &[50, 80]).unwrap();
    ops.advance("advance", count).unwrap();
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, square)
    };
    let mut seen = Vec::new();
    for _ in 0..2 {
        machine.run(&graph);
        let (flat, bell) = (machine.numbers(&uniform), machine.numbers(&normal));
        assert!(flat.iter().all(|v| (0.0..1.0).contains(v)));
        // Four standard errors of 4,000 draws.
        let (mean, square) = moments(&flat);
        assert!(
            (mean - 0.5).abs() < 0.019 && (square - 1.0 / 12.0).abs() < 0.005,
            "{mean} {square}"
        );
        let (mean, square) = moments(&bell);
        assert!(mean.abs() < 0.064 && (square - 1.0).abs() < 0.09, "{mean} {square}");
        seen.push(flat);
    }
    assert_ne!(seen[0], seen[1], "a replay draws afresh");
}

#[test]
fn rows_are_gathered_and_summed() {
    let mut b = GraphBuilder::new();
    let table = floats(&mut b, "table", &[5, 3]);
    let rows = input(&mut b, "rows", DType::I32, &[4]);
    let sums = floats(&mut b, "sums", &[5, 3]);
    let mut ops = Ops::new(&mut b);
    let picked = ops.gather("picked", table, rows).unwrap();
    ops.scatter_add("sums", picked, rows, sums).unwrap();
    let largest = ops.argmax("largest", table, 1).unwrap();
    let counted = ops.iota("iota", DType::I32, &[2, 3], 1).unwrap();
    let graph = b.build().unwrap();
    let mut machine = machine(&graph);
    fill(&mut machine, table, &wave(15, 1.0));
    fill(&mut machine, rows, &[4.0, 1.0, 4.0, 0.0]);
    machine.run(&graph);
    let all = machine.numbers(&table);
    let row = |i: usize| &all[i * 3..i * 3 + 3];
    let expected: Vec<f64> = [4, 1, 4, 0].iter().flat_map(|&i| row(i).to_vec()).collect();
    close(&machine.numbers(&picked), &expected, 0.0);
    let times = [1.0, 1.0, 0.0, 0.0, 2.0];
    let expected: Vec<f64> =
        (0..5).flat_map(|i| row(i).iter().map(move |v| v * times[i]).collect::<Vec<_>>()).collect();
    close(&machine.numbers(&sums), &expected, 1e-6);
    let expected: Vec<f64> = (0..5)
        .map(|i| {
            let best = row(i).iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row(i).iter().position(|&v| v == best).unwrap() as f64
        })
        .collect();
    close(&machine.numbers(&largest), &expected, 0.0);
    close(&machine.numbers(&counted), &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0], 0.0);
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let mut b = GraphBuilder::new();
    let x = floats(&mut b, "x", &[4, 5]);
    let y = floats(&mut b, "y", &[4]);
    let mut ops = Ops::new(&mut b);
    assert_eq!(
        ops.add("sum", x, y).unwrap_err().to_string(),
        "sum: shape [4, 5] cannot be broadcast to [4]"
    );
    let product = ops.matmul("product", x, x).unwrap_err().to_string();
    assert_eq!(product, "product: operand 1 has shape [4, 5], not [5, 5]");
    assert!(
        ops.cross_entropy("loss", x, y).unwrap_err().to_string().contains("labels of type f32")
    );
    assert!(ops.softmax("p", y).unwrap_err().to_string().contains("needs two axes"));
}
