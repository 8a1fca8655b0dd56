//! What a graph refers to and the user provides, and why a graph is refused.

use phonograph_graph::BufferId;
use phonograph_kernels::wgsl::WgslError;
use phonograph_runtime::refused::{NodePath, Refused};
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
    /// What every backend refuses.
    #[error(transparent)]
    Refused(#[from] Refused),
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
    /// A buffer for which the device has no memory; of a pool, the largest buffer that it holds.
    #[error("{buffer} ({name}): {source}")]
    Memory {
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// What the device says.
        source: GpuError,
    },
    /// The device refuses something else.
    #[error(transparent)]
    Device(#[from] GpuError),
}
