//! A refusal in words: what is wrong, which earlier calls led to it, and what to do.

use phonograph_trace::{Call, EventId, Function, MemoryId, Mode, Script, Stream, ThreadId};

use super::finding::{self, Finding, Severity, Span};
use super::unjoined::{LOOSE, destroyed, forks_to, joins, streams_of};
use crate::model::{
    CallIndex, Cause, Class, Evidence, PathStep, Refusal, Role, Rule, Victim, class,
};

/// Broken captures that are named one by one; the rest are counted.
const SHOWN: usize = 5;
/// Earlier calls that are shown: begins of other captures crowd out nothing else.
const CAUSES: usize = 16;

/// What to do about a node that no conditional's body can hold.
pub(super) const BODY_HELP: &str = "allocate before the conditional and let the body use the memory; keep host functions, events, frees and pageable copies out of it too";

/// Names of the script, in backticks.
pub(super) struct Words<'a> {
    pub(super) script: &'a Script,
}

impl Words<'_> {
    pub(super) fn stream(&self, stream: Stream) -> String {
        format!("`{}`", self.script.names.stream_word(stream))
    }

    pub(super) fn event(&self, event: EventId) -> String {
        format!("`{}`", self.script.names.event_name(event))
    }

    pub(super) fn memory(&self, memory: MemoryId) -> String {
        format!("`{}`", self.script.names.memory_name(memory))
    }

    pub(super) fn thread(&self, thread: ThreadId) -> String {
        format!("thread `{}`", self.script.names.thread_name(thread))
    }

    /// The way to a node: `graph` -> node 0 (if) -> `body` -> node 3 (mem_alloc).
    pub(super) fn path(&self, path: &[PathStep]) -> String {
        let steps = path.iter().map(|step| {
            let graph = step.graph.map_or("?", |graph| self.script.names.graph_name(graph));
            let kind = step.conditional.map_or(step.kind.name(), |kind| kind.word());
            format!("`{graph}` -> node {} ({kind})", step.node.0)
        });
        steps.collect::<Vec<_>>().join(" -> ")
    }

    pub(super) fn place(&self, call: CallIndex) -> String {
        Span::new(self.script, call, "").whereabouts()
    }

    pub(super) fn call(&self, call: CallIndex) -> &Call {
        &self.script.calls[call.index()]
    }
}

/// The finding of a refusal.
pub(super) fn explain(script: &Script, refusal: &Refusal) -> Finding {
    let words = Words { script };
    let call = words.call(refusal.call);
    let (fault, help) = fault(&words, call, refusal);
    // Whoever reads this knows the driver's names, or looks for them.
    let (said, name) = (finding::words(script, call), call.function.name());
    let also = if said.contains(name) { String::new() } else { format!(" ({name})") };
    let title =
        format!("`{said}`{also} answers {} ({}): {fault}", refusal.result, refusal.result.0);
    // Of many forks only those are shown whose work is.
    let forks = forks_to(streams_of(&refusal.loose), &refusal.causes);
    let shown = |cause: &&Cause| {
        refusal.loose.is_empty()
            || matches!(cause.role, Role::Begun { .. })
            || forks.contains(&cause.call)
    };
    let mut chain: Vec<Span> =
        refusal.causes.iter().filter(shown).take(CAUSES).map(|cause| words.cause(cause)).collect();
    let shown = refusal.loose.iter().take(LOOSE);
    chain.extend(shown.map(|node| Span::new(script, node.call, "nothing joins this work")));
    for stream in streams_of(&refusal.loose) {
        let gone = destroyed(&words, &refusal.loose, stream, refusal.call);
        chain.extend(
            gone.map(|gone| {
                Span::new(script, gone, "the stream goes, its work stays in the capture")
            }),
        );
    }
    let label = match refusal.loose.len().checked_sub(LOOSE) {
        None | Some(0) => label(refusal.rule, call).to_owned(),
        Some(more) => format!("{}, nor for {more} more", label(refusal.rule, call)),
    };
    let mut notes = vec![format!("rule {}: {}", refusal.rule, refusal.rule.words())];
    if class(call.function).1 == Evidence::Documented {
        notes.push(format!(
            "what {} means to captures is documented, not recorded on a device",
            call.function
        ));
    }
    if refusal.rule.number() == "R0" && refusal.rule != Rule::Dead {
        notes.push(
            "not among the recordings; an H200 (driver 580) answered so when it was asked"
                .to_owned(),
        );
    }
    if matches!(refusal.rule, Rule::R9d | Rule::R9e) {
        notes.push("the capture is closed, and there is no graph".to_owned());
    }
    let broken = refusal.invalidated.iter();
    notes.extend(broken.take(SHOWN).map(|victim| words.broken(victim, refusal, call)));
    if let Some(more @ 1..) = refusal.invalidated.len().checked_sub(SHOWN) {
        notes.push(format!("this breaks {more} more captures"));
    }
    Finding {
        severity: Severity::Error,
        code: refusal.rule.number(),
        title,
        at: Span::new(script, refusal.call, label),
        chain,
        notes,
        help,
        consequences: Vec::new(),
    }
}

