//! The execution plan: steps in issue order on streams, and the figures that follow from them.
//!
//! In: a graph, a graph with a schedule, or steps made by hand. Out: an [`ExecutionPlan`], plain data that
//! [`lower`](crate::lower()) turns into what a driver backend creates. A plan of a graph keeps the graph's edges and
//! is lowered by them, so what its streams serialise stays parallel in a device graph. Cost: linear.

use std::fmt;

use phonograph_graph::{
    Buffer, ComputeGraph, Edge, EventId, KernelNode, MemcpyNode, MemsetNode, NodeId, NodeKind,
    Schedule, Slot, Step, StepId, StreamId,
};
use rustc_hash::FxHashSet;

use crate::error::PlanError;
use crate::step::PlanStep;
use crate::streams::{self, PlanOptions};

/// How a graph, or work assembled by hand, runs.
///
/// ```
/// use phonograph_graph::{GraphBuilder, MemcpyDir};
/// use phonograph_plan::{ExecutionPlan, lower};
///
/// let mut b = GraphBuilder::new();
/// let upload = b.add_memcpy("upload", MemcpyDir::HostToDevice, 4096);
/// let kernel = b.add_kernel("scale", 4, 256, 0).finish();
/// let download = b.add_memcpy("download", MemcpyDir::DeviceToHost, 4096);
/// b.chain(&[upload, kernel, download]);
/// let plan = ExecutionPlan::build(&b.build()?, 1)?;
/// assert_eq!((plan.steps.len(), plan.num_streams, plan.kernel_count_fused), (3, 1, 1));
/// assert_eq!(lower(&plan)?.dependency_count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct ExecutionPlan {
    /// The steps in issue order.
    pub steps: Vec<PlanStep>,
    /// Distinct streams that steps use, inner plans not counted.
    pub num_streams: usize,
    /// Bytes of memory for internal buffers, those of inner plans included.
    pub pool_bytes: usize,
    /// Kernels of the graph, before fusion if [`rewritten_from`](Self::rewritten_from) was told of it; inner plans not counted.
    pub kernel_count_original: usize,
    /// Kernel launches, inner plans not counted.
    pub kernel_count_fused: usize,
    /// Distinct events that steps record or wait for, inner plans not counted.
    pub event_count: usize,
    source: Option<Source>,
}

/// What a plan keeps of the graph it was made from.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Source {
    pub schedule: Schedule,
    pub edges: Vec<Edge>,
    pub nodes: usize,
    pub buffers: Box<[Buffer]>,
    pub slots: Box<[Slot]>,
}

impl ExecutionPlan {
    /// Plans a graph on at most `max_streams` streams, with assumed costs. An empty graph has an empty plan.
    ///
    /// # Errors
    /// Those of [`schedule`](streams::schedule); [`PlanError::NoStreams`] for `max_streams` of 0.
    pub fn build(graph: &ComputeGraph, max_streams: usize) -> Result<Self, PlanError> {
        let most = u32::try_from(max_streams).unwrap_or(u32::MAX);
        Self::plan(graph, &PlanOptions::at_most(most))
    }

    /// Plans a graph as `options` say.
    ///
    /// # Errors
    /// Those of [`schedule`](streams::schedule).
    pub fn plan(graph: &ComputeGraph, options: &PlanOptions<'_>) -> Result<Self, PlanError> {
        Self::with_schedule(graph, streams::schedule(graph, options)?)
    }

    /// The plan that runs a graph as a schedule says. O(nodes + edges + steps).
    ///
    /// # Errors
    /// A schedule that does not run every node once, or a node before one that it depends on. That streams and
    /// events order every edge is for the checker ([`phonograph_graph::check`]) to prove.
    pub fn with_schedule(graph: &ComputeGraph, schedule: Schedule) -> Result<Self, PlanError> {
        let mut steps = Vec::with_capacity(schedule.steps.len());
        for (index, step) in schedule.steps.iter().enumerate() {
            let place = StepId(index as u32);
            steps.push(match *step {
                Step::Run { ref nodes, stream } => {
                    run_step(graph, &schedule, nodes, stream, place)?
                }
                Step::Record { event, stream } => PlanStep::EventRecord { event_id: event, stream },
                Step::Wait { event, stream } => PlanStep::EventWait { event_id: event, stream },
            });
        }
        let pool_bytes = addressable(schedule.pool_bytes(), "a pool")?;
        let source = Source {
            edges: graph.edges().chain(reuse_edges(&schedule)).collect(),
            nodes: graph.node_count(),
            buffers: graph.buffers().into(),
            slots: graph.slots().into(),
            schedule,
        };
        source.step_of_node(&steps)?;
        Ok(Self { source: Some(source), ..Self::assemble(steps, pool_bytes) })
    }

