//! A copy or a fill as the driver takes it: its parameters, and the context that it runs in.

use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::sys::{
    CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2,
    CUcontext, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUmemorytype,
};

use crate::device::zeroed;
use crate::error::{DriverError, call};
use crate::graph::params_of;

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

    /// The parameters with which a node is added.
    pub fn params(&self) -> CUgraphNodeParams {
        match *self {
            Self::Copy(copy, context) => {
                let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY);
                params.__bindgen_anon_1.memcpy = CUDA_MEMCPY_NODE_PARAMS {
                    flags: 0,
                    reserved: 0,
                    copyCtx: context,
                    copyParams: copy,
                };
                params
            }
            Self::Fill(fill, context) => {
                let mut memset = zeroed::<CUDA_MEMSET_NODE_PARAMS_v2>();
                (memset.dst, memset.pitch, memset.value) = (fill.dst, fill.pitch, fill.value);
                (memset.elementSize, memset.width, memset.height) =
                    (fill.elementSize, fill.width, fill.height);
                memset.ctx = context;
                let mut params = params_of(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET);
                params.__bindgen_anon_1.memset = memset;
                params
            }
        }
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

/// A copy with every field zero, but for the kinds of memory, which have no 0.
pub(crate) fn zeroed_copy() -> CUDA_MEMCPY3D {
    let mut copy = MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
    let fields = copy.as_mut_ptr();
    // SAFETY: the fields lie in the value; all others are integers and pointers, of which 0 is one.
    unsafe {
        (&raw mut (*fields).srcMemoryType).write(CUmemorytype::CU_MEMORYTYPE_DEVICE);
        (&raw mut (*fields).dstMemoryType).write(CUmemorytype::CU_MEMORYTYPE_DEVICE);
        copy.assume_init()
    }
}
