//! Which streams a piece of work has to wait for, by the slices of memory that it touches.
//!
//! A read comes after the last write of its slice; a write comes after that and after the reads since. Work of one stream is
//! in order anyway. A wait for a stream covers all that it had been given by then and all that it had waited for itself, so
//! each stream keeps how far into every other one it is known to be behind, and most conflicts need no wait. Each question
//! costs the slices of the work, each wait the streams of the device.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::backend::PooledStreamId;
use crate::pool::Slice;

/// A place in the order of submission to the device. Work waits in queues, so what is executed now may be older than what
/// was refused before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct Position(pub u64);

/// A use of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Touched {
    pub slice: Slice,
    pub writes: bool,
}

/// How far streams are, in order of their numbers.
pub(super) type Reached = SmallVec<[(PooledStreamId, Position); 4]>;

/// The last write of a slice and the reads after it; each by the last position of its stream.
#[derive(Default)]
struct Last {
    write: Option<(PooledStreamId, Position)>,
    reads: SmallVec<[(PooledStreamId, Position); 2]>,
}

/// The order among the streams of a device, or of a window.
pub(super) struct Order {
    slices: FxHashMap<Slice, Last>,
    /// How far each stream is behind every other one.
    behind: Box<[FxHashMap<PooledStreamId, Position>]>,
    /// The last work of each stream.
    last: Box<[Position]>,
    /// How much of each stream is complete.
    complete: Box<[Position]>,
    /// Slices are looked through for ones that nothing waits on when there are so many.
    prune_at: usize,
}

const LEAST_PRUNED: usize = 1024;

impl Order {
    pub fn new(streams: usize) -> Self {
        Self {
            slices: FxHashMap::default(),
            behind: (0..streams).map(|_| FxHashMap::default()).collect(),
            last: vec![Position::default(); streams].into(),
            complete: vec![Position::default(); streams].into(),
            prune_at: LEAST_PRUNED,
        }
    }

    /// The streams that work of `on` with these uses has to wait for, in order of their numbers. `None` asks for the host.
    pub fn waits(
        &self,
        on: Option<PooledStreamId>,
        touched: &[Touched],
    ) -> SmallVec<[PooledStreamId; 4]> {
        self.open(on, self.before(touched))
    }

