//! Issue order and lane of every task, for backends that run a fixed schedule on a fixed team of workers.
//!
//! In: for each task its predecessors and its cost, the number of lanes, and what it costs to hand a dependency from one
//! lane to another. Out: a topological order, and a lane for each task; each lane keeps the order. The result depends
//! on the input alone.
//!
//! 1. *Chains.* A task whose only predecessor has it as only successor joins that predecessor: they are placed as one,
//!    unless they get too long to balance the lanes with.
//! 2. *Levels.* A first-in-first-out topological sort orders chains by level and inside a level by their last
//!    predecessor. Each level is cut into contiguous parts of equal cost, one a lane, or fewer so that no part is shorter
//!    than a hand-over; a level of one part stays on the lane of its first predecessor. This keeps neighbours together
//!    and hands over only at the cuts.
//! 3. *List.* If chains are on average as long as a hand-over or longer, they are also scheduled one by one: the ready
//!    chain with the longest path to the end goes to the lane on which it can start first, a hand-over counted wherever a
//!    predecessor ran elsewhere (upward rank after HEFT: Topcuoglu, Hariri and Wu, 2002, but without insertion). Equals
//!    stay with the predecessor that they wait for. This balances uneven branches, but hands over anywhere: of the two,
//!    the one with the lower price is taken, which is the simulated makespan and what the hand-overs cost the lanes.
//!
//! Cost: linear in tasks and edges for fine graphs; for coarse ones two heap operations and a look at each lane more for
//! every chain. Scratch is about 60 bytes a task and 8 an edge.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::num::NonZeroU32;
use std::ops::Range;

use phonograph_graph::MAX_STREAMS;
use rustc_hash::FxHashSet;
use thiserror::Error;

/// A lane: what one worker runs, one task at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// What [`assign_lanes`] works on. Task `t` has the predecessors `targets[offsets[t]..offsets[t + 1]]`.
#[derive(Clone, Copy, Debug)]
pub struct LaneInput<'a> {
    /// One more than there are tasks, from 0 to the number of edges, never falling.
    pub offsets: &'a [u32],
    /// The predecessors of all tasks; the same one twice is allowed.
    pub targets: &'a [u32],
    /// What each task costs, in nanoseconds or any other unit.
    pub cost: &'a [u64],
    /// How many lanes there are: 1 to [`MAX_LANES`].
    pub lanes: u32,
    /// What it costs, in the same unit, until a task can start after its predecessor ended on another lane.
    pub handover: u64,
}

/// The most lanes.
pub const MAX_LANES: u32 = MAX_STREAMS;

/// An issue order and the lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// All tasks, each after its predecessors.
    pub order: Vec<u32>,
    /// The lane of each task, by task (not by position in the order).
    pub lane: Vec<LaneId>,
    /// Progress of a lane may be published this many tasks at a time: even the most expensive tasks are no longer, so
    /// many together, than a hand-over. 1 if one of them is longer alone.
    pub grain: NonZeroU32,
}

/// Why tasks could not be assigned to lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LanesError {
    /// There are between one and [`MAX_LANES`] lanes.
    #[error("there are 1 to {MAX_LANES} lanes, not {lanes}")]
    LaneCount {
        /// The number that was asked for.
        lanes: u32,
    },
    /// There must be one more offset than costs.
    #[error("{offsets} offsets do not fit {costs} costs; there must be one more")]
    Lengths {
        /// How many offsets were given.
        offsets: usize,
        /// How many costs were given.
        costs: usize,
    },
    /// The offsets fall at a task, or the first isn't 0, or the last isn't the number of targets.
    #[error("the offsets of task {task} do not delimit a part of the {targets} targets")]
    Offsets {
        /// The task.
        task: usize,
        /// How many targets were given.
        targets: usize,
    },
    /// A task names a predecessor that doesn't exist.
    #[error("task {task} has the predecessor {predecessor}, but there are {tasks} tasks")]
    UnknownTask {
        /// The task.
        task: u32,
        /// The predecessor that it names.
        predecessor: u32,
        /// How many tasks there are.
        tasks: usize,
    },
    /// The task is on a cycle, or behind one.
    #[error("task {task} cannot be ordered: it is on a cycle or behind one")]
    Cycle {
        /// The lowest of these tasks.
        task: u32,
    },
    /// Task ids are 32 bits wide.
    #[error("{tasks} tasks are more than {} can be numbered", u32::MAX)]
    TooManyTasks {
        /// How many costs were given.
        tasks: usize,
    },
}

