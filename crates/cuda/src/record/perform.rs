//! Making the calls of a program, on the thread that shall make them.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{
    CUevent, CUevent_flags, CUevent_record_flags, CUevent_wait_flags, CUgraph, CUresult, CUstream,
    CUstream_flags, CUstreamCaptureMode, CUstreamUpdateCaptureDependencies_flags,
};
use phonograph_trace::{Call, CuResult, Function, MemoryId, Mode, Stream, StreamKind};
use rustc_hash::FxHashMap;

use super::{NO_DATA, RecordError, Recorder, nothing_on_host};
use crate::error::{DriverError, call, log_drop};
use crate::stream_capture::CaptureInfo;

/// The driver's names for the default streams.
pub(super) const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// Whether [`State::perform`] makes the call.
pub(super) fn supported(call: &Call) -> bool {
    use Function as F;
    let known = matches!(
        call.function,
        F::StreamBeginCapture
            | F::StreamBeginCaptureToGraph
            | F::StreamEndCapture
            | F::LaunchKernel
            | F::MemsetD8Async
            | F::LaunchHostFunc
            | F::StreamAddCallback
            | F::MemcpyDtoDAsync
            | F::MemcpyHtoDAsync
            | F::MemcpyDtoHAsync
            | F::EventRecord
            | F::EventRecordWithFlags
            | F::StreamWaitEvent
            | F::StreamSynchronize
            | F::StreamQuery
            | F::EventSynchronize
            | F::EventQuery
            | F::CtxSynchronize
            | F::MemAlloc
            | F::MemcpyDtoD
            | F::MemAllocAsync
            | F::MemFreeAsync
            | F::GraphLaunch
            | F::StreamUpdateCaptureDependencies
            | F::ThreadExchangeStreamCaptureMode
            | F::StreamCreate
            | F::StreamDestroy
            | F::EventCreate
            | F::EventDestroy
    );
    let default = |stream| matches!(stream, Some(Stream::Legacy | Stream::PerThread));
    let on_created = matches!(call.function, F::StreamCreate | F::StreamDestroy);
    known && !(on_created && default(call.stream))
}

/// What came of a call.
pub(super) struct Answer {
    pub result: CuResult,
    /// The graph that an end handed over; null if it handed over none.
    pub ended: Option<CUgraph>,
    pub previous: Option<Mode>,
}

// SAFETY: a graph handle may be used from any thread, one at a time, and the threads take turns.
unsafe impl Send for Answer {}

/// What a program's calls work on.
pub(super) struct State {
    kinds: Vec<StreamKind>,
    streams: Vec<Option<CUstream>>,
    events: Vec<Option<CUevent>>,
    /// What stream-ordered allocations gave, by name.
    pool: FxHashMap<MemoryId, u64>,
    /// Memory to give back when the program is over.
    allocated: Vec<u64>,
    /// The graph that captures are begun into.
    user: Option<CUgraph>,
}

// SAFETY: the driver's handles may be used from any thread; the threads take turns.
unsafe impl Send for State {}

impl State {
    pub fn new(kinds: &[StreamKind], events: usize) -> Result<Self, RecordError> {
        let mut state = Self {
            kinds: kinds.to_vec(),
            streams: Vec::new(),
            events: Vec::new(),
            pool: FxHashMap::default(),
            allocated: Vec::new(),
            user: None,
        };
        for &kind in kinds {
            let mut stream = ptr::null_mut();
            // SAFETY: a context is current.
            unsafe { call!(cuStreamCreate(&mut stream, flags_of(kind))) }?;
            state.streams.push(Some(stream));
        }
        for _ in 0..events {
            let mut event = ptr::null_mut();
            // SAFETY: a context is current.
            unsafe { call!(cuEventCreate(&mut event, EVENT_FLAGS)) }?;
            state.events.push(Some(event));
        }
        Ok(state)
    }

