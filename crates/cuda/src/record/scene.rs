//! What the calls of the tables are made on: one capturing stream, and things from before the capture to use and to destroy.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUmemAllocationType, CUmemAttach_flags,
    CUmemLocationType, CUmemPoolProps, CUstream,
};
use phonograph_trace::{Mode, StreamKind};

use super::perform::{flags_of, mode_of};
use super::{RecordError, Recorder};
use crate::device::zeroed;
use crate::error::{DriverError, call, log_drop};
use crate::graph::{Dependencies, Executable, Graph, add_node};
use crate::launch::one_thread_node;
use crate::stream::{Event, Stream};

/// Bytes that a call works on.
pub(super) const BYTES: usize = 64;
/// Bytes that are registered.
pub(super) const PAGE: usize = 4096;

/// One capturing stream and everything that a call may be made on.
pub(super) struct Scene<'a> {
    pub recorder: &'a Recorder,
    pub capturing: CUstream,
    pub other: Stream,
    /// Recorded on the other stream before the capture, and never.
    pub recorded: Event,
    pub fresh: Event,
    /// Memory that a pool and the driver's managed memory gave before the capture.
    pub pool: u64,
    pub managed: u64,
    /// Whether a call gave the former back.
    pub pool_is_free: AtomicBool,
    /// An executable to update and to destroy, and the graph that it is of.
    pub spare: Executable,
    pub spare_graph: Graph,
    /// Three times as much as is registered at once, so that no page of the system's is touched twice: the first third by a
    /// call, the last before the capture.
    pub pages: Box<[u8]>,
    made: Mutex<Made>,
}

/// What calls made, and what was made before for calls that destroy; to be given back when the capture is over.
#[derive(Default)]
pub(super) struct Made {
    pub memory: Vec<u64>,
    pub host: Vec<usize>,
    pub registered: Vec<usize>,
    pub streams: Vec<usize>,
    pub events: Vec<usize>,
    pub modules: Vec<usize>,
    pub pools: Vec<usize>,
    pub graphs: Vec<usize>,
    pub executables: Vec<usize>,
}

// SAFETY: the driver's handles in it may be used from any thread; whoever makes calls takes turns.
unsafe impl Sync for Scene<'_> {}

impl<'a> Scene<'a> {
    pub fn new(recorder: &'a Recorder, kind: StreamKind) -> Result<Self, RecordError> {
        let device = &recorder.device;
        let mut capturing = ptr::null_mut();
        // SAFETY: a context is current.
        unsafe { call!(cuStreamCreate(&mut capturing, flags_of(kind))) }?;
        let other = Stream::new(device)?;
        let (recorded, fresh) = (Event::new(device)?, Event::new(device)?);
        recorded.record(&other)?;
        let (mut pool, mut managed) = (0, 0);
        let attach = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
        // SAFETY: a context is current; the stream lives.
        unsafe {
            call!(cuMemAllocAsync(&mut pool, BYTES, other.handle()))?;
            call!(cuMemAllocManaged(&mut managed, BYTES, attach))?;
        }
        let spare_graph = Graph::new(device)?;
        let mut params = one_thread_node(&recorder.kernel);
        // SAFETY: the graph lives; the kernel has no parameters and is the recorder's.
        unsafe { add_node(spare_graph.handle(), &Dependencies::default(), &mut params) }?;
        let spare = Executable::new(&spare_graph, 0).map_err(|refused| refused.error)?;
        let pages = vec![0; 3 * PAGE].into_boxed_slice();
        let mut doomed = Made::default();
        Self::make_doomed(&mut doomed, &pages[2 * PAGE..], &spare_graph, device.ordinal())?;
        device.synchronize()?;
        Ok(Self {
            recorder,
            capturing,
            other,
            recorded,
            fresh,
            pool,
            managed,
            pool_is_free: AtomicBool::new(false),
            spare,
            spare_graph,
            pages,
            made: Mutex::new(doomed),
        })
    }

