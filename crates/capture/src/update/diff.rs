//! What stops an update, the smallest change that would let it past, and whether only the order of creation is in the way.
//!
//! The driver pairs nodes by the order in which sinks were created and dependencies were given, so the same graph built in another
//! order is refused. [`diff`] looks for an order that it would take: every node gets a signature from what it holds, from everything
//! before it and from everything behind it (passes in topological order until they tell no more apart), and nodes are matched among
//! equal signatures. What comes out is not trusted: the reordered graph goes through [`predict`] again. Nearly linear, and
//! bounded: a graph with thousands of like branches at one node may have an order that this does not find.

use std::fmt;
use std::hash::{Hash, Hasher};

use phonograph_graph::display_name;
use rustc_hash::{FxHashMap, FxHasher};

use super::change::change;
use super::{
    Answer, Basis, Content, Dependency, Graph, Node, NodeIndex, NodePath, Reason, predict,
};

/// An update's answer, explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diff {
    /// What the driver answers.
    pub answer: Answer,
    /// The nodes of both graphs that were being compared when the difference was found, if any were.
    pub stopped: Option<[NodeLabel; 2]>,
    /// The node of the second graph that the driver names.
    pub error_node: Option<NodeLabel>,
    /// The dependency of that node that the driver names.
    pub error_from: Option<NodeLabel>,
    /// The smallest change to the new graph that gets past what stopped the update; none if nothing did.
    pub change: Option<String>,
    /// An order in which to create the new graph's nodes, such that the update is taken; only if the given order is not.
    pub order: Option<Vec<NodeIndex>>,
}

/// A node for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeLabel {
    /// Its number and name; for a nested one, where it lies too.
    pub words: String,
    /// What it is, with an article.
    pub kind: &'static str,
}

/// Explains what updating an instance of `a` from `b` would answer.
///
/// ```
/// use phonograph_capture::update::{Content, Graph, Node, NodeIndex, diff};
///
/// let graph = |contents: [Content; 2]| Graph { nodes: contents.map(Node::new).into() };
/// let diff = diff(&graph([Content::Host, Content::Empty]), &graph([Content::Empty, Content::Host]));
/// assert_eq!(diff.order, Some(vec![NodeIndex(1), NodeIndex(0)]));
/// assert!(diff.to_string().contains("NODE_TYPE_CHANGED"));
/// ```
pub fn diff(a: &Graph, b: &Graph) -> Diff {
    let answer = predict(a, b);
    let refused = answer.reason != Reason::Success;
    let change = refused.then(|| change(a, b, &answer));
    let order = if refused { order(a, b) } else { None };
    let stopped = answer.pair.as_ref().and_then(|(x, y)| Some([label(a, x)?, label(b, y)?]));
    let named = |path: &Option<NodePath>| path.as_ref().and_then(|path| label(b, path));
    let (error_node, error_from) = (named(&answer.error_node), named(&answer.error_from));
    Diff { answer, stopped, error_node, error_from, change, order }
}

pub(super) fn label(graph: &Graph, path: &NodePath) -> Option<NodeLabel> {
    let told = |graph: &Graph, index: NodeIndex| {
        let name = &graph.nodes.get(index.index())?.name;
        let name =
            if name.is_empty() { String::new() } else { format!(" `{}`", display_name(name)) };
        Some(format!("node {}{name}", index.0))
    };
    let mut around = graph;
    let mut places = Vec::new();
    for (holder, number) in &path.children {
        places.push(format!(" of graph {number} in {}", told(around, *holder)?));
        around = around.nodes.get(holder.index())?.nested(*number)?;
    }
    let kind = around.nodes.get(path.node.index())?.content.kind();
    let places: String = places.into_iter().rev().collect();
    Some(NodeLabel { words: told(around, path.node)? + &places, kind })
}

