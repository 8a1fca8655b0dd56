//! Which node of a graph each event of a profile was, and so what nodes cost.
//!
//! In: a graph and a [`Profile`]. Out: a [`Matching`]: for each replay found, the node of each event, also in child graphs
//! and bodies; what matched nothing is listed, on both sides. Events of one graph launch share a correlation number, so
//! each such set is tried as a replay, and those that match most are kept; a trace without any is tried as one run.
//!
//! Method: events are taken by start. An event is a node of its name and kind whose producers have all been matched: if
//! possible one that follows what its stream did last, else the oldest. If there is none (a producer is missing in the
//! trace), the oldest unmatched node of that name. Child graphs count as their nodes. A body may run any number of times:
//! it may begin once the producers of its conditional node are done, a loop's begins anew when an event asks for it, and
//! it is over when something that follows the node has run. Where a name occurs outside bodies, too, events go to bodies
//! as long as there are more of them left than nodes outside. Host work, which runs elsewhere, is not matched. Linear
//! but for sorting, ties and bodies that begin anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use phonograph_graph::{ComputeGraph, ConditionalKind, MemcpyDir, NodeId, NodeKind, display_name};

use crate::compare::NodeAt;
use crate::from_graph::inner_groups;
use crate::picture::{GroupIx, NodeClass, NodeIx};
use crate::profile::{DeviceEvent, Profile, Work};
use crate::text::brief;
use crate::timeline::{Lane, Span, Timeline, Unit};

/// What a profile says of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// By node of the outermost graph: the median over the replays in which it was matched, in nanoseconds. That of a
    /// child graph or conditional is the sum of what ran inside.
    pub costs: Vec<Option<u64>>,
    /// The same of nodes inside others, in groups as [`picture_of`](crate::picture_of()) numbers them: the median over
    /// every time that one ran.
    pub inner: BTreeMap<NodeAt, u64>,
    /// The replays, in the order of their starts.
    pub replays: Vec<Replay>,
    /// Nodes that run on the device but were matched in no replay; those in bodies need not run.
    pub unmatched_nodes: Vec<NodeId>,
    /// Names of events in those replays that matched no node, and how many.
    pub unmatched_events: BTreeMap<String, usize>,
    /// Events outside those replays.
    pub other_events: usize,
}

/// One replay: its events, by start, with the node that each was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Places in [`Profile::events`], and nodes.
    pub events: Vec<(usize, Option<NodeAt>)>,
}

impl Replay {
    /// When what ran on which stream.
    pub fn timeline(&self, profile: &Profile, title: &str) -> Timeline {
        let mut lanes: BTreeMap<i64, Lane> = BTreeMap::new();
        for &(place, node) in &self.events {
            let event = &profile.events[place];
            let lane = lanes.entry(event.stream).or_insert_with(|| Lane {
                name: format!("stream {}", event.stream),
                spans: Vec::new(),
            });
            lane.spans.push(Span {
                label: event.name.clone(),
                class: match event.work {
                    Work::Kernel => NodeClass::Kernel,
                    Work::Memcpy => NodeClass::Memcpy,
                    Work::Memset => NodeClass::Memset,
                },
                start: event.start,
                end: event.start + event.duration,
                node,
                critical: false,
            });
        }
        Timeline {
            title: title.to_owned(),
            lanes: lanes.into_values().collect(),
            unit: Unit::Nanoseconds,
        }
    }
}

