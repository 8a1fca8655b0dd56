//! Rows about single calls: the call is put into the smallest program that its row describes, and the model answers that.
//!
//! A row gives a function by name, with words in parentheses about its operands. Words that say nothing about captures (`pinned`,
//! `cluster 2`, …) are passed over: they are for people.

use phonograph_trace::recording::{CaptureStatus, MatrixRow, MatrixThread, NodeRow};
use phonograph_trace::{
    Call, CuResult, EventId, Flags, Function, GraphId, MemoryId, Mode, Stream, StreamId,
    StreamKind, ThreadId,
};

use super::{Divergence, Tally};
use crate::model::{Class, Effect, Model, ModelError, Status, class};

const CAPTURING: Stream = Stream::Created(StreamId(0));
const OTHER: Stream = Stream::Created(StreamId(1));
const FRESH_EVENT: EventId = EventId(0);
const RECORDED_EVENT: EventId = EventId(1);
const POOL_MEMORY: MemoryId = MemoryId(0);
const NEW_MEMORY: MemoryId = MemoryId(1);

pub(super) fn tally_matrix(rows: &[MatrixRow]) -> Tally {
    let mut tally = Tally::new("rows");
    for row in rows {
        let thread = if row.thread == MatrixThread::Same { "the same" } else { "another" };
        let record = format!(
            "{} in {} from {thread} thread beside a {:?} stream",
            row.call, row.mode, row.stream
        );
        let recorded = format!("{} {:?} {}", row.result, row.capture, row.end);
        let answered = answer_matrix(row).unwrap_or_else(|what| what);
        tally.count(diverges(record, "result, capture, end", recorded, answered));
    }
    tally
}

pub(super) fn tally_nodes(rows: &[NodeRow]) -> Tally {
    let mut tally = Tally::new("rows");
    for row in rows {
        let NodeRow { call, mode, result, capture, kernel_after, end, nodes, edges, instantiate } =
            row;
        let mut edges = edges.clone();
        edges.sort_unstable();
        let instantiate = instantiate.map_or("null".to_owned(), |result| result.to_string());
        let recorded =
            format!("{result} {capture:?} {kernel_after} {end} {nodes:?} {edges:?} {instantiate}");
        let answered = answer_nodes(row).unwrap_or_else(|what| what);
        tally.count(diverges(format!("{call} in {mode}"), "the answer", recorded, answered));
    }
    tally
}

fn diverges(record: String, what: &str, driver: String, model: String) -> Option<Divergence> {
    (driver != model).then(|| Divergence {
        record,
        step: None,
        what: what.to_owned(),
        driver,
        model,
    })
}

/// The model's answer in the form that the row is compared in, or why there is none.
fn answer_matrix(row: &MatrixRow) -> Result<String, String> {
    let thread = ThreadId(u32::from(row.thread == MatrixThread::Other));
    let mut model = capturing(row.stream, row.mode)?;
    let result = result(&mut model, &Call { thread, ..call(&row.call, OTHER)? })?;
    let status = status(&model);
    let end = result_of_end(&mut model)?.0;
    Ok(format!("{result} {status:?} {end}"))
}

fn answer_nodes(row: &NodeRow) -> Result<String, String> {
    let mut model = capturing(StreamKind::NonBlocking, row.mode)?;
    let result_of_call = result(&mut model, &call(&row.call, CAPTURING)?)?;
    let status = status(&model);
    let kernel_after = result(&mut model, &Call::on(Function::LaunchKernel, CAPTURING))?;
    let (end, effect) = result_of_end(&mut model)?;
    let (mut nodes, mut edges, mut instantiate) = (Vec::new(), Vec::new(), "null".to_owned());
    if let Effect::Ended(graph) = effect {
        nodes = graph.nodes.iter().map(|node| node.kind.name().to_owned()).collect();
        edges = graph
            .edges()
            .map(|edge| {
                let (port, kind) = edge.data();
                (edge.from.index(), edge.to.index(), port, kind)
            })
            .collect();
        edges.sort_unstable();
        instantiate = CuResult::SUCCESS.to_string();
    }
    Ok(format!(
        "{result_of_call} {status:?} {kernel_after} {end} {nodes:?} {edges:?} {instantiate}"
    ))
}

