//! The native stack of the calling thread, and the modules that its addresses lie in.

use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};

use phonograph_trace::live::MAX_FRAMES;

/// A library or executable in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Module {
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    pub path: String,
}

#[repr(C)]
struct Context {
    _private: [u8; 0],
}

unsafe extern "C" {
    /// Of the library that unwinds Rust's own panics, which is linked in any case.
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;

/// The return addresses of the calling thread, innermost first, into `addresses`.
pub fn stack(addresses: &mut Vec<u64>) {
    extern "C" fn step(context: *mut Context, data: *mut c_void) -> c_int {
        // SAFETY: the pointer that was handed over below, which nothing else uses meanwhile.
        let addresses = unsafe { &mut *data.cast::<Vec<u64>>() };
        // SAFETY: the unwinder's own context.
        let address = unsafe { _Unwind_GetIP(context) };
        if address == 0 || addresses.len() == MAX_FRAMES {
            return STOP;
        }
        addresses.push(address as u64);
        GO_ON
    }
    addresses.clear();
    addresses.reserve(MAX_FRAMES);
    // SAFETY: the function walks the calling thread's own stack; `step` neither unwinds nor allocates.
    unsafe { _Unwind_Backtrace(step, (&raw mut *addresses).cast()) };
}

/// Everything that is loaded.
pub fn modules() -> Vec<Module> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader hands over what it knows of a module, and the pointer from below.
        let (info, modules) = unsafe { (&*info, &mut *data.cast::<Vec<Module>>()) };
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            // SAFETY: the loader says how many there are.
            false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
        };
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let (mut start, mut end) = (u64::MAX, 0);
        for header in loaded {
            let first = info.dlpi_addr.wrapping_add(header.p_vaddr);
            start = start.min(first);
            end = end.max(first.wrapping_add(header.p_memsz));
        }
        if start >= end {
            return 0;
        }
        let path = match info.dlpi_name.is_null() {
            true => String::new(),
            // SAFETY: the loader's string.
            false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned(),
        };
        modules.push(Module { start, end, bias: info.dlpi_addr, path });
        0
    }
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: `each` fits the type, and the pointer lives for the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut modules).cast()) };
    // The program itself comes first and without a name.
    if let Some(program) = modules.first_mut().filter(|program| program.path.is_empty())
        && let Ok(path) = std::env::current_exe()
    {
        program.path = path.to_string_lossy().into_owned();
    }
    modules
}

/// Folders in which CUPTI may lie beside CUDA libraries that are loaded.
pub fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for module in modules() {
        let path = Path::new(&module.path);
        let name = path.file_name().map_or("".into(), |name| name.to_string_lossy());
        let Some(folder) =
            path.parent().filter(|_| name.starts_with("libcudart") || name.starts_with("libnv"))
        else {
            continue;
        };
        let beside = folder.join("../../cuda_cupti/lib");
        for folder in [folder.to_owned(), beside, folder.join("../extras/CUPTI/lib64")] {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}
