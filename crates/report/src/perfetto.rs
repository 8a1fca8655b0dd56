//! A [`Timeline`] as a trace file for Perfetto and `chrome://tracing`.
//!
//! In: a timeline and dependencies between spans. Out: JSON in the Trace Event Format: complete events, named threads
//! in the order of the lanes, and a flow arrow for each dependency. Times count from the first start, so that the
//! format's microseconds hold every nanosecond. Linear.

use serde::Serialize;

use crate::text::capped;
use crate::timeline::{Span, SpanAt, Timeline, TimelineError};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace<'a> {
    display_time_unit: &'a str,
    other_data: Other,
    trace_events: Vec<Event>,
}

#[derive(Serialize)]
struct Other {
    title: String,
    /// What to add to get the times of the timeline; a string, as JSON readers round large numbers.
    first_start_ns: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Event {
    Name {
        ph: &'static str,
        name: &'static str,
        pid: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        tid: Option<u32>,
        args: NameArgs,
    },
    Complete {
        ph: &'static str,
        name: String,
        cat: &'static str,
        pid: u32,
        tid: u32,
        ts: f64,
        dur: f64,
        args: SpanArgs,
    },
    Flow {
        ph: &'static str,
        name: &'static str,
        cat: &'static str,
        id: u64,
        pid: u32,
        tid: u32,
        ts: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        bp: Option<&'static str>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum NameArgs {
    Name { name: String },
    Order { sort_index: u32 },
}

#[derive(Serialize)]
struct SpanArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    critical: bool,
}

const PID: u32 = 1;

/// Writes the trace; `dependencies` are pairs of a producing and a consuming span.
///
/// # Errors
///
/// [`TimelineError`] if a span ends before it starts or a dependency names a span that is not there.
///
/// ```
/// use phonograph_report::picture::{LaneIx, NodeClass};
/// use phonograph_report::timeline::{Lane, Span, SpanAt, SpanIx, Timeline};
///
/// let span = |start, end| Span {
///     label: "axpy".into(),
///     class: NodeClass::Kernel,
///     start,
///     end,
///     node: None,
///     critical: false,
/// };
/// let lanes = vec![Lane { name: "stream 0".into(), spans: vec![span(0, 1_500), span(2_000, 2_250)] }];
/// let timeline = Timeline { title: "replay".into(), lanes, ..Timeline::default() };
/// let at = |n| SpanAt { lane: LaneIx(0), span: SpanIx(n) };
/// let json = phonograph_report::perfetto::trace(&timeline, &[(at(0), at(1))])?;
/// assert!(json.contains(r#""ts":2.0,"dur":0.25"#));
/// # Ok::<(), phonograph_report::timeline::TimelineError>(())
/// ```
pub fn trace(
    timeline: &Timeline,
    dependencies: &[(SpanAt, SpanAt)],
) -> Result<String, TimelineError> {
    let first = timeline.check()?.map_or(0, |(first, _)| first);
    // Exact to the nanosecond for a hundred days.
    let micros = |ns: u64| (ns - first) as f64 / 1_000.0;
    let mut events = vec![Event::Name {
        ph: "M",
        name: "process_name",
        pid: PID,
        tid: None,
        args: NameArgs::Name { name: capped(&timeline.title) },
    }];
    for (l, lane) in timeline.lanes.iter().enumerate() {
        // Thread 0 is special to some viewers.
        let tid = l as u32 + 1;
        for (name, args) in [
            ("thread_name", NameArgs::Name { name: capped(&lane.name) }),
            ("thread_sort_index", NameArgs::Order { sort_index: tid }),
        ] {
            events.push(Event::Name { ph: "M", name, pid: PID, tid: Some(tid), args });
        }
        for span in &lane.spans {
            events.push(Event::Complete {
                ph: "X",
                name: capped(&span.label),
                cat: span.class.name(),
                pid: PID,
                tid,
                ts: micros(span.start),
                dur: (span.end - span.start) as f64 / 1_000.0,
                args: SpanArgs {
                    group: span.node.map(|(group, _)| group.0),
                    node: span.node.map(|(_, node)| node.0),
                    critical: span.critical,
                },
            });
        }
    }
    for (d, &(from, to)) in dependencies.iter().enumerate() {
        let (producer, consumer) = (find(timeline, d, from)?, find(timeline, d, to)?);
        // An arrow belongs to the slice that is open at its time: at its very end a slice is no longer open.
        let leave = producer.end.saturating_sub(1).max(producer.start);
        for (ph, at, ts, bp) in [("s", from, leave, None), ("f", to, consumer.start, Some("e"))] {
            events.push(Event::Flow {
                ph,
                name: "dependency",
                cat: "dependency",
                id: d as u64 + 1,
                pid: PID,
                tid: at.lane.0 + 1,
                ts: micros(ts),
                bp,
            });
        }
    }
    let trace = Trace {
        display_time_unit: "ns",
        other_data: Other { title: capped(&timeline.title), first_start_ns: first.to_string() },
        trace_events: events,
    };
    Ok(serde_json::to_string(&trace).expect("strings and finite numbers are JSON"))
}

fn find(timeline: &Timeline, dependency: usize, at: SpanAt) -> Result<&Span, TimelineError> {
    timeline
        .lanes
        .get(at.lane.index())
        .and_then(|lane| lane.spans.get(at.span.index()))
        .ok_or(TimelineError::MissingSpan { dependency, at })
}
