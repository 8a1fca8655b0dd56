//! What the driver accepts silently and people regret.
//!
//! | code | warning |
//! | --- | --- |
//! | W1 | work on the legacy stream beside a capture: it runs now and is left out of the graph |
//! | W2 | a wait that takes an older record of an event than the one that was meant |
//! | W3 | a captured copy from or to pageable memory |
//! | W4 | a wait for an event that was never recorded, or whose record was refused |
//! | W5 | a capture that ends with an empty graph |
//! | W6 | memory freed that a captured graph still uses, and a launch of such a graph |
//! | W7 | one executable graph launched on two streams |
//! | W8 | a capture that is never ended, or that goes with its stream |
//! | W9 | a node in the body of a conditional that no body can hold, before anything instantiates it |
//! | W10 | work on a stream that takes no part in a capture, by the thread that captures: it runs now and is left out of the graph |
//! | W11 | a full edge added to a graph behind one at launch order, which a driver may then not keep |

mod edges;
mod memory;

use std::collections::BTreeSet;

use phonograph_trace::{Call, EventId, Function, GraphId, MemoryId, Script, Stream, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::explain::{BODY_HELP, Words};
use super::finding::{self, Finding, Span};
use crate::model::{CallIndex, Class, Effect, NodeKind, Outcome, PathStep, Rule, Victim, class};

/// Calls that a warning shows one by one.
const SHOWN: usize = 4;

pub(super) struct Lint<'a> {
    script: &'a Script,
    findings: Vec<Finding>,
    captures: FxHashMap<CallIndex, OpenCapture>,
    events: FxHashMap<EventId, EventLog>,
    /// Graphs that captures ended with: what their nodes use.
    graphs: Vec<UsedGraph>,
    named: FxHashMap<GraphId, usize>,
    /// Graphs by the memory that they use, so that a free costs what it finds.
    users: FxHashMap<MemoryId, Vec<usize>>,
    freed: FxHashMap<MemoryId, CallIndex>,
    /// The last allocation under each name.
    allocated: FxHashMap<MemoryId, CallIndex>,
    /// Work on the legacy stream that no capture which has ended well was beside of yet.
    legacy: BTreeSet<CallIndex>,
    /// Work outside captures, in order.
    outside: Vec<CallIndex>,
    /// Nodes in bodies that were warned about.
    bodies: FxHashSet<CallIndex>,
    /// Events whose last record was refused.
    refused: FxHashMap<EventId, CallIndex>,
    launch_order: FxHashMap<GraphId, edges::LaunchOrder>,
}

struct OpenCapture {
    nodes: u32,
    /// The first node that uses each piece of memory.
    uses: FxHashMap<MemoryId, CallIndex>,
    /// Events recorded in it, in order.
    records: Vec<EventId>,
    freed: Vec<Freed>,
    broken: bool,
}

struct UsedGraph {
    begun: CallIndex,
    uses: FxHashMap<MemoryId, CallIndex>,
    freed: Vec<Freed>,
    launch: Option<(CallIndex, Stream)>,
}

/// Memory that a graph uses and that was freed. Allocating it again does not help the graph: the old address is baked in.
#[derive(Clone, Copy)]
struct Freed {
    at: CallIndex,
    memory: MemoryId,
    node: CallIndex,
}

/// The records of an event and whether something waited for them.
struct EventLog {
    last: CallIndex,
    stream: Option<Stream>,
    capture: Option<CallIndex>,
    waited: bool,
    /// A wait that took the record before the last, and that record.
    older_wait: Option<(CallIndex, CallIndex)>,
    last_wait: Option<CallIndex>,
    /// The record before the last, if nothing waited for it and it was made on another stream of the same capture.
    lost: Option<CallIndex>,
}

impl<'a> Lint<'a> {
    pub(super) fn new(script: &'a Script) -> Self {
        Self {
            script,
            findings: Vec::new(),
            captures: FxHashMap::default(),
            events: FxHashMap::default(),
            graphs: Vec::new(),
            named: FxHashMap::default(),
            users: FxHashMap::default(),
            freed: FxHashMap::default(),
            allocated: FxHashMap::default(),
            legacy: BTreeSet::new(),
            outside: Vec::new(),
            bodies: FxHashSet::default(),
            refused: FxHashMap::default(),
            launch_order: FxHashMap::default(),
        }
    }

