//! Complete search for a placement of lifetimes within a capacity.
//!
//! In: spans over sections, sizes, a capacity. Out: offsets, or that there are none, or that the budget ran out.
//!
//! Bytes are filled from below. For each section the search keeps its *floor*, below which nothing more is placed, and the
//! sum of what is still to come; what the capacity leaves beyond both is the section's *slack*. A *niche* is a
//! longest run of sections with one floor whose neighbours are higher. In any placement that has been pushed
//! down, either some buffer that lies within the niche rests on its floor, or nothing does and the floor can rise to where the
//! lowest buffer across the niche's border can rest, which costs slack. So the search takes a niche and tries every buffer
//! as the *leftmost* (or rightmost) to rest on its floor: what lies left of it must rise, and where slack is small few
//! buffers can be leftmost. It takes the niche and side with the fewest choices.
//!
//! What makes it fast: sections over which nothing remains, and cuts that no remaining buffer crosses, are walls; parts between
//! walls are solved one by one, and when one cannot be, the search returns at once to the choice that made it. Floors and
//! remaining buffers under which a part had no solution are remembered (by a hash of 64 bits: a collision could hide a
//! placement, never make a wrong one). Runs of limited length restart (Luby, Sinclair, Zuckerman, IPL 1993) with other
//! preferences; from the fourth on, niches in which dead ends were found recently come first (as variables do in Moskewicz
//! et al., DAC 2001).
//!
//! The problem and the use of sections, floors and canonical placements are those of Moffitt, "MiniMalloc", ASPLOS 2023, which
//! branches on the buffer of least offset instead. A step costs O(sections + buffers that start or end in niches).

mod choices;
mod layout;

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;

use super::Budget;
use super::sections::Span;
use crate::random::{GOLDEN, Random, scramble};
use choices::Niche;
pub(super) use layout::{Layout, Piece};

/// A floor that nothing can rest on: a wall.
const WALL: u64 = u64::MAX;
/// An item that has no place yet.
const NOWHERE: u64 = u64::MAX;
/// No agenda entry, no frame.
const NONE: u32 = u32::MAX;

/// Runs that go by the number of choices alone, each with another preference; later ones go by heat and chance.
const FIXED_RUNS: u64 = 3;

/// What came of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// There is a placement; the offsets are in the search.
    Placed,
    /// All were tried.
    Impossible,
    /// The budget ran out.
    Stopped,
}

/// A part of the time line to be solved, and what is to be solved after it.
#[derive(Clone, Copy)]
struct Goal {
    span: Span,
    /// The frame whose choice made this part.
    parent: u32,
    /// The next goal.
    rest: u32,
}

/// A choice point.
struct Frame {
    goal: u32,
    niche: Niche,
    /// Choices not yet tried: the stack of choices from here to the frame above, taken from its end.
    choices: u32,
    /// Whether it has not been tried yet to let nothing rest on the niche's floor.
    may_rise: bool,
    /// Under what the failure of this frame is remembered.
    key: Option<u64>,
    /// Lengths of the trail and of the goals when the frame was opened.
    trail: u32,
    goals: u32,
}

enum Change {
    Floor { section: u32, was: u64 },
    Placed { piece: u32 },
}

pub(super) struct Search<'a> {
    layout: &'a Layout,
    capacity: u64,
    pub offsets: Vec<u64>,
    floor: Vec<u64>,
    remaining: Vec<u64>,
    /// Remaining pieces that cover both the section and the one before it.
    links: Vec<u32>,
    /// By section, the words of the placed pieces that start there.
    placed: Vec<u64>,
    trail: Vec<Change>,
    goals: Vec<Goal>,
    frames: Vec<Frame>,
    choices: Vec<u32>,
    scored: Vec<(i64, u32)>,
    dead: HashSet<u64, BuildHasherDefault<FxHasher>>,
    /// How often and how recently dead ends were found in each section.
    heat: Vec<f64>,
    step: f64,
    random: Random,
    run: u64,
}

impl<'a> Search<'a> {
    pub fn new(layout: &'a Layout, capacity: u64) -> Self {
        let mut remaining = vec![0; layout.sections];
        let mut links = vec![0; layout.sections];
        for piece in &layout.pieces {
            for section in piece.span.sections() {
                remaining[section] += piece.size;
                links[section] += u32::from(section > piece.span.first as usize);
            }
        }
        Self {
            layout,
            capacity,
            offsets: vec![NOWHERE; layout.pieces.len()],
            floor: vec![0; layout.sections],
            remaining,
            links,
            placed: vec![0; layout.sections],
            trail: Vec::new(),
            goals: Vec::new(),
            frames: Vec::new(),
            choices: Vec::new(),
            scored: Vec::new(),
            dead: HashSet::default(),
            heat: vec![0.0; layout.sections],
            step: 1.0,
            random: Random::new(0),
            run: 0,
        }
    }

