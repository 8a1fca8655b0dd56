//! Graphs that were built as data, on a shared device: what they hold, what becomes of them when a step fails.

use phonograph_graph::{
    Arg, BufferId, ComputeGraph, DType, Expr, GraphBuilder, Scalar, Schedule, SlotId, View,
};
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{Adopt, Buffer, Device, Graph, Step, Stream};

use crate::common::{LEN, Shared, bytes, filled, id, plus, value};

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

fn adopt<B: Adopt>(stream: &Stream<B>, from: &Buffer, to: &Buffer) -> Result<Graph, CaptureError> {
    let graph = graph();
    let buffers = [(BufferId(0), from.clone()), (BufferId(1), to.clone())];
    stream.adopt(&graph, &Schedule::sequential(&graph), &buffers, &Registry::new())
}

fn launches_with_slots_and_holds_its_buffers<B: Adopt>(device: Device<B>, trace: Shared) {
    let stream = device.stream_of(id(1));
    let (from, to) = (filled(&stream, "from", 1.0), filled(&stream, "to", 0.0));
    let graph = adopt(&stream, &from, &to).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &to), 2.0);
    stream.launch_with(&graph, &[(SlotId(0), Scalar::F32(5.0))]).unwrap();
    assert_eq!(value(&device.stream_of(id(2)), &to), 6.0);
    drop(from);
    let taken: Vec<_> = (0..64).map(|_| filled(&stream, "other", 9.0)).collect();
    stream.launch_with(&graph, &[(SlotId(0), Scalar::F32(1.0))]).unwrap();
    assert_eq!(value(&stream, &to), 2.0, "nobody was given the memory of its input");
    drop((graph, taken, to));
    device.trim();
    let trace = trace.lock().unwrap();
    assert_eq!((trace.execs, trace.pages), (0, 0));
}

fn order_with_eager_work_on_every_stream<B: Adopt>(device: Device<B>, _: Shared) {
    let streams = [1, 2, 3].map(|stream| device.stream_of(id(stream)));
    let (x, y) = (filled(&streams[0], "x", 0.0), filled(&streams[0], "y", 0.0));
    let graph = adopt(&streams[0], &x, &y).unwrap();
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
            let error = adopt(&stream, &from, &to).unwrap_err();
            let CaptureError::Backend(error) = error else { panic!("{error}") };
            assert_eq!(error.step, step, "{error}");
            assert_eq!((trace.lock().unwrap().execs, device.report().graphs), (0, 0));
        }
    }
    let graph = adopt(&stream, &from, &to).unwrap();
    stream.launch(&graph).unwrap();
    assert_eq!(value(&stream, &to), 2.0, "the stream serves");
}

fn wrong_buffers_and_slots_are_errors<B: Adopt>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(1));
    let (from, to) = (filled(&stream, "from", 1.0), filled(&stream, "to", 0.0));
    let short = stream.alloc("short", 8).unwrap();
    let graph = graph();
    let try_with = |buffers: &[(BufferId, Buffer)]| {
        let schedule = Schedule::sequential(&graph);
        let error = stream.adopt(&graph, &schedule, buffers, &Registry::new()).unwrap_err();
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
    let graph = adopt(&stream, &from, &to).unwrap();
    stream.launch_with(&graph, &[(SlotId(3), Scalar::F32(1.0))]).unwrap();
    assert!(stream.sync().unwrap_err().to_string().contains("slot"));
    assert!(stream.read(&to).is_err(), "the launch did not happen");
    stream.write(&to, &bytes(0.0)).unwrap();
    let window = stream.prepare().unwrap();
    window.begin().unwrap();
    stream.submit(&plus("recorded", &from, &to, 1.0)).unwrap();
    let recorded = window.end("recorded").unwrap();
    let error = stream.launch_with(&recorded, &[(SlotId(0), Scalar::F32(1.0))]).unwrap_err();
    assert!(error.to_string().contains("no slots"), "{error}");
}

in_both_modes!(
    launches_with_slots_and_holds_its_buffers,
    order_with_eager_work_on_every_stream,
    a_failed_step_leaves_nothing,
    wrong_buffers_and_slots_are_errors,
);
