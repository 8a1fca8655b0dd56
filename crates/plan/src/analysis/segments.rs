//! A value for every byte of a buffer, kept as disjoint segments: who wrote it last, where it came from.
//! Each operation costs O(log segments) and the segments that it meets.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// Bytes `start..end` share a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment<T> {
    pub start: u64,
    pub end: u64,
    pub value: T,
}

/// Values by byte; bytes that were never assigned have none.
#[derive(Clone, Debug)]
pub(crate) struct Segments<T> {
    by_start: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new() }
    }
}

impl<T: Copy> Segments<T> {
    /// Gives bytes `start..end` a value.
    pub fn assign(&mut self, start: u64, end: u64, value: T) {
        if start >= end {
            return;
        }
        for met in self.meeting(start, end) {
            self.by_start.remove(&met.start);
            if met.start < start {
                self.by_start.insert(met.start, (start, met.value));
            }
            if met.end > end {
                self.by_start.insert(end, (met.end, met.value));
            }
        }
        self.by_start.insert(start, (end, value));
    }

    /// The segments that meet `start..end`, the last first, as far as they go.
    fn meeting(&self, start: u64, end: u64) -> SmallVec<[Segment<T>; 4]> {
        let below = self.by_start.range(..end).rev();
        let met = below.take_while(|&(_, &(to, _))| to > start);
        met.map(|(&start, &(end, value))| Segment { start, end, value }).collect()
    }

    /// The segments within `start..end`, in order, cut to it.
    pub fn within(&self, start: u64, end: u64) -> SmallVec<[Segment<T>; 4]> {
        let mut met = self.meeting(start, end);
        met.reverse();
        for segment in &mut met {
            segment.start = segment.start.max(start);
            segment.end = segment.end.min(end);
        }
        met
    }

    /// Whether every byte of `start..end` has a value for which `holds`.
    pub fn all(&self, start: u64, end: u64, mut holds: impl FnMut(Segment<T>) -> bool) -> bool {
        let mut reached = start;
        for segment in self.within(start, end) {
            if segment.start > reached || !holds(segment) {
                return false;
            }
            reached = segment.end;
        }
        reached >= end
    }
}
