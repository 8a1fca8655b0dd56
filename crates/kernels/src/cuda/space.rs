//! How threads find elements: the axes that some views have in common, and where each view's elements lie.

use std::fmt::Write;

use phonograph_graph::View;

/// Threads of a block of kernels that treat one element at a time.
pub(super) const THREADS: u32 = 256;
/// The most blocks: beyond, a thread treats several elements.
const MAX_BLOCKS: u64 = 1 << 20;

/// The elements of views of one shape, in the order of the shape, and their places.
pub(crate) struct Space {
    pub extents: Vec<u64>,
    /// For each view, elements from one to the next along each axis.
    pub strides: Vec<Vec<u64>>,
    pub elements: u64,
    /// The type that counts elements: 32 bits where they are enough, because division is much faster then.
    pub index: &'static str,
}

impl Space {
    /// The space of views of one shape. Axes are merged where all views allow, unless they are asked for by number.
    pub fn new(extents: &[u64], views: &[Vec<u64>], keep_axes: bool) -> Self {
        let elements: u64 = extents.iter().product();
        let reach = |strides: &Vec<u64>| -> u64 {
            let along = strides.iter().zip(extents).map(|(s, e)| s * e.saturating_sub(1));
            along.fold(0, u64::saturating_add)
        };
        let farthest = views.iter().map(reach).max().unwrap_or(0).max(elements);
        let index = if farthest < 1 << 31 { "u32" } else { "u64" };
        let mut space =
            Self { extents: extents.to_vec(), strides: views.to_vec(), elements, index };
        if !keep_axes {
            space.merge();
        }
        space
    }

    fn merge(&mut self) {
        for axis in (0..self.extents.len()).rev() {
            let inner = axis + 1;
            let one = self.extents[axis] == 1;
            let follows = |s: &Vec<u64>| s[axis] == s[inner] * self.extents[inner];
            if one {
                self.remove(axis);
            } else if inner < self.extents.len() && self.strides.iter().all(follows) {
                self.extents[inner] *= self.extents[axis];
                self.remove(axis);
            }
        }
    }

    fn remove(&mut self, axis: usize) {
        self.extents.remove(axis);
        self.strides.iter_mut().for_each(|strides| {
            strides.remove(axis);
        });
    }

    /// Blocks for one thread for each element.
    pub fn blocks(&self) -> u32 {
        self.elements.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS) as u32
    }

    pub fn is_dense(&self, view: usize) -> bool {
        let mut expected = 1;
        self.extents.iter().zip(&self.strides[view]).rev().all(|(extent, &stride)| {
            let fits = stride == expected;
            expected *= extent;
            fits
        })
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
        let index = self.index;
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

    pub fn needs_positions(&self, view: usize) -> bool {
        !self.is_dense(view) && self.strides[view].iter().any(|&stride| stride != 0)
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
            _ => format!("c{axis} * ({})s.w[{}]", self.index, first + axis),
        });
        along.collect::<Vec<_>>().join(" + ")
    }
}

/// The strides of a view, as the space takes them.
pub(crate) fn strides(view: &View) -> Vec<u64> {
    view.strides().to_vec()
}
