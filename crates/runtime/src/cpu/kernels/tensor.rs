//! Operands as a kernel sees them, and what a run gives it.

use phonograph_graph::{Scalar, View};

use super::PrepareError;
use super::layout::Strides;

/// The memory and the values that one run of a prepared node works on.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// First byte of the buffer of each operand, in the order of [`Prepared::buffers`](super::Prepared::buffers).
    pub buffers: &'a [*mut u8],
    /// The value of each scalar argument, in the order of [`Prepared::scalars`](super::Prepared::scalars).
    pub scalars: &'a [Scalar],
    /// [`Prepared::workspace_bytes`](super::Prepared::workspace_bytes) of memory, shared by all tiles of this run.
    pub workspace: *mut u8,
}

/// One tensor operand: which buffer, from where on, with which strides in the kernel's own index space.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    /// Which operand of the node.
    pub operand: usize,
    /// Bytes from the buffer's first byte to the first element.
    pub offset: usize,
    /// Bytes of an element.
    pub size: usize,
    /// Elements from one to the next along each axis.
    pub strides: Strides,
}

impl Tensor {
    /// Checks that elements are aligned, given a buffer that is.
    pub fn new(operand: usize, view: &View, strides: Strides) -> Result<Self, PrepareError> {
        let size = view.dtype.size();
        if !view.offset.is_multiple_of(size) {
            let problem = format!(
                "starts at byte {}, where no {} can lie; offsets are multiples of {size}",
                view.offset, view.dtype
            );
            return Err(PrepareError::Argument { index: operand, problem });
        }
        Ok(Self { operand, offset: view.offset as usize, size: size as usize, strides })
    }

    /// The strides of the view's own axes.
    pub fn of(operand: usize, view: &View) -> Result<Self, PrepareError> {
        let mut strides = Strides::default();
        for (to, &from) in strides.iter_mut().zip(view.strides()) {
            *to = from as usize;
        }
        Self::new(operand, view, strides)
    }

    /// Address of element `index`, counted along the memory. Whether there is one is for the caller to know.
    #[inline(always)]
    pub fn at(&self, on: &Operands<'_>, index: usize) -> *mut u8 {
        on.buffers[self.operand].wrapping_add(self.offset + index * self.size)
    }
}

/// The view of the first elements along `axis`, without the axis.
pub(super) fn without(view: &View, axis: usize) -> View {
    let (mut extents, mut strides) = (view.shape().extents().to_vec(), view.strides().to_vec());
    extents.remove(axis);
    strides.remove(axis);
    View::strided(view.buffer, view.dtype, view.offset, &extents, &strides)
        .expect("a view stays within its bounds when an axis is dropped")
}
