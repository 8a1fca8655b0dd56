//! The time line cut into sections: the moments that matter for placement, and no others.
//!
//! Two lifetimes meet if and only if they share a section. A section stands for a moment at which as many are live as can
//! be: right after the last of a run of starts, before the next end. Every other moment's lifetimes are among
//! those of one of these. O(n log n).

use super::lifetimes::Lifetimes;

/// The sections that a lifetime covers: from `first` up to, not including, `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    pub first: u32,
    pub end: u32,
}

impl Span {
    pub const fn meets(self, other: Span) -> bool {
        self.first < other.end && other.first < self.end
    }

    pub fn sections(self) -> std::ops::Range<usize> {
        self.first as usize..self.end as usize
    }

    pub const fn len(self) -> usize {
        (self.end - self.first) as usize
    }
}

/// The span of each lifetime, and how many sections there are.
pub(super) fn cut(lifetimes: &Lifetimes) -> (Vec<Span>, usize) {
    let list = lifetimes.as_slice();
    let mut events: Vec<(i64, bool, u32)> = Vec::with_capacity(2 * list.len());
    for (index, lifetime) in (0..).zip(list) {
        events.push((lifetime.lower, true, index));
        events.push((lifetime.upper, false, index));
    }
    events.sort_unstable();
    let mut spans = vec![Span::default(); list.len()];
    let mut section = 0;
    let mut started = false;
    for (_, starts, index) in events {
        let span = &mut spans[index as usize];
        if starts {
            span.first = section;
            started = true;
        } else {
            section += u32::from(std::mem::take(&mut started));
            span.end = section;
        }
    }
    (spans, section as usize)
}
