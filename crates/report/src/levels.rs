//! A large group as boxes, and what lies in a box.
//!
//! In: a [`Group`]. Out: a group of boxes, each standing for whole consecutive levels by longest path from the start; and
//! for the way to a box (its number, then the number of a box inside it, and so on) a [`Part`]: the nodes in it with the
//! edges among them, or boxes again where those are too many. Nodes are sorted by level, so that a box is a run of
//! them; a level too large for one part is cut into runs of equal length. Linear in the group for each question.

use std::collections::HashMap;
use std::ops::Range;

use crate::collapse::link;
use crate::layout::Link;
use crate::layout::layers::{Adjacency, Order, order};
use crate::picture::{Edge, Group, GroupIx, Node, NodeClass, NodeIx};
use crate::text::{brief, count, elide, thousands};

/// Nodes and edges of a part that is drawn node by node; layout takes about half a second for them.
const PART_NODES: usize = 5_000;
const PART_EDGES: usize = 20_000;
/// Nodes that are drawn however many edges they have.
const FEW_NODES: usize = 100;
/// Boxes that the nodes of a box aim at, where they are too many.
const INNER_BOXES: usize = 240;
/// Nodes of such a box at least.
const LEAST_SHARE: usize = 50;
/// Edges out of a part that are told.
const MAX_OUTSIDE: usize = 20_000;

/// A group whose nodes are sorted by level.
pub(crate) struct Levels<'a> {
    group: &'a Group,
    /// By node.
    level: Vec<u32>,
    /// By level, then by number.
    sorted: Vec<NodeIx>,
    /// By node: its place in `sorted`.
    place: Vec<u32>,
    below: Adjacency,
    /// The boxes of the whole.
    top: Vec<Range<usize>>,
}

/// What lies in a box.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// The nodes, or boxes again.
    pub(crate) group: Group,
    /// Which nodes of the whole group they are; empty for boxes.
    pub(crate) numbers: Vec<NodeIx>,
    /// Edges that lead out of the part.
    pub(crate) outside: Vec<Outside>,
}

/// An edge between a node of a part and one elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outside {
    /// The position in the part.
    pub(crate) inside: NodeIx,
    /// The other end, by its number in the whole group.
    pub(crate) other: NodeIx,
    /// The edge of the whole group.
    pub(crate) edge: Edge,
}

/// Where a node is found: the way to the part that shows it, and its position there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: Vec<u32>,
    pub(crate) position: NodeIx,
}

impl<'a> Levels<'a> {
    /// Sorts the nodes, for about so many boxes; a cycle if there is one.
    pub(crate) fn new(group: &'a Group, boxes: usize) -> Result<Self, Vec<NodeIx>> {
        let links: Vec<Link> = group.edges.iter().map(link).collect();
        let Order { level, .. } = order(group.nodes.len(), &links)?;
        let mut sorted: Vec<NodeIx> = (0..group.nodes.len() as u32).map(NodeIx).collect();
        // The sort is stable: nodes of a level keep their order.
        sorted.sort_by_key(|node| level[node.index()]);
        let mut place = vec![0; sorted.len()];
        for (at, node) in (0u32..).zip(&sorted) {
            place[node.index()] = at;
        }
        let below = Adjacency::new(sorted.len(), links.iter().map(|l| (l.from.0, l.to.0)));
        let mut levels = Levels { group, level, sorted, place, below, top: Vec::new() };
        levels.top = levels.split(0..levels.sorted.len(), boxes);
        Ok(levels)
    }

    /// The group as boxes.
    pub(crate) fn whole(&self) -> Group {
        let mut new = Group::new(self.group.title.clone());
        new.notes = self.group.notes.clone();
        self.draw_boxes(&mut new, &self.top);
        new
    }

