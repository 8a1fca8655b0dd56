//! Which layer each node goes to.
//!
//! In: edges between nodes. Out: a layer for each node such that every edge leads to a later layer, or one cycle.
//! Longest-path layering, after which nodes that feed more than they are fed move down to their consumers: it
//! shortens more edges than it lengthens. Linear.

use super::Link;
use crate::picture::NodeIx;

/// Successors (or predecessors) of every node in one array.
pub(crate) struct Adjacency {
    start: Vec<u32>,
    items: Vec<u32>,
}

impl Adjacency {
    /// Groups `pairs` by their first element; the order within a group is the order of the pairs.
    pub(crate) fn new(keys: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut start = vec![0u32; keys + 1];
        for (k, _) in pairs.clone() {
            start[k as usize + 1] += 1;
        }
        for k in 0..keys {
            start[k + 1] += start[k];
        }
        let mut next = start.clone();
        let mut items = vec![0u32; start[keys] as usize];
        for (k, v) in pairs {
            items[next[k as usize] as usize] = v;
            next[k as usize] += 1;
        }
        Adjacency { start, items }
    }

    /// The second elements of the pairs whose first is `key`.
    pub(crate) fn of(&self, key: u32) -> &[u32] {
        let k = key as usize;
        &self.items[self.start[k] as usize..self.start[k + 1] as usize]
    }
}

/// A topological order and the earliest layer of each node.
pub(crate) struct Order {
    /// Nodes, producers first.
    pub(crate) nodes: Vec<u32>,
    /// The length of the longest path to each node, in edges.
    pub(crate) level: Vec<u32>,
}

/// Orders the nodes, or returns one cycle.
pub(crate) fn order(n: usize, links: &[Link]) -> Result<Order, Vec<NodeIx>> {
    let down = Adjacency::new(n, links.iter().map(|l| (l.from.0, l.to.0)));
    let mut waiting = vec![0u32; n];
    for link in links {
        waiting[link.to.index()] += 1;
    }
    let mut level = vec![0u32; n];
    let mut nodes: Vec<u32> = (0..n as u32).filter(|&v| waiting[v as usize] == 0).collect();
    let mut at = 0;
    while let Some(&v) = nodes.get(at) {
        at += 1;
        for &w in down.of(v) {
            level[w as usize] = level[w as usize].max(level[v as usize] + 1);
            waiting[w as usize] -= 1;
            if waiting[w as usize] == 0 {
                nodes.push(w);
            }
        }
    }
    match waiting.iter().position(|&w| w > 0) {
        None => Ok(Order { nodes, level }),
        Some(first) => Err(cycle(first, &waiting, links)),
    }
}

/// Each node that still waits has a predecessor that still waits: walking back must repeat one.
fn cycle(first: usize, waiting: &[u32], links: &[Link]) -> Vec<NodeIx> {
    let mut before = vec![u32::MAX; waiting.len()];
    for link in links {
        if waiting[link.from.index()] > 0 && waiting[link.to.index()] > 0 {
            before[link.to.index()] = link.from.0;
        }
    }
    let mut seen_at = vec![usize::MAX; waiting.len()];
    let mut walk = Vec::new();
    let mut v = first as u32;
    while seen_at[v as usize] == usize::MAX {
        seen_at[v as usize] = walk.len();
        walk.push(NodeIx(v));
        v = before[v as usize];
    }
    let mut nodes = walk.split_off(seen_at[v as usize]);
    nodes.reverse();
    // Named from its least node, the same cycle always reads the same.
    let least = (0..nodes.len()).min_by_key(|&i| nodes[i]).unwrap_or(0);
    nodes.rotate_left(least);
    nodes
}

/// The layer of each node.
pub(super) fn layers(n: usize, links: &[Link]) -> Result<Vec<u32>, Vec<NodeIx>> {
    let Order { nodes, level: mut layer } = order(n, links)?;
    let down = Adjacency::new(n, links.iter().map(|l| (l.from.0, l.to.0)));
    let mut fed = vec![0usize; n];
    for link in links {
        fed[link.to.index()] += 1;
    }
    for &v in nodes.iter().rev() {
        let consumers = down.of(v);
        if consumers.len() > fed[v as usize]
            && let Some(first) = consumers.iter().map(|&w| layer[w as usize]).min()
        {
            layer[v as usize] = first - 1;
        }
    }
    Ok(layer)
}
