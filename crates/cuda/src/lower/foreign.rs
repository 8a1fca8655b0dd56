//! Kernels by name that are whole graphs of somebody else's: child graphs, of which the driver keeps a copy.

use std::sync::Arc;

use cudarc::driver::sys::CUgraphNode;
use phonograph_graph::{KernelNode, KernelRef, NodeId};
use smallvec::{SmallVec, smallvec};

use super::{Lowering, Scope};
use crate::backend::RawGraph;
use crate::bindings::InstantiateError;
use crate::graph::{Dependencies, add_child};

impl Lowering<'_> {
    /// The graph that a kernel's name is that of, if it is one.
    pub(super) fn raw_graph(&self, name: &str) -> Option<Arc<RawGraph>> {
        let other = self.bindings.hosts?.get_other(name)?;
        Arc::downcast::<RawGraph>(other).ok()
    }

    /// The node, if its kernel's name is that of a graph.
    pub(super) fn foreign(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
        after: &Dependencies,
    ) -> Result<Option<SmallVec<[CUgraphNode; 1]>>, InstantiateError> {
        let KernelRef::Named(name) = &node.kernel else { return Ok(None) };
        let Some(raw) = self.raw_graph(name) else { return Ok(None) };
        // SAFETY: the graph lives, as whoever made the `RawGraph` has promised, and what its nodes refer to lives as long as
        // that, which the caller keeps with the `Exec`.
        let node = unsafe { add_child(scope.driver, after, raw.handle()) };
        Ok(Some(smallvec![node.map_err(scope.refused(id))?]))
    }
}
