//! The nodes of a driver's graph before there is one: noted, and then made by the driver, or given to the executable of an
//! earlier graph that differs only in parameters of nodes.
//!
//! In: each node, with what it waits for. Out: the nodes of a graph, a call each; or for each node that differs from the
//! earlier graph's one call, which takes a third of the time. Known are kernels without attributes, copies, fills and empty
//! nodes; what is to have any other node is made before that one is, and has no notes any more. Of a kernel the launch and the
//! values of its parameters may differ, of a copy and a fill the addresses, and of a fill its value; functions, contexts,
//! what is moved, the kinds of nodes, and edges with their order and data have to be the same. O(nodes + edges + words).

use std::hash::{Hash, Hasher};
use std::{mem, ptr};

use cudarc::driver::sys::{CUfunction, CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType};
use rustc_hash::FxHasher;

use crate::device::Device;
use crate::error::{DriverError, call};
use crate::graph::{
    Behind, Dependencies, Executable, Graph, Refused, add_kernel, add_node, params_of,
};
use crate::launch::{Launch, Params, Pointers};
use crate::memory::AllocationKey;
use crate::transfer::Transfer;

/// The nodes of a graph in the order of making.
#[derive(Default)]
pub(crate) struct Made {
    nodes: Vec<Node>,
    /// The driver's nodes that they are, once there are any.
    handles: Vec<CUgraphNode>,
    /// What the nodes wait for, of one node after the other.
    after: Vec<(Nth, CUgraphEdgeData)>,
    /// The words of kernels' parameters, of one node after the other, and where each parameter of a node begins.
    words: Vec<u64>,
    starts: Vec<u32>,
    /// Copies and fills, with the allocations that they name, as far as those are known.
    transfers: Vec<(Transfer, [Option<AllocationKey>; 2])>,
    /// The kernels of other devices than the graph's.
    elsewhere: Vec<(Nth, Device)>,
    /// Of what has to be the same.
    hasher: FxHasher,
    /// Whether no executable of an earlier graph can serve it.
    is_spoilt: bool,
}

/// A node by its place in the order of making.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Nth(u32);

impl Nth {
    /// What stands for the node until there is one of the driver's.
    fn stand_in(self) -> CUgraphNode {
        ptr::without_provenance_mut(self.0 as usize + 1)
    }

    fn of(stand_in: CUgraphNode) -> Self {
        Self(stand_in.addr() as u32 - 1)
    }
}

struct Node {
    work: Work,
    /// Where what it waits for ends, which begins where that of the node before ends; likewise in `Kernel`.
    after: u32,
    /// Whether an executable has to be told its parameters in any case.
    changes: bool,
}

enum Work {
    Kernel(Kernel),
    Transfer(u32),
    Empty,
}

struct Kernel {
    function: CUfunction,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    shared_bytes: u32,
    words: (u32, u32),
    starts: (u32, u32),
}

// SAFETY: the driver's handles in it are only compared and handed to the driver, by one thread at a time.
unsafe impl Send for Made {}

