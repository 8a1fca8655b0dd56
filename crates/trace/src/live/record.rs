//! One record of a trace, and its bytes.

use super::wire::{put, put_maybe, put_text};
use super::{MAX_FRAMES, MAX_TEXT};

/// One record of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// The program.
    Process {
        /// Its process id.
        pid: u32,
        /// The driver's version, such as 13000.
        driver: u32,
        /// The version of CUPTI's interface.
        cupti: u32,
        /// How it was started, with spaces between the words.
        command: &'a str,
    },
    /// A driver function.
    Function {
        /// What calls name it by.
        id: u32,
        /// As the driver spells it, such as `cuMemAlloc_v2`.
        name: &'a str,
    },
    /// A thread.
    Thread {
        /// What calls name it by.
        id: u32,
        /// The system's id.
        tid: u32,
        /// Whether it is the one that the program started with.
        main: bool,
        /// What the program calls it.
        name: &'a str,
    },
    /// A context.
    Context {
        /// What calls name it by.
        id: u32,
        /// The device that it is on.
        device: Option<u32>,
    },
    /// A text that calls refer to.
    Text {
        /// What calls name it by.
        id: u32,
        /// The text.
        text: &'a str,
    },
    /// A native stack.
    Frames {
        /// What calls name it by.
        id: u32,
        /// Return addresses, innermost first.
        addresses: Vec<u64>,
    },
    /// A library or executable in memory.
    Module {
        /// Its first address.
        start: u64,
        /// The address behind its last.
        end: u64,
        /// What is added to an address in the file to get the one in memory.
        bias: u64,
        /// Its file.
        path: &'a str,
    },
    /// A call.
    Call(RawCall),
    /// The last call was made again, with the same result.
    Repeated {
        /// How often.
        times: u64,
    },
    /// Calls that are only counted.
    PassedOver {
        /// The function.
        function: u32,
        /// How many calls of it, since the last such record for it.
        calls: u64,
    },
    /// An executable graph was drawn.
    Graph {
        /// Its handle.
        exec: u64,
        /// The file with the drawing.
        path: &'a str,
    },
    /// Nothing follows.
    Stopped(Stop),
}

/// Why a trace ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The program ended.
    Ended,
    /// The file reached its limit.
    Full,
    /// The recorder failed.
    Failed,
}

/// A call as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawCall {
    /// The function's id.
    pub function: u32,
    /// What the driver answered.
    pub result: u32,
    /// The thread's id.
    pub thread: u32,
    /// The context's id.
    pub context: u32,
    /// The text with the Python stack, innermost line first.
    pub python: Option<u32>,
    /// The native stack.
    pub native: Option<u32>,
    /// The text with the ranges that the thread has open, outermost first.
    pub ranges: Option<u32>,
    /// The arguments that matter.
    pub operands: Operands,
}

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// The stream that is worked on; as the program passes it, so 0 is a default stream.
    Stream,
    /// The event.
    Event,
    /// An address in memory: what is allocated, freed or written.
    Memory,
    /// An address that is read.
    Source,
    /// How many bytes.
    Bytes,
    /// A graph.
    Graph,
    /// An executable graph.
    Exec,
    /// A capture mode, as the driver numbers them.
    Mode,
    /// The flags of the call.
    Flags,
    /// The text with the kernel's name.
    Name,
    /// The graph that a child node holds.
    Child,
    /// Why an update failed, as the driver numbers the reasons.
    Reason,
    /// How many dependencies are passed.
    Count,
}

impl Operand {
    /// Every operand, in the order of the file.
    pub const ALL: [Self; 13] = [
        Self::Stream,
        Self::Event,
        Self::Memory,
        Self::Source,
        Self::Bytes,
        Self::Graph,
        Self::Exec,
        Self::Mode,
        Self::Flags,
        Self::Name,
        Self::Child,
        Self::Reason,
        Self::Count,
    ];
}

/// The arguments of a call that matter, each at most once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operands {
    mask: u16,
    values: [u64; Operand::ALL.len()],
}

