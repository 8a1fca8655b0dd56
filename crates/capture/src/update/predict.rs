//! The walk: both graphs side by side from their sinks towards their roots, to the first difference.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::{Answer, Content, Graph, Node, NodeIndex, NodePath, Reason, UpdateRule};

/// What updating an instance of `a` from `b` answers.
pub fn predict(a: &Graph, b: &Graph) -> Answer {
    let mut walk = Walk { levels: Vec::new(), path_a: Vec::new(), path_b: Vec::new() };
    match walk.run(a, b) {
        Ok(()) => Answer {
            reason: Reason::Success,
            rule: UpdateRule::U1,
            error_node: None,
            error_from: None,
            pair: None,
        },
        Err(difference) => walk.answer(difference),
    }
}

struct Walk<'a> {
    /// The graph in hand comes last; the graphs that hold it wait before it.
    levels: Vec<Level<'a>>,
    path_a: Vec<(NodeIndex, u32)>,
    path_b: Vec<(NodeIndex, u32)>,
}

/// One graph that is being walked.
struct Level<'a> {
    a: &'a Graph,
    b: &'a Graph,
    partner_of_a: Vec<Option<NodeIndex>>,
    partner_of_b: Vec<Option<NodeIndex>>,
    /// The places of the conditionals among the conditionals of their graph.
    places_a: FxHashMap<NodeIndex, usize>,
    places_b: FxHashMap<NodeIndex, usize>,
    queue: VecDeque<(NodeIndex, NodeIndex)>,
    /// The pair in hand, whose nested graphs are being walked; `next_nested` is the number of the next one.
    in_hand: Option<(NodeIndex, NodeIndex)>,
    next_nested: u32,
}

struct Difference {
    reason: Reason,
    rule: UpdateRule,
    node: Option<NodeIndex>,
    from: Option<NodeIndex>,
}

impl Difference {
    fn new(reason: Reason, rule: UpdateRule, node: Option<NodeIndex>) -> Self {
        Self { reason, rule, node, from: None }
    }
}

impl<'a> Walk<'a> {
    fn run(&mut self, a: &'a Graph, b: &'a Graph) -> Result<(), Difference> {
        self.levels.push(Level::new(a, b)?);
        while let Some(level) = self.levels.last_mut() {
            let Some((x, y)) = level.in_hand else {
                match level.queue.pop_front() {
                    // U6: a pair is checked when it is taken off the queue, not when it is paired.
                    Some((x, y)) => {
                        level.check(x, y)?;
                        level.in_hand = Some((x, y));
                        level.next_nested = 0;
                    }
                    None => {
                        self.levels.pop();
                        self.path_a.pop();
                        self.path_b.pop();
                    }
                }
                continue;
            };
            // U8, U16, U17: nested graphs at their node's turn.
            let nested = (
                level.next_nested,
                level.node_a(x).nested(level.next_nested),
                level.node_b(y).nested(level.next_nested),
            );
            if let (number, Some(inner_a), Some(inner_b)) = nested {
                level.next_nested += 1;
                self.path_a.push((x, number));
                self.path_b.push((y, number));
                self.levels.push(Level::new(inner_a, inner_b)?);
                continue;
            }
            level.pair_dependencies(x, y)?;
            level.in_hand = None;
        }
        Ok(())
    }

    fn answer(self, difference: Difference) -> Answer {
        let at = |path: &Vec<(NodeIndex, u32)>, node| NodePath { children: path.clone(), node };
        let pair = match self.levels.last() {
            Some(level)
                if level.in_hand.is_some() && self.path_a.len() + 1 == self.levels.len() =>
            {
                level.in_hand
            }
            _ => None,
        };
        Answer {
            reason: difference.reason,
            rule: difference.rule,
            error_node: difference.node.map(|node| at(&self.path_b, node)),
            error_from: difference.from.map(|node| at(&self.path_b, node)),
            pair: pair.map(|(x, y)| (at(&self.path_a, x), at(&self.path_b, y))),
        }
    }
}

