//! Running the nodes of a foreign graph one at a time, and watching the memory that they may touch.
//!
//! In: a graph that was read, and blocks of device memory. Out: what an observer needs: a node run alone, blocks copied,
//! put back, cleared and compared on the device, nodes that use other memory; the graph in another order, launched; and,
//! when that order has been found good, the driver's own graph put into it.
//!
//! Everything happens in the order of the calls, on one stream; only comparing waits. Costs: an executable of one node each,
//! 10–20 µs a node once; a run is a launch, and as many blocks as are asked for are copied or compared by one more.

mod arrange;
mod bytes;
mod last;

use std::collections::BTreeSet;
use std::mem::{forget, take};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUresult;
use phonograph_graph::NodeId;

use super::divert::{Diversion, addresses};
use super::edit::EditError;
use super::rebuild::copy_node;
use super::{ImportError, Imported};
use crate::device::Device;
use crate::error::{DriverError, call};
use crate::graph::{Dependencies, Executable, Graph};
use crate::memory::{Memory, Owner};
use crate::module::{Function, Module, ModuleError};
use crate::stream::Stream;

pub use arrange::{Arranged, Arrangement, Ends};
pub use bytes::Saved;
use bytes::{MARKS, PTX, ROW_BYTES, ROWS};
pub use last::Last;

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
    #[error("{}", .0.endless(PATIENCE))]
    Endless(Last),
    /// A kernel that faulted. The device's context is beyond use.
    #[error("{}", .last.faulted(error))]
    Fault {
        /// What the driver says.
        error: DriverError,
        /// What ran.
        last: Box<Last>,
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
    /// Nodes issued since the last wait, and the blocks that were written last.
    issued: Vec<NodeId>,
    put: Vec<usize>,
    lost: Lost,
    /// Memory that was added to the blocks, by its place there.
    spares: Vec<(usize, Memory)>,
    owner: Arc<Owner>,
    transfer: Function,
    differ: Function,
    empty: Function,
    /// Rows of a transfer or comparison, then marks.
    table: Memory,
}

/// How long a wait takes at most.
const PATIENCE: Duration = Duration::from_secs(10);

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
        let empty = Function::empty(device)?;
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
            issued: Vec::new(),
            put: Vec::new(),
            lost: Lost::default(),
            spares: Vec::new(),
            owner,
            transfer,
            differ,
            empty,
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
    /// [`WatchError::Endless`] after ten seconds: nothing can end a kernel that waits for what never comes. Everything else
    /// is answered so from then on, and what the driver would wait for when it is given back is not.
    pub fn wait(&mut self) -> Result<(), WatchError> {
        self.alive()?;
        let start = Instant::now();
        let _current = self.device.enter()?;
        loop {
            // SAFETY: the stream lives.
            match unsafe { call!(cuStreamQuery(self.stream.handle())) } {
                Ok(()) => {
                    self.issued.clear();
                    return Ok(());
                }
                Err(error) if error.code != CUresult::CUDA_ERROR_NOT_READY as u32 => {
                    return Err(WatchError::Fault { error, last: Box::new(self.last()) });
                }
                Err(_) if start.elapsed() > PATIENCE => {
                    self.lost.0.store(true, Ordering::Relaxed);
                    return Err(WatchError::Endless(self.last()));
                }
                Err(_) => std::hint::spin_loop(),
            }
        }
    }

    /// Nothing may be asked of a context in which a kernel does not end: the driver would wait for it.
    fn alive(&self) -> Result<(), WatchError> {
        if self.lost.is_lost() { Err(WatchError::Endless(self.last())) } else { Ok(()) }
    }

    /// What was issued since the last wait, and the blocks that were written last.
    fn last(&self) -> Last {
        let name = |&node: &NodeId| {
            let elsewhere =
                if self.diversions[node.index()].is_empty() { "" } else { ", diverted" };
            (node, self.imported.graph().node(node).name.to_string() + elsewhere)
        };
        let nodes = self.issued.iter().map(name).collect();
        let blocks = self.put.iter().map(|&at| (at, self.blocks[at])).collect();
        Last { nodes, blocks }
    }

    /// Runs one node.
    pub fn run(&mut self, node: NodeId) -> Result<(), WatchError> {
        self.alive()?;
        self.issued.push(node);
        Ok(self.nodes[node.index()].launch(&self.stream)?)
    }

    /// Cuts blocks at these bytes, given in ascending order: a piece takes the place of the block, the others follow it.
    ///
    /// # Panics
    /// If a border is no multiple of 4 inside of its block, or memory was added before.
    pub fn cut(&mut self, borders: &[(usize, u64)]) {
        assert!(self.spares.is_empty(), "what was added has a number");
        let mut pieces = Vec::with_capacity(self.blocks.len() + borders.len());
        for (block, &Block { address, bytes }) in self.blocks.iter().enumerate() {
            let mut start = 0;
            let cuts = borders.iter().filter(|(cut, _)| *cut == block).map(|(_, at)| *at);
            for end in cuts.chain([bytes]) {
                assert!(
                    start < end && end <= bytes && end % 4 == 0,
                    "a border at {end} of {bytes}"
                );
                pieces.push(Block { address: address + start, bytes: end - start });
                start = end;
            }
        }
        self.blocks = pieces;
        self.put.clear();
    }

    /// Adds a block of zeroed memory.
    pub fn spare(&mut self, bytes: u64) -> Result<usize, WatchError> {
        // Memory may come from what waits for the device.
        self.wait()?;
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
        self.alive()?;
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
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.lost.is_lost() {
            forget((take(&mut self.nodes), take(&mut self.spares), self.table.clone()));
            forget((self.transfer.clone(), self.differ.clone(), self.empty.clone()));
            forget((self.stream.clone(), self.device.clone()));
        }
    }
}

/// Whether a kernel does not end. What belongs to its context is leaked then: to give it back would wait for ever.
#[derive(Clone, Default)]
struct Lost(Arc<AtomicBool>);

impl Lost {
    fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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