    /// A plan of steps made by hand. Streams and events order them; [`lower`](crate::lower()) finds what is wrong with them.
    ///
    /// ```
    /// use phonograph_graph::{KernelConfig, NodeId, StreamId};
    /// use phonograph_plan::{ExecutionPlan, PlanStep, lower};
    ///
    /// let (s0, s1, launch) = (StreamId(0), StreamId(1), KernelConfig::linear(1, 32, 0));
    /// let plan = ExecutionPlan::from_steps(vec![
    ///     PlanStep::kernel([NodeId(0)], "produce", launch, s0),
    ///     PlanStep::event_record(0, s0),
    ///     PlanStep::event_wait(0, s1),
    ///     PlanStep::kernel([NodeId(1)], "consume", launch, s1),
    /// ]);
    /// let graph = lower(&plan)?;
    /// assert_eq!((graph.node_count(), graph.dependency_count()), (2, 1));
    /// # Ok::<(), phonograph_plan::PlanError>(())
    /// ```
    pub fn from_steps(steps: Vec<PlanStep>) -> Self {
        let inner = steps.iter().flat_map(PlanStep::inner_plans).map(|plan| plan.pool_bytes);
        let pool_bytes = inner.fold(0usize, usize::saturating_add);
        Self::assemble(steps, pool_bytes)
    }

    fn assemble(steps: Vec<PlanStep>, pool_bytes: usize) -> Self {
        let streams: FxHashSet<StreamId> = steps.iter().map(PlanStep::stream).collect();
        let mut events: FxHashSet<EventId> = FxHashSet::default();
        let (mut kernel_count_original, mut kernel_count_fused) = (0, 0);
        for step in &steps {
            match step {
                PlanStep::KernelLaunch { nodes, .. } => {
                    kernel_count_original += nodes.len().max(1);
                    kernel_count_fused += 1;
                }
                PlanStep::EventRecord { event_id, .. } | PlanStep::EventWait { event_id, .. } => {
                    events.insert(*event_id);
                }
                _ => {}
            }
        }
        Self {
            num_streams: streams.len(),
            pool_bytes,
            kernel_count_original,
            kernel_count_fused,
            event_count: events.len(),
            steps,
            source: None,
        }
    }

    /// Counts the kernels of the graph that the planned one was rewritten from as the original ones. O(nodes).
    ///
    /// ```
    /// # use phonograph_graph::{DType, Expr, GraphBuilder, View};
    /// use phonograph_plan::ExecutionPlan;
    /// use phonograph_plan::fusion::{FusionOptions, fuse};
    ///
    /// # let mut b = GraphBuilder::new();
    /// # let x = View::contiguous(b.external_buffer("x", 64), DType::F32, &[16])?;
    /// # for _ in 0..3 {
    /// #     b.add_elementwise("exp", Expr::build(|e| e.output(e.input(DType::F32).exp()))?.into(), &[x], &[], &[x]);
    /// # }
    /// # let graph = b.build()?; // three kernels in a chain
    /// let fused = fuse(&graph, &FusionOptions::default())?;
    /// let plan = ExecutionPlan::build(&fused.graph, 1)?.rewritten_from(&graph);
    /// assert_eq!((plan.kernel_count_original, plan.kernel_count_fused), (3, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rewritten_from(mut self, before: &ComputeGraph) -> Self {
        let kernels = before.nodes().iter().filter(|node| node.kernel().is_some());
        self.kernel_count_original = kernels.count();
        self
    }

    /// The schedule that the plan was made with; none for one made by hand.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.source.as_ref().map(|source| &source.schedule)
    }

    pub(crate) fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }
}

impl Source {
    /// For each node the step that runs it: exactly one does, and none before one that it depends on.
    pub fn step_of_node(&self, steps: &[PlanStep]) -> Result<Vec<StepId>, PlanError> {
        let count = self.nodes;
        let mut step_of: Vec<Option<StepId>> = vec![None; count];
        for (index, step) in steps.iter().enumerate() {
            let step_id = StepId(index as u32);
            for &node in step.nodes() {
                let Some(place) = step_of.get_mut(node.index()) else {
                    return Err(PlanError::UnknownNode { step: step_id, node, count });
                };
                if let Some(first) = place.replace(step_id) {
                    return Err(PlanError::Repeated { node, first, second: step_id });
                }
            }
        }
        let found = step_of.into_iter().enumerate().map(|(node, step)| {
            step.ok_or_else(|| PlanError::Missing { node: NodeId::from_index(node) })
        });
        let step_of: Vec<StepId> = found.collect::<Result<_, _>>()?;
        for &Edge { from, to, .. } in &self.edges {
            if step_of[from.index()] > step_of[to.index()] {
                return Err(PlanError::OutOfOrder { step: step_of[to.index()], from, to });
            }
        }
        Ok(step_of)
    }
}

fn reuse_edges(schedule: &Schedule) -> impl Iterator<Item = Edge> + '_ {
    schedule.reuse.iter().map(|&(from, to)| Edge::full(from, to))
}

pub(crate) fn addressable(bytes: u64, what: &'static str) -> Result<usize, PlanError> {
    usize::try_from(bytes).map_err(|_| PlanError::TooLarge { what, bytes })
}

