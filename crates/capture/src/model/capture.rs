//! Begin and end of captures: R1–R5, R7–R9.

use phonograph_trace::{Call, CuResult, GraphId, Mode, StreamKind, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::refusal::{Cause, LooseNode, Role};
use super::slab::Slot;
use super::state::{Broken, CallIndex, Capture, Fork, Graph, Membership, StreamKey};
use super::{Effect, FinishedGraph, Model, ModelError, Outcome, Refusal, Rule, Target, missing};
use crate::deps::DependencySet;

/// How a capture closes.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    /// The graph is handed over, under a name if the program keeps it.
    Well {
        keep: Option<GraphId>,
    },
    Unsuccessful,
}

impl Model {
    pub(super) fn begin(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let mode = call.mode.ok_or(missing(call, "a capture mode"))?;
        let key = match self.origin(at, call)? {
            Ok(key) => key,
            Err(refused) => return Ok(*refused),
        };
        // R1: a new open, valid capture on a new graph.
        let graph = self.graphs.insert(Graph::new(at, None));
        self.open_capture(at, call.thread, mode, key, graph);
        Ok(Outcome::with(Rule::R1, Effect::Began))
    }

    pub(super) fn begin_into(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let mode = call.mode.ok_or(missing(call, "a capture mode"))?;
        let user = call.graph.ok_or(missing(call, "a graph"))?;
        // R2 comes before R3 and R5.
        let key = match self.origin(at, call)? {
            Ok(key) => key,
            Err(refused) => return Ok(*refused),
        };
        let graph = match self.user_graphs.get(&user) {
            Some(slot) => *slot,
            None => {
                let graph = Graph::new(at, Some(user));
                let slot = self.graphs.insert(graph);
                self.user_graphs.insert(user, slot);
                slot
            }
        };
        let state = &self.graphs[graph];
        // R3: the graph is in use by an open capture, valid or not: ILLEGAL_STATE.
        if let Some(capture) = state.capture {
            let cause = self.captures[capture].begin_cause();
            return Ok(self.refuse(at, CuResult::ILLEGAL_STATE, Rule::R3, |r| r.causes.push(cause)));
        }
        // R5: a destroyed graph: INVALID_VALUE.
        if let Some(destroyed) = state.destroyed {
            let cause = Cause { call: destroyed, role: Role::GraphDestroyed };
            return Ok(self.refuse(at, CuResult::INVALID_VALUE, Rule::R5, |r| r.causes.push(cause)));
        }
        // R4: adds to the user graph, starts with an empty set; the capture id belongs to the graph.
        self.graphs.retain(graph);
        self.open_capture(at, call.thread, mode, key, graph);
        Ok(Outcome::with(Rule::R4, Effect::Began))
    }

