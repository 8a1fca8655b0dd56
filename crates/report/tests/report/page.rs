//! What HTML pages and traces hold.

use crate::common::{graph, hostile, recorded};
use phonograph_report::compare::Comparison;
use phonograph_report::html::{
    EMBEDDED_NODES, Page, PageError, PictureAt, Question, Section, Served, html, html_of,
};
use phonograph_report::picture::{GroupIx, LaneIx, Node, NodeClass, NodeIx, Picture};
use phonograph_report::skyline::{self, Block, Moment, Pool, Skyline, SkylineError};
use phonograph_report::timeline::{
    self, Lane, MAX_SPANS, Span, SpanAt, SpanIx, Timeline, TimelineError, Unit,
};
use phonograph_report::{MAX_NODES, perfetto};
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
        unit: Unit::Nanoseconds,
    }
}

/// The data of a document, and the document without it.
fn parts(text: &str) -> (Value, String) {
    let start = "<script type=\"application/json\" id=\"data\">";
    let (head, rest) = text.split_once(start).expect("data");
    let (json, tail) = rest.split_once("</script>").expect("an end of the data");
    (serde_json::from_str(json).expect("JSON"), format!("{head}{start}</script>{tail}"))
}

/// A page is one file: nothing in it may make a browser fetch or run what is not its own.
fn check(page: &Page) -> Value {
    let text = html(page).expect("can be made");
    assert_eq!(text, html(page).expect("can be made"), "not deterministic");
    assert!(text.contains("default-src 'none'"));
    for tag in
        ["<link", "<img", "<iframe", "<base", "<object", "<embed", "<a ", "<use", "<image", "<!--"]
    {
        assert!(!text.contains(tag), "{tag}");
    }
    assert_eq!(text.matches("<script").count(), 2, "a name opened a script");
    assert_eq!(text.matches("</script").count(), 2, "a name closed a script");
    let (data, frame) = parts(&text);
    for reference in
        [" src=", "href=", "@import", "url(", "fetch(", "import(", "eval(", "innerHTML"]
    {
        // In the title they are text behind an escaped bracket.
        assert!(!frame.replace("&lt;img src=http", "").contains(reference), "{reference}");
    }
    data
}

/// The text at a place of the table.
fn text_at<'a>(data: &'a Value, place: &Value) -> &'a str {
    let place = place.as_u64().expect("a place in the table") as usize;
    data["strings"][place].as_str().expect("a text")
}

#[test]
fn a_page_of_a_graph_and_a_timeline() {
    let picture = recorded("multistream_3x4", include_str!("../data/multistream_3x4.txt"));
    let nodes = picture.groups[0].nodes.len();
    let data = check(&Page {
        title: "multistream_3x4".into(),
        summary: vec![("nodes".into(), "53".into()), ("edges".into(), "55".into())],
        sections: vec![
            Section::Graph(picture.clone()),
            Section::Timeline(two_streams("streams")),
            Section::Comparison(Comparison::find("same", picture.clone(), picture).expect("pairs")),
        ],
    });
    let page = &data["pages"][0];
    assert_eq!(page["summary"][0], serde_json::json!(["nodes", "53"]));
    let graph = &page["tabs"][0];
    assert_eq!((&graph["is"], &graph["whole"]), (&"graph".into(), &true.into()));
    assert_eq!(graph["groups"][0]["nodes"].as_array().map(Vec::len), Some(nodes));
    assert_eq!(graph["groups"][0]["edges"].as_array().map(Vec::len), Some(55));
    let times = &page["tabs"][1];
    assert_eq!((&times["graph"], &times["length"]), (&0.into(), &4001.into()));
    let span = &times["lanes"][1]["spans"][0];
    assert_eq!(text_at(&data, &span[0]), "c");
    assert_eq!(span[7], serde_json::json!([0, 1]), "a span does not lead to its node");
    let compared = &page["tabs"][2];
    for side in [0, 1] {
        let changes = &compared["changes"][side][0];
        for what in ["nodes", "edges"] {
            let all = changes[what].as_array().expect("changes");
            assert!(all.iter().all(|change| *change == 0), "{side} {what}: {all:?}");
        }
    }
}

#[test]
fn large_graphs_are_compared_by_counts() {
    let large = |extra| graph(phonograph_report::MAX_NODES + 1 + extra, &[]);
    let pair = Comparison::find("large", large(0), large(2)).expect("pairs");
    let data = check(&Page { sections: vec![Section::Comparison(pair)], ..Page::default() });
    let compared = &data["pages"][0]["tabs"][0];
    assert_eq!(compared["only"], serde_json::json!([[0, 0], [2, 0]]));
    assert_eq!(compared["changes"], serde_json::json!([[], []]));
}

