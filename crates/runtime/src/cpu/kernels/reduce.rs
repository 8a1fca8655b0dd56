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
//! Elements that an expression gives ([`part`](super::part)) are computed a few rows at a time, 4096 elements, into scratch
//! memory, and reduced from there; they are visited once, row by row. Work after the reduction is done at the end of a tile
//! on the results of the tile, or by `finish`.
//!
//! Rows (the axis is denser in memory than any other) are reduced one by one, lanes side by side; otherwise up to 32
//! neighbouring outputs are reduced together, each lane a row of accumulators.

use std::cell::Cell;
use std::ops::Range;

use phonograph_graph::{FusedKernel, ReduceOp, View};

use super::fold::{COLUMNS, FoldFns, Job, SEGMENT, Source, fold_fns};
use super::layout::{Space, dot};
use super::part::Part;
use super::simd::Level;
use super::tensor::{Operands, Tensor, without};
use super::{PrepareError, Scratch, TARGET_TILE_NS};

/// Elements that are computed at a time where they do not lie in memory; a multiple of a chunk.
const FILL: usize = 4096;

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
    /// Computes the elements that are reduced; then rows are reduced, one by one.
    before: Option<Box<Part>>,
    /// What is done to the results.
    after: Option<Box<Part>>,
    /// Bytes of a result and of an element.
    result_bytes: usize,
}

impl Reduce {
    pub(super) fn new(
        op: ReduceOp,
        axis: usize,
        input: &View,
        output: &View,
    ) -> Result<Self, PrepareError> {
        Self::assemble(op, axis, (0, *input), (1, *output), None, None)
    }

    /// With work before or after it.
    pub(super) fn fused(
        fused: &FusedKernel,
        op: ReduceOp,
        axis: usize,
        views: &[View],
    ) -> Result<Self, PrepareError> {
        let library = fused.library_operands(views).expect("checked when the graph was built");
        let (mut input, mut output) = ((0, library[0]), (views.len() - 1, library[1]));
        if fused.before.is_some() {
            // Rows, whatever the layout of what they are computed from: the tree is the same for every layout.
            let others = (0..input.1.shape().rank()).filter(|&a| a != axis);
            input.1 = packed(&input.1, others.chain([axis]));
        }
        if fused.after.is_some() {
            let rest = without(&input.1, axis);
            let mut order: Vec<usize> = (0..rest.shape().rank()).collect();
            order.sort_by_key(|&a| std::cmp::Reverse(rest.strides()[a]));
            output = (views.len(), packed(&output.1, order.into_iter()));
        }
        let before = fused.before.as_ref().map(|expr| Part::before(fused, expr, views, input.1));
        let after = fused.after.as_ref().map(|expr| Part::after(fused, expr, views, output.1));
        Self::assemble(op, axis, input, output, before.transpose()?, after.transpose()?)
    }

