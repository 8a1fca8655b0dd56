//! What an update says about graphs that no recording has.

use arbtest::arbitrary::{self, Unstructured};
use phonograph_capture::update::{
    Answer, Basis, Conditional, Content, Dependency, Diff, Direction, Graph, Node, NodeIndex, Port,
    Reason, UpdateRule, diff, predict,
};

const KERNEL: Content = Content::Kernel { cooperative: false };

fn node(content: Content, dependencies: &[u32]) -> Node {
    let dependency = |node: &u32| Dependency { node: NodeIndex(*node), port: Port::Full };
    Node { dependencies: dependencies.iter().map(dependency).collect(), ..Node::new(content) }
}

fn graph(nodes: impl IntoIterator<Item = (Content, &'static [u32])>) -> Graph {
    Graph {
        nodes: nodes
            .into_iter()
            .map(|(content, dependencies)| node(content, dependencies))
            .collect(),
    }
}

fn copy(direction: Direction, bytes: u64, rows: u32) -> Content {
    Content::Memcpy { direction, bytes, rows, depth: 1, offset: 0, devices: [None; 2] }
}

fn check(a: &Graph, b: &Graph, reason: Reason, rule: UpdateRule, change: &str) -> Diff {
    let diff = diff(a, b);
    assert_eq!((diff.answer.reason, diff.answer.rule), (reason, rule), "{diff}");
    assert_eq!(diff.change.as_deref().unwrap_or(""), change, "{diff}");
    diff
}

fn decides() -> Content {
    Content::Conditional { kind: Conditional::If, bodies: vec![Graph::default()] }
}

#[test]
fn conditionals_in_another_order_of_creation_are_refused_and_aligned() {
    let a = graph([(decides(), &[][..]), (decides(), &[]), (KERNEL, &[0, 1])]);
    let b = graph([(decides(), &[][..]), (decides(), &[]), (KERNEL, &[1, 0])]);
    let diff = diff(&a, &b);
    assert_eq!((diff.answer.reason, diff.answer.rule), (Reason::NotSupported, UpdateRule::U19));
    assert_eq!(diff.answer.error_node.map(|path| path.node), Some(NodeIndex(1)));
    assert!(diff.order.is_some(), "with the dependencies in the other order it is taken");
}

#[test]
fn every_refusal_names_the_smallest_change() {
    use Direction::{DeviceToDevice, HostToDevice};
    use Reason::{
        AttributesChanged, NodeTypeChanged, NotSupported, ParametersChanged, TopologyChanged,
    };
    let one = |content| graph([(content, &[][..])]);
    let memset =
        |width, height| Content::Memset { element: 4, width, height, pitch: 512, device: None };
    let cases = [
        (
            one(KERNEL),
            one(Content::Host),
            NodeTypeChanged,
            UpdateRule::U6b,
            "make the node a kernel again, not a host function",
        ),
        (
            one(KERNEL),
            one(Content::Kernel { cooperative: true }),
            AttributesChanged,
            UpdateRule::U12,
            "launch the kernel without the cooperative attribute",
        ),
        (
            one(memset(16, 1)),
            one(memset(16, 2)),
            ParametersChanged,
            UpdateRule::U9a,
            "set back height from 2 to 1",
        ),
        (
            one(memset(16, 2)),
            one(memset(32, 2)),
            ParametersChanged,
            UpdateRule::U9b,
            "set back width from 32 to 16",
        ),
        (
            one(copy(HostToDevice, 8, 1)),
            one(copy(DeviceToDevice, 8, 1)),
            ParametersChanged,
            UpdateRule::U10,
            "set back direction from DeviceToDevice to HostToDevice",
        ),
        (
            one(copy(HostToDevice, 8, 2)),
            one(copy(HostToDevice, 16, 2)),
            ParametersChanged,
            UpdateRule::U13,
            "set back bytes from 16 to 8",
        ),
        (
            one(Content::Conditional { kind: Conditional::If, bodies: vec![Graph::default()] }),
            one(Content::Conditional { kind: Conditional::While, bodies: vec![Graph::default()] }),
            NotSupported,
            UpdateRule::U15,
            "give the conditional the kind and the number of bodies that it had",
        ),
        (
            graph([(KERNEL, &[][..]), (decides(), &[]), (KERNEL, &[1, 0])]),
            graph([(decides(), &[][..]), (decides(), &[]), (KERNEL, &[1, 0])]),
            NotSupported,
            UpdateRule::U19,
            "create the graph's conditionals in the order in which the first graph has them, and as many before this one",
        ),
        (
            one(KERNEL),
            graph([(KERNEL, &[][..]), (KERNEL, &[0])]),
            TopologyChanged,
            UpdateRule::U2,
            "leave out node 1",
        ),
        (
            graph([(KERNEL, &[][..]), (KERNEL, &[0])]),
            graph([(KERNEL, &[][..]), (KERNEL, &[])]),
            TopologyChanged,
            UpdateRule::U3,
            "let a node depend on node 0, as before",
        ),
        (
            graph([(KERNEL, &[][..]), (KERNEL, &[])]),
            graph([(KERNEL, &[][..]), (KERNEL, &[0])]),
            TopologyChanged,
            UpdateRule::U3,
            "let nothing depend on what stands for node 0 of the first graph",
        ),
        (
            graph([(KERNEL, &[][..]), (Content::Host, &[0]), (Content::Empty, &[0, 1])]),
            graph([(KERNEL, &[][..]), (Content::Host, &[0]), (Content::Empty, &[1])]),
            TopologyChanged,
            UpdateRule::U6a,
            "let it depend on what stands for node 0 of the first graph",
        ),
        (
            graph([
                (KERNEL, &[][..]),
                (Content::Host, &[0]),
                (Content::Empty, &[0]),
                (KERNEL, &[1, 2]),
            ]),
            graph([
                (KERNEL, &[][..]),
                (Content::Host, &[0]),
                (Content::Empty, &[1]),
                (KERNEL, &[1, 2]),
            ]),
            TopologyChanged,
            UpdateRule::U7,
            "let dependency 0 of the node be what stands for node 0 of the first graph, not node 1",
        ),
        (
            one(KERNEL),
            graph((0..6).map(|_| (KERNEL, &[][..]))),
            TopologyChanged,
            UpdateRule::U2,
            "give the graph 1 node instead of 6",
        ),
        (
            one(Content::Child(one(KERNEL))),
            one(Content::Child(Graph::default())),
            TopologyChanged,
            UpdateRule::U2,
            "give the nested graph the number of nodes that it had",
        ),
    ];
    for (a, b, reason, rule, change) in cases {
        assert_eq!(check(&a, &b, reason, rule, change).order, None);
        assert_eq!(predict(&a, &a).reason, Reason::Success);
    }
}

#[test]
fn documented_only_memory_stays_on_its_devices() {
    let fill = |device| {
        let content = Content::Memset { element: 4, width: 16, height: 1, pitch: 0, device };
        graph([(content, &[][..])])
    };
    let change = "use memory on the devices that it was on";
    let (reason, rule) = (Reason::ParametersChanged, UpdateRule::U18);
    check(&fill(Some(0)), &fill(Some(1)), reason, rule, change);
    let copy = |to| {
        let devices = [Some(0), to];
        let direction = Direction::DeviceToDevice;
        let content =
            Content::Memcpy { direction, bytes: 8, rows: 1, depth: 1, offset: 0, devices };
        graph([(content, &[][..])])
    };
    check(&copy(Some(0)), &copy(Some(1)), reason, rule, change);
    // What is not known is no difference.
    assert_eq!(predict(&fill(None), &fill(Some(1))).reason, Reason::Success);
    assert_eq!(predict(&copy(Some(0)), &copy(None)).reason, Reason::Success);
}

#[test]
fn a_node_inside_nested_graphs_is_named_by_its_path() {
    let nested = |inner| {
        graph([(
            Content::Child(graph([(KERNEL, &[][..]), (Content::Child(inner), &[0])])),
            &[][..],
        )])
    };
    let (a, b) = (nested(graph([(KERNEL, &[][..])])), nested(graph([(Content::Empty, &[][..])])));
    let diff = check(
        &a,
        &b,
        Reason::NodeTypeChanged,
        UpdateRule::U6b,
        "make the node a kernel again, not an empty node",
    );
    assert_eq!(
        diff.answer.error_node.unwrap().to_string(),
        "node 0 of graph 0 in node 1 of graph 0 in node 0"
    );
}

#[test]
fn a_graph_created_in_another_order_is_aligned() {
    let a = graph([
        (KERNEL, &[][..]),
        (Content::Host, &[0]),
        (Content::Empty, &[0]),
        (KERNEL, &[1, 2]),
    ]);
    let b = graph([
        (KERNEL, &[][..]),
        (Content::Empty, &[0]),
        (Content::Host, &[0]),
        (KERNEL, &[1, 2]),
    ]);
    let diff = diff(&a, &b);
    assert_eq!(diff.answer.reason, Reason::NodeTypeChanged);
    assert_eq!(diff.order, Some([0, 2, 1, 3].map(NodeIndex).into()));
    assert!(diff.to_string().contains("create its nodes as 0, 2, 1, 3"), "{diff}");
}

#[test]
fn any_two_graphs_are_compared_and_any_order_of_one_is_aligned() {
    arbtest::arbtest(|u| {
        let contents = [KERNEL, Content::Host, Content::Empty, copy(Direction::HostToDevice, 8, 1)];
        let mut nodes: Vec<Node> = Vec::new();
        for at in 0..u.int_in_range(1..=8u32)? {
            let mut before: Vec<u32> = (0..at).collect();
            let mut dependencies = Vec::new();
            for _ in 0..u.int_in_range(0..=3)? {
                if !before.is_empty() {
                    dependencies.push(before.swap_remove(u.choose_index(before.len())?));
                }
            }
            nodes.push(node(u.choose(&contents)?.clone(), &dependencies));
        }
        let a = Graph { nodes };
        // The same graph with its nodes created in any other order, dependencies on later ones included.
        let mut order: Vec<u32> = (0..a.nodes.len() as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, u.choose_index(at + 1)?);
        }
        let b = renumbered(&a, &order);
        let found = diff(&a, &b);
        assert!(
            found.answer.reason == Reason::Success || found.order.is_some(),
            "{found}\n{a:?}\n{b:?}"
        );
        // Dependencies that lead nowhere or in circles are no reason to panic.
        let mut broken = b.clone();
        broken.nodes[0]
            .dependencies
            .push(Dependency { node: NodeIndex(u.int_in_range(0..=9)?), port: Port::LaunchOrder });
        assert!(!diff(&a, &broken).to_string().is_empty());
        Ok(())
    });
}

