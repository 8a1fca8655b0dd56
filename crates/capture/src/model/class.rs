//! What a driver function means to captures: one class for each function, from which the model derives every answer.
//!
//! [`class`] is exhaustive: a function added to [`Function`] does not compile until it has a class here. [`Evidence`] says whether
//! the class was recorded on a device or is what the driver's documentation says; reports pass that on.

use phonograph_trace::Function;

/// The kind of node that a captured call becomes, named as recordings name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NodeKind {
    /// A kernel.
    Kernel,
    /// A copy, of any direction and dimension.
    Memcpy,
    /// A memset, 1-D or 2-D.
    Memset,
    /// A host function.
    Host,
    /// An external event record.
    EventRecord,
    /// An external event wait.
    WaitEvent,
    /// A stream-ordered allocation.
    MemAlloc,
    /// The free of an allocation.
    MemFree,
    /// Waits for values or writes of values.
    BatchMemOp,
    /// Nothing: a point that others are ordered by.
    Empty,
    /// A whole graph.
    ChildGraph,
    /// Bodies that run or not.
    Conditional,
}

impl NodeKind {
    /// The name in recordings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Memcpy => "memcpy",
            Self::Memset => "memset",
            Self::Host => "host",
            Self::EventRecord => "event_record",
            Self::WaitEvent => "wait_event",
            Self::MemAlloc => "mem_alloc",
            Self::MemFree => "mem_free",
            Self::BatchMemOp => "batch_mem_op",
            Self::Empty => "empty",
            Self::ChildGraph => "child_graph",
            Self::Conditional => "conditional",
        }
    }
}

/// What a call means to captures.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Allowed at any time, no effect on any capture.
    Harmless,
    /// Potentially unsafe: barred by captures that are not relaxed (R20).
    Unsafe,
    /// Work on a stream, which a capture turns into a node of this kind (R6, R10, R11, R18).
    Work(NodeKind),
    /// Work on a stream, or a question about one, that no capture can hold (R12).
    Uncapturable,
    /// Waits for a stream or asks whether it is done (R12, R18, R20).
    WaitsOnStream,
    /// Does to a stream what no capture can hold and what is potentially unsafe elsewhere (R12, R18, R20).
    UnsafeOnStream,
    /// A batch of copies: refused on a capturing stream without breaking the capture, and never on the legacy stream.
    BatchOfCopies,
    /// A batch of prefetches or discards: breaks the capture of its stream (R12), and is never on the legacy stream.
    BatchOfHints,
    /// Measures the time between events.
    TimesEvent,
    /// Asks for or sets a property of a stream: harmless, but on the legacy stream (R18).
    OfStream,
    /// Waits for an event or asks whether it is done (R13, R20, R22).
    WaitsOnEvent,
    /// Waits for everything in the context (R23).
    WaitsOnContext,
    /// Works on the legacy stream without naming it (R18, R19).
    TouchesLegacy,
    /// Asks whether a stream is capturing: refused for the legacy stream where R18 would refuse, but harmless.
    AsksForCapture,
    /// Begins a capture (R1, R2).
    BeginCapture,
    /// Begins a capture into a graph (R3, R4, R5).
    BeginCaptureToGraph,
    /// Ends a capture (R9).
    EndCapture,
    /// Records an event (R14, R15, R17).
    RecordEvent,
    /// Makes a stream wait for an event (R13, R16, R17).
    WaitEvent,
    /// Allocates from a pool, in stream order (R24).
    AllocAsync,
    /// Frees in stream order (R25).
    FreeAsync,
    /// Sets or adds to the dependency set of a capturing stream (R26).
    UpdateDependencies,
    /// Sets the mode of the calling thread (R27).
    ExchangeMode,
    /// Makes a stream of that name anew.
    CreateStream,
    /// Destroys a stream (R28).
    DestroyStream,
    /// Makes an event of that name anew.
    CreateEvent,
    /// Destroys an event (R29).
    DestroyEvent,
    /// Destroys a graph; allocations of a graph that is gone cannot be freed (R25c).
    DestroyGraph,
    /// Adds a node of this kind to a graph that is built by hand.
    AddsNode(NodeKind),
    /// Adds an edge to a graph that is built by hand.
    AddsEdge,
    /// Asks for the edges of a graph.
    AsksForEdges,
    /// Makes a graph executable: potentially unsafe (R20), and refused if a conditional's body holds what it cannot.
    Instantiates,
    /// Destroys an executable graph: potentially unsafe (R20).
    DestroysExecutable,
    /// Exports an event, which has to be made for it: the events here are not, so it is refused and harmless.
    ExportsEvent,
}

