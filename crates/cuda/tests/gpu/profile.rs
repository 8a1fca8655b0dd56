//! What nodes take on the device.

use phonograph_cuda::{Bindings, ProfileError, Profiler};
use phonograph_graph::{Access, Arg, DType, Expr, GraphBuilder, Region, Schedule};

use crate::case::{cuda, tensor};

/// Takes as many steps as it is told, one after the other.
const SPIN: &str = "extern \"C\" __global__ void spin(unsigned *x, unsigned steps) {
    unsigned v = *x;
    for (unsigned i = 0; i < steps; i++) v = v * 3u + 1u;
    *x = v;
}";

#[test]
fn every_kernel_copy_and_fill_has_its_own_time() {
    let Some(mut cuda) = cuda() else { return };
    let spin = cuda.compile(SPIN, "spin").unwrap();
    let mut b = GraphBuilder::new();
    let word = b.external_buffer("word", 4);
    let whole = Region { buffer: word, offset: 0, bytes: 4 };
    let mut add = |steps: u32| {
        let argument = Arg::Region(whole, Access::ReadWrite);
        b.add_kernel("spin", 1, 1, 0).arg(argument).arg(Arg::Scalar(steps.into())).finish()
    };
    let (short, long) = (add(100), add(200_000));
    let (x, y) = (tensor(&mut b, "x", &[1 << 20]), tensor(&mut b, "y", &[1 << 20]));
    let twice = Expr::build(|e| e.output(e.input(DType::F32) * e.f32(2.0))).unwrap();
    let scale = b.add_elementwise("twice", twice.into(), &[x], &[], &[y]);
    let copy = b.add_region_copy("copy", y.region(), x.region());
    let pause = b.add_barrier("pause");
    b.dep(long, pause);
    let graph = b.build().unwrap();
    let profiler = match Profiler::start() {
        Ok(profiler) => profiler,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    assert_eq!(Profiler::start().unwrap_err(), ProfileError::Busy);
    // SAFETY: it writes the word of its operand.
    let bindings = unsafe { Bindings::new().kernel("spin", &spin) };
    let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    (0..5).for_each(|_| cuda.replay(&mut exec).unwrap());
    let times = profiler.stop().unwrap().of(&exec);
    eprintln!("{times:?}");
    let of = |node: phonograph_graph::NodeId| times[node.index()];
    assert_eq!(of(pause), None);
    assert!([short, long, scale, copy].into_iter().all(|node| of(node).is_some_and(|ns| ns > 0)));
    // 2000 times the steps: whatever a clock does, it takes longer.
    assert!(of(long) > of(short));
    // Without a profiler replays go on, and leave no record.
    cuda.replay(&mut exec).unwrap();
    let again = Profiler::start().unwrap();
    assert!(again.stop().unwrap().of(&exec).iter().all(Option::is_none));
}
