//! What SVG documents hold.

use crate::common::{graph, hostile, recorded};
use phonograph_report::picture::{
    Edge, EdgeIx, EdgeStyle, Group, GroupIx, Node, NodeClass, NodeIx, Picture, PictureError,
};
use phonograph_report::{MAX_GROUPS, MAX_NODES, svg};
use roxmltree::Document;

/// Draws twice, parses, and counts the boxes.
fn check(picture: &Picture, boxes: usize) -> String {
    let drawing = svg(picture).expect("can be drawn");
    assert_eq!(drawing, svg(picture).expect("can be drawn"), "not deterministic");
    let document = Document::parse(&drawing).expect("well-formed XML");
    let found = document
        .descendants()
        .filter(|n| {
            n.attribute("id").is_some_and(|id| id.contains('n'))
                && n.has_tag_name(("http://www.w3.org/2000/svg", "g"))
        })
        .count();
    assert_eq!(found, boxes);
    for node in document.descendants() {
        assert!(!matches!(
            node.tag_name().name(),
            "script" | "image" | "foreignObject" | "a" | "use"
        ));
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on"), "{attribute:?}");
            assert!(!attribute.name().contains("href"), "{attribute:?}");
        }
    }
    drawing
}

fn texts(drawing: &str) -> String {
    let document = Document::parse(drawing).expect("well-formed XML");
    let texts: Vec<&str> = document
        .descendants()
        .filter(|n| n.tag_name().name() == "text")
        .filter_map(|n| n.text())
        .collect();
    texts.join("\n")
}

/// One of each class and of each kind of edge, with bodies.
fn zoo() -> Picture {
    let mut main = Group::new("graph_1");
    for (i, class) in NodeClass::ALL.into_iter().enumerate() {
        let mut node = Node::new(class, format!("a {}", class.name())).fact("index", i.to_string());
        node.critical = i < 2;
        node.disabled = i == 5;
        main.nodes.push(node.line("a detail"));
    }
    main.nodes[8].bodies = vec![GroupIx(1)];
    main.nodes[9].bodies = vec![GroupIx(2)];
    let edge = |a, b| Edge::new(NodeIx(a), NodeIx(b));
    main.edges = vec![
        Edge { critical: true, ..edge(0, 1) },
        Edge { redundant: true, ..edge(0, 2) },
        Edge { style: EdgeStyle::Programmatic, ..edge(1, 2) },
        Edge { style: EdgeStyle::LaunchOrder, ..edge(2, 3) },
        Edge { reuse: true, ..edge(3, 4) },
        edge(4, 5),
    ];
    let mut child = Group::new("graph_2");
    child.nodes.push(Node::new(NodeClass::Kernel, "inner"));
    Picture { title: "zoo".into(), groups: vec![main, child, Group::new("graph_3")] }
}

#[test]
fn small_picture() {
    let mut picture = graph(3, &[(0, 1), (0, 2), (1, 2)]);
    picture.groups[0].edges[1].redundant = true;
    let drawing = check(&picture, 3);
    // The style sheet has its own looks; here it would only be noise.
    let (before, rest) = drawing.split_once("<style>").expect("a style sheet");
    let (_, after) = rest.split_once("</style>").expect("its end");
    insta::assert_snapshot!(format!("{before}{after}").replace("><", ">\n<"));
}

#[test]
fn nothing_and_almost_nothing() {
    for picture in [Picture::default(), graph(0, &[])] {
        let drawing = check(&picture, 0);
        assert_eq!(
            texts(&drawing).contains("This graph has no nodes."),
            !picture.groups.is_empty()
        );
    }
    check(&graph(1, &[]), 1);
    let nameless = Picture {
        title: String::new(),
        groups: vec![Group { nodes: vec![Node::new(NodeClass::Empty, "")], ..Group::default() }],
    };
    check(&nameless, 1);
}

#[test]
fn the_legend_has_what_is_there_and_no_more() {
    let all = texts(&check(&zoo(), 12));
    for words in [
        "kernel",
        "box",
        "redundant",
        "programmatic",
        "launch order",
        "memory reuse",
        "critical path",
        "disabled",
    ] {
        assert!(all.lines().any(|l| l == words), "{words} is missing");
    }
    let plain = texts(&check(&graph(2, &[(0, 1)]), 2));
    for words in ["memcpy", "redundant", "programmatic", "critical path", "disabled"] {
        assert!(!plain.contains(words), "{words} is there");
    }
}

#[test]
fn bodies_are_frames_that_name_their_owner() {
    let all = texts(&check(&zoo(), 12));
    assert!(all.contains("graph_2 — in a child of graph_1"), "{all}");
    assert!(all.contains("▸ graph_2"), "{all}");
}

