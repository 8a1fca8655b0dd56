//! Conditionals, which decide by a value in device memory, against the CPU backend.

use phonograph_graph::{BufferId, Condition, ConditionalKind, DType, Expr, GraphBuilder, View};

use crate::case::{Case, add_one, check, cuda, view};

/// A graph whose node `kind` of `bodies` bodies decides by a value of `dtype`; body `i` adds 10^i.
fn deciding(kind: ConditionalKind, bodies: usize, dtype: DType) -> (GraphBuilder, BufferId) {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4);
    let which = b.external_buffer("which", dtype.size() as usize);
    let (xv, value) = (view(x, &[]), View::contiguous(which, dtype, &[]).unwrap());
    let bodies = (0..bodies).map(|i| {
        let mut body = GraphBuilder::new();
        let inside = body.outer_view(&b, xv);
        let by = 10f32.powi(i as i32);
        let add = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(by))).unwrap();
        body.add_elementwise("add", add.into(), &[inside], &[], &[inside]);
        if kind == ConditionalKind::While {
            let count = body.outer_view(&b, value);
            let less = Expr::build(|e| {
                let x = e.input(dtype);
                let one = match dtype {
                    DType::I32 => e.constant(1i32),
                    _ => e.constant(1u32),
                };
                e.output_as(x - one, dtype);
            });
            body.add_elementwise("count", less.unwrap().into(), &[count], &[], &[count]);
        }
        body.build().unwrap()
    });
    let bodies = bodies.collect();
    b.add_conditional("decide", kind, Condition::Value(value), bodies);
    (b, which)
}

#[test]
fn conditionals_decide_by_a_value_in_device_memory() {
    let Some(mut cuda) = cuda() else { return };
    use ConditionalKind::*;
    let bytes = |dtype: DType, value: i32| value.to_le_bytes()[..dtype.size() as usize].to_vec();
    for (kind, count, values) in [
        (If, 1, [0, 1, 7].as_slice()),
        (If, 2, &[0, 1]),
        (Switch, 3, &[0, 1, 2, 3, 200]),
        (While, 1, &[0, 1, 5]),
    ] {
        for dtype in [DType::I32, DType::U32, DType::U8, DType::Bool] {
            if (kind, dtype) == (While, DType::Bool) {
                continue; // Nothing can be subtracted from a bool.
            }
            for &value in values {
                let (b, which) = deciding(kind, count, dtype);
                let case = Case::new(b.build().unwrap()).with(which, &bytes(dtype, value));
                check(&mut cuda, &case);
            }
        }
    }
    let (b, which) = deciding(Switch, 2, DType::I32);
    check(&mut cuda, &Case::new(b.build().unwrap()).with(which, &[-1i32]));
}

#[test]
fn conditionals_nest_and_lie_in_children() {
    let Some(mut cuda) = cuda() else { return };
    // for (i = 3; i != 0; i--) if (flag) x += 1, all of it inside a child.
    let mut b = GraphBuilder::new();
    let (x, i, flag) =
        (b.external_buffer("x", 4), b.external_buffer("i", 4), b.external_buffer("flag", 1));
    let one = |buffer, dtype| View::contiguous(buffer, dtype, &[]).unwrap();
    let mut child = GraphBuilder::new();
    let iv = child.outer_view(&b, one(i, DType::I32));
    let (xv, fv) =
        (child.outer_view(&b, one(x, DType::F32)), child.outer_view(&b, one(flag, DType::Bool)));
    let mut body = GraphBuilder::new();
    let (bx, bi, bf) =
        (body.outer_view(&child, xv), body.outer_view(&child, iv), body.outer_view(&child, fv));
    let mut branch = GraphBuilder::new();
    let inside = branch.outer_view(&body, bx);
    branch.add_elementwise("plus", add_one(), &[inside], &[], &[inside]);
    let branch = vec![branch.build().unwrap()];
    body.add_conditional("if", ConditionalKind::If, Condition::Value(bf), branch);
    let less = Expr::build(|e| e.output(e.input(DType::I32) - e.constant(1i32))).unwrap();
    body.add_elementwise("count", less.into(), &[bi], &[], &[bi]);
    let body = vec![body.build().unwrap()];
    child.add_conditional("while", ConditionalKind::While, Condition::Value(iv), body);
    b.add_child("child", child.build().unwrap());
    let case = Case::new(b.build().unwrap()).with(i, &[3i32]).with(flag, &[1u8]);
    check(&mut cuda, &case);
}
