//! The smallest change to the second graph of an update that gets past what stopped it, in words.
//!
//! In: both graphs and the answer. Out: one sentence. Where nodes are one too many or missing, names and kinds say which, as far as they
//! can: an update itself compares no names. Linear in the graphs.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::diff::label;
use super::predict::sinks;
use super::{Answer, Content, Dependency, Graph, Node, NodeIndex, NodePath, UpdateRule};

/// Nodes that are named one by one.
const NAMED: usize = 4;

pub(super) fn change(a: &Graph, b: &Graph, answer: &Answer) -> String {
    let pair = answer.pair.as_ref().and_then(|(at_x, at_y)| {
        Some(Pair { a, b, at_x, at_y, x: node(a, at_x)?, y: node(b, at_y)? })
    });
    match (answer.rule, pair) {
        (UpdateRule::U6a, Some(pair)) => pair.dependencies_too_many(),
        (UpdateRule::U7, Some(pair)) => pair.other_dependency(answer),
        (UpdateRule::U6b, Some(Pair { x, y, .. })) => {
            format!("make the node {} again, not {}", x.content.kind(), y.content.kind())
        }
        (
            UpdateRule::U9a | UpdateRule::U9b | UpdateRule::U10 | UpdateRule::U13,
            Some(Pair { x, y, .. }),
        ) => format!("set back {}", differing(&x.content, &y.content).join(", ")),
        (UpdateRule::U18, _) => "use memory on the devices that it was on".to_owned(),
        (UpdateRule::U12, Some(Pair { x, .. })) => match x.content {
            Content::Kernel { cooperative: true } => {
                "launch the kernel cooperatively again".to_owned()
            }
            _ => "launch the kernel without the cooperative attribute".to_owned(),
        },
        (UpdateRule::U19, _) => "create the graph's conditionals in the order in which the first graph has them, and as many before this one".to_owned(),
        (UpdateRule::U14, _) => "give the edge the port that it had".to_owned(),
        (UpdateRule::U15, _) => {
            "give the conditional the kind and the number of bodies that it had".to_owned()
        }
        // U2 and U3, at the top or in a nested graph: numbers of nodes or of sinks.
        _ if a.nodes.len() != b.nodes.len() => other_nodes(a, b),
        (UpdateRule::U3, _) if sinks(a).len() != sinks(b).len() => other_sinks(a, b),
        (UpdateRule::U3, _) => {
            "let as many nodes of the nested graph as before have nothing that depends on them"
                .to_owned()
        }
        _ => "give the nested graph the number of nodes that it had".to_owned(),
    }
}

/// The nodes at which the update stops, and where they lie.
struct Pair<'a> {
    a: &'a Graph,
    b: &'a Graph,
    at_x: &'a NodePath,
    at_y: &'a NodePath,
    x: &'a Node,
    y: &'a Node,
}

impl Pair<'_> {
    fn dependencies_too_many(&self) -> String {
        let of = |node: &Node| node.dependencies.iter().map(|d| d.node).collect::<Vec<_>>();
        let (old, new) = (of(self.x), of(self.y));
        let named = || {
            let (around_x, around_y) = (around(self.a, self.at_x)?, around(self.b, self.at_y)?);
            let (missing, extra) = left_over((around_x, &old), (around_y, &new))?;
            let (missing, extra) =
                (words(self.a, self.at_x, &missing)?, words(self.b, self.at_y, &extra)?);
            Some(both(
                extra.map(|extra| format!("take away its dependency on {extra}")),
                missing.map(|missing| {
                    format!("let it depend on what stands for {missing} of the first graph")
                }),
            ))
        };
        let count = || match old.len() {
            1 => format!("give the node 1 dependency instead of {}", new.len()),
            n => format!("give the node {n} dependencies instead of {}", new.len()),
        };
        named().unwrap_or_else(count)
    }

    fn other_dependency(&self, answer: &Answer) -> String {
        let named = || {
            let from = answer.error_from.as_ref()?;
            let place = self.y.dependencies.iter().position(|d| d.node == from.node)?;
            let Dependency { node, .. } = *self.x.dependencies.get(place)?;
            let meant = label(self.a, &NodePath { node, ..self.at_x.clone() })?.words;
            let given = label(self.b, from)?.words;
            Some(format!(
                "let dependency {place} of the node be what stands for {meant} of the first graph, not {given}"
            ))
        };
        named().unwrap_or_else(|| "give the dependencies in the order in which the first graph has them, between the same nodes".to_owned())
    }
}