    /// What lies in a box; nothing if there is no such box. Bodies keep the numbers of the picture.
    pub(crate) fn open(&self, path: &[u32]) -> Option<Part> {
        let run = self.run_of(path)?;
        let mut group = Group::new(self.levels_of(&run));
        if !self.is_drawn(&run) {
            self.draw_boxes(&mut group, &self.split(run, INNER_BOXES));
            return Some(Part { group, numbers: Vec::new(), outside: Vec::new() });
        }
        let numbers = self.sorted[run.clone()].to_vec();
        group.buffers = self.group.buffers.clone();
        group.nodes = numbers.iter().map(|node| self.group.nodes[node.index()].clone()).collect();
        let mut outside = Vec::new();
        let mut untold = 0;
        for edge in &self.group.edges {
            let inside = |node: NodeIx| {
                let place = self.place[node.index()] as usize;
                run.contains(&place).then(|| NodeIx((place - run.start) as u32))
            };
            let (inside, other) = match (inside(edge.from), inside(edge.to)) {
                (None, None) => continue,
                (Some(from), Some(to)) => {
                    group.edges.push(Edge { from, to, ..*edge });
                    continue;
                }
                (Some(inside), None) => (inside, edge.to),
                (None, Some(inside)) => (inside, edge.from),
            };
            match outside.len() {
                MAX_OUTSIDE => untold += 1,
                _ => outside.push(Outside { inside, other, edge: *edge }),
            }
        }
        if untold > 0 {
            group.notes.push(format!("{} to other boxes are not listed.", count(untold, "edge")));
        }
        Some(Part { group, numbers, outside })
    }

    /// Where a node is found, if the group has it.
    pub(crate) fn find(&self, node: NodeIx) -> Option<Place> {
        let place = *self.place.get(node.index())? as usize;
        let holds = |runs: &[Range<usize>]| runs.partition_point(|run| run.end <= place);
        let mut path = vec![holds(&self.top) as u32];
        let mut run = self.top[path[0] as usize].clone();
        while !self.is_drawn(&run) {
            let runs = self.split(run, INNER_BOXES);
            let at = holds(&runs);
            path.push(at as u32);
            run = runs[at].clone();
        }
        Some(Place { path, position: NodeIx((place - run.start) as u32) })
    }

    /// The box of the whole that a node of the group is in.
    pub(crate) fn box_of(&self, node: NodeIx) -> u32 {
        let place = self.place[node.index()] as usize;
        self.top.partition_point(|run| run.end <= place) as u32
    }

    /// How many boxes the whole is drawn as, or those in a box; none if its nodes are drawn.
    pub(crate) fn boxes_in(&self, path: &[u32]) -> usize {
        if path.is_empty() {
            return self.top.len();
        }
        match self.run_of(path) {
            Some(run) if !self.is_drawn(&run) => self.split(run, INNER_BOXES).len(),
            _ => 0,
        }
    }

    fn run_of(&self, path: &[u32]) -> Option<Range<usize>> {
        let (first, rest) = path.split_first()?;
        let mut run = self.top.get(*first as usize)?.clone();
        for &at in rest {
            if self.is_drawn(&run) {
                return None;
            }
            run = self.split(run, INNER_BOXES).get(at as usize)?.clone();
        }
        Some(run)
    }

    fn level_at(&self, place: usize) -> u32 {
        self.level[self.sorted[place].index()]
    }

    /// Whether the nodes of a run are drawn one by one.
    fn is_drawn(&self, run: &Range<usize>) -> bool {
        let within = |node: &u32| run.contains(&(self.place[*node as usize] as usize));
        let edges = || {
            let nodes = self.sorted[run.clone()].iter();
            nodes.flat_map(|node| self.below.of(node.0)).filter(|n| within(n)).count()
        };
        run.len() <= FEW_NODES || run.len() <= PART_NODES && edges() <= PART_EDGES
    }

    /// Cuts a run between levels, or, if it is one level or would stay one piece, into equal lengths.
    fn split(&self, run: Range<usize>, boxes: usize) -> Vec<Range<usize>> {
        let share = run.len().div_ceil(boxes).max(1);
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut start = run.start;
        for at in run.clone() {
            let ends = at + 1 == run.end || self.level_at(at) != self.level_at(at + 1);
            if ends && (at + 1 - start >= share || at + 1 == run.end) {
                runs.push(start..at + 1);
                start = at + 1;
            }
        }
        if runs.len() == 1 && run.len() > FEW_NODES {
            let share = share.max(LEAST_SHARE);
            let cuts = run.clone().step_by(share);
            runs = cuts.map(|at| at..(at + share).min(run.end)).collect();
        }
        runs
    }

