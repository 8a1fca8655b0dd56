//! A stream-capture model that answers as the CUDA driver does.
//!
//! In: [`Call`]s in the order in which they are made. Out: for each its [`Outcome`] (result, deciding [`Rule`], effect, and for a
//! refusal what led to it), and at any time the status and dependency set of every stream. The rules were fitted to recordings of
//! a real driver and reproduce every one of them; each stands beside its number in `capture`, `work`, `event`, `barred`, `memory`
//! and `upkeep`; graphs that are built by hand (`build`) follow the documentation and what an H200 answered when it was asked. A call costs
//! a constant plus the sizes of the sets and the number of captures that it touches; memory is linear in what is alive: streams, events,
//! open captures with their nodes, and graphs that the program can still capture into.
//!
//! # What it leaves out
//!
//! Probed on an H200 (driver 580), and not part of the rules:
//!
//! - *A second context on the device.* What bars unsafe calls (R20) asks threads and modes, not contexts. Waits for the whole context
//!   (R23) and the legacy stream (R18) ask only for captures of the context that is current. A stream of another context joins and
//!   is joined like any other; a kernel or event of another context than the stream's is INVALID_HANDLE and breaks nothing.
//! - *Addresses.* Memory is told apart by the name that the program has for it. Once its graph is gone, the driver may give the address
//!   to other memory, and a free of the old one then frees that.
//! - *Priority.* A captured kernel has the priority of its stream, unless its launch names one.
//! - *Edge data in dependency sets.* A set holds a node once: full before programmatic before launch order, whichever came first. An
//!   event in a launch gives port 1, or 2 at the start of its blocks, to who waits for it; one at launch completion port 2 without
//!   a type. A record copies the data, and so does the next node's edge, whatever its kind; a programmatic launch overrides it for kernels.
//!   An update with another combination, or with a port for what is no kernel, is INVALID_VALUE and changes nothing.
//!
//! ```
//! use phonograph_capture::model::Model;
//! use phonograph_trace::{CuResult, Script};
//!
//! let script = Script::parse("stream main nonblocking\nbegin main global\nkernel main\nsync main\nend main\n")?;
//! let mut model = Model::new(script.names.stream_kinds(), script.names.event_count());
//! let results: Vec<CuResult> = script.calls.iter().map(|call| model.apply(call).unwrap().result).collect();
//! assert_eq!(results[2], CuResult::STREAM_CAPTURE_UNSUPPORTED);
//! assert_eq!(results[3], CuResult::STREAM_CAPTURE_INVALIDATED);
//! # Ok::<(), phonograph_trace::SyntaxError>(())
//! ```

mod barred;
mod build;
mod capture;
mod class;
mod convert;
mod event;
mod finished;
mod memory;
mod refusal;
mod rule;
mod slab;
mod state;
mod upkeep;
mod work;

use phonograph_graph::MAX_NESTING;
use phonograph_trace::{
    Call, CuResult, EventId, Function, GraphId, MemoryId, Mode, NodeId, Stream, StreamId,
    StreamKind, ThreadId,
};
use rustc_hash::FxHashMap;

use crate::deps::DependencySet;
use slab::{Slab, Slot};
use state::{Capture, EventState, Graph, Membership, Memory, Record, StreamKey, StreamState};

pub use class::{Class, Evidence, NodeKind, class};
pub use convert::ConvertError;
pub use finished::{CapturedEdge, FinishedGraph, Inner, PathStep};
pub use refusal::{Cause, LooseNode, Refusal, Role, Victim};
pub use rule::Rule;
pub use state::{Broken, CallIndex, CapturedId, CapturedNode};

/// The state of every stream, event, capture and thread that the driver would keep.
#[derive(Clone, Debug)]
pub struct Model {
    streams: Vec<StreamState>,
    defaults: Vec<StreamState>,
    default_of: FxHashMap<ThreadId, u32>,
    events: Vec<EventState>,
    /// Threads that are in another mode than global.
    modes: FxHashMap<ThreadId, Mode>,
    captures: Slab<Capture>,
    open: Vec<Slot>,
    graphs: Slab<Graph>,
    user_graphs: FxHashMap<GraphId, Slot>,
    memory: FxHashMap<MemoryId, Memory>,
    /// How many graphs that are alive free each allocation of another graph, which the call that made it stands for.
    freeing: FxHashMap<CallIndex, u32>,
    /// Nodes that were added by hand and have a name: of which graph.
    nodes: FxHashMap<NodeId, (GraphId, CapturedId)>,
    calls: u32,
}

