//! Edges and the compressed adjacency that holds them.

use crate::NodeId;

/// Which kind of order an edge gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum EdgeKind {
    /// The producer is complete before the consumer starts.
    #[default]
    Full,
    /// The consumer may start early; the producer is complete before the consumer's grid-dependency wait returns.
    Programmatic,
}

/// The data of an edge, as the driver has it. Two edges between one pair of nodes may differ in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EdgeData {
    /// When the producer lets go: 0 at completion, 1 at its programmatic trigger, 2 when all its blocks have launched.
    pub from_port: u8,
    /// Reserved by the driver; 0.
    pub to_port: u8,
    /// The kind.
    pub kind: EdgeKind,
}

impl EdgeData {
    /// Complete before start.
    pub const FULL: EdgeData = EdgeData { from_port: 0, to_port: 0, kind: EdgeKind::Full };
    /// Programmatic dependent launch: the consumer may launch at the producer's trigger.
    pub const PROGRAMMATIC: EdgeData =
        EdgeData { from_port: 1, to_port: 0, kind: EdgeKind::Programmatic };
    /// Launch order: the consumer may launch once the producer's blocks have.
    pub const LAUNCH_ORDER: EdgeData =
        EdgeData { from_port: 2, to_port: 0, kind: EdgeKind::Programmatic };

    /// Whether the producer is complete before the consumer starts.
    pub const fn is_full(self) -> bool {
        matches!(self.kind, EdgeKind::Full)
    }
}

/// An edge of a graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Edge {
    /// The producer.
    pub from: NodeId,
    /// The consumer.
    pub to: NodeId,
    /// Its data.
    pub data: EdgeData,
}

impl Edge {
    /// A full edge.
    pub const fn full(from: NodeId, to: NodeId) -> Self {
        Self { from, to, data: EdgeData::FULL }
    }
}

/// Adjacency in compressed rows: the neighbours of node `n` are one slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adjacency {
    offsets: Box<[u32]>,
    targets: Box<[NodeId]>,
}

impl Adjacency {
    /// Groups `pairs` of (row, target) by row, keeping their order within a row. O(rows + pairs).
    ///
    /// # Panics
    /// If a row is not below `rows`.
    pub fn group(rows: usize, pairs: impl Iterator<Item = (NodeId, NodeId)> + Clone) -> Self {
        let mut offsets = vec![0u32; rows + 1];
        for (row, _) in pairs.clone() {
            offsets[row.index() + 1] += 1;
        }
        for row in 0..rows {
            offsets[row + 1] += offsets[row];
        }
        let mut targets = vec![NodeId(0); offsets[rows] as usize];
        let mut next = offsets.clone();
        for (row, target) in pairs {
            let place = &mut next[row.index()];
            targets[*place as usize] = target;
            *place += 1;
        }
        Self { offsets: offsets.into_boxed_slice(), targets: targets.into_boxed_slice() }
    }

    /// The neighbours of `node`.
    #[inline]
    pub fn of(&self, node: NodeId) -> &[NodeId] {
        &self.targets[self.range(node)]
    }

    /// Where the neighbours of `node` lie in [`targets`](Self::targets).
    #[inline]
    pub fn range(&self, node: NodeId) -> std::ops::Range<usize> {
        self.offsets[node.index()] as usize..self.offsets[node.index() + 1] as usize
    }

    /// Row starts: one more than there are rows.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// All neighbours, row by row.
    pub fn targets(&self) -> &[NodeId] {
        &self.targets
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.len() - 1
    }
}
