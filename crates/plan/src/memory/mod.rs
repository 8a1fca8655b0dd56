//! Memory: places buffers so that those which cannot live at once share bytes.
//!
//! Two problems, one placement engine. *Lifetimes* ([`place`]) are given as times on a line. *Buffers of a graph* ([`plan()`])
//! are ordered only in part: two share bytes only if every user of one is complete before any user of the other starts, in the
//! order of the graph's edges: *wholly before*. In: a graph. Out: an offset for each internal buffer in the pool of its space,
//! aligned as it asks (pools are taken to start at a multiple of the largest alignment in them), and how far that is from what
//! any plan needs.
//!
//! Not shared with anything: a buffer that may be read before it is written in a replay, so that what its bytes held
//! shows; one that is allocated by a node and not freed by one; one with more than 64 first or last users that
//! nothing is known to order. A buffer that no node names lies at the start of its pool, over others. Contents do not
//! outlive a replay. An output never takes the place of an input that dies in the same kernel: backends rely on it that
//! different buffers which one node names do not overlap. (A kernel that names one buffer as both works in place;
//! [`update_in_place`](crate::passes::update_in_place) makes kernels do that.)
//!
//! With a limit on bytes ([`MemoryOptions::bytes`]) concurrency is traded for memory: *reuse edges* order nodes which the
//! graph does not, so that more buffers are wholly before others; the longer critical path is the price.
//!
//! | file | what |
//! | --- | --- |
//! | `lifetimes`, `csv` | the input on a time line, its lower bound, the proof of a placement; as text |
//! | `place` | the order in which methods are tried on lifetimes: a sweep, first fit, search |
//! | `first_fit`, `local` | greedy placement in an order, under intervals or any conflicts; local search over orders |
//! | `sections`, `niche/` | the moments that matter; the complete search within a capacity |
//! | `tenants`, `order` | buffers of a graph with their first and last users; which are wholly before which |
//! | `pool`, `arena` | the plan of one memory space; its near-linear part |
//! | `bound` | heaviest antichain, and the simple bound |
//! | `serial` | the limit on bytes |
//!
//! Cost: O(operands · log operands) and what the index of the order costs; searches by their budget.

mod arena;
mod bound;
mod budget;
mod csv;
mod first_fit;
mod lifetimes;
mod local;
mod niche;
mod order;
mod place;
mod pool;
mod sections;
mod serial;
mod tenants;

pub use budget::Budget;
pub use csv::{CsvError, CsvProblem, NamedLifetimes, from_csv};
pub use lifetimes::{Lifetime, LifetimeError, LifetimeId, Lifetimes, PlacementError, prove};
pub use place::{Placement, greedy, place};

use std::collections::BTreeMap;

use phonograph_graph::{BufferRole, ComputeGraph, MemoryPlan, NodeId, Space};
use tenants::{Tenant, tenants};

use crate::analysis::levels;
use crate::error::PlanError;
use crate::precedence::Precedence;

/// The most bytes of all pools; what no machine has, but sums of it still fit.
pub(crate) const MAX_POOL_BYTES: u64 = 1 << 62;

/// How to plan memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryOptions<'a> {
    /// Steps of search and of the exact bound, of about a microsecond each; 0 for the one-pass placement alone.
    pub steps: u64,
    /// The most bytes of all pools; where the graph's own order needs more, reuse edges are added.
    pub bytes: Option<u64>,
    /// Cost of each node, for the price of reuse edges; empty if each costs 1.
    pub costs: &'a [u64],
}

impl Default for MemoryOptions<'_> {
    /// Two milliseconds, no limit.
    fn default() -> Self {
        Self { steps: 2_000, bytes: None, costs: &[] }
    }
}

/// What any plan of the graph's own order needs at least. Alignment is left out of account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bound {
    /// Bytes of all pools.
    pub bytes: u64,
    /// How it was found.
    pub kind: BoundKind,
}

/// How a lower bound was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BoundKind {
    /// The heaviest set of buffers of which none is wholly before another, exact.
    #[default]
    Antichain,
    /// The buffers in use at one number of a numbering along the order: a bound, but perhaps not the highest.
    Level,
}

/// What reuse edges cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Price {
    /// The critical path without them, in the unit of the costs.
    pub before: u64,
    /// The critical path with them.
    pub after: u64,
    /// Bytes of all pools without them.
    pub bytes_before: u64,
}

/// A plan for memory, and what is known about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryReport {
    /// Where buffers lie.
    pub memory: MemoryPlan,
    /// Order to be added to the graph's: the first is complete before the second starts. For
    /// [`Schedule::reuse`](phonograph_graph::Schedule::reuse).
    pub reuse: Vec<(NodeId, NodeId)>,
    /// What any plan needs that adds no order.
    pub lower_bound: Bound,
    /// Whether no plan that adds no order is smaller.
    pub complete: bool,
    /// What the order added costs, if any was.
    pub price: Option<Price>,
    /// For each node that holds graphs, their plans.
    pub inner: BTreeMap<NodeId, Vec<MemoryReport>>,
}