fn any_content(u: &mut Unstructured<'_>, depth: u32) -> arbitrary::Result<Content> {
    let small = |u: &mut Unstructured<'_>| u.int_in_range(1..=2u32);
    let directions = [Direction::HostToDevice, Direction::DeviceToHost, Direction::DeviceToDevice];
    let kinds = [Conditional::If, Conditional::While, Conditional::Switch];
    Ok(match u.int_in_range(0..=if depth == 0 { 8 } else { 10 })? {
        0 => Content::Kernel { cooperative: u.arbitrary()? },
        1 => Content::Memcpy {
            direction: *u.choose(&directions)?,
            bytes: small(u)?.into(),
            rows: small(u)?,
            depth: small(u)?,
            offset: small(u)?.into(),
            devices: if u.arbitrary()? { [None; 2] } else { [Some(small(u)?), None] },
        },
        2 => Content::Memset {
            element: small(u)?,
            width: small(u)?.into(),
            height: small(u)?.into(),
            pitch: small(u)?.into(),
            device: if u.arbitrary()? { None } else { Some(small(u)?) },
        },
        3 => Content::Alloc,
        4 => Content::Free,
        5 => Content::Host,
        6 => Content::Empty,
        7 => Content::EventRecord,
        8 => Content::EventWait,
        9 => Content::Child(any_graph(u, depth - 1)?),
        _ => Content::Conditional {
            kind: *u.choose(&kinds)?,
            bodies: vec![any_graph(u, depth - 1)?],
        },
    })
}

