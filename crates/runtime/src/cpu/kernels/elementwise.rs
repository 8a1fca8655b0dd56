//! Elementwise expressions, interpreted a block at a time.
//!
//! In: an expression and the views of its inputs and outputs. Out: a short program of loops over blocks of 128 to
//! 1024 elements ([`compile`](super::compile)), so that the registers between operations stay in the first-level cache
//! and the cost of choosing an operation is spread over a block.
//!
//! An element's value depends on its inputs alone, never on its place in a block or tile.

use std::ops::Range;

use phonograph_graph::{Expr, View};

use super::chain::Link;
use super::chains::MAX_LINKS;
use super::compile::{Compiled, OnceStep, Place, Step, compile};
use super::layout::{Axis, Space};
use super::simd::Level;
use super::storage::register_bits;
use super::tensor::{Operands, Tensor};
use super::{PrepareError, Scratch, TARGET_TILE_NS};

pub(super) struct Elementwise {
    space: Space,
    tensors: Box<[Tensor]>,
    code: Compiled,
    tile: usize,
    tiles: u32,
}

/// A tensor of an expression: which operand of the node it is, and how it is seen.
pub(super) type Seen = (usize, View);

impl Elementwise {
    /// `views` are the inputs, then the outputs, as the graph has checked them.
    pub(super) fn new(expr: &Expr, views: &[View]) -> Result<Self, PrepareError> {
        let seen: Vec<Seen> = views.iter().copied().enumerate().collect();
        // Visited in the order in which the first output lies in memory.
        Self::part(expr, &seen, expr.inputs().len())
    }

    /// An expression that is part of a node: the inputs, then the outputs. Visited in the order in which the tensor at
    /// place `first` of them lies in memory.
    pub(super) fn part(expr: &Expr, seen: &[Seen], first: usize) -> Result<Self, PrepareError> {
        let mut views: Vec<View> = seen.iter().map(|&(_, view)| view).collect();
        views.swap(0, first);
        let (space, mut strides, axes) = Space::new(&views);
        views.swap(0, first);
        strides.swap(0, first);
        let views = views.as_slice();
        let tensors = seen
            .iter()
            .zip(strides)
            .map(|((operand, view), strides)| Tensor::new(*operand, view, strides))
            .collect::<Result<Box<[_]>, _>>()?;
        let code = compile(Level::detect(), expr, views, &space, &tensors, &axes);
        // Tiles of about the target cost, in whole blocks, and few enough to count.
        let wanted = (TARGET_TILE_NS * 1000 / code.cost_ps.max(1)) as usize;
        let tile = wanted.max(space.elements >> 20).max(1).next_multiple_of(code.block);
        let tiles = space.elements.div_ceil(tile).max(1) as u32;
        Ok(Self { space, tensors, code, tile, tiles })
    }

    pub(super) fn tiles(&self) -> u32 {
        self.tiles
    }

    pub(super) fn cost_ns(&self) -> u64 {
        (self.space.elements as u64).saturating_mul(self.code.cost_ps) / 1000
    }

    /// How long an element takes, in picoseconds.
    pub(super) fn cost_ps(&self) -> u64 {
        self.code.cost_ps
    }

