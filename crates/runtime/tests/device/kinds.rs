//! What is more than one kernel: scalars that are set before a replay, graphs inside, conditionals. Each runs at once, and is
//! recorded.

use phonograph_graph::{
    Access, Arg, BufferId, Condition, ConditionalKind, ConditionalNode, DType, Expr, GraphBuilder,
    KernelConfig, KernelNode, KernelRef, NodeKind, SlotId, View,
};
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::{Backend, Buffer, Device, Operation, Slot, Stream};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{LEN, OWNER, bytes, capture, filled, id, plus, value};

in_every_mode!(
    a_slot_has_its_default_until_it_is_set_and_each_launch_the_value_it_was_submitted_with,
    one_slot_serves_every_node_that_names_it,
    a_slot_is_set_to_a_value_of_its_type_and_only_where_it_is_used,
    a_graph_inside_is_run_and_recorded_as_one_operation,
    a_conditional_decides_anew_in_each_replay,
    the_same_work_on_other_buffers_is_not_prepared_again_where_it_lies_the_same,
    case_39_what_is_made_ready_for_eager_work_is_bounded,
    an_operation_given_one_buffer_twice_reads_it_twice,
);

fn view(buffer: u32, dtype: DType, extent: u64) -> View {
    View::contiguous(BufferId(buffer), dtype, &[extent]).unwrap()
}

/// `to = from + by`.
fn plus_slot(name: &str, from: &Buffer, to: &Buffer, by: &Slot) -> Operation {
    let sum = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let kernel = KernelNode {
        kernel: KernelRef::Elementwise(sum.into()),
        config: KernelConfig::linear(1, 1, 0),
        args: [
            Arg::View(view(0, DType::F32, LEN), Access::Read),
            Arg::Slot(SlotId(0)),
            Arg::View(view(1, DType::F32, LEN), Access::Write),
        ]
        .into(),
        fusible: true,
    };
    let buffers = [from.clone(), to.clone()];
    Operation::with_slots(name, NodeKind::Kernel(kernel), &buffers, std::slice::from_ref(by))
        .unwrap()
}

fn a_slot_has_its_default_until_it_is_set_and_each_launch_the_value_it_was_submitted_with<
    B: Backend,
>(
    device: Device<B>,
    _: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let [x, y, z] = ["x", "y", "z"].map(|name| filled(&stream, name, 1.0));
    let by = Slot::new("by", 5.0f32);
    let op = plus_slot("y", &x, &y, &by);
    let graph = capture(&stream, |s| s.submit(&op)).unwrap();
    assert_eq!(value(&stream, &y), 6.0, "the warm-up has the default");
    let copy = plus("z", &y, &z, 0.0);
    stream.launch(&graph).unwrap();
    stream.submit(&copy).unwrap();
    graph.set(&by, 50.0f32).unwrap();
    stream.launch(&graph).unwrap();
    graph.set(&by, 500.0f32).unwrap();
    assert_eq!([value(&stream, &z), value(&stream, &y)], [6.0, 51.0]);
    stream.launch(&graph).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &y), 501.0);
}

fn one_slot_serves_every_node_that_names_it<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let [x, y, z] = ["x", "y", "z"].map(|name| filled(&stream, name, 1.0));
    let [by, other] = [Slot::new("by", 5.0f32), Slot::new("by", 7.0f32)];
    let body = |s: &Stream<B>| {
        s.submit(&plus_slot("y", &x, &y, &by))?;
        s.submit(&plus_slot("z", &y, &z, &by))?;
        s.submit(&plus_slot("z", &z, &z, &other).on(&[z.clone(), z.clone()])?)
    };
    // The last one's buffers are one, which the first two of its kind are not.
    assert!(plus_slot("z", &y, &z, &other).on(&[z.clone(), z.clone()]).is_err());
    let graph = capture(&stream, body).unwrap();
    graph.set(&by, 10.0f32).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!([value(&stream, &y), value(&stream, &z)], [11.0, 28.0]);
}