    /// Takes note of a call. `begun` is the capture that its stream took part in before it.
    pub(super) fn observe(
        &mut self,
        at: CallIndex,
        call: &Call,
        begun: Option<CallIndex>,
        outcome: &Outcome,
    ) {
        let (class, _) = class(call.function);
        if outcome.effect == Effect::Began {
            let capture = OpenCapture {
                nodes: 0,
                uses: FxHashMap::default(),
                records: Vec::new(),
                freed: Vec::new(),
                broken: false,
            };
            self.captures.insert(at, capture);
        }
        if let Effect::Node(_) = outcome.effect {
            self.node(at, call, begun);
        }
        for victim in outcome.refusal.iter().flat_map(|refusal| &refusal.invalidated) {
            if let Some(capture) = self.captures.get_mut(&victim.begun) {
                capture.broken = true;
            }
        }
        if !outcome.result.is_success() {
            if let (Class::RecordEvent, Some(event)) = (class, call.event) {
                self.refused.insert(event, at);
            }
            if let (Effect::Closed, Some(begun)) = (&outcome.effect, begun) {
                self.captures.remove(&begun);
            }
            return;
        }
        match (class, &outcome.effect) {
            (Class::RecordEvent, Effect::Recorded) => self.record(at, call, begun),
            (Class::WaitEvent, effect) => self.wait(at, call, begun, effect),
            (Class::EndCapture, Effect::Ended(_)) => self.end(at, call, begun),
            (Class::DestroyStream, Effect::Closed) => self.discard(at, call, begun),
            (Class::Work(_) | Class::TouchesLegacy, _) if outcome.rule == Rule::R19 => {
                self.legacy.insert(at);
                self.outside.push(at);
            }
            (Class::Work(_), _) if outcome.rule == Rule::R11 => self.outside.push(at),
            _ => {}
        }
        match call.function {
            Function::MemFree if outcome.rule == Rule::R21 => self.free(at, call),
            Function::MemFreeHost | Function::MemHostUnregister => self.free(at, call),
            Function::MemFreeAsync if outcome.rule == Rule::R25b => self.free(at, call),
            Function::MemAlloc | Function::MemAllocHost | Function::MemAllocAsync => {
                self.allocate(at, call)
            }
            Function::GraphLaunch => self.launch(at, call),
            Function::GraphAddDependencies => self.edge(at, call),
            _ => {}
        }
    }

    /// A node that no conditional's body can hold was put into one.
    pub(super) fn body(&mut self, path: &[PathStep]) {
        let Some((last, holders)) =
            path.split_last().filter(|(last, _)| self.bodies.insert(last.call))
        else {
            return;
        };
        let words = Words { script: self.script };
        let title = format!(
            "`{}` puts a node into the body of a conditional that none can hold: {}",
            finding::words(self.script, &self.script.calls[last.call.index()]),
            words.path(path)
        );
        let holder = |step: &PathStep| {
            Span::new(self.script, step.call, "the body belongs to this conditional")
        };
        let chain = holders.iter().map(holder).collect();
        let label = "accepted here, and refused when the graph is instantiated";
        self.warn("W9", title, last.call, label, chain, vec![BODY_HELP.to_owned()]);
    }

    /// The warnings about captures that are still open, and all others.
    pub(super) fn finish(mut self, open: impl Iterator<Item = Victim>) -> Vec<Finding> {
        for victim in open {
            let stream = self.stream(victim.origin);
            let title = format!("the capture on {stream} is never ended");
            let help = format!("end it: `end {}`", self.script.names.stream_word(victim.origin));
            self.warn("W8", title, victim.begun, "begun here", Vec::new(), vec![help]);
        }
        self.findings
    }

