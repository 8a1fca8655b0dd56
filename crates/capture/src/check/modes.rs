//! The weakest change of mode that lets a capture live with every potentially unsafe call beside it (R20).
//!
//! In: the refusals, as they come. Out: for a call of another thread, which `thread_local` would let through, a word about the calls of
//! the capturing thread itself, which it would not. Costs the captures that bar each call.

use phonograph_trace::{Call, Script};
use rustc_hash::FxHashMap;

use super::finding::{Finding, Span};
use crate::model::{CallIndex, Refusal, Role, Rule};

#[derive(Default)]
pub(super) struct Modes {
    /// By the begin of a capture: its first barred call of the thread that began it.
    own: FxHashMap<CallIndex, CallIndex>,
    /// Findings about calls of other threads, with a global capture that bars each.
    others: Vec<(usize, CallIndex)>,
}

impl Modes {
    /// Takes note of a refusal that becomes this finding.
    pub fn note(&mut self, call: &Call, refusal: &Refusal, finding: usize) {
        if refusal.rule != Rule::R20 {
            return;
        }
        let begun = refusal.causes.iter().filter_map(|cause| match cause.role {
            Role::Begun { thread, .. } => Some((cause.call, thread)),
            _ => None,
        });
        let (own, others): (Vec<_>, Vec<_>) = begun.partition(|(_, thread)| *thread == call.thread);
        for (begun, _) in &own {
            self.own.entry(*begun).or_insert(refusal.call);
        }
        // A call of the capturing thread needs relaxed mode, and its finding says so.
        if own.is_empty() {
            self.others.extend(others.iter().map(|(begun, _)| (finding, *begun)));
        }
    }

    /// Adds what `thread_local` would not be enough for.
    pub fn tell(self, script: &Script, findings: &mut [Finding]) {
        for (finding, begun) in self.others {
            let Some(own) = self.own.get(&begun) else { continue };
            let own = Span::new(script, *own, "");
            let help = format!(
                "thread_local is not enough here: `{}` at {} is the capturing thread's own call; relaxed allows both",
                own.words,
                own.whereabouts()
            );
            if !findings[finding].help.contains(&help) {
                findings[finding].help.push(help);
            }
        }
    }
}
