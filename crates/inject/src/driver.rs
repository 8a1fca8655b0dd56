//! The driver's own functions, as far as they are called from here: its version, and drawings of graphs.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The variable with the folder that drawings go to; without it none are made.
const FOLDER: &str = "PHONOGRAPH_GRAPHS";
/// Most drawings of one program.
const MOST: u32 = 64;

/// A function of the driver that has loaded this library.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: names that end with a zero; nothing is loaded that is not.
    let found = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    (!found.is_null()).then_some(found)
}

/// The driver's version, such as 13000; 0 if it does not tell.
pub fn version() -> u32 {
    let mut version: c_int = 0;
    let Some(get) = function(c"cuDriverGetVersion") else { return 0 };
    // SAFETY: the function's type in every version; it needs no initialisation.
    let answer = unsafe {
        let get =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_uint>(get);
        get(&raw mut version)
    };
    if answer == 0 { version as u32 } else { 0 }
}

/// Where the drawing of the next graph would go, if drawings are wanted.
fn next() -> Option<PathBuf> {
    static WHERE: OnceLock<Option<PathBuf>> = OnceLock::new();
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let folder = WHERE.get_or_init(|| env::var_os(FOLDER).map(PathBuf::from)).as_ref()?;
    let number = DRAWN.fetch_update(Relaxed, Relaxed, |drawn| (drawn < MOST).then_some(drawn + 1));
    Some(folder.join(format!("{}-{}.dot", std::process::id(), number.ok()? + 1)))
}

/// Has the driver draw a graph, with all that it tells of the parameters. Returns the file.
pub fn draw(graph: u64) -> Option<String> {
    const VERBOSE: c_uint = 1;
    type Draw = unsafe extern "C" fn(*mut c_void, *const c_char, c_uint) -> c_uint;
    let path = next()?;
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let draw = function(c"cuGraphDebugDotPrint")?;
    // SAFETY: the function's type in every version; the graph is the one that was just instantiated, so it is alive.
    let answer = unsafe {
        let draw = std::mem::transmute::<*mut c_void, Draw>(draw);
        draw(std::ptr::with_exposed_provenance_mut(graph as usize), name.as_ptr(), VERBOSE)
    };
    (answer == 0).then(|| path.to_string_lossy().into_owned())
}
