//! Which of many pairs of nodes the guaranteed order orders, exactly, without an index of all pairs.
//!
//! In: a graph and pairs. Out: for each pair whether the first is certainly complete before the second starts, or passes
//! its wait. A path that ends in a weak edge only promises the latter; beyond its last node it counts again, since a node
//! is complete after its wait.
//!
//! Sources are taken 1024 at a time, one bit each, in topological order, and carried forward to the last node asked
//! about. Only nodes behind a source get a row of bits, and a bit set of marked places leads from one to the next, so
//! that graphs in which little depends on a source cost little, however long their edges. Pairs that lie far apart are
//! swept apart from those that lie close: a few long edges do not stretch the sweep of the many short ones. At
//! worst nodes × edges / 1024 operations on rows of 128 bytes; scratch of 128 bytes a node. (After A. Goralčíková
//! and V. Koubek, MFCS 1979, in blocked and sparse form.)

use fixedbitset::FixedBitSet;
use phonograph_graph::{ComputeGraph, Edge, NodeId};

/// What must have come before a node: everything complete when it starts, or when its grid-dependency wait returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Complete before it starts.
    Start,
    /// Complete before it passes its wait: before it touches memory, if it waits first.
    Wait,
}

/// For each pair whether its first node is complete before the second starts, or waits. A node is not before itself.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::analysis::{By, ordered};
///
/// let mut b = GraphBuilder::new();
/// let [x, y, z] = ["x", "y", "z"].map(|name| b.add_barrier(name));
/// b.chain(&[x, y]);
/// let graph = b.build()?;
/// assert_eq!(ordered(&graph, &[(x, y), (y, x), (x, z)], By::Start), [true, false, false]);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
///
/// # Panics
/// If an id is not of the graph.
pub fn ordered(graph: &ComputeGraph, pairs: &[(NodeId, NodeId)], by: By) -> Vec<bool> {
    let position = positions(graph);
    let mut found = vec![false; pairs.len()];
    let mut asked = Vec::new();
    for (tag, &(from, to)) in (0u32..).zip(pairs) {
        found[tag as usize] = has_edge(graph, from, to, by);
        let (from, to) = (position[from.index()], position[to.index()]);
        if from < to && !found[tag as usize] {
            asked.push(Query { from, to, tag, by, around: false });
        }
    }
    answer(graph, &position, asked, |tag| found[tag as usize] = true);
    found
}

/// Whether an edge says so already, where a look at the edges is less than a sweep.
fn has_edge(graph: &ComputeGraph, from: NodeId, to: NodeId, by: By) -> bool {
    const MOST: usize = 16;
    let says = |edge: Edge| edge.from == from && (by == By::Wait || edge.data.is_full());
    graph.incoming(to).take(MOST).any(says)
}

/// Place of each node in the topological order, by id.
pub(crate) fn positions(graph: &ComputeGraph) -> Vec<u32> {
    let mut position = vec![0u32; graph.node_count()];
    for (place, node) in (0u32..).zip(graph.topological_order()) {
        position[node.index()] = place;
    }
    position
}

/// Whether the node at place `from` is before the one at place `to`, which is later in topological order.
#[derive(Clone, Copy)]
pub(crate) struct Query {
    pub from: u32,
    pub to: u32,
    /// Whose question it is.
    pub tag: u32,
    pub by: By,
    /// Not counting an edge between the two: only around, through another producer.
    pub around: bool,
}

/// Reports the tags of the queries that are answered with yes, in no order that means anything.
pub(crate) fn answer(
    graph: &ComputeGraph,
    position: &[u32],
    mut queries: Vec<Query>,
    mut yes: impl FnMut(u32),
) {
    // Far apart, in between, close.
    let class = |query: &Query| match query.to - query.from {
        0..4096 => 0u8,
        4096..65536 => 1,
        _ => 2,
    };
    queries.sort_unstable_by_key(|query| (class(query), query.from, query.to, query.tag));
    for queries in queries.chunk_by_mut(|a, b| class(a) == class(b)) {
        match queries.len() {
            0..=64 => Sweep::<1>::new(graph, position).all(queries, &mut yes),
            65..=512 => Sweep::<4>::new(graph, position).all(queries, &mut yes),
            _ => Sweep::<16>::new(graph, position).all(queries, &mut yes),
        }
    }
}

/// No row, no bit.
const NONE: u32 = u32::MAX;

/// Rows of `W` words: as many bits as sources are carried at once.
struct Sweep<'a, const W: usize> {
    graph: &'a ComputeGraph,
    position: &'a [u32],
    weak: bool,
    /// Places that are a source or lie behind one, not yet passed.
    marked: FixedBitSet,
    /// Row of each place that was passed, else [`NONE`].
    row: Vec<u32>,
    /// For each row the sources complete before its node ends, other than itself.
    rows: Vec<[u64; W]>,
    /// For each row its place, and its bit if it is a source.
    passed: Vec<(u32, u32)>,
}

