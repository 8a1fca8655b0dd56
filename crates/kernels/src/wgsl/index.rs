//! How threads find elements, as WGSL: the places of a [`Space`]'s views.

use std::fmt::Write;

use super::MAX_GROUPS;
use super::block::Block;
use crate::space::Space;

/// Threads of a workgroup of kernels that treat one element at a time.
pub(super) const THREADS: u32 = 256;

/// A space with the words of its block.
pub(super) struct Index {
    pub space: Space,
    /// The number of elements.
    pub count: String,
    extents: Vec<String>,
    strides: Vec<Vec<String>>,
}

impl Index {
    pub fn new(space: Space, block: &mut Block) -> Self {
        let count = block.value(space.elements);
        let extents = space.extents.iter().map(|&extent| block.value(extent)).collect();
        let strides = space.strides.iter();
        let strides = strides.map(|all| all.iter().map(|&s| block.value(s)).collect()).collect();
        Self { space, count, extents, strides }
    }

    /// Declares `c0`, `c1`, …: the position of element `i` along each axis; nothing if nobody asks.
    pub fn positions(&self, always: bool) -> String {
        let views = 0..self.strides.len();
        let needed = always || views.clone().any(|view| self.space.needs_positions(view));
        let mut code = String::new();
        if !needed || self.extents.is_empty() {
            return code;
        }
        let mut rest = "i".to_owned();
        for axis in (1..self.extents.len()).rev() {
            let extent = &self.extents[axis];
            // An extent of 0 leaves no element, so nothing is divided by it.
            writeln!(code, "    let r{axis} = {rest} / {extent};\n    let c{axis} = {rest} - r{axis} * {extent};")
                .expect("a string takes all");
            rest = format!("r{axis}");
        }
        writeln!(code, "    let c0 = {rest};").expect("a string takes all");
        code
    }

    /// Where the view's element `i` lies, counted from its first.
    pub fn offset(&self, view: usize) -> String {
        let strides = &self.space.strides[view];
        if strides.iter().all(|&stride| stride == 0) {
            return "0u".to_owned();
        }
        if self.space.is_dense(view) {
            return "i".to_owned();
        }
        let along = strides.iter().enumerate().filter(|(_, stride)| **stride != 0);
        let along = along.map(|(axis, stride)| match stride {
            1 => format!("c{axis}"),
            _ => format!("c{axis} * {}", self.strides[view][axis]),
        });
        along.collect::<Vec<_>>().join(" + ")
    }

    /// Workgroups for one thread for each element.
    pub fn groups(&self) -> u32 {
        groups(self.space.elements.div_ceil(u64::from(THREADS)))
    }
}

/// As many workgroups as there is work for, and not more than a device takes: kernels loop over the rest.
pub(super) fn groups(wanted: u64) -> u32 {
    wanted.clamp(1, u64::from(MAX_GROUPS)) as u32
}
