//! Recorded updates: result, reason, error node and the dependency it is about.

use phonograph_trace::limits::MAX_DECLARED;
use phonograph_trace::recording::{ErrorNode, Node, UpdatePair};

use super::{Divergence, Tally};
use crate::update::{
    self, Answer, Content, Dependency, Direction, Graph, NodeIndex, NodePath, Port,
};

pub(super) fn tally(pairs: &[UpdatePair]) -> Tally {
    let mut tally = Tally::new("pairs");
    for pair in pairs {
        let named = |node: Option<ErrorNode>| match node {
            None => "none".to_owned(),
            Some(ErrorNode::Top(index)) => index.to_string(),
            Some(ErrorNode::Inner) => "inner".to_owned(),
        };
        let driver = format!(
            "{} {} {} {}",
            pair.result,
            pair.update,
            named(pair.error_node),
            named(pair.error_from)
        );
        let model = match (graph(&pair.a), graph(&pair.b)) {
            (Ok(a), Ok(b)) => words(&update::predict(&a, &b)),
            (Err(what), _) | (_, Err(what)) => what,
        };
        let what = "result, reason, error node, error from".to_owned();
        tally.count((driver != model).then(|| Divergence {
            record: pair.id.clone(),
            step: None,
            what,
            driver,
            model,
        }));
    }
    tally
}

fn words(answer: &Answer) -> String {
    let named = |node: &Option<NodePath>| match node {
        None => "none".to_owned(),
        Some(path) if path.children.is_empty() => path.node.0.to_string(),
        Some(_) => "inner".to_owned(),
    };
    let (node, from) = (named(&answer.error_node), named(&answer.error_from));
    format!("{} {} {node} {from}", answer.result(), answer.reason.name())
}

/// A recorded graph as the rules take it. Recorded graphs are as deep as their JSON, which its reader bounds.
fn graph(nodes: &[Node]) -> Result<Graph, String> {
    let nodes = nodes.iter().map(|node| {
        let deps = node.dependencies();
        let ports = deps.ports.iter().copied().chain(std::iter::repeat(0));
        let dependency = |(node, port): (&usize, u8)| {
            let port = match port {
                0 => Port::Full,
                1 => Port::Programmatic,
                2 => Port::LaunchOrder,
                other => return Err(format!("unknown port {other}")),
            };
            Ok(Dependency {
                node: NodeIndex(u32::try_from(*node).map_err(|e| e.to_string())?),
                port,
            })
        };
        let dependencies =
            deps.deps.iter().zip(ports).map(dependency).collect::<Result<_, String>>()?;
        Ok(update::Node { dependencies, ..update::Node::new(content(node)?) })
    });
    Ok(Graph { nodes: nodes.collect::<Result<_, String>>()? })
}

fn content(node: &Node) -> Result<Content, String> {
    Ok(match node {
        Node::Kernel { cooperative, .. } => Content::Kernel { cooperative: *cooperative != 0 },
        Node::Memcpy { direction, bytes, rows, depth, offset, .. } => {
            let direction = match direction.as_str() {
                "htod" => Direction::HostToDevice,
                "dtoh" => Direction::DeviceToHost,
                "dtod" => Direction::DeviceToDevice,
                other => return Err(format!("unknown direction `{other}`")),
            };
            Content::Memcpy {
                direction,
                bytes: *bytes,
                rows: *rows,
                depth: *depth,
                offset: *offset,
                devices: [None; 2],
            }
        }
        Node::Memset { element, width, height, pitch, .. } => Content::Memset {
            element: *element,
            width: *width,
            height: *height,
            pitch: *pitch,
            device: None,
        },
        // An older recording gives only the number of kernels in the child.
        Node::Child { graph: nodes, kernels, .. } if nodes.is_empty() => {
            Content::Child(chain(*kernels)?)
        }
        Node::Child { graph: nodes, .. } => Content::Child(graph(nodes)?),
        Node::Conditional { r#type, kernels, .. } => {
            let kind = match r#type.as_str() {
                "if" => update::Conditional::If,
                "while" => update::Conditional::While,
                "switch" => update::Conditional::Switch,
                other => return Err(format!("unknown conditional `{other}`")),
            };
            Content::Conditional { kind, bodies: vec![chain(*kernels)?] }
        }
        Node::Alloc { .. } => Content::Alloc,
        Node::Free { .. } => Content::Free,
        Node::Host { .. } => Content::Host,
        Node::Empty { .. } => Content::Empty,
        Node::EventRecord { .. } => Content::EventRecord,
        Node::EventWait { .. } => Content::EventWait,
    })
}

fn chain(kernels: usize) -> Result<Graph, String> {
    if kernels > MAX_DECLARED {
        return Err(format!("a chain of more than {MAX_DECLARED} kernels"));
    }
    let node = |at: usize| {
        let before = at
            .checked_sub(1)
            .map(|before| Dependency { node: NodeIndex(before as u32), port: Port::Full });
        let dependencies = before.into_iter().collect();
        update::Node { dependencies, ..update::Node::new(Content::Kernel { cooperative: false }) }
    };
    Ok(Graph { nodes: (0..kernels).map(node).collect() })
}
