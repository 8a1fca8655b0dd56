//! What goes wrong on a device.

/// What wgpu or the device refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The device is gone: a reset, a removal, a crash of the driver. Everything on it is lost.
    #[error("the device is lost: {0}")]
    Lost(String),
    /// No memory is left.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A call that wgpu does not allow.
    #[error("wgpu refuses: {0}")]
    Validation(String),
    /// Something else, such as a limit of the driver.
    #[error("wgpu failed: {0}")]
    Internal(String),
}

impl From<wgpu::Error> for GpuError {
    fn from(error: wgpu::Error) -> Self {
        match error {
            wgpu::Error::OutOfMemory { source } => GpuError::OutOfMemory(chain(&*source)),
            wgpu::Error::Validation { description, .. } => {
                GpuError::Validation(description.trim().to_owned())
            }
            wgpu::Error::Internal { description, .. } => {
                GpuError::Internal(description.trim().to_owned())
            }
        }
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Why a device cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No driver offers an adapter.
    #[error("no adapter: neither Vulkan, Metal nor Direct3D 12 offers one")]
    NoAdapter,
    /// An adapter that cannot compute.
    #[error("{adapter} cannot run compute kernels")]
    NoCompute {
        /// The adapter.
        adapter: String,
    },
    /// The adapter does not give a device.
    #[error("{adapter} gives no device: {message}")]
    Device {
        /// The adapter.
        adapter: String,
        /// What wgpu says.
        message: String,
    },
}

/// Why memory could not be used as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The handle is of another device.
    #[error("the memory belongs to another device")]
    OtherDevice,
    /// The memory is not a whole number of elements.
    #[error("{bytes} bytes are not whole elements of {element}")]
    Size {
        /// Bytes of the memory.
        bytes: u64,
        /// Bytes of an element.
        element: u64,
    },
    /// Not as many values as there are elements.
    #[error("{given} values for memory of {held}")]
    Length {
        /// Values given.
        given: u64,
        /// Elements of the memory.
        held: u64,
    },
    /// Bytes past the end of the memory.
    #[error("bytes {start}..{end} of memory of {bytes}")]
    Range {
        /// The first byte.
        start: u64,
        /// One past the last.
        end: u64,
        /// Bytes of the memory.
        bytes: u64,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] GpuError),
}