/// Orders tasks and assigns each to a lane. See the [module](self) for the method and its cost.
///
/// ```
/// use phonograph_plan::lanes::{LaneId, LaneInput, assign_lanes};
///
/// // 0 forks into 1 and 2, which 3 joins.
/// let lanes = assign_lanes(LaneInput {
///     offsets: &[0, 0, 1, 2, 4],
///     targets: &[0, 0, 1, 2],
///     cost: &[5_000, 40_000, 30_000, 5_000],
///     lanes: 2,
///     handover: 500,
/// })?;
/// assert_eq!(lanes.order, [0, 1, 2, 3]);
/// assert_eq!(lanes.lane, [LaneId(0), LaneId(0), LaneId(1), LaneId(0)]);
/// # Ok::<(), phonograph_plan::lanes::LanesError>(())
/// ```
///
/// # Errors
/// [`LanesError`]: slices that do not fit together, an unknown task, a cycle.
pub fn assign_lanes(input: LaneInput<'_>) -> Result<Lanes, LanesError> {
    let (chains, mut placed) = place(&input)?;
    let price = |placed: &Placed| price(&chains, placed, input.lanes, input.handover);
    let best = match &placed[..] {
        [cut, listed] if price(listed) <= price(cut) => 1,
        _ => 0,
    };
    Ok(finish(&input, &chains, placed.swap_remove(best)))
}

/// Everything that [`assign_lanes`] chooses from, for callers that know better what to pay for.
///
/// # Errors
/// As for [`assign_lanes`].
pub fn lane_candidates(input: LaneInput<'_>) -> Result<Vec<Lanes>, LanesError> {
    let (chains, placed) = place(&input)?;
    Ok(placed.into_iter().map(|placed| finish(&input, &chains, placed)).collect())
}

/// The chains, cut by levels and, if they are coarse, listed.
fn place(input: &LaneInput<'_>) -> Result<(Chains, Vec<Placed>), LanesError> {
    check(input)?;
    let tasks = input.cost.len();
    let chains = Chains::of(input);
    let sorted = chains.sort();
    if let Some(task) = chains.lowest_task_beyond(&sorted, tasks) {
        return Err(LanesError::Cycle { task });
    }
    let total = chains.cost.iter().fold(0_u64, |sum, &cost| sum.saturating_add(cost));
    let coarse = total / (chains.len() as u64).max(1) >= input.handover;
    let listed = coarse.then(|| schedule(&chains, &sorted, input.lanes, input.handover));
    let mut placed = vec![cut(&chains, sorted, input.lanes, input.handover)];
    placed.extend(listed);
    Ok((chains, placed))
}

fn finish(input: &LaneInput<'_>, chains: &Chains, placed: Placed) -> Lanes {
    let tasks = input.cost.len();
    let mut order = Vec::with_capacity(tasks);
    let mut lane = vec![LaneId(0); tasks];
    for &chain in &placed.order {
        for &task in chains.members(chain) {
            order.push(task);
            lane[task as usize] = placed.lane[chain as usize];
        }
    }
    let longest = input.cost.iter().copied().max().unwrap_or(0).max(1);
    let grain = u32::try_from(input.handover / longest).unwrap_or(u32::MAX);
    Lanes { order, lane, grain: NonZeroU32::new(grain).unwrap_or(NonZeroU32::MIN) }
}

