//! The parameter block of an executable: the values of slots, in device memory, where generated kernels read them.
//!
//! In: words that were set. Out: the same words on the device, before the launch that comes next and after the one before.
//! A change costs a store here; a launch after changes costs one copy of the range that changed, however many nodes read
//! it, where changing the parameters of a node costs the driver 1.7 µs each. The copy is issued to the stream of the launch,
//! which is ordered after the executable's previous launch, so no run sees half of a change. What is copied was staged in
//! page-locked memory of its own, one of a ring, so that the next change need not wait for the copy.

use std::ops::Range;
use std::ptr;

use crate::error::{DriverError, call};
use crate::memory::Memory;
use crate::stream::{Event, Stream};

/// How many launches with changes can be issued before one waits for the copy of the first.
const RING: usize = 8;

/// A place in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordId(pub u32);

pub(crate) struct Block {
    values: Vec<u64>,
    device: Memory,
    /// The words that the device does not have yet.
    stale: Range<usize>,
    /// Page-locked: as many words as the block has, so many times.
    staging: Memory,
    /// Of each copy of the ring, the end of its last use.
    copied: [Option<Event>; RING],
    next: usize,
}

impl Block {
    /// A block of these values. Both pieces of memory have room for them; the staging memory `ring_bytes` as much.
    pub fn new(values: Vec<u64>, device: Memory, staging: Memory) -> Self {
        let stale = 0..values.len();
        Self { values, device, stale, staging, copied: Default::default(), next: 0 }
    }

    /// Bytes of staging memory for a block of so many words.
    pub fn ring_bytes(words: usize) -> u64 {
        (words * RING * 8) as u64
    }

    /// Sets a word for the launches to come.
    pub fn set(&mut self, word: WordId, value: u64) {
        let at = word.0 as usize;
        self.values[at] = value;
        self.stale = match self.stale.is_empty() {
            true => at..at + 1,
            false => self.stale.start.min(at)..self.stale.end.max(at + 1),
        };
    }

    /// Issues the copy of what changed.
    pub fn send(&mut self, stream: &Stream) -> Result<(), DriverError> {
        if self.stale.is_empty() {
            return Ok(());
        }
        let last_use = &mut self.copied[self.next];
        let copied = match last_use {
            Some(event) => {
                event.synchronize()?;
                event
            }
            None => last_use.insert(Event::new(stream.device())?),
        };
        let changed = &self.values[self.stale.clone()];
        let staged = self.staging.address() + ((self.next * self.values.len()) * 8) as u64;
        let (skip, bytes) = ((self.stale.start * 8) as u64, size_of_val(changed));
        let from = (staged + skip) as usize as *mut u64;
        let _current = stream.device().enter()?;
        // SAFETY: this part of the ring has room for all words, and the copy that used it last is complete. The copy lies
        // within the block; the launch before that reads it comes before on the stream, and both pieces of memory live until
        // the executable's last launch is over.
        unsafe {
            ptr::copy_nonoverlapping(changed.as_ptr(), from, changed.len());
            let to = self.device.address() + skip;
            call!(cuMemcpyHtoDAsync_v2(to, from.cast_const().cast(), bytes, stream.handle()))?;
        }
        copied.record(stream)?;
        self.next = (self.next + 1) % RING;
        self.stale = 0..0;
        Ok(())
    }
}
