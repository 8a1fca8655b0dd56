//! Which niche to go on with, and what could rest in it: the one with the fewest choices, its likeliest choice first.

use crate::memory::sections::Span;

use super::{FIXED_RUNS, NONE, NOWHERE, Search, WALL};

/// How choices are ordered: what is preferred to rest in a niche.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prefer {
    Long,
    Large,
    Area,
}

/// A niche with the side from which its buffers are tried.
#[derive(Clone, Copy)]
pub(super) struct Niche {
    pub span: Span,
    pub leftmost: bool,
}

impl Search<'_> {
    /// The floors beside a run of sections within `part`.
    fn beside(&self, part: Span, span: Span) -> (u64, u64) {
        let left = span.first > part.first;
        let right = span.end < part.end;
        (
            if left { self.floor[span.first as usize - 1] } else { WALL },
            if right { self.floor[span.end as usize] } else { WALL },
        )
    }

    /// The niche of a part with the fewest choices for its worth, how many, and whether its floor may rise as a whole.
    pub(super) fn pick(&self, part: Span) -> (Niche, usize, bool) {
        let by_heat = self.run > FIXED_RUNS;
        let mut best = (f64::INFINITY, Niche { span: part, leftmost: true }, 0, true);
        let mut first = part.first;
        while first < part.end {
            let floor = self.floor[first as usize];
            let mut end = first + 1;
            while end < part.end && self.floor[end as usize] == floor {
                end += 1;
            }
            let span = Span { first, end };
            first = end;
            let (left, right) = self.beside(part, span);
            if left <= floor || right <= floor {
                continue;
            }
            let worth = match by_heat {
                true => {
                    let heat = self.heat[span.sections()].iter().copied().fold(0.0, f64::max);
                    heat + self.step * 1e-3
                }
                false => 1.0,
            };
            for leftmost in [true, false] {
                let niche = Niche { span, leftmost };
                let most = (best.0 * worth).min(12.0) as usize + 1;
                let side = if leftmost { left } else { right };
                let (count, slack) = self.count(niche, side, most);
                let may_rise = left.min(right) < WALL && left.min(right) - floor <= slack;
                let choices = count + usize::from(may_rise);
                if choices <= 1 {
                    return (niche, count, may_rise);
                }
                // Of equals the lowest.
                let score =
                    choices as f64 / worth * (1.0 + floor as f64 / self.capacity as f64 * 1e-6);
                if score < best.0 {
                    best = (score, niche, count, may_rise);
                }
            }
        }
        (best.1, best.2, best.3)
    }

    /// How many pieces can be the outermost to rest in the niche, counted up to `most`, and the least slack of the sections
    /// passed over.
    fn count(&self, niche: Niche, side: u64, most: usize) -> (usize, u64) {
        let mut count = 0;
        let slack = self.outermost(niche, side, |_, _| {
            count += 1;
            count < most
        });
        (count, slack)
    }

    /// Goes through the pieces that can be the outermost to rest in the niche, with their distances from its side, until
    /// `visit` says that it is enough. `side` is the floor beyond that side.
    fn outermost(&self, niche: Niche, side: u64, mut visit: impl FnMut(u32, u32) -> bool) -> u64 {
        let Niche { span, leftmost } = niche;
        let floor = self.floor[span.first as usize];
        let mut slack = WALL;
        for distance in 0..span.end - span.first {
            let section = match leftmost {
                true => span.first + distance,
                false => span.end - 1 - distance,
            } as usize;
            let list = if leftmost { &self.layout.starting } else { &self.layout.ending };
            for &index in &list[section] {
                let piece = &self.layout.pieces[index as usize];
                if piece.span.first < span.first || piece.span.end > span.end {
                    break; // the others reach further still
                }
                let twin = self.layout.twin[index as usize];
                let taken = self.offsets[index as usize] != NOWHERE;
                if taken || twin != NONE && self.offsets[twin as usize] == NOWHERE {
                    continue;
                }
                let rise = side.min(floor + piece.size) - floor;
                if (distance == 0 || rise <= slack) && !visit(index, distance) {
                    return slack;
                }
            }
            slack = slack.min(self.slack(section));
            if slack == 0 {
                break; // something must rest here
            }
        }
        slack
    }

    /// Stacks the choices for a niche, the best one last.
    pub(super) fn choose(&mut self, part: Span, niche: Niche) {
        let Niche { span, leftmost } = niche;
        let (left, right) = self.beside(part, span);
        let floor = self.floor[span.first as usize];
        let prefer = match self.run {
            1 => Prefer::Long,
            run if run % 2 == 0 => Prefer::Large,
            _ => Prefer::Area,
        };
        let mut scored = std::mem::take(&mut self.scored);
        scored.clear();
        self.outermost(niche, if leftmost { left } else { right }, |index, distance| {
            let piece = &self.layout.pieces[index as usize];
            let size = (piece.size as f64 * 1024.0 / self.capacity as f64) as i64;
            let length = piece.span.len() as i64;
            let top = floor + piece.size;
            let flush = i64::from(top == left || top == right);
            let value = match prefer {
                Prefer::Long => length * 2000 + size + flush * 300,
                Prefer::Large => size * 100 + length * 200 + flush * 30_000,
                Prefer::Area => size * length + flush * 3000,
            };
            scored.push((value - i64::from(distance) * 1_000_000, index));
            true
        });
        if self.run > FIXED_RUNS {
            for (value, _) in &mut scored {
                let random = self.random.next();
                if random.is_multiple_of(20) {
                    *value += ((random >> 8) % 4000) as i64 - 2000;
                    if (random >> 40).is_multiple_of(4) {
                        *value = ((random >> 20) % 2_000_000) as i64 - 1_000_000;
                    }
                }
            }
        }
        scored.sort_unstable();
        self.choices.extend(scored.iter().map(|&(_, index)| index));
        self.scored = scored;
    }
}
