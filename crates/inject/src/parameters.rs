//! What a kernel is given: the words of its parameters.
//!
//! The driver tells how many parameters a function has and how large each is. Which of the words are addresses only shows when they
//! are compared with what is allocated. Everything is read without trusting the pointers.

use std::ffi::{CStr, c_uint, c_void};
use std::sync::OnceLock;

use crate::driver;
use crate::memory::{fill, word};

/// Most parameters of a kernel, and most bytes of all of them.
const MOST: usize = 256;
const BYTES: usize = 4096;

type ParamInfo = unsafe extern "C" fn(*mut c_void, usize, *mut usize, *mut usize) -> c_uint;

/// The driver's functions that tell the size of a parameter: of a function, and of a kernel, which may be passed for one.
fn tellers() -> &'static [Option<ParamInfo>; 2] {
    static TELLERS: OnceLock<[Option<ParamInfo>; 2]> = OnceLock::new();
    let find = |name: &CStr| {
        let found = driver::function(name)?;
        // SAFETY: the type of both functions since they exist.
        Some(unsafe { std::mem::transmute::<*mut c_void, ParamInfo>(found) })
    };
    TELLERS.get_or_init(|| [c"cuFuncGetParamInfo", c"cuKernelGetParamInfo"].map(find))
}

/// The words of the parameters of a launch: by an array of pointers to each, or by one buffer that the second array names.
pub fn words(function: u64, parameters: u64, buffer: u64) -> Vec<u64> {
    let mut words = Vec::new();
    match parameters {
        0 => one_buffer(buffer, &mut words),
        _ => each(function, parameters, &mut words),
    };
    words
}

fn each(function: u64, parameters: u64, words: &mut Vec<u64>) -> Option<()> {
    let handle = std::ptr::with_exposed_provenance_mut(function as usize);
    let size = |teller: ParamInfo, position| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the handle is the one that was just launched; the pointers are to live numbers. An index that is too large, or a
        // handle of the other kind, is an error.
        let answer = unsafe { teller(handle, position, &raw mut offset, &raw mut size) };
        (answer == 0).then_some(size)
    };
    let teller = tellers().iter().flatten().find(|teller| size(**teller, 0).is_some())?;
    for position in 0..MOST {
        let size = size(*teller, position)?;
        let place = word(parameters.checked_add(8 * position as u64)?)?;
        copy(place, size, words)?;
    }
    Some(())
}

fn one_buffer(array: u64, words: &mut Vec<u64>) -> Option<()> {
    /// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`.
    const POINTER: u64 = 1;
    const SIZE: u64 = 2;
    if array == 0 {
        return None;
    }
    let (mut pointer, mut size) = (None, None);
    for entry in 0..2 {
        let at = array.checked_add(16 * entry)?;
        match word(at)? {
            POINTER => pointer = word(at + 8),
            SIZE => size = word(word(at + 8)?),
            _ => break,
        }
    }
    copy(pointer?, usize::try_from(size?).ok()?, words)
}

/// Appends the words of some bytes, as far as there is room.
fn copy(place: u64, size: usize, words: &mut Vec<u64>) -> Option<()> {
    let mut bytes = vec![0; size.min(BYTES - 8 * words.len().min(BYTES / 8)) & !7];
    if !fill(place, &mut bytes) {
        return None;
    }
    let word = |word: &[u8]| u64::from_ne_bytes(word.try_into().expect("eight bytes"));
    words.extend(bytes.chunks_exact(8).map(word));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_buffer_of_parameters_is_read() {
        let buffer = [7u64, 8, 9];
        let size = 20usize;
        let address = |pointer: *const u64| pointer.expose_provenance() as u64;
        let array = [1, address(buffer.as_ptr()), 2, address((&raw const size).cast()), 0];
        assert_eq!(words(0, 0, address(array.as_ptr())), [7, 8]);
        for (function, parameters, buffer) in [(0, 0, 0), (0, 0, 16), (16, 16, 0)] {
            assert!(words(function, parameters, buffer).is_empty());
        }
    }
}