/// Where a class comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// A real driver answered so.
    Recorded,
    /// The documentation says so; no recording has the function.
    Documented,
}

/// The class of a function, and where it comes from. A table look-up.
///
/// ```
/// use phonograph_capture::model::{Class, Evidence, class};
/// use phonograph_trace::Function;
///
/// assert_eq!(class(Function::MemAlloc), (Class::Unsafe, Evidence::Recorded));
/// assert_eq!(class(Function::IpcOpenMemHandle), (Class::Unsafe, Evidence::Documented));
/// ```
pub fn class(function: Function) -> (Class, Evidence) {
    use Class::*;
    use Evidence::{Documented, Recorded};
    use Function as F;
    match function {
        // Recorded: call_matrix*.jsonl, call_nodes*.jsonl, capture*.jsonl, among the tests' data.
        F::MemAlloc
        | F::MemAllocHost
        | F::MemAllocManaged
        | F::MemHostRegister
        | F::MemPoolTrimTo
        | F::MemFree
        | F::MemFreeHost
        | F::MemHostAlloc
        | F::MemHostUnregister
        | F::MemPoolDestroy
        | F::ModuleUnload
        | F::MemAllocPitch
        | F::ArrayCreate
        | F::ArrayDestroy
        | F::Array3DCreate
        | F::MipmappedArrayCreate
        | F::MipmappedArrayDestroy
        | F::MemPoolCreate
        | F::MemPoolSetAttribute
        | F::MemPoolGetAttribute
        | F::MemPoolSetAccess
        | F::MemPoolGetAccess
        | F::MemPoolExportToShareableHandle
        | F::MemPoolImportFromShareableHandle
        | F::MemPoolExportPointer
        | F::DeviceSetMemPool
        | F::PointerSetAttribute
        | F::MemAdvise
        | F::LibraryUnload
        | F::CtxSetLimit
        | F::CtxSetCacheConfig
        | F::CtxSetSharedMemConfig
        | F::MemSetMemPool => (Unsafe, Recorded),
        F::GraphInstantiate | F::GraphInstantiateWithFlags | F::GraphInstantiateWithParams => {
            (Instantiates, Recorded)
        }
        F::EventElapsedTime => (TimesEvent, Recorded),
        F::MemGetInfo
        | F::ModuleLoadData
        | F::GraphCreate
        | F::GraphExecUpdate
        | F::FuncSetAttribute
        | F::OccupancyMaxActiveBlocksPerMultiprocessor
        | F::PointerGetAttribute
        | F::CtxGetStreamPriorityRange
        | F::DeviceGetDefaultMemPool
        | F::ArrayGetDescriptor
        | F::Array3DGetDescriptor
        | F::MipmappedArrayGetLevel
        | F::MemCreate
        | F::MemRelease
        | F::MemAddressReserve
        | F::MemAddressFree
        | F::MemMap
        | F::MemUnmap
        | F::MemSetAccess
        | F::MemGetAccess
        | F::MemRetainAllocationHandle
        | F::MemGetAllocationGranularity
        | F::MemGetAllocationPropertiesFromHandle
        | F::MemExportToShareableHandle
        | F::MemImportFromShareableHandle
        | F::MemGetHandleForAddressRange
        | F::MemGetAddressRange
        | F::MemHostGetDevicePointer
        | F::MemHostGetFlags
        | F::IpcGetMemHandle
        | F::DeviceGetMemPool
        | F::PointerGetAttributes
        | F::MemRangeGetAttribute
        | F::ModuleLoadDataEx
        | F::ModuleLoad
        | F::ModuleGetLoadingMode
        | F::ModuleGetFunction
        | F::ModuleGetFunctionCount
        | F::ModuleEnumerateFunctions
        | F::ModuleGetGlobal
        | F::LinkCreate
        | F::LinkAddData
        | F::LinkComplete
        | F::LinkDestroy
        | F::LibraryLoadData
        | F::LibraryGetKernel
        | F::LibraryGetKernelCount
        | F::LibraryEnumerateKernels
        | F::LibraryGetModule
        | F::LibraryGetGlobal
        | F::KernelGetFunction
        | F::KernelGetLibrary
        | F::KernelGetAttribute
        | F::KernelSetAttribute
        | F::KernelSetCacheConfig
        | F::KernelGetName
        | F::KernelGetParamInfo
        | F::FuncGetAttribute
        | F::FuncSetCacheConfig
        | F::FuncGetModule
        | F::FuncGetName
        | F::FuncGetParamInfo
        | F::FuncIsLoaded
        | F::FuncLoad
        | F::OccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        | F::OccupancyMaxPotentialBlockSize
        | F::OccupancyMaxPotentialBlockSizeWithFlags
        | F::OccupancyAvailableDynamicSMemPerBlock
        | F::OccupancyMaxPotentialClusterSize
        | F::GraphClone
        | F::GraphNodeFindInClone
        | F::GraphNodeGetType
        | F::GraphGetNodes
        | F::GraphGetRootNodes
        | F::GraphRemoveDependencies
        | F::GraphDestroyNode
        | F::GraphNodeSetParams
        | F::GraphKernelNodeGetParams
        | F::GraphKernelNodeSetParams
        | F::GraphKernelNodeCopyAttributes
        | F::GraphKernelNodeGetAttribute
        | F::GraphKernelNodeSetAttribute
        | F::GraphMemcpyNodeGetParams
        | F::GraphMemcpyNodeSetParams
        | F::GraphMemsetNodeGetParams
        | F::GraphMemsetNodeSetParams
        | F::GraphHostNodeGetParams
        | F::GraphHostNodeSetParams
        | F::GraphChildGraphNodeGetGraph
        | F::GraphAddEventRecordNode
        | F::GraphAddEventWaitNode
        | F::GraphEventRecordNodeGetEvent
        | F::GraphEventRecordNodeSetEvent
        | F::GraphAddBatchMemOpNode
        | F::GraphMemAllocNodeGetParams
        | F::GraphDebugDotPrint
        | F::GraphConditionalHandleCreate
        | F::GraphExecGetFlags
        | F::GraphExecNodeSetParams
        | F::GraphExecKernelNodeSetParams
        | F::GraphExecMemcpyNodeSetParams
        | F::GraphExecMemsetNodeSetParams
        | F::GraphExecHostNodeSetParams
        | F::GraphExecEventRecordNodeSetEvent
        | F::GraphExecChildGraphNodeSetParams
        | F::GraphNodeSetEnabled
        | F::GraphNodeGetEnabled
        | F::DeviceGetGraphMemAttribute
        | F::DeviceSetGraphMemAttribute
        | F::DeviceGraphMemTrim
        | F::UserObjectCreate
        | F::UserObjectRetain
        | F::UserObjectRelease
        | F::GraphRetainUserObject
        | F::GraphReleaseUserObject
        | F::CtxCreate
        | F::CtxDestroy
        | F::CtxGetCurrent
        | F::CtxSetCurrent
        | F::CtxPushCurrent
        | F::CtxPopCurrent
        | F::CtxGetDevice
        | F::CtxGetFlags
        | F::CtxGetId
        | F::CtxGetLimit
        | F::CtxGetCacheConfig
        | F::CtxGetApiVersion
        | F::CtxResetPersistingL2Cache
        | F::DevicePrimaryCtxRetain
        | F::DevicePrimaryCtxRelease
        | F::MemRangeGetAttributes
        | F::MemGetDefaultMemPool
        | F::MemGetMemPool
        | F::LibraryLoadFromFile
        | F::LinkAddFile
        | F::OccupancyMaxActiveClusters
        | F::GraphBatchMemOpNodeGetParams
        | F::GraphBatchMemOpNodeSetParams
        | F::GraphExecBatchMemOpNodeSetParams
        | F::GraphEventWaitNodeGetEvent
        | F::GraphEventWaitNodeSetEvent
        | F::GraphExecEventWaitNodeSetEvent
        | F::GraphMemFreeNodeGetParams
        | F::CtxSetFlags
        | F::CtxGetExecAffinity
        | F::CtxGetSharedMemConfig
        | F::FuncSetSharedMemConfig
        | F::DevicePrimaryCtxGetState
        | F::DevicePrimaryCtxSetFlags
        | F::ArrayGetSparseProperties
        | F::ArrayGetMemoryRequirements
        | F::MipmappedArrayGetMemoryRequirements => (Harmless, Recorded),
        F::StreamGetPriority
        | F::StreamGetCtx
        | F::StreamGetAttribute
        | F::StreamSetAttribute
        | F::StreamGetGreenCtx
        | F::StreamCopyAttributes => (OfStream, Recorded),
        F::LaunchKernel | F::LaunchKernelEx | F::LaunchCooperativeKernel => {
            (Work(NodeKind::Kernel), Recorded)
        }
        F::MemcpyAsync
        | F::MemcpyHtoDAsync
        | F::MemcpyDtoHAsync
        | F::MemcpyDtoDAsync
        | F::Memcpy2DAsync
        | F::Memcpy3DAsync
        | F::MemcpyHtoAAsync
        | F::MemcpyAtoHAsync => (Work(NodeKind::Memcpy), Recorded),
        F::MemsetD8Async
        | F::MemsetD16Async
        | F::MemsetD32Async
        | F::MemsetD2D8Async
        | F::MemsetD2D16Async
        | F::MemsetD2D32Async => (Work(NodeKind::Memset), Recorded),
        F::LaunchHostFunc => (Work(NodeKind::Host), Recorded),
        F::StreamWriteValue32
        | F::StreamWaitValue32
        | F::StreamWriteValue64
        | F::StreamWaitValue64
        | F::StreamBatchMemOp => (Work(NodeKind::BatchMemOp), Recorded),
        F::StreamAttachMemAsync => (UnsafeOnStream, Recorded),
        F::MemcpyBatchAsync | F::Memcpy3DBatchAsync => (BatchOfCopies, Recorded),
        F::MemPrefetchBatchAsync | F::MemDiscardBatchAsync | F::MemDiscardAndPrefetchBatchAsync => {
            (BatchOfHints, Recorded)
        }
        F::MemPrefetchAsync
        | F::Memcpy3DPeerAsync
        | F::StreamGetDevice
        | F::StreamAddCallback
        | F::GraphLaunch
        | F::GraphUpload
        | F::StreamGetFlags
        | F::StreamGetId
        | F::MemcpyPeerAsync => (Uncapturable, Recorded),
        F::StreamQuery | F::StreamSynchronize => (WaitsOnStream, Recorded),
        F::EventQuery | F::EventSynchronize => (WaitsOnEvent, Recorded),
        F::CtxSynchronize | F::CtxRecordEvent | F::CtxWaitEvent => (WaitsOnContext, Recorded),
        F::Memcpy
        | F::MemcpyPeer
        | F::MemcpyHtoD
        | F::MemcpyDtoH
        | F::MemcpyDtoD
        | F::MemcpyDtoA
        | F::MemcpyAtoD
        | F::MemcpyHtoA
        | F::MemcpyAtoH
        | F::MemcpyAtoA
        | F::Memcpy2D
        | F::Memcpy2DUnaligned
        | F::Memcpy3D
        | F::Memcpy3DPeer
        | F::MemsetD8
        | F::MemsetD16
        | F::MemsetD32
        | F::MemsetD2D8
        | F::MemsetD2D16
        | F::MemsetD2D32 => (TouchesLegacy, Recorded),
        F::StreamIsCapturing | F::StreamGetCaptureInfo => (AsksForCapture, Recorded),
        F::StreamBeginCapture => (BeginCapture, Recorded),
        F::StreamBeginCaptureToGraph => (BeginCaptureToGraph, Recorded),
        F::StreamEndCapture => (EndCapture, Recorded),
        F::EventRecord | F::EventRecordWithFlags => (RecordEvent, Recorded),
        F::StreamWaitEvent => (WaitEvent, Recorded),
        F::MemAllocAsync | F::MemAllocFromPoolAsync => (AllocAsync, Recorded),
        F::MemFreeAsync => (FreeAsync, Recorded),
        F::StreamUpdateCaptureDependencies => (UpdateDependencies, Recorded),
        F::ThreadExchangeStreamCaptureMode => (ExchangeMode, Recorded),
        F::StreamCreate | F::StreamCreateWithPriority => (CreateStream, Recorded),
        F::StreamDestroy => (DestroyStream, Recorded),
        F::EventCreate => (CreateEvent, Recorded),
        F::EventDestroy => (DestroyEvent, Recorded),
        F::GraphDestroy => (DestroyGraph, Recorded),
        F::GraphExecDestroy => (DestroysExecutable, Recorded),
        // Beside a capture: harmless. What they do to graphs is documented.
        F::GraphAddKernelNode => (AddsNode(NodeKind::Kernel), Recorded),
        F::GraphAddMemcpyNode => (AddsNode(NodeKind::Memcpy), Recorded),
        F::GraphAddMemsetNode => (AddsNode(NodeKind::Memset), Recorded),
        F::GraphAddHostNode => (AddsNode(NodeKind::Host), Recorded),
        F::GraphAddEmptyNode => (AddsNode(NodeKind::Empty), Recorded),
        F::GraphAddChildGraphNode => (AddsNode(NodeKind::ChildGraph), Recorded),
        F::GraphAddMemAllocNode => (AddsNode(NodeKind::MemAlloc), Recorded),
        F::GraphAddMemFreeNode => (AddsNode(NodeKind::MemFree), Recorded),
        F::GraphAddNode => (AddsNode(NodeKind::Conditional), Recorded),
        F::GraphAddDependencies => (AddsEdge, Recorded),
        F::GraphGetEdges | F::GraphNodeGetDependencies | F::GraphNodeGetDependentNodes => {
            (AsksForEdges, Recorded)
        }
        F::IpcGetEventHandle => (ExportsEvent, Recorded),

        // Documented. Allocation, mapping and freeing may wait for the device or need work of the driver's own, like their recorded
        // relatives; so may destroying what work in flight may use.
        F::IpcOpenEventHandle
        | F::IpcOpenMemHandle
        | F::IpcCloseMemHandle
        | F::MemPoolImportPointer
        | F::CtxEnablePeerAccess
        | F::CtxDisablePeerAccess
        | F::DevicePrimaryCtxReset => (Unsafe, Documented),
        F::MemMapArrayAsync | F::MemBatchDecompressAsync => (Uncapturable, Documented),
        F::ArrayGetPlane
        | F::MipmappedArrayGetSparseProperties
        | F::ModuleGetTexRef
        | F::ModuleGetSurfRef
        | F::GraphExternalSemaphoresSignalNodeGetParams
        | F::GraphExternalSemaphoresSignalNodeSetParams
        | F::GraphExternalSemaphoresWaitNodeGetParams
        | F::GraphExternalSemaphoresWaitNodeSetParams
        | F::GraphExecExternalSemaphoresSignalNodeSetParams
        | F::GraphExecExternalSemaphoresWaitNodeSetParams
        | F::ModuleLoadFatBinary
        | F::LibraryGetManaged
        | F::LibraryGetUnifiedFunction
        | F::GraphAddExternalSemaphoresSignalNode
        | F::GraphAddExternalSemaphoresWaitNode => (Harmless, Documented),
    }
}
