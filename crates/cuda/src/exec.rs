//! An instantiated graph: what its nodes refer to, and what its launches do before and after. What changes between them
//! is in [`slots`](crate::slots).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode};
use phonograph_graph::{Buffer, BufferId, EventId, NodeId};
use phonograph_kernels::cuda::FAULT_WORDS;
use phonograph_runtime::cpu::kernels::KernelError;
use phonograph_runtime::cpu::{NodeFault, NodePath, SetError};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::adopted::{Adopted, StaleMemory};
use crate::block::Block;
use crate::cublas::Handle;
use crate::device::Device;
use crate::error::{DriverError, call, log_drop};
use crate::front::{Front, PartId};
use crate::graph::Graph;
use crate::host_call::HostCall;
use crate::lower::ProductBy;
use crate::memory::{Memory, Owner};
use crate::module::Function;
use crate::order::{self, Uses};
use crate::profile::Split;
use crate::slots::{Op, OpId, PointerSlot, ScalarSlot};
use crate::spares::{Origin, Spare, Spares};
use crate::stream::{Event, Stream};

/// How much memory bound away is kept before a launch waits for those before it.
const MAX_RETIRED: usize = 64;

/// Why a replay failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The graph was instantiated by another [`Cuda`](crate::Cuda).
    #[error("the graph was instantiated on another device")]
    OtherDevice,
    /// A pointer slot without memory.
    #[error("pointer slot {0} has no memory bound to it")]
    Unbound(BufferId),
    /// Memory of somebody else's that was freed since it was [adopted](crate::Cuda::adopt), and perhaps allocated anew.
    /// Nothing has run.
    #[error("{buffer} ({name}){} works on memory that is gone: {source}", used_by(.node))]
    Stale {
        /// The buffer that the memory is bound to.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// The first node that uses it.
        node: Option<NodePath>,
        /// What the memory was, and what lies there now.
        source: StaleMemory,
    },
    /// A node failed. The others have run.
    #[error("node {node}: {cause}")]
    Node {
        /// The node; for one in an inner graph, the way down to it.
        node: NodePath,
        /// What happened.
        cause: NodeFault,
    },
    /// The driver refused, or reports what a kernel did wrong; after the latter the device is beyond use in this process.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

fn used_by(node: &Option<NodePath>) -> String {
    node.as_ref().map_or_else(String::new, |node| format!(", used by node {node},"))
}

/// A graph made ready to replay on a [`Cuda`](crate::Cuda). Keeps alive all that it touches.
pub struct Exec {
    // In the order in which they are dropped: what is launched before what it refers to.
    pub(crate) front: Front,
    /// Of each part, what its executable was made of.
    pub(crate) origins: Vec<Origin>,
    /// The operations that can be changed.
    pub(crate) ops: Vec<Op>,
    /// The functions that its kernels run.
    pub(crate) functions: Arc<[Function]>,
    /// What its products were captured through.
    pub(crate) _blas: Vec<Arc<Mutex<Handle>>>,
    pub(crate) block: Option<Block>,
    /// The operations that changed since the last launch.
    pub(crate) changed: Vec<OpId>,
    pub(crate) hosts: Vec<Arc<HostCall>>,
    pub(crate) arenas: Vec<Memory>,
    pub(crate) memory: FxHashMap<BufferId, Memory>,
    /// The external buffers that it writes.
    pub(crate) written: FxHashSet<BufferId>,
    /// Whether it may touch what nobody declared.
    pub(crate) is_opaque: bool,
    /// Its own launches.
    pub(crate) uses: Uses,
    /// Launches of all executables of its backend.
    pub(crate) everything: Arc<Uses>,
    /// What computes each matrix product.
    pub(crate) products: Vec<(NodePath, ProductBy)>,
    pub(crate) pointer_slots: FxHashMap<BufferId, PointerSlot>,
    /// The pointer slots without memory.
    pub(crate) unbound: BTreeSet<BufferId>,
    /// Memory that was bound to slots and may be in use until the last launch is over.
    pub(crate) retired: Vec<Memory>,
    pub(crate) scalar_slots: Vec<ScalarSlot>,
    pub(crate) events: FxHashMap<EventId, Event>,
    /// Of each node of the outermost graph, the driver's nodes that can be disabled; `None` where it cannot.
    pub(crate) switches: Box<[Option<SmallVec<[CUgraphNode; 1]>>]>,
    /// Of each node of the outermost graph, the part that it is in; empty if there is only one.
    pub(crate) parts: Box<[PartId]>,
    /// What kernels note that they could not do, if any of them may.
    pub(crate) faults: Option<Faults>,
    pub(crate) host_fault: Arc<Mutex<Option<(NodePath, KernelError)>>>,
    /// The events between its nodes, if it was built to be timed.
    pub(crate) split: Option<Split>,
    /// What of its memory others allocated.
    pub(crate) adopted: Adopted,
    pub(crate) device: Device,
    pub(crate) owner: Arc<Owner>,
    pub(crate) last: Option<Stream>,
    /// How many executables are those of earlier graphs.
    pub(crate) renewed: usize,
    /// Where its executables go when it is not needed any more.
    pub(crate) spares: Weak<Spares>,
    /// Whether its executables may differ from what they were made of in more than the parameters of `ops`: then nobody else can
    /// have them.
    pub(crate) is_changed: Cell<bool>,
}

