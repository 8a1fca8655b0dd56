//! CUPTI, as far as it is used here: found and opened at run time, its types declared by hand.
//!
//! The layouts are those of CUPTI 10 to 13, whose callback interface has not changed; the asserts below say what is relied on.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::path::{Path, PathBuf};

/// The domain of the driver's functions.
pub const DRIVER: c_int = 1;
/// The place of a callback: before the function works.
pub const ENTER: c_int = 0;

/// What a callback is told. `CUpti_CallbackData`.
#[repr(C)]
pub struct CallbackData {
    pub site: c_int,
    pub name: *const c_char,
    pub params: *const c_void,
    pub result: *const c_int,
    pub symbol: *const c_char,
    pub context: *mut c_void,
    pub context_uid: u32,
    pub correlation: *mut u64,
    pub correlation_id: u32,
}

const _: () = {
    assert!(offset_of!(CallbackData, name) == 8);
    assert!(offset_of!(CallbackData, params) == 16);
    assert!(offset_of!(CallbackData, result) == 24);
    assert!(offset_of!(CallbackData, symbol) == 32);
    assert!(offset_of!(CallbackData, context) == 40);
    assert!(offset_of!(CallbackData, context_uid) == 48);
    assert!(offset_of!(CallbackData, correlation) == 56);
    assert!(offset_of!(CallbackData, correlation_id) == 64);
    assert!(size_of::<CallbackData>() == 72);
};

/// `CUpti_CallbackFunc`.
pub type Callback = unsafe extern "C" fn(*mut c_void, c_int, u32, *const c_void);

type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> c_int;
type EnableCallback = unsafe extern "C" fn(u32, *mut c_void, c_int, u32) -> c_int;
type GetVersion = unsafe extern "C" fn(*mut u32) -> c_int;
type GetDeviceId = unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int;
type GetResultString = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// The functions of the opened library.
pub struct Cupti {
    subscribe: Subscribe,
    enable: EnableCallback,
    version: GetVersion,
    device: GetDeviceId,
    words: GetResultString,
    subscriber: *mut c_void,
}

impl Cupti {
    /// Opens the library and subscribes to it.
    pub fn subscribe(callback: Callback) -> Result<Self, String> {
        let library = open()?;
        // SAFETY: the types are those of the functions in every version of the library; it stays open.
        let mut cupti = unsafe {
            Self {
                subscribe: function(library, c"cuptiSubscribe")?,
                enable: function(library, c"cuptiEnableCallback")?,
                version: function(library, c"cuptiGetVersion")?,
                device: function(library, c"cuptiGetDeviceId")?,
                words: function(library, c"cuptiGetResultString")?,
                subscriber: std::ptr::null_mut(),
            }
        };
        let into = &raw mut cupti.subscriber;
        // SAFETY: the pointer is to a field that lives; the callback is a function of this library, which is never unloaded.
        let answer = unsafe { (cupti.subscribe)(into, callback, std::ptr::null_mut()) };
        match answer {
            0 => Ok(cupti),
            // CUPTI_ERROR_MAX_LIMIT_REACHED, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.
            12 | 39 => {
                Err("another profiler is subscribed to CUPTI, which takes only one".to_owned())
            }
            other => Err(format!("CUPTI cannot be subscribed to: {}", cupti.explain(other))),
        }
    }

    /// Asks for the callbacks of a driver function; false if this version does not know it.
    pub fn enable(&self, id: u32) -> bool {
        // SAFETY: the subscriber is the one that was given.
        unsafe { (self.enable)(1, self.subscriber, DRIVER, id) == 0 }
    }

    /// The version of the interface; 0 if it is not told.
    pub fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the pointer is to a live number.
        match unsafe { (self.version)(&raw mut version) } {
            0 => version,
            _ => 0,
        }
    }

    /// The device of a context.
    pub fn device(&self, context: *mut c_void) -> Option<u32> {
        let mut device = 0;
        // SAFETY: the context is the one that a callback names as current, so it is alive.
        let answer = unsafe { (self.device)(context, &raw mut device) };
        (answer == 0).then_some(device)
    }

    fn explain(&self, code: c_int) -> String {
        let mut words = std::ptr::null();
        // SAFETY: the pointer is to a live pointer, which is set to a constant string.
        let answer = unsafe { (self.words)(code, &raw mut words) };
        if answer != 0 || words.is_null() {
            return format!("error {code}");
        }
        // SAFETY: the library's own constant.
        let words = unsafe { CStr::from_ptr(words) };
        format!("{} ({code})", words.to_string_lossy())
    }
}

/// Looks for a function.
///
/// # Safety
/// `F` is the function's type.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open and the name ends with a zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("CUPTI has no function {}", name.to_string_lossy()));
    }
    // SAFETY: the caller's promise; the sizes are equal.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

/// Versions of the library, the newest first.
const NAMES: [&str; 4] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"];

/// Opens CUPTI: where `PHONOGRAPH_CUPTI` says; the one that the program has loaded; by name; in the toolkit's folders; beside other
/// CUDA libraries that are loaded.
fn open() -> Result<*mut c_void, String> {
    let attempt = |path: &Path, flags| -> Option<*mut c_void> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
        // SAFETY: opening runs the initialisers of NVIDIA's library, or of what the user put in its place.
        let library = unsafe { libc::dlopen(path.as_ptr(), flags) };
        (!library.is_null()).then_some(library)
    };
    const LAZY: c_int = libc::RTLD_LAZY;
    if let Some(named) = env::var_os("PHONOGRAPH_CUPTI") {
        let path = PathBuf::from(named);
        let failed =
            || format!("PHONOGRAPH_CUPTI names {}, which cannot be opened", path.display());
        return attempt(&path, LAZY).ok_or_else(failed);
    }
    let loaded = NAMES.iter().find_map(|name| attempt(name.as_ref(), LAZY | libc::RTLD_NOLOAD));
    if let Some(library) =
        loaded.or_else(|| NAMES.iter().find_map(|name| attempt(name.as_ref(), LAZY)))
    {
        return Ok(library);
    }
    let toolkits =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = Vec::new();
    for toolkit in toolkits.chain([PathBuf::from("/usr/local/cuda")]) {
        folders.extend(["extras/CUPTI/lib64", "lib64"].map(|folder| toolkit.join(folder)));
    }
    folders.extend(crate::native::folders());
    let mut paths = folders.iter().flat_map(|folder| NAMES.iter().map(|name| folder.join(name)));
    paths.find_map(|path| attempt(&path, LAZY)).ok_or_else(|| {
        "CUPTI (libcupti.so) is not found; set PHONOGRAPH_CUPTI to its path, or CUDA_HOME to the toolkit's".to_owned()
    })
}
