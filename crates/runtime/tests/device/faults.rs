//! Every step that a program with captures asks of its device fails once, by an error and by a panic: afterwards the
//! streams serve, nothing has leaked, and what was not written is tainted.
//!
//! The points are enumerated: a run without faults counts how often each step comes; then each of them fails, one a run.
//! What each leaves behind is in a table, which is the same for every backend.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::traced::{Shared, Traced};
use crate::work::{bytes, filled, id, plus, value};
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::{Backend, Buffer, Device, Step, Stream, TrimReport};

/// What a run leaves to be looked at.
#[derive(Default)]
struct Left {
    buffers: Vec<Buffer>,
    errors: Vec<CaptureError>,
}

impl Left {
    fn note<T>(&mut self, result: Result<T, CaptureError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }
}

/// `to = x + 2`, through memory that is allocated on the way.
fn body<B: Backend>(stream: &Stream<B>, x: &Buffer, to: &Buffer) -> Result<(), CaptureError> {
    let scratch = stream.alloc("scratch", 2000)?;
    let between = stream.alloc("between", 16)?;
    stream.submit(&plus("first", x, &between, 1.0))?;
    drop(scratch);
    stream.submit(&plus("second", &between, to, 1.0))
}

/// Captures that make `y` and `z` of `x`, a window given up that would have made `w`, replays after `x` has changed, and
/// a neighbour that makes `far` of `y`. Goes on after whatever fails, as a program does that handles its errors.
fn scenario<B: Backend>(device: &Device<B>) -> Left {
    let (owner, other) = (device.stream_of(id(1)), device.stream_of(id(2)));
    let mut left = Left::default();
    for (stream, name) in
        [(&owner, "x"), (&owner, "y"), (&owner, "z"), (&owner, "w"), (&other, "far")]
    {
        let buffer = left.note(stream.alloc(name, 16));
        left.buffers.extend(buffer);
    }
    let [x, y, z, w, far] = &left.buffers.clone()[..] else { return left };
    for (stream, buffer) in [(&owner, x), (&owner, y), (&owner, z), (&owner, w), (&other, far)] {
        left.note(stream.write(buffer, &bytes(1.0)));
    }
    let capture = |name: &str, to: &Buffer| {
        let window = owner.prepare()?;
        body(&owner, x, to)?;
        window.begin()?;
        body(&owner, x, to)?;
        window.end(name)
    };
    let graphs = [("one", y), ("two", z)].map(|(name, to)| left.note(capture(name, to)));
    let given_up = || {
        let window = owner.prepare()?;
        body(&owner, x, w)?;
        window.begin()?;
        body(&owner, x, w)
    };
    left.note(given_up());
    left.note(owner.write(x, &bytes(10.0)));
    for graph in graphs.iter().flatten() {
        left.note(owner.launch(graph));
    }
    left.note(other.submit(&plus("far", y, far, 100.0)));
    left.note(owner.sync());
    left.note(other.sync());
    left
}

/// A window of two streams that makes `y`, `z` and `w` of `x`, with work on a branch each, one wait between them that the
/// memory asks for and one that the program does; then replays.
fn branching<B: Backend>(device: &Device<B>) -> Left {
    let (owner, side) = (device.stream_of(id(1)), device.stream_of(id(2)));
    let mut left = Left::default();
    for (stream, name) in [(&owner, "x"), (&owner, "y"), (&side, "z"), (&side, "w")] {
        let buffer = left.note(stream.alloc(name, 16));
        left.buffers.extend(buffer);
    }
    let [x, y, z, w] = &left.buffers.clone()[..] else { return left };
    for buffer in [x, y, z, w] {
        left.note(owner.write(buffer, &bytes(1.0)));
    }
    let body = || {
        let between = side.alloc("between", 16)?;
        owner.submit(&plus("y", x, y, 1.0))?;
        side.submit(&plus("between", x, &between, 2.0))?;
        side.submit(&plus("z", &between, z, 2.0))?;
        side.after(&owner)?;
        side.submit(&plus("w", y, w, 10.0))
    };
    let capture = || {
        let window = owner.prepare_with(&[&side])?;
        body()?;
        window.begin()?;
        body()?;
        window.end("branching")
    };
    let graph = left.note(capture());
    left.note(owner.write(x, &bytes(10.0)));
    if let Some(graph) = graph {
        left.note(side.launch(&graph));
    }
    left.note(owner.sync());
    left.note(side.sync());
    left
}

/// Runs every point of failure of both programs and tells what each left.
pub fn check<B: Backend>(make: impl Fn() -> (Device<Traced<B>>, Shared), mode: &str) -> String {
    let mut table = String::new();
    for (name, scenario) in [
        ("one stream", scenario as fn(&Device<Traced<B>>) -> Left),
        ("two streams in a window", branching),
    ] {
        writeln!(table, "{name}").unwrap();
        let calls = enumerate(&make, mode, scenario, &mut table);
        let points: u64 = calls.iter().filter(|(step, _)| **step != Step::Read).map(|c| c.1).sum();
        println!(
            "{mode}, {name}: {points} points of failure, each by an error and by a panic, all {} survived: {calls:?}",
            2 * points
        );
    }
    table
}

