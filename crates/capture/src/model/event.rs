//! Events: R13–R17, R22 and R29.

use phonograph_trace::{Call, CuResult, EventId, Flags};

use super::class::NodeKind;
use super::refusal::{Cause, Role};
use super::slab::Slot;
use super::state::{CallIndex, Fork, Record, StreamKey};
use super::{Effect, Model, ModelError, Outcome, Refusal, Rule, Target};

impl Model {
    pub(super) fn record(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let event = self.event_of(call)?;
        let target = self.target(call)?;
        if self.events[event.index()].destroyed {
            return Ok(self.dead_handle(at));
        }
        Ok(match target {
            Target::Destroyed => self.dead_handle(at),
            Target::Legacy => {
                self.after_legacy(at, |model| model.record_uncaptured(at, call, event))
            }
            Target::Idle(_) => self.record_uncaptured(at, call, event),
            Target::Capturing(key, capture) => {
                if let Some(refused) = self.gate(at, capture) {
                    return Ok(refused);
                }
                if call.flags.external {
                    // R17b: a node; neither looks at nor changes the event's state.
                    return Ok(Outcome::with(
                        Rule::R17b,
                        self.add_node(at, key, capture, NodeKind::EventRecord, Flags::NONE),
                    ));
                }
                // R15: captured(capture, copy of the set), whatever the event was before.
                let set = self.membership_mut(key).set.clone();
                self.captures.retain(capture);
                self.set_record(event, Record::Captured { capture, set, call: at, on: key });
                Outcome::with(Rule::R15, Effect::Recorded)
            }
        })
    }

    /// R14: a record on a stream that is not capturing, or on legacy when R18 lets it through: plain.
    fn record_uncaptured(&mut self, at: CallIndex, call: &Call, event: EventId) -> Outcome {
        if call.flags.external {
            return self.not_capturing(at);
        }
        self.set_record(event, Record::Plain { call: at });
        Outcome::with(Rule::R14, Effect::Recorded)
    }

    /// Replaces the record of an event and lets go of the capture that the old one pointed at.
    fn set_record(&mut self, event: EventId, record: Record) {
        let old = std::mem::replace(&mut self.events[event.index()].record, record);
        if let Record::Captured { capture, .. } = old {
            self.captures.release(capture);
        }
    }

    pub(super) fn wait(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let event = self.event_of(call)?;
        let target = self.target(call)?;
        if self.events[event.index()].destroyed {
            return Ok(self.dead_handle(at));
        }
        match target {
            Target::Destroyed => return Ok(self.dead_handle(at)),
            Target::Legacy => {
                let gate = self.legacy_work(at);
                if !gate.result.is_success() {
                    return Ok(gate);
                }
            }
            Target::Capturing(_, capture) => {
                if let Some(refused) = self.gate(at, capture) {
                    return Ok(refused);
                }
            }
            Target::Idle(_) => {}
        }
        // R13: a dead event: INVALID_VALUE, invalidates the waiter's capture if there is one. For wait_ext, before R17a.
        if let Some(causes) = self.dead_record(event) {
            let mut refusal = Refusal::new(at, CuResult::INVALID_VALUE, Rule::R13);
            refusal.causes = causes;
            if let Target::Capturing(_, capture) = target {
                self.invalidate(capture, &mut refusal);
            }
            return Ok(refusal.outcome());
        }
        if call.flags.external {
            return Ok(match target {
                // R17b: a node; it does not join.
                Target::Capturing(key, capture) => Outcome::with(
                    Rule::R17b,
                    self.add_node(at, key, capture, NodeKind::WaitEvent, Flags::NONE),
                ),
                _ => self.not_capturing(at),
            });
        }
        let Some(capture) = self.live_record(event) else {
            return Ok(self.wait_uncaptured(at, event, target));
        };
        Ok(self.wait_captured(at, event, capture, target))
    }

