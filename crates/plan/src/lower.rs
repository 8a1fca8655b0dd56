//! Lowering: from a plan to the nodes and edges that a driver backend creates.
//!
//! In: an [`ExecutionPlan`]. Out: a [`DeviceGraph`] in which every step is the real thing with its operands, in issue
//! order. The edges of a plan made from a graph are the graph's (and those that reuse of memory added); those of one
//! made by hand follow from stream order and events, as a capture would record them. Events become edges, never nodes.
//! A barrier between steps dissolves into edges from what comes before it to what comes after it; at either end, where
//! it orders nothing, it stays an empty node, and so does one between so many steps that the edges would cost more than
//! it does. O(steps + edges), and up to [`MAX_DISSOLVED`] edges for a barrier.

use phonograph_graph::{
    DeviceGraph, DeviceNode, Edge, EdgeData, EventId, KernelNode, MAX_NESTING, MemcpyNode,
    MemsetNode, NodeId, StepId, StreamId,
};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::error::PlanError;
use crate::plan::ExecutionPlan;
use crate::step::PlanStep;

/// The most edges that a barrier dissolves into, unless one of its sides is a single step.
pub const MAX_DISSOLVED: usize = 256;

/// The device graph of a plan. Pure: the same plan gives the same graph, and no device is needed. O(steps + edges), and as many
/// edges more as barriers dissolve into.
///
/// ```
/// use phonograph_graph::{DeviceNode, GraphBuilder};
/// use phonograph_plan::{ExecutionPlan, lower};
///
/// let mut b = GraphBuilder::new();
/// let sides = ["left", "right"].map(|name| b.add_kernel(name, 1, 32, 0).finish());
/// let barrier = b.add_barrier("both");
/// let fill = b.add_memset("fill", 64, 0);
/// b.fan_in(&sides, barrier).dep(barrier, fill);
/// // One stream runs the sides one after another; the device graph does not.
/// let graph = lower(&ExecutionPlan::build(&b.build()?, 1)?)?;
/// assert_eq!((graph.node_count(), graph.dependency_count()), (3, 2));
/// assert!(matches!(graph.nodes()[2], DeviceNode::Memset { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`UnrecordedWait`](PlanError::UnrecordedWait) for a wait that no earlier step records;
/// [`SizeMismatch`](PlanError::SizeMismatch) and [`NotOneLaunch`](PlanError::NotOneLaunch) for a step that contradicts
/// itself; [`Missing`](PlanError::Missing), [`Repeated`](PlanError::Repeated), [`UnknownNode`](PlanError::UnknownNode)
/// and [`OutOfOrder`](PlanError::OutOfOrder) for a plan of a graph whose steps were changed into something else;
/// [`Graph`](PlanError::Graph) for operands that name nothing.
pub fn lower(plan: &ExecutionPlan) -> Result<DeviceGraph, PlanError> {
    let graph = lower_at(plan, 1)?;
    graph.validate()?;
    Ok(graph)
}

type Incoming = SmallVec<[(NodeId, EdgeData); 2]>;

// Recursive, but no deeper than the bound that it checks.
fn lower_at(plan: &ExecutionPlan, depth: usize) -> Result<DeviceGraph, PlanError> {
    if depth > MAX_NESTING {
        return Err(PlanError::TooDeep { limit: MAX_NESTING });
    }
    let incoming = match plan.source() {
        Some(_) => graph_order(plan)?,
        None => stream_order(plan)?,
    };
    let barriers: Vec<bool> =
        working(plan).map(|(_, step)| matches!(step, PlanStep::Barrier { .. })).collect();
    let (incoming, dissolved) = dissolve(incoming, &barriers);
    let mut place: Vec<Option<NodeId>> = Vec::with_capacity(barriers.len());
    let mut nodes = Vec::with_capacity(barriers.len());
    let mut origins = Vec::with_capacity(barriers.len());
    for ((step_id, step), dissolved) in working(plan).zip(dissolved) {
        if dissolved {
            place.push(None);
            continue;
        }
        place.push(Some(NodeId::from_index(nodes.len())));
        nodes.push(device_node(step_id, step, depth)?);
        origins.push(SmallVec::from_slice(step.nodes()));
    }
    let edges = incoming.iter().zip(&place).flat_map(|(from, to)| {
        let ends = from.iter().filter_map(move |&(from, data)| Some((from, (*to)?, data)));
        ends.filter_map(|(from, to, data)| Some(Edge { from: place[from.index()]?, to, data }))
    });
    let edges = edges.collect();
    let graph = DeviceGraph::new(nodes, edges).with_origins(origins);
    Ok(match plan.source() {
        Some(source) => {
            graph.with_memory(&source.buffers, &source.slots, source.schedule.memory.clone())
        }
        None => graph,
    })
}

