//! What a pass did, and why it left the rest: data first, a bounded text for people second.

use std::collections::BTreeMap;
use std::fmt;

use phonograph_graph::{BufferId, Edge, NodeId};
use rustc_hash::FxHashSet;

/// One thing that a pass did. Ids are of the graph before the pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A node is gone.
    Dropped {
        /// The node.
        node: NodeId,
    },
    /// A node does nothing now but keep the order that it gave.
    Emptied {
        /// The node.
        node: NodeId,
    },
    /// A node's work is done by another.
    Merged {
        /// The node.
        node: NodeId,
        /// The node that does its work.
        into: NodeId,
    },
    /// A node reads a buffer itself instead of a copy of it.
    ReadsThrough {
        /// The reader.
        node: NodeId,
        /// The copy.
        copy: NodeId,
    },
    /// A node writes over one of its inputs.
    InPlace {
        /// The node.
        node: NodeId,
        /// The buffer that it reads and, now, writes.
        over: BufferId,
        /// The buffer that it wrote.
        result: BufferId,
    },
    /// An edge is gone that other paths imply.
    EdgeRemoved {
        /// The edge.
        edge: Edge,
    },
    /// A full edge has become a programmatic one.
    EdgeWeakened {
        /// The edge, as it was.
        edge: Edge,
    },
}

impl Change {
    /// What happened, for counting.
    pub const fn name(&self) -> &'static str {
        match self {
            Change::Dropped { .. } => "dropped",
            Change::Emptied { .. } => "emptied",
            Change::Merged { .. } => "merged",
            Change::ReadsThrough { .. } => "reads through a copy",
            Change::InPlace { .. } => "updated in place",
            Change::EdgeRemoved { .. } => "edge removed",
            Change::EdgeWeakened { .. } => "edge weakened",
        }
    }
}

impl Change {
    /// The node that is gone, or does nothing any more.
    fn removed(&self) -> Option<NodeId> {
        match *self {
            Change::Dropped { node } | Change::Emptied { node } | Change::Merged { node, .. } => {
                Some(node)
            }
            _ => None,
        }
    }

    fn map(self, was: impl Fn(NodeId) -> NodeId) -> Self {
        let edge = |e: Edge| Edge { from: was(e.from), to: was(e.to), ..e };
        match self {
            Change::Dropped { node } => Change::Dropped { node: was(node) },
            Change::Emptied { node } => Change::Emptied { node: was(node) },
            Change::Merged { node, into } => Change::Merged { node: was(node), into: was(into) },
            Change::ReadsThrough { node, copy } => {
                Change::ReadsThrough { node: was(node), copy: was(copy) }
            }
            Change::InPlace { node, over, result } => {
                Change::InPlace { node: was(node), over, result }
            }
            Change::EdgeRemoved { edge: e } => Change::EdgeRemoved { edge: edge(e) },
            Change::EdgeWeakened { edge: e } => Change::EdgeWeakened { edge: edge(e) },
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Dropped { node } => write!(f, "{node} dropped"),
            Change::Emptied { node } => write!(f, "{node} emptied"),
            Change::Merged { node, into } => write!(f, "{node} merged into {into}"),
            Change::ReadsThrough { node, copy } => {
                write!(f, "{node} reads what {copy} copied where it was")
            }
            Change::InPlace { node, over, result } => {
                write!(f, "{node} writes over {over} instead of into {result}")
            }
            Change::EdgeRemoved { edge } => write!(f, "{} → {} removed", edge.from, edge.to),
            Change::EdgeWeakened { edge } => {
                write!(f, "{} → {} made programmatic", edge.from, edge.to)
            }
        }
    }
}

