//! Host memory that graphs work on.
//!
//! A [`Memory`] is a handle; the bytes are reached through the [`Cpu`](super::Cpu) that made it, which is borrowed
//! exclusively while a graph replays. That borrow is what keeps readers, writers and replays apart.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use phonograph_graph::DEFAULT_ALIGN;
use thiserror::Error;

use super::kernels::Element;
use crate::refused::Span;

/// What a device's handles carry to be told from those of another.
#[derive(Debug)]
pub(super) struct DeviceToken;

/// Memory could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("out of memory: {bytes} bytes with an alignment of {align} could not be allocated")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: u64,
    /// Alignment asked for.
    pub align: u64,
}

/// Why memory could not be used as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The handle is of another device.
    #[error("the memory belongs to another device")]
    OtherDevice,
    /// The memory is not a whole number of elements.
    #[error("{bytes} bytes are not whole elements of {element}")]
    Size {
        /// Bytes of the memory.
        bytes: u64,
        /// Bytes of an element.
        element: u64,
    },
}

/// Zeroed memory with one owner.
pub(super) struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

impl Allocation {
    /// At least `bytes`, aligned to `align` and to a cache line.
    pub fn new(bytes: u64, align: u64) -> Result<Self, OutOfMemory> {
        const LINE: u64 = 64;
        let refused = OutOfMemory { bytes, align };
        let size = usize::try_from(bytes.max(1)).map_err(|_| refused)?;
        let align = usize::try_from(align.max(LINE)).map_err(|_| refused)?;
        let layout = Layout::from_size_align(size, align).map_err(|_| refused)?;
        // SAFETY: the layout is not of size 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(refused)?;
        Ok(Self { start, layout })
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }

    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: an allocation is plain bytes; it hands out a raw pointer, and whoever follows that says why they may.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

/// Memory of a [`Cpu`](super::Cpu), whole or a part of it, shared by all graphs that it is bound to and kept alive by them.
#[derive(Clone)]
pub struct Memory {
    allocation: Arc<Allocation>,
    pub(super) device: Arc<DeviceToken>,
    offset: u64,
    bytes: u64,
}

impl Memory {
    pub(super) fn new(
        device: &Arc<DeviceToken>,
        bytes: u64,
        align: u64,
    ) -> Result<Self, OutOfMemory> {
        let allocation = Arc::new(Allocation::new(bytes, align)?);
        Ok(Self { allocation, device: device.clone(), offset: 0, bytes })
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.allocation.start().wrapping_add(self.offset as usize)
    }

    /// A handle of `bytes` bytes of it from `offset` on; `None` past its end or where a buffer cannot start, which is at a
    /// multiple of [`DEFAULT_ALIGN`] only.
    pub fn part(&self, offset: u64, bytes: u64) -> Option<Memory> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let (allocation, device) = (self.allocation.clone(), self.device.clone());
        (fits && offset.is_multiple_of(DEFAULT_ALIGN)).then(|| Self {
            allocation,
            device,
            offset: self.offset + offset,
            bytes,
        })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether both handles are of the same memory.
    pub fn same_as(&self, other: &Memory) -> bool {
        self.span() == other.span()
    }

    /// Where it lies, by address; memory of no bytes may have one that others have as well.
    pub(super) fn span(&self) -> Span {
        let space = Arc::as_ptr(&self.allocation) as usize;
        Span { space, start: self.start() as usize as u64, bytes: self.bytes }
    }

    /// Number of elements of type `T`.
    pub(super) fn elements<T: Element>(&self) -> Result<usize, MemoryError> {
        let (bytes, element) = (self.bytes, size_of::<T>() as u64);
        if bytes.is_multiple_of(element) {
            Ok((bytes / element) as usize)
        } else {
            Err(MemoryError::Size { bytes, element })
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
