//! Questions made at random, from a number: the same number gives the same questions, in every build.
//!
//! Programs are made blindly, without asking the model: which calls are made and on what is drawn, with a leaning towards what
//! keeps captures going, so that most calls meet one. Only handles that the program has destroyed are left alone, since what
//! a driver does with those is undefined, and memory that it has freed once other memory may have the address.

use phonograph_trace::recording::{Program, Step};
use phonograph_trace::{CuResult, StreamKind};

pub use super::pairs::pair;

/// Numbers from a seed: SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct Random(u64);

impl Random {
    /// The numbers for one question of a seed.
    pub fn of(seed: u64, number: u64) -> Self {
        // Neighbouring seeds and numbers are far apart in the sequence.
        let mut first = Self(seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ number.rotate_left(32));
        Self(first.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        // The bias of the remainder is 2⁻⁵⁰ for the small ranges here.
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())]) }
    }
}

/// The program with this number of a seed. Its steps hold no answers: every result is success and no stream is shown.
///
/// ```
/// use phonograph_cuda::record::generate::program;
///
/// let first = program(7, 0);
/// assert_eq!(first.id, "7-0");
/// assert!(first.calls().is_ok());
/// assert_eq!(first.steps.len(), program(7, 0).steps.len());
/// ```
pub fn program(seed: u64, number: u64) -> Program {
    let mut random = Random::of(seed, number);
    let kinds = [StreamKind::NonBlocking, StreamKind::NonBlocking, StreamKind::Blocking];
    let streams: Vec<StreamKind> =
        (0..2 + random.below(3)).map(|_| random.pick(&kinds).expect("there are some")).collect();
    let events = 2 + random.below(3);
    let mut writer = Writer {
        threads: if random.chance(40) { 30 } else { 0 },
        defaults: if random.chance(25) { 6 } else { 0 },
        origins: Vec::new(),
        members: Vec::new(),
        recorded: Vec::new(),
        streams: (0..streams.len()).collect(),
        dead_streams: Vec::new(),
        freed: [Freed::No; 2],
        events: (0..events).collect(),
        dead_events: Vec::new(),
        random,
    };
    let length = 6 + writer.random.below(28);
    let shown = vec![phonograph_trace::recording::RecordedStatus::None; streams.len()];
    let mut ops = Vec::with_capacity(length);
    while ops.len() < length {
        ops.extend(writer.op());
    }
    if writer.defaults > 0 {
        // What is open on a created stream goes with the stream; a default stream has to be given back as it was.
        ops.extend(["end ptds", "@1 end ptds"].map(str::to_owned));
    }
    let step = |op| {
        let (result, streams) = (CuResult::SUCCESS, shown.clone());
        Step { op, result, streams, graph: None, previous: None }
    };
    let steps = ops.into_iter().map(step).collect();
    Program { id: format!("{seed}-{number}"), streams, events, steps }
}

/// Kinds of calls and how often they are drawn. Some name their stream.
const CALLS: &[(&str, usize)] = &[
    ("kernel", 200),
    ("record", 160),
    ("wait", 160),
    ("begin", 110),
    ("end", 110),
    ("memset", 40),
    ("memcpy", 33),
    ("launch", 20),
    ("host", 20),
    ("begin_into", 16),
    ("malloc_async", 18),
    ("free_async", 16),
    ("kernel legacy", 4),
    ("record legacy", 4),
    ("wait legacy", 4),
    ("sync legacy", 3),
    ("callback", 3),
    ("adddeps", 6),
    ("setdeps", 6),
    ("mode", 5),
    ("esync", 3),
    ("equery", 3),
    ("sync", 3),
    ("query", 3),
    ("ctxsync", 3),
    ("alloc", 4),
    ("memcpy_sync", 4),
    ("record_ext", 5),
    ("wait_ext", 5),
    ("destroy_stream", 4),
    ("destroy_event", 4),
    ("create_stream", 4),
    ("create_event", 4),
];

const COPIES: [&str; 5] = ["dtod", "htod_pinned", "dtoh_pinned", "htod_pageable", "dtoh_pageable"];

