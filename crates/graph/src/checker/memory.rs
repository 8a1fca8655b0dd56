//! No two buffers that may live at once share bytes.
//!
//! Two buffers may share bytes only if every user of one is complete before any user of the other starts, in the
//! guaranteed order. That relation is transitive, so it is enough to go through the buffers in the order of their
//! first users and to compare each with whoever holds its bytes at that moment: a map from bytes to holders, painted
//! over buffer by buffer.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::checker::Violation;
use crate::checker::reach::{By, GuaranteedOrder};
use crate::{BufferId, BufferRole, ComputeGraph, NodeId, Operands, Schedule, Space};

pub(super) fn check(graph: &ComputeGraph, schedule: &Schedule, found: &mut Vec<Violation>) {
    let users = users(graph);
    for index in graph.buffers().len()..schedule.memory.offsets.len() {
        let buffer = BufferId::from_index(index);
        if schedule.memory.offset(buffer).is_some() {
            found.push(Violation::UnknownBuffer { buffer });
        }
    }
    let mut placed: BTreeMap<Space, Vec<Tenant>> = BTreeMap::new();
    for (index, declared) in graph.buffers().iter().enumerate() {
        let buffer = BufferId::from_index(index);
        let offset = schedule.memory.offset(buffer);
        let used = !users[index].is_empty();
        match (declared.role, offset) {
            (BufferRole::Internal, None) if used && declared.bytes > 0 => {
                found.push(Violation::NoPlace { buffer });
            }
            (BufferRole::Internal, Some(offset)) => {
                let (align, space) = (declared.align, declared.space);
                if !offset.is_multiple_of(align) {
                    found.push(Violation::Misaligned { buffer, offset, align });
                }
                let bytes = schedule.memory.pools.get(&space).copied().unwrap_or(0);
                let end = offset.saturating_add(declared.bytes);
                if end > bytes {
                    found.push(Violation::OutsidePool { buffer, end, space, bytes });
                }
                if used && declared.bytes > 0 {
                    placed.entry(space).or_default().push(Tenant { buffer, offset, end });
                }
            }
            (_, Some(_)) if declared.role != BufferRole::Internal => {
                found.push(Violation::NotOurs { buffer });
            }
            _ => {}
        }
    }
    match GuaranteedOrder::new(graph, schedule) {
        Err(cycle) => found.push(cycle),
        Ok(order) => {
            for tenants in placed.into_values() {
                check_pool(&order, tenants, &users, found);
            }
        }
    }
}

/// The nodes that name each buffer, in creation order.
fn users(graph: &ComputeGraph) -> Vec<SmallVec<[NodeId; 4]>> {
    let mut users = vec![SmallVec::new(); graph.buffers().len()];
    let mut operands = Operands::new();
    for node in graph.node_ids() {
        operands.clear();
        graph.add_operands(node, &mut operands);
        for (region, _) in &operands {
            let users: &mut SmallVec<[NodeId; 4]> = &mut users[region.buffer.index()];
            if users.last() != Some(&node) {
                users.push(node);
            }
        }
    }
    users
}

/// A buffer and the bytes it holds.
#[derive(Clone, Copy)]
struct Tenant {
    buffer: BufferId,
    offset: u64,
    end: u64,
}

/// Asking about one hand-over at a time would cost a search each. Instead: paint as if every hand-over were right,
/// ask about all of them at once, and where some are wrong compare every pair that shares bytes.
fn check_pool(
    order: &GuaranteedOrder,
    mut tenants: Vec<Tenant>,
    users: &[SmallVec<[NodeId; 4]>],
    found: &mut Vec<Violation>,
) {
    let first_use = |t: &Tenant| {
        let positions = users[t.buffer.index()].iter().map(|&n| order.position(n));
        (positions.min().unwrap_or(0), t.buffer)
    };
    tenants.sort_unstable_by_key(first_use);
    let handed_over = hand_overs(&tenants);
    if unordered(order, &handed_over, users).is_empty() {
        return;
    }
    let wrong = unordered(order, &all_sharing(&tenants), users);
    found.extend(wrong.into_iter().map(|(first, second, early, late)| Violation::Shared {
        first,
        second,
        early,
        late,
    }));
}

/// Pairs (earlier, later) in which the later takes bytes over from the last holder.
fn hand_overs(tenants: &[Tenant]) -> Vec<(BufferId, BufferId)> {
    let mut pairs = Vec::new();
    let mut holders: BTreeMap<u64, Tenant> = BTreeMap::new();
    for &tenant in tenants {
        let below = holders.range(..tenant.offset).next_back().map(|(_, &t)| t);
        let mut cut: SmallVec<[Tenant; 4]> = smallvec![];
        cut.extend(below.filter(|t| t.end > tenant.offset));
        cut.extend(holders.range(tenant.offset..tenant.end).map(|(_, &t)| t));
        for old in cut {
            pairs.push((old.buffer, tenant.buffer));
            holders.remove(&old.offset);
            if old.offset < tenant.offset {
                holders.insert(old.offset, Tenant { end: tenant.offset, ..old });
            }
            if old.end > tenant.end {
                holders.insert(tenant.end, Tenant { offset: tenant.end, ..old });
            }
        }
        holders.insert(tenant.offset, tenant);
    }
    pairs
}