/// Matches the events of a profile to the nodes of a graph.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_report::{matching, profile};
///
/// let mut b = GraphBuilder::new();
/// b.add_kernel("axpy", 1, 32, 0).finish();
/// let trace = br#"[{"ph": "X", "cat": "kernel", "name": "axpy", "ts": 0, "dur": 1.5, "tid": 7}]"#;
/// let found = matching::find(&b.build()?, &profile::read(trace)?);
/// assert_eq!(found.costs, [Some(1500)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find(graph: &ComputeGraph, profile: &Profile) -> Matching {
    let items = Items::new(graph);
    let mut by_launch: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (place, event) in profile.events.iter().enumerate() {
        by_launch.entry(event.correlation).or_default().push(place);
    }
    let mut launches: Vec<Vec<usize>> =
        by_launch.into_values().filter(|events| events.len() > 1).collect();
    if launches.is_empty() {
        launches.push((0..profile.events.len()).collect());
    }
    launches.sort_by_key(|events| events[0]);
    let matched: Vec<(usize, Vec<Option<u32>>)> = launches
        .iter()
        .map(|events| {
            let events: Vec<_> = events.iter().map(|&place| &profile.events[place]).collect();
            let found = items.matched(&events);
            (found.iter().flatten().count(), found)
        })
        .collect();
    let most = matched.iter().map(|(count, _)| *count).max().unwrap_or(0);

    let mut all = Matching::default();
    // Of each node: how long it took, each time.
    let mut times: BTreeMap<NodeAt, Vec<u64>> = BTreeMap::new();
    let mut known = vec![false; items.all.len()];
    all.other_events = profile.events.len();
    for (events, (count, found)) in launches.iter().zip(matched) {
        if count < most || most == 0 {
            continue;
        }
        all.other_events -= events.len();
        let mut sums: BTreeMap<NodeAt, u64> = BTreeMap::new();
        let mut replay = Replay::default();
        for (&place, item) in events.iter().zip(found) {
            let event = &profile.events[place];
            let node = item.map(|item| &items.all[item as usize]);
            match (item, node) {
                (Some(item), Some(node)) => {
                    known[item as usize] = true;
                    times.entry(node.at).or_default().push(event.duration);
                    let mut around = node.inside;
                    while let Some(owner) = around.map(|owner| &items.owners[owner as usize]) {
                        *sums.entry(owner.at).or_default() += event.duration;
                        around = owner.inside;
                    }
                }
                _ => *all.unmatched_events.entry(event.name.clone()).or_default() += 1,
            }
            replay.events.push((place, node.map(|node| node.at)));
        }
        for (node, sum) in sums {
            times.entry(node).or_default().push(sum);
        }
        all.replays.push(replay);
    }
    all.costs = vec![None; graph.node_count()];
    for ((group, node), mut times) in times {
        times.sort_unstable();
        let median = times[times.len() / 2];
        if group == GroupIx(0) {
            all.costs[node.index()] = Some(median);
        } else {
            all.inner.insert((group, node), median);
        }
    }
    let missing = items.all.iter().zip(known);
    let missing = missing.filter(|(item, known)| item.key.is_some() && !item.optional && !known);
    let missing: BTreeSet<NodeId> = missing.map(|(item, _)| items.outermost(item)).collect();
    all.unmatched_nodes = missing.into_iter().collect();
    all
}

/// A name and kind that events and nodes have in common.
type Key = u32;

/// One thing that may have run: a node at any depth, or a point that only orders others.
struct Item {
    at: NodeAt,
    /// The child graph or conditional that it is in.
    inside: Option<u32>,
    /// What its event would be called; nothing for what leaves no event.
    key: Option<Key>,
    /// It is in a body, so it may run any number of times.
    optional: bool,
    /// The bodies that may begin when it is done.
    bodies: Option<u32>,
    after: Vec<u32>,
    producers: u32,
}

/// A node that holds graphs.
struct Owner {
    at: NodeAt,
    inside: Option<u32>,
}

/// The bodies of a conditional node.
struct Bodies {
    loops: bool,
    /// Where they begin.
    begin: Vec<u32>,
    /// All their items, inner bodies included.
    items: Range<u32>,
}

#[derive(Default)]
struct Items {
    all: Vec<Item>,
    owners: Vec<Owner>,
    bodies: Vec<Bodies>,
    keys: HashMap<String, Key>,
    /// The key of a kernel by its name without template arguments, where only one has that name.
    bases: HashMap<String, Option<Key>>,
    /// Items of each key that are in no body, producers first.
    by_key: Vec<Vec<u32>>,
}

/// Where a graph that is being added lies.
#[derive(Clone, Copy)]
struct Within {
    group: GroupIx,
    inside: Option<u32>,
    optional: bool,
}

impl Items {
    fn new(graph: &ComputeGraph) -> Self {
        let mut items = Items::default();
        items.add(graph, Within { group: GroupIx(0), inside: None, optional: false });
        for item in 0..items.all.len() {
            for next in items.all[item].after.clone() {
                items.all[next as usize].producers += 1;
            }
        }
        items
    }

