//! Sums, maxima and positions of maxima along one axis.
//!
//! The tree of a reduction depends on the length L of its axis alone, so that the result is the same for any layout,
//! any split into tiles and any number of workers:
//!
//! 1. The axis is cut into chunks of 1024 elements. Within a chunk, element l belongs to lane l mod 32; a lane
//!    combines its elements in order, then lanes are combined in halves (i with i + 16, then i + 8, …).
//! 2. Chunks are combined in pairs: T(n) = T(p) + T(n − p), p the largest power of two below n.
//!
//! The error of a sum grows with 32 + log L roundings instead of L. 16 chunks make a segment. Where an axis has one
//! segment, a tile writes the result; where it has several, tiles write partial results to the workspace, and `finish`
//! combines them in the same tree.
//!
//! Rows (the axis is denser in memory than any other) are reduced one by one, lanes side by side; otherwise up to 32
//! neighbouring outputs are reduced together, each lane a row of accumulators.

use std::ops::Range;

use phonograph_graph::{ReduceOp, View};

use super::fold::{COLUMNS, FoldFns, Job, SEGMENT, fold_fns};
use super::layout::{Space, dot};
use super::simd::Level;
use super::tensor::{Operands, Tensor, without};
use super::{PrepareError, TARGET_TILE_NS};

pub(super) struct Reduce {
    fns: FoldFns,
    /// The outputs, in the order of the input's memory.
    space: Space,
    input: Tensor,
    output: Tensor,
    /// Elements along the axis, and from one to the next.
    len: usize,
    along: usize,
    segments: usize,
    /// Outputs that are reduced together; 1 for rows.
    columns: usize,
    /// Groups of columns along the last axis of the outputs.
    groups: usize,
    units: usize,
    units_per_tile: usize,
    cost_ns: u64,
}

impl Reduce {
    pub(super) fn new(
        op: ReduceOp,
        axis: usize,
        input: &View,
        output: &View,
    ) -> Result<Self, PrepareError> {
        let (len, along) = (input.shape().extents()[axis] as usize, input.strides()[axis] as usize);
        if op == ReduceOp::ArgMax && len > i32::MAX as usize {
            let problem = format!("has {len} elements along the axis; positions are i32");
            return Err(PrepareError::Argument { index: 0, problem });
        }
        let rest = without(input, axis);
        let (space, strides, _) = Space::new(&[rest, *output]);
        let (input, output) =
            (Tensor::new(0, input, strides[0])?, Tensor::new(1, output, strides[1])?);
        let inner = space.rank.checked_sub(1);
        let by_columns = inner.is_some_and(|inner| input.strides[inner] < along);
        let segments = len.div_ceil(SEGMENT).max(1);
        let (columns, groups) = match inner {
            Some(inner) if by_columns => (COLUMNS, space.extents[inner].div_ceil(COLUMNS)),
            _ => (1, 1),
        };
        let outer = match inner {
            Some(inner) if by_columns => space.elements / space.extents[inner].max(1),
            _ => space.elements,
        };
        let units = outer * groups * segments;
        let read = (space.elements * len) as u64;
        let cost_ns = read * input.size as u64 / 16 + 20 * space.elements as u64;
        let unit_ns = cost_ns / units.max(1) as u64;
        let per_tile = (TARGET_TILE_NS / unit_ns.max(1)).max(1) as usize;
        let units_per_tile = per_tile.max(units >> 20);
        let fns = fold_fns(Level::detect(), op, rest.dtype);
        Ok(Self {
            fns,
            space,
            input,
            output,
            len,
            along,
            segments,
            columns,
            groups,
            units,
            units_per_tile,
            cost_ns,
        })
    }

    pub(super) fn tiles(&self) -> u32 {
        self.units.div_ceil(self.units_per_tile).max(1) as u32
    }

    pub(super) fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    /// Partial results: one for each output and segment, where there are several segments.
    pub(super) fn workspace_bytes(&self) -> usize {
        if self.segments == 1 {
            return 0;
        }
        self.space.elements * self.segments * self.fns.partial_bytes
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(&self, on: &Operands<'_>, tiles: Range<u32>) {
        let unit_range = tiles.start as usize * self.units_per_tile
            ..(tiles.end as usize * self.units_per_tile).min(self.units);
        for unit in unit_range {
            let segment = unit % self.segments;
            let group = unit / self.segments % self.groups;
            let outer = unit / self.segments / self.groups;
            let (first_output, columns) = if self.columns == 1 {
                (outer, 1)
            } else {
                let extent = self.space.extents[self.space.rank - 1];
                let start = group * self.columns;
                (outer * extent + start, self.columns.min(extent - start))
            };
            let position = self.space.position(first_output);
            let first = segment * SEGMENT;
            let from = dot(&position, &self.input.strides) + first * self.along;
            // SAFETY: the caller's promise: the input's elements exist, and so does the element of each output, or the
            // partial result of each output and segment; no two units share one.
            unsafe {
                let (dst, dst_stride) = if self.segments == 1 {
                    let to = dot(&position, &self.output.strides);
                    (self.output.at(on, to), self.space.inner(&self.output.strides))
                } else {
                    let to = (first_output * self.segments + segment) * self.fns.partial_bytes;
                    (on.workspace.add(to), self.segments)
                };
                let job = Job {
                    src: self.input.at(on, from),
                    along: self.along,
                    across: self.space.inner(&self.input.strides),
                    len: SEGMENT.min(self.len - first),
                    first,
                    columns,
                    dst,
                    dst_stride,
                };
                let reduce = match (self.columns == 1, self.segments == 1) {
                    (true, true) => self.fns.row,
                    (true, false) => self.fns.row_partial,
                    (false, true) => self.fns.columns,
                    (false, false) => self.fns.columns_partial,
                };
                reduce(&job);
            }
        }
    }

    /// Combines partial results.
    ///
    /// # Safety
    /// See [`Prepared::finish`](super::Prepared::finish).
    pub(super) unsafe fn finish(&self, on: &Operands<'_>) {
        if self.segments == 1 {
            return;
        }
        for output in 0..self.space.elements {
            let position = self.space.position(output);
            let partials = output * self.segments * self.fns.partial_bytes;
            // SAFETY: the caller's promise: every tile has written its partial results.
            unsafe {
                let job = Job {
                    src: on.workspace.add(partials),
                    along: 1,
                    across: 0,
                    len: self.segments,
                    first: 0,
                    columns: 1,
                    dst: self.output.at(on, dot(&position, &self.output.strides)),
                    dst_stride: 0,
                };
                (self.fns.combine)(&job);
            }
        }
    }
}
