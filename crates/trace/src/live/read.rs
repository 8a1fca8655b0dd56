//! The records of a trace, one by one.

use super::record::{Operand, Operands, RawCall, Record, Stop, tag};
use super::wire::Contents;
use super::{MAGIC, MAX_FRAMES, MAX_TEXT, VERSION};

/// Why bytes are no trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LiveError {
    /// Something else.
    #[error("this is no trace of a program: it does not begin with `phonotrc`")]
    NoTrace,
    /// A trace in a form that is not known here.
    #[error("the trace has version {0} of the format, and this program reads version {VERSION}")]
    Version(u32),
    /// A record that is not well formed.
    #[error("byte {at} of the trace: {what}")]
    Record {
        /// Its place in the file, from 0.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A record refers to something that was not defined before.
    #[error("byte {at} of the trace: {what} {id} is not defined")]
    Undefined {
        /// The place of the record, from 0.
        at: usize,
        /// The kind of what it refers to.
        what: &'static str,
        /// Its id.
        id: u32,
    },
}

/// An iterator over the records of a trace. It ends where the recorder stopped writing; a record that was cut off by the end of
/// the file is not there, which is no error: the program was killed.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader from the first record on.
    ///
    /// # Errors
    /// [`LiveError::NoTrace`] and [`LiveError::Version`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, LiveError> {
        let rest = bytes.strip_prefix(MAGIC.as_slice()).ok_or(LiveError::NoTrace)?;
        let version = rest.first_chunk().ok_or(LiveError::NoTrace)?;
        match u32::from_le_bytes(*version) {
            VERSION => Ok(Self { bytes, at: MAGIC.len() + version.len() }),
            other => Err(LiveError::Version(other)),
        }
    }

    /// Where the next record begins.
    pub fn at(&self) -> usize {
        self.at
    }

    fn record(&mut self) -> Result<Option<Record<'a>>, LiveError> {
        loop {
            let Some((&tag, rest)) =
                self.bytes[self.at..].split_first().filter(|(tag, _)| **tag != 0)
            else {
                return Ok(None);
            };
            let mut head = Contents { bytes: rest, end: self.bytes.len() };
            let length = match head.number() {
                Ok(length) => length,
                // Cut off within the length.
                Err(_) if rest.len() < 10 && rest.iter().all(|byte| byte & 0x80 != 0) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let begin = head.at();
            let Some(end) =
                usize::try_from(length).ok().and_then(|length| begin.checked_add(length))
            else {
                return Err(LiveError::Record {
                    at: self.at,
                    what: "a record that is longer than any file",
                });
            };
            let Some(bytes) = self.bytes.get(begin..end) else { return Ok(None) };
            self.at = end;
            if let Some(record) = contents(tag, &mut Contents { bytes, end })? {
                return Ok(Some(record));
            }
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, LiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.record();
        if record.is_err() {
            self.at = self.bytes.len();
        }
        record.transpose()
    }
}

/// A record of a known tag. What a newer recorder writes behind the contents that are known is left alone.
fn contents<'a>(tag: u8, from: &mut Contents<'a>) -> Result<Option<Record<'a>>, LiveError> {
    let at = from.at();
    let fault = |what| LiveError::Record { at, what };
    Ok(Some(match tag {
        tag::PROCESS => Record::Process {
            pid: from.small()?,
            driver: from.small()?,
            cupti: from.small()?,
            command: text(from)?,
        },
        tag::FUNCTION => Record::Function { id: from.small()?, name: text(from)? },
        tag::THREAD => Record::Thread {
            id: from.small()?,
            tid: from.small()?,
            main: from.number()? != 0,
            name: text(from)?,
        },
        tag::CONTEXT => Record::Context { id: from.small()?, device: from.maybe()? },
        tag::TEXT => Record::Text { id: from.small()?, text: text(from)? },
        tag::FRAMES => {
            let id = from.small()?;
            let count = from.small()? as usize;
            if count > MAX_FRAMES {
                return Err(fault("a stack with too many frames"));
            }
            let addresses = (0..count).map(|_| from.number()).collect::<Result<_, _>>()?;
            Record::Frames { id, addresses }
        }
        tag::MODULE => Record::Module {
            start: from.number()?,
            end: from.number()?,
            bias: from.number()?,
            path: text(from)?,
        },
        tag::CALL => Record::Call(call(from)?),
        tag::REPEATED => Record::Repeated { times: from.number()? },
        tag::PASSED_OVER => Record::PassedOver { function: from.small()?, calls: from.number()? },
        tag::GRAPH => Record::Graph { exec: from.number()?, path: text(from)? },
        tag::STOPPED => Record::Stopped(match from.number()? {
            1 => Stop::Ended,
            2 => Stop::Full,
            3 => Stop::Failed,
            _ => return Err(fault("an end for no known reason")),
        }),
        _ => return Ok(None),
    }))
}

fn text<'a>(from: &mut Contents<'a>) -> Result<&'a str, LiveError> {
    let at = from.at();
    let text = from.text()?;
    match text.len() <= MAX_TEXT {
        true => Ok(text),
        false => Err(LiveError::Record { at, what: "a text that is too long" }),
    }
}

fn call(from: &mut Contents<'_>) -> Result<RawCall, LiveError> {
    let [function, result, thread, context] =
        [from.small()?, from.small()?, from.small()?, from.small()?];
    let [python, native, ranges] = [from.maybe()?, from.maybe()?, from.maybe()?];
    let at = from.at();
    let mask = from.number()?;
    if mask >> Operand::ALL.len() != 0 {
        return Err(LiveError::Record { at, what: "an operand that is not known" });
    }
    let mut operands = Operands::default();
    for operand in Operand::ALL {
        if mask & 1 << operand as u64 != 0 {
            operands.set(operand, from.number()?);
        }
    }
    Ok(RawCall { function, result, thread, context, python, native, ranges, operands })
}
