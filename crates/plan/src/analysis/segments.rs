//! A value for every byte of a buffer, kept as disjoint segments: who wrote it last, where it came from.
//! Each operation costs O(log segments) and the segments that it meets. Most buffers are always touched as a whole: while there
//! is one segment, nothing is allocated.

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
#[derive(Clone, Debug, Default)]
pub(crate) enum Segments<T> {
    #[default]
    Empty,
    One(Segment<T>),
    /// By start: the end and the value.
    Many(BTreeMap<u64, (u64, T)>),
}

impl<T: Clone> Segments<T> {
    /// As a tree, whatever they were.
    fn tree(&mut self) -> &mut BTreeMap<u64, (u64, T)> {
        if !matches!(self, Segments::Many(_)) {
            *self = Segments::Many(match std::mem::take(self) {
                Segments::One(Segment { start, end, value }) => [(start, (end, value))].into(),
                _ => BTreeMap::new(),
            });
        }
        match self {
            Segments::Many(tree) => tree,
            _ => unreachable!("it was made one above"),
        }
    }

    /// Gives bytes `start..end` a value.
    pub fn assign(&mut self, start: u64, end: u64, value: T) {
        if start >= end {
            return;
        }
        match self {
            Segments::Empty => *self = Segments::One(Segment { start, end, value }),
            Segments::One(one) if start <= one.start && one.end <= end => {
                *one = Segment { start, end, value };
            }
            _ => {
                let met = self.meeting(start, end);
                let tree = self.tree();
                for Segment { start: from, end: to, value } in met {
                    tree.remove(&from);
                    if from < start {
                        tree.insert(from, (start, value.clone()));
                    }
                    if to > end {
                        tree.insert(end, (to, value));
                    }
                }
                tree.insert(start, (end, value));
            }
        }
    }

    /// The segments that meet `start..end`, the last first, as far as they go.
    fn meeting(&self, start: u64, end: u64) -> SmallVec<[Segment<T>; 4]> {
        match self {
            Segments::Empty => SmallVec::new(),
            Segments::One(one) => Some(one)
                .filter(|one| one.start < end && start < one.end)
                .into_iter()
                .cloned()
                .collect(),
            Segments::Many(tree) => {
                let met = tree.range(..end).rev().take_while(|&(_, (to, _))| *to > start);
                let segment = |(&start, (end, value)): (&u64, &(u64, T))| Segment {
                    start,
                    end: *end,
                    value: value.clone(),
                };
                met.map(segment).collect()
            }
        }
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
            if segment.start > reached {
                return false;
            }
            reached = segment.end;
            if !holds(segment) {
                return false;
            }
        }
        reached >= end
    }

    /// Shows `visit` the value of every segment of `start..end`, in order: segments are cut at its ends, and bytes without
    /// a value get the default.
    pub fn visit(&mut self, start: u64, end: u64, mut visit: impl FnMut(&mut T))
    where
        T: Default,
    {
        if start >= end {
            return;
        }
        match self {
            Segments::Empty => {
                let mut value = T::default();
                visit(&mut value);
                *self = Segments::One(Segment { start, end, value });
            }
            Segments::One(one) if (one.start, one.end) == (start, end) => visit(&mut one.value),
            _ => {
                let tree = self.tree();
                for at in [start, end] {
                    let spans = |(_, (to, _)): &(&u64, &mut (u64, T))| *to > at;
                    if let Some((_, below)) = tree.range_mut(..at).next_back().filter(spans) {
                        let above = below.clone();
                        below.0 = at;
                        tree.insert(at, above);
                    }
                }
                let mut reached = start;
                let mut gaps: SmallVec<[(u64, u64); 4]> = SmallVec::new();
                for (&from, (to, _)) in tree.range(start..end) {
                    if reached < from {
                        gaps.push((reached, from));
                    }
                    reached = *to;
                }
                if reached < end {
                    gaps.push((reached, end));
                }
                for (from, to) in gaps {
                    tree.insert(from, (to, T::default()));
                }
                tree.range_mut(start..end).for_each(|(_, (_, value))| visit(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_what_a_list_of_values_says() {
        const SIZE: u64 = 24;
        arbtest::arbtest(|u| {
            let mut segments: Segments<u32> = Segments::default();
            let mut values = [None; SIZE as usize];
            for value in 1..=u.int_in_range(1..=20)? {
                let start = u.int_in_range(0..=SIZE)?;
                let end = u.int_in_range(start..=SIZE)?;
                let part = &mut values[start as usize..end as usize];
                let mut shown: Vec<Option<u32>> = vec![None; part.len()];
                for found in segments.within(start, end) {
                    let at = (found.start - start) as usize..(found.end - start) as usize;
                    shown[at].fill(Some(found.value));
                }
                assert_eq!(shown, part);
                assert_eq!(segments.all(start, end, |_| true), !part.contains(&None));
                if u.arbitrary()? {
                    segments.assign(start, end, value);
                    part.fill(Some(value));
                } else {
                    segments.visit(start, end, |seen| *seen += 100);
                    part.iter_mut().for_each(|seen| *seen = Some(seen.unwrap_or(0) + 100));
                }
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
