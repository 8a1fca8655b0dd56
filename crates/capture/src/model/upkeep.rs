//! Dependency updates, thread modes, and streams that come and go: R26–R28.

use phonograph_trace::{Call, CuResult, Mode, Stream};

use super::capture::Ending;
use super::state::CallIndex;
use super::{Effect, Model, ModelError, Outcome, Rule, Target, missing};
use crate::deps::DependencySet;

impl Model {
    pub(super) fn update_dependencies(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        let from = call.from.ok_or(missing(call, "the stream whose dependency set it takes"))?;
        let from = self.look_up(from, call.thread)?;
        let (key, capture) = match self.target(call)? {
            Target::Destroyed => return Ok(self.dead_handle(at)),
            // R26a: S not capturing: ILLEGAL_STATE. The legacy stream never is, after R18.
            Target::Legacy => return Ok(self.after_legacy(at, |model| model.nothing_to_update(at))),
            Target::Idle(_) => return Ok(self.nothing_to_update(at)),
            Target::Capturing(key, capture) => (key, capture),
        };
        if let Some(refused) = self.gate(at, capture) {
            return Ok(refused);
        }
        let taken = match from {
            Target::Capturing(other, its) if self.captures[its].live() => {
                let set = self.membership_mut(other).set.clone();
                // Named case 2: a stream in another capture: INVALID_VALUE, nothing changes, the capture stays valid. The driver sees
                // the nodes alone: an empty set is like any other (seen on an H200, driver 580).
                if its != capture && !set.is_empty() {
                    let causes =
                        [self.captures[capture].begin_cause(), self.captures[its].begin_cause()];
                    return Ok(self.refuse(at, CuResult::INVALID_VALUE, Rule::R26x, |r| {
                        r.causes.extend(causes)
                    }));
                }
                set
            }
            // R26b: T not capturing or its capture invalid: the empty set.
            _ => DependencySet::new(),
        };
        if call.flags.add {
            // R26c: union.
            self.membership_mut(key).set.union(&taken);
            return Ok(Outcome::with(Rule::R26c, Effect::Dependencies));
        }
        // R26b: set to T's set. R8: S's whole old set is off the loose list, even nodes that the new set still holds.
        let old = std::mem::replace(&mut self.membership_mut(key).set, taken);
        self.strike_off(capture, &old);
        Ok(Outcome::with(Rule::R26b, Effect::Dependencies))
    }

    fn nothing_to_update(&self, at: CallIndex) -> Outcome {
        self.refuse(at, CuResult::ILLEGAL_STATE, Rule::R26a, |_| {})
    }

    /// R27: sets the thread's mode, returns the former; allowed at any time.
    pub(super) fn exchange_mode(&mut self, call: &Call) -> Result<Outcome, ModelError> {
        let mode = call.mode.ok_or(missing(call, "a mode"))?;
        let previous = match mode {
            Mode::Global => self.modes.remove(&call.thread),
            other => self.modes.insert(call.thread, other),
        };
        Ok(Outcome::with(Rule::R27, Effect::PreviousMode(previous.unwrap_or(Mode::Global))))
    }

    pub(super) fn create_stream(&mut self, call: &Call) -> Result<Outcome, ModelError> {
        // A script declares its streams; creating one by name brings it back after it was destroyed, in no capture.
        if let Some(Stream::Created(id)) = call.stream {
            self.streams.get_mut(id.index()).ok_or(ModelError::UnknownStream(id))?.destroyed =
                false;
        }
        Ok(Outcome::success(Rule::Harmless))
    }

    pub(super) fn destroy_stream(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        let target = self.target(call)?;
        let Some(Stream::Created(id)) = call.stream else {
            return Ok(self.dead_handle(at));
        };
        let outcome = match target {
            Target::Destroyed | Target::Legacy => return Ok(self.dead_handle(at)),
            Target::Idle(_) => Outcome::success(Rule::R28),
            // R28a: an origin: closes the capture unsuccessfully (R7, R5).
            Target::Capturing(key, capture) if self.captures[capture].origin == key => {
                self.close(at, capture, Ending::Unsuccessful);
                Outcome::with(Rule::R28a, Effect::Closed)
            }
            // R28b: other: leaves; its nodes stay, loose ones stay loose.
            Target::Capturing(key, _) => {
                self.leave(key);
                Outcome::success(Rule::R28b)
            }
        };
        self.streams[id.index()].destroyed = true;
        Ok(outcome)
    }
}