impl Made {
    /// With room for so many nodes.
    pub fn with_capacity(nodes: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(nodes),
            after: Vec::with_capacity(nodes),
            ..Self::default()
        }
    }

    /// Notes a kernel node without attributes; gives what stands for it, as the other notes do. `changes` says that its
    /// parameters are changed in executables later, `elsewhere` on which device it is if not on the graph's.
    pub fn kernel(
        &mut self,
        after: &Dependencies,
        launch: &Launch,
        changes: bool,
        elsewhere: Option<&Device>,
    ) -> CUgraphNode {
        let function = launch.function;
        let (words, starts) = launch.values.parts();
        let kernel = Kernel {
            function,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            words: append(&mut self.words, words),
            starts: append(&mut self.starts, starts),
        };
        if let Some(device) = elsewhere {
            self.elsewhere.push((Nth(self.nodes.len() as u32), device.clone()));
            self.is_spoilt = true;
        }
        function.addr().hash(&mut self.hasher);
        self.add(after, Work::Kernel(kernel), changes)
    }

    /// Notes a copy or a fill, and the allocations at both its ends. `can_change` says whether an executable takes other
    /// parameters for it, `changes` that it is given some later.
    pub fn transfer(
        &mut self,
        after: &Dependencies,
        transfer: Transfer,
        ends: [Option<AllocationKey>; 2],
        can_change: bool,
        changes: bool,
    ) -> CUgraphNode {
        let at = self.transfers.len() as u32;
        self.transfers.push((transfer, ends));
        self.is_spoilt |= !can_change;
        mem::discriminant(&transfer).hash(&mut self.hasher);
        self.add(after, Work::Transfer(at), changes)
    }

    pub fn empty(&mut self, after: &Dependencies) -> CUgraphNode {
        u8::MAX.hash(&mut self.hasher);
        self.add(after, Work::Empty, false)
    }

    fn add(&mut self, after: &Dependencies, work: Work, changes: bool) -> CUgraphNode {
        for (node, data) in after.iter() {
            let nth = Nth::of(node);
            nth.hash(&mut self.hasher);
            self.after.push((nth, data));
        }
        let nth = Nth(self.nodes.len() as u32);
        let after = self.after.len() as u32;
        self.nodes.push(Node { work, after, changes });
        nth.stand_in()
    }

    /// The driver's node that a stand-in stands for; itself if there is none yet.
    pub fn now(&self, stand_in: CUgraphNode) -> CUgraphNode {
        self.handles.get(Nth::of(stand_in).0 as usize).copied().unwrap_or(stand_in)
    }

    /// Makes the nodes in a graph that has none, and gives them, with their edges that are still to be added.
    ///
    /// # Errors
    /// What the driver refuses, of a node by its stand-in.
    ///
    /// # Safety
    /// The graph lives, and what the nodes name is there for as long as it and its executables.
    pub unsafe fn make(
        &self,
        device: &Device,
        graph: CUgraph,
    ) -> Result<(Vec<CUgraphNode>, Behind), Refused> {
        let _current = device.enter().map_err(Refused::of_graph)?;
        let mut made: Vec<CUgraphNode> = Vec::with_capacity(self.nodes.len());
        let (mut after, mut behind) = (Dependencies::default(), Behind::default());
        let (mut pointers, mut start) = (Pointers::new(), 0);
        let mut elsewhere = self.elsewhere.iter().peekable();
        for (nth, node) in (0..).map(Nth).zip(&self.nodes) {
            after.clear();
            for &(from, data) in &self.after[start as usize..node.after as usize] {
                after.push_or_defer(made[from.0 as usize], data);
            }
            start = node.after;
            let device = elsewhere.next_if(|(of, _)| *of == nth).map(|(_, device)| device.enter());
            let device = device.transpose().map_err(Refused::of_graph)?;
            // SAFETY: the nodes before are of this graph, and the parameters are of the node's kind, with as many values as the
            // function has parameters, each at least as long; the driver copies them. The rest is the caller's promise.
            let added = unsafe {
                match &node.work {
                    Work::Kernel(kernel) => {
                        let params = self.params(kernel).of_driver(&mut pointers);
                        add_kernel(graph, &after, &params)
                    }
                    Work::Transfer(at) => {
                        let mut params = self.transfers[*at as usize].0.params();
                        add_node(graph, &after, &mut params)
                    }
                    Work::Empty => {
                        let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY);
                        add_node(graph, &after, &mut params)
                    }
                }
            };
            drop(device);
            let added = added.map_err(|error| Refused::of_node(error, nth.stand_in()))?;
            behind.take(added, &after);
            made.push(added);
        }
        Ok((made, behind))
    }

    /// Makes the whole graph: the nodes in one that has none, and all their edges.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    ///
    /// # Safety
    /// As for [`make`](Self::make).
    pub unsafe fn make_whole(&self, graph: &Graph) -> Result<Vec<CUgraphNode>, Refused> {
        // SAFETY: the caller's promise; the nodes that the edges are between were added to this graph.
        unsafe {
            let (nodes, behind) = self.make(graph.device(), graph.handle())?;
            behind.add(graph.handle()).map_err(Refused::of_graph)?;
            Ok(nodes)
        }
    }

    /// These are the driver's nodes, in order.
    pub fn settle(&mut self, handles: Vec<CUgraphNode>) {
        self.handles = handles;
    }

    fn params(&self, kernel: &Kernel) -> Params<'_> {
        let Kernel { function, grid, block, shared_bytes, .. } = *kernel;
        let (words, starts) = (part(&self.words, kernel.words), part(&self.starts, kernel.starts));
        Params { function, grid, block, shared_bytes, words, starts }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether an executable of an earlier graph may serve it, and its own a later one.
    pub fn can_be_carried_over(&self) -> bool {
        !self.is_spoilt
    }

    /// The same for all graphs that may be [like](Self::is_like) this one.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// Whether an executable of the other can be given the parameters of this.
    pub fn is_like(&self, other: &Made) -> bool {
        let work = |(a, b): (&Node, &Node)| {
            a.after == b.after
                && match (&a.work, &b.work) {
                    (Work::Kernel(a), Work::Kernel(b)) => {
                        (a.function, a.words, a.starts) == (b.function, b.words, b.starts)
                    }
                    (Work::Transfer(a), Work::Transfer(b)) => {
                        let (a, b) = (&self.transfers[*a as usize], &other.transfers[*b as usize]);
                        a.0.shape() == b.0.shape()
                    }
                    (Work::Empty, Work::Empty) => true,
                    _ => false,
                }
        };
        self.nodes.len() == other.nodes.len()
            && self.after == other.after
            && self.starts == other.starts
            && self.nodes.iter().zip(&other.nodes).all(work)
    }

    /// Whether an executable of the other has the parameters that a node of the same place has here. What the driver makes of the
    /// memory that a copy or a fill names is its own affair, so that has to be the same allocation, not only the same address.
    fn is_same(&self, new: &Node, other: &Made, old: &Node) -> bool {
        match (&new.work, &old.work) {
            _ if old.changes => false,
            (Work::Kernel(a), Work::Kernel(b)) => {
                (a.grid, a.block, a.shared_bytes) == (b.grid, b.block, b.shared_bytes)
                    && part(&self.words, a.words) == part(&other.words, b.words)
            }
            (Work::Transfer(a), Work::Transfer(b)) => {
                let (a, b) = (&self.transfers[*a as usize], &other.transfers[*b as usize]);
                a == b && a.1.iter().all(Option::is_some)
            }
            _ => true,
        }
    }

    /// Changes an executable of the other graph, which this one [is like](Self::is_like), to the parameters that nodes have
    /// here. The nodes of that graph, which the executable knows, are those of this one then.
    ///
    /// # Errors
    /// What the driver refuses. The executable is neither what it was nor what it was to be.
    pub fn carry_over(
        &mut self,
        other: Made,
        executable: &mut Executable,
    ) -> Result<(), DriverError> {
        let mut pointers = Pointers::new();
        let both = self.nodes.iter().zip(&other.nodes);
        for ((new, old), &node) in both.zip(&other.handles) {
            if self.is_same(new, &other, old) {
                continue;
            }
            let exec = executable.handle();
            // SAFETY: graph and executable live, the node is of the graph that the executable was made of, and the
            // parameters are of its kind: those of a node that the driver took. It copies what they point to.
            unsafe {
                match &new.work {
                    Work::Kernel(kernel) => {
                        let params = self.params(kernel).of_driver(&mut pointers);
                        call!(cuGraphExecKernelNodeSetParams_v2(exec, node, &params))?;
                    }
                    Work::Transfer(at) => self.transfers[*at as usize].0.set(exec, node)?,
                    Work::Empty => {}
                }
            }
        }
        self.handles = other.handles;
        Ok(())
    }
}

/// Adds a run to others; gives where it lies.
fn append<T: Copy>(all: &mut Vec<T>, run: &[T]) -> (u32, u32) {
    let start = all.len() as u32;
    all.extend_from_slice(run);
    (start, all.len() as u32)
}

fn part<T>(all: &[T], (start, end): (u32, u32)) -> &[T] {
    &all[start as usize..end as usize]
}
