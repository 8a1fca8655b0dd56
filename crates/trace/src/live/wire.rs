//! Numbers and texts as the file holds them.

use super::read::LiveError;

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a number that may be absent.
pub(super) fn put_maybe(out: &mut Vec<u8>, number: Option<u32>) {
    put(out, number.map_or(0, |number| u64::from(number) + 1));
}

/// Appends a text.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The contents of one record, taken from the front.
pub(super) struct Contents<'a> {
    pub(super) bytes: &'a [u8],
    /// Where they end in the file.
    pub(super) end: usize,
}

impl<'a> Contents<'a> {
    /// Where the next byte stands in the file.
    pub(super) fn at(&self) -> usize {
        self.end - self.bytes.len()
    }

    fn fault(&self, what: &'static str) -> LiveError {
        LiveError::Record { at: self.at(), what }
    }

    pub(super) fn number(&mut self) -> Result<u64, LiveError> {
        let mut number = 0u64;
        for (position, byte) in self.bytes.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * position as u32;
            if shift == 63 && bits > 1 {
                return Err(self.fault("a number of more than 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[position + 1..];
                return Ok(number);
            }
        }
        Err(self.fault("a number that does not end"))
    }

    pub(super) fn small(&mut self) -> Result<u32, LiveError> {
        let fault = self.fault("a number of more than 32 bits");
        u32::try_from(self.number()?).map_err(|_| fault)
    }

    pub(super) fn maybe(&mut self) -> Result<Option<u32>, LiveError> {
        let fault = self.fault("a number of more than 32 bits");
        match self.number()?.checked_sub(1) {
            None => Ok(None),
            Some(number) => u32::try_from(number).map(Some).map_err(|_| fault),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, LiveError> {
        let long = self.fault("a text that is longer than its record");
        let length = usize::try_from(self.number()?).ok().filter(|n| *n <= self.bytes.len());
        let (text, rest) = self.bytes.split_at(length.ok_or(long)?);
        let text = std::str::from_utf8(text).map_err(|_| self.fault("a text that is not UTF-8"))?;
        self.bytes = rest;
        Ok(text)
    }
}
