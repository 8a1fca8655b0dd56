//! What is to be drawn, free of any particular graph representation.
//!
//! In: whatever an adaptor knows about a graph. Out: a [`Picture`] that [`svg`](crate::svg()) and
//! [`html`](crate::html::html) draw. A picture holds one [`Group`] for each graph: the main one first, then child
//! graphs and conditional bodies, which nodes name by [`GroupIx`]. All indices are positions in the vectors.
//! Checking a picture is linear in its nodes and edges.

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the vector that this index belongs to.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
pub(crate) use index;

index! {
    /// A graph: its position in [`Picture::groups`].
    GroupIx
}
index! {
    /// A node: its position in [`Group::nodes`].
    NodeIx
}
index! {
    /// An edge: its position in [`Group::edges`].
    EdgeIx
}
index! {
    /// A buffer: its position in [`Group::buffers`].
    BufferIx
}
index! {
    /// A stream, thread or other row that work runs on.
    LaneIx
}

/// Graphs to draw together: the main one first, then those that its nodes contain.
///
/// ```
/// use phonograph_report::picture::{Edge, Group, Node, NodeClass, NodeIx, Picture};
///
/// let mut main = Group::new("main");
/// main.nodes.push(Node::new(NodeClass::Memset, "zero y"));
/// main.nodes.push(Node::new(NodeClass::Kernel, "axpy").line("grid 4, block 128"));
/// main.edges.push(Edge::new(NodeIx(0), NodeIx(1)));
/// let picture = Picture { title: "axpy".into(), groups: vec![main] };
/// assert!(phonograph_report::svg(&picture)?.contains("grid 4, block 128"));
/// # Ok::<(), phonograph_report::picture::PictureError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// The heading.
    pub title: String,
    /// The graphs.
    pub groups: Vec<Group>,
}

/// One graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The name in the frame's heading.
    pub title: String,
    /// Remarks printed under the heading.
    pub notes: Vec<String>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The edges; they must not form a cycle.
    pub edges: Vec<Edge>,
    /// Names of the buffers that edges are there for.
    pub buffers: Vec<String>,
}

impl Group {
    /// An empty graph.
    pub fn new(title: impl Into<String>) -> Self {
        Group { title: title.into(), ..Group::default() }
    }
}

/// A node: one box.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// First line of the box; shortened in the middle for display, whole in the tooltip.
    pub label: String,
    /// Further lines of the box.
    pub lines: Vec<String>,
    /// Colour and shape.
    pub class: NodeClass,
    /// Lies on the critical path.
    pub critical: bool,
    /// Is skipped by a replay.
    pub disabled: bool,
    /// The stream that it runs on, if one is planned.
    pub lane: Option<LaneIx>,
    /// What it costs in nanoseconds, if that is known.
    pub cost: Option<u64>,
    /// Names and values for the tooltip and the side panel.
    pub facts: Vec<(String, String)>,
    /// The graphs that this node contains.
    pub bodies: Vec<GroupIx>,
}

impl Node {
    /// An enabled node off the critical path.
    pub fn new(class: NodeClass, label: impl Into<String>) -> Self {
        Node {
            label: label.into(),
            lines: Vec::new(),
            class,
            critical: false,
            disabled: false,
            lane: None,
            cost: None,
            facts: Vec::new(),
            bodies: Vec::new(),
        }
    }

    /// Adds a line to the box.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Adds a name and a value to the tooltip.
    pub fn fact(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.facts.push((name.into(), value.into()));
        self
    }
}

/// The kind of a node or of a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeClass {
    /// A kernel launch.
    Kernel,
    /// A copy.
    Memcpy,
    /// A fill.
    Memset,
    /// A host callback.
    Host,
    /// A node that does nothing but order others.
    Empty,
    /// An event record or wait.
    Event,
    /// A memory allocation.
    Alloc,
    /// A memory release.
    Free,
    /// A child graph.
    Child,
    /// A conditional node.
    Conditional,
    /// Many nodes drawn as one box.
    Summary,
}

impl NodeClass {
    /// Every class, in the order of the legend.
    pub const ALL: [NodeClass; 11] = [
        NodeClass::Kernel,
        NodeClass::Memcpy,
        NodeClass::Memset,
        NodeClass::Host,
        NodeClass::Empty,
        NodeClass::Event,
        NodeClass::Alloc,
        NodeClass::Free,
        NodeClass::Child,
        NodeClass::Conditional,
        NodeClass::Summary,
    ];

    /// The lower-case name, also used in style sheets.
    pub fn name(self) -> &'static str {
        match self {
            NodeClass::Kernel => "kernel",
            NodeClass::Memcpy => "memcpy",
            NodeClass::Memset => "memset",
            NodeClass::Host => "host",
            NodeClass::Empty => "empty",
            NodeClass::Event => "event",
            NodeClass::Alloc => "alloc",
            NodeClass::Free => "free",
            NodeClass::Child => "child",
            NodeClass::Conditional => "conditional",
            NodeClass::Summary => "box",
        }
    }
}

/// When an edge lets its consumer start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeStyle {
    /// The producer is complete before the consumer starts.
    Full,
    /// The producer is complete before the consumer's wait; it triggers the consumer's launch itself.
    Programmatic,
    /// The producer is complete before the consumer's wait; the consumer may be launched once the producer is.
    LaunchOrder,
}

