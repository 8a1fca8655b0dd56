//! Traces of a running program: the driver calls that it made, with where each was made from.
//!
//! In: the bytes of a file that a recorder writes while the program runs. Out: [`Record`]s, one by one ([`Reader`]), or a whole
//! [`Trace`]: its calls as [`Call`](crate::Call)s with names for the handles, and for each call its [`Site`]. Reading is one pass,
//! linear in the file, and bounded: a file is hostile until it is parsed.
//!
//! # The file
//!
//! [`MAGIC`], then the version as a little-endian 32-bit number ([`VERSION`]), then records until the file ends or a zero byte
//! stands where a tag should. A recorder lays the file out ahead of what it writes, so the rest is zeros; it writes a record's tag
//! last, so what a killed program leaves behind ends with a whole record. A record is
//!
//! ```text
//! tag: 1 byte    length of what follows: number    contents
//! ```
//!
//! A *number* is LEB128: seven bits a byte, the least significant first, the high bit set on all but the last byte. A *text* is its
//! length in bytes as a number and then UTF-8. Numbers that may be absent are stored plus one, with 0 for absent.
//!
//! | tag | record | contents |
//! | --- | --- | --- |
//! | 1 | process | pid, version of the driver, version of CUPTI, command line (text) |
//! | 2 | function | id, name as the driver spells it, with version and `_ptsz` (text) |
//! | 3 | thread | id, the system's id, 1 if it is the main thread, name (text) |
//! | 4 | context | id, device (may be absent) |
//! | 5 | text | id, text: a kernel's name, the Python stack of a call, the name of a range |
//! | 6 | frames | id, how many, return addresses, innermost first |
//! | 7 | module | start, end, address that it was linked for moved by this (wrapping), path (text) |
//! | 8 | call | function, result, thread, context, Python stack, native stack (both may be absent), open ranges (may be absent), mask of operands, an operand for each bit that is set |
//! | 9 | passed over | function, how many: calls outside captures that succeeded and are only counted |
//! | 10 | graph | handle of the executable graph, path of its drawing in DOT (text) |
//! | 11 | stopped | 1: the program ended, 2: the file is full, 3: the recorder failed |
//! | 12 | repeated | how often the last call was made again |
//!
//! Ids are given out in order of first use, each kind from 0, and are defined before they are used. A tag that is not in the table is
//! skipped: a newer recorder may write more.

mod memory;
mod program;
mod read;
mod record;
mod wire;

pub use program::{Module, Site, Trace};
pub use read::{LiveError, Reader};
pub use record::{Operand, Operands, RawCall, Record, Stop};

/// The first bytes of a trace.
pub const MAGIC: &[u8; 8] = b"phonotrc";
/// The version of the format that is written and read here.
pub const VERSION: u32 = 1;
/// Longest text in a trace, in bytes; a recorder cuts longer ones.
pub const MAX_TEXT: usize = 1 << 16;
/// Most frames of a native stack.
pub const MAX_FRAMES: usize = 128;

/// What a file begins with.
pub fn header() -> [u8; 12] {
    let mut header = [0; 12];
    header[..8].copy_from_slice(MAGIC);
    header[8..].copy_from_slice(&VERSION.to_le_bytes());
    header
}