    /// The last uses that conflict with these.
    pub fn before<'a>(
        &'a self,
        touched: &'a [Touched],
    ) -> impl Iterator<Item = (PooledStreamId, Position)> + 'a {
        touched.iter().flat_map(|touched| {
            let last = self.slices.get(&touched.slice).into_iter();
            last.flat_map(|last| {
                let reads = last.reads.iter().filter(|_| touched.writes);
                last.write.iter().chain(reads).copied()
            })
        })
    }

    /// The last write of a slice and the reads since, and which of them writes.
    pub fn last_uses(
        &self,
        slice: Slice,
    ) -> impl Iterator<Item = ((PooledStreamId, Position), bool)> + '_ {
        self.slices.get(&slice).into_iter().flat_map(|last| {
            let reads = last.reads.iter().map(|read| (*read, false));
            last.write.iter().map(|write| (*write, true)).chain(reads)
        })
    }

    /// The streams of these places that `on` is not behind yet, in order of their numbers.
    pub fn open(
        &self,
        on: Option<PooledStreamId>,
        places: impl Iterator<Item = (PooledStreamId, Position)>,
    ) -> SmallVec<[PooledStreamId; 4]> {
        let mut waits = SmallVec::<[PooledStreamId; 4]>::new();
        for (stream, at) in places {
            let known = on.map_or(Position::default(), |on| self.behind(on, stream));
            let open = at > known.max(self.complete[stream.index()]);
            if open && Some(stream) != on && !waits.contains(&stream) {
                waits.push(stream);
            }
        }
        waits.sort_unstable();
        waits
    }

    /// Notes uses of a place that has been noted already: what came after it stands.
    pub fn note_late(&mut self, on: PooledStreamId, at: Position, touched: &[Touched]) {
        for touched in touched {
            let last = self.slices.entry(touched.slice).or_default();
            let newer = last.write.is_some_and(|(_, write)| write > at);
            if newer {
                continue;
            }
            if touched.writes {
                last.reads.retain(|(_, read)| *read > at);
                last.write = Some((on, at));
            } else if !last.reads.iter().any(|(stream, read)| *stream == on && *read > at) {
                last.reads.retain(|(stream, _)| *stream != on);
                last.reads.push((on, at));
            }
        }
    }

    fn behind(&self, on: PooledStreamId, other: PooledStreamId) -> Position {
        self.behind[on.index()].get(&other).copied().unwrap_or_default()
    }

    /// Whether `on` is behind everything of `other` so far.
    pub fn is_behind_all(&self, on: PooledStreamId, other: PooledStreamId) -> bool {
        let all = self.last[other.index()];
        on == other || all <= self.behind(on, other).max(self.complete[other.index()])
    }

    /// `on` waits for everything that `other` has been given.
    pub fn wait(&mut self, on: PooledStreamId, other: PooledStreamId) {
        let theirs: SmallVec<[(PooledStreamId, Position); 8]> =
            self.behind[other.index()].iter().map(|(&stream, &at)| (stream, at)).collect();
        let all = (other, self.last[other.index()]);
        let mine = &mut self.behind[on.index()];
        for (stream, at) in theirs.into_iter().chain([all]).filter(|(stream, _)| *stream != on) {
            let known = mine.entry(stream).or_default();
            *known = at.max(*known);
        }
    }

    /// Work of `on` at this position.
    pub fn note(&mut self, on: PooledStreamId, at: Position, touched: &[Touched]) {
        self.last[on.index()] = at;
        for touched in touched {
            let last = self.slices.entry(touched.slice).or_default();
            if touched.writes {
                last.reads.clear();
                last.write = Some((on, at));
            } else {
                last.reads.retain(|(stream, _)| *stream != on);
                last.reads.push((on, at));
            }
        }
        if self.slices.len() > self.prune_at {
            let complete = &self.complete;
            let open = |(stream, at): &(PooledStreamId, Position)| *at > complete[stream.index()];
            self.slices.retain(|_, last| last.write.iter().chain(&last.reads).any(open));
            self.prune_at = LEAST_PRUNED.max(2 * self.slices.len());
        }
    }

    /// The stream is complete up to here.
    pub fn completed_up_to(&mut self, stream: PooledStreamId, at: Position) {
        let complete = &mut self.complete[stream.index()];
        *complete = at.max(*complete);
    }

    /// What is complete when the last work of `on` is, as far as it was not before: how much of it and of the streams that it
    /// is behind.
    pub fn reached(&self, on: PooledStreamId) -> Reached {
        let behind = self.behind[on.index()].iter().map(|(&stream, &at)| (stream, at));
        let mut all: Reached =
            behind.filter(|(stream, at)| *at > self.complete[stream.index()]).collect();
        all.push((on, self.last[on.index()]));
        all.sort_unstable();
        all
    }

    /// The streams that have to be complete before `on` is, each to its end: it and those it is behind, as far as they are
    /// not.
    pub fn prerequisites(&self, on: PooledStreamId) -> Reached {
        let mut all = self.reached(on);
        all.iter_mut().for_each(|(stream, at)| *at = self.last[stream.index()]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PageId;

    const A: PooledStreamId = PooledStreamId(0);
    const B: PooledStreamId = PooledStreamId(1);
    const C: PooledStreamId = PooledStreamId(2);

    fn touched(page: u64, writes: bool) -> Touched {
        Touched { slice: Slice { page: PageId(page), offset: 0 }, writes }
    }

    /// Work of a stream that reads some pages and writes others, and whom it has to wait for.
    type Row = (PooledStreamId, &'static [u64], &'static [u64], &'static [PooledStreamId]);

    fn check(rows: &[Row]) {
        let mut order = Order::new(3);
        for (at, &(on, reads, writes, expected)) in rows.iter().enumerate() {
            let reads = reads.iter().map(|&page| touched(page, false));
            let uses: Vec<_> = reads.chain(writes.iter().map(|&p| touched(p, true))).collect();
            let waits = order.waits(Some(on), &uses);
            assert_eq!(waits[..], *expected, "row {at}");
            waits.iter().for_each(|&other| order.wait(on, other));
            order.note(on, Position(at as u64 + 1), &uses);
        }
    }

    #[test]
    fn readers_run_side_by_side_and_a_writer_waits_for_all_of_them() {
        check(&[
            (A, &[], &[7], &[]),
            (B, &[7], &[], &[A]),
            (C, &[7], &[], &[A]),
            (A, &[7], &[8], &[]),
            (A, &[], &[7], &[B, C]),
            (B, &[], &[7], &[A]),
        ]);
    }

    #[test]
    fn a_wait_covers_what_the_other_had_waited_for() {
        check(&[
            (A, &[], &[1], &[]),
            (B, &[1], &[2], &[A]),
            (C, &[2], &[3], &[B]),
            (C, &[1], &[], &[]), // behind A through B
            (A, &[], &[1], &[B, C]),
            (B, &[], &[1], &[A]),
        ]);
    }

    #[test]
    fn what_is_complete_needs_no_wait() {
        let mut order = Order::new(3);
        order.note(A, Position(1), &[touched(1, true)]);
        assert_eq!(order.waits(None, &[touched(1, false)])[..], [A]);
        order.wait(B, A);
        order.note(B, Position(2), &[touched(1, true)]);
        assert_eq!(order.prerequisites(B)[..], [(A, Position(1)), (B, Position(2))]);
        order.completed_up_to(A, Position(1));
        assert_eq!(order.prerequisites(B)[..], [(B, Position(2))]);
        assert_eq!(order.waits(Some(C), &[touched(1, false)])[..], [B]);
        order.completed_up_to(B, Position(2));
        assert!(order.waits(Some(C), &[touched(1, true)]).is_empty());
        assert!(order.is_behind_all(C, A) && order.is_behind_all(C, B));
    }

    #[test]
    fn what_a_stream_has_reached_is_complete_and_what_came_after_is_not() {
        let mut order = Order::new(3);
        order.note(A, Position(1), &[touched(1, true)]);
        order.wait(B, A);
        order.note(B, Position(2), &[touched(1, true)]);
        let reached = order.reached(B);
        assert_eq!(reached[..], [(A, Position(1)), (B, Position(2))]);
        order.note(A, Position(3), &[touched(2, true)]);
        assert_eq!(order.reached(B), reached);
        assert_eq!(order.prerequisites(B)[..], [(A, Position(3)), (B, Position(2))]);
        order.note(B, Position(4), &[touched(3, true)]);
        reached.iter().for_each(|&(stream, at)| order.completed_up_to(stream, at));
        assert!(order.waits(Some(C), &[touched(1, true)]).is_empty());
        assert_eq!(order.waits(Some(C), &[touched(2, true), touched(3, true)])[..], [A, B]);
        assert_eq!(order.reached(B)[..], [(B, Position(4))], "A is behind nothing of it");
        order.completed_up_to(B, Position(4));
        order.completed_up_to(B, Position(2));
        assert!(order.waits(Some(C), &[touched(3, true)]).is_empty(), "it does not go back");
    }

    #[test]
    fn slices_that_nothing_waits_on_are_forgotten() {
        let mut order = Order::new(1);
        for page in 0..10 * LEAST_PRUNED as u64 {
            order.note(A, Position(page + 1), &[touched(page, true)]);
            order.completed_up_to(A, Position(page + 1));
        }
        assert!(order.slices.len() <= LEAST_PRUNED + 1);
    }
}