fn check(input: &LaneInput<'_>) -> Result<(), LanesError> {
    let LaneInput { offsets, targets, cost, lanes, .. } = *input;
    let tasks = cost.len();
    if lanes == 0 || lanes > MAX_LANES {
        return Err(LanesError::LaneCount { lanes });
    }
    if u32::try_from(tasks).is_err() {
        return Err(LanesError::TooManyTasks { tasks });
    }
    if offsets.len() != tasks + 1 {
        return Err(LanesError::Lengths { offsets: offsets.len(), costs: tasks });
    }
    let misfit = |task| LanesError::Offsets { task, targets: targets.len() };
    if offsets[0] != 0 {
        return Err(misfit(0));
    }
    if let Some(task) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        return Err(misfit(task));
    }
    if offsets[tasks] as usize != targets.len() {
        return Err(misfit(tasks.saturating_sub(1)));
    }
    if let Some(edge) = targets.iter().position(|&p| p as usize >= tasks) {
        let task = offsets.partition_point(|&offset| offset as usize <= edge) - 1;
        return Err(LanesError::UnknownTask {
            task: task as u32,
            predecessor: targets[edge],
            tasks,
        });
    }
    Ok(())
}

/// Lists of neighbours: those of `i` are `targets[offsets[i]..offsets[i + 1]]`.
struct Neighbours {
    offsets: Vec<u32>,
    targets: Vec<u32>,
}

impl Neighbours {
    fn of(&self, index: u32) -> &[u32] {
        &self.targets
            [self.offsets[index as usize] as usize..self.offsets[index as usize + 1] as usize]
    }

    /// The same edges the other way round, by a counting sort: each list is in rising order.
    fn reversed(&self) -> Self {
        let nodes = self.offsets.len() - 1;
        let mut offsets = vec![0_u32; nodes + 1];
        for &target in &self.targets {
            offsets[target as usize + 1] += 1;
        }
        for node in 0..nodes {
            offsets[node + 1] += offsets[node];
        }
        let mut next = offsets.clone();
        let mut targets = vec![0_u32; self.targets.len()];
        for node in 0..nodes as u32 {
            for &target in self.of(node) {
                let slot = &mut next[target as usize];
                targets[*slot as usize] = node;
                *slot += 1;
            }
        }
        Self { offsets, targets }
    }
}

/// The tasks with their chains contracted. The tasks of a ring that nothing else touches are in no chain.
struct Chains {
    /// The tasks of chain `c` in order: `members[offsets[c]..offsets[c + 1]]`.
    offsets: Vec<u32>,
    members: Vec<u32>,
    cost: Vec<u64>,
    predecessors: Neighbours,
    successors: Neighbours,
}

/// A task that ends its chain, or a place that nothing was written to.
const NONE: u32 = u32::MAX;
/// So many predecessors are looked through one by one.
const FEW: usize = 32;

/// What a chain may cost before it is cut in two: a small part of a lane's share of the work, so that pieces can be
/// balanced, but many hand-overs.
fn longest_piece(input: &LaneInput<'_>) -> u64 {
    const PIECES_A_LANE: u64 = 16;
    const HANDOVERS_A_PIECE: u64 = 8;
    if input.lanes == 1 {
        return u64::MAX;
    }
    let work = input.cost.iter().fold(0_u64, |sum, &cost| sum.saturating_add(cost.max(1)));
    let share = work / (u64::from(input.lanes) * PIECES_A_LANE);
    share.max(input.handover.saturating_mul(HANDOVERS_A_PIECE)).max(1)
}

