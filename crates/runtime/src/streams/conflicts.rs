//! Which streams have work under way that touches the same memory.
//!
//! Work on slices is noted slice by slice. A launch of a sealed graph is noted once, however many slices the graph touches:
//! when it is sealed, a graph is entered under each of its slices and beside the graphs it shares one with, so that what
//! conflicts with a launch is known without looking at its slices again. So a launch costs O(graphs that share memory with
//! it), and only sealing and destroying a graph cost O(slices).

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::backend::PooledStreamId;
use super::op::GraphKey;
use crate::pool::Slice;

type Streams = BTreeSet<PooledStreamId>;

#[derive(Default)]
struct Entry {
    slices: Box<[Slice]>,
    /// Graphs that share a slice with this one.
    neighbours: Vec<GraphKey>,
    /// Where launches of it are under way.
    launched: Streams,
    /// Where other work on its slices is under way.
    touched: Streams,
}

/// What one stream has under way.
#[derive(Clone, Default)]
struct Noted {
    slices: Vec<Slice>,
    graphs: Vec<GraphKey>,
}

/// Work under way, by stream and by what it touches.
#[derive(Default)]
pub(super) struct Conflicts {
    slices: FxHashMap<Slice, Streams>,
    graphs: FxHashMap<GraphKey, Entry>,
    /// The graphs that touch a slice.
    sealed: FxHashMap<Slice, SmallVec<[GraphKey; 2]>>,
    noted: Box<[Noted]>,
}

impl Conflicts {
    pub fn new(streams: u32) -> Self {
        Self { noted: vec![Noted::default(); streams as usize].into(), ..Self::default() }
    }

    /// Enters a sealed graph. O(slices).
    pub fn seal(&mut self, key: GraphKey, slices: &[Slice]) {
        let mut entry = Entry { slices: slices.into(), ..Entry::default() };
        for slice in slices {
            let sharing = self.sealed.entry(*slice).or_default();
            entry.neighbours.extend(sharing.iter().copied().filter(|&other| other != key));
            if !sharing.contains(&key) {
                sharing.push(key);
            }
            entry.touched.extend(self.slices.get(slice).into_iter().flatten());
        }
        entry.neighbours.sort_unstable();
        entry.neighbours.dedup();
        for neighbour in &entry.neighbours {
            if let Some(other) = self.graphs.get_mut(neighbour) {
                other.neighbours.push(key);
            }
        }
        for on in &entry.touched {
            self.noted[on.index()].graphs.push(key);
        }
        self.graphs.insert(key, entry);
    }

    /// Takes a graph out. A launch of it that is not fenced yet goes on being noted, slice by slice. O(slices).
    pub fn destroy(&mut self, key: GraphKey) {
        let Some(entry) = self.graphs.remove(&key) else { return };
        for neighbour in &entry.neighbours {
            if let Some(other) = self.graphs.get_mut(neighbour) {
                other.neighbours.retain(|&of| of != key);
            }
        }
        for slice in &entry.slices {
            if let Some(sharing) = self.sealed.get_mut(slice) {
                sharing.retain(|&mut of| of != key);
                if sharing.is_empty() {
                    self.sealed.remove(slice);
                }
            }
        }
        for on in entry.launched {
            self.touch(&entry.slices, on);
        }
    }

    /// Notes work on slices.
    pub fn touch(&mut self, slices: &[Slice], on: PooledStreamId) {
        for slice in slices {
            if self.slices.entry(*slice).or_default().insert(on) {
                self.noted[on.index()].slices.push(*slice);
            }
            for key in self.sealed.get(slice).into_iter().flatten() {
                if let Some(entry) = self.graphs.get_mut(key)
                    && entry.touched.insert(on)
                {
                    self.noted[on.index()].graphs.push(*key);
                }
            }
        }
    }

    /// Notes a launch. O(log streams).
    pub fn launch(&mut self, key: GraphKey, on: PooledStreamId) {
        if let Some(entry) = self.graphs.get_mut(&key)
            && entry.launched.insert(on)
        {
            self.noted[on.index()].graphs.push(key);
        }
    }

