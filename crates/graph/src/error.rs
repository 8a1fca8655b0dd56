//! What can be wrong with a graph.

use std::fmt;

use crate::{BufferId, ExprError, NodeId, OperandError, SlotId};

/// Why a graph is refused. Every variant names what it is about.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// A node id that is not of this graph.
    #[error("edge {from} → {to}: there is no node {missing} (the graph has {count})")]
    UnknownNode {
        /// Producer of the edge.
        from: NodeId,
        /// Consumer of the edge.
        to: NodeId,
        /// The one that does not exist.
        missing: NodeId,
        /// How many nodes there are.
        count: usize,
    },
    /// An edge from a node to itself.
    #[error("node {node} depends on itself")]
    SelfEdge {
        /// The node.
        node: NamedNode,
    },
    /// A cycle.
    #[error("the dependencies form a cycle: {0}")]
    Cycle(CyclePath),
    /// A weak edge between nodes that are not both kernels.
    #[error("edge {from} → {to} is programmatic, which only a kernel can have with a kernel")]
    WeakEdge {
        /// Producer.
        from: NamedNode,
        /// Consumer.
        to: NamedNode,
    },
    /// A buffer id that is not of this graph.
    #[error("node {node} refers to buffer {buffer}, which this graph does not declare")]
    UnknownBuffer {
        /// The node.
        node: NamedNode,
        /// The buffer.
        buffer: BufferId,
    },
    /// A slot id that is not of this graph.
    #[error("node {node} refers to {slot}, which this graph does not declare")]
    UnknownSlot {
        /// The node.
        node: NamedNode,
        /// The slot.
        slot: SlotId,
    },
    /// An operand that reaches past its buffer.
    #[error(
        "node {node} touches bytes {start}..{end} of buffer {buffer} ({name}), which has {bytes}"
    )]
    OutOfBounds {
        /// The node.
        node: NamedNode,
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// First byte touched.
        start: u64,
        /// One past the last.
        end: u64,
        /// Size of the buffer.
        bytes: u64,
    },
    /// A kernel that does not accept its operands.
    #[error("node {node}: {kernel} {source}")]
    Operands {
        /// The node.
        node: NamedNode,
        /// The kernel.
        kernel: String,
        /// What is wrong.
        source: Box<OperandError>,
    },
    /// An expression that is not well typed.
    #[error("node {node}: {source}")]
    Expr {
        /// The node.
        node: NamedNode,
        /// What is wrong.
        source: ExprError,
    },
    /// A node whose parameters make no sense.
    #[error("node {node}: {problem}")]
    Node {
        /// The node.
        node: NamedNode,
        /// What is wrong.
        problem: String,
    },
    /// A buffer whose declaration makes no sense.
    #[error("buffer {buffer} ({name}): {problem}")]
    Buffer {
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A slot whose declaration makes no sense.
    #[error("{slot} ({name}): {problem}")]
    Slot {
        /// The slot.
        slot: SlotId,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A fault inside a child graph or conditional body.
    #[error("inside node {node}: {source}")]
    Inner {
        /// The node that holds the graph.
        node: NamedNode,
        /// The fault.
        source: Box<GraphError>,
    },
    /// More nodes, edges or nested graphs than ids can count.
    #[error("too many {what}: {count}, the most is {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
}

impl GraphError {
    /// The node that it is about, if it is about one.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            GraphError::SelfEdge { node }
            | GraphError::UnknownBuffer { node, .. }
            | GraphError::UnknownSlot { node, .. }
            | GraphError::OutOfBounds { node, .. }
            | GraphError::Operands { node, .. }
            | GraphError::Expr { node, .. }
            | GraphError::Node { node, .. }
            | GraphError::Inner { node, .. } => Some(node.id),
            GraphError::Cycle(CyclePath(nodes)) => nodes.first().map(|node| node.id),
            GraphError::WeakEdge { from, .. } => Some(from.id),
            GraphError::UnknownNode { .. }
            | GraphError::Buffer { .. }
            | GraphError::Slot { .. }
            | GraphError::TooMany { .. } => None,
        }
    }
}

/// A node id with the node's name, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedNode {
    /// The id.
    pub id: NodeId,
    /// The name.
    pub name: String,
}

impl fmt::Display for NamedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            return write!(f, "{}", self.id);
        }
        // A name may be a 10 kB mangled symbol; a message needs only enough of it to be recognised.
        let mut short: String = self.name.chars().take(60).filter(|c| !c.is_control()).collect();
        if self.name.chars().nth(60).is_some() {
            short.push('…');
        }
        write!(f, "{} ({short})", self.id)
    }
}

/// The nodes of a cycle in order; the last leads back to the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CyclePath(pub Vec<NamedNode>);

impl fmt::Display for CyclePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for node in self.0.iter().take(SHOWN) {
            write!(f, "{node} → ")?;
        }
        if self.0.len() > SHOWN {
            write!(f, "… {} more … → ", self.0.len() - SHOWN)?;
        }
        match self.0.first() {
            Some(first) => write!(f, "{first}"),
            None => Ok(()),
        }
    }
}
