//! Nodes added one by one to a graph that the driver records.
//!
//! In: a graph of one node, the driver's graph, and what the node comes after. Out: the driver's nodes that later ones come
//! after; and in the end, with the driver's graph, an [`Exec`] like any other. The order is the recording's, so there is no
//! schedule and no race to be checked here.

use std::cell::Cell;
use std::sync::Weak;

use cudarc::driver::sys::{CUgraph, CUgraphInstantiate_flags, CUgraphNode};
use phonograph_graph::{ComputeGraph, NodeId, Scalar, Schedule, SlotId};
use phonograph_runtime::refused::{NodePath, can_be_disabled, check_races};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::scope::Scope;
use super::{Held, Lowering, Target};
use crate::adopted::Adopted;
use crate::bindings::{Bindings, InstantiateError};
use crate::exec::Exec;
use crate::front::Front;
use crate::graph::{Dependencies, Executable, Graph};
use crate::memory::Memory;
use crate::order::{Turn, Uses};
use crate::slots::ScalarSlot;
use crate::spares::Origin;

/// Slots that one recording can have: their place on the device is fixed before the first is known.
const MAX_SLOTS: usize = 4096;

/// What the nodes recorded so far refer to.
#[derive(Default)]
pub(crate) struct Recorded {
    /// Of the words there is room for [`MAX_SLOTS`].
    held: Held,
    /// By address.
    memory: FxHashMap<u64, Memory>,
    /// Of each node recorded, its path, and the driver's nodes that are its own.
    nodes: Vec<(NodePath, SmallVec<[CUgraphNode; 1]>, bool)>,
}

// SAFETY: the driver's handles in it may be used from any thread, one at a time, which `&mut` sees to.
unsafe impl Send for Recorded {}

impl Recorded {
    /// A scalar that is set before a replay.
    pub fn slot(&mut self, default: Scalar) -> SlotId {
        let slot = SlotId::from_index(self.held.scalar_slots.len());
        self.held.scalar_slots.push(ScalarSlot::new(default));
        slot
    }

    /// Adds the one node of `graph`, whose slots are `slots` of this recording. What has been added by a call that fails
    /// stays in the driver's graph, and what it refers to stays here.
    pub fn add(
        &mut self,
        target: Target<'_>,
        driver: CUgraph,
        after: &Dependencies,
        graph: &ComputeGraph,
        slots: &[SlotId],
        bindings: &Bindings<'_>,
    ) -> Result<&[CUgraphNode], InstantiateError> {
        if graph.node(NodeId(0)).kind.has_inner_graphs() {
            check_races(graph)?;
        }
        let device = target.devices[0].clone();
        let _current = device.enter()?;
        let mut lowering = Lowering::new(target, bindings, std::mem::take(&mut self.held));
        let node = NodeId(0);
        let number = NodeId::from_index(self.nodes.len());
        let path = NodePath(vec![(number, graph.node(node).name.to_string())]);
        let known = lowering.held.faults.as_ref().map_or(0, |faults| faults.nodes.len());
        let schedule = Schedule::sequential(graph);
        let room = if slots.is_empty() {
            Ok(())
        } else if slots.iter().any(|slot| slot.index() >= MAX_SLOTS) {
            let reason = format!("a recording has at most {MAX_SLOTS} slots");
            Err(InstantiateError::Unsupported { node: path.clone(), reason })
        } else {
            lowering.room_for(MAX_SLOTS).map_err(InstantiateError::from)
        };
        let lowered = room.and_then(|()| lowering.bind(graph)).and_then(|bases| {
            let mut scope = Scope::new(graph, &schedule, driver, bases, slots.to_vec());
            lowering.node(&mut scope, node, after)
        });
        // What a replay tells of the node has its number in the recording, not in the graph that it came in.
        for (path, _) in
            lowering.held.faults.iter_mut().flat_map(|faults| &mut faults.nodes[known..])
        {
            path.0[0].0 = number;
        }
        self.memory.extend(lowering.memory.into_values().map(|m| (m.address(), m)));
        self.held = lowering.held;
        let can_be_disabled = can_be_disabled(&graph.node(node).kind);
        self.nodes.push((path, lowered?, can_be_disabled));
        Ok(self.nodes.last().map_or(&[], |(_, ends, _)| &ends[..]))
    }

    /// Makes what was recorded into the driver's graph executable.
    pub fn seal(self, target: Target<'_>, graph: Graph) -> Result<Exec, InstantiateError> {
        let device = target.devices[0].clone();
        let priorities = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        let flags = if self.held.has_priorities { priorities } else { 0 };
        let executable = Executable::new(&graph, u64::from(flags)).map_err(|refused| {
            refused.explain(|node| {
                let at = self.nodes.iter().find(|(_, ends, _)| ends.contains(&node))?;
                Some(at.0.clone())
            })
        })?;
        let switches = self.nodes.into_iter().map(|(_, ends, can)| can.then_some(ends));
        let memory = self.memory.into_values().enumerate();
        let rest = Box::default();
        let front = Front { executable, turn: Turn::default(), pending: true, rest };
        Ok(Exec {
            front,
            origins: vec![Origin::new(graph, None)],
            parts: Box::default(),
            functions: self.held.functions.into_values().collect(),
            _blas: Vec::new(),
            block: self.held.words.into_block(),
            products: self.held.products,
            // The device that shares it orders its launches.
            written: FxHashSet::default(),
            is_opaque: true,
            uses: Uses::default(),
            everything: target.everything.clone(),
            ops: self.held.ops,
            changed: Vec::new(),
            hosts: self.held.hosts,
            arenas: self.held.arenas,
            memory: memory
                .map(|(at, memory)| (phonograph_graph::BufferId::from_index(at), memory))
                .collect(),
            pointer_slots: FxHashMap::default(),
            unbound: Default::default(),
            retired: Vec::new(),
            scalar_slots: self.held.scalar_slots,
            events: FxHashMap::default(),
            switches: switches.collect(),
            faults: self.held.faults,
            host_fault: self.held.host_fault,
            split: None,
            adopted: Adopted::default(),
            device,
            owner: target.owner.clone(),
            last: None,
            renewed: 0,
            spares: Weak::new(),
            is_changed: Cell::new(true),
        })
    }
}
