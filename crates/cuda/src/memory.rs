//! Memory that graphs work on: of a device, from its pool, or of the host, page-locked.
//!
//! A [`Memory`] is a handle that shares ownership. The bytes are reached through the [`Cuda`](crate::Cuda) that made it,
//! which is borrowed exclusively meanwhile, by copies that wait for all work on the device: no reader sees half of what
//! a replay writes, and no host function runs on bytes that are being replaced.

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::CU_MEMHOSTALLOC_DEVICEMAP;
use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use phonograph_runtime::cpu::kernels::Element;
use phonograph_runtime::refused::Span;

use crate::adopted::{self, Identity, StaleMemory};
use crate::captures::relaxed;
use crate::device::Device;
use crate::error::{DriverError, call, log_drop};
use crate::order::Uses;
use crate::stream::Stream;

/// What memory carries to be told from that of another [`Cuda`](crate::Cuda).
#[derive(Debug)]
pub(crate) struct Owner;

/// Memory of a device or page-locked memory of the host, whole or a part of it. Clones are handles of the same memory.
#[derive(Clone)]
pub struct Memory {
    allocation: Arc<Allocation>,
    offset: u64,
    bytes: u64,
}

/// A handle that keeps nothing.
#[derive(Debug)]
pub(crate) struct WeakMemory {
    allocation: Weak<Allocation>,
    offset: u64,
    bytes: u64,
}

impl WeakMemory {
    pub fn is_alive(&self) -> bool {
        self.allocation.strong_count() > 0
    }

    pub fn upgrade(&self) -> Option<Memory> {
        let (allocation, offset, bytes) = (self.allocation.upgrade()?, self.offset, self.bytes);
        Some(Memory { allocation, offset, bytes })
    }
}

/// Tells an allocation from every other, also from one that lies at the same address later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AllocationKey(u64);

