//! Trades concurrency for bytes: orders nodes that the graph does not, so that buffers fit within a limit.
//!
//! In: a graph, a limit, costs. Out: places within the limit, and *reuse edges*, after which every two buffers that share
//! bytes are wholly before each other. All reuse edges go forward in one topological order, so they close no cycle.
//!
//! Two orders are tried: the graph's own and one that always takes the ready node after which the least memory is live.
//! Run one node at a time in such an order, buffers are lifetimes, and the least memory for those is what the limit must
//! allow; if it does not, the limit is refused. Otherwise buffers are placed in the order's sequence: in bytes whose last
//! occupants are wholly before them, in new bytes up to the limit, and only then in bytes whose occupants are merely done
//! by then, those first that keep the new one waiting least. Where that leaves no room the placement of the lifetimes is
//! taken. The edges are those that its hand-overs need.
//!
//! O(buffers · occupants of bytes) and the search for the lifetimes.

use std::collections::{BTreeMap, BTreeSet};

use phonograph_graph::{Buffer, BufferId, BufferRole, ComputeGraph, MemoryPlan, NodeId, Space};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::lifetimes::{Lifetime, Lifetimes};
use super::pool::Sorted;
use super::tenants::{Sharing, Tenant};
use super::{Budget, MemoryOptions, MemoryReport, Price, by_space, place};
use crate::error::PlanError;
use crate::precedence::Precedence;

/// A plan within `limit` bytes, from one that needs more.
pub(super) fn within(
    graph: &ComputeGraph,
    precedence: &Precedence<'_>,
    limit: u64,
    concurrent: &MemoryReport,
    options: &MemoryOptions<'_>,
) -> Result<MemoryReport, PlanError> {
    let bytes_before = concurrent.memory.pool_bytes();
    let orders = [graph.topological_order().to_vec(), frugal_order(graph)];
    let mut best: Option<MemoryReport> = None;
    let mut reached = bytes_before;
    for order in orders {
        let mut times = Times::new(graph, &order, options.costs);
        let before = times.critical_path();
        let serial = Serial::new(graph, precedence, &order, options.steps)?;
        reached = reached.min(serial.pools.iter().map(|pool| pool.bytes).sum());
        let Some(memory) = serial.place(precedence, limit, concurrent, &mut times) else {
            continue;
        };
        let price = Some(Price { before, after: times.critical_path(), bytes_before });
        let edges = times.reuse.iter().flat_map(|(&to, from)| from.iter().map(move |&f| (f, to)));
        let mut reuse: Vec<(NodeId, NodeId)> = edges.collect();
        reuse.sort_unstable();
        let cost = |report: &MemoryReport| {
            (report.price.map(|price| price.after), report.reuse.len(), report.memory.pool_bytes())
        };
        let (lower_bound, complete) = (concurrent.lower_bound, false);
        let inner = BTreeMap::new();
        let report = MemoryReport { memory, reuse, lower_bound, complete, price, inner };
        if best.as_ref().is_none_or(|best| cost(&report) < cost(best)) {
            best = Some(report);
        }
    }
    best.ok_or_else(|| {
        let lower_bound = least_in_any_order(graph, precedence);
        PlanError::MemoryLimit { limit, reached, lower_bound }
    })
}

/// What any plan needs, whatever order it adds: in each pool what shares with nothing, and all that one node names.
fn least_in_any_order(graph: &ComputeGraph, precedence: &Precedence<'_>) -> u64 {
    let pools = by_space(graph, precedence, graph.topological_order());
    let mut may_share = vec![false; graph.buffers().len()];
    let mut fixed: BTreeMap<Space, u64> = BTreeMap::new();
    for (&space, tenants) in &pools {
        for tenant in tenants {
            match tenant.shares {
                Sharing::Forbidden => *fixed.entry(space).or_default() += tenant.bytes,
                Sharing::Allowed | Sharing::Unknown => may_share[tenant.buffer.index()] = true,
            }
        }
    }
    let mut most: BTreeMap<Space, u64> = BTreeMap::new();
    for node in graph.node_ids() {
        let mut named: SmallVec<[BufferId; 8]> = graph
            .operands(node)
            .iter()
            .map(|(region, _)| region.buffer)
            .filter(|buffer| may_share[buffer.index()])
            .collect();
        named.sort_unstable();
        named.dedup();
        let mut sums: BTreeMap<Space, u64> = BTreeMap::new();
        for buffer in named {
            let Buffer { space, bytes, .. } = *graph.buffer(buffer);
            *sums.entry(space).or_default() += bytes;
        }
        for (space, bytes) in sums {
            let most = most.entry(space).or_default();
            *most = bytes.max(*most);
        }
    }
    fixed.values().sum::<u64>() + most.values().sum::<u64>()
}

