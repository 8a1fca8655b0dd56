//! A call in words: one line, the same in recordings and in scripts.
//!
//! | words | driver function |
//! | --- | --- |
//! | `begin S MODE`, `begin_into S MODE [G]`, `end S [as G]` | cuStreamBeginCapture, cuStreamBeginCaptureToGraph, cuStreamEndCapture |
//! | `kernel S [NAME] …`, `memset S …`, `host S [NAME] …`, `callback S [NAME] …` | cuLaunchKernel, cuMemsetD8Async, cuLaunchHostFunc, cuStreamAddCallback |
//! | `memcpy S dtod\|htod_pinned\|htod_pageable\|dtoh_pinned\|dtoh_pageable …` | the asynchronous copies |
//! | `record E S`, `record_ext E S`, `wait S E`, `wait_ext S E` | cuEventRecordWithFlags, cuStreamWaitEvent; `_ext` with the external flag |
//! | `sync S`, `query S`, `esync E`, `equery E`, `ctxsync` | the waits and queries |
//! | `alloc [M]`, `free M`, `host_alloc [M]`, `host_free M`, `memcpy_sync …` | cuMemAlloc, cuMemFree, cuMemAllocHost, cuMemFreeHost, cuMemcpyDtoD |
//! | `malloc_async S M`, `free_async S M` | cuMemAllocAsync, cuMemFreeAsync |
//! | `instantiate [G]`, `launch S [G]`, `exec_destroy [G]`, `graph_destroy [G]` | cuGraphInstantiate, cuGraphLaunch, cuGraphExecDestroy, cuGraphDestroy |
//! | `setdeps S T`, `adddeps S T` | cuStreamUpdateCaptureDependencies of S with the set of T |
//! | `mode MODE` | cuThreadExchangeStreamCaptureMode |
//! | `create_stream S`, `destroy_stream S`, `create_event E`, `destroy_event E` | as named |
//! | `cuName [S] [E] …` | any other function |
//!
//! `…` is `reads M… writes M…`. `@T ` in front: thread T makes the call. `-> RESULT` at the end: what the driver was seen to answer.

use std::fmt::Write as _;

use crate::limits::{MAX_LINE, MAX_NAME};
use crate::names::Undeclared;
use crate::{Call, CuResult, Flags, Function, GraphId, MemoryId, Mode, Names, Place, Stream, Work};

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    /// The first word is no operation.
    #[error("`{0}` is no operation")]
    UnknownOperation(String),
    /// It starts like a driver function, but is none that this crate knows.
    #[error(
        "`{0}` is no driver function of the stream, event, memory, module, execution, graph or context chapters"
    )]
    UnknownFunction(String),
    /// What stands behind the arrow is no driver result.
    #[error("`{0}` is no driver result")]
    UnknownResult(String),
    /// The line ends too early.
    #[error("{0} is missing at the end of the line")]
    Missing(&'static str),
    /// There is something left at the end of the line.
    #[error("`{0}` is too much on this line")]
    Unexpected(String),
    /// A name that was not declared.
    #[error(transparent)]
    Undeclared(#[from] Undeclared),
    /// A name that was declared before.
    #[error("{what} `{name}` is declared already")]
    Declared {
        /// Stream, event, thread or graph.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A word that should be one of a few.
    #[error("`{word}` is not one of {choices}")]
    Choice {
        /// The word as written.
        word: String,
        /// What it may be.
        choices: &'static str,
    },
    /// A word that cannot be a name.
    #[error(
        "`{0}` cannot be a name: names are letters, digits, `_`, `.`, `:`, `<`, `>`, `-` and mean nothing else here"
    )]
    BadName(String),
    /// A name, line or text over its limit.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
}

/// An error with its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {error}")]
pub struct SyntaxError {
    /// Where it stands.
    pub place: Place,
    /// What it is.
    pub error: OpError,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Stream,
    Begin,
    BeginInto,
    End,
    Work,
    NamedWork,
    Copy,
    EventStream,
    StreamEvent,
    Event,
    Memory,
    MaybeMemory,
    StreamMemory,
    StreamGraph,
    MaybeGraph,
    Dependencies,
    Mode,
    Touching,
}

struct Word {
    word: &'static str,
    function: Function,
    shape: Shape,
    external: bool,
    add: bool,
}

const fn word(word: &'static str, function: Function, shape: Shape) -> Word {
    Word {
        word,
        function,
        shape,
        external: false,
        add: false,
    }
}

