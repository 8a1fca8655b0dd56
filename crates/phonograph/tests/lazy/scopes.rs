//! Scopes, and the lock that keeps a thread from executing while it records.

use std::thread;

use phonograph::prelude::*;

use crate::common::*;

#[test]
fn what_one_record_writes_the_next_may_read() {
    let device = device();
    let stream = device.stream(0);
    let (mut x, mut y) = (four(&stream, 1.0), four(&stream, 0.0));
    let graph = CapturedGraph::scope(&stream, |s| {
        s.record(add(1.0, &mut x))?;
        s.record(double(&x, &mut y))?; // reads what was just written
        s.record(triple(&mut x))?; // overwrites what was just read
        s.record(sum(&x, &mut y)).map(drop)
    });
    let graph = graph.unwrap();
    assert_eq!((value_of(&x), value_of(&y)), (1.0, 0.0));
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!((value_of(&x), value_of(&y)), (6.0, 10.0));
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!((value_of(&x), value_of(&y)), (21.0, 35.0));
}

#[test]
fn record_gives_the_operations_output_at_once() {
    let device = device();
    let stream = device.stream(0);
    let x = four(&stream, 2.0);
    let y = four(&stream, 0.0);
    let mut graph = CapturedGraph::scope(&stream, |s| {
        let y = s.record(double(&x, y))?;
        assert_eq!(y.elements(), 4);
        Ok(y)
    });
    let graph = graph.as_mut().unwrap();
    let y = graph.take_output().unwrap();
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 4.0);
}

#[test]
fn inside_a_scope_everything_that_executes_is_refused_and_the_capture_goes_on() {
    let device = device();
    let stream = device.stream(0);
    let _entered = device.enter();
    let mut y = four(&stream, 1.0);
    let mut z = four(&stream, 1.0);
    let updated = add(1.0, &mut z).map(drop).graph_on(&stream).unwrap();
    let graph = CapturedGraph::scope(&stream, |s| {
        non_reentrant(add(10.0, &mut z).sync());
        non_reentrant(add(10.0, &mut z).sync_on(&stream));
        non_reentrant(add(10.0, &mut z).sync_on(&device.stream(1)));
        non_reentrant(block_on(add(10.0, &mut z).into_future()));
        non_reentrant(updated.update(add(10.0, &mut z).map(drop)));
        non_reentrant(updated.launch().sync_on(&stream));
        non_reentrant(add(10.0, &mut z).graph_on(&stream).map(drop));
        non_reentrant(CapturedGraph::scope(&stream, |_| Ok(())));
        non_reentrant(z.to_vec());
        non_reentrant(stream.sync());
        s.record(add(1.0, &mut y)).map(drop)
    });
    let graph = graph.unwrap();
    assert_eq!(graph.graph().node_count(), 1);
    assert_eq!((value_of(&y), value_of(&z)), (1.0, 1.0), "nothing was executed");
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 2.0);
}