/// What generated kernels note that they could not do.
pub(crate) struct Faults {
    /// On the device: a word that is not 0 once there was a fault.
    pub lock: Memory,
    /// Page-locked: the first fault.
    pub record: Memory,
    /// The node of each number that the record may name, and the rows that it has.
    pub nodes: Vec<(NodePath, u64)>,
}

impl Faults {
    /// The first fault since this was last asked. Everything that may write it has ended.
    fn take(&self) -> Result<Option<(NodePath, KernelError)>, ReplayError> {
        let record = self.record.address() as usize as *mut u64;
        // SAFETY: the record is page-locked memory of so many words, which nothing writes to now.
        let [number, position, value]: [u64; FAULT_WORDS] =
            std::array::from_fn(|at| unsafe { record.add(at).read_volatile() });
        let at = number.checked_sub(1).and_then(|at| self.nodes.get(at as usize));
        let Some((node, rows)) = at else { return Ok(None) };
        // Not by a write, which waits for the whole device: a stream that records would not bear that.
        [&self.record, &self.lock].into_iter().try_for_each(Memory::zero)?;
        let (value, rows) = (value as i64, *rows);
        Ok(Some((node.clone(), KernelError::Row { position, value, rows })))
    }
}

// SAFETY: the driver's handles in it may be used from any thread, one at a time, which `&mut` sees to.
unsafe impl Send for Exec {}

