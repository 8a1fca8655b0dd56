//! Launches of sealed graphs in the order among streams, at a cost that does not grow with what a graph touches.
//!
//! A launch is noted once, however many slices its graph touches: when it is sealed, a graph is entered under each of its
//! slices and beside the graphs that it conflicts with, so that what a launch has to wait for is known without looking at
//! its slices again. A launch costs O(streams + graphs that conflict with it); only sealing and destroying a graph, and other
//! work, cost their slices. Launches of one graph come after one another.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::backend::PooledStreamId;
use super::handle::GraphKey;
use super::order::{Position, Touched};
use crate::pool::Slice;

/// A place on a stream.
pub(super) type At = (PooledStreamId, Position);

#[derive(Default)]
struct Entry {
    slices: Box<[Touched]>,
    /// Graphs that share a slice with this one, which either writes.
    neighbours: Vec<GraphKey>,
    /// The last launch.
    launched: Option<At>,
    /// The last other work of each stream that conflicts.
    others: FxHashMap<PooledStreamId, Position>,
}

/// The sealed graphs of a device, by what they touch.
#[derive(Default)]
pub(super) struct Launches {
    graphs: FxHashMap<GraphKey, Entry>,
    /// The graphs that touch a slice, and whether they write it.
    by_slice: FxHashMap<Slice, SmallVec<[(GraphKey, bool); 2]>>,
}

impl Launches {
    /// Enters a sealed graph; `before` is what conflicts with it so far. O(slices).
    pub fn seal(&mut self, key: GraphKey, slices: &[Touched], before: impl Iterator<Item = At>) {
        let mut entry = Entry { slices: slices.into(), ..Entry::default() };
        for touched in slices {
            let sharing = self.by_slice.entry(touched.slice).or_default();
            let conflicting = sharing.iter().filter(|(_, writes)| *writes || touched.writes);
            entry.neighbours.extend(conflicting.map(|(other, _)| *other));
            match sharing.iter_mut().find(|(other, _)| *other == key) {
                Some((_, writes)) => *writes |= touched.writes,
                None => sharing.push((key, touched.writes)),
            }
        }
        entry.neighbours.sort_unstable();
        entry.neighbours.dedup();
        entry.neighbours.retain(|other| *other != key);
        for neighbour in &entry.neighbours {
            if let Some(other) = self.graphs.get_mut(neighbour) {
                other.neighbours.push(key);
            }
        }
        for (stream, at) in before {
            let last = entry.others.entry(stream).or_default();
            *last = at.max(*last);
        }
        self.graphs.insert(key, entry);
    }

    /// Takes a graph out; its last launch and what it touches, which is to be noted slice by slice from here on. O(slices).
    pub fn destroy(&mut self, key: GraphKey) -> Option<(At, Box<[Touched]>)> {
        let entry = self.graphs.remove(&key)?;
        for neighbour in &entry.neighbours {
            if let Some(other) = self.graphs.get_mut(neighbour) {
                other.neighbours.retain(|of| *of != key);
                // It went on being ordered by the launches of this one; now that is other work.
                if let Some((stream, at)) = entry.launched {
                    let last = other.others.entry(stream).or_default();
                    *last = at.max(*last);
                }
            }
        }
        for touched in &entry.slices {
            if let Some(sharing) = self.by_slice.get_mut(&touched.slice) {
                sharing.retain(|(of, _)| *of != key);
                if sharing.is_empty() {
                    self.by_slice.remove(&touched.slice);
                }
            }
        }
        Some((entry.launched?, entry.slices))
    }

    /// The launches that conflict with work on these slices.
    pub fn before<'a>(&'a self, touched: &'a [Touched]) -> impl Iterator<Item = At> + 'a {
        touched.iter().flat_map(|touched| {
            let sharing = self.by_slice.get(&touched.slice).into_iter().flatten();
            let conflicting = sharing.filter(|(_, writes)| *writes || touched.writes);
            conflicting.filter_map(|(key, _)| self.graphs.get(key)?.launched)
        })
    }