/// When each node starts and is done, with as many streams as wanted, as far along an order as is known.
pub(super) struct Times<'a> {
    graph: &'a ComputeGraph,
    /// A topological order of the graph's edges and the reuse edges.
    order: &'a [NodeId],
    costs: &'a [u64],
    /// Reuse edges, by their later node.
    reuse: FxHashMap<NodeId, SmallVec<[NodeId; 2]>>,
    done: Vec<u64>,
    /// How many nodes of the order are done.
    known: u32,
}

impl<'a> Times<'a> {
    fn new(graph: &'a ComputeGraph, order: &'a [NodeId], costs: &'a [u64]) -> Self {
        let done = vec![0; graph.node_count()];
        Self { graph, order, costs, reuse: FxHashMap::default(), done, known: 0 }
    }

    /// When the last of the nodes is done that `node` comes after.
    fn start(&self, node: NodeId) -> u64 {
        let added = self.reuse.get(&node).into_iter().flatten();
        let before = self.graph.predecessors(node).iter().chain(added);
        before.map(|from| self.done[from.index()]).max().unwrap_or(0)
    }

    /// Lets all nodes before a place in the order run.
    fn run_to(&mut self, place: u32) {
        while self.known < place {
            let node = self.order[self.known as usize];
            let cost = self.costs.get(node.index()).copied().unwrap_or(1);
            self.done[node.index()] = self.start(node).saturating_add(cost);
            self.known += 1;
        }
    }

    fn critical_path(&mut self) -> u64 {
        self.known = 0;
        self.run_to(self.order.len() as u32);
        self.done.iter().copied().max().unwrap_or(0)
    }

    /// Orders every user of `old` before every user of `new`.
    fn order(&mut self, precedence: &Precedence<'_>, old: &Tenant, new: &Tenant) {
        for &late in &new.first {
            let added = self.reuse.entry(late).or_default();
            for &early in &old.last {
                let before = |from: NodeId| precedence.before_start(early, from);
                if !before(late) && !added.iter().any(|&from| from == early || before(from)) {
                    added.retain(|from| !precedence.before_start(*from, early));
                    added.push(early);
                }
            }
        }
    }
}

/// One pool, run in one order.
struct SerialPool {
    space: Space,
    sorted: Sorted,
    /// Where the sharing buffers lie as lifetimes, and what the pool then needs.
    offsets: Vec<u64>,
    bytes: u64,
}

/// All pools, run in one order.
struct Serial {
    buffers: usize,
    pools: Vec<SerialPool>,
}

impl Serial {
    fn new(
        graph: &ComputeGraph,
        precedence: &Precedence<'_>,
        order: &[NodeId],
        steps: u64,
    ) -> Result<Self, PlanError> {
        let pools = by_space(graph, precedence, order).into_iter().map(|(space, tenants)| {
            let sorted = Sorted::new(tenants);
            let (start, least) = sorted.place_fixed(&mut vec![None; graph.buffers().len()]);
            let sharing = &sorted.sharing;
            let align = sharing.iter().map(|t| t.align).max().unwrap_or(1);
            let base = start.next_multiple_of(align);
            let live = |t: &Tenant| Lifetime {
                lower: i64::from(t.from),
                upper: i64::from(t.to) + 1,
                bytes: t.bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX),
            };
            // Only padding to a huge alignment can make them too large.
            let lifetimes = Lifetimes::new(sharing.iter().map(live).collect()).map_err(|_| {
                let what = "memory for internal buffers with their alignment";
                PlanError::TooLarge { what, bytes: u64::MAX }
            })?;
            let mut stop = || false;
            let placement = place(&lifetimes, None, &mut Budget::new(steps, &mut stop));
            let offsets: Vec<u64> = placement.offsets.iter().map(|at| base + at).collect();
            let ends = offsets.iter().zip(sharing).map(|(at, t)| at + t.bytes);
            let bytes = ends.max().unwrap_or(0).max(least);
            Ok::<_, PlanError>(SerialPool { space, sorted, offsets, bytes })
        });
        Ok(Self { buffers: graph.buffers().len(), pools: pools.collect::<Result<_, PlanError>>()? })
    }

    /// Places within the limit, with the order that they need added to `times`; `None` if the limit is too low.
    fn place(
        &self,
        precedence: &Precedence<'_>,
        limit: u64,
        concurrent: &MemoryReport,
        times: &mut Times<'_>,
    ) -> Option<MemoryPlan> {
        let needed: u64 = self.pools.iter().map(|pool| pool.bytes).sum();
        let mut spare = limit.checked_sub(needed)?;
        let mut offsets = vec![None; self.buffers];
        let mut sizes = BTreeMap::new();
        for pool in &self.pools {
            let sharing = &pool.sorted.sharing;
            let wanted = concurrent.memory.pools.get(&pool.space).copied().unwrap_or(0);
            let more = wanted.saturating_sub(pool.bytes).min(spare);
            let cap = pool.bytes + more;
            let (start, least) = pool.sorted.place_fixed(&mut offsets);
            let known = times.reuse.clone();
            times.known = 0;
            let capped = place_under(
                cap,
                start,
                precedence,
                sharing,
                Some(&mut *times),
                &mut Budget::new(u64::MAX, &mut || false),
            );
            if capped.is_none() {
                times.reuse = known;
                for (old, new) in hand_overs(sharing, &pool.offsets) {
                    times.order(precedence, &sharing[old as usize], &sharing[new as usize]);
                }
            }
            let placed = capped.as_ref().unwrap_or(&pool.offsets);
            let ends = placed.iter().zip(sharing).map(|(at, t)| at + t.bytes);
            let bytes = ends.max().unwrap_or(0).max(least);
            spare -= bytes.saturating_sub(pool.bytes);
            sizes.insert(pool.space, bytes);
            for (tenant, &at) in sharing.iter().zip(placed) {
                offsets[tenant.buffer.index()] = Some(at);
            }
        }
        Some(MemoryPlan { offsets, pools: sizes })
    }
}

