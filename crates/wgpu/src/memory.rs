//! Memory of a device that graphs work on.

use std::fmt;
use std::sync::Arc;

use phonograph_graph::DEFAULT_ALIGN;
use phonograph_runtime::cpu::kernels::Element;
use phonograph_runtime::refused::Span;

use crate::error::{GpuError, MemoryError};
use crate::gpu::Gpu;

/// What memory is used for.
const USAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// Memory of a [`Wgpu`](crate::Wgpu), whole or a part of it, shared by all graphs that it is bound to and kept alive by them.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
    offset: u64,
    bytes: u64,
}

struct Inner {
    buffer: wgpu::Buffer,
    bytes: u64,
    owner: Arc<Gpu>,
}

impl Memory {
    pub(crate) fn new(owner: &Arc<Gpu>, bytes: u64) -> Result<Self, GpuError> {
        let buffer = owner.buffer(bytes, USAGE)?;
        let inner = Arc::new(Inner { buffer, bytes, owner: owner.clone() });
        Ok(Self { inner, offset: 0, bytes })
    }

    /// A handle of `bytes` bytes of it from `offset` on; `None` past its end or where a buffer cannot start, which is at a
    /// multiple of [`DEFAULT_ALIGN`] only.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Option<Memory> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let inner = self.inner.clone();
        (fits && offset.is_multiple_of(DEFAULT_ALIGN)).then(|| Self {
            inner,
            offset: self.offset + offset,
            bytes,
        })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// wgpu's buffer, for other users of it. It is as long as the memory, rounded up to whole words of 4 bytes.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.inner.buffer
    }

    /// The first byte in wgpu's buffer.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether both handles are of the same memory.
    pub fn same_as(&self, other: &Memory) -> bool {
        self.span() == other.span()
    }

    /// Where it lies in wgpu's buffer, which is aligned to anything.
    pub(crate) fn span(&self) -> Span {
        let space = Arc::as_ptr(&self.inner) as usize;
        Span { space, start: self.offset, bytes: self.bytes }
    }

    pub(crate) fn belongs_to(&self, owner: &Arc<Gpu>) -> bool {
        Arc::ptr_eq(&self.inner.owner, owner)
    }

    pub(crate) fn read<T: Element>(&self) -> Result<Vec<T>, MemoryError> {
        self.elements::<T>()?;
        let mut values = Vec::new();
        self.map(self.offset, self.bytes, |bytes| values = T::values(bytes))?;
        Ok(values)
    }

    pub(crate) fn write<T: Element>(&self, values: &[T]) -> Result<(), MemoryError> {
        let held = self.elements::<T>()? as u64;
        if values.len() as u64 != held {
            return Err(MemoryError::Length { given: values.len() as u64, held });
        }
        self.write_bytes(0, T::bytes(values))
    }

    /// Copies bytes out, after all work submitted so far.
    pub(crate) fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let (start, end) = self.range(offset, into.len() as u64)?;
        self.map(start, end - start, |bytes| into.copy_from_slice(bytes))
    }

    /// Copies bytes in, after all work submitted so far and before any other. Bytes that do not fill words of 4 take a
    /// round trip for what else those hold.
    pub(crate) fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (start, end) = self.range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (gpu, whole) = (&self.inner.owner, self.inner.bytes);
        let write = |offset: u64, words: &[u8]| {
            gpu.scoped(|| gpu.queue.write_buffer(&self.inner.buffer, offset, words))
        };
        if start.is_multiple_of(4) && end.is_multiple_of(4) {
            write(start, bytes)?;
            return Ok(());
        }
        let (first, last) = (start - start % 4, end.next_multiple_of(4));
        let mut words = vec![0; (last - first) as usize];
        // What lies past the end of all memory in its last word is nobody's.
        let tail = (!end.is_multiple_of(4) && end < whole).then(|| last - 4);
        for at in (first < start).then_some(first).into_iter().chain(tail) {
            self.map(at, 4.min(whole - at), |held| {
                words[(at - first) as usize..][..held.len()].copy_from_slice(held);
            })?;
        }
        words[(start - first) as usize..][..bytes.len()].copy_from_slice(bytes);
        write(first, &words)?;
        Ok(())
    }

    /// Bytes of wgpu's buffer, after all work submitted so far.
    fn map(&self, start: u64, count: u64, read: impl FnOnce(&[u8])) -> Result<(), MemoryError> {
        if count == 0 {
            read(&[]);
            return Ok(());
        }
        let gpu = &self.inner.owner;
        let first = start - start % 4;
        let size = (start + count).next_multiple_of(4) - first;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = gpu.buffer(size, usage)?;
        let submission = gpu.scoped(|| {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&self.inner.buffer, first, &staging, 0, size);
            gpu.queue.submit([encoder.finish()])
        })?;
        let at = (start - first) as usize;
        gpu.mapped(&staging, submission, |bytes| read(&bytes[at..at + count as usize]))?;
        Ok(())
    }

    /// A range of it as bytes of wgpu's buffer.
    fn range(&self, start: u64, count: u64) -> Result<(u64, u64), MemoryError> {
        let bytes = self.bytes;
        match start.checked_add(count) {
            Some(end) if end <= bytes => Ok((self.offset + start, self.offset + end)),
            end => Err(MemoryError::Range { start, end: end.unwrap_or(u64::MAX), bytes }),
        }
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

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