/// What a call comes to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the driver answers. Queries answer as if all work were done.
    pub result: CuResult,
    /// The rule that decides.
    pub rule: Rule,
    /// What changed, beyond what the refusal says.
    pub effect: Effect,
    /// Why the call is refused, if it is.
    pub refusal: Option<Box<Refusal>>,
}

/// What a call changed.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Nothing that a capture could notice.
    None,
    /// A capture is open.
    Began,
    /// The call became a node of the capture.
    Node(CapturedId),
    /// The call added a node to a graph that is built by hand.
    Added(CapturedId),
    /// The stream joined a capture.
    Joined,
    /// The stream's dependency set changed.
    Dependencies,
    /// An event was recorded.
    Recorded,
    /// A capture ended and hands this over.
    Ended(Box<FinishedGraph>),
    /// A capture was closed without a graph.
    Closed,
    /// The thread's mode before.
    PreviousMode(Mode),
}

/// The capture status of a stream.
#[derive(Clone, Debug)]
pub enum Status<'a> {
    /// Not capturing.
    None,
    /// In a capture that is not valid any more.
    Invalidated,
    /// The stream is gone.
    Destroyed,
    /// In a valid capture.
    Active {
        /// The call that first captured into the graph.
        capture: CallIndex,
        /// What the next piece of work would depend on.
        dependencies: &'a DependencySet<CapturedId>,
        /// The nodes that have been captured into the graph.
        nodes: &'a [CapturedNode],
    },
}

/// A call that the model cannot interpret, so that it has no answer at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModelError {
    /// The function needs an operand that the call does not have.
    #[error("{function} needs {operand}")]
    MissingOperand {
        /// The function.
        function: Function,
        /// What it needs.
        operand: &'static str,
    },
    /// No such stream.
    #[error("stream {0} was never created")]
    UnknownStream(StreamId),
    /// No such event.
    #[error("event {0} was never created")]
    UnknownEvent(EventId),
    /// Graphs nest only so deep.
    #[error("{0} would nest graphs more than {MAX_NESTING} deep")]
    TooDeep(Function),
    /// A body is a new graph.
    #[error("graph {0} is to become a body and exists already")]
    BodyTaken(GraphId),
    /// Call positions are 32 bits wide.
    #[error("a program of more than {} calls", u32::MAX)]
    TooManyCalls,
}

/// A stream operand, looked up.
#[derive(Clone, Copy)]
enum Target {
    Legacy,
    /// Takes part in no capture.
    Idle(StreamKey),
    /// Takes part in an open one, valid or not.
    Capturing(StreamKey, Slot),
    Destroyed,
}

impl Model {
    /// A program's start: streams of these kinds, so many events, nothing recorded.
    pub fn new(streams: &[StreamKind], events: usize) -> Self {
        Self {
            streams: streams.iter().map(|kind| StreamState::new(*kind)).collect(),
            defaults: Vec::new(),
            default_of: FxHashMap::default(),
            events: vec![EventState::new(); events],
            modes: FxHashMap::default(),
            captures: Slab::new(),
            open: Vec::new(),
            graphs: Slab::new(),
            user_graphs: FxHashMap::default(),
            memory: FxHashMap::default(),
            freeing: FxHashMap::default(),
            nodes: FxHashMap::default(),
            calls: 0,
        }
    }

    /// Makes a call and says what comes of it.
    ///
    /// # Errors
    /// [`ModelError`] if the call cannot be interpreted; the model is then as it was before.
    pub fn apply(&mut self, call: &Call) -> Result<Outcome, ModelError> {
        let at = CallIndex(self.calls);
        let next = self.calls.checked_add(1).ok_or(ModelError::TooManyCalls)?;
        let outcome = match class(call.function).0 {
            Class::Harmless => Ok(Outcome::success(Rule::Harmless)),
            Class::ExportsEvent => {
                Ok(self.refuse(at, CuResult::INVALID_HANDLE, Rule::ExportsEvent, |_| {}))
            }
            Class::Unsafe => Ok(self.unsafe_on_memory(at, call)),
            Class::Work(kind) => self.work(at, call, kind),
            Class::Uncapturable => self.uncapturable(at, call),
            Class::WaitsOnStream | Class::UnsafeOnStream => self.waits_on_stream(at, call),
            Class::BatchOfCopies | Class::BatchOfHints => self.batch(at, call),
            Class::TimesEvent => self.times_event(at, call),
            Class::OfStream => self.of_stream(at, call),
            Class::WaitsOnEvent => self.waits_on_event(at, call),
            Class::WaitsOnContext => Ok(self.waits_on_context(at)),
            Class::TouchesLegacy => Ok(self.legacy_work(at)),
            Class::AsksForCapture => self.asks_for_capture(at, call),
            Class::BeginCapture => self.begin(at, call),
            Class::BeginCaptureToGraph => self.begin_into(at, call),
            Class::EndCapture => self.end(at, call),
            Class::RecordEvent => self.record(at, call),
            Class::WaitEvent => self.wait(at, call),
            Class::AllocAsync => self.alloc_async(at, call),
            Class::FreeAsync => self.free_async(at, call),
            Class::UpdateDependencies => self.update_dependencies(at, call),
            Class::AddsNode(kind) => self.build_node(at, call, kind),
            Class::AddsEdge => self.build_edge(at, call),
            Class::AsksForEdges => Ok(self.edges_of(at, call)),
            Class::Instantiates => Ok(self.instantiate(at, call)),
            Class::DestroyGraph => Ok(self.destroy_graph(at, call)),
            Class::DestroysExecutable => Ok(self.destroy_executable(at, call)),
            Class::ExchangeMode => self.exchange_mode(call),
            Class::CreateStream => self.create_stream(call),
            Class::DestroyStream => self.destroy_stream(at, call),
            Class::CreateEvent => self.create_event(call),
            Class::DestroyEvent => self.destroy_event(at, call),
        }?;
        self.calls = next;
        Ok(outcome)
    }