    fn node(&mut self, at: CallIndex, call: &Call, begun: Option<CallIndex>) {
        let Some(capture) = begun.and_then(|begun| self.captures.get_mut(&begun)) else {
            return;
        };
        capture.nodes += 1;
        let touched = call.work.iter().flat_map(|work| work.reads.iter().chain(&work.writes));
        for memory in touched.chain(call.memory.iter()) {
            capture.uses.entry(*memory).or_insert(at);
        }
        let freed = call.work.iter().flat_map(|work| work.reads.iter().chain(&work.writes));
        let freed: Vec<(MemoryId, CallIndex)> =
            freed.filter_map(|m| self.freed.get(m).map(|at| (*m, *at))).collect();
        for (memory, freed_at) in freed {
            let name = self.memory(memory);
            let title = format!(
                "`{}` is captured with {name}, which is freed already",
                finding::words(self.script, call)
            );
            let chain = vec![Span::new(self.script, freed_at, format!("{name} is freed here"))];
            self.warn("W6", title, at, "every replay would use freed memory", chain, Vec::new());
        }
        if call.flags.pageable && class(call.function).0 == Class::Work(NodeKind::Memcpy) {
            let title = format!(
                "`{}` captures a copy with pageable host memory",
                finding::words(self.script, call)
            );
            let help = "copy from and to pinned memory (cuMemAllocHost) that lives as long as the graph: every replay uses the same \
                        address again, and a pageable copy also holds up the host"
                .to_owned();
            self.warn(
                "W3",
                title,
                at,
                "the host address is baked into the graph",
                Vec::new(),
                vec![help],
            );
        }
    }

    /// W8 for a capture that goes with its origin, unless it was broken anyhow.
    fn discard(&mut self, at: CallIndex, call: &Call, begun: Option<CallIndex>) {
        let capture = begun.and_then(|begun| Some((begun, self.captures.remove(&begun)?)));
        let Some((begun, _)) = capture.filter(|(_, capture)| !capture.broken) else { return };
        let Some(stream) = call.stream else { return };
        let title = format!(
            "`{}` discards the capture that was begun on {}",
            finding::words(self.script, call),
            self.stream(stream)
        );
        let chain = vec![Span::new(self.script, begun, "begun here")];
        let help = format!(
            "end the capture before its stream is destroyed: `end {}`",
            self.script.names.stream_word(stream)
        );
        self.warn("W8", title, at, "closes the capture without a graph", chain, vec![help]);
    }

    fn record(&mut self, at: CallIndex, call: &Call, begun: Option<CallIndex>) {
        let Some(event) = call.event else { return };
        self.refused.remove(&event);
        if let Some(capture) = begun.and_then(|begun| self.captures.get_mut(&begun)) {
            capture.records.push(event);
        }
        let old = self.events.remove(&event);
        let same_capture = |old: &&EventLog| begun.is_some() && old.capture == begun;
        let older_wait =
            old.as_ref().filter(same_capture).and_then(|old| Some((old.last_wait?, old.last)));
        let lost = old
            .as_ref()
            .filter(same_capture)
            .filter(|old| !old.waited && old.stream != call.stream)
            .map(|old| old.last);
        let log = EventLog {
            last: at,
            stream: call.stream,
            capture: begun,
            waited: false,
            older_wait,
            last_wait: None,
            lost,
        };
        self.events.insert(event, log);
    }

