//! The profiling library: opened at run time, every function looked for before the first is called.

use std::alloc::{Layout, alloc, dealloc};
use std::env;
use std::ffi::{OsString, c_void};
use std::mem;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use libloading::Library;

use super::ProfileError;
use super::records::{self, KERNEL, MEMCPY, MEMSET};
use crate::loader::{function, lacks, open, toolkits};
use crate::symbols;

/// Bytes of a buffer of records, and their alignment.
const BUFFER: usize = 1 << 20;
const ALIGN: usize = 8;

/// Callbacks about resources: a node of a graph was copied.
const DOMAIN_RESOURCE: u32 = 3;
const NODE_CLONED: u32 = 20;

type Subscriber = *mut c_void;
type Handler = unsafe extern "C" fn(*mut c_void, u32, u32, *const ResourceData);
type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// What a callback about resources gets.
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    resource: *mut c_void,
    about: *const GraphData,
}

/// What it gets about graphs.
#[repr(C)]
struct GraphData {
    graph: *mut c_void,
    original_graph: *mut c_void,
    node: *mut c_void,
    original_node: *mut c_void,
}

/// The functions of the library. Their types are those of every version that is let through.
#[derive(Debug)]
pub(super) struct Cupti {
    subscribe: unsafe extern "C" fn(*mut Subscriber, Handler, *mut c_void) -> u32,
    unsubscribe: unsafe extern "C" fn(Subscriber) -> u32,
    enable_callback: unsafe extern "C" fn(u32, Subscriber, u32, u32) -> u32,
    register: unsafe extern "C" fn(Requested, Completed) -> u32,
    enable: unsafe extern "C" fn(u32) -> u32,
    disable: unsafe extern "C" fn(u32) -> u32,
    flush: unsafe extern "C" fn(u32) -> u32,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32,
    node_number: unsafe extern "C" fn(*mut c_void, *mut u64) -> u32,
    /// The name that it was found by.
    pub library: String,
    /// The subscription while one is active, as a number.
    subscriber: Mutex<usize>,
    /// Held so that it stays loaded.
    _handle: Library,
}

static CUPTI: OnceLock<Result<Cupti, ProfileError>> = OnceLock::new();

fn check(call: &'static str, code: u32) -> Result<(), ProfileError> {
    if code == 0 { Ok(()) } else { Err(ProfileError::Call { call, code }) }
}

impl Cupti {
    /// Opens the library, once for the process. Later calls give the same answer.
    pub fn load() -> Result<&'static Cupti, ProfileError> {
        CUPTI.get_or_init(|| probe(names().into_iter())).as_ref().map_err(Clone::clone)
    }

    /// Begins to record; what was begun is taken back if a part of it fails.
    pub fn start(&self) -> Result<(), ProfileError> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: the functions are the library's, with their types; the handlers are functions of this module that stay.
        unsafe {
            let subscribed = (self.subscribe)(&mut subscriber, on_resource, ptr::null_mut());
            check("cuptiSubscribe", subscribed)?;
            *unpoisoned_subscriber(self) = subscriber.expose_provenance();
            let begun = check(
                "cuptiEnableCallback",
                (self.enable_callback)(1, subscriber, DOMAIN_RESOURCE, NODE_CLONED),
            )
            .and_then(|()| {
                let registered = (self.register)(on_request, on_complete);
                check("cuptiActivityRegisterCallbacks", registered)
            })
            .and_then(|()| {
                let mut kinds = [KERNEL, MEMCPY, MEMSET].into_iter();
                kinds.try_for_each(|kind| check("cuptiActivityEnable", (self.enable)(kind)))
            });
            if let Err(error) = begun {
                self.stop()?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the recording and has all records delivered. Everything is tried; the first error is given.
    pub fn stop(&self) -> Result<(), ProfileError> {
        /// Deliver buffers that are not full, too.
        const FORCED: u32 = 1;
        // SAFETY: as above; the subscription is given back once.
        unsafe {
            let flushed = check("cuptiActivityFlushAll", (self.flush)(FORCED));
            let kinds = [KERNEL, MEMCPY, MEMSET];
            let disabled = kinds.map(|kind| check("cuptiActivityDisable", (self.disable)(kind)));
            let subscriber = mem::take(&mut *unpoisoned_subscriber(self));
            let subscriber = ptr::with_exposed_provenance_mut(subscriber);
            let ended = check("cuptiUnsubscribe", (self.unsubscribe)(subscriber));
            flushed.and(disabled.into_iter().collect::<Result<(), _>>()).and(ended)
        }
    }
}

fn unpoisoned_subscriber(cupti: &Cupti) -> std::sync::MutexGuard<'_, usize> {
    cupti.subscriber.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What CUPTI calls when a node was copied.
unsafe extern "C" fn on_resource(
    _user: *mut c_void,
    domain: u32,
    id: u32,
    data: *const ResourceData,
) {
    let Some(Ok(cupti)) = CUPTI.get() else { return };
    if (domain, id) != (DOMAIN_RESOURCE, NODE_CLONED) || data.is_null() {
        return;
    }
    let (mut number, mut original) = (0, 0);
    // SAFETY: for this callback the data is about graphs, and valid until it returns; both nodes live.
    let (told, from) = unsafe {
        let about = (*data).about;
        let told = (cupti.node_number)((*about).node, &mut number) == 0
            && (cupti.node_number)((*about).original_node, &mut original) == 0;
        (told, (*about).original_node)
    };
    let mut state = records::state();
    if told {
        state.copied(number, from.addr(), original);
    } else {
        state.lost += 1;
    }
}

/// What CUPTI calls for an empty buffer.
unsafe extern "C" fn on_request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    // SAFETY: the layout is valid and not of size 0; the results are for this call to write. Without memory the buffer is null,
    // which CUPTI counts as dropped records.
    unsafe {
        *buffer = alloc(layout());
        *size = if (*buffer).is_null() { 0 } else { BUFFER };
        *most = 0;
    }
}

