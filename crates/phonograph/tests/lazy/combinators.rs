//! What operations are composed with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use phonograph::prelude::*;

use crate::common::*;

#[test]
fn an_operation_does_nothing_until_it_is_executed() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let op = add(1.0, &mut y).then(triple);
    drop(op);
    assert_eq!(value_of(&y), 1.0);
}

#[test]
fn then_map_inspect_value_and_boxed_compose() {
    let device = device();
    let stream = device.stream(0);
    let mut seen = 0;
    let op = api::ones::<f32>([2, 3])
        .then(|y| add(1.0, y))
        .then(triple)
        .inspect(|y| seen = y.elements())
        .map(|y| (y.shape().extents().len(), y));
    let boxed: Vec<phonograph::op::BoxedOp<'_, _>> =
        vec![op.boxed(), api::zeros::<f32>([1]).map(|y| (0, y)).boxed()];
    let mut outputs = Vec::new();
    for op in boxed {
        outputs.push(op.sync_on(&stream).unwrap());
    }
    assert_eq!((outputs[0].0, value_of(&outputs[0].1), value_of(&outputs[1].1)), (2, 6.0, 0.0));
    drop(outputs);
    assert_eq!(seen, 6);
}

#[test]
fn a_shared_operation_is_done_once_by_whoever_comes_first() {
    let device = device();
    let made = Arc::new(AtomicU32::new(0));
    let counter = made.clone();
    let shared = api::ones::<f32>([4])
        .map(move |y| {
            counter.fetch_add(1, Ordering::Relaxed);
            Arc::new(y)
        })
        .shared();
    let outputs: Vec<Arc<Tensor<f32>>> = std::thread::scope(|scope| {
        let threads = (0..4).map(|at| {
            let (op, stream) = (shared.clone(), device.stream(at));
            scope.spawn(move || op.sync_on(&stream).unwrap())
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert!(outputs.iter().all(|y| Arc::ptr_eq(y, &outputs[0]) && value_of(y) == 1.0));
}

#[test]
fn what_a_capture_has_shared_is_refused_elsewhere() {
    let device = device();
    let stream = device.stream(0);
    let shared = api::ones::<f32>([4]).map(Arc::new).shared();
    let captured = zip!(shared.clone(), shared.clone()).graph_on(&stream).unwrap();
    assert_eq!(captured.graph().node_count(), 1, "once in the graph");
    let error = shared.clone().sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::SharedInCapture), "{error}");
    let error = shared.graph_on(&stream).unwrap_err();
    assert!(matches!(error, Error::SharedInCapture), "{error}");
}

#[test]
fn unzip_gives_each_half_and_does_the_work_once() {
    let device = device();
    let (a, b) = zip!(api::ones::<f32>([4]), api::full([4], 2.0f32)).unzip();
    let b = b.then(triple).sync_on(&device.stream(1)).unwrap();
    let a = a.sync_on(&device.stream(0)).unwrap();
    assert_eq!((value_of(&a), value_of(&b)), (1.0, 6.0));
    let refused = zip!(value(1), api::zeros::<f32>([u64::MAX, 2])).unzip();
    assert!(refused.0.sync_on(&device.stream(0)).is_err());
    assert!(refused.1.sync_on(&device.stream(0)).is_err(), "the same error for both");
}

#[test]
fn with_context_writes_an_operation_as_a_closure() {
    let device = device();
    let stream = device.stream(2);
    let op = with_context(|cx| {
        let tensor = cx.alloc::<f32>("mine", &[4])?;
        cx.record(|recorder| {
            let view = recorder.view(&phonograph::Operand::window(&tensor));
            recorder.builder().add_fill(
                "fill",
                phonograph::graph::MemsetNode {
                    dst: phonograph::graph::Pitched::linear(
                        phonograph::graph::Target::Buffer(view.buffer),
                        0,
                    ),
                    value: 0,
                    element_size: 1,
                    extent: phonograph::graph::Extent::linear(16),
                },
            );
            Ok(())
        })?;
        Ok((cx.stream().index(), cx.is_recording(), tensor))
    });
    let (index, recording, tensor) = op.sync_on(&stream).unwrap();
    assert_eq!((index, recording, value_of(&tensor)), (2, false, 0.0));
}

/// Two arms that share nothing, then what needs both.
fn run<'a>(
    x: &'a mut Tensor<f32>,
    y: &'a mut Tensor<f32>,
    z: &'a mut Tensor<f32>,
) -> impl DeviceOp<Output = ()> + use<'a> {
    let arms = zip!(add(1.0, x).then(triple), triple(y).then(|y| add(2.0, y)));
    arms.then(move |(x, y)| double(&*x, z).then(move |z| sum(&*y, z))).map(drop)
}