const WORDS: &[Word] = &[
    word("begin", Function::StreamBeginCapture, Shape::Begin),
    word(
        "begin_into",
        Function::StreamBeginCaptureToGraph,
        Shape::BeginInto,
    ),
    word("end", Function::StreamEndCapture, Shape::End),
    word("kernel", Function::LaunchKernel, Shape::NamedWork),
    word("memset", Function::MemsetD8Async, Shape::Work),
    word("host", Function::LaunchHostFunc, Shape::NamedWork),
    word("callback", Function::StreamAddCallback, Shape::NamedWork),
    word("memcpy", Function::MemcpyAsync, Shape::Copy),
    word("record", Function::EventRecord, Shape::EventStream),
    Word {
        external: true,
        ..word(
            "record_ext",
            Function::EventRecordWithFlags,
            Shape::EventStream,
        )
    },
    word("wait", Function::StreamWaitEvent, Shape::StreamEvent),
    Word {
        external: true,
        ..word("wait_ext", Function::StreamWaitEvent, Shape::StreamEvent)
    },
    word("sync", Function::StreamSynchronize, Shape::Stream),
    word("query", Function::StreamQuery, Shape::Stream),
    word("esync", Function::EventSynchronize, Shape::Event),
    word("equery", Function::EventQuery, Shape::Event),
    word("ctxsync", Function::CtxSynchronize, Shape::Plain),
    word("alloc", Function::MemAlloc, Shape::MaybeMemory),
    word("free", Function::MemFree, Shape::Memory),
    word("host_alloc", Function::MemAllocHost, Shape::MaybeMemory),
    word("host_free", Function::MemFreeHost, Shape::Memory),
    word("memcpy_sync", Function::MemcpyDtoD, Shape::Touching),
    word("malloc_async", Function::MemAllocAsync, Shape::StreamMemory),
    word("free_async", Function::MemFreeAsync, Shape::StreamMemory),
    word("instantiate", Function::GraphInstantiate, Shape::MaybeGraph),
    word("launch", Function::GraphLaunch, Shape::StreamGraph),
    word(
        "exec_destroy",
        Function::GraphExecDestroy,
        Shape::MaybeGraph,
    ),
    word("graph_destroy", Function::GraphDestroy, Shape::MaybeGraph),
    word(
        "setdeps",
        Function::StreamUpdateCaptureDependencies,
        Shape::Dependencies,
    ),
    Word {
        add: true,
        ..word(
            "adddeps",
            Function::StreamUpdateCaptureDependencies,
            Shape::Dependencies,
        )
    },
    word(
        "mode",
        Function::ThreadExchangeStreamCaptureMode,
        Shape::Mode,
    ),
    word("create_stream", Function::StreamCreate, Shape::Stream),
    word("destroy_stream", Function::StreamDestroy, Shape::Stream),
    word("create_event", Function::EventCreate, Shape::Event),
    word("destroy_event", Function::EventDestroy, Shape::Event),
];

const COPIES: &[(&str, Function, bool)] = &[
    ("dtod", Function::MemcpyDtoDAsync, false),
    ("htod_pinned", Function::MemcpyHtoDAsync, false),
    ("dtoh_pinned", Function::MemcpyDtoHAsync, false),
    ("htod_pageable", Function::MemcpyHtoDAsync, true),
    ("dtoh_pageable", Function::MemcpyDtoHAsync, true),
];

/// Words that have a meaning of their own, so nothing can be called by them.
const RESERVED: &[&str] = &["legacy", "ptds", "reads", "writes", "as", OBSERVED];

/// Before what the driver was seen to answer.
const OBSERVED: &str = "->";

/// The graph of a `begin_into` that names none: one a program.
const USER_GRAPH: &str = "user";

/// The words of one line, each with its place.
pub(crate) struct Line<'a> {
    words: Vec<(Place, &'a str)>,
    next: usize,
    end: Place,
}

