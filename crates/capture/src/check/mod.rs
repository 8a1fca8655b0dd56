//! Will this program's captures work, and if not, why? A script through the model, and what there is to say about it.
//!
//! In: a [`Script`]. Out: a [`Report`]: one [`Finding`] for each fault, with the calls that led to it, what follows from it and what
//! to do, and one for each thing that the driver accepts silently and people regret. Linear in the script, apart from the findings.
//!
//! ```
//! use phonograph_capture::check::{Source, check};
//! use phonograph_trace::Script;
//!
//! let text = "stream main nonblocking\nbegin main global\nkernel main\nsync main\nend main\n";
//! let report = check(&Script::parse(text)?)?;
//! assert_eq!(report.errors(), 1);
//! let source = Source { name: "script.txt", text };
//! assert!(report.render(Some(source), false).contains(" --> script.txt:4:1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod explain;
mod finding;
mod lint;
mod modes;
mod render;
mod traced;
mod unjoined;

use phonograph_trace::{Call, CuResult, Function, GraphId, Script, Stream, ThreadId};
use rustc_hash::FxHashMap;

use crate::model::{
    CallIndex, Class, Effect, FinishedGraph, Model, ModelError, Outcome, Refusal, Rule, class,
};
use explain::explain;
use lint::Lint;
use modes::Modes;

pub use finding::{Finding, Report, Severity, Span};
pub use render::Source;
pub use traced::{Traced, check_trace};

/// A call that the model cannot interpret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}`{words}`: {error}", .line.map_or(String::new(), |line| format!("line {line}: ")))]
pub struct CheckError {
    /// The call.
    pub call: CallIndex,
    /// The call in words.
    pub words: String,
    /// The line it stands on.
    pub line: Option<u32>,
    /// What is wrong with it.
    pub error: ModelError,
}

/// Runs a script through the model.
///
/// # Errors
/// [`CheckError`] for the first call that lacks an operand which its function needs.
pub fn check(script: &Script) -> Result<Report, CheckError> {
    run(script, Err)
}

/// Runs a script through the model; `or` says what comes of a call that the model cannot interpret: if it returns, the call counts as
/// one that captures do not notice.
fn run(
    script: &Script,
    or: impl Fn(CheckError) -> Result<(), CheckError>,
) -> Result<Report, CheckError> {
    let mut model = Model::new(script.names.stream_kinds(), script.names.event_count());
    let mut lint = Lint::new(script);
    let mut refusals = Refusals::default();
    let mut graphs: Vec<FinishedGraph> = Vec::new();
    for call in &script.calls {
        let at = CallIndex(model.calls());
        let begun = call.stream.and_then(|stream| model.capture_of(stream, call.thread));
        let outcome = match model.apply(call) {
            Ok(outcome) => outcome,
            Err(error) => {
                or(CheckError {
                    call: at,
                    words: script.words(call),
                    line: call.place.map(|place| place.line),
                    error,
                })?;
                // Positions of calls go on.
                if model.apply(&Call::new(Function::CtxGetCurrent)).is_ok() {
                    continue;
                }
                break;
            }
        };
        lint.observe(at, call, begun, &outcome);
        let body = match &outcome.effect {
            Effect::Ended(graph) => graph.name.filter(|_| graph.body).map(|body| (body, None)),
            Effect::Added(node) => call.graph.map(|body| (body, Some(*node))),
            _ => None,
        };
        if let Some(path) = body.and_then(|(body, node)| model.body_fault(body, node)) {
            lint.body(&path);
        }
        refusals.observe(script, &mut model, at, &outcome);
        if let Effect::Ended(graph) = outcome.effect {
            graphs.push(*graph);
        }
    }
    let Refusals { mut findings, modes, .. } = refusals;
    modes.tell(script, &mut findings);
    let names = (0..script.names.graph_count() as u32).map(GraphId);
    let built = names.filter(|name| model.is_built(*name)).filter_map(|name| model.graph(name));
    let built = built.collect();
    let open = model.open_captures().map(|(victim, _)| victim);
    findings.extend(lint.finish(open));
    findings.sort_by_key(|finding| finding.at.call);
    Ok(Report { findings, graphs, built })
}