/// The steps that do work, which events do not: each becomes a node, or a barrier that may dissolve.
fn working(plan: &ExecutionPlan) -> impl Iterator<Item = (StepId, &PlanStep)> {
    let steps = (0..).map(StepId).zip(&plan.steps);
    steps.filter(|(_, step)| {
        !matches!(step, PlanStep::EventRecord { .. } | PlanStep::EventWait { .. })
    })
}

/// What each working step depends on, by the graph's edges.
fn graph_order(plan: &ExecutionPlan) -> Result<Vec<Incoming>, PlanError> {
    let Some(source) = plan.source() else { return Ok(Vec::new()) };
    let step_of = source.step_of_node(&plan.steps)?;
    let mut number = vec![NodeId(0); plan.steps.len()];
    let mut incoming: Vec<Incoming> = Vec::new();
    for (step_id, _) in working(plan) {
        number[step_id.0 as usize] = NodeId::from_index(incoming.len());
        incoming.push(Incoming::new());
    }
    for &Edge { from, to, data } in &source.edges {
        let (first, second) = (step_of[from.index()], step_of[to.index()]);
        if first == second {
            continue; // inside one launch, which keeps the order of its nodes
        }
        // A fused launch has no wait of its own for one of its kernels' producers.
        let fused = [first, second].iter().any(|s| plan.steps[s.0 as usize].nodes().len() > 1);
        let data = if fused { EdgeData::FULL } else { data };
        incoming[number[second.0 as usize].index()].push((number[first.0 as usize], data));
    }
    Ok(incoming)
}

/// The nodes that a stream's next step depends on, ascending.
type Set = SmallVec<[NodeId; 2]>;

// Joins bring few nodes to a set that may have grown large: inserting them keeps a wide join from being quadratic.
fn union(set: &mut Set, other: &Set) {
    if other.len() < set.len() / 8 {
        for &node in other {
            if let Err(at) = set.binary_search(&node) {
                set.insert(at, node);
            }
        }
    } else {
        set.extend_from_slice(other);
        set.sort_unstable();
        set.dedup();
    }
}

/// What each working step depends on, by stream order and events.
fn stream_order(plan: &ExecutionPlan) -> Result<Vec<Incoming>, PlanError> {
    let mut next: FxHashMap<StreamId, Set> = FxHashMap::default();
    let mut events: FxHashMap<EventId, (StreamId, Set)> = FxHashMap::default();
    let mut incoming: Vec<Incoming> = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let stream = step.stream();
        let set = next.entry(stream).or_default();
        match *step {
            PlanStep::EventRecord { event_id, .. } => {
                events.insert(event_id, (stream, set.clone()));
            }
            PlanStep::EventWait { event_id, .. } => match events.get(&event_id) {
                None => {
                    let (step, event) = (StepId(index as u32), event_id);
                    return Err(PlanError::UnrecordedWait { step, event, stream });
                }
                // A stream is behind its own events already.
                Some((recorded_on, _)) if *recorded_on == stream => {}
                Some((_, after)) => union(set, after),
            },
            _ => {
                let node = NodeId::from_index(incoming.len());
                incoming.push(set.iter().map(|&from| (from, EdgeData::FULL)).collect());
                *set = smallvec![node];
            }
        }
    }
    Ok(incoming)
}

