//! The rewrite checker: proves that a graph still does what another did, or says what is wrong.
//!
//! In go the graph before, the graph after and the image of the one in the other, and nothing of the pass that made them;
//! it shares no code with the passes. Four parts: every node that is gone, merged or changed may be (`work`); whatever
//! was ordered before is ordered after, or lies in one node (`order`); every node reads what it read, and every buffer that
//! somebody can look into ends with what it ended with, byte for byte of known origin (`values`); and no node
//! touches memory that could race where none did.
//!
//! What a merged kernel computes is beyond it: for that, backends compare results bit for bit. Everything else about it
//! is checked: what goes in, what comes out, and when.
//!
//! Cost: O(nodes + edges + operands · log operands), and for edges that are gone what `reach` says.

mod order;
mod values;
mod work;

use std::fmt;

use rustc_hash::FxHashMap;

use crate::checker::races::races_of;
use crate::{
    Access, BufferId, BufferRole, ComputeGraph, Effects, Image, NodeId, NodeKind, Operands, Race,
    Region, races,
};

/// Something that a rewriting got wrong. Unless said, ids are of the graph before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RewriteViolation {
    /// An image of another number of nodes than the graph has.
    #[error("the image is one of {image} nodes, the graph had {nodes}")]
    ImageSize {
        /// Nodes of the graph before.
        nodes: usize,
        /// Nodes that the image speaks of.
        image: usize,
    },
    /// An image that the graph after does not have.
    #[error("{node} is said to have become {image}, which the graph does not have")]
    NoSuchImage {
        /// The node.
        node: NodeId,
        /// What it is said to have become.
        image: NodeId,
    },
    /// Buffers or slots that are not what they were.
    #[error("the {what} have changed")]
    Tables {
        /// Which.
        what: &'static str,
    },
    /// A node that does something and comes from nowhere.
    #[error("{node} does the work of no node that was there before")]
    Invented {
        /// The node, in the graph after.
        node: NodeId,
    },
    /// A node is gone, or does nothing now, that somebody can see.
    #[error("{node} is gone, but {why}")]
    Missed {
        /// The node.
        node: NodeId,
        /// Who can see it.
        why: Seen,
    },
    /// A node that does other work than the one that it stands for.
    #[error("{image} does not do the work of {node}")]
    Changed {
        /// The node.
        node: NodeId,
        /// What it has become.
        image: NodeId,
    },
    /// Nodes merged that cannot be one.
    #[error("{first} and {second} cannot be one node, {image}")]
    Merged {
        /// One of them.
        first: NodeId,
        /// Another.
        second: NodeId,
        /// What they have become.
        image: NodeId,
    },
    /// An order that is lost.
    #[error("nothing makes {to} wait for {from} any more")]
    OrderLost {
        /// The node that was complete before.
        from: NodeId,
        /// The node that could rely on it.
        to: NodeId,
    },
    /// More order through nodes that are gone than can be checked; taken as lost.
    #[error("too much order leads through nodes that are gone, {node} among them, to be checked")]
    Unproved {
        /// One of them.
        node: NodeId,
    },
    /// A node that reads something else than it did.
    #[error(
        "{node} (was {was}) does not read what was there before, from byte {byte} of {buffer} on"
    )]
    ReadsOther {
        /// The node, in the graph after.
        node: NodeId,
        /// A node whose work it does.
        was: NodeId,
        /// The buffer that it reads now.
        buffer: BufferId,
        /// The first byte that is not what it was.
        byte: u64,
    },
    /// A node that may write what it is reading, and didn't before.
    #[error("{node} (was {was}) writes {buffer} while it reads it")]
    Overlap {
        /// The node, in the graph after.
        node: NodeId,
        /// A node whose work it does.
        was: NodeId,
        /// The buffer.
        buffer: BufferId,
    },
    /// A buffer that does not end with what it ended with.
    #[error("{buffer} ends with something else than before, from byte {byte} on")]
    EndsOther {
        /// The buffer.
        buffer: BufferId,
        /// The first byte that is not what it was.
        byte: u64,
    },
    /// A node touches memory of the user's that it did not touch, where nodes may touch what they do not name.
    #[error("{node} touches {buffer} now, which nodes with unknown effects may touch as well")]
    Exposed {
        /// The node, in the graph after.
        node: NodeId,
        /// The buffer.
        buffer: BufferId,
    },
    /// A race that was not there.
    #[error("there was no such race: {0}")]
    NewRace(Race),
    /// Something wrong inside a node.
    #[error("inside {node}, graph {index}: {violation}")]
    Inner {
        /// The node.
        node: NodeId,
        /// Which of its graphs.
        index: u32,
        /// What is wrong.
        violation: Box<RewriteViolation>,
    },
}

