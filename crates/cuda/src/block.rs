//! The parameter block of an executable: the values of slots, in device memory, where generated kernels read them.
//!
//! In: words that were set. Out: the same words on the device, before the launch that comes next and after the one before.
//! A change costs a store here; a launch after changes costs one more launch of a small kernel for every [`CHANGES`] words,
//! however many nodes read them, where changing the parameters of a node costs the driver 0.6 to 1.7 µs each. The words are
//! that kernel's parameters: the driver has its copy of them when the call returns, so nothing is staged and the next change
//! need not wait. It is issued to the stream of the launch, which is ordered after the executable's previous launch, so no
//! run sees half of a change. (A copy from page-locked memory instead took 15 µs until the graph began.)

use std::ffi::c_void;
use std::ptr;

use phonograph_kernels::cuda::CHANGES;

use crate::error::{DriverError, call};
use crate::memory::Memory;
use crate::module::Function;
use crate::stream::Stream;

/// A place in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordId(pub u32);

pub(crate) struct Block {
    words: Vec<Word>,
    device: Memory,
    /// The words that the device does not have yet.
    stale: Vec<WordId>,
    /// The kernel that brings changes.
    change: Function,
}

struct Word {
    value: u64,
    is_stale: bool,
}

/// The parameter of the kernel that brings changes, as its source declares it.
#[repr(C)]
struct Changes {
    values: [u64; CHANGES],
    places: [u32; CHANGES],
    count: u32,
}

impl Block {
    /// A block of these values, in memory with room for them. `change` is the kernel of
    /// [`change_words`](phonograph_kernels::cuda::change_words).
    pub fn new(values: Vec<u64>, device: Memory, change: Function) -> Self {
        let stale = (0..values.len() as u32).map(WordId).collect();
        let words = values.into_iter().map(|value| Word { value, is_stale: true }).collect();
        Self { words, device, stale, change }
    }

    /// Sets a word for the launches to come.
    pub fn set(&mut self, id: WordId, value: u64) {
        let word = &mut self.words[id.0 as usize];
        word.value = value;
        if !word.is_stale {
            word.is_stale = true;
            self.stale.push(id);
        }
    }

    /// Issues what brings the changes to the device. O(changes).
    pub fn send(&mut self, stream: &Stream) -> Result<(), DriverError> {
        if self.stale.is_empty() {
            return Ok(());
        }
        let _current = stream.device().enter()?;
        while !self.stale.is_empty() {
            let first = self.stale.len().saturating_sub(CHANGES);
            let mut changes = Changes { values: [0; CHANGES], places: [0; CHANGES], count: 0 };
            for (at, id) in self.stale[first..].iter().enumerate() {
                changes.values[at] = self.words[id.0 as usize].value;
                (changes.places[at], changes.count) = (id.0, at as u32 + 1);
            }
            let mut block = self.device.address();
            let mut params: [*mut c_void; 2] = [(&raw mut block).cast(), (&raw mut changes).cast()];
            let (function, stream) = (self.change.handle(), stream.handle());
            // SAFETY: the parameters are the kernel's, and the driver copies them; the places lie in the block, whose memory
            // lives until the executable's last launch is over, as the function does.
            unsafe {
                let (threads, params, none) =
                    (CHANGES as u32, params.as_mut_ptr(), ptr::null_mut());
                call!(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, params, none))?;
            }
            for id in self.stale.drain(first..) {
                self.words[id.0 as usize].is_stale = false;
            }
        }
        Ok(())
    }
}
