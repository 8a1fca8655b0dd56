//! A call in words: one line, the same in recordings and in scripts.
//!
//! | words | driver function |
//! | --- | --- |
//! | `begin S MODE`, `begin_into S MODE [G]`, `end S [as G]` | cuStreamBeginCapture, cuStreamBeginCaptureToGraph, cuStreamEndCapture |
//! | `kernel S [NAME] …`, `memset S …`, `host S [NAME] …`, `callback S [NAME] …` | cuLaunchKernel, cuMemsetD8Async, cuLaunchHostFunc, cuStreamAddCallback |
//! | `kernel_programmatic S [NAME] …` | cuLaunchKernelEx with programmatic stream serialisation |
//! | `memcpy S dtod\|htod_pinned\|htod_pageable\|dtoh_pinned\|dtoh_pageable …` | the asynchronous copies |
//! | `record E S`, `record_ext E S`, `wait S E`, `wait_ext S E` | cuEventRecordWithFlags, cuStreamWaitEvent; `_ext` with the external flag |
//! | `sync S`, `query S`, `esync E`, `equery E`, `ctxsync` | the waits and queries |
//! | `alloc [M]`, `free M`, `host_alloc [M]`, `host_free M`, `memcpy_sync …` | cuMemAlloc, cuMemFree, cuMemAllocHost, cuMemFreeHost, cuMemcpyDtoD |
//! | `malloc_async S M`, `free_async S M` | cuMemAllocAsync, cuMemFreeAsync |
//! | `instantiate [G]`, `launch S [G]`, `exec_destroy [G]`, `graph_destroy [G]` | cuGraphInstantiate, cuGraphLaunch, cuGraphExecDestroy, cuGraphDestroy |
//! | `setdeps S T`, `adddeps S T` | cuStreamUpdateCaptureDependencies of S with the set of T |
//! | `mode MODE` | cuThreadExchangeStreamCaptureMode |
//! | `create_stream S`, `destroy_stream S`, `create_event E`, `destroy_event E` | as named |
//! | `cuName [S] [E] [G] [MODE] [M] …` | any other function; memory only for those of memory |
//!
//! `…` is `reads M… writes M…`. `@T ` in front: thread T makes the call. `-> RESULT` at the end: what the driver was seen to answer.

use std::fmt::Write as _;

use crate::line::{Line, OBSERVED, OpError, SyntaxError};
use crate::{Call, Flags, Function, Mode, Names};

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
    programmatic: bool,
}

const fn word(word: &'static str, function: Function, shape: Shape) -> Word {
    Word { word, function, shape, external: false, add: false, programmatic: false }
}

const WORDS: &[Word] = &[
    word("begin", Function::StreamBeginCapture, Shape::Begin),
    word("begin_into", Function::StreamBeginCaptureToGraph, Shape::BeginInto),
    word("end", Function::StreamEndCapture, Shape::End),
    word("kernel", Function::LaunchKernel, Shape::NamedWork),
    Word {
        programmatic: true,
        ..word("kernel_programmatic", Function::LaunchKernelEx, Shape::NamedWork)
    },
    word("memset", Function::MemsetD8Async, Shape::Work),
    word("host", Function::LaunchHostFunc, Shape::NamedWork),
    word("callback", Function::StreamAddCallback, Shape::NamedWork),
    word("memcpy", Function::MemcpyAsync, Shape::Copy),
    word("record", Function::EventRecord, Shape::EventStream),
    Word {
        external: true,
        ..word("record_ext", Function::EventRecordWithFlags, Shape::EventStream)
    },
    word("wait", Function::StreamWaitEvent, Shape::StreamEvent),
    Word { external: true, ..word("wait_ext", Function::StreamWaitEvent, Shape::StreamEvent) },
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
    word("exec_destroy", Function::GraphExecDestroy, Shape::MaybeGraph),
    word("graph_destroy", Function::GraphDestroy, Shape::MaybeGraph),
    word("setdeps", Function::StreamUpdateCaptureDependencies, Shape::Dependencies),
    Word {
        add: true,
        ..word("adddeps", Function::StreamUpdateCaptureDependencies, Shape::Dependencies)
    },
    word("mode", Function::ThreadExchangeStreamCaptureMode, Shape::Mode),
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

/// The graph of a `begin_into` that names none: one a program.
const USER_GRAPH: &str = "user";

/// Parses a line that holds one call.
pub(crate) fn parse(line: &mut Line<'_>, names: &mut Names) -> Result<Call, SyntaxError> {
    let observed = line.split_observed()?;
    let call = parse_call(line, names)?;
    Ok(Call { result: observed, ..call })
}

fn parse_call(line: &mut Line<'_>, names: &mut Names) -> Result<Call, SyntaxError> {
    let mut call = Call::new(Function::CtxSynchronize);
    call.place = Some(line.place());
    if let Some(thread) = line.peek().and_then(|word| word.strip_prefix('@')) {
        line.skip();
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
        programmatic: word.programmatic,
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
                line.skip();
                let name = line.take_name("a name for the graph")?;
                let declared = OpError::Declared { what: "graph", name: name.to_owned() };
                call.graph = Some(names.declare_graph(name).ok_or_else(|| line.wrong(declared))?);
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
            let (_, function, pageable) =
                COPIES.iter().find(|(name, ..)| *name == direction).ok_or_else(|| {
                    line.wrong(OpError::Choice { word: direction.to_owned(), choices })
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

/// The operands of a function that is given by its own name, each at most once, then what it reads and writes.
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
        line.skip();
        if let (Ok(stream), None) = (names.stream(word), call.stream) {
            call.stream = Some(stream);
        } else if let (Ok(event), None) = (names.event(word), call.event) {
            call.event = Some(event);
        } else if let (Ok(graph), None) = (names.graph(word), call.graph) {
            call.graph = Some(graph);
        } else if let (Some(mode), None) = (Mode::from_word(word), call.mode) {
            call.mode = Some(mode);
        } else if call.memory.is_none() && call.function.name().starts_with("cuMem") {
            call.memory = Some(line.name_of_memory(word, names)?);
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
        w.function == call.function
            && w.external == call.flags.external
            && w.add == call.flags.add
            && w.programmatic == call.flags.programmatic
    };
    match (copy, WORDS.iter().find(fits)) {
        (Some(_), _) => out.push_str("memcpy"),
        (None, Some(word)) => out.push_str(word.word),
        (None, None) => out.push_str(call.function.name()),
    }
    let stream = call.stream.map(|s| names.stream_word(s));
    let event = call.event.map(|e| names.event_name(e));
    let events_first =
        matches!(call.function, Function::EventRecord | Function::EventRecordWithFlags);
    let pair = if events_first { [event, stream] } else { [stream, event] };
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
