//! What nodes take without a profiling library: events between them.
//!
//! The graph is built with its nodes one after another, as they are issued, on the data of a replay as it comes, and an event
//! is recorded after each. What lies between two events is the node and what the device needs to start it, to see it end
//! and to record the event. That is found in the same replay, from nodes that take a known time, and subtracted. The driver
//! promises half a microsecond of such times, and on an H200 they are within 1 µs of the library's (BENCHMARKS.md); the
//! median over some replays is what to look at. Costs: a node and an event for each node of the graph, a replay without any
//! overlap, 4 bytes a node for each replay, of which the first 16 MiB are kept.

use cudarc::driver::sys::{CUgraph, CUgraphNode, CUgraphNodeType};
use phonograph_graph::NodeId;
use smallvec::{SmallVec, smallvec};

use crate::bindings::InstantiateError;
use crate::device::Device;
use crate::error::{DriverError, call};
use crate::graph::{Dependencies, add_node, params_of};
use crate::launch::one_thread_node;
use crate::module::{Function, Module};
use crate::stream::Event;

/// Spins for [`KNOWN_NS`] by the device's clock.
const KNOWN: &str = ".version 7.0
.target sm_75
.address_size 64
.visible .entry known()
{
    .reg .b64 %rd<4>;
    .reg .pred %p;
    mov.u64 %rd1, %globaltimer;
again:
    mov.u64 %rd2, %globaltimer;
    sub.u64 %rd3, %rd2, %rd1;
    setp.lt.u64 %p, %rd3, 8000;
    @%p bra again;
    ret;
}
";

/// What a calibrating node takes, in nanoseconds.
const KNOWN_NS: f64 = 8000.0;

/// How many of them there are before the graph's first node. Before them comes one that is not looked at: the first node of
/// a launch waits for more than its predecessor.
const CALIBRATING: usize = 3;

/// Times that are kept.
const MOST: usize = 1 << 22;

/// Events between the nodes of one executable, and what they have told so far.
pub(crate) struct Split {
    device: Device,
    known: Function,
    /// One after each node that is timed; the first after the warm-up.
    events: Vec<Event>,
    /// The nodes, from the event after the last calibrating one on.
    nodes: Vec<NodeId>,
    /// What the next node comes after.
    last: SmallVec<[CUgraphNode; 1]>,
    /// Whether a replay has been issued that the events have not been asked about.
    issued: bool,
    /// By replay, what lies between the events, in nanoseconds.
    replays: Vec<Box<[f32]>>,
}

impl Split {
    /// Begins a graph of the driver: adds the calibrating nodes.
    pub fn begin(device: &Device, graph: CUgraph) -> Result<Self, InstantiateError> {
        let known = Module::from_ptx(device, KNOWN).and_then(|module| module.function("known"));
        let known = known.map_err(InstantiateError::Own)?;
        let (device, last) = (device.clone(), SmallVec::new());
        let (events, nodes, replays) = (Vec::new(), Vec::new(), Vec::new());
        let mut split = Self { device, known, events, nodes, last, issued: false, replays };
        for _ in 0..=CALIBRATING {
            let mut params = one_thread_node(&split.known);
            // SAFETY: the graph lives; the kernel takes no parameters and is kept here, which the graph's owner keeps.
            let node = unsafe { add_node(graph, &split.after(), &mut params) }?;
            split.mark(graph, smallvec![node])?;
        }
        Ok(split)
    }

    /// What the next node comes after.
    pub fn after(&self) -> Dependencies {
        let mut after = Dependencies::default();
        self.last.iter().for_each(|&node| after.push_full(node));
        after
    }

    /// Goes on behind a node; what it takes is of interest or not.
    pub fn passed(
        &mut self,
        graph: CUgraph,
        id: NodeId,
        ends: &SmallVec<[CUgraphNode; 1]>,
        is_timed: bool,
    ) -> Result<(), DriverError> {
        if ends.is_empty() {
            return Ok(());
        }
        // What is not timed would count for the next node that is.
        self.mark(graph, ends.clone())?;
        let id = if is_timed { id } else { NOBODY };
        self.nodes.push(id);
        Ok(())
    }

    /// Records an event after these nodes.
    fn mark(
        &mut self,
        graph: CUgraph,
        ends: SmallVec<[CUgraphNode; 1]>,
    ) -> Result<(), DriverError> {
        self.last = ends;
        let event = Event::with_time(&self.device)?;
        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD);
        params.__bindgen_anon_1.eventRecord.event = event.handle();
        // SAFETY: the graph lives, the nodes are its own, and the event is kept here.
        let node = unsafe { add_node(graph, &self.after(), &mut params) }?;
        self.last = smallvec![node];
        self.events.push(event);
        Ok(())
    }

    /// Notes that a replay is issued.
    pub fn issue(&mut self) {
        self.issued = true;
    }

    /// Asks the events what the last replay took, if one was issued since this was last asked. It is over.
    pub fn collect(&mut self) -> Result<(), DriverError> {
        let kept = self.replays.len() * self.events.len();
        if !std::mem::take(&mut self.issued) || kept >= MOST {
            return Ok(());
        }
        let _current = self.device.enter()?;
        let between = self.events.windows(2).map(|pair| {
            let mut milliseconds = 0f32;
            let [from, to] = [pair[0].handle(), pair[1].handle()];
            // SAFETY: both events live, have times, and were recorded by a replay that is over.
            unsafe { call!(cuEventElapsedTime_v2(&mut milliseconds, from, to)) }?;
            Ok(milliseconds * 1e6)
        });
        self.replays.push(between.collect::<Result<_, DriverError>>()?);
        Ok(())
    }

    /// For each of so many nodes the median over the replays, in nanoseconds; `None` for those that are not timed or have not
    /// run.
    pub fn times(&self, count: usize) -> Vec<Option<u64>> {
        let mut times = vec![None; count];
        for (at, id) in self.nodes.iter().enumerate().filter(|(_, id)| **id != NOBODY) {
            // Each replay by its own calibration: the clocks may change between replays.
            let mut runs: Vec<f64> = self.replays.iter().map(|replay| taken(replay, at)).collect();
            runs.sort_unstable_by(f64::total_cmp);
            times[id.index()] = runs.get(runs.len() / 2).map(|&ns| ns as u64);
        }
        times
    }
}

/// What stands for a node that is not timed.
const NOBODY: NodeId = NodeId(u32::MAX);

/// What the node in this place took in a replay, beyond what the events and the start of a node take.
fn taken(replay: &[f32], at: usize) -> f64 {
    let (calibrating, nodes) = replay.split_at(CALIBRATING);
    let around = calibrating.iter().copied().fold(f32::INFINITY, f32::min);
    let around = (f64::from(around) - KNOWN_NS).max(0.0);
    (f64::from(nodes[at]) - around).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_events_is_taken_by_the_nodes_but_for_what_calibration_finds() {
        let replay = [10_500.0, 9_500.0, 9_600.0, 1_500.0, 1_200.0, 21_500.0];
        let times: Vec<f64> = (0..3).map(|at| taken(&replay, at)).collect();
        assert_eq!(times, [0.0, 0.0, 20_000.0]);
        // A clock that runs ahead of the events takes nothing off.
        let fast = [7_900.0, 7_900.0, 7_900.0, 500.0];
        assert_eq!(taken(&fast, 0), 500.0);
    }
}
