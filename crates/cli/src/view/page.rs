//! What a page says of a graph: its picture, a schedule and its memory; of two graphs, what differs.

use std::borrow::Cow;

use anyhow::Result;
use phonograph::graph::{ComputeGraph, Image, NodeId};
use phonograph::plan::analysis::{critical_path, redundant_edges, summary};
use phonograph::plan::cost::Overheads;
use phonograph::plan::simulate::{NodeSpan, simulate};
use phonograph::plan::streams::StreamLimit;
use phonograph::report::compare::Comparison;
use phonograph::report::html::{Page, Section};
use phonograph::report::picture::{GroupIx, NodeIx, Picture};
use phonograph::report::skyline::Skyline;
use phonograph::report::text::{count, thousands};
use phonograph::report::timeline::{Timeline, Unit};
use phonograph::report::{
    Marks, Run, dependencies, perfetto, picture_of, plan_svg, skyline_of, timeline_of,
};

use crate::costs::Source;
use crate::planning::{Planned, schedule_of};

/// Streams of the schedule that is shown, at most, if nobody says.
pub const STREAMS: u32 = 4;

/// A graph with what is known of it.
pub struct Look {
    graph: ComputeGraph,
    title: String,
    planned: Planned,
    costs: Option<Source>,
    picture: Picture,
}

impl Look {
    /// Plans the graph, by costs where there are any.
    pub fn new(
        graph: ComputeGraph,
        title: String,
        streams: u32,
        costs: Option<Source>,
    ) -> Result<Look> {
        let planned = Planned::new(&graph, StreamLimit::AtMost(streams), costs.as_ref(), None)?;
        Look::planned(graph, title, planned, costs)
    }

    /// The same with a plan that is there already.
    pub fn planned(
        graph: ComputeGraph,
        title: String,
        planned: Planned,
        costs: Option<Source>,
    ) -> Result<Look> {
        let schedule = schedule_of(&planned.plan)?;
        let picture = picture_of(&graph, &title, Some(schedule), &mut marks_by(costs.as_ref()));
        Ok(Look { graph, title, planned, costs, picture })
    }

    /// When the schedule runs what, by the costs that are known; one step a node where none is.
    fn timeline(&self) -> Result<Timeline> {
        let schedule = schedule_of(&self.planned.plan)?;
        let steps;
        let (run, unit) = match &self.costs {
            Some(_) => (&self.planned.run, Unit::Nanoseconds),
            None => {
                let one_each = vec![1; self.graph.node_count()];
                steps = simulate(&self.graph, schedule, &one_each, Overheads::default());
                (&steps, Unit::Steps)
            }
        };
        let mut critical = vec![false; self.graph.node_count()];
        for link in &run.chain {
            critical[link.node.index()] = true;
        }
        let runs = run.spans.iter().map(|&NodeSpan { node, stream, start_ns, end_ns }| Run {
            node,
            stream,
            start: start_ns,
            end: end_ns,
            critical: critical[node.index()],
        });
        let title = format!("planned: {}", count(schedule.streams as usize, "stream"));
        Ok(timeline_of(&self.picture, &title, schedule.streams, unit, runs))
    }

    /// Where buffers lie.
    fn skyline(&self) -> Result<Skyline> {
        let mut skyline = skyline_of(&self.graph, schedule_of(&self.planned.plan)?, "memory");
        // The bound is that of the outermost graph, all its pools together.
        if let [pool] = &mut skyline.pools[..] {
            let bound = self.planned.memory.lower_bound;
            pool.bound = Some((bound.bytes, "any plan that adds no order needs that".to_owned()));
        }
        Ok(skyline)
    }

    /// The plan for a paper: when each node would run, and where buffers lie.
    pub fn svg(&self) -> Result<String> {
        Ok(plan_svg(&self.title, &self.timeline()?, &self.skyline()?)?)
    }

    /// When each node would run, for Perfetto, with dependencies as arrows.
    pub fn trace(&self) -> Result<String> {
        let timeline = self.timeline()?;
        Ok(perfetto::trace(&timeline, &dependencies(&self.picture, &timeline))?)
    }

