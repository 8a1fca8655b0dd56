//! A simulated schedule as a timeline to draw or to trace.

use phonograph::graph::{ComputeGraph, display_name};
use phonograph::plan::simulate::Simulation;
use phonograph::report::class_of;
use phonograph::report::picture::LaneIx;
use phonograph::report::timeline::{Lane, Span, SpanAt, SpanIx, Timeline, Unit};

/// A timeline, and its spans of which one waits for the other.
pub struct Simulated {
    pub timeline: Timeline,
    pub dependencies: Vec<(SpanAt, SpanAt)>,
}

/// One lane a stream; the nodes of the simulation's chain are the critical ones.
pub fn of(graph: &ComputeGraph, title: &str, run: &Simulation) -> Simulated {
    let mut critical = vec![false; graph.node_count()];
    for link in &run.chain {
        critical[link.node.index()] = true;
    }
    let lane = |stream| Lane { name: format!("stream {stream}"), spans: Vec::new() };
    let mut lanes: Vec<Lane> = (0..run.busy_ns.len()).map(lane).collect();
    let mut place = vec![SpanAt { lane: LaneIx(0), span: SpanIx(0) }; graph.node_count()];
    for span in &run.spans {
        let node = graph.node(span.node);
        let spans = &mut lanes[span.stream.index()].spans;
        place[span.node.index()] =
            SpanAt { lane: LaneIx(span.stream.0), span: SpanIx(spans.len() as u32) };
        spans.push(Span {
            label: format!("{} {}", span.node, display_name(&node.name)),
            class: class_of(&node.kind),
            start: span.start_ns,
            end: span.end_ns,
            node: None,
            critical: critical[span.node.index()],
        });
    }
    let crossing = graph.edges().map(|edge| (place[edge.from.index()], place[edge.to.index()]));
    let dependencies = crossing.filter(|(from, to)| from.lane != to.lane).collect();
    let timeline = Timeline { title: title.to_owned(), unit: Unit::Nanoseconds, lanes };
    Simulated { timeline, dependencies }
}