fn any_graph(u: &mut Unstructured<'_>, depth: u32) -> arbitrary::Result<Graph> {
    let ports = [Port::Full, Port::Full, Port::Programmatic, Port::LaunchOrder];
    let mut nodes: Vec<Node> = Vec::new();
    for at in 0..u.int_in_range(0..=6u32)? {
        let mut node = Node::new(any_content(u, depth)?);
        let mut before: Vec<u32> = (0..at).collect();
        for _ in 0..u.int_in_range(0..=at.min(3))? {
            let from = NodeIndex(before.swap_remove(u.choose_index(before.len())?));
            node.dependencies.push(Dependency { node: from, port: *u.choose(&ports)? });
        }
        nodes.push(node);
    }
    Ok(Graph { nodes })
}

/// The same graph with node `i` created as number `order[i]`.
fn renumbered(graph: &Graph, order: &[u32]) -> Graph {
    let mut nodes = vec![Node::new(Content::Empty); graph.nodes.len()];
    for (node, new) in graph.nodes.iter().zip(order) {
        let mut node = node.clone();
        node.dependencies.iter_mut().for_each(|d| d.node = NodeIndex(order[d.node.index()]));
        nodes[*new as usize] = node;
    }
    Graph { nodes }
}

#[test]
fn an_identical_graph_is_always_taken_and_names_do_not_matter() {
    arbtest::arbtest(|u| {
        let a = any_graph(u, 2)?;
        let mut b = a.clone();
        for node in &mut b.nodes {
            node.name = "another name".into();
            // U11: these are free to change, alone and together.
            match &mut node.content {
                Content::Memset { element, width, height: 1, pitch, .. } => {
                    (*element, *width, *pitch) = (4, u.arbitrary()?, u.arbitrary()?);
                }
                Content::Memcpy { bytes, rows: 1, depth: 1, offset, .. } => {
                    (*bytes, *offset) = (u.arbitrary()?, u.arbitrary()?);
                }
                _ => {}
            }
        }
        for b in [&a, &b] {
            let found = diff(&a, b);
            let success = (Reason::Success, UpdateRule::U1, None, None);
            let Diff { answer, order, stopped, .. } = &found;
            assert_eq!(
                (answer.reason, answer.rule, order.clone(), stopped.clone()),
                success,
                "{found}"
            );
            assert_eq!(found.verdict(), "update");
        }
        Ok(())
    });
}