    /// What conflicts with a launch of this graph. O(streams + graphs that conflict with it).
    pub fn before_launch(&self, key: GraphKey) -> impl Iterator<Item = At> + '_ {
        let entry = self.graphs.get(&key);
        let neighbours = entry.into_iter().flat_map(|entry| &entry.neighbours);
        let launched = neighbours.filter_map(|other| self.graphs.get(other)?.launched);
        let others = entry.into_iter().flat_map(|e| e.others.iter().map(|(on, at)| (*on, *at)));
        launched.chain(entry.and_then(|entry| entry.launched)).chain(others)
    }

    /// Other work on these slices.
    pub fn note(&mut self, on: PooledStreamId, at: Position, touched: &[Touched]) {
        for touched in touched {
            for (key, writes) in self.by_slice.get(&touched.slice).into_iter().flatten() {
                if let (true, Some(entry)) = (*writes || touched.writes, self.graphs.get_mut(key)) {
                    entry.others.insert(on, at);
                }
            }
        }
    }

    /// A launch.
    pub fn launch(&mut self, key: GraphKey, on: PooledStreamId, at: Position) {
        if let Some(entry) = self.graphs.get_mut(&key) {
            entry.launched = Some((on, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pool::PageId;

    /// The last conflicting position of each stream, by looking at all work.
    fn plain(
        work: &[(At, Vec<Touched>)],
        touched: &[Touched],
    ) -> BTreeMap<PooledStreamId, Position> {
        let conflicts = |a: &Touched, b: &Touched| a.slice == b.slice && (a.writes || b.writes);
        let hit = |of: &[Touched]| of.iter().any(|a| touched.iter().any(|b| conflicts(a, b)));
        let hits = work.iter().filter(|(_, of)| hit(of));
        hits.map(|((on, at), _)| (*on, *at)).collect() // the later of a stream wins
    }

    /// A later position of a stream covers an earlier one, and a launch covers the launches of its graph before it, for it
    /// came after them; so what is found must be enough, and never be more than there is.
    #[test]
    fn agree_with_looking_at_all_work() {
        arbtest::arbtest(|u| {
            let mut launches = Launches::default();
            let mut work: Vec<(At, Vec<Touched>)> = Vec::new();
            let mut graphs: Vec<(GraphKey, Vec<Touched>)> = Vec::new();
            // One stream, on which every earlier work is covered by the last: no order is left to chance.
            let on = PooledStreamId(0);
            for step in 1..=u.int_in_range(1u64..=40)? {
                let (picked, written) = (u.arbitrary::<u8>()?.max(1), u.arbitrary::<u8>()?);
                let slices = (0..8u64).filter(|at| picked >> at & 1 == 1).map(|at| Touched {
                    slice: Slice { page: PageId(at), offset: 0 },
                    writes: written >> at & 1 == 1,
                });
                let slices = Vec::from_iter(slices);
                let last = graphs.len().checked_sub(1);
                let chosen = last.map(|last| u.int_in_range(0..=last)).transpose()?;
                let at = Position(step);
                match (u.int_in_range(0..=2)?, chosen) {
                    (0, _) => {
                        launches.note(on, at, &slices);
                        work.push(((on, at), slices));
                    }
                    (1, Some(graph)) => {
                        launches.launch(graphs[graph].0, on, at);
                        work.push(((on, at), graphs[graph].1.clone()));
                    }
                    _ => {
                        let before = plain(&work, &slices);
                        launches.seal(GraphKey(step), &slices, before.into_iter());
                        graphs.push((GraphKey(step), slices));
                    }
                }
                for (key, slices) in &graphs {
                    let found = launches.before_launch(*key).max();
                    let own = launches.graphs[key].launched;
                    let expected = plain(&work, slices).into_iter().max().max(own);
                    assert_eq!(found, expected);
                }
                let launched: Vec<_> =
                    launches.graphs.values().filter_map(|e| e.launched).collect();
                let one = [Touched { slice: Slice { page: PageId(0), offset: 0 }, writes: true }];
                let only: Vec<_> =
                    work.iter().filter(|(at, _)| launched.contains(at)).cloned().collect();
                let expected = plain(&only, &one).into_iter().max();
                assert_eq!(launches.before(&one).max(), expected);
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
