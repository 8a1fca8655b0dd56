//! A watched graph in another order: launched beside the driver's own, which it becomes when it has been found good.
//!
//! O(nodes + edges), and what the driver takes for a node: about 1.3 µs to instantiate it.

use std::mem::{ManuallyDrop, forget};

use cudarc::driver::sys::{CUgraph, CUgraphNode};
use phonograph_graph::{Edge, NodeId};

use super::{Lost, Watch, WatchError, single};
use crate::error::call;
use crate::foreign::edit::EditError;
use crate::foreign::read::read;
use crate::foreign::rebuild::copy_node;
use crate::graph::{Behind, Dependencies, Executable, Graph, add_node, data_of};
use crate::launch::one_thread_node;

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

/// An order for the nodes of a watched graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrangement {
    /// All nodes as they are made, which decides, with the order of the edges, what the driver lets run beside what.
    pub nodes: Vec<NodeId>,
    /// All edges that there are to be between them.
    pub edges: Vec<Edge>,
    /// What is added.
    pub ends: Ends,
}

/// Kernels that do nothing, before and behind all others: the driver's launch takes about a microsecond for each node that
/// comes after nothing beside another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ends {
    /// One before all nodes that come after nothing.
    pub beginning: bool,
    /// One after all nodes that nothing comes after.
    pub end: bool,
}

/// Nodes that were added to a graph.
#[derive(Default)]
struct Made {
    /// In the order of the arrangement.
    nodes: Vec<CUgraphNode>,
    ends: Vec<CUgraphNode>,
}

impl Watch {
    /// The graph in another order, ready to launch; the driver's graph stays as it is.
    ///
    /// # Errors
    /// [`EditError::Other`] if nodes are missing, or edges name nodes that are not there or do not point forward.
    pub fn arrange(&mut self, order: &Arrangement) -> Result<Arranged, WatchError> {
        self.alive()?;
        let into = Graph::new(&self.device)?;
        self.add(order, into.handle(), &mut Made::default())?;
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

    /// Puts the driver's graph itself into this order: its nodes are made anew, and those that were there are destroyed. The
    /// code of kernels that were added is loaded for as long as the process lives, as nobody says when the graph is gone.
    ///
    /// # Errors
    /// As for [`arrange`](Self::arrange). The graph is as it was then, unless the driver refuses to destroy a node.
    pub fn apply(&mut self, order: &Arrangement) -> Result<(), WatchError> {
        self.alive()?;
        let handle = self.imported.0.handle;
        let mut made = Made::default();
        let added = self.add(order, handle, &mut made);
        let gone = match added {
            Ok(()) => self.imported.0.nodes.clone(),
            Err(_) => [&made.nodes[..], &made.ends].concat(),
        };
        for node in gone {
            // SAFETY: the node is of the graph, which `new` was promised is nobody else's, and is not used again.
            unsafe { call!(cuGraphDestroyNode(node)) }?;
        }
        added?;
        if !made.ends.is_empty() {
            forget(self.empty.clone());
        }
        // SAFETY: `new` was promised that the graph lives.
        self.imported.0 = unsafe { read(handle) }?;
        let _current = self.device.enter()?;
        self.wait()?;
        let count = self.imported.graph().node_count();
        // They name the other memory themselves.
        self.diversions = vec![Vec::new(); count];
        self.nodes.clear();
        for id in self.imported.graph().node_ids() {
            // SAFETY: `new` was promised that what the nodes refer to is there.
            self.nodes.push(unsafe { single(&self.imported, id, &self.device, &[]) }?);
        }
        Ok(())
    }

    /// Adds all nodes to a graph.
    fn add(&self, order: &Arrangement, into: CUgraph, made: &mut Made) -> Result<(), WatchError> {
        let Arrangement { nodes: order, edges, ends } = order;
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
        let mut is_last = vec![true; count];
        for &Edge { from, to, data } in edges {
            let place = |node: NodeId| places.get(node.index()).copied().flatten();
            match (place(from), place(to)) {
                (Some(before), Some(after)) if before < after => {
                    waits[to.index()].push((before, data_of(data)));
                    is_last[before] = false;
                }
                (Some(_), Some(_)) => {
                    return Err(other(format!("{to} is made before {from}")).into());
                }
                _ => return Err(other(format!("{from} or {to} is not there")).into()),
            }
        }
        let _current = self.device.enter()?;
        if ends.beginning {
            made.ends.push(self.add_empty(into, &Dependencies::default())?);
        }
        let first = Dependencies::on(made.ends.iter().copied());
        let mut behind = Behind::default();
        for &id in order {
            let mut after = Dependencies::default();
            for &(place, data) in &waits[id.index()] {
                after.push_or_defer(made.nodes[place], data);
            }
            let after = if waits[id.index()].is_empty() { &first } else { &after };
            let kind = &graph.node(id).kind;
            let diversions = &self.diversions[id.index()];
            // SAFETY: `new` was promised that the graph and what it refers to live; so does the other.
            let node = unsafe {
                copy_node(&self.imported.0, id, kind, after, into, &self.device, diversions)
            }?;
            behind.take(node, after);
            made.nodes.push(node);
        }
        if ends.end {
            let last = made.nodes.iter().zip(is_last).filter(|(_, is_last)| *is_last);
            let last = Dependencies::on(last.map(|(&node, _)| node));
            made.ends.push(self.add_empty(into, &last)?);
        }
        // SAFETY: the graph lives, and the nodes were just added to it.
        Ok(unsafe { behind.add(into) }?)
    }

    /// Adds a kernel that does nothing.
    fn add_empty(&self, into: CUgraph, after: &Dependencies) -> Result<CUgraphNode, WatchError> {
        let mut params = one_thread_node(&self.empty);
        // SAFETY: both graphs live, and the function takes no parameters; whoever launches the graph keeps it.
        Ok(unsafe { add_node(into, after, &mut params) }?)
    }
}

fn other(problem: String) -> EditError {
    EditError::Other { inside: Vec::new(), problem }
}
