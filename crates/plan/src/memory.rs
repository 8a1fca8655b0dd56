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

use std::collections::{BTreeMap, BTreeSet};

use phonograph_graph::{
    Access, BufferId, BufferRole, ComputeGraph, MemoryPlan, NodeId, NodeKind, Region, Space,
};
use smallvec::SmallVec;

use crate::error::PlanError;
use crate::precedence::Precedence;

/// The most bytes of all pools; what no machine has, but sums of it still fit.
pub(crate) const MAX_POOL_BYTES: u64 = 1 << 62;

/// Users that must be asked about to hand a buffer's bytes over, at most; with more it keeps its bytes for itself.
const MAX_ENDS: usize = 64;

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
        sizes.insert(space, place(&precedence, tenants, &mut offsets));
    }
    Ok(MemoryPlan { offsets, pools: sizes })
}

/// A buffer to be placed.
struct Tenant {
    buffer: BufferId,
    bytes: u64,
    align: u64,
    /// The users that none of the others is certainly before, and those that none is certainly after.
    first: SmallVec<[NodeId; 2]>,
    last: SmallVec<[NodeId; 2]>,
    /// Places of the first and the last user in topological order.
    from: u32,
    to: u32,
    /// Whether it may share bytes with others.
    shares: bool,
}

/// One operand of an internal buffer.
#[derive(Clone, Copy)]
struct Use {
    buffer: BufferId,
    node: NodeId,
    /// Place of the node in topological order.
    at: u32,
    region: Region,
    access: Access,
}

/// The internal buffers, in order of their ids.
fn tenants(graph: &ComputeGraph, precedence: &Precedence) -> Vec<Tenant> {
    let mut uses = Vec::new();
    // Whether a node allocates the buffer, and whether one frees it.
    let mut by_node = vec![(false, false); graph.buffers().len()];
    for (at, &node) in graph.topological_order().iter().enumerate() {
        match graph.node(node).kind {
            NodeKind::Alloc(buffer) => by_node[buffer.index()].0 = true,
            NodeKind::Free(buffer) => by_node[buffer.index()].1 = true,
            _ => {}
        }
        for (region, access) in graph.operands(node) {
            let buffer = region.buffer;
            if graph.buffer(buffer).role == BufferRole::Internal {
                uses.push(Use { buffer, node, at: at as u32, region, access });
            }
        }
    }
    uses.sort_by_key(|u| u.buffer); // stable: topological order for each buffer
    let mut uses = uses.chunk_by(|a, b| a.buffer == b.buffer).peekable();
    let buffers = graph.buffers().iter().enumerate();
    let internal = buffers.filter(|(_, declared)| declared.role == BufferRole::Internal);
    internal
        .map(|(index, declared)| {
            let buffer = BufferId::from_index(index);
            let uses = uses.next_if(|uses| uses[0].buffer == buffer).unwrap_or(&[]);
            let (first, last) = ends(precedence, uses);
            let outlives = by_node[index] == (true, false);
            Tenant {
                buffer,
                bytes: declared.bytes,
                align: declared.align,
                from: uses.first().map_or(0, |u| u.at),
                to: uses.last().map_or(0, |u| u.at),
                shares: !outlives
                    && first.len().max(last.len()) <= MAX_ENDS
                    && written_before_read(precedence, uses, declared.bytes),
                first,
                last,
            }
        })
        .collect()
}

type Ends = SmallVec<[NodeId; 2]>;

/// Leaves out users that are ordered against a neighbour or the outermost: what is wholly before all others is so
/// before these. O(users).
fn ends(precedence: &Precedence, uses: &[Use]) -> (Ends, Ends) {
    let mut users: Vec<NodeId> = uses.iter().map(|u| u.node).collect();
    users.dedup();
    let (Some(&front), Some(&back)) = (users.first(), users.last()) else {
        return Default::default();
    };
    let before = |a: NodeId, b: NodeId| precedence.before_start(a, b);
    let is_first =
        |&at: &usize| at == 0 || !before(front, users[at]) && !before(users[at - 1], users[at]);
    let is_last = |&at: &usize| {
        at + 1 == users.len() || !before(users[at], back) && !before(users[at], users[at + 1])
    };
    let all = 0..users.len();
    let first = all.clone().filter(is_first).map(|at| users[at]).collect();
    let last = all.filter(is_last).map(|at| users[at]).collect();
    (first, last)
}

