//! Running the nodes of a foreign graph one at a time, and watching the memory that they may touch.
//!
//! In: a graph that was read, and blocks of device memory. Out: what an observer needs: a node run alone, blocks copied,
//! put back, cleared and compared on the device, nodes that use other memory; the graph in another order, launched; and,
//! when that order has been found good, the driver's own graph put into it.
//!
//! Everything happens in the order of the calls, on one stream; only comparing waits. Costs: an executable of one node each,
//! 10–20 µs a node once; a run is a launch, and as many blocks as are asked for are copied or compared by one more.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUfunction, CUgraph, CUgraphNode, CUresult};
use phonograph_graph::{ComputeGraph, Edge, NodeId, Rebuild};

use super::divert::{Diversion, addresses};
use super::edit::EditError;
use super::read::read;
use super::rebuild::copy_node;
use super::{ImportError, Imported};
use crate::device::Device;
use crate::error::{DriverError, call, log_drop};
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
    /// A kernel that does not end. The device's context is beyond use.
    #[error(
        "a kernel has not ended after {PATIENCE:?}: on these bytes, or in this order, it waits for what never comes"
    )]
    Endless,
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

/// A copy of bytes of a block, on the device.
pub struct Saved {
    address: u64,
    bytes: u64,
    /// All use of it is in the order of this stream, and so is giving it back.
    stream: Stream,
}

impl Saved {
    fn new(stream: &Stream, bytes: u64) -> Result<Self, DriverError> {
        let device = stream.device();
        let _current = device.enter()?;
        let (mut address, size) = (0, bytes.max(1) as usize);
        // SAFETY: pool and stream live as long as the device.
        unsafe {
            call!(cuMemAllocFromPoolAsync(&mut address, size, device.pool(), stream.handle()))
        }?;
        Ok(Self { address, bytes, stream: stream.clone() })
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let current = self.stream.device().enter();
        // SAFETY: the memory is this value's own, and whatever uses it was issued to this stream before.
        log_drop(unsafe { call!(cuMemFreeAsync(self.address, self.stream.handle())) });
        log_drop(current.map(drop));
    }
}

/// A graph under observation: its nodes can be run one at a time, and its blocks copied, exchanged and compared.
pub struct Watch {
    // Executables before what their nodes use.
    nodes: Vec<Executable>,
    imported: Imported,
    device: Device,
    stream: Stream,
    blocks: Vec<Block>,
    /// By node.
    diversions: Vec<Vec<Diversion>>,
    /// Memory that was added to the blocks, by its place there.
    spares: Vec<(usize, Memory)>,
    owner: Arc<Owner>,
    transfer: Function,
    differ: Function,
    /// Rows of a transfer or comparison, then marks.
    table: Memory,
}

/// How long a wait takes at most.
const PATIENCE: Duration = Duration::from_secs(10);
const PTX: &str = include_str!("watch.ptx");
/// Threads in a block of the two kernels.
const THREADS: u32 = 256;
/// Rows that one launch works on: pieces of blocks.
const ROWS: usize = 8192;
const ROW_BYTES: u64 = 32;
/// Blocks that one launch compares.
const MARKS: usize = 4096;
/// Bytes of a piece: enough for one block of threads, few enough that large blocks keep all of the device busy.
const PIECE: u64 = 128 << 10;

/// A row as the kernels read it: two addresses, how many bytes, and which mark and word of its block they belong to.
type Row = [u64; 4];

