//! What a page says of a graph: its picture, a schedule and its memory; of two graphs, what differs.

use std::path::Path;

use anyhow::{Context, Result, bail};
use phonograph::graph::{ComputeGraph, NodeId, Schedule, check};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::analysis::{critical_path, redundant_edges, summary};
use phonograph::report::compare::Comparison;
use phonograph::report::html::{Page, Section};
use phonograph::report::matching::{self, Matching};
use phonograph::report::picture::Picture;
use phonograph::report::profile::{self, Profile};
use phonograph::report::timeline::{Timeline, Unit};
use phonograph::report::{Marks, picture_of, skyline_of, timeline_of};
use serde_json::json;

use crate::{input, short, title};

/// Streams of the schedule that is shown, at most, if nobody says.
pub const STREAMS: u32 = 4;

/// What a profiler's trace says of a graph.
pub struct Trace {
    name: String,
    profile: Profile,
    found: Matching,
}

impl Trace {
    /// Reads a trace and matches it to the graph; an error if nothing matches.
    pub fn read(path: &Path, graph: &ComputeGraph) -> Result<Trace> {
        let bytes =
            input::bytes(path).with_context(|| format!("cannot read {}", path.display()))?;
        let profile =
            profile::read(&bytes).with_context(|| format!("{} is no trace", path.display()))?;
        let found = matching::find(graph, &profile);
        if found.replays.is_empty() {
            bail!(
                "{}: none of its {} kernels, copies and fills is called as a node of the graph",
                path.display(),
                profile.events.len()
            );
        }
        Ok(Trace { name: title(path), profile, found })
    }

    /// What matched and what did not, a line each.
    pub fn says(&self) -> Vec<String> {
        let Matching { costs, replays, unmatched_nodes, unmatched_events, other_events } =
            &self.found;
        let known = costs.iter().flatten().count();
        let replays = match replays.len() {
            1 => "1 replay".to_owned(),
            n => format!("the median of {n} replays"),
        };
        let mut lines = vec![format!("of {known} nodes from {}, {replays}", self.name)];
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

    /// The figures.
    pub fn report(&self) -> serde_json::Value {
        json!({
            "trace": self.name,
            "replays": self.found.replays.len(),
            "nanoseconds": self.found.costs,
            "unmatched_nodes": self.found.unmatched_nodes.iter().map(|n| n.0).collect::<Vec<_>>(),
            "unmatched_events": self.found.unmatched_events,
            "other_events": self.found.other_events,
        })
    }

    /// Nanoseconds by node of the outermost graph.
    pub fn costs(&self) -> &[Option<u64>] {
        &self.found.costs
    }
}

/// A graph with what is known of it.
pub struct Look {
    graph: ComputeGraph,
    title: String,
    schedule: Schedule,
    trace: Option<Trace>,
    picture: Picture,
}

impl Look {
    /// Plans the graph and has the plan proved. A trace gives costs.
    pub fn new(
        graph: ComputeGraph,
        title: String,
        streams: u32,
        trace: Option<Trace>,
    ) -> Result<Look> {
        let plan = ExecutionPlan::build(&graph, streams as usize)?;
        let schedule = plan.schedule().context("a plan of a graph has a schedule")?.clone();
        Look::planned(graph, title, schedule, trace)
    }

    /// The same with a schedule that is there already.
    pub fn planned(
        graph: ComputeGraph,
        title: String,
        schedule: Schedule,
        trace: Option<Trace>,
    ) -> Result<Look> {
        let violations = check(&graph, &schedule);
        if let Some(first) = violations.first() {
            bail!("the plan is wrong, which is a bug: {first} ({} in all)", violations.len());
        }
        let mut marks = |inner: &ComputeGraph| {
            let outermost = std::ptr::eq(inner, &graph);
            let costs = trace.as_ref().filter(|_| outermost).map(Trace::costs);
            marks(inner, costs.unwrap_or_default())
        };
        let picture = picture_of(&graph, &title, Some(&schedule), &mut marks);
        Ok(Look { graph, title, schedule, trace, picture })
    }

    /// The drawing.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// When the schedule runs what, by the costs that are known; one step a node where none is.
    pub fn timeline(&self) -> Timeline {
        let title = format!("planned: {}", count(self.schedule.streams as usize, "stream"));
        let Some(trace) = &self.trace else {
            return timeline_of(&self.picture, &self.schedule, &title, Unit::Steps, |_| 1);
        };
        let costs = trace.costs();
        let cost = |node: &NodeId| costs.get(node.index()).copied().flatten().unwrap_or(0);
        timeline_of(&self.picture, &self.schedule, &title, Unit::Nanoseconds, |nodes| {
            nodes.iter().map(cost).sum()
        })
    }

    /// The page.
    pub fn page(&self) -> Page {
        let found = summary(&self.graph);
        let kinds: Vec<String> =
            found.kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        let mut rows = vec![
            ("nodes", found.nodes.to_string()),
            ("edges", found.edges.to_string()),
            ("redundant edges", found.redundant.len().to_string()),
            ("critical path", count(found.critical_path_nodes, "node")),
            ("widest level", count(found.max_width, "node")),
            ("kinds", kinds.join(", ")),
            (
                "schedule",
                format!(
                    "{}, {}, proved by the checker",
                    count(self.schedule.streams as usize, "stream"),
                    count(self.schedule.wait_count(), "wait")
                ),
            ),
        ];
        if found.graphs > 1 {
            rows.insert(0, ("graphs", found.graphs.to_string()));
        }
        let said = self.trace.as_ref().map(Trace::says).unwrap_or_default();
        rows.extend(said.into_iter().enumerate().map(|(index, line)| match index {
            0 => ("costs", line),
            _ => ("", line),
        }));
        let mut sections =
            vec![Section::Graph(self.picture.clone()), Section::Timeline(self.timeline())];
        if let Some(Trace { profile, found, name }) = &self.trace {
            let title = format!("recorded: {name}, 1 of {}", found.replays.len());
            let first = found.replays.first();
            sections.extend(first.map(|r| Section::Timeline(r.timeline(profile, &title))));
        }
        let skyline = skyline_of(&self.graph, &self.schedule, "memory");
        sections.push(Section::Skyline(skyline));
        Page {
            title: self.title.clone(),
            summary: rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            sections,
        }
    }
}

fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// The page of two graphs side by side.
pub fn comparison(before: &Look, after: &Look) -> Result<Page> {
    let title = format!("{} → {}", before.title, after.title);
    let pair = Comparison::find(&*title, before.picture.clone(), after.picture.clone())?;
    Ok(Page { title, summary: Vec::new(), sections: vec![Section::Comparison(pair)] })
}

/// What analyses say of one graph, for drawing. The critical path is that of the costs where there are any.
pub fn marks(graph: &ComputeGraph, costs: &[Option<u64>]) -> Marks {
    let known = costs.iter().any(Option::is_some);
    let cost = |node: NodeId| costs.get(node.index()).copied().flatten();
    Marks {
        redundant: redundant_edges(graph),
        critical: critical_path(graph, |node| if known { cost(node).unwrap_or(0) } else { 1 })
            .nodes,
        costs: graph.node_ids().filter_map(|node| Some((node, cost(node)?))).collect(),
    }
}