impl Chains {
    fn of(input: &LaneInput<'_>) -> Self {
        let LaneInput { offsets, targets, cost, .. } = *input;
        let tasks = cost.len();
        let predecessors =
            |task: usize| &targets[offsets[task] as usize..offsets[task + 1] as usize];
        let mut successors = vec![0_u32; tasks];
        for &predecessor in targets {
            successors[predecessor as usize] += 1;
        }
        let joins = |task: usize| match *predecessors(task) {
            [only] if successors[only as usize] == 1 => Some(only),
            _ => None,
        };
        let mut next = vec![NONE; tasks];
        for task in 0..tasks {
            if let Some(only) = joins(task) {
                next[only as usize] = task as u32;
            }
        }
        let mut chains = Self {
            offsets: vec![0],
            members: Vec::with_capacity(tasks),
            cost: Vec::new(),
            predecessors: Neighbours {
                offsets: vec![0],
                targets: Vec::with_capacity(targets.len()),
            },
            successors: Neighbours { offsets: Vec::new(), targets: Vec::new() },
        };
        let limit = longest_piece(input);
        let mut chain_of = vec![NONE; tasks];
        for head in (0..tasks).filter(|&task| joins(task).is_none()) {
            let mut task = head as u32;
            let mut sum = 0_u64;
            while task != NONE {
                // Free tasks would all seem to fit at one place.
                let own = cost[task as usize].max(1);
                if sum > 0 && sum.saturating_add(own) > limit {
                    chains.cost.push(std::mem::take(&mut sum));
                    chains.offsets.push(chains.members.len() as u32);
                }
                chain_of[task as usize] = chains.cost.len() as u32;
                chains.members.push(task);
                sum = sum.saturating_add(own);
                task = next[task as usize];
            }
            chains.cost.push(sum);
            chains.offsets.push(chains.members.len() as u32);
        }
        for chain in 0..chains.len() as u32 {
            let head = chains.members(chain)[0] as usize;
            // A predecessor is in a chain: in a ring, each task's only successor is of the ring.
            let own = predecessors(head).iter().map(|&task| chain_of[task as usize]);
            chains.predecessors.targets.extend(own);
            chains.predecessors.offsets.push(chains.predecessors.targets.len() as u32);
        }
        chains.successors = chains.predecessors.reversed();
        chains
    }

    fn len(&self) -> usize {
        self.cost.len()
    }

    fn members(&self, chain: u32) -> &[u32] {
        &self.members
            [self.offsets[chain as usize] as usize..self.offsets[chain as usize + 1] as usize]
    }

    /// Sorts topologically, first in, first out: a chain comes when its last predecessor is taken, hence by level and
    /// within a level by last predecessor.
    fn sort(&self) -> Sorted {
        let mut missing: Vec<u32> =
            self.predecessors.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut order = Vec::with_capacity(self.len());
        order.extend((0..self.len() as u32).filter(|&chain| missing[chain as usize] == 0));
        let mut last_predecessor = vec![NONE; self.len()];
        let mut levels = Vec::new();
        let mut level = 0..order.len();
        while !level.is_empty() {
            for position in level.clone() {
                let chain = order[position];
                for &successor in self.successors.of(chain) {
                    let left = &mut missing[successor as usize];
                    *left -= 1;
                    if *left == 0 {
                        last_predecessor[successor as usize] = chain;
                        order.push(successor);
                    }
                }
            }
            let end = level.end;
            levels.push(level);
            level = end..order.len();
        }
        Sorted { order, levels, last_predecessor }
    }

    fn lowest_task_beyond(&self, sorted: &Sorted, tasks: usize) -> Option<u32> {
        if sorted.order.len() == self.len() && self.members.len() == tasks {
            return None;
        }
        let mut ordered = vec![false; tasks];
        for &chain in &sorted.order {
            for &task in self.members(chain) {
                ordered[task as usize] = true;
            }
        }
        ordered.iter().position(|&ordered| !ordered).map(|task| task as u32)
    }
}

/// Chains in topological order, by level.
struct Sorted {
    order: Vec<u32>,
    /// Parts of `order`.
    levels: Vec<Range<usize>>,
    /// By chain; [`NONE`] in the first level.
    last_predecessor: Vec<u32>,
}