    /// The page.
    pub fn page(&self) -> Result<Page> {
        let schedule = schedule_of(&self.planned.plan)?;
        let found = summary(&self.graph);
        let kinds: Vec<String> =
            found.kinds.iter().map(|(kind, &n)| format!("{kind} {}", thousands(n))).collect();
        let mut rows = vec![
            ("nodes", thousands(found.nodes)),
            ("edges", thousands(found.edges)),
            ("redundant edges", thousands(found.redundant.len())),
            ("critical path", count(found.critical_path_nodes, "node")),
            ("widest level", count(found.max_width, "node")),
            ("kinds", if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }),
            (
                "schedule",
                format!(
                    "{}, {}, proved by the checker",
                    count(schedule.streams as usize, "stream"),
                    count(schedule.wait_count(), "wait")
                ),
            ),
        ];
        if found.graphs > 1 {
            rows.insert(0, ("graphs", thousands(found.graphs)));
        }
        let said = self.costs.as_ref().map(Source::says).unwrap_or_default();
        rows.extend(said.into_iter().enumerate().map(|(index, line)| match index {
            0 => ("costs", line),
            _ => ("", line),
        }));
        let mut sections =
            vec![Section::Graph(self.picture.clone()), Section::Timeline(self.timeline()?)];
        let trace = self.costs.as_ref().and_then(Source::trace);
        let recorded = trace.and_then(|trace| trace.timeline(&self.picture));
        sections.extend(recorded.map(Section::Timeline));
        sections.push(Section::Skyline(self.skyline()?));
        Ok(Page {
            title: self.title.clone(),
            summary: rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            sections,
        })
    }
}

/// The page of two graphs side by side.
pub fn comparison(before: &Look, after: &Look) -> Result<Page> {
    let title = format!("{} → {}", before.title, after.title);
    let pair = Comparison::find(&*title, before.picture.clone(), after.picture.clone())?;
    Ok(Page { title, summary: Vec::new(), sections: vec![Section::Comparison(pair)] })
}

/// The page of a graph before and after passes, which say where each node went.
pub fn rewriting(before: &Look, after: &Look, image: &Image) -> Result<Page> {
    let title = format!("{}, optimized", before.title);
    let mut pairs = Vec::new();
    let mut todo = vec![(GroupIx(0), GroupIx(0), Cow::Borrowed(image))];
    while let Some((from, to, image)) = todo.pop() {
        let [group, now] = [(&before.picture, from), (&after.picture, to)]
            .map(|(picture, group)| &picture.groups[group.index()].nodes);
        for (index, node) in group.iter().enumerate() {
            let id = NodeId::from_index(index);
            let Some(became) = image.of(id) else { continue };
            pairs.push(((from, NodeIx(id.0)), (to, NodeIx(became.0))));
            let bodies = node.bodies.iter().zip(&now[became.index()].bodies);
            todo.extend(bodies.enumerate().map(|(which, (&from, &to))| {
                let own = image.inner.get(&id).and_then(|images| images.get(which));
                let same = || Image::identity(before.picture.groups[from.index()].nodes.len());
                (from, to, Cow::Owned(own.cloned().unwrap_or_else(same)))
            }));
        }
    }
    pairs.sort_unstable();
    let (before, after) = (before.picture.clone(), after.picture.clone());
    let pair = Comparison { title: title.clone(), before, after, pairs };
    Ok(Page { title, summary: Vec::new(), sections: vec![Section::Comparison(pair)] })
}

/// What analyses and costs say of each graph of a picture, in the order in which it is drawn.
pub fn marks_by(costs: Option<&Source>) -> impl FnMut(&ComputeGraph) -> Marks {
    let mut group = GroupIx(0);
    move |graph| {
        let known = match (costs, group) {
            (None, _) => Vec::new(),
            (Some(costs), GroupIx(0)) => costs.known(),
            (Some(costs), group) => costs.known_in(group, graph.node_count()),
        };
        group.0 += 1;
        marks(graph, &known)
    }
}

/// What analyses say of one graph, for drawing. The critical path is that of the costs where there are any.
fn marks(graph: &ComputeGraph, costs: &[Option<u64>]) -> Marks {
    let known = costs.iter().any(Option::is_some);
    let cost = |node: NodeId| costs.get(node.index()).copied().flatten();
    Marks {
        redundant: redundant_edges(graph),
        critical: critical_path(graph, |node| if known { cost(node).unwrap_or(0) } else { 1 })
            .nodes,
        costs: graph.node_ids().filter_map(|node| Some((node, cost(node)?))).collect(),
    }
}
