//! Many threads on one device, some of which capture: nothing is lost, nobody waits for ever, and what reaches the driver is
//! what the driver allows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::modes::in_every_mode;
use crate::traced::{Shared, Trace};
use crate::work::{bytes, filled, id, plus, value};
use phonograph_capture::model::Model;
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::{Backend, Device, PooledStreamId, Step};
use phonograph_trace::{
    Call, EventId, Function, Mode, Stream as TracedStream, StreamId, StreamKind,
};

const THREADS: u64 = 64;
/// At least so many of each thread.
const OPERATIONS: u64 = 30;

#[derive(Default, Debug)]
struct Counts {
    operations: AtomicU64,
    executed: AtomicU64,
    refused: AtomicU64,
    captures: AtomicU64,
    abandoned: AtomicU64,
    /// All captures are over; until then the others go on.
    over: AtomicBool,
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

/// Submits until it is done, however often a recording on its slot has it refused. A refusal taints the counter, which is
/// then written anew from what the thread knows.
fn eager<B: Backend>(device: &Device<B>, me: u64, counts: &Counts) {
    let stream = device.stream_of(id(me));
    let patience = Instant::now() + Duration::from_secs(60);
    let again = |refused: CaptureError| {
        assert!(matches!(refused, CaptureError::Neighbour { .. }), "{refused}");
        assert!(Instant::now() < patience, "starved");
        add(&counts.refused, 1);
        thread::yield_now();
    };
    let counter = loop {
        match stream.alloc("counter", 16) {
            Ok(counter) => break counter,
            Err(refused) => again(refused),
        }
    };
    let mut done = 0;
    let mut rewrite = true;
    while rewrite || done < OPERATIONS || !counts.over.load(Ordering::Relaxed) {
        if rewrite {
            match stream.write(&counter, &bytes(done as f32)) {
                Ok(()) => rewrite = false,
                Err(refused) => {
                    again(refused);
                    continue;
                }
            }
        }
        match stream.submit(&plus("count", &counter, &counter, 1.0)) {
            Ok(()) => done += 1,
            Err(refused) => {
                again(refused);
                rewrite = true;
            }
        }
    }
    add(&counts.operations, done);
    let read = || loop {
        match stream.read(&counter) {
            Ok(bytes) => break f32::from_le_bytes(bytes[..4].try_into().unwrap()),
            Err(refused) => again(refused),
        }
    };
    add(&counts.executed, read() as u64);
}

/// Captures again and again on slot 1, each time replaying what it got; `stolen` are windows that a neighbour closes.
fn capturing<B: Backend>(device: &Device<B>, rounds: u64, counts: &Counts) {
    let owner = device.stream_of(id(THREADS * 4 + 1));
    let thief = device.stream_of(id(THREADS * 8 + 1));
    let (x, y) = (filled(&owner, "x", 1.0), filled(&owner, "y", 0.0));
    let refusals = || counts.refused.load(Ordering::Relaxed);
    for round in 0..rounds {
        let body = || {
            let t = owner.alloc("t", 16)?;
            owner.submit(&plus("t", &x, &t, 1.0))?;
            owner.submit(&plus("y", &t, &y, 1.0))
        };
        let window = owner.prepare().unwrap();
        body().unwrap();
        window.begin().unwrap();
        // Until a neighbour has met the recording: every window is contended.
        let (met, patience) = (refusals(), Instant::now() + Duration::from_secs(10));
        while refusals() == met && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        body().unwrap();
        if round % 4 == 3 {
            let error = thief.end("stolen").unwrap_err();
            assert!(matches!(error, CaptureError::Several { .. }), "{error}");
            assert!(owner.read(&y).is_err());
            add(&counts.abandoned, 1);
        } else {
            let graph = window.end("graph").unwrap();
            owner.write(&x, &bytes(round as f32)).unwrap();
            owner.launch(&graph).unwrap();
            assert_eq!(value(&owner, &y), round as f32 + 2.0);
            add(&counts.captures, 1);
        }
    }
}

/// Says that it is over, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn stress<B: Backend>(device: Device<B>, trace: Shared) {
    let counts = Counts::default();
    let rounds = 8;
    let start = Arc::new(Barrier::new(THREADS as usize + 1));
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (device, counts, start) = (&device, &counts, start.clone());
            scope.spawn(move || {
                start.wait();
                eager(device, me, counts);
            });
        }
        start.wait();
        let _over = Over(&counts.over);
        capturing(&device, rounds, &counts);
    });
    let [operations, executed, refused, captures, abandoned] = [
        &counts.operations,
        &counts.executed,
        &counts.refused,
        &counts.captures,
        &counts.abandoned,
    ]
    .map(|count| count.load(Ordering::Relaxed));
    let lost = operations - executed;
    println!(
        "{:?}: {THREADS} threads, {operations} operations, {captures} captures, {abandoned} abandoned, \
         {refused} refused, {lost} lost",
        device.graph_kind()
    );
    assert!(operations >= THREADS * OPERATIONS && refused >= rounds, "a recording met nobody");
    assert_eq!(lost, 0);
    assert_eq!(captures + abandoned, rounds);
    device.trim();
    let trace = trace.lock().unwrap();
    assert_eq!((trace.recordings.len(), trace.execs), (0, 0));
    as_the_driver_allows(&trace);
}