#[test]
fn an_update_is_taken_both_ways_or_neither_way() {
    arbtest::arbtest(|u| {
        let a = any_graph(u, 1)?;
        // A graph close to the first, or any other.
        let mut b = if u.ratio(1, 4)? { any_graph(u, 1)? } else { a.clone() };
        if !b.nodes.is_empty() {
            let at = u.choose_index(b.nodes.len())?;
            match u.int_in_range(0..=2)? {
                0 => b.nodes[at].content = any_content(u, 1)?,
                1 => b.nodes[at].dependencies.reverse(),
                _ => drop(b.nodes[at].dependencies.pop()),
            }
        }
        let (there, back) = (predict(&a, &b), predict(&b, &a));
        let taken = |answer: &Answer| answer.reason == Reason::Success;
        assert_eq!(taken(&there), taken(&back), "{there:?}\n{back:?}\n{a:?}\n{b:?}");
        // Whoever is named is there, and a refusal says what to do.
        let found = diff(&a, &b);
        assert_eq!(found.error_node.is_some(), there.error_node.is_some());
        assert_eq!(found.change.is_some(), !taken(&there));
        assert!(taken(&there) || found.verdict().contains("re-instantiate"));
        Ok(())
    });
}

#[test]
fn the_order_of_creation_matters_among_sinks_only() {
    arbtest::arbtest(|u| {
        let a = any_graph(u, 0)?;
        let mut order: Vec<u32> = (0..a.nodes.len() as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, u.choose_index(at + 1)?);
        }
        // Sinks get the places of sinks in their old order, so that they are paired as before.
        let depended: Vec<u32> =
            a.nodes.iter().flat_map(|node| &node.dependencies).map(|d| d.node.0).collect();
        let sinks: Vec<usize> =
            (0..a.nodes.len()).filter(|at| !depended.contains(&(*at as u32))).collect();
        let mut places: Vec<u32> = sinks.iter().map(|at| order[*at]).collect();
        places.sort_unstable();
        sinks.iter().zip(places).for_each(|(at, place)| order[*at] = place);
        let b = renumbered(&a, &order);
        assert_eq!(predict(&a, &b).reason, Reason::Success, "{a:?}\n{b:?}");
        Ok(())
    });
}

#[test]
fn every_rule_says_what_it_rests_on() {
    let of = |basis| UpdateRule::ALL.iter().copied().filter(move |rule| rule.basis() == basis);
    assert!(of(Basis::Documented).eq([UpdateRule::U18]));
    assert!(of(Basis::Recorded).eq([UpdateRule::U13, UpdateRule::U14, UpdateRule::U19]));
    let copy = |rows| graph([(copy(Direction::HostToDevice, 8, rows), &[][..])]);
    let said = diff(&copy(2), &copy(3)).to_string();
    assert!(said.contains("(recorded on a device, not documented)"), "{said}");
}

#[test]
fn many_like_branches_end_the_search_and_not_the_program() {
    let fan = |last: Content| {
        let mut nodes = vec![Node::new(KERNEL)];
        nodes.extend((0..100_000).map(|_| node(KERNEL, &[0])));
        nodes.push(node(last, &[0]));
        Graph { nodes }
    };
    let mut b = fan(Content::Host);
    b.nodes.swap(1, 100_001);
    let diff = diff(&fan(Content::Host), &b);
    assert_eq!((diff.answer.reason, diff.order), (Reason::NodeTypeChanged, None));
}
