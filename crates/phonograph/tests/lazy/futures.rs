//! Awaiting operations, on an executor of ten lines.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;

use phonograph::prelude::*;

use crate::common::*;

#[test]
fn a_future_is_woken_by_completion_and_not_by_spinning() {
    let device = device();
    let _entered = device.enter();
    let mut y = four(&device.stream(0), 1.0);
    let (done, polls) = block_on_counting(async {
        let y = add(1.0, &mut y).await?;
        triple(y).await.map(drop)
    });
    done.unwrap();
    assert_eq!(value_of(&y), 6.0);
    // Once to begin, and once after each wake. `park` may return without one, but nothing polls in between.
    assert!(polls <= 8, "{polls} polls for two operations");
    assert_eq!(device.pending(), 0);
}

#[test]
fn a_future_of_no_work_is_ready_at_once() {
    let device = device();
    let _entered = device.enter();
    let (done, polls) = block_on_counting(value(5).into_future());
    assert_eq!((done.unwrap(), polls), (5, 1));
}

#[test]
fn a_policy_without_a_stream_makes_the_future_fail() {
    let device = device();
    let no_stream = |result: Result<i32>| {
        assert!(matches!(result, Err(Error::NoStream { .. })), "{result:?}");
    };
    no_stream(block_on(value(1).into_future())); // none entered
    no_stream(value(1).sync());
    no_stream(block_on(value(1).schedule(Policy::round_robin([]))));
    no_stream(block_on(value(1).schedule(Policy::explicit(|| None))));
    let _entered = device.enter();
    assert_eq!(block_on(value(1).into_future()).unwrap(), 1);
    let _inner = Policy::round_robin([]).enter();
    no_stream(value(1).sync());
}

#[test]
fn policies_choose_the_stream() {
    let device = device();
    let index = || with_context(|cx| Ok(cx.stream().index()));
    let run = |policy: &Policy| -> Vec<u32> {
        (0..5).map(|_| block_on(index().schedule(policy)).unwrap()).collect()
    };
    assert_eq!(run(&Policy::from(&device)), [0, 1, 2, 3, 0]);
    assert_eq!(run(&Policy::single(&device.stream(2))), [2; 5]);
    let chosen = device.clone();
    assert_eq!(run(&Policy::explicit(move || Some(chosen.stream(3)))), [3; 5]);
    let _entered = Policy::single(&device.stream(1)).enter();
    assert_eq!(index().sync().unwrap(), 1);
    assert_eq!(index().sync_on(&device.stream(3)).unwrap(), 3);
}

#[test]
fn dropping_a_future_does_not_block_and_frees_nothing_that_is_in_use() {
    let device = device();
    let stream = device.stream(0);
    let (mut y, mut z) = (four(&stream, 1.0), four(&stream, 0.0));
    let (entered, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (theirs, also) = (entered.clone(), leave.clone());
    let graph = CapturedGraph::scope(&stream, |s| {
        s.record(host("hold", (), move |_| -> Result<()> {
            theirs.wait();
            also.wait();
            Ok(())
        }))?;
        s.record(add(1.0, &mut y))?;
        s.record(double(&y, &mut z)).map(drop)
    });
    let mut future = graph.as_ref().unwrap().launch().schedule(&stream);
    let poll = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending());
    entered.wait(); // the device is at work, and goes on only when it is told to
    drop((future, graph, y));
    leave.wait();
    stream.sync().unwrap();
    assert_eq!(value_of(&z), 4.0, "y was there until the end");
    // The device's thread lets go of the completion that nobody waits for once it has looked at the stream.
    while device.pending() > 0 {
        thread::yield_now();
    }
}

#[test]
fn what_a_dropped_future_has_started_is_done_all_the_same() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    for _ in 0..50 {
        let mut future = add(1.0, &mut y).schedule(&stream);
        let mut cx = Context::from_waker(Waker::noop());
        let poll = Pin::new(&mut future).poll(&mut cx);
        assert!(!matches!(poll, Poll::Ready(Err(_))));
    }
    assert_eq!(value_of(&y), 51.0);
    stream.sync().unwrap();
}

#[test]
fn a_future_that_was_not_polled_does_nothing() {
    let device = device();
    let mut y = four(&device.stream(0), 1.0);
    drop(add(1.0, &mut y).schedule(&device));
    assert_eq!((value_of(&y), device.pending()), (1.0, 0));
}

#[test]
fn many_tasks_on_many_threads_are_all_woken() {
    let device = device();
    let (tasks, steps) = if cfg!(miri) { (3, 4) } else { (8, 25) };
    thread::scope(|scope| {
        for _ in 0..tasks {
            let device = device.clone();
            scope.spawn(move || {
                let y = block_on(async {
                    let mut y = api::zeros::<f32>([4]).schedule(&device).await?;
                    for _ in 0..steps {
                        y = add(1.0, y).schedule(&device).await?;
                    }
                    Ok::<_, Error>(y)
                });
                assert_eq!(value_of(&y.unwrap()), steps as f32);
            });
        }
    });
    assert_eq!(device.pending(), 0);
}

#[test]
fn a_failure_is_told_to_the_future_it_is_of_and_to_no_other() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let failing = host("fails", (&mut y,), |_| Err("as asked"));
    let fails = failing.schedule(&stream);
    let z = four(&stream, 1.0);
    let goes = triple(z).schedule(&stream);
    let (fails, goes) = block_on(async { (fails.await, goes.await) });
    let error = fails.map(drop).unwrap_err();
    assert!(error.to_string().contains("as asked"), "{error}");
    assert_eq!(value_of(&goes.unwrap()), 3.0);
    assert!(
        y.to_vec().unwrap_err().to_string().contains("as asked"),
        "what it would have written is tainted"
    );
}