#[test]
fn what_is_refused_inside_says_where_it_was_asked_for() {
    let device = device();
    let stream = device.stream(0);
    let (x, mut y) = (four(&stream, 1.0), four(&stream, 2.0));
    let graph = sum(&x, &mut y).map(drop).graph_on(&stream).unwrap();
    let mut refusals = Vec::new();
    let from = line!();
    let captured = CapturedGraph::scope(&stream, |s| {
        refusals.push(x.to_vec().map(drop));
        refusals.push(sum(&x, &mut y).map(drop).sync());
        refusals.push(graph.launch().sync_on(&stream));
        refusals.push(graph.launch().graph_on(&stream).map(drop));
        refusals.push(graph.update(api::store(vec![0.0f32; 4], &mut y)));
        refusals.push(stream.sync());
        refusals.push(stream.issue(sum(&x, &mut y)).map(drop));
        refusals.push(block_on(async { graph.launch().await }));
        refusals.push(CapturedGraph::scope(s.stream(), |_| Ok(())).map(drop));
        Ok(())
    });
    captured.unwrap();
    for (line, refusal) in (from + 2..).zip(refusals) {
        let error = refusal.unwrap_err();
        let Error::NonReentrant { at: Some(at), .. } = &error else { panic!("{error}") };
        assert_eq!((at.file(), at.line()), (file!(), line), "{error}");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}

#[test]
fn inside_a_captured_closure_it_is_the_same() {
    let device = device();
    let stream = device.stream(0);
    let (mut y, mut z) = (four(&stream, 1.0), four(&stream, 1.0));
    let captured = value(()).then(|()| {
        non_reentrant(add(10.0, &mut z).sync_on(&stream));
        add(1.0, &mut y).map(drop)
    });
    captured.graph_on(&stream).unwrap().launch().sync_on(&stream).unwrap();
    assert_eq!((value_of(&y), value_of(&z)), (2.0, 1.0));
    // What is captured can be executed: the rule is the same there.
    let executed = value(()).map(|()| non_reentrant(add(10.0, &mut z).sync_on(&stream)));
    executed.sync_on(&stream).unwrap();
    assert_eq!(value_of(&z), 1.0);
}

#[test]
fn only_then_unchecked_executes_eagerly_inside() {
    let device = device();
    let stream = device.stream(0);
    let (mut y, mut z) = (four(&stream, 1.0), four(&stream, 1.0));
    let (recorded, executed) = (&mut y, &mut z);
    let next = |()| {
        add(10.0, executed).sync_on(&device.stream(1)).unwrap();
        add(1.0, recorded).map(drop)
    };
    // SAFETY: what is executed touches nothing that is recorded.
    let op = unsafe { value(()).then_unchecked(next) };
    let graph = op.graph_on(&stream).unwrap();
    assert_eq!((value_of(&y), value_of(&z)), (1.0, 11.0));
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!((value_of(&y), value_of(&z)), (2.0, 11.0), "and is not replayed");
    non_reentrant_after_lifting(&device);
}

/// The lock is lifted for the closure alone.
fn non_reentrant_after_lifting(device: &Device) {
    let stream = device.stream(0);
    let op = value(());
    // SAFETY: nothing is executed.
    let op = unsafe { op.then_unchecked(value) }.map(|()| non_reentrant(stream.sync()));
    op.graph_on(&stream).unwrap();
    stream.sync().unwrap();
}

#[test]
fn other_threads_go_on() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let graph = CapturedGraph::scope(&stream, |s| {
        thread::scope(|scope| {
            let (device, stream) = (&device, &stream);
            let other = scope.spawn(move || {
                let mut z = four(stream, 1.0); // on the very same stream
                let graph = add(1.0, &mut z).map(drop).graph_on(&device.stream(1)).unwrap();
                graph.launch().sync_on(stream).unwrap();
                value_of(&z)
            });
            assert_eq!(other.join().unwrap(), 2.0);
        });
        s.record(add(1.0, &mut y)).map(drop)
    });
    assert_eq!(graph.unwrap().graph().node_count(), 1, "theirs is not in it");
}

#[test]
fn bodies_of_conditionals_are_scopes_of_the_same_recording() {
    let device = device();
    let stream = device.stream(0);
    let mut flag = api::full([1], 3u32).sync_on(&stream).unwrap();
    let mut y = four(&stream, 0.0);
    let by = Slot::new("by", 1.0f32);
    kernel! { fn less(left: &mut [u32]) |e| { left = left - e.constant(1u32); } }
    let graph = CapturedGraph::scope(&stream, |s| {
        s.record(repeat_while(&mut flag, |s, flag| {
            s.record(less(&mut *flag))?;
            s.record(when(&*flag, |s, _| s.record(add_slot(&by, &mut y)).map(drop)))
        }))
    });
    let graph = graph.unwrap();
    graph.launch().with(&by, 10.0).sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 20.0, "thrice round, the last time without");
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value_of(&y), 20.0, "the flag is 0 by now");
}