impl MemoryReport {
    /// What any plan needs that adds no order, graphs inside included.
    pub fn lower_bound_in_all(&self) -> Bound {
        let mut bound = self.lower_bound;
        for inner in self.inner.values().flatten() {
            // Recursive over nesting, which building a graph bounds.
            let inner = inner.lower_bound_in_all();
            bound.bytes = bound.bytes.saturating_add(inner.bytes);
            if inner.kind == BoundKind::Level {
                bound.kind = BoundKind::Level;
            }
        }
        bound
    }
}

/// Places the internal buffers of `graph` and of the graphs inside its nodes, which have plans of their own. A limit on bytes
/// is for the outermost graph; what it leaves for those inside is not known, so they have none.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::memory::{MemoryOptions, plan};
///
/// // a → b → c → d, each buffer dead once the next is written: two places in turn are enough.
/// let mut g = GraphBuilder::new();
/// let buffers = ["a", "b", "c", "d"].map(|name| g.alloc_buffer(name, 1024));
/// g.add_kernel("first", 1, 256, 0).outputs([buffers[0]]).finish();
/// for pair in buffers.windows(2) {
///     g.add_kernel("next", 1, 256, 0).inputs([pair[0]]).outputs([pair[1]]).finish();
/// }
/// let report = plan(&g.build()?, &MemoryOptions::default())?;
/// assert_eq!(report.memory.pool_bytes(), 2048);
/// assert!(report.complete && report.lower_bound.bytes == 2048);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PlanError::TooLarge`] for buffers of more bytes than any address has; [`PlanError::MemoryLimit`] if the limit cannot be
/// met even one node at a time.
pub fn plan(graph: &ComputeGraph, options: &MemoryOptions<'_>) -> Result<MemoryReport, PlanError> {
    let mut inner = BTreeMap::new();
    let holders = graph.node_ids().filter(|&node| graph.node(node).kind.has_inner_graphs());
    for holder in holders {
        let options = MemoryOptions { bytes: None, costs: &[], ..*options };
        // Recursive over nesting, which building a graph bounds.
        let reports =
            graph.node(holder).kind.inner_graphs().iter().map(|inner| plan(inner, &options));
        inner.insert(holder, reports.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(MemoryReport { inner, ..plan_own(graph, options)? })
}

/// The plan of the graph's own buffers.
fn plan_own(graph: &ComputeGraph, options: &MemoryOptions<'_>) -> Result<MemoryReport, PlanError> {
    let internal = || graph.buffers().iter().filter(|b| b.role == BufferRole::Internal);
    // Even side by side, each with the padding that its alignment may cost.
    let most = internal().try_fold(0u64, |sum, b| sum.checked_add(b.bytes)?.checked_add(b.align));
    if most.is_none_or(|most| most > MAX_POOL_BYTES) {
        let (what, bytes) = ("memory for internal buffers", most.unwrap_or(u64::MAX));
        return Err(PlanError::TooLarge { what, bytes });
    }
    let mut report = MemoryReport {
        memory: MemoryPlan { offsets: vec![None; graph.buffers().len()], pools: BTreeMap::new() },
        reuse: Vec::new(),
        lower_bound: Bound::default(),
        complete: true,
        price: None,
        inner: BTreeMap::new(),
    };
    if internal().next().is_none() {
        return Ok(report);
    }
    let precedence = Precedence::new(graph);
    let numberings = numberings(graph);
    let mut stop = || false;
    let mut budget = Budget::new(options.steps, &mut stop);
    let pools = by_space(graph, &precedence, graph.topological_order());
    let share = options.steps / pools.len().max(1) as u64;
    for (space, tenants) in pools {
        let offsets = &mut report.memory.offsets;
        let pool = pool::plan(&precedence, tenants, &numberings, &mut budget.part(share), offsets);
        report.memory.pools.insert(space, pool.bytes);
        report.lower_bound.bytes += pool.bound.bytes;
        if pool.bound.kind == BoundKind::Level {
            report.lower_bound.kind = BoundKind::Level;
        }
        report.complete &= pool.least;
    }
    match options.bytes {
        Some(limit) if report.memory.pool_bytes() > limit => {
            serial::within(graph, &precedence, limit, &report, options)
        }
        _ => Ok(report),
    }
}

/// The internal buffers of each memory space. `order` is a topological order.
fn by_space(
    graph: &ComputeGraph,
    precedence: &Precedence<'_>,
    order: &[NodeId],
) -> BTreeMap<Space, Vec<Tenant>> {
    let mut pools: BTreeMap<Space, Vec<Tenant>> = BTreeMap::new();
    for tenant in tenants(graph, precedence, order) {
        pools.entry(graph.buffer(tenant.buffer).space).or_default().push(tenant);
    }
    pools
}

/// Numbers for the nodes that go up along every edge: as early as can be, as late as can be, and one after another.
fn numberings(graph: &ComputeGraph) -> Vec<Vec<u32>> {
    let early = levels(graph);
    let early: Vec<u32> = graph.node_ids().map(|node| early.of(node)).collect();
    let deepest = early.iter().copied().max().unwrap_or(0);
    let mut late = vec![deepest; graph.node_count()];
    let mut place = vec![0; graph.node_count()];
    for (at, &node) in graph.topological_order().iter().enumerate().rev() {
        place[node.index()] = at as u32;
        for &from in graph.predecessors(node) {
            late[from.index()] = late[from.index()].min(late[node.index()] - 1);
        }
    }
    vec![early, late, place]
}