/// Whether a piece of memory may have been freed since it was last allocated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    No,
    /// And nothing was allocated since.
    Yes,
    /// And something may lie there by now.
    Taken,
}

struct Writer {
    random: Random,
    /// How many calls of a hundred a second thread makes.
    threads: usize,
    /// How many streams of a hundred are default ones.
    defaults: usize,
    /// Streams that a capture was begun on and not ended, if all went well.
    origins: Vec<usize>,
    /// Those and the streams that were forked from them since.
    members: Vec<usize>,
    /// Events that were recorded on members.
    recorded: Vec<usize>,
    streams: Vec<usize>,
    dead_streams: Vec<usize>,
    /// What became of each piece of memory.
    freed: [Freed; 2],
    events: Vec<usize>,
    dead_events: Vec<usize>,
}

impl Writer {
    /// The next call in words; `None` if what was drawn has nothing to work on.
    fn op(&mut self) -> Option<String> {
        let total = CALLS.iter().map(|call| call.1).sum();
        let mut at = self.random.below(total);
        let drawn = CALLS.iter().find(|&&(_, weight)| {
            let found = at < weight;
            at = at.saturating_sub(weight);
            found
        });
        let (call, _) = *drawn.expect("the number is below the sum of the weights");
        let mode = self.random.pick(&["global", "thread_local", "relaxed"])?;
        let memory = self.random.below(2);
        let words = match call {
            "begin" | "begin_into" if self.random.chance(self.defaults) => {
                format!("{call} {} {mode}", self.default_stream()?)
            }
            "begin" | "begin_into" => {
                // Most begins are on a stream that is not an origin.
                let free: Vec<usize> =
                    self.streams.iter().copied().filter(|s| !self.origins.contains(s)).collect();
                let stream = if self.random.chance(80) { self.random.pick(&free) } else { None };
                let stream = stream.or_else(|| self.random.pick(&self.streams))?;
                for list in [&mut self.origins, &mut self.members] {
                    if !list.contains(&stream) {
                        list.push(stream);
                    }
                }
                format!("{call} s{stream} {mode}")
            }
            "end" if self.random.chance(self.defaults) => format!("end {}", self.default_stream()?),
            "end" => {
                let origin =
                    if self.random.chance(85) { self.random.pick(&self.origins) } else { None };
                let stream = origin.or_else(|| self.random.pick(&self.streams))?;
                self.origins.retain(|&origin| origin != stream);
                self.members = self.origins.clone();
                self.recorded.clear();
                format!("end s{stream}")
            }
            "kernel" | "memset" | "host" | "callback" | "launch" | "sync" | "query" => {
                format!("{call} {}", self.any_stream()?)
            }
            "memcpy" => format!("memcpy {} {}", self.any_stream()?, self.random.pick(&COPIES)?),
            "kernel legacy" | "sync legacy" => call.to_owned(),
            "record" | "record_ext" if self.random.chance(self.defaults) => {
                format!("{call} e{} {}", self.random.pick(&self.events)?, self.default_stream()?)
            }
            "wait" | "wait_ext" if self.random.chance(self.defaults) => {
                format!("{call} {} e{}", self.default_stream()?, self.random.pick(&self.events)?)
            }
            "record" | "record_ext" => {
                let (event, stream) = (self.random.pick(&self.events)?, self.stream()?);
                if self.members.contains(&stream) && !self.recorded.contains(&event) {
                    self.recorded.push(event);
                }
                format!("{call} e{event} s{stream}")
            }
            "record legacy" => format!("record e{} legacy", self.random.pick(&self.events)?),
            "wait" | "wait_ext" => {
                let stream = self.random.pick(&self.streams)?;
                // Most waits fork or join.
                let known =
                    if self.random.chance(65) { self.random.pick(&self.recorded) } else { None };
                if known.is_some() && !self.members.contains(&stream) {
                    self.members.push(stream);
                }
                let event = known.or_else(|| self.random.pick(&self.events))?;
                format!("{call} s{stream} e{event}")
            }
            "wait legacy" => format!("wait legacy e{}", self.random.pick(&self.events)?),
            "esync" | "equery" => format!("{call} e{}", self.random.pick(&self.events)?),
            "malloc_async" => {
                let stream = self.any_stream()?;
                for freed in self.freed.iter_mut().filter(|freed| **freed == Freed::Yes) {
                    *freed = Freed::Taken;
                }
                self.freed[memory] = Freed::No;
                format!("malloc_async {stream} m{memory}")
            }
            "free_async" if self.freed[memory] != Freed::Taken => {
                let stream = self.any_stream()?;
                self.freed[memory] = Freed::Yes;
                format!("free_async {stream} m{memory}")
            }
            "adddeps" | "setdeps" => {
                format!("{call} {} s{}", self.any_stream()?, self.random.pick(&self.streams)?)
            }
            "mode" => format!("mode {mode}"),
            "ctxsync" | "alloc" | "memcpy_sync" => call.to_owned(),
            "destroy_stream" if self.streams.len() > 1 => {
                let at = self.random.below(self.streams.len());
                let stream = self.streams.remove(at);
                self.dead_streams.push(stream);
                self.origins.retain(|&origin| origin != stream);
                self.members.retain(|&member| member != stream);
                format!("destroy_stream s{stream}")
            }
            "destroy_event" if self.events.len() > 1 => {
                let at = self.random.below(self.events.len());
                let event = self.events.remove(at);
                self.dead_events.push(event);
                self.recorded.retain(|&recorded| recorded != event);
                format!("destroy_event e{event}")
            }
            "create_stream" => {
                let stream = self.dead_streams.pop()?;
                self.streams.push(stream);
                format!("create_stream s{stream}")
            }
            "create_event" => {
                let event = self.dead_events.pop()?;
                self.events.push(event);
                format!("create_event e{event}")
            }
            _ => return None,
        };
        let other = self.random.chance(self.threads);
        Some(if other { format!("@1 {words}") } else { words })
    }

