//! A captured graph, as the model hands it over: which call made each node, and what it depends on. What the nodes *do* stands in the
//! calls; [`FinishedGraph::graph`] puts the two together.

use std::sync::Arc;

use phonograph_trace::{ConditionalKind, GraphId, Port};

use super::class::NodeKind;
use super::state::{CallIndex, CapturedId, CapturedNode};

/// A graph that was captured, or built by hand.
#[derive(Clone, PartialEq, Debug)]
pub struct FinishedGraph {
    /// The begin of the capture.
    pub begun: CallIndex,
    /// The call that first captured into the graph: what the driver's capture id stands for.
    pub id: CallIndex,
    /// What the program calls the graph, if it has a name for it.
    pub name: Option<GraphId>,
    /// Whether it is the body of a conditional.
    pub body: bool,
    /// The nodes in the order of capture. Those of earlier captures into the same graph come first.
    pub nodes: Vec<CapturedNode>,
    /// Edges that the program added by hand, in order.
    pub added: Vec<CapturedEdge>,
    /// What child nodes and conditionals hold.
    pub inner: Vec<(CapturedId, Inner)>,
    /// How many levels of graphs it is.
    pub(super) height: u32,
    /// How many nodes it is with all of those inside, each copy counted.
    pub(super) expanded: u64,
}

/// The graphs inside a node.
#[derive(Clone, PartialEq, Debug)]
pub enum Inner {
    /// The child graph, as it was when the node was made.
    Child(Arc<FinishedGraph>),
    /// The bodies of a conditional.
    Bodies(ConditionalKind, Vec<FinishedGraph>),
}

/// An edge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CapturedEdge {
    /// The producer.
    pub from: CapturedId,
    /// The consumer.
    pub to: CapturedId,
    /// When the producer lets the consumer start.
    pub port: Port,
}

impl CapturedEdge {
    /// Port and type, as the driver writes them: type 1 is programmatic.
    pub fn data(self) -> (u8, u8) {
        match self.port {
            Port::Full => (0, 0),
            Port::Programmatic => (1, 1),
            Port::LaunchOrder => (2, 1),
        }
    }
}

/// One step of a path into nested graphs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathStep {
    /// The graph, if the program has a name for it.
    pub graph: Option<GraphId>,
    /// A node of it.
    pub node: CapturedId,
    /// The node's kind.
    pub kind: NodeKind,
    /// If it is a conditional, of which kind.
    pub conditional: Option<ConditionalKind>,
    /// The call that made it.
    pub call: CallIndex,
}

impl Inner {
    /// The graphs inside.
    pub fn graphs(&self) -> &[FinishedGraph] {
        match self {
            Self::Child(graph) => std::slice::from_ref(&**graph),
            Self::Bodies(_, bodies) => bodies,
        }
    }
}

impl FinishedGraph {
    /// What a capture made that nobody keeps a name for.
    pub(super) fn captured(begun: CallIndex, id: CallIndex, nodes: Vec<CapturedNode>) -> Self {
        let expanded = nodes.len() as u64;
        let (added, inner) = (Vec::new(), Vec::new());
        Self { begun, id, name: None, body: false, nodes, added, inner, height: 1, expanded }
    }

    pub(super) fn empty(at: CallIndex, name: GraphId) -> Self {
        Self { name: Some(name), ..Self::captured(at, at, Vec::new()) }
    }

    /// Every edge: the captured ones by consumer, then those that were added by hand. Two edges between the same nodes may differ in
    /// their port.
    pub fn edges(&self) -> impl Iterator<Item = CapturedEdge> + '_ {
        // There are no more nodes than calls, so the position fits.
        let consumers = self.nodes.iter().enumerate();
        let captured = consumers.flat_map(move |(at, node)| {
            let to = CapturedId(at as u32);
            node.dependencies.iter().map(move |from| {
                // Seen on an H200 (driver 580): a programmatic launch after a memset is tied to it by a full edge, and to each kernel
                // of its set by one of port 1, whatever the set said of that kernel.
                let kernel = self.nodes[from.index()].kind == NodeKind::Kernel;
                let port =
                    if node.programmatic && kernel { Port::Programmatic } else { Port::Full };
                CapturedEdge { from, to, port }
            })
        });
        captured.chain(self.added.iter().copied())
    }
}