/// Whether every byte read was certainly written before, in the same replay.
fn written_before_read(precedence: &Precedence, uses: &[Use], bytes: u64) -> bool {
    /// Pairs of a read and a write that are compared; beyond, the buffer counts as read before written.
    const MOST: usize = 4096;
    let Some(opening) = uses.first() else { return true };
    let whole = opening.access == Access::Write
        && opening.region.offset == 0
        && opening.region.end() >= bytes;
    let writes: SmallVec<[&Use; 8]> = uses.iter().filter(|u| u.access == Access::Write).collect();
    let mut compared = 0;
    for read in uses.iter().filter(|u| u.access.reads() && u.region.bytes > 0) {
        if whole && precedence.before_wait(opening.node, read.node) {
            continue;
        }
        compared += writes.len();
        if compared > MOST {
            return false;
        }
        let earlier = writes.iter().filter(|write| precedence.before_wait(write.node, read.node));
        let mut written: Vec<(u64, u64)> =
            earlier.map(|write| (write.region.offset, write.region.end())).collect();
        written.sort_unstable();
        let covered = written.iter().fold(read.region.offset, |covered, &(start, end)| {
            if start <= covered { covered.max(end) } else { covered }
        });
        if covered < read.region.end() {
            return false;
        }
    }
    true
}

/// Places the buffers of one pool; its size.
fn place(precedence: &Precedence, tenants: Vec<Tenant>, offsets: &mut [Option<u64>]) -> u64 {
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

/// Bytes of the arena from a segment's key on, up to `end`.
#[derive(Clone, Copy)]
struct Segment {
    end: u64,
    /// Who had them last, by place among the tenants; `None` for padding.
    occupant: Option<u32>,
}

/// A free segment. Of equal sizes the one longest out of use comes first: the most has come after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    size: u64,
    since: u32,
    start: u64,
}

impl Free {
    /// In front of all of this size.
    const fn of_size(size: u64) -> Self {
        Self { size, since: 0, start: 0 }
    }
}

/// A run of bytes in which a tenant fits.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
}

struct Arena<'a> {
    precedence: &'a Precedence<'a>,
    tenants: &'a [Tenant],
    /// All bytes from the arena's start to its end.
    segments: BTreeMap<u64, Segment>,
    end: u64,
    /// Segments whose occupants have had their last users: by the chain after the occupant …
    free_on: BTreeSet<(u32, Free)>,
    /// … and all.
    free: BTreeSet<Free>,
    /// Tenants by last user, and how many of them have been released.
    by_last: Vec<u32>,
    released: usize,
    /// Where each tenant was placed.
    start: Vec<u64>,
}

impl<'a> Arena<'a> {
    fn new(precedence: &'a Precedence<'a>, tenants: &'a [Tenant], start: u64) -> Self {
        let mut by_last: Vec<u32> = (0..tenants.len() as u32).collect();
        by_last.sort_by_key(|&t| (tenants[t as usize].to, t));
        Self {
            precedence,
            tenants,
            segments: BTreeMap::new(),
            end: start,
            free_on: BTreeSet::new(),
            free: BTreeSet::new(),
            by_last,
            released: 0,
            start: vec![0; tenants.len()],
        }
    }

    /// Frees the bytes of tenants whose last user comes before `place` in topological order.
    fn release_before(&mut self, place: u32) {
        while let Some(&tenant) = self.by_last.get(self.released)
            && self.tenants[tenant as usize].to < place
        {
            self.released += 1;
            // A live tenant's bytes are one segment: nobody could take a part of them.
            let start = self.start[tenant as usize];
            self.set_free(start, true);
        }
    }

    /// The chain on which the bytes of `tenant` can be taken over; `None` if never.
    fn chain_after(&self, tenant: u32) -> Option<u32> {
        let last = &self.tenants[tenant as usize].last;
        let mut chains = last.iter().map(|&node| self.precedence.chain_after(node));
        let all_go_on = chains.clone().all(|chain| chain.is_some());
        chains.next_back().flatten().filter(|_| all_go_on)
    }

    /// Lists the segment at `start` among the free ones, or takes it off.
    fn set_free(&mut self, start: u64, free: bool) {
        let Some(&Segment { end, occupant: Some(occupant) }) = self.segments.get(&start) else {
            return;
        };
        let Some(chain) = self.chain_after(occupant) else { return };
        let since = self.tenants[occupant as usize].to;
        let entry = Free { size: end - start, since, start };
        if free {
            self.free_on.insert((chain, entry));
            self.free.insert(entry);
        } else {
            self.free_on.remove(&(chain, entry));
            self.free.remove(&entry);
        }
    }

    fn is_free(&self, start: u64, Segment { end, occupant }: Segment) -> bool {
        occupant.is_some_and(|occupant| {
            let since = self.tenants[occupant as usize].to;
            self.free.contains(&Free { size: end - start, since, start })
        })
    }

    /// Places a tenant: its first byte.
    fn place(&mut self, tenant: u32) -> u64 {
        let Tenant { bytes, align, .. } = self.tenants[tenant as usize];
        let start = match self.find(tenant) {
            Some(run) => run.start.next_multiple_of(align),
            None => self.top(tenant).next_multiple_of(align),
        };
        if start > self.end {
            self.segments.insert(self.end, Segment { end: start, occupant: None });
        }
        self.occupy(start, start + bytes, tenant);
        self.end = self.end.max(start + bytes);
        self.start[tenant as usize] = start;
        start
    }

