//! Gather and scatter-add: rows that an index tensor names.
//!
//! Both check the row numbers that a tile uses before the tile writes anything. Gather's tiles are ranges of output
//! rows, wide rows in parts. Scatter-add's tiles are parts of the *destination* (columns, and rows where there are
//! few columns): each goes through the whole list of row numbers in order, so that every destination element is
//! summed in index order by one worker.

use std::ops::Range;

use phonograph_graph::{DType, View};

use super::layout::{Space, Strides};
use super::simd::Level;
use super::tensor::{Operands, Tensor, without};
use super::{KernelError, PrepareError, TARGET_TILE_NS};

/// Elements of a row that one tile treats at most.
const GATHER_PART: usize = 1 << 14;
const SCATTER_PART: usize = 1 << 10;
/// The most ranges that the destination's rows are cut into: each scans all row numbers.
const SCATTER_RANGES: usize = 8;

/// Moves or adds `n` elements, with strides in elements.
type RowFn =
    unsafe fn(dst: *mut u8, dst_stride: usize, src: *const u8, src_stride: usize, n: usize);

/// The list of row numbers.
struct RowNumbers {
    tensor: Tensor,
    stride: usize,
    signed: bool,
    count: usize,
    /// How many rows there are to name.
    rows: usize,
}

impl RowNumbers {
    fn new(view: &View, rows: u64) -> Result<Self, PrepareError> {
        let tensor = Tensor::of(1, view)?;
        let stride = tensor.strides[0];
        let count = view.elements() as usize;
        Ok(Self { tensor, stride, signed: view.dtype == DType::I32, count, rows: rows as usize })
    }

    /// # Safety
    /// `position` is below `count`, and the buffers hold the node's operands.
    #[inline(always)]
    unsafe fn get(&self, on: &Operands<'_>, position: usize) -> i64 {
        let at = self.tensor.at(on, position * self.stride);
        // SAFETY: the caller's promise; the type is the view's.
        unsafe { if self.signed { (*at.cast::<i32>()).into() } else { (*at.cast::<u32>()).into() } }
    }

    /// # Safety
    /// As for [`get`](Self::get), for every position of the range.
    unsafe fn check(&self, on: &Operands<'_>, positions: Range<usize>) -> Result<(), KernelError> {
        for position in positions {
            // SAFETY: the caller's promise.
            let value = unsafe { self.get(on, position) };
            if value < 0 || value as u64 >= self.rows as u64 {
                let (position, rows) = (position as u64, self.rows as u64);
                return Err(KernelError::Row { position, value, rows });
            }
        }
        Ok(())
    }
}

/// A tensor of rows: where each starts, and how its elements lie in the space of a row.
struct Rows {
    tensor: Tensor,
    stride: usize,
}

impl Rows {
    fn new(operand: usize, view: &View, in_row: Strides) -> Result<Self, PrepareError> {
        let tensor = Tensor::new(operand, view, in_row)?;
        Ok(Self { tensor, stride: view.strides()[0] as usize })
    }
}

pub(super) struct Gather {
    numbers: RowNumbers,
    table: Rows,
    output: Rows,
    row: Space,
    dense: bool,
    copy: RowFn,
    /// Parts of a row.
    parts: usize,
    units_per_tile: usize,
}

impl Gather {
    pub(super) fn new(views: &[View]) -> Result<Self, PrepareError> {
        let [table, numbers, output] = [&views[0], &views[1], &views[2]];
        let (row, strides, _) = Space::new(&[without(output, 0), without(table, 0)]);
        let dense = strides.iter().all(|s| row.is_dense(s));
        let copy = copier(Level::detect(), table.dtype.size());
        let parts = row.elements.div_ceil(GATHER_PART).max(1);
        let part_ns = 10 + (row.elements / parts) as u64 * table.dtype.size() / 8;
        Ok(Self {
            numbers: RowNumbers::new(numbers, table.shape().extents()[0])?,
            table: Rows::new(0, table, strides[1])?,
            output: Rows::new(2, output, strides[0])?,
            units_per_tile: ((TARGET_TILE_NS / part_ns).max(1) as usize)
                .max((numbers.elements() as usize * parts) >> 20),
            row,
            dense,
            copy,
            parts,
        })
    }

