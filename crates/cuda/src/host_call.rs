//! A host function as the driver calls it: with the operands that the graph gave it, on memory that the
//! [`Exec`](crate::Exec) holds. What it could not do is left for whoever waits for the launch.

use std::sync::{Arc, Mutex, PoisonError};

use phonograph_runtime::cpu::NodePath;
use phonograph_runtime::cpu::kernels::{KernelError, Operands, Prepared, Scratch};

/// A host function with its operands. The driver holds its address.
pub(crate) struct HostCall {
    pub path: NodePath,
    pub prepared: Prepared,
    pub buffers: Box<[*mut u8]>,
    pub fault: Arc<Mutex<Option<(NodePath, KernelError)>>>,
}

// SAFETY: the addresses lie in page-locked memory that the `Exec` holds; the function itself may be called from any thread.
unsafe impl Send for HostCall {}
// SAFETY: as above; a shared `HostCall` is only called, and its graph orders the calls.
unsafe impl Sync for HostCall {}

/// What the driver calls for a host node.
///
/// # Safety
/// `data` is the address of a [`HostCall`] that lives as long as the executable.
pub(crate) unsafe extern "C" fn call_host(data: *mut std::ffi::c_void) {
    // SAFETY: the caller's promise.
    let call = unsafe { &*data.cast::<HostCall>() };
    let on = Operands { buffers: &call.buffers, scalars: &[], workspace: std::ptr::null_mut() };
    let mut scratch = Scratch::new(call.prepared.scratch_bytes());
    // SAFETY: the operands are whole buffers in memory that the `Exec` holds. The graph orders this call against every
    // node that conflicts with it, launches that touch the same memory follow one another, and what reads or writes the
    // memory otherwise waits for them. A panic of the function is caught inside and comes back as an error.
    let result = unsafe { call.prepared.run(&on, 0..call.prepared.tiles(), &mut scratch) };
    if let Err(error) = result {
        let mut fault = call.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert((call.path.clone(), error));
    }
}