fn other_nodes(a: &Graph, b: &Graph) -> String {
    let all = |graph: &Graph| (0..graph.nodes.len() as u32).map(NodeIndex).collect::<Vec<_>>();
    let named = || {
        let (missing, extra) = left_over((a, &all(a)), (b, &all(b)))?;
        let (missing, extra) = (words(a, &top(), &missing)?, words(b, &top(), &extra)?);
        Some(both(
            extra.map(|extra| format!("leave out {extra}")),
            missing.map(|missing| format!("add {missing} of the first graph again")),
        ))
    };
    let count = || match a.nodes.len() {
        1 => format!("give the graph 1 node instead of {}", b.nodes.len()),
        n => format!("give the graph {n} nodes instead of {}", b.nodes.len()),
    };
    named().unwrap_or_else(count)
}

fn other_sinks(a: &Graph, b: &Graph) -> String {
    let named = || {
        let (missing, extra) = left_over((a, &sinks(a)), (b, &sinks(b)))?;
        let (missing, extra) = (words(a, &top(), &missing)?, words(b, &top(), &extra)?);
        Some(both(
            extra.map(|extra| format!("let a node depend on {extra}, as before")),
            missing.map(|missing| {
                format!("let nothing depend on what stands for {missing} of the first graph")
            }),
        ))
    };
    named().unwrap_or_else(|| {
        "let as many nodes as before have nothing that depends on them".to_owned()
    })
}

fn top() -> NodePath {
    NodePath { children: Vec::new(), node: NodeIndex(0) }
}

fn both(first: Option<String>, second: Option<String>) -> String {
    first.into_iter().chain(second).collect::<Vec<_>>().join(", and ")
}

/// Nodes beside the one at `beside`, in words; none in the outer sense if they are too many or are not there.
fn words(graph: &Graph, beside: &NodePath, nodes: &[NodeIndex]) -> Option<Option<String>> {
    if nodes.len() > NAMED {
        return None;
    }
    let one = |node: &NodeIndex| {
        label(graph, &NodePath { node: *node, ..beside.clone() }).map(|label| label.words)
    };
    let named = nodes.iter().map(one).collect::<Option<Vec<_>>>()?;
    Some((!named.is_empty()).then(|| named.join(" and ")))
}

type Nodes<'a> = (&'a Graph, &'a [NodeIndex]);

/// Nodes of the first that the second has none for by kind and name, and the other way about. Of like ones those stand for each other
/// that have one position, and the last created are left over. None if that tells nothing.
fn left_over(first: Nodes<'_>, second: Nodes<'_>) -> Option<(Vec<NodeIndex>, Vec<NodeIndex>)> {
    let mut classes: BTreeMap<(&str, &str), [Vec<NodeIndex>; 2]> = BTreeMap::new();
    for (side, (graph, nodes)) in [first, second].into_iter().enumerate() {
        for node in nodes {
            let Node { name, content, .. } = graph.nodes.get(node.index())?;
            classes.entry((content.kind(), name)).or_default()[side].push(*node);
        }
    }
    let (mut missing, mut extra) = (Vec::new(), Vec::new());
    for [old, new] in classes.values_mut() {
        let both: FxHashSet<NodeIndex> = {
            let new: FxHashSet<NodeIndex> = new.iter().copied().collect();
            old.iter().filter(|node| new.contains(node)).copied().collect()
        };
        for nodes in [&mut *old, &mut *new] {
            nodes.retain(|node| !both.contains(node));
            nodes.sort_unstable();
        }
        let common = old.len().min(new.len());
        missing.extend_from_slice(&old[common..]);
        extra.extend_from_slice(&new[common..]);
    }
    missing.sort_unstable();
    extra.sort_unstable();
    (!missing.is_empty() || !extra.is_empty()).then_some((missing, extra))
}

/// The graph that a node lies in.
fn around<'a>(graph: &'a Graph, path: &NodePath) -> Option<&'a Graph> {
    let mut graph = graph;
    for (holder, number) in &path.children {
        graph = graph.nodes.get(holder.index())?.nested(*number)?;
    }
    Some(graph)
}

fn node<'a>(graph: &'a Graph, path: &NodePath) -> Option<&'a Node> {
    around(graph, path)?.nodes.get(path.node.index())
}

/// The fields of two copies or memsets that may not differ and do.
fn differing(a: &Content, b: &Content) -> Vec<String> {
    let fields = |content: &Content| match *content {
        Content::Memcpy { direction, bytes, rows, depth, offset, .. } => vec![
            ("direction", format!("{direction:?}")),
            ("bytes", bytes.to_string()),
            ("rows", rows.to_string()),
            ("depth", depth.to_string()),
            ("offset", offset.to_string()),
        ],
        Content::Memset { element, width, height, pitch, .. } => vec![
            ("height", height.to_string()),
            ("element size", element.to_string()),
            ("width", width.to_string()),
            ("pitch", pitch.to_string()),
        ],
        _ => Vec::new(),
    };
    let pairs = fields(a).into_iter().zip(fields(b)).filter(|((_, old), (_, new))| old != new);
    pairs.map(|((name, old), (_, new))| format!("{name} from {new} to {old}")).collect()
}
