//! Running the nodes of a foreign graph one at a time, and watching the memory that they may touch.
//!
//! In: a graph that was read, and blocks of device memory. Out: what an observer needs: a node run alone, blocks copied,
//! put back, cleared and compared on the device; the graph in another order, launched; and, when that order has been found
//! good, the driver's own graph put into it.
//!
//! Costs: an executable of one node each, 10–20 µs a node once; a run or a comparison is a launch and a wait.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphEdgeData, CUgraphNode};
use phonograph_graph::{ComputeGraph, Edge, EdgeKind, NodeId, Rebuild};

use super::edit::EditError;
use super::read::{Edges, edges_of, read};
use super::rebuild::{copy, copy_node};
use super::{ImportError, Imported};
use crate::device::Device;
use crate::error::{DriverError, call};
use crate::graph::{Dependencies, Executable, Graph, edge_data};
use crate::memory::{Memory, Owner};
use crate::module::{Function, Module, ModuleError};
use crate::stream::Stream;

/// A piece of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it begins, a multiple of 4.
    pub address: u64,
    /// Its size, a multiple of 4.
    pub bytes: u64,
}

/// Why a graph cannot be watched.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WatchError {
    /// A block that does not lie on whole words.
    #[error(
        "block {index} ({bytes} bytes at {address:#x}) does not begin and end on a multiple of 4"
    )]
    Alignment {
        /// Its place among the blocks.
        index: usize,
        /// Where it begins.
        address: u64,
        /// Its size.
        bytes: u64,
    },
    /// Two blocks with bytes in common.
    #[error("block {index} overlaps the one that begins at {other:#x}")]
    Overlap {
        /// Its place among the blocks.
        index: usize,
        /// Where the other begins.
        other: u64,
    },
    /// The graph cannot be taken apart.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The comparing kernel cannot be loaded.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl From<ImportError> for WatchError {
    fn from(error: ImportError) -> Self {
        EditError::from(error).into()
    }
}

/// A copy of a block's bytes, on the device.
pub struct Saved(Memory);

/// A graph under observation: its nodes can be run one at a time, and its blocks copied, exchanged and compared.
pub struct Watch {
    imported: Imported,
    device: Device,
    stream: Stream,
    owner: Arc<Owner>,
    nodes: Vec<Executable>,
    blocks: Vec<Block>,
    differ: Function,
    /// Rows and flags of a comparison.
    table: Memory,
}

/// Threads in a block, and blocks in a row, of the comparing kernel.
const THREADS: u32 = 256;
const COLUMNS: u32 = 128;
/// Rows that one launch compares.
const ROWS: usize = 4096;
const ROW_BYTES: u64 = 24;

impl Watch {
    /// Takes a graph apart to run its nodes one at a time.
    ///
    /// # Errors
    /// For a graph that is [`read_only`](Imported::read_only), and for blocks that overlap or do not lie on whole words.
    ///
    /// # Safety
    /// All that the graph's nodes refer to is there for as long as this lives, and nothing else uses that memory or changes
    /// the graph meanwhile; the blocks are memory of this device. Run on bytes that blocks held at any time before, and in
    /// an order that this is asked to arrange, nodes do nothing that they may not.
    pub unsafe fn new(
        imported: Imported,
        device: &Device,
        blocks: &[Block],
    ) -> Result<Self, WatchError> {
        if let Some(reason) = imported.read_only() {
            return Err(EditError::from(reason).into());
        }
        check(blocks)?;
        let _current = device.enter()?;
        let mut nodes = Vec::new();
        for id in imported.graph().node_ids() {
            let single = Graph::new(device)?;
            let kind = &imported.graph().node(id).kind;
            // SAFETY: the caller's promise; the graph was just made.
            unsafe {
                copy_node(
                    &imported.0,
                    id,
                    kind,
                    &Dependencies::default(),
                    single.handle(),
                    device,
                )?;
            }
            nodes.push(Executable::new(&single, 0).map_err(|refused| refused.error)?);
        }
        let differ = Module::from_ptx(device, include_str!("differ.ptx"))?.function("differ")?;
        let owner = Arc::new(Owner);
        let table = Memory::on_device(&owner, device, ROWS as u64 * (ROW_BYTES + 4))?;
        let (stream, blocks) = (Stream::new(device)?, blocks.to_vec());
        Ok(Self { imported, device: device.clone(), stream, owner, nodes, blocks, differ, table })
    }

    /// What was read of the graph.
    pub fn imported(&self) -> &Imported {
        &self.imported
    }

