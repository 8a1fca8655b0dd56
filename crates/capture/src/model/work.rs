//! Calls on a stream: R6, R8, R10–R12.

use phonograph_trace::{Call, CuResult, Flags, Function};

use super::class::{Class, NodeKind, class};
use super::slab::Slot;
use super::state::{CallIndex, CapturedId, CapturedNode, StreamKey};
use super::{Effect, Model, ModelError, Outcome, Refusal, Rule, Target};
use crate::deps::DependencySet;

impl Model {
    pub(super) fn work(
        &mut self,
        at: CallIndex,
        call: &Call,
        kind: NodeKind,
    ) -> Result<Outcome, ModelError> {
        Ok(match self.target(call)? {
            Target::Legacy => self.legacy_work(at),
            Target::Destroyed => self.dead_handle(at),
            // R11: work on a stream that is not capturing: SUCCESS, never unsafe.
            Target::Idle(_) => Outcome::success(Rule::R11),
            Target::Capturing(key, capture) => match self.gate(at, capture) {
                Some(refused) => refused,
                // A copy or memset of no bytes: nothing, and SUCCESS.
                None if call.flags.no_bytes => Outcome::success(Rule::R6),
                None => Outcome::with(Rule::R6, self.add_node(at, key, capture, kind, call.flags)),
            },
        })
    }

    /// R10, the gate: the stream's capture is invalid: STREAM_CAPTURE_INVALIDATED, no other effect.
    pub(super) fn gate(&self, at: CallIndex, capture: Slot) -> Option<Outcome> {
        let capture = &self.captures[capture];
        let broken = capture.broken?;
        Some(self.refuse(at, CuResult::STREAM_CAPTURE_INVALIDATED, Rule::R10, |refusal| {
            refusal.causes.extend([capture.begin_cause(), broken.cause()]);
            refusal.consequence_of = Some(broken);
        }))
    }

    /// R6: the node depends on the whole dependency set of its stream, which becomes just that node.
    /// R8: it becomes loose, and the nodes it depends on stop being loose.
    pub(super) fn add_node(
        &mut self,
        at: CallIndex,
        key: StreamKey,
        slot: Slot,
        kind: NodeKind,
        flags: Flags,
    ) -> Effect {
        let programmatic = flags.programmatic && kind == NodeKind::Kernel;
        let graph = self.captures[slot].graph;
        // There are no more nodes than calls, so the position fits.
        let id = CapturedId(self.graphs[graph].nodes.len() as u32);
        let dependencies =
            std::mem::replace(&mut self.membership_mut(key).set, DependencySet::of(id));
        self.strike_off(slot, &dependencies);
        self.captures[slot].loose += 1;
        if programmatic && self.graphs[graph].weak_edge.is_none() {
            let nodes = &self.graphs[graph].nodes;
            let weak = dependencies.iter().any(|id| nodes[id.index()].kind == NodeKind::Kernel);
            self.graphs[graph].weak_edge = weak.then_some(at);
        }
        self.graphs[graph].nodes.push(CapturedNode {
            call: at,
            on: Some(key),
            kind,
            programmatic,
            pageable: flags.pageable && kind == NodeKind::Memcpy,
            dependencies,
            loose: true,
        });
        Effect::Node(id)
    }

    /// R8: takes nodes off the loose list.
    pub(super) fn strike_off(&mut self, slot: Slot, set: &DependencySet<CapturedId>) {
        let capture = &mut self.captures[slot];
        let nodes = &mut self.graphs[capture.graph].nodes;
        for id in set.iter() {
            let node = &mut nodes[id.index()];
            capture.loose -= u32::from(node.loose);
            node.loose = false;
        }
    }

    pub(super) fn uncapturable(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        Ok(match self.target(call)? {
            // R18 and R19, as for work that a capture can hold.
            Target::Legacy => self.legacy_work(at),
            Target::Destroyed => self.dead_handle(at),
            Target::Idle(_) if call.function == Function::GraphLaunch => self.launch(at, call),
            Target::Idle(_) => Outcome::success(Rule::R11),
            Target::Capturing(key, capture) => self.uncapturable_on(at, key, capture),
        })
    }

    /// Seen on an H200 (driver 580): a batch is never on the legacy stream, whatever captures; on a capturing stream one of copies is
    /// refused without breaking the capture, and one of hints about memory is like other work that no capture can hold.
    pub(super) fn batch(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let refused = |model: &Self, result, rule| model.refuse(at, result, rule, |_| {});
        Ok(match self.target(call)? {
            Target::Legacy => refused(self, CuResult::INVALID_VALUE, Rule::LegacyBatch),
            Target::Destroyed => self.dead_handle(at),
            Target::Idle(_) => Outcome::success(Rule::R11),
            Target::Capturing(key, capture) if class(call.function).0 == Class::BatchOfHints => {
                self.uncapturable_on(at, key, capture)
            }
            Target::Capturing(_, capture) => self.gate(at, capture).unwrap_or_else(|| {
                refused(self, CuResult::STREAM_CAPTURE_UNSUPPORTED, Rule::NeverCaptured)
            }),
        })
    }

    /// R12: on a stream in an open capture, valid or not: UNSUPPORTED, invalidates that capture only.
    pub(super) fn uncapturable_on(
        &mut self,
        at: CallIndex,
        key: StreamKey,
        capture: Slot,
    ) -> Outcome {
        let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_UNSUPPORTED, Rule::R12);
        if let Some(fork) = self.fork_of(key) {
            refusal.causes.extend(fork.causes(key));
        }
        refusal.causes.extend(self.captures[capture].broken.map(super::Broken::cause));
        self.invalidate(capture, &mut refusal);
        refusal.outcome()
    }
}
