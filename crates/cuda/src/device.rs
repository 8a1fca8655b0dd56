//! A device: its primary context, its properties, and the pool that its memory comes from.
//!
//! The primary context is the one that every other library in the process uses, so handles can be exchanged with
//! them. It is current on a thread only while a call needs it; what was current before is put back.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUstream, CUstream_flags,
};

use crate::captures::{relaxed, wait_for_device};
use crate::error::{DriverError, call, log_drop};
use crate::loader::{Driver, LoadError};

/// Why a device cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No driver, or no device at all.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A device that the machine does not have.
    #[error("there is no device {ordinal}; this machine has {count}")]
    Ordinal {
        /// The device asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// No device was asked for.
    #[error("no device was asked for")]
    None,
    /// A device that was asked for more than once.
    #[error("device {ordinal} was asked for twice")]
    Twice {
        /// The device.
        ordinal: u32,
    },
    /// A device that lacks something that everything here needs.
    #[error("device {ordinal} ({name}) has no {what}")]
    Lacks {
        /// The device.
        ordinal: u32,
        /// Its name.
        name: String,
        /// What is missing.
        what: &'static str,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// A device. Cheap to clone; every handle made on it keeps it open.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    ordinal: u32,
    name: String,
    capability: (u32, u32),
    multiprocessors: u32,
    memory_bytes: u64,
    // Dropped before the context that it is in.
    memory: MemoryPool,
    context: PrimaryContext,
}

/// A share of the device's primary context.
struct PrimaryContext {
    device: CUdevice,
    context: CUcontext,
}

/// The pool of a device and the stream on which memory is taken from it and put back.
struct MemoryPool {
    context: CUcontext,
    pool: CUmemoryPool,
    stream: CUstream,
}

// SAFETY: the handles are names of objects of the driver, which may be used from any thread and from several at once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::Load`] without a driver, [`DeviceError::Ordinal`] for a device that does not exist.
    pub fn open(ordinal: u32) -> Result<Self, DeviceError> {
        let count = Driver::load()?.devices();
        if ordinal >= count {
            return Err(DeviceError::Ordinal { ordinal, count });
        }
        let mut device: CUdevice = 0;
        // SAFETY: the driver is loaded and initialised; the device exists.
        unsafe { call!(cuDeviceGet(&mut device, ordinal as c_int)) }?;
        let mut name = [0; 256];
        // SAFETY: the buffer is as long as is said; the driver terminates what it writes.
        let name = unsafe {
            call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        use CUdevice_attribute as A;
        let major = attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let lacks = |what| DeviceError::Lacks { ordinal, name: name.clone(), what };
        for (wanted, what) in [
            (A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "memory pools"),
            (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addresses"),
        ] {
            if attribute(device, wanted)? == 0 {
                return Err(lacks(what));
            }
        }
        let mut memory_bytes = 0;
        // SAFETY: the device exists.
        unsafe { call!(cuDeviceTotalMem_v2(&mut memory_bytes, device)) }?;
        let mut context = ptr::null_mut();
        // SAFETY: the device exists; the share is given back by `PrimaryContext`.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut context, device)) }?;
        let context = PrimaryContext { device, context };
        let memory = MemoryPool::new(&context, ordinal)?;
        Ok(Self(Arc::new(Inner {
            ordinal,
            name,
            capability: (major, minor),
            multiprocessors: attribute(device, A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory_bytes: memory_bytes as u64,
            context,
            memory,
        })))
    }

    /// The device's number.
    pub fn ordinal(&self) -> u32 {
        self.0.ordinal
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Compute capability: (9, 0) for a Hopper.
    pub fn capability(&self) -> (u32, u32) {
        self.0.capability
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    /// Memory of the device, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes
    }

    /// The primary context, for other users of the driver. Valid for as long as this handle or a clone of it.
    pub fn context(&self) -> CUcontext {
        self.0.context.context
    }

    /// The priorities that streams and kernels can have: from the least urgent to the most urgent, which is the smaller number.
    pub fn priorities(&self) -> Result<(i32, i32), DriverError> {
        let (mut least, mut greatest) = (0, 0);
        let _current = self.enter()?;
        // SAFETY: a context is current.
        unsafe { call!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest)) }?;
        Ok((least, greatest))
    }

    /// Waits until all work on the device that this process issued is complete, and before that for the captures that other
    /// threads have open in [`Stream::capture`](crate::Stream::capture).
    ///
    /// # Errors
    /// Also what an earlier kernel did wrong; the context is then beyond use. Refused, as the driver would, inside a capture
    /// of this thread's own and while a window of a shared device records; the capture does not suffer from it.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = self.enter()?;
        // SAFETY: a context is current.
        wait_for_device(|| unsafe { call!(cuCtxSynchronize()) })
    }

    /// Whether both are the same device.
    pub fn is(&self, other: &Device) -> bool {
        self.0.ordinal == other.0.ordinal
    }

    /// Lets kernels and copies of `user` reach this device's memory.
    ///
    /// # Errors
    /// [`DeviceError::Lacks`] if the hardware does not connect them.
    pub fn share_memory_with(&self, user: &Device) -> Result<(), DeviceError> {
        let (here, there) = (self.0.context.device, user.0.context.device);
        let mut possible = 0;
        // SAFETY: both devices exist.
        unsafe { call!(cuDeviceCanAccessPeer(&mut possible, there, here)) }?;
        if possible == 0 {
            let (ordinal, name) = (user.ordinal(), user.name().to_owned());
            return Err(DeviceError::Lacks { ordinal, name, what: "access to its peer's memory" });
        }
        let mut access = zeroed::<CUmemAccessDesc>();
        access.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = user.ordinal() as c_int;
        access.flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        // SAFETY: the pool lives; one description is given.
        unsafe { call!(cuMemPoolSetAccess(self.0.memory.pool, &access, 1)) }?;
        Ok(())
    }

    /// The driver's number for it, where a context is not enough.
    pub(crate) fn handle(&self) -> CUdevice {
        self.0.context.device
    }

    pub(crate) fn pool(&self) -> CUmemoryPool {
        self.0.memory.pool
    }

    /// The stream on which memory is taken from the pool and put back.
    pub(crate) fn memory_stream(&self) -> CUstream {
        self.0.memory.stream
    }

    /// Makes the context current on this thread until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<Current, DriverError> {
        Current::new(self.context())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { ordinal, name, capability, .. } = &*self.0;
        f.debug_struct("Device")
            .field("ordinal", ordinal)
            .field("name", name)
            .field("capability", capability)
            .finish_non_exhaustive()
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        let relaxed = relaxed();
        // SAFETY: the share was taken when this was made; all handles made in it hold the device, so they are gone.
        log_drop(unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device)) });
        log_drop(relaxed.map(drop));
    }
}

