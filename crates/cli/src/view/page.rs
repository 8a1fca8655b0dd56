//! What a page says of a graph: its picture, a schedule and its memory; of two graphs, what differs.

use anyhow::{Context, Result, bail};
use phonograph::graph::{ComputeGraph, NodeId, Schedule, check};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::analysis::{critical_path, redundant_edges, summary};
use phonograph::report::compare::Comparison;
use phonograph::report::html::{Page, Section};
use phonograph::report::picture::Picture;
use phonograph::report::timeline::{Timeline, Unit};
use phonograph::report::{Marks, picture_of, skyline_of, timeline_of};

use super::trace::Trace;

/// Streams of the schedule that is shown, at most, if nobody says.
pub const STREAMS: u32 = 4;

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
        let recorded = self.trace.as_ref().and_then(|trace| trace.timeline(&self.picture));
        sections.extend(recorded.map(Section::Timeline));
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