    /// The node of the outermost graph that an item is, or is in.
    fn outermost(&self, item: &Item) -> NodeId {
        let (mut at, mut inside) = (item.at, item.inside);
        while let Some(owner) = inside.map(|owner| &self.owners[owner as usize]) {
            (at, inside) = (owner.at, owner.inside);
        }
        NodeId(at.1.0)
    }

    /// Adds a graph; the places where it begins and ends. Recursive over nesting, which building a graph bounds.
    fn add(&mut self, graph: &ComputeGraph, within: Within) -> (u32, u32) {
        let groups = inner_groups(graph, within.group);
        let begin = self.push((within.group, NodeIx(0)), within, None);
        let mut ends: Vec<(u32, u32)> = vec![(0, 0); graph.node_count()];
        let mut last = vec![begin];
        for &id in graph.topological_order() {
            let at = (within.group, NodeIx(id.0));
            let own = |items: &mut Self| {
                items.owners.push(Owner { at, inside: within.inside });
                Some(items.owners.len() as u32 - 1)
            };
            let place = match &graph.node(id).kind {
                NodeKind::Child(child) => {
                    let inside = own(self);
                    self.add(child, Within { group: groups[&id][0], inside, ..within })
                }
                NodeKind::Conditional(conditional) => {
                    let item = self.push(at, within, None);
                    let inside = own(self);
                    let first = self.all.len() as u32;
                    let begin =
                        conditional.bodies.iter().zip(&groups[&id]).map(|(body, &group)| {
                            self.add(body, Within { group, inside, optional: true }).0
                        });
                    let begin = begin.collect();
                    let items = first..self.all.len() as u32;
                    let loops = conditional.kind == ConditionalKind::While;
                    self.all[item as usize].bodies = Some(self.bodies.len() as u32);
                    self.bodies.push(Bodies { loops, begin, items });
                    (item, item)
                }
                kind => {
                    let key = self.key(kind);
                    let item = self.push(at, within, key);
                    (item, item)
                }
            };
            ends[id.index()] = place;
            let producers = graph.predecessors(id);
            if producers.is_empty() {
                self.all[begin as usize].after.push(place.0);
            }
            for producer in producers {
                let (_, end) = ends[producer.index()];
                self.all[end as usize].after.push(place.0);
            }
            if graph.successors(id).is_empty() {
                last.push(place.1);
            }
        }
        let end = self.push((within.group, NodeIx(0)), within, None);
        for item in last {
            self.all[item as usize].after.push(end);
        }
        (begin, end)
    }

    fn push(&mut self, at: NodeAt, within: Within, key: Option<Key>) -> u32 {
        let place = self.all.len() as u32;
        let Within { inside, optional, .. } = within;
        if let Some(key) = key.filter(|_| !optional) {
            self.by_key[key as usize].push(place);
        }
        let (after, bodies) = (Vec::new(), None);
        self.all.push(Item { at, inside, key, optional, bodies, after, producers: 0 });
        place
    }

    fn key(&mut self, kind: &NodeKind) -> Option<Key> {
        let (name, base) = match kind {
            NodeKind::Kernel(kernel) => {
                let plain = plain(&display_name(kernel.kernel.name()));
                let base = brief(&plain).0;
                (plain, Some(base))
            }
            NodeKind::Memcpy(copy) => match copy.dir {
                MemcpyDir::PeerToPeer { .. } => ("memcpy PtoP".to_owned(), None),
                dir => (format!("memcpy {dir}"), None),
            },
            NodeKind::Memset(_) => ("memset".to_owned(), None),
            _ => return None,
        };
        let next = self.by_key.len() as Key;
        let key = *self.keys.entry(name).or_insert(next);
        if key == next {
            self.by_key.push(Vec::new());
            if let Some(base) = base {
                self.bases.entry(base).and_modify(|known| *known = None).or_insert(Some(key));
            }
        }
        Some(key)
    }

    fn key_of(&self, event: &DeviceEvent) -> Option<Key> {
        match event.work {
            Work::Kernel => {
                let plain = plain(&event.name);
                let exact = self.keys.get(&plain).copied();
                exact.or_else(|| self.bases.get(&brief(&plain).0).copied().flatten())
            }
            Work::Memcpy => {
                let direction = event.name.split_whitespace().nth(1)?;
                self.keys.get(&format!("memcpy {direction}")).copied()
            }
            Work::Memset => self.keys.get("memset").copied(),
        }
    }