    /// The created streams, those that were destroyed as `None`.
    pub fn streams(&self) -> impl Iterator<Item = Option<CUstream>> + '_ {
        self.streams.iter().copied()
    }

    /// Whether it is the graph that captures are begun into.
    pub fn is_kept(&self, graph: CUgraph) -> bool {
        self.user == Some(graph)
    }

    /// Destroys a graph that an end handed over, unless captures are begun into it: so the recordings have it.
    pub fn discard(&self, graph: CUgraph) {
        if !self.is_kept(graph) {
            // SAFETY: the driver has handed the graph over, and nobody else has it.
            log_drop(unsafe { call!(cuGraphDestroy(graph)) });
        }
    }

    fn handle(&self, stream: Option<Stream>) -> CUstream {
        match stream {
            Some(Stream::Created(id)) => self.streams[id.index()].unwrap_or(ptr::null_mut()),
            Some(Stream::PerThread) => ptr::without_provenance_mut(PER_THREAD),
            Some(Stream::Legacy) | None => ptr::without_provenance_mut(LEGACY),
        }
    }

    /// Makes a call on this thread.
    pub fn perform(&mut self, recorder: &Recorder, asked: &Call) -> Answer {
        let stream = self.handle(asked.stream);
        let event = asked.event.and_then(|id| self.events[id.index()]).unwrap_or(ptr::null_mut());
        let (mut ended, mut previous) = (None, None);
        let [a, b] = [0, 1].map(|at| recorder.memory[at].address());
        let pinned = recorder.pinned.address() as usize as *mut c_void;
        let pageable = recorder.pageable.as_ptr().cast_mut().cast::<c_void>();
        let host = if asked.flags.pageable { pageable } else { pinned };
        const BYTES: usize = 64;
        use Function as F;
        // SAFETY: the handles are of things that live, or were destroyed by the program itself, which generated programs do not
        // go on to use; memory, function and graph are the recorder's, large enough, and live longer than any work on them: the
        // program ends by waiting for it. Nobody reads the memory.
        let result = unsafe {
            match asked.function {
                F::StreamBeginCapture => {
                    call!(cuStreamBeginCapture_v2(stream, mode_of(asked.mode)))
                }
                F::StreamBeginCaptureToGraph => self.begin_into(stream, asked.mode),
                F::StreamEndCapture => {
                    let mut graph = ptr::null_mut();
                    let done = call!(cuStreamEndCapture(stream, &mut graph));
                    ended = done.is_ok().then_some(graph);
                    done
                }
                F::LaunchKernel => {
                    let (function, none) = (recorder.kernel.handle(), ptr::null_mut());
                    call!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none))
                }
                F::MemsetD8Async => call!(cuMemsetD8Async(a, 0, BYTES, stream)),
                F::LaunchHostFunc => {
                    call!(cuLaunchHostFunc(stream, Some(nothing_on_host), NO_DATA))
                }
                F::StreamAddCallback => {
                    call!(cuStreamAddCallback(stream, Some(nothing_on_stream), NO_DATA, 0))
                }
                F::MemcpyDtoDAsync => call!(cuMemcpyDtoDAsync_v2(b, a, BYTES, stream)),
                F::MemcpyHtoDAsync => call!(cuMemcpyHtoDAsync_v2(a, host, BYTES, stream)),
                F::MemcpyDtoHAsync => call!(cuMemcpyDtoHAsync_v2(host, a, BYTES, stream)),
                F::EventRecord | F::EventRecordWithFlags => {
                    let flags = if asked.flags.external { RECORD_EXTERNAL } else { 0 };
                    call!(cuEventRecordWithFlags(event, stream, flags))
                }
                F::StreamWaitEvent => {
                    let flags = if asked.flags.external { WAIT_EXTERNAL } else { 0 };
                    call!(cuStreamWaitEvent(stream, event, flags))
                }
                F::StreamSynchronize => call!(cuStreamSynchronize(stream)),
                F::StreamQuery => call!(cuStreamQuery(stream)),
                F::EventSynchronize => call!(cuEventSynchronize(event)),
                F::EventQuery => call!(cuEventQuery(event)),
                F::CtxSynchronize => call!(cuCtxSynchronize()),
                F::MemAlloc => {
                    let mut address = 0;
                    let done = call!(cuMemAlloc_v2(&mut address, BYTES));
                    self.allocated.extend(done.is_ok().then_some(address));
                    done
                }
                F::MemcpyDtoD => call!(cuMemcpyDtoD_v2(b, a, BYTES)),
                F::MemAllocAsync => {
                    let mut address = 0;
                    let done = call!(cuMemAllocAsync(&mut address, BYTES, stream));
                    // In recordings a name stands for what the last allocation gave that was not refused.
                    if let (Ok(()), Some(name)) = (&done, asked.memory) {
                        self.pool.insert(name, address);
                    }
                    done
                }
                F::MemFreeAsync => {
                    let address = asked.memory.and_then(|name| self.pool.get(&name));
                    call!(cuMemFreeAsync(address.copied().unwrap_or(0), stream))
                }
                F::GraphLaunch => call!(cuGraphLaunch(recorder.launched.handle(), stream)),
                F::StreamUpdateCaptureDependencies => self.update(stream, asked),
                F::ThreadExchangeStreamCaptureMode => {
                    let mut mode = mode_of(asked.mode);
                    let done = call!(cuThreadExchangeStreamCaptureMode(&mut mode));
                    previous = Some(match mode {
                        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL => Mode::Global,
                        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => {
                            Mode::ThreadLocal
                        }
                        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => Mode::Relaxed,
                    });
                    done
                }
                F::StreamCreate => self.create_stream(asked),
                F::StreamDestroy => {
                    if let Some(Stream::Created(id)) = asked.stream {
                        self.streams[id.index()] = None;
                    }
                    call!(cuStreamDestroy_v2(stream))
                }
                F::EventCreate => {
                    let mut event = ptr::null_mut();
                    let done = call!(cuEventCreate(&mut event, EVENT_FLAGS));
                    if let (Ok(()), Some(id)) = (&done, asked.event) {
                        self.events[id.index()] = Some(event);
                    }
                    done
                }
                F::EventDestroy => {
                    if let Some(id) = asked.event {
                        self.events[id.index()] = None;
                    }
                    call!(cuEventDestroy_v2(event))
                }
                other => unreachable!("`supported` lets no {other} through"),
            }
        };
        let result = match result {
            Ok(()) => CuResult::SUCCESS,
            Err(error) if error.code == CUresult::CUDA_ERROR_NOT_READY as u32 => CuResult::SUCCESS,
            Err(error) => CuResult(error.code),
        };
        Answer { result, ended, previous }
    }

    /// # Safety
    /// The stream lives.
    unsafe fn begin_into(
        &mut self,
        stream: CUstream,
        mode: Option<Mode>,
    ) -> Result<(), DriverError> {
        let graph = match self.user {
            Some(graph) => graph,
            None => {
                let mut graph = ptr::null_mut();
                // SAFETY: 0 is the only flag there is.
                unsafe { call!(cuGraphCreate(&mut graph, 0)) }?;
                *self.user.insert(graph)
            }
        };
        let none = ptr::null();
        // SAFETY: the caller's promise. A capture that did not end well has destroyed the graph; that the driver then says so
        // is part of what is recorded.
        unsafe {
            call!(cuStreamBeginCaptureToGraph(stream, graph, none, ptr::null(), 0, mode_of(mode)))
        }
    }

    /// # Safety
    /// The stream lives.
    unsafe fn update(&mut self, stream: CUstream, asked: &Call) -> Result<(), DriverError> {
        // SAFETY: the caller's promise, of every stream of the program.
        let mut nodes: Vec<_> = match unsafe { CaptureInfo::of(self.handle(asked.from)) }? {
            CaptureInfo::Active { after, .. } => after.iter().map(|(node, _)| node).collect(),
            CaptureInfo::None | CaptureInfo::Invalidated => Vec::new(),
        };
        use CUstreamUpdateCaptureDependencies_flags as D;
        let flags = if asked.flags.add {
            D::CU_STREAM_ADD_CAPTURE_DEPENDENCIES
        } else {
            D::CU_STREAM_SET_CAPTURE_DEPENDENCIES
        };
        let (start, count) = (nodes.as_mut_ptr(), nodes.len());
        // SAFETY: the caller's promise; the nodes are of an open capture.
        unsafe {
            call!(cuStreamUpdateCaptureDependencies_v2(
                stream,
                start,
                ptr::null(),
                count,
                flags as u32
            ))
        }
    }

    fn create_stream(&mut self, asked: &Call) -> Result<(), DriverError> {
        let Some(Stream::Created(id)) = asked.stream else { return Ok(()) };
        let mut stream = ptr::null_mut();
        // SAFETY: a context is current.
        unsafe { call!(cuStreamCreate(&mut stream, flags_of(self.kinds[id.index()]))) }?;
        self.streams[id.index()] = Some(stream);
        Ok(())
    }

    /// Closes what is open and gives everything back.
    pub fn finish(self, recorder: &Recorder) -> Result<(), RecordError> {
        // SAFETY: all handles are this value's own. Destroying the stream that began a capture closes it, so that nothing is open
        // after the streams are gone. What the pool gave and the program did not free, 64 bytes each, goes with the process.
        unsafe {
            for stream in self.streams.into_iter().flatten() {
                log_drop(call!(cuStreamDestroy_v2(stream)));
            }
            for event in self.events.into_iter().flatten() {
                log_drop(call!(cuEventDestroy_v2(event)));
            }
            recorder.device.synchronize()?;
            for address in self.allocated {
                log_drop(call!(cuMemFree_v2(address)));
            }
        }
        Ok(())
    }
}

pub(super) const RECORD_EXTERNAL: u32 = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
pub(super) const WAIT_EXTERNAL: u32 = CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL as u32;
const EVENT_FLAGS: u32 = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;

pub(super) fn flags_of(kind: StreamKind) -> u32 {
    match kind {
        StreamKind::Blocking => CUstream_flags::CU_STREAM_DEFAULT as u32,
        StreamKind::NonBlocking => CUstream_flags::CU_STREAM_NON_BLOCKING as u32,
    }
}

pub(super) fn mode_of(mode: Option<Mode>) -> CUstreamCaptureMode {
    match mode {
        None | Some(Mode::Global) => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        Some(Mode::ThreadLocal) => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        Some(Mode::Relaxed) => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}

/// What a stream's callback calls.
pub(super) unsafe extern "C" fn nothing_on_stream(
    _stream: CUstream,
    _status: CUresult,
    _data: *mut c_void,
) {
}
