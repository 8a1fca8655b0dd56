//! Recorded programs: every step's result, statuses, dependency sets, graph and former mode.
//!
//! The recorder cannot see which call made a node or began a capture. It looks at the streams after each step, and names what it
//! has not seen before by that step; what it never sees on a stream is -1. So a node made on a per-thread default stream is named
//! late or not at all, and the answers are named here in the same way.

use phonograph_trace::recording::{Program, RecordedGraph, RecordedStatus, Step};
use phonograph_trace::{CuResult, Mode, StreamId};
use rustc_hash::FxHashMap;

use super::{Divergence, Tally};
use crate::model::{CallIndex, CapturedId, Effect, FinishedGraph, Model, Status};

const UNSEEN: i64 = -1;

pub(super) fn tally(programs: &[Program]) -> Tally {
    let mut tally = Tally::new("programs");
    let (mut right, mut total) = (0, 0);
    for program in programs {
        let (steps, divergence) = run(program);
        right += steps;
        total += program.steps.len();
        tally.count(divergence);
    }
    tally.steps = Some((right, total));
    tally
}

/// How many steps are right, and the first that is not.
fn run(program: &Program) -> (usize, Option<Divergence>) {
    let diverges = |step: usize, what: &str, driver: String, model: String| {
        let op = program.steps[step].op.clone();
        Divergence {
            record: program.id.clone(),
            step: Some((step, op)),
            what: what.to_owned(),
            driver,
            model,
        }
    };
    let (names, calls) = match program.calls() {
        Ok(parsed) => parsed,
        Err(error) => {
            let step = error.place.line as usize - 1;
            let driver = program.steps[step].result.to_string();
            return (0, Some(diverges(step, "the call", driver, error.error.to_string())));
        }
    };
    let mut model = Model::new(names.stream_kinds(), names.event_count());
    let mut seen = Seen::default();
    let mut right = 0;
    let mut first = None;
    for (at, (call, step)) in calls.iter().zip(&program.steps).enumerate() {
        let difference = match model.apply(call) {
            Err(error) => Some(("the call", step.result.to_string(), error.to_string())),
            Ok(outcome) => {
                seen.look(at, &model, program.streams.len());
                let status = || compare_statuses(step, &model, &seen);
                compare_result(step, outcome.result)
                    .or_else(status)
                    .or_else(|| compare_effect(step, &outcome.effect, &seen))
            }
        };
        match difference {
            None => right += 1,
            Some((what, driver, model)) => {
                first = first.or_else(|| Some(diverges(at, what, driver, model)))
            }
        }
    }
    (right, first)
}

type Difference = Option<(&'static str, String, String)>;

fn compare_result(step: &Step, result: CuResult) -> Difference {
    // A recording writes NOT_READY as SUCCESS.
    let recorded = if step.result == CuResult::NOT_READY { CuResult::SUCCESS } else { step.result };
    (recorded != result).then(|| ("result", recorded.to_string(), result.to_string()))
}

fn compare_statuses(step: &Step, model: &Model, seen: &Seen) -> Difference {
    let answered = (0..step.streams.len()).map(|i| seen.status(model, i));
    let mut pairs = step.streams.iter().map(sorted).zip(answered);
    let (recorded, answered) = pairs.find(|(recorded, answered)| recorded != answered)?;
    Some(("a stream's status", format!("{recorded:?}"), format!("{answered:?}")))
}

fn sorted(status: &RecordedStatus) -> RecordedStatus {
    let mut status = status.clone();
    if let RecordedStatus::Active { deps, .. } = &mut status {
        deps.sort_unstable();
    }
    status
}

fn compare_effect(step: &Step, effect: &Effect, seen: &Seen) -> Difference {
    let mut recorded = step.graph.clone();
    if let Some(graph) = &mut recorded {
        graph.nodes.sort_unstable();
        graph.edges.sort_unstable();
    }
    let mut answered = match effect {
        Effect::Ended(graph) => Some(seen.graph(graph)),
        _ => None,
    };
    if let (Some(RecordedGraph { instantiate: None, .. }), Some(answered)) =
        (&recorded, &mut answered)
    {
        answered.instantiate = None;
    }
    if recorded != answered {
        return Some(("graph", format!("{recorded:?}"), format!("{answered:?}")));
    }
    let previous = match effect {
        Effect::PreviousMode(mode) => Some(*mode),
        _ => None,
    };
    let word = |mode: Option<Mode>| mode.map_or("none", Mode::word).to_owned();
    (step.previous != previous).then(|| ("the former mode", word(step.previous), word(previous)))
}

/// What the recorder has seen, and the steps it is named by.
#[derive(Default)]
struct Seen {
    captures: FxHashMap<CallIndex, usize>,
    nodes: FxHashMap<CallIndex, Vec<i64>>,
}

impl Seen {
    fn look(&mut self, step: usize, model: &Model, streams: usize) {
        for i in 0..streams {
            if let Ok(Status::Active { capture, nodes, .. }) = model.status(StreamId(i as u32)) {
                self.captures.entry(capture).or_insert(step);
                let names = self.nodes.entry(capture).or_default();
                names.resize(nodes.len(), step as i64);
            }
        }
    }

    fn node(&self, capture: CallIndex, id: CapturedId) -> i64 {
        self.nodes.get(&capture).and_then(|names| names.get(id.index())).copied().unwrap_or(UNSEEN)
    }

    fn status(&self, model: &Model, stream: usize) -> RecordedStatus {
        match model.status(StreamId(stream as u32)) {
            Ok(Status::Invalidated) => RecordedStatus::Invalidated,
            Ok(Status::Destroyed) => RecordedStatus::Destroyed,
            Ok(Status::Active { capture, dependencies, .. }) => {
                let mut deps: Vec<i64> =
                    dependencies.iter().map(|id| self.node(capture, id)).collect();
                deps.sort_unstable();
                RecordedStatus::Active { capture: self.captures[&capture], deps }
            }
            Ok(Status::None) | Err(_) => RecordedStatus::None,
        }
    }

    fn graph(&self, graph: &FinishedGraph) -> RecordedGraph {
        let name = |id: CapturedId| self.node(graph.id, id);
        let ids = (0..).map(CapturedId);
        let mut nodes: Vec<(i64, String)> = ids
            .zip(&graph.nodes)
            .map(|(id, node)| (name(id), node.kind.name().to_owned()))
            .collect();
        let mut edges: Vec<(i64, i64)> =
            graph.edges().map(|edge| (name(edge.from), name(edge.to))).collect();
        nodes.sort_unstable();
        edges.sort_unstable();
        RecordedGraph { nodes, edges, instantiate: Some(CuResult::SUCCESS) }
    }
}
