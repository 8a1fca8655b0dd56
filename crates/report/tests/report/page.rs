//! What HTML pages and traces hold.

use crate::common::{graph, hostile, recorded};
use phonograph_report::html::{Page, PageError, Section, html};
use phonograph_report::perfetto;
use phonograph_report::picture::{GroupIx, LaneIx, Node, NodeClass, NodeIx};
use phonograph_report::timeline::{
    self, Lane, MAX_SPANS, Span, SpanAt, SpanIx, Timeline, TimelineError,
};
use serde_json::Value;

fn span(label: &str, start: u64, end: u64, node: Option<u32>) -> Span {
    Span {
        label: label.into(),
        class: NodeClass::Kernel,
        start,
        end,
        node: node.map(|n| (GroupIx(0), NodeIx(n))),
        critical: false,
    }
}

fn two_streams(name: &str) -> Timeline {
    Timeline {
        title: name.into(),
        lanes: vec![
            Lane {
                name: name.into(),
                spans: vec![span(name, 5_000, 7_500, Some(0)), span("b", 7_500, 7_500, None)],
            },
            Lane { name: "stream 1".into(), spans: vec![span("c", 7_600, 9_001, Some(1))] },
        ],
    }
}

/// A page is one file: nothing in it may make a browser fetch or run what is not its own.
fn check(page: &Page) -> String {
    let text = html(page).expect("can be made");
    assert_eq!(text, html(page).expect("can be made"), "not deterministic");
    assert!(text.contains("default-src 'none'"));
    for tag in
        ["<link", "<img", "<iframe", "<base", "<object", "<embed", "<a ", "<use", "<image", "<!--"]
    {
        assert!(!text.contains(tag), "{tag}");
    }
    for reference in [" src=", "href=", "@import", "url(http", "url(//", "fetch(", "import("] {
        let outside_text = text.replace("&lt;img src=http", "");
        // In names these are text: in the drawing behind an escaped bracket, in the data inside JSON.
        let outside_data: String = outside_text
            .split("<script type=\"application/json\" class=\"data\">")
            .map(|part| {
                part.split_once("</script>")
                    .map_or(part, |(data, rest)| if data.starts_with('{') { rest } else { part })
            })
            .collect();
        assert!(!outside_data.contains(reference), "{reference}");
    }
    let graphs = page.sections.iter().filter(|s| matches!(s, Section::Graph(_))).count();
    assert_eq!(text.matches("<script").count(), graphs + 1, "a name opened a script");
    assert_eq!(text.matches("</script").count(), graphs + 1, "a name closed a script");
    for data in text.split("class=\"data\">").skip(1) {
        let (json, _) = data.split_once("</script>").expect("an end");
        let value: Value = serde_json::from_str(json).expect("JSON");
        assert!(value["groups"].is_array());
    }
    text
}

#[test]
fn a_page_of_a_graph_and_a_timeline() {
    let picture = recorded("multistream_3x4", include_str!("../data/multistream_3x4.txt"));
    let text = check(&Page {
        title: "multistream_3x4".into(),
        summary: vec![("nodes".into(), "53".into()), ("edges".into(), "55".into())],
        sections: vec![Section::Graph(picture), Section::Timeline(two_streams("streams"))],
    });
    assert!(text.contains("<dt>nodes</dt><dd>53</dd>"));
    assert!(text.contains("id=\"s0g0n52\""));
    assert!(text.contains("data-node=\"s0g0n1\""), "a span does not lead to its node");
}

#[test]
fn an_empty_page() {
    check(&Page::default());
    check(&Page {
        sections: vec![Section::Graph(graph(0, &[])), Section::Timeline(Timeline::default())],
        ..Page::default()
    });
}

#[test]
fn hostile_names_cannot_break_out() {
    let name = hostile();
    let mut picture = graph(2, &[(0, 1)]);
    picture.title = name.clone();
    picture.groups[0].title = name.clone();
    picture.groups[0].nodes[0] = Node::new(NodeClass::Kernel, name.as_str())
        .line(name.as_str())
        .fact(name.as_str(), name.as_str());
    check(&Page {
        title: name.clone(),
        summary: vec![(name.clone(), name.clone())],
        sections: vec![Section::Graph(picture), Section::Timeline(two_streams(&name))],
    });
}