    fn wait(&mut self, at: CallIndex, call: &Call, begun: Option<CallIndex>, effect: &Effect) {
        let Some(event) = call.event else { return };
        if let Effect::Node(_) = effect {
            return;
        }
        let name = format!("`{}`", self.script.names.event_name(event));
        let Some(log) = self.events.get_mut(&event) else {
            let words = finding::words(self.script, call);
            let refused = self.refused.get(&event).copied();
            let why = if refused.is_some() {
                "whose record was refused"
            } else {
                "which was never recorded"
            };
            let title = format!("`{words}` waits for {name}, {why}");
            let chain = refused
                .map(|at| Span::new(self.script, at, "this record was refused"))
                .into_iter()
                .collect();
            let mut help = vec![
                "such a wait does nothing: it adds no dependency and forks no stream".to_owned(),
            ];
            help.extend(self.meant(event, begun));
            return self.warn("W4", title, at, "no effect", chain, help);
        };
        log.waited = true;
        log.last_wait = Some(at);
        if let Some(lost) = log.lost.take() {
            let last = log.last;
            let title = format!(
                "`{}` takes the last record of {name}; an earlier one is lost",
                finding::words(self.script, call)
            );
            let chain = vec![
                Span::new(
                    self.script,
                    lost,
                    "this record is overwritten before anything waits for it",
                ),
                Span::new(self.script, last, "the wait takes this one"),
            ];
            let help = vec!["record a second event instead, and wait for both".to_owned()];
            self.warn("W2", title, at, "does not wait for the earlier record", chain, help);
        }
    }

    /// An event that was recorded in the same capture and that nothing has waited for.
    fn meant(&self, event: EventId, begun: Option<CallIndex>) -> Option<String> {
        let capture = begun.and_then(|begun| self.captures.get(&begun))?;
        let unused = capture
            .records
            .iter()
            .rev()
            .find(|e| **e != event && self.events.get(e).is_some_and(|log| !log.waited))?;
        let at = Span::new(self.script, self.events.get(unused)?.last, "").whereabouts();
        Some(format!(
            "was `{}` meant, recorded at {at}, which nothing waits for?",
            self.script.names.event_name(*unused)
        ))
    }

    fn end(&mut self, at: CallIndex, call: &Call, begun: Option<CallIndex>) {
        let Some((begun, capture)) =
            begun.and_then(|begun| self.captures.remove(&begun).map(|capture| (begun, capture)))
        else {
            return;
        };
        self.legacy(begun, &capture);
        match capture.nodes {
            0 => self.empty(at, call, begun),
            _ => self.beside(begun, call.thread),
        }
        self.older_waits(begun, &capture.records);
        let graph = self.graphs.len();
        capture.uses.keys().for_each(|memory| self.users.entry(*memory).or_default().push(graph));
        self.graphs.push(UsedGraph {
            begun,
            uses: capture.uses,
            freed: capture.freed,
            launch: None,
        });
        if let Some(name) = call.graph {
            self.named.insert(name, graph);
        }
    }

    /// W1: work on the legacy stream, which captures of non-blocking streams do not notice. Each is reported with the first
    /// capture that ends, though several may be open.
    fn legacy(&mut self, begun: CallIndex, capture: &OpenCapture) {
        for legacy in self.legacy.split_off(&begun) {
            let source = &self.script.calls[legacy.index()];
            let begins =
                "the capture begins here; none of its streams is blocking, so nothing is refused";
            let mut chain = vec![Span::new(self.script, begun, begins)];
            let mut shared = Vec::new();
            for memory in source.work.iter().flat_map(|work| work.reads.iter().chain(&work.writes))
            {
                if let Some(node) = capture.uses.get(memory) {
                    let name = self.memory(*memory);
                    let used = format!("the graph uses {name} here");
                    chain.push(Span::new(self.script, *node, used));
                    shared.push(name);
                }
            }
            let words = finding::words(self.script, source);
            let title = format!("`{words}` runs now and is left out of the graph");
            let label = match shared.as_slice() {
                [] => "on the legacy stream, beside the capture".to_owned(),
                shared => {
                    let shared = shared.join(", ");
                    format!("on the legacy stream, and touches {shared}, which the graph uses")
                }
            };
            let help = "launch it on a stream of the capture; every replay goes on with what this one run left".to_owned();
            self.warn("W1", title, legacy, &label, chain, vec![help]);
        }
    }

