//! Asking a device how the driver answers: the recordings that the model of stream capture is compared with, made anew.
//!
//! In: questions in the recordings' own form, from a file or [made at random](generate); whatever answers they hold are not
//! looked at. Out: the same records with what this driver answers. Each question is asked on fresh streams, events and
//! threads, the calls one after the other. Programs made at random crash a driver now and then, so whoever asks many does it
//! in child processes, and goes on after the one that took the process along.

mod calls;
pub mod generate;
mod pairs;
mod perform;
mod program;
mod scene;
mod table;
mod update;

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::device::{Device, DeviceError};
use crate::error::DriverError;
use crate::graph::{Dependencies, Executable, Graph, add_node};
use crate::launch::one_thread_node;
use crate::loader::{Driver, Feature};
use crate::memory::{Memory, Owner};
use crate::module::{Function, Module, ModuleError};
use crate::stream::Stream;

/// Kernels that do nothing, for every device.
const KERNELS: &str = ".version 7.0
.target sm_75
.address_size 64
.visible .entry nothing()
{
    ret;
}
.visible .entry nothing_else()
{
    ret;
}
";

/// Bytes of the memory that calls work on.
const BYTES: u64 = 4096;

/// Why something cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The driver refused something that is not part of the question.
    #[error("the recorder itself was refused: {0}")]
    Driver(#[from] DriverError),
    /// The kernel does not load.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// A call in words that nobody understands.
    #[error("record `{id}`, step {step}: {error}")]
    Words {
        /// The record.
        id: String,
        /// The step, from 0.
        step: usize,
        /// What is wrong.
        error: String,
    },
    /// A call that is not recorded.
    #[error("record `{id}`, step {step}: `{op}` cannot be recorded")]
    Unsupported {
        /// The record.
        id: String,
        /// The step, from 0.
        step: usize,
        /// The call in words.
        op: String,
    },
}

/// A device to ask, with what calls work on.
pub struct Recorder {
    launched: Executable,
    _graph: Graph,
    kernel: Function,
    other_kernel: Function,
    /// The same code loaded again.
    second_module: [Function; 2],
    /// Two ranges of device memory.
    memory: [Memory; 2],
    /// Where the copies and fills of graphs lie, which are never launched.
    arena: Memory,
    pinned: Memory,
    pageable: Box<[u8]>,
    device: Device,
}

// SAFETY: a shared `Recorder` gives away handles that may be used from any thread; the threads of a program take turns.
unsafe impl Sync for Recorder {}

impl Recorder {
    /// Opens the first device and puts what calls need in place.
    pub fn new() -> Result<Self, RecordError> {
        let lacks = |error| RecordError::Device(DeviceError::Load(error));
        Driver::load().and_then(|driver| driver.offers(Feature::Record)).map_err(lacks)?;
        let device = Device::open(0)?;
        let load = || -> Result<[Function; 2], RecordError> {
            let module = Module::from_ptx(&device, KERNELS)?;
            Ok([module.function("nothing")?, module.function("nothing_else")?])
        };
        let ([kernel, other_kernel], second_module) = (load()?, load()?);
        let owner = Arc::new(Owner);
        let on_device = || Memory::on_device(&owner, &device, BYTES);
        let arena = Memory::on_device(&owner, &device, update::ARENA)?;
        let pinned = Memory::on_host(&owner, &device, 2 * BYTES)?;
        let graph = Graph::new(&device)?;
        let _current = device.enter()?;
        let mut params = one_thread_node(&kernel);
        // SAFETY: the graph lives; the kernel has no parameters and is kept.
        unsafe { add_node(graph.handle(), &Dependencies::default(), &mut params) }?;
        let mut launched = Executable::new(&graph, 0).map_err(|refused| refused.error)?;
        let stream = Stream::new(&device)?;
        launched.upload(&stream)?;
        stream.synchronize()?;
        let pageable = vec![0; BYTES as usize].into_boxed_slice();
        Ok(Self {
            launched,
            _graph: graph,
            kernel,
            other_kernel,
            second_module,
            memory: [on_device()?, on_device()?],
            arena,
            pinned,
            pageable,
            device,
        })
    }

    /// The device that is asked.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// What host nodes call.
unsafe extern "C" fn nothing_on_host(_data: *mut c_void) {}

const NO_DATA: *mut c_void = ptr::null_mut();