    /// How many calls have been made.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// The status of a created stream; constant.
    ///
    /// # Errors
    /// [`ModelError::UnknownStream`].
    pub fn status(&self, stream: StreamId) -> Result<Status<'_>, ModelError> {
        let state = self.streams.get(stream.index()).ok_or(ModelError::UnknownStream(stream))?;
        Ok(match &state.membership {
            _ if state.destroyed => Status::Destroyed,
            None => Status::None,
            Some(membership) => {
                let capture = &self.captures[membership.capture];
                let graph = &self.graphs[capture.graph];
                match capture.broken {
                    Some(_) => Status::Invalidated,
                    None => Status::Active {
                        capture: capture.id,
                        dependencies: &membership.set,
                        nodes: &graph.nodes,
                    },
                }
            }
        })
    }

    /// The mode of a thread.
    pub fn mode(&self, thread: ThreadId) -> Mode {
        self.modes.get(&thread).copied().unwrap_or(Mode::Global)
    }

    /// The captures that are open, in no particular but a reproducible order: where each began, and what broke it.
    pub(crate) fn open_captures(&self) -> impl Iterator<Item = (Victim, Option<Broken>)> + '_ {
        self.open.iter().map(|slot| (self.captures[*slot].victim(), self.captures[*slot].broken))
    }

    /// The begin of the open capture that a stream takes part in.
    pub(crate) fn capture_of(&self, stream: Stream, thread: ThreadId) -> Option<CallIndex> {
        let state = match stream {
            Stream::Legacy => return None,
            Stream::PerThread => &self.defaults[*self.default_of.get(&thread)? as usize],
            Stream::Created(id) => self.streams.get(id.index())?,
        };
        state.membership.as_ref().map(|m| self.captures[m.capture].begun)
    }

    /// Takes over from an observed program that the capture of a stream was broken before its latest call, by a call that was not
    /// seen. Returns the begin of the capture.
    pub(crate) fn break_unseen(&mut self, stream: Stream, thread: ThreadId) -> Option<CallIndex> {
        let begun = self.capture_of(stream, thread)?;
        let call = CallIndex(self.calls.checked_sub(1)?);
        let slot = self.open.iter().copied().find(|slot| self.captures[*slot].begun == begun)?;
        let broken =
            Broken { call, result: CuResult::STREAM_CAPTURE_INVALIDATED, rule: Rule::Unseen };
        self.captures[slot].broken.get_or_insert(broken);
        Some(begun)
    }

    /// How many captures and graphs are remembered: open ones, and closed ones that an event, a piece of memory or a graph of the
    /// user's still points at.
    pub fn remembered(&self) -> usize {
        self.captures.len() + self.graphs.len()
    }

    fn target(&mut self, call: &Call) -> Result<Target, ModelError> {
        self.look_up(call.stream.ok_or(missing(call, "a stream"))?, call.thread)
    }

    fn look_up(&mut self, stream: Stream, thread: ThreadId) -> Result<Target, ModelError> {
        let key = match stream {
            Stream::Legacy => return Ok(Target::Legacy),
            Stream::Created(id) if id.index() < self.streams.len() => StreamKey::Created(id),
            Stream::Created(id) => return Err(ModelError::UnknownStream(id)),
            Stream::PerThread => {
                let defaults = &mut self.defaults;
                let position = *self.default_of.entry(thread).or_insert_with(|| {
                    // It counts as blocking: legacy work beside its capture is refused.
                    defaults.push(StreamState::new(StreamKind::Blocking));
                    (defaults.len() - 1) as u32
                });
                StreamKey::PerThread(position)
            }
        };
        let state = self.stream(key);
        Ok(match &state.membership {
            _ if state.destroyed => Target::Destroyed,
            Some(membership) => Target::Capturing(key, membership.capture),
            None => Target::Idle(key),
        })
    }

    fn event_of(&self, call: &Call) -> Result<EventId, ModelError> {
        let event = call.event.ok_or(missing(call, "an event"))?;
        if event.index() < self.events.len() {
            Ok(event)
        } else {
            Err(ModelError::UnknownEvent(event))
        }
    }

    fn stream(&self, key: StreamKey) -> &StreamState {
        match key {
            StreamKey::Created(id) => &self.streams[id.index()],
            StreamKey::PerThread(position) => &self.defaults[position as usize],
        }
    }

    fn stream_mut(&mut self, key: StreamKey) -> &mut StreamState {
        match key {
            StreamKey::Created(id) => &mut self.streams[id.index()],
            StreamKey::PerThread(position) => &mut self.defaults[position as usize],
        }
    }

    /// The part of a stream that `look_up` found capturing.
    fn membership_mut(&mut self, key: StreamKey) -> &mut Membership {
        self.stream_mut(key).membership.as_mut().expect("the stream was found capturing")
    }

    /// Makes a capture invalid; `refusal` learns of it if it was valid.
    fn invalidate(&mut self, capture: Slot, refusal: &mut Refusal) {
        let capture = &mut self.captures[capture];
        if capture.broken.is_none() {
            capture.broken =
                Some(Broken { call: refusal.call, result: refusal.result, rule: refusal.rule });
            refusal.invalidated.push(capture.victim());
        }
        refusal.causes.push(capture.begin_cause());
    }

    /// An outcome that refuses; `explain` adds what led to it.
    fn refuse(
        &self,
        call: CallIndex,
        result: CuResult,
        rule: Rule,
        explain: impl FnOnce(&mut Refusal),
    ) -> Outcome {
        let mut refusal = Refusal::new(call, result, rule);
        explain(&mut refusal);
        refusal.outcome()
    }

    /// The captured record of an event, if its capture is live.
    fn live_record(&self, event: EventId) -> Option<Slot> {
        match self.events[event.index()].record {
            Record::Captured { capture, .. } if self.captures[capture].live() => Some(capture),
            _ => None,
        }
    }

    /// R0: a handle that was destroyed. What the driver does with it is undefined; the model says so and changes nothing.
    fn dead_handle(&self, at: CallIndex) -> Outcome {
        self.refuse(at, CuResult::INVALID_HANDLE, Rule::Dead, |_| {})
    }
}

