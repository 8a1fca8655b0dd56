//! Places the buffers of one memory space.
//!
//! In: tenants. Out: offsets, the pool's size, and what any plan needs. First the one-pass arena, near-linear. Where that
//! is above the simple lower bound, the lowest fit for each buffer in turn; and if the pool is small enough for all pairs:
//! the exact bound, and then the complete search if the order of the buffers is an interval order, else first fit in
//! several orders and local search over them.

use std::cmp::Reverse;

use phonograph_graph::NodeId;

use super::arena::Arena;
use super::bound::{fullest_moment, heaviest_antichain};
use super::first_fit::{Conflicts, Item};
use super::local::{Placed, best_order, improve};
use super::niche::{Layout, Piece};
use super::order::BufferOrder;
use super::place::search;
use super::serial::place_under;
use super::tenants::{Sharing, Tenant};
use super::{Bound, BoundKind, Budget};
use crate::precedence::Precedence;

/// Buffers of a pool up to which pairs are compared.
const MAX_PAIRED: usize = 4096;

/// The plan of one pool.
pub(super) struct Pool {
    pub bytes: u64,
    pub bound: Bound,
    /// Whether no other plan is smaller.
    pub least: bool,
}

/// The tenants of a pool, by what can be done with them.
pub(super) struct Sorted {
    /// What no node names: lies over whatever is there.
    pub unused: Vec<Tenant>,
    /// What shares with nothing.
    pub alone: Vec<Tenant>,
    /// What may share, by first user.
    pub sharing: Vec<Tenant>,
}

impl Sorted {
    pub fn new(tenants: Vec<Tenant>) -> Self {
        let (unused, used): (Vec<Tenant>, Vec<Tenant>) =
            tenants.into_iter().partition(|t| t.first.is_empty() || t.bytes == 0);
        let (mut sharing, mut alone): (Vec<Tenant>, Vec<Tenant>) =
            used.into_iter().partition(|t| t.shares == Sharing::Allowed);
        // Strictest alignment first: with sizes that are multiples of it, as they mostly are, no byte is lost between.
        alone.sort_by_key(|t| (Reverse(t.align), t.buffer));
        sharing.sort_by_key(|t| (t.from, Reverse(t.bytes), t.buffer));
        Self { unused, alone, sharing }
    }

    /// Gives a place to what does not share: where the others' bytes begin, and the least size of the pool.
    pub fn place_fixed(&self, offsets: &mut [Option<u64>]) -> (u64, u64) {
        let mut least = 0;
        for tenant in &self.unused {
            offsets[tenant.buffer.index()] = Some(0);
            least = least.max(tenant.bytes);
        }
        let mut end = 0u64;
        for tenant in &self.alone {
            let start = end.next_multiple_of(tenant.align);
            offsets[tenant.buffer.index()] = Some(start);
            end = start + tenant.bytes;
        }
        (end, least.max(end))
    }

    /// Bytes that any plan needs, from numberings of the nodes that go up along their order. O(tenants · numberings).
    pub fn level_bound(&self, numberings: &[Vec<u32>]) -> u64 {
        let numbers = |nodes: &[NodeId], numbering: &[u32]| -> Vec<u32> {
            nodes.iter().map(|node| numbering[node.index()]).collect()
        };
        let forbidden = |t: &&Tenant| t.shares == Sharing::Forbidden;
        let fixed: u64 = self.alone.iter().filter(forbidden).map(|t| t.bytes).sum();
        let shared = numberings.iter().map(|numbering| {
            let moving = self.sharing.iter().chain(self.alone.iter().filter(|t| !forbidden(t)));
            let spans = moving.filter_map(|t| {
                let first = numbers(&t.first, numbering).into_iter().min()?;
                let last = numbers(&t.last, numbering).into_iter().max()?;
                Some((first, last, t.bytes))
            });
            fullest_moment(spans, numbering.len())
        });
        let unused = self.unused.iter().map(|t| t.bytes).max().unwrap_or(0);
        (fixed + shared.max().unwrap_or(0)).max(unused)
    }
}

