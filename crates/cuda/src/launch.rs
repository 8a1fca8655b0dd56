//! A kernel launch as the driver takes it: the function, the blocks and threads, the values of the parameters.
//!
//! The values lie one after another in one run of words, so that a launch of a few parameters takes no memory of its own:
//! a large graph has as many launches as nodes.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v3, CUfunction, CUgraphNodeParams,
    CUgraphNodeType,
};
use smallvec::SmallVec;

use crate::device::zeroed;
use crate::graph::params_of;
use crate::module::Function;

/// A kernel launch with the values of its parameters.
#[derive(Clone)]
pub(crate) struct Launch {
    /// Kept by whoever has the launch: a count of its users for each node is what a node would take longest for.
    pub function: CUfunction,
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared_bytes: u32,
    pub values: Values,
}

/// The values of a kernel's parameters, each in whole words.
#[derive(Clone, Default)]
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

    /// The words of all parameters, and where each parameter's begin.
    pub fn parts(&self) -> (&[u64], &[u32]) {
        (&self.words, &self.starts)
    }

    /// Changes a parameter of at most eight bytes.
    pub fn set(&mut self, index: usize, word: u64) {
        self.words[self.starts[index] as usize] = word;
    }
}

/// A launch as it is handed to the driver: the values of parameters in words, and where each parameter's begin.
pub(crate) struct Params<'a> {
    pub function: CUfunction,
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared_bytes: u32,
    pub words: &'a [u64],
    pub starts: &'a [u32],
}

impl Params<'_> {
    /// The driver's form. It points into `pointers`, which point to the words.
    pub fn of_driver(&self, pointers: &mut Pointers) -> CUDA_KERNEL_NODE_PARAMS {
        pointers.clear();
        let values = self.starts.iter().map(|&start| &raw const self.words[start as usize]);
        pointers.extend(values.map(|value| value.cast_mut().cast::<c_void>()));
        let mut params = zeroed::<CUDA_KERNEL_NODE_PARAMS>();
        params.func = self.function;
        (params.gridDimX, params.gridDimY, params.gridDimZ) = self.grid;
        (params.blockDimX, params.blockDimY, params.blockDimZ) = self.block;
        params.sharedMemBytes = self.shared_bytes;
        params.kernelParams = pointers.as_mut_ptr();
        params
    }
}

/// A launch of one thread, of a kernel without parameters.
pub(crate) fn one_thread(kernel: &Function) -> CUDA_KERNEL_NODE_PARAMS_v3 {
    let mut params = zeroed::<CUDA_KERNEL_NODE_PARAMS_v3>();
    params.func = kernel.handle();
    (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
    (params.blockDimX, params.blockDimY, params.blockDimZ) = (1, 1, 1);
    params
}

/// That launch as a node.
pub(crate) fn one_thread_node(kernel: &Function) -> CUgraphNodeParams {
    let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL);
    params.__bindgen_anon_1.kernel = one_thread(kernel);
    params
}

impl Launch {
    /// The driver's form. It points into `pointers`, which point into the values.
    pub fn params(&self, pointers: &mut Pointers) -> CUDA_KERNEL_NODE_PARAMS {
        let Launch { function, grid, block, shared_bytes, ref values } = *self;
        let (words, starts) = values.parts();
        Params { function, grid, block, shared_bytes, words, starts }.of_driver(pointers)
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
