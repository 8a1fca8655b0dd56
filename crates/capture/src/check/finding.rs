//! What a check has to say.

use phonograph_trace::{Call, Place, Script};
use serde::Serialize;

use crate::model::{CallIndex, FinishedGraph};

/// Everything that a check found, in the order of the script.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The findings, by call.
    pub findings: Vec<Finding>,
    /// The graphs that captures ended with.
    pub graphs: Vec<FinishedGraph>,
    /// The graphs that the script added to by hand, as they are at its end; those that it destroyed are not there.
    pub built: Vec<FinishedGraph>,
}

impl Report {
    /// How many findings are errors.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }

    /// How many findings are warnings.
    pub fn warnings(&self) -> usize {
        self.findings.len() - self.errors()
    }
}

/// Whether the driver refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The driver refuses the call.
    Error,
    /// The driver accepts it, and the result is probably not what was meant.
    Warning,
}

/// One fault, with what led to it and what follows from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Whether the driver refuses.
    pub severity: Severity,
    /// The number of the rule, or of the warning.
    pub code: &'static str,
    /// What happens, in one sentence.
    pub title: String,
    /// The call at fault.
    pub at: Span,
    /// The earlier calls that led to it, in order.
    pub chain: Vec<Span>,
    /// The rule in words, and what else was broken.
    pub notes: Vec<String>,
    /// What to do.
    pub help: Vec<String>,
    /// Later calls that fail only because of this one.
    pub consequences: Vec<Span>,
}

impl Finding {
    pub(super) fn warning(
        code: &'static str,
        title: String,
        at: Span,
        mut chain: Vec<Span>,
        help: Vec<String>,
    ) -> Self {
        chain.sort_by_key(|span| span.call);
        chain.dedup();
        Self {
            severity: Severity::Warning,
            code,
            title,
            at,
            chain,
            notes: Vec::new(),
            help,
            consequences: Vec::new(),
        }
    }
}

/// A call, and what it has to do with a finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Span {
    /// The call's position in the script, from 0.
    pub call: CallIndex,
    /// The call in words.
    pub words: String,
    /// Where it stands.
    pub place: Option<Place>,
    /// Its part.
    pub label: String,
}

impl Span {
    pub(super) fn new(script: &Script, call: CallIndex, label: impl Into<String>) -> Self {
        let source = &script.calls[call.index()];
        Self { call, words: words(script, source), place: source.place, label: label.into() }
    }

    /// Where the call stands, in words.
    pub(super) fn whereabouts(&self) -> String {
        match self.place {
            Some(place) => format!("line {}", place.line),
            None => self.call.to_string(),
        }
    }
}

/// A call in words, without what was observed: findings say that themselves.
pub(super) fn words(script: &Script, call: &Call) -> String {
    script.words(&Call { result: None, ..call.clone() })
}
