//! Sets of bytes of every buffer of a graph, as disjoint intervals. Each operation costs O(log intervals) and the
//! intervals that it removes.

use std::collections::BTreeMap;

use phonograph_graph::{BufferId, ComputeGraph, Region};
use smallvec::SmallVec;

/// A set of bytes of a graph's buffers.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    /// By buffer: the end of each interval by its start. Intervals neither meet nor overlap.
    buffers: Vec<BTreeMap<u64, u64>>,
}

impl Bytes {
    /// No byte.
    pub fn none(graph: &ComputeGraph) -> Self {
        Self { buffers: vec![BTreeMap::new(); graph.buffers().len()] }
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
        // Whatever meets the region, from the one that ends at its start to the one that starts at its end.
        let met: SmallVec<[(u64, u64); 4]> = intervals
            .range(..=end)
            .rev()
            .take_while(|&(_, &to)| to >= start)
            .map(|(&f, &t)| (f, t))
            .collect();
        for (from, to) in met {
            intervals.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        intervals.insert(start, end);
    }

    /// Takes the bytes of a region out.
    pub fn remove(&mut self, region: Region) {
        let (start, end) = (region.offset, region.end());
        if start == end {
            return;
        }
        let intervals = &mut self.buffers[region.buffer.index()];
        let cut: SmallVec<[(u64, u64); 4]> = intervals
            .range(..end)
            .rev()
            .take_while(|&(_, &to)| to > start)
            .map(|(&f, &t)| (f, t))
            .collect();
        for (from, to) in cut {
            intervals.remove(&from);
            if from < start {
                intervals.insert(from, start);
            }
            if to > end {
                intervals.insert(end, to);
            }
        }
    }

    /// Whether some byte of a region is in the set.
    pub fn meets(&self, region: Region) -> bool {
        let below = self.buffers[region.buffer.index()].range(..region.end()).next_back();
        region.bytes > 0 && below.is_some_and(|(_, &to)| to > region.offset)
    }

    /// Whether all bytes of a region are in the set.
    pub fn holds(&self, region: Region) -> bool {
        let at = self.buffers[region.buffer.index()].range(..=region.offset).next_back();
        region.bytes == 0 || at.is_some_and(|(_, &to)| to >= region.end())
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