/// Bytes up to `end` and their last occupant, by place among the tenants.
#[derive(Clone, Copy)]
struct Held {
    end: u64,
    by: Option<u32>,
}

/// Which tenant has which bytes.
struct Holders {
    held: BTreeMap<u64, Held>,
}

impl Holders {
    fn new(start: u64, end: u64) -> Self {
        let mut held = BTreeMap::new();
        if start < end {
            held.insert(start, Held { end, by: None });
        }
        Self { held }
    }

    /// Gives bytes to a tenant; those that had some of them.
    fn take(&mut self, start: u64, end: u64, tenant: u32) -> SmallVec<[u32; 4]> {
        let below = self.held.range(..start).next_back().filter(|(_, held)| held.end > start);
        let from = below.map_or(start, |(&at, _)| at);
        let cut: SmallVec<[(u64, Held); 4]> =
            self.held.range(from..end).map(|(&at, &held)| (at, held)).collect();
        for &(at, held) in &cut {
            self.held.remove(&at);
            if at < start {
                self.held.insert(at, Held { end: start, ..held });
            }
            if held.end > end {
                self.held.insert(end, held);
            }
        }
        self.held.insert(start, Held { end, by: Some(tenant) });
        cut.into_iter().filter_map(|(_, held)| held.by).collect()
    }
}

/// Pairs (earlier, later) in which the later takes bytes over. Tenants are in the order of their first users.
fn hand_overs(sharing: &[Tenant], offsets: &[u64]) -> Vec<(u32, u32)> {
    let mut holders = Holders::new(0, 0);
    let mut pairs = Vec::new();
    for ((index, tenant), &at) in (0u32..).zip(sharing).zip(offsets) {
        let old = holders.take(at, at + tenant.bytes, index);
        pairs.extend(old.into_iter().map(|old| (old, index)));
    }
    pairs
}

