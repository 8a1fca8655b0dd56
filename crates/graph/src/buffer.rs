//! Buffers and slots: the memory and the per-replay values that a graph refers to.

use std::sync::Arc;

use crate::{Access, BufferId, DType, Scalar, SlotId};

/// Where a buffer lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Space {
    /// Memory of the device with this ordinal.
    Device(u32),
    /// Host memory; page-locked unless said.
    Host {
        /// Ordinary memory that the driver stages.
        pageable: bool,
    },
    /// Not known (a graph from elsewhere).
    #[default]
    Unknown,
}

/// Who owns a buffer and how long its contents matter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BufferRole {
    /// Scratch of one replay: the memory planner places it, and it may share bytes with others.
    Internal,
    /// The user's: bound when the graph is instantiated, never moved, its contents kept between replays.
    External,
    /// A pointer slot: the user's, bound anew before a replay. Declared with the access the graph makes; memory
    /// bound to it must not overlap another operand's.
    Slot(Access),
    /// In a child graph or conditional body: a buffer of the graph around it.
    Outer(BufferId),
}

/// A declared buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct Buffer {
    /// For people.
    pub name: Arc<str>,
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment of its first byte; a power of two.
    pub align: u64,
    /// Who owns it.
    pub role: BufferRole,
    /// Where it lives.
    pub space: Space,
}

/// Alignment of a buffer that asks for none: what device allocators give at least.
pub const DEFAULT_ALIGN: u64 = 256;

/// A scalar that the user sets before a replay. Whatever is not declared so is baked into the graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Slot {
    /// For people and for setting it by name.
    pub name: Arc<str>,
    /// What a replay uses until it is set; also says the type.
    pub default: Scalar,
    /// In a child graph or conditional body: the slot of the graph around it that this stands for.
    pub outer: Option<SlotId>,
}

impl Slot {
    /// Type of the value.
    pub const fn dtype(&self) -> DType {
        self.default.dtype()
    }
}
