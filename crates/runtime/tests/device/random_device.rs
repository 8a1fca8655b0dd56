//! Random programs of several logical streams against what they ought to come to: values, refusals, taints, captures.

use std::collections::BTreeSet;

use crate::modes::with_every_mode;
use crate::traced::{Shared, Traced};
use crate::work::{STREAMS, bytes, id, plus};
use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use phonograph_runtime::capture::{CaptureError, LogicalStreamId};
use phonograph_runtime::streams::{Backend, Buffer, Device, Graph, Step};

/// `to = from + 1`.
type Plus = (usize, usize);

#[derive(Clone, Debug)]
enum Window {
    WarmUp,
    Recording { operations: Vec<Plus>, doomed: bool, refused: BTreeSet<usize> },
}

/// What the device ought to be.
struct Oracle {
    /// None if tainted.
    values: Vec<Option<f32>>,
    slots: Vec<Option<(LogicalStreamId, Window)>>,
}

fn written(operations: &[Plus]) -> BTreeSet<usize> {
    operations.iter().map(|&(_, to)| to).collect()
}

impl Oracle {
    fn slot(&mut self, stream: LogicalStreamId) -> &mut Option<(LogicalStreamId, Window)> {
        &mut self.slots[(stream.value % u64::from(STREAMS)) as usize]
    }

    fn recorder(&mut self, stream: LogicalStreamId) -> Option<LogicalStreamId> {
        match self.slot(stream) {
            Some((owner, Window::Recording { .. })) => Some(*owner),
            _ => None,
        }
    }

    fn taint(&mut self, buffers: impl IntoIterator<Item = usize>) -> bool {
        buffers.into_iter().for_each(|buffer| self.values[buffer] = None);
        false
    }

    fn doom(&mut self, stream: LogicalStreamId, buffers: BTreeSet<usize>) -> bool {
        if let Some((_, Window::Recording { doomed, refused, .. })) = self.slot(stream) {
            *doomed = true;
            refused.extend(&buffers);
        }
        self.taint(buffers)
    }

    /// Runs operations as one: all of them, or none for a tainted input.
    fn run(&mut self, operations: &[Plus]) -> bool {
        let mut made = self.values.clone();
        for &(from, to) in operations {
            match made[from] {
                Some(value) => made[to] = Some(value + 1.0),
                None => return self.taint(written(operations)),
            }
        }
        self.values = made;
        true
    }

    fn submit(&mut self, stream: LogicalStreamId, operation: Plus) -> bool {
        match self.recorder(stream) {
            None => self.run(&[operation]),
            Some(owner) if owner == stream => {
                if let Some((_, Window::Recording { operations, .. })) = self.slot(stream) {
                    operations.push(operation);
                }
                true
            }
            Some(_) => self.taint([operation.1]),
        }
    }

    fn write(&mut self, stream: LogicalStreamId, buffer: usize, value: f32) -> bool {
        match self.recorder(stream) {
            None => {
                self.values[buffer] = Some(value);
                true
            }
            Some(owner) if owner == stream => self.doom(stream, [buffer].into()),
            Some(_) => self.taint([buffer]),
        }
    }

    fn launch(&mut self, stream: LogicalStreamId, operations: &[Plus]) -> bool {
        match self.recorder(stream) {
            None => self.run(operations),
            Some(owner) if owner == stream => self.doom(stream, written(operations)),
            Some(_) => self.taint(written(operations)),
        }
    }

    /// The operations of the graph, if there is one.
    fn end(&mut self, stream: LogicalStreamId) -> Option<Vec<Plus>> {
        self.recorder(stream)?;
        let (owner, window) = self.slot(stream).take()?;
        let Window::Recording { operations, doomed, refused } = window else { return None };
        if owner == stream && !doomed {
            return Some(operations);
        }
        self.taint(written(&operations).into_iter().chain(refused));
        None
    }

    fn abort(&mut self, stream: LogicalStreamId) -> bool {
        match self.slot(stream).take() {
            Some((owner, window)) if owner != stream => {
                *self.slot(stream) = Some((owner, window));
                false
            }
            Some((_, Window::Recording { operations, refused, .. })) => {
                self.taint(written(&operations).into_iter().chain(refused));
                true
            }
            _ => true,
        }
    }
}

const BUFFERS: usize = 4;