    /// The blocks, in the order in which they were given.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Runs one node to its end.
    pub fn run(&mut self, node: NodeId) -> Result<(), DriverError> {
        self.nodes[node.index()].launch(&self.stream)?;
        self.stream.synchronize()
    }

    /// Copies a block.
    pub fn save(&mut self, block: usize) -> Result<Saved, DriverError> {
        let Block { address, bytes } = self.blocks[block];
        let saved = Memory::on_device(&self.owner, &self.device, bytes)?;
        self.copy(saved.address(), address, bytes)?;
        Ok(Saved(saved))
    }

    /// Writes a copy back.
    ///
    /// # Panics
    /// If the copy is of a block of another size.
    pub fn restore(&mut self, block: usize, saved: &Saved) -> Result<(), DriverError> {
        let Block { address, bytes } = self.blocks[block];
        assert_eq!(bytes, saved.0.bytes(), "a copy of another block");
        self.copy(address, saved.0.address(), bytes)
    }

    /// Fills a block with zeros.
    pub fn clear(&mut self, block: usize) -> Result<(), DriverError> {
        let Block { address, bytes } = self.blocks[block];
        let _current = self.device.enter()?;
        // SAFETY: `new` was promised that the block is memory of this device.
        unsafe { call!(cuMemsetD8Async(address, 0, bytes as usize, self.stream.handle())) }
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        // SAFETY: both are memory of this device of that size: a block, as `new` was promised, and a copy of one.
        unsafe { call!(cuMemcpyDtoDAsync_v2(to, from, bytes as usize, self.stream.handle())) }?;
        // A copy that is dropped is handed back on another stream.
        self.stream.synchronize()
    }

    /// Which of these blocks do not hold those bytes, by their place in the list.
    ///
    /// # Panics
    /// If a copy is of a block of another size.
    pub fn changed(&mut self, expected: &[(usize, &Saved)]) -> Result<Vec<usize>, DriverError> {
        let mut changed = Vec::new();
        for (part, rows) in expected.chunks(ROWS).enumerate() {
            let flags = self.compare(rows)?;
            let set = flags.iter().enumerate().filter(|(_, flag)| **flag != 0);
            changed.extend(set.map(|(at, _)| part * ROWS + at));
        }
        Ok(changed)
    }

    fn compare(&mut self, expected: &[(usize, &Saved)]) -> Result<Vec<u32>, DriverError> {
        let mut rows = Vec::with_capacity(3 * expected.len());
        for &(block, saved) in expected {
            let Block { address, bytes } = self.blocks[block];
            assert_eq!(bytes, saved.0.bytes(), "a copy of another block");
            rows.extend([address, saved.0.address(), bytes]);
        }
        let mut flags = vec![0u32; expected.len()];
        if flags.is_empty() {
            return Ok(flags);
        }
        let (table, stream) = (self.table.address(), self.stream.handle());
        let mut marks = table + ROWS as u64 * ROW_BYTES;
        let mut table = table;
        let mut parameters = [(&raw mut table).cast::<c_void>(), (&raw mut marks).cast()];
        let _current = self.device.enter()?;
        // SAFETY: the table has room for as many rows and flags; host memory is not touched before the copies are complete;
        // the kernel's two parameters are two addresses, and its rows name blocks and copies of their size.
        unsafe {
            let bytes = size_of_val(&flags[..]);
            call!(cuMemcpyHtoDAsync_v2(
                table,
                rows.as_ptr().cast(),
                size_of_val(&rows[..]),
                stream
            ))?;
            call!(cuMemsetD8Async(marks, 0, bytes, stream))?;
            call!(cuLaunchKernel(
                self.differ.handle(),
                COLUMNS,
                flags.len() as u32,
                1,
                THREADS,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                ptr::null_mut()
            ))?;
            call!(cuMemcpyDtoHAsync_v2(flags.as_mut_ptr().cast(), marks, bytes, stream))?;
        }
        self.stream.synchronize()?;
        Ok(flags)
    }

    /// The graph with exactly these edges instead of its own, ready to launch; the driver's graph stays as it is.
    ///
    /// # Errors
    /// [`EditError::Other`] if the edges have a cycle or name nodes that are not there.
    pub fn arrange(&mut self, edges: &[(NodeId, NodeId)]) -> Result<Arranged, WatchError> {
        let arranged = self.with_edges(edges)?;
        let graph = Graph::new(&self.device)?;
        let _current = self.device.enter()?;
        // SAFETY: `new` was promised that the graph and what it refers to live; the new graph has just been made.
        unsafe { copy(&self.imported.0, &arranged, graph.handle(), &self.device) }?;
        let mut executable = Executable::new(&graph, 0).map_err(|refused| refused.error)?;
        executable.upload(&self.stream)?;
        self.stream.synchronize()?;
        Ok(Arranged { executable, _graph: graph })
    }

