//! What a graph refers to and the user provides, and why a graph is refused.

use phonograph_graph::{BufferId, Race, Violation};
use phonograph_kernels::wgsl::WgslError;
use phonograph_runtime::cpu::NodePath;
use rustc_hash::FxHashMap;

use crate::error::GpuError;
use crate::memory::Memory;
use crate::shader::Shader;

/// Kernels and memory for a graph that is to be instantiated.
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a> {
    pub(crate) kernels: FxHashMap<&'a str, &'a Shader>,
    pub(crate) memory: Vec<(BufferId, &'a Memory)>,
}

impl<'a> Bindings<'a> {
    /// Nothing: enough for a graph whose kernels are all expressions or of the library.
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel that nodes call by this name. It cannot reach memory other than the node's operands; what it does with
    /// those is its own affair.
    pub fn kernel(mut self, name: &'a str, shader: &'a Shader) -> Self {
        self.kernels.insert(name, shader);
        self
    }

    /// Memory for an external buffer or a pointer slot. An external buffer without any gets zeroed memory of its own
    /// ([`Exec::memory`](crate::Exec::memory)).
    pub fn memory(mut self, buffer: BufferId, memory: &'a Memory) -> Self {
        self.memory.push((buffer, memory));
        self
    }
}

/// Why a graph cannot be instantiated. Found before anything has run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InstantiateError {
    /// The schedule is not right for the graph.
    #[error("the schedule is not right: {}{}", .0[0], more(.0.len()))]
    Schedule(Vec<Violation>),
    /// The graph does not order conflicting accesses.
    #[error("the graph has a race{}: {}{}", within(.inside), .races[0], more(.races.len()))]
    Race {
        /// The node whose inner graph has them; empty for the outermost.
        inside: NodePath,
        /// The races.
        races: Vec<Race>,
    },
    /// A node of a kind or form that does not run on wgpu, or not on this device.
    #[error("node {node} cannot run on wgpu: {reason}")]
    Unsupported {
        /// The node.
        node: NodePath,
        /// Why.
        reason: String,
    },
    /// A kernel that nobody bound.
    #[error(
        "node {node}: no kernel is bound as `{name}`; bind it before the graph is instantiated"
    )]
    Unbound {
        /// The node.
        node: NodePath,
        /// The name that the node gives.
        name: String,
    },
    /// A kernel for which there is no WGSL.
    #[error("node {node}: {source}")]
    Generate {
        /// The node.
        node: NodePath,
        /// Why.
        source: WgslError,
    },
    /// A node that wgpu refuses: a kernel that does not compile, operands that do not go together.
    #[error("node {node}: {source}")]
    Node {
        /// The node.
        node: NodePath,
        /// What wgpu says.
        source: GpuError,
    },
    /// A binding that does not fit.
    #[error("the memory bound to {buffer} {problem}")]
    Binding {
        /// The buffer.
        buffer: BufferId,
        /// What is wrong.
        problem: String,
    },
    /// A buffer in a place that there is not.
    #[error("{buffer} ({name}) {problem}")]
    Buffer {
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The device refuses something else, such as memory.
    #[error(transparent)]
    Device(#[from] GpuError),
}

fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}

fn within(path: &NodePath) -> String {
    if path.0.is_empty() { String::new() } else { format!(" inside {path}") }
}
