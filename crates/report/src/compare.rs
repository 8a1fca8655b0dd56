//! Two pictures side by side: which nodes are the same, which changed, which are in one only.
//!
//! In: two pictures, and the pairs of nodes that correspond if a pass told; else they are found here. Out: a
//! [`Comparison`] that pages show. Nodes are paired in rounds, each in the order of the graphs and nodes of the same
//! number first: the same text and kind amid the same kin (hashes of all that a node depends on, and of all that depends
//! on it), then with one of them the same, then beside a paired producer or consumer, then the same text anywhere, then the
//! same kind between paired neighbours, which makes a changed node. Near-linear.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::collapse::link;
use crate::layout::Link;
use crate::layout::layers::{Adjacency, order};
use crate::picture::{Edge, Group, GroupIx, Node, NodeIx, Picture, PictureError};

/// A node of a picture.
pub type NodeAt = (GroupIx, NodeIx);

/// Two pictures and which nodes correspond.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The heading.
    pub title: String,
    /// What was.
    pub before: Picture,
    /// What is.
    pub after: Picture,
    /// Nodes of `before` and the nodes of `after` that they became. Several may become one.
    pub pairs: Vec<(NodeAt, NodeAt)>,
}

/// How a node or edge compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// The same in both.
    #[default]
    Same,
    /// In both, but not the same.
    Changed,
    /// In this picture only.
    Only,
}

/// The changes of one picture, by group: its nodes and its edges.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) nodes: Vec<Change>,
    pub(crate) edges: Vec<Change>,
}

impl Comparison {
    /// Pairs the nodes of two pictures by what they are and what they depend on.
    ///
    /// # Errors
    /// [`PictureError`] if a picture's indices name nothing or its edges form a cycle.
    ///
    /// ```
    /// use phonograph_report::compare::Comparison;
    /// use phonograph_report::picture::{Group, Node, NodeClass, Picture};
    ///
    /// let one = |names: &[&str]| {
    ///     let mut group = Group::new("main");
    ///     group.nodes = names.iter().map(|n| Node::new(NodeClass::Kernel, *n)).collect();
    ///     Picture { title: "graph".into(), groups: vec![group] }
    /// };
    /// let found = Comparison::find("diff", one(&["a", "b"]), one(&["b", "c"]))?;
    /// assert_eq!(found.pairs.len(), 1);
    /// # Ok::<(), phonograph_report::picture::PictureError>(())
    /// ```
    pub fn find(
        title: impl Into<String>,
        before: Picture,
        after: Picture,
    ) -> Result<Comparison, PictureError> {
        before.check()?;
        after.check()?;
        let mut pairs = Vec::new();
        // Main graphs correspond; graphs inside do if the nodes that contain them do.
        let mut todo = vec![(GroupIx(0), GroupIx(0))];
        if before.groups.is_empty() || after.groups.is_empty() {
            todo.clear();
        }
        let mut seen: FxHashSet<GroupIx> = FxHashSet::default();
        while let Some((a, b)) = todo.pop() {
            if !seen.insert(a) {
                continue;
            }
            let groups = (&before.groups[a.index()], &after.groups[b.index()]);
            for (x, y) in pair(a, groups.0, b, groups.1)? {
                let bodies = |group: &Group, node: NodeIx| group.nodes[node.index()].bodies.clone();
                todo.extend(bodies(groups.0, x).into_iter().zip(bodies(groups.1, y)));
                pairs.push(((a, x), (b, y)));
            }
        }
        pairs.sort_unstable();
        Ok(Comparison { title: title.into(), before, after, pairs })
    }

