//! Matrix products of f32 and f64, by the `gemm` crate, one call a tile.
//!
//! Tiles depend on the shapes only: the larger side of the output is halved while a tile has more than about 16
//! million operations and a side over 128. The inner axis is never split: one output element is the work of one tile.
//! Any strides are allowed; an inner axis of no elements gives zeros. `gemm` packs its operands into memory that it
//! allocates for the call; nothing else here allocates. Where an expression takes the product, a tile of it goes to the
//! workspace, laid out as the whole product would be, and the expression to what was just written.

use std::ops::Range;

use gemm::Parallelism;
use phonograph_graph::{DType, FusedKernel, View};

use super::part::Part;
use super::tensor::{Operands, Tensor};
use super::{PrepareError, Scratch};

const TILE_FLOPS: u64 = 1 << 24;
const SMALLEST_SIDE: usize = 128;
/// Sides are multiples of this, which the micro-kernels of every CPU divide.
const SIDE_STEP: usize = 48;

pub(super) struct MatMul {
    dtype: DType,
    /// a, b, output; strides are batch, row, column.
    operands: [Tensor; 3],
    batches: usize,
    m: usize,
    n: usize,
    k: usize,
    tile_m: usize,
    tile_n: usize,
    /// What is done to the product.
    after: Option<Box<Part>>,
}

impl MatMul {
    /// With work after it. The product of a tile is written to the workspace, packed, and used at once.
    pub(super) fn fused(fused: &FusedKernel, views: &[View]) -> Result<Self, PrepareError> {
        let library = fused.library_operands(views).expect("checked when the graph was built");
        let after = fused.after.as_ref().map(|expr| Part::after(fused, expr, views, library[2]));
        Ok(Self { after: after.transpose()?.map(Box::new), ..Self::new(&library)? })
    }

    pub(super) fn new(views: &[View]) -> Result<Self, PrepareError> {
        let operand = |index: usize| {
            let mut tensor = Tensor::of(index, &views[index])?;
            if views[index].shape().rank() == 2 {
                // A batch of one.
                tensor.strides.rotate_right(1);
                tensor.strides[0] = 0;
            }
            Ok::<_, PrepareError>(tensor)
        };
        let operands = [operand(0)?, operand(1)?, operand(2)?];
        let (a, b) = (views[0].shape(), views[1].shape());
        let (a, b) = (a.extents(), b.extents());
        let [m, k] = [a[a.len() - 2] as usize, a[a.len() - 1] as usize];
        let n = b[b.len() - 1] as usize;
        let batches = if a.len() == 3 { a[0] as usize } else { 1 };
        let (mut tile_m, mut tile_n) = (m.max(1), n.max(1));
        let halved = |side: usize| side.div_ceil(2).next_multiple_of(SIDE_STEP);
        while flops(tile_m, tile_n, k) > TILE_FLOPS && tile_m.max(tile_n) > SMALLEST_SIDE {
            let longer = if tile_m > tile_n { &mut tile_m } else { &mut tile_n };
            *longer = halved(*longer);
        }
        let dtype = views[0].dtype;
        Ok(Self { dtype, operands, batches, m, n, k, tile_m, tile_n, after: None })
    }

    fn grid(&self) -> (usize, usize) {
        (self.m.div_ceil(self.tile_m), self.n.div_ceil(self.tile_n))
    }

    pub(super) fn tiles(&self) -> u32 {
        let (rows, columns) = self.grid();
        (self.batches * rows * columns).clamp(1, u32::MAX as usize) as u32
    }

    pub(super) fn cost_ns(&self) -> u64 {
        // About 50 operations a nanosecond in f32 on one core with AVX2, half of that in f64.
        let rate = if self.dtype == DType::F32 { 50 } else { 25 };
        let elements = (self.m * self.n) as u64;
        let after = self.after.as_ref().map_or(0, |after| elements * after.cost_ps() / 1000);
        self.batches as u64 * (flops(self.m, self.n, self.k) / rate + elements / 4 + after)
    }

    /// The product, where it is not an operand.
    pub(super) fn workspace_bytes(&self) -> usize {
        let elements = self.batches * self.m * self.n;
        self.after.as_ref().map_or(0, |_| elements * self.operands[2].size)
    }

    pub(super) fn scratch_bytes(&self) -> usize {
        self.after.as_deref().map_or(0, Part::scratch_bytes)
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(&self, on: &Operands<'_>, tiles: Range<u32>, scratch: &mut Scratch) {
        let registers = scratch.get(self.scratch_bytes());
        // SAFETY: the caller's promise, and the type is that of the views.
        unsafe {
            match self.dtype {
                DType::F32 => self.run_as::<f32>(on, tiles, registers),
                DType::F64 => self.run_as::<f64>(on, tiles, registers),
                other => unreachable!("graphs have no matrix product of {other}"),
            }
        }
    }

    unsafe fn run_as<T: Float>(&self, on: &Operands<'_>, tiles: Range<u32>, registers: *mut u8) {
        let (rows, columns) = self.grid();
        let count = self.batches * rows * columns;
        for tile in tiles.start as usize..(tiles.end as usize).min(count) {
            let (batch, i, j) = (tile / (rows * columns), tile / columns % rows, tile % columns);
            let (i, j) = (i * self.tile_m, j * self.tile_n);
            let (m, n) = (self.tile_m.min(self.m - i), self.tile_n.min(self.n - j));
            let at = |operand: usize, row: usize, column: usize| {
                let tensor = &self.operands[operand];
                let [of_batch, of_row, of_column, ..] = tensor.strides;
                let index = batch * of_batch + row * of_row + column * of_column;
                let first = match (&self.after, operand) {
                    (Some(_), 2) => on.workspace.wrapping_add(index * size_of::<T>()),
                    _ => tensor.at(on, index),
                };
                (first.cast::<T>(), of_row as isize, of_column as isize)
            };
            let (a, a_row, a_column) = at(0, i, 0);
            let (b, b_row, b_column) = at(1, 0, j);
            let (c, c_row, c_column) = at(2, i, j);
            // SAFETY: the caller's promise: the operands' elements exist, the output overlaps neither and no other tile
            // writes this part of it. Without an inner axis nothing is read.
            unsafe {
                if self.k == 0 {
                    for (row, column) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
                        *c.offset(row as isize * c_row + column as isize * c_column) = T::ZERO;
                    }
                } else {
                    gemm::gemm(
                        m,
                        n,
                        self.k,
                        c,
                        c_column,
                        c_row,
                        false,
                        a,
                        a_column,
                        a_row,
                        b,
                        b_column,
                        b_row,
                        T::ZERO,
                        T::ONE,
                        false,
                        false,
                        false,
                        Parallelism::None,
                    );
                }
                if let Some(after) = &self.after {
                    // The product is packed: whole rows of a tile that is as wide as it are one run.
                    let (rows, wide) = if n == self.n { (1, m * n) } else { (m, n) };
                    for row in 0..rows {
                        let first = (batch * self.m + i + row) * self.n + j;
                        after.run(on, on.workspace, first..first + wide, registers);
                    }
                }
            }
        }
    }
}

fn flops(m: usize, n: usize, k: usize) -> u64 {
    (2 * m as u64).saturating_mul(n as u64).saturating_mul(k as u64)
}

trait Float: Copy + 'static {
    const ZERO: Self;
    const ONE: Self;
}

impl Float for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}

impl Float for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
}