    /// The stream that a begin may begin on, or the refusal.
    fn origin(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Result<StreamKey, Box<Outcome>>, ModelError> {
        let refused = match self.target(call)? {
            Target::Idle(key) => return Ok(Ok(key)),
            // R1: legacy, after R18: UNSUPPORTED; the per-thread default stream may capture.
            Target::Legacy => self.after_legacy(at, |model| {
                model.refuse(at, CuResult::STREAM_CAPTURE_UNSUPPORTED, Rule::R1Legacy, |_| {})
            }),
            Target::Destroyed => self.dead_handle(at),
            Target::Capturing(_, capture) => self.already_capturing(at, capture),
        };
        Ok(Err(Box::new(refused)))
    }

    /// R2: a begin on a stream that takes part in an open capture, valid or not: ILLEGAL_STATE, nothing invalidated.
    fn already_capturing(&self, at: CallIndex, capture: Slot) -> Outcome {
        let capture = &self.captures[capture];
        let broken = capture.broken;
        self.refuse(at, CuResult::ILLEGAL_STATE, Rule::R2, |refusal| {
            refusal.causes.push(capture.begin_cause());
            refusal.causes.extend(broken.map(Broken::cause));
        })
    }

    fn open_capture(
        &mut self,
        at: CallIndex,
        thread: ThreadId,
        mode: Mode,
        origin: StreamKey,
        graph: Slot,
    ) {
        let Graph { id, nodes, .. } = &self.graphs[graph];
        let capture = self.captures.insert(Capture {
            begun: at,
            id: *id,
            origin,
            mode,
            thread,
            graph,
            broken: None,
            closed: None,
            streams: Vec::new(),
            blocking: 0,
            left: FxHashMap::default(),
            loose: 0,
            first_node: nodes.len() as u32,
            position: self.open.len() as u32,
        });
        self.graphs[graph].capture = Some(capture);
        self.open.push(capture);
        self.join(origin, capture, DependencySet::new(), None);
    }

    /// Makes a stream take part in a capture.
    pub(super) fn join(
        &mut self,
        key: StreamKey,
        capture: Slot,
        set: DependencySet<super::CapturedId>,
        fork: Option<Fork>,
    ) {
        let blocking = self.stream(key).kind == StreamKind::Blocking;
        let state = &mut self.captures[capture];
        let position = state.streams.len() as u32;
        state.streams.push(key);
        state.blocking += u32::from(blocking);
        self.stream_mut(key).membership = Some(Membership { capture, position, set, fork });
    }

    /// R28b: takes a forked stream out; the capture stays as it is.
    pub(super) fn leave(&mut self, key: StreamKey) {
        let Some(Membership { capture, position, fork, .. }) =
            self.stream_mut(key).membership.take()
        else {
            return;
        };
        let blocking = self.stream(key).kind == StreamKind::Blocking;
        let state = &mut self.captures[capture];
        state.blocking -= u32::from(blocking);
        state.left.extend(fork.map(|fork| (key, fork)));
        state.streams.swap_remove(position as usize);
        if let Some(moved) = state.streams.get(position as usize).copied() {
            self.membership_mut(moved).position = position;
        }
    }

    /// R7: closing takes every stream in the capture to `none`. R5: one that does not end well destroys its graph.
    pub(super) fn close(
        &mut self,
        at: CallIndex,
        capture: Slot,
        ending: Ending,
    ) -> Option<FinishedGraph> {
        let state = &mut self.captures[capture];
        state.closed = Some(at);
        let (graph, begun, position) = (state.graph, state.begun, state.position as usize);
        state.left = FxHashMap::default();
        let streams = std::mem::take(&mut state.streams);
        for key in streams {
            let stream = self.stream_mut(key);
            (stream.membership, stream.closed) = (None, Some(at));
        }
        self.open.swap_remove(position);
        if let Some(moved) = self.open.get(position).copied() {
            self.captures[moved].position = position as u32;
        }
        let state = &mut self.graphs[graph];
        state.capture = None;
        let finished = match ending {
            Ending::Well { keep: None } if state.name.is_none() => {
                // Nobody keeps the handle, so nobody can use the graph again: its allocations are those of a graph that is gone.
                state.destroyed = Some(at);
                let nodes = std::mem::take(&mut state.nodes);
                let finished = FinishedGraph::captured(begun, state.id, nodes);
                let frees = std::mem::take(&mut state.frees);
                self.forget_frees(frees);
                Some(finished)
            }
            // The program may capture into it again, so the model keeps its own copy.
            Ending::Well { keep } => {
                state.name = keep.or(state.name);
                Some(self.snapshot(graph, begun))
            }
            Ending::Unsuccessful => {
                self.bury(at, graph);
                None
            }
        };
        if let Ending::Well { keep: Some(name) } = ending {
            self.name_graph(name, graph);
        }
        self.release_graph(graph);
        self.captures.release(capture);
        finished
    }

    /// R9, in this order.
    pub(super) fn end(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let (key, slot) = match self.target(call)? {
            // R9a: the stream is not capturing: ILLEGAL_STATE. The legacy stream never is, after R18.
            Target::Legacy => {
                return Ok(self.after_legacy(at, |model| model.nothing_to_end(at, None)));
            }
            Target::Idle(key) => {
                let closed = self.stream(key).closed;
                return Ok(self.nothing_to_end(at, closed));
            }
            Target::Destroyed => return Ok(self.dead_handle(at)),
            Target::Capturing(key, slot) => (key, slot),
        };
        let capture = &self.captures[slot];
        // R9b: not the origin: UNMATCHED; invalidates the capture, does not close it. Also when it is invalid already.
        if capture.origin != key {
            let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_UNMATCHED, Rule::R9b);
            refusal.causes.extend(self.fork_of(key).map(|fork| fork.cause(key)));
            self.invalidate(slot, &mut refusal);
            return Ok(refusal.outcome());
        }
        // R9c: invalid: STREAM_CAPTURE_INVALIDATED, closes; from any thread.
        if let Some(broken) = capture.broken {
            let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_INVALIDATED, Rule::R9c);
            refusal.causes.extend([capture.begin_cause(), broken.cause()]);
            refusal.consequence_of = Some(broken);
            return Ok(self.close_refused(at, slot, refusal));
        }
        // R9d: a loose node outside the origin's dependency set: UNJOINED, closes. Streams are not asked.
        let set = &self.membership_mut(key).set.clone();
        let capture = &self.captures[slot];
        let nodes = &self.graphs[capture.graph].nodes;
        let joined = set.iter().filter(|id| nodes[id.index()].loose).count();
        if joined != capture.loose as usize {
            let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_UNJOINED, Rule::R9d);
            refusal.causes.push(capture.begin_cause());
            let mut known = FxHashSet::default();
            let loose = (capture.first_node..)
                .zip(&nodes[capture.first_node as usize..])
                .filter(|(_, node)| node.loose);
            for (_, node) in loose.filter(|(id, _)| !set.contains(super::CapturedId(*id))) {
                // Only captured nodes are ever loose.
                let Some(on) = node.on else { continue };
                let stream = on.operand();
                refusal.loose.push(LooseNode { call: node.call, kind: node.kind, stream });
                // The forks back to the origin, each once however much of the work they lead to.
                let mut key = on;
                while known.insert(key) {
                    let Some(fork) = self.fork_into(slot, key) else { break };
                    refusal.causes.extend(fork.causes(key));
                    key = fork.from;
                }
            }
            return Ok(self.close_refused(at, slot, refusal));
        }
        // R9e: not relaxed and another thread than the begin's: WRONG_THREAD, closes.
        if capture.mode != Mode::Relaxed && capture.thread != call.thread {
            let mut refusal = Refusal::new(at, CuResult::STREAM_CAPTURE_WRONG_THREAD, Rule::R9e);
            refusal.causes.push(capture.begin_cause());
            return Ok(self.close_refused(at, slot, refusal));
        }
        // R9f: SUCCESS, closes, hands over. Nodes of this capture never count as loose in a later one into the same graph.
        let finished = self
            .close(at, slot, Ending::Well { keep: call.graph })
            .expect("a capture that ends well has a graph");
        Ok(Outcome::with(Rule::R9f, Effect::Ended(Box::new(finished))))
    }

    fn nothing_to_end(&self, at: CallIndex, closed: Option<CallIndex>) -> Outcome {
        self.refuse(at, CuResult::ILLEGAL_STATE, Rule::R9a, |refusal| {
            refusal.causes.extend(closed.map(|call| Cause { call, role: Role::Closed }));
        })
    }

    /// Lets `name` stand for a graph, and lets go of what it stood for.
    fn name_graph(&mut self, name: GraphId, graph: Slot) {
        self.graphs[graph].name = Some(name);
        self.graphs.retain(graph);
        if let Some(old) = self.user_graphs.insert(name, graph) {
            self.release_graph(old);
        }
    }

    /// R5 for a graph that the program destroys itself. R0: one that an open capture adds to stays.
    pub(super) fn destroy_graph(&mut self, at: CallIndex, call: &Call) -> Outcome {
        if let Some(slot) = call.graph.and_then(|name| self.user_graphs.get(&name)) {
            let (slot, graph) = (*slot, &self.graphs[*slot]);
            if let Some(capture) = graph.capture {
                let cause = self.captures[capture].begin_cause();
                return self.refuse(at, CuResult::ILLEGAL_STATE, Rule::GraphInUse, |r| {
                    r.causes.push(cause)
                });
            }
            if graph.destroyed.is_none() {
                self.bury(at, slot);
            }
        }
        Outcome::success(Rule::Harmless)
    }

    fn close_refused(&mut self, at: CallIndex, slot: Slot, refusal: Refusal) -> Outcome {
        self.close(at, slot, Ending::Unsuccessful);
        Outcome { effect: Effect::Closed, ..refusal.outcome() }
    }

    pub(super) fn fork_of(&self, key: StreamKey) -> Option<Fork> {
        self.stream(key).membership.as_ref().and_then(|m| m.fork)
    }

    /// How a stream came into this capture, also if it was destroyed since.
    fn fork_into(&self, capture: Slot, key: StreamKey) -> Option<Fork> {
        let here = self.stream(key).membership.as_ref().filter(|m| m.capture == capture);
        let left = || self.captures[capture].left.get(&key).copied();
        here.map_or_else(left, |membership| membership.fork)
    }
}

impl Broken {
    pub(super) fn cause(self) -> Cause {
        Cause { call: self.call, role: Role::Broke { result: self.result } }
    }
}

impl Fork {
    pub(super) fn cause(self, key: StreamKey) -> Cause {
        Cause { call: self.wait, role: Role::Forked { stream: key.operand(), event: self.event } }
    }

    /// The record and the wait that forked a stream.
    pub(super) fn causes(self, key: StreamKey) -> [Cause; 2] {
        let stream = self.from.operand();
        let role = Role::Recorded { event: self.event, stream, captured: true };
        [Cause { call: self.record, role }, self.cause(key)]
    }
}
