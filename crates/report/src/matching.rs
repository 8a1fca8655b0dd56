//! Which node of a graph each event of a profile was, and so what nodes cost.
//!
//! In: a graph and a [`Profile`]. Out: a [`Matching`]: for each replay found, the node of each event, also in child graphs
//! and bodies; what matched nothing is listed, on both sides. Events of one graph launch share a correlation number, so
//! each such set is tried as a replay, and those that match most are kept; a trace without any is tried as one run.
//!
//! How one replay is matched: `run.rs`. Host work, which runs elsewhere, is not matched. Linear but for sorting, ties and
//! bodies that begin anew.

mod items;
mod names;
mod run;

use std::collections::{BTreeMap, BTreeSet};

use phonograph_graph::{ComputeGraph, NodeId};

use crate::compare::NodeAt;
use crate::picture::{GroupIx, NodeClass};
use crate::profile::{Profile, Work};
use crate::timeline::{Lane, Span, Timeline, Unit};
use items::Items;

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
            let found = run::matched(&items, &events);
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