fn a_slot_is_set_to_a_value_of_its_type_and_only_where_it_is_used<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 1.0));
    let (by, unused) = (Slot::new("by", 5.0f32), Slot::new("unused", 5.0f32));
    let op = plus_slot("y", &x, &y, &by);
    let graph = capture(&stream, |s| s.submit(&op)).unwrap();
    for (slot, result) in [(&by, graph.set(&by, 1i32)), (&unused, graph.set(&unused, 1.0f32))] {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, CaptureError::Slot { slot: s, .. } if s == slot.name()),
            "{error}"
        );
    }
    let missing = Operation::new("op", op.kind().clone(), &[x.clone(), y.clone()]).unwrap_err();
    assert!(missing.to_string().contains("a slot that it was not given"), "{missing}");
}

/// Two sums in a graph of their own: `to = from + 1 + 10`.
fn inside(from: &Buffer, to: &Buffer) -> Operation {
    let mut outer = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|name| outer.external_buffer(name, 4 * LEN as usize));
    let mut inner = GraphBuilder::new();
    let [x, y] = [x, y].map(|buffer| inner.outer_buffer(&outer, buffer));
    let between = inner.alloc_buffer("between", 4 * LEN as usize);
    let by = |by: f32| Expr::build(|e| e.output(e.input(DType::F32) + e.f32(by))).unwrap();
    let view = |buffer: BufferId| view(buffer.0, DType::F32, LEN);
    inner.add_elementwise("first", by(1.0).into(), &[view(x)], &[], &[view(between)]);
    inner.add_elementwise("second", by(10.0).into(), &[view(between)], &[], &[view(y)]);
    let child = NodeKind::Child(Box::new(inner.build().unwrap()));
    Operation::new("child", child, &[from.clone(), to.clone()]).unwrap()
}

fn a_graph_inside_is_run_and_recorded_as_one_operation<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let [other, x, y] = ["other", "x", "y"].map(|name| filled(&stream, name, 1.0));
    let op = inside(&x, &y);
    let graph = capture(&stream, |s| {
        s.submit(&plus("other", &other, &other, 1.0))?; // so that its buffers are not the first
        s.submit(&op)?;
        s.submit(&plus("x", &y, &x, 100.0))
    })
    .unwrap();
    assert_eq!([value(&stream, &y), value(&stream, &x)], [12.0, 112.0]);
    stream.launch(&graph).unwrap();
    assert_eq!([value(&stream, &y), value(&stream, &x)], [123.0, 223.0]);
    assert_eq!(device.retained()[0].nodes, 3);
}

fn a_conditional_decides_anew_in_each_replay<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let x = filled(&stream, "x", 1.0);
    let decides = stream.alloc("decides", 4).unwrap();
    stream.write(&decides, &1i32.to_le_bytes()).unwrap();
    let mut outer = GraphBuilder::new();
    let slots = [outer.external_buffer("decides", 4), outer.external_buffer("x", 4 * LEN as usize)];
    let mut body = GraphBuilder::new();
    let inner = body.outer_buffer(&outer, slots[1]);
    let ten = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(10.0))).unwrap();
    let all = view(inner.0, DType::F32, LEN);
    body.add_elementwise("ten more", ten.into(), &[all], &[], &[all]);
    let node = ConditionalNode {
        kind: ConditionalKind::If,
        condition: Condition::Value(view(0, DType::I32, 1)),
        bodies: vec![body.build().unwrap()],
    };
    let kind = NodeKind::Conditional(Box::new(node));
    let op = Operation::new("if", kind, &[decides.clone(), x.clone()]).unwrap();
    let graph = capture(&stream, |s| {
        s.submit(&plus("one more", &x, &x, 1.0))?;
        s.submit(&op)
    })
    .unwrap();
    assert_eq!(value(&stream, &x), 12.0);
    for (decision, expected) in [(1i32, 23.0), (0, 24.0), (7, 35.0)] {
        stream.write(&decides, &decision.to_le_bytes()).unwrap();
        stream.launch(&graph).unwrap();
        assert_eq!(value(&stream, &x), expected);
    }
}

