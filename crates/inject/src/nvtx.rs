//! The ranges that a thread has open, as the program marks them with NVTX.
//!
//! `NVTX_INJECTION64_PATH` names this library too: the program's NVTX, which is compiled into whoever uses it, then hands over its
//! table of functions, and those that open and close ranges of a thread are set to the ones here.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Ranges of one thread whose names are kept; deeper ones are only counted.
const DEEPEST: usize = 32;
/// Longest name that is kept, in bytes.
const NAME: usize = 128;
/// Ranges of one thread whose domains are kept, for programs that open ranges without end.
const MOST: usize = 1 << 12;

thread_local! {
    static OPEN: RefCell<Open> = const { RefCell::new(Open { ranges: Vec::new(), deeper: 0 }) };
}

struct Open {
    ranges: Vec<Range>,
    /// Ranges inside all of those.
    deeper: usize,
}

struct Range {
    domain: usize,
    name: String,
}

impl Open {
    fn depth(&self) -> c_int {
        c_int::try_from(self.ranges.len() + self.deeper).unwrap_or(c_int::MAX)
    }
}

/// The names of the calling thread's open ranges, outermost first; `None` if there are none.
pub fn open() -> Option<String> {
    let names = |open: &RefCell<Open>| {
        let open = open.try_borrow().ok()?;
        let names: Vec<&str> =
            open.ranges.iter().take(DEEPEST).map(|range| range.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(" > "))
    };
    OPEN.try_with(names).ok().flatten()
}

fn push(domain: usize, name: String) -> c_int {
    let push = |open: &RefCell<Open>| {
        let Ok(mut open) = open.try_borrow_mut() else { return 0 };
        let depth = open.depth();
        if open.ranges.len() < MOST {
            let name = if open.ranges.len() < DEEPEST { name } else { String::new() };
            open.ranges.push(Range { domain, name });
        } else {
            open.deeper += 1;
        }
        depth
    };
    catch_unwind(AssertUnwindSafe(|| OPEN.try_with(push).unwrap_or(0))).unwrap_or(0)
}

fn pop(domain: usize) -> c_int {
    let pop = |open: &RefCell<Open>| {
        let Ok(mut open) = open.try_borrow_mut() else { return 0 };
        if open.deeper > 0 {
            open.deeper -= 1;
        } else if let Some(last) = open.ranges.iter().rposition(|range| range.domain == domain) {
            open.ranges.remove(last);
        }
        open.depth()
    };
    catch_unwind(AssertUnwindSafe(|| OPEN.try_with(pop).unwrap_or(0))).unwrap_or(0)
}

/// `nvtxEventAttributes_t`, as far as it is used here.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    others: [u32; 7],
    message_kind: i32,
    message: *const c_char,
}

const _: () = {
    assert!(std::mem::offset_of!(Attributes, message_kind) == 32);
    assert!(std::mem::offset_of!(Attributes, message) == 40);
};

/// # Safety
/// The pointer is null or to a string that ends with a zero.
unsafe fn name(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&text[..text.len().min(NAME)]).into_owned()
}

/// # Safety
/// The pointer is null or to attributes as NVTX lays them out.
unsafe fn name_of(attributes: *const Attributes) -> String {
    /// A plain string; others are wide or registered before, and stay nameless.
    const PLAIN: i32 = 1;
    // SAFETY: the caller's promise.
    unsafe {
        match attributes.as_ref() {
            Some(attributes) if attributes.message_kind == PLAIN => name(attributes.message),
            _ => String::new(),
        }
    }
}

unsafe extern "C" fn push_plain(text: *const c_char) -> c_int {
    // SAFETY: what NVTX promises of the argument.
    push(0, unsafe { name(text) })
}

unsafe extern "C" fn push_wide(_: *const c_void) -> c_int {
    push(0, String::new())
}

unsafe extern "C" fn push_attributes(attributes: *const Attributes) -> c_int {
    // SAFETY: what NVTX promises of the argument.
    push(0, unsafe { name_of(attributes) })
}

unsafe extern "C" fn pop_plain() -> c_int {
    pop(0)
}

unsafe extern "C" fn push_domain(domain: *const c_void, attributes: *const Attributes) -> c_int {
    // SAFETY: what NVTX promises of the argument.
    push(domain.addr(), unsafe { name_of(attributes) })
}

unsafe extern "C" fn pop_domain(domain: *const c_void) -> c_int {
    pop(domain.addr())
}

type Slots = *mut *mut *const c_void;
type ModuleTable = unsafe extern "C" fn(c_int, *mut Slots, *mut c_uint) -> c_int;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    table: ModuleTable,
}

/// Called by the program's NVTX when it is used first. Returns 1, which keeps the functions that were set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    export: Option<unsafe extern "C" fn(u32) -> *const c_void>,
) -> c_int {
    const CALLBACKS: u32 = 1;
    const CORE: c_int = 1;
    const DOMAINS: c_int = 5;
    let Some(export) = export else { return 0 };
    // SAFETY: NVTX's own function, with a number that every version knows.
    let Some(callbacks) = (unsafe { export(CALLBACKS).cast::<Callbacks>().as_ref() }) else {
        return 0;
    };
    let set = |module, functions: &[(usize, *const c_void)]| {
        let (mut slots, mut count): (Slots, c_uint) = (std::ptr::null_mut(), 0);
        // SAFETY: NVTX's own function; it sets the table and its length.
        if unsafe { (callbacks.table)(module, &raw mut slots, &raw mut count) } == 0
            || slots.is_null()
        {
            return;
        }
        for (position, function) in
            functions.iter().filter(|(position, _)| *position < count as usize)
        {
            // SAFETY: the table has that many entries, each null or a pointer to a function pointer that may be set now.
            unsafe {
                let slot = slots.add(*position).read();
                if !slot.is_null() {
                    slot.write(*function);
                }
            }
        }
    };
    set(
        CORE,
        &[
            (8, push_attributes as *const c_void),
            (9, push_plain as *const c_void),
            (10, push_wide as *const c_void),
            (11, pop_plain as *const c_void),
        ],
    );
    set(DOMAINS, &[(4, push_domain as *const c_void), (5, pop_domain as *const c_void)]);
    1
}

#[cfg(test)]
mod tests {
    use super::{MOST, OPEN, open, pop, push};

    #[test]
    fn ranges_nest_by_domain() {
        let check = |names: &str| assert_eq!(open().unwrap_or_default(), names);
        check("");
        assert_eq!(push(0, "step".to_owned()), 0);
        assert_eq!(push(7, "forward".to_owned()), 1);
        check("step > forward");
        pop(0);
        check("forward");
        pop(7);
        pop(7);
        check("");
        for depth in 0..100 {
            assert_eq!(push(0, "deep".to_owned()), depth);
        }
        assert_eq!(open().unwrap().matches("deep").count(), 32);
    }

    #[test]
    fn ranges_without_end_take_no_memory_without_end() {
        const RANGES: usize = 3 * MOST;
        for depth in 0..RANGES {
            assert_eq!(push(depth % 2, "deep".to_owned()), depth as i32);
        }
        assert!(OPEN.with_borrow(|open| open.ranges.capacity()) <= 2 * MOST);
        for depth in (0..RANGES).rev() {
            assert_eq!(pop(depth % 2), depth as i32);
        }
        assert_eq!(open(), None);
    }
}