    /// The tightest run found among the candidates.
    fn find(&self, tenant: u32) -> Option<Run> {
        /// Candidates tried on each chain, and among all.
        const ON_CHAIN: usize = 32;
        const ON_ALL: usize = 128;
        let Tenant { bytes, ref first, .. } = self.tenants[tenant as usize];
        let mut chains: SmallVec<[u32; 8]> =
            first.iter().take(8).map(|&node| self.precedence.chain(node)).collect();
        chains.dedup();
        let fits = |free: &Free| self.fits(tenant, free.start, free.start + free.size);
        let on_chain = |&chain: &u32| {
            let range = self.free_on.range((chain, Free::of_size(bytes))..);
            let on_it = range.take_while(|(c, _)| *c == chain).map(|&(_, free)| free);
            on_it.take(ON_CHAIN).find(fits)
        };
        let on_all = || self.free.range(Free::of_size(bytes)..).take(ON_ALL).copied().find(fits);
        let tightest = chains.iter().filter_map(on_chain).min().or_else(on_all);
        if let Some(Free { size, start, .. }) = tightest {
            return Some(Run { start, end: start + size });
        }
        // Too small alone, but perhaps not with their neighbours.
        let smaller = |&chain: &u32| {
            let range =
                self.free_on.range((chain, Free::of_size(0))..(chain, Free::of_size(bytes)));
            let mut runs = range.rev().take(ON_CHAIN).map(|&(_, Free { size, start, .. })| {
                self.extend(tenant, Run { start, end: start + size })
            });
            runs.find(|run| self.fits(tenant, run.start, run.end))
        };
        chains.iter().find_map(smaller)
    }

    fn fits(&self, tenant: u32, start: u64, end: u64) -> bool {
        let Tenant { bytes, align, .. } = self.tenants[tenant as usize];
        let aligned = start.next_multiple_of(align);
        if aligned + bytes > end {
            return false;
        }
        let touched = self.segments.range(start..aligned + bytes);
        touched.into_iter().all(|(_, segment)| self.can_take(tenant, *segment))
    }

    /// Whether the last occupant is wholly before the tenant.
    fn can_take(&self, tenant: u32, segment: Segment) -> bool {
        let Some(occupant) = segment.occupant else { return true };
        let (old, new) = (&self.tenants[occupant as usize], &self.tenants[tenant as usize]);
        let ordered = |&a: &NodeId| new.first.iter().all(|&b| self.precedence.before_start(a, b));
        old.to < new.from && old.last.iter().all(ordered)
    }

    /// Adds neighbours that the tenant can take, first those above, then those below.
    fn extend(&self, tenant: u32, mut run: Run) -> Run {
        /// Neighbours looked at on each side.
        const MOST: usize = 8;
        let enough = |run: Run| self.fits(tenant, run.start, run.end);
        for (_, segment) in self.segments.range(run.end..).take(MOST) {
            if enough(run) || !self.can_take(tenant, *segment) {
                break;
            }
            run.end = segment.end;
        }
        for (&start, segment) in self.segments.range(..run.start).rev().take(MOST) {
            if enough(run) || !self.can_take(tenant, *segment) {
                break;
            }
            run.start = start;
        }
        run
    }

    /// Where the bytes begin that the tenant can take at the end of the arena, which may grow.
    fn top(&self, tenant: u32) -> u64 {
        /// Segments given up to.
        const MOST: usize = 8;
        let mut top = self.end;
        for (&start, segment) in self.segments.iter().rev().take(MOST) {
            let needed = top.next_multiple_of(self.tenants[tenant as usize].align);
            let grows = needed + self.tenants[tenant as usize].bytes > self.end;
            if !grows || !self.can_take(tenant, *segment) {
                break;
            }
            top = start;
        }
        top
    }

    /// Gives `start..end` to the tenant; what is cut off the segments there stays with their occupants.
    fn occupy(&mut self, start: u64, end: u64, tenant: u32) {
        let below = self.segments.range(..start).next_back().filter(|(_, s)| s.end > start);
        let from = below.map_or(start, |(&at, _)| at);
        let cut: SmallVec<[(u64, Segment); 8]> =
            self.segments.range(from..end).map(|(&at, &segment)| (at, segment)).collect();
        for (at, segment) in cut {
            let free = self.is_free(at, segment);
            self.set_free(at, false);
            self.segments.remove(&at);
            for (rest_start, rest_end) in [(at, start.min(segment.end)), (end.max(at), segment.end)]
            {
                if rest_start < rest_end {
                    self.segments.insert(rest_start, Segment { end: rest_end, ..segment });
                    if free {
                        self.set_free(rest_start, true);
                    }
                }
            }
        }
        self.segments.insert(start, Segment { end, occupant: Some(tenant) });
    }
}