    fn units(&self) -> usize {
        self.numbers.count * self.parts
    }

    pub(super) fn tiles(&self) -> u32 {
        self.units().div_ceil(self.units_per_tile).max(1) as u32
    }

    pub(super) fn cost_ns(&self) -> u64 {
        let bytes = self.numbers.count * self.row.elements * self.table.tensor.size;
        (10 * self.units() + bytes / 8) as u64
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(
        &self,
        on: &Operands<'_>,
        tiles: Range<u32>,
    ) -> Result<(), KernelError> {
        for tile in tiles {
            let from = tile as usize * self.units_per_tile;
            let to = (from + self.units_per_tile).min(self.units());
            if from >= to {
                return Ok(());
            }
            // SAFETY: the caller's promise.
            unsafe { self.numbers.check(on, from / self.parts..to.div_ceil(self.parts))? };
            if self.row.elements == 0 {
                continue;
            }
            for unit in from..to {
                let (position, part) = (unit / self.parts, unit % self.parts);
                let start = part * GATHER_PART;
                let n = GATHER_PART.min(self.row.elements - start);
                // SAFETY: the caller's promise, and the row number was just checked.
                unsafe {
                    let row = self.numbers.get(on, position) as usize * self.table.stride;
                    self.copy_part(on, position * self.output.stride, row, start, n);
                }
            }
        }
        Ok(())
    }

    /// Copies elements `start..start + n` of a row; `to` and `from` are where the rows start.
    ///
    /// # Safety
    /// Both rows exist.
    unsafe fn copy_part(&self, on: &Operands<'_>, to: usize, from: usize, start: usize, n: usize) {
        let (output, table) = (&self.output.tensor, &self.table.tensor);
        let copy = |to_at: usize, from_at: usize, strides: [usize; 2], n: usize| {
            let (dst, src) = (output.at(on, to + to_at), table.at(on, from + from_at));
            // SAFETY: the caller's promise; the output overlaps no operand.
            unsafe { (self.copy)(dst, strides[0], src, strides[1], n) }
        };
        if self.dense {
            copy(start, start, [1, 1], n);
        } else {
            let strides = [&output.strides, &table.strides];
            let inner = strides.map(|s| self.row.inner(s));
            self.row.runs(self.row.position(start), n, strides, |[to, from], _, n| {
                copy(to, from, inner, n);
            });
        }
    }
}

pub(super) struct ScatterAdd {
    numbers: RowNumbers,
    source: Rows,
    sum: Rows,
    row: Space,
    add: RowFn,
    parts: usize,
    ranges: usize,
    cost_ns: u64,
}

impl ScatterAdd {
    pub(super) fn new(views: &[View]) -> Result<Self, PrepareError> {
        let [source, numbers, sum] = [&views[0], &views[1], &views[2]];
        let (row, strides, _) = Space::new(&[without(sum, 0), without(source, 0)]);
        let rows = sum.shape().extents()[0];
        let numbers = RowNumbers::new(numbers, rows)?;
        let parts = row.elements.div_ceil(SCATTER_PART).max(1);
        let cost_ns = (numbers.count * (10 * parts + row.elements / 2)) as u64;
        let wanted = (cost_ns / TARGET_TILE_NS) as usize / parts;
        let ranges = wanted.clamp(1, SCATTER_RANGES).min(numbers.rows.max(1));
        Ok(Self {
            source: Rows::new(0, source, strides[1])?,
            sum: Rows::new(2, sum, strides[0])?,
            add: adder(Level::detect(), sum.dtype),
            numbers,
            row,
            parts,
            ranges,
            cost_ns,
        })
    }

    pub(super) fn tiles(&self) -> u32 {
        (self.parts * self.ranges).min(u32::MAX as usize) as u32
    }