    fn assemble(
        op: ReduceOp,
        axis: usize,
        (input_at, input): (usize, View),
        (output_at, output): (usize, View),
        before: Option<Part>,
        after: Option<Part>,
    ) -> Result<Self, PrepareError> {
        let (len, along) = (input.shape().extents()[axis] as usize, input.strides()[axis] as usize);
        if op == ReduceOp::ArgMax && len > i32::MAX as usize {
            let problem = format!("has {len} elements along the axis; positions are i32");
            return Err(PrepareError::Argument { index: 0, problem });
        }
        let rest = without(&input, axis);
        let (space, strides, _) = Space::new(&[rest, output]);
        let (input, output) = (
            Tensor::new(input_at, &input, strides[0])?,
            Tensor::new(output_at, &output, strides[1])?,
        );
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
        let cost_of = |part: Option<&Part>, elements: u64| {
            part.map_or(0, |part| elements.saturating_mul(part.cost_ps()) / 1000)
        };
        let cost_ns = read * input.size as u64 / 16
            + 20 * space.elements as u64
            + cost_of(before.as_ref(), read)
            + cost_of(after.as_ref(), space.elements as u64);
        let unit_ns = cost_ns / units.max(1) as u64;
        let per_tile = (TARGET_TILE_NS / unit_ns.max(1)).max(1) as usize;
        let units_per_tile = per_tile.max(units >> 20);
        let fns = fold_fns(Level::detect(), op, rest.dtype);
        Ok(Self {
            fns,
            space,
            before: before.map(Box::new),
            after: after.map(Box::new),
            result_bytes: output.size,
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
    fn partial_bytes(&self) -> usize {
        if self.segments == 1 {
            return 0;
        }
        (self.space.elements * self.segments * self.fns.partial_bytes).next_multiple_of(16)
    }

    /// Partial results, then results for the work after, then the registers of that work when it is done in the end.
    pub(super) fn workspace_bytes(&self) -> usize {
        let Some(after) = &self.after else { return self.partial_bytes() };
        let registers = if self.needs_finish() { after.scratch_bytes() } else { 0 };
        self.partial_bytes() + self.handed_bytes() + registers
    }

    fn handed_bytes(&self) -> usize {
        (self.space.elements * self.result_bytes).next_multiple_of(16)
    }

    pub(super) fn needs_finish(&self) -> bool {
        self.segments > 1
    }

    /// Elements to reduce, then registers, which both parts use in turn.
    pub(super) fn scratch_bytes(&self) -> usize {
        let before = self.before.as_deref();
        let elements = before.map_or(0, |_| FILL * self.input.size);
        let parts = [before, self.after.as_deref()].into_iter().flatten();
        elements + parts.map(Part::scratch_bytes).max().unwrap_or(0)
    }

    /// Where the result of an output goes.
    fn result_at(&self, on: &Operands<'_>, index: usize) -> *mut u8 {
        match &self.after {
            Some(_) => on.workspace.wrapping_add(self.partial_bytes() + index * self.result_bytes),
            None => self.output.at(on, index),
        }
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(&self, on: &Operands<'_>, tiles: Range<u32>, scratch: &mut Scratch) {
        let elements = scratch.get(self.scratch_bytes());
        let registers =
            elements.wrapping_add(self.before.as_ref().map_or(0, |_| FILL * self.input.size));
        let (mut first_of_all, mut end_of_all) = (usize::MAX, 0);
        // Which elements are there, counted row by row.
        let filled = Cell::new((0, 0));
        let unit_range = tiles.start as usize * self.units_per_tile
            ..(tiles.end as usize * self.units_per_tile).min(self.units);
        let end_of_rows = match unit_range.end.checked_sub(1) {
            Some(last) => {
                let (row, segment) = (last / self.segments, last % self.segments);
                row * self.len + ((segment + 1) * SEGMENT).min(self.len)
            }
            None => 0,
        };
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
            first_of_all = first_of_all.min(first_output);
            end_of_all = end_of_all.max(first_output + columns);
            let position = self.space.position(first_output);
            let first = segment * SEGMENT;
            let fill = self.before.as_ref().map(|before| {
                let filled = &filled;
                move |start: usize, n: usize| {
                    let at = first_output * self.len + first + start;
                    if at < filled.get().0 || at + n > filled.get().1 {
                        // Whole rows, or whole chunks of one: no element is computed twice.
                        let end = match FILL / self.len {
                            0 => (at + FILL).min((first_output + 1) * self.len),
                            rows => at + rows * self.len,
                        };
                        let end = end.min(end_of_rows);
                        let zeroth = elements.wrapping_sub(at * self.input.size);
                        // SAFETY: the caller's promise; the elements exist and fit where they are put.
                        unsafe { before.run(on, zeroth, at..end, registers) };
                        filled.set((at, end));
                    }
                    elements.wrapping_add((at - filled.get().0) * self.input.size).cast_const()
                }
            });
            let from = dot(&position, &self.input.strides) + first * self.along;
            // SAFETY: the caller's promise: the input's elements exist, and so does the element of each output, or the
            // partial result of each output and segment; no two units share one.
            unsafe {
                let (dst, dst_stride) = if self.segments == 1 {
                    let to = dot(&position, &self.output.strides);
                    (self.result_at(on, to), self.space.inner(&self.output.strides))
                } else {
                    let to = (first_output * self.segments + segment) * self.fns.partial_bytes;
                    (on.workspace.add(to), self.segments)
                };
                let job = Job {
                    src: match fill {
                        Some(_) => std::ptr::null(),
                        None => self.input.at(on, from),
                    },
                    source: fill.as_ref().map(|fill| fill as &Source<'_>),
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
        if let (Some(after), false) = (&self.after, self.needs_finish()) {
            let outputs = first_of_all.min(end_of_all)..end_of_all;
            // SAFETY: the caller's promise; the results of these outputs have just been written.
            unsafe { after.run(on, self.result_at(on, 0), outputs, registers) }
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
                    source: None,
                    along: 1,
                    across: 0,
                    len: self.segments,
                    first: 0,
                    columns: 1,
                    dst: self.result_at(on, dot(&position, &self.output.strides)),
                    dst_stride: 0,
                };
                (self.fns.combine)(&job);
            }
        }
        if let Some(after) = &self.after {
            let registers = on.workspace.wrapping_add(self.partial_bytes() + self.handed_bytes());
            let outputs = 0..self.space.elements;
            // SAFETY: the caller's promise; the results are there, and the workspace has place for the registers.
            unsafe { after.run(on, self.result_at(on, 0), outputs, registers) }
        }
    }
}

/// A made-up tensor of the shape of `view`, densely packed, its axes from the outermost to the innermost as given.
fn packed(view: &View, axes: impl DoubleEndedIterator<Item = usize>) -> View {
    let shape = view.shape();
    let mut strides = vec![0; shape.rank()];
    let mut step = 1;
    for axis in axes.rev() {
        strides[axis] = step;
        step *= shape.extents()[axis].max(1);
    }
    View::strided(view.buffer, view.dtype, 0, shape.extents(), &strides)
        .expect("a packed view of a shape that exists")
}
