//! Which node of a graph each event of a profile was, and so what nodes cost.
//!
//! In: a graph and a [`Profile`]. Out: a [`Matching`]: for each replay found, the node of each event; what matched nothing
//! is listed, on both sides. Events of one graph launch share a correlation number, so each such set is tried as a
//! replay, and those that match most are kept; a trace without any is tried as one run.
//!
//! Method: events are taken by start. An event is a node of its name and kind whose producers have all been matched: if
//! possible one that follows what its stream did last, else the oldest. If there is none (a producer is missing in the
//! trace), the oldest unmatched node of that name. Child graphs count as their nodes; bodies of conditionals, which may
//! run any number of times, and host work, which runs elsewhere, are not matched. Linear but for sorting and ties.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use phonograph_graph::{ComputeGraph, MemcpyDir, NodeId, NodeKind, display_name};

use crate::picture::{GroupIx, NodeClass, NodeIx};
use crate::profile::{DeviceEvent, Profile, Work};
use crate::text::brief;
use crate::timeline::{Lane, Span, Timeline, Unit};

/// What a profile says of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// By node of the outermost graph: the median over the replays in which it was matched, in nanoseconds. A child
    /// graph's is the sum of its nodes'.
    pub costs: Vec<Option<u64>>,
    /// The replays, in the order of their starts.
    pub replays: Vec<Replay>,
    /// Nodes that run on the device but were matched in no replay.
    pub unmatched_nodes: Vec<NodeId>,
    /// Names of events in those replays that matched no node, and how many.
    pub unmatched_events: BTreeMap<String, usize>,
    /// Events outside those replays.
    pub other_events: usize,
}

/// One replay: its events, by start, with the outermost graph's node that each was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Places in [`Profile::events`], and nodes.
    pub events: Vec<(usize, Option<NodeId>)>,
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
                node: node.map(|id| (GroupIx(0), NodeIx(id.0))),
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
            let found = items.matched(events.iter().map(|&place| &profile.events[place]));
            (found.iter().flatten().count(), found)
        })
        .collect();
    let most = matched.iter().map(|(count, _)| *count).max().unwrap_or(0);

    let mut all = Matching { costs: vec![None; graph.node_count()], ..Matching::default() };
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); graph.node_count()];
    let mut known = vec![false; items.all.len()];
    all.other_events = profile.events.len();
    for (events, (count, found)) in launches.iter().zip(matched) {
        if count < most || most == 0 {
            continue;
        }
        all.other_events -= events.len();
        let mut sums: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut replay = Replay::default();
        for (&place, item) in events.iter().zip(found) {
            let event = &profile.events[place];
            let node = item.map(|item| items.all[item as usize].node);
            match (item, node) {
                (Some(item), Some(node)) => {
                    known[item as usize] = true;
                    *sums.entry(node).or_default() += event.duration;
                }
                _ => *all.unmatched_events.entry(event.name.clone()).or_default() += 1,
            }
            replay.events.push((place, node));
        }
        for (node, sum) in sums {
            times[node.index()].push(sum);
        }
        all.replays.push(replay);
    }
    for (cost, times) in all.costs.iter_mut().zip(&mut times) {
        times.sort_unstable();
        *cost = times.get(times.len() / 2).copied();
    }
    let missing = items.all.iter().zip(known).filter(|(item, known)| item.key.is_some() && !known);
    let missing: BTreeSet<NodeId> = missing.map(|(item, _)| item.node).collect();
    all.unmatched_nodes = missing.into_iter().collect();
    all
}

/// A name and kind that events and nodes have in common.
type Key = u32;

/// One thing that may have run: a node, of the outermost graph or a child, or a point that only orders others.
struct Item {
    /// The node of the outermost graph.
    node: NodeId,
    /// What its event would be called; nothing for what leaves no event.
    key: Option<Key>,
    after: Vec<u32>,
    producers: u32,
}

