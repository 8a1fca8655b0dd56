//! How threads find elements, as CUDA C: the places of a [`Space`]'s views.

use std::fmt::Write;

use crate::space::Space;

/// Threads of a block of kernels that treat one element at a time.
pub(super) const THREADS: u32 = 256;
/// The most blocks: beyond, a thread treats several elements.
const MAX_BLOCKS: u64 = 1 << 20;

impl Space {
    /// The type that counts elements: 32 bits where they are enough, because division is much faster then.
    pub fn index(&self) -> &'static str {
        if self.reach < 1 << 31 { "u32" } else { "u64" }
    }

    /// Blocks for one thread for each element.
    pub fn blocks(&self) -> u32 {
        self.elements.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS) as u32
    }

    /// The words that [`positions`](Self::positions) and [`offset`](Self::offset) read: the count, extents, then strides.
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.elements];
        words.extend(&self.extents);
        self.strides.iter().for_each(|strides| words.extend(strides));
        words
    }

    /// Declares `c0`, `c1`, …: the position of element `i` along each axis; nothing if nobody asks.
    pub fn positions(&self, always: bool) -> String {
        let needed = always || (0..self.strides.len()).any(|view| self.needs_positions(view));
        let mut code = String::new();
        if !needed || self.extents.is_empty() {
            return code;
        }
        let index = self.index();
        let mut rest = "i".to_owned();
        for axis in (1..self.extents.len()).rev() {
            let extent = format!("({index})s.w[{}]", 1 + axis);
            // An extent of 0 leaves no element, so nothing is divided by it.
            writeln!(code, "        const {index} r{axis} = {rest} / {extent}, c{axis} = {rest} - r{axis} * {extent};")
                .expect("a string takes all");
            rest = format!("r{axis}");
        }
        writeln!(code, "        const {index} c0 = {rest};").expect("a string takes all");
        code
    }

    /// Where the view's element lies, counted from its first.
    pub fn offset(&self, view: usize) -> String {
        if self.strides[view].iter().all(|&stride| stride == 0) {
            return "0".to_owned();
        }
        if self.is_dense(view) {
            return "i".to_owned();
        }
        let rank = self.extents.len();
        let first = 1 + rank + view * rank;
        let along = self.strides[view].iter().enumerate().filter(|(_, stride)| **stride != 0);
        let along = along.map(|(axis, stride)| match stride {
            1 => format!("c{axis}"),
            _ => format!("c{axis} * ({})s.w[{}]", self.index(), first + axis),
        });
        along.collect::<Vec<_>>().join(" + ")
    }
}
