//! The schedule that a recording is: each node on the stream it was recorded on, with a wait where an edge crosses.

use phonograph_graph::{ComputeGraph, EventId, Schedule, Step, StreamId};
use rustc_hash::FxHashMap;

/// Runs every node on its own stream (one without any on the first), in topological order, every internal buffer in a place
/// of its own. O(nodes + edges).
///
/// ```
/// use phonograph_capture::session::{CaptureEvent, StreamCapture, StreamId};
/// use phonograph_graph::check;
/// use phonograph_runtime::streams::recorded_schedule;
///
/// let (main, side) = (StreamId(3), StreamId(9));
/// let mut session = StreamCapture::new();
/// for stream in [main, side] {
///     session.begin_capture(stream)?;
///     session.record_host_callback(stream, "work")?;
/// }
/// session.record_event(side, CaptureEvent(0))?;
/// session.wait_event(main, CaptureEvent(0))?;
/// session.record_host_callback(main, "after both")?;
/// let graph = session.end_capture(main)?;
/// let schedule = recorded_schedule(&graph);
/// assert_eq!((schedule.streams, schedule.wait_count()), (2, 1));
/// assert_eq!(check(&graph, &schedule), []);
/// # Ok::<(), phonograph_capture::session::SessionError>(())
/// ```
pub fn recorded_schedule(graph: &ComputeGraph) -> Schedule {
    let first = StreamId(0);
    let mut known: Vec<StreamId> =
        graph.nodes().iter().map(|node| node.stream.unwrap_or(first)).collect();
    known.sort_unstable();
    known.dedup();
    let dense: FxHashMap<StreamId, u32> =
        known.iter().enumerate().map(|(at, &stream)| (stream, at as u32)).collect();
    let stream_of = |node: &phonograph_graph::Node| dense[&node.stream.unwrap_or(first)];

    let mut schedule = Schedule::sequential(graph);
    schedule.streams = known.len().max(1) as u32;
    schedule.steps.clear();
    // How many nodes each stream has been given, each node's place there, and how many of another's a stream is behind.
    let mut issued = vec![0u32; known.len()];
    let mut place = vec![0u32; graph.node_count()];
    let mut behind: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut events = 0;
    for &id in graph.topological_order() {
        let on = stream_of(graph.node(id));
        for &before in graph.predecessors(id) {
            let other = stream_of(graph.node(before));
            let known = behind.entry((on, other)).or_default();
            if other == on || *known > place[before.index()] {
                continue;
            }
            *known = issued[other as usize];
            let event = EventId(events);
            events += 1;
            schedule.steps.push(Step::Record { event, stream: StreamId(other) });
            schedule.steps.push(Step::Wait { event, stream: StreamId(on) });
        }
        place[id.index()] = issued[on as usize];
        issued[on as usize] += 1;
        schedule.steps.push(Step::run(id, StreamId(on)));
    }
    schedule
}
