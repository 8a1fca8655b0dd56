//! A watched graph in another order: launched beside the driver's own, which it becomes when it has been found good.
//!
//! O(nodes + edges), and what the driver takes for a node: about 1.3 µs to instantiate it.

use std::mem::ManuallyDrop;

use cudarc::driver::sys::{CUgraph, CUgraphNode};
use phonograph_graph::{Edge, EdgeKind, NodeId};

use super::{Lost, Watch, WatchError, single};
use crate::error::call;
use crate::foreign::edit::EditError;
use crate::foreign::read::read;
use crate::foreign::rebuild::copy_node;
use crate::graph::{Behind, Dependencies, Executable, Graph, edge_data};

/// The nodes of a watched graph in another order, ready to launch.
pub struct Arranged {
    /// The executable is dropped before the graph that it was made of.
    made: ManuallyDrop<(Executable, Graph)>,
    lost: Lost,
}

impl Drop for Arranged {
    fn drop(&mut self) {
        if !self.lost.is_lost() {
            // SAFETY: it is not touched again.
            unsafe { ManuallyDrop::drop(&mut self.made) };
        }
    }
}

impl Watch {
    /// The graph with exactly these edges instead of its own, ready to launch; the driver's graph stays as it is. Nodes are
    /// made in this order, and edges in theirs, by which the driver decides what runs beside what.
    ///
    /// # Errors
    /// [`EditError::Other`] if the edges have a cycle, name nodes that are not there or do not point forward in the order.
    pub fn arrange(&mut self, order: &[NodeId], edges: &[Edge]) -> Result<Arranged, WatchError> {
        self.alive()?;
        let into = Graph::new(&self.device)?;
        self.add(order, edges, into.handle(), &mut Vec::new())?;
        let mut executable = Executable::new(&into, 0).map_err(|refused| refused.error)?;
        executable.upload(&self.stream)?;
        let arranged =
            Arranged { made: ManuallyDrop::new((executable, into)), lost: self.lost.clone() };
        self.wait()?;
        Ok(arranged)
    }

    /// Runs an arrangement to its end.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn replay(&mut self, arranged: &mut Arranged) -> Result<(), WatchError> {
        self.alive()?;
        arranged.made.0.launch(&self.stream)?;
        self.wait()
    }

    /// Puts the driver's graph itself into this order: its nodes are made anew, and those that were there are destroyed.
    ///
    /// # Errors
    /// As for [`arrange`](Self::arrange). The graph is as it was then, unless the driver refuses to destroy a node.
    pub fn apply(&mut self, order: &[NodeId], edges: &[Edge]) -> Result<(), WatchError> {
        self.alive()?;
        let handle = self.imported.0.handle;
        let mut made = Vec::new();
        let added = self.add(order, edges, handle, &mut made);
        let gone = if added.is_ok() { self.imported.0.nodes.clone() } else { made };
        for node in gone {
            // SAFETY: the node is of the graph, which `new` was promised is nobody else's, and is not used again.
            unsafe { call!(cuGraphDestroyNode(node)) }?;
        }
        added?;
        // SAFETY: `new` was promised that the graph lives.
        self.imported.0 = unsafe { read(handle) }?;
        // They name the other memory themselves.
        self.diversions.iter_mut().for_each(Vec::clear);
        let _current = self.device.enter()?;
        self.wait()?;
        for id in self.imported.graph().node_ids() {
            // SAFETY: `new` was promised that what the nodes refer to is there.
            self.nodes[id.index()] = unsafe { single(&self.imported, id, &self.device, &[]) }?;
        }
        Ok(())
    }

    /// Adds all nodes to a graph.
    fn add(
        &self,
        order: &[NodeId],
        edges: &[Edge],
        into: CUgraph,
        made: &mut Vec<CUgraphNode>,
    ) -> Result<(), WatchError> {
        let graph = self.imported.graph();
        let count = graph.node_count();
        let mut places = vec![None; count];
        for (place, node) in order.iter().enumerate() {
            let free = places.get_mut(node.index()).filter(|place| place.is_none());
            *free.ok_or_else(|| other(format!("{node} is made twice, or is not there")))? =
                Some(place);
        }
        if order.len() != count {
            return Err(other(format!("{} of {count} nodes", order.len())).into());
        }
        let mut waits = vec![Vec::new(); count];
        for &Edge { from, to, data } in edges {
            let place = |node: NodeId| places.get(node.index()).copied().flatten();
            match (place(from), place(to)) {
                (Some(before), Some(after)) if before < after => {
                    let programmatic = data.kind == EdgeKind::Programmatic;
                    let data = edge_data(data.from_port, data.to_port, programmatic);
                    waits[to.index()].push((before, data));
                }
                (Some(_), Some(_)) => {
                    return Err(other(format!("{to} is made before {from}")).into());
                }
                _ => return Err(other(format!("{from} or {to} is not there")).into()),
            }
        }
        let _current = self.device.enter()?;
        let mut behind = Behind::default();
        for &id in order {
            let mut after = Dependencies::default();
            for &(place, data) in &waits[id.index()] {
                after.push_or_defer(made[place], data);
            }
            let kind = &graph.node(id).kind;
            let diversions = &self.diversions[id.index()];
            // SAFETY: `new` was promised that the graph and what it refers to live; so does the other.
            let node = unsafe {
                copy_node(&self.imported.0, id, kind, &after, into, &self.device, diversions)
            }?;
            behind.take(node, &after);
            made.push(node);
        }
        // SAFETY: the graph lives, and the nodes were just added to it.
        Ok(unsafe { behind.add(into) }?)
    }
}

fn other(problem: String) -> EditError {
    EditError::Other { inside: Vec::new(), problem }
}
