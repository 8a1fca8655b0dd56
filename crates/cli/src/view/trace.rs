//! A profiler's trace as the source of a graph's costs: read, matched, and what is said of it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use phonograph::graph::{ComputeGraph, NodeId};
use phonograph::report::matching::{self, Matching};
use phonograph::report::picture::{GroupIx, NodeIx, Picture};
use phonograph::report::profile::{self, Profile};
use phonograph::report::timeline::Timeline;
use serde_json::json;

use crate::{input, short, title};

/// What a profiler's trace says of a graph.
pub struct Trace {
    name: String,
    profile: Profile,
    found: Matching,
}

impl Trace {
    /// Matches the trace in a file to the graph; an error if nothing matches.
    pub fn new(bytes: &[u8], path: &Path, graph: &ComputeGraph) -> Result<Trace> {
        let profile = profile::read(bytes).with_context(|| {
            format!("{} is neither a file of `run --profile` nor a trace", input::shown(path))
        })?;
        let found = matching::find(graph, &profile);
        if found.replays.is_empty() {
            bail!(
                "{}: none of its {} kernels, copies and fills is called as a node of the graph",
                input::shown(path),
                profile.events.len()
            );
        }
        Ok(Trace { name: title(path), profile, found })
    }

    /// What matched and what did not, a line each.
    pub fn says(&self) -> Vec<String> {
        let Matching { costs, inner, replays, unmatched_nodes, unmatched_events, other_events } =
            &self.found;
        let known = costs.iter().flatten().count();
        let replays = match replays.len() {
            1 => "1 replay".to_owned(),
            n => format!("the median of {n} replays"),
        };
        let inside = match inner.len() {
            0 => String::new(),
            n => format!(" and {n} in graphs inside"),
        };
        let mut lines = vec![format!("of {known} nodes{inside} from {}, {replays}", self.name)];
        const SHOWN: usize = 8;
        if !unmatched_nodes.is_empty() {
            let names: Vec<String> =
                unmatched_nodes.iter().take(SHOWN).map(NodeId::to_string).collect();
            let more = if unmatched_nodes.len() > SHOWN { ", …" } else { "" };
            lines.push(format!(
                "{} nodes are not in the trace: {}{more}",
                unmatched_nodes.len(),
                names.join(", ")
            ));
        }
        for (name, count) in unmatched_events.iter().take(SHOWN) {
            lines.push(format!("{count} × {} matched no node", short(name)));
        }
        if unmatched_events.len() > SHOWN {
            lines.push(format!("… and {} more names", unmatched_events.len() - SHOWN));
        }
        if *other_events > 0 {
            lines.push(format!("{other_events} events of the trace belong to other work"));
        }
        lines
    }

    /// When what ran in the first replay; what is critical in the picture is critical here.
    pub fn timeline(&self, picture: &Picture) -> Option<Timeline> {
        let title = format!("recorded: {}, replay 1 of {}", self.name, self.found.replays.len());
        let mut timeline = self.found.replays.first()?.timeline(&self.profile, &title);
        for span in timeline.lanes.iter_mut().flat_map(|lane| &mut lane.spans) {
            span.critical = span.node.is_some_and(|(group, node)| {
                picture.groups[group.index()].nodes[node.index()].critical
            });
        }
        Some(timeline)
    }

    /// The figures.
    pub fn report(&self) -> serde_json::Value {
        json!({
            "trace": self.name,
            "replays": self.found.replays.len(),
            "nanoseconds": self.found.costs,
            "inner": self.found.inner.iter().map(|((group, node), ns)| json!([group.0, node.0, ns]))
                .collect::<Vec<_>>(),
            "unmatched_nodes": self.found.unmatched_nodes.iter().map(|n| n.0).collect::<Vec<_>>(),
            "unmatched_events": self.found.unmatched_events,
            "other_events": self.found.other_events,
        })
    }

    /// Nanoseconds by node of a graph inside.
    pub fn costs_in(&self, group: GroupIx, nodes: usize) -> Vec<Option<u64>> {
        let cost = |node| self.found.inner.get(&(group, NodeIx(node))).copied();
        (0..nodes as u32).map(cost).collect()
    }

    /// Nanoseconds by node of the outermost graph.
    pub fn costs(&self) -> &[Option<u64>] {
        &self.found.costs
    }
}
