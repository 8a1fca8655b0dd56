//! Sets of bytes of every buffer of a graph, as disjoint intervals. Each operation costs O(log intervals) and the
//! intervals that it removes.

use std::collections::BTreeMap;

use phonograph_graph::{BufferId, ComputeGraph, Region};
use smallvec::SmallVec;

/// A set of bytes of a graph's buffers.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    buffers: Vec<Intervals>,
}

/// Intervals that neither meet nor overlap.
#[derive(Clone, Debug, Default)]
enum Intervals {
    #[default]
    Empty,
    One(u64, u64),
    /// The end of each by its start.
    Many(BTreeMap<u64, u64>),
}

impl Intervals {
    /// As a tree, whatever they were.
    fn tree(&mut self) -> &mut BTreeMap<u64, u64> {
        if !matches!(self, Intervals::Many(_)) {
            *self = Intervals::Many(match std::mem::take(self) {
                Intervals::One(start, end) => [(start, end)].into(),
                _ => BTreeMap::new(),
            });
        }
        match self {
            Intervals::Many(tree) => tree,
            _ => unreachable!("it was made one above"),
        }
    }

    /// The last interval that starts at `at` or before.
    fn up_to(&self, at: u64) -> Option<(u64, u64)> {
        match self {
            Intervals::Empty => None,
            &Intervals::One(start, end) => Some((start, end)).filter(|_| start <= at),
            Intervals::Many(tree) => tree.range(..=at).next_back().map(|(&from, &to)| (from, to)),
        }
    }
}

impl Bytes {
    /// No byte.
    pub fn none(graph: &ComputeGraph) -> Self {
        Self { buffers: vec![Intervals::default(); graph.buffers().len()] }
    }

    /// Adds a buffer as a whole.
    pub fn add_whole(&mut self, graph: &ComputeGraph, buffer: BufferId) {
        let bytes = graph.buffer(buffer).bytes;
        self.add(Region { buffer, offset: 0, bytes });
    }

    /// Adds the bytes of a region.
    pub fn add(&mut self, region: Region) {
        let (mut start, mut end) = (region.offset, region.end());
        if start == end {
            return;
        }
        let intervals = &mut self.buffers[region.buffer.index()];
        match intervals {
            Intervals::Empty => *intervals = Intervals::One(start, end),
            Intervals::One(from, to) if start <= *to && *from <= end => {
                (*from, *to) = (start.min(*from), end.max(*to));
            }
            _ => {
                let tree = intervals.tree();
                // Whatever meets the region, from the one that ends at its start to the one that starts at its end.
                let met: SmallVec<[(u64, u64); 4]> = tree
                    .range(..=end)
                    .rev()
                    .take_while(|&(_, &to)| to >= start)
                    .map(|(&f, &t)| (f, t))
                    .collect();
                for (from, to) in met {
                    tree.remove(&from);
                    (start, end) = (start.min(from), end.max(to));
                }
                tree.insert(start, end);
            }
        }
    }

    /// Takes the bytes of a region out.
    pub fn remove(&mut self, region: Region) {
        let (start, end) = (region.offset, region.end());
        let intervals = &mut self.buffers[region.buffer.index()];
        match intervals {
            Intervals::Empty => {}
            Intervals::One(from, to) if start <= *from && *to <= end => {
                *intervals = Intervals::Empty;
            }
            _ if start == end => {}
            _ => {
                let tree = intervals.tree();
                let cut: SmallVec<[(u64, u64); 4]> = tree
                    .range(..end)
                    .rev()
                    .take_while(|&(_, &to)| to > start)
                    .map(|(&f, &t)| (f, t))
                    .collect();
                for (from, to) in cut {
                    tree.remove(&from);
                    if from < start {
                        tree.insert(from, start);
                    }
                    if to > end {
                        tree.insert(end, to);
                    }
                }
            }
        }
    }

    /// Whether some byte of a region is in the set.
    pub fn meets(&self, region: Region) -> bool {
        let Some(last) = region.end().checked_sub(1).filter(|_| region.bytes > 0) else {
            return false;
        };
        let below = self.buffers[region.buffer.index()].up_to(last);
        below.is_some_and(|(_, to)| to > region.offset)
    }

    /// Whether all bytes of a region are in the set.
    pub fn holds(&self, region: Region) -> bool {
        let at = self.buffers[region.buffer.index()].up_to(region.offset);
        region.bytes == 0 || at.is_some_and(|(_, to)| to >= region.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phonograph_graph::GraphBuilder;

    #[test]
    fn a_set_of_bytes_is_what_a_list_of_flags_says() {
        const SIZE: u64 = 24;
        arbtest::arbtest(|u| {
            let mut b = GraphBuilder::new();
            let buffer = b.alloc_buffer("x", SIZE as usize);
            let mut set = Bytes::none(&b.build().expect("one buffer"));
            let mut flags = [false; SIZE as usize];
            for _ in 0..u.int_in_range(0..=20)? {
                let offset = u.int_in_range(0..=SIZE)?;
                let region = Region { buffer, offset, bytes: u.int_in_range(0..=SIZE - offset)? };
                let part = &mut flags[offset as usize..region.end() as usize];
                assert_eq!(set.meets(region), part.contains(&true));
                assert_eq!(set.holds(region), !part.contains(&false));
                let add = u.arbitrary()?;
                part.fill(add);
                if add { set.add(region) } else { set.remove(region) }
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
