//! Places buffers in one pass, in the order of their first users: near-linear, for graphs of any size.
//!
//! Each buffer gets the tightest free run of bytes whose last occupants are wholly before it, extending the pool where there
//! is none. (An earlier occupant need not be asked: it is wholly before the last one, and the relation is transitive.)
//! Free bytes are kept by the chain of nodes that comes after their occupant, so that a few candidates on the
//! buffer's own chain are nearly always enough; a few from all chains are tried after them. Which nodes come after which
//! is looked up in a bounded index that is never wrongly sure, so a wide graph may share less than it could, never more.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::tenants::Tenant;
use crate::precedence::Precedence;

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
    /// Who had it last, by place among the tenants.
    occupant: u32,
}

impl Free {
    /// In front of all of this size.
    const fn of_size(size: u64) -> Self {
        Self { size, since: 0, start: 0, occupant: 0 }
    }
}

/// A run of bytes in which a tenant fits.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
}

pub(super) struct Arena<'a> {
    precedence: &'a Precedence<'a>,
    tenants: &'a [Tenant],
    /// All bytes from the arena's start to its end.
    segments: BTreeMap<u64, Segment>,
    pub end: u64,
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
    pub fn new(precedence: &'a Precedence<'a>, tenants: &'a [Tenant], start: u64) -> Self {
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
    pub fn release_before(&mut self, place: u32) {
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
        let entry = Free { size: end - start, since, start, occupant };
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
            self.free.contains(&Free { size: end - start, since, start, occupant })
        })
    }

    /// Places a tenant: its first byte.
    pub fn place(&mut self, tenant: u32) -> u64 {
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
        let Tenant { bytes, align, ref first, .. } = self.tenants[tenant as usize];
        let mut chains: SmallVec<[u32; 8]> =
            first.iter().take(8).map(|&node| self.precedence.chain(node)).collect();
        chains.dedup();
        // Within one segment there is one occupant to ask about.
        let fits = |free: &Free| {
            free.start.next_multiple_of(align) + bytes <= free.start + free.size
                && self.comes_after(tenant, free.occupant)
        };
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
        segment.occupant.is_none_or(|occupant| self.comes_after(tenant, occupant))
    }

    fn comes_after(&self, tenant: u32, occupant: u32) -> bool {
        self.tenants[occupant as usize].is_before(&self.tenants[tenant as usize], self.precedence)
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