/// Places tenants one after another below `cap`, each in the lowest bytes below all others' end that it need not wait for, or
/// in new ones. Only where `times` is given may it wait for nodes that the graph does not order, which are then ordered; it
/// does so where it waits least. `None` if one finds no room, or the budget runs out.
pub(super) fn place_under(
    cap: u64,
    start: u64,
    precedence: &Precedence<'_>,
    sharing: &[Tenant],
    mut times: Option<&mut Times<'_>>,
    budget: &mut Budget<'_>,
) -> Option<Vec<u64>> {
    /// Occupants whose bytes one tenant takes over, at most.
    const MOST: usize = 64;
    /// Occupants looked at in about a step's time.
    const A_STEP: usize = 64;
    let mut holders = Holders::new(start, cap);
    let mut top = start;
    let mut offsets = Vec::with_capacity(sharing.len());
    let mut segments: Vec<(u64, Held)> = Vec::new();
    let mut waits: Vec<Option<Option<u64>>> = Vec::new();
    for (index, tenant) in (0u32..).zip(sharing) {
        if !budget.spend(1 + (holders.held.len() / A_STEP) as u64) {
            return None;
        }
        let due = match &mut times {
            Some(times) => {
                times.run_to(tenant.from);
                tenant.first.first().map_or(0, |&node| times.start(node))
            }
            None => 0,
        };
        // How long the tenant waits for a segment's occupant; `None` if it cannot have those bytes.
        let wait_for = |held: &Held| match held.by.map(|old| &sharing[old as usize]) {
            None => Some(0),
            Some(old) if old.to >= tenant.from => None,
            Some(old) if old.is_before(tenant, precedence) => Some(0),
            Some(old) => times.as_deref().map(|times| {
                let done = old.last.iter().map(|n| times.done[n.index()]).max();
                1 + done.unwrap_or(0).saturating_sub(due)
            }),
        };
        segments.clear();
        segments.extend(holders.held.iter().map(|(&at, &held)| (at, held)));
        waits.clear();
        waits.resize(segments.len(), None);
        let mut best: Option<((u64, u64, u64), u64)> = None;
        for (from, &(low, _)) in segments.iter().enumerate() {
            let at = low.next_multiple_of(tenant.align);
            let end = at + tenant.bytes;
            let mut wait = 0;
            let mut reach = low;
            for place in from..segments.len().min(from + MOST) {
                let held = &segments[place].1;
                let Some(own) = *waits[place].get_or_insert_with(|| wait_for(held)) else { break };
                wait = wait.max(own);
                reach = held.end;
                if reach >= end {
                    break;
                }
            }
            if reach < end {
                continue;
            }
            let rank = (wait, end.saturating_sub(top), reach - low);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, at));
            }
            if rank.0 == 0 && rank.1 == 0 {
                break;
            }
        }
        let (_, at) = best?;
        for old in holders.take(at, at + tenant.bytes, index) {
            if let Some(times) = &mut times {
                times.order(precedence, &sharing[old as usize], tenant);
            }
        }
        top = top.max(at + tenant.bytes);
        offsets.push(at);
    }
    Some(offsets)
}

/// A topological order that always takes the ready node after which the least memory is live. O(operands · log nodes).
fn frugal_order(graph: &ComputeGraph) -> Vec<NodeId> {
    let mut users: Vec<SmallVec<[NodeId; 4]>> = vec![SmallVec::new(); graph.buffers().len()];
    for node in graph.node_ids() {
        for (region, _) in graph.operands(node) {
            let own = &mut users[region.buffer.index()];
            let internal = graph.buffer(region.buffer).role == BufferRole::Internal;
            if internal && own.last() != Some(&node) {
                own.push(node);
            }
        }
    }
    let mut buffers_of: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); graph.node_count()];
    // What running the node now adds to the memory that is live.
    let mut adds = vec![0i64; graph.node_count()];
    let mut left: Vec<usize> = users.iter().map(|users| users.len()).collect();
    let bytes = |buffer: usize| graph.buffers()[buffer].bytes as i64;
    for (buffer, users) in users.iter().enumerate() {
        for node in users {
            buffers_of[node.index()].push(buffer as u32);
            adds[node.index()] += if users.len() > 1 { bytes(buffer) } else { 0 };
        }
    }
    let mut missing: Vec<usize> =
        graph.node_ids().map(|node| graph.predecessors(node).len()).collect();
    let mut ready: BTreeSet<(i64, NodeId)> = graph
        .node_ids()
        .filter(|node| missing[node.index()] == 0)
        .map(|node| (adds[node.index()], node))
        .collect();
    let mut done = vec![false; graph.node_count()];
    let mut order = Vec::with_capacity(graph.node_count());
    while let Some((_, node)) = ready.pop_first() {
        order.push(node);
        done[node.index()] = true;
        for &buffer in &buffers_of[node.index()] {
            let buffer = buffer as usize;
            let opens = left[buffer] == users[buffer].len();
            left[buffer] -= 1;
            let closes = left[buffer] == 1;
            if !opens && !closes {
                continue;
            }
            // Its bytes are live from now on; whoever is its last user will free them.
            let change = -bytes(buffer) * (i64::from(opens) + i64::from(closes));
            for user in users[buffer].iter().filter(|user| !done[user.index()]) {
                let was = (adds[user.index()], *user);
                adds[user.index()] += change;
                if ready.remove(&was) {
                    ready.insert((adds[user.index()], *user));
                }
            }
        }
        for &next in graph.successors(node) {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                ready.insert((adds[next.index()], next));
            }
        }
    }
    order
}
