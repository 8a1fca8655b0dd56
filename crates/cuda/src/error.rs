//! What the driver answers when it refuses.

use std::ffi::CStr;
use std::fmt;

use cudarc::driver::sys::{self, CUresult};

/// A call of the driver that failed: which, and what the driver says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {name} ({code}): {message}")]
pub struct DriverError {
    /// The function called.
    pub call: &'static str,
    /// The driver's number for the error.
    pub code: u32,
    /// The driver's name for it.
    pub name: String,
    /// The driver's sentence about it.
    pub message: String,
}

/// A version as the driver and NVRTC count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The part before the dot.
    pub major: u32,
    /// The part after it.
    pub minor: u32,
}

impl Version {
    /// From the driver's form: 13010 is 13.1.
    pub(crate) const fn from_driver(version: i32) -> Self {
        let version = version.unsigned_abs();
        Self { major: version / 1000, minor: version % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Calls a function of the driver inside an `unsafe` block of the caller's; `Err` carries the function's name.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::error::check(stringify!($function), ::cudarc::driver::sys::$function($($argument),*))
    };
}
pub(crate) use call;

/// `Ok` if the driver answered success.
#[inline]
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), DriverError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(refusal(call, result)) }
}

/// What the driver says of its answer.
#[cold]
fn refusal(call: &'static str, result: CUresult) -> DriverError {
    let (mut name, mut message) = (std::ptr::null(), std::ptr::null());
    // SAFETY: both functions write one pointer to a string constant of the driver, or null.
    unsafe {
        // For a code that the driver does not know both leave null behind, and their own result says nothing more.
        let known =
            [sys::cuGetErrorName(result, &mut name), sys::cuGetErrorString(result, &mut message)];
        debug_assert!(known[0] == known[1]);
    }
    DriverError { call, code: result as u32, name: text(name), message: text(message) }
}

fn text(string: *const std::ffi::c_char) -> String {
    if string.is_null() {
        return "unknown to the driver".to_owned();
    }
    // SAFETY: the driver's strings are constants with a terminator.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Says in the log that a handle could not be given back; a destructor has nobody to tell.
pub(crate) fn log_drop(result: Result<(), DriverError>) {
    if let Err(error) = result {
        tracing::error!(%error, "a handle could not be released");
    }
}
