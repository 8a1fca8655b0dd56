//! The steps of a plan: what is issued to which stream, with all that a backend needs to do it.

use std::fmt;

use phonograph_graph::{
    BufferId, Condition, ConditionalKind, EventId, Extent, HostNode, KernelConfig, KernelNode,
    KernelRef, MemcpyDir, NodeId, Pitched, StreamId, Target,
};

use crate::plan::ExecutionPlan;

/// One step of an [`ExecutionPlan`]. `node` and `nodes` are of the graph that was planned; a step made by hand has none.
#[derive(Clone, PartialEq, Debug)]
pub enum PlanStep {
    /// Launches a kernel, or several fused into one launch.
    KernelLaunch {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// The function's name; for generated code a name for people.
        function_name: String,
        /// The launch.
        config: KernelConfig,
        /// The code and its arguments, in the order of the nodes.
        kernels: Vec<KernelNode>,
        /// The stream.
        stream: StreamId,
    },
    /// Copies.
    Memcpy {
        /// The node.
        node: Option<NodeId>,
        /// Direction.
        dir: MemcpyDir,
        /// Bytes in all.
        size_bytes: usize,
        /// From.
        src: Pitched,
        /// To.
        dst: Pitched,
        /// Rows and slices.
        extent: Extent,
        /// The stream.
        stream: StreamId,
    },
    /// Fills.
    Memset {
        /// The node.
        node: Option<NodeId>,
        /// Bytes in all.
        size_bytes: usize,
        /// The pattern, in its low `element_size` bytes.
        value: u32,
        /// Bytes of the pattern: 1, 2 or 4.
        element_size: u8,
        /// What to fill.
        dst: Pitched,
        /// Rows and slices.
        extent: Extent,
        /// The stream.
        stream: StreamId,
    },
    /// Calls a host function.
    HostCallback {
        /// The node.
        node: Option<NodeId>,
        /// The function.
        host: HostNode,
        /// The stream.
        stream: StreamId,
    },
    /// Does nothing but come between the steps before and after it.
    Barrier {
        /// The node.
        node: Option<NodeId>,
        /// The stream.
        stream: StreamId,
    },
    /// Records an event of the plan: it stands for everything issued to the stream so far.
    EventRecord {
        /// The event.
        event_id: EventId,
        /// The stream.
        stream: StreamId,
    },
    /// Later steps of the stream start after what the event stands for: its latest record before this step.
    EventWait {
        /// The event.
        event_id: EventId,
        /// The stream.
        stream: StreamId,
    },
    /// Records an event that work outside the plan waits for.
    ExternalRecord {
        /// The node.
        node: Option<NodeId>,
        /// The event, numbered apart from those of the plan.
        event_id: EventId,
        /// The stream.
        stream: StreamId,
    },
    /// Waits for an event that work outside the plan records.
    ExternalWait {
        /// The node.
        node: Option<NodeId>,
        /// The event, numbered apart from those of the plan.
        event_id: EventId,
        /// The stream.
        stream: StreamId,
    },
    /// Allocates a buffer.
    Alloc {
        /// The node.
        node: Option<NodeId>,
        /// The buffer.
        buffer: BufferId,
        /// The stream.
        stream: StreamId,
    },
    /// Frees a buffer.
    Free {
        /// The node.
        node: Option<NodeId>,
        /// The buffer.
        buffer: BufferId,
        /// The stream.
        stream: StreamId,
    },
    /// Runs a child graph.
    ChildGraph {
        /// The node.
        node: Option<NodeId>,
        /// Its plan.
        plan: Box<ExecutionPlan>,
        /// The stream.
        stream: StreamId,
    },
    /// Runs bodies or not.
    Conditional {
        /// The node.
        node: Option<NodeId>,
        /// Which kind.
        kind: ConditionalKind,
        /// What decides.
        condition: Condition,
        /// The plans of the bodies.
        bodies: Vec<ExecutionPlan>,
        /// The stream.
        stream: StreamId,
    },
}

impl PlanStep {
    /// A launch of a kernel known by its function's name, without arguments, standing for `nodes`.
    pub fn kernel(
        nodes: impl Into<Vec<NodeId>>,
        name: impl Into<String>,
        config: KernelConfig,
        stream: StreamId,
    ) -> Self {
        let function_name = name.into();
        let kernel = KernelRef::Named(function_name.as_str().into());
        let kernels = vec![KernelNode { kernel, config, args: Box::default(), fusible: false }];
        PlanStep::KernelLaunch { nodes: nodes.into(), function_name, config, kernels, stream }
    }

