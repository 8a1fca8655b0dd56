//! The names a script or a recording uses, each with the dense id that calls carry.

use std::collections::HashMap;
use std::hash::Hash;

use crate::{EventId, GraphId, MemoryId, NodeId, Stream, StreamId, StreamKind, ThreadId};

/// A two-way table of names. Ids count up from 0 in the order of declaration; thread 0 is `main`.
#[derive(Clone, Debug)]
pub struct Names {
    streams: Table<StreamId>,
    kinds: Vec<StreamKind>,
    devices: Vec<Option<u32>>,
    events: Table<EventId>,
    threads: Table<ThreadId>,
    memory: Table<MemoryId>,
    /// By memory, as far as sizes are declared.
    bytes: Vec<Option<u64>>,
    graphs: Table<GraphId>,
    nodes: Table<NodeId>,
}

#[derive(Clone, Debug)]
struct Table<Id> {
    names: Vec<String>,
    ids: HashMap<String, Id>,
}

impl<Id: Copy + Eq + Hash> Table<Id> {
    fn new() -> Self {
        Self { names: Vec::new(), ids: HashMap::new() }
    }

    fn get(&self, name: &str) -> Option<Id> {
        self.ids.get(name).copied()
    }

    fn add(&mut self, name: &str, id: fn(u32) -> Id) -> Option<Id> {
        let next = id(u32::try_from(self.names.len()).ok()?);
        if self.ids.contains_key(name) {
            return None;
        }
        self.ids.insert(name.to_owned(), next);
        self.names.push(name.to_owned());
        Some(next)
    }
}

/// A name that was used but never declared, with the declared name that is closest to it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} `{name}` is not declared{}", hint(.what, .name, .closest.as_deref()))]
pub struct Undeclared {
    /// Stream, event, thread, graph or node.
    pub what: &'static str,
    /// The name as written.
    pub name: String,
    /// A declared name that differs in at most two letters and half of them.
    pub closest: Option<String>,
}

fn hint(what: &str, name: &str, closest: Option<&str>) -> String {
    match (closest, what) {
        (Some(closest), _) => format!("; did you mean `{closest}`?"),
        (None, "stream" | "event" | "thread" | "graph") if !name.is_empty() => {
            format!("; a line `{what} {name}` before declares it")
        }
        _ => String::new(),
    }
}

impl Names {
    /// A table with nothing in it but the main thread.
    pub fn new() -> Self {
        let mut threads = Table::new();
        threads.add("main", ThreadId);
        Self {
            streams: Table::new(),
            kinds: Vec::new(),
            devices: Vec::new(),
            events: Table::new(),
            threads,
            memory: Table::new(),
            bytes: Vec::new(),
            graphs: Table::new(),
            nodes: Table::new(),
        }
    }

    /// Declares a stream; `None` if the name is taken.
    pub fn declare_stream(&mut self, name: &str, kind: StreamKind) -> Option<StreamId> {
        let id = self.streams.add(name, StreamId)?;
        self.kinds.push(kind);
        self.devices.push(None);
        Some(id)
    }

    /// Declares an event; `None` if the name is taken.
    pub fn declare_event(&mut self, name: &str) -> Option<EventId> {
        self.events.add(name, EventId)
    }

    /// Declares a thread; `None` if the name is taken.
    pub fn declare_thread(&mut self, name: &str) -> Option<ThreadId> {
        self.threads.add(name, ThreadId)
    }

    /// Declares a graph; `None` if the name is taken.
    pub fn declare_graph(&mut self, name: &str) -> Option<GraphId> {
        self.graphs.add(name, GraphId)
    }

    /// Declares a node of a graph; `None` if the name is taken.
    pub fn declare_node(&mut self, name: &str) -> Option<NodeId> {
        self.nodes.add(name, NodeId)
    }

    /// The memory of this name, declared on first use; `None` only if there are no ids left.
    pub fn memory(&mut self, name: &str) -> Option<MemoryId> {
        self.memory.get(name).or_else(|| self.memory.add(name, MemoryId))
    }

    /// Declares the size of a piece of memory; `None` if it has one already or there are no ids left.
    pub fn declare_memory(&mut self, name: &str, bytes: u64) -> Option<MemoryId> {
        let id = self.memory(name)?;
        if self.memory_bytes(id).is_some() {
            return None;
        }
        if self.bytes.len() <= id.index() {
            self.bytes.resize(id.index() + 1, None);
        }
        self.bytes[id.index()] = Some(bytes);
        Some(id)
    }

