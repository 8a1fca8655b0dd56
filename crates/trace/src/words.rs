//! A call in words: one line, the same in recordings and in scripts.
//!
//! `script.txt` lists the words for people; `WORDS` says which driver function each is.

use std::fmt::Write as _;

use crate::line::{Line, OBSERVED, OpError, SyntaxError};
use crate::names::closest;
use crate::{Build, Call, ConditionalKind, Flags, Function, Mode, Names, Port};

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
    Graph,
    AddNode,
    AddNamed,
    AddMemory,
    AddChild,
    AddConditional,
    AddEdge,
}

impl Shape {
    /// Whether the call is about a graph that is built by hand, which then comes first.
    fn builds(self) -> bool {
        use Shape::{AddChild, AddConditional, AddEdge, AddMemory, AddNamed, AddNode, Graph};
        matches!(self, Graph | AddNode | AddNamed | AddMemory | AddChild | AddConditional | AddEdge)
    }
}

struct Word {
    word: &'static str,
    function: Function,
    shape: Shape,
    flags: Flags,
}

const fn word(word: &'static str, function: Function, shape: Shape) -> Word {
    Word { word, function, shape, flags: Flags::NONE }
}

const WORDS: &[Word] = &[
    word("begin", Function::StreamBeginCapture, Shape::Begin),
    word("begin_into", Function::StreamBeginCaptureToGraph, Shape::BeginInto),
    word("end", Function::StreamEndCapture, Shape::End),
    word("kernel", Function::LaunchKernel, Shape::NamedWork),
    Word {
        flags: Flags { programmatic: true, ..Flags::NONE },
        ..word("kernel_programmatic", Function::LaunchKernelEx, Shape::NamedWork)
    },
    word("memset", Function::MemsetD8Async, Shape::Work),
    word("host", Function::LaunchHostFunc, Shape::NamedWork),
    word("callback", Function::StreamAddCallback, Shape::NamedWork),
    word("memcpy", Function::MemcpyAsync, Shape::Copy),
    word("record", Function::EventRecord, Shape::EventStream),
    Word {
        flags: Flags { external: true, ..Flags::NONE },
        ..word("record_ext", Function::EventRecordWithFlags, Shape::EventStream)
    },
    word("wait", Function::StreamWaitEvent, Shape::StreamEvent),
    Word {
        flags: Flags { external: true, ..Flags::NONE },
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
    Word {
        flags: Flags { auto_free: true, ..Flags::NONE },
        ..word("instantiate_auto_free", Function::GraphInstantiateWithFlags, Shape::MaybeGraph)
    },
    word("launch", Function::GraphLaunch, Shape::StreamGraph),
    word("exec_destroy", Function::GraphExecDestroy, Shape::MaybeGraph),
    word("graph_destroy", Function::GraphDestroy, Shape::MaybeGraph),
    word("setdeps", Function::StreamUpdateCaptureDependencies, Shape::Dependencies),
    Word {
        flags: Flags { add: true, ..Flags::NONE },
        ..word("adddeps", Function::StreamUpdateCaptureDependencies, Shape::Dependencies)
    },
    word("mode", Function::ThreadExchangeStreamCaptureMode, Shape::Mode),
    word("create_stream", Function::StreamCreate, Shape::Stream),
    word("destroy_stream", Function::StreamDestroy, Shape::Stream),
    word("create_event", Function::EventCreate, Shape::Event),
    word("destroy_event", Function::EventDestroy, Shape::Event),
    word("add_kernel", Function::GraphAddKernelNode, Shape::AddNamed),
    word("add_memcpy", Function::GraphAddMemcpyNode, Shape::AddNode),
    word("add_memset", Function::GraphAddMemsetNode, Shape::AddNode),
    word("add_host", Function::GraphAddHostNode, Shape::AddNamed),
    word("add_empty", Function::GraphAddEmptyNode, Shape::AddNode),
    word("add_alloc", Function::GraphAddMemAllocNode, Shape::AddMemory),
    word("add_free", Function::GraphAddMemFreeNode, Shape::AddMemory),
    word("add_child", Function::GraphAddChildGraphNode, Shape::AddChild),
    word("add_conditional", Function::GraphAddNode, Shape::AddConditional),
    word("add_edge", Function::GraphAddDependencies, Shape::AddEdge),
    word("edges", Function::GraphGetEdges, Shape::Graph),
    Word {
        flags: Flags { edge_data: true, ..Flags::NONE },
        ..word("edges_data", Function::GraphGetEdges, Shape::Graph)
    },
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

/// What other lines of a script begin with.
const DECLARATIONS: [&str; 5] = ["stream", "event", "thread", "graph", "memory"];

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
            let unknown = || {
                let drivers = op.strip_prefix("cuda").map(|rest| format!("cu{rest}"));
                let name = drivers.as_deref().unwrap_or(op);
                let known = Function::ALL.iter().map(|function| function.name());
                let closest = closest(name, known).map(str::to_owned);
                line.wrong(OpError::UnknownFunction { name: op.to_owned(), closest })
            };
            call.function = Function::from_name(op).ok_or_else(unknown)?;
            parse_operands(line, names, &mut call)?;
            return Ok(call);
        }
        let known = WORDS.iter().map(|word| word.word).chain(DECLARATIONS);
        let closest = closest(op, known).map(str::to_owned);
        return Err(line.wrong(OpError::UnknownOperation { word: op.to_owned(), closest }));
    };
    call.function = word.function;
    call.flags = word.flags;
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
                call.graph = Some(line.new_graph(names)?);
            }
        }
        Shape::Work | Shape::NamedWork => {
            call.stream = Some(line.stream(names)?);
            call.work = line.work(names, word.shape == Shape::NamedWork)?;
        }
        Shape::Copy => {
            call.stream = Some(line.stream(names)?);
            let choices = "dtod, htod_pinned, htod_pageable, dtoh_pinned, dtoh_pageable";
            let named = |word: &str| COPIES.iter().find(|(name, ..)| *name == word);
            let (_, function, pageable) = line.choice("a direction", choices, named)?;
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
        shape => build(line, names, &mut call, shape)?,
    }
    line.finish()?;
    Ok(call)
}