/// Who can see that a node is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It may touch memory that it does not name.
    Unknown,
    /// It calls a host function.
    Host,
    /// It allocates or frees memory, records or waits for an event.
    Outside,
    /// It can fail, by what data says.
    Fails,
    /// It wrote a buffer that this node, for one, touches in a race.
    Raced(NodeId),
    /// It writes the user's memory, which nodes with unknown effects may read at any time.
    Watched(BufferId),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Unknown => f.write_str("may have touched memory that it does not name"),
            Seen::Host => f.write_str("called a host function"),
            Seen::Outside => f.write_str("others outside the graph rely on it"),
            Seen::Fails => f.write_str("could have failed, by what data says"),
            Seen::Raced(node) => write!(f, "wrote a buffer for which {node} races"),
            Seen::Watched(buffer) => {
                write!(f, "wrote {buffer}, which nodes with unknown effects may have read")
            }
        }
    }
}

/// Everything that is wrong with `after` as a rewriting of `before`; empty if it is right.
///
/// A full edge may have become a weak one only where the consumer is a generated kernel, which touches memory only
/// after its wait. A rewriting of several passes is best checked pass by pass: an image through all of them may tell
/// too little to prove them right.
///
/// ```
/// use phonograph_graph::{GraphBuilder, Image, Rebuild, check_rewrite};
///
/// let mut b = GraphBuilder::new();
/// let [x, y] = ["x", "y"].map(|name| b.add_barrier(name));
/// b.dep(x, y);
/// let before = b.build()?;
///
/// let mut rebuild = Rebuild::new(&before);
/// rebuild.edges(vec![]);
/// let (after, image) = rebuild.build()?;
/// assert_eq!(check_rewrite(&before, &after, &image)[0].to_string(),
///     "nothing makes n1 wait for n0 any more");
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn check_rewrite(
    before: &ComputeGraph,
    after: &ComputeGraph,
    image: &Image,
) -> Vec<RewriteViolation> {
    let watched = before.node_ids().any(|node| before.effects(node) == Effects::Unknown);
    let mut found = Vec::new();
    check(before, after, image, watched, &mut found);
    found
}

/// The edges of `before` that `after`, of the same nodes, no longer orders: none, if `after` has all the order of
/// `before`. Asked both ways it proves that two graphs order alike. Nothing is known of what nodes do, so every
/// full edge must still be complete before start. Costs what [`check_rewrite`] does for edges.
///
/// ```
/// use phonograph_graph::{GraphBuilder, Rebuild, Edge, lost_order};
///
/// let mut b = GraphBuilder::new();
/// let [x, y, z] = ["x", "y", "z"].map(|name| b.add_barrier(name));
/// b.chain(&[x, y, z]).dep(x, z);
/// let before = b.build()?;
/// let mut rebuild = Rebuild::new(&before);
/// rebuild.edges(vec![Edge::full(x, y), Edge::full(y, z)]);
/// let (after, _) = rebuild.build()?;
/// assert_eq!(lost_order(&before, &after), []);
/// assert_eq!(lost_order(&after, &before), []);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn lost_order(before: &ComputeGraph, after: &ComputeGraph) -> Vec<RewriteViolation> {
    let mut found = Vec::new();
    let image = Image::identity(before.node_count());
    if shape(before, after, &image, &mut found) {
        order::check(before, after, &image, true, &mut found);
    }
    found
}

