//! What the nodes of a driver's graph were made with: whether a later graph differs from it only in parameters of nodes,
//! and the calls that give its executable those of the later one.
//!
//! In: each node as it is made. Out: for each node that differs one call. Known are kernels without attributes, straight copies,
//! fills and empty nodes; a graph with any other node is not [whole](Made::is_whole) here. Of a kernel the launch and the
//! values of its parameters may differ, of a copy and a fill the addresses, and of a fill its value; functions, contexts,
//! what is moved, the kinds of nodes, and edges with their order and data have to be the same. O(nodes + edges + words).

use std::hash::{Hash, Hasher};
use std::mem;

use cudarc::driver::sys::{CUfunction, CUgraphEdgeData, CUgraphNode};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};

use crate::error::{DriverError, call};
use crate::graph::{Dependencies, Executable, Graph};
use crate::launch::{Launch, Params, Pointers};
use crate::transfer::Transfer;

/// The nodes of a graph in the order of making.
#[derive(Default)]
pub(crate) struct Made {
    nodes: Vec<Node>,
    places: FxHashMap<CUgraphNode, Nth>,
    /// What the nodes wait for, of one node after the other.
    after: Vec<(Nth, CUgraphEdgeData)>,
    /// The words of kernels' parameters, of one node after the other, and where each parameter of a node begins.
    words: Vec<u64>,
    starts: Vec<u32>,
    transfers: Vec<Transfer>,
    /// Of what has to be the same.
    hasher: FxHasher,
    /// Whether there is something that is not known here.
    is_spoilt: bool,
}

/// A node by its place in the order of making.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Nth(u32);

struct Node {
    handle: CUgraphNode,
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
            places: FxHashMap::with_capacity_and_hasher(nodes, FxBuildHasher),
            after: Vec::with_capacity(nodes),
            ..Self::default()
        }
    }

    /// Notes a kernel node without attributes. `changes` says that its parameters are changed in executables later.
    pub fn kernel(
        &mut self,
        handle: CUgraphNode,
        after: &Dependencies,
        launch: &Launch,
        changes: bool,
    ) {
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
        function.addr().hash(&mut self.hasher);
        self.add(handle, after, Work::Kernel(kernel), changes);
    }

    pub fn transfer(&mut self, handle: CUgraphNode, after: &Dependencies, transfer: Transfer) {
        let at = self.transfers.len() as u32;
        self.transfers.push(transfer);
        mem::discriminant(&transfer).hash(&mut self.hasher);
        self.add(handle, after, Work::Transfer(at), true);
    }

    pub fn empty(&mut self, handle: CUgraphNode, after: &Dependencies) {
        u8::MAX.hash(&mut self.hasher);
        self.add(handle, after, Work::Empty, false);
    }

    fn add(&mut self, handle: CUgraphNode, after: &Dependencies, work: Work, changes: bool) {
        for (node, data) in after.iter() {
            match self.places.get(&node) {
                Some(&nth) => {
                    nth.hash(&mut self.hasher);
                    self.after.push((nth, data));
                }
                None => self.is_spoilt = true,
            }
        }
        self.places.insert(handle, Nth(self.nodes.len() as u32));
        let after = self.after.len() as u32;
        self.nodes.push(Node { handle, work, after, changes });
    }

    /// A node has something that is not noted here.
    pub fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// No more nodes come, and these stay what they are.
    pub fn settle(&mut self) {
        self.places = FxHashMap::default();
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether these are all nodes of the graph that they were made in. The driver counts them.
    pub fn is_whole(&self, graph: &Graph) -> Result<bool, DriverError> {
        Ok(!self.is_spoilt && graph.node_count()? == self.nodes.len())
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
                        let (a, b) = (self.transfers[*a as usize], other.transfers[*b as usize]);
                        a.shape() == b.shape()
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
    /// memory that a copy or a fill names is its own affair, and the memory may be another by now at the same address.
    fn is_same(&self, new: &Node, other: &Made, old: &Node) -> bool {
        match (&new.work, &old.work) {
            _ if old.changes => false,
            (Work::Kernel(a), Work::Kernel(b)) => {
                (a.grid, a.block, a.shared_bytes) == (b.grid, b.block, b.shared_bytes)
                    && part(&self.words, a.words) == part(&other.words, b.words)
            }
            _ => true,
        }
    }

    /// Changes an executable of the other graph, which this one [is like](Self::is_like), to the parameters that nodes have
    /// here, and puts the nodes of that graph, which the executable knows, in the place of these. Gives which stands for
    /// which.
    ///
    /// # Errors
    /// What the driver refuses. The executable is neither what it was nor what it was to be.
    pub fn carry_over(
        &mut self,
        other: &Made,
        executable: &mut Executable,
    ) -> Result<Renamed, DriverError> {
        let mut pointers = Pointers::new();
        for (new, old) in self.nodes.iter().zip(&other.nodes) {
            if self.is_same(new, other, old) {
                continue;
            }
            let (node, exec) = (old.handle, executable.handle());
            // SAFETY: graph and executable live, the node is of the graph that the executable was made of, and the
            // parameters are of its kind: those of a node that the driver took. It copies what they point to.
            unsafe {
                match &new.work {
                    Work::Kernel(kernel) => {
                        let Kernel { function, grid, block, shared_bytes, .. } = *kernel;
                        let words = part(&self.words, kernel.words);
                        let starts = part(&self.starts, kernel.starts);
                        let params = Params { function, grid, block, shared_bytes, words, starts };
                        let params = params.of_driver(&mut pointers);
                        call!(cuGraphExecKernelNodeSetParams_v2(exec, node, &params))?;
                    }
                    Work::Transfer(at) => self.transfers[*at as usize].set(exec, node)?,
                    Work::Empty => {}
                }
            }
        }
        for (new, old) in self.nodes.iter_mut().zip(&other.nodes) {
            new.handle = old.handle;
        }
        let nodes = other.nodes.iter().map(|node| node.handle).collect();
        Ok(Renamed { places: mem::take(&mut self.places), nodes })
    }
}

/// Which nodes stand for those of a graph that was made and not used.
pub(crate) struct Renamed {
    places: FxHashMap<CUgraphNode, Nth>,
    nodes: Vec<CUgraphNode>,
}

// SAFETY: the driver's handles in it are only compared and given out.
unsafe impl Send for Renamed {}

impl Renamed {
    /// The node that stands for one of the graph that was made.
    pub fn now(&self, node: CUgraphNode) -> CUgraphNode {
        self.nodes[self.places[&node].0 as usize]
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
