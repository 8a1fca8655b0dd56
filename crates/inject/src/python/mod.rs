//! The Python stack of the calling thread, without ever taking Python's lock.
//!
//! Up to 3.12 most Pythons export a function that is made for crashes: it writes the stack of a thread to a file, allocates nothing
//! and takes no lock. Here the file is one in memory, so that nothing can block. 3.13 publishes where its frames lie instead
//! ([`frames`]). Other Pythons give no stack. Only the thread's own stack is asked for, which nobody else changes.

mod frames;
mod memory;

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

type ThisThread = unsafe extern "C" fn() -> *mut c_void;
type Dump = unsafe extern "C" fn(c_int, *mut c_void);

use frames::Offsets;

/// Longest stack that is kept, in bytes.
const MOST: u64 = 1 << 14;

/// The file in memory that stacks go through. The lock is held while Python writes into it, which waits for nobody.
static FILE: Mutex<Option<File>> = Mutex::new(None);

/// A function of the program, looked for once. 0: not yet; 1: not there.
struct Symbol {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicUsize::new(0) }
    }

    fn get(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Relaxed);
        if found == 0 {
            // SAFETY: a look-up of a name that ends with a zero.
            found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) }.addr().max(1);
            self.found.store(found, Relaxed);
        }
        (found != 1).then(|| std::ptr::with_exposed_provenance_mut(found))
    }
}

static THIS_THREAD: Symbol = Symbol::new(c"PyGILState_GetThisThreadState");
static RUNTIME: Symbol = Symbol::new(c"_PyRuntime");
static OFFSETS: OnceLock<Option<Offsets>> = OnceLock::new();
static DUMP: Symbol = Symbol::new(c"_Py_DumpTraceback");

/// The stack of the calling thread, innermost line first; `None` if it runs no Python, or one that does not tell.
pub fn stack() -> Option<String> {
    let this = THIS_THREAD.get()?;
    // SAFETY: this is the function's type in every version.
    let this = unsafe { std::mem::transmute::<*mut c_void, ThisThread>(this) };
    // SAFETY: needs no lock; null for a thread that Python does not know.
    let state = unsafe { this() };
    if state.is_null() {
        return None;
    }
    match DUMP.get() {
        Some(dump) => dumped(dump, state),
        None => {
            let runtime = RUNTIME.get()?;
            let offsets = OFFSETS.get_or_init(|| Offsets::of(runtime.expose_provenance() as u64));
            offsets.as_ref()?.stack(state.expose_provenance() as u64)
        }
    }
}

/// What Python's own function writes.
fn dumped(dump: *mut c_void, state: *mut c_void) -> Option<String> {
    // SAFETY: this is the function's type in every version that exports it.
    let dump = unsafe { std::mem::transmute::<*mut c_void, Dump>(dump) };
    let mut shared = FILE.lock().ok()?;
    if shared.is_none() {
        *shared = memory_file();
    }
    let mut file = shared.as_ref()?;
    file.seek(SeekFrom::Start(0)).ok()?;
    // SAFETY: the thread's own state, and a file that takes everything without waiting.
    unsafe { dump(file.as_raw_fd(), state) };
    let length = file.stream_position().ok()?.min(MOST);
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut text = Vec::with_capacity(length as usize);
    file.take(length).read_to_end(&mut text).ok()?;
    drop(shared);
    let text = String::from_utf8_lossy(&text);
    let (_, stack) = text.split_once('\n')?;
    stack.contains("File ").then(|| stack.trim_end().to_owned())
}

fn memory_file() -> Option<File> {
    // SAFETY: a name that ends with a zero, and flags that exist.
    let descriptor = unsafe { libc::memfd_create(c"phonograph".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor was just made and belongs to nobody else.
    (descriptor >= 0).then(|| unsafe { File::from_raw_fd(descriptor) })
}