    /// One run of at most `UNIT` steps times a number of the Luby sequence; each call is the next run.
    pub fn run(&mut self, budget: &mut Budget<'_>) -> Outcome {
        const FIXED: u64 = 2000;
        const UNIT: u64 = 500;
        self.run += 1;
        let limit = match self.run.checked_sub(FIXED_RUNS) {
            None | Some(0) => FIXED,
            Some(index) => UNIT * luby(index),
        };
        let outcome = self.search(limit, budget);
        if outcome != Outcome::Placed {
            self.undo_to(0, 0);
        }
        outcome
    }

    fn search(&mut self, limit: u64, budget: &mut Budget<'_>) -> Outcome {
        if self.remaining.iter().any(|&sum| sum > self.capacity) {
            return Outcome::Impossible;
        }
        self.frames.clear();
        self.choices.clear();
        let all = Span { first: 0, end: self.layout.sections as u32 };
        let mut goal = self.split(all, NONE, NONE);
        let mut steps = 0;
        while goal != NONE {
            steps += 1;
            if steps > limit || !budget.step() {
                return Outcome::Stopped;
            }
            let mut failed = match self.open(goal) {
                true => self.frames.len() as u32 - 1,
                false => self.goals[goal as usize].parent,
            };
            goal = loop {
                if failed == NONE {
                    return Outcome::Impossible;
                }
                self.close_above(failed);
                match self.advance() {
                    Some(next) => break next,
                    None => failed = self.give_up(),
                }
            };
        }
        Outcome::Placed
    }

    /// Makes goals of the parts of `span` between walls, smallest first, to be solved before `rest`: the first.
    fn split(&mut self, span: Span, parent: u32, rest: u32) -> u32 {
        let start = self.goals.len();
        let mut first = None;
        for section in span.first..=span.end {
            let at = section as usize;
            let solid = section == span.end || self.remaining[at] == 0;
            if let Some(begun) = first
                && (solid || self.links[at] == 0)
            {
                let span = Span { first: begun, end: section };
                self.goals.push(Goal { span, parent, rest: NONE });
                first = None;
            }
            if !solid && first.is_none() {
                first = Some(section);
            }
        }
        let made = &mut self.goals[start..];
        made.sort_unstable_by_key(|goal| (std::cmp::Reverse(goal.span.len()), goal.span.first));
        let mut next = rest;
        for (at, goal) in (start as u32..).zip(made) {
            goal.rest = next;
            next = at;
        }
        next
    }

    /// Opens a frame for a goal; false if the goal is known to have no solution.
    fn open(&mut self, goal: u32) -> bool {
        let part = self.goals[goal as usize].span;
        let (niche, count, may_rise) = self.pick(part);
        let key = (count + usize::from(may_rise) > 1).then(|| self.key(part));
        if key.is_some_and(|key| self.dead.contains(&key)) {
            return false;
        }
        let choices = self.choices.len() as u32;
        self.choose(part, niche);
        let (trail, goals) = (self.trail.len() as u32, self.goals.len() as u32);
        self.frames.push(Frame { goal, niche, choices, may_rise: true, key, trail, goals });
        true
    }

    /// Takes the next choice of the last frame that is not dead at once: the goal that it leads to.
    fn advance(&mut self) -> Option<u32> {
        loop {
            let depth = self.frames.len() as u32 - 1;
            let frame = &mut self.frames[depth as usize];
            let Frame { niche, goal, trail, goals, .. } = *frame;
            let piece = match self.choices.len() as u32 > frame.choices {
                true => self.choices.pop(),
                false if std::mem::take(&mut frame.may_rise) => None,
                false => return None,
            };
            let fits = match piece {
                Some(piece) => {
                    self.place(piece, self.floor[niche.span.first as usize]);
                    let span = self.layout.pieces[piece as usize].span;
                    self.rise(match niche.leftmost {
                        true => Span { end: span.first, ..niche.span },
                        false => Span { first: span.end, ..niche.span },
                    })
                }
                None => self.rise(niche.span),
            };
            if fits {
                let Goal { span, rest, .. } = self.goals[goal as usize];
                return Some(self.split(span, depth, rest));
            }
            self.undo_to(trail, goals);
        }
    }

    /// Closes the last frame, which has no choices left: the frame to go on with.
    fn give_up(&mut self) -> u32 {
        /// Failures remembered, at most.
        const MOST: usize = 1 << 21;
        let Some(frame) = self.frames.last() else { return NONE };
        if let Some(key) = frame.key
            && self.dead.len() < MOST
        {
            self.dead.insert(key);
        }
        self.goals[frame.goal as usize].parent
    }

