//! The backend: devices, the memory that graphs share, and the kernels compiled so far.

use std::sync::Arc;

use phonograph_graph::{ComputeGraph, Schedule};
use phonograph_kernels::cuda::ENTRY;
use phonograph_runtime::cpu::kernels::Element;
use phonograph_runtime::refused::check_graph;
use rustc_hash::FxHashMap;

use crate::adopted::Foreign;
use crate::bindings::{Bindings, InstantiateError};
use crate::cache::KernelCache;
use crate::device::{Device, DeviceError};
use crate::error::{DriverError, Version};
use crate::exec::{Exec, ReplayError};
use crate::loader::Driver;
use crate::lower::{self, Blas, How};
use crate::memory::{Memory, MemoryError, Owner};
use crate::module::{Function, Module, ModuleError};
use crate::nvrtc::{Nvrtc, NvrtcError, Program};
use crate::order::Order;
use crate::profile::Method;
use crate::spares::Spares;
use crate::stream::Stream;

/// CUDA devices as a backend.
///
/// What a program sees is what running launches one after another gives: on whatever streams they are issued, those that
/// touch the same memory follow one another, and reading or writing memory waits for all of them. Others may overlap.
///
/// ```
/// use phonograph_cuda::{Bindings, Cuda};
/// use phonograph_graph::{Arg, DType, Expr, GraphBuilder, Schedule, View};
///
/// let mut b = GraphBuilder::new();
/// let x = b.external_buffer("x", 16);
/// let view = View::contiguous(x, DType::F32, &[4])?;
/// let by = b.slot("by", 1.0f32);
/// let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32)))?;
/// b.add_elementwise("add", add.into(), &[view], &[Arg::Slot(by)], &[view]);
/// let graph = b.build()?;
///
/// let mut cuda = match Cuda::new() {
///     Ok(cuda) => cuda,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let memory = cuda.alloc(16)?;
/// cuda.write(&memory, &[1.0f32, 2.0, 3.0, 4.0])?;
/// let schedule = Schedule::sequential(&graph);
/// let mut exec = cuda.instantiate(&graph, &schedule, &Bindings::new().memory(x, &memory))?;
/// cuda.replay(&mut exec)?;
/// exec.set(by, 10.0f32)?;
/// cuda.replay(&mut exec)?;
/// assert_eq!(cuda.read::<f32>(&memory)?, [12.0, 13.0, 14.0, 15.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cuda {
    driver: Version,
    devices: Vec<Device>,
    kernels: Kernels,
    blas: Blas,
    spares: Arc<Spares>,
    owner: Arc<Owner>,
    pub(crate) foreign: Foreign,
    stream: Stream,
    order: Order,
}

impl Cuda {
    /// The first device.
    ///
    /// # Errors
    /// [`DeviceError`] says what this machine lacks.
    pub fn new() -> Result<Self, DeviceError> {
        Self::on(&[0])
    }

    /// Several devices, by their numbers. A graph's device 0 is the first of them; each can reach the others' memory.
    ///
    /// # Errors
    /// [`DeviceError`] says what this machine lacks; [`DeviceError::None`] and [`DeviceError::Twice`] for lists that make
    /// no sense.
    pub fn on(ordinals: &[u32]) -> Result<Self, DeviceError> {
        let driver = Driver::load()?;
        let devices: Vec<Device> =
            ordinals.iter().map(|&ordinal| Device::open(ordinal)).collect::<Result<_, _>>()?;
        let Some(first) = devices.first() else {
            return Err(DeviceError::None);
        };
        for (at, device) in devices.iter().enumerate() {
            if devices[..at].iter().any(|other| other.is(device)) {
                return Err(DeviceError::Twice { ordinal: device.ordinal() });
            }
            for other in devices.iter().filter(|other| !other.is(device)) {
                device.share_memory_with(other)?;
            }
        }
        Ok(Self {
            driver: driver.version(),
            stream: Stream::new(first)?,
            devices,
            kernels: Kernels::new(),
            blas: Blas::new(),
            spares: Arc::default(),
            owner: Arc::new(Owner),
            foreign: Foreign::default(),
            order: Order::default(),
        })
    }

    /// Has matrix products computed by generated kernels even where there is cuBLAS. [`Exec::products`] says what computes
    /// each.
    pub fn without_cublas(mut self) -> Self {
        self.blas.wanted = false;
        self
    }

    /// The devices, in the order in which graphs number them.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Zeroed memory of the first device.
    pub fn alloc(&self, bytes: u64) -> Result<Memory, DriverError> {
        Memory::on_device(&self.owner, &self.devices[0], bytes)
    }