/// What the model refused, and what else came of it.
#[derive(Default)]
struct Refusals {
    findings: Vec<Finding>,
    /// The findings of calls that broke something.
    faults: FxHashMap<CallIndex, usize>,
    /// Streams whose last begin was refused, with the finding that says so: the end that belongs to it is refused too.
    unbegun: FxHashMap<(Stream, ThreadId), usize>,
    modes: Modes,
}

impl Refusals {
    fn observe(&mut self, script: &Script, model: &mut Model, at: CallIndex, outcome: &Outcome) {
        let call = &script.calls[at.index()];
        let refusal = outcome.refusal.as_ref();
        let accepted = call.result.is_some_and(|observed| observed.is_success());
        if let Some(refusal) = refusal.filter(|_| !accepted) {
            self.refused(script, at, refusal);
        }
        if let (Effect::Began, Some(stream)) = (&outcome.effect, own_stream(call)) {
            self.unbegun.remove(&stream);
        }
        // What the model holds against a capture because of a call that the driver let pass is no news.
        let known = refusal.filter(|_| accepted);
        let known = known.and_then(|refusal| self.faults.get(&refusal.consequence_of?.call));
        if let Some(fault) = known {
            let label = "succeeded all the same";
            self.findings[*fault].consequences.push(Span::new(script, at, label));
        } else if let Some(finding) = disagreement(script, model, at, outcome) {
            self.faults.insert(at, self.findings.len());
            self.findings.push(finding);
        }
    }

    /// A refusal is a finding of its own, or follows from one.
    fn refused(&mut self, script: &Script, at: CallIndex, refusal: &Refusal) {
        let call = &script.calls[at.index()];
        let broken = refusal.consequence_of.and_then(|broken| self.faults.get(&broken.call));
        let root = broken.copied().or_else(|| match (refusal.rule, own_stream(call)) {
            (Rule::R9a, Some(stream)) => self.unbegun.remove(&stream),
            _ => None,
        });
        if let Some(fault) = root {
            let label = format!("answers {} ({})", refusal.result, refusal.result.0);
            self.findings[fault].consequences.push(Span::new(script, at, label));
            return;
        }
        let fault = self.findings.len();
        if let (true, Some(stream)) = (begins(call), own_stream(call)) {
            self.unbegun.insert(stream, fault);
        }
        self.faults.insert(at, fault);
        self.modes.note(call, refusal, fault);
        self.findings.push(explain(script, refusal));
    }
}

/// The stream of a call, told apart by thread where each has its own.
fn own_stream(call: &Call) -> Option<(Stream, ThreadId)> {
    let stream = call.stream?;
    Some((stream, if stream == Stream::PerThread { call.thread } else { ThreadId(0) }))
}

fn begins(call: &Call) -> bool {
    matches!(class(call.function).0, Class::BeginCapture | Class::BeginCaptureToGraph)
}

/// A result that was observed and is not what the model answers. If the driver says that the capture was broken before, the model
/// takes that over, and what follows is a consequence of it.
fn disagreement(
    script: &Script,
    model: &mut Model,
    at: CallIndex,
    outcome: &Outcome,
) -> Option<Finding> {
    let call = &script.calls[at.index()];
    let observed = call
        .result
        .filter(|observed| *observed != outcome.result && *observed != CuResult::NOT_READY)?;
    let words = script.words(&Call { result: None, ..call.clone() });
    let broken = observed == CuResult::STREAM_CAPTURE_INVALIDATED && outcome.result.is_success();
    let begun =
        call.stream.filter(|_| broken).and_then(|stream| model.break_unseen(stream, call.thread));
    let (severity, title, help) = match begun {
        Some(_) => (
            Severity::Error,
            format!(
                "`{words}` answered {observed} ({}): the capture was broken by a call that is not in this trace",
                observed.0
            ),
            "look for a call between these two that is made by a library or another thread: a potentially unsafe one, or one on the legacy stream",
        ),
        None => (
            Severity::Warning,
            format!("`{words}` answered {observed}, and the rules say {}", outcome.result),
            "a call may be missing from the trace, or the driver may follow other rules than the recorded one",
        ),
    };
    Some(Finding {
        severity,
        code: if begun.is_some() { Rule::Unseen.number() } else { "X1" },
        title,
        at: Span::new(script, at, "observed here"),
        chain: begun
            .into_iter()
            .map(|begun| Span::new(script, begun, "the capture begins here"))
            .collect(),
        notes: Vec::new(),
        help: vec![help.to_owned()],
        consequences: Vec::new(),
    })
}
