//! Every node reads what it read, and every buffer that outlasts the graph ends with what it ended with.
//!
//! Both graphs are gone through side by side in one order that both allow. For every byte of memory it is kept where its
//! value comes from: from before the graph, from a node's work, or from a pattern. Fills and plain copies only move
//! values about, so merging, splitting or leaving them out changes nothing as long as values arrive. The order must
//! have been proved before, and then any order shows the same, as long as there is no race; where there is one, both
//! graphs are read as if it went the same way. O(operands · log segments).

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::checker::rewrite::{Groups, RewriteViolation, is_outside};
use crate::{
    BufferId, ComputeGraph, Extent, MemcpyNode, MemsetNode, NodeId, NodeKind, Pitched, Region,
    Target,
};

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Origin {
    /// It was in the buffer before the graph started.
    Initial(BufferId),
    /// A node (of the graph after; or before, if it is gone) made it.
    Made(Maker, Output),
    /// A pattern of four bytes; the first of them lies at addresses divisible by 4.
    Pattern(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Maker {
    Of(NodeId),
    Gone(NodeId),
}

/// Which of its results a node made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Output {
    /// What it left in this buffer; bytes are those of the buffer. Of nodes that do the work of several, or hold graphs.
    In(BufferId),
    /// What it wrote through this operand, in whatever buffer; bytes are those of the operand. Of nodes that stand for one
    /// node and do the same work, operand by operand.
    Through(u32),
}

/// The value of the byte at address `x` is that of byte `x + shift` (wrapping) of the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Value {
    origin: Origin,
    shift: u64,
}

impl Value {
    /// The same value after a copy that moved it by `distance`.
    fn moved(self, distance: u64) -> Self {
        match self.origin {
            Origin::Pattern(bytes) => {
                let turn = (distance % 4) as u32 * 8;
                Value { origin: Origin::Pattern(bytes.rotate_left(turn)), shift: 0 }
            }
            _ => Value { shift: self.shift.wrapping_sub(distance), ..self },
        }
    }
}

/// Bytes of one origin, without their address: `from` is a byte of the origin, or the pattern starts with the first byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Piece {
    origin: Origin,
    from: u64,
    bytes: u64,
}

impl Piece {
    fn new(start: u64, end: u64, value: Value) -> Self {
        let bytes = end - start;
        match value.origin {
            Origin::Pattern(pattern) => {
                let pattern = pattern.rotate_right((start % 4) as u32 * 8);
                Piece { origin: Origin::Pattern(pattern), from: 0, bytes }
            }
            origin => Piece { origin, from: start.wrapping_add(value.shift), bytes },
        }
    }

    /// What the byte `offset` into the piece on looks like.
    fn skip(self, offset: u64) -> Self {
        let bytes = self.bytes - offset;
        match self.origin {
            Origin::Pattern(pattern) => {
                let pattern = pattern.rotate_right((offset % 4) as u32 * 8);
                Piece { origin: Origin::Pattern(pattern), from: 0, bytes }
            }
            _ => Piece { from: self.from.wrapping_add(offset), bytes, ..self },
        }
    }

    fn starts_like(&self, other: &Self) -> bool {
        self.origin == other.origin && self.from == other.from
    }
}

type Pieces = SmallVec<[Piece; 4]>;

/// Where two sequences of as many bytes first differ.
fn first_difference(a: &[Piece], b: &[Piece]) -> Option<u64> {
    let (mut a, mut b) = (a.iter().copied(), b.iter().copied());
    let (mut x, mut y) = (a.next(), b.next());
    let mut at = 0;
    loop {
        match (x, y) {
            (None, None) => return None,
            (Some(p), Some(q)) if p.starts_like(&q) => {
                let common = p.bytes.min(q.bytes);
                at += common;
                x = if p.bytes == common { a.next() } else { Some(p.skip(common)) };
                y = if q.bytes == common { b.next() } else { Some(q.skip(common)) };
            }
            _ => return Some(at),
        }
    }
}

/// What memory holds; between segments what was there initially.
struct Memory {
    buffers: Vec<Segments>,
}

/// Disjoint segments of a buffer. Most buffers have one, which takes no memory of its own.
#[derive(Clone, Default)]
enum Segments {
    #[default]
    None,
    One(u64, u64, Value),
    /// By start, with their ends.
    Many(BTreeMap<u64, (u64, Value)>),
}