impl Watch {
    /// Takes a graph apart to run its nodes one at a time.
    ///
    /// # Errors
    /// For a graph that is [`read_only`](Imported::read_only), and for blocks that overlap or do not lie on whole words.
    ///
    /// # Safety
    /// All that the graph's nodes refer to is there for as long as this lives, and nothing else uses that memory or changes
    /// the graph meanwhile, but between calls and after [`wait`](Self::wait); the blocks are memory of this device. Run on
    /// bytes that blocks held at any time before, and in an order that this is asked to arrange, nodes do nothing that they
    /// may not.
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
        let count = imported.graph().node_count();
        let mut nodes = Vec::with_capacity(count);
        for id in imported.graph().node_ids() {
            // SAFETY: the caller's promise.
            nodes.push(unsafe { single(&imported, id, device, &[]) }?);
        }
        let module = Module::from_ptx(device, PTX)?;
        let (transfer, differ) = (module.function("transfer")?, module.function("differ")?);
        let owner = Arc::new(Owner);
        let table = ROWS as u64 * ROW_BYTES + MARKS as u64 * 8;
        let table = Memory::on_device(&owner, device, table)?;
        let (stream, blocks) = (Stream::new(device)?, blocks.to_vec());
        let (diversions, device) = (vec![Vec::new(); count], device.clone());
        Ok(Self {
            nodes,
            imported,
            device,
            stream,
            blocks,
            diversions,
            spares: Vec::new(),
            owner,
            transfer,
            differ,
            table,
        })
    }

    /// What was read of the graph.
    pub fn imported(&self) -> &Imported {
        &self.imported
    }

    /// The blocks, in the order in which they were given, then the spare ones.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Blocks in which a value lies that is a parameter of the node, or a part of one, and at which byte.
    pub fn named(&self, node: NodeId) -> Vec<(usize, u64)> {
        let mut by_address: Vec<(u64, usize)> =
            self.blocks.iter().enumerate().map(|(at, block)| (block.address, at)).collect();
        by_address.sort_unstable();
        let holder = |address: u64| {
            let place = by_address.partition_point(|(start, _)| *start <= address);
            let (start, at) = *by_address.get(place.checked_sub(1)?)?;
            (address - start < self.blocks[at].bytes).then_some((at, address - start))
        };
        let found: BTreeSet<(usize, u64)> =
            addresses(&self.imported.0, node).into_iter().filter_map(holder).collect();
        found.into_iter().collect()
    }

    /// Waits until all that was asked for is done.
    ///
    /// # Errors
    /// [`WatchError::Endless`] after ten seconds: nothing can end a kernel that waits for what never comes.
    pub fn wait(&mut self) -> Result<(), WatchError> {
        let start = Instant::now();
        let _current = self.device.enter()?;
        loop {
            // SAFETY: the stream lives.
            match unsafe { call!(cuStreamQuery(self.stream.handle())) } {
                Ok(()) => return Ok(()),
                Err(error) if error.code != CUresult::CUDA_ERROR_NOT_READY as u32 => {
                    return Err(error.into());
                }
                Err(_) if start.elapsed() > PATIENCE => return Err(WatchError::Endless),
                Err(_) => std::hint::spin_loop(),
            }
        }
    }

    /// Runs one node.
    pub fn run(&mut self, node: NodeId) -> Result<(), DriverError> {
        self.nodes[node.index()].launch(&self.stream)
    }

    /// Adds a block of zeroed memory.
    pub fn spare(&mut self, bytes: u64) -> Result<usize, DriverError> {
        let memory = Memory::on_device(&self.owner, &self.device, bytes)?;
        self.blocks.push(Block { address: memory.address(), bytes });
        self.spares.push((self.blocks.len() - 1, memory));
        Ok(self.blocks.len() - 1)
    }

    /// The memory of a block that was added. Nodes that were diverted to it use it for as long as they live.
    pub fn spare_memory(&self, block: usize) -> Option<Memory> {
        let at = self.spares.binary_search_by_key(&block, |(spare, _)| *spare).ok()?;
        Some(self.spares[at].1.clone())
    }

    /// Makes a node use other memory in place of what its parameters name, here and in what is arranged and applied from
    /// now on. None for what it was. False, and nothing changes, if its parameters do not name one of these places.
    pub fn divert(&mut self, node: NodeId, diversions: &[Diversion]) -> Result<bool, WatchError> {
        let named = addresses(&self.imported.0, node);
        let names =
            |diversion: &Diversion| named.iter().any(|&address| diversion.of(address).is_some());
        if !diversions.iter().all(names) {
            return Ok(false);
        }
        if self.diversions[node.index()] != diversions {
            let _current = self.device.enter()?;
            // SAFETY: `new` was promised that the graph and what it refers to live; the other memory is as long as what it
            // stands in for, and the caller's to choose.
            let other = unsafe { single(&self.imported, node, &self.device, diversions) }?;
            // The one that goes may be running.
            self.wait()?;
            self.nodes[node.index()] = other;
            self.diversions[node.index()] = diversions.to_vec();
        }
        Ok(true)
    }

    /// Copies blocks.
    pub fn save(&mut self, blocks: &[usize]) -> Result<Vec<Saved>, DriverError> {
        let mut copies = Vec::with_capacity(blocks.len());
        let mut rows = Vec::new();
        for &block in blocks {
            let Block { address, bytes } = self.blocks[block];
            let saved = Saved::new(&self.stream, bytes)?;
            cut(&mut rows, saved.address, address, bytes, 0);
            copies.push(saved);
        }
        self.transfer(&rows)?;
        Ok(copies)
    }

    /// A copy of some bytes of a copy.
    ///
    /// # Panics
    /// If it does not have them.
    pub fn part(&mut self, saved: &Saved, bytes: Range<u64>) -> Result<Saved, DriverError> {
        assert!(bytes.start <= bytes.end && bytes.end <= saved.bytes, "beyond the copy");
        let part = Saved::new(&self.stream, bytes.end - bytes.start)?;
        let mut rows = Vec::new();
        cut(&mut rows, part.address, saved.address + bytes.start, part.bytes, 0);
        self.transfer(&rows)?;
        Ok(part)
    }

    /// Writes copies back, each block at most once.
    ///
    /// # Panics
    /// If a copy is of a block of another size.
    pub fn restore(&mut self, copies: &[(usize, &Saved)]) -> Result<(), DriverError> {
        let mut rows = Vec::new();
        for &(block, saved) in copies {
            let Block { address, bytes } = self.blocks[block];
            assert_eq!(bytes, saved.bytes, "a copy of another block");
            cut(&mut rows, address, saved.address, bytes, 0);
        }
        self.transfer(&rows)
    }

    /// Fills blocks with zeros.
    pub fn clear(&mut self, blocks: &[usize]) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        for &block in blocks {
            let Block { address, bytes } = self.blocks[block];
            // SAFETY: `new` was promised that the block is memory of this device.
            unsafe { call!(cuMemsetD8Async(address, 0, bytes as usize, self.stream.handle())) }?;
        }
        Ok(())
    }

    fn transfer(&mut self, rows: &[Row]) -> Result<(), DriverError> {
        let mut table = self.table.address();
        for rows in rows.chunks(ROWS) {
            let mut parameters = [(&raw mut table).cast::<c_void>()];
            // SAFETY: the kernel's parameter is an address, and its rows name blocks and copies of their size.
            unsafe { self.launch(self.transfer.handle(), rows, &mut parameters) }?;
        }
        Ok(())
    }

    /// Which of these blocks do not hold those bytes, by their place in the list: from the first byte that differs to the
    /// last, in whole words.
    ///
    /// # Panics
    /// If a copy is of a block of another size.
    pub fn changed(
        &mut self,
        expected: &[(usize, &Saved)],
    ) -> Result<Vec<(usize, Range<u64>)>, WatchError> {
        let mut changed = Vec::new();
        for (part, pairs) in expected.chunks(MARKS).enumerate() {
            for (at, [first, end]) in self.compare(pairs)?.into_iter().enumerate() {
                if end != 0 {
                    let bytes = u64::from(!first) * 4..u64::from(end) * 4;
                    changed.push((part * MARKS + at, bytes));
                }
            }
        }
        Ok(changed)
    }

    fn compare(&mut self, expected: &[(usize, &Saved)]) -> Result<Vec<[u32; 2]>, WatchError> {
        let mut rows = Vec::with_capacity(expected.len());
        for (mark, &(block, saved)) in expected.iter().enumerate() {
            let Block { address, bytes } = self.blocks[block];
            assert_eq!(bytes, saved.bytes, "a copy of another block");
            cut(&mut rows, address, saved.address, bytes, mark as u32);
        }
        let mut found = vec![[0u32; 2]; expected.len()];
        let mut table = self.table.address();
        let mut marks = table + ROWS as u64 * ROW_BYTES;
        let (bytes, stream) = (size_of_val(&found[..]), self.stream.handle());
        let _current = self.device.enter()?;
        // SAFETY: the table has room for so many marks.
        unsafe { call!(cuMemsetD8Async(marks, 0, bytes, stream)) }?;
        for rows in rows.chunks(ROWS) {
            let mut parameters = [(&raw mut table).cast::<c_void>(), (&raw mut marks).cast()];
            // SAFETY: the kernel's two parameters are two addresses, and its rows name blocks and copies of their size.
            unsafe { self.launch(self.differ.handle(), rows, &mut parameters) }?;
        }
        // A copy to pageable memory would wait as long as it takes.
        self.wait()?;
        if bytes > 0 {
            // SAFETY: there is room for the marks, which are not touched before the wait.
            unsafe {
                call!(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), marks, bytes, stream))?;
                call!(cuStreamSynchronize(stream))?;
            }
        }
        Ok(found)
    }

    /// Puts rows into the table and runs one of the two kernels on them.
    ///
    /// # Safety
    /// There are at most as many rows as the table has room for, and the function may work on them, with these parameters.
    unsafe fn launch(
        &self,
        function: CUfunction,
        rows: &[Row],
        parameters: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        if rows.is_empty() {
            return Ok(());
        }
        let _current = self.device.enter()?;
        let (table, stream) = (self.table.address(), self.stream.handle());
        // SAFETY: the caller's promise. The driver has taken pageable bytes into memory of its own when the copy returns.
        unsafe {
            call!(cuMemcpyHtoDAsync_v2(table, rows.as_ptr().cast(), size_of_val(rows), stream))?;
            call!(cuLaunchKernel(
                function,
                rows.len() as u32,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                ptr::null_mut()
            ))
        }
    }

    /// The graph with exactly these edges instead of its own, ready to launch; the driver's graph stays as it is. Nodes are
    /// made in this order, and edges in theirs, by which the driver decides what runs beside what.
    ///
    /// # Errors
    /// [`EditError::Other`] if the edges have a cycle, name nodes that are not there or do not point forward in the order.
    pub fn arrange(
        &mut self,
        order: &[NodeId],
        edges: &[(NodeId, NodeId)],
    ) -> Result<Arranged, WatchError> {
        let into = Graph::new(&self.device)?;
        self.add(order, edges, into.handle(), &mut Vec::new())?;
        let mut executable = Executable::new(&into, 0).map_err(|refused| refused.error)?;
        executable.upload(&self.stream)?;
        self.wait()?;
        Ok(Arranged { executable, _graph: into })
    }

    /// Runs an arrangement to its end.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn replay(&mut self, arranged: &mut Arranged) -> Result<(), WatchError> {
        arranged.executable.launch(&self.stream)?;
        self.wait()
    }

    /// Puts the driver's graph itself into this order: its nodes are made anew, and those that were there are destroyed.
    ///
    /// # Errors
    /// As for [`arrange`](Self::arrange). The graph is as it was then, unless the driver refuses to destroy a node.
    pub fn apply(
        &mut self,
        order: &[NodeId],
        edges: &[(NodeId, NodeId)],
    ) -> Result<(), WatchError> {
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
        edges: &[(NodeId, NodeId)],
        into: CUgraph,
        made: &mut Vec<CUgraphNode>,
    ) -> Result<(), WatchError> {
        let arranged = self.with_edges(edges)?;
        let count = arranged.node_count();
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
        for &(from, to) in edges {
            if places[from.index()] >= places[to.index()] {
                return Err(other(format!("{to} is made before {from}")).into());
            }
            waits[to.index()].push(from);
        }
        let _current = self.device.enter()?;
        for &id in order {
            let mut after = Dependencies::default();
            for from in &waits[id.index()] {
                // Made before, as was just seen.
                let place = places[from.index()].unwrap_or_default();
                after.push(made[place], edge_data(0, 0, false));
            }
            let kind = &arranged.node(id).kind;
            let diversions = &self.diversions[id.index()];
            // SAFETY: `new` was promised that the graph and what it refers to live; so does the other.
            made.push(unsafe {
                copy_node(&self.imported.0, id, kind, &after, into, &self.device, diversions)
            }?);
        }
        Ok(())
    }

    fn with_edges(&self, edges: &[(NodeId, NodeId)]) -> Result<ComputeGraph, EditError> {
        let mut rebuild = Rebuild::new(self.imported.graph());
        let full = |&(from, to): &(NodeId, NodeId)| Edge::full(from, to);
        rebuild.edges(edges.iter().map(full).collect());
        Ok(rebuild.build().map_err(ImportError::from)?.0)
    }
}

