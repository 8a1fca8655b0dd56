//! What happened to the captures of a program that was traced.
//!
//! In: a [`Trace`]. Out: what [`check`](super::check()) finds in its calls, with what the driver answered in mind, and what only shows
//! in a whole program:
//!
//! | code | warning |
//! | --- | --- |
//! | X1 | the driver answered otherwise than the model: a fault of the model, with the steps to it |
//! | W6 | a launch of a graph with a kernel that is given memory which was freed |
//! | W11 | a graph that was captured and never launched |
//! | W12 | a place that captures again and again, for few launches each |
//! | W13 | an update that failed, so that the program had to instantiate anew |

use std::collections::BTreeMap;

use phonograph_trace::live::{Operand, Site, Stop, Trace};
use phonograph_trace::{Call, CuResult, Function, GraphId, MemoryId, Stream, StreamKind, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::finding::{self, Finding, Report, Severity, Span};
use super::run;
use crate::model::{CallIndex, FinishedGraph};
use crate::update::REASONS;

/// What a trace comes to.
#[derive(Clone, PartialEq, Debug)]
pub struct Traced {
    /// The findings.
    pub report: Report,
    /// Captures that were begun.
    pub captures: usize,
    /// Captures that ended without a graph, or were never ended.
    pub failed: usize,
    /// How often each graph that a capture ended with was launched.
    pub launches: Vec<u64>,
    /// Launches of graphs that were built otherwise.
    pub other_launches: u64,
    /// Calls that the model could not interpret.
    pub skipped: usize,
}

/// Captures at one place from which on that is worth a warning.
const RECAPTURES: usize = 4;
/// Fewer launches of each graph than this do not pay for its capture.
const LAUNCHES: u64 = 4;
/// Steps to a disagreement that are shown.
const STEPS: u32 = 24;

/// Runs the calls of a trace through the model.
pub fn check_trace(trace: &Trace) -> Traced {
    let skipped = std::cell::Cell::new(0);
    let tolerant = |_| {
        skipped.set(skipped.get() + 1);
        Ok(())
    };
    let report = run(&trace.script, tolerant);
    let Ok(mut report) = report else { unreachable!("nothing that is tolerated is an error") };
    for finding in report.findings.iter_mut().filter(|finding| finding.code == "X1") {
        blame_the_model(trace, finding);
    }
    if trace.modules.iter().any(|module| module.path.contains("/libtorch")) {
        for finding in &mut report.findings {
            finding.help.extend(in_pytorch(finding.code).map(str::to_owned));
        }
    }
    let uses = Uses::of(trace);
    let launches: Vec<u64> = report
        .graphs
        .iter()
        .map(|graph| graph.name.map_or(0, |name| uses.launches(name)))
        .collect();
    let captured = launches.iter().fold(0, |sum: u64, launches| sum.saturating_add(*launches));
    let other_launches = uses.all.saturating_sub(captured);
    // Frameworks capture nothing to make a pool ready: without any work beside it, an empty graph is no mistake.
    report.findings.retain(|finding| finding.code != "W5" || finding.chain.len() > 1);
    let mut more = uses.updates(trace);
    more.extend(freed(trace, &report.graphs));
    more.extend(recaptured(trace, &report.graphs, &launches));
    if trace.stop == Some(Stop::Ended) {
        // A program that met an error in a capture has its reasons not to launch it.
        let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
        let met: FxHashSet<CallIndex> =
            errors.flat_map(|finding| finding.chain.iter().map(|span| span.call)).collect();
        let full = report.graphs.iter().filter(|graph| !graph.nodes.is_empty());
        let idle = full.filter(|graph| {
            graph.name.is_some_and(|name| uses.is_idle(name) && !met.contains(&graph.begun))
        });
        more.extend(idle.map(|graph| never_launched(trace, graph)));
    }
    report.findings.extend(more);
    report.findings.sort_by_key(|finding| finding.at.call);
    let begins = trace
        .script
        .calls
        .iter()
        .filter(|call| begins(call.function) && call.result.is_some_and(CuResult::is_success));
    let captures = begins.count();
    let ended = trace.script.calls.iter().filter(|call| {
        call.function == Function::StreamEndCapture && call.result.is_some_and(CuResult::is_success)
    });
    let failed = captures.saturating_sub(ended.count());
    Traced { report, captures, failed, launches, other_launches, skipped: skipped.get() }
}

fn begins(function: Function) -> bool {
    matches!(function, Function::StreamBeginCapture | Function::StreamBeginCaptureToGraph)
}

/// The remedy in PyTorch's words.
fn in_pytorch(code: &str) -> Option<&'static str> {
    Some(match code {
        "R12" | "R22" => {
            "in PyTorch, `.item()`, `.cpu()`, `.tolist()`, `print(tensor)`, `if tensor:`, `nonzero` and masks as indices wait like this: keep the value \
             on the device and read it after `graph.replay()`"
        }
        "R9d" => {
            "in PyTorch, `torch.cuda.current_stream().wait_stream(side)` at the end of the `with torch.cuda.graph(…)` block"
        }
        "R16b" => {
            "in PyTorch, `stream.wait_event(…)` or `stream.wait_stream(…)` before the `with torch.cuda.graph(…, stream=stream)` block"
        }
        "R20" => {
            "in PyTorch, `torch.cuda.graph(…, capture_error_mode=\"thread_local\")` lets other threads allocate, as data loaders do"
        }
        "R18" | "W1" => {
            "in PyTorch, `torch.cuda.Stream()` is nonblocking, and work belongs to the stream of the enclosing `with torch.cuda.stream(…)`"
        }
        "W3" => {
            "in PyTorch, `tensor.pin_memory()` of a tensor that lives as long as the graph, copied with `non_blocking=True`"
        }
        _ => return None,
    })
}