#[test]
fn an_empty_page() {
    check(&Page::default());
    check(&Page {
        sections: vec![
            Section::Graph(graph(0, &[])),
            Section::Timeline(Timeline::default()),
            Section::Skyline(Skyline::default()),
            Section::Comparison(Comparison::default()),
        ],
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
    let data = check(&Page {
        title: name.clone(),
        summary: vec![(name.clone(), name.clone())],
        sections: vec![Section::Graph(picture), Section::Timeline(two_streams(&name))],
    });
    let turned = |text: &str| text.contains(['\u{0}', '\u{1b}', '\u{202e}']);
    for text in data["strings"].as_array().expect("texts") {
        let text = text.as_str().expect("a text");
        assert!(!turned(text), "{text:?}");
        assert!(text.chars().count() < 2_100, "{} characters", text.chars().count());
    }
    assert!(data["strings"].to_string().contains("<script>alert(1)</script>"), "a name is lost");
}

#[test]
fn several_pages_are_one_document() {
    let page = |name: &str| Page {
        title: name.into(),
        summary: Vec::new(),
        sections: vec![Section::Graph(graph(2, &[(0, 1)]))],
    };
    let text = html_of("both", &[page("a"), page("b")]).expect("can be made");
    let (data, _) = parts(&text);
    assert_eq!(
        (&data["pages"][0]["title"], &data["pages"][1]["title"]),
        (&"a".into(), &"b".into())
    );
}

#[test]
fn spans_do_not_lead_to_nodes_that_a_page_lacks() {
    let data = check(&Page {
        title: "large".into(),
        summary: Vec::new(),
        sections: vec![
            Section::Graph(graph(EMBEDDED_NODES + 1, &[])),
            Section::Timeline(two_streams("streams")),
        ],
    });
    let tabs = &data["pages"][0]["tabs"];
    assert_eq!((&tabs[0]["whole"], &tabs[1]["graph"]), (&false.into(), &Value::Null));
}

/// Twenty thousand nodes and one, each after the one ten before it.
fn ten_chains() -> Picture {
    let n = MAX_NODES as u32 + 1;
    let edges: Vec<(u32, u32)> = (10..n).map(|i| (i - 10, i)).collect();
    graph(n as usize, &edges)
}

#[test]
fn boxes_of_a_page_hold_their_nodes() {
    let picture = ten_chains();
    let sections = vec![Section::Graph(picture.clone()), Section::Timeline(two_streams("streams"))];
    let data = check(&Page { sections, ..Page::default() });
    let tabs = &data["pages"][0]["tabs"];
    assert_eq!((&tabs[0]["whole"], &tabs[1]["graph"]), (&false.into(), &0.into()));
    let groups = tabs[0]["groups"].as_array().expect("groups");
    assert_eq!(groups[0]["stands"], MAX_NODES + 1);
    let mut seen = vec![false; MAX_NODES + 1];
    for (b, node) in groups[0]["nodes"].as_array().expect("boxes").iter().enumerate() {
        let part = &groups[node["opens"].as_u64().expect("a group") as usize];
        assert_eq!(part["part"]["of"], 0);
        assert_eq!(part["part"]["path"], serde_json::json!([b]));
        for (at, number) in part["part"]["numbers"].as_array().expect("numbers").iter().enumerate()
        {
            let number = number.as_u64().expect("a number") as usize;
            assert!(!std::mem::replace(&mut seen[number], true), "{number} is in two boxes");
            assert_eq!(text_at(&data, &part["nodes"][at]["label"]), format!("k{number}"));
        }
        // Ten edges lead in from the box above, ten out to the one below.
        let outside = part["part"]["outside"].as_array().expect("edges").len();
        assert_eq!(outside, if b == 0 || b + 1 == 223 { 10 } else { 20 }, "{b}");
    }
    assert!(seen.into_iter().all(|seen| seen));
}

#[test]
fn a_server_answers_what_a_page_asks() {
    let sections = vec![
        Section::Graph(ten_chains()),
        Section::Comparison(
            Comparison::find("same", graph(1, &[]), ten_chains()).expect("no cycle"),
        ),
        Section::Graph(graph(3, &[])),
    ];
    let served = Served::new("large", vec![Page { sections, ..Page::default() }]).expect("a page");
    assert!(served.document().contains("connect-src 'self'"));
    let (data, _) = parts(served.document());
    let boxes = &data["pages"][0]["tabs"][0]["groups"][0]["nodes"];
    assert_eq!(boxes[3]["opens"], true);
    let ask = |section, side, question| -> Value {
        let answer = served.answer(PictureAt { page: 0, section, side }, question);
        answer.map_or(Value::Null, |answer| serde_json::from_str(&answer).expect("JSON"))
    };
    for (section, side) in [(0, 0), (1, 1)] {
        let opened = ask(section, side, Question::Open(GroupIx(0), &[3]));
        assert_eq!(opened["group"]["title"], "levels 27 to 35");
        assert_eq!(opened["group"]["part"]["numbers"][1], 271);
        let label = opened["group"]["nodes"][1]["label"].as_u64().expect("a place") as usize;
        assert_eq!(opened["strings"][label], "k271");
        let place = ask(section, side, Question::Where(GroupIx(0), NodeIx(271)));
        assert_eq!(place, serde_json::json!([[3], 1]));
        let found = ask(section, side, Question::Find(" KERNEL k271 "));
        // The number begins others, too: 2710 to 2719.
        assert_eq!(found["count"], 11);
        assert_eq!(found["nodes"][0], serde_json::json!([0, 271, "k271", [3], 1]));
        assert_eq!(found["boxes"], serde_json::json!([[0, 3], [0, 30]]));
        assert_eq!(ask(section, side, Question::Find("kernel"))["count"], MAX_NODES + 1);
        assert_eq!(ask(section, side, Question::Find(" "))["count"], 0);
    }
    for (section, side, question) in [
        (0, 0, Question::Open(GroupIx(0), &[])),
        (0, 0, Question::Open(GroupIx(0), &[u32::MAX])),
        (0, 0, Question::Open(GroupIx(0), &[3, 0])),
        (0, 0, Question::Open(GroupIx(1), &[3])),
        (0, 0, Question::Where(GroupIx(0), NodeIx(u32::MAX))),
        (1, 0, Question::Open(GroupIx(0), &[0])),
        (2, 0, Question::Where(GroupIx(0), NodeIx(0))),
        (3, 0, Question::Find("k")),
    ] {
        assert_eq!(ask(section, side, question), Value::Null, "{question:?}");
    }
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
    let timeline = Timeline { title: "long".into(), lanes, ..Timeline::default() };
    let drawing = timeline::svg(&timeline).expect("can be drawn");
    assert!(drawing.contains("20,001 spans are too many to draw one by one"));
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

fn pool() -> Pool {
    let block = |label: &str, offset, bytes, first, last| Block {
        label: label.into(),
        offset,
        bytes,
        first: Moment(first),
        last: Moment(last),
    };
    Pool {
        name: "memory of device 0".into(),
        bytes: 3_072,
        bound: Some((2_048, "in use at once".into())),
        unshared: 4_096,
        group: GroupIx(0),
        order: [0, 1, 2].map(NodeIx).into(),
        blocks: vec![
            block(&hostile(), 0, 1_024, 0, 1),
            block("b", 2_048, 1_024, 1, 2),
            block("c", 0, 1_024, 2, 2),
        ],
    }
}

#[test]
fn skylines_hold_every_block_and_what_is_in_use() {
    assert_eq!(pool().live(), [1_024, 2_048, 2_048]);
    let skyline = Skyline { title: hostile(), pools: vec![pool()] };
    let drawing = skyline::svg(&skyline).expect("can be drawn");
    let document = roxmltree::Document::parse(&drawing).expect("well-formed XML");
    let of = |class: &str| {
        let is = |n: &roxmltree::Node| n.attribute("class").is_some_and(|c| c.starts_with(class));
        document.descendants().filter(is).count()
    };
    assert_eq!((of("sp "), of("e l-red"), of("e l-prog")), (3, 1, 1));
    assert!(
        drawing.contains("3 KiB, at least 2 KiB (in use at once), 4 KiB if nothing were shared")
    );
    let data = check(&Page {
        sections: vec![Section::Graph(graph(3, &[])), Section::Skyline(skyline)],
        ..Page::default()
    });
    let memory = &data["pages"][0]["tabs"][1];
    assert_eq!((&memory["graph"], &memory["pools"][0]["live"][1]), (&0.into(), &2_048.into()));
}

#[test]
fn blocks_outside_their_pool_are_refused() {
    for (name, spoil) in [
        ("ends before it begins", (|b| b.first = Moment(2)) as fn(&mut Block)),
        ("after the last moment", |b| b.last = Moment(3)),
        ("beyond the pool", |b| b.offset = 2_049),
        ("beyond all numbers", |b| b.offset = u64::MAX),
    ] {
        let mut pool = pool();
        spoil(&mut pool.blocks[0]);
        let skyline = Skyline { title: String::new(), pools: vec![pool] };
        let refused = matches!(skyline::svg(&skyline), Err(SkylineError::OutOfRange { .. }));
        assert!(refused, "{name}");
        let sections = vec![Section::Skyline(skyline)];
        let error = html(&Page { sections, ..Page::default() }).expect_err(name);
        assert!(error.to_string().starts_with("section 0: pool 0, block 0"), "{error}");
    }
}
