//! Capturing one operation, launching it, updating what it reads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use phonograph::prelude::*;

use crate::common::*;

#[test]
fn capture_consumes_its_op_once_and_executes_nothing() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let built = AtomicU32::new(0);
    let op = value(()).then(|()| {
        built.fetch_add(1, Ordering::Relaxed);
        add(5.0, &mut y).map(drop)
    });
    let graph = op.graph_on(&stream).unwrap();
    assert_eq!(built.load(Ordering::Relaxed), 1);
    assert_eq!(value_of(&y), 1.0);
    assert_eq!(graph.graph().node_count(), 1);
    assert_eq!(device.report().graphs, 1, "instantiated at once");
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!((built.load(Ordering::Relaxed), value_of(&y)), (1, 6.0));
}

#[test]
fn take_output_gives_the_output_once_with_metadata_at_once_and_data_after_a_launch() {
    let device = device();
    let stream = device.stream(0);
    let x = four(&stream, 4.0);
    let op = api::zeros::<f32>([4]).then(|y| double(&x, y));
    let mut graph = CapturedGraph::capture(&stream, op).unwrap();
    let y = graph.take_output().unwrap();
    assert!(graph.take_output().is_none());
    assert_eq!((y.shape().extents(), y.elements()), (&[4][..], 4));
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 8.0);
}

#[test]
fn update_enqueues_without_waiting_and_precedes_the_next_launch_on_any_stream() {
    let device = device();
    let streams: Vec<_> = (0..4).map(|index| device.stream(index)).collect();
    let mut x = four(&streams[0], 1.0);
    let mut y = four(&streams[0], 0.0);
    let graph = double(&x, &mut y).map(drop).graph_on(&streams[0]).unwrap();
    for (round, stream) in streams.iter().cycle().take(12).enumerate() {
        graph.update(api::store(vec![round as f32; 4], &mut x)).unwrap();
        graph.launch().sync_on(stream).unwrap();
        assert_eq!(value_of(&y), 2.0 * round as f32, "on {stream:?}");
    }
    // A kernel will do as well, as long as it gives nothing.
    graph.update(add(1.0, &mut x).map(drop)).unwrap();
    graph.launch().sync_on(&streams[3]).unwrap();
    assert_eq!(value_of(&y), 24.0);
}

#[test]
fn update_does_not_wait_for_the_device() {
    let device = device();
    let stream = device.stream(0);
    let (entered, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (theirs, also) = (entered.clone(), leave.clone());
    let graph = host("block", (), move |_| -> Result<()> {
        theirs.wait();
        also.wait();
        Ok(())
    });
    let graph = graph.graph_on(&stream).unwrap();
    let other = Device::cpu(1).unwrap();
    let (mut x, far) = (four(&other.stream(0), 1.0), other.stream(0));
    thread::scope(|scope| {
        scope.spawn(|| graph.launch().sync_on(&stream).unwrap());
        entered.wait();
        // This device is held up by the callback; the other one takes updates and launches.
        let doubled = add(1.0, &mut x).map(drop).graph_on(&far).unwrap();
        doubled.update(value(())).unwrap();
        doubled.launch().sync_on(&far).unwrap();
        leave.wait();
    });
    assert_eq!(value_of(&x), 2.0);
}

#[test]
fn ten_launches_are_ten_executions() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 0.0);
    let graph = add(1.0, &mut y).map(drop).graph_on(&stream).unwrap();
    for _ in 0..10 {
        graph.launch().sync_on(&stream).unwrap();
    }
    assert_eq!(value_of(&y), 10.0);
}

#[test]
fn an_empty_graph_launches() {
    let device = device();
    let stream = device.stream(0);
    let mut graph = value(7).graph_on(&stream).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    assert!(graph.graph().is_empty());
    assert_eq!(graph.take_output(), Some(7));
}

#[test]
fn launches_on_several_streams_and_threads_all_happen() {
    let device = device();
    let mut y = four(&device.stream(0), 0.0);
    let graph = add(1.0, &mut y).map(drop).graph_on(&device.stream(0)).unwrap();
    thread::scope(|scope| {
        for at in 0..4 {
            let (graph, stream) = (&graph, device.stream(at));
            scope.spawn(move || {
                for _ in 0..25 {
                    graph.launch().sync_on(&stream).unwrap();
                }
            });
        }
    });
    assert_eq!(value_of(&y), 100.0);
}

#[test]
fn launch_is_an_operation_like_others_on_whichever_stream() {
    let device = device();
    let mut y = four(&device.stream(0), 1.0);
    let adding = add(1.0, &mut y).map(drop).graph_on(&device.stream(0)).unwrap();
    let tripling = triple(&mut y).map(drop).graph_on(&device.stream(1)).unwrap();
    let both = zip!(adding.launch(), tripling.launch()).then(|_| adding.launch());
    both.sync_on(&device.stream(2)).unwrap();
    assert_eq!(value_of(&y), 7.0);
}

#[test]
fn a_launch_inside_a_capture_becomes_a_child_graph() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 0.0);
    let by = Slot::new("by", 1.0f32);
    let inner = add_slot(&by, &mut y).map(drop).graph_on(&stream).unwrap();
    let outer = CapturedGraph::scope(&stream, |s| {
        s.record(inner.launch())?;
        s.record(inner.launch().with(&by, 10.0))?;
        s.record(triple(&mut y)).map(drop)
    });
    let outer = outer.unwrap();
    drop(inner);
    assert_eq!(outer.graph().node_count(), 3);
    outer.launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 33.0, "(0 + 1 + 10) 3");
    // What was left open is still open, what was given is baked.
    outer.launch().with(&by, 2.0).sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 135.0, "(33 + 2 + 10) 3");
}

#[test]
fn slots_are_set_for_one_launch() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 0.0);
    let by = Slot::new("by", 1.0f32);
    let graph = add_slot(&by, &mut y).map(drop).graph_on(&stream).unwrap();
    graph.launch().with(&by, 5.0).sync_on(&stream).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 6.0, "the second runs with the default");
    let other = Slot::new("other", 0.0f32);
    let wrong = graph.launch().with(&other, 1.0).sync_on(&stream).unwrap_err();
    assert!(matches!(wrong, Error::UnknownSlot { name } if name == "other"));
    assert_eq!(value_of(&y), 6.0);
    add_slot(&by, &mut y).sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 7.0, "executed without a graph, too");
}