impl Words<'_> {
    fn cause(&self, cause: &Cause) -> Span {
        let label = match cause.role {
            Role::Begun { origin, mode, thread } => {
                let by = if thread.0 == 0 {
                    String::new()
                } else {
                    format!(", by {}", self.thread(thread))
                };
                format!("a {mode} capture begins on {}{by}", self.stream(origin))
            }
            Role::Forked { stream, event } => {
                format!(
                    "waiting for {} forks {} into the capture",
                    self.event(event),
                    self.stream(stream)
                )
            }
            Role::Recorded { event, stream, captured: true } => {
                format!(
                    "{} is recorded on {}, which is capturing",
                    self.event(event),
                    self.stream(stream)
                )
            }
            Role::Recorded { event, captured: false, .. } => {
                format!("{} is recorded outside the capture", self.event(event))
            }
            Role::Broke { result } => format!("this breaks the capture: {result} ({})", result.0),
            Role::Closed => "the capture is closed here".to_owned(),
            Role::GraphDestroyed => "the graph is gone from here on".to_owned(),
            Role::Allocated { memory } => {
                format!("{} is allocated here, by the graph", self.memory(memory))
            }
            Role::Freed { memory } => format!("{} is freed here first", self.memory(memory)),
            Role::WeakEdge => "this makes the first edge that is not full".to_owned(),
            Role::Holds => "this node holds the graph with the fault".to_owned(),
            Role::Forbidden => "this makes the node that cannot be there".to_owned(),
        };
        Span::new(self.script, cause.call, label)
    }

    fn broken(&self, victim: &Victim, refusal: &Refusal, call: &Call) -> String {
        let origin = self.stream(victim.origin);
        let other = if victim.thread == call.thread {
            String::new()
        } else {
            format!(" by {}", self.thread(victim.thread))
        };
        let ends = match refusal.rule {
            Rule::R9b => {
                format!("; only `end {}` closes it", self.script.names.stream_word(victim.origin))
            }
            _ => "; it stays open until it is ended, and gives no graph".to_owned(),
        };
        format!(
            "this breaks the capture that was begun on {origin}{other} at {}{ends}",
            self.place(victim.begun)
        )
    }
}

/// What the refused call itself is marked with.
fn label(rule: Rule, call: &Call) -> &'static str {
    match rule {
        Rule::R12 if class(call.function).0 == Class::WaitsOnStream => {
            "the host would wait here for work that is only recorded"
        }
        Rule::R12 => "no capture can hold this",
        Rule::R22 => "the host would wait here for a point in recorded work",
        Rule::R23 => "this would wait for the capturing streams too",
        Rule::R9d => "the end does not wait for it",
        Rule::R9b => "ended here, on another stream",
        Rule::R9e => "ended here, by another thread",
        Rule::R16f => "this would tie the two captures together",
        Rule::R16b => "this would make the graph depend on work outside it",
        Rule::R13 => "the event's record went with its capture",
        Rule::R18 | Rule::IsCapturing => "the legacy stream would have to wait for captured work",
        Rule::R20 => "potentially unsafe while the capture is open",
        _ => "refused here",
    }
}

