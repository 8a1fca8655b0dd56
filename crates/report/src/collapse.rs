//! Pictures of graphs too large to draw node by node.
//!
//! In: a [`Picture`]. Out: the same, or one in which a large group is replaced by a chain of boxes, each standing for
//! whole consecutive levels, with a note that says so. Nothing is left out silently. Linear.

use std::borrow::Cow;

use crate::layout::Link;
use crate::layout::layers::{Order, order};
use crate::picture::{Edge, Group, GroupIx, Node, NodeClass, NodeIx, Picture, PictureError};
use crate::text::count;

/// Nodes drawn one by one, over all groups of a picture.
pub const MAX_NODES: usize = 20_000;
/// Edges drawn one by one, over all groups of a picture.
pub const MAX_EDGES: usize = 80_000;
/// Groups drawn.
pub const MAX_GROUPS: usize = 2_000;
/// Boxes that a collapsed group aims at; fewer if there are many such groups.
const BOXES: usize = 240;
const FEWEST_BOXES: usize = 8;
/// Boxes that all collapsed groups together aim at.
const ALL_BOXES: usize = 2_400;

/// The picture to draw.
pub(crate) fn collapse(picture: &Picture) -> Result<Cow<'_, Picture>, PictureError> {
    picture.check()?;
    let (mut nodes, mut edges) = (0, 0);
    let mut too_large = Vec::new();
    for (g, group) in picture.groups.iter().enumerate() {
        if nodes + group.nodes.len() > MAX_NODES || edges + group.edges.len() > MAX_EDGES {
            too_large.push(g);
        } else {
            nodes += group.nodes.len();
            edges += group.edges.len();
        }
    }
    if too_large.is_empty() && picture.groups.len() <= MAX_GROUPS {
        return Ok(Cow::Borrowed(picture));
    }
    let boxes = (ALL_BOXES / too_large.len().max(1)).clamp(FEWEST_BOXES, BOXES);
    let mut large = too_large.into_iter().peekable();
    let mut drawn = Picture { title: picture.title.clone(), groups: Vec::new() };
    for (g, group) in picture.groups.iter().enumerate().take(MAX_GROUPS) {
        let mut new = match large.next_if_eq(&g) {
            Some(_) => levels_as_boxes(group, GroupIx(g as u32), boxes)?,
            None => group.clone(),
        };
        for node in &mut new.nodes {
            node.bodies.retain(|b| b.index() < MAX_GROUPS);
        }
        drawn.groups.push(new);
    }
    if let Some(left_out) = picture.groups.len().checked_sub(MAX_GROUPS).filter(|&n| n > 0) {
        drawn.groups[0].notes.push(format!(
            "{} not drawn: a picture holds {MAX_GROUPS}.",
            count(left_out, "further graph")
        ));
    }
    Ok(Cow::Owned(drawn))
}

fn levels_as_boxes(group: &Group, ix: GroupIx, boxes: usize) -> Result<Group, PictureError> {
    let links: Vec<Link> = group.edges.iter().map(link).collect();
    let Order { level, .. } = order(group.nodes.len(), &links)
        .map_err(|nodes| PictureError::Cycle { group: ix, nodes })?;
    let depth = level.iter().max().map_or(0, |&l| l as usize + 1);
    let mut size = vec![0usize; depth];
    for &l in &level {
        size[l as usize] += 1;
    }
    let share = group.nodes.len().div_ceil(boxes);
    let mut band_of = vec![0usize; depth];
    let mut bands: Vec<Band> = Vec::new();
    for l in 0..depth {
        if bands.last().is_none_or(|b| b.nodes >= share) {
            bands.push(Band::new(l));
        }
        band_of[l] = bands.len() - 1;
        let band = bands.last_mut().expect("one was pushed");
        band.nodes += size[l];
        band.last = l;
        band.widest = band.widest.max(size[l]);
    }
    for (node, &l) in group.nodes.iter().zip(&level) {
        let band = &mut bands[band_of[l as usize]];
        band.classes[node.class as usize] += 1;
        band.critical |= node.critical;
        band.bodies.extend_from_slice(&node.bodies);
    }
    let mut skipping = 0;
    for edge in &group.edges {
        let (a, b) =
            (band_of[level[edge.from.index()] as usize], band_of[level[edge.to.index()] as usize]);
        match b - a {
            0 => bands[a].inside += 1,
            1 => bands[a].to_next += 1,
            _ => skipping += 1,
        }
    }

    let mut new = Group::new(group.title.clone());
    new.notes = group.notes.clone();
    new.notes.push(format!(
        "{} and {} are too many to draw one by one (the limit is {MAX_NODES} and {MAX_EDGES}): each box stands for \
         all nodes of whole levels, by longest path from the start.",
        count(group.nodes.len(), "node"),
        count(group.edges.len(), "edge"),
    ));
    if skipping > 0 {
        new.notes.push(format!(
            "Not drawn: {} between boxes that are not neighbours.",
            count(skipping, "edge")
        ));
    }
    for (b, band) in bands.iter().enumerate() {
        if b > 0 {
            new.edges.push(Edge {
                critical: band.critical && bands[b - 1].critical,
                ..Edge::new(NodeIx(b as u32 - 1), NodeIx(b as u32))
            });
        }
        new.nodes.push(band.node());
    }
    Ok(new)
}

/// The link of an edge; edges that look alike may share their way.
pub(crate) fn link(edge: &Edge) -> Link {
    Link {
        from: edge.from,
        to: edge.to,
        bundle: edge.style as u8 * 8
            + u8::from(edge.redundant) * 4
            + u8::from(edge.critical) * 2
            + u8::from(edge.reuse),
        weak: edge.redundant,
    }
}

struct Band {
    first: usize,
    last: usize,
    nodes: usize,
    widest: usize,
    classes: [usize; NodeClass::ALL.len()],
    inside: usize,
    to_next: usize,
    critical: bool,
    bodies: Vec<GroupIx>,
}

impl Band {
    fn new(first: usize) -> Self {
        Band {
            first,
            last: first,
            nodes: 0,
            widest: 0,
            classes: [0; NodeClass::ALL.len()],
            inside: 0,
            to_next: 0,
            critical: false,
            bodies: Vec::new(),
        }
    }

    fn node(&self) -> Node {
        let levels = if self.first == self.last {
            format!("level {}", self.first)
        } else {
            format!("levels {} to {}", self.first, self.last)
        };
        let classes = NodeClass::ALL
            .iter()
            .filter(|&&c| self.classes[c as usize] > 0)
            .map(|&c| format!("{} {}", self.classes[c as usize], c.name()))
            .collect::<Vec<_>>()
            .join(", ");
        let mut node = Node::new(NodeClass::Summary, count(self.nodes, "node"))
            .line(levels)
            .line(classes)
            .fact("widest level", count(self.widest, "node"))
            .fact("edges inside", self.inside.to_string())
            .fact("edges to the next box", self.to_next.to_string());
        node.critical = self.critical;
        node.bodies = self.bodies.clone();
        node
    }
}
