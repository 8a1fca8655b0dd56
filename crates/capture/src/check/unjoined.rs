//! Unjoined work: which record and wait would join it, or why those that are there do not.

use std::ops::Range;

use phonograph_trace::{Call, EventId, Stream};

use super::explain::Words;
use crate::model::{CallIndex, Cause, Class, LooseNode, Role, class};

/// Loose nodes that are shown one by one; the rest are counted.
pub(super) const LOOSE: usize = 5;

/// The streams of loose nodes, as far as they are shown.
pub(super) fn streams_of(loose: &[LooseNode]) -> Vec<Stream> {
    let mut streams = Vec::new();
    for node in loose {
        if streams.len() == LOOSE {
            break;
        }
        if !streams.contains(&node.stream) {
            streams.push(node.stream);
        }
    }
    streams
}

/// The records and waits that led the capture to these streams, back to its origin; `causes` are in the order of the program.
pub(super) fn forks_to(mut streams: Vec<Stream>, causes: &[Cause]) -> Vec<CallIndex> {
    let mut forks = Vec::new();
    let mut waited: Vec<EventId> = Vec::new();
    for cause in causes.iter().rev() {
        match cause.role {
            Role::Forked { stream, event } if streams.contains(&stream) => waited.push(event),
            Role::Recorded { event, stream, .. } if waited.contains(&event) => streams.push(stream),
            _ => continue,
        }
        forks.push(cause.call);
    }
    forks
}

/// Where a stream with loose nodes was destroyed after the last of them.
pub(super) fn destroyed(
    words: &Words<'_>,
    loose: &[LooseNode],
    stream: Stream,
    end: CallIndex,
) -> Option<CallIndex> {
    let last = loose.iter().filter(|node| node.stream == stream).map(|node| node.call.0).max()?;
    let destroys =
        |call: &Call| class(call.function).0 == Class::DestroyStream && call.stream == Some(stream);
    find(words, last + 1..end.0, destroys)
}

/// The remedy for loose nodes of a capture on `origin`, whose calls are `calls`, from the begin to before the end.
pub(super) fn joins(
    words: &Words<'_>,
    loose: &[LooseNode],
    origin: Stream,
    calls: Range<u32>,
) -> Vec<String> {
    streams_of(loose)
        .into_iter()
        .flat_map(|stream| join(words, loose, stream, origin, calls.clone()))
        .collect()
}

fn join(
    words: &Words<'_>,
    loose: &[LooseNode],
    stream: Stream,
    origin: Stream,
    calls: Range<u32>,
) -> Vec<String> {
    let (on, to) = (words.stream(stream), words.stream(origin));
    if stream == origin {
        return vec![format!(
            "work on {to} itself was struck off by a dependency update: add its nodes back before the end"
        )];
    }
    let word = |stream| words.script.names.stream_word(stream);
    let last = loose.iter().filter(|node| node.stream == stream).map(|node| node.call.0).max();
    let gone = destroyed(words, loose, stream, CallIndex(calls.end));
    let anew = || {
        let before = gone.map_or(String::new(), |gone| {
            format!(" before it is destroyed at {}", words.place(gone))
        });
        let place =
            last.map_or(String::new(), |last| format!("after {}, ", words.place(CallIndex(last))));
        format!(
            "join {on} with an event of its own{before}: {place}`record EVENT {}`, and then, before the end, `wait {} EVENT`",
            word(stream),
            word(origin)
        )
    };
    // A record that holds the work, if there is one: then only the wait is missing, or comes too early.
    let after = last.unwrap_or(calls.end) + 1..calls.end;
    let record = find(words, after, |call| call.stream == Some(stream) && records(call));
    let Some((at, event)) = record.and_then(|at| Some((at, words.call(at).event?))) else {
        return vec![anew()];
    };
    let name = words.event(event);
    if let Some(later) =
        find(words, at.0 + 1..calls.end, |call| call.event == Some(event) && records(call))
    {
        let later = words.place(later);
        let holds = format!(
            "use an event of its own: {name} holds that work until it is recorded again at {later}"
        );
        return vec![anew(), holds];
    }
    let (place, event_word) = (words.place(at), words.script.names.event_name(event));
    let wait = format!("`wait {} {event_word}`", word(origin));
    let mut help = vec![format!(
        "before the end, let {to} wait for {name}, which is recorded on {on} at {place}: {wait}"
    )];
    let waits = |call: &Call| waits_for(call, event) && call.stream == Some(origin);
    if let Some(early) = find_last(words, calls.start..at.0, waits) {
        let early = words.place(early);
        help.push(format!(
            "the wait at {early} comes before that record, so it took what {name} stood for then"
        ));
    }
    help
}

fn records(call: &Call) -> bool {
    class(call.function).0 == Class::RecordEvent && !call.flags.external
}

fn waits_for(call: &Call, event: EventId) -> bool {
    call.event == Some(event) && class(call.function).0 == Class::WaitEvent
}

fn find(words: &Words<'_>, mut calls: Range<u32>, is: impl Fn(&Call) -> bool) -> Option<CallIndex> {
    calls.find(|at| is(words.call(CallIndex(*at)))).map(CallIndex)
}

fn find_last(
    words: &Words<'_>,
    calls: Range<u32>,
    is: impl Fn(&Call) -> bool,
) -> Option<CallIndex> {
    calls.rev().find(|at| is(words.call(CallIndex(*at)))).map(CallIndex)
}
