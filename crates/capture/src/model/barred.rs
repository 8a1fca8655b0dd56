//! The legacy stream, potentially unsafe calls and waits of the host: R18–R21 and R23.

use phonograph_trace::{Call, CuResult, Mode, Stream, StreamKind, ThreadId};

use super::slab::Slot;
use super::state::{CallIndex, Capture, StreamKey};
use super::{Model, ModelError, Outcome, Refusal, Rule, Target};

impl Model {
    /// R18: if a blocking stream takes part in an open capture, valid or not: IMPLICIT, invalidates every such capture and no
    /// other. R19: else legacy work succeeds, is not captured, and is not unsafe.
    pub(super) fn legacy_work(&mut self, at: CallIndex) -> Outcome {
        let mixed = |capture: &Capture| capture.blocking > 0;
        self.break_open(at, CuResult::STREAM_CAPTURE_IMPLICIT, Rule::R18, mixed)
            .unwrap_or(Outcome::success(Rule::R19))
    }

    /// R18 for a call that names the legacy stream, and what comes of it if that lets it through.
    pub(super) fn after_legacy(
        &mut self,
        at: CallIndex,
        then: impl FnOnce(&mut Self) -> Outcome,
    ) -> Outcome {
        let gate = self.legacy_work(at);
        if gate.result.is_success() { then(self) } else { gate }
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
        let outcome =
            self.break_open(at, CuResult::STREAM_CAPTURE_UNSUPPORTED, Rule::R23, |_| true);
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
                self.after_legacy(at, |model| model.unsafe_call(at, call.thread, Rule::R21))
            }
        })
    }

    /// R18 holds for whatever names the legacy stream, even where it asks for no work.
    pub(super) fn of_stream(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        Ok(match self.target(call)? {
            Target::Destroyed => self.dead_handle(at),
            Target::Legacy => self.after_legacy(at, |_| Outcome::success(Rule::Harmless)),
            // Attributes that are copied from the legacy stream.
            _ if call.from == Some(Stream::Legacy) => {
                self.after_legacy(at, |_| Outcome::success(Rule::Harmless))
            }
            Target::Capturing(..) | Target::Idle(_) => Outcome::success(Rule::Harmless),
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
            Target::Legacy => {
                let mut open = self.open.iter();
                let Some(mixed) = open.find(|slot| self.captures[**slot].blocking > 0) else {
                    return Ok(Outcome::success(Rule::Harmless));
                };
                let mut refusal =
                    Refusal::new(at, CuResult::STREAM_CAPTURE_IMPLICIT, Rule::IsCapturing);
                refusal.causes.push(self.captures[*mixed].begin_cause());
                refusal.blocking = self.blocking_stream(*mixed);
                refusal.outcome()
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
        let barring: Vec<Slot> =
            self.open.iter().copied().filter(|slot| bars(&self.captures[*slot])).collect();
        if barring.is_empty() {
            return None;
        }
        let mut refusal = Refusal::new(at, result, rule);
        for slot in &barring {
            // One that was broken before is named only if no other is, or a thousand of them would be named at every call.
            if self.captures[*slot].broken.is_none() {
                refusal.blocking = refusal.blocking.or_else(|| self.blocking_stream(*slot));
                self.invalidate(*slot, &mut refusal);
            }
        }
        if refusal.causes.is_empty() {
            let first = barring.iter().min_by_key(|slot| self.captures[**slot].begun);
            let capture = first.map(|slot| &self.captures[*slot]);
            refusal.causes.extend(capture.map(Capture::begin_cause));
            let origin = capture.map(|capture| capture.origin);
            refusal.blocking = origin.filter(|key| self.is_blocking(*key)).map(StreamKey::operand);
        }
        Some(refusal.outcome())
    }

    fn is_blocking(&self, key: StreamKey) -> bool {
        self.stream(key).kind == StreamKind::Blocking
    }

    fn blocking_stream(&self, capture: Slot) -> Option<Stream> {
        let mut streams = self.captures[capture].streams.iter();
        streams.find(|key| self.is_blocking(**key)).map(|key| key.operand())
    }
}