    /// Runs an arrangement to its end.
    pub fn replay(&mut self, arranged: &mut Arranged) -> Result<(), DriverError> {
        arranged.executable.launch(&self.stream)?;
        self.stream.synchronize()
    }

    /// Puts the driver's graph itself into this order: all of its edges go, and these, full ones, come.
    ///
    /// # Errors
    /// As for [`arrange`](Self::arrange). If the driver refuses, it is asked to take back the edges that were there.
    pub fn apply(&mut self, edges: &[(NodeId, NodeId)]) -> Result<(), WatchError> {
        self.with_edges(edges)?;
        let node = |id: NodeId| self.imported.0.nodes[id.index()];
        let new: Edges = (
            edges.iter().map(|edge| node(edge.0)).collect(),
            edges.iter().map(|edge| node(edge.1)).collect(),
            vec![edge_data(0, 0, false); edges.len()],
        );
        // SAFETY: `new` was promised that the graph lives and is nobody else's; all nodes are its own.
        unsafe {
            let old = edges_of(self.imported.0.handle)?;
            self.disconnect(&old)?;
            if let Err(error) = self.connect(&new) {
                self.connect(&old)?;
                return Err(error.into());
            }
            self.imported.0 = read(self.imported.0.handle)?;
        }
        Ok(())
    }

    /// # Safety
    /// These are edges of the graph.
    unsafe fn disconnect(&self, (from, to, data): &Edges) -> Result<(), DriverError> {
        let (from, to, data, count) = lists(from, to, data);
        // SAFETY: the caller's promise; the lists are of one length.
        unsafe {
            call!(cuGraphRemoveDependencies_v2(self.imported.0.handle, from, to, data, count))
        }
    }

    /// # Safety
    /// These are between nodes of the graph, which has none of them.
    unsafe fn connect(&self, (from, to, data): &Edges) -> Result<(), DriverError> {
        let (from, to, data, count) = lists(from, to, data);
        // SAFETY: the caller's promise; the lists are of one length.
        unsafe { call!(cuGraphAddDependencies_v2(self.imported.0.handle, from, to, data, count)) }
    }

    fn with_edges(&self, edges: &[(NodeId, NodeId)]) -> Result<ComputeGraph, EditError> {
        let mut rebuild = Rebuild::new(self.imported.graph());
        let full = |&(from, to): &(NodeId, NodeId)| Edge::full(from, to);
        rebuild.edges(edges.iter().map(full).collect());
        let built = rebuild.build().map_err(ImportError::from)?;
        debug_assert!(built.0.edges().all(|edge| edge.data.kind == EdgeKind::Full));
        Ok(built.0)
    }
}

type Lists = (*const CUgraphNode, *const CUgraphNode, *const CUgraphEdgeData, usize);

fn lists(from: &[CUgraphNode], to: &[CUgraphNode], data: &[CUgraphEdgeData]) -> Lists {
    (from.as_ptr(), to.as_ptr(), data.as_ptr(), from.len())
}

/// The nodes of a watched graph in another order, ready to launch.
pub struct Arranged {
    // Dropped before the graph that it was made of.
    executable: Executable,
    _graph: Graph,
}

fn check(blocks: &[Block]) -> Result<(), WatchError> {
    let mut sorted: Vec<(usize, Block)> = blocks.iter().copied().enumerate().collect();
    for &(index, Block { address, bytes }) in &sorted {
        if address % 4 != 0 || bytes % 4 != 0 {
            return Err(WatchError::Alignment { index, address, bytes });
        }
    }
    sorted.sort_unstable_by_key(|(_, block)| block.address);
    for pair in sorted.windows(2) {
        let [(_, before), (index, block)] = [pair[0], pair[1]];
        if before.address.saturating_add(before.bytes) > block.address {
            return Err(WatchError::Overlap { index, other: before.address });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_on_words_and_apart() {
        let at = |address, bytes| Block { address, bytes };
        assert_eq!(check(&[at(512, 512), at(0, 512)]), Ok(()));
        let overlap = WatchError::Overlap { index: 0, other: 0 };
        assert_eq!(check(&[at(508, 512), at(0, 512)]), Err(overlap));
        let odd = WatchError::Alignment { index: 1, address: 512, bytes: 6 };
        assert_eq!(check(&[at(0, 4), at(512, 6)]), Err(odd));
    }
}
