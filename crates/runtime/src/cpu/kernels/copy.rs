//! Copies and fills of one to three dimensions.
//!
//! In: the extent and, for each end, offset, pitch and rows of a slice. Tiles are parts of about 256 KiB: whole rows,
//! or pieces of a row where rows are long. Rows that follow one another without a gap on both sides count as one.

use std::ops::Range;

use phonograph_graph::{BufferId, Extent, MemcpyNode, MemsetNode, Pitched, Target};

use super::PrepareError;
use super::tensor::Operands;

const TILE_BYTES: usize = 256 << 10;

/// Rows of bytes, the same for both ends of a copy.
struct Box3 {
    width: usize,
    rows: usize,
    /// Rows of a slice.
    height: usize,
    /// Pieces that a row is cut into, and rows in a tile; one of them is 1.
    pieces: usize,
    rows_per_tile: usize,
}

/// Where the rows of one end lie.
struct End {
    offset: usize,
    pitch: usize,
    slice: usize,
}

impl End {
    fn new(end: &Pitched) -> Self {
        let [offset, pitch, rows] = [end.offset, end.pitch, end.slice_rows].map(|v| v as usize);
        Self { offset, pitch, slice: pitch.saturating_mul(rows) }
    }

    /// First byte of a row.
    fn row(&self, row: usize, height: usize) -> usize {
        self.offset + row / height * self.slice + row % height * self.pitch
    }
}

impl Box3 {
    fn new(extent: Extent, ends: &[&Pitched]) -> Self {
        let [mut width, mut height, mut depth] =
            [extent.width, extent.height, extent.depth].map(|v| v as usize);
        if width == 0 {
            // Rows of nothing take no memory, so that no buffer bounds how many there are.
            (height, depth) = (1, 1);
        }
        // Without gaps, rows are one long row, and slices too.
        let dense = |e: &&Pitched| height == 1 || e.pitch == extent.width;
        let whole = |e: &&Pitched| {
            depth == 1 || e.pitch.saturating_mul(e.slice_rows) == extent.width * extent.height
        };
        if ends.iter().all(dense) {
            if ends.iter().all(whole) {
                (width, depth) = (width * depth, 1);
            }
            (width, height) = (width * height, 1);
        }
        let rows = height * depth;
        let pieces = width.div_ceil(TILE_BYTES).max(1);
        let rows_per_tile =
            if pieces > 1 { 1 } else { (TILE_BYTES / width.max(1)).max(rows >> 20).max(1) };
        Self { width, rows, height, pieces, rows_per_tile }
    }

    fn tiles(&self) -> u32 {
        (self.rows.div_ceil(self.rows_per_tile) * self.pieces).clamp(1, u32::MAX as usize) as u32
    }

    fn bytes(&self) -> usize {
        self.width * self.rows
    }

    /// Calls `each(row, first byte in the row, bytes)` for each row or piece of the tiles.
    fn parts(&self, tiles: Range<u32>, mut each: impl FnMut(usize, usize, usize)) {
        for tile in tiles {
            let (group, piece) = (tile as usize / self.pieces, tile as usize % self.pieces);
            let start = group * self.rows_per_tile;
            for row in start..(start + self.rows_per_tile).min(self.rows) {
                let from = piece * TILE_BYTES;
                let to =
                    if self.pieces == 1 { self.width } else { self.width.min(from + TILE_BYTES) };
                if from < to {
                    each(row, from, to - from);
                }
            }
        }
    }
}

fn buffer(end: &Pitched, what: &'static str) -> Result<BufferId, PrepareError> {
    match end.target {
        Target::Buffer(buffer) => Ok(buffer),
        Target::Address(_) | Target::Unspecified => Err(PrepareError::NoMemory(what)),
    }
}

/// A copy. Operand 0 is the source, operand 1 the destination.
pub(super) struct Copy {
    rows: Box3,
    src: End,
    dst: End,
}

impl Copy {
    /// The copy and the buffers of its operands. Ends that overlap are refused: rows are copied in no certain order.
    pub(super) fn new(node: &MemcpyNode) -> Result<(Self, [BufferId; 2]), PrepareError> {
        let buffers = [
            buffer(&node.src, "source of the copy")?,
            buffer(&node.dst, "destination of the copy")?,
        ];
        if node.overlaps_itself() {
            return Err(PrepareError::Overlap { first: 0, second: 1 });
        }
        let rows = Box3::new(node.extent, &[&node.src, &node.dst]);
        Ok((Self { rows, src: End::new(&node.src), dst: End::new(&node.dst) }, buffers))
    }

    pub(super) fn tiles(&self) -> u32 {
        self.rows.tiles()
    }

    pub(super) fn cost_ns(&self) -> u64 {
        (self.rows.bytes() / 8 + 4 * self.rows.rows) as u64
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(&self, on: &Operands<'_>, tiles: Range<u32>) {
        let height = self.rows.height;
        self.rows.parts(tiles, |row, from, bytes| {
            let src = on.buffers[0].wrapping_add(self.src.row(row, height) + from);
            let dst = on.buffers[1].wrapping_add(self.dst.row(row, height) + from);
            // SAFETY: the caller's promise: both rows lie in their buffers, which do not overlap there.
            unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) }
        });
    }
}

/// A fill with a pattern. Operand 0 is the destination.
pub(super) struct Fill {
    rows: Box3,
    dst: End,
    /// The pattern, repeated.
    pattern: [u8; 64],
}

impl Fill {
    /// The fill and the buffer of its operand.
    pub(super) fn new(node: &MemsetNode) -> Result<(Self, BufferId), PrepareError> {
        let buffer = buffer(&node.dst, "destination of the fill")?;
        let value = node.value.to_le_bytes();
        let pattern = std::array::from_fn(|i| value[i % usize::from(node.element_size)]);
        let rows = Box3::new(node.extent, &[&node.dst]);
        Ok((Self { rows, dst: End::new(&node.dst), pattern }, buffer))
    }

    pub(super) fn tiles(&self) -> u32 {
        self.rows.tiles()
    }

    pub(super) fn cost_ns(&self) -> u64 {
        (self.rows.bytes() / 16 + 4 * self.rows.rows) as u64
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(&self, on: &Operands<'_>, tiles: Range<u32>) {
        let height = self.rows.height;
        self.rows.parts(tiles, |row, from, bytes| {
            let dst = on.buffers[0].wrapping_add(self.dst.row(row, height) + from);
            // SAFETY: the caller's promise: the row lies in its buffer, and no other tile has this part.
            let dst = unsafe { std::slice::from_raw_parts_mut(dst, bytes) };
            for chunk in dst.chunks_mut(self.pattern.len()) {
                chunk.copy_from_slice(&self.pattern[..chunk.len()]);
            }
        });
    }
}