/// Replaces barriers by edges where that pays; which were. Producers come first.
fn dissolve(mut incoming: Vec<Incoming>, barriers: &[bool]) -> (Vec<Incoming>, Vec<bool>) {
    let mut consumers = vec![0usize; incoming.len()];
    incoming.iter().flatten().for_each(|(from, _)| consumers[from.index()] += 1);
    let mut dissolved = vec![false; incoming.len()];
    // `stamp[from] == to + 1` once the full edge from → to is there.
    let mut stamp = vec![0usize; incoming.len()];
    for to in 0..incoming.len() {
        let mut resolved = Incoming::new();
        let mut add = |from: NodeId, data: EdgeData| {
            let repeated =
                data.is_full() && std::mem::replace(&mut stamp[from.index()], to + 1) == to + 1;
            if !repeated {
                resolved.push((from, data));
            }
        };
        for &(from, data) in &incoming[to] {
            if dissolved[from.index()] {
                incoming[from.index()].iter().for_each(|&(from, data)| add(from, data));
            } else {
                add(from, data);
            }
        }
        let edges = resolved.len() * consumers[to];
        let worthwhile = edges <= MAX_DISSOLVED || resolved.len() == 1 || consumers[to] == 1;
        dissolved[to] = barriers[to] && edges > 0 && worthwhile;
        incoming[to] = resolved;
    }
    (incoming, dissolved)
}

fn device_node(step_id: StepId, step: &PlanStep, depth: usize) -> Result<DeviceNode, PlanError> {
    let check_size = |what, size_bytes: usize, extent_bytes: u64| {
        if size_bytes as u64 == extent_bytes {
            return Ok(());
        }
        Err(PlanError::SizeMismatch { step: step_id, what, size_bytes, extent_bytes })
    };
    let inner = |plan: &ExecutionPlan| {
        lower_at(plan, depth + 1)
            .map_err(|source| PlanError::Inner { step: step_id, source: Box::new(source) })
    };
    Ok(match step {
        PlanStep::KernelLaunch { nodes, function_name, config, kernels, .. } => {
            if kernels.is_empty() {
                return Err(PlanError::NotOneLaunch { step: step_id, nodes: nodes.len() });
            }
            let kernels: Vec<KernelNode> = kernels.clone();
            DeviceNode::KernelLaunch {
                function_name: function_name.clone(),
                config: *config,
                kernels,
            }
        }
        &PlanStep::Memcpy { dir, size_bytes, src, dst, extent, .. } => {
            check_size("copy", size_bytes, extent.bytes())?;
            DeviceNode::Memcpy { copy: MemcpyNode { dir, src, dst, extent } }
        }
        &PlanStep::Memset { size_bytes, value, element_size, dst, extent, .. } => {
            check_size("fill", size_bytes, extent.bytes())?;
            DeviceNode::Memset { fill: MemsetNode { dst, value, element_size, extent } }
        }
        PlanStep::HostCallback { host, .. } => DeviceNode::HostCallback { host: host.clone() },
        // Events do no work and never come here.
        PlanStep::Barrier { .. } | PlanStep::EventRecord { .. } | PlanStep::EventWait { .. } => {
            DeviceNode::Empty
        }
        &PlanStep::ExternalRecord { event_id, .. } => DeviceNode::EventRecord { event_id },
        &PlanStep::ExternalWait { event_id, .. } => DeviceNode::EventWait { event_id },
        &PlanStep::Alloc { buffer, .. } => DeviceNode::Alloc { buffer },
        &PlanStep::Free { buffer, .. } => DeviceNode::Free { buffer },
        PlanStep::ChildGraph { plan, .. } => {
            DeviceNode::ChildGraph { graph: Box::new(inner(plan)?) }
        }
        PlanStep::Conditional { kind, condition, bodies, .. } => DeviceNode::Conditional {
            kind: *kind,
            condition: *condition,
            bodies: bodies.iter().map(inner).collect::<Result<_, _>>()?,
        },
    })
}