    pub(super) fn scratch_bytes(&self) -> usize {
        self.code.scratch_bytes
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(&self, on: &Operands<'_>, tiles: Range<u32>, scratch: &mut Scratch) {
        let from = tiles.start as usize * self.tile;
        let to = (tiles.end as usize * self.tile).min(self.space.elements);
        if from < to {
            let registers = scratch.get(self.code.scratch_bytes);
            // SAFETY: the caller's promise; the elements exist.
            unsafe { self.run_elements(on, from..to, registers) }
        }
    }

    /// Runs some elements, at least one, counted in the order in which they are visited.
    ///
    /// # Safety
    /// As for [`run`](Self::run); the elements exist, `registers` is [`scratch_bytes`](Self::scratch_bytes) of memory
    /// aligned to a cache line, of this worker alone.
    pub(super) unsafe fn run_elements(
        &self,
        on: &Operands<'_>,
        elements: Range<usize>,
        registers: *mut u8,
    ) {
        let (from, to, block) = (elements.start, elements.end, self.code.block);
        for OnceStep { step, wide } in &self.code.once {
            let n = if *wide { block.min(self.space.elements) } else { 1 };
            // SAFETY: the caller's promise; there is an element at 0; registers hold a block.
            unsafe { self.step(step, on, registers, 0, n) }
        }
        for at in (from..to).step_by(block) {
            for step in &self.code.steps {
                // SAFETY: the caller's promise; the elements are within the tile.
                unsafe { self.step(step, on, registers, at, block.min(to - at)) }
            }
        }
    }

    /// Performs one step on elements `at..at + n`.
    ///
    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run); `registers` is the scratch memory, `n` is at most a block. Steps
    /// that refer to dense tensors by position only stand in `code.steps`, and there the elements exist.
    #[inline(always)]
    unsafe fn step(&self, step: &Step, on: &Operands<'_>, registers: *mut u8, at: usize, n: usize) {
        // SAFETY: registers lie within scratch and hold a block, because `compile` laid them out so; tensors hold
        // elements `at..at + n`, by the caller's promise; no step's destination overlaps its operands, because registers
        // are given out only when free and the graph refuses overlapping operands.
        unsafe {
            let register = |offset: usize| registers.add(offset);
            let place = |place: Place| match place {
                Place::Register(offset) => register(offset),
                Place::Memory(tensor) => self.tensors[tensor].at(on, at),
                Place::Unused => std::ptr::dangling_mut(),
            };
            match *step {
                Step::Constant { to, bits, size } => fill(register(to), bits, size, n),
                Step::Parameter { to, scalar, size } => {
                    fill(register(to), register_bits(on.scalars[scalar]), size, n);
                }
                Step::Repeat { to, load, tensor } => {
                    load(register(to), self.tensors[tensor].at(on, 0), 0, n);
                }
                Step::Index { to, axis } => positions(register(to), axis, at, n),
                Step::Map { to, map, from: [a, b, c] } => {
                    map(place(to), place(a), place(b), place(c), n);
                }
                Step::Chain { run, to, start, ref links } => {
                    let mut ready = [Link::NONE; MAX_LINKS];
                    for (ready, link) in ready.iter_mut().zip(links) {
                        let (op, operand) = (link.op, place(link.operand).cast_const().cast());
                        *ready = Link { op, operand, uniform: link.uniform };
                    }
                    run(place(to).cast(), place(start).cast(), &ready[..links.len()], n);
                }
                Step::Load { to, load, tensor, size, dense } => {
                    let (tensor, to) = (&self.tensors[tensor], register(to));
                    if dense {
                        load(to, tensor.at(on, at), 1, n);
                    } else {
                        let stride = self.space.inner(&tensor.strides);
                        self.space.runs(
                            self.space.position(at),
                            n,
                            [&tensor.strides],
                            |[from], done, n| {
                                load(to.add(done * size), tensor.at(on, from), stride, n);
                            },
                        );
                    }
                }
                Step::Store { from, store, tensor, size, dense } => {
                    let (tensor, from) = (&self.tensors[tensor], place(from));
                    if dense {
                        store(tensor.at(on, at), from, 1, n);
                    } else {
                        let stride = self.space.inner(&tensor.strides);
                        self.space.runs(
                            self.space.position(at),
                            n,
                            [&tensor.strides],
                            |[to], done, n| {
                                store(tensor.at(on, to), from.add(done * size), stride, n);
                            },
                        );
                    }
                }
            }
        }
    }
}

/// Repeats a value of `size` bytes.
///
/// # Safety
/// `to` is a register of elements of that size.
unsafe fn fill(to: *mut u8, bits: u64, size: usize, n: usize) {
    // SAFETY: the caller's promise; registers are aligned to a cache line.
    unsafe {
        match size {
            1 => std::slice::from_raw_parts_mut(to, n).fill(bits as u8),
            4 => std::slice::from_raw_parts_mut(to.cast::<u32>(), n).fill(bits as u32),
            _ => std::slice::from_raw_parts_mut(to.cast::<u64>(), n).fill(bits),
        }
    }
}

/// Positions along an axis of elements `at..at + n`, in runs of equal or of rising ones.
///
/// # Safety
/// `to` is a register of u32.
unsafe fn positions(to: *mut u8, axis: Axis, at: usize, n: usize) {
    // SAFETY: the caller's promise.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u32>(), n) };
    let mut position = at / axis.after % axis.extent;
    if axis.after == 1 {
        let mut rest = to;
        while !rest.is_empty() {
            let len = (axis.extent - position).min(rest.len());
            let (run, after) = rest.split_at_mut(len);
            for (i, d) in run.iter_mut().enumerate() {
                *d = (position as u32).wrapping_add(i as u32);
            }
            (rest, position) = (after, 0);
        }
    } else {
        let mut left = axis.after - at % axis.after;
        let mut rest = to;
        while !rest.is_empty() {
            let (run, after) = rest.split_at_mut(left.min(rest.len()));
            run.fill(position as u32);
            (rest, left) = (after, axis.after);
            position = (position + 1) % axis.extent;
        }
    }
}
