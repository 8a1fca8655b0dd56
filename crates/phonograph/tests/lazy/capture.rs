//! Capturing one operation, launching it, updating what it reads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use phonograph::prelude::*;
use phonograph::runtime::capture::LogicalStreamId;
use phonograph::runtime::streams::{self, SoftwareCpu};
use phonograph_cuda::CudaBackend;

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

/// Hands a launch to stream 0 of the runtime underneath, where it stays queued until somebody needs it or, on CUDA, is under way.
fn launch_underneath(device: &Device, graph: &streams::Graph) {
    let id = LogicalStreamId { value: 0 };
    match device.shared::<SoftwareCpu>() {
        Some(cpu) => cpu.stream_of(id).launch(graph).unwrap(),
        None => device.shared::<CudaBackend>().unwrap().stream_of(id).launch(graph).unwrap(),
    }
}

#[test]
fn update_does_not_wait_for_what_its_stream_was_given_before() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let (go, gone) = mpsc::channel();
    let gone = Mutex::new(gone);
    let held = CapturedGraph::scope(&stream, |s| {
        s.record(host("hold", (&mut y,), move |_| {
            let patience = Duration::from_secs(10);
            gone.lock().unwrap().recv_timeout(patience).map_err(|_| "nobody lets it go")
        }))?;
        s.record(triple(&mut y)).map(drop)
    });
    let held = held.unwrap();
    launch_underneath(&device, held.shared());
    held.update(add(1.0, &mut y).map(drop)).unwrap();
    go.send(()).unwrap();
    assert_eq!(value_of(&y), 4.0, "1 · 3 + 1");
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
#[cfg_attr(miri, ignore = "too long for it")]
fn case_39_a_hundred_thousand_operations_in_a_row_and_side_by_side_replay() {
    let device = device();
    // CUDA's driver takes longer for each node, the more there are side by side.
    let count: u64 = if device.shared::<SoftwareCpu>().is_some() { 100_000 } else { 4_000 };
    let stream = device.stream(0);
    let mut row = api::zeros::<f32>([1, 1]).sync_on(&stream).unwrap();
    let mut wide = api::zeros::<f32>([count, 1]).sync_on(&stream).unwrap();
    let graph = CapturedGraph::scope(&stream, |s| {
        for _ in 0..count {
            s.record(add(1.0, &mut row))?;
        }
        for part in wide.chunks_mut(1)? {
            s.record(sum(&row, part))?;
        }
        s.record(triple(&mut wide)).map(drop)
    });
    let graph = graph.unwrap();
    assert_eq!(graph.graph().node_count() as u64, 2 * count + 1);
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!((value_of(&row), value_of(&wide)), (count as f32, 3.0 * count as f32));
}

#[test]
#[cfg_attr(miri, ignore = "too long for it")]
fn case_39_ten_thousand_graphs_are_kept_and_given_back() {
    const COUNT: usize = 10_000;
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 0.0);
    let held = |device: &Device| -> u64 {
        device.report().classes.iter().map(|(_, class)| class.held_bytes).sum()
    };
    let before = held(&device);
    let capture = |_| add(1.0, &mut y).map(drop).graph_on(&stream).unwrap();
    let graphs: Vec<_> = (0..COUNT).map(capture).collect();
    for graph in &graphs {
        graph.launch().sync_on(&stream).unwrap();
    }
    assert_eq!((device.report().graphs, held(&device)), (COUNT, before), "no memory but y's");
    assert_eq!(value_of(&y), COUNT as f32);
    drop(graphs);
    assert_eq!(device.report().graphs, 0);
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