impl<'a> Level<'a> {
    /// U2, U3 and U4: the counts, then the sinks, paired in reverse order of creation.
    fn new(a: &'a Graph, b: &'a Graph) -> Result<Self, Difference> {
        use Reason::TopologyChanged;
        if a.nodes.len() != b.nodes.len() {
            return Err(Difference::new(TopologyChanged, UpdateRule::U2, None));
        }
        let (sinks_a, sinks_b) = (sinks(a), sinks(b));
        if sinks_a.len() != sinks_b.len() {
            // The one of b that is left without a partner, if b has more.
            return Err(Difference::new(
                TopologyChanged,
                UpdateRule::U3,
                sinks_b.get(sinks_a.len()).copied(),
            ));
        }
        let mut level = Self {
            a,
            b,
            partner_of_a: vec![None; a.nodes.len()],
            partner_of_b: vec![None; b.nodes.len()],
            places_a: places(a),
            places_b: places(b),
            queue: VecDeque::new(),
            in_hand: None,
            next_nested: 0,
        };
        sinks_a.into_iter().zip(sinks_b).for_each(|(x, y)| level.pair(x, y));
        Ok(level)
    }

    fn pair(&mut self, x: NodeIndex, y: NodeIndex) {
        self.partner_of_a[x.index()] = Some(y);
        self.partner_of_b[y.index()] = Some(x);
        self.queue.push_back((x, y));
    }

    fn node_a(&self, x: NodeIndex) -> &'a Node {
        &self.a.nodes[x.index()]
    }

    fn node_b(&self, y: NodeIndex) -> &'a Node {
        &self.b.nodes[y.index()]
    }

    fn check(&mut self, x: NodeIndex, y: NodeIndex) -> Result<(), Difference> {
        let (old, new) = (self.node_a(x), self.node_b(y));
        // The pair is in hand from here on, so that a difference can name it.
        self.in_hand = Some((x, y));
        if old.dependencies.len() != new.dependencies.len() {
            return Err(Difference::new(Reason::TopologyChanged, UpdateRule::U6a, Some(y)));
        }
        if let Some((reason, rule)) = difference(&old.content, &new.content) {
            return Err(Difference::new(reason, rule, Some(y)));
        }
        // U19: a conditional is known by its handle, and handles of two graphs are told apart by the order in which they were made.
        if self.places_a.get(&x) != self.places_b.get(&y) {
            return Err(Difference::new(Reason::NotSupported, UpdateRule::U19, Some(y)));
        }
        Ok(())
    }

    /// U5, U7 and U14: dependencies are paired position by position; each new pair goes to the end of the queue.
    fn pair_dependencies(&mut self, x: NodeIndex, y: NodeIndex) -> Result<(), Difference> {
        for (old, new) in self.node_a(x).dependencies.iter().zip(&self.node_b(y).dependencies) {
            let differs = |rule| Difference {
                from: Some(new.node),
                ..Difference::new(Reason::TopologyChanged, rule, Some(y))
            };
            if old.port != new.port {
                return Err(differs(UpdateRule::U14));
            }
            let of_old = self.partner_of_a.get(old.node.index()).copied().flatten();
            let of_new = self.partner_of_b.get(new.node.index()).copied().flatten();
            match (of_old, of_new) {
                (None, None)
                    if old.node.index() < self.a.nodes.len()
                        && new.node.index() < self.b.nodes.len() =>
                {
                    self.pair(old.node, new.node);
                }
                (Some(partner), Some(_)) if partner == new.node => {}
                _ => return Err(differs(UpdateRule::U7)),
            }
        }
        Ok(())
    }
}

