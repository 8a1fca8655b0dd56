//! Memory of a worker that kernels use while they run.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of scratch memory: a cache line.
pub(super) const SCRATCH_ALIGN: usize = 64;

/// Scratch memory of one worker, allocated once and used by every kernel that the worker runs.
///
/// ```
/// use phonograph_runtime::cpu::kernels::Scratch;
///
/// let scratch = Scratch::new(4096);
/// assert_eq!(scratch.bytes(), 4096);
/// ```
#[derive(Debug)]
pub struct Scratch {
    memory: NonNull<u8>,
    layout: Layout,
}

impl Scratch {
    /// At least `bytes` of zeroed memory: the most that any kernel to be run asks for.
    ///
    /// # Panics
    /// If `bytes` is more than the address space.
    pub fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), SCRATCH_ALIGN)
            .expect("scratch sizes are sums of sizes of memory that exists");
        // SAFETY: the layout is not of size 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { memory, layout }
    }

    /// How much there is.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// The memory, exclusively; checked to be enough.
    pub(super) fn get(&mut self, bytes: usize) -> *mut u8 {
        assert!(bytes <= self.bytes(), "{bytes} bytes of scratch needed, {} given", self.bytes());
        self.memory.as_ptr()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

// SAFETY: the memory is owned, and reached only through `&mut self`.
unsafe impl Send for Scratch {}
