//! Pictures of graphs too large to draw node by node.
//!
//! In: a [`Picture`]. Out: the same, or one in which a large group is replaced by a chain of boxes, each standing for
//! whole consecutive levels, with a note that says so. Nothing is left out silently. What lies in a box is told by
//! [`Levels`](crate::levels::Levels). Linear.

use std::borrow::Cow;

use crate::layout::Link;
use crate::levels::Levels;
use crate::picture::{Edge, GroupIx, Picture, PictureError};
use crate::text::{count, thousands};

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

/// Which groups of a picture are drawn as boxes, and how many boxes each aims at.
pub(crate) struct Collapsed {
    groups: Vec<GroupIx>,
    boxes: usize,
}

impl Collapsed {
    pub(crate) fn of(picture: &Picture) -> Collapsed {
        let (mut nodes, mut edges) = (0, 0);
        let mut groups = Vec::new();
        for (g, group) in picture.groups.iter().enumerate() {
            if nodes + group.nodes.len() > MAX_NODES || edges + group.edges.len() > MAX_EDGES {
                groups.push(GroupIx(g as u32));
            } else {
                nodes += group.nodes.len();
                edges += group.edges.len();
            }
        }
        let boxes = (ALL_BOXES / groups.len().max(1)).clamp(FEWEST_BOXES, BOXES);
        Collapsed { groups, boxes }
    }

    /// Whether a group is drawn as boxes.
    pub(crate) fn has(&self, group: GroupIx) -> bool {
        self.groups.binary_search(&group).is_ok()
    }

    /// The groups that are drawn at all and as boxes.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupIx> {
        self.groups.iter().copied().take_while(|group| group.index() < MAX_GROUPS)
    }

    /// The levels of such a group.
    pub(crate) fn levels<'a>(
        &self,
        picture: &'a Picture,
        group: GroupIx,
    ) -> Result<Levels<'a>, PictureError> {
        Levels::new(&picture.groups[group.index()], self.boxes)
            .map_err(|nodes| PictureError::Cycle { group, nodes })
    }
}

/// The picture to draw.
pub(crate) fn collapse(picture: &Picture) -> Result<Cow<'_, Picture>, PictureError> {
    picture.check()?;
    let collapsed = Collapsed::of(picture);
    if collapsed.groups.is_empty() && picture.groups.len() <= MAX_GROUPS {
        return Ok(Cow::Borrowed(picture));
    }
    let mut drawn = Picture { title: picture.title.clone(), groups: Vec::new() };
    for (g, group) in picture.groups.iter().enumerate().take(MAX_GROUPS) {
        let ix = GroupIx(g as u32);
        let mut new = if collapsed.has(ix) {
            let mut new = collapsed.levels(picture, ix)?.whole();
            new.notes.insert(
                group.notes.len(),
                format!(
                    "{} and {} are too many to draw one by one (the limit is {} and {}): each box stands for all nodes \
                     of whole levels, by longest path from the start.",
                    count(group.nodes.len(), "node"),
                    count(group.edges.len(), "edge"),
                    thousands(MAX_NODES),
                    thousands(MAX_EDGES),
                ),
            );
            new
        } else {
            group.clone()
        };
        drop_undrawn_bodies(&mut new.nodes);
        drawn.groups.push(new);
    }
    if let Some(left_out) = picture.groups.len().checked_sub(MAX_GROUPS).filter(|&n| n > 0) {
        drawn.groups[0].notes.push(format!(
            "{} not drawn: a picture holds {}.",
            count(left_out, "further graph"),
            thousands(MAX_GROUPS)
        ));
    }
    Ok(Cow::Owned(drawn))
}

/// Groups beyond the limit are not drawn, so nothing leads to them.
pub(crate) fn drop_undrawn_bodies(nodes: &mut [crate::picture::Node]) {
    for node in nodes {
        node.bodies.retain(|body| body.index() < MAX_GROUPS);
    }
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