fn check(
    before: &ComputeGraph,
    after: &ComputeGraph,
    image: &Image,
    watched: bool,
    found: &mut Vec<RewriteViolation>,
) {
    if !shape(before, after, image, found) {
        return;
    }
    let groups = Groups::new(before, after, image);
    let widened = work::check(&groups, watched, found);
    check_inner(&groups, watched, found);
    let already = found.len();
    order::check(before, after, image, false, found);
    // What is read depends on the order: without it there is nothing to compare.
    if found.len() == already {
        values::check(&groups, found);
        check_gone(&groups, found);
        if widened {
            check_races(&groups, found);
        }
    }
}

/// Whether the image speaks of these graphs at all, and their tables are the same.
fn shape(
    before: &ComputeGraph,
    after: &ComputeGraph,
    image: &Image,
    found: &mut Vec<RewriteViolation>,
) -> bool {
    let already = found.len();
    let (nodes, speaks_of) = (before.node_count(), image.nodes.len());
    if nodes != speaks_of {
        found.push(RewriteViolation::ImageSize { nodes, image: speaks_of });
        return false;
    }
    for node in before.node_ids() {
        if let Some(image) = image.of(node).filter(|&image| after.get(image).is_none()) {
            found.push(RewriteViolation::NoSuchImage { node, image });
        }
    }
    for (what, same) in [
        ("buffers", before.buffers() == after.buffers()),
        ("slots", before.slots() == after.slots()),
    ] {
        if !same {
            found.push(RewriteViolation::Tables { what });
        }
    }
    found.len() == already
}

/// Both graphs, and which nodes before became each node after.
struct Groups<'a> {
    before: &'a ComputeGraph,
    after: &'a ComputeGraph,
    image: &'a Image,
    offsets: Vec<u32>,
    members: Vec<NodeId>,
}

impl<'a> Groups<'a> {
    fn new(before: &'a ComputeGraph, after: &'a ComputeGraph, image: &'a Image) -> Self {
        let mut offsets = vec![0u32; after.node_count() + 1];
        for image in image.nodes.iter().flatten() {
            offsets[image.index() + 1] += 1;
        }
        for row in 0..after.node_count() {
            offsets[row + 1] += offsets[row];
        }
        let mut next = offsets.clone();
        let mut members = vec![NodeId(0); offsets[after.node_count()] as usize];
        for &node in before.topological_order() {
            if let Some(image) = image.of(node) {
                let place = &mut next[image.index()];
                members[*place as usize] = node;
                *place += 1;
            }
        }
        Self { before, after, image, offsets, members }
    }

    /// The nodes before whose work a node after does, in topological order.
    fn members(&self, node: NodeId) -> &[NodeId] {
        let [from, to] = [0, 1].map(|end| self.offsets[node.index() + end] as usize);
        &self.members[from..to]
    }

    /// The nodes before that are gone.
    fn dropped(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.before.node_ids().filter(|&node| self.image.of(node).is_none())
    }
}

/// Whether a buffer belongs to somebody outside the graph.
fn is_outside(graph: &ComputeGraph, buffer: BufferId) -> bool {
    graph.buffer(buffer).role != BufferRole::Internal
}