    /// One of each thing that a call may destroy.
    fn make_doomed(
        made: &mut Made,
        page: &[u8],
        graph: &Graph,
        ordinal: u32,
    ) -> Result<(), DriverError> {
        let none = ptr::null_mut::<c_void>();
        let (mut address, mut start, mut module, mut stream) =
            (0, none, ptr::null_mut(), ptr::null_mut());
        let (mut event, mut pool) = (ptr::null_mut(), ptr::null_mut());
        let (mut empty, mut executable) = (ptr::null_mut(), ptr::null_mut());
        let text = CString::new(super::KERNELS).unwrap_or_default();
        let mut properties = zeroed::<CUmemPoolProps>();
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = ordinal as i32;
        let mut params = zeroed::<CUDA_GRAPH_INSTANTIATE_PARAMS>();
        let registered = page.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: a context is current, the graph lives, the text is terminated; the results are for these calls to write, and
        // each is noted, to be given back.
        unsafe {
            call!(cuMemAlloc_v2(&mut address, BYTES))?;
            made.memory.push(address);
            call!(cuMemAllocHost_v2(&mut start, BYTES))?;
            made.host.push(start.expose_provenance());
            call!(cuMemHostRegister_v2(registered, page.len(), 0))?;
            made.registered.push(registered.expose_provenance());
            call!(cuStreamCreate(&mut stream, 1))?;
            made.streams.push(stream.expose_provenance());
            call!(cuEventCreate(&mut event, 0))?;
            made.events.push(event.expose_provenance());
            call!(cuModuleLoadData(&mut module, text.as_ptr().cast()))?;
            made.modules.push(module.expose_provenance());
            call!(cuMemPoolCreate(&mut pool, &properties))?;
            made.pools.push(pool.expose_provenance());
            call!(cuGraphCreate(&mut empty, 0))?;
            made.graphs.push(empty.expose_provenance());
            call!(cuGraphInstantiateWithParams(&mut executable, graph.handle(), &mut params))?;
            made.executables.push(executable.expose_provenance());
        }
        Ok(())
    }

    pub fn begin(&self, mode: Mode) -> Result<(), DriverError> {
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamBeginCapture_v2(self.capturing, mode_of(Some(mode)))) }
    }

    pub fn keep(&self, graph: CUgraph) {
        if !graph.is_null() {
            self.made().graphs.push(graph.expose_provenance());
        }
    }

    pub fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives everything back; the capture is over.
    pub fn finish(self) -> Result<(), RecordError> {
        let made = self.made.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: each handle was made by this scene and is given back once, with no capture open.
        unsafe {
            log_drop(call!(cuStreamDestroy_v2(self.capturing)));
            self.recorder.device.synchronize()?;
            if !self.pool_is_free.load(Ordering::Relaxed) {
                log_drop(call!(cuMemFreeAsync(self.pool, self.other.handle())));
            }
            let managed = std::iter::once(self.managed);
            for address in made.memory.into_iter().chain(managed) {
                log_drop(call!(cuMemFree_v2(address)));
            }
            for start in made.host {
                log_drop(call!(cuMemFreeHost(ptr::with_exposed_provenance_mut(start))));
            }
            for start in made.registered {
                log_drop(call!(cuMemHostUnregister(ptr::with_exposed_provenance_mut(start))));
            }
            for stream in made.streams {
                log_drop(call!(cuStreamDestroy_v2(ptr::with_exposed_provenance_mut(stream))));
            }
            for event in made.events {
                log_drop(call!(cuEventDestroy_v2(ptr::with_exposed_provenance_mut(event))));
            }
            for module in made.modules {
                log_drop(call!(cuModuleUnload(ptr::with_exposed_provenance_mut(module))));
            }
            for executable in made.executables {
                log_drop(call!(cuGraphExecDestroy(ptr::with_exposed_provenance_mut(executable))));
            }
            for pool in made.pools {
                log_drop(call!(cuMemPoolDestroy(ptr::with_exposed_provenance_mut(pool))));
            }
            for graph in made.graphs {
                log_drop(call!(cuGraphDestroy(ptr::with_exposed_provenance_mut(graph))));
            }
        }
        Ok(())
    }
}