#[test]
fn spans_do_not_lead_into_a_collapsed_graph() {
    let text = check(&Page {
        title: "large".into(),
        summary: Vec::new(),
        sections: vec![
            Section::Graph(graph(phonograph_report::MAX_NODES + 1, &[])),
            Section::Timeline(two_streams("streams")),
        ],
    });
    assert!(!text.contains("data-node=\""));
}

#[test]
fn errors_name_the_section() {
    let backward = Timeline {
        lanes: vec![Lane {
            name: "stream".into(),
            spans: vec![span("a", 0, 1, None), span("b", 9, 8, None)],
        }],
        ..Timeline::default()
    };
    let at = SpanAt { lane: LaneIx(0), span: SpanIx(1) };
    let error = TimelineError::Backward { at, start: 9, end: 8 };
    assert_eq!(timeline::svg(&backward), Err(error.clone()));
    assert_eq!(perfetto::trace(&backward, &[]), Err(error.clone()));
    for (section, want) in [
        (
            Section::Timeline(backward),
            "section 1: lane 0, span 1: it ends at 8 ns, before it starts at 9 ns",
        ),
        (
            Section::Graph(graph(2, &[(0, 1), (1, 0)])),
            "section 1: group 0: nodes 0 → 1 depend on each other in a cycle",
        ),
    ] {
        let page =
            Page { sections: vec![Section::Graph(graph(1, &[])), section], ..Page::default() };
        let error: PageError = html(&page).expect_err(want);
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn timelines_are_well_formed_and_keep_every_span() {
    for timeline in [Timeline::default(), two_streams("streams"), two_streams(&hostile())] {
        let drawing = timeline::svg(&timeline).expect("can be drawn");
        let document = roxmltree::Document::parse(&drawing).expect("well-formed XML");
        let spans = document
            .descendants()
            .filter(|n| n.attribute("class").is_some_and(|c| c.starts_with("sp ")))
            .count();
        assert_eq!(spans, timeline.lanes.iter().map(|l| l.spans.len()).sum::<usize>());
    }
}

#[test]
fn too_many_spans_are_merged_and_say_so() {
    let n = MAX_SPANS as u64 + 1;
    let spans = (0..n).map(|i| span("k", 10 * i, 10 * i + 9, None)).collect();
    let lanes = vec![Lane { name: "stream".into(), spans }];
    let timeline = Timeline { title: "long".into(), lanes };
    let drawing = timeline::svg(&timeline).expect("can be drawn");
    assert!(drawing.contains("20001 spans are too many to draw one by one"));
    assert!(drawing.len() < 2_000_000, "{} bytes", drawing.len());
}

#[test]
fn traces_hold_spans_threads_and_flows() {
    let at = |lane, span| SpanAt { lane: LaneIx(lane), span: SpanIx(span) };
    let timeline = two_streams(&hostile());
    let text = perfetto::trace(&timeline, &[(at(0, 0), at(1, 0))]).expect("a trace");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let of = |ph: &str| -> Vec<&Value> { events.iter().filter(|e| e["ph"] == ph).collect() };
    assert_eq!(of("X").len(), 3);
    assert_eq!(trace["otherData"]["first_start_ns"], "5000");
    assert_eq!((&of("X")[2]["ts"], &of("X")[2]["dur"]), (&Value::from(2.6), &Value::from(1.401)));
    assert_eq!(of("X")[2]["args"]["node"], 1);
    let names: Vec<&Value> = of("M").into_iter().filter(|e| e["name"] == "thread_name").collect();
    assert_eq!(names[1]["args"]["name"], "stream 1");
    let (start, finish) = (of("s")[0], of("f")[0]);
    assert_eq!(
        (&start["id"], &start["tid"], &start["ts"]),
        (&1.into(), &1.into(), &Value::from(2.499))
    );
    assert_eq!(
        (&finish["id"], &finish["tid"], &finish["ts"]),
        (&1.into(), &2.into(), &Value::from(2.6))
    );
    assert_eq!(finish["bp"], "e");

    let missing = perfetto::trace(&timeline, &[(at(0, 0), at(1, 0)), (at(0, 0), at(1, 1))]);
    assert_eq!(missing, Err(TimelineError::MissingSpan { dependency: 1, at: at(1, 1) }));
}