    /// A copy of which only direction and size are said.
    pub fn memcpy(dir: MemcpyDir, size_bytes: usize, stream: StreamId) -> Self {
        let end = Pitched::linear(Target::Unspecified, 0);
        let extent = Extent::linear(size_bytes as u64);
        PlanStep::Memcpy { node: None, dir, size_bytes, src: end, dst: end, extent, stream }
    }

    /// A byte fill of which only size and value are said.
    pub fn memset(size_bytes: usize, value: u8, stream: StreamId) -> Self {
        PlanStep::Memset {
            node: None,
            size_bytes,
            value: u32::from(value),
            element_size: 1,
            dst: Pitched::linear(Target::Unspecified, 0),
            extent: Extent::linear(size_bytes as u64),
            stream,
        }
    }

    /// A barrier.
    pub const fn barrier(stream: StreamId) -> Self {
        PlanStep::Barrier { node: None, stream }
    }

    /// A record of an event.
    pub fn event_record(id: impl Into<EventId>, stream: StreamId) -> Self {
        PlanStep::EventRecord { event_id: id.into(), stream }
    }

    /// A wait for an event.
    pub fn event_wait(id: impl Into<EventId>, stream: StreamId) -> Self {
        PlanStep::EventWait { event_id: id.into(), stream }
    }

    /// The stream that the step is issued to.
    pub const fn stream(&self) -> StreamId {
        match self {
            PlanStep::KernelLaunch { stream, .. }
            | PlanStep::Memcpy { stream, .. }
            | PlanStep::Memset { stream, .. }
            | PlanStep::HostCallback { stream, .. }
            | PlanStep::Barrier { stream, .. }
            | PlanStep::EventRecord { stream, .. }
            | PlanStep::EventWait { stream, .. }
            | PlanStep::ExternalRecord { stream, .. }
            | PlanStep::ExternalWait { stream, .. }
            | PlanStep::Alloc { stream, .. }
            | PlanStep::Free { stream, .. }
            | PlanStep::ChildGraph { stream, .. }
            | PlanStep::Conditional { stream, .. } => *stream,
        }
    }

    /// The nodes that the step runs; none for events and for steps made by hand.
    pub fn nodes(&self) -> &[NodeId] {
        match self {
            PlanStep::KernelLaunch { nodes, .. } => nodes,
            PlanStep::Memcpy { node, .. }
            | PlanStep::Memset { node, .. }
            | PlanStep::HostCallback { node, .. }
            | PlanStep::Barrier { node, .. }
            | PlanStep::ExternalRecord { node, .. }
            | PlanStep::ExternalWait { node, .. }
            | PlanStep::Alloc { node, .. }
            | PlanStep::Free { node, .. }
            | PlanStep::ChildGraph { node, .. }
            | PlanStep::Conditional { node, .. } => node.as_slice(),
            PlanStep::EventRecord { .. } | PlanStep::EventWait { .. } => &[],
        }
    }

    /// The plans inside.
    pub fn inner_plans(&self) -> &[ExecutionPlan] {
        match self {
            PlanStep::ChildGraph { plan, .. } => std::slice::from_ref(plan),
            PlanStep::Conditional { bodies, .. } => bodies,
            _ => &[],
        }
    }
}

/// One line: the stream, what is done, the nodes.
impl fmt::Display for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.stream())?;
        match self {
            PlanStep::KernelLaunch { function_name, config, .. } => {
                write!(f, "kernel {function_name}, {config}")
            }
            PlanStep::Memcpy { dir, size_bytes, .. } => write!(f, "memcpy {dir}, {size_bytes} B"),
            PlanStep::Memset { size_bytes, value, .. } => {
                write!(f, "memset to {value:#x}, {size_bytes} B")
            }
            PlanStep::HostCallback { host, .. } => write!(f, "host callback {}", host.function),
            PlanStep::Barrier { .. } => f.write_str("barrier"),
            PlanStep::EventRecord { event_id, .. } => write!(f, "record {event_id}"),
            PlanStep::EventWait { event_id, .. } => write!(f, "wait for {event_id}"),
            PlanStep::ExternalRecord { event_id, .. } => write!(f, "record external {event_id}"),
            PlanStep::ExternalWait { event_id, .. } => write!(f, "wait for external {event_id}"),
            PlanStep::Alloc { buffer, .. } => write!(f, "allocate {buffer}"),
            PlanStep::Free { buffer, .. } => write!(f, "free {buffer}"),
            PlanStep::ChildGraph { .. } => f.write_str("child graph"),
            PlanStep::Conditional { kind, .. } => write!(f, "conditional {}", kind.name()),
        }?;
        match self.nodes() {
            [] => Ok(()),
            nodes => {
                f.write_str(" (")?;
                for (at, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}
