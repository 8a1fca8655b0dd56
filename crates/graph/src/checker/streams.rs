//! Every edge, and every reuse edge, is ordered by what streams and events guarantee.
//!
//! One pass in issue order. For each stream a clock says how many steps of every stream are complete before its
//! next step starts: its own all, others as far as events that it waited for stood for (vector clocks).

use rustc_hash::FxHashMap;

use crate::checker::{StepId, Violation};
use crate::{ComputeGraph, MAX_STREAMS, NodeId, Schedule, Step};

/// Where a node runs: the stream, the step's place on it, and the node's place in the step.
#[derive(Clone, Copy)]
struct Place {
    stream: u32,
    position: u32,
    within: u32,
}

pub(super) fn check(graph: &ComputeGraph, schedule: &Schedule, found: &mut Vec<Violation>) {
    let streams = schedule.streams as usize;
    if schedule.streams > MAX_STREAMS {
        let stream = crate::StreamId(schedule.streams - 1);
        let streams = MAX_STREAMS;
        found.push(Violation::UnknownStream { step: StepId(0), stream, streams });
        return;
    }
    let mut clocks = vec![vec![0u32; streams]; streams];
    let mut events: FxHashMap<_, Vec<u32>> = FxHashMap::default();
    let mut places: Vec<Option<Place>> = vec![None; graph.node_count()];
    let mut before: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
    for &(from, to) in &schedule.reuse {
        if graph.get(from).is_none() || graph.get(to).is_none() {
            found.push(Violation::UnknownReuse { from, to });
        } else {
            before.entry(to).or_default().push(from);
        }
    }
    for (index, step) in schedule.steps.iter().enumerate() {
        let stream = step.stream().index();
        if stream >= streams {
            continue; // reported by `coverage`
        }
        match step {
            Step::Run { nodes, .. } => {
                let clock = &mut clocks[stream];
                for (within, &node) in (0u32..).zip(nodes) {
                    if graph.get(node).is_none() {
                        continue; // reported by `coverage`
                    }
                    let here = Place { stream: stream as u32, position: clock[stream], within };
                    let ordered = |from: NodeId| {
                        places[from.index()].is_some_and(|place| comes_before(place, here, clock))
                    };
                    let edges = graph.predecessors(node).iter().copied();
                    let loose = edges.filter(|&from| !ordered(from));
                    found.extend(loose.map(|from| Violation::UnorderedEdge { from, to: node }));
                    let reuse = before.get(&node).into_iter().flatten().copied();
                    let loose = reuse.filter(|&from| !ordered(from));
                    found.extend(loose.map(|from| Violation::UnorderedReuse { from, to: node }));
                    places[node.index()] = Some(here);
                }
                clock[stream] += 1;
            }
            Step::Record { event, .. } => {
                clocks[stream][stream] += 1;
                events.insert(*event, clocks[stream].clone());
            }
            Step::Wait { event, .. } => match events.get(event) {
                None => {
                    let (step, event) = (StepId(index as u32), *event);
                    found.push(Violation::WaitBeforeRecord { step, event });
                }
                Some(recorded) => {
                    for (own, &other) in clocks[stream].iter_mut().zip(recorded) {
                        *own = (*own).max(other);
                    }
                    clocks[stream][stream] += 1;
                }
            },
        }
    }
}

fn comes_before(earlier: Place, here: Place, clock: &[u32]) -> bool {
    if earlier.stream == here.stream {
        // A fused step runs its nodes in the order listed.
        (earlier.position, earlier.within) < (here.position, here.within)
    } else {
        earlier.position < clock[earlier.stream as usize]
    }
}