/// Replays what reached the device through the model of the driver: relaxed captures, a stream of the driver for each
/// pooled one, an event for each order. Every call must succeed there too.
pub fn as_the_driver_allows(trace: &Trace) {
    let streams = vec![StreamKind::NonBlocking; crate::work::STREAMS as usize];
    let mut model = Model::new(&streams, 1);
    let mut orders = trace.orders.iter();
    // The stream that began the capture which a stream is in.
    let mut members: BTreeMap<PooledStreamId, PooledStreamId> = BTreeMap::new();
    for (at, &(step, on)) in trace.log.iter().enumerate() {
        let stream = |on: PooledStreamId| TracedStream::Created(StreamId(on.0));
        let (function, first) = match step {
            Step::Begin => (Function::StreamBeginCapture, None),
            Step::End => (Function::StreamEndCapture, None),
            Step::Run | Step::Record => (Function::LaunchKernel, None),
            Step::Fence | Step::Read => (Function::StreamSynchronize, None),
            // Copies from the host and launches are work on the stream: captured, if it captures.
            Step::Write | Step::Launch => (Function::LaunchKernel, None),
            Step::Order => {
                let (place, first) = orders.next().expect("every order is noted");
                assert_eq!(*place, at);
                (Function::StreamWaitEvent, Some(*first))
            }
            Step::Upload | Step::Allocate | Step::Prepare | Step::Instantiate => continue,
        };
        let mut apply = |call: Call| {
            let outcome = model.apply(&call).unwrap();
            let message = format!("call {at}, {step} on {on:?}: {outcome:?}");
            assert!(outcome.result.is_success(), "{message}");
            matches!(outcome.effect, phonograph_capture::model::Effect::Node(_))
        };
        let event = first.map(|_| EventId(0));
        if let Some(first) = first {
            apply(Call { event, ..Call::on(Function::EventRecord, stream(first)) });
            members.extend(members.get(&first).map(|&origin| (on, origin)));
        }
        match step {
            Step::Begin => drop(members.insert(on, on)),
            Step::End => {
                // Who throws a capture away joins its streams first.
                let event = trace.discards.contains(&at).then_some(EventId(0));
                for (&member, _) in members.iter().filter(|(m, origin)| **origin == on && **m != on)
                {
                    let Some(_) = event else { continue };
                    apply(Call { event, ..Call::on(Function::EventRecord, stream(member)) });
                    apply(Call { event, ..Call::on(Function::StreamWaitEvent, stream(on)) });
                }
                members.retain(|_, origin| *origin != on);
            }
            _ => {}
        }
        let mode = (step == Step::Begin).then_some(Mode::Relaxed);
        let node = apply(Call { mode, event, ..Call::on(function, stream(on)) });
        assert_eq!(node, step == Step::Record, "call {at}: {step} on {on:?} was recorded or not");
    }
}

in_every_mode!(stress);
