//! A copy or a fill as the driver takes it: its parameters, and the context that it runs in.

use std::ptr;

use cudarc::driver::sys::{
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraphExec, CUgraphNode,
};

use crate::error::{DriverError, call};

/// The parameters of a node that moves bytes, and its context.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Transfer {
    Copy(CUDA_MEMCPY3D, CUcontext),
    Fill(CUDA_MEMSET_NODE_PARAMS, CUcontext),
}

impl Transfer {
    /// What an executable cannot change: all but addresses and the value of a fill.
    pub fn shape(mut self) -> Self {
        match &mut self {
            Self::Copy(copy, _) => {
                (copy.srcDevice, copy.dstDevice) = (0, 0);
                (copy.srcHost, copy.dstHost) = (ptr::null(), ptr::null_mut());
            }
            Self::Fill(fill, _) => (fill.dst, fill.value) = (0, 0),
        }
        self
    }

    /// Gives these parameters to a node of an executable.
    ///
    /// # Safety
    /// The executable lives, and the node is one of this kind of the graph that it was made of.
    pub unsafe fn set(
        &self,
        executable: CUgraphExec,
        node: CUgraphNode,
    ) -> Result<(), DriverError> {
        // SAFETY: the caller's promise. The driver copies what it is given.
        unsafe {
            match self {
                Self::Copy(copy, context) => {
                    call!(cuGraphExecMemcpyNodeSetParams(executable, node, copy, *context))
                }
                Self::Fill(fill, context) => {
                    call!(cuGraphExecMemsetNodeSetParams(executable, node, fill, *context))
                }
            }
        }
    }
}
