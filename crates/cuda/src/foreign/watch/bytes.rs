//! Copies of blocks, put back and compared on the device.
//!
//! One launch works on as many blocks as are asked for: they are cut into pieces, one for each block of threads, and a table
//! of these goes to the device. O(bytes), at the speed of its memory; a launch and its table cost about 20 µs.

use std::ffi::c_void;
use std::mem::forget;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::CUfunction;
use smallvec::SmallVec;

use super::{Block, Lost, Watch, WatchError};
use crate::error::{DriverError, call, log_drop};
use crate::stream::Stream;

/// A copy of the bytes of a block, on the device, in pieces that copies of the same block may share.
pub struct Saved {
    bytes: u64,
    /// Where each piece lies, and what keeps it.
    pieces: SmallVec<[(u64, Arc<Allocation>); 1]>,
}

impl Saved {
    /// Rows for the block that begins there and this.
    fn rows(&self, block: u64, mark: u32) -> impl Iterator<Item = Row> {
        let starts = (0..self.bytes).step_by(PIECE as usize);
        starts.zip(&self.pieces).map(move |(start, (copy, _))| {
            let length = PIECE.min(self.bytes - start);
            [block + start, *copy, length, u64::from(mark) | (start / 4) << 32]
        })
    }
}

/// Memory for pieces of a copy.
struct Allocation {
    address: u64,
    /// All use of it is in the order of this stream, and so is giving it back.
    stream: Stream,
    lost: Lost,
}

impl Allocation {
    fn new(stream: &Stream, bytes: u64, lost: &Lost) -> Result<Self, DriverError> {
        let device = stream.device();
        let _current = device.enter()?;
        let (mut address, size) = (0, bytes.max(1) as usize);
        // SAFETY: pool and stream live as long as the device.
        unsafe {
            call!(cuMemAllocFromPoolAsync(&mut address, size, device.pool(), stream.handle()))
        }?;
        Ok(Self { address, stream: stream.clone(), lost: lost.clone() })
    }

    /// The pieces that it is for, from its beginning on.
    fn pieces(self, bytes: u64) -> impl Iterator<Item = (u64, Arc<Self>)> {
        let whole = Arc::new(self);
        (0..bytes).step_by(PIECE as usize).map(move |at| (whole.address + at, whole.clone()))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.lost.is_lost() {
            return forget(self.stream.clone());
        }
        let current = self.stream.device().enter();
        // SAFETY: the memory is this value's own, and whatever uses it was issued to this stream before.
        log_drop(unsafe { call!(cuMemFreeAsync(self.address, self.stream.handle())) });
        log_drop(current.map(drop));
    }
}

pub(super) const PTX: &str = include_str!("watch.ptx");
/// Threads in a block of the two kernels.
const THREADS: u32 = 256;
/// Rows that one launch works on: pieces of blocks.
pub(super) const ROWS: usize = 8192;
pub(super) const ROW_BYTES: u64 = 32;
/// Blocks that one launch compares.
pub(super) const MARKS: usize = 4096;
/// Bytes of pageable memory that a copy takes without waiting for what was asked for before.
const STAGED: usize = 64 << 10;
/// Bytes of a piece: enough for one block of threads, few enough that large blocks keep all of the device busy.
const PIECE: u64 = 128 << 10;

/// A row as the kernels read it: two addresses, how many bytes, and which mark and word of its block they belong to.
type Row = [u64; 4];

impl Watch {
    /// Copies blocks.
    pub fn save(&mut self, blocks: &[usize]) -> Result<Vec<Saved>, WatchError> {
        self.alive()?;
        let mut copies = Vec::with_capacity(blocks.len());
        let mut rows = Vec::new();
        for &block in blocks {
            let Block { address, bytes } = self.blocks[block];
            let whole = Allocation::new(&self.stream, bytes, &self.lost)?;
            let saved = Saved { bytes, pieces: whole.pieces(bytes).collect() };
            rows.extend(saved.rows(address, 0).map(into_copy));
            copies.push(saved);
        }
        self.transfer(&rows)?;
        Ok(copies)
    }