impl Exec {
    /// The driver's handles, for other users of the driver: one, or for a very large graph several, which are launched one
    /// after another on one stream. Valid for as long as this value.
    pub fn handles(&self) -> impl ExactSizeIterator<Item = CUgraphExec> + '_ {
        // Whoever has a handle may change what it is of.
        self.is_changed.set(true);
        let parts = 0..1 + self.front.rest.len() as u32;
        parts.map(|part| self.front.part(PartId(part)).handle())
    }

    /// The graph that it is, or the first of several.
    pub(crate) fn graph_handle(&mut self) -> Result<CUgraph, DriverError> {
        self.origins[0].own_graph().map(Graph::handle)
    }

    /// The driver's nodes of each node of the outermost graph; `None` for nodes other than kernels, copies and fills.
    pub(crate) fn driver_nodes(&self) -> impl Iterator<Item = Option<&[CUgraphNode]>> {
        self.switches.iter().map(Option::as_deref)
    }

    /// The memory of an external buffer, or what is bound to a pointer slot.
    pub fn memory(&self, buffer: BufferId) -> Option<&Memory> {
        let slot = || self.pointer_slots.get(&buffer)?.bound.as_ref();
        self.memory.get(&buffer).or_else(slot)
    }

    /// An event that the graph records or waits for.
    pub fn event(&self, id: EventId) -> Option<&Event> {
        self.events.get(&id)
    }

    /// How many of its executables were not instantiated: those of earlier graphs were brought up to date.
    pub fn renewed(&self) -> usize {
        self.renewed
    }

    /// Each matrix product, with what computes it.
    pub fn products(&self) -> &[(NodePath, ProductBy)] {
        &self.products
    }

    /// Asks the driver whether the memory of others that it uses is still what was [adopted](crate::Cuda::adopt). Each launch
    /// does so first, unless told otherwise. One call of the driver a buffer.
    ///
    /// # Errors
    /// [`ReplayError::Stale`] names the buffer, a node that uses it, and both allocations.
    pub fn check_adopted(&self) -> Result<(), ReplayError> {
        self.adopted.check()
    }

    /// Whether each launch asks the driver about adopted memory first, as it does unless this says otherwise.
    pub fn set_checked(&mut self, checked: bool) {
        self.adopted.set_checked(checked);
        self.front.pending |= checked;
    }

    /// Enables or disables a node of the outermost graph for the replays to come. A disabled node does nothing; its
    /// neighbours are ordered as before.
    ///
    /// # Errors
    /// [`SetError::NotDisableable`] for nodes other than kernels, copies and fills, and for products by cuBLAS.
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<(), SetNodeError> {
        let nodes = self.switches.get(node.index()).ok_or(SetError::UnknownNode(node))?;
        let nodes = nodes.as_ref().ok_or(SetError::NotDisableable(node))?;
        let part = self.parts.get(node.index()).copied().unwrap_or(PartId(0));
        let executable = self.front.part(part).handle();
        let _current = self.device.enter()?;
        self.is_changed.set(true);
        for &node in nodes {
            // SAFETY: the executable lives, and the node is of the graph that it was made of.
            unsafe { call!(cuGraphNodeSetEnabled(executable, node, u32::from(enabled))) }?;
        }
        Ok(())
    }

    /// What it owns: the executable, arenas, the parameter block, the record of faults.
    pub(crate) fn itself(&self) -> order::Use<'_> {
        order::Use { of: &self.uses, writes: true }
    }

    /// What a launch touches.
    pub(crate) fn touches(&self) -> SmallVec<[order::Use<'_>; 8]> {
        let mut all: SmallVec<[order::Use<'_>; 8]> = SmallVec::new();
        all.push(order::Use { of: &self.everything, writes: self.is_opaque });
        all.push(self.itself());
        for (buffer, memory) in &self.memory {
            all.push(order::Use { of: memory.uses(), writes: self.written.contains(buffer) });
        }
        for slot in self.pointer_slots.values() {
            let bound = slot.bound.iter();
            all.extend(bound.map(|m| order::Use { of: m.uses(), writes: slot.writes }));
        }
        all
    }

    /// Sees to what is pending before a launch on the stream, which comes after the executable's previous launch.
    pub(crate) fn settle(&mut self, stream: &Stream) -> Result<(), ReplayError> {
        if let Some(&buffer) = self.unbound.first() {
            return Err(ReplayError::Unbound(buffer));
        }
        if self.adopted.is_checked() {
            self.adopted.check()?;
        }
        if self.retired.len() > MAX_RETIRED {
            // The launch that comes is on the stream that was noted for it, and is not waited for here.
            let stream = self.last.clone();
            self.wait()?;
            self.last = stream;
        }
        if let Some(block) = &mut self.block {
            block.send(stream)?;
        }
        self.tell_changes()?;
        if let Some(split) = &mut self.split {
            split.issue();
        }
        // The next launch asks again about memory that others may free meanwhile, and is timed again.
        self.front.pending = self.adopted.is_checked() || self.split.is_some();
        Ok(())
    }

    /// Issues a run to a stream. Whoever calls this has ordered it after all that it conflicts with.
    pub(crate) fn launch_ordered(&mut self, stream: &Stream) -> Result<(), ReplayError> {
        if self.front.pending {
            self.settle(stream)?;
        }
        self.front.launch(stream)?;
        if self.last.as_ref().is_none_or(|last| !last.is(stream)) {
            self.last = Some(stream.clone());
        }
        Ok(())
    }

    /// Waits for the runs issued so far and reports the first fault among them.
    pub(crate) fn finish(&mut self) -> Result<(), ReplayError> {
        self.wait()?;
        self.take_fault()
    }

    /// Waits for the runs issued so far.
    pub(crate) fn wait(&mut self) -> Result<(), DriverError> {
        if let Some(stream) = &self.last {
            stream.synchronize()?;
            if let Some(split) = &mut self.split {
                split.collect()?;
            }
        }
        // Nothing is under way any more, and the stream may record before this is asked again.
        self.last = None;
        self.retired.clear();
        Ok(())
    }

    /// The first fault among the runs so far, all of which are over.
    pub(crate) fn take_fault(&mut self) -> Result<(), ReplayError> {
        let row = self.faults.as_ref().map_or(Ok(None), Faults::take)?;
        let host = self.host_fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        match row.or(host) {
            Some((node, error)) => Err(ReplayError::Node { node, cause: NodeFault::Kernel(error) }),
            None => Ok(()),
        }
    }
}