/// An order of `b`'s nodes in which the update is taken.
fn order(a: &Graph, b: &Graph) -> Option<Vec<NodeIndex>> {
    if a.nodes.len() != b.nodes.len() {
        return None;
    }
    let mut matching = Matching {
        a: Side::new(a)?,
        b: Side::new(b)?,
        of_a: vec![None; a.nodes.len()],
        of_b: vec![None; b.nodes.len()],
        budget: BUDGET,
    };
    let order = matching.run()?;
    (predict(a, &reordered(a, b, &order)).reason == Reason::Success).then_some(order)
}

/// Most comparisons of a matching: a hub with thousands of like neighbours would take their square.
const BUDGET: usize = 50_000_000;

/// A graph with what matching looks at.
struct Side {
    signatures: Vec<u64>,
    /// Dependencies and dependents of each node, each with its direction and port.
    neighbours: Vec<Vec<(NodeIndex, (bool, u8))>>,
}

impl Side {
    fn new(graph: &Graph) -> Option<Self> {
        let signatures = signatures(graph)?;
        let mut neighbours = vec![Vec::new(); graph.nodes.len()];
        for (at, node) in graph.nodes.iter().enumerate() {
            for Dependency { node, port } in &node.dependencies {
                neighbours[at].push((*node, (true, *port as u8)));
                neighbours[node.index()].push((NodeIndex(at as u32), (false, *port as u8)));
            }
        }
        Some(Self { signatures, neighbours })
    }
}

/// Pairs nodes from neighbour to neighbour, so that like branches are not mixed up.
struct Matching {
    a: Side,
    b: Side,
    of_a: Vec<Option<NodeIndex>>,
    of_b: Vec<Option<NodeIndex>>,
    /// Comparisons that are left.
    budget: usize,
}

impl Matching {
    fn run(&mut self) -> Option<Vec<NodeIndex>> {
        let mut free: FxHashMap<u64, Vec<NodeIndex>> = FxHashMap::default();
        for (at, signature) in self.b.signatures.iter().enumerate().rev() {
            free.entry(*signature).or_default().push(NodeIndex(at as u32));
        }
        for at in 0..self.of_a.len() {
            if self.of_a[at].is_some() {
                continue;
            }
            // A new component: any node of the class will do, as all of its neighbours follow.
            let class = free.get_mut(&self.a.signatures[at])?;
            while self.of_b[class.last()?.index()].is_some() {
                class.pop();
            }
            let mut reached = vec![self.pair(NodeIndex(at as u32), class.pop()?)];
            while let Some((x, y)) = reached.pop() {
                for (near, edge) in self.a.neighbours[x.index()].clone() {
                    if self.of_a[near.index()].is_none() {
                        let partner = self.partner(near, y, edge)?;
                        reached.push(self.pair(near, partner));
                    }
                }
            }
        }
        self.of_a.iter().copied().collect()
    }

    fn pair(&mut self, x: NodeIndex, y: NodeIndex) -> (NodeIndex, NodeIndex) {
        self.of_a[x.index()] = Some(y);
        self.of_b[y.index()] = Some(x);
        (x, y)
    }

    /// A node next to `y` that may be paired with `x`: of the same class, and next to the partners of what `x` is next to.
    fn partner(&mut self, x: NodeIndex, y: NodeIndex, edge: (bool, u8)) -> Option<NodeIndex> {
        let around_x = &self.a.neighbours[x.index()];
        for (candidate, theirs) in &self.b.neighbours[y.index()] {
            self.budget = self.budget.checked_sub(1)?;
            let signature = self.b.signatures[candidate.index()];
            if *theirs != edge
                || self.of_b[candidate.index()].is_some()
                || signature != self.a.signatures[x.index()]
            {
                continue;
            }
            let around = &self.b.neighbours[candidate.index()];
            self.budget = self.budget.checked_sub(around_x.len() * around.len())?;
            let mut known =
                around_x.iter().filter_map(|(near, edge)| Some((self.of_a[near.index()]?, *edge)));
            if known.all(|partner| around.contains(&partner)) {
                return Some(*candidate);
            }
        }
        None
    }
}