/// A stream that captures one kernel, beside another stream, pool memory and an event that was recorded before.
fn capturing(kind: StreamKind, mode: Mode) -> Result<Model, String> {
    let mut model = Model::new(&[kind, StreamKind::NonBlocking], 2);
    for call in [
        Call { event: Some(RECORDED_EVENT), ..Call::on(Function::EventRecord, OTHER) },
        Call { memory: Some(POOL_MEMORY), ..Call::on(Function::MemAllocAsync, OTHER) },
        Call { mode: Some(mode), ..Call::on(Function::StreamBeginCapture, CAPTURING) },
        Call::on(Function::LaunchKernel, CAPTURING),
    ] {
        result(&mut model, &call)?;
    }
    Ok(model)
}

fn result(model: &mut Model, call: &Call) -> Result<CuResult, String> {
    model.apply(call).map(|outcome| outcome.result).map_err(|error: ModelError| error.to_string())
}

fn result_of_end(model: &mut Model) -> Result<(CuResult, Effect), String> {
    let outcome = model
        .apply(&Call::on(Function::StreamEndCapture, CAPTURING))
        .map_err(|error| error.to_string())?;
    Ok((outcome.result, outcome.effect))
}

fn status(model: &Model) -> CaptureStatus {
    match model.status(StreamId(0)) {
        Ok(Status::Active { .. }) => CaptureStatus::Active,
        Ok(Status::Invalidated) => CaptureStatus::Invalidated,
        Ok(Status::None | Status::Destroyed) | Err(_) => CaptureStatus::None,
    }
}

/// The call that a row names: a function, and words about its operands; on `stream` unless they say otherwise.
fn call(text: &str, stream: Stream) -> Result<Call, String> {
    let (name, words) = match text.split_once('(') {
        Some((name, words)) => (name, words.trim_end_matches(')')),
        None => (text, ""),
    };
    let function = function(name)?;
    let mut call = Call {
        stream: Some(stream),
        from: Some(CAPTURING),
        event: Some(FRESH_EVENT),
        memory: Some(NEW_MEMORY),
        graph: Some(GraphId(0)),
        mode: Some(Mode::Relaxed),
        ..Call::new(function)
    };
    // Whoever records makes graphs that fit the call; there is nothing to know of them.
    if matches!(class(function).0, Class::AddsNode(_) | Class::AddsEdge | Class::AsksForEdges) {
        call.graph = None;
    }
    let flags: &mut Flags = &mut call.flags;
    for word in words.split(", ") {
        match word {
            "other" | "other stream" => call.stream = Some(OTHER),
            "legacy" => call.stream = Some(Stream::Legacy),
            "ptds" => call.stream = Some(Stream::PerThread),
            "from legacy" => call.from = Some(Stream::Legacy),
            "recorded before" => call.event = Some(RECORDED_EVENT),
            "pool memory from before" => call.memory = Some(POOL_MEMORY),
            "external" => flags.external = true,
            "pageable" => flags.pageable = true,
            "0 bytes" => flags.no_bytes = true,
            "programmatic stream serialization" => flags.programmatic = true,
            _ => {}
        }
    }
    Ok(call)
}

/// The function of a row's name. Rows shorten some names, and join two calls with a plus when the second decides.
fn function(name: &str) -> Result<Function, String> {
    if name.ends_with("+trim") {
        return Ok(Function::MemPoolTrimTo);
    }
    let shortened =
        || Function::ALL.iter().copied().find(|function| function.name().starts_with(name));
    Function::from_name(name).or_else(shortened).ok_or_else(|| format!("`{name}` has no class"))
}
