//! The uniform blocks of all dispatches of a graph in one buffer, each at its offset.
//!
//! Blocks with the same words are the same block, unless a slot may change one. A change is a write to the copy on the
//! host; all changes reach the device in one write before the next replay.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::error::GpuError;
use crate::gpu::Gpu;

/// The place of a word, counted in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordId(pub u32);

/// Blocks that are being collected.
pub(crate) struct ParamsBuilder {
    align: u32,
    words: Vec<u32>,
    /// The longest block, in bytes.
    longest: u32,
    known: FxHashMap<Box<[u32]>, u32>,
}

impl ParamsBuilder {
    pub fn new(gpu: &Gpu) -> Self {
        let align = gpu.limits.min_uniform_buffer_offset_alignment.max(16);
        Self { align, words: Vec::new(), longest: 16, known: FxHashMap::default() }
    }

    /// Adds a block and returns its offset in bytes; `None` if there are more than a dynamic offset can name.
    /// A block whose words may change is never shared.
    pub fn block(&mut self, words: &[u32], may_change: bool) -> Option<u32> {
        if let (false, Some(&offset)) = (may_change, self.known.get(words)) {
            return Some(offset);
        }
        let start = (self.words.len() * 4).next_multiple_of(self.align as usize);
        let offset = u32::try_from(start).ok()?;
        self.words.resize(start / 4, 0);
        self.words.extend_from_slice(words);
        self.longest = self.longest.max((words.len() * 4) as u32);
        if !may_change {
            self.known.insert(words.into(), offset);
        }
        Some(offset)
    }

    /// The place of a word of a block.
    pub fn word(offset: u32, index: usize) -> WordId {
        WordId(offset / 4 + index as u32)
    }

    /// Uploads the blocks.
    pub fn finish(mut self, gpu: &Gpu, layout: &wgpu::BindGroupLayout) -> Result<Params, GpuError> {
        let size = self.longest.next_multiple_of(self.align);
        // Every offset has a whole binding after it.
        self.words.resize(self.words.len() + size as usize / 4, 0);
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let buffer = gpu.buffer(bytes.len() as u64, usage)?;
        let group = gpu.scoped(|| {
            gpu.queue.write_buffer(&buffer, 0, &bytes);
            let binding = wgpu::BufferBinding {
                buffer: &buffer,
                offset: 0,
                size: wgpu::BufferSize::new(u64::from(size)),
            };
            let resource = wgpu::BindingResource::Buffer(binding);
            gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout,
                entries: &[wgpu::BindGroupEntry { binding: 0, resource }],
            })
        })?;
        Ok(Params { buffer, group, bytes, changed: None })
    }
}

/// The blocks of an instantiated graph.
#[derive(Debug)]
pub(crate) struct Params {
    buffer: wgpu::Buffer,
    /// Group 1 of every dispatch, with the block's offset as its dynamic one.
    pub group: wgpu::BindGroup,
    bytes: Vec<u8>,
    /// The bytes that the device does not know yet.
    changed: Option<Range<usize>>,
}

impl Params {
    pub fn set(&mut self, word: WordId, value: u32) {
        let at = word.0 as usize * 4;
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.changed = Some(match self.changed.take() {
            None => at..at + 4,
            Some(range) => range.start.min(at)..range.end.max(at + 4),
        });
    }

    /// Hands over what was changed.
    pub fn flush(&mut self, gpu: &Gpu) {
        if let Some(range) = self.changed.take() {
            gpu.queue.write_buffer(&self.buffer, range.start as u64, &self.bytes[range]);
        }
    }
}