/// `b` with its nodes in `order`, and every node's dependencies in the order in which its partner in `a` has them.
fn reordered(a: &Graph, b: &Graph, order: &[NodeIndex]) -> Graph {
    let mut position = vec![NodeIndex(0); order.len()];
    for (at, old) in order.iter().enumerate() {
        position[old.index()] = NodeIndex(at as u32);
    }
    let nodes = order.iter().zip(&a.nodes).map(|(old, partner)| {
        let node = &b.nodes[old.index()];
        let mut dependencies: Vec<Dependency> = node
            .dependencies
            .iter()
            .map(|d| Dependency { node: position[d.node.index()], port: d.port })
            .collect();
        let rank: FxHashMap<NodeIndex, usize> =
            partner.dependencies.iter().enumerate().map(|(i, d)| (d.node, i)).collect();
        dependencies.sort_by_key(|d| rank.get(&d.node).copied());
        Node { dependencies, ..node.clone() }
    });
    Graph { nodes: nodes.collect() }
}

/// Every node after its dependencies; none if the graph has a cycle or a dependency that is not there.
fn topological(graph: &Graph) -> Option<Vec<NodeIndex>> {
    let mut missing: Vec<usize> = graph.nodes.iter().map(|node| node.dependencies.len()).collect();
    let mut dependents: Vec<Vec<NodeIndex>> = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        for dependency in &node.dependencies {
            dependents.get_mut(dependency.node.index())?.push(NodeIndex(at as u32));
        }
    }
    let mut order: Vec<NodeIndex> =
        (0..graph.nodes.len() as u32).map(NodeIndex).filter(|n| missing[n.index()] == 0).collect();
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        next += 1;
        for dependent in &dependents[node.index()] {
            missing[dependent.index()] -= 1;
            if missing[dependent.index()] == 0 {
                order.push(*dependent);
            }
        }
    }
    (order.len() == graph.nodes.len()).then_some(order)
}

/// Most rounds of refinement. A round splits classes that differ one step further along a zigzag of edges; real graphs need two.
const ROUNDS: usize = 16;

/// A number for each node that is equal for nodes which may be partners: what it holds that an update keeps, and its surroundings.
/// Refined until no round tells more nodes apart (colour refinement, in the directions of the edges).
fn signatures(graph: &Graph) -> Option<Vec<u64>> {
    let order = topological(graph)?;
    let mut own: Vec<u64> =
        graph.nodes.iter().map(|node| hash(&node.content.signature())).collect();
    let mut classes = 0;
    for _ in 0..ROUNDS {
        own = refined(graph, &order, own);
        let mut distinct = own.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() == classes {
            break;
        }
        classes = distinct.len();
    }
    Some(own)
}

