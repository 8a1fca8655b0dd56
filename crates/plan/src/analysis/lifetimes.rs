//! Lifetimes of buffers in the guaranteed order, which is a partial one: no positions in time, but first and last users.
//!
//! In: a graph. Out: for each buffer the users before which no other user comes (*first*), and those after which none
//! comes (*last*). Two buffers can share bytes only if every last user of one is complete before any first user of the
//! other starts: *wholly before*. Users that are certainly neither are found by asking for their order with the
//! outermost users and with their neighbours, which settles chains and a writer with any number of readers; the rest is
//! asked pair by pair up to a bound, past which a list may hold users too many, never too few. O(operands) and
//! [`ordered`] for about four pairs a user.

use phonograph_graph::{BufferId, ComputeGraph, NodeId};
use smallvec::SmallVec;

use super::order::{By, ordered, positions};

/// The users at both ends of a buffer's life.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lifetime {
    /// Users before which no other is certainly complete, in topological order.
    pub first: SmallVec<[NodeId; 2]>,
    /// Users that no other certainly comes after, in topological order.
    pub last: SmallVec<[NodeId; 2]>,
    /// Whether some pairs were not asked, so that lists may hold more than they need.
    pub bounded: bool,
}

/// Users of one buffer that are compared pair by pair, at most.
const MOST: usize = 64;

/// The lifetime of every buffer, by id; a buffer that no node names has no users.
///
/// ```
/// use phonograph_graph::{BufferId, GraphBuilder};
/// use phonograph_plan::analysis::lifetimes;
///
/// let mut b = GraphBuilder::new();
/// let x = b.alloc_buffer("x", 1024);
/// let write = b.add_kernel("write", 1, 32, 0).outputs([x]).finish();
/// let left = b.add_kernel("left", 1, 32, 0).inputs([x]).finish();
/// let right = b.add_kernel("right", 1, 32, 0).inputs([x]).finish();
/// let life = &lifetimes(&b.build()?)[x.index()];
/// assert_eq!(life.first[..], [write]);
/// assert_eq!(life.last[..], [left, right]);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn lifetimes(graph: &ComputeGraph) -> Vec<Lifetime> {
    let position = positions(graph);
    let mut users: Vec<SmallVec<[NodeId; 4]>> = vec![SmallVec::new(); graph.buffers().len()];
    for &node in graph.topological_order() {
        for (region, _) in graph.operands(node) {
            let users = &mut users[region.buffer.index()];
            if users.last() != Some(&node) {
                users.push(node);
            }
        }
    }
    let mut pairs = Vec::new();
    for users in &users {
        pairs.extend(asked(users.len()).map(|(a, b)| (users[a], users[b])));
    }
    let mut answers = ordered(graph, &pairs, By::Start).into_iter();
    let mut lives = Vec::with_capacity(users.len());
    let mut open = Vec::new();
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for (index, users) in users.iter().enumerate() {
        let count = users.len();
        for flags in [&mut starts, &mut ends] {
            flags.clear();
            flags.resize(count, true);
        }
        for (a, b) in asked(count) {
            if answers.next() == Some(true) {
                (ends[a], starts[b]) = (false, false);
            }
        }
        let those = |flags: &[bool]| {
            users.iter().zip(flags).filter(|(_, flag)| **flag).map(|(&user, _)| user).collect()
        };
        let mut life = Lifetime { first: those(&starts), last: those(&ends), bounded: false };
        let rest = life.first.len().max(life.last.len());
        life.bounded = rest > MOST;
        if !life.bounded && (is_open(&starts) || is_open(&ends)) {
            open.push(BufferId::from_index(index));
        }
        lives.push(life);
    }
    compare(graph, &position, &mut lives, &open);
    lives
}

/// Places of users that are asked about first: neighbours, and the outermost with everyone.
fn asked(count: usize) -> impl Iterator<Item = (usize, usize)> {
    let neighbours = (1..count).map(|at| (at - 1, at));
    let with_first = (2..count).map(|at| (0, at));
    let with_last = (1..count.saturating_sub(2)).map(move |at| (at, count - 1));
    neighbours.chain(with_first).chain(with_last)
}

/// Whether two of the users that are left have not been asked about yet.
fn is_open(left: &[bool]) -> bool {
    let places: SmallVec<[usize; 4]> = (0..left.len()).filter(|&at| left[at]).collect();
    match places[..] {
        [] | [_] => false,
        [a, b] => a > 0 && b + 1 < left.len() && a + 1 < b,
        _ => true,
    }
}

/// Compares what is left pair by pair: a first user with all that might come before it, a last one with all after it.
fn compare(graph: &ComputeGraph, position: &[u32], lives: &mut [Lifetime], open: &[BufferId]) {
    let at = |node: &NodeId| position[node.index()];
    let within = |list: &[NodeId]| -> Vec<(NodeId, NodeId)> {
        let pairs = list.iter().flat_map(|&a| list.iter().map(move |&b| (a, b)));
        pairs.filter(|(a, b)| at(a) < at(b)).collect()
    };
    let of = |buffer: &BufferId| {
        let life = &lives[buffer.index()];
        [within(&life.first), within(&life.last)]
    };
    let pairs: Vec<(NodeId, NodeId)> = open.iter().flat_map(of).flatten().collect();
    let mut answers = ordered(graph, &pairs, By::Start).into_iter().zip(&pairs);
    for buffer in open {
        let [first, last] = of_lengths(&lives[buffer.index()]);
        let mut after: SmallVec<[NodeId; 4]> = SmallVec::new();
        let mut before: SmallVec<[NodeId; 4]> = SmallVec::new();
        after.extend(answers.by_ref().take(first).filter(|(yes, _)| *yes).map(|(_, pair)| pair.1));
        before.extend(answers.by_ref().take(last).filter(|(yes, _)| *yes).map(|(_, pair)| pair.0));
        let life = &mut lives[buffer.index()];
        life.first.retain(|user| !after.contains(user));
        life.last.retain(|user| !before.contains(user));
    }
}

/// Pairs within the lists of a lifetime.
fn of_lengths(life: &Lifetime) -> [usize; 2] {
    [life.first.len(), life.last.len()].map(|length| length * length.saturating_sub(1) / 2)
}