fn enumerate<B: Backend>(
    make: &impl Fn() -> (Device<Traced<B>>, Shared),
    mode: &str,
    scenario: fn(&Device<Traced<B>>) -> Left,
    table: &mut String,
) -> BTreeMap<Step, u64> {
    let (device, trace) = make();
    let whole = scenario(&device);
    assert_eq!(whole.errors, []);
    let calls: BTreeMap<Step, u64> = trace.lock().unwrap().calls.clone();
    row(table, "no failure", &device, &whole);
    for step in [
        Step::Allocate,
        Step::Write,
        Step::Prepare,
        Step::Run,
        Step::Order,
        Step::Fence,
        Step::Begin,
        Step::Record,
        Step::End,
        Step::Instantiate,
        Step::Upload,
        Step::Launch,
    ] {
        assert!(calls.contains_key(&step), "the scenario has no {step}");
    }
    for (&step, &count) in calls.iter().filter(|(step, _)| **step != Step::Read) {
        for (time, panic) in (0..count).flat_map(|time| [(time, false), (time, true)]) {
            let (device, trace) = make();
            trace.lock().unwrap().fail = Some((step, time));
            trace.lock().unwrap().panic = panic;
            let how = if panic { " panics" } else { "" };
            let point = format!("{step} {time}{how}");
            let left = scenario(&device);
            assert!(trace.lock().unwrap().failed, "{mode}, {point}: the point was not reached");
            trace.lock().unwrap().fail = None;
            assert!(!device.status().any_active(), "{mode}, {point}: a window is open");
            assert!(told(&left, step), "{mode}, {point}: {:?}", left.errors);
            row(table, &point, &device, &left);
            after(&device, left, &trace, &format!("{mode}, {point}"));
        }
    }
    calls
}

/// A row of the table: what each buffer holds, or whose failure has tainted it.
fn row<B: Backend>(table: &mut String, point: &str, device: &Device<B>, left: &Left) {
    let stream = device.stream_of(id(3));
    write!(table, "{point:>20}:").unwrap();
    for buffer in &left.buffers {
        match stream.read(buffer) {
            Ok(_) => write!(table, " {}={}", buffer.name(), value(&stream, buffer)).unwrap(),
            Err(CaptureError::Tainted { cause, .. }) => {
                let cause = match &*cause {
                    CaptureError::Aborted { .. } => "aborted".into(),
                    CaptureError::Backend(failed) => failed.step.to_string(),
                    CaptureError::Doomed { cause, .. } => format!("doomed by {cause}"),
                    other => panic!("{other}"),
                };
                write!(table, " {}:{cause}", buffer.name()).unwrap();
            }
            Err(error) => panic!("{point}: {error}"),
        }
    }
    table.push('\n');
}

/// Whether somebody has been told of the failure, by its name.
fn told(left: &Left, step: Step) -> bool {
    let mut errors: Vec<&CaptureError> = left.errors.iter().collect();
    while let Some(error) = errors.pop() {
        match error {
            CaptureError::Backend(failed) if failed.step == step => return true,
            CaptureError::Doomed { cause, .. } => errors.push(cause),
            CaptureError::Tainted { cause, .. } => errors.push(cause),
            CaptureError::Several { errors: several } => errors.extend(several),
            _ => {}
        }
    }
    false
}

fn after<B: Backend>(device: &Device<B>, left: Left, trace: &Shared, point: &str) {
    let owner = device.stream_of(id(1));
    // What is tainted can be rewritten.
    for buffer in &left.buffers {
        owner.write(buffer, &bytes(6.0)).unwrap();
        assert_eq!(value(&owner, buffer), 6.0, "{point}");
    }
    // The stream captures and replays.
    let (x, y) = (filled(&owner, "x", 10.0), filled(&owner, "y", 0.0));
    let window = owner.prepare().unwrap();
    body(&owner, &x, &y).unwrap();
    window.begin().unwrap();
    body(&owner, &x, &y).unwrap();
    let graph = window.end("again").unwrap();
    owner.write(&x, &bytes(20.0)).unwrap();
    owner.launch(&graph).unwrap();
    assert_eq!(value(&owner, &y), 22.0, "{point}");
    // Nothing is left.
    drop((x, y, graph, left));
    for stream in [owner, device.stream_of(id(2))] {
        assert!(stream.sync().unwrap().is_done());
    }
    assert!(matches!(device.trim(), TrimReport::Released { .. }));
    let report = device.report();
    assert_eq!((report.classes.len(), report.graphs, report.tainted), (0, 0, 0), "{point}");
    let trace = trace.lock().unwrap();
    assert_eq!((trace.pages, trace.recordings.len(), trace.execs), (0, 0, 0), "{point}");
    assert_eq!(trace.prepared, 0, "{point}");
}