    fn levels_of(&self, run: &Range<usize>) -> String {
        let (first, last) = (self.level_at(run.start), self.level_at(run.end - 1));
        let levels = match first == last {
            true => format!("level {first}"),
            false => format!("levels {first} to {last}"),
        };
        // A level that was cut has several boxes.
        let cut = |a: usize, b: usize| self.level_at(a) == self.level_at(b);
        let begins = run.start > 0 && cut(run.start - 1, run.start);
        let ends = run.end < self.sorted.len() && cut(run.end - 1, run.end);
        if !begins && !ends {
            return levels;
        }
        let [from, to] = [run.start, run.end - 1].map(|place| self.sorted[place]);
        format!("{levels}, nodes {from} to {to}")
    }

    /// A box for each run, and an edge from each to the next if there is one among their nodes.
    fn draw_boxes(&self, new: &mut Group, runs: &[Range<usize>]) {
        let Some((first, last)) = runs.first().zip(runs.last()) else { return };
        let all = first.start..last.end;
        let box_of = |node: NodeIx| {
            let place = self.place[node.index()] as usize;
            all.contains(&place).then(|| runs.partition_point(|run| run.end <= place))
        };
        let mut boxes = vec![Counts::default(); runs.len()];
        let mut skipping = 0;
        for edge in &self.group.edges {
            let (Some(a), Some(b)) = (box_of(edge.from), box_of(edge.to)) else { continue };
            match b - a {
                0 => boxes[a].inside += 1,
                1 => boxes[a].to_next += 1,
                _ => skipping += 1,
            }
        }
        for (b, run) in runs.iter().enumerate() {
            let node = self.box_node(run, &boxes[b]);
            if b > 0 && boxes[b - 1].to_next > 0 {
                new.edges.push(Edge {
                    critical: node.critical && new.nodes[b - 1].critical,
                    ..Edge::new(NodeIx(b as u32 - 1), NodeIx(b as u32))
                });
            }
            new.nodes.push(node);
        }
        if skipping > 0 {
            new.notes.push(format!(
                "Not drawn: {} between boxes that are not neighbours.",
                count(skipping, "edge")
            ));
        }
    }

    fn box_node(&self, run: &Range<usize>, counts: &Counts) -> Node {
        let nodes = || self.sorted[run.clone()].iter().map(|node| &self.group.nodes[node.index()]);
        let mut classes = [0usize; NodeClass::ALL.len()];
        let mut names: HashMap<String, usize> = HashMap::new();
        for node in nodes() {
            classes[node.class as usize] += 1;
            *names.entry(kin(&node.label)).or_default() += 1;
        }
        let mut names: Vec<(String, usize)> = names.into_iter().collect();
        names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let classes = NodeClass::ALL
            .iter()
            .filter(|&&c| classes[c as usize] > 0)
            .map(|&c| format!("{} {}", c.name(), thousands(classes[c as usize])))
            .collect::<Vec<_>>()
            .join(", ");
        let widest = run.clone().collect::<Vec<_>>();
        let widest = widest
            .chunk_by(|&a, &b| self.level_at(a) == self.level_at(b))
            .map(<[usize]>::len)
            .max()
            .unwrap_or(0);
        let mut node = Node::new(NodeClass::Summary, count(run.len(), "node"))
            .line(self.levels_of(run))
            .line(classes)
            .fact("widest level", count(widest, "node"))
            .fact("edges inside", thousands(counts.inside))
            .fact("edges to the next box", thousands(counts.to_next));
        const NAMES: usize = 5;
        for (index, (name, n)) in names.iter().take(NAMES).enumerate() {
            let heading = if index == 0 { "names" } else { "" };
            node = node.fact(heading, format!("{} × {name}", thousands(*n)));
        }
        if names.len() > NAMES {
            node = node.fact("", format!("… and {} more", thousands(names.len() - NAMES)));
        }
        node.critical = nodes().any(|node| node.critical);
        node.bodies =
            nodes().flat_map(|node| node.bodies.iter().copied()).collect::<Vec<GroupIx>>();
        node
    }
}

#[derive(Clone, Default)]
struct Counts {
    inside: usize,
    to_next: usize,
}