/// The operands of a call about a graph that is built by hand.
fn build(
    line: &mut Line<'_>,
    names: &mut Names,
    call: &mut Call,
    shape: Shape,
) -> Result<(), SyntaxError> {
    call.graph = Some(line.named_graph(names)?);
    let mut build = Build::default();
    match shape {
        Shape::AddNode | Shape::AddNamed => {
            call.work = line.work(names, shape == Shape::AddNamed)?
        }
        Shape::AddMemory => call.memory = Some(line.memory(names)?),
        Shape::AddChild => build.inner.push(line.named_graph(names)?),
        Shape::AddConditional => {
            let kinds = "if, while, switch";
            let kind = line.choice("a kind of conditional", kinds, ConditionalKind::from_word)?;
            build.conditional = Some(kind);
            build.inner.push(line.new_graph(names)?);
            // As the driver has it: two bodies at most for `if`, one for `while`.
            let most = match kind {
                ConditionalKind::If => 2,
                ConditionalKind::While => 1,
                ConditionalKind::Switch => usize::MAX,
            };
            while build.inner.len() < most && line.peek().is_some_and(|word| word != "as") {
                build.inner.push(line.new_graph(names)?);
            }
        }
        Shape::AddEdge => {
            let (from, to) = (line.node(names)?, line.node(names)?);
            let mut port = Port::Full;
            if line.peek().is_some() {
                port =
                    line.choice("a port", "full, programmatic, launch_order", Port::from_word)?;
            }
            build.edge = Some((from, to, port));
        }
        _ => return Ok(()),
    }
    if shape != Shape::AddEdge {
        build.node = line.new_node(names)?;
    }
    call.build = Some(Box::new(build));
    Ok(())
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
        } else if let (Ok(stream), None) = (names.stream(word), call.from) {
            call.from = Some(stream);
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
    // What scripts do not say with a word of its own makes no other word.
    let flags = Flags { no_bytes: false, pageable: false, ..call.flags };
    let fits = |w: &&Word| w.function == call.function && w.flags == flags;
    let word = WORDS.iter().find(fits);
    match (copy, word) {
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
    let building = word.is_some_and(|word| word.shape.builds());
    let graph = call.graph.map(|g| names.graph_name(g));
    let operands = [
        graph.filter(|_| building),
        pair[0],
        pair[1],
        call.from.map(|s| names.stream_word(s)),
        call.mode.map(Mode::word),
        copy.map(|(direction, ..)| *direction),
        call.memory.map(|m| names.memory_name(m)),
        as_graph.then_some("as"),
        graph.filter(|_| !building),
    ];
    for operand in operands.into_iter().flatten() {
        out.push(' ');
        out.push_str(operand);
    }
    let build = call.build.as_deref().filter(|_| building);
    if let Some(Build { inner, conditional, edge, .. }) = build {
        let edge = edge.iter().flat_map(|(from, to, port)| {
            let port = Some(port.word()).filter(|_| *port != Port::Full);
            [Some(names.node_name(*from)), Some(names.node_name(*to)), port]
        });
        let inner = inner.iter().map(|graph| names.graph_name(*graph));
        for word in conditional.iter().map(|kind| kind.word()).chain(inner).chain(edge.flatten()) {
            out.push(' ');
            out.push_str(word);
        }
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
    if let Some(node) = build.and_then(|build| build.node) {
        write!(out, " as {}", names.node_name(node)).expect("a String takes everything");
    }
    if let Some(result) = call.result {
        write!(out, " {OBSERVED} {result}").expect("a String takes everything");
    }
    out
}