    pub(super) fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(
        &self,
        on: &Operands<'_>,
        tiles: Range<u32>,
    ) -> Result<(), KernelError> {
        if tiles.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.numbers.check(on, 0..self.numbers.count)? };
        if self.row.elements == 0 {
            return Ok(());
        }
        let (sum, source) = (&self.sum.tensor, &self.source.tensor);
        let strides = [&sum.strides, &source.strides];
        let inner = strides.map(|s| self.row.inner(s));
        for tile in tiles {
            let (range, part) = (tile as usize / self.parts, tile as usize % self.parts);
            let rows = self.numbers.rows * range / self.ranges
                ..self.numbers.rows * (range + 1) / self.ranges;
            let start = part * SCATTER_PART;
            let n = SCATTER_PART.min(self.row.elements - start);
            for position in 0..self.numbers.count {
                // SAFETY: the caller's promise.
                let row = unsafe { self.numbers.get(on, position) } as usize;
                if !rows.contains(&row) {
                    continue;
                }
                let (to, from) = (row * self.sum.stride, position * self.source.stride);
                self.row.runs(self.row.position(start), n, strides, |[to_at, from_at], _, n| {
                    let (dst, src) = (sum.at(on, to + to_at), source.at(on, from + from_at));
                    // SAFETY: the caller's promise; both rows exist, and no other tile has this part of this row.
                    unsafe { (self.add)(dst, inner[0], src, inner[1], n) }
                });
            }
        }
        Ok(())
    }
}

/// # Safety
/// Both sides are valid and aligned for `n` elements of `T` and do not overlap.
#[inline(always)]
unsafe fn each<T: Copy>(
    dst: *mut u8,
    dst_stride: usize,
    src: *const u8,
    src_stride: usize,
    n: usize,
    f: impl Fn(T, T) -> T,
) {
    let (dst, src) = (dst.cast::<T>(), src.cast::<T>());
    // SAFETY: the caller's promise.
    unsafe {
        if dst_stride == 1 && src_stride == 1 {
            let src = std::slice::from_raw_parts(src, n);
            for (d, &s) in std::slice::from_raw_parts_mut(dst, n).iter_mut().zip(src) {
                *d = f(*d, s);
            }
        } else {
            for i in 0..n {
                let d = dst.add(i * dst_stride);
                *d = f(*d, *src.add(i * src_stride));
            }
        }
    }
}

/// Compiles a loop for each type and each level.
macro_rules! row_fns {
    ($level:expr, $key:expr, [$($pattern:pat => $t:ty),+], |$d:ident, $s:ident| $body:expr, $what:literal) => {
        match $key {
            $($pattern => {
                unsafe fn base(dst: *mut u8, dst_stride: usize, src: *const u8, src_stride: usize, n: usize) {
                    // SAFETY: the caller's promise.
                    unsafe { each::<$t>(dst, dst_stride, src, src_stride, n, |$d, $s| $body) }
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2")]
                unsafe fn avx2(dst: *mut u8, dst_stride: usize, src: *const u8, src_stride: usize, n: usize) {
                    // SAFETY: the caller's promise.
                    unsafe { each::<$t>(dst, dst_stride, src, src_stride, n, |$d, $s| $body) }
                }
                match $level {
                    Level::Base => base as RowFn,
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => avx2 as RowFn,
                }
            })+
            other => unreachable!(concat!("graphs have no ", $what, " of {}"), other),
        }
    };
}

fn copier(level: Level, size: u64) -> RowFn {
    row_fns!(level, size, [1 => u8, 2 => u16, 4 => u32, 8 => u64], |_d, s| s, "gather")
}

fn adder(level: Level, dtype: DType) -> RowFn {
    // Floats and integers differ in how they add, and nothing else.
    if dtype.is_float() {
        row_fns!(level, dtype, [DType::F32 => f32, DType::F64 => f64], |d, s| d + s, "scatter-add")
    } else {
        row_fns!(
            level,
            dtype,
            [DType::I32 => i32, DType::I64 => i64, DType::U32 => u32],
            |d, s| d.wrapping_add(s),
            "scatter-add"
        )
    }
}
