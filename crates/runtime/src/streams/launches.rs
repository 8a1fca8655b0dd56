//! Launches of sealed graphs in the order among streams, at a cost that grows neither with what a graph touches nor with the
//! number of graphs.
//!
//! Slices that the same graphs touch in the same way are a *class*, and what has been done to any of them is noted once, for
//! the class: launches of graphs, and other work since the last launch that writes it. Every graph of a class touches all of
//! its slices, so nothing is waited for that does not conflict. A new graph divides the classes that it touches in part. A
//! launch costs O(streams) for each of its classes, mostly one or two; sealing a graph costs its slices, those of the classes
//! that it divides and the graphs of these; destroying one its classes. Launches of one graph come after one another.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::backend::PooledStreamId;
use super::handle::GraphKey;
use super::order::{Order, Position, Touched};
use crate::pool::Slice;

/// A place on a stream.
pub(super) type At = (PooledStreamId, Position);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct ClassId(u64);

/// Work on a class: by stream, the last that writes and the last that reads.
#[derive(Clone, Default)]
struct Uses {
    writes: SmallVec<[At; 2]>,
    reads: SmallVec<[At; 2]>,
}

impl Uses {
    fn note(&mut self, (on, at): At, writes: bool) {
        let uses = if writes { &mut self.writes } else { &mut self.reads };
        match uses.iter_mut().find(|(stream, _)| *stream == on) {
            Some((_, last)) => *last = at.max(*last),
            None => uses.push((on, at)),
        }
    }

    /// What work that writes, or only reads, has to wait for.
    fn before(&self, writes: bool) -> impl Iterator<Item = At> + '_ {
        let reads = self.reads.iter().filter(move |_| writes);
        self.writes.iter().chain(reads).copied()
    }
}

/// Slices that the same graphs touch in the same way.
struct Class {
    slices: Vec<Slice>,
    /// The graphs that touch them, and whether they write.
    graphs: FxHashMap<GraphKey, bool>,
    /// The last launch that writes, and those that read since.
    launches: Uses,
    /// Other work on any of the slices since the last launch that writes.
    others: Uses,
}

impl Class {
    fn new(slices: Vec<Slice>, order: &Order) -> Self {
        let (graphs, launches, others) = Default::default();
        let mut class = Self { slices, graphs, launches, others };
        class.look_back(order);
        class
    }

    /// Finds out what other work there is on these slices.
    fn look_back(&mut self, order: &Order) {
        let covered = self.launches.writes.first().map_or(Position::default(), |(_, at)| *at);
        self.others = Uses::default();
        for slice in &self.slices {
            for (use_, writes) in order.last_uses(*slice).filter(|((_, at), _)| *at > covered) {
                self.others.note(use_, writes);
            }
        }
    }

    /// A launch: it has waited for everything that conflicts with it.
    fn launch(&mut self, launched: At, writes: bool) {
        if writes {
            self.launches = Uses::default();
            self.others = Uses::default();
        }
        self.launches.note(launched, writes);
    }
}

#[derive(Default)]
struct Entry {
    /// The classes that it touches, and whether it writes them.
    classes: Vec<(ClassId, bool)>,
    /// The last launch.
    launched: Option<At>,
}

/// The sealed graphs of a device, by what they touch.
#[derive(Default)]
pub(super) struct Launches {
    graphs: FxHashMap<GraphKey, Entry>,
    classes: FxHashMap<ClassId, Class>,
    class_of: FxHashMap<Slice, ClassId>,
    /// Classes made so far.
    made: u64,
}

impl Launches {
    /// Enters a sealed graph, which touches these slices; `order` knows what other work there has been on them.
    pub fn seal(&mut self, key: GraphKey, slices: &[Touched], order: &Order) {
        let mut touched: BTreeMap<Slice, bool> = BTreeMap::new();
        for Touched { slice, writes } in slices {
            *touched.entry(*slice).or_default() |= writes;
        }
        let mut parts: BTreeMap<(Option<ClassId>, bool), Vec<Slice>> = BTreeMap::new();
        for (slice, writes) in touched {
            let class = self.class_of.get(&slice).copied();
            parts.entry((class, writes)).or_default().push(slice);
        }
        let mut entry = Entry::default();
        for ((class, writes), slices) in parts {
            let id = match class {
                None => self.add(Class::new(slices, order)),
                Some(id) => self.part_of(id, slices, order),
            };
            if let Some(class) = self.classes.get_mut(&id) {
                class.graphs.insert(key, writes);
            }
            entry.classes.push((id, writes));
        }
        self.graphs.insert(key, entry);
    }