    /// Zeroed memory of one of the devices, by its place among [`devices`](Self::devices).
    ///
    /// # Errors
    /// [`DeviceError::Ordinal`] if there is no such place.
    pub fn alloc_on(&self, place: u32, bytes: u64) -> Result<Memory, DeviceError> {
        let count = self.devices.len() as u32;
        let device = self.devices.get(place as usize);
        let device = device.ok_or(DeviceError::Ordinal { ordinal: place, count })?;
        Ok(Memory::on_device(&self.owner, device, bytes)?)
    }

    /// Zeroed page-locked memory of the host.
    pub fn alloc_host(&self, bytes: u64) -> Result<Memory, DriverError> {
        Memory::on_host(&self.owner, &self.devices[0], bytes)
    }

    /// Memory of the first device that is somebody else's.
    ///
    /// # Safety
    /// As for [`Memory::foreign`].
    pub(crate) unsafe fn foreign(
        &self,
        address: u64,
        bytes: u64,
        keep: Box<dyn std::any::Any + Send + Sync>,
    ) -> Memory {
        // SAFETY: the caller's promise.
        unsafe { Memory::foreign(&self.owner, &self.devices[0], address, bytes, keep) }
    }

    /// The contents of memory, after all launches so far.
    ///
    /// # Errors
    /// [`MemoryError::OtherDevice`] for memory of another `Cuda`, [`MemoryError::Size`] if it is not whole elements.
    pub fn read<T: Element>(&mut self, memory: &Memory) -> Result<Vec<T>, MemoryError> {
        self.settle(memory)?;
        memory.read()
    }

    /// Replaces the contents of memory, after all launches so far.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`MemoryError::Length`] unless there is a value for each element.
    pub fn write<T: Element>(&mut self, memory: &Memory, values: &[T]) -> Result<(), MemoryError> {
        self.settle(memory)?;
        memory.write(values)
    }

    fn settle(&mut self, memory: &Memory) -> Result<(), MemoryError> {
        if !memory.belongs_to(&self.owner) {
            return Err(MemoryError::OtherDevice);
        }
        self.devices.iter().try_for_each(Device::synchronize)?;
        self.order.waited_for_all();
        Ok(())
    }

    /// Compiles a kernel of the user's for the first device, as C++17. `name` is the function's, as `extern "C"` declares
    /// it. Multiplications and additions are contracted only where the source says so (`fmaf`).
    ///
    /// # Errors
    /// [`CompileError`] with the compiler's messages, or without a compiler.
    pub fn compile(&mut self, source: &str, name: &str) -> Result<Function, CompileError> {
        let device = &self.devices[0];
        let module = self.kernels.module(self.driver, device, name, source)?;
        Ok(module.function(name)?)
    }

    /// Makes a graph ready to replay as `schedule` says.
    ///
    /// Everything that could be wrong is found here: the schedule goes through the checker, conflicting accesses must be
    /// ordered, kernels must be bound and take their arguments, generated kernels are compiled, memory must be there.
    ///
    /// Executables of graphs that are gone are kept, within bounds. A graph that differs from one of theirs only in where
    /// its operands lie, in scalars and in launches gets that executable, brought up to date: nothing is made, and the driver is
    /// called for the nodes whose parameters differ. [`Exec::renewed`] tells. That serves graphs of kernels without
    /// attributes, straight copies, fills and barriers, on one device; others are instantiated. What is kept goes with this
    /// value.
    pub fn instantiate(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        bindings: &Bindings<'_>,
    ) -> Result<Exec, InstantiateError> {
        check_graph(graph, schedule)?;
        self.instantiate_checked(graph, schedule, bindings, None)
    }

    /// The same for a graph that [`check_graph`] has found right. To be timed by events the nodes run one after another, with
    /// events between them; CUPTI times nodes that it has seen the driver make.
    pub(crate) fn instantiate_checked(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        bindings: &Bindings<'_>,
        timed: Option<Method>,
    ) -> Result<Exec, InstantiateError> {
        let stream = self.stream.clone();
        let (anew, timed) = (timed.is_some(), timed == Some(Method::Events));
        let how = How { upload: Some(&stream), timed, in_parts: !timed, anew };
        let mut exec = lower::instantiate_checked(self.target(), graph, schedule, bindings, how)?;
        // It was uploaded on this stream: the first launch follows that as launches follow one another. Nothing that it
        // touches came before, so it begins no turn.
        self.order.follow(&stream, &[exec.itself()])?;
        exec.last = Some(stream);
        Ok(exec)
    }