/// Graphs inside nodes, as far as nodes stand for one node each.
fn check_inner(groups: &Groups, watched: bool, found: &mut Vec<RewriteViolation>) {
    for node in groups.after.node_ids() {
        let &[was] = groups.members(node) else { continue };
        let (old, new) = (&groups.before.node(was).kind, &groups.after.node(node).kind);
        let images = groups.image.inner.get(&was).map_or(&[][..], Vec::as_slice);
        let pairs = old.inner_graphs().iter().zip(new.inner_graphs());
        for (index, (old, new)) in pairs.enumerate() {
            let same = Image::identity(old.node_count());
            let image = images.get(index).unwrap_or(&same);
            let mut inside = Vec::new();
            // Inner graphs nest at most `MAX_NESTING` deep: the graphs were built, and building bounds it.
            check(old, new, image, watched, &mut inside);
            found.extend(inside.into_iter().map(|violation| RewriteViolation::Inner {
                node: was,
                index: index as u32,
                violation: Box::new(violation),
            }));
        }
    }
}

/// A node that raced left something in memory that depends on who came first: it must not be gone.
fn check_gone(groups: &Groups, found: &mut Vec<RewriteViolation>) {
    let emptied = |node: NodeId| {
        let image = groups.image.of(node);
        image.is_none_or(|image| matches!(groups.after.node(image).kind, NodeKind::Empty))
    };
    let gone: Vec<NodeId> = groups.before.node_ids().filter(|&node| emptied(node)).collect();
    let writes = |node: NodeId| {
        let operands = groups.before.operands(node).into_iter();
        operands.filter(|(_, access)| access.writes()).map(|(region, _)| region.buffer)
    };
    if gone.iter().all(|&node| writes(node).next().is_none()) {
        return;
    }
    // What graphs inside nodes do not touch any more has been shown not to matter, when they were checked. What a node that is
    // gone read matters to nobody: it made something of it that nobody sees.
    let add_operands = |node: NodeId, found: &mut Operands| match groups.image.of(node) {
        Some(image) if groups.after.node(image).kind.has_inner_graphs() => {
            groups.after.add_operands(image, found);
        }
        _ if emptied(node) => {
            let own = groups.before.operands(node).into_iter();
            found.extend(own.filter(|(_, access)| access.writes()));
        }
        _ => groups.before.add_operands(node, found),
    };
    let operands = |node: NodeId| {
        let mut found = Operands::new();
        add_operands(node, &mut found);
        found
    };
    let mut raced: FxHashMap<BufferId, NodeId> = FxHashMap::default();
    for Race { first, second } in races_of(groups.before, add_operands) {
        let (a, b) = (operands(first), operands(second));
        let conflicts = |x: &Region, how: Access| {
            b.iter().any(|(y, so)| x.overlaps(y) && (how.writes() || so.writes()))
        };
        for (region, _) in a.iter().filter(|(region, how)| conflicts(region, *how)) {
            raced.entry(region.buffer).or_insert(second);
        }
    }
    for node in gone {
        if let Some(&by) = writes(node).find_map(|buffer| raced.get(&buffer)) {
            found.push(RewriteViolation::Missed { node, why: Seen::Raced(by) });
        }
    }
}

/// Every race after must have been one before.
fn check_races(groups: &Groups, found: &mut Vec<RewriteViolation>) {
    let old = races(groups.before);
    let conflicts = |a: NodeId, b: NodeId| {
        let (a, b) = (groups.before.operands(a), groups.before.operands(b));
        a.iter()
            .any(|(x, how)| b.iter().any(|(y, so)| x.overlaps(y) && (how.writes() || so.writes())))
    };
    for race in races(groups.after) {
        let pairs = groups
            .members(race.first)
            .iter()
            .flat_map(|&a| groups.members(race.second).iter().map(move |&b| (a, b)));
        let mut known = pairs.filter(|&(a, b)| {
            // Races are told against neighbours only: any two in conflict without an order are one.
            conflicts(a, b)
                && !old.is_empty()
                && !groups.before.is_reachable(a, b)
                && !groups.before.is_reachable(b, a)
        });
        if known.next().is_none() {
            found.push(RewriteViolation::NewRace(race));
        }
    }
}