/// The order of the chains, and the lane of each by chain.
struct Placed {
    order: Vec<u32>,
    lane: Vec<LaneId>,
}

/// Cuts each level into contiguous parts of equal cost.
fn cut(chains: &Chains, sorted: Sorted, lanes: u32, handover: u64) -> Placed {
    let lanes = u128::from(lanes);
    let mut lane = vec![LaneId(0); chains.len()];
    for level in &sorted.levels {
        let level = &sorted.order[level.clone()];
        let total: u128 = level.iter().map(|&chain| u128::from(chains.cost[chain as usize])).sum();
        let most = lanes.min(level.len() as u128);
        let parts = (total / u128::from(handover.max(1))).clamp(1, most);
        let home = match sorted.last_predecessor[level[0] as usize] {
            NONE => LaneId(0),
            predecessor => lane[predecessor as usize],
        };
        let mut before = 0_u128;
        for &chain in level {
            let cost = u128::from(chains.cost[chain as usize]);
            // The part that the middle of the chain falls into.
            let part = (2 * before + cost) * parts / (2 * total);
            before += cost;
            lane[chain as usize] =
                if parts == 1 { home } else { LaneId((part * lanes / parts) as u32) };
        }
    }
    Placed { order: sorted.order, lane }
}

/// Places one chain at a time where it can start first: whenever a lane is free, of the chains whose predecessors have
/// ended the one with the longest path to the end.
fn schedule(chains: &Chains, sorted: &Sorted, lanes: u32, handover: u64) -> Placed {
    let mut rank = chains.cost.clone();
    for &chain in sorted.order.iter().rev() {
        let behind =
            chains.successors.of(chain).iter().map(|&s| rank[s as usize]).max().unwrap_or(0);
        rank[chain as usize] = rank[chain as usize].saturating_add(behind);
    }
    let mut missing: Vec<u32> =
        chains.predecessors.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // By the time at which the last predecessor ends.
    let mut pending: BinaryHeap<Reverse<(u64, u32)>> = (0..chains.len() as u32)
        .filter(|&c| missing[c as usize] == 0)
        .map(|c| Reverse((0, c)))
        .collect();
    let mut ready: BinaryHeap<(u64, Reverse<u32>)> = BinaryHeap::new();
    let mut free = Free::new(lanes);
    let mut end = vec![0_u64; chains.len()];
    let mut placed =
        Placed { order: Vec::with_capacity(chains.len()), lane: vec![LaneId(0); chains.len()] };
    loop {
        let mut now = free.earliest().0;
        if ready.is_empty() {
            let Some(&Reverse((time, _))) = pending.peek() else { break };
            now = now.max(time);
        }
        while let Some(&Reverse((time, chain))) = pending.peek() {
            if time > now {
                break;
            }
            pending.pop();
            ready.push((rank[chain as usize], Reverse(chain)));
        }
        let Some((_, Reverse(chain))) = ready.pop() else { break };
        let predecessors = chains.predecessors.of(chain);
        let (lane, start) = earliest(predecessors, &placed.lane, &end, &free, handover);
        end[chain as usize] = start.saturating_add(chains.cost[chain as usize]);
        free.take(lane, end[chain as usize], chain);
        placed.lane[chain as usize] = lane;
        placed.order.push(chain);
        for &successor in chains.successors.of(chain) {
            let left = &mut missing[successor as usize];
            *left -= 1;
            if *left == 0 {
                let ends = chains.predecessors.of(successor).iter().map(|&p| end[p as usize]);
                pending.push(Reverse((ends.max().unwrap_or(0), successor)));
            }
        }
    }
    placed
}

