//! Places the internal buffers of a graph so that buffers which cannot live at once share bytes.
//!
//! In: a graph. Out: an offset for each internal buffer in the pool of its space, aligned as it asks (pools are taken to
//! start at a multiple of the largest alignment in them). Two buffers share bytes only if every user of one is
//! complete before any user of the other starts, in the order of the graph's edges: *wholly before*.
//!
//! A user is a node that names the buffer. One whose effects are unknown may touch anything that has an address
//! elsewhere, but an internal buffer has none outside the operands that name it.
//!
//! Not shared with anything: a buffer that may be read before it is written in a replay, so that what its bytes held
//! shows; one that is allocated by a node and not freed by one; one with more than 64 first or last users that
//! nothing is known to order. A buffer that no node names lies at the start of its
//! pool, over others. Contents do not outlive a replay.
//!
//! The method goes through the buffers in the order of their first users and gives each the tightest free run of bytes
//! whose last occupants are wholly before it, extending the pool where there is none. (An earlier occupant need not
//! be asked: it is wholly before the last one, and the relation is transitive.) Free bytes are kept by the chain of
//! nodes that comes after their occupant, so that a few candidates on the buffer's own chain are nearly always
//! enough; a few from all chains are tried after them. Which nodes come after which is looked up in a bounded index
//! that is never wrongly sure, so a wide graph may share less than it could, never more.
//!
//! Cost: O(operands · log operands) and what the index costs.

mod arena;
mod budget;
mod csv;
mod first_fit;
mod lifetimes;
mod local;
mod niche;
mod place;
mod random;
mod sections;
mod tenants;

pub use budget::Budget;
pub use csv::{CsvError, CsvProblem, NamedLifetimes, from_csv};
pub use lifetimes::{Lifetime, LifetimeError, LifetimeId, Lifetimes, PlacementError, prove};
pub use place::{Placement, greedy, place};

use std::collections::BTreeMap;

use arena::Arena;
use phonograph_graph::{BufferRole, ComputeGraph, MemoryPlan, Space};
use tenants::{Tenant, tenants};

use crate::error::PlanError;
use crate::precedence::Precedence;

/// The most bytes of all pools; what no machine has, but sums of it still fit.
pub(crate) const MAX_POOL_BYTES: u64 = 1 << 62;

/// Places the internal buffers of `graph`; graphs inside its nodes have plans of their own.
///
/// ```
/// use phonograph_graph::GraphBuilder;
///
/// // a → b → c → d, each buffer dead once the next is written: two places in turn are enough.
/// let mut g = GraphBuilder::new();
/// let buffers = ["a", "b", "c", "d"].map(|name| g.alloc_buffer(name, 1024));
/// g.add_kernel("first", 1, 256, 0).outputs([buffers[0]]).finish();
/// for pair in buffers.windows(2) {
///     g.add_kernel("next", 1, 256, 0).inputs([pair[0]]).outputs([pair[1]]).finish();
/// }
/// let plan = phonograph_plan::memory::plan(&g.build()?)?;
/// assert_eq!(plan.pool_bytes(), 2048);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PlanError::TooLarge`] for buffers of more bytes than any address has.
pub fn plan(graph: &ComputeGraph) -> Result<MemoryPlan, PlanError> {
    let mut offsets: Vec<Option<u64>> = vec![None; graph.buffers().len()];
    let internal = || graph.buffers().iter().filter(|b| b.role == BufferRole::Internal);
    if internal().next().is_none() {
        return Ok(MemoryPlan { offsets, pools: BTreeMap::new() });
    }
    // Even side by side, each with the padding that its alignment may cost.
    let most = internal().try_fold(0u64, |sum, b| sum.checked_add(b.bytes)?.checked_add(b.align));
    if most.is_none_or(|most| most > MAX_POOL_BYTES) {
        let (what, bytes) = ("memory for internal buffers", most.unwrap_or(u64::MAX));
        return Err(PlanError::TooLarge { what, bytes });
    }
    let precedence = Precedence::new(graph);
    let mut pools: BTreeMap<Space, Vec<Tenant>> = BTreeMap::new();
    for tenant in tenants(graph, &precedence) {
        pools.entry(graph.buffer(tenant.buffer).space).or_default().push(tenant);
    }
    let mut sizes = BTreeMap::new();
    for (space, tenants) in pools {
        sizes.insert(space, pool(&precedence, tenants, &mut offsets));
    }
    Ok(MemoryPlan { offsets, pools: sizes })
}

/// Places the buffers of one pool; its size.
fn pool(precedence: &Precedence, tenants: Vec<Tenant>, offsets: &mut [Option<u64>]) -> u64 {
    // Buffers that no node names lie over whatever is there.
    let (unused, used): (Vec<Tenant>, Vec<Tenant>) =
        tenants.into_iter().partition(|t| t.first.is_empty() || t.bytes == 0);
    let mut least = 0;
    for tenant in &unused {
        offsets[tenant.buffer.index()] = Some(0);
        least = least.max(tenant.bytes);
    }
    let (mut sharing, mut alone): (Vec<Tenant>, Vec<Tenant>) =
        used.into_iter().partition(|t| t.shares);
    // Strictest alignment first: with sizes that are multiples of it, as they mostly are, no byte is lost between.
    alone.sort_by_key(|t| (std::cmp::Reverse(t.align), t.buffer));
    let mut end = 0u64;
    for tenant in &alone {
        let start = end.next_multiple_of(tenant.align);
        offsets[tenant.buffer.index()] = Some(start);
        end = start + tenant.bytes;
    }
    sharing.sort_by_key(|t| (t.from, std::cmp::Reverse(t.bytes), t.buffer));
    let mut arena = Arena::new(precedence, &sharing, end);
    for index in 0..sharing.len() as u32 {
        arena.release_before(sharing[index as usize].from);
        offsets[sharing[index as usize].buffer.index()] = Some(arena.place(index));
    }
    arena.end.max(least)
}
