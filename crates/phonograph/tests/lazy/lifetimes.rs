//! Who keeps what alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use phonograph::prelude::*;

use crate::common::*;

fn held_bytes(device: &Device) -> u64 {
    device.report().classes.iter().map(|(_, class)| class.held_bytes).sum()
}

#[test]
fn a_launch_outlives_its_graph_and_the_last_owner_destroys_once() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 0.0);
    let dropped = Arc::new(AtomicU32::new(0));
    struct Counts(Arc<AtomicU32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let guard = Counts(dropped.clone());
    let op = add(1.0, &mut y).map(drop).then(|()| {
        host("keeps", (), move |_| -> Result<()> {
            let _ = &guard;
            Ok(())
        })
    });
    let graph = op.graph_on(&stream).unwrap();
    let (first, second) = (graph.launch(), graph.launch());
    drop(graph);
    let there = std::thread::spawn({
        let stream = device.stream(1);
        move || first.sync_on(&stream)
    });
    there.join().unwrap().unwrap();
    assert_eq!((device.report().graphs, dropped.load(Ordering::Relaxed)), (1, 0));
    second.sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 2.0);
    assert_eq!((device.report().graphs, dropped.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn graphs_and_launches_are_send() {
    fn send<T: Send>() {}
    send::<CapturedGraph<Tensor<f32>>>();
    send::<GraphLaunch>();
    send::<Tensor<f32>>();
    send::<phonograph::DeviceFuture<GraphLaunch>>();
}

#[test]
fn a_graph_owns_the_memory_that_it_touches() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 0.0);
    let x = four(&stream, 5.0);
    let graph = double(&x, &mut y).map(drop).graph_on(&stream).unwrap();
    drop(x);
    // What would take the memory of x, if it were free.
    let others: Vec<_> = (0..64).map(|_| four(&stream, 9.0)).collect();
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 10.0);
    drop((graph, others));
    assert_eq!(held_bytes(&device), 256, "only y is left");
}

#[test]
fn what_a_capture_allocates_is_the_graphs_and_relaunches() {
    let device = device();
    let stream = device.stream(0);
    let op = api::zeros::<f32>([4]).then(|y| add(1.0, y)).then(api::dup);
    let mut graph = op.graph_on(&stream).unwrap();
    let y = graph.take_output().unwrap();
    for _ in 0..3 {
        graph.launch().sync_on(&stream).unwrap();
        assert_eq!(value_of(&y), 1.0, "zeroed anew each time");
    }
    drop((graph, y));
    assert_eq!(held_bytes(&device), 0);
}

#[test]
fn an_upload_in_a_capture_owns_its_contents() {
    let device = device();
    let stream = device.stream(0);
    let data = vec![1.0f32, 2.0, 3.0];
    let mut graph = api::upload(data.clone(), [3]).then(triple).graph_on(&stream).unwrap();
    let y = graph.take_output().unwrap();
    for _ in 0..2 {
        graph.launch().sync_on(&stream).unwrap();
        assert_eq!(y.to_vec().unwrap(), [3.0, 6.0, 9.0]);
    }
}

#[test]
fn host_functions_are_owned_by_the_graph_and_run_on_every_replay_in_order() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = seen.clone();
    let graph = CapturedGraph::scope(&stream, |s| {
        s.record(add(1.0, &mut y))?;
        s.record(host("look", (&y,), move |args| -> Result<(), String> {
            let values = args.read::<f32>(0).map_err(|e| e.to_string())?;
            log.lock().unwrap().push(values[0]);
            Ok(())
        }))?;
        s.record(triple(&mut y))?;
        s.record(host("halve", (&mut y,), |args| -> Result<(), String> {
            for value in args.write::<f32>(0).map_err(|e| e.to_string())? {
                *value /= 2.0;
            }
            Ok(())
        }))
        .map(drop)
    });
    let graph = graph.unwrap();
    assert!(seen.lock().unwrap().is_empty());
    for _ in 0..2 {
        graph.launch().sync_on(&stream).unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), [2.0, 4.0]);
    assert_eq!(value_of(&y), 6.0);
    drop(graph);
    assert_eq!(device.report().graphs, 0);
    assert_eq!(Arc::strong_count(&seen), 1, "the graph has let its functions go");
}

#[test]
fn inside_a_host_function_waiting_is_refused_and_not_a_deadlock() {
    let device = device();
    let stream = device.stream(0);
    let y = Arc::new(four(&stream, 1.0));
    let (inner, theirs) = (y.clone(), stream.clone());
    let op = host("waits", (), move |_| -> Result<()> {
        non_reentrant(inner.to_vec());
        non_reentrant(theirs.sync());
        Ok(())
    });
    op.sync_on(&stream).unwrap();
}

#[test]
fn the_device_goes_when_its_last_handle_goes() {
    let device = device();
    let stream = device.stream(0);
    let y = four(&stream, 1.0);
    let graph = triple(y).graph_on(&stream).unwrap();
    drop((device, stream));
    let mut graph = graph;
    let y = graph.take_output().unwrap();
    let stream = graph.stream().clone();
    graph.launch().sync_on(&stream).unwrap();
    drop((graph, stream));
    assert_eq!(value_of(&y), 3.0, "a tensor keeps its device");
}