/// What is wrong with the call, and what to do about it.
fn fault(words: &Words<'_>, call: &Call, refusal: &Refusal) -> (String, Vec<String>) {
    let stream = call.stream.map_or(String::new(), |stream| words.stream(stream));
    let event = call.event.map_or(String::new(), |event| words.event(event));
    let memory = call.memory.map_or(String::new(), |memory| words.memory(memory));
    let begun = refusal.causes.iter().find_map(|cause| match cause.role {
        Role::Begun { origin, mode, thread } => Some((cause.call, origin, mode, thread)),
        _ => None,
    });
    let origin = begun.map_or(Stream::Legacy, |(_, origin, ..)| origin);
    let begun_at = begun.map_or(String::new(), |(at, ..)| words.place(at));
    let one = |fault: String, help: String| (fault, vec![help]);
    match refusal.rule {
        Rule::R1Legacy => one(
            "the legacy stream cannot be captured".to_owned(),
            "begin on a stream that the program creates, best a nonblocking one".to_owned(),
        ),
        Rule::R2 => one(
            format!("{stream} takes part in a capture already"),
            format!("end the capture that was begun at {begun_at} first, or begin on another stream"),
        ),
        Rule::R3 => one(
            "another open capture is adding to this graph".to_owned(),
            format!("end the capture that was begun at {begun_at} first"),
        ),
        Rule::R5 => one(
            "the graph was destroyed by a capture into it that did not end well".to_owned(),
            "make a new graph; a capture that fails takes its graph with it".to_owned(),
        ),
        Rule::R9a => match refusal.causes.first().map(|cause| words.place(cause.call)) {
            Some(closed) => one(
                format!("{stream} is not capturing any more: {closed} closed its capture"),
                "leave this end out, or begin a capture before it".to_owned(),
            ),
            None => one(format!("{stream} is not capturing"), format!("begin a capture on {stream} first")),
        },
        Rule::R9b => one(
            format!("the capture was begun on {}, and {stream} is only forked into it", words.stream(origin)),
            format!("join {stream} and end the capture on {}", words.stream(origin)),
        ),
        Rule::R9d => {
            let named: Vec<String> = streams_of(&refusal.loose).iter().map(|stream| words.stream(*stream)).collect();
            let named = named.join(", ");
            (format!("work on {named} is never joined to {stream}"), joins(words, &refusal.loose, origin, begun.map_or(0, |(at, ..)| at.0)..refusal.call.0))
        }
        Rule::R9e => {
            let owner = begun.map_or(String::new(), |(.., thread)| words.thread(thread));
            one(
                format!("the capture was begun by {owner}, and is ended by {}", words.thread(call.thread)),
                format!("end it on {owner}, or begin it relaxed"),
            )
        }
        Rule::R9c | Rule::R10 => one(
            "an earlier call broke the capture".to_owned(),
            "repair that call; the capture must still be ended before another can begin".to_owned(),
        ),
        Rule::R12 if class(call.function).0 == Class::WaitsOnStream => (
            format!("{stream} is capturing, so its work has not run and the host cannot wait for it"),
            uncapturable_help(call),
        ),
        Rule::R12 => (format!("no capture can hold this call, and {stream} is capturing"), uncapturable_help(call)),
        Rule::R13 => one(
            format!("{event} was recorded in a capture that is closed or broken"),
            format!("record {event} again before anything waits for it or asks about it"),
        ),
        Rule::R16b => one(
            format!("{event} was recorded outside the capture that {stream} takes part in"),
            format!("wait for it on {stream} before the begin, or record {event} on a stream of the capture"),
        ),
        Rule::R16c => one(
            format!("{event} is recorded in a capture, and the legacy stream cannot join one"),
            "wait on a created stream instead".to_owned(),
        ),
        Rule::R16f => one(
            format!("{event} was recorded in another capture than the one that {stream} takes part in"),
            format!("for one graph, do not begin a capture on {stream}: this wait then makes {stream} part of the other one; for two graphs, leave this wait out and order their launches"),
        ),
        Rule::R17a => one(
            format!("{stream} is not capturing, and an external record or wait is a node of a graph"),
            "leave the external flag out".to_owned(),
        ),
        Rule::R18 | Rule::IsCapturing => {
            let blocking = refusal.blocking.map_or("its stream".to_owned(), |stream| words.stream(stream));
            let mut help = vec![format!("create {blocking} nonblocking, and move this call off the legacy stream")];
            if refusal.rule == Rule::R18 && matches!(class(call.function).0, Class::Work(_) | Class::TouchesLegacy) {
                help.push("a nonblocking stream alone is not enough: the call would succeed, run now and be left out of the graph".to_owned());
            }
            (
                format!("{blocking} takes part in a capture and is blocking, so the legacy stream would have to wait for it"),
                help,
            )
        }
        Rule::R20 => unsafe_fault(words, call, refusal),
        Rule::R22 => one(
            format!("{event} was recorded in a capture, so nothing has run that the host could wait for"),
            "wait for or ask about an event that is recorded outside captures, such as one after the launch; no mode allows this".to_owned(),
        ),
        Rule::R23 => one(
            "it would wait for every stream of the context, the capturing ones too".to_owned(),
            "end all captures first; no capture mode and no thread is exempt".to_owned(),
        ),
        Rule::R25a | Rule::FreesUnlaunched => (
            unfreeable(words, &memory, refusal)
                .unwrap_or_else(|| format!("{memory} is what a graph allocates when it is launched, and no launch has given it")),
            vec!["free it once; what a graph allocates is freed by the graph, or after a launch".to_owned()],
        ),
        Rule::R25c => (
            unfreeable(words, &memory, refusal).unwrap_or_else(|| match refusal.causes.is_empty() {
                true => format!("{memory} is pool memory, and a graph frees only what a graph allocates"),
                false => format!("{memory} was allocated by an earlier capture into the same graph"),
            }),
            vec!["free in the graph what the graph allocates, once; free pool memory outside the capture. The capture itself stays valid".to_owned()],
        ),
        Rule::LegacyBatch => one(
            "the legacy stream takes no batches".to_owned(),
            "submit it to a stream that the program creates".to_owned(),
        ),
        Rule::ElapsedCaptured => one(
            format!("{event} was recorded in a capture, so there is no time that it stands for; the capture stays valid"),
            "time the launches, with events that are recorded outside captures".to_owned(),
        ),
        Rule::NeverCaptured => one(
            format!("no capture can hold this call, and {stream} is capturing; the capture stays valid"),
            "make one call for each copy: those become nodes".to_owned(),
        ),
        Rule::BuildFrees => one(
            format!("{memory} is not an allocation of a graph that is alive and has not freed it"),
            "free in a graph what a graph allocates, once".to_owned(),
        ),
        Rule::EdgeTwice => one(
            "the graph has this edge already".to_owned(),
            "add one edge, with the port that is meant".to_owned(),
        ),
        Rule::EdgeEnds => one(
            "it does not lead from one node of this graph to another".to_owned(),
            "name two different nodes of the graph that the edge is added to".to_owned(),
        ),
        Rule::WeakEdge => one(
            "one end of the edge is no kernel, and only kernels start before what they depend on is complete".to_owned(),
            "leave the port out".to_owned(),
        ),
        Rule::Lossy => one(
            "the graph has an edge that is not full, and there is no room to say so".to_owned(),
            "pass an array for the edge data (`edges_data`)".to_owned(),
        ),
        Rule::ChildHolds => one(
            "the child graph holds a node that none can".to_owned(),
            "allocate, free and decide in the outer graph".to_owned(),
        ),
        Rule::OneExecutable => one(
            "the graph has memory nodes, and an executable was made of it already".to_owned(),
            "use that one, or destroy it first (`exec_destroy`); capture again for a second one".to_owned(),
        ),
        Rule::Circle => one(
            "edges that were added by hand lead in a circle".to_owned(),
            "leave one of them out; the driver takes each edge and refuses the whole here".to_owned(),
        ),
        Rule::GraphInUse => one(
            format!("a capture that is open adds to it, begun at {begun_at}"),
            "end that capture first".to_owned(),
        ),
        Rule::BodyHolds => one(
            format!("the body of a conditional holds a node that none can: {}", words.path(&refusal.path)),
            BODY_HELP.to_owned(),
        ),
        Rule::Relaunch => one(
            "the last launch allocated memory that nothing has freed".to_owned(),
            "free it in the graph, free it in stream order after each launch, or instantiate with auto-free on launch".to_owned(),
        ),
        Rule::R26a => one(
            format!("{stream} is not capturing, so it has no dependency set"),
            "update the dependencies of a capturing stream".to_owned(),
        ),
        Rule::R26x => one(
            "the two streams take part in different captures".to_owned(),
            "take the dependency set of a stream of the same capture".to_owned(),
        ),
        Rule::Dead => one(
            "the handle was destroyed, or is a default stream's".to_owned(),
            "create it again first; what the driver does with a destroyed handle is undefined".to_owned(),
        ),
        Rule::ExportsEvent => one(
            "the event was not created for other processes".to_owned(),
            "create it with the interprocess flag".to_owned(),
        ),
        other => (other.words().to_owned(), Vec::new()),
    }
}