struct Items {
    all: Vec<Item>,
    keys: HashMap<String, Key>,
    /// The key of a kernel by its name without template arguments, where only one has that name.
    bases: HashMap<String, Option<Key>>,
    /// Items of each key, producers first.
    by_key: Vec<Vec<u32>>,
}

impl Items {
    fn new(graph: &ComputeGraph) -> Self {
        let mut items = Items {
            all: Vec::new(),
            keys: HashMap::new(),
            bases: HashMap::new(),
            by_key: Vec::new(),
        };
        items.add(graph, None);
        for item in 0..items.all.len() {
            for next in items.all[item].after.clone() {
                items.all[next as usize].producers += 1;
            }
        }
        items
    }

    /// Adds a graph; the places where it begins and ends. Recursive over nesting, which building a graph bounds.
    fn add(&mut self, graph: &ComputeGraph, inside: Option<NodeId>) -> (u32, u32) {
        let begin = self.push(inside.unwrap_or(NodeId(0)), None);
        let mut ends: Vec<(u32, u32)> = vec![(0, 0); graph.node_count()];
        let mut last = vec![begin];
        for &id in graph.topological_order() {
            let node = inside.unwrap_or(id);
            let place = match &graph.node(id).kind {
                NodeKind::Child(child) => self.add(child, Some(node)),
                kind => {
                    let key = self.key(kind);
                    let item = self.push(node, key);
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
        let end = self.push(inside.unwrap_or(NodeId(0)), None);
        for item in last {
            self.all[item as usize].after.push(end);
        }
        (begin, end)
    }

    fn push(&mut self, node: NodeId, key: Option<Key>) -> u32 {
        let place = self.all.len() as u32;
        if let Some(key) = key {
            self.by_key[key as usize].push(place);
        }
        self.all.push(Item { node, key, after: Vec::new(), producers: 0 });
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
    fn matched<'a>(&self, events: impl Iterator<Item = &'a DeviceEvent>) -> Vec<Option<u32>> {
        let mut run = Run {
            items: self,
            waiting: self.all.iter().map(|item| item.producers).collect(),
            done: vec![false; self.all.len()],
            ready: vec![BTreeSet::new(); self.by_key.len()],
            oldest: vec![0; self.by_key.len()],
        };
        run.release(vec![0]);
        let mut last: HashMap<i64, u32> = HashMap::new();
        let matched = events.map(|event| {
            let key = self.key_of(event)?;
            let item = run.take(key, last.get(&event.stream).copied())?;
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
}

impl Run<'_> {
    /// Items whose producers are all done: those that leave an event become ready, others are done at once.
    fn release(&mut self, mut todo: Vec<u32>) {
        while let Some(item) = todo.pop() {
            let Item { key, after, .. } = &self.items.all[item as usize];
            match key {
                Some(key) if !self.done[item as usize] => {
                    self.ready[*key as usize].insert(item);
                    continue;
                }
                _ => self.done[item as usize] = true,
            }
            for &next in after {
                self.waiting[next as usize] -= 1;
                if self.waiting[next as usize] == 0 {
                    todo.push(next);
                }
            }
        }
    }

    fn take(&mut self, key: Key, before: Option<u32>) -> Option<u32> {
        let ready = &self.ready[key as usize];
        let follows = before.and_then(|before| {
            let after = &self.items.all[before as usize].after;
            after.iter().copied().filter(|next| ready.contains(next)).min()
        });
        let item = follows.or_else(|| ready.first().copied()).or_else(|| {
            let all = &self.items.by_key[key as usize];
            let oldest = &mut self.oldest[key as usize];
            while all.get(*oldest).is_some_and(|&item| self.done[item as usize]) {
                *oldest += 1;
            }
            all.get(*oldest).copied()
        })?;
        let was_ready = self.ready[key as usize].remove(&item);
        self.done[item as usize] = true;
        // One that was taken before its producers releases what follows when they are done.
        if was_ready {
            self.release(vec![item]);
        }
        Some(item)
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