    /// The size of a piece of memory, if it was declared.
    pub fn memory_bytes(&self, id: MemoryId) -> Option<u64> {
        self.bytes.get(id.index()).copied().flatten()
    }

    /// The stream operand of a word: `legacy`, `ptds` or a declared name.
    ///
    /// # Errors
    /// [`Undeclared`] if there is none of that name.
    pub fn stream(&self, word: &str) -> Result<Stream, Undeclared> {
        match word {
            "legacy" => Ok(Stream::Legacy),
            "ptds" => Ok(Stream::PerThread),
            _ => find(&self.streams, "stream", word).map(Stream::Created),
        }
    }

    /// The event of a name.
    ///
    /// # Errors
    /// [`Undeclared`] if there is none of that name.
    pub fn event(&self, name: &str) -> Result<EventId, Undeclared> {
        find(&self.events, "event", name)
    }

    /// The thread of a name.
    ///
    /// # Errors
    /// [`Undeclared`] if there is none of that name.
    pub fn thread(&self, name: &str) -> Result<ThreadId, Undeclared> {
        find(&self.threads, "thread", name)
    }

    /// The graph of a name.
    ///
    /// # Errors
    /// [`Undeclared`] if there is none of that name.
    pub fn graph(&self, name: &str) -> Result<GraphId, Undeclared> {
        find(&self.graphs, "graph", name)
    }

    /// The node of a name.
    ///
    /// # Errors
    /// [`Undeclared`] if there is none of that name.
    pub fn node(&self, name: &str) -> Result<NodeId, Undeclared> {
        find(&self.nodes, "node", name)
    }

    /// How many graphs are declared.
    pub fn graph_count(&self) -> usize {
        self.graphs.names.len()
    }

    /// The kinds of the declared streams, by id.
    pub fn stream_kinds(&self) -> &[StreamKind] {
        &self.kinds
    }

    /// Says on which device a declared stream is.
    ///
    /// # Panics
    /// If this table did not give the id out.
    pub fn set_device(&mut self, stream: StreamId, device: u32) {
        self.devices[stream.index()] = Some(device);
    }

    /// The device of a stream, if it was said.
    pub fn device(&self, stream: Stream) -> Option<u32> {
        match stream {
            Stream::Created(id) => self.devices.get(id.index()).copied().flatten(),
            Stream::Legacy | Stream::PerThread => None,
        }
    }

    /// How many events are declared.
    pub fn event_count(&self) -> usize {
        self.events.names.len()
    }

    /// The word of a stream operand.
    pub fn stream_word(&self, stream: Stream) -> &str {
        match stream {
            Stream::Legacy => "legacy",
            Stream::PerThread => "ptds",
            Stream::Created(id) => self.streams.names.get(id.index()).map_or("?", String::as_str),
        }
    }

    /// The name of an event, `?` if this table did not give the id out. The same holds for the other names.
    pub fn event_name(&self, id: EventId) -> &str {
        self.events.names.get(id.index()).map_or("?", String::as_str)
    }

    /// The name of a thread.
    pub fn thread_name(&self, id: ThreadId) -> &str {
        self.threads.names.get(id.index()).map_or("?", String::as_str)
    }

    /// The name of a piece of memory.
    pub fn memory_name(&self, id: MemoryId) -> &str {
        self.memory.names.get(id.index()).map_or("?", String::as_str)
    }

    /// The name of a node.
    pub fn node_name(&self, id: NodeId) -> &str {
        self.nodes.names.get(id.index()).map_or("?", String::as_str)
    }

    /// The name of a graph.
    pub fn graph_name(&self, id: GraphId) -> &str {
        self.graphs.names.get(id.index()).map_or("?", String::as_str)
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

fn find<Id: Copy + Eq + Hash>(
    table: &Table<Id>,
    what: &'static str,
    name: &str,
) -> Result<Id, Undeclared> {
    table.get(name).ok_or_else(|| {
        let closest = closest(name, table.names.iter().map(String::as_str)).map(str::to_owned);
        Undeclared { what, name: name.to_owned(), closest }
    })
}

/// The known name that this one is probably meant to be.
pub(crate) fn closest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // At most half of the letters may differ, or every short name would be close to every other.
    let most = (name.chars().count() / 2).min(2);
    let near = known.map(|known| (distance(known, name), known)).filter(|(d, _)| *d <= most);
    near.min().map(|(_, known)| known)
}

/// Levenshtein distance; names are at most [`MAX_NAME`](crate::limits::MAX_NAME) bytes, so a row of it is short.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