    /// Takes back whatever was done since the frame was opened, and drops the frames above it.
    fn close_above(&mut self, frame: u32) {
        if let Some(above) = self.frames.get(frame as usize + 1) {
            self.choices.truncate(above.choices as usize);
            self.frames.truncate(frame as usize + 1);
        }
        let Frame { trail, goals, .. } = self.frames[frame as usize];
        self.undo_to(trail, goals);
    }

    fn undo_to(&mut self, trail: u32, goals: u32) {
        self.goals.truncate(goals as usize);
        while self.trail.len() > trail as usize {
            match self.trail.pop() {
                Some(Change::Floor { section, was }) => self.floor[section as usize] = was,
                Some(Change::Placed { piece }) => {
                    let Piece { span, size } = self.layout.pieces[piece as usize];
                    self.offsets[piece as usize] = NOWHERE;
                    self.placed[span.first as usize] ^= self.layout.word[piece as usize];
                    for section in span.sections() {
                        self.remaining[section] += size;
                    }
                    for section in span.sections().skip(1) {
                        self.links[section] += 1;
                    }
                }
                None => return,
            }
        }
    }

    fn set_floor(&mut self, section: usize, floor: u64) {
        let was = std::mem::replace(&mut self.floor[section], floor);
        self.trail.push(Change::Floor { section: section as u32, was });
    }

    fn place(&mut self, piece: u32, offset: u64) {
        let Piece { span, size } = self.layout.pieces[piece as usize];
        self.trail.push(Change::Placed { piece });
        self.offsets[piece as usize] = offset;
        self.placed[span.first as usize] ^= self.layout.word[piece as usize];
        for section in span.sections() {
            self.remaining[section] -= size;
            let solid = self.remaining[section] == 0;
            self.set_floor(section, if solid { WALL } else { offset + size });
        }
        for section in span.sections().skip(1) {
            self.links[section] -= 1;
        }
    }

    /// Raises the floor of sections on which nothing within them rests to where what crosses their border can; false if
    /// that takes more than the slack.
    fn rise(&mut self, span: Span) -> bool {
        if span.first >= span.end {
            return true;
        }
        let to = self.lowest_across(span);
        for section in span.sections() {
            let remaining = self.remaining[section];
            if remaining == 0 {
                continue;
            }
            if to.checked_add(remaining).is_none_or(|top| top > self.capacity) {
                self.heat_up(span);
                return false;
            }
            if to > self.floor[section] {
                self.set_floor(section, to);
            }
        }
        true
    }

    /// The least offset at which a remaining piece can lie that covers sections both in and outside of `span`; [`WALL`] if
    /// there is none.
    fn lowest_across(&self, span: Span) -> u64 {
        let mut least = WALL;
        let mut consider = |piece: u32| {
            let mut rest = 0;
            for &floor in &self.floor[self.layout.pieces[piece as usize].span.sections()] {
                rest = rest.max(floor);
                if rest >= least {
                    return;
                }
            }
            least = rest;
        };
        let free = |&&piece: &&u32| self.offsets[piece as usize] == NOWHERE;
        let piece_span = |piece: u32| self.layout.pieces[piece as usize].span;
        for &piece in self.layout.over[span.first as usize].iter().filter(free) {
            if piece_span(piece).first < span.first {
                consider(piece);
            }
        }
        for &piece in self.layout.over[span.end as usize - 1].iter().filter(free) {
            let own = piece_span(piece);
            if own.end > span.end && own.first >= span.first {
                consider(piece);
            }
        }
        least
    }

    fn heat_up(&mut self, span: Span) {
        const GROWTH: f64 = 1.01;
        self.step *= GROWTH;
        for section in span.sections() {
            self.heat[section] += self.step;
        }
        if self.step > 1e200 {
            self.step *= 1e-200;
            self.heat.iter_mut().for_each(|heat| *heat *= 1e-200);
        }
    }

    fn slack(&self, section: usize) -> u64 {
        match self.remaining[section] {
            0 => WALL,
            remaining => self.capacity - self.floor[section] - remaining,
        }
    }

    /// A hash of all that a part's solutions depend on: its floors and which pieces remain.
    fn key(&self, part: Span) -> u64 {
        let mut key = u64::from(part.first) << 32 | u64::from(part.end);
        for section in part.sections() {
            key = key.wrapping_add(self.placed[section]) ^ self.floor[section];
            key = key.wrapping_mul(GOLDEN).rotate_left(29);
        }
        scramble(key)
    }
}

/// The Luby sequence from 1 on: 1 1 2 1 1 2 4 …
fn luby(index: u64) -> u64 {
    let mut index = index.max(1);
    loop {
        let bits = 64 - index.leading_zeros();
        if index == (1 << bits) - 1 {
            return 1 << (bits - 1);
        }
        index -= (1 << (bits - 1)) - 1;
    }
}