impl<'a> Line<'a> {
    /// Splits a line at white space; `#` at the start of a word begins a comment.
    ///
    /// # Errors
    /// [`OpError::TooLong`] for a line over [`MAX_LINE`].
    pub(crate) fn new(number: u32, text: &'a str) -> Result<Self, SyntaxError> {
        if text.len() > MAX_LINE {
            let place = Place {
                line: number,
                column: 1,
                length: 1,
            };
            return Err(SyntaxError {
                place,
                error: OpError::TooLong {
                    what: "the line",
                    limit: MAX_LINE,
                },
            });
        }
        let mut words = Vec::new();
        let mut start: Option<(usize, u32)> = None;
        let mut column = 1u32;
        let place = |from: u32, to: u32| Place {
            line: number,
            column: from,
            length: to - from,
        };
        for (at, c) in text.char_indices() {
            match (c.is_whitespace(), start) {
                (true, Some((from, begun))) => {
                    words.push((place(begun, column), &text[from..at]));
                    start = None;
                }
                (false, None) => {
                    if c == '#' {
                        break;
                    }
                    start = Some((at, column));
                }
                _ => {}
            }
            column += 1;
        }
        if let Some((from, begun)) = start {
            words.push((place(begun, column), &text[from..]));
        }
        let after = words.last().map_or(1, |(p, _)| p.column + p.length);
        Ok(Self {
            words,
            next: 0,
            end: Place {
                line: number,
                column: after,
                length: 1,
            },
        })
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|(_, word)| *word)
    }

    /// The next word, or an error that says what should stand there.
    pub(crate) fn take(&mut self, what: &'static str) -> Result<&'a str, SyntaxError> {
        let word = self.peek().ok_or(SyntaxError {
            place: self.end,
            error: OpError::Missing(what),
        })?;
        self.next += 1;
        Ok(word)
    }

    /// An error about the word taken last.
    pub(crate) fn wrong(&self, error: impl Into<OpError>) -> SyntaxError {
        let place = self
            .next
            .checked_sub(1)
            .map_or(self.end, |last| self.words[last].0);
        SyntaxError {
            place,
            error: error.into(),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(word) => {
                self.next += 1;
                Err(self.wrong(OpError::Unexpected(word.to_owned())))
            }
        }
    }

    /// Takes `-> RESULT` off the end of the line.
    fn split_observed(&mut self) -> Result<Option<CuResult>, SyntaxError> {
        let Some(arrow) = self.words.iter().rposition(|(_, word)| *word == OBSERVED) else {
            return Ok(None);
        };
        let rest = self.words.split_off(arrow);
        let place = rest.last().map_or(self.end, |(place, _)| *place);
        let after = self.words.last().map_or(1, |(p, _)| p.column + p.length);
        self.end.column = after;
        let [_, (_, word)] = rest[..] else {
            let error = OpError::Missing("one driver result");
            return Err(SyntaxError { place, error });
        };
        let unknown = OpError::UnknownResult(word.to_owned());
        let result = CuResult::from_name(word).ok_or(SyntaxError {
            place,
            error: unknown,
        })?;
        Ok(Some(result))
    }

    /// From the first to the last word.
    fn place(&self) -> Place {
        let column = self.words.first().map_or(1, |(p, _)| p.column);
        Place {
            column,
            length: self.end.column - column,
            ..self.end
        }
    }

    /// A new name: the next word, if it can be one.
    pub(crate) fn take_name(&mut self, what: &'static str) -> Result<&'a str, SyntaxError> {
        let name = self.take(what)?;
        if name.len() > MAX_NAME {
            return Err(self.wrong(OpError::TooLong {
                what: "the name",
                limit: MAX_NAME,
            }));
        }
        let allowed = |c: char| c.is_alphanumeric() || "_.:<>-".contains(c);
        if RESERVED.contains(&name) || !name.chars().all(allowed) {
            return Err(self.wrong(OpError::BadName(name.to_owned())));
        }
        Ok(name)
    }

    fn stream(&mut self, names: &Names) -> Result<Stream, SyntaxError> {
        let word = self.take("a stream")?;
        names.stream(word).map_err(|e| self.wrong(e))
    }

    fn mode(&mut self) -> Result<Mode, SyntaxError> {
        let word = self.take("a capture mode")?;
        Mode::from_word(word).ok_or_else(|| {
            self.wrong(OpError::Choice {
                word: word.to_owned(),
                choices: "global, thread_local, relaxed",
            })
        })
    }

    fn memory(&mut self, names: &mut Names) -> Result<MemoryId, SyntaxError> {
        let name = self.take_name("a name for the memory")?;
        names
            .memory(name)
            .ok_or_else(|| self.wrong(OpError::BadName(name.to_owned())))
    }

    fn graph(&mut self, names: &Names) -> Result<Option<GraphId>, SyntaxError> {
        if self.peek().is_none() {
            return Ok(None);
        }
        let name = self.take("a graph")?;
        names.graph(name).map(Some).map_err(|e| self.wrong(e))
    }

    /// `[NAME] [reads M…] [writes M…]`, or nothing.
    fn work(&mut self, names: &mut Names, named: bool) -> Result<Option<Box<Work>>, SyntaxError> {
        let mut work = Work::default();
        if named
            && self
                .peek()
                .is_some_and(|word| word != "reads" && word != "writes")
        {
            work.name = self.take_name("a name")?.to_owned();
        }
        while let Some(keyword) = self.peek() {
            if keyword != "reads" && keyword != "writes" {
                break;
            }
            self.next += 1;
            let mut some = false;
            while self
                .peek()
                .is_some_and(|word| word != "reads" && word != "writes")
            {
                let memory = self.memory(names)?;
                if keyword == "reads" {
                    work.reads.push(memory)
                } else {
                    work.writes.push(memory)
                }
                some = true;
            }
            if !some {
                self.take("a name for the memory")?;
            }
        }
        Ok((work != Work::default()).then(|| Box::new(work)))
    }
}

/// Parses a line that holds one call.
pub(crate) fn parse(line: &mut Line<'_>, names: &mut Names) -> Result<Call, SyntaxError> {
    let observed = line.split_observed()?;
    let call = parse_call(line, names)?;
    Ok(Call {
        result: observed,
        ..call
    })
}

fn parse_call(line: &mut Line<'_>, names: &mut Names) -> Result<Call, SyntaxError> {
    let mut call = Call::new(Function::CtxSynchronize);
    call.place = Some(line.place());
    if let Some(thread) = line.peek().and_then(|word| word.strip_prefix('@')) {
        line.next += 1;
        // Recordings number their threads; a number cannot be a misspelt name.
        if names.thread(thread).is_err() && thread.parse::<u32>().is_ok() {
            names.declare_thread(thread);
        }
        call.thread = names.thread(thread).map_err(|e| line.wrong(e))?;
    }
    let op = line.take("an operation")?;
    let Some(word) = WORDS.iter().find(|w| w.word == op) else {
        if op.starts_with("cu") {
            call.function = Function::from_name(op)
                .ok_or_else(|| line.wrong(OpError::UnknownFunction(op.to_owned())))?;
            parse_operands(line, names, &mut call)?;
            return Ok(call);
        }
        return Err(line.wrong(OpError::UnknownOperation(op.to_owned())));
    };
    call.function = word.function;
    call.flags = Flags {
        external: word.external,
        add: word.add,
        ..Flags::default()
    };
    match word.shape {
        Shape::Plain => {}
        Shape::Stream => call.stream = Some(line.stream(names)?),
        Shape::Begin => {
            call.stream = Some(line.stream(names)?);
            call.mode = Some(line.mode()?);
        }
        Shape::BeginInto => {
            call.stream = Some(line.stream(names)?);
            call.mode = Some(line.mode()?);
            let given = line.graph(names)?;
            call.graph = given
                .or_else(|| names.graph(USER_GRAPH).ok())
                .or_else(|| names.declare_graph(USER_GRAPH));
        }
        Shape::End => {
            call.stream = Some(line.stream(names)?);
            if line.peek() == Some("as") {
                line.next += 1;
                let name = line.take_name("a name for the graph")?;
                let declared = OpError::Declared {
                    what: "graph",
                    name: name.to_owned(),
                };
                call.graph = Some(
                    names
                        .declare_graph(name)
                        .ok_or_else(|| line.wrong(declared))?,
                );
            }
        }
        Shape::Work | Shape::NamedWork => {
            call.stream = Some(line.stream(names)?);
            call.work = line.work(names, word.shape == Shape::NamedWork)?;
        }
        Shape::Copy => {
            call.stream = Some(line.stream(names)?);
            let direction = line.take("a direction")?;
            let choices = "dtod, htod_pinned, htod_pageable, dtoh_pinned, dtoh_pageable";
            let (_, function, pageable) = COPIES
                .iter()
                .find(|(name, ..)| *name == direction)
                .ok_or_else(|| {
                    line.wrong(OpError::Choice {
                        word: direction.to_owned(),
                        choices,
                    })
                })?;
            call.function = *function;
            call.flags.pageable = *pageable;
            call.work = line.work(names, false)?;
        }
        Shape::EventStream => {
            call.event = Some(event(line, names)?);
            call.stream = Some(line.stream(names)?);
        }
        Shape::StreamEvent => {
            call.stream = Some(line.stream(names)?);
            call.event = Some(event(line, names)?);
        }
        Shape::Event => call.event = Some(event(line, names)?),
        Shape::Memory => call.memory = Some(line.memory(names)?),
        Shape::MaybeMemory => {
            if line.peek().is_some() {
                call.memory = Some(line.memory(names)?);
            }
        }
        Shape::StreamMemory => {
            call.stream = Some(line.stream(names)?);
            call.memory = Some(line.memory(names)?);
        }
        Shape::StreamGraph => {
            call.stream = Some(line.stream(names)?);
            call.graph = line.graph(names)?;
        }
        Shape::MaybeGraph => call.graph = line.graph(names)?,
        Shape::Dependencies => {
            call.stream = Some(line.stream(names)?);
            call.from = Some(line.stream(names)?);
        }
        Shape::Mode => call.mode = Some(line.mode()?),
        Shape::Touching => call.work = line.work(names, false)?,
    }
    line.finish()?;
    Ok(call)
}

fn event(line: &mut Line<'_>, names: &Names) -> Result<crate::EventId, SyntaxError> {
    let name = line.take("an event")?;
    names.event(name).map_err(|e| line.wrong(e))
}

/// The operands of a function that is given by its own name: a stream, an event and a graph, each at most once, then the memory.
fn parse_operands(
    line: &mut Line<'_>,
    names: &mut Names,
    call: &mut Call,
) -> Result<(), SyntaxError> {
    while let Some(word) = line.peek() {
        if word == "reads" || word == "writes" {
            call.work = line.work(names, false)?;
            break;
        }
        line.next += 1;
        if let (Ok(stream), None) = (names.stream(word), call.stream) {
            call.stream = Some(stream);
        } else if let (Ok(event), None) = (names.event(word), call.event) {
            call.event = Some(event);
        } else if let (Ok(graph), None) = (names.graph(word), call.graph) {
            call.graph = Some(graph);
        } else {
            let undeclared = names
                .stream(word)
                .map_or_else(OpError::from, |_| OpError::Unexpected(word.to_owned()));
            return Err(line.wrong(undeclared));
        }
    }
    line.finish()
}

/// The words of a call, such that parsing them gives it back.
pub(crate) fn print(call: &Call, names: &Names) -> String {
    let mut out = String::new();
    if call.thread.0 != 0 {
        out.push('@');
        out.push_str(names.thread_name(call.thread));
        out.push(' ');
    }
    let copy = COPIES
        .iter()
        .find(|(_, f, pageable)| *f == call.function && *pageable == call.flags.pageable);
    let fits = |w: &&Word| {
        w.function == call.function && w.external == call.flags.external && w.add == call.flags.add
    };
    match (copy, WORDS.iter().find(fits)) {
        (Some(_), _) => out.push_str("memcpy"),
        (None, Some(word)) => out.push_str(word.word),
        (None, None) => out.push_str(call.function.name()),
    }
    let stream = call.stream.map(|s| names.stream_word(s));
    let event = call.event.map(|e| names.event_name(e));
    let events_first = matches!(
        call.function,
        Function::EventRecord | Function::EventRecordWithFlags
    );
    let pair = if events_first {
        [event, stream]
    } else {
        [stream, event]
    };
    let as_graph = call.function == Function::StreamEndCapture && call.graph.is_some();
    let operands = [
        pair[0],
        pair[1],
        call.from.map(|s| names.stream_word(s)),
        call.mode.map(Mode::word),
        copy.map(|(direction, ..)| *direction),
        call.memory.map(|m| names.memory_name(m)),
        as_graph.then_some("as"),
        call.graph.map(|g| names.graph_name(g)),
    ];
    for operand in operands.into_iter().flatten() {
        out.push(' ');
        out.push_str(operand);
    }
    if let Some(work) = &call.work {
        if !work.name.is_empty() {
            out.push(' ');
            out.push_str(&work.name);
        }
        for (keyword, memory) in [("reads", &work.reads), ("writes", &work.writes)] {
            if !memory.is_empty() {
                write!(out, " {keyword}").expect("a String takes everything");
            }
            for id in memory {
                out.push(' ');
                out.push_str(names.memory_name(*id));
            }
        }
    }
    if let Some(result) = call.result {
        write!(out, " {OBSERVED} {result}").expect("a String takes everything");
    }
    out
}
