//! Graphs that were built as data, on a shared device: what they hold, what becomes of them when a step fails.

use phonograph_graph::{
    Arg, BufferId, ComputeGraph, DType, Expr, GraphBuilder, Scalar, Schedule, SlotId, View,
};
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{Adopt, Adopted, Buffer, Device, Graph, Slot, Step, Stream};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{LEN, capture, filled, id, plus, value};

/// `to = from + by`, where `by` is a slot.
fn graph() -> ComputeGraph {
    let mut b = GraphBuilder::new().named("plus");
    let [from, to] = ["from", "to"]
        .map(|name| View::contiguous(b.external_buffer(name, 16), DType::F32, &[LEN]).unwrap());
    let by = b.slot("by", 1.0f32);
    let expr = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    b.add_elementwise("plus", expr.into(), &[from], &[Arg::Slot(by)], &[to]);
    b.build().unwrap()
}

/// The graph on these buffers, with its slot.
fn adopt_all<B: Adopt>(
    stream: &Stream<B>,
    buffers: &[(BufferId, Buffer)],
) -> Result<(Graph, Slot), CaptureError> {
    let (graph, by) = (graph(), Slot::new("by", 1.0f32));
    let (schedule, registry) = (Schedule::sequential(&graph), Registry::new());
    let slots = [(SlotId(0), by.clone())];
    let (schedule, registry) = (&schedule, &registry);
    let adopted = Adopted { graph: &graph, schedule, buffers, slots: &slots, registry };
    Ok((stream.adopt(&adopted)?, by))
}

fn adopt<B: Adopt>(
    stream: &Stream<B>,
    from: &Buffer,
    to: &Buffer,
) -> Result<(Graph, Slot), CaptureError> {
    adopt_all(stream, &[(BufferId(0), from.clone()), (BufferId(1), to.clone())])
}

fn launches_with_slots_and_holds_its_buffers<B: Adopt>(device: Device<B>, trace: Shared) {
    let stream = device.stream_of(id(1));
    let (from, to) = (filled(&stream, "from", 1.0), filled(&stream, "to", 0.0));
    let (graph, by) = adopt(&stream, &from, &to).unwrap();
    let with = |value: f32| [(by.clone(), Scalar::F32(value))];
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &to), 2.0);
    stream.launch_with(&graph, &with(5.0)).unwrap();
    assert_eq!(value(&device.stream_of(id(2)), &to), 6.0);
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &to), 2.0, "for one launch alone");
    drop(from);
    let taken: Vec<_> = (0..64).map(|_| filled(&stream, "other", 9.0)).collect();
    stream.launch_with(&graph, &with(4.0)).unwrap();
    assert_eq!(value(&stream, &to), 5.0, "nobody was given the memory of its input");
    drop((graph, taken, to));
    device.trim();
    let trace = trace.lock().unwrap();
    assert_eq!((trace.execs, trace.pages), (0, 0));
}

fn order_with_eager_work_on_every_stream<B: Adopt>(device: Device<B>, _: Shared) {
    let streams = [1, 2, 3].map(|stream| device.stream_of(id(stream)));
    let (x, y) = (filled(&streams[0], "x", 0.0), filled(&streams[0], "y", 0.0));
    let (graph, _) = adopt(&streams[0], &x, &y).unwrap();
    for round in 0..30 {
        // Nothing is waited for in between: what touches the same memory is in the order of submission.
        streams[round % 3].submit(&plus("eager", &x, &x, 1.0)).unwrap();
        streams[(round + 1) % 3].launch(&graph).unwrap();
        streams[(round + 2) % 3].submit(&plus("after", &y, &y, 10.0)).unwrap();
    }
    assert_eq!((value(&streams[1], &x), value(&streams[2], &y)), (30.0, 41.0));
}

fn a_failed_step_leaves_nothing<B: Adopt>(device: Device<B>, trace: Shared) {
    let stream = device.stream_of(id(1));
    let (from, to) = (filled(&stream, "from", 1.0), filled(&stream, "to", 0.0));
    for panic in [false, true] {
        for step in [Step::Instantiate, Step::Upload] {
            {
                let mut trace = trace.lock().unwrap();
                let now = trace.calls.get(&step).copied().unwrap_or(0);
                (trace.fail, trace.panic) = (Some((step, now)), panic);
            }
            let error = adopt(&stream, &from, &to).map(drop).unwrap_err();
            let CaptureError::Backend(error) = error else { panic!("{error}") };
            assert_eq!(error.step, step, "{error}");
            assert_eq!((trace.lock().unwrap().execs, device.report().graphs), (0, 0));
        }
    }
    let (graph, _) = adopt(&stream, &from, &to).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &to), 2.0, "the stream serves");
}

fn wrong_buffers_and_slots_are_errors<B: Adopt>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(1));
    let (from, to) = (filled(&stream, "from", 1.0), filled(&stream, "to", 0.0));
    let short = stream.alloc("short", 8).unwrap();
    let try_with = |buffers: &[(BufferId, Buffer)]| {
        let error = adopt_all(&stream, buffers).map(drop).unwrap_err();
        let CaptureError::Operation { problem, .. } = error else { panic!("{error}") };
        problem
    };
    let (a, b) = ((BufferId(0), from.clone()), (BufferId(1), to.clone()));
    let problems = [
        try_with(std::slice::from_ref(&a)),
        try_with(&[a.clone(), (BufferId(1), short)]),
        try_with(&[a.clone(), b.clone(), b.clone()]),
        try_with(&[a, b, (BufferId(7), to.clone())]),
    ];
    let expected = ["has no memory", "has 8 bytes", "given twice", "has no b7"];
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.contains(expected), "{problem}");
    }
    let (graph, by) = adopt(&stream, &from, &to).unwrap();
    let recorded =
        capture(&stream, |stream| stream.submit(&plus("plus", &from, &to, 1.0))).unwrap();
    for (graph, slot, value) in [
        (&graph, Slot::new("other", 1.0f32), Scalar::F32(1.0)),
        (&graph, by.clone(), Scalar::U32(1)),
        (&recorded, by, Scalar::F32(1.0)),
    ] {
        let error = stream.launch_with(graph, &[(slot, value)]).unwrap_err();
        assert!(matches!(error, CaptureError::Slot { .. }), "{error}");
    }
}

in_every_mode!(
    launches_with_slots_and_holds_its_buffers,
    order_with_eager_work_on_every_stream,
    a_failed_step_leaves_nothing,
    wrong_buffers_and_slots_are_errors,
);
