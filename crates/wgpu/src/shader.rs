//! Kernels of the user's, as WGSL.

use std::sync::Arc;

use wgpu::naga;

/// A compute kernel of the user's: WGSL and the name of an entry point in it.
///
/// The memory that a node gives it is in group 0: its views and regions in order, from binding 0 on, as
/// `var<storage, read>` where the node only reads and `var<storage, read_write>` where it writes. A binding starts at
/// the operand's first byte, which must be aligned as the device wants storage bindings to be (256 bytes at most). The
/// scalars of the node, of 4 bytes each, are the members of one structure in group 1, binding 0, as `var<uniform>`. The
/// node's grid is the number of workgroups; its block must be the `@workgroup_size` that the source gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Shader {
    pub(crate) source: Arc<str>,
    pub(crate) entry: Arc<str>,
    pub(crate) workgroup: [u32; 3],
    /// Bytes of all its variables in workgroup memory.
    pub(crate) shared: u64,
}

/// Why a shader cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShaderError {
    /// It is not WGSL.
    #[error("the source does not parse: {0}")]
    Parse(String),
    /// Its variables have no size.
    #[error("the source has a type that cannot be laid out in memory: {0}")]
    Layout(String),
    /// There is no such kernel in it.
    #[error("there is no compute entry point `{entry}` in the source; there is: {}", .known.join(", "))]
    Entry {
        /// The name asked for.
        entry: String,
        /// The names of the compute entry points that there are.
        known: Vec<String>,
    },
}

impl Shader {
    /// Parses a source. What it binds and computes is checked when a graph that uses it is instantiated.
    ///
    /// # Errors
    /// [`ShaderError`] for what is no WGSL, for types without a size, and for an entry point that is not there.
    pub fn new(source: &str, entry: &str) -> Result<Self, ShaderError> {
        let module = naga::front::wgsl::parse_str(source)
            .map_err(|error| ShaderError::Parse(error.emit_to_string(source)))?;
        let mut layouts = naga::proc::Layouter::default();
        layouts.update(module.to_ctx()).map_err(|error| ShaderError::Layout(error.to_string()))?;
        let variables = module.global_variables.iter().map(|(_, variable)| variable);
        let shared = variables.filter(|variable| variable.space == naga::AddressSpace::WorkGroup);
        let shared = shared.map(|variable| u64::from(layouts[variable.ty].size)).sum();
        let points = module.entry_points.iter();
        let mut points = points.filter(|point| point.stage == naga::ShaderStage::Compute);
        match points.clone().find(|point| point.name == entry) {
            Some(point) => Ok(Self {
                source: source.into(),
                entry: entry.into(),
                workgroup: point.workgroup_size,
                shared,
            }),
            None => Err(ShaderError::Entry {
                entry: entry.to_owned(),
                known: points.by_ref().map(|point| point.name.clone()).collect(),
            }),
        }
    }
}