/// The step that runs one node, or several kernels as one launch.
fn run_step(
    graph: &ComputeGraph,
    schedule: &Schedule,
    nodes: &[NodeId],
    stream: StreamId,
    step: StepId,
) -> Result<PlanStep, PlanError> {
    let count = graph.node_count();
    if let Some(&node) = nodes.iter().find(|node| graph.get(**node).is_none()) {
        return Err(PlanError::UnknownNode { step, node, count });
    }
    let not_one = PlanError::NotOneLaunch { step, nodes: nodes.len() };
    let &[node_id] = nodes else {
        let kernels = nodes.iter().map(|&id| graph.node(id).kernel().cloned());
        let kernels: Option<Vec<KernelNode>> = kernels.collect();
        let Some(kernels) = kernels.filter(|kernels| !kernels.is_empty()) else {
            return Err(not_one);
        };
        let names: Vec<&str> = nodes.iter().map(|&id| &*graph.node(id).name).collect();
        return Ok(PlanStep::KernelLaunch {
            nodes: nodes.to_vec(),
            function_name: names.join("+"),
            config: kernels[0].config,
            kernels,
            stream,
        });
    };
    let node = Some(node_id);
    let declared = graph.node(node_id);
    Ok(match &declared.kind {
        NodeKind::Kernel(kernel) => PlanStep::KernelLaunch {
            nodes: vec![node_id],
            function_name: match &kernel.kernel {
                phonograph_graph::KernelRef::Named(function) => function.to_string(),
                generated => format!("{}:{}", generated.name(), declared.name),
            },
            config: kernel.config,
            kernels: vec![kernel.clone()],
            stream,
        },
        NodeKind::Memcpy(copy) => {
            let MemcpyNode { dir, src, dst, extent } = **copy;
            let size_bytes = addressable(extent.bytes(), "a copy")?;
            PlanStep::Memcpy { node, dir, size_bytes, src, dst, extent, stream }
        }
        NodeKind::Memset(fill) => {
            let MemsetNode { dst, value, element_size, extent } = **fill;
            let size_bytes = addressable(extent.bytes(), "a fill")?;
            PlanStep::Memset { node, size_bytes, value, element_size, dst, extent, stream }
        }
        NodeKind::Host(host) => PlanStep::HostCallback { node, host: (**host).clone(), stream },
        NodeKind::Empty => PlanStep::Barrier { node, stream },
        &NodeKind::EventRecord(event_id) => PlanStep::ExternalRecord { node, event_id, stream },
        &NodeKind::EventWait(event_id) => PlanStep::ExternalWait { node, event_id, stream },
        &NodeKind::Alloc(buffer) => PlanStep::Alloc { node, buffer, stream },
        &NodeKind::Free(buffer) => PlanStep::Free { node, buffer, stream },
        NodeKind::Child(_) => {
            let mut plans = inner_plans(graph, schedule, node_id, step)?;
            let plan = plans.pop().ok_or(not_one)?;
            PlanStep::ChildGraph { node, plan: Box::new(plan), stream }
        }
        NodeKind::Conditional(conditional) => PlanStep::Conditional {
            node,
            kind: conditional.kind,
            condition: conditional.condition,
            bodies: inner_plans(graph, schedule, node_id, step)?,
            stream,
        },
    })
}

/// Plans of the graphs inside a node; they nest at most as deep as graphs do.
fn inner_plans(
    graph: &ComputeGraph,
    schedule: &Schedule,
    node: NodeId,
    step: StepId,
) -> Result<Vec<ExecutionPlan>, PlanError> {
    let graphs = graph.node(node).kind.inner_graphs();
    let schedules = schedule.inner.get(&node).map_or(&[][..], Vec::as_slice);
    if graphs.len() != schedules.len() {
        let (graphs, schedules) = (graphs.len(), schedules.len());
        return Err(PlanError::InnerCount { node, graphs, schedules });
    }
    let plans = graphs.iter().zip(schedules).map(|(graph, schedule)| {
        ExecutionPlan::with_schedule(graph, schedule.clone())
            .map_err(|source| PlanError::Inner { step, source: Box::new(source) })
    });
    plans.collect()
}

/// A line of figures, then a line a step; the steps of inner plans are indented.
impl fmt::Display for ExecutionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_at(f, 0)
    }
}

impl ExecutionPlan {
    fn write_at(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = 2 * depth;
        let counted = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        let (original, fused) = (self.kernel_count_original, self.kernel_count_fused);
        writeln!(
            f,
            "{:indent$}{} on {}, {}, {} in {}, {} B of memory",
            "",
            counted(self.steps.len(), "step"),
            counted(self.num_streams, "stream"),
            counted(self.event_count, "event"),
            counted(original, "kernel"),
            counted(fused, "launch").replace("launchs", "launches"),
            self.pool_bytes,
        )?;
        for step in &self.steps {
            writeln!(f, "{:indent$}  {step}", "")?;
            for inner in step.inner_plans() {
                inner.write_at(f, depth + 2)?;
            }
        }
        Ok(())
    }
}