/// A disagreement is a fault of this program: what leads to it is what repairs it.
fn blame_the_model(trace: &Trace, finding: &mut Finding) {
    let at = finding.at.call;
    let calls = &trace.script.calls;
    let begun = (0..at.0).rev().find(|call| begins(calls[*call as usize].function)).unwrap_or(at.0);
    let from = begun.max(at.0.saturating_sub(STEPS));
    let steps: Vec<&Call> = (from..=at.0).map(|call| &calls[call as usize]).collect();
    let names = &trace.script.names;
    let mut lines: Vec<String> = Vec::new();
    let mut declare = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for call in &steps {
        if let Some(Stream::Created(stream)) = call.stream {
            let kind = match names.stream_kinds()[stream.index()] {
                StreamKind::Blocking => "blocking",
                StreamKind::NonBlocking => "nonblocking",
            };
            declare(format!("stream {} {kind}", names.stream_word(Stream::Created(stream))));
        }
        if let Some(event) = call.event {
            declare(format!("event {}", names.event_name(event)));
        }
        if call.thread != ThreadId(0) {
            declare(format!("thread {}", names.thread_name(call.thread)));
        }
    }
    // What kernels are called is no part of it, and may be no word of a script.
    lines.extend(
        steps.into_iter().map(|call| trace.script.words(&Call { work: None, ..call.clone() })),
    );
    finding.notes.push("the steps, as a script for `phonograph check`:".to_owned());
    finding.notes.extend(lines.iter().map(|line| format!("    {line}")));
    finding.help = vec![
        "the model is wrong here, or a call is missing from the trace: please report it, with these steps".to_owned(),
    ];
}

/// What becomes of graphs.
#[derive(Default)]
struct Uses {
    /// Launches of all graphs.
    all: u64,
    /// Launches by graph.
    launches: FxHashMap<GraphId, u64>,
    /// Graphs that something else was made of: a child node, a clone, an update.
    parts: FxHashSet<GraphId>,
    /// Updates that failed.
    failed: Vec<CallIndex>,
}

impl Uses {
    fn of(trace: &Trace) -> Self {
        let mut uses = Self::default();
        for (at, (call, site)) in
            (0..).map(CallIndex).zip(trace.script.calls.iter().zip(&trace.sites))
        {
            let success = CuResult(site.raw.result).is_success();
            match call.function {
                Function::GraphLaunch if success => {
                    uses.all = uses.all.saturating_add(site.repeated).saturating_add(1);
                    if let Some(graph) = call.graph {
                        let launches = uses.launches.entry(graph).or_default();
                        *launches = launches.saturating_add(site.repeated).saturating_add(1);
                    }
                }
                Function::GraphAddChildGraphNode => {
                    let inner = call.build.iter().flat_map(|build| &build.inner);
                    uses.parts.extend(inner);
                }
                Function::GraphExecUpdate => {
                    if let Some(graph) = call.graph {
                        uses.parts.insert(graph);
                    }
                    if !success {
                        uses.failed.push(at);
                    }
                }
                _ => {}
            }
        }
        uses
    }

    fn launches(&self, graph: GraphId) -> u64 {
        self.launches.get(&graph).copied().unwrap_or(0)
    }

    fn is_idle(&self, graph: GraphId) -> bool {
        self.launches(graph) == 0 && !self.parts.contains(&graph)
    }

    fn updates(&self, trace: &Trace) -> Vec<Finding> {
        let finding = |at: &CallIndex| {
            let reason = trace.sites[at.index()].raw.operands.get(Operand::Reason);
            let reason = reason.and_then(|code| REASONS.get(code as usize));
            let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
            let title = format!(
                "`{}` fails{why}",
                finding::words(&trace.script, &trace.script.calls[at.index()])
            );
            let help = "capture the same nodes in the same order every time, with only parameters that differ; `phonograph diff` of the two graphs \
                        says what is in the way"
                .to_owned();
            let label = "the program has to instantiate the new graph instead";
            Finding::warning(
                "W13",
                title,
                Span::new(&trace.script, *at, label),
                Vec::new(),
                vec![help],
            )
        };
        self.failed.iter().map(finding).collect()
    }
}