/// The conditionals of a graph, each with its place among them in the order of creation.
fn places(graph: &Graph) -> FxHashMap<NodeIndex, usize> {
    let is_conditional =
        |(_, node): &(NodeIndex, &Node)| matches!(node.content, Content::Conditional { .. });
    // Graph positions are 32 bits wide.
    let nodes = (0..).map(NodeIndex).zip(&graph.nodes).filter(is_conditional);
    nodes.enumerate().map(|(place, (node, _))| (node, place)).collect()
}

/// The nodes that nothing depends on, last created first.
pub(super) fn sinks(graph: &Graph) -> Vec<NodeIndex> {
    let mut has_dependents = vec![false; graph.nodes.len()];
    for dependency in graph.nodes.iter().flat_map(|node| &node.dependencies) {
        if let Some(has) = has_dependents.get_mut(dependency.node.index()) {
            *has = true;
        }
    }
    // Graph positions are 32 bits wide.
    (0..graph.nodes.len() as u32)
        .rev()
        .map(NodeIndex)
        .filter(|node| !has_dependents[node.index()])
        .collect()
}

impl Node {
    /// The nested graphs: a child's one, a conditional's bodies.
    pub(super) fn nested(&self, number: u32) -> Option<&Graph> {
        match &self.content {
            Content::Child(graph) if number == 0 => Some(graph),
            Content::Conditional { bodies, .. } => bodies.get(number as usize),
            _ => None,
        }
    }
}

/// U6b and what a node holds, apart from nested graphs: U9–U15.
fn difference(old: &Content, new: &Content) -> Option<(Reason, UpdateRule)> {
    use Content::{Conditional, Kernel, Memcpy, Memset};
    use Reason::{AttributesChanged, NodeTypeChanged, NotSupported, ParametersChanged};
    if std::mem::discriminant(old) != std::mem::discriminant(new) {
        return Some((NodeTypeChanged, UpdateRule::U6b));
    }
    match (old, new) {
        (Kernel { cooperative: old }, Kernel { cooperative: new }) if old != new => {
            Some((AttributesChanged, UpdateRule::U12))
        }
        (Memset { device: old, .. }, Memset { device: new, .. }) if moved(old, new) => {
            Some((ParametersChanged, UpdateRule::U18))
        }
        (Memset { height: old, .. }, Memset { height: new, .. }) if (*old > 1) != (*new > 1) => {
            Some((ParametersChanged, UpdateRule::U9a))
        }
        (Memset { height: 2.., .. }, Memset { .. }) if old.shape() != new.shape() => {
            Some((ParametersChanged, UpdateRule::U9b))
        }
        (Memcpy { devices: old, .. }, Memcpy { devices: new, .. })
            if old.iter().zip(new).any(|(old, new)| moved(old, new)) =>
        {
            Some((ParametersChanged, UpdateRule::U18))
        }
        (Memcpy { direction: old, .. }, Memcpy { direction: new, .. }) if old != new => {
            Some((ParametersChanged, UpdateRule::U10))
        }
        (Memcpy { rows: 1, depth: 1, .. }, Memcpy { rows: 1, depth: 1, .. }) => None,
        (Memcpy { .. }, Memcpy { .. }) if old.shape() != new.shape() => {
            Some((ParametersChanged, UpdateRule::U13))
        }
        (Conditional { kind: a, bodies: old }, Conditional { kind: b, bodies: new })
            if a != b || old.len() != new.len() =>
        {
            Some((NotSupported, UpdateRule::U15))
        }
        _ => None,
    }
}

/// Whether memory is known to be on another device than before.
fn moved(old: &Option<u32>, new: &Option<u32>) -> bool {
    matches!((old, new), (Some(old), Some(new)) if old != new)
}

impl Content {
    /// What a copy or memset of several rows keeps, beside its devices.
    fn shape(&self) -> [u64; 4] {
        match *self {
            Self::Memcpy { bytes, rows, depth, offset, .. } => {
                [bytes, rows.into(), depth.into(), offset]
            }
            Self::Memset { element, width, height, pitch, .. } => {
                [element.into(), width, height, pitch]
            }
            _ => [0; 4],
        }
    }
}
