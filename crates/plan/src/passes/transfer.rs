//! Fills and copies as what they do to bytes: a region gets a pattern, or the bytes of another region.

use phonograph_graph::{Extent, MemcpyNode, MemsetNode, Pitched, Region, Target};

/// A fill without gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlainFill {
    pub region: Region,
    /// What bytes hold: at an address, its remainder by 4 says which of these.
    pub pattern: [u8; 4],
}

impl PlainFill {
    pub fn of(fill: &MemsetNode) -> Option<Self> {
        let region = packed(fill.dst, fill.extent)?;
        let size = u64::from(fill.element_size);
        let bytes = fill.value.to_le_bytes();
        let at = |address: u64| {
            let phase = (address + 4 - region.offset % 4) % 4;
            bytes[(phase % size) as usize]
        };
        matches!(size, 1 | 2 | 4).then(|| Self { region, pattern: [at(0), at(1), at(2), at(3)] })
    }

    /// The fill as a node, with the smallest element that makes the pattern; `None` where the region is not whole
    /// elements.
    pub fn node(&self) -> Option<MemsetNode> {
        let first = self.region.offset % 4;
        let from = |byte: u64| self.pattern[((first + byte) % 4) as usize];
        let bytes = [from(0), from(1), from(2), from(3)];
        let element_size = match bytes {
            [a, b, c, d] if a == b && b == c && c == d => 1,
            [a, b, c, d] if a == c && b == d => 2,
            _ => 4,
        };
        let mask = u32::MAX >> (32 - 8 * u32::from(element_size));
        self.region.bytes.is_multiple_of(u64::from(element_size)).then(|| MemsetNode {
            dst: Pitched::linear(Target::Buffer(self.region.buffer), self.region.offset),
            value: u32::from_le_bytes(bytes) & mask,
            element_size,
            extent: Extent::linear(self.region.bytes),
        })
    }
}

/// A copy without gaps at either end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlainCopy {
    pub from: Region,
    pub to: Region,
}

impl PlainCopy {
    pub fn of(copy: &MemcpyNode) -> Option<Self> {
        Some(Self { from: packed(copy.src, copy.extent)?, to: packed(copy.dst, copy.extent)? })
    }

    /// How much further a byte lies in the destination than in the source, modulo 2^64.
    pub fn distance(&self) -> u64 {
        self.to.offset.wrapping_sub(self.from.offset)
    }
}

fn packed(end: Pitched, extent: Extent) -> Option<Region> {
    let Target::Buffer(buffer) = end.target else { return None };
    let rows = extent.height == 1 || end.pitch == extent.width;
    let slices =
        extent.depth == 1 || rows && end.pitch == extent.width && end.slice_rows == extent.height;
    (rows && slices).then_some(Region { buffer, offset: end.offset, bytes: extent.bytes() })
}