fn other(problem: String) -> EditError {
    EditError::Other { inside: Vec::new(), problem }
}

/// One node alone.
///
/// # Safety
/// As for [`Watch::new`].
unsafe fn single(
    imported: &Imported,
    id: NodeId,
    device: &Device,
    diversions: &[Diversion],
) -> Result<Executable, WatchError> {
    let graph = Graph::new(device)?;
    let kind = &imported.graph().node(id).kind;
    let after = Dependencies::default();
    // SAFETY: the caller's promise; the graph was just made.
    unsafe { copy_node(&imported.0, id, kind, &after, graph.handle(), device, diversions) }?;
    Ok(Executable::new(&graph, 0).map_err(|refused| refused.error)?)
}

/// Rows for two pieces of memory of the same size.
fn cut(rows: &mut Vec<Row>, a: u64, b: u64, bytes: u64, mark: u32) {
    for start in (0..bytes).step_by(PIECE as usize) {
        let length = PIECE.min(bytes - start);
        rows.push([a + start, b + start, length, u64::from(mark) | (start / 4) << 32]);
    }
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

    /// What the driver's assembler reads; `PHONOGRAPH_PTXAS` names one that does so without a driver.
    #[test]
    fn the_kernels_are_assembled() {
        assert!(PTX.is_ascii(), "assemblers take nothing else");
        let Some(assembler) = std::env::var_os("PHONOGRAPH_PTXAS") else {
            return eprintln!("skipped: the assembler, which PHONOGRAPH_PTXAS names");
        };
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["watch.ptx", "watch.cubin"].map(|name| folder.path().join(name));
        std::fs::write(&from, PTX).unwrap();
        let said = std::process::Command::new(assembler)
            .args(["-arch=sm_90", "-o"])
            .args([&to, &from])
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
    }

    #[test]
    fn a_block_is_cut_into_pieces_that_know_their_place() {
        let mut rows = Vec::new();
        cut(&mut rows, 4096, 1 << 40, 2 * PIECE + 12, 7);
        let expected = [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 12)]
            .map(|(start, bytes)| [4096 + start, (1 << 40) + start, bytes, 7 | (start / 4) << 32]);
        assert_eq!(rows, expected);
    }

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
