//! Code on a device: modules from PTX or cubin, and the functions in them.

use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUjit_option, CUmodule, CUresult};

use crate::captures::relaxed;
use crate::device::Device;
use crate::error::{DriverError, call, log_drop};

/// Why code cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// Code with a zero byte where text is wanted, or a name with one.
    #[error("{0} contains a zero byte")]
    ZeroByte(&'static str),
    /// Binary code that is not an ELF file, which a cubin is.
    #[error("the binary code is no cubin: it does not start as an ELF file does")]
    NotCubin,
    /// A function that the module does not have.
    #[error("the module has no function `{0}`")]
    NoFunction(String),
    /// The driver refused; for PTX with what its assembler says.
    #[error("{source}{}", said(.log))]
    Driver {
        /// The refusal.
        source: DriverError,
        /// What the assembler printed.
        log: String,
    },
}

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}

impl From<DriverError> for ModuleError {
    fn from(source: DriverError) -> Self {
        ModuleError::Driver { source, log: String::new() }
    }
}

/// Loaded code. Cheap to clone; its functions keep it loaded.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    handle: CUmodule,
    device: Device,
}

// SAFETY: a module handle may be used from any thread and from several at once.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Module {
    /// Loads PTX; the driver compiles it for the device.
    ///
    /// # Errors
    /// [`ModuleError::Driver`] with the assembler's messages if the text is wrong or of a version that is too new.
    pub fn from_ptx(device: &Device, ptx: &str) -> Result<Self, ModuleError> {
        let text = CString::new(ptx).map_err(|_| ModuleError::ZeroByte("PTX"))?;
        Self::load(device, text.as_ptr().cast())
    }

    /// Loads machine code for this very kind of device.
    ///
    /// # Safety
    /// The bytes are a whole cubin: the driver reads as much as their headers say.
    pub unsafe fn from_cubin(device: &Device, cubin: &[u8]) -> Result<Self, ModuleError> {
        if !cubin.starts_with(b"\x7fELF") {
            return Err(ModuleError::NotCubin);
        }
        Self::load(device, cubin.as_ptr().cast())
    }

    fn load(device: &Device, image: *const c_void) -> Result<Self, ModuleError> {
        let _current = device.enter()?;
        let mut log = vec![0u8; 8192];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values =
            [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut handle = ptr::null_mut();
        // SAFETY: the image is terminated text or, by its caller's promise, a whole cubin; the options' values are a buffer
        // and its length, as these options want.
        let loaded = unsafe {
            call!(cuModuleLoadDataEx(
                &mut handle,
                image,
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr()
            ))
        };
        loaded.map_err(|source| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
            ModuleError::Driver { source, log }
        })?;
        Ok(Self(Arc::new(Loaded { handle, device: device.clone() })))
    }

    /// A function by the name it has in the code (of C++ the mangled one).
    pub fn function(&self, name: &str) -> Result<Function, ModuleError> {
        let text = CString::new(name).map_err(|_| ModuleError::ZeroByte("the function's name"))?;
        let _current = self.0.device.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the module lives; the name is terminated.
        let found =
            unsafe { call!(cuModuleGetFunction(&mut handle, self.0.handle, text.as_ptr())) };
        match found {
            Ok(()) => Ok(Function { handle, module: self.clone() }),
            Err(error) if error.code == CUresult::CUDA_ERROR_NOT_FOUND as u32 => {
                Err(ModuleError::NoFunction(name.to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let current = self.device.enter();
        let relaxed = relaxed();
        // SAFETY: the handle is this value's own; graphs that launch its functions hold them.
        log_drop(unsafe { call!(cuModuleUnload(self.handle)) });
        log_drop(relaxed.map(drop));
        log_drop(current.map(drop));
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("device", &self.0.device).finish_non_exhaustive()
    }
}

/// A kernel on a device.
#[derive(Clone, Debug)]
pub struct Function {
    handle: CUfunction,
    module: Module,
}

// SAFETY: a function handle may be used from any thread and from several at once, for as long as its module lives.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Does nothing.
const EMPTY: &str = ".version 7.0
.target sm_52
.address_size 64
.visible .entry empty()
{
    ret;
}
";

impl Function {
    /// A kernel without parameters that does nothing. It needs no compiler.
    pub(crate) fn empty(device: &Device) -> Result<Self, ModuleError> {
        Module::from_ptx(device, EMPTY)?.function("empty")
    }

    /// The device that it is loaded on.
    pub fn device(&self) -> &Device {
        &self.module.0.device
    }

    /// The driver's handle, for other users of the driver. Valid for as long as this value or a clone of it.
    pub fn handle(&self) -> CUfunction {
        self.handle
    }

    /// The most threads that a block of it can have.
    pub fn max_threads(&self) -> Result<u32, DriverError> {
        use CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        self.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    }

    /// The bytes of each parameter, in order.
    pub fn parameter_sizes(&self) -> Result<Vec<usize>, DriverError> {
        let _current = self.device().enter()?;
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function lives; both results are for this call to write.
            let found = unsafe {
                call!(cuFuncGetParamInfo(self.handle, sizes.len(), &mut offset, &mut size))
            };
            match found {
                Ok(()) => sizes.push(size),
                // This is how the driver says that there are no more.
                Err(error) if error.code == CUresult::CUDA_ERROR_INVALID_VALUE as u32 => {
                    return Ok(sizes);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Allows launches with this much dynamic shared memory; 48 KiB are allowed without asking.
    pub(crate) fn allow_shared_bytes(&self, bytes: u32) -> Result<(), DriverError> {
        const ALLOWED: u32 = 48 << 10;
        if bytes <= ALLOWED {
            return Ok(());
        }
        let _current = self.device().enter()?;
        use CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as WANTED;
        // SAFETY: the function lives.
        unsafe { call!(cuFuncSetAttribute(self.handle, WANTED, bytes as c_int)) }
    }

    fn attribute(&self, which: CUfunction_attribute) -> Result<u32, DriverError> {
        let _current = self.device().enter()?;
        let mut value = 0;
        // SAFETY: the function lives.
        unsafe { call!(cuFuncGetAttribute(&mut value, which, self.handle)) }?;
        Ok(value.unsigned_abs())
    }
}