impl MemoryPool {
    fn new(context: &PrimaryContext, ordinal: u32) -> Result<Self, DriverError> {
        let context = context.context;
        let _current = Current::new(context)?;
        let _relaxed = relaxed()?;
        let mut properties = zeroed::<CUmemPoolProps>();
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = ordinal as c_int;
        let (mut stream, mut pool) = (ptr::null_mut(), ptr::null_mut());
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current.
        unsafe { call!(cuStreamCreateWithPriority(&mut stream, flags, 0)) }?;
        let mut this = Self { context, pool, stream };
        // SAFETY: the properties describe memory of a device that exists.
        unsafe { call!(cuMemPoolCreate(&mut pool, &properties)) }?;
        this.pool = pool;
        // Memory that is put back is kept for the next allocation: giving it to the system costs a synchronisation.
        let mut threshold = u64::MAX;
        let keep = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool lives; this attribute is a u64.
        unsafe { call!(cuMemPoolSetAttribute(pool, keep, (&raw mut threshold).cast())) }?;
        Ok(this)
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let current = Current::new(self.context);
        let relaxed = relaxed();
        // SAFETY: both handles are this value's own, and all memory of the pool holds the device, so it is put back.
        unsafe {
            log_drop(call!(cuStreamSynchronize(self.stream)));
            if !self.pool.is_null() {
                log_drop(call!(cuMemPoolDestroy(self.pool)));
            }
            log_drop(call!(cuStreamDestroy_v2(self.stream)));
        }
        log_drop(relaxed.map(drop));
        log_drop(current.map(drop));
    }
}

/// A context that is current on this thread for as long as this lives.
pub(crate) struct Current {
    pushed: bool,
    /// The guard belongs to its thread.
    _thread: std::marker::PhantomData<*mut ()>,
}

impl Current {
    pub fn new(context: CUcontext) -> Result<Self, DriverError> {
        // Asking is several times cheaper than pushing, and where a program keeps to one context it is all that is needed.
        let mut present = ptr::null_mut();
        // SAFETY: the driver is initialised.
        unsafe { call!(cuCtxGetCurrent(&mut present)) }?;
        let pushed = present != context;
        if pushed {
            // SAFETY: the caller's device keeps the context.
            unsafe { call!(cuCtxPushCurrent_v2(context)) }?;
        }
        Ok(Self { pushed, _thread: std::marker::PhantomData })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: `new` pushed a context on this thread; the guard cannot leave it.
            log_drop(unsafe { call!(cuCtxPopCurrent_v2(&mut popped)) });
        }
    }
}

/// A value of the driver's plain structures with every field zero.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: used for C structures of integers, pointers and enums that have a variant of 0, as the driver asks for.
    unsafe { std::mem::zeroed() }
}

fn attribute(device: CUdevice, which: CUdevice_attribute) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: the device exists.
    unsafe { call!(cuDeviceGetAttribute(&mut value, which, device)) }?;
    Ok(value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Cuda;
    use crate::stub::on_driver;

    #[test]
    fn devices_that_cannot_reach_each_other_are_refused() {
        on_driver(
            "device::tests::devices_that_cannot_reach_each_other_are_refused",
            &[
                ("cuDeviceGetCount", "(int *n) { *n = 2; return 0; }"),
                ("cuDeviceCanAccessPeer", "(int *can) { *can = 0; return 0; }"),
            ],
            || {
                let refused = Cuda::on(&[0, 1]).unwrap_err();
                let what = "access to its peer's memory";
                let expected = DeviceError::Lacks { ordinal: 1, name: String::new(), what };
                assert_eq!(refused, expected);
                assert_eq!(Cuda::on(&[0, 0]).unwrap_err(), DeviceError::Twice { ordinal: 0 });
                let missing = DeviceError::Ordinal { ordinal: 2, count: 2 };
                assert_eq!(Cuda::on(&[0, 2]).unwrap_err(), missing);
                assert_eq!(Cuda::on(&[1]).unwrap().devices()[0].ordinal(), 1);
            },
        );
    }
}
