//! Graphs of a group have scratch in common, which is safe where they never run together and it is scratch to all of them.

use phonograph_graph::{
    BufferId, Extent, MemcpyDir, MemcpyNode, MemsetNode, NodeKind, Pitched, Target,
};
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::streams::{
    Backend, Buffer, Device, Graph, GraphGroup, Operation, Step, Stream,
};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{OWNER, bytes, filled, id, plus, value};

in_every_mode!(
    graphs_of_a_group_share_their_scratch_and_still_give_what_they_should,
    launches_of_graphs_that_share_are_ordered_on_whatever_streams,
    graphs_of_no_group_or_another_share_nothing,
    a_buffer_that_outlives_its_window_fails_the_seal_where_another_graph_would_overwrite_it,
    a_buffer_that_is_read_before_it_is_written_fails_the_seal_there,
    what_a_graph_reads_before_it_writes_is_lent_to_nobody,
);

/// So large that each lies in a page of its own.
const LARGE: u64 = 2 << 20;

/// `to = from + by` through `count` large pieces of scratch and as many small ones.
fn through<B: Backend>(
    stream: &Stream<B>,
    count: usize,
    from: &Buffer,
    to: &Buffer,
    by: f32,
) -> Result<(), CaptureError> {
    let mut last = from.clone();
    for _ in 0..count {
        let scratch = stream.alloc("scratch", LARGE)?;
        let part = stream.alloc("part", 16)?;
        stream.submit(&whole("scratch", &scratch))?;
        stream.submit(&plus("part", &last, &part, 0.0))?;
        last = part;
    }
    stream.submit(&plus("to", &last, to, by))
}

/// Fills all of a buffer.
fn whole(name: &str, buffer: &Buffer) -> Operation {
    let dst = Pitched::linear(Target::Buffer(BufferId(0)), 0);
    let extent = Extent::linear(buffer.bytes());
    let fill = NodeKind::Memset(Box::new(MemsetNode { dst, value: 0, element_size: 1, extent }));
    Operation::new(name, fill, std::slice::from_ref(buffer)).unwrap()
}

fn sealed<B: Backend>(
    stream: &Stream<B>,
    group: Option<&GraphGroup>,
    body: impl Fn() -> Result<(), CaptureError>,
) -> Result<Graph, CaptureError> {
    let window = match group {
        Some(group) => stream.prepare_in(group, &[])?,
        None => stream.prepare()?,
    };
    body()?;
    window.begin()?;
    body()?;
    window.end("graph")
}

fn pages(trace: &Shared) -> i64 {
    trace.lock().unwrap().pages
}

fn graphs_of_a_group_share_their_scratch_and_still_give_what_they_should<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let group = device.group();
    let [x, y, z] = ["x", "y", "z"].map(|name| filled(&stream, name, 1.0));
    let first = sealed(&stream, Some(&group), || through(&stream, 3, &x, &y, 10.0)).unwrap();
    device.trim();
    let before = pages(&trace);
    let second = sealed(&stream, Some(&group), || through(&stream, 3, &x, &z, 100.0)).unwrap();
    device.trim();
    assert_eq!(pages(&trace), before, "the second needs no page of its own once it is sealed");
    let [one, two] = &device.retained()[..] else { panic!() };
    assert_eq!((one.shared_bytes, two.shared_bytes), (one.shared_bytes, one.shared_bytes));
    assert!(one.shared_bytes >= 3 * LARGE, "{one:?}");
    for x_now in [2.0, 5.0] {
        stream.write(&x, &bytes(x_now)).unwrap();
        for graph in [&first, &second, &first] {
            stream.launch(graph).unwrap();
        }
        assert_eq!([value(&stream, &y), value(&stream, &z)], [x_now + 10.0, x_now + 100.0]);
    }
    // A third after the first is gone, in what the second has.
    drop(first);
    let third = sealed(&stream, Some(&group), || through(&stream, 2, &x, &y, 1000.0)).unwrap();
    device.trim();
    assert_eq!(pages(&trace), before);
    stream.launch(&third).unwrap();
    stream.launch(&second).unwrap();
    assert_eq!([value(&stream, &y), value(&stream, &z)], [1005.0, 105.0]);
    drop((second, third, x, y, z));
    device.trim();
    assert_eq!(pages(&trace), 0);
}

fn launches_of_graphs_that_share_are_ordered_on_whatever_streams<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [stream, other] = [OWNER, 2].map(|value| device.stream_of(id(value)));
    for shares in [false, true] {
        let group = shares.then(|| device.group());
        // Nothing in common but what they read, and the scratch if they share it.
        let [x, y, z] = ["x", "y", "z"].map(|name| filled(&stream, name, 1.0));
        let [first, second] =
            [&y, &z].map(|to| sealed(&stream, group.as_ref(), || through(&stream, 1, &x, to, 1.0)));
        let (first, second) = (first.unwrap(), second.unwrap());
        for each in [&stream, &other] {
            each.sync().map(|synced| assert!(synced.is_done())).unwrap();
        }
        let orders = |trace: &Shared| {
            let trace = trace.lock().unwrap();
            trace.calls.get(&Step::Order).copied().unwrap_or_default()
        };
        let before = orders(&trace);
        stream.launch(&first).unwrap();
        other.launch(&second).unwrap();
        assert_eq!(orders(&trace) - before, u64::from(shares), "they may overlap or not");
        assert_eq!([value(&stream, &y), value(&stream, &z)], [2.0, 2.0]);
    }
}