/// Why memory cannot be freed, if an earlier free or the end of its graph is why.
fn unfreeable(words: &Words<'_>, memory: &str, refusal: &Refusal) -> Option<String> {
    let call = |is: fn(&Role) -> bool| {
        let cause = refusal.causes.iter().find(|cause| is(&cause.role));
        cause.map(|cause| words.place(cause.call))
    };
    let freed = call(|role| matches!(role, Role::Freed { .. }))
        .map(|at| format!("{memory} was freed before, at {at}"));
    let gone = || {
        call(|role| matches!(role, Role::GraphDestroyed))
            .map(|at| format!("the graph that allocates {memory} is gone since {at}"))
    };
    freed.or_else(gone)
}

/// Whether a function ends what another has made, so that there is nothing to do ahead of time.
fn gives_back(function: Function) -> bool {
    let words = ["Destroy", "Free", "Release", "Unload", "Unmap", "Unregister"];
    words.iter().any(|word| function.name().contains(word))
}

fn uncapturable_help(call: &Call) -> Vec<String> {
    let help = match call.function {
        Function::StreamSynchronize | Function::StreamQuery => {
            "wait for the stream after the capture has ended and its graph was launched; between streams, use events"
        }
        Function::GraphLaunch | Function::GraphUpload => {
            "add the inner graph as a child node, or launch it before the begin or after the end"
        }
        Function::StreamAddCallback => "use cuLaunchHostFunc, which a capture turns into a node",
        Function::StreamGetFlags | Function::StreamGetId => {
            "ask for it before the begin and keep the answer"
        }
        Function::MemcpyPeerAsync | Function::Memcpy3DPeerAsync => {
            "copy with cuMemcpyAsync, which a capture turns into a node"
        }
        _ => "make this call before the begin or after the end",
    };
    vec![help.to_owned()]
}

