//! The legacy stream, potentially unsafe calls and waits of the host: R18–R21 and R23.

use phonograph_trace::{Call, CuResult, Mode, ThreadId};

use super::slab::Slot;
use super::state::{CallIndex, Capture};
use super::{Model, ModelError, Outcome, Refusal, Rule, Target};

impl Model {
    /// R18: if a blocking stream takes part in an open capture, valid or not: IMPLICIT, invalidates every such capture and no
    /// other. R19: else legacy work succeeds, is not captured, and is not unsafe.
    pub(super) fn legacy_work(&mut self, at: CallIndex) -> Outcome {
        let mixed = |capture: &Capture| capture.blocking > 0;
        self.break_open(at, CuResult::STREAM_CAPTURE_IMPLICIT, Rule::R18, mixed)
            .unwrap_or(Outcome::success(Rule::R19))
    }

    /// R20: barred by every open, not relaxed capture, valid or not, that this thread began, or that any thread began as global
    /// while this one's mode is global. R21 (`allowed`): else no effect on captures.
    pub(super) fn unsafe_call(
        &mut self,
        at: CallIndex,
        thread: ThreadId,
        allowed: Rule,
    ) -> Outcome {
        let mode = self.mode(thread);
        let bars = |capture: &Capture| {
            mode != Mode::Relaxed
                && capture.mode != Mode::Relaxed
                && (capture.thread == thread
                    || (capture.mode == Mode::Global && mode == Mode::Global))
        };
        self.break_open(at, CuResult::STREAM_CAPTURE_UNSUPPORTED, Rule::R20, bars)
            .unwrap_or(Outcome::success(allowed))
    }

    /// R23: with any open capture, even invalid, of any thread and mode: UNSUPPORTED, invalidates all.
    pub(super) fn waits_on_context(&mut self, at: CallIndex) -> Outcome {
        let outcome = self.break_open(at, CuResult::STREAM_CAPTURE_UNSUPPORTED, Rule::R23, |_| {
            true
        });
        outcome.unwrap_or(Outcome::success(Rule::R21))
    }

    pub(super) fn waits_on_stream(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        Ok(match self.target(call)? {
            Target::Destroyed => self.dead_handle(at),
            // R12 comes before R20.
            Target::Capturing(key, capture) => self.uncapturable_on(at, key, capture),
            Target::Idle(_) => self.unsafe_call(at, call.thread, Rule::R21),
            // R19: after R18, a wait for legacy goes on to R20.
            Target::Legacy => {
                let gate = self.legacy_work(at);
                if gate.result.is_success() {
                    self.unsafe_call(at, call.thread, Rule::R21)
                } else {
                    gate
                }
            }
        })
    }

    /// Of the legacy stream: IMPLICIT under R18's condition, invalidates nothing.
    pub(super) fn asks_for_capture(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        Ok(match self.target(call)? {
            Target::Destroyed => self.dead_handle(at),
            Target::Legacy
                if self
                    .open
                    .iter()
                    .any(|slot| self.captures[*slot].blocking > 0) =>
            {
                let mixed = self
                    .open
                    .iter()
                    .map(|slot| &self.captures[*slot])
                    .filter(|capture| capture.blocking > 0);
                self.refuse(
                    at,
                    CuResult::STREAM_CAPTURE_IMPLICIT,
                    Rule::IsCapturing,
                    |refusal| {
                        refusal.causes.extend(mixed.map(Capture::begin_cause));
                    },
                )
            }
            _ => Outcome::success(Rule::Harmless),
        })
    }

    /// Refuses the call and breaks every open capture that `bars` it; none if there is no such capture.
    fn break_open(
        &mut self,
        at: CallIndex,
        result: CuResult,
        rule: Rule,
        bars: impl Fn(&Capture) -> bool,
    ) -> Option<Outcome> {
        let barring: Vec<Slot> = self
            .open
            .iter()
            .copied()
            .filter(|slot| bars(&self.captures[*slot]))
            .collect();
        if barring.is_empty() {
            return None;
        }
        let mut refusal = Refusal::new(at, result, rule);
        for slot in barring {
            self.invalidate(slot, &mut refusal);
        }
        refusal.invalidated.sort_by_key(|victim| victim.begun);
        Some(refusal.outcome())
    }
}