    /// A stream in words, now and then a default one.
    fn any_stream(&mut self) -> Option<String> {
        if self.random.chance(self.defaults) {
            return self.default_stream().map(str::to_owned);
        }
        Some(format!("s{}", self.stream()?))
    }

    fn default_stream(&mut self) -> Option<&'static str> {
        self.random.pick(&["ptds", "ptds", "ptds", "legacy"])
    }

    /// A stream, more often one that takes part in a capture.
    fn stream(&mut self) -> Option<usize> {
        let member = if self.random.chance(60) { self.random.pick(&self.members) } else { None };
        member.or_else(|| self.random.pick(&self.streams))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use phonograph_capture::model::Model;

    use super::*;

    #[test]
    fn programs_meet_nearly_every_rule() {
        let mut met = BTreeSet::new();
        for number in 0..3000 {
            let program = program(11, number);
            let (names, calls) = program.calls().unwrap();
            let mut model = Model::new(names.stream_kinds(), names.event_count());
            for call in &calls {
                met.insert(model.apply(call).unwrap().rule.number());
            }
        }
        let wanted = "R1 R2 R3 R5 R6 R9a R9b R9c R9d R9e R9f R10 R11 R12 R13 R14 R15 R16a R16b R16c R16d R16e R16f \
            R17a R17b R18 R19 R20 R21 R22 R23 R24a R24b R25a R25c R25d R26a R26b R26c R26 R27 R28 R28a R28b R29";
        let missed: Vec<&str> =
            wanted.split_whitespace().filter(|rule| !met.contains(rule)).collect();
        assert_eq!(missed, [""; 0], "met: {met:?}");
    }

    #[test]
    fn a_destroyed_handle_is_not_used_again() {
        for number in 0..500 {
            let mut dead = BTreeSet::new();
            for step in program(3, number).steps {
                let words: Vec<&str> =
                    step.op.split_whitespace().filter(|word| !word.starts_with('@')).collect();
                for word in &words[1..] {
                    assert!(!dead.contains(*word) || words[0].starts_with("create"), "{}", step.op);
                }
                match words[0] {
                    "destroy_stream" | "destroy_event" => assert!(dead.insert(words[1].to_owned())),
                    "create_stream" | "create_event" => assert!(dead.remove(words[1])),
                    _ => {}
                }
            }
        }
    }
}