impl AllocationKey {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

struct Allocation {
    key: AllocationKey,
    device: Device,
    owner: Arc<Owner>,
    address: u64,
    origin: Origin,
    /// The launches that touched it last.
    uses: Uses,
}

/// Where an allocation comes from, which is where it goes back to.
enum Origin {
    /// The pool of its device.
    Pool,
    /// Page-locked memory of the host.
    Host,
    /// Somebody else, who frees it once this is gone.
    Kept { _by: Box<dyn Any + Send + Sync> },
    /// Somebody else, who frees it at any time: what it was when it was adopted.
    Adopted(Identity),
}

/// Why memory could not be read or written as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Memory that is not a whole number of elements.
    #[error("{bytes} bytes are not whole elements of {element}")]
    Size {
        /// Bytes of the memory.
        bytes: u64,
        /// Bytes of an element.
        element: u64,
    },
    /// More or fewer elements than the memory holds.
    #[error("{given} elements for memory of {held}")]
    Length {
        /// How many were given.
        given: u64,
        /// How many there are.
        held: u64,
    },
    /// Memory of another [`Cuda`](crate::Cuda).
    #[error("the memory belongs to another device")]
    OtherDevice,
    /// Memory of somebody else's that is no longer what was adopted.
    #[error(transparent)]
    Stale(#[from] StaleMemory),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Memory that cannot be given back yet.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the memory is still used by {users} others: graphs that are alive, or handles")]
pub struct StillUsed {
    /// The memory.
    pub memory: Memory,
    /// How many others use it.
    pub users: usize,
}

impl Memory {
    /// Zeroed memory of a device, from its pool. Aligned to 256 bytes.
    pub(crate) fn on_device(
        owner: &Arc<Owner>,
        device: &Device,
        bytes: u64,
    ) -> Result<Self, DriverError> {
        let _current = device.enter()?;
        let _relaxed = relaxed()?;
        let (pool, stream) = (device.pool(), device.memory_stream());
        let size = bytes.max(1) as usize;
        let mut address = 0;
        // SAFETY: pool and stream live as long as the device.
        unsafe { call!(cuMemAllocFromPoolAsync(&mut address, size, pool, stream)) }?;
        let memory = Self::whole(owner, device, address, bytes, Origin::Pool);
        // SAFETY: the memory was just allocated, in this size, on this stream. The wait makes it usable on any stream.
        unsafe {
            call!(cuMemsetD8Async(address, 0, size, stream))?;
            call!(cuStreamSynchronize(stream))?;
        }
        Ok(memory)
    }

    /// Zeroed, page-locked memory of the host that every device reaches at the same address.
    pub(crate) fn on_host(
        owner: &Arc<Owner>,
        device: &Device,
        bytes: u64,
    ) -> Result<Self, DriverError> {
        let _current = device.enter()?;
        let _relaxed = relaxed()?;
        let size = bytes.max(1) as usize;
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        let mut start = ptr::null_mut();
        // SAFETY: a context is current; what is allocated is zeroed before anyone has it.
        unsafe {
            call!(cuMemHostAlloc(&mut start, size, flags))?;
            ptr::write_bytes(start.cast::<u8>(), 0, size);
        }
        Ok(Self::whole(owner, device, start as usize as u64, bytes, Origin::Host))
    }

    /// Part of an allocation that somebody else made, and whatever keeps it from being freed.
    ///
    /// # Safety
    /// So many bytes are there, in reach of the device, for as long as `keep` lives.
    pub(crate) unsafe fn foreign(
        owner: &Arc<Owner>,
        device: &Device,
        address: u64,
        bytes: u64,
        keep: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self::whole(owner, device, address, bytes, Origin::Kept { _by: keep })
    }

    /// A whole allocation of a device that somebody else made and frees.
    pub(crate) fn adopted(owner: &Arc<Owner>, device: &Device, identity: Identity) -> Self {
        Self::whole(owner, device, identity.start, identity.bytes, Origin::Adopted(identity))
    }

    /// The allocation of somebody else's that it was when it was [adopted](crate::Cuda::adopt); `None` for memory of this crate.
    pub fn identity(&self) -> Option<Identity> {
        match self.allocation.origin {
            Origin::Adopted(identity) => Some(identity),
            _ => None,
        }
    }

    /// The allocation, which is there for as long as a handle is; `None` where others free it at any time.
    pub(crate) fn key(&self) -> Option<AllocationKey> {
        let lasts = !matches!(self.allocation.origin, Origin::Adopted(_));
        lasts.then_some(self.allocation.key)
    }

    /// Asks the driver whether adopted memory is still the allocation that it was. Other memory always is, and nobody is asked.
    ///
    /// # Errors
    /// The inner error if it is not; the outer one if the driver does not answer.
    pub fn check(&self) -> Result<Result<(), StaleMemory>, DriverError> {
        match self.identity() {
            Some(identity) => adopted::check(self.address(), identity),
            None => Ok(Ok(())),
        }
    }

    fn whole(
        owner: &Arc<Owner>,
        device: &Device,
        address: u64,
        bytes: u64,
        origin: Origin,
    ) -> Self {
        let (owner, device, uses) = (owner.clone(), device.clone(), Uses::default());
        let key = AllocationKey::next();
        let allocation = Allocation { key, device, owner, address, origin, uses };
        Self { allocation: Arc::new(allocation), offset: 0, bytes }
    }

    /// A handle of `bytes` bytes of it from `offset` on; `None` past its end.
    pub fn part(&self, offset: u64, bytes: u64) -> Option<Memory> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let allocation = self.allocation.clone();
        fits.then(|| Self { allocation, offset: self.offset + offset, bytes })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device whose memory it is; of page-locked host memory, the device that it was made on.
    pub fn device(&self) -> &Device {
        &self.allocation.device
    }

    /// Whether it is memory of the host.
    pub fn is_on_host(&self) -> bool {
        matches!(self.allocation.origin, Origin::Host)
    }

    /// The address on the device, for other users of the driver. Valid for as long as this handle or a clone of it.
    pub fn address(&self) -> u64 {
        self.allocation.address + self.offset
    }

    /// Gives the memory back now. Dropping a handle does so once nothing uses the memory any more.
    ///
    /// # Errors
    /// [`StillUsed`] with the handle, if a graph that is alive, or another handle, still uses it.
    pub fn free(self) -> Result<(), StillUsed> {
        let Memory { allocation, offset, bytes } = self;
        let users = Arc::strong_count(&allocation) - 1;
        match Arc::try_unwrap(allocation) {
            Ok(allocation) => {
                drop(allocation);
                Ok(())
            }
            Err(allocation) => {
                Err(StillUsed { memory: Memory { allocation, offset, bytes }, users })
            }
        }
    }

    /// Whether both handles are of the same memory.
    pub fn same_as(&self, other: &Memory) -> bool {
        self.span() == other.span()
    }

    /// Where it lies. Addresses tell, since those of all devices and of page-locked memory are apart, so all is of one space.
    pub(crate) fn span(&self) -> Span {
        Span { space: 0, start: self.address(), bytes: self.bytes }
    }

    /// Not a user of the memory, but a way to find it while there are some.
    pub(crate) fn downgrade(&self) -> WeakMemory {
        let (offset, bytes) = (self.offset, self.bytes);
        WeakMemory { allocation: Arc::downgrade(&self.allocation), offset, bytes }
    }

    /// The contents, after all work issued to the device so far.
    ///
    /// # Errors
    /// [`MemoryError::Size`] if the memory is not whole elements.
    pub(crate) fn read<T: Element>(&self) -> Result<Vec<T>, MemoryError> {
        let count = self.elements::<T>()?;
        self.check()??;
        self.allocation.device.synchronize()?;
        let mut values: Vec<T> = Vec::with_capacity(count);
        let bytes = count * size_of::<T>();
        let _current = self.allocation.device.enter()?;
        let _relaxed = relaxed()?;
        if bytes > 0 {
            // SAFETY: the vector has room for the bytes, which are all of the memory; the wait ends the copy before the
            // vector is used. Any bytes are a `T`, so all elements are initialised. The driver finds out by the address
            // where host memory lies.
            unsafe {
                let stream = self.allocation.device.memory_stream();
                call!(cuMemcpyDtoHAsync_v2(
                    values.as_mut_ptr().cast(),
                    self.address(),
                    bytes,
                    stream
                ))?;
                call!(cuStreamSynchronize(stream))?;
                values.set_len(count);
            }
        }
        Ok(values)
    }

    /// Replaces the contents, after all work issued to the device so far.
    ///
    /// # Errors
    /// [`MemoryError::Length`] unless there is a value for each element.
    pub(crate) fn write<T: Element>(&self, values: &[T]) -> Result<(), MemoryError> {
        let held = self.elements::<T>()? as u64;
        if values.len() as u64 != held {
            return Err(MemoryError::Length { given: values.len() as u64, held });
        }
        self.check()??;
        self.allocation.device.synchronize()?;
        let _current = self.allocation.device.enter()?;
        let _relaxed = relaxed()?;
        if !values.is_empty() {
            // SAFETY: the slice has exactly as many bytes as the memory, and the wait ends the copy before the borrow.
            unsafe {
                let stream = self.allocation.device.memory_stream();
                let bytes = size_of_val(values);
                call!(cuMemcpyHtoDAsync_v2(self.address(), values.as_ptr().cast(), bytes, stream))?;
                call!(cuStreamSynchronize(stream))?;
            }
        }
        Ok(())
    }

    /// Replaces a part of the contents, in the order of the stream. The bytes are the caller's again at once.
    ///
    /// # Errors
    /// [`MemoryError::Length`] for a part past the end.
    pub(crate) fn write_on(
        &self,
        stream: &Stream,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), MemoryError> {
        let address = self.part_address(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let _current = self.allocation.device.enter()?;
        let _relaxed = relaxed()?;
        // SAFETY: the part lies in the memory. The driver has taken pageable bytes into memory of its own when it returns.
        Ok(unsafe {
            call!(cuMemcpyHtoDAsync_v2(
                address,
                bytes.as_ptr().cast(),
                bytes.len(),
                stream.handle()
            ))
        }?)
    }

    /// A part of the contents, after what was issued to the stream so far. Waits for the stream, for nothing else.
    ///
    /// # Errors
    /// [`MemoryError::Length`] for a part past the end.
    pub(crate) fn read_on(
        &self,
        stream: &Stream,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), MemoryError> {
        let address = self.part_address(offset, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        let _current = self.allocation.device.enter()?;
        let _relaxed = relaxed()?;
        // SAFETY: the part lies in the memory, and the wait ends the copy before the borrow.
        unsafe {
            let (start, count) = (into.as_mut_ptr().cast(), into.len());
            call!(cuMemcpyDtoHAsync_v2(start, address, count, stream.handle()))?;
            call!(cuStreamSynchronize(stream.handle()))?;
        }
        Ok(())
    }

    fn part_address(&self, offset: u64, bytes: usize) -> Result<u64, MemoryError> {
        let (given, held) = (bytes as u64, self.bytes);
        let fits = offset.checked_add(given).is_some_and(|end| end <= held);
        if fits { Ok(self.address() + offset) } else { Err(MemoryError::Length { given, held }) }
    }

    /// Sets every byte to 0, after nothing: what may use the memory has ended. Waits for this alone.
    pub(crate) fn zero(&self) -> Result<(), DriverError> {
        let _current = self.allocation.device.enter()?;
        let _relaxed = relaxed()?;
        let (address, bytes) = (self.address(), self.bytes as usize);
        if self.is_on_host() {
            // SAFETY: page-locked memory of so many bytes, which nobody uses now.
            unsafe { ptr::write_bytes(address as usize as *mut u8, 0, bytes) };
            return Ok(());
        }
        let stream = self.allocation.device.memory_stream();
        // SAFETY: the memory has so many bytes, and the stream lives as long as the device.
        unsafe {
            call!(cuMemsetD8Async(address, 0, bytes, stream))?;
            call!(cuStreamSynchronize(stream))
        }
    }

    /// The launches that touched it last, or memory of the same allocation.
    pub(crate) fn uses(&self) -> &Uses {
        &self.allocation.uses
    }

    /// Whether it was made by the same [`Cuda`](crate::Cuda).
    pub(crate) fn belongs_to(&self, owner: &Arc<Owner>) -> bool {
        Arc::ptr_eq(&self.allocation.owner, owner)
    }

    fn elements<T: Element>(&self) -> Result<usize, MemoryError> {
        let (bytes, element) = (self.bytes, size_of::<T>() as u64);
        if bytes.is_multiple_of(element) {
            Ok((bytes / element) as usize)
        } else {
            Err(MemoryError::Size { bytes, element })
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if matches!(self.origin, Origin::Kept { .. } | Origin::Adopted(_)) {
            return; // Whoever allocated it frees it.
        }
        let current = self.device.enter();
        let relaxed = relaxed();
        // SAFETY: the allocation is this value's own. Whatever runs on it holds a handle until it is complete, so nothing
        // uses it any more.
        log_drop(unsafe {
            match self.origin {
                Origin::Host => call!(cuMemFreeHost(self.address as usize as *mut _)),
                _ => call!(cuMemFreeAsync(self.address, self.device.memory_stream())),
            }
        });
        log_drop(relaxed.map(drop));
        log_drop(current.map(drop));
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("bytes", &self.bytes)
            .field("on_host", &self.is_on_host())
            .finish_non_exhaustive()
    }
}
