//! A kernel launch as the driver takes it: the function, the blocks and threads, the values of the parameters.
//!
//! The values lie one after another in one run of words, so that a launch of a few parameters takes no memory of its own:
//! a large graph has as many launches as nodes.

use std::ffi::c_void;

use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS;
use smallvec::SmallVec;

use crate::device::zeroed;
use crate::module::Function;

/// A kernel launch with the values of its parameters.
pub(crate) struct Launch {
    pub function: Function,
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared_bytes: u32,
    pub values: Values,
}

/// The values of a kernel's parameters, each in whole words.
#[derive(Default)]
pub(crate) struct Values {
    words: SmallVec<[u64; 8]>,
    /// Where each parameter's words begin.
    starts: SmallVec<[u32; 8]>,
}

/// Where the driver finds the value of each parameter.
pub(crate) type Pointers = SmallVec<[*mut c_void; 8]>;

impl Values {
    /// Adds a parameter of at most eight bytes.
    pub fn push(&mut self, word: u64) {
        self.push_words(&[word]);
    }

    /// Adds a parameter that is a structure of words.
    pub fn push_words(&mut self, words: &[u64]) {
        self.starts.push(self.words.len() as u32);
        self.words.extend_from_slice(words);
    }

    /// Changes a parameter of at most eight bytes.
    pub fn set(&mut self, index: usize, word: u64) {
        self.words[self.starts[index] as usize] = word;
    }
}

impl Launch {
    /// The driver's form. It points into `pointers`, which point into the values.
    pub fn params(&self, pointers: &mut Pointers) -> CUDA_KERNEL_NODE_PARAMS {
        let Values { words, starts } = &self.values;
        pointers.clear();
        let values = starts.iter().map(|&start| &raw const words[start as usize]);
        pointers.extend(values.map(|value| value.cast_mut().cast::<c_void>()));
        let mut params = zeroed::<CUDA_KERNEL_NODE_PARAMS>();
        params.func = self.function.handle();
        (params.gridDimX, params.gridDimY, params.gridDimZ) = self.grid;
        (params.blockDimX, params.blockDimY, params.blockDimZ) = self.block;
        params.sharedMemBytes = self.shared_bytes;
        params.kernelParams = pointers.as_mut_ptr();
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_several_words_keep_their_places() {
        let mut values = Values::default();
        values.push(1);
        values.push_words(&(10..30).collect::<Vec<u64>>());
        values.push(2);
        values.set(2, 3);
        values.set(0, 4);
        let first = |at: usize| values.words[values.starts[at] as usize];
        assert_eq!([first(0), first(1), first(2)], [4, 10, 3]);
        assert_eq!(values.words.len(), 22);
    }
}