impl Segments {
    fn many(&mut self) -> &mut BTreeMap<u64, (u64, Value)> {
        if !matches!(self, Segments::Many(_)) {
            *self = Segments::Many(match *self {
                Segments::One(start, end, value) => [(start, (end, value))].into(),
                _ => BTreeMap::new(),
            });
        }
        match self {
            Segments::Many(segments) => segments,
            _ => unreachable!("they were made many above"),
        }
    }

    /// Shows those that meet `start..end`, in order.
    fn each(&self, start: u64, end: u64, mut each: impl FnMut(u64, u64, Value)) {
        match self {
            Segments::None => {}
            &Segments::One(from, to, value) => {
                if from < end && start < to {
                    each(from, to, value);
                }
            }
            Segments::Many(segments) => {
                let before = segments.range(..start).next_back().filter(|(_, (to, _))| *to > start);
                for (&from, &(to, value)) in before.into_iter().chain(segments.range(start..end)) {
                    each(from, to, value);
                }
            }
        }
    }
}

impl Memory {
    fn new(graph: &ComputeGraph) -> Self {
        Self { buffers: vec![Segments::default(); graph.buffers().len()] }
    }

    fn read(&self, region: Region, mut each: impl FnMut(u64, u64, Value)) {
        let (start, end) = (region.offset, region.end());
        let initial = Value { origin: Origin::Initial(region.buffer), shift: 0 };
        let mut reached = start;
        self.buffers[region.buffer.index()].each(start, end, |from, to, value| {
            let (from, to) = (from.max(start), to.min(end));
            if reached < from {
                each(reached, from, initial);
            }
            if from < to {
                each(from, to, value);
            }
            reached = to.max(reached);
        });
        if reached < end {
            each(reached, end, initial);
        }
    }

    fn pieces(&self, region: Region) -> Pieces {
        let mut pieces = Pieces::new();
        self.read(region, |start, end, value| pieces.push(Piece::new(start, end, value)));
        pieces
    }

    fn write(&mut self, region: Region, value: Value) {
        let (start, end) = (region.offset, region.end());
        if start == end {
            return;
        }
        let segments = &mut self.buffers[region.buffer.index()];
        match segments {
            Segments::None => *segments = Segments::One(start, end, value),
            Segments::One(from, to, old) if start <= *from && *to <= end => {
                (*from, *to, *old) = (start, end, value);
            }
            _ => write_among(segments.many(), (start, end), value),
        }
    }

    /// Does what a node does. Reads are told unless the node only moves values. `alone`: whether it stands for one node.
    fn run(
        &mut self,
        graph: &ComputeGraph,
        node: NodeId,
        maker: Maker,
        alone: bool,
        mut read: impl FnMut(&Self, Region),
    ) {
        match &graph.node(node).kind {
            NodeKind::Memset(fill) if self.fill(fill) => return,
            NodeKind::Memcpy(copy) => {
                if let Some((from, to)) = plain(copy) {
                    return self.copy(from, to);
                }
            }
            _ => {}
        }
        let operands = graph.operands(node);
        for (region, _) in operands.iter().filter(|(_, access)| access.reads()) {
            read(self, *region);
        }
        let written = (0u32..).zip(&operands).filter(|(_, (_, access))| access.writes());
        for (index, &(region, _)) in written {
            let (output, shift) = match alone {
                true => (Output::Through(index), region.offset.wrapping_neg()),
                false => (Output::In(region.buffer), 0),
            };
            self.write(region, Value { origin: Origin::Made(maker, output), shift });
        }
    }

    /// Whether a fill was one of whole rows, and is done.
    fn fill(&mut self, fill: &MemsetNode) -> bool {
        let Some(region) = rows(fill.dst, fill.extent) else { return false };
        let bytes = match fill.element_size {
            1 => (fill.value & 0xff) * 0x0101_0101,
            2 => (fill.value & 0xffff) * 0x0001_0001,
            4 => fill.value,
            _ => return false,
        };
        let turned = bytes.rotate_left((region.offset % 4) as u32 * 8);
        self.write(region, Value { origin: Origin::Pattern(turned), shift: 0 });
        true
    }

    fn copy(&mut self, from: Region, to: Region) {
        let distance = to.offset.wrapping_sub(from.offset);
        let mut moved: SmallVec<[(u64, u64, Value); 4]> = SmallVec::new();
        self.read(from, |start, end, value| {
            moved.push((start.wrapping_add(distance), end - start, value.moved(distance)));
        });
        for (offset, bytes, value) in moved {
            self.write(Region { buffer: to.buffer, offset, bytes }, value);
        }
    }
}