    fn add(&mut self, class: Class) -> ClassId {
        self.made += 1;
        let id = ClassId(self.made);
        self.class_of.extend(class.slices.iter().map(|slice| (*slice, id)));
        self.classes.insert(id, class);
        id
    }

    /// The class of some of a class's slices: itself for all of them, else a new one.
    fn part_of(&mut self, id: ClassId, slices: Vec<Slice>, order: &Order) -> ClassId {
        let Some(whole) = self.classes.get(&id).filter(|c| c.slices.len() > slices.len()) else {
            return id;
        };
        let (graphs, launches) = (whole.graphs.clone(), whole.launches.clone());
        let mut part = Class { slices, graphs, launches, others: Uses::default() };
        part.look_back(order);
        let users: Vec<(GraphKey, bool)> = part.graphs.iter().map(|(key, w)| (*key, *w)).collect();
        let new = self.add(part);
        for (user, writes) in users {
            if let Some(user) = self.graphs.get_mut(&user) {
                user.classes.push((new, writes));
            }
        }
        let class_of = &self.class_of;
        if let Some(rest) = self.classes.get_mut(&id) {
            rest.slices.retain(|slice| class_of[slice] == id);
            rest.look_back(order);
        }
        new
    }

    /// Takes a graph out. Its launches stand for as long as other graphs touch the same; what is to be noted slice by slice from
    /// here on, for nobody does, is given back.
    pub fn destroy(&mut self, key: GraphKey) -> Vec<(At, Box<[Touched]>)> {
        let mut late = Vec::new();
        for (id, _) in self.graphs.remove(&key).into_iter().flat_map(|entry| entry.classes) {
            let Some(class) = self.classes.get_mut(&id) else { continue };
            class.graphs.remove(&key);
            if !class.graphs.is_empty() {
                continue;
            }
            let Some(class) = self.classes.remove(&id) else { continue };
            for slice in &class.slices {
                self.class_of.remove(slice);
            }
            let touched =
                |writes| class.slices.iter().map(|&slice| Touched { slice, writes }).collect();
            late.extend(class.launches.writes.iter().map(|at| (*at, touched(true))));
            late.extend(class.launches.reads.iter().map(|at| (*at, touched(false))));
        }
        late
    }

    /// The launches that conflict with work on these slices.
    pub fn before<'a>(&'a self, touched: &'a [Touched]) -> impl Iterator<Item = At> + 'a {
        touched.iter().flat_map(|touched| {
            let class = self.class_of.get(&touched.slice).map(|id| &self.classes[id]);
            class.into_iter().flat_map(|class| class.launches.before(touched.writes))
        })
    }