fn graphs_of_no_group_or_another_share_nothing<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let [one, two] = [device.group(), device.group()];
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 1.0));
    let graphs = [Some(&one), Some(&two), None]
        .map(|group| sealed(&stream, group, || through(&stream, 2, &x, &y, 1.0)).unwrap());
    let mut scratch = std::collections::BTreeSet::new();
    for retained in device.retained() {
        // `x` and `y` are in all of them.
        assert_eq!(retained.shared_bytes, 2 * 256);
        let large = retained.pages.iter().filter(|(_, bytes)| *bytes >= LARGE);
        assert!(large.into_iter().all(|(page, _)| scratch.insert(*page)));
    }
    assert_eq!(scratch.len(), 6);
    drop(graphs);
}

fn a_buffer_that_outlives_its_window_fails_the_seal_where_another_graph_would_overwrite_it<
    B: Backend,
>(
    device: Device<B>,
    _: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let group = device.group();
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 1.0));
    let _first = sealed(&stream, Some(&group), || through(&stream, 1, &x, &y, 1.0)).unwrap();
    let window = stream.prepare_in(&group, &[]).unwrap();
    drop(stream.alloc("kept", LARGE).unwrap());
    window.begin().unwrap();
    let kept = stream.alloc("kept", LARGE).unwrap();
    stream.submit(&whole("fill", &kept)).unwrap();
    let error = window.end("second").unwrap_err();
    let CaptureError::Doomed { cause, .. } = &error else { panic!("{error}") };
    assert_eq!(
        cause.to_string(),
        "kept lies in memory that graph of its group overwrites, and somebody holds it after the \
         window; only scratch of the window can lie there"
    );
    assert!(stream.read(&kept).is_err(), "what the window would have written is tainted");
}

fn a_buffer_that_is_read_before_it_is_written_fails_the_seal_there<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let stream = device.stream_of(id(OWNER));
    let group = device.group();
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 1.0));
    let body = |stream: &Stream<B>| {
        let part = stream.alloc("part", 16)?;
        stream.submit(&plus("part", &x, &part, 0.0))?;
        stream.submit(&plus("y", &part, &y, 1.0))
    };
    let _first = sealed(&stream, Some(&group), || body(&stream)).unwrap();
    let reads_first = || {
        let carried = stream.alloc("carried", 16)?;
        stream.submit(&plus("y", &carried, &y, 1.0))?;
        stream.submit(&plus("carried", &x, &carried, 1.0))
    };
    let error = sealed(&stream, Some(&group), reads_first).unwrap_err();
    let CaptureError::Doomed { cause, .. } = &error else { panic!("{error}") };
    assert!(
        matches!(&**cause, CaptureError::Shared { buffer, .. } if buffer == "carried"),
        "{cause}"
    );
    stream.write(&y, &bytes(0.0)).unwrap();
    // By itself it may.
    sealed(&stream, None, reads_first).unwrap();
}

fn what_a_graph_reads_before_it_writes_is_lent_to_nobody<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let group = device.group();
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 1.0));
    // `sum` is carried from one replay to the next, though nobody holds it.
    let sum = stream.alloc("sum", LARGE).unwrap();
    let carries = {
        let window = stream.prepare_in(&group, &[]).unwrap();
        stream.submit(&whole("start", &sum)).unwrap();
        window.begin().unwrap();
        stream.submit(&head(&sum, &y)).unwrap();
        stream.submit(&whole("again", &sum)).unwrap();
        window.end("carries").unwrap()
    };
    drop(sum);
    let second = sealed(&stream, Some(&group), || through(&stream, 1, &x, &y, 1.0)).unwrap();
    let [one, two] = &device.retained()[..] else { panic!() };
    assert_eq!(one.shared_bytes, 256, "`y` alone");
    assert!(two.shared_bytes <= 2 * 256);
    drop((carries, second));
}

/// `to` = the first bytes of `from`.
fn head(from: &Buffer, to: &Buffer) -> Operation {
    let end = |buffer| Pitched::linear(Target::Buffer(BufferId(buffer)), 0);
    let (dir, extent) = (MemcpyDir::DeviceToDevice, Extent::linear(to.bytes()));
    let copy = NodeKind::Memcpy(Box::new(MemcpyNode { dir, src: end(0), dst: end(1), extent }));
    Operation::new("head", copy, &[from.clone(), to.clone()]).unwrap()
}