/// Every pair that shares a byte. Quadratic where many buffers share one place; only for schedules that are wrong,
/// and cut off at a number of pairs that leaves more violations than anyone reads.
fn all_sharing(tenants: &[Tenant]) -> Vec<(BufferId, BufferId)> {
    const MOST: usize = 1 << 20;
    let mut pairs = Vec::new();
    let mut by_offset: Vec<(usize, Tenant)> = tenants.iter().copied().enumerate().collect();
    by_offset.sort_unstable_by_key(|(rank, t)| (t.offset, *rank));
    for (at, &(rank, tenant)) in by_offset.iter().enumerate() {
        for &(other_rank, other) in &by_offset[at + 1..] {
            if other.offset >= tenant.end || pairs.len() >= MOST {
                break;
            }
            let (first, second) = if rank < other_rank { (tenant, other) } else { (other, tenant) };
            pairs.push((first.buffer, second.buffer));
        }
    }
    pairs
}

/// Of pairs of buffers, those with a user of the second that may start before a user of the first is complete.
fn unordered(
    order: &GuaranteedOrder,
    pairs: &[(BufferId, BufferId)],
    users: &[SmallVec<[NodeId; 4]>],
) -> Vec<(BufferId, BufferId, NodeId, NodeId)> {
    let ends = Ends::new(order, pairs, users);
    let crossing = |&(first, second): &(BufferId, BufferId)| {
        let (early, late) = (&ends.last[&first], &ends.first[&second]);
        early.iter().flat_map(move |&e| late.iter().map(move |&l| (e, l)))
    };
    let loose = order.unordered(pairs.iter().flat_map(crossing).collect(), By::Start);
    if loose.is_empty() {
        return Vec::new();
    }
    let loose: FxHashSet<(NodeId, NodeId)> = loose.into_iter().collect();
    let wrong = pairs.iter().filter_map(|pair| {
        let (early, late) = crossing(pair).find(|queried| loose.contains(queried))?;
        Some((pair.0, pair.1, early, late))
    });
    wrong.collect()
}

/// The users of a buffer that the others come after, and those that the others come before. Leaving out users that
/// are ordered against a neighbour or against the outermost one keeps the pairs to ask about few: one for a chain
/// of users, and for a writer with many readers as many as there are readers, not their square.
struct Ends {
    first: FxHashMap<BufferId, SmallVec<[NodeId; 4]>>,
    last: FxHashMap<BufferId, SmallVec<[NodeId; 4]>>,
}

impl Ends {
    fn new(
        order: &GuaranteedOrder,
        pairs: &[(BufferId, BufferId)],
        users: &[SmallVec<[NodeId; 4]>],
    ) -> Self {
        let mut sorted: FxHashMap<BufferId, SmallVec<[NodeId; 4]>> = FxHashMap::default();
        for buffer in pairs.iter().flat_map(|&(a, b)| [a, b]) {
            sorted.entry(buffer).or_insert_with(|| {
                let mut users = users[buffer.index()].clone();
                users.sort_unstable_by_key(|&user| order.position(user));
                users
            });
        }
        let neighbours = sorted.values().flat_map(|users| {
            let (first, last) = (users[0], users[users.len() - 1]);
            let steps = users.windows(2).map(|pair| (pair[0], pair[1]));
            let outermost = users.iter().flat_map(move |&u| [(first, u), (u, last)]);
            steps.chain(outermost).filter(|(a, b)| a != b)
        });
        let loose = order.unordered(neighbours.collect(), By::Start);
        let loose: FxHashSet<(NodeId, NodeId)> = loose.into_iter().collect();
        let before = |a: NodeId, b: NodeId| a != b && !loose.contains(&(a, b));
        let (mut first, mut last) = (FxHashMap::default(), FxHashMap::default());
        for (buffer, users) in sorted {
            let ends = users[0]..=users[users.len() - 1];
            let after_another = |at: usize| {
                before(*ends.start(), users[at]) || at > 0 && before(users[at - 1], users[at])
            };
            let before_another = |at: usize| {
                let next = users.get(at + 1);
                before(users[at], *ends.end()) || next.is_some_and(|&n| before(users[at], n))
            };
            let keep = |drop: &dyn Fn(usize) -> bool| {
                (0..users.len()).filter(|&at| !drop(at)).map(|at| users[at]).collect()
            };
            first.insert(buffer, keep(&after_another));
            last.insert(buffer, keep(&before_another));
        }
        Self { first, last }
    }
}
