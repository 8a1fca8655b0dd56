//! Kernels of the library with expressions at their ends, against their parts one after the other.

use phonograph_graph::{
    Arg, DType, Expr, FusedKernel, GraphBuilder, LibraryKernel, ReduceOp, Scalar, View,
};

use super::reference::positions;
use super::*;

/// A reduction or product with work before and after it gives the bits of the three kernels one after the other,
/// however their operands lie.
#[test]
fn fused_kernels_give_the_bits_of_their_parts() {
    arbtest::arbtest(|u| {
        let product = u.ratio(1, 3)?;
        let (rank, long) = (u.int_in_range(1..=3)?, u.ratio(1, 10)?);
        let mut shape = extents(u, if product { 2 } else { rank }, 200)?;
        if long && !product {
            *shape.last_mut().unwrap() = u.int_in_range(900..=40_000)?;
            let last = shape.len() - 1;
            shape[..last].iter_mut().for_each(|e| *e = (*e).min(2));
        }
        let axis = u.choose_index(shape.len())?;
        let op = *u.choose(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax])?;
        if shape[axis] == 0 && op != ReduceOp::Sum {
            return Ok(());
        }
        let (with_before, with_after) = match product {
            true => (false, true),
            false => *u.choose(&[(true, true), (true, false), (false, true)])?,
        };
        let dtype = if !product && op == ReduceOp::ArgMax { DType::I32 } else { DType::F32 };
        let mut result_shape = shape.clone();
        let library = match product {
            true => {
                result_shape[1] = u.int_in_range(1..=9)?;
                LibraryKernel::MatMul
            }
            false => {
                result_shape.remove(axis);
                LibraryKernel::Reduce { op, axis: axis as u8 }
            }
        };

        let mut b = GraphBuilder::new();
        let mut contents = Vec::new();
        let mut operand = |b: &mut GraphBuilder, u: &mut Unstructured, dtype, shape, repeats| {
            any_operand(b, &mut contents, u, dtype, shape, repeats)
        };
        let x = operand(&mut b, u, DType::F32, &shape, true)?;
        let y = operand(&mut b, u, DType::F16, &shape, true)?;
        let kept = operand(&mut b, u, DType::BF16, &shape, false)?;
        let weights = if product { [shape[1], result_shape[1]] } else { [1, 1] };
        let weights = operand(&mut b, u, DType::F32, &weights, false)?;
        let bias = operand(&mut b, u, DType::F32, &result_shape, true)?;
        let in_place: bool = u.arbitrary()?;
        let out = operand(&mut b, u, DType::F32, &result_shape, false)?;
        let plain_out = operand(&mut b, u, dtype, &result_shape, false)?;
        let bias = if in_place { out } else { bias };
        let packed =
            |b: &mut GraphBuilder, contents: &mut Vec<Vec<u8>>, dtype: DType, shape: &[u64]| {
                let bytes = (shape.iter().product::<u64>() * dtype.size()) as usize;
                contents.push(vec![0; bytes]);
                View::contiguous(b.external_buffer("", bytes), dtype, shape).unwrap()
            };
        let elements = packed(&mut b, &mut contents, DType::F32, &shape);
        let result = packed(&mut b, &mut contents, dtype, &result_shape);

        let before = Expr::build(|e| {
            let (x, y) = (e.input(DType::F32), e.input(DType::F16));
            let scaled = x * e.param(DType::F32) + y;
            e.output(scaled * e.index(0).cast(DType::F32));
            e.output_as(scaled, DType::BF16);
        })
        .unwrap();
        let after = Expr::build(|e| {
            let (r, bias) = (e.input(dtype).cast(DType::F32), e.input(DType::F32));
            e.output((r - bias * e.param(DType::F32)).tanh());
        })
        .unwrap();
        let scalar = |v: f32| Arg::Scalar(Scalar::F32(v));

        // The parts, one after the other.
        let (mut reads, mut writes, mut scalars) = (Vec::new(), Vec::new(), Vec::new());
        let mut parts = Vec::new();
        let input = if with_before { elements } else { x };
        if with_before {
            let inputs = [x, y];
            parts.push(b.add_elementwise(
                "",
                before.clone().into(),
                &inputs,
                &[scalar(0.5)],
                &[elements, kept],
            ));
            reads.extend(inputs);
            writes.push(kept);
            scalars.push(scalar(0.5));
        } else {
            reads.push(x);
        }
        let of_library = if with_after { result } else { plain_out };
        let operands =
            if product { vec![input, weights, of_library] } else { vec![input, of_library] };
        reads.extend(product.then_some(weights));
        parts.push(b.add_library("", library, &operands));
        if with_after {
            parts.push(b.add_elementwise(
                "",
                after.clone().into(),
                &[result, bias],
                &[scalar(2.0)],
                &[out],
            ));
            reads.push(bias);
            writes.push(out);
            scalars.push(scalar(2.0));
        } else {
            writes.push(plain_out);
        }
        let fused = FusedKernel {
            library,
            before: with_before.then_some(before),
            after: with_after.then_some(after),
        };
        let whole = b.add_fused("", fused.into(), &[reads, writes].concat(), &scalars);
        let graph = b.build().unwrap();
        let actual = run_in_every_order(&graph, whole, &contents);
        let mut expected = Machine::new(&graph, functions());
        expected.buffers = contents;
        for part in parts {
            expected = run_in_every_order(&graph, part, &expected.buffers);
        }
        for view in [kept, out, plain_out] {
            let shape = view.shape();
            for at in positions(shape.extents()) {
                let (a, e) = (actual.get(&view, &at), expected.get(&view, &at));
                assert!(same(a, e), "{a} instead of {e} at {at:?} of {view:?} in {graph:?}");
            }
        }
        Ok(())
    })
    .budget_ms(1500);
}