fn missing(call: &Call, operand: &'static str) -> ModelError {
    ModelError::MissingOperand { function: call.function, operand }
}

impl Outcome {
    fn success(rule: Rule) -> Self {
        Self::with(rule, Effect::None)
    }

    fn with(rule: Rule, effect: Effect) -> Self {
        Self { result: CuResult::SUCCESS, rule, effect, refusal: None }
    }
}

impl Refusal {
    fn new(call: CallIndex, result: CuResult, rule: Rule) -> Self {
        Self {
            call,
            result,
            rule,
            causes: Vec::new(),
            invalidated: Vec::new(),
            consequence_of: None,
            loose: Vec::new(),
            path: Vec::new(),
            blocking: None,
        }
    }

    fn outcome(mut self) -> Outcome {
        self.invalidated.sort_by_key(|victim| victim.begun);
        self.causes.sort_by_key(|cause| cause.call);
        self.causes.dedup();
        Outcome {
            result: self.result,
            rule: self.rule,
            effect: Effect::None,
            refusal: Some(Box::new(self)),
        }
    }
}

impl Capture {
    fn victim(&self) -> Victim {
        Victim {
            begun: self.begun,
            origin: self.origin.operand(),
            mode: self.mode,
            thread: self.thread,
        }
    }

    fn begin_cause(&self) -> Cause {
        let role =
            Role::Begun { origin: self.origin.operand(), mode: self.mode, thread: self.thread };
        Cause { call: self.begun, role }
    }
}

impl StreamState {
    fn new(kind: StreamKind) -> Self {
        Self { kind, destroyed: false, membership: None, closed: None }
    }
}

impl EventState {
    fn new() -> Self {
        Self { destroyed: false, record: Record::Fresh }
    }
}
