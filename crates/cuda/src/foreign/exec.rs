//! Graphs of others that are owned here: captured or rebuilt, instantiated, launched.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};

use cudarc::driver::sys::{CUgraphExec, CUgraphInstantiate_flags};
use phonograph_graph::{ComputeGraph, NodeKind, Pitched, Target};
use phonograph_runtime::cpu::NodePath;
use rustc_hash::FxHashSet;

use super::Imported;
use crate::adopted::{Identity, StaleMemory, check, place_of};
use crate::bindings::InstantiateError;
use crate::device::Device;
use crate::error::{DriverError, log_drop};
use crate::graph::{Executable, Graph, Refused};
use crate::stream::Stream;

/// A graph of the driver that is owned here, and what was read of it: [`Imported`] says what can be done with it.
///
/// The memory, modules and user data that its nodes refer to are whoever's made them.
pub struct Captured {
    pub(super) imported: Imported,
    graph: Graph,
    /// The graph that this one was rebuilt from.
    _source: Option<Box<dyn Any>>,
}

// SAFETY: the driver's handles in it, and in the `Captured` or `Imported` that it was rebuilt from, may be used from any
// thread, one at a time, which `&mut` sees to.
unsafe impl Send for Captured {}

impl Captured {
    pub(super) fn new(imported: Imported, graph: Graph, source: Option<Box<dyn Any>>) -> Self {
        Self { imported, graph, _source: source }
    }

    /// The device whose context is current where the driver needs one.
    pub fn device(&self) -> &Device {
        self.graph.device()
    }

    /// Makes the graph ready to launch. It can be no more edited, but is kept: what libraries tie to it stays alive.
    ///
    /// # Errors
    /// [`InstantiateError::Node`] with the node if the driver names it, else [`InstantiateError::Graph`].
    pub fn instantiate(self) -> Result<ForeignExec, InstantiateError> {
        let mut flags = 0;
        if has_priorities(self.graph()) {
            flags |= CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        }
        if self.read_only() == Some(super::ReadOnly::Allocates) {
            flags |= CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
        }
        let executable = Executable::new(&self.graph, u64::from(flags));
        let executable = executable.map_err(|refused| self.explain(refused))?;
        // The driver maps what a graph allocates when it is launched, so that addresses in a graph that may do so say nothing
        // before.
        let operands = match self.read_only() {
            Some(_) => Vec::new(),
            None => operands(self.graph())?,
        };
        Ok(ForeignExec { executable, captured: self, operands, checked: true, last: None })
    }

    fn explain(&self, refused: Refused) -> InstantiateError {
        refused.explain(|node| {
            let id = self.graph().node_ids().find(|&id| self.node(id) == Some(node))?;
            Some(NodePath(vec![(id, self.graph().node(id).name.to_string())]))
        })
    }
}

/// Whether a kernel of the graph, or of one inside, asks for a priority. Nesting is bounded.
fn has_priorities(graph: &ComputeGraph) -> bool {
    graph.nodes().iter().any(|node| match &node.kind {
        NodeKind::Kernel(kernel) => kernel.config.priority != 0,
        kind => kind.inner_graphs().iter().any(has_priorities),
    })
}

/// The allocations that the copies and fills of a graph and of those inside name, each with the first node that does. Nesting
/// is bounded. Memory that the driver does not know is left out.
fn operands(graph: &ComputeGraph) -> Result<Vec<Operand>, DriverError> {
    let mut known: FxHashSet<Identity> = FxHashSet::default();
    let mut operands = Vec::new();
    let mut graphs = vec![(NodePath(Vec::new()), graph)];
    while let Some((inside, graph)) = graphs.pop() {
        for id in graph.node_ids() {
            let node = graph.node(id);
            let path = || {
                let mut path = inside.clone();
                path.0.push((id, node.name.to_string()));
                path
            };
            let ends: &[&Pitched] = match &node.kind {
                NodeKind::Memcpy(copy) => &[&copy.src, &copy.dst],
                NodeKind::Memset(fill) => &[&fill.dst],
                kind => {
                    graphs.extend(kind.inner_graphs().iter().map(|inner| (path(), inner)));
                    continue;
                }
            };
            for end in ends {
                let Target::Address(address) = end.target else { continue };
                let Some(place) = place_of(address)? else { continue };
                if known.insert(place.identity) {
                    operands.push(Operand { node: path(), address, adopted: place.identity });
                }
            }
        }
    }
    Ok(operands)
}

impl Deref for Captured {
    type Target = Imported;

    fn deref(&self) -> &Imported {
        &self.imported
    }
}

impl DerefMut for Captured {
    fn deref_mut(&mut self) -> &mut Imported {
        &mut self.imported
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.imported.fmt(f)
    }
}

/// Why a graph of others was not launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A copy or fill of memory that was freed since the graph was instantiated, and perhaps allocated anew.
    #[error("node {node} works on memory that is gone: {source}")]
    Stale {
        /// The node.
        node: NodePath,
        /// What the memory was, and what lies there now.
        source: StaleMemory,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// What a copy or fill names.
struct Operand {
    node: NodePath,
    address: u64,
    adopted: Identity,
}

/// A graph of others, ready to launch.
pub struct ForeignExec {
    // Dropped before what its nodes refer to.
    executable: Executable,
    captured: Captured,
    operands: Vec<Operand>,
    checked: bool,
    last: Option<Stream>,
}

impl ForeignExec {
    /// What was read of the graph that it was made of.
    pub fn source(&self) -> &Imported {
        &self.captured
    }

    /// The driver's handle, for other users of the driver. Valid for as long as this value.
    pub fn handle(&self) -> CUgraphExec {
        self.executable.handle()
    }

    /// Brings what the device needs of it there, so that the first launch costs no more than the others.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), DriverError> {
        self.executable.upload(stream)
    }

    /// Asks the driver whether the memory that copies and fills name is still what it was when the graph was instantiated.
    /// Each launch does so first, unless told otherwise: one call of the driver for each allocation that they name. Which
    /// parameters of kernels are addresses nobody knows; those are not looked at.
    ///
    /// # Errors
    /// [`LaunchError::Stale`] names a node and both allocations.
    pub fn check(&self) -> Result<(), LaunchError> {
        for Operand { node, address, adopted } in &self.operands {
            if let Err(source) = check(*address, *adopted)? {
                return Err(LaunchError::Stale { node: node.clone(), source });
            }
        }
        Ok(())
    }

    /// Whether each launch asks the driver about the memory of copies and fills first, as it does unless this says otherwise.
    pub fn set_checked(&mut self, checked: bool) {
        self.checked = checked;
    }

    /// Issues a run to the stream and returns at once.
    ///
    /// # Errors
    /// As for [`check`](Self::check); nothing has run then.
    ///
    /// # Safety
    /// Whatever the graph's nodes refer to is still there and stays until the run is over: memory, modules, user data of
    /// host functions, events. Nothing else touches that memory unordered meanwhile.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<(), LaunchError> {
        if self.checked {
            self.check()?;
        }
        self.executable.launch(stream)?;
        if self.last.as_ref().is_none_or(|last| !last.is(stream)) {
            self.last = Some(stream.clone());
        }
        Ok(())
    }
}

impl Drop for ForeignExec {
    fn drop(&mut self) {
        // Launches of one executable follow one another, so that the last one is enough.
        if let Some(stream) = &self.last {
            log_drop(stream.synchronize());
        }
    }
}

impl fmt::Debug for ForeignExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignExec").field("captured", &self.captured).finish_non_exhaustive()
    }
}