#[test]
fn hostile_names_are_only_text() {
    let name = hostile();
    let mut picture = graph(2, &[(0, 1)]);
    picture.title = name.clone();
    let group = &mut picture.groups[0];
    group.title = name.clone();
    group.notes.push(name.clone());
    group.nodes[0] = Node::new(NodeClass::Kernel, name.as_str())
        .line(name.as_str())
        .fact(name.as_str(), name.as_str());
    group.nodes[0].bodies.push(GroupIx(1));
    picture.groups.push(Group::new(name));
    let drawing = check(&picture, 2);
    assert!(drawing.contains("more characters)"), "the cap is not said");
    assert!(drawing.len() < 60_000, "{} bytes", drawing.len());
}

#[test]
fn random_text_is_well_formed() {
    arbtest::arbtest(|u| {
        let mut picture = graph(1, &[]);
        picture.title = u.arbitrary()?;
        picture.groups[0].title = u.arbitrary()?;
        picture.groups[0].nodes[0].label = u.arbitrary()?;
        picture.groups[0].nodes[0].lines = u.arbitrary()?;
        picture.groups[0].nodes[0].facts = u.arbitrary()?;
        check(&picture, 1);
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn recorded_graphs_are_readable() {
    for (name, text, nodes) in [
        ("multistream_3x4", include_str!("../data/multistream_3x4.txt"), 53),
        ("resnet18_infer_b1", include_str!("../data/resnet18_infer_b1.txt"), 109),
        ("gpt2_4layer_prefill16", include_str!("../data/gpt2_4layer_prefill16.txt"), 114),
    ] {
        let drawing = check(&recorded(name, text), nodes);
        let document = Document::parse(&drawing).expect("well-formed XML");
        let size = |name| -> f64 {
            let value = document.root_element().attribute(name).expect("a size");
            value.parse().expect("a number")
        };
        let shape = size("width") / size("height");
        assert!((0.4..2.5).contains(&shape), "{name}: {shape}");
    }
}

#[test]
fn large_graphs_are_collapsed_and_say_so() {
    let n = MAX_NODES as u32 + 1;
    // Chains of ten, all after one node, which goes to the box of the next level; and an edge across.
    let pairs: Vec<(u32, u32)> = (1..n).map(|i| (if i % 10 == 1 { 0 } else { i - 1 }, i)).collect();
    let mut picture = graph(n as usize, &pairs);
    picture.groups[0].edges.push(Edge::new(NodeIx(0), NodeIx(10)));
    let drawing = check(&picture, 10);
    let all = texts(&drawing);
    assert!(all.contains("20,001 nodes and 20,001 edges are too many to draw one by one"), "{all}");
    assert!(all.contains("Not drawn: 1 edge between boxes that are not neighbours."), "{all}");
    assert_eq!(all.matches("\n2,000 nodes\n").count(), 9, "{all}");
}

#[test]
fn many_groups_are_cut_off_and_say_so() {
    let mut picture = graph(1, &[]);
    picture.groups.resize(MAX_GROUPS + 3, Group::new("more"));
    let last = GroupIx(picture.groups.len() as u32 - 1);
    picture.groups[0].nodes[0].bodies.push(last);
    let all = texts(&check(&picture, 1));
    assert!(all.contains("3 further graphs not drawn"), "{all}");
}

#[test]
fn far_links_of_a_dense_graph_are_stubs_and_say_so() {
    let n = 1_500u32;
    let mut pairs: Vec<(u32, u32)> = (1..n).map(|i| (i - 1, i)).collect();
    pairs.extend((0..n / 2).map(|i| (i, n - 1 - i)).filter(|(a, b)| a + 1 < *b));
    let all = texts(&check(&graph(n as usize, &pairs), n as usize));
    assert!(all.contains("of the longest edges are drawn as two stubs"), "{all}");
}

#[test]
fn errors_name_the_place() {
    let mut dangling = graph(2, &[(0, 1), (1, 2)]);
    let mut bodiless = graph(1, &[]);
    bodiless.groups[0].nodes[0].bodies.push(GroupIx(7));
    let mut cyclic = graph(1, &[]);
    cyclic.groups.extend(graph(3, &[(0, 1), (1, 2), (2, 1)]).groups);
    let large = MAX_NODES as u32 + 5;
    let mut large_cyclic = graph(large as usize, &[(3, 4), (4, 3)]);
    for (picture, want) in [
        (&mut dangling, "group 0, edge 1: there is no node 2, the group has 2"),
        (&mut bodiless, "group 0, node 0: there is no group 7, the picture has 1"),
        (&mut cyclic, "group 1: nodes 1 → 2 depend on each other in a cycle"),
        (&mut large_cyclic, "group 0: nodes 3 → 4 depend on each other in a cycle"),
    ] {
        let error = svg(picture).expect_err(want);
        assert_eq!(error.to_string(), want);
    }
    assert_eq!(
        svg(&dangling),
        Err(PictureError::MissingNode {
            group: GroupIx(0),
            edge: EdgeIx(1),
            node: NodeIx(2),
            nodes: 2
        })
    );
}