fn the_same_work_on_other_buffers_is_not_prepared_again_where_it_lies_the_same<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 1.0));
    let op = plus("y", &x, &y, 1.0);
    let prepared = |trace: &Shared| trace.lock().unwrap().prepared;
    for _ in 0..3 {
        stream.submit(&op).unwrap();
    }
    assert_eq!((value(&stream, &y), prepared(&trace)), (2.0, 1));
    stream.submit(&op.on(&[y.clone(), x.clone()]).unwrap()).unwrap();
    assert_eq!((value(&stream, &x), prepared(&trace)), (3.0, 2));
    // Scratch that comes and goes lies where it lay.
    for _ in 0..3 {
        let scratch = stream.alloc("scratch", 4 * LEN).unwrap();
        stream.submit(&op.on(&[x.clone(), scratch.clone()]).unwrap()).unwrap();
        assert_eq!((value(&stream, &scratch), prepared(&trace)), (4.0, 3));
        drop((scratch, stream.sync().unwrap()));
    }
    // Nor is what is made anew and is the same; a constant that only compares equal is another.
    let made = |by: f32| plus("y", &x, &y, by);
    for (by, expected) in [(1.0, 3), (1.0, 3), (0.0, 4), (-0.0, 5), (0.0, 5), (1.0, 5)] {
        stream.submit(&made(by)).unwrap();
        assert_eq!(value(&stream, &y), 3.0 + by);
        assert_eq!(prepared(&trace), expected, "plus {by}");
    }
    let short = stream.alloc("short", 4).unwrap();
    for wrong in [&[x.clone()][..], &[x.clone(), x.clone()], &[x.clone(), short.clone()]] {
        assert!(matches!(op.on(wrong), Err(CaptureError::Operation { .. })));
    }
    drop((x, y, op, short));
    device.trim();
    assert_eq!(prepared(&trace), 0, "nothing that is prepared keeps a page");
}

fn an_operation_given_one_buffer_twice_reads_it_twice<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 3.0));
    let sum = Expr::build(|e| e.output(e.input(DType::F32) + e.input(DType::F32))).unwrap();
    let kernel = KernelNode {
        kernel: KernelRef::Elementwise(sum.into()),
        config: KernelConfig::linear(1, 1, 0),
        args: [0, 1, 2]
            .map(|at| {
                let access = if at == 2 { Access::Write } else { Access::Read };
                Arg::View(view(at, DType::F32, LEN), access)
            })
            .into(),
        fusible: true,
    };
    let buffers = [x.clone(), x.clone(), y.clone()];
    let op = Operation::new("twice", NodeKind::Kernel(kernel), &buffers).unwrap();
    assert_eq!(op.buffers().len(), 2);
    let graph = capture(&stream, |s| s.submit(&op)).unwrap();
    stream.write(&x, &bytes(4.0)).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &y), 8.0);
    let z = filled(&stream, "z", 5.0);
    stream.submit(&op.on(&[z.clone(), z.clone(), y.clone()]).unwrap()).unwrap();
    assert_eq!(value(&stream, &y), 10.0);
}

fn case_39_what_is_made_ready_for_eager_work_is_bounded<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let x = filled(&stream, "x", 1.0);
    let results: Vec<_> = (0..2500).map(|_| stream.alloc("y", 16).unwrap()).collect();
    let op = plus("y", &x, &results[0], 1.0);
    let mut most = 0;
    for y in &results {
        stream.submit(&op.on(&[x.clone(), y.clone()]).unwrap()).unwrap();
        most = most.max(trace.lock().unwrap().prepared);
    }
    assert!(results.iter().step_by(99).all(|y| value(&stream, y) == 2.0));
    // 1024 at most, and those that have just made way for others, which the next call takes back.
    assert!((1024..1024 + 512).contains(&most), "{most} of 2500 are kept");
}