/// Launches of graphs with kernels that were given memory which is freed by then: the first launch of each graph.
fn freed(trace: &Trace, graphs: &[FinishedGraph]) -> Vec<Finding> {
    let given = |call: CallIndex| {
        let from = trace.given.partition_point(|(at, _)| *at < call.0);
        trace.given[from..]
            .iter()
            .take_while(move |(at, _)| *at == call.0)
            .map(|(_, memory)| *memory)
    };
    let mut users: FxHashMap<MemoryId, Vec<(GraphId, CallIndex)>> = FxHashMap::default();
    for graph in graphs {
        let Some(name) = graph.name else { continue };
        for node in &graph.nodes {
            for memory in given(node.call) {
                let users = users.entry(memory).or_default();
                if users.last().is_none_or(|(graph, _)| *graph != name) {
                    users.push((name, node.call));
                }
            }
        }
    }
    let script = &trace.script;
    // By graph: the memory that is gone, the node that is given it, and the free.
    let mut gone: FxHashMap<GraphId, (MemoryId, CallIndex, CallIndex)> = FxHashMap::default();
    let mut findings = Vec::new();
    for (at, call) in (0..).map(CallIndex).zip(&script.calls) {
        if !call.result.is_some_and(CuResult::is_success) {
            continue;
        }
        match (call.function, call.memory) {
            (Function::MemFree | Function::MemFreeAsync | Function::MemUnmap, Some(memory)) => {
                for (graph, node) in users.remove(&memory).into_iter().flatten() {
                    gone.entry(graph).or_insert((memory, node, at));
                }
            }
            (Function::GraphLaunch, _) => {
                let Some((memory, node, free)) = call.graph.and_then(|graph| gone.remove(&graph))
                else {
                    continue;
                };
                let name = format!("`{}`", script.names.memory_name(memory));
                let title = format!(
                    "`{}` launches a graph with a kernel that is given freed memory",
                    finding::words(script, call)
                );
                let chain = vec![
                    Span::new(script, node, format!("this kernel is given an address in {name}")),
                    Span::new(script, free, format!("{name} is freed here")),
                ];
                let label = "reads or writes memory that may be someone else's by now";
                let help = "keep it for as long as the graph is launched, or update the node with the new address".to_owned();
                findings.push(Finding::warning(
                    "W6",
                    title,
                    Span::new(script, at, label),
                    chain,
                    vec![help],
                ));
            }
            _ => {}
        }
    }
    findings
}

fn never_launched(trace: &Trace, graph: &FinishedGraph) -> Finding {
    let name = graph.name.map_or("?", |name| trace.script.names.graph_name(name));
    let nodes = graph.nodes.len();
    let nodes = format!("{nodes} node{}", if nodes == 1 { "" } else { "s" });
    let title = format!("`{name}`, with {nodes}, is captured and never launched");
    let help = "its work has not run: launch it, or leave the capture out".to_owned();
    Finding::warning(
        "W11",
        title,
        Span::new(&trace.script, graph.begun, "captured from here"),
        Vec::new(),
        vec![help],
    )
}

/// Places that capture again and again.
fn recaptured(trace: &Trace, graphs: &[FinishedGraph], launches: &[u64]) -> Vec<Finding> {
    let place = |site: &Site| (site.raw.python, site.raw.native);
    let mut places: BTreeMap<_, Vec<(CallIndex, u64)>> = BTreeMap::new();
    for (graph, launched) in graphs.iter().zip(launches) {
        let key = place(&trace.sites[graph.begun.index()]);
        if key != (None, None) {
            places.entry(key).or_default().push((graph.begun, *launched));
        }
    }
    let often = places.into_values().filter(|captures| {
        captures.len() >= RECAPTURES && captures.iter().all(|(_, launched)| *launched < LAUNCHES)
    });
    let finding = |captures: Vec<(CallIndex, u64)>| {
        let most = captures.iter().map(|(_, launched)| *launched).max().unwrap_or(0);
        let title = format!(
            "{} captures begin at this place, and no graph of them is launched more than {}",
            captures.len(),
            if most == 1 { "once".to_owned() } else { format!("{most} times") }
        );
        let help = "capture once and replay: keep what changes in memory that the graph reads, or update the instance that is there".to_owned();
        let label = "the first of them";
        Finding::warning(
            "W12",
            title,
            Span::new(&trace.script, captures[0].0, label),
            Vec::new(),
            vec![help],
        )
    };
    often.map(finding).collect()
}
