//! What nodes take on the device.

use phonograph_cuda::{Bindings, Cuda, Function, Method, ProfileError, Profiler};
use phonograph_graph::{
    Access, Arg, Condition, ConditionalKind, DType, Expr, Extent, GraphBuilder, MemsetNode, NodeId,
    Pitched, Region, Schedule, Target, View,
};
use phonograph_runtime::cpu::kernels::Param;

use crate::case::{Case, add_one, cuda, tensor, view};

/// Takes as many steps as it is told, one after the other.
const SPIN: &str = "extern \"C\" __global__ void spin(unsigned *x, unsigned steps) {
    unsigned v = *x;
    for (unsigned i = 0; i < steps; i++) v = v * 3u + 1u;
    *x = v;
}";

/// Kernels that take a short and a long time, an expression, a copy, a fill, and a node that takes none; each with its name.
fn graph() -> (phonograph_graph::ComputeGraph, Vec<(&'static str, NodeId)>) {
    let mut b = GraphBuilder::new();
    let word = b.external_buffer("word", 4);
    let whole = Region { buffer: word, offset: 0, bytes: 4 };
    let mut add = |steps: u32| {
        let argument = Arg::Region(whole, Access::ReadWrite);
        b.add_kernel("spin", 1, 1, 0).arg(argument).arg(Arg::Scalar(steps.into())).finish()
    };
    let [short, middle, long] = [100, 20_000, 200_000].map(&mut add);
    let (x, y) = (tensor(&mut b, "x", &[1 << 20]), tensor(&mut b, "y", &[1 << 20]));
    let twice = Expr::build(|e| e.output(e.input(DType::F32) * e.f32(2.0))).unwrap();
    let scale = b.add_elementwise("twice", twice.into(), &[x], &[], &[y]);
    let copy = b.add_region_copy("copy", y.region(), x.region());
    let dst = Pitched::linear(Target::Buffer(y.buffer), 0);
    let (value, element_size, extent) = (0, 4, Extent::linear(4 << 20));
    let fill = b.add_fill("fill", MemsetNode { dst, value, element_size, extent });
    let pause = b.add_barrier("pause");
    b.dep(long, pause);
    let names = ["short", "middle", "long", "scale", "copy", "fill", "pause"];
    let nodes = [short, middle, long, scale, copy, fill, pause];
    (b.build().unwrap(), names.into_iter().zip(nodes).collect())
}

/// What the nodes take by a profiler, from some replays.
fn times(cuda: &mut Cuda, profiler: Profiler, spin: &Function) -> Vec<Option<u64>> {
    let (graph, _) = graph();
    // SAFETY: it writes the word of its operand.
    let bindings = unsafe { Bindings::new().kernel("spin", spin) };
    let schedule = Schedule::sequential(&graph);
    let mut exec = profiler.instantiate(cuda, &graph, &schedule, &bindings).unwrap();
    (0..20).for_each(|_| cuda.replay(&mut exec).unwrap());
    let times = profiler.stop().unwrap().of(&exec);
    let of = |name: &str| {
        let (_, nodes) = self::graph();
        times[nodes.iter().find(|node| node.0 == name).unwrap().1.index()]
    };
    assert_eq!(of("pause"), None);
    for name in ["short", "middle", "long", "scale", "copy", "fill"] {
        assert!(of(name).is_some(), "{name}: {times:?}");
    }
    // Ten and two thousand times the steps: whatever a clock does, it takes longer.
    assert!(of("short") < of("middle") && of("middle") < of("long"), "{times:?}");
    // Without a profiler replays go on, and leave no record.
    cuda.replay(&mut exec).unwrap();
    times
}

#[test]
fn every_kernel_copy_and_fill_has_its_own_time() {
    let Some(mut cuda) = cuda() else { return };
    let spin = cuda.compile(SPIN, "spin").unwrap();
    let profiler = match Profiler::with(Method::Cupti) {
        Ok(profiler) => profiler,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    assert_eq!(Profiler::start().unwrap_err(), ProfileError::Busy);
    let by_cupti = times(&mut cuda, profiler, &spin);
    let by_events = times(&mut cuda, Profiler::with(Method::Events).unwrap(), &spin);
    for (name, node) in graph().1 {
        let at = node.index();
        eprintln!("{name}: {:?} ns by CUPTI, {:?} by events", by_cupti[at], by_events[at]);
    }
    let again = Profiler::start().unwrap();
    assert_eq!((again.method(), again.without_cupti()), (Method::Cupti, None));
    again.stop().unwrap();
}

#[test]
fn events_between_nodes_tell_what_they_take() {
    let Some(mut cuda) = cuda() else { return };
    let spin = cuda.compile(SPIN, "spin").unwrap();
    let profiler = match Profiler::with(Method::Events) {
        Ok(profiler) => profiler,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    assert_eq!(profiler.method(), Method::Events);
    let times = times(&mut cuda, profiler, &spin);
    eprintln!("{times:?}");
}

#[test]
fn a_graph_with_events_between_its_nodes_does_what_it_did() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let (x, y, t) =
        (b.external_buffer("x", 400), b.external_buffer("y", 400), b.alloc_buffer("t", 400));
    let (staged, flag) = (b.host_buffer("staged", 400), b.external_buffer("flag", 4));
    let [xv, yv, tv] = [x, y, t].map(|buffer| view(buffer, &[100]));
    let all = |buffer| Region { buffer, offset: 0, bytes: 400 };
    b.add_elementwise("a branch", add_one(), &[xv], &[], &[tv]);
    b.add_elementwise("another", add_one(), &[xv], &[], &[yv]);
    let mut child = GraphBuilder::new();
    let inside = child.outer_view(&b, tv);
    child.add_elementwise("in a child", add_one(), &[inside], &[], &[inside]);
    let child = b.add_child("child", child.build().unwrap());
    let mut body = GraphBuilder::new();
    let inside = body.outer_view(&b, tv);
    body.add_elementwise("in a body", add_one(), &[inside], &[], &[inside]);
    let value = Condition::Value(View::contiguous(flag, DType::I32, &[]).unwrap());
    let decides = b.add_conditional("if", ConditionalKind::If, value, vec![body.build().unwrap()]);
    b.add_region_copy("download", all(t), all(staged));
    let host = b.add_host("scale", "scale", &[(all(staged), Access::ReadWrite)]);
    b.add_region_copy("upload", all(staged), all(x));
    let mut case = Case::new(b.build().unwrap()).with(flag, &1i32.to_le_bytes());
    case.registry.host("scale", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v *= 2.0);
        Ok(())
    });
    let profiler = match Profiler::with(Method::Events) {
        Ok(profiler) => profiler,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let (schedule, bindings) =
        (Schedule::sequential(&case.graph), Bindings::new().hosts(&case.registry));
    let exec = profiler.instantiate(&mut cuda, &case.graph, &schedule, &bindings);
    let mut exec = exec.unwrap();
    for buffer in case.external() {
        cuda.write(exec.memory(buffer).unwrap(), &case.first(buffer)).unwrap();
    }
    (0..case.replays).for_each(|_| cuda.replay(&mut exec).unwrap());
    let contents = case.external().into_iter().map(|buffer| exec.memory(buffer).unwrap().clone());
    let found: Vec<Vec<u8>> = contents.map(|memory| cuda.read::<u8>(&memory).unwrap()).collect();
    assert_eq!(found, case.on_cpu());
    // Graphs inside nodes and host calls have a time as a whole.
    let times = profiler.stop().unwrap().of(&exec);
    assert!([child, decides, host].iter().all(|node| times[node.index()].is_some()), "{times:?}");
    assert!(times.iter().all(Option::is_some), "{times:?}");
}