/// Why a node that a pass looked at was left as it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// It may touch memory that it does not name.
    UnknownEffects,
    /// It calls a host function, which may do anything besides.
    HostFunction,
    /// The user reads this buffer.
    Exported(BufferId),
    /// Other work lies between it and this node, with which it could be one.
    Apart(NodeId),
    /// It and this node could be one, but no single node can do the work of both.
    Misfit(NodeId),
    /// Its kernel is known by name alone, so nobody knows whether it waits before it touches memory.
    NotGenerated,
    /// It copies from one memory to another.
    OtherMemory,
    /// This node writes what it copies, too.
    WrittenAlso(NodeId),
    /// This node reads more than what it copies.
    ReadsMore(NodeId),
    /// This node cannot read the source instead.
    CannotRedirect(NodeId),
    /// This node may change the source before everybody has read it.
    SourceChanges(NodeId),
    /// So many nodes touch what it copies that it isn't looked into.
    TooManyUsers(usize),
    /// Another node reads what it writes.
    Read(BufferId),
    /// Nodes with unknown effects may look into this buffer at any time.
    Watched(BufferId),
    /// Nodes race for this buffer.
    Raced(BufferId),
    /// It records or waits for an event that others see.
    Event,
    /// It allocates or frees memory.
    Allocation,
    /// It can fail by what data says, or may not end.
    CanFail,
    /// It declares no result; whatever it is for is not declared.
    NoResult,
    /// The buffer is read before it is written: what it holds may be meant for the next round.
    Carried(BufferId),
    /// It, or a neighbour, uses this buffer through another view: all elements must be there before one is looked at.
    OtherView(BufferId),
    /// It reads this buffer, which is the user's or carries something over.
    Kept(BufferId),
    /// It reads this buffer through other views than the one that it writes its result through, or at another time.
    ReadOtherwise(BufferId),
    /// It reads this buffer, which has another size or lies in other memory than its result.
    OtherSize(BufferId),
    /// This node may use what it reads after it, or at the same time.
    StillUsed(NodeId),
    /// This node may use the buffer of its result before it, or at the same time.
    UsedBefore(NodeId),
    /// Another of its results is written over this input.
    TakenOver(BufferId),
    /// This node cannot name another buffer.
    CannotRename(NodeId),
    /// A merged kernel has one reduction or matrix product, and this would be the second.
    TwoKernels,
    /// It computes an operand of a matrix product, every element of which is read many times.
    OperandOfProduct,
    /// It computes what a reduction reads across rows.
    AcrossRows,
    /// The matrix product before it does not store densely.
    NotPacked,
    /// It has another shape than its neighbour.
    OtherShape,
    /// Its readers repeat its result, and to compute it anew for each of their elements would take this many operations more.
    ReadRepeated(u64),
    /// Something between it and its neighbour cannot be merged with both.
    PathAround,
    /// Its neighbour gives it an order and nothing else.
    NothingShared,
    /// It has a programmatic edge, which a merged kernel would not keep.
    WeakEdge,
    /// The merged kernel would have more operations and operands than this.
    TooManyOperations(usize),
    /// The merged kernel would have more operands in memory than this.
    TooManyOperands(usize),
    /// Dissolving it would put `with` edges in the place of `without`.
    EdgesMultiply {
        /// Edges now.
        without: usize,
        /// Edges then.
        with: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::UnknownEffects => f.write_str("may touch memory that it does not name"),
            Reason::HostFunction => f.write_str("calls a host function"),
            Reason::Exported(buffer) => write!(f, "writes {buffer}, which the user reads"),
            Reason::Apart(node) => write!(f, "other work lies between it and {node}"),
            Reason::Misfit(node) => write!(f, "no single node does its work and that of {node}"),
            Reason::NotGenerated => f.write_str("is a kernel that may not wait before it works"),
            Reason::OtherMemory => f.write_str("copies from one memory to another"),
            Reason::WrittenAlso(node) => write!(f, "what it copies is also written by {node}"),
            Reason::ReadsMore(node) => write!(f, "{node} reads more than what it copies"),
            Reason::CannotRedirect(node) => write!(f, "{node} cannot read the source instead"),
            Reason::SourceChanges(node) => write!(f, "{node} may change the source too early"),
            Reason::TooManyUsers(count) => write!(f, "{count} nodes touch what it copies"),
            Reason::Read(buffer) => write!(f, "writes {buffer}, which others read"),
            Reason::Watched(buffer) => {
                write!(f, "touches {buffer}, which nodes with unknown effects may touch, too")
            }
            Reason::Raced(buffer) => write!(f, "touches {buffer}, for which nodes race"),
            Reason::Event => f.write_str("records or waits for an event"),
            Reason::Allocation => f.write_str("allocates or frees memory"),
            Reason::CanFail => f.write_str("can fail, by what data says"),
            Reason::NoResult => f.write_str("what it writes is not known"),
            Reason::Carried(buffer) => {
                write!(f, "writes {buffer}, which is read before it is written")
            }
            Reason::OtherView(buffer) => {
                write!(f, "its neighbour uses {buffer} through another view")
            }
            Reason::Kept(buffer) => write!(f, "reads {buffer}, which is to be kept"),
            Reason::ReadOtherwise(buffer) => {
                write!(f, "reads {buffer} otherwise than it writes")
            }
            Reason::OtherSize(buffer) => {
                write!(f, "reads {buffer}, which has another size or memory than its result")
            }
            Reason::StillUsed(node) => write!(f, "{node} may still use what it reads"),
            Reason::UsedBefore(node) => write!(f, "{node} may use what it writes before it"),
            Reason::TakenOver(buffer) => write!(f, "another result is written over {buffer}"),
            Reason::CannotRename(node) => write!(f, "{node} cannot name another buffer"),
            Reason::TwoKernels => f.write_str("its neighbour has a reduction or product already"),
            Reason::OperandOfProduct => f.write_str("computes an operand of a matrix product"),
            Reason::AcrossRows => f.write_str("computes what a reduction reads across rows"),
            Reason::NotPacked => f.write_str("its neighbour does not store densely"),
            Reason::OtherShape => f.write_str("its neighbour has another shape"),
            Reason::ReadRepeated(more) => {
                write!(
                    f,
                    "its result is read repeated, and computed anew it takes {more} operations more"
                )
            }
            Reason::PathAround => {
                f.write_str("what lies between it and its neighbour cannot be merged")
            }
            Reason::NothingShared => f.write_str("shares no tensor with its neighbour"),
            Reason::WeakEdge => f.write_str("has a programmatic edge"),
            Reason::TooManyOperations(most) => {
                write!(f, "the merged kernel would have more than {most} operations")
            }
            Reason::TooManyOperands(most) => {
                write!(f, "the merged kernel would have more than {most} operands")
            }
            Reason::EdgesMultiply { without, with } => {
                write!(f, "without it, {with} edges would stand for its {without}")
            }
        }
    }
}