/// Places the buffers of one pool.
pub(super) fn plan(
    precedence: &Precedence<'_>,
    tenants: Vec<Tenant>,
    numberings: &[Vec<u32>],
    budget: &mut Budget<'_>,
    offsets: &mut [Option<u64>],
) -> Pool {
    let sorted = Sorted::new(tenants);
    let (start, least) = sorted.place_fixed(offsets);
    let sharing = &sorted.sharing;
    let mut best = in_one_pass(precedence, sharing, start);
    let level = sorted.level_bound(numberings);
    let mut bound = Bound { bytes: level, kind: BoundKind::Level };
    let mut complete = best.peak.max(least) <= level;
    if !complete {
        // Slower, but it looks at all bytes for each buffer, not at a few candidates.
        let quarter = budget.left() / 4;
        let mut part = budget.part(quarter);
        let lower = place_under(best.peak - 1, start, precedence, sharing, None, &mut part);
        if let Some(offsets) = lower {
            let ends = offsets.iter().zip(sharing).map(|(at, t)| at + t.bytes);
            let peak = ends.max().unwrap_or(start);
            best = Placed { offsets, peak };
            complete = best.peak.max(least) <= level;
        }
    }
    if !complete && sharing.len() <= MAX_PAIRED && precedence.is_exact() {
        let order = BufferOrder::new(precedence, sharing, budget);
        if let Some(order) = order {
            let weights: Vec<u64> = sharing.iter().map(|t| t.bytes).collect();
            let half = budget.left() / 2;
            let heaviest = heaviest_antichain(&weights, &order.after, &mut budget.part(half));
            if let Some(bytes) = heaviest {
                let forbidden = sorted.alone.iter().filter(|t| t.shares == Sharing::Forbidden);
                let fixed: u64 = forbidden.map(|t| t.bytes).sum();
                let bytes = (fixed + bytes).max(level);
                bound = Bound { bytes, kind: BoundKind::Antichain };
            }
            let (better, tried_all) = refine(sharing, &order, start, bound.bytes, best, budget);
            best = better;
            complete = tried_all || best.peak.max(least) <= bound.bytes;
        }
    }
    for (tenant, &offset) in sharing.iter().zip(&best.offsets) {
        offsets[tenant.buffer.index()] = Some(offset);
    }
    let bytes = best.peak.max(least);
    if bytes == bound.bytes {
        bound.kind = BoundKind::Antichain; // no antichain is heavier than a plan, and this bound is one's weight
    }
    Pool { bytes, bound, least: complete }
}

/// One pass in the order of first users, above `start`.
fn in_one_pass(precedence: &Precedence<'_>, sharing: &[Tenant], start: u64) -> Placed {
    let mut arena = Arena::new(precedence, sharing, start);
    let offsets = (0..sharing.len() as u32).map(|index| {
        arena.release_before(sharing[index as usize].from);
        arena.place(index)
    });
    let offsets = offsets.collect();
    Placed { offsets, peak: arena.end }
}

/// Searches for a better placement than `best`: it, and whether every placement below it was tried.
fn refine(
    sharing: &[Tenant],
    order: &BufferOrder,
    start: u64,
    enough: u64,
    best: Placed,
    budget: &mut Budget<'_>,
) -> (Placed, bool) {
    if best.peak <= enough || budget.is_spent() {
        return (best, false);
    }
    let align = sharing.iter().map(|t| t.align).max().unwrap_or(1);
    let base = start.next_multiple_of(align);
    // Ends of bytes, not of padding, count.
    let raise = |offsets: Vec<u64>, unit: u64| {
        let offsets: Vec<u64> = offsets.iter().map(|at| base + at * unit).collect();
        let ends = offsets.iter().zip(sharing).map(|(at, t)| at + t.bytes);
        let peak = ends.max().unwrap_or(start);
        Placed { offsets, peak }
    };
    let room = enough.saturating_sub(base);
    if let Some((spans, sections)) = order.spans()
        && sharing.iter().all(|t| t.align == align)
    {
        let size = |t: &Tenant| t.bytes.div_ceil(align);
        let piece = |(&span, t)| Piece { span, size: size(t) };
        let pieces: Vec<Piece> = spans.iter().zip(sharing).map(piece).collect();
        let packs = sharing.iter().all(|t| t.bytes.is_multiple_of(align)) && base == start;
        if Layout::area(&pieces) <= super::place::SEARCHED {
            let above = best.peak.saturating_sub(base).div_ceil(align);
            // What search improves on; it is not looked at where the search finds nothing lower.
            let known = Placed { offsets: Vec::new(), peak: above };
            let layout = Layout::new(pieces, sections);
            let (found, all) = search(&layout, room.div_ceil(align), known, budget);
            let tried_all = all && packs;
            return match found.offsets.is_empty() {
                true => (best, tried_all),
                false => (best.better(raise(found.offsets, align)), tried_all),
            };
        }
    }
    let items: Vec<Item> =
        sharing.iter().map(|t| Item { bytes: t.bytes, align: t.align }).collect();
    let conflicts = order.conflicts();
    let ordered = best_order(&items, &conflicts, orders(sharing, &conflicts), room, budget);
    let Some((placed, order)) = ordered else { return (best, false) };
    let found = improve(&items, &conflicts, order, placed, room, budget);
    (best.better(raise(found.offsets, 1)), false)
}

/// Orders in which first fit does well.
fn orders(sharing: &[Tenant], conflicts: &Conflicts) -> Vec<Vec<u32>> {
    let crowd = |index: u32| match conflicts {
        Conflicts::Lists { start, others } => {
            let range = start[index as usize] as usize..start[index as usize + 1] as usize;
            let bytes = |&other: &u32| sharing[other as usize].bytes;
            others[range].iter().map(bytes).sum::<u64>()
        }
        Conflicts::Spans(_) => 0,
    };
    let length = |t: &Tenant| u64::from(t.to - t.from) + 1;
    (0..4)
        .map(|kind| {
            let mut order: Vec<u32> = (0..sharing.len() as u32).collect();
            order.sort_by_cached_key(|&index| {
                let tenant = &sharing[index as usize];
                let key = match kind {
                    0 => [tenant.bytes, length(tenant)],
                    1 => [tenant.bytes.saturating_mul(length(tenant)), 0],
                    2 => [crowd(index), tenant.bytes],
                    _ => [length(tenant), tenant.bytes],
                };
                (Reverse(key), index)
            });
            order
        })
        .collect()
}
