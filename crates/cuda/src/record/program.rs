//! Running a program of calls and noting what can be seen after each.
//!
//! Every thread of the program is a thread here, fresh, so that its capture mode is the default; they take turns. The thread
//! that looks is relaxed and is none of them. A node or a capture that was not seen before is named by the step after which
//! it is; that is also how [`conformance`](phonograph_capture::conformance) names them.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use cudarc::driver::sys::{CUgraph, CUgraphNode};
use phonograph_trace::recording::{Program, RecordedGraph, RecordedStatus, Step};
use phonograph_trace::{Call, CuResult, ThreadId};
use rustc_hash::FxHashMap;

use super::perform::{Answer, State, supported};
use super::{RecordError, Recorder};
use crate::captures::relaxed;
use crate::error::DriverError;
use crate::foreign::{ImportError, edges_of, kind_name, nodes_of};
use crate::graph::{Executable, Graph};
use crate::stream_capture::CaptureInfo;

/// A node or edge whose step was not seen.
const UNSEEN: i64 = -1;

impl Recorder {
    /// The program with this driver's answers.
    ///
    /// # Errors
    /// [`RecordError::Words`] and [`RecordError::Unsupported`] before any call is made.
    pub fn program(&self, asked: &Program) -> Result<Program, RecordError> {
        let (_, calls) = asked.calls().map_err(|error| RecordError::Words {
            id: asked.id.clone(),
            step: error.place.line as usize - 1,
            error: error.error.to_string(),
        })?;
        if let Some(step) = calls.iter().position(|call| !supported(call)) {
            let op = asked.steps[step].op.clone();
            return Err(RecordError::Unsupported { id: asked.id.clone(), step, op });
        }
        let _current = self.device.enter()?;
        let _relaxed = relaxed()?;
        let state = Mutex::new(State::new(&asked.streams, asked.events)?);
        let mut seen = Seen::default();
        let mut steps = Vec::with_capacity(calls.len());
        thread::scope(|scope| {
            let mut threads: BTreeMap<ThreadId, (Sender<Call>, Receiver<Answered>)> =
                BTreeMap::new();
            for call in &calls {
                threads.entry(call.thread).or_insert_with(|| {
                    let (ask, asked) = channel::<Call>();
                    let (answer, answers) = channel();
                    let state = &state;
                    scope.spawn(move || {
                        let entered = self.device.enter();
                        for call in asked {
                            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                            let answered = entered.as_ref().map_err(Clone::clone);
                            let answered = answered.map(|_| state.perform(self, &call));
                            if answer.send(answered).is_err() {
                                return;
                            }
                        }
                    });
                    (ask, answers)
                });
            }
            // This thread looks, and is none of the program's.
            for (at, (call, step)) in calls.iter().zip(&asked.steps).enumerate() {
                let (ask, answers) = &threads[&call.thread];
                let gone = "a thread of the program lives until nobody asks";
                ask.send(call.clone()).expect(gone);
                let answer = answers.recv().expect(gone)?;
                let state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let streams = seen.look(at, &state)?;
                let graph = match answer.ended {
                    Some(graph) if !graph.is_null() => Some(seen.graph(at, self, &state, graph)?),
                    _ => None,
                };
                let (op, result, previous) = (step.op.clone(), answer.result, answer.previous);
                steps.push(Step { op, result, streams, graph, previous });
            }
            Ok::<_, RecordError>(())
        })?;
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.finish(self)?;
        Ok(Program { steps, ..asked.clone() })
    }
}

type Answered = Result<Answer, DriverError>;

/// What was seen, and the steps it is named by.
#[derive(Default)]
struct Seen {
    captures: FxHashMap<u64, usize>,
    /// By capture, since the driver uses the handles of nodes again.
    nodes: FxHashMap<u64, FxHashMap<CUgraphNode, i64>>,
    /// The capture that a graph was last seen in, and the step after which it was: the driver uses the handles of graphs again.
    graphs: FxHashMap<CUgraph, (u64, usize)>,
}

impl Seen {
    /// The status of every stream after a step.
    fn look(&mut self, step: usize, state: &State) -> Result<Vec<RecordedStatus>, RecordError> {
        let mut found = Vec::new();
        for stream in state.streams() {
            let Some(stream) = stream else {
                found.push(None);
                continue;
            };
            // SAFETY: the stream was not destroyed, and the threads of the program wait for this one.
            found.push(Some(unsafe { CaptureInfo::of(stream) }?));
        }
        for info in found.iter().flatten() {
            if let CaptureInfo::Active { capture, graph, .. } = info {
                self.captures.entry(*capture).or_insert(step);
                self.graphs.insert(*graph, (*capture, step));
                let names = self.nodes.entry(*capture).or_default();
                // SAFETY: the graph is that of an open capture.
                for node in unsafe { nodes_of(*graph) }.map_err(refused)? {
                    names.entry(node).or_insert(step as i64);
                }
            }
        }
        Ok(found
            .into_iter()
            .map(|info| match info {
                None => RecordedStatus::Destroyed,
                Some(CaptureInfo::None) => RecordedStatus::None,
                Some(CaptureInfo::Invalidated) => RecordedStatus::Invalidated,
                Some(CaptureInfo::Active { capture, after, .. }) => {
                    let names = &self.nodes[&capture];
                    let name = |(node, _)| names.get(&node).copied().unwrap_or(UNSEEN);
                    let mut deps: Vec<i64> = after.iter().map(name).collect();
                    deps.sort_unstable();
                    RecordedStatus::Active { capture: self.captures[&capture], deps }
                }
            })
            .collect())
    }

    /// The graph that an end handed over.
    fn graph(
        &self,
        step: usize,
        recorder: &Recorder,
        state: &State,
        graph: CUgraph,
    ) -> Result<RecordedGraph, RecordError> {
        // A graph that was not seen just before its end is one that no shown stream captured, whatever had its handle before.
        let same = |(_, seen): &&(u64, usize)| seen + 1 >= step || state.is_kept(graph);
        let names =
            self.graphs.get(&graph).filter(same).and_then(|(capture, _)| self.nodes.get(capture));
        let name =
            |node: &CUgraphNode| names.and_then(|names| names.get(node)).copied().unwrap_or(UNSEEN);
        // SAFETY: the driver has handed the graph over, and it lives until it is discarded below.
        let (nodes, (from, to, _)) =
            unsafe { (nodes_of(graph).map_err(refused)?, edges_of(graph).map_err(refused)?) };
        let mut named = Vec::with_capacity(nodes.len());
        for node in &nodes {
            // SAFETY: the node is of this graph.
            let kind = unsafe { kind_name(*node) }.map_err(refused)?;
            named.push((name(node), kind.to_owned()));
        }
        let mut edges: Vec<(i64, i64)> =
            from.iter().zip(&to).map(|(from, to)| (name(from), name(to))).collect();
        named.sort_unstable();
        edges.sort_unstable();
        // SAFETY: the graph lives; the borrowed handle is forgotten, not destroyed.
        let borrowed =
            std::mem::ManuallyDrop::new(unsafe { Graph::adopt(&recorder.device, graph) });
        let made = Executable::new(&borrowed, 0).map_err(|refused| refused.error.code);
        let instantiate = Some(CuResult(made.map_or_else(|code| code, |_| 0)));
        state.discard(graph);
        Ok(RecordedGraph { nodes: named, edges, instantiate })
    }
}

fn refused(error: ImportError) -> RecordError {
    match error {
        ImportError::Driver(error) => error.into(),
        other => RecordError::Words { id: String::new(), step: 0, error: other.to_string() },
    }
}