fn write_among(segments: &mut BTreeMap<u64, (u64, Value)>, (start, end): (u64, u64), value: Value) {
    if let Some((&from, &(to, old))) = segments.range(..start).next_back()
        && to > start
    {
        segments.insert(from, (start, old));
        if to > end {
            segments.insert(end, (to, old));
        }
    }
    let inside: SmallVec<[u64; 4]> = segments.range(start..end).map(|(&at, _)| at).collect();
    for at in inside {
        if let Some((to, old)) = segments.remove(&at)
            && to > end
        {
            segments.insert(end, (to, old));
        }
    }
    segments.insert(start, (end, value));
}

/// Whether a fill or copy only moves values about, which are then followed wherever they go.
pub(super) fn is_followed(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Memset(fill) => {
            rows(fill.dst, fill.extent).is_some() && matches!(fill.element_size, 1 | 2 | 4)
        }
        NodeKind::Memcpy(copy) => plain(copy).is_some(),
        _ => false,
    }
}

/// The bytes of an end that leaves no gaps.
fn rows(end: Pitched, extent: Extent) -> Option<Region> {
    let Target::Buffer(buffer) = end.target else { return None };
    let packed = (extent.height == 1 || end.pitch == extent.width)
        && (extent.depth == 1 || end.slice_rows == extent.height && end.pitch == extent.width);
    packed.then_some(Region { buffer, offset: end.offset, bytes: extent.bytes() })
}

/// The ends of a copy that leaves no gaps at either.
fn plain(copy: &MemcpyNode) -> Option<(Region, Region)> {
    Some((rows(copy.src, copy.extent)?, rows(copy.dst, copy.extent)?))
}

pub(super) fn check(groups: &Groups, found: &mut Vec<RewriteViolation>) {
    let (before, after) = (groups.before, groups.after);
    let (mut old, mut new) = (Memory::new(before), Memory::new(after));
    let mut carried: FxHashSet<BufferId> = FxHashSet::default();
    let gone = gone(groups);
    let mut gone = gone.iter().peekable();
    let places = (1u32..).zip(after.topological_order());
    for (place, &node) in places {
        while let Some((_, dropped)) = gone.next_if(|(key, _)| *key < place) {
            old.run(before, *dropped, Maker::Gone(*dropped), false, |_, _| {});
        }
        step(groups, node, &mut old, &mut new, &mut carried, found);
    }
    for (_, dropped) in gone {
        old.run(before, *dropped, Maker::Gone(*dropped), false, |_, _| {});
    }
    let allocated = allocated(before);
    let whole = |buffer: BufferId| Region { buffer, offset: 0, bytes: before.buffer(buffer).bytes };
    let buffers = || (0..before.buffers().len()).map(BufferId::from_index);
    for buffer in buffers().filter(|&buffer| is_outside(before, buffer)) {
        note_initial(after, &new, whole(buffer), &mut carried);
    }
    for buffer in buffers() {
        let lasts =
            is_outside(before, buffer) || carried.contains(&buffer) || allocated.contains(&buffer);
        let whole = whole(buffer);
        if lasts && let Some(byte) = first_difference(&old.pieces(whole), &new.pieces(whole)) {
            found.push(RewriteViolation::EndsOther { buffer, byte });
        }
    }
}

/// Buffers that nodes allocate: what becomes of those that none frees is not for this graph to know.
fn allocated(graph: &ComputeGraph) -> FxHashSet<BufferId> {
    let mut allocated = FxHashSet::default();
    allocated.extend(graph.nodes().iter().filter_map(|node| match node.kind {
        NodeKind::Alloc(buffer) => Some(buffer),
        _ => None,
    }));
    allocated
}

/// The nodes that are gone, each with the place after the last node that it waited for.
fn gone(groups: &Groups) -> Vec<(u32, NodeId)> {
    if groups.dropped().next().is_none() {
        return Vec::new();
    }
    let mut place = vec![0u32; groups.after.node_count()];
    for (at, node) in (1u32..).zip(groups.after.topological_order()) {
        place[node.index()] = at;
    }
    let mut key = vec![0u32; groups.before.node_count()];
    let mut gone = Vec::new();
    for &node in groups.before.topological_order() {
        key[node.index()] = match groups.image.of(node) {
            Some(image) => place[image.index()],
            None => {
                let producers = groups.before.predecessors(node).iter();
                let last = producers.map(|from| key[from.index()]).max().unwrap_or(0);
                gone.push((last, node));
                last
            }
        };
    }
    gone.sort_by_key(|&(key, _)| key); // stable: among equals as the graph before orders them
    gone
}

