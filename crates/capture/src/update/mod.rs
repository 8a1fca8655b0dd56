//! Would an executable graph take an update? What `cuGraphExecUpdate` answers, from the two graphs alone.
//!
//! In: the graph that was instantiated and the graph that it is to be updated from, reduced to what the driver compares
//! ([`Graph`]). Out: an [`Answer`]: the reason, the node that the driver names, the dependency it is about, and the [`UpdateRule`] that
//! decided. Linear in nodes and edges; nested graphs are walked without recursion. The rules were fitted to recordings of a real
//! driver and reproduce every one of them; they stand in [`UpdateRule`] with how much of the recordings tests each.
//!
//! ```
//! use phonograph_capture::update::{Content, Graph, Node, Reason, predict};
//!
//! let kernel = |cooperative| Graph { nodes: vec![Node::new(Content::Kernel { cooperative })] };
//! assert_eq!(predict(&kernel(false), &kernel(false)).reason, Reason::Success);
//! assert_eq!(predict(&kernel(false), &kernel(true)).reason, Reason::AttributesChanged);
//! ```

mod change;
mod diff;
mod from_graph;
mod predict;
mod rule;

use std::sync::Arc;

use phonograph_trace::CuResult;
pub use phonograph_trace::Port;

pub use diff::{Diff, NodeLabel, diff};
pub use predict::predict;
pub use rule::{Basis, UpdateRule};

/// A graph: nodes in the order of creation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Graph {
    /// The nodes. A dependency on a node that is not there is never looked at.
    pub nodes: Vec<Node>,
}

/// The position of a node in its graph, in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The position in dense storage.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node: what it holds, and what it depends on in the order given to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// For people; an update does not compare names.
    pub name: Arc<str>,
    /// What it holds.
    pub content: Content,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
}

impl Node {
    /// A node without a name that depends on nothing.
    pub fn new(content: Content) -> Self {
        Self { name: "".into(), content, dependencies: Vec::new() }
    }
}

/// An edge, as its consumer sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The producer.
    pub node: NodeIndex,
    /// The producer's port.
    pub port: Port,
}

/// What a node holds, as far as an update compares it. Everything else is free to change (U11).
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Content {
    Kernel {
        cooperative: bool,
    },
    Memcpy {
        direction: Direction,
        bytes: u64,
        rows: u32,
        depth: u32,
        offset: u64,
        /// The devices of source and destination, as far as they are known.
        devices: [Option<u32>; 2],
    },
    Memset {
        element: u32,
        width: u64,
        height: u64,
        pitch: u64,
        /// The device of the memory, if it is known.
        device: Option<u32>,
    },
    Child(Graph),
    Conditional {
        kind: Conditional,
        bodies: Vec<Graph>,
    },
    Alloc,
    Free,
    Host,
    Empty,
    EventRecord,
    EventWait,
    BatchMemOp,
}

/// Where a copy goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

/// The kind of a conditional node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Conditional {
    If,
    While,
    Switch,
}

/// What an update answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The driver's reason.
    pub reason: Reason,
    /// The rule that decided.
    pub rule: UpdateRule,
    /// The node of the new graph that the driver names.
    pub error_node: Option<NodePath>,
    /// The dependency of that node that the driver names.
    pub error_from: Option<NodePath>,
    /// The nodes of both graphs that were being compared when the difference was found, if any were.
    pub pair: Option<(NodePath, NodePath)>,
}

impl Answer {
    /// What the call itself returns.
    pub fn result(&self) -> CuResult {
        match self.reason {
            Reason::Success => CuResult::SUCCESS,
            _ => CuResult::GRAPH_EXEC_UPDATE_FAILURE,
        }
    }
}

/// A node, in the graph or in a graph nested in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePath {
    /// From the outside in: the nodes that hold the nested graphs, with the number of the body (0 for a child graph).
    pub children: Vec<(NodeIndex, u32)>,
    /// The node in the innermost graph.
    pub node: NodeIndex,
}

/// Why an update is refused, `CUgraphExecUpdateResult`.
///
/// The driver has three more: 1 (ERROR) says nothing about the graphs; 4 (FUNCTION_CHANGED) is for drivers before CUDA 11.2; 7
/// (UNSUPPORTED_FUNCTION_CHANGE) is about the context of a kernel's function, or whether it launches kernels itself, which graphs here
/// do not tell. No recording has any of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Reason {
    Success = 0,
    TopologyChanged = 2,
    NodeTypeChanged = 3,
    ParametersChanged = 5,
    NotSupported = 6,
    AttributesChanged = 8,
}

/// What the driver calls the outcomes of an update, by number, without the prefix.
pub const REASONS: [&str; 9] = [
    "SUCCESS",
    "ERROR",
    "TOPOLOGY_CHANGED",
    "NODE_TYPE_CHANGED",
    "FUNCTION_CHANGED",
    "PARAMETERS_CHANGED",
    "NOT_SUPPORTED",
    "UNSUPPORTED_FUNCTION_CHANGE",
    "ATTRIBUTES_CHANGED",
];

impl Reason {
    /// The driver's name, without its prefix.
    pub fn name(self) -> &'static str {
        REASONS[self as usize]
    }

    /// The driver's number.
    pub fn code(self) -> u32 {
        self as u32
    }
}