/// What CUPTI calls with a buffer of records.
unsafe extern "C" fn on_complete(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let Some(Ok(cupti)) = CUPTI.get() {
        let mut state = records::state();
        let mut record = ptr::null_mut();
        // SAFETY: the buffer is one that `on_request` gave; its first `valid` bytes are records, of which the library gives one
        // after the other.
        unsafe {
            while (cupti.next)(buffer, valid, &mut record) == 0 {
                let left = (buffer.addr() + valid).saturating_sub(record.addr());
                state.record(std::slice::from_raw_parts(record, left));
            }
            let mut dropped = 0;
            if (cupti.dropped)(context, stream, &mut dropped) == 0 {
                state.lost += dropped as u64;
            }
        }
    }
    // SAFETY: `on_request` allocated it so, and CUPTI has no more use for it.
    unsafe { dealloc(buffer, layout()) };
}

fn layout() -> Layout {
    const { assert!(ALIGN.is_power_of_two() && BUFFER.is_multiple_of(ALIGN)) };
    // SAFETY: the size is not near the limit, and the alignment is a power of two.
    unsafe { Layout::from_size_align_unchecked(BUFFER, ALIGN) }
}

/// Where to look, best first.
fn names() -> Vec<OsString> {
    if let Some(named) = env::var_os("PHONOGRAPH_CUPTI") {
        return vec![named];
    }
    let files = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
    let mut names: Vec<OsString> = files.map(OsString::from).to_vec();
    for toolkit in toolkits() {
        for folder in ["extras/CUPTI/lib64", "lib64"] {
            names.extend(files.map(|file| toolkit.join(folder).join(file).into()));
        }
    }
    names
}

fn probe(names: impl Iterator<Item = OsString>) -> Result<Cupti, ProfileError> {
    let (library, handle) = open(names).map_err(ProfileError::NotFound)?;
    if let Some(symbol) = lacks(&handle, symbols::CUPTI.iter().copied()) {
        return Err(ProfileError::MissingSymbol { library, symbol });
    }
    let missing = |symbol| ProfileError::MissingSymbol { library: library.clone(), symbol };
    macro_rules! find {
        ($name:literal) => {
            // SAFETY: the field has the function's type.
            unsafe { function(&handle, $name) }.ok_or_else(|| missing($name))?
        };
    }
    let version: unsafe extern "C" fn(*mut u32) -> u32 = find!("cuptiGetVersion");
    let mut found = 0;
    // SAFETY: the result is for this call to write.
    check("cuptiGetVersion", unsafe { version(&mut found) })?;
    if !is_known(found) {
        return Err(ProfileError::Version { version: found });
    }
    Ok(Cupti {
        subscribe: find!("cuptiSubscribe"),
        unsubscribe: find!("cuptiUnsubscribe"),
        enable_callback: find!("cuptiEnableCallback"),
        register: find!("cuptiActivityRegisterCallbacks"),
        enable: find!("cuptiActivityEnable"),
        disable: find!("cuptiActivityDisable"),
        flush: find!("cuptiActivityFlushAll"),
        next: find!("cuptiActivityGetNextRecord"),
        dropped: find!("cuptiActivityGetNumDroppedRecords"),
        node_number: find!("cuptiGetGraphNodeId"),
        subscriber: Mutex::new(0),
        library: library.clone(),
        _handle: handle,
    })
}

/// 22 is CUDA 12.4's; from 13.0 on the number holds the version.
fn is_known(version: u32) -> bool {
    (22..100).contains(&version) || (130_000..130_100).contains(&version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::stub;

    #[test]
    fn a_library_that_is_missing_lacks_a_function_or_is_not_known_is_an_error_that_says_so() {
        let none = ["/nowhere/libcupti.so".into()];
        assert!(matches!(probe(none.into_iter()), Err(ProfileError::NotFound(_))));
        let check = |without: Option<&'static str>, version: &str| {
            let folder = tempfile::tempdir().unwrap();
            let body = format!("(unsigned *v) {{ *v = {version}; return 0; }}");
            let bodies = [("cuptiGetVersion", body.as_str())];
            let path = stub(folder.path(), symbols::CUPTI, without, &bodies);
            probe([path].into_iter()).map(drop)
        };
        for &symbol in symbols::CUPTI {
            let found = check(Some(symbol), "130001");
            assert!(
                matches!(&found, Err(ProfileError::MissingSymbol { symbol: s, .. }) if *s == symbol),
                "{found:?}"
            );
        }
        assert_eq!(check(None, "130001"), Ok(()));
        assert_eq!(check(None, "22"), Ok(()));
        for version in [21, 140_000] {
            let found = check(None, &version.to_string());
            assert_eq!(found, Err(ProfileError::Version { version }));
        }
    }
}