/// A node that a pass looked at and left as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// The node.
    pub node: NodeId,
    /// Why.
    pub why: Reason,
}

impl Left {
    fn map(self, was: impl Fn(NodeId) -> NodeId) -> Self {
        let why = match self.why {
            Reason::Apart(node) => Reason::Apart(was(node)),
            Reason::Misfit(node) => Reason::Misfit(was(node)),
            Reason::WrittenAlso(node) => Reason::WrittenAlso(was(node)),
            Reason::ReadsMore(node) => Reason::ReadsMore(was(node)),
            Reason::CannotRedirect(node) => Reason::CannotRedirect(was(node)),
            Reason::SourceChanges(node) => Reason::SourceChanges(was(node)),
            Reason::StillUsed(node) => Reason::StillUsed(was(node)),
            Reason::UsedBefore(node) => Reason::UsedBefore(was(node)),
            Reason::CannotRename(node) => Reason::CannotRename(was(node)),
            other => other,
        };
        Self { node: was(self.node), why }
    }
}

/// What a pass did to a graph, and why it left the rest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PassReport {
    /// The pass.
    pub pass: &'static str,
    /// What it did.
    pub changed: Vec<Change>,
    /// What it looked at and left.
    pub left: Vec<Left>,
    /// The same for graphs inside: the node that holds the graph, which of its graphs, and the report.
    pub inner: Vec<(NodeId, u32, PassReport)>,
}

impl PassReport {
    /// A report of a pass that has done nothing yet.
    pub fn new(pass: &'static str) -> Self {
        Self { pass, ..Self::default() }
    }

    /// Whether nothing was changed here or inside.
    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty() && self.inner.iter().all(|(_, _, report)| report.is_unchanged())
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        let inner = self.inner.iter().all(|(_, _, report)| report.is_empty());
        self.changed.is_empty() && self.left.is_empty() && inner
    }

    /// Adds what a later step of the pass did; `was` tells which node before a node is. What the later step leaves
    /// is what is left: the reasons of earlier ones give way to it where they speak of the same node.
    pub(super) fn append(&mut self, later: PassReport, was: impl Fn(NodeId) -> NodeId) {
        self.changed.extend(later.changed.into_iter().map(|change| change.map(&was)));
        let left: Vec<Left> = later.left.into_iter().map(|left| left.map(&was)).collect();
        let again: FxHashSet<NodeId> = left.iter().map(|left| left.node).collect();
        let gone: FxHashSet<NodeId> = self.changed.iter().filter_map(Change::removed).collect();
        self.left.retain(|left| !again.contains(&left.node) && !gone.contains(&left.node));
        self.left.extend(left);
        self.inner
            .extend(later.inner.into_iter().map(|(node, at, report)| (was(node), at, report)));
    }

    /// How often each kind of change happened, here and inside, by [`Change::name`].
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for change in &self.changed {
            *counts.entry(change.name()).or_default() += 1;
        }
        for (_, _, report) in &self.inner {
            for (name, count) in report.counts() {
                *counts.entry(name).or_default() += count;
            }
        }
        counts
    }
}

/// A line of counts, then at most a few lines of each list.
impl fmt::Display for PassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let counted = |(name, count): (&&str, &usize)| match (*name, *count) {
            ("edge removed", 2..) => format!("{count} edges removed"),
            _ => format!("{count} {name}"),
        };
        let counts: Vec<String> = self.counts().iter().map(counted).collect();
        let done = if counts.is_empty() { "nothing to do".to_owned() } else { counts.join(", ") };
        write!(f, "{}: {done}", self.pass)?;
        for change in self.changed.iter().take(SHOWN) {
            write!(f, "\n  {change}")?;
        }
        if self.changed.len() > SHOWN {
            write!(f, "\n  … and {} more", self.changed.len() - SHOWN)?;
        }
        for left in self.left.iter().take(SHOWN) {
            write!(f, "\n  {} left: {}", left.node, left.why)?;
        }
        if self.left.len() > SHOWN {
            write!(f, "\n  … and {} more left", self.left.len() - SHOWN)?;
        }
        Ok(())
    }
}
