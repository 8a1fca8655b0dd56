//! Why a graph cannot be planned, or a plan cannot be lowered.

use phonograph_graph::{EventId, GraphError, NodeId, StepId, StreamId};

use crate::lanes::LanesError;

/// What is wrong with a request for a plan, or with a plan. Every variant names what it is about.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A plan for no streams.
    #[error("a plan needs at least one stream; max_streams is 0")]
    NoStreams,
    /// More streams than a schedule can have.
    #[error(
        "everything that is independent side by side takes {needed} streams or more, a schedule has {limit} at most; ask for at most that many"
    )]
    TooManyStreams {
        /// How many it takes, at least.
        needed: u32,
        /// How many there can be.
        limit: u32,
    },
    /// Costs that are not one for each node.
    #[error("{given} costs were given for {nodes} nodes")]
    Costs {
        /// How many costs were given.
        given: usize,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A wait for an event that no earlier step records.
    #[error("{step} waits on {stream} for {event}, which no earlier step records")]
    UnrecordedWait {
        /// The step.
        step: StepId,
        /// The event.
        event: EventId,
        /// The stream that waits.
        stream: StreamId,
    },
    /// A step whose size and extent disagree.
    #[error("{step}: a {what} of {size_bytes} bytes whose extent has {extent_bytes}")]
    SizeMismatch {
        /// The step.
        step: StepId,
        /// Copy or fill.
        what: &'static str,
        /// The size that the step tells.
        size_bytes: usize,
        /// The size of its extent.
        extent_bytes: u64,
    },
    /// A step that names a node that the graph does not have.
    #[error("{step} runs {node}, which the graph does not have (it has {count})")]
    UnknownNode {
        /// The step.
        step: StepId,
        /// The node.
        node: NodeId,
        /// How many the graph has.
        count: usize,
    },
    /// A node that two steps run.
    #[error("{node} runs twice, in {first} and {second}")]
    Repeated {
        /// The node.
        node: NodeId,
        /// The first of the steps.
        first: StepId,
        /// The second.
        second: StepId,
    },
    /// A node that no step runs.
    #[error("no step runs {node}")]
    Missing {
        /// The node.
        node: NodeId,
    },
    /// A step that runs before one that it depends on.
    #[error("{step} runs {to} before {from}, on which it depends")]
    OutOfOrder {
        /// The step.
        step: StepId,
        /// The node that must come first.
        from: NodeId,
        /// The node that depends on it.
        to: NodeId,
    },
    /// A launch of no nodes, or of several that are not all kernels.
    #[error("{step} fuses {nodes} nodes into one launch; one node, or kernels alone, can be")]
    NotOneLaunch {
        /// The step.
        step: StepId,
        /// How many nodes it names.
        nodes: usize,
    },
    /// A node with inner graphs without a schedule for each.
    #[error("{node} holds {graphs} inner graphs but the schedule has {schedules} for them")]
    InnerCount {
        /// The node.
        node: NodeId,
        /// Inner graphs.
        graphs: usize,
        /// Schedules.
        schedules: usize,
    },
    /// Something wrong with the plan of an inner graph.
    #[error("inside {step}: {source}")]
    Inner {
        /// The step that holds it.
        step: StepId,
        /// What is wrong.
        source: Box<PlanError>,
    },
    /// Plans nested deeper than graphs may be.
    #[error("plans nest deeper than {limit}")]
    TooDeep {
        /// How deep they may.
        limit: usize,
    },
    /// A size that this machine cannot address.
    #[error("{what} of {bytes} bytes is more than this machine can address")]
    TooLarge {
        /// What has the size.
        what: &'static str,
        /// The size.
        bytes: u64,
    },
    /// Memory was planned for another graph: this node holds graphs that have no plan.
    #[error("no memory is planned for the graphs inside {node}")]
    Unplanned {
        /// The node.
        node: NodeId,
    },
    /// A limit on memory within which no plan was found, even with nodes run one at a time.
    #[error(
        "memory for internal buffers is limited to {limit} bytes, but the least that was found, with nodes run one at a time in two orders, is {reached}; no plan at all can do with less than {lower_bound}, and whether one does with less than {reached} is not known"
    )]
    MemoryLimit {
        /// The limit.
        limit: u64,
        /// The least that any of the ways that were tried needs; not proved to be the least there is.
        reached: u64,
        /// What any plan needs, whatever order it adds.
        lower_bound: u64,
    },
    /// Nodes that could not be assigned to streams.
    #[error("assigning streams: {0}")]
    Lanes(#[from] LanesError),
    /// A lowered graph that is not valid.
    #[error("the lowered graph is not valid: {0}")]
    Graph(#[from] GraphError),
}