    /// Copies blocks that hold what these copies do but for a range of bytes, and says how many bytes each takes: pieces
    /// without a byte of the range are shared.
    ///
    /// # Panics
    /// If a copy is of a block of another size, or a range is empty or leaves it.
    pub fn save_changes(
        &mut self,
        changes: &[(usize, Range<u64>, &Saved)],
    ) -> Result<Vec<(Saved, u64)>, WatchError> {
        self.alive()?;
        let mut copies = Vec::with_capacity(changes.len());
        let mut rows = Vec::new();
        for (block, changed, before) in changes {
            let Block { address, bytes } = self.blocks[*block];
            assert_eq!(bytes, before.bytes, "a copy of another block");
            assert!(changed.start < changed.end && changed.end <= bytes, "{changed:?} of {bytes}");
            let (first, end) = (changed.start / PIECE, changed.end.div_ceil(PIECE));
            let taken = bytes.min(end * PIECE) - first * PIECE;
            let anew = Allocation::new(&self.stream, taken, &self.lost)?.pieces(taken);
            let (first, end) = (first as usize, end as usize);
            let mut pieces: SmallVec<_> = before.pieces[..first].iter().cloned().collect();
            pieces.extend(anew.chain(before.pieces[end..].iter().cloned()));
            let saved = Saved { bytes, pieces };
            let all = saved.rows(address, 0).skip(first).take(end - first);
            rows.extend(all.map(into_copy));
            copies.push((saved, taken));
        }
        self.transfer(&rows)?;
        Ok(copies)
    }

    /// Writes copies back, each block at most once.
    ///
    /// # Panics
    /// If a copy is of a block of another size.
    pub fn restore(&mut self, copies: &[(usize, &Saved)]) -> Result<(), WatchError> {
        let mut rows = Vec::new();
        for &(block, saved) in copies {
            let Block { address, bytes } = self.blocks[block];
            assert_eq!(bytes, saved.bytes, "a copy of another block");
            rows.extend(saved.rows(address, 0));
        }
        self.put = copies.iter().map(|(block, _)| *block).collect();
        self.transfer(&rows)
    }

    /// Fills blocks with a word.
    pub fn fill(&mut self, blocks: &[usize], word: u32) -> Result<(), WatchError> {
        self.alive()?;
        let _current = self.device.enter()?;
        self.put = blocks.to_vec();
        for &block in blocks {
            let Block { address, bytes } = self.blocks[block];
            let words = bytes as usize / 4;
            // SAFETY: `new` was promised that the block is memory of this device; it lies on whole words.
            unsafe { call!(cuMemsetD32Async(address, word, words, self.stream.handle())) }?;
        }
        Ok(())
    }

    fn transfer(&mut self, rows: &[Row]) -> Result<(), WatchError> {
        let (mut table, transfer) = (self.table.address(), self.transfer.handle());
        for rows in rows.chunks(ROWS) {
            let mut parameters = [(&raw mut table).cast::<c_void>()];
            // SAFETY: the kernel's parameter is an address, and its rows name blocks and copies of their size.
            unsafe { self.launch(transfer, rows, &mut parameters) }?;
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
            rows.extend(saved.rows(address, mark as u32));
        }
        let mut found = vec![[0u32; 2]; expected.len()];
        let mut table = self.table.address();
        let mut marks = table + ROWS as u64 * ROW_BYTES;
        let (bytes, stream) = (size_of_val(&found[..]), self.stream.handle());
        let differ = self.differ.handle();
        self.alive()?;
        let _current = self.device.enter()?;
        // SAFETY: the table has room for so many marks.
        unsafe { call!(cuMemsetD8Async(marks, 0, bytes, stream)) }?;
        for rows in rows.chunks(ROWS) {
            let mut parameters = [(&raw mut table).cast::<c_void>(), (&raw mut marks).cast()];
            // SAFETY: the kernel's two parameters are two addresses, and its rows name blocks and copies of their size.
            unsafe { self.launch(differ, rows, &mut parameters) }?;
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
        &mut self,
        function: CUfunction,
        rows: &[Row],
        parameters: &mut [*mut c_void],
    ) -> Result<(), WatchError> {
        if rows.is_empty() {
            return Ok(());
        }
        // The driver stages as much as this; for more it waits as long as it takes.
        if size_of_val(rows) > STAGED {
            self.wait()?;
        }
        self.alive()?;
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
            ))?;
        }
        Ok(())
    }
}

/// The row of a block and its copy for a transfer into the copy.
fn into_copy([block, copy, length, mark]: Row) -> Row {
    [copy, block, length, mark]
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
}