/// A dependency between two nodes of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The producer.
    pub from: NodeIx,
    /// The consumer.
    pub to: NodeIx,
    /// What it guarantees.
    pub style: EdgeStyle,
    /// Implied by other edges.
    pub redundant: bool,
    /// Lies on the critical path.
    pub critical: bool,
    /// Added by memory planning because two buffers share bytes.
    pub reuse: bool,
    /// The data that asks for it, if it is known to.
    pub why: Option<Why>,
}

/// The data that asks for an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Why {
    /// What both ends do with it.
    pub hazard: Hazard,
    /// The buffer that it lies in: its position in [`Group::buffers`].
    pub buffer: BufferIx,
}

/// What the two ends of an edge do with the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hazard {
    /// The consumer reads what the producer writes.
    ReadAfterWrite,
    /// The consumer writes what the producer writes.
    WriteAfterWrite,
    /// The consumer writes what the producer reads.
    WriteAfterRead,
}

impl Hazard {
    /// Every hazard, the strongest first.
    pub const ALL: [Hazard; 3] =
        [Hazard::ReadAfterWrite, Hazard::WriteAfterWrite, Hazard::WriteAfterRead];

    /// What it says of a buffer, which `{}` stands for.
    pub fn words(self) -> &'static str {
        match self {
            Hazard::ReadAfterWrite => "the second reads {}, which the first writes",
            Hazard::WriteAfterWrite => "both write {}",
            Hazard::WriteAfterRead => "the second writes {}, which the first reads",
        }
    }
}

impl Edge {
    /// A full dependency without flags.
    pub fn new(from: NodeIx, to: NodeIx) -> Self {
        Edge {
            from,
            to,
            style: EdgeStyle::Full,
            redundant: false,
            critical: false,
            reuse: false,
            why: None,
        }
    }
}

/// Why a picture cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// An edge names a node that its group does not have.
    #[error("group {group}, edge {edge}: there is no node {node}, the group has {nodes}")]
    MissingNode {
        /// The group.
        group: GroupIx,
        /// The edge.
        edge: EdgeIx,
        /// The end that is missing.
        node: NodeIx,
        /// How many nodes the group has.
        nodes: usize,
    },
    /// A node names a body that the picture does not have.
    #[error("group {group}, node {node}: there is no group {body}, the picture has {groups}")]
    MissingGroup {
        /// The group of the node.
        group: GroupIx,
        /// The node.
        node: NodeIx,
        /// The body that is missing.
        body: GroupIx,
        /// How many groups the picture has.
        groups: usize,
    },
    /// The edges form a cycle, so there is no order from top to bottom.
    #[error("group {group}: nodes {} depend on each other in a cycle", list(nodes))]
    Cycle {
        /// The group.
        group: GroupIx,
        /// One cycle, each node before the one that depends on it.
        nodes: Vec<NodeIx>,
    },
    /// An edge names a buffer that its group does not have.
    #[error("group {group}, edge {edge}: there is no buffer {buffer}, the group has {buffers}")]
    MissingBuffer {
        /// The group.
        group: GroupIx,
        /// The edge.
        edge: EdgeIx,
        /// The buffer that is missing.
        buffer: BufferIx,
        /// How many buffers the group has.
        buffers: usize,
    },
    /// More nodes, edges or groups than indices can name.
    #[error("group {group} has more than {limit} nodes or edges")]
    TooLarge {
        /// The group.
        group: GroupIx,
        /// The limit.
        limit: u32,
    },
}

fn list(nodes: &[NodeIx]) -> String {
    const SHOWN: usize = 12;
    let mut text = nodes.iter().take(SHOWN).map(|n| n.to_string()).collect::<Vec<_>>().join(" → ");
    if nodes.len() > SHOWN {
        text.push_str(&format!(" … ({} nodes)", nodes.len()));
    }
    text
}

/// Room is left in `u32` for the vertices that layout adds.
const INDEX_LIMIT: u32 = u32::MAX / 64;

impl Picture {
    /// Checks that every index names something. Cycles are found by layout, which orders the nodes anyway.
    pub(crate) fn check(&self) -> Result<(), PictureError> {
        for (g, group) in self.groups.iter().enumerate() {
            let ix = GroupIx(g.min(INDEX_LIMIT as usize) as u32);
            let limit = INDEX_LIMIT as usize;
            if g > limit || group.nodes.len() > limit || group.edges.len() > limit {
                return Err(PictureError::TooLarge { group: ix, limit: INDEX_LIMIT });
            }
            for (n, node) in group.nodes.iter().enumerate() {
                if let Some(&body) = node.bodies.iter().find(|b| b.index() >= self.groups.len()) {
                    return Err(PictureError::MissingGroup {
                        group: ix,
                        node: NodeIx(n as u32),
                        body,
                        groups: self.groups.len(),
                    });
                }
            }
            for (e, edge) in group.edges.iter().enumerate() {
                let buffers = group.buffers.len();
                if let Some(why) = edge.why.filter(|why| why.buffer.index() >= buffers) {
                    return Err(PictureError::MissingBuffer {
                        group: ix,
                        edge: EdgeIx(e as u32),
                        buffer: why.buffer,
                        buffers,
                    });
                }
                for node in [edge.from, edge.to] {
                    if node.index() >= group.nodes.len() {
                        return Err(PictureError::MissingNode {
                            group: ix,
                            edge: EdgeIx(e as u32),
                            node,
                            nodes: group.nodes.len(),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}