/// When the last chain ends, plus what the edges between lanes cost the lanes that receive them: a hand-over each, spread
/// over all lanes.
fn price(chains: &Chains, placed: &Placed, lanes: u32, handover: u64) -> u128 {
    let mut free = vec![0_u64; lanes as usize];
    let mut end = vec![0_u64; chains.len()];
    let mut received = 0_u128;
    for &chain in &placed.order {
        let lane = placed.lane[chain as usize];
        let mut start = free[lane.0 as usize];
        for &predecessor in chains.predecessors.of(chain) {
            let other = placed.lane[predecessor as usize] != lane;
            received += u128::from(other);
            start = start.max(end[predecessor as usize].saturating_add(if other {
                handover
            } else {
                0
            }));
        }
        end[chain as usize] = start.saturating_add(chains.cost[chain as usize]);
        free[lane.0 as usize] = end[chain as usize];
    }
    let makespan = free.into_iter().max().unwrap_or(0);
    u128::from(makespan) + received * u128::from(handover) / u128::from(lanes)
}

/// From when on each lane is free, and which chain was its last.
struct Free {
    time: Vec<u64>,
    last: Vec<u32>,
    /// Lanes by time; of equal times the lowest comes last.
    by_time: BTreeSet<(u64, Reverse<LaneId>)>,
}

impl Free {
    fn new(lanes: u32) -> Self {
        Self {
            time: vec![0; lanes as usize],
            last: vec![NONE; lanes as usize],
            by_time: (0..lanes).map(|lane| (0, Reverse(LaneId(lane)))).collect(),
        }
    }

    fn take(&mut self, lane: LaneId, until: u64, chain: u32) {
        self.by_time.remove(&(self.time[lane.0 as usize], Reverse(lane)));
        self.by_time.insert((until, Reverse(lane)));
        self.time[lane.0 as usize] = until;
        self.last[lane.0 as usize] = chain;
    }

    /// The lane that is free first.
    fn earliest(&self) -> (u64, LaneId) {
        let time = self.by_time.first().map_or(0, |&(time, _)| time);
        self.latest_by(time).unwrap_or((time, LaneId(0)))
    }

    /// Of the lanes that are free at a time the one that became so last: the others stay free for what comes earlier.
    fn latest_by(&self, time: u64) -> Option<(u64, LaneId)> {
        let mut until = self.by_time.range(..=(time, Reverse(LaneId(0))));
        until.next_back().map(|&(time, Reverse(lane))| (time, lane))
    }
}

/// The lane on which a chain with these predecessors can start first, and when. Of equals a lane whose last chain is a
/// predecessor, then the lane of the predecessor that ends last, then the lane of another predecessor.
fn earliest(
    predecessors: &[u32],
    lane: &[LaneId],
    end: &[u64],
    free: &Free,
    handover: u64,
) -> (LaneId, u64) {
    let Some(last) = predecessors.iter().copied().max_by_key(|&p| (end[p as usize], Reverse(p)))
    else {
        let (time, lane) = free.earliest();
        return (lane, time);
    };
    let home = lane[last as usize];
    let elsewhere =
        predecessors.iter().filter(|&&p| lane[p as usize] != home).map(|&p| end[p as usize]).max();
    let arrives = end[last as usize].max(elsewhere.map_or(0, |time| time.saturating_add(handover)));
    let away = end[last as usize].saturating_add(handover);
    let idle = free.latest_by(away).unwrap_or_else(|| free.earliest());
    let candidates = predecessors.iter().map(|&p| lane[p as usize]).chain([idle.1]);
    // Each of many predecessors is asked whether it was last on its lane.
    let many: Option<FxHashSet<u32>> =
        (predecessors.len() > FEW).then(|| predecessors.iter().copied().collect());
    let rank = |lane: LaneId, from: u64| {
        let last = free.last[lane.0 as usize];
        let follows =
            many.as_ref().map_or_else(|| predecessors.contains(&last), |many| many.contains(&last));
        (free.time[lane.0 as usize].max(from), !follows)
    };
    let mut best = (rank(home, arrives), home);
    for other in candidates.filter(|&other| other != home) {
        let rank = rank(other, away);
        if rank < best.0 {
            best = (rank, other);
        }
    }
    (best.1, best.0.0)
}
