//! Which launches wait for which: those that touch the same memory, and no others.
//!
//! In: the stream of a launch and the [`Use`]s of what it touches. Out: waits between streams. A launch waits for the last
//! one that wrote what it touches, and, if it writes, for those that read it since; what is on the same stream is in order
//! already. A wait is for all that was issued to the other stream so far, which may be more than was asked for.
//!
//! Launches are counted in *turns*: a turn is a run of launches on one stream. While an executable is launched in the turn
//! in which it was launched last, everything since has gone to the same stream, so nothing has to be looked at: that costs
//! one comparison. Otherwise O(uses + waits).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::DriverError;
use crate::stream::{Event, Stream};

/// How many streams are remembered before those that nobody else holds are waited for and forgotten.
const MAX_LANES: usize = 64;

/// A run of launches on one stream. No two in a process are the same, so that executables of different backends never share
/// one; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Turn(u64);

/// A stream that work was issued to. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct LaneId(u64);

fn next() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// The launches that touched something last.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<Touched>);

#[derive(Debug, Default)]
struct Touched {
    written: Option<(LaneId, Turn)>,
    /// Since then, the last on each stream.
    read: SmallVec<[(LaneId, Turn); 2]>,
}

/// Something that a launch touches, and whether it changes it.
pub(crate) struct Use<'a> {
    pub of: &'a Uses,
    pub writes: bool,
}

/// What was issued to a stream, and what it has waited for.
struct Lane {
    id: LaneId,
    stream: Stream,
    /// Made when somebody first waits for this stream.
    reached: Option<Event>,
    /// Of its last launch.
    turn: Turn,
    /// The turn up to which everything on it is known to be complete.
    complete: Turn,
    /// Of each other stream, the turn up to which this one waits for it.
    seen: FxHashMap<LaneId, Turn>,
}

/// The streams of a backend and what is on them.
#[derive(Default)]
pub(crate) struct Order {
    lanes: Vec<Lane>,
    /// The last launch.
    current: Option<Current>,
    /// Touched by every launch; changed by those of which nobody knows what they touch.
    pub everything: Arc<Uses>,
}

/// A launch: what the next one compares itself with, in one line of the cache.
#[repr(align(64))]
struct Current {
    turn: Turn,
    stream: Stream,
    /// The stream among the lanes.
    at: usize,
}

impl Order {
    /// Whether a launch on this stream belongs to this turn, so that everything since the turn began is before it.
    #[inline]
    pub fn continues(&self, turn: Turn, stream: &Stream) -> bool {
        self.current.as_ref().is_some_and(|now| now.turn == turn && now.stream.is(stream))
    }

    /// Orders what is issued next to the stream after what touched the same; gives its turn.
    pub fn follow(&mut self, stream: &Stream, uses: &[Use<'_>]) -> Result<Turn, DriverError> {
        let here = self.lane(stream)?;
        let mut needed: FxHashMap<LaneId, Turn> = FxHashMap::default();
        for Use { of, writes } in uses {
            let touched = of.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reads = touched.read.iter().filter(|_| *writes);
            for &(lane, turn) in touched.written.iter().chain(reads) {
                let last = needed.entry(lane).or_default();
                *last = turn.max(*last);
            }
        }
        for there in 0..self.lanes.len() {
            // A stream that is not among the lanes has been waited for.
            let Some(&turn) = needed.get(&self.lanes[there].id) else { continue };
            let id = self.lanes[there].id;
            let seen = self.lanes[here].seen.get(&id).copied().unwrap_or_default();
            if there == here || seen.max(self.lanes[there].complete) >= turn {
                continue;
            }
            let Lane { reached, stream: other, turn: last, .. } = &mut self.lanes[there];
            let event = match reached {
                Some(event) => event,
                None => reached.insert(Event::new(other.device())?),
            };
            event.record(other)?;
            stream.wait(event)?;
            let last = *last;
            self.lanes[here].seen.insert(id, last);
        }
        let turn = match &self.current {
            Some(now) if now.at == here => now.turn,
            _ => Turn(next()),
        };
        self.current = Some(Current { turn, stream: stream.clone(), at: here });
        let lane = &mut self.lanes[here];
        lane.turn = turn;
        for Use { of, writes } in uses {
            let mut touched = of.0.lock().unwrap_or_else(PoisonError::into_inner);
            if *writes {
                touched.written = Some((lane.id, turn));
                touched.read.clear();
            } else {
                touched.read.retain(|(id, _)| *id != lane.id);
                touched.read.push((lane.id, turn));
            }
        }
        Ok(turn)
    }

    /// Everything issued to the stream so far has been waited for. That ends its turn: a launch after this is not complete.
    pub fn waited_for(&mut self, stream: &Stream) {
        self.current.take_if(|now| now.stream.is(stream));
        let mut lanes = self.lanes.iter_mut();
        if let Some(lane) = lanes.find(|lane| lane.stream.is(stream)) {
            lane.complete = lane.turn;
        }
    }

    /// Everything issued so far has been waited for.
    pub fn waited_for_all(&mut self) {
        self.current = None;
        self.lanes.iter_mut().for_each(|lane| lane.complete = lane.turn);
    }

    /// The place of a stream among the lanes.
    fn lane(&mut self, stream: &Stream) -> Result<usize, DriverError> {
        if let Some(at) = self.lanes.iter().position(|lane| lane.stream.is(stream)) {
            return Ok(at);
        }
        if self.lanes.len() >= MAX_LANES {
            self.current = None;
            let forgotten = self.lanes.iter().filter(|lane| !lane.stream.is_shared());
            forgotten.map(|lane| &lane.stream).try_for_each(Stream::synchronize)?;
            self.lanes.retain(|lane| lane.stream.is_shared());
        }
        let (id, stream) = (LaneId(next()), stream.clone());
        let (turn, complete, seen) = (Turn::default(), Turn::default(), FxHashMap::default());
        self.lanes.push(Lane { id, stream, reached: None, turn, complete, seen });
        Ok(self.lanes.len() - 1)
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order").field("streams", &self.lanes.len()).finish_non_exhaustive()
    }
}