    /// The streams with work on one of these slices.
    pub fn of_slices(&self, slices: &[Slice]) -> Streams {
        let graphs = slices.iter().filter_map(|slice| self.sealed.get(slice)).flatten();
        let launched = graphs.filter_map(|key| self.graphs.get(key)).flat_map(|g| &g.launched);
        let touched = slices.iter().filter_map(|slice| self.slices.get(slice)).flatten();
        launched.chain(touched).copied().collect()
    }

    /// The streams with work on a slice of this graph. O(graphs that share one with it).
    pub fn of_graph(&self, key: GraphKey) -> Streams {
        let Some(entry) = self.graphs.get(&key) else { return Streams::new() };
        let neighbours = entry.neighbours.iter().filter_map(|other| self.graphs.get(other));
        let launched = neighbours.flat_map(|other| &other.launched);
        launched.chain(&entry.launched).chain(&entry.touched).copied().collect()
    }

    /// Everything of this stream is done.
    pub fn fenced(&mut self, on: PooledStreamId) {
        let noted = &mut self.noted[on.index()];
        for slice in noted.slices.drain(..) {
            if let Some(streams) = self.slices.get_mut(&slice) {
                streams.remove(&on);
                if streams.is_empty() {
                    self.slices.remove(&slice);
                }
            }
        }
        for key in noted.graphs.drain(..) {
            if let Some(entry) = self.graphs.get_mut(&key) {
                entry.launched.remove(&on);
                entry.touched.remove(&on);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PageId;

    /// What is noted, without the shortcut: every piece of work under way with its slices.
    #[derive(Default)]
    struct Plain(Vec<(PooledStreamId, Vec<Slice>)>);

    impl Plain {
        fn of(&self, slices: &[Slice]) -> Streams {
            let shares = |work: &[Slice]| work.iter().any(|slice| slices.contains(slice));
            self.0.iter().filter(|(_, work)| shares(work)).map(|(on, _)| *on).collect()
        }
    }

    #[test]
    fn agree_with_looking_at_every_slice() {
        arbtest::arbtest(|u| {
            let mut conflicts = Conflicts::new(3);
            let mut plain = Plain::default();
            let mut graphs: Vec<(GraphKey, Vec<Slice>)> = Vec::new();
            let mut keys = 0..;
            for _ in 0..u.int_in_range(1..=40)? {
                let on = PooledStreamId(u.int_in_range(0..=2)?);
                // Something at least: a graph conflicts with itself, also if it touches nothing.
                let picked = u.arbitrary::<u8>()?.max(1);
                let slices = (0..8u64).filter(|at| picked >> at & 1 == 1);
                let slices: Vec<Slice> =
                    slices.map(|at| Slice { page: PageId(at), offset: 0 }).collect();
                let any = graphs.len().checked_sub(1);
                let chosen = any.map(|last| u.int_in_range(0..=last)).transpose()?;
                match (u.int_in_range(0..=4)?, chosen) {
                    (0, _) => {
                        conflicts.touch(&slices, on);
                        plain.0.push((on, slices));
                    }
                    (1, Some(at)) => {
                        conflicts.launch(graphs[at].0, on);
                        plain.0.push((on, graphs[at].1.clone()));
                    }
                    (2, Some(at)) => conflicts.destroy(graphs.swap_remove(at).0),
                    (3, _) => {
                        conflicts.fenced(on);
                        plain.0.retain(|(of, _)| *of != on);
                    }
                    _ => {
                        let key = GraphKey(keys.next().unwrap());
                        conflicts.seal(key, &slices);
                        graphs.push((key, slices));
                    }
                }
                for at in 0..8 {
                    let slice = [Slice { page: PageId(at), offset: 0 }];
                    assert_eq!(conflicts.of_slices(&slice), plain.of(&slice));
                }
                for (key, slices) in &graphs {
                    assert_eq!(conflicts.of_graph(*key), plain.of(slices));
                }
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
