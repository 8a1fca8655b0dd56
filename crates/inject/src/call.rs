//! The callback: from what CUPTI hands over to what the recorder takes.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use phonograph_trace::live::{Operand, Operands, Stop};

use crate::cupti::{CallbackData, Cupti, DRIVER, ENTER};
use crate::functions::{FUNCTIONS, Function, Location, When};
use crate::recorder::{self, Seen};

/// Numbers of functions that may occur; CUPTI 13 has about 800.
const IDS: usize = 2048;

/// A function by its number.
pub struct Entry {
    pub function: &'static Function,
    /// Whether 0 means the default stream of the calling thread.
    pub per_thread: bool,
    /// Calls that were only counted.
    pub passed_over: AtomicU64,
}

struct Table {
    by_id: Vec<Option<u16>>,
    entries: Vec<Entry>,
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// All functions that are recorded.
pub fn entries() -> &'static [Entry] {
    TABLE.get().map_or(&[], |table| &table.entries)
}

/// Opens the file, subscribes to CUPTI and asks for the callbacks.
pub fn start() -> Result<(), String> {
    let mut table = Table { by_id: vec![None; IDS], entries: Vec::new() };
    for function in FUNCTIONS {
        for (id, per_thread) in [(function.id, false), (function.per_thread, true)] {
            if id != 0 {
                table.by_id[id as usize] = Some(table.entries.len() as u16);
                table.entries.push(Entry { function, per_thread, passed_over: AtomicU64::new(0) });
            }
        }
    }
    if TABLE.set(table).is_err() {
        // The driver asks again in some programs; the first time counts.
        return Ok(());
    }
    let cupti = Cupti::subscribe(callback)?;
    recorder::start(cupti)
}

unsafe extern "C" fn callback(_: *mut c_void, domain: c_int, id: u32, data: *const c_void) {
    if domain != DRIVER || recorder::is_off() || data.is_null() {
        return;
    }
    // SAFETY: in this domain CUPTI hands over such a structure, which lives for the callback.
    let data = unsafe { &*data.cast::<CallbackData>() };
    let work = || {
        let table = TABLE.get()?;
        let position = (*table.by_id.get(id as usize)?)?;
        // SAFETY: the arguments are those of the function that the number stands for.
        unsafe { observe(position.into(), &table.entries[usize::from(position)], data) };
        Some(())
    };
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        recorder::stop(Stop::Failed);
    }
}

/// # Safety
/// The data is of a call of this function.
unsafe fn observe(function: u32, entry: &Entry, data: &CallbackData) {
    // SAFETY: CUPTI gives every call a 64-bit place of its own that lasts from the first callback to the second.
    let kept = unsafe { data.correlation.as_mut() };
    let when = entry.function.when;
    let changes = entry.function.operands.iter().find_map(|location| match location {
        Location::Before(operand, offset) => Some((*operand, *offset)),
        _ => None,
    });
    if data.site == ENTER {
        let Some(kept) = kept else { return };
        *kept = match changes {
            // SAFETY: the function takes a pointer to a 32-bit number there.
            Some((_, offset)) => unsafe { half_behind(data.params, offset, 0) }.unwrap_or(0),
            None => recorder::windows(),
        };
        return;
    }
    // SAFETY: on the way out the pointer is to the result.
    let Some(result) = (unsafe { data.result.as_ref() }) else { return };
    let result = *result as u32;
    if when == When::Inside {
        let now = recorder::windows();
        // A wait that began before a capture did is none of the capture's business, though it may end inside.
        let before = kept.as_ref().map_or(now, |kept| **kept);
        if result == 0 && (recorder::is_closed(now) || recorder::is_closed(before)) {
            entry.passed_over.fetch_add(1, Relaxed);
            return;
        }
    }
    let mut operands = Operands::default();
    let mut symbol = None;
    for location in entry.function.operands {
        // SAFETY: the locations are those of this function's arguments.
        unsafe {
            match *location {
                Location::Word(operand, at) => operands.set(operand, word(data.params, at)),
                Location::Half(operand, at) => operands.set(operand, half(data.params, at).into()),
                Location::Out(operand, at) => {
                    let place = word(data.params, at) as *const u64;
                    if result == 0
                        && let Some(value) = place.as_ref()
                    {
                        operands.set(operand, *value);
                    }
                }
                Location::Before(operand, _) => {
                    operands.set(operand, kept.as_ref().map_or(0, |kept| **kept))
                }
                Location::Through(operand, at, offset) => {
                    if let Some(value) = half_behind(data.params, at, offset) {
                        operands.set(operand, value);
                    }
                }
                Location::Config(at) => {
                    config(word(data.params, at) as *const Config, &mut operands)
                }
                Location::Symbol => {
                    symbol =
                        (!data.symbol.is_null()).then(|| CStr::from_ptr(data.symbol).to_bytes())
                }
            }
        }
    }
    let seen =
        Seen { function, result, symbol, context: data.context, context_uid: data.context_uid };
    recorder::record(&seen, operands);
}

/// # Safety
/// A 64-bit value lies at the offset.
unsafe fn word(params: *const c_void, at: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { params.byte_add(at).cast::<u64>().read_unaligned() }
}

/// # Safety
/// A 32-bit value lies at the offset.
unsafe fn half(params: *const c_void, at: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { params.byte_add(at).cast::<u32>().read_unaligned() }
}

/// # Safety
/// At the offset lies a pointer, null or to something that holds a 32-bit value at the second offset.
unsafe fn half_behind(params: *const c_void, at: usize, offset: usize) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        let place = word(params, at) as *const c_void;
        (!place.is_null()).then(|| half(place, offset).into())
    }
}

/// The part of `CUlaunchConfig` that matters.
#[repr(C)]
struct Config {
    sizes: [u32; 7],
    stream: u64,
    attributes: *const Attribute,
    count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
struct Attribute {
    id: u32,
    value: [u64; 8],
}

const _: () = {
    assert!(std::mem::offset_of!(Config, stream) == 32);
    assert!(std::mem::offset_of!(Config, attributes) == 40);
    assert!(std::mem::offset_of!(Config, count) == 48);
    assert!(std::mem::offset_of!(Attribute, value) == 8);
    assert!(size_of::<Attribute>() == 72);
};

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const PROGRAMMATIC: u32 = 6;
/// More attributes than there are kinds of: the count is not believed beyond.
const MOST_ATTRIBUTES: usize = 64;

/// # Safety
/// The pointer is null or to a launch configuration.
unsafe fn config(config: *const Config, operands: &mut Operands) {
    // SAFETY: the caller's promise.
    let Some(config) = (unsafe { config.as_ref() }) else { return };
    operands.set(Operand::Stream, config.stream);
    if config.attributes.is_null() {
        return;
    }
    let count = (config.count as usize).min(MOST_ATTRIBUTES);
    // SAFETY: the configuration says how many there are.
    let attributes = unsafe { std::slice::from_raw_parts(config.attributes, count) };
    if attributes
        .iter()
        .any(|attribute| attribute.id == PROGRAMMATIC && attribute.value[0] as u32 != 0)
    {
        operands.set(Operand::Flags, 1);
    }
}
