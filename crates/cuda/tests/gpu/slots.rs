//! What can be changed between replays.

use std::sync::Arc;

use phonograph_cuda::{Bindings, ReplayError, SetError, SetNodeError, Stream};
use phonograph_graph::{Access, Arg, DType, Expr, GraphBuilder, Schedule};

use crate::case::{cuda, view};
use crate::samples::{WithSlots, with_slots};

#[test]
fn slots_and_switches_change_the_replays_to_come() {
    let Some(mut cuda) = cuda() else { return };
    let WithSlots { graph, input, output, x, by, plus, in_child } = with_slots();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    assert_eq!(cuda.replay(&mut exec), Err(ReplayError::Unbound(input)));
    let memories: Vec<_> = (0..4).map(|_| cuda.alloc(400).unwrap()).collect();
    for (memory, value) in memories.iter().zip([1f32, 2.0]) {
        cuda.write(memory, &[value; 100]).unwrap();
    }
    for (round, (factor, enabled)) in
        [(2f32, true), (3.0, true), (3.0, false), (5.0, true)].into_iter().enumerate()
    {
        let (from, to) = (&memories[round % 2], &memories[2 + round % 2]);
        exec.bind(input, from).unwrap();
        exec.bind(output, to).unwrap();
        exec.set(by, factor).unwrap();
        exec.set_enabled(plus, enabled).unwrap();
        cuda.replay(&mut exec).unwrap();
        let x = (1 + round % 2) as f32 * factor + if enabled { 1.0 } else { 0.0 };
        let mut expected = vec![x + factor; 50];
        expected.resize(100, 1.0);
        assert_eq!(cuda.read::<f32>(to).unwrap(), expected, "round {round}");
    }
    assert_eq!(
        exec.bind(input, &memories[3]),
        Err(SetError::Overlap { buffer: input, other: output })
    );
    let odd = cuda.alloc(404).unwrap().part(4, 400).unwrap();
    assert_eq!(exec.bind(input, &odd), Err(SetError::Misaligned { buffer: input, align: 256 }));
    assert_eq!(exec.bind(x, &memories[0]), Err(SetError::NotASlot(x)));
    let small = cuda.alloc(4).unwrap();
    assert!(matches!(
        exec.bind(input, &small),
        Err(SetError::TooSmall { needed: 400, given: 4, .. })
    ));
    let large = cuda.alloc(1024).unwrap();
    let beside = large.part(4, 400).unwrap();
    assert_eq!(exec.bind(input, &beside), Err(SetError::Misaligned { buffer: input, align: 256 }));
    exec.bind(input, &large.part(256, 400).unwrap()).unwrap();
    assert!(matches!(exec.set(by, 1i32), Err(SetError::Type { .. })));
    let refused = SetNodeError::Set(SetError::NotDisableable(in_child));
    assert_eq!(exec.set_enabled(in_child, false), Err(refused));
}

#[test]
fn memory_that_is_bound_away_stays_until_its_replay_is_over() {
    let Some(mut cuda) = cuda() else { return };
    const COUNT: u64 = 1 << 22;
    let mut b = GraphBuilder::new();
    let output = b.slot_buffer("output", 4 * COUNT as usize, Access::ReadWrite);
    let by = b.slot("by", 0.0f32);
    let out = view(output, &[COUNT]);
    let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let add: Arc<Expr> = add.into();
    for _ in 0..20 {
        b.add_elementwise("add", add.clone(), &[out], &[Arg::Slot(by)], &[out]);
    }
    let graph = b.build().unwrap();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    // Each memory is given up as soon as its replay is issued; the next must not be the same while that runs.
    let kept = cuda.alloc(4 * COUNT).unwrap();
    for round in 0..200 {
        let memory = cuda.alloc(4 * COUNT).unwrap();
        exec.set(by, round as f32).unwrap();
        exec.bind(output, &memory).unwrap();
        cuda.launch(&mut exec, &stream).unwrap();
    }
    exec.set(by, 1.0f32).unwrap();
    exec.bind(output, &kept).unwrap();
    cuda.replay(&mut exec).unwrap();
    assert!(cuda.read::<f32>(&kept).unwrap().iter().all(|&v| v == 20.0));
}