#[test]
fn zip_arms_record_as_parallel_branches_and_replay_as_they_would_execute() {
    let device = device();
    let stream = device.stream(0);
    let make = || (four(&stream, 1.0), four(&stream, 2.0), four(&stream, 0.0));
    let (mut x, mut y, mut z) = make();
    run(&mut x, &mut y, &mut z).sync_on(&stream).unwrap();
    let eager = [value_of(&x), value_of(&y), value_of(&z)];

    let (mut x, mut y, mut z) = make();
    let graph = run(&mut x, &mut y, &mut z).graph_on(&stream).unwrap();
    let ids: Vec<_> = graph.graph().node_ids().collect();
    assert_eq!(ids.len(), 6);
    assert!(!graph.graph().is_reachable(ids[0], ids[2]), "the arms are not ordered");
    assert!(!graph.graph().is_reachable(ids[2], ids[0]));
    assert_eq!(graph.plan().num_streams, 2);
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!([value_of(&x), value_of(&y), value_of(&z)], eager);
}

#[test]
fn random_programs_replay_as_they_execute() {
    arbtest::arbtest(|u| {
        let device = device();
        let stream = device.stream(0);
        let ops: Vec<(u8, usize, usize)> = (0..u.int_in_range(1..=12)?)
            .map(|_| Ok((u.int_in_range(0..=4)?, u.int_in_range(0..=3)?, u.int_in_range(0..=3)?)))
            .collect::<std::result::Result<_, arbtest::arbitrary::Error>>()?;
        let make = || -> Vec<Tensor<f32>> { (0..4).map(|at| four(&stream, at as f32)).collect() };
        fn step<'a>(
            tensors: &'a mut [Tensor<f32>],
            (kind, a, b): (u8, usize, usize),
        ) -> phonograph::op::BoxedOp<'a, ()> {
            let b = if a == b { (b + 1) % 4 } else { b };
            let [x, y] = tensors.get_disjoint_mut([a, b]).unwrap();
            match kind {
                0 => add(1.0, y).map(drop).boxed(),
                1 => triple(y).map(drop).boxed(),
                2 => double(&*x, y).map(drop).boxed(),
                3 => sum(&*x, y).map(drop).boxed(),
                _ => api::memcpy(&*x, y).boxed(),
            }
        }
        let mut eager = make();
        for &op in &ops {
            // Each on a stream of its own: conflicts across streams become waits.
            step(&mut eager, op).sync_on(&device.stream(u32::from(op.0))).unwrap();
        }
        let mut tensors = make();
        let all = with_context(|cx| {
            for &op in &ops {
                // SAFETY: the context is this operation's own, and so the caller's promise.
                unsafe { step(&mut tensors, op).execute(cx)? };
            }
            Ok(())
        });
        let graph = all.graph_on(&stream).unwrap();
        graph.launch().sync_on(&stream).unwrap();
        for (eager, replayed) in eager.iter().zip(&tensors) {
            assert_eq!(eager.to_vec().unwrap(), replayed.to_vec().unwrap(), "{ops:?}");
        }
        Ok(())
    })
    .budget_ms(1000);
}