fn program<B: Backend>(u: &mut Unstructured<'_>, device: &Device<B>, trace: &Shared) -> Result<()> {
    let buffers: Vec<Buffer> =
        (0..BUFFERS).map(|b| device.stream_of(id(b as u64 % 3)).alloc("b", 16).unwrap()).collect();
    let mut oracle =
        Oracle { values: vec![Some(0.0); BUFFERS], slots: vec![None; STREAMS as usize] };
    let mut graphs: Vec<(Graph, Vec<Plus>)> = Vec::new();
    for step in 0..u.int_in_range(0..=60)? {
        let on = id(u.int_in_range(0..=1)? + u64::from(STREAMS) * u.int_in_range(0..=1)?);
        let stream = device.stream_of(on);
        let (from, to) = (u.choose_index(BUFFERS)?, u.choose_index(BUFFERS)?);
        let (expected, done) = match u.int_in_range(0..=11)? {
            0..=3 => {
                let op = plus("plus", &buffers[from], &buffers[to], 1.0);
                (oracle.submit(on, (from, to)), stream.submit(&op))
            }
            4 => {
                let value = step as f32;
                (oracle.write(on, to, value), stream.write(&buffers[to], &bytes(value)))
            }
            5 | 6 if !graphs.is_empty() => {
                let (graph, operations) = &graphs[u.choose_index(graphs.len())?];
                (oracle.launch(on, operations), stream.launch(graph))
            }
            7 => {
                let free = oracle.slot(on).is_none();
                if free {
                    *oracle.slot(on) = Some((on, Window::WarmUp));
                }
                (free, stream.prepare().map(std::mem::forget))
            }
            8 | 9 => {
                let opens =
                    matches!(oracle.slot(on), Some((owner, Window::WarmUp)) if *owner == on);
                if opens {
                    let (operations, refused) = (Vec::new(), BTreeSet::new());
                    let window = Window::Recording { operations, doomed: false, refused };
                    *oracle.slot(on) = Some((on, window));
                }
                (opens, stream.begin())
            }
            10 => {
                let operations = oracle.end(on);
                let graph = stream.end("graph");
                let expected = operations.is_some();
                let done = graph.map(|graph| graphs.extend(operations.map(|ops| (graph, ops))));
                (expected, done)
            }
            11 => (oracle.abort(on), stream.abort()),
            _ => {
                if !graphs.is_empty() {
                    graphs.swap_remove(u.choose_index(graphs.len())?);
                }
                continue;
            }
        };
        assert_eq!(done.is_ok(), expected, "step {step} by {on:?}: {done:?}");
        for stream in [0, 1, 4, 5].map(id) {
            let owns = matches!(oracle.slot(stream), Some((owner, _)) if *owner == stream);
            assert_eq!(device.status().is_capturing(stream), owns);
        }
        if u.ratio(1, 4)? {
            compare(device, &buffers, &oracle);
        }
    }
    compare(device, &buffers, &oracle);
    for slot in oracle.slots.iter().flatten() {
        device.stream_of(slot.0).abort().unwrap();
    }
    drop((buffers, graphs));
    for on in 0..STREAMS {
        assert!(device.stream_of(id(u64::from(on))).sync().unwrap().is_done());
    }
    device.trim();
    let trace = trace.lock().unwrap();
    assert_eq!((trace.pages, trace.execs, trace.recordings.len()), (0, 0, 0));
    Ok(())
}

/// Reads everything from a stream whose slot nobody captures on.
fn compare<B: Backend>(device: &Device<B>, buffers: &[Buffer], oracle: &Oracle) {
    let reader = device.stream_of(id(3));
    for (buffer, expected) in buffers.iter().zip(&oracle.values) {
        let read = reader.read(buffer);
        match expected {
            Some(value) => assert_eq!(read.as_ref(), Ok(&bytes(*value))),
            None => assert!(matches!(read, Err(CaptureError::Tainted { .. })), "{read:?}"),
        }
    }
}

fn any_program_comes_to_what_it_should<B: Backend>(make: impl Fn() -> (Device<Traced<B>>, Shared)) {
    let mut calls = std::collections::BTreeMap::<Step, u64>::new();
    arbtest(|u| {
        let (device, trace) = make();
        program(u, &device, &trace)?;
        for (&step, count) in &trace.lock().unwrap().calls {
            *calls.entry(step).or_default() += count;
        }
        Ok(())
    })
    .size_min(256)
    .budget_ms(1000);
    println!("{calls:?}");
    assert!(calls.contains_key(&Step::Launch) && calls.contains_key(&Step::Instantiate));
}

with_every_mode!(any_program_comes_to_what_it_should);