    /// For each event of one replay, the item that it was.
    fn matched(&self, events: &[&DeviceEvent]) -> Vec<Option<u32>> {
        let keys: Vec<Option<Key>> = events.iter().map(|event| self.key_of(event)).collect();
        let mut run = Run {
            items: self,
            waiting: self.all.iter().map(|item| item.producers).collect(),
            done: vec![false; self.all.len()],
            ready: vec![BTreeSet::new(); self.by_key.len()],
            oldest: vec![0; self.by_key.len()],
            surplus: self.by_key.iter().map(|nodes| -(nodes.len() as i64)).collect(),
            open: BTreeSet::new(),
        };
        for key in keys.iter().flatten() {
            run.surplus[*key as usize] += 1;
        }
        run.release(vec![0]);
        let mut last: HashMap<i64, u32> = HashMap::new();
        let matched = events.iter().zip(keys).map(|(event, key)| {
            let item = run.take(key?, last.get(&event.stream).copied())?;
            last.insert(event.stream, item);
            Some(item)
        });
        matched.collect()
    }
}

/// The state of matching one replay.
struct Run<'a> {
    items: &'a Items,
    /// Producers of each item that are not matched yet.
    waiting: Vec<u32>,
    done: Vec<bool>,
    ready: Vec<BTreeSet<u32>>,
    /// How many items of each key, from the oldest on, are done for certain.
    oldest: Vec<usize>,
    /// By key: how many more events are left than items outside bodies.
    surplus: Vec<i64>,
    /// Bodies that may run now.
    open: BTreeSet<u32>,
}