/// R20: which capture bars the call, and the weakest change that would allow it.
fn unsafe_fault(words: &Words<'_>, call: &Call, refusal: &Refusal) -> (String, Vec<String>) {
    let barring = || {
        refusal.causes.iter().filter_map(|cause| match cause.role {
            Role::Begun { origin, mode, thread } => Some((origin, mode, thread)),
            _ => None,
        })
    };
    let names: Vec<String> = barring()
        .map(|(origin, mode, _)| format!("the {mode} capture on {}", words.stream(origin)))
        .collect();
    let own = barring().any(|(.., thread)| thread == call.thread);
    let global = barring().any(|(_, mode, thread)| mode == Mode::Global && thread != call.thread);
    let when = if gives_back(call.function) {
        "put this off until the capture has ended"
    } else {
        "make the call before the begin, as warm-up does, or after the end"
    };
    let mut help = vec![when.to_owned()];
    if own {
        help.push("or begin the capture relaxed, or put this thread in relaxed mode around the call (cuThreadExchangeStreamCaptureMode)".to_owned());
    } else if global {
        help.push("or begin the capture thread_local: then other threads may do this; whether it fails now depends on how the threads interleave".to_owned());
    }
    (format!("it is potentially unsafe, and {} bars it", names.join(" and ")), help)
}