    /// What changed in each picture: `before`'s groups, `after`'s groups.
    pub(crate) fn changes(&self) -> [Vec<Changes>; 2] {
        let mut forth: FxHashMap<NodeAt, NodeAt> = FxHashMap::default();
        let mut back: FxHashMap<NodeAt, Vec<NodeAt>> = FxHashMap::default();
        for &(a, b) in &self.pairs {
            forth.insert(a, b);
            back.entry(b).or_default().push(a);
        }
        let node = |picture: &Picture, (g, n): NodeAt| -> Option<Node> {
            picture.groups.get(g.index())?.nodes.get(n.index()).cloned()
        };
        let same = |a: NodeAt, b: NodeAt| match (node(&self.before, a), node(&self.after, b)) {
            (Some(a), Some(b)) => alike(&a, &b),
            _ => false,
        };
        let one_edge = |edge: &Edge| (edge.from, edge.to, edge.style, edge.reuse);
        let edges_of = |picture: &Picture| -> Vec<FxHashSet<_>> {
            picture.groups.iter().map(|g| g.edges.iter().map(one_edge).collect()).collect()
        };
        let (edges_before, edges_after) = (edges_of(&self.before), edges_of(&self.after));
        let has =
            |edges: &[FxHashSet<_>], group: GroupIx, edge: &Edge, from: NodeIx, to: NodeIx| {
                let all = edges.get(group.index());
                all.is_some_and(|all| all.contains(&(from, to, edge.style, edge.reuse)))
            };

        let mut changes = [Vec::new(), Vec::new()];
        for (g, group) in self.before.groups.iter().enumerate() {
            let at = |n: NodeIx| (GroupIx(g as u32), n);
            let nodes =
                (0..group.nodes.len() as u32).map(NodeIx).map(|n| match forth.get(&at(n)) {
                    None => Change::Only,
                    Some(&b) if back[&b].len() == 1 && same(at(n), b) => Change::Same,
                    Some(_) => Change::Changed,
                });
            let edges = group.edges.iter().map(|edge| {
                match (forth.get(&at(edge.from)), forth.get(&at(edge.to))) {
                    // Both ends became one node: the edge lies inside it.
                    (Some(a), Some(b)) if a == b => Change::Changed,
                    (Some(a), Some(b)) if a.0 == b.0 && has(&edges_after, a.0, edge, a.1, b.1) => {
                        Change::Same
                    }
                    _ => Change::Only,
                }
            });
            changes[0].push(Changes { nodes: nodes.collect(), edges: edges.collect() });
        }
        for (g, group) in self.after.groups.iter().enumerate() {
            let at = |n: NodeIx| (GroupIx(g as u32), n);
            let origins = |n: NodeIx| back.get(&at(n)).map_or(&[][..], Vec::as_slice);
            let nodes = (0..group.nodes.len() as u32).map(NodeIx).map(|n| match *origins(n) {
                [] => Change::Only,
                [a] if same(a, at(n)) => Change::Same,
                _ => Change::Changed,
            });
            let edges = group.edges.iter().map(|edge| {
                let (ends_from, ends_to) = (origins(edge.from), origins(edge.to));
                let known = ends_from.iter().any(|a| {
                    ends_to.iter().any(|b| a.0 == b.0 && has(&edges_before, a.0, edge, a.1, b.1))
                });
                if known { Change::Same } else { Change::Only }
            });
            changes[1].push(Changes { nodes: nodes.collect(), edges: edges.collect() });
        }
        changes
    }
}

/// The facts in which two nodes may differ: not their numbers.
fn alike(a: &Node, b: &Node) -> bool {
    let facts = |node: &Node| -> Vec<(String, String)> {
        node.facts.iter().filter(|(name, _)| name != "id").cloned().collect()
    };
    (a.class, &a.label, &a.lines, a.disabled) == (b.class, &b.label, &b.lines, b.disabled)
        && facts(a) == facts(b)
}

/// A graph ready to be searched for pairs.
struct Side<'a> {
    group: &'a Group,
    /// Nodes, producers first.
    order: Vec<u32>,
    above: Adjacency,
    below: Adjacency,
    partner: Vec<Option<u32>>,
}

impl<'a> Side<'a> {
    fn new(ix: GroupIx, group: &'a Group) -> Result<Self, PictureError> {
        let links: Vec<Link> = group.edges.iter().map(link).collect();
        let n = group.nodes.len();
        let found = order(n, &links).map_err(|nodes| PictureError::Cycle { group: ix, nodes })?;
        let above = Adjacency::new(n, links.iter().map(|l| (l.to.0, l.from.0)));
        let below = Adjacency::new(n, links.iter().map(|l| (l.from.0, l.to.0)));
        Ok(Side { group, order: found.nodes, above, below, partner: vec![None; n] })
    }

    fn text(&self, n: u32) -> u64 {
        let node = &self.group.nodes[n as usize];
        hash(&(node.class, &node.label, &node.lines))
    }

    /// A hash of each node with all that it depends on, and with all that depends on it.
    fn kin(&self) -> [Vec<u64>; 2] {
        [true, false].map(|up| {
            let mut hashes = vec![0u64; self.group.nodes.len()];
            let mut visit = |n: u32| {
                let near = if up { self.above.of(n) } else { self.below.of(n) };
                let mut near: Vec<u64> = near.iter().map(|&m| hashes[m as usize]).collect();
                near.sort_unstable();
                hashes[n as usize] = hash(&(self.text(n), near));
            };
            match up {
                true => self.order.iter().copied().for_each(&mut visit),
                false => self.order.iter().rev().copied().for_each(&mut visit),
            }
            hashes
        })
    }

