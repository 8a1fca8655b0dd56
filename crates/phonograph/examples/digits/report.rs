//! What the example tells: figures on the terminal, a page with the graph and a timeline.

use std::error::Error;
use std::path::Path;

use phonograph::graph::ComputeGraph;
use phonograph::plan::analysis::{critical_path, redundant_edges};
use phonograph::report::html::{Page, Section, html};
use phonograph::report::picture::{GroupIx, NodeIx};
use phonograph::report::timeline::{Lane, Span, Timeline, Unit};
use phonograph::report::{Marks, class_of, picture_of, skyline_of};

use crate::training::Outcome;

/// Prints the figures; the last line but one is the median accuracy.
pub fn print(outcomes: &mut [Outcome]) {
    let first = &outcomes[0];
    for (name, value) in figures(first) {
        println!("  {name:<18} {value}");
    }
    for outcome in &*outcomes {
        println!(
            "  seed {:<13} accuracy {:.1} %, last loss {:.4}, parameter bits {:016x}",
            outcome.seed,
            outcome.accuracy * 100.0,
            outcome.loss,
            outcome.bits
        );
    }
    outcomes.sort_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let median = outcomes[outcomes.len() / 2].accuracy;
    println!("accuracy {:.1} % (median of {})", median * 100.0, outcomes.len());
}

fn figures(outcome: &Outcome) -> Vec<(String, String)> {
    let micros = |ns: u64| ns as f64 / 1e3;
    let (eager, step) = (micros(outcome.eager_ns), micros(outcome.step_ns));
    let (replay, other) = (micros(outcome.replay_ns), micros(outcome.other_ns));
    let rows = [
        ("nodes", outcome.summary.nodes.to_string()),
        (
            "edges",
            format!(
                "{}, of which {} are implied by others",
                outcome.summary.edges,
                outcome.summary.redundant.len()
            ),
        ),
        ("critical path", format!("{} nodes", outcome.summary.critical_path_nodes)),
        (
            "schedule",
            format!(
                "{} streams, {} waits; {}",
                outcome.schedule.streams,
                outcome.schedule.wait_count(),
                outcome.parts
            ),
        ),
        (
            "memory",
            format!(
                "{} bytes pooled, {} if nothing were shared",
                outcome.schedule.pool_bytes(),
                outcome.unshared_bytes
            ),
        ),
        ("kernels", format!("{}; the other graph has {}", outcome.kernels, outcome.other_kernels)),
        (
            "time a step",
            format!(
                "eager {eager:.0} µs, while training {step:.0} µs; in turns {replay:.0} µs, the other graph {other:.0} µs"
            ),
        ),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Writes the graph of the training step and when its nodes ran in one replay.
pub fn page(outcome: &Outcome, path: &Path) -> Result<(), Box<dyn Error>> {
    let graph = &outcome.graph;
    let mut took = vec![0; graph.node_count()];
    let spans = outcome.profile.as_ref().map_or(&[][..], |profile| &profile.spans);
    for span in spans {
        took[span.node.index()] += span.end_ns - span.start_ns;
    }
    let mut marks = |graph: &ComputeGraph| Marks {
        redundant: redundant_edges(graph),
        critical: critical_path(graph, |node| took[node.index()]).nodes,
        costs: graph.node_ids().map(|node| (node, took[node.index()])).collect(),
    };
    let picture = picture_of(graph, "the training step", Some(&outcome.schedule), &mut marks);
    let workers = spans.iter().map(|span| span.worker.0).max().unwrap_or(0) + 1;
    let mut lanes: Vec<Lane> = (0..workers)
        .map(|worker| Lane { name: format!("worker {worker}"), spans: Vec::new() })
        .collect();
    for span in spans {
        let node = graph.node(span.node);
        lanes[span.worker.index()].spans.push(Span {
            label: node.name.to_string(),
            class: class_of(&node.kind),
            start: span.start_ns,
            end: span.end_ns,
            node: Some((GroupIx(0), NodeIx(span.node.0))),
            critical: picture.groups[0].nodes[span.node.index()].critical,
        });
    }
    let skyline = skyline_of(graph, &outcome.schedule, "memory of the training step");
    let path_ns = critical_path(graph, |node| took[node.index()]).cost;
    let mut summary = figures(outcome);
    let mut sections = vec![Section::Graph(picture)];
    if let Some(profile) = &outcome.profile {
        let longest =
            format!("{:.0} µs of {:.0} µs", path_ns as f64 / 1e3, profile.total_ns as f64 / 1e3);
        summary.push(("longest path".to_owned(), longest));
        sections.push(Section::Timeline(Timeline {
            title: "one replay, the shortest of nine".to_owned(),
            lanes,
            unit: Unit::Nanoseconds,
        }));
    }
    sections.push(Section::Skyline(skyline));
    let page = Page { title: "Handwritten digits: a training step".to_owned(), summary, sections };
    std::fs::write(path, html(&page)?)?;
    Ok(())
}
