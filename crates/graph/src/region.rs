//! Byte regions, how they are accessed, and the effects of a node.

use smallvec::SmallVec;

use crate::{BufferId, Observed};

/// A byte range of a buffer: `offset..offset + bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Region {
    /// One past the last byte.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Whether both name at least one common byte.
    pub fn overlaps(&self, other: &Region) -> bool {
        self.buffer == other.buffer && self.offset < other.end() && other.offset < self.end()
    }
}

/// What a node does with an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes all of it without looking.
    Write,
    /// Reads it, or what was there shows in what is left (a partial write).
    ReadWrite,
}

impl Access {
    /// Whether contents from before are used.
    pub const fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }

    /// Whether contents change.
    pub const fn writes(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite)
    }

    /// The name used in files: `read`, `write`, `both`.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "both",
        }
    }
}

/// Regions with how each is accessed.
pub type Operands = SmallVec<[(Region, Access); 4]>;

/// The memory that a node may touch.
///
/// Every pass asks this and nothing else. A node whose effects are unknown keeps its place among its
/// neighbours: passes may drop redundant edges around it and do nothing more.
#[derive(Clone, PartialEq, Debug)]
pub enum Effects {
    /// Nothing but these regions.
    Known(Operands),
    /// Nothing but these regions, as far as experiments went. What relies on it shares their assumption.
    Observed(Observed),
    /// Anything.
    Unknown,
}

impl Effects {
    /// Effects of a node that touches no memory.
    pub fn none() -> Self {
        Effects::Known(Operands::new())
    }

    /// The regions, declared or observed; `None` if they are unknown.
    pub fn known(&self) -> Option<&[(Region, Access)]> {
        match self {
            Effects::Known(regions) => Some(regions),
            Effects::Observed(observed) => Some(&observed.operands),
            Effects::Unknown => None,
        }
    }
}