    /// Runs the graph once and returns when all of it is done.
    ///
    /// # Errors
    /// [`ReplayError::Node`] for what a node could not do; the others have run, and the graph can be replayed again.
    pub fn replay(&mut self, exec: &mut Exec) -> Result<(), ReplayError> {
        self.launch(exec, &self.stream.clone())?;
        self.finish(exec)
    }

    /// Issues a run of the graph to the stream and returns at once. It runs after all launches so far that touch what this
    /// one changes or change what it touches, and after those of the same graph; others may run at the same time. A graph
    /// with work of unknown effects runs after all, and all after it.
    ///
    /// # Errors
    /// [`ReplayError`] for what is found before the launch; what a node could not do is said by [`finish`](Self::finish).
    #[inline]
    pub fn launch(&mut self, exec: &mut Exec, stream: &Stream) -> Result<(), ReplayError> {
        if exec.front.pending || !self.order.continues(exec.front.turn, stream) {
            self.prepare(exec, stream)?;
        }
        Ok(exec.front.launch(stream)?)
    }

    /// Makes a launch on the stream possible that is not just another one of the same.
    #[cold]
    fn prepare(&mut self, exec: &mut Exec, stream: &Stream) -> Result<(), ReplayError> {
        if !Arc::ptr_eq(&exec.owner, &self.owner) {
            return Err(ReplayError::OtherDevice);
        }
        if !self.order.continues(exec.front.turn, stream) {
            let turn = self.order.follow(stream, &exec.touches())?;
            exec.front.turn = turn;
            exec.last = Some(stream.clone());
        }
        exec.settle(stream)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// What lowering works with.
    pub(crate) fn target(&mut self) -> lower::Target<'_> {
        lower::Target {
            driver: self.driver,
            devices: &self.devices,
            kernels: &mut self.kernels,
            owner: &self.owner,
            blas: &mut self.blas,
            spares: &self.spares,
            everything: &self.order.everything,
        }
    }

    /// Waits for the graph's launches so far.
    ///
    /// # Errors
    /// [`ReplayError::Node`] for the first thing that a node could not do since this was last asked.
    pub fn finish(&mut self, exec: &mut Exec) -> Result<(), ReplayError> {
        if !Arc::ptr_eq(&exec.owner, &self.owner) {
            return Err(ReplayError::OtherDevice);
        }
        let stream = exec.last.clone();
        exec.wait()?;
        if let Some(stream) = &stream {
            self.order.waited_for(stream);
        }
        exec.take_fault()
    }
}

/// Why a kernel of the user's cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It does not compile, or there is no compiler.
    #[error(transparent)]
    Compile(#[from] NvrtcError),
    /// It does not load.
    #[error(transparent)]
    Load(#[from] ModuleError),
}

/// Generated kernels by their source.
#[derive(Debug)]
pub(crate) struct Kernels {
    cache: KernelCache,
    loaded: FxHashMap<(u32, String), Function>,
    empty: Option<Function>,
}

impl Kernels {
    fn new() -> Self {
        Self { cache: KernelCache::of_user(), loaded: FxHashMap::default(), empty: None }
    }

    /// The kernel that does nothing, on the first device.
    pub fn empty(&mut self, first: &Device) -> Result<Function, ModuleError> {
        if let Some(known) = &self.empty {
            return Ok(known.clone());
        }
        Ok(self.empty.insert(Function::empty(first)?).clone())
    }

    /// The function of a generated source on a device.
    pub fn function(
        &mut self,
        driver: Version,
        device: &Device,
        name: &str,
        source: &str,
    ) -> Result<Function, CompileError> {
        let key = (device.ordinal(), source.to_owned());
        if let Some(function) = self.loaded.get(&key) {
            return Ok(function.clone());
        }
        let function = self.module(driver, device, name, source)?.function(ENTRY)?;
        self.loaded.insert(key, function.clone());
        Ok(function)
    }

    fn module(
        &mut self,
        driver: Version,
        device: &Device,
        name: &str,
        source: &str,
    ) -> Result<Module, CompileError> {
        let nvrtc = Nvrtc::load()?;
        nvrtc.check_driver(driver)?;
        let program = Program { name, source, capability: device.capability() };
        let cubin = self.cache.compile(nvrtc, &program)?;
        // SAFETY: the compiler made it, whole; the cache gives back what was put in, of checked length and key.
        Ok(unsafe { Module::from_cubin(device, &cubin) }?)
    }
}
