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

/// Streams of the schedule that is shown, at most, if nobody says.
pub const STREAMS: u32 = 4;

/// A graph with what is known of it.
pub struct Look {
    graph: ComputeGraph,
    title: String,
    schedule: Schedule,
    /// By node; nothing where a trace did not tell.
    costs: Vec<Option<u64>>,
    picture: Picture,
}

impl Look {
    /// Plans the graph and has the plan proved.
    pub fn new(graph: ComputeGraph, title: String, streams: u32) -> Result<Look> {
        Look::with_costs(graph, title, streams, Vec::new())
    }

    /// The same with the nanoseconds that nodes of the outermost graph take.
    pub fn with_costs(
        graph: ComputeGraph,
        title: String,
        streams: u32,
        costs: Vec<Option<u64>>,
    ) -> Result<Look> {
        let plan = ExecutionPlan::build(&graph, streams as usize)?;
        let schedule = plan.schedule().context("a plan of a graph has a schedule")?.clone();
        let violations = check(&graph, &schedule);
        if let Some(first) = violations.first() {
            bail!("the plan is wrong, which is a bug: {first} ({} in all)", violations.len());
        }
        let mut marks = |inner: &ComputeGraph| {
            let outermost = std::ptr::eq(inner, &graph);
            marks(inner, if outermost { &costs } else { &[] })
        };
        let picture = picture_of(&graph, &title, Some(&schedule), &mut marks);
        Ok(Look { graph, title, schedule, costs, picture })
    }

    /// The drawing.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// When the schedule runs what, by the costs that are known; one step a node where none is.
    pub fn timeline(&self) -> Timeline {
        let title = format!("{} on {} streams", self.title, self.schedule.streams);
        if self.costs.iter().all(Option::is_none) {
            return timeline_of(&self.picture, &self.schedule, &title, Unit::Steps, |_| 1);
        }
        let cost = |node: &NodeId| self.costs.get(node.index()).copied().flatten().unwrap_or(0);
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
            ("critical path", format!("{} nodes", found.critical_path_nodes)),
            ("widest level", format!("{} nodes", found.max_width)),
            ("kinds", kinds.join(", ")),
            (
                "schedule",
                format!(
                    "{} streams, {} waits, proved by the checker",
                    self.schedule.streams,
                    self.schedule.wait_count()
                ),
            ),
        ];
        if found.graphs > 1 {
            rows.insert(0, ("graphs", found.graphs.to_string()));
        }
        let known = self.costs.iter().flatten().count();
        if known > 0 {
            rows.push(("costs", format!("of {known} nodes, from a trace; others count nothing")));
        }
        let skyline = skyline_of(&self.graph, &self.schedule, &format!("{}: memory", self.title));
        Page {
            title: self.title.clone(),
            summary: rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            sections: vec![
                Section::Graph(self.picture.clone()),
                Section::Timeline(self.timeline()),
                Section::Skyline(skyline),
            ],
        }
    }
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
