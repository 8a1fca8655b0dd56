//! What a graph refers to and the user provides, and why a graph is refused.

use phonograph_graph::{BufferId, EventId};
use phonograph_kernels::cuda::CudaError;
use phonograph_runtime::cpu::kernels::{PrepareError, Registry};
use phonograph_runtime::refused::{NodePath, Refused};
use rustc_hash::FxHashMap;

use crate::cublas::CublasError;
use crate::error::DriverError;
use crate::memory::Memory;
use crate::module::{Function, ModuleError};
use crate::nvrtc::NvrtcError;
use crate::spin::Spin;
use crate::stream::Event;

/// Functions, memory and events for a graph that is to be instantiated.
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a> {
    pub(crate) kernels: FxHashMap<&'a str, &'a Function>,
    pub(crate) hosts: Option<&'a Registry>,
    pub(crate) memory: Vec<(BufferId, &'a Memory)>,
    pub(crate) events: FxHashMap<EventId, Event>,
}

impl<'a> Bindings<'a> {
    /// Nothing: enough for a graph whose kernels are all expressions or of the library.
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel that nodes call by this name. Its parameters are the node's arguments in order: the address of the first
    /// element of a view, the address of the first byte of a region, the value of a scalar. Their number and sizes are
    /// checked; what the kernel does with them cannot be.
    ///
    /// # Safety
    /// In every node of the name, launched as the node says, the kernel touches no memory but the node's operands, each
    /// within its bounds and with the access declared. Page-locked memory is in reach of a kernel, so one that strays may
    /// change what the program holds.
    pub unsafe fn kernel(mut self, name: &'a str, function: &'a Function) -> Self {
        self.kernels.insert(name, function);
        self
    }

    /// The kernel that only takes time, for nodes that call it by this name.
    pub fn spin(mut self, name: &'a str, spin: &'a Spin) -> Self {
        self.kernels.insert(name, &spin.0);
        self
    }

    /// Where host functions are found. They are called by a thread of the driver's, once in each replay; they must not
    /// call the driver.
    pub fn hosts(mut self, registry: &'a Registry) -> Self {
        self.hosts = Some(registry);
        self
    }

    /// Memory for an external buffer or a pointer slot. An external buffer without any gets zeroed memory of its own
    /// ([`Exec::memory`](crate::Exec::memory)).
    pub fn memory(mut self, buffer: BufferId, memory: &'a Memory) -> Self {
        self.memory.push((buffer, memory));
        self
    }

    /// An event that the graph records or waits for. One that is not given is made
    /// ([`Exec::event`](crate::Exec::event)).
    pub fn event(mut self, id: EventId, event: &Event) -> Self {
        self.events.insert(id, event.clone());
        self
    }
}

/// Why a graph cannot be instantiated on CUDA. Found before anything has run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InstantiateError {
    /// What every backend refuses.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A node of a kind or form that does not run on CUDA, or not here.
    #[error("node {node} cannot run on CUDA: {reason}")]
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
    /// A kernel whose parameters are not the node's arguments.
    #[error("node {node}: {problem}")]
    Arguments {
        /// The node.
        node: NodePath,
        /// What does not fit.
        problem: String,
    },
    /// A kernel for which there is no CUDA C.
    #[error("node {node}: {source}")]
    Generate {
        /// The node.
        node: NodePath,
        /// Why.
        source: CudaError,
    },
    /// A kernel that cannot be compiled.
    #[error("node {node}: {source}")]
    Compile {
        /// The node.
        node: NodePath,
        /// Why.
        source: NvrtcError,
    },
    /// A kernel that cannot be loaded.
    #[error("node {node}: {source}")]
    Load {
        /// The node.
        node: NodePath,
        /// Why.
        source: ModuleError,
    },
    /// A product that cuBLAS refuses.
    #[error("node {node}: {source}")]
    Cublas {
        /// The node.
        node: NodePath,
        /// The refusal.
        source: CublasError,
    },
    /// A host function that cannot be called as the node says.
    #[error("node {node}: {source}")]
    Host {
        /// The node.
        node: NodePath,
        /// Why.
        source: PrepareError,
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
    /// The driver refused a node.
    #[error("node {node}: {source}")]
    Node {
        /// The node.
        node: NodePath,
        /// The refusal.
        source: DriverError,
    },
    /// The driver refused the graph.
    #[error("{source}{}", because(.verdict))]
    Graph {
        /// The refusal.
        source: DriverError,
        /// The driver's verdict about the graph's structure, if it has one.
        verdict: String,
    },
    /// A kernel that the backend adds to a graph cannot be loaded.
    #[error("a kernel that the backend adds: {0}")]
    Own(ModuleError),
    /// The driver refused something else, such as memory.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

fn because(verdict: &str) -> String {
    if verdict.is_empty() { String::new() } else { format!(" ({verdict})") }
}
