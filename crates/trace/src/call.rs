//! A driver call: which function, on what, from which thread; with its result and its place in a source when they are known.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CuResult, EventId, Function, GraphId, MemoryId, NodeId, StreamId, ThreadId};

/// One call of the driver, whether it comes from a script, a recording or a running program.
///
/// Operands that the function does not have are `None`; whoever interprets the call says which it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The driver function.
    pub function: Function,
    /// The thread that calls.
    pub thread: ThreadId,
    /// The stream that the call works on.
    pub stream: Option<Stream>,
    /// A second stream: the one whose dependency set a dependency update takes.
    pub from: Option<Stream>,
    /// The event that is recorded, waited for, queried or destroyed.
    pub event: Option<EventId>,
    /// The memory that is allocated or freed.
    pub memory: Option<MemoryId>,
    /// The graph that a capture is begun into, that an end hands over, or that is instantiated or launched.
    pub graph: Option<GraphId>,
    /// The capture mode of a begin, or the new mode of a thread.
    pub mode: Option<Mode>,
    /// Arguments that change what the function does.
    pub flags: Flags,
    /// What a piece of work is called and which memory it touches, if known.
    pub work: Option<Box<Work>>,
    /// For calls that build a graph by hand: what they add to it.
    pub build: Option<Box<Build>>,
    /// What the driver answered, if known.
    pub result: Option<CuResult>,
    /// Where the call stands in the text that it was read from.
    pub place: Option<Place>,
}

impl Call {
    /// A call of `function` from the main thread, without operands.
    ///
    /// ```
    /// use phonograph_trace::{Call, Function, Stream, StreamId};
    ///
    /// let call = Call { stream: Some(Stream::Created(StreamId(0))), ..Call::new(Function::LaunchKernel) };
    /// assert_eq!(call.function.name(), "cuLaunchKernel");
    /// ```
    pub fn new(function: Function) -> Self {
        Self {
            function,
            thread: ThreadId(0),
            stream: None,
            from: None,
            event: None,
            memory: None,
            graph: None,
            mode: None,
            flags: Flags::default(),
            work: None,
            build: None,
            result: None,
            place: None,
        }
    }

    /// A call of `function` on `stream` from the main thread.
    pub fn on(function: Function, stream: Stream) -> Self {
        Self { stream: Some(stream), ..Self::new(function) }
    }
}

/// Arguments that change what a function does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// An event is recorded or waited for with the external flag: in a capture it becomes a node.
    pub external: bool,
    /// The kernel is launched with programmatic stream serialisation.
    pub programmatic: bool,
    /// A copy or memset of no bytes.
    pub no_bytes: bool,
    /// The host side of a copy is pageable memory.
    pub pageable: bool,
    /// A dependency update adds to the set instead of replacing it.
    pub add: bool,
    /// A query for edges has room for their data.
    pub edge_data: bool,
    /// What an executable's last launch has allocated and nobody has freed, its next launch frees.
    pub auto_free: bool,
}

impl Flags {
    /// None of them.
    pub const NONE: Self = Self {
        external: false,
        programmatic: false,
        no_bytes: false,
        pageable: false,
        add: false,
        edge_data: false,
        auto_free: false,
    };
}

/// What a piece of work is called, and which memory it reads and writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// The name of the kernel or callback; empty if it has none. Calls of the same kernel share it.
    pub name: Arc<str>,
    /// Memory that is read, in the order given.
    pub reads: Vec<MemoryId>,
    /// Memory that is written, in the order given.
    pub writes: Vec<MemoryId>,
}

/// What a call adds to a graph that the program builds by hand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Build {
    /// What the program calls the new node.
    pub node: Option<NodeId>,
    /// The graph that a child node holds, or the graphs that become the bodies of a conditional.
    pub inner: Vec<GraphId>,
    /// The kind of a conditional node.
    pub conditional: Option<ConditionalKind>,
    /// An edge between two nodes.
    pub edge: Option<(NodeId, NodeId, Port)>,
}

/// The kind of a conditional node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum ConditionalKind {
    If,
    While,
    Switch,
}

impl ConditionalKind {
    /// The word that scripts use.
    pub fn word(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::While => "while",
            Self::Switch => "switch",
        }
    }

    /// The kind of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::If, Self::While, Self::Switch].into_iter().find(|kind| kind.word() == word)
    }
}

/// When a producer lets its consumer start: the producer's port of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Port {
    /// When it is complete.
    Full,
    /// When its blocks have triggered.
    Programmatic,
    /// When its blocks have started.
    LaunchOrder,
}

impl Port {
    /// The word that scripts use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Programmatic => "programmatic",
            Self::LaunchOrder => "launch_order",
        }
    }

    /// The port of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Full, Self::Programmatic, Self::LaunchOrder]
            .into_iter()
            .find(|port| port.word() == word)
    }
}

/// A stream operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stream {
    /// The legacy default stream, which waits for every blocking stream.
    Legacy,
    /// The default stream of the calling thread.
    PerThread,
    /// A stream that the program created.
    Created(StreamId),
}

/// How a created stream relates to the legacy stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// Work on the legacy stream waits for it and the other way round.
    Blocking,
    /// The legacy stream takes no notice of it.
    NonBlocking,
}

/// A capture mode: which potentially unsafe calls are barred while the capture is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Those of every thread in this mode.
    Global,
    /// Those of the thread that began the capture.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    /// The word that recordings and scripts use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::ThreadLocal => "thread_local",
            Self::Relaxed => "relaxed",
        }
    }

    /// The mode of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed]
            .into_iter()
            .find(|mode| mode.word() == word)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A place in a text: where something starts and how far it reaches on that line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Length in characters.
    pub length: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