/// Why a node could not be enabled or disabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetNodeError {
    /// No such node, or not one that can be disabled.
    #[error(transparent)]
    Set(#[from] SetError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl Drop for Exec {
    fn drop(&mut self) {
        // What runs uses the memory and the functions that are about to be released.
        let over = self.last.as_ref().map_or(Ok(()), Stream::synchronize);
        if over.is_ok()
            && !self.is_changed.get()
            && let Some(spares) = self.spares.upgrade()
        {
            for (executable, origin) in self.front.parts().zip(self.origins.drain(..)) {
                if let Some(spare) = Spare::of(executable.take(), origin, &self.functions) {
                    spares.keep(spare);
                }
            }
        }
        log_drop(over);
    }
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec")
            .field("ops", &self.ops.len())
            .field("hosts", &self.hosts.len())
            .field("arenas", &self.arenas)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Whether a declared buffer lives in host memory.
pub(crate) fn is_on_host(buffer: &Buffer) -> bool {
    matches!(buffer.space, phonograph_graph::Space::Host { .. })
}

#[cfg(test)]
mod tests {
    use phonograph_graph::{Access, Extent, GraphBuilder, MemsetNode, Pitched, Schedule, Target};

    use super::MAX_RETIRED;
    use crate::bindings::Bindings;
    use crate::cuda::Cuda;
    use crate::stream::Stream;
    use crate::stub::on_driver;

    #[test]
    fn a_launch_that_waited_for_those_before_it_is_waited_for_itself() {
        on_driver(
            "exec::tests::a_launch_that_waited_for_those_before_it_is_waited_for_itself",
            &[],
            || {
                let mut cuda = Cuda::new().unwrap();
                let mut b = GraphBuilder::new();
                let x = b.slot_buffer("x", 64, Access::Write);
                let dst = Pitched::linear(Target::Buffer(x), 0);
                let extent = Extent::linear(64);
                b.add_fill("zero", MemsetNode { dst, value: 0, element_size: 1, extent });
                let graph = b.build().unwrap();
                let schedule = Schedule::sequential(&graph);
                let mut exec = cuda.instantiate(&graph, &schedule, &Bindings::new()).unwrap();
                let stream = Stream::new(&cuda.devices()[0]).unwrap();
                for round in 0..3 * MAX_RETIRED {
                    exec.bind(x, &cuda.alloc(64).unwrap()).unwrap();
                    cuda.launch(&mut exec, &stream).unwrap();
                    assert!(exec.last.is_some(), "launch {round} is not waited for");
                    assert!(exec.retired.len() <= MAX_RETIRED + 1);
                }
            },
        );
    }
}
