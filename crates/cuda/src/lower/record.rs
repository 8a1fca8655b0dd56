//! Nodes added one by one to a graph that the driver records.
//!
//! In: a graph of one node, the driver's graph, and what the node comes after. Out: the driver's nodes that later ones come
//! after; and in the end, with the driver's graph, an [`Exec`] like any other. The order is the recording's, so there is no
//! schedule and no race to be checked here.

use std::cell::Cell;
use std::sync::{Arc, Mutex, Weak};

use cudarc::driver::sys::{CUfunction, CUgraph, CUgraphInstantiate_flags, CUgraphNode};
use phonograph_graph::{ComputeGraph, NodeId, NodeKind, Scalar, Schedule, SlotId};
use phonograph_runtime::cpu::kernels::KernelError;
use phonograph_runtime::refused::{NodePath, check_races};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::kernel::Named;
use super::scope::{Place, Scope};
use super::words::Words;
use super::{Lowering, ProductBy, Target};
use crate::adopted::Adopted;
use crate::bindings::{Bindings, InstantiateError};
use crate::exec::{Exec, Faults, Op, ScalarSlot};
use crate::front::{Front, PartId};
use crate::graph::{Dependencies, Executable, Graph};
use crate::host_call::HostCall;
use crate::memory::Memory;
use crate::module::Function;
use crate::order::{Turn, Uses};
use crate::spares::Origin;

/// Slots that one recording can have: their place on the device is fixed before the first is known.
const MAX_SLOTS: usize = 4096;

/// What the nodes recorded so far refer to.
#[derive(Default)]
pub(crate) struct Recorded {
    ops: Vec<Op>,
    hosts: Vec<Arc<HostCall>>,
    arenas: Vec<Memory>,
    /// By address.
    memory: FxHashMap<u64, Memory>,
    scalar_slots: Vec<ScalarSlot>,
    /// Of the parameter block; there is room for [`MAX_SLOTS`].
    words: Words,
    functions: FxHashMap<CUfunction, Function>,
    products: Vec<(NodePath, ProductBy)>,
    faults: Option<Faults>,
    host_fault: Arc<Mutex<Option<(NodePath, KernelError)>>>,
    has_priorities: bool,
    /// What the driver says of the kernels that were bound by name.
    named: FxHashMap<Arc<str>, Arc<Named>>,
    /// Of each node recorded, its path, and the driver's nodes that are its own.
    nodes: Vec<(NodePath, SmallVec<[CUgraphNode; 1]>, bool)>,
}

// SAFETY: the driver's handles in it may be used from any thread, one at a time, which `&mut` sees to.
unsafe impl Send for Recorded {}

impl Recorded {
    /// A scalar that is set before a replay.
    pub fn slot(&mut self, default: Scalar) -> SlotId {
        let slot = SlotId::from_index(self.scalar_slots.len());
        let (dtype, value, uses, word) = (default.dtype(), default, Vec::new(), None);
        self.scalar_slots.push(ScalarSlot { dtype, value, uses, word });
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
        let mut lowering = Lowering {
            target,
            bindings,
            ops: std::mem::take(&mut self.ops),
            hosts: std::mem::take(&mut self.hosts),
            arenas: std::mem::take(&mut self.arenas),
            memory: FxHashMap::default(),
            events: FxHashMap::default(),
            scalar_slots: std::mem::take(&mut self.scalar_slots),
            pointer_slots: FxHashMap::default(),
            faults: self.faults.take(),
            host_fault: self.host_fault.clone(),
            named: std::mem::take(&mut self.named),
            recipes: FxHashMap::default(),
            functions: std::mem::take(&mut self.functions),
            words: std::mem::take(&mut self.words),
            products: std::mem::take(&mut self.products),
            blas: Vec::new(),
            changeable: false,
            part: PartId(0),
            has_priorities: self.has_priorities,
            allocated: Vec::new(),
            split: None,
            made: None,
            renewed: 0,
        };
        let node = NodeId(0);
        let number = NodeId::from_index(self.nodes.len());
        let path = NodePath(vec![(number, graph.node(node).name.to_string())]);
        let known = lowering.faults.as_ref().map_or(0, |faults| faults.nodes.len());
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
            let mut scope = Scope {
                graph,
                schedule: &schedule,
                driver,
                place: Place::Outermost,
                path: Vec::new(),
                bases,
                slots: slots.to_vec(),
                ends: vec![SmallVec::new(); graph.node_count()],
                parts: Vec::new(),
            };
            lowering.node(&mut scope, node, after)
        });
        // What a replay tells of the node has its number in the recording, not in the graph that it came in.
        for (path, _) in lowering.faults.iter_mut().flat_map(|faults| &mut faults.nodes[known..]) {
            path.0[0].0 = number;
        }
        self.memory.extend(lowering.memory.into_values().map(|m| (m.address(), m)));
        self.ops = lowering.ops;
        self.hosts = lowering.hosts;
        self.arenas = lowering.arenas;
        self.scalar_slots = lowering.scalar_slots;
        self.words = lowering.words;
        self.functions = lowering.functions;
        self.products = lowering.products;
        self.faults = lowering.faults;
        self.named = lowering.named;
        self.has_priorities = lowering.has_priorities;
        let can_be_disabled = matches!(
            graph.node(node).kind,
            NodeKind::Kernel(_) | NodeKind::Memcpy(_) | NodeKind::Memset(_)
        );
        self.nodes.push((path, lowered?, can_be_disabled));
        Ok(self.nodes.last().map_or(&[], |(_, ends, _)| &ends[..]))
    }

    /// Makes what was recorded into the driver's graph executable.
    pub fn seal(self, target: Target<'_>, graph: Graph) -> Result<Exec, InstantiateError> {
        let device = target.devices[0].clone();
        let priorities = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        let flags = if self.has_priorities { priorities } else { 0 };
        let executable = Executable::new(&graph, u64::from(flags)).map_err(|refused| {
            let at = self.nodes.iter().find(|(_, ends, _)| ends.contains(&refused.node));
            match at.filter(|_| !refused.node.is_null()) {
                Some((path, ..)) => {
                    InstantiateError::Node { node: path.clone(), source: refused.error }
                }
                None => {
                    let verdict = format!("{:?}", refused.verdict);
                    InstantiateError::Graph { source: refused.error, verdict }
                }
            }
        })?;
        let switches = self.nodes.into_iter().map(|(_, ends, can)| can.then_some(ends));
        let memory = self.memory.into_values().enumerate();
        let rest = Box::default();
        let front = Front { executable, turn: Turn::default(), pending: true, rest };
        Ok(Exec {
            front,
            origins: vec![Origin::new(graph, None)],
            parts: Box::default(),
            functions: self.functions.into_values().collect(),
            _blas: Vec::new(),
            block: self.words.into_block(),
            products: self.products,
            // The device that shares it orders its launches.
            written: FxHashSet::default(),
            is_opaque: true,
            uses: Uses::default(),
            everything: target.everything.clone(),
            ops: self.ops,
            changed: Vec::new(),
            hosts: self.hosts,
            arenas: self.arenas,
            memory: memory
                .map(|(at, memory)| (phonograph_graph::BufferId::from_index(at), memory))
                .collect(),
            pointer_slots: FxHashMap::default(),
            unbound: Default::default(),
            retired: Vec::new(),
            scalar_slots: self.scalar_slots,
            events: FxHashMap::default(),
            switches: switches.collect(),
            faults: self.faults,
            host_fault: self.host_fault,
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
