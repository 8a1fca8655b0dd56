//! The same two operations for each side: a fill of a buffer with bytes, and a kernel that adds one to it.

use std::future::IntoFuture;
use std::sync::Arc;

use cuda_async::device_future::DeviceFuture;
use cuda_async::device_operation as theirs;
use cuda_async::error::DeviceError;
use cuda_async::launch::{AsyncKernelLaunch, AsyncKernelLaunchBuilder};
use cuda_core::sys::CUdeviceptr;
use cuda_core::{Function, LaunchConfig, RawDeviceBuffer};
use phonograph::graph::{Extent, MemsetNode, Pitched, Target};
use phonograph::prelude::*;
use phonograph::{Operand, OperandMut, awaitable};

/// Elements of the buffer; one block's worth.
pub const ELEMENTS: u32 = 64;
pub const BYTES: usize = 4 * ELEMENTS as usize;

pub const ADD_ONE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry add_one(.param .u64 y) {
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [y];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    add.s32 %r2, %r2, 1;
    st.global.u32 [%rd3], %r2;
    ret;
}
";

kernel! {
    /// y ← y + 1
    pub fn add_one(y: &mut [u32]) |e| { y = y + e.constant(1u32); }
}

/// A memory of cuda-async's that an operation writes.
#[derive(Clone)]
pub struct Written {
    pub storage: RawDeviceBuffer,
    /// Whether the operation registers it, as launches that the crate generates do, or leaves that to whoever runs it.
    pub tracked: bool,
}

impl Written {
    pub fn address(&self) -> CUdeviceptr {
        self.storage.cu_deviceptr()
    }
}

/// cuda-async has no fill of its own.
pub struct TheirFill {
    pub to: Written,
    pub byte: u8,
}

impl theirs::DeviceOp for TheirFill {
    type Output = ();

    unsafe fn execute(self, cx: &theirs::ExecutionContext) -> Result<(), DeviceError> {
        let address = self.to.address();
        if self.to.tracked {
            cx.retain_buffer(self.to.storage, true)?;
        }
        // SAFETY: the address has that many bytes; tracked or not, the bench keeps the buffer.
        unsafe { cuda_core::memset_d8_async(address, self.byte, BYTES, cx.get_cuda_stream())? };
        Ok(())
    }
}

impl theirs::GraphNode for TheirFill {}

impl IntoFuture for TheirFill {
    type Output = Result<(), DeviceError>;
    type IntoFuture = DeviceFuture<(), TheirFill>;

    fn into_future(self) -> Self::IntoFuture {
        DeviceFuture::failed(DeviceError::Internal("the bench awaits nothing".into()))
    }
}

pub fn their_add_one(function: &Arc<Function>, to: Written) -> AsyncKernelLaunch<'static> {
    let mut launch = AsyncKernelLaunchBuilder::new(function.clone());
    // SAFETY: the kernel takes one address, of a buffer with an element a thread.
    unsafe {
        launch.push_device_ptr(to.address());
        if to.tracked {
            launch.retain_buffer(to.storage, true);
        }
        launch.finalize_unchecked(LaunchConfig {
            grid_dim: (1, 1, 1),
            block_dim: (ELEMENTS, 1, 1),
            shared_mem_bytes: 0,
        })
    }
}

/// A fill by the driver's memset node, which the facade's own fill, a kernel, is not.
pub struct OurFill<D> {
    pub to: D,
    pub byte: u8,
}

awaitable!([D: OperandMut<Element = u32>] OurFill<D>);

impl<D: OperandMut<Element = u32>> DeviceOp for OurFill<D> {
    type Output = ();

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> phonograph::Result<()> {
        let to = Operand::window(&self.to);
        cx.record(|recorder| {
            let region = recorder.view(&to).region();
            let fill = MemsetNode {
                dst: Pitched::linear(Target::Buffer(region.buffer), region.offset),
                value: self.byte.into(),
                element_size: 1,
                extent: Extent::linear(region.bytes),
            };
            recorder.builder().add_fill("fill", fill);
            Ok(())
        })
    }
}

// SAFETY: it records one node.
unsafe impl<D: OperandMut<Element = u32>> GraphNode for OurFill<D> {}
