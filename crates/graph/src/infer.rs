//! Data dependencies from regions, in program order: read after write, write after read, write after write.
//!
//! For each buffer an ordered map of disjoint byte segments remembers the last writer and the readers since. A
//! node first reads, then writes, so an in-place node depends on earlier nodes and not on itself. Readers
//! depend on the writer already, so a write after reads needs no edge to the writer: what comes out is close
//! to minimal without a search. O((operands + segments touched) log segments).

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::{Access, Edge, NodeId, Operands, Region};

/// One segment, from its key in the map to `end`.
#[derive(Clone)]
struct Segment {
    end: u64,
    writer: Option<NodeId>,
    readers: SmallVec<[NodeId; 2]>,
}

impl Segment {
    /// One that nobody has touched.
    fn new(end: u64) -> Self {
        Self { end, writer: None, readers: SmallVec::new() }
    }

    fn read(&mut self, node: NodeId, depend_on: impl FnMut(NodeId)) {
        self.writer.into_iter().for_each(depend_on);
        if self.readers.last() != Some(&node) {
            self.readers.push(node);
        }
    }

    /// Whom a node depends on that writes it.
    fn write(&self, node: NodeId, mut depend_on: impl FnMut(NodeId)) {
        let others = self.readers.iter().any(|&r| r != node);
        match self.writer {
            Some(writer) if !others => depend_on(writer),
            _ => self.readers.iter().copied().for_each(depend_on),
        }
    }
}

/// The segments of a buffer. Most buffers are always touched as a whole, and one segment takes no memory of its own.
#[derive(Clone, Default)]
enum Segments {
    #[default]
    None,
    One(u64, Segment),
    Many(BTreeMap<u64, Segment>),
}

impl Segments {
    /// The segment of these bytes, if it is or becomes the only one.
    fn whole(&mut self, region: &Region) -> Option<&mut Segment> {
        if let Segments::None = self {
            *self = Segments::One(region.offset, Segment::new(region.end()));
        }
        match self {
            Segments::One(start, one) => {
                ((*start, one.end) == (region.offset, region.end())).then_some(one)
            }
            _ => None,
        }
    }

    fn many(&mut self) -> &mut BTreeMap<u64, Segment> {
        if !matches!(self, Segments::Many(_)) {
            *self = Segments::Many(match std::mem::take(self) {
                Segments::One(start, one) => [(start, one)].into(),
                _ => BTreeMap::new(),
            });
        }
        match self {
            Segments::Many(segments) => segments,
            _ => unreachable!("they were made many above"),
        }
    }
}

/// The edges that regions demand among so many nodes in program order. `add_operands` adds what a node is known to touch to
/// a list, which is the same for all of them: operands are many words to move. Unknown effects demand none.
pub(crate) fn infer(
    buffers: usize,
    nodes: usize,
    mut add_operands: impl FnMut(NodeId, &mut Operands),
) -> Vec<Edge> {
    let mut memory: Vec<Segments> = vec![Segments::default(); buffers];
    let mut edges = Vec::new();
    let mut effects = Operands::new();
    for node in (0..nodes).map(NodeId::from_index) {
        effects.clear();
        add_operands(node, &mut effects);
        let mut depend_on = |earlier: NodeId| {
            if earlier != node {
                edges.push(Edge::full(earlier, node));
            }
        };
        let touches = |(region, _): &&(Region, Access)| region.bytes > 0;
        for (region, _) in effects.iter().filter(touches).filter(|(_, a)| a.reads()) {
            let segments = &mut memory[region.buffer.index()];
            if let Some(whole) = segments.whole(region) {
                whole.read(node, &mut depend_on);
                continue;
            }
            let segments = segments.many();
            isolate(segments, region);
            for (_, segment) in segments.range_mut(region.offset..region.end()) {
                segment.read(node, &mut depend_on);
            }
        }
        for (region, _) in effects.iter().filter(touches).filter(|(_, a)| a.writes()) {
            let segments = &mut memory[region.buffer.index()];
            let written = Segment { writer: Some(node), ..Segment::new(region.end()) };
            if let Some(whole) = segments.whole(region) {
                whole.write(node, &mut depend_on);
                *whole = written;
                continue;
            }
            let segments = segments.many();
            isolate(segments, region);
            let range = region.offset..region.end();
            let inside: SmallVec<[u64; 4]> = segments.range(range).map(|(&k, _)| k).collect();
            for start in inside {
                if let Some(segment) = segments.remove(&start) {
                    segment.write(node, &mut depend_on);
                }
            }
            segments.insert(region.offset, written);
        }
    }
    edges
}

/// Splits and adds segments so that they cover `region` exactly.
fn isolate(segments: &mut BTreeMap<u64, Segment>, region: &Region) {
    let (start, end) = (region.offset, region.end());
    for cut in [start, end] {
        if let Some((&at, segment)) = segments.range_mut(..cut).next_back()
            && at < cut
            && cut < segment.end
        {
            let upper = segment.clone();
            segment.end = cut;
            segments.insert(cut, upper);
        }
    }
    let mut gaps: SmallVec<[(u64, u64); 2]> = SmallVec::new();
    let mut covered = start;
    for (&at, segment) in segments.range(start..end) {
        if covered < at {
            gaps.push((covered, at));
        }
        covered = segment.end;
    }
    if covered < end {
        gaps.push((covered, end));
    }
    for (at, end) in gaps {
        segments.insert(at, Segment::new(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferId;

    /// Nodes as lists of (buffer, start, end, access); the edges they must get.
    fn check(nodes: &[&[(u32, u64, u64, Access)]], expected: &[(u32, u32)]) {
        let operand = |&(buffer, start, end, access): &(u32, u64, u64, Access)| {
            let buffer = BufferId(buffer);
            (Region { buffer, offset: start, bytes: end - start }, access)
        };
        let operands = |node: NodeId, found: &mut Operands| {
            found.extend(nodes[node.index()].iter().map(operand));
        };
        let edges = infer(4, nodes.len(), operands);
        let mut found: Vec<_> = edges.iter().map(|e| (e.from.0, e.to.0)).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, expected, "{nodes:?}");
    }

    #[test]
    fn conflicts_become_edges() {
        use Access::*;
        let w = |s, e| (0, s, e, Write);
        let r = |s, e| (0, s, e, Read);
        check(&[&[w(0, 8)], &[r(0, 8)]], &[(0, 1)]);
        check(&[&[r(0, 8)], &[w(0, 8)]], &[(0, 1)]);
        check(&[&[w(0, 8)], &[w(0, 8)]], &[(0, 1)]);
        check(&[&[r(0, 8)], &[r(0, 8)]], &[]);
        check(&[&[w(0, 8)], &[r(8, 16)]], &[]);
        check(&[&[w(0, 8)], &[(1, 0, 8, Read)]], &[]);
        // Two halves written apart, read together, then one half written again.
        check(
            &[&[w(0, 8)], &[w(8, 16)], &[r(4, 12)], &[w(0, 8)]],
            &[(0, 2), (0, 3), (1, 2), (2, 3)],
        );
        // In place: no edge to itself, and the reader before it stays before it.
        check(
            &[&[w(0, 8)], &[r(0, 8)], &[(0, 0, 8, ReadWrite)], &[r(0, 8)]],
            &[(0, 1), (0, 2), (1, 2), (2, 3)],
        );
        check(&[&[w(0, 0)], &[r(0, 0)]], &[]);
    }
}
