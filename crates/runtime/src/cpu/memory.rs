//! Host memory that graphs work on.
//!
//! A [`Memory`] is a handle; the bytes are reached through the [`Cpu`](super::Cpu) that made it, which is borrowed
//! exclusively while a graph replays. That borrow is what keeps readers, writers and replays apart.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use thiserror::Error;

use super::kernels::Element;

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
    /// A part that starts between elements.
    #[error("a part that starts at byte {offset} does not start at an element of {element} bytes")]
    Offset {
        /// Where the part starts.
        offset: u64,
        /// Bytes of an element.
        element: u64,
    },
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

/// Memory of a [`Cpu`](super::Cpu), shared by all graphs that it is bound to and kept alive by them.
#[derive(Clone)]
pub struct Memory {
    allocation: Arc<Allocation>,
    pub(super) device: Arc<DeviceToken>,
    /// Where in the allocation it starts.
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

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A part of it, or `None` where it does not reach that far. It keeps all of it alive.
    ///
    /// ```
    /// let cpu = phonograph_runtime::cpu::Cpu::new(1)?;
    /// let page = cpu.alloc(1024)?;
    /// assert_eq!(page.part(256, 512).map(|part| part.bytes()), Some(512));
    /// assert!(page.part(768, 512).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn part(&self, offset: u64, bytes: u64) -> Option<Memory> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| Memory { offset: self.offset + offset, bytes, ..self.clone() })
    }

    /// The first byte. It lies in the allocation, or one past its end for a part of no bytes.
    pub(super) fn start(&self) -> *mut u8 {
        self.allocation.start().wrapping_add(self.offset as usize)
    }

    /// Whether both handles share a byte, or are the same memory of no bytes.
    pub fn overlaps(&self, other: &Memory) -> bool {
        let same = self.offset == other.offset && self.bytes == other.bytes;
        let (end, other_end) = (self.offset + self.bytes, other.offset + other.bytes);
        Arc::ptr_eq(&self.allocation, &other.allocation)
            && (same || (self.offset < other_end && other.offset < end))
    }

    /// Number of elements of type `T`, which are aligned.
    pub(super) fn elements<T: Element>(&self) -> Result<usize, MemoryError> {
        let (bytes, element) = (self.bytes, size_of::<T>() as u64);
        if !self.offset.is_multiple_of(element) {
            Err(MemoryError::Offset { offset: self.offset, element })
        } else if bytes.is_multiple_of(element) {
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
