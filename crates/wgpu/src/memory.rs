//! Memory of a device that graphs work on.

use std::fmt;
use std::sync::Arc;

use phonograph_runtime::cpu::kernels::Element;

use crate::error::{GpuError, MemoryError};
use crate::gpu::Gpu;

/// What memory is used for.
const USAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// Memory of a [`Wgpu`](crate::Wgpu), shared by all graphs that it is bound to and kept alive by them.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

struct Inner {
    buffer: wgpu::Buffer,
    bytes: u64,
    owner: Arc<Gpu>,
}

impl Memory {
    pub(crate) fn new(owner: &Arc<Gpu>, bytes: u64) -> Result<Self, GpuError> {
        let buffer = owner.buffer(bytes, USAGE)?;
        Ok(Self(Arc::new(Inner { buffer, bytes, owner: owner.clone() })))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// wgpu's buffer, for other users of it. It is as long as the memory, rounded up to whole words of 4 bytes.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.0.buffer
    }

    /// Whether both handles are of the same memory.
    pub fn same_as(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn belongs_to(&self, owner: &Arc<Gpu>) -> bool {
        Arc::ptr_eq(&self.0.owner, owner)
    }

    pub(crate) fn read<T: Element>(&self) -> Result<Vec<T>, MemoryError> {
        let count = self.elements::<T>()?;
        let mut values: Vec<T> = Vec::with_capacity(count);
        self.map(0, self.bytes(), |bytes| {
            // SAFETY: the vector has room for so many elements, `bytes` has them all, and any bytes are an `Element`,
            // a sealed trait of plain numbers.
            unsafe {
                let to = values.as_mut_ptr().cast::<u8>();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count * size_of::<T>());
                values.set_len(count);
            }
        })?;
        Ok(values)
    }

    pub(crate) fn write<T: Element>(&self, values: &[T]) -> Result<(), MemoryError> {
        let held = self.elements::<T>()? as u64;
        if values.len() as u64 != held {
            return Err(MemoryError::Length { given: values.len() as u64, held });
        }
        // SAFETY: an `Element` is a plain number, all of whose bytes are initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        self.write_bytes(0, bytes)
    }

    /// Copies bytes out, after all work submitted so far.
    pub(crate) fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        self.map(offset, into.len() as u64, |bytes| into.copy_from_slice(bytes))
    }

    /// Copies bytes in, after all work submitted so far and before any other. Bytes that do not fill words of 4 take a
    /// round trip for what else those hold.
    pub(crate) fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let end = self.range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let gpu = &self.0.owner;
        let write = |offset: u64, words: &[u8]| {
            gpu.scoped(|| gpu.queue.write_buffer(&self.0.buffer, offset, words))
        };
        let first = offset - offset % 4;
        let last = end.next_multiple_of(4);
        // What lies past the end of the memory in its last word is nobody's.
        let tail_is_ours = end.is_multiple_of(4) || end == self.0.bytes;
        if first == offset && end.is_multiple_of(4) {
            write(offset, bytes)?;
            return Ok(());
        }
        let mut words = vec![0; (last - first) as usize];
        if first < offset {
            self.map(first, 4.min(self.0.bytes - first), |held| {
                words[..held.len()].copy_from_slice(held)
            })?;
        }
        if !tail_is_ours {
            let at = last - 4;
            self.map(at, 4.min(self.0.bytes - at), |held| {
                words[(at - first) as usize..][..held.len()].copy_from_slice(held);
            })?;
        }
        words[(offset - first) as usize..][..bytes.len()].copy_from_slice(bytes);
        write(first, &words)?;
        Ok(())
    }

    /// The bytes of a range, after all work submitted so far.
    fn map(&self, offset: u64, count: u64, read: impl FnOnce(&[u8])) -> Result<(), MemoryError> {
        let end = self.range(offset, count)?;
        if count == 0 {
            read(&[]);
            return Ok(());
        }
        let gpu = &self.0.owner;
        let first = offset - offset % 4;
        let size = end.next_multiple_of(4) - first;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = gpu.buffer(size, usage)?;
        let submission = gpu.scoped(|| {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&self.0.buffer, first, &staging, 0, size);
            gpu.queue.submit([encoder.finish()])
        })?;
        let start = (offset - first) as usize;
        gpu.mapped(&staging, submission, |bytes| read(&bytes[start..start + count as usize]))?;
        Ok(())
    }

    fn range(&self, start: u64, count: u64) -> Result<u64, MemoryError> {
        let bytes = self.0.bytes;
        match start.checked_add(count) {
            Some(end) if end <= bytes => Ok(end),
            end => Err(MemoryError::Range { start, end: end.unwrap_or(u64::MAX), bytes }),
        }
    }

    fn elements<T: Element>(&self) -> Result<usize, MemoryError> {
        let (bytes, element) = (self.0.bytes, size_of::<T>() as u64);
        if bytes.is_multiple_of(element) {
            Ok((bytes / element) as usize)
        } else {
            Err(MemoryError::Size { bytes, element })
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}