    /// What conflicts with a launch of this graph.
    pub fn before_launch(&self, key: GraphKey) -> impl Iterator<Item = At> + '_ {
        let entry = self.graphs.get(&key);
        let classes = entry.into_iter().flat_map(|entry| &entry.classes);
        let uses = classes.flat_map(|&(id, writes)| {
            let class = &self.classes[&id];
            class.launches.before(writes).chain(class.others.before(writes))
        });
        uses.chain(entry.and_then(|entry| entry.launched))
    }

    /// Other work on these slices.
    pub fn note(&mut self, on: PooledStreamId, at: Position, touched: &[Touched]) {
        for touched in touched {
            let class = self.class_of.get(&touched.slice).and_then(|id| self.classes.get_mut(id));
            if let Some(class) = class {
                class.others.note((on, at), touched.writes);
            }
        }
    }

    /// A launch.
    pub fn launch(&mut self, key: GraphKey, on: PooledStreamId, at: Position) {
        let Some(entry) = self.graphs.get_mut(&key) else { return };
        entry.launched = Some((on, at));
        for (id, writes) in &entry.classes {
            if let Some(class) = self.classes.get_mut(id) {
                class.launch((on, at), *writes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PageId;

    /// Work that was submitted, with all that it is behind: a bit for each position.
    struct Work {
        at: At,
        graph: Option<GraphKey>,
        slices: Vec<Touched>,
        behind: u64,
    }

    /// Whether a piece of work must come after an earlier one.
    fn conflicts(graph: Option<GraphKey>, slices: &[Touched], earlier: &Work) -> bool {
        let clash = |a: &Touched, b: &Touched| a.slice == b.slice && (a.writes || b.writes);
        let again = graph.is_some() && graph == earlier.graph;
        again || slices.iter().any(|a| earlier.slices.iter().any(|b| clash(a, b)))
    }

    /// What is waited for is work that conflicts and nothing else, and behind it, or behind the stream's own work, is all that
    /// conflicts.
    #[test]
    fn agree_with_looking_at_all_work() {
        arbtest::arbtest(|u| {
            let (mut launches, mut order) = (Launches::default(), Order::new(3));
            let mut work: Vec<Work> = Vec::new();
            let mut graphs: Vec<(GraphKey, Vec<Touched>)> = Vec::new();
            for step in 1..=u.int_in_range(1u64..=48)? {
                let (picked, written) = (u.arbitrary::<u8>()?.max(1), u.arbitrary::<u8>()?);
                let slices = (0..8u64).filter(|at| picked >> at & 1 == 1).map(|at| Touched {
                    slice: Slice { page: PageId(at), offset: 0 },
                    writes: written >> at & 1 == 1,
                });
                let slices = Vec::from_iter(slices);
                let last = graphs.len().checked_sub(1);
                let chosen = last.map(|last| u.int_in_range(0..=last)).transpose()?;
                let (graph, slices) = match (u.int_in_range(0..=7)?, chosen) {
                    (0, Some(gone)) => {
                        for ((on, at), slices) in launches.destroy(graphs.remove(gone).0) {
                            order.note_late(on, at, &slices);
                        }
                        continue;
                    }
                    (1..=3, Some(chosen)) => (Some(graphs[chosen].0), graphs[chosen].1.clone()),
                    (4..=5, _) => (None, slices),
                    _ => {
                        launches.seal(GraphKey(step), &slices, &order);
                        graphs.push((GraphKey(step), slices));
                        continue;
                    }
                };
                let found: Vec<At> = match graph {
                    Some(key) => launches.before_launch(key).collect(),
                    None => order.before(&slices).chain(launches.before(&slices)).collect(),
                };
                let on = PooledStreamId(u.int_in_range(0..=2)?);
                let mut behind = 0;
                for earlier in &work {
                    let waited = |(stream, at): &At| earlier.at.0 == *stream && earlier.at.1 <= *at;
                    if earlier.at.0 == on || found.iter().any(waited) {
                        behind |= earlier.behind | 1 << earlier.at.1.0;
                    }
                }
                for earlier in work.iter().filter(|e| conflicts(graph, &slices, e)) {
                    assert!(
                        behind >> earlier.at.1.0 & 1 == 1,
                        "{graph:?} {slices:?}: {:?}",
                        earlier.at
                    );
                }
                for at in &found {
                    let earlier =
                        work.iter().find(|earlier| earlier.at == *at).expect("it is work");
                    assert!(conflicts(graph, &slices, earlier), "{graph:?} {slices:?}: {at:?}");
                }
                let at = (on, Position(step));
                match graph {
                    Some(key) => {
                        order.note(on, at.1, &[]);
                        launches.launch(key, on, at.1);
                    }
                    None => {
                        order.note(on, at.1, &slices);
                        launches.note(on, at.1, &slices);
                    }
                }
                work.push(Work { at, graph, slices, behind });
            }
            Ok(())
        })
        .budget_ms(700);
    }

    #[test]
    fn what_the_same_graphs_touch_is_one_class_however_many_they_are() {
        let (mut launches, order) = (Launches::default(), Order::new(1));
        let touched = |range: std::ops::Range<u64>, writes| {
            let slice = |offset| Slice { page: PageId(0), offset };
            range.map(move |at| Touched { slice: slice(at), writes }).collect::<Vec<_>>()
        };
        for key in 0..1000 {
            let slices = [touched(0..90, false), touched(90..100, true)].concat();
            launches.seal(GraphKey(key), &slices, &order);
        }
        assert_eq!(launches.classes.len(), 2);
        // One that touches a part divides it, for all.
        launches.seal(GraphKey(1000), &touched(50..95, true), &order);
        assert_eq!(launches.classes.len(), 4);
        assert!((0..1000).all(|key| launches.graphs[&GraphKey(key)].classes.len() == 4));
        (0..1001).for_each(|key| assert!(launches.destroy(GraphKey(key)).is_empty()));
        assert!(launches.classes.is_empty() && launches.class_of.is_empty());
    }
}