    /// R16a, R16b: the event is fresh or plain.
    fn wait_uncaptured(&mut self, at: CallIndex, event: EventId, target: Target) -> Outcome {
        match (&self.events[event.index()].record, target) {
            (&Record::Plain { call }, Target::Capturing(key, capture)) => {
                // R16b: plain event, capturing stream: ISOLATION, invalidates.
                let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_ISOLATION, Rule::R16b);
                let role = Role::Recorded { event, stream: key.operand(), captured: false };
                refusal.causes.push(Cause { call, role });
                self.invalidate(capture, &mut refusal);
                refusal.outcome()
            }
            // R16a: fresh event; or plain event and stream not capturing: SUCCESS, no effect.
            _ => Outcome::success(Rule::R16a),
        }
    }

    /// R16c–R16f: the event is live in `capture`.
    fn wait_captured(
        &mut self,
        at: CallIndex,
        event: EventId,
        capture: Slot,
        target: Target,
    ) -> Outcome {
        let Record::Captured { set, call: record, on, .. } = &self.events[event.index()].record
        else {
            unreachable!("a live record is a captured one")
        };
        let (set, record, on) = (set.clone(), *record, *on);
        let recorded = recorded(event, record, on);
        match target {
            // R16c: legacy stream: IMPLICIT, invalidates the event's capture.
            Target::Legacy | Target::Destroyed => {
                let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_IMPLICIT, Rule::R16c);
                refusal.causes.push(recorded);
                self.invalidate(capture, &mut refusal);
                refusal.outcome()
            }
            // R16d: stream not capturing: it joins, its set is the event's.
            Target::Idle(key) => {
                self.join(key, capture, set, Some(Fork { wait: at, event, record, from: on }));
                Outcome::with(Rule::R16d, Effect::Joined)
            }
            // R16e: same capture: the set becomes the union.
            Target::Capturing(key, own) if own == capture => {
                self.membership_mut(key).set.union(&set);
                Outcome::with(Rule::R16e, Effect::Dependencies)
            }
            // R16f: other valid capture: MERGE, invalidates both.
            Target::Capturing(_, own) => {
                let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_MERGE, Rule::R16f);
                refusal.causes.push(recorded);
                self.invalidate(own, &mut refusal);
                self.invalidate(capture, &mut refusal);
                refusal.outcome()
            }
        }
    }

    /// R17a: an external record or wait on a stream that is not capturing: ILLEGAL_STATE, event untouched. The legacy stream never is.
    fn not_capturing(&self, at: CallIndex) -> Outcome {
        self.refuse(at, CuResult::ILLEGAL_STATE, Rule::R17a, |_| {})
    }

    /// What killed an event that was recorded in a capture which is closed or invalid by now (R13).
    fn dead_record(&self, event: EventId) -> Option<Vec<Cause>> {
        let Record::Captured { capture, call, on, .. } = &self.events[event.index()].record else {
            return None;
        };
        let capture = &self.captures[*capture];
        if capture.live() {
            return None;
        }
        let recorded = recorded(event, *call, *on);
        let closed = capture.closed.map(|call| Cause { call, role: Role::Closed });
        Some(
            [recorded]
                .into_iter()
                .chain(capture.broken.map(super::Broken::cause))
                .chain(closed)
                .collect(),
        )
    }

    pub(super) fn waits_on_event(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        let event = self.event_of(call)?;
        if self.events[event.index()].destroyed {
            return Ok(self.dead_handle(at));
        }
        // R13: a dead event: INVALID_VALUE, nothing invalidated, before R20.
        if let Some(causes) = self.dead_record(event) {
            return Ok(self.refuse(at, CuResult::INVALID_VALUE, Rule::R13, |refusal| {
                refusal.causes = causes
            }));
        }
        // R22: a live captured event: CAPTURED_EVENT, invalidates its capture only, in every mode, before R20.
        if let &Record::Captured { capture, call: record, on, .. } =
            &self.events[event.index()].record
        {
            let mut refusal = Refusal::new(at, CuResult::CAPTURED_EVENT, Rule::R22);
            refusal.causes.push(recorded(event, record, on));
            self.invalidate(capture, &mut refusal);
            return Ok(refusal.outcome());
        }
        Ok(self.unsafe_call(at, call.thread, Rule::R21))
    }

    /// Seen on an H200 (driver 580): beside R22, but the capture stays valid. A call that does not say which event asks nothing here.
    pub(super) fn times_event(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        if call.event.is_none() {
            return Ok(Outcome::success(Rule::Harmless));
        }
        let event = self.event_of(call)?;
        if self.events[event.index()].destroyed {
            return Ok(self.dead_handle(at));
        }
        // R13 for a dead one, which breaks nothing here either.
        if let Some(causes) = self.dead_record(event) {
            return Ok(self.refuse(at, CuResult::INVALID_VALUE, Rule::R13, |r| r.causes = causes));
        }
        let live = self.live_record(event);
        Ok(match &self.events[event.index()].record {
            Record::Captured { call: record, on, .. } if live.is_some() => {
                let cause = recorded(event, *record, *on);
                self.refuse(at, CuResult::CAPTURED_EVENT, Rule::ElapsedCaptured, |refusal| {
                    refusal.causes.push(cause)
                })
            }
            _ => Outcome::success(Rule::Harmless),
        })
    }

    pub(super) fn create_event(&mut self, call: &Call) -> Result<Outcome, ModelError> {
        let Some(event) = call.event else {
            return Ok(Outcome::success(Rule::Harmless));
        };
        let state = self.events.get_mut(event.index()).ok_or(ModelError::UnknownEvent(event))?;
        state.destroyed = false;
        Ok(Outcome::success(Rule::Harmless))
    }

    /// R29: always SUCCESS, captures unaffected.
    pub(super) fn destroy_event(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        let event = self.event_of(call)?;
        if self.events[event.index()].destroyed {
            return Ok(self.dead_handle(at));
        }
        self.set_record(event, Record::Fresh);
        self.events[event.index()].destroyed = true;
        Ok(Outcome::success(Rule::R29))
    }
}

/// The record of an event in a capture, as a cause.
fn recorded(event: EventId, call: CallIndex, on: StreamKey) -> Cause {
    Cause { call, role: Role::Recorded { event, stream: on.operand(), captured: true } }
}