impl Operands {
    /// Sets an operand.
    pub fn set(&mut self, operand: Operand, value: u64) {
        self.mask |= 1 << operand as u16;
        self.values[operand as usize] = value;
    }

    /// An operand, if the call has it.
    pub fn get(&self, operand: Operand) -> Option<u64> {
        (self.mask & 1 << operand as u16 != 0).then(|| self.values[operand as usize])
    }

    pub(super) fn mask(&self) -> u16 {
        self.mask
    }
}

/// The tags of the file.
pub(super) mod tag {
    pub const PROCESS: u8 = 1;
    pub const FUNCTION: u8 = 2;
    pub const THREAD: u8 = 3;
    pub const CONTEXT: u8 = 4;
    pub const TEXT: u8 = 5;
    pub const FRAMES: u8 = 6;
    pub const MODULE: u8 = 7;
    pub const CALL: u8 = 8;
    pub const PASSED_OVER: u8 = 9;
    pub const GRAPH: u8 = 10;
    pub const STOPPED: u8 = 11;
    pub const REPEATED: u8 = 12;
}

/// A text that is not longer than a file may hold.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

impl Record<'_> {
    /// Appends the record to `out`, whole. Texts and stacks that are too long are cut.
    ///
    /// ```
    /// use phonograph_trace::live::{Reader, Record, header};
    ///
    /// let mut file = header().to_vec();
    /// let record = Record::Function { id: 0, name: "cuMemAlloc_v2" };
    /// record.write(&mut file);
    /// assert_eq!(Reader::new(&file)?.next().transpose()?, Some(record));
    /// # Ok::<(), phonograph_trace::live::LiveError>(())
    /// ```
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let tag = self.contents(out);
        // What precedes the contents is known only now: put it behind and turn it to the front.
        let length = out.len() - start;
        let behind = out.len();
        out.push(tag);
        put(out, length as u64);
        let before = out.len() - behind;
        out[start..].rotate_right(before);
    }

    fn contents(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Record::Process { pid, driver, cupti, command } => {
                for number in [pid, driver, cupti] {
                    put(out, u64::from(*number));
                }
                put_text(out, cut(command));
                tag::PROCESS
            }
            Record::Function { id, name } => {
                put(out, u64::from(*id));
                put_text(out, cut(name));
                tag::FUNCTION
            }
            Record::Thread { id, tid, main, name } => {
                for number in [*id, *tid, u32::from(*main)] {
                    put(out, u64::from(number));
                }
                put_text(out, cut(name));
                tag::THREAD
            }
            Record::Context { id, device } => {
                put(out, u64::from(*id));
                put_maybe(out, *device);
                tag::CONTEXT
            }
            Record::Text { id, text } => {
                put(out, u64::from(*id));
                put_text(out, cut(text));
                tag::TEXT
            }
            Record::Frames { id, addresses } => {
                let addresses = &addresses[..addresses.len().min(MAX_FRAMES)];
                put(out, u64::from(*id));
                put(out, addresses.len() as u64);
                addresses.iter().for_each(|address| put(out, *address));
                tag::FRAMES
            }
            Record::Module { start, end, bias, path } => {
                for number in [start, end, bias] {
                    put(out, *number);
                }
                put_text(out, cut(path));
                tag::MODULE
            }
            Record::Call(call) => {
                for number in [call.function, call.result, call.thread, call.context] {
                    put(out, u64::from(number));
                }
                for text in [call.python, call.native, call.ranges] {
                    put_maybe(out, text);
                }
                put(out, u64::from(call.operands.mask()));
                let set = Operand::ALL.iter().filter_map(|operand| call.operands.get(*operand));
                set.for_each(|value| put(out, value));
                tag::CALL
            }
            Record::Repeated { times } => {
                put(out, *times);
                tag::REPEATED
            }
            Record::PassedOver { function, calls } => {
                put(out, u64::from(*function));
                put(out, *calls);
                tag::PASSED_OVER
            }
            Record::Graph { exec, path } => {
                put(out, *exec);
                put_text(out, cut(path));
                tag::GRAPH
            }
            Record::Stopped(stop) => {
                put(out, 1 + *stop as u64);
                tag::STOPPED
            }
        }
    }
}