/// What numbered names have in common: `tile_3_4` and `tile_3_5` are kin.
fn kin(label: &str) -> String {
    let base = brief(label).0;
    let base = elide(if base.is_empty() { label } else { &base }, 60);
    let mut kin = String::with_capacity(base.len());
    for c in base.chars() {
        match c.is_ascii_digit() {
            true if kin.ends_with('#') => {}
            true => kin.push('#'),
            false => kin.push(c),
        }
    }
    kin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::{MAX_NODES, collapse};
    use crate::picture::Picture;

    fn group(n: u32, edges: impl IntoIterator<Item = (u32, u32)>) -> Group {
        let mut group = Group::new("main");
        group.nodes = (0..n).map(|i| Node::new(NodeClass::Kernel, format!("k{i}"))).collect();
        group.edges = edges.into_iter().map(|(a, b)| Edge::new(NodeIx(a), NodeIx(b))).collect();
        group
    }

    /// Opens everything: each node is in one part, where it is found, and each edge is told once or, outside, twice.
    fn check(name: &str, group: &Group) {
        let levels = Levels::new(group, 240).expect("no cycle");
        let mut seen = vec![0u8; group.nodes.len()];
        let (mut inside, mut outside) = (0, 0);
        let mut todo: Vec<Vec<u32>> = vec![Vec::new()];
        while let Some(path) = todo.pop() {
            let boxes = levels.boxes_in(&path);
            assert!(boxes <= 300, "{name}: {boxes} boxes at {path:?}");
            assert_eq!(levels.open(&[&path[..], &[boxes as u32]].concat()), None, "{name}");
            if boxes > 0 || path.is_empty() {
                todo.extend((0..boxes as u32).map(|b| [&path[..], &[b]].concat()));
                continue;
            }
            let part = levels.open(&path).expect("a box");
            for (position, node) in (0u32..).zip(&part.numbers) {
                seen[node.index()] += 1;
                assert_eq!(part.group.nodes[position as usize], group.nodes[node.index()]);
                let place = Place { path: path.clone(), position: NodeIx(position) };
                assert_eq!(levels.find(*node), Some(place), "{name}");
            }
            inside += part.group.edges.len();
            outside += part.outside.len();
        }
        assert!(seen.iter().all(|&times| times == 1), "{name}");
        assert_eq!(inside + outside / 2, group.edges.len(), "{name}");
    }

    #[test]
    fn every_node_is_in_one_box() {
        let n = MAX_NODES as u32 + 1;
        let chain = (1..n).map(|i| (i - 1, i));
        let star = (1..n).map(|i| (0, i));
        check("a chain", &group(n, chain));
        check("independent nodes", &group(n, []));
        check("all after one", &group(n, star));
        check(
            "three levels",
            &group(n, (1..n).map(|i| (if i < 6_000 { 0 } else { i % 5_999 + 1 }, i))),
        );
        let dense = (0..400u32).flat_map(|a| (a + 1..400).map(move |b| (a, b)));
        check("dense", &group(400, dense));
        let dense = (0..130u32).flat_map(|a| (130..270).map(move |b| (a, b)));
        check("dense in two levels", &group(270, dense));
        check("nothing", &group(0, []));
    }

    #[test]
    fn the_boxes_of_a_picture_are_those_that_open() {
        let n = MAX_NODES as u32 + 1;
        let main = group(n, (10..n).map(|i| (i - 10, i)));
        let picture = Picture { title: "large".into(), groups: vec![main] };
        let drawn = collapse(&picture).expect("no cycle");
        let levels = Levels::new(&picture.groups[0], 240).expect("no cycle");
        assert_eq!(drawn.groups[0].nodes.len(), levels.boxes_in(&[]));
        let part = levels.open(&[3]).expect("a box");
        assert_eq!(part.group.title, "levels 27 to 35");
        assert_eq!(part.numbers[0], NodeIx(270));
        assert_eq!(drawn.groups[0].nodes[3].lines[0], "levels 27 to 35");
    }

    #[test]
    fn numbered_names_are_kin() {
        assert_eq!(kin("ns::tile_12_3"), "tile_#_#");
        assert_eq!(kin("gemm"), "gemm");
    }
}