/// Each node's number with those of everything before it and everything behind it.
fn refined(graph: &Graph, order: &[NodeIndex], own: Vec<u64>) -> Vec<u64> {
    let mut before = own.clone();
    for at in order {
        let dependencies = graph.nodes[at.index()].dependencies.iter();
        let mut parts: Vec<u64> =
            dependencies.map(|d| hash(&(before[d.node.index()], d.port as u8))).collect();
        parts.sort_unstable();
        before[at.index()] = hash(&(own[at.index()], parts));
    }
    // A sum does not depend on the order in which dependents are met.
    let mut behind = own.clone();
    let mut sums = vec![0u64; graph.nodes.len()];
    for at in order.iter().rev() {
        behind[at.index()] = hash(&(own[at.index()], sums[at.index()]));
        for dependency in &graph.nodes[at.index()].dependencies {
            let part = hash(&(behind[at.index()], dependency.port as u8));
            let sum = &mut sums[dependency.node.index()];
            *sum = sum.wrapping_add(part);
        }
    }
    before.into_iter().zip(behind).map(|both| hash(&both)).collect()
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Content {
    /// What the node is called, with its article.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => "a kernel",
            Self::Memcpy { .. } => "a memcpy",
            Self::Memset { .. } => "a memset",
            Self::Child(_) => "a child graph",
            Self::Conditional { .. } => "a conditional",
            Self::Alloc => "an allocation",
            Self::Free => "a free",
            Self::Host => "a host function",
            Self::Empty => "an empty node",
            Self::EventRecord => "an event record",
            Self::EventWait => "an event wait",
            Self::BatchMemOp => "a batch memory operation",
        }
    }

    /// What an update has to find again. Of nested graphs only the number of nodes: the walk looks at the rest.
    fn signature(&self) -> (&'static str, [u64; 5]) {
        let kept = match self {
            Self::Kernel { cooperative } => [u64::from(*cooperative), 0, 0, 0, 0],
            Self::Memcpy { direction, rows: 1, depth: 1, .. } => [*direction as u64, 0, 1, 1, 0],
            Self::Memcpy { direction, bytes, rows, depth, offset, .. } => {
                [*direction as u64, *bytes, u64::from(*rows), u64::from(*depth), *offset]
            }
            Self::Memset { element, width, height, pitch, .. } if *height > 1 => {
                [u64::from(*element), *width, *height, *pitch, 0]
            }
            Self::Child(graph) => [graph.nodes.len() as u64, 0, 0, 0, 0],
            Self::Conditional { kind, bodies } => [*kind as u64, bodies.len() as u64, 0, 0, 0],
            _ => [0; 5],
        };
        (self.kind(), kept)
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.node.0)?;
        for (holder, number) in self.children.iter().rev() {
            write!(f, " of graph {number} in node {}", holder.0)?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.words, self.kind)
    }
}

impl Diff {
    /// What to do about the answer.
    pub fn verdict(&self) -> &'static str {
        match (self.answer.reason, &self.order) {
            (Reason::Success, _) => "update",
            (_, Some(_)) => {
                "re-create the second graph in the other order and update, or re-instantiate"
            }
            (_, None) => "re-instantiate",
        }
    }
}

/// Nodes of an order that are printed one by one.
const ORDER: usize = 24;

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer { reason, rule, .. } = &self.answer;
        if *reason == Reason::Success {
            writeln!(f, "update: SUCCESS (0)")?;
            return writeln!(f, "  verdict: {}", self.verdict());
        }
        let result = self.answer.result();
        writeln!(
            f,
            "update: {} ({}); cuGraphExecUpdate answers {result} ({})",
            reason.name(),
            reason.code(),
            result.0
        )?;
        let basis = match rule.basis() {
            Basis::Both => "",
            Basis::Recorded => " (recorded on a device, not documented)",
            Basis::Documented => " (documented, not recorded on a device)",
        };
        writeln!(f, "  rule {rule}: {}{basis}", rule.words())?;
        if let Some([old, new]) = &self.stopped {
            writeln!(f, "  first graph:  {old}")?;
            writeln!(f, "  second graph: {new}; the update stops at this pair")?;
        }
        match (&self.error_node, &self.error_from) {
            (Some(node), Some(from)) => writeln!(
                f,
                "  the driver names {} of the second graph, and its dependency on {}",
                node.words, from.words
            )?,
            (Some(node), None) => {
                writeln!(f, "  the driver names {} of the second graph", node.words)?
            }
            (None, _) => writeln!(f, "  the driver names no node")?,
        }
        if let Some(change) = &self.change {
            writeln!(f, "  smallest change: {change}")?;
        }
        if let Some(order) = &self.order {
            let shown = order.iter().take(ORDER).map(|node| node.0.to_string());
            let more = if order.len() > ORDER { ", …" } else { "" };
            writeln!(
                f,
                "  the second graph is the first, created in another order: create its nodes as {}{more}, with dependencies in the",
                shown.collect::<Vec<_>>().join(", ")
            )?;
            writeln!(f, "  order of the first, and the update is taken")?;
        }
        writeln!(f, "  verdict: {}", self.verdict())?;
        writeln!(
            f,
            "  before falling back, clear the error: the runtime keeps it, and the next cudaGetLastError would answer {} again",
            result.0
        )
    }
}
