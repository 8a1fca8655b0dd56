//! The Python stack of the calling thread, without ever taking Python's lock.
//!
//! Python 3.11 and 3.12 export a function that is made for crashes: it writes the stack of a thread to a file, allocates nothing and
//! takes no lock. Here the file is one in memory, so that nothing can block. Only the thread's own stack is asked for, which nobody
//! else changes.

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type ThisThread = unsafe extern "C" fn() -> *mut c_void;
type Dump = unsafe extern "C" fn(c_int, *mut c_void);

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
static DUMP: Symbol = Symbol::new(c"_Py_DumpTraceback");

/// The stack of the calling thread, innermost line first; `None` if it runs no Python, or one that does not tell.
pub fn stack() -> Option<String> {
    let (this, dump) = (THIS_THREAD.get()?, DUMP.get()?);
    // SAFETY: these are the functions' types in every version that exports both.
    let (this, dump) = unsafe {
        (
            std::mem::transmute::<*mut c_void, ThisThread>(this),
            std::mem::transmute::<*mut c_void, Dump>(dump),
        )
    };
    // SAFETY: needs no lock; null for a thread that Python does not know.
    let state = unsafe { this() };
    if state.is_null() {
        return None;
    }
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