impl<'a, const W: usize> Sweep<'a, W> {
    fn new(graph: &'a ComputeGraph, position: &'a [u32]) -> Self {
        let count = graph.node_count();
        Self {
            graph,
            position,
            weak: graph.has_weak_edges(),
            marked: FixedBitSet::with_capacity(count),
            row: vec![NONE; count],
            rows: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// Answers queries sorted by source.
    fn all(&mut self, queries: &mut [Query], yes: &mut impl FnMut(u32)) {
        let mut rest = queries;
        let mut sources: Vec<u32> = Vec::with_capacity(64 * W);
        while !rest.is_empty() {
            sources.clear();
            let mut length = 0;
            for query in rest.iter() {
                if sources.last() != Some(&query.from) {
                    if sources.len() == 64 * W {
                        break;
                    }
                    sources.push(query.from);
                }
                length += 1;
            }
            let (chunk, later) = rest.split_at_mut(length);
            chunk.sort_unstable_by_key(|query| query.to);
            self.chunk(&sources, chunk, yes);
            rest = later;
        }
    }

    fn chunk(&mut self, sources: &[u32], queries: &[Query], yes: &mut impl FnMut(u32)) {
        let last = queries.last().map_or(0, |query| query.to) as usize;
        for &source in sources {
            self.marked.insert(source as usize);
        }
        let mut source = (0u32..).zip(sources.iter().copied()).peekable();
        let mut queries = queries.iter().peekable();
        let mut place = sources[0] as usize;
        while let Some(next) = next_marked(&self.marked, place).filter(|&next| next <= last) {
            place = next;
            self.marked.set(place, false);
            let node = self.graph.topological_order()[place];
            let (mut by_start, mut by_wait) = self.above(node);
            while queries.peek().is_some_and(|query| (query.to as usize) < place) {
                queries.next(); // nothing leads there from any source
            }
            let asked = queries.peek().is_some_and(|query| query.to as usize == place);
            let mut of_this = queries.clone();
            if asked {
                judge(&mut of_this, place, sources, true, (&by_start, &by_wait), yes);
            }
            self.add_producers(node, &mut by_start, &mut by_wait);
            if asked {
                judge(&mut queries, place, sources, false, (&by_start, &by_wait), yes);
            }
            let bit = source.next_if(|&(_, at)| at as usize == place).map_or(NONE, |(bit, _)| bit);
            self.row[place] = self.rows.len() as u32;
            self.rows.push(by_wait);
            self.passed.push((place as u32, bit));
            for next in self.graph.successors(node) {
                let at = self.position[next.index()] as usize;
                if at <= last {
                    self.marked.insert(at);
                }
            }
        }
        for (place, _) in self.passed.drain(..) {
            self.row[place as usize] = NONE;
        }
        self.rows.clear();
    }

    /// What is complete before the producers of a node end, without themselves: by full edges, and by any.
    #[inline]
    fn above(&self, node: NodeId) -> ([u64; W], [u64; W]) {
        let mut by_start = [0u64; W];
        let row = |from: NodeId| {
            let row = self.row[self.position[from.index()] as usize];
            (row != NONE).then(|| &self.rows[row as usize])
        };
        if !self.weak {
            for above in self.graph.predecessors(node).iter().filter_map(|&from| row(from)) {
                join(&mut by_start, above);
            }
            return (by_start, by_start);
        }
        let mut by_wait = [0u64; W];
        for edge in self.graph.incoming(node) {
            if let Some(above) = row(edge.from) {
                join(if edge.data.is_full() { &mut by_start } else { &mut by_wait }, above);
            }
        }
        join(&mut by_wait, &by_start);
        (by_start, by_wait)
    }

    /// Adds the producers themselves.
    #[inline]
    fn add_producers(&self, node: NodeId, by_start: &mut [u64; W], by_wait: &mut [u64; W]) {
        let bit = |from: NodeId| {
            let row = self.row[self.position[from.index()] as usize];
            if row == NONE { NONE } else { self.passed[row as usize].1 }
        };
        if !self.weak {
            for &from in self.graph.predecessors(node) {
                set(by_wait, bit(from));
            }
            *by_start = *by_wait;
            return;
        }
        for edge in self.graph.incoming(node) {
            set(by_wait, bit(edge.from));
            if edge.data.is_full() {
                set(by_start, bit(edge.from));
            }
        }
    }
}

#[inline]
fn join<const W: usize>(into: &mut [u64; W], from: &[u64; W]) {
    for (word, bits) in into.iter_mut().zip(from) {
        *word |= bits;
    }
}

#[inline]
fn set<const W: usize>(row: &mut [u64; W], bit: u32) {
    if bit != NONE {
        row[bit as usize / 64] |= 1 << (bit % 64);
    }
}

/// Answers the queries about one place that ask around it, or those that do not.
fn judge<'q, const W: usize>(
    queries: &mut std::iter::Peekable<impl Iterator<Item = &'q Query> + Clone>,
    place: usize,
    sources: &[u32],
    around: bool,
    (by_start, by_wait): (&[u64; W], &[u64; W]),
    yes: &mut impl FnMut(u32),
) {
    while let Some(query) = queries.next_if(|query| query.to as usize == place) {
        let row = if query.by == By::Start { by_start } else { by_wait };
        let bit = sources.partition_point(|&source| source < query.from);
        if query.around == around && row[bit / 64] >> (bit % 64) & 1 == 1 {
            yes(query.tag);
        }
    }
}

/// The first marked place from `from` on.
fn next_marked(marked: &FixedBitSet, from: usize) -> Option<usize> {
    const BITS: usize = usize::BITS as usize;
    let words = marked.as_slice();
    let mut at = from / BITS;
    let mut word = words.get(at)? & (usize::MAX << (from % BITS));
    while word == 0 {
        at += 1;
        word = *words.get(at)?;
    }
    Some(at * BITS + word.trailing_zeros() as usize)
}