/// A buffer of the graph's own that is read before it is written may mean to carry something from replay to replay. That
/// the graph after reads it is what counts: what nobody reads any more carries nothing.
fn note_initial(
    graph: &ComputeGraph,
    memory: &Memory,
    region: Region,
    carried: &mut FxHashSet<BufferId>,
) {
    memory.read(region, |_, _, value| {
        if let Origin::Initial(buffer) = value.origin
            && !is_outside(graph, buffer)
        {
            carried.insert(buffer);
        }
    });
}

/// One node after, and those whose work it does.
///
/// A node that stands for one node reads, operand by operand, what that one read, from wherever. One that stands for
/// several, or holds graphs, reads in the same places what was there when the first of them started, and nothing that
/// none of them read.
fn step(
    groups: &Groups,
    node: NodeId,
    old: &mut Memory,
    new: &mut Memory,
    carried: &mut FxHashSet<BufferId>,
    found: &mut Vec<RewriteViolation>,
) {
    let members = groups.members(node);
    let maker = Maker::Of(node);
    let Some(&was) = members.first() else { return };
    let one = members.len() == 1 && !groups.after.node(node).kind.has_inner_graphs();
    let mut at_entry: SmallVec<[Pieces; 4]> = SmallVec::new();
    if !one {
        let operands = groups.after.operands(node);
        let read = operands.iter().filter(|(_, access)| access.reads());
        at_entry.extend(read.map(|(region, _)| old.pieces(*region)));
    }
    let mut was_read: SmallVec<[Pieces; 4]> = SmallVec::new();
    for &member in members {
        old.run(groups.before, member, maker, one, |memory, region| {
            was_read.push(memory.pieces(region));
        });
    }
    let known = if one { None } else { Some(Known::new(&was_read)) };
    let expected = if one { &was_read } else { &at_entry };
    let mut operand = 0;
    new.run(groups.after, node, maker, one, |memory, region| {
        note_initial(groups.after, memory, region, carried);
        let is_read = memory.pieces(region);
        let was_read = expected.get(operand).map_or(&[][..], |pieces| pieces);
        let differs = first_difference(was_read, &is_read)
            .or_else(|| known.as_ref().and_then(|known| known.first_unknown(&is_read)));
        operand += 1;
        if let Some(at) = differs {
            let (buffer, byte) = (region.buffer, region.offset + at);
            found.push(RewriteViolation::ReadsOther { node, was, buffer, byte });
        }
    });
}

/// The bytes that a group of nodes reads, of whatever origin.
struct Known {
    patterns: Vec<u32>,
    /// Disjoint, in order.
    ranges: Vec<(Origin, u64, u64)>,
}

impl Known {
    fn new(read: &[Pieces]) -> Self {
        let mut patterns = Vec::new();
        let mut ranges: Vec<(Origin, u64, u64)> = Vec::new();
        let mut sorted: Vec<Piece> = read.iter().flatten().copied().collect();
        sorted.sort_unstable();
        for piece in sorted {
            if let Origin::Pattern(pattern) = piece.origin {
                patterns.push(any_phase(pattern));
                continue;
            }
            let end = piece.from.saturating_add(piece.bytes);
            match ranges.last_mut() {
                Some((origin, _, to)) if *origin == piece.origin && *to >= piece.from => {
                    *to = end.max(*to);
                }
                _ => ranges.push((piece.origin, piece.from, end)),
            }
        }
        Self { patterns, ranges }
    }

    /// How far into `read` the first byte lies that is not known.
    fn first_unknown(&self, read: &[Piece]) -> Option<u64> {
        let mut at = 0;
        for piece in read {
            let known = match piece.origin {
                Origin::Pattern(pattern) => self.patterns.contains(&any_phase(pattern)),
                origin => {
                    let end = piece.from.saturating_add(piece.bytes);
                    let below =
                        self.ranges.partition_point(|&(o, f, _)| (o, f) <= (origin, piece.from));
                    let range = below.checked_sub(1).map(|below| self.ranges[below]);
                    range.is_some_and(|(o, _, to)| o == origin && end <= to)
                }
            };
            if !known {
                return Some(at);
            }
            at += piece.bytes;
        }
        None
    }
}

/// The same number for a pattern wherever in it one starts.
fn any_phase(pattern: u32) -> u32 {
    let turned = [0, 8, 16, 24].map(|bits| pattern.rotate_left(bits));
    turned.into_iter().min().unwrap_or(pattern)
}