impl Run<'_> {
    /// Items whose producers are all done: those that leave an event become ready, others are done at once.
    fn release(&mut self, mut todo: Vec<u32>) {
        while let Some(item) = todo.pop() {
            let Item { key, after, bodies, .. } = &self.items.all[item as usize];
            match key {
                Some(key) if !self.done[item as usize] => {
                    self.ready[*key as usize].insert(item);
                    continue;
                }
                _ => self.done[item as usize] = true,
            }
            if let Some(bodies) = *bodies {
                self.close(bodies);
                self.open.insert(bodies);
                todo.extend(&self.items.bodies[bodies as usize].begin);
            }
            for &next in after {
                self.waiting[next as usize] -= 1;
                if self.waiting[next as usize] == 0 {
                    todo.push(next);
                }
            }
        }
    }

    /// Takes bodies back to where nothing in them has run, and those inside them.
    fn close(&mut self, bodies: u32) {
        for item in self.items.bodies[bodies as usize].items.clone() {
            let Item { key, producers, bodies, .. } = &self.items.all[item as usize];
            self.waiting[item as usize] = *producers;
            self.done[item as usize] = false;
            if let Some(key) = key {
                self.ready[*key as usize].remove(&item);
            }
            if let Some(bodies) = bodies {
                self.open.remove(bodies);
            }
        }
        self.open.remove(&bodies);
    }

    fn take(&mut self, key: Key, before: Option<u32>) -> Option<u32> {
        let bodies_first = self.surplus[key as usize] > 0;
        let item = self
            .ready_item(key, before, bodies_first)
            .or_else(|| bodies_first.then(|| self.begin_anew(key)).flatten())
            .or_else(|| self.ready_item(key, before, !bodies_first))
            .or_else(|| self.oldest_item(key));
        if item.is_none_or(|item| self.items.all[item as usize].optional) {
            self.surplus[key as usize] -= 1;
        }
        let item = item?;
        let was_ready = self.ready[key as usize].remove(&item);
        self.done[item as usize] = true;
        // What follows a conditional node has run: its bodies are over.
        for bodies in self.open.clone() {
            let inside = self.items.bodies[bodies as usize].items.contains(&item);
            if !inside && self.follows(item, bodies) {
                self.close(bodies);
            }
        }
        // One that was taken before its producers releases what follows when they are done.
        if was_ready {
            self.release(vec![item]);
        }
        Some(item)
    }

    /// A ready item, in a body or in none: one that follows what the stream did last, else the oldest.
    fn ready_item(&self, key: Key, before: Option<u32>, optional: bool) -> Option<u32> {
        let ready = &self.ready[key as usize];
        let fits = |item: &u32| self.items.all[*item as usize].optional == optional;
        let follows = before.and_then(|before| {
            let after = &self.items.all[before as usize].after;
            after.iter().copied().filter(|next| ready.contains(next)).filter(fits).min()
        });
        follows.or_else(|| ready.iter().copied().find(fits))
    }

    /// An item at the beginning of a loop's body that has run before: the loop runs on.
    fn begin_anew(&mut self, key: Key) -> Option<u32> {
        let items = self.items;
        // Inner loops first.
        for &bodies in self.open.clone().iter().rev() {
            let Bodies { loops, begin, items: range } = &items.bodies[bodies as usize];
            let holds = |item: u32| items.all[item as usize].key == Some(key);
            if !loops || !range.clone().any(holds) {
                continue;
            }
            self.close(bodies);
            self.open.insert(bodies);
            self.release(begin.clone());
            let found = self.ready[key as usize].iter().copied().find(|item| range.contains(item));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The oldest item outside bodies that is not done, whatever it waits for.
    fn oldest_item(&mut self, key: Key) -> Option<u32> {
        let all = &self.items.by_key[key as usize];
        let oldest = &mut self.oldest[key as usize];
        while all.get(*oldest).is_some_and(|&item| self.done[item as usize]) {
            *oldest += 1;
        }
        all.get(*oldest).copied()
    }

    /// Whether an item comes after a conditional node with only such in between as leave no event.
    fn follows(&self, item: u32, bodies: u32) -> bool {
        let mut seen = BTreeSet::new();
        let begins = self.items.bodies[bodies as usize].items.start;
        // The node's own item stands before those of its bodies.
        let mut todo = vec![begins - 1];
        while let Some(at) = todo.pop() {
            for &next in &self.items.all[at as usize].after {
                let Item { key, bodies, .. } = &self.items.all[next as usize];
                if next == item {
                    return true;
                }
                if key.is_none() && seen.insert(next) {
                    todo.push(next);
                    if let Some(bodies) = bodies {
                        todo.extend(&self.items.bodies[*bodies as usize].begin);
                    }
                }
            }
        }
        false
    }
}

/// A kernel's name without what demanglers print differently: the return type, parameters, suffixes of literals.
fn plain(name: &str) -> String {
    let name = name.strip_prefix("void ").unwrap_or(name).trim_end();
    let name = without_parameters(name);
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    // Whether the last characters are a number that is no part of a word.
    let (mut number, mut word) = (false, false);
    while let Some(c) = chars.next() {
        if number && matches!(c, 'u' | 'U' | 'l' | 'L') {
            let mut suffix = String::from(c);
            while let Some(&next) = chars.peek().filter(|c| matches!(c, 'u' | 'U' | 'l' | 'L')) {
                suffix.push(next);
                chars.next();
            }
            let ends = !chars.peek().is_some_and(|c| c.is_alphanumeric() || *c == '_');
            if !ends {
                out.push_str(&suffix);
            }
            (number, word) = (false, !ends);
            continue;
        }
        number = c.is_ascii_digit() && (number || !word);
        word = c.is_alphanumeric() || c == '_';
        out.push(c);
    }
    // Between closing brackets some print a space.
    out.replace("> >", ">>")
}

/// The name up to the parameter list that it ends with, if it does.
fn without_parameters(name: &str) -> &str {
    if !name.ends_with(')') {
        return name;
    }
    let mut depth = 0usize;
    for (at, c) in name.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth -= 1;
                if depth == 0 {
                    return if at == 0 { name } else { &name[..at] };
                }
            }
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_demanglers_agree() {
        for (name, want) in [
            ("axpy", "axpy"),
            ("axpy(float*, int)", "axpy"),
            ("void f<4, a<char*, 2ul> >(int, a<char*, 2ul>)", "f<4, a<char*, 2>>"),
            ("f<4u, 3LL, x2u, 5ux>", "f<4, 3, x2u, 5ux>"),
            ("g(int (*)(char), int)", "g"),
            ("(anonymous namespace)::k(int)", "(anonymous namespace)::k"),
            ("(int)", "(int)"),
            (")", ")"),
            ("))((", "))(("),
            ("", ""),
        ] {
            assert_eq!(plain(name), want, "{name}");
        }
    }
}
