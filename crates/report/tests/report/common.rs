//! Pictures that several tests draw.

use phonograph_report::picture::{Edge, Group, Node, NodeClass, NodeIx, Picture};

/// A recorded graph: lines `class⇥label⇥launch` and `edge⇥from⇥to`.
pub fn recorded(name: &str, text: &str) -> Picture {
    let mut group = Group::new("graph_1");
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["edge", from, to] => {
                let node = |s: &str| NodeIx(s.parse().expect("a node's number"));
                group.edges.push(Edge::new(node(from), node(to)));
            }
            [class, label, launch] => {
                let class =
                    NodeClass::ALL.into_iter().find(|c| c.name() == class).expect("a known class");
                group.nodes.push(Node::new(class, label).line(launch));
            }
            _ => panic!("not a line of test data: {line:?}"),
        }
    }
    Picture { title: name.into(), groups: vec![group] }
}

/// Kernels `k0`, `k1`, … with these edges.
pub fn graph(nodes: usize, edges: &[(u32, u32)]) -> Picture {
    let mut group = Group::new("main");
    group.nodes = (0..nodes).map(|i| Node::new(NodeClass::Kernel, format!("k{i}"))).collect();
    group.edges = edges.iter().map(|&(a, b)| Edge::new(NodeIx(a), NodeIx(b))).collect();
    Picture { title: "test".into(), groups: vec![group] }
}

/// A kernel name that tries everything.
pub fn hostile() -> String {
    let mut name = String::from(
        "</script><script>alert(1)</script><!-- ]]> \u{0}\u{1b}[31m\u{202e}\r\n\"'& ￾\u{ffff}",
    );
    name.push_str("<img src=http://example.com/x onerror=alert(2)>");
    name.push_str(&"_ZN2at6native".repeat(800));
    name
}
