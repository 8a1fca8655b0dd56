//! Python frames by the offsets that the interpreter publishes about itself, from 3.13 on.
//!
//! `_PyRuntime` begins with a table of where the fields of its structures lie, made for debuggers and profilers. The layout of that
//! table belongs to the minor version; here 3.13's is known. Everything is read as if it were somebody else's memory, so that a wrong
//! guess gives no stack instead of a crash.

use std::fmt::Write;

use super::memory::{bytes, fill, word};

/// Most frames of a stack.
const FRAMES: usize = 64;
/// Frames that are passed over because they hold no code.
const SHIMS: usize = 64;
/// Longest file or function name, in characters.
const NAME: usize = 512;
/// Longest table of lines that is read, in bytes.
const LINES: usize = 1 << 16;

/// Positions of words in the table of 3.13, counted in words from its start.
mod at {
    pub const VERSION: usize = 1;
    pub const CURRENT_FRAME: usize = 23;
    pub const FRAME: usize = 28;
    pub const CODE: usize = 34;
    pub const BYTES: usize = 64;
    pub const UNICODE: usize = 67;
    pub const END: usize = 71;
}

/// Where fields lie, as far as they are needed; in bytes.
pub struct Offsets {
    current_frame: u64,
    previous: u64,
    executable: u64,
    instruction: u64,
    owner: u64,
    file: u64,
    name: u64,
    lines: u64,
    first_line: u64,
    code: u64,
    bytes_length: u64,
    bytes_start: u64,
    text_state: u64,
    text_length: u64,
    text_start: u64,
}

impl Offsets {
    /// The offsets of the interpreter whose runtime lies at an address; `None` if its version is not known here.
    pub fn of(runtime: u64) -> Option<Self> {
        let table: [u8; 8 * at::END] = bytes(runtime)?;
        let word = |position: usize| {
            let start = 8 * position;
            u64::from_ne_bytes(table[start..start + 8].try_into().expect("eight bytes"))
        };
        let known = table.starts_with(b"xdebugpy") && word(at::VERSION) >> 16 == 0x030d;
        known.then(|| Self {
            current_frame: word(at::CURRENT_FRAME),
            previous: word(at::FRAME + 1),
            executable: word(at::FRAME + 2),
            instruction: word(at::FRAME + 3),
            owner: word(at::FRAME + 5),
            file: word(at::CODE + 1),
            name: word(at::CODE + 3),
            lines: word(at::CODE + 4),
            first_line: word(at::CODE + 5),
            code: word(at::CODE + 9),
            bytes_length: word(at::BYTES + 1),
            bytes_start: word(at::BYTES + 2),
            text_state: word(at::UNICODE + 1),
            text_length: word(at::UNICODE + 2),
            text_start: word(at::UNICODE + 3),
        })
    }

    /// The stack of a thread, innermost line first, in the words of Python's own dumps.
    pub fn stack(&self, thread: u64) -> Option<String> {
        /// Frames of this kind belong to the interpreter's own C code.
        const OWNED_BY_C: u8 = 3;
        let mut frame = word(thread.checked_add(self.current_frame)?)?;
        let mut out = String::new();
        let mut frames = 0;
        for _ in 0..FRAMES + SHIMS {
            if frame == 0 || frames == FRAMES {
                break;
            }
            let [owner] = bytes(frame.checked_add(self.owner)?)?;
            if owner < OWNED_BY_C {
                let code = word(frame.checked_add(self.executable)?)?;
                let instruction = word(frame.checked_add(self.instruction)?)?;
                self.line(code, instruction, &mut out)?;
                frames += 1;
            }
            frame = word(frame.checked_add(self.previous)?)?;
        }
        (!out.is_empty()).then(|| out.trim_end().to_owned())
    }

    fn line(&self, code: u64, instruction: u64, out: &mut String) -> Option<()> {
        let file = self.text(word(code.checked_add(self.file)?)?)?;
        let name = self.text(word(code.checked_add(self.name)?)?)?;
        let first = i32::from_ne_bytes(bytes(code.checked_add(self.first_line)?)?);
        let table = self.byte_string(word(code.checked_add(self.lines)?)?)?;
        let offset = instruction.wrapping_sub(code.checked_add(self.code)?);
        let line = line_of(&table, first.into(), offset);
        let line = line.map_or("???".to_owned(), |line| line.to_string());
        writeln!(out, "  File \"{file}\", line {line} in {name}").ok()
    }

    fn byte_string(&self, object: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(word(object.checked_add(self.bytes_length)?)?).ok()?;
        let mut bytes = vec![0; length.min(LINES)];
        fill(object.checked_add(self.bytes_start)?, &mut bytes).then_some(bytes)
    }

    fn text(&self, object: u64) -> Option<String> {
        let state = u32::from_ne_bytes(bytes(object.checked_add(self.text_state)?)?);
        let length = usize::try_from(word(object.checked_add(self.text_length)?)?).ok()?.min(NAME);
        let (ascii, kind) = (state >> 6 & 1 == 1, (state >> 2 & 7) as usize);
        // What is not ASCII has two more words in front of its characters.
        let start = object.checked_add(self.text_start)?.checked_add(if ascii { 0 } else { 16 })?;
        let mut raw = vec![0; length * if ascii { 1 } else { kind }];
        if !fill(start, &mut raw) {
            return None;
        }
        let wide = |chunk: &[u8]| {
            let value = chunk.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
            char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        match kind {
            1 | 2 | 4 => Some(raw.chunks_exact(kind).map(wide).collect()),
            _ => None,
        }
    }
}

/// The line of an instruction, from a code object's table of locations (`Objects/locations.md` of Python describes it): an entry is a
/// byte `1 cccc lll` and what its code `cccc` says follows; it covers `lll` + 1 instructions of two bytes.
fn line_of(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let mut rest = table.iter().copied().peekable();
    let (mut line, mut end) = (first, 0);
    while let Some(entry) = rest.next() {
        let code = entry >> 3 & 15;
        let has_line = match code {
            15 => false,
            13 | 14 => {
                let (mut number, mut shift) = (0u64, 0);
                loop {
                    let byte = rest.next()?;
                    number |= u64::from(byte & 63).checked_shl(shift)?;
                    shift += 6;
                    if byte & 64 == 0 {
                        break;
                    }
                }
                let size = i64::try_from(number >> 1).ok()?;
                line = line.checked_add(if number & 1 == 1 { -size } else { size })?;
                true
            }
            10..=12 => {
                line = line.checked_add(i64::from(code) - 10)?;
                true
            }
            _ => true,
        };
        // Columns, up to the next entry.
        while rest.next_if(|byte| byte & 128 == 0).is_some() {}
        end += 2 * (u64::from(entry & 7) + 1);
        if offset < end {
            return has_line.then_some(line);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn lines_are_found_in_the_table() {
        // One instruction on the first line, two on the next, three that belong to none, one two lines back.
        let table =
            [0x80, 0x10, 0x80 | 11 << 3 | 1, 4, 9, 0x80 | 15 << 3 | 2, 0x80 | 13 << 3, 0b101];
        let found: Vec<_> =
            [0, 2, 4, 6, 10, 12, 14].map(|offset| line_of(&table, 10, offset)).into();
        assert_eq!(found, [Some(10), Some(11), Some(11), None, None, Some(9), None]);
        assert_eq!(line_of(&[0x80 | 14 << 3, 0x40], 1, 0), None);
    }
}