    fn join(&mut self, other: &mut Side, n: u32, m: u32) {
        self.partner[n as usize] = Some(m);
        other.partner[m as usize] = Some(n);
    }

    fn free(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.iter().copied().filter(|&n| self.partner[n as usize].is_none())
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Pairs of nodes of two groups.
fn pair(
    a_ix: GroupIx,
    a: &Group,
    b_ix: GroupIx,
    b: &Group,
) -> Result<Vec<(NodeIx, NodeIx)>, PictureError> {
    let (mut a, mut b) = (Side::new(a_ix, a)?, Side::new(b_ix, b)?);
    let (kin_a, kin_b) = (a.kin(), b.kin());
    let both = |kin: &[Vec<u64>; 2], n: u32| hash(&kin.each_ref().map(|hashes| hashes[n as usize]));
    by_key(&mut a, &mut b, |_, n| both(&kin_a, n), |_, n| both(&kin_b, n));
    for side in [0, 1] {
        by_key(&mut a, &mut b, |_, n| kin_a[side][n as usize], |_, n| kin_b[side][n as usize]);
    }
    // What lies between changes has kin of its own: grow pairs along edges, both ways.
    along_edges(&mut a, &mut b, Side::text);
    by_key(&mut a, &mut b, Side::text, Side::text);
    along_edges(&mut a, &mut b, |side, n| hash(&side.group.nodes[n as usize].class));
    let pairs = a.partner.iter().enumerate();
    Ok(pairs.filter_map(|(x, y)| y.map(|y| (NodeIx(x as u32), NodeIx(y)))).collect())
}

/// Pairs free nodes of equal keys: of the same number if there are, then the first with the first.
fn by_key<'a>(
    a: &mut Side<'a>,
    b: &mut Side<'a>,
    key_a: impl Fn(&Side<'a>, u32) -> u64,
    key_b: impl Fn(&Side<'a>, u32) -> u64,
) {
    let open_in_both = a.partner.len().min(b.partner.len()) as u32;
    for n in 0..open_in_both {
        let free = a.partner[n as usize].is_none() && b.partner[n as usize].is_none();
        if free && key_a(a, n) == key_b(b, n) {
            a.join(b, n, n);
        }
    }
    let mut open: HashMap<u64, VecDeque<u32>> = HashMap::new();
    for n in b.free() {
        open.entry(key_b(b, n)).or_default().push_back(n);
    }
    let found: Vec<(u32, u32)> =
        a.free().filter_map(|n| Some((n, open.get_mut(&key_a(a, n))?.pop_front()?))).collect();
    for (x, y) in found {
        a.join(b, x, y);
    }
}

/// Pairs free neighbours of paired nodes that have equal keys, and theirs in turn.
fn along_edges<'a>(a: &mut Side<'a>, b: &mut Side<'a>, key: impl Fn(&Side<'a>, u32) -> u64) {
    let mut todo: Vec<u32> =
        a.order.iter().rev().copied().filter(|&n| a.partner[n as usize].is_some()).collect();
    let mut found = Vec::new();
    while let Some(x) = todo.pop() {
        let Some(y) = a.partner[x as usize] else { continue };
        for down in [true, false] {
            let near = |side: &Side, n: u32| -> Vec<u32> {
                let all = if down { side.below.of(n) } else { side.above.of(n) };
                all.iter().copied().filter(|&m| side.partner[m as usize].is_none()).collect()
            };
            let mut others: HashMap<u64, VecDeque<u32>> = HashMap::new();
            for n in near(b, y) {
                others.entry(key(b, n)).or_default().push_back(n);
            }
            found.clear();
            for n in near(a, x) {
                if let Some(m) = others.get_mut(&key(a, n)).and_then(|all| all.pop_front()) {
                    found.push((n, m));
                }
            }
            for &(n, m) in &found {
                // The same neighbour may come twice where edges are double.
                if a.partner[n as usize].is_none() && b.partner[m as usize].is_none() {
                    a.join(b, n, m);
                    todo.push(n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{NodeClass, NodeIx};

    fn picture(names: &[&str], edges: &[(u32, u32)]) -> Picture {
        let mut group = Group::new("main");
        group.nodes = names.iter().map(|name| Node::new(NodeClass::Kernel, *name)).collect();
        group.edges = edges.iter().map(|&(a, b)| Edge::new(NodeIx(a), NodeIx(b))).collect();
        Picture { title: "test".into(), groups: vec![group] }
    }

    /// `=` the same, `~` changed, `-` or `+` only there, by node and then by edge.
    fn shown(changes: &[Changes], only: char) -> String {
        let code = |change: &Change| match change {
            Change::Same => '=',
            Change::Changed => '~',
            Change::Only => only,
        };
        let all = changes
            .iter()
            .flat_map(|c| c.nodes.iter().map(code).chain([' ']).chain(c.edges.iter().map(code)));
        all.collect()
    }

    type Case<'a> = (
        &'a str,
        (&'a [&'a str], &'a [(u32, u32)]),
        (&'a [&'a str], &'a [(u32, u32)]),
        [&'a str; 2],
    );

    #[test]
    fn differences_are_found() {
        let cases: &[Case] = &[
            ("nothing", (&["a", "b"], &[(0, 1)]), (&["a", "b"], &[(0, 1)]), ["== =", "== ="]),
            ("another order", (&["a", "b"], &[(0, 1)]), (&["b", "a"], &[(1, 0)]), ["== =", "== ="]),
            (
                "an edge less",
                (&["a", "b", "c"], &[(0, 1), (1, 2), (0, 2)]),
                (&["a", "b", "c"], &[(0, 1), (1, 2)]),
                ["=== ==-", "=== =="],
            ),
            (
                "a node more at the front",
                (&["a", "b"], &[(0, 1)]),
                (&["z", "a", "b"], &[(0, 1), (1, 2)]),
                ["== =", "+== +="],
            ),
            (
                "a new name in the middle",
                (&["a", "b", "c"], &[(0, 1), (1, 2)]),
                (&["a", "x", "c"], &[(0, 1), (1, 2)]),
                ["=~= ==", "=~= =="],
            ),
            (
                "one of three alike is gone",
                (&["a", "k", "k", "k"], &[(0, 1), (0, 2), (0, 3)]),
                (&["a", "k", "k"], &[(0, 1), (0, 2)]),
                ["===- ==-", "=== =="],
            ),
            (
                "one of three branches",
                (&["a", "k", "k", "k"], &[(0, 1), (0, 2), (0, 3)]),
                (&["a", "k", "x", "k"], &[(0, 1), (0, 2), (0, 3)]),
                ["==~= ===", "==~= ==="],
            ),
            ("all gone", (&["a"], &[]), (&[], &[]), ["- ", " "]),
        ];
        for (name, before, after, want) in cases {
            let pair =
                Comparison::find(*name, picture(before.0, before.1), picture(after.0, after.1))
                    .expect("valid pictures");
            let [a, b] = pair.changes();
            assert_eq!([shown(&a, '-'), shown(&b, '+')], *want, "{name}");
        }
    }

    #[test]
    fn several_nodes_may_become_one() {
        let pair = Comparison {
            title: "fused".into(),
            before: picture(&["a", "b", "c"], &[(0, 1), (1, 2)]),
            after: picture(&["a + b", "c"], &[(0, 1)]),
            pairs: [(0, 0), (1, 0), (2, 1)]
                .map(|(a, b)| ((GroupIx(0), NodeIx(a)), (GroupIx(0), NodeIx(b))))
                .into(),
        };
        let [before, after] = pair.changes();
        assert_eq!([shown(&before, '-'), shown(&after, '+')], ["~~= ~=", "~= ="]);
    }

    #[test]
    fn a_picture_equals_itself() {
        arbtest::arbtest(|u| {
            let n = u.int_in_range(1..=20u32)?;
            let names: Vec<String> = (0..n)
                .map(|_| Ok(format!("k{}", u.int_in_range(0..=3u8)?)))
                .collect::<Result<_, _>>()?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut edges = Vec::new();
            for to in 1..n {
                for _ in 0..u.int_in_range(0..=2u8)? {
                    edges.push((u.int_in_range(0..=to - 1)?, to));
                }
            }
            let one = picture(&names, &edges);
            let pair = Comparison::find("same", one.clone(), one).expect("valid");
            assert_eq!(pair.pairs.len(), n as usize);
            let changes = pair.changes();
            assert!(changes.iter().flatten().flat_map(|c| &c.nodes).all(|c| *c == Change::Same));
            assert!(pair.pairs.iter().all(|(a, b)| a == b), "{:?}", pair.pairs);
            Ok(())
        })
        .budget_ms(400);
    }
}