    /// W5: a capture without nodes, and the work since its begin that is not in it.
    fn empty(&mut self, at: CallIndex, call: &Call, begun: CallIndex) {
        let on = |call: CallIndex| {
            let stream = self.script.calls[call.index()].stream?;
            self.script.names.device(stream)
        };
        let named = |call| on(call).map_or(String::new(), |d| format!(", on device {d}"));
        let beside = &self.outside[self.outside.partition_point(|call| *call < begun)..];
        let mut chain = vec![Span::new(self.script, begun, format!("begun here{}", named(begun)))];
        chain.extend(beside.iter().take(SHOWN).map(|call| {
            let device = named(*call);
            let label = format!("work, but on a stream that takes no part in the capture{device}");
            Span::new(self.script, *call, label)
        }));
        let elsewhere = |call: &CallIndex| {
            on(*call).zip(on(begun)).is_some_and(|(device, begun)| device != begun)
        };
        let help = match chain.len() {
            1 => "nothing was launched in between",
            _ if beside.iter().any(elsewhere) => {
                "the work in between ran at once, on another device: begin on a stream of the device that the work is on"
            }
            _ => {
                "the work in between ran at once; launch it on the capturing stream, or fork its stream with an event"
            }
        };
        let title = format!("`{}` hands over an empty graph", finding::words(self.script, call));
        self.warn("W5", title, at, "no node was captured", chain, vec![help.to_owned()]);
    }

    /// W10: work that the capturing thread submitted between begin and end to streams outside the capture.
    fn beside(&mut self, begun: CallIndex, thread: ThreadId) {
        let since = self.outside.partition_point(|call| *call < begun);
        let own = |call: &&CallIndex| {
            let call = &self.script.calls[call.index()];
            call.thread == thread && call.stream.is_some_and(|stream| stream != Stream::Legacy)
        };
        let beside: Vec<CallIndex> = self.outside[since..].iter().filter(own).copied().collect();
        let [first, rest @ ..] = beside.as_slice() else { return };
        let source = &self.script.calls[first.index()];
        let title = format!(
            "`{}` runs now and is left out of the graph",
            finding::words(self.script, source)
        );
        let mut chain = vec![Span::new(self.script, begun, "the capture begins here")];
        chain.extend(
            rest.iter().take(SHOWN).map(|call| Span::new(self.script, *call, "so is this")),
        );
        let stream = source.stream.map_or(String::new(), |stream| self.stream(stream));
        let label = match rest.len().checked_sub(SHOWN) {
            Some(more @ 1..) => format!(
                "{stream} takes no part in the capture; nor do the streams of {more} more calls"
            ),
            _ => format!("{stream} takes no part in the capture"),
        };
        let help = format!(
            "fork {stream} into the capture with an event, or launch this before the begin"
        );
        self.warn("W10", title, *first, &label, chain, vec![help]);
    }

    /// W2: events of the capture whose last record nothing waits for, although an earlier record was waited for.
    fn older_waits(&mut self, begun: CallIndex, records: &[EventId]) {
        let mut seen: Vec<EventId> = records.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for event in seen {
            let Some(log) =
                self.events.get(&event).filter(|log| log.capture == Some(begun) && !log.waited)
            else {
                continue;
            };
            let Some((wait, older)) = log.older_wait else {
                continue;
            };
            let name = self.script.names.event_name(event);
            let title = format!(
                "`{}` takes an older record of `{name}` than the last one",
                finding::words(self.script, &self.script.calls[wait.index()])
            );
            let chain = vec![
                Span::new(self.script, older, "the wait takes this record"),
                Span::new(self.script, log.last, "nothing waits for this later one"),
            ];
            let help = "a wait takes the record that was made last before it: move it behind the record that it is meant for".to_owned();
            self.warn("W2", title, wait, "waits here", chain, vec![help]);
        }
    }

    fn warn(
        &mut self,
        code: &'static str,
        title: String,
        at: CallIndex,
        label: &str,
        chain: Vec<Span>,
        help: Vec<String>,
    ) {
        let at = Span::new(self.script, at, label);
        self.findings.push(Finding::warning(code, title, at, chain, help));
    }

    fn stream(&self, stream: Stream) -> String {
        format!("`{}`", self.script.names.stream_word(stream))
    }

    fn memory(&self, memory: MemoryId) -> String {
        format!("`{}`", self.script.names.memory_name(memory))
    }
}
