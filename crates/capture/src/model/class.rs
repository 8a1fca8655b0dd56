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
/// assert_eq!(class(Function::ArrayDestroy), (Class::Unsafe, Evidence::Documented));
/// ```
pub fn class(function: Function) -> (Class, Evidence) {
    use Class::*;
    use Evidence::{Documented, Recorded};
    use Function as F;
    match function {
        // Recorded: call_matrix.jsonl, call_matrix_settled.jsonl, call_nodes.jsonl, capture.jsonl.gz.
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
        | F::GraphExecDestroy => (Unsafe, Recorded),
        F::GraphInstantiate => (Instantiates, Recorded),
        F::MemGetInfo
        | F::ModuleLoadData
        | F::GraphCreate
        | F::GraphExecUpdate
        | F::FuncSetAttribute
        | F::OccupancyMaxActiveBlocksPerMultiprocessor
        | F::PointerGetAttribute
        | F::CtxGetStreamPriorityRange
        | F::StreamGetPriority
        | F::StreamGetCtx
        | F::StreamCopyAttributes
        | F::DeviceGetDefaultMemPool => (Harmless, Recorded),
        F::LaunchKernel | F::LaunchKernelEx | F::LaunchCooperativeKernel => {
            (Work(NodeKind::Kernel), Recorded)
        }
        F::MemcpyAsync
        | F::MemcpyHtoDAsync
        | F::MemcpyDtoHAsync
        | F::MemcpyDtoDAsync
        | F::Memcpy2DAsync
        | F::Memcpy3DAsync => (Work(NodeKind::Memcpy), Recorded),
        F::MemsetD8Async | F::MemsetD32Async | F::MemsetD2D8Async => {
            (Work(NodeKind::Memset), Recorded)
        }
        F::LaunchHostFunc => (Work(NodeKind::Host), Recorded),
        F::StreamWriteValue32 | F::StreamWaitValue32 => (Work(NodeKind::BatchMemOp), Recorded),
        F::MemPrefetchAsync
        | F::StreamAttachMemAsync
        | F::StreamAddCallback
        | F::GraphLaunch
        | F::GraphUpload
        | F::StreamGetFlags
        | F::StreamGetId
        | F::MemcpyPeerAsync => (Uncapturable, Recorded),
        F::StreamQuery | F::StreamSynchronize => (WaitsOnStream, Recorded),
        F::EventQuery | F::EventSynchronize => (WaitsOnEvent, Recorded),
        F::CtxSynchronize => (WaitsOnContext, Recorded),
        F::MemcpyHtoD | F::MemcpyDtoH | F::MemcpyDtoD | F::MemsetD8 => (TouchesLegacy, Recorded),
        F::StreamIsCapturing => (AsksForCapture, Recorded),
        F::StreamBeginCapture => (BeginCapture, Recorded),
        F::StreamBeginCaptureToGraph => (BeginCaptureToGraph, Recorded),
        F::StreamEndCapture => (EndCapture, Recorded),
        F::EventRecord | F::EventRecordWithFlags => (RecordEvent, Recorded),
        F::StreamWaitEvent => (WaitEvent, Recorded),
        F::MemAllocAsync | F::MemAllocFromPoolAsync => (AllocAsync, Recorded),
        F::MemFreeAsync => (FreeAsync, Recorded),
        F::StreamUpdateCaptureDependencies => (UpdateDependencies, Recorded),
        F::ThreadExchangeStreamCaptureMode => (ExchangeMode, Recorded),
        F::StreamCreate => (CreateStream, Recorded),
        F::StreamDestroy => (DestroyStream, Recorded),
        F::EventCreate => (CreateEvent, Recorded),
        F::EventDestroy => (DestroyEvent, Recorded),
        F::IpcGetEventHandle => (ExportsEvent, Recorded),

        // Documented. Allocation, mapping and freeing may wait for the device or need work of the driver's own, like their recorded
        // relatives; so may destroying what work in flight may use.
        F::MemAllocPitch
        | F::IpcOpenEventHandle
        | F::IpcOpenMemHandle
        | F::IpcCloseMemHandle
        | F::ArrayCreate
        | F::ArrayDestroy
        | F::Array3DCreate
        | F::MipmappedArrayCreate
        | F::MipmappedArrayDestroy
        | F::MemCreate
        | F::MemRelease
        | F::MemMap
        | F::MemUnmap
        | F::MemSetAccess
        | F::LibraryUnload
        | F::DeviceGraphMemTrim
        | F::CtxDestroy
        | F::DevicePrimaryCtxRelease
        | F::DevicePrimaryCtxReset
        | F::CtxSetLimit
        | F::CtxResetPersistingL2Cache => (Unsafe, Documented),
        F::Memcpy3DPeerAsync
        | F::MemMapArrayAsync
        | F::MemPrefetchBatchAsync
        | F::MemDiscardBatchAsync => (Uncapturable, Documented),
        F::CtxRecordEvent | F::CtxWaitEvent => (WaitsOnContext, Documented),
        F::MemcpyHtoAAsync | F::MemcpyAtoHAsync | F::MemcpyBatchAsync | F::Memcpy3DBatchAsync => {
            (Work(NodeKind::Memcpy), Documented)
        }
        F::MemsetD16Async | F::MemsetD2D16Async | F::MemsetD2D32Async => {
            (Work(NodeKind::Memset), Documented)
        }
        F::StreamWaitValue64 | F::StreamWriteValue64 | F::StreamBatchMemOp => {
            (Work(NodeKind::BatchMemOp), Documented)
        }
        F::Memcpy
        | F::MemcpyPeer
        | F::MemcpyDtoA
        | F::MemcpyAtoD
        | F::MemcpyHtoA
        | F::MemcpyAtoH
        | F::MemcpyAtoA
        | F::Memcpy2D
        | F::Memcpy2DUnaligned
        | F::Memcpy3D
        | F::Memcpy3DPeer
        | F::MemsetD16
        | F::MemsetD32
        | F::MemsetD2D8
        | F::MemsetD2D16
        | F::MemsetD2D32 => (TouchesLegacy, Documented),
        F::StreamGetCaptureInfo => (AsksForCapture, Documented),
        F::GraphInstantiateWithFlags | F::GraphInstantiateWithParams => (Instantiates, Documented),
        F::GraphDestroy => (DestroyGraph, Recorded),
        F::GraphAddKernelNode => (AddsNode(NodeKind::Kernel), Documented),
        F::GraphAddMemcpyNode => (AddsNode(NodeKind::Memcpy), Documented),
        F::GraphAddMemsetNode => (AddsNode(NodeKind::Memset), Documented),
        F::GraphAddHostNode => (AddsNode(NodeKind::Host), Documented),
        F::GraphAddEmptyNode => (AddsNode(NodeKind::Empty), Documented),
        F::GraphAddChildGraphNode => (AddsNode(NodeKind::ChildGraph), Documented),
        F::GraphAddMemAllocNode => (AddsNode(NodeKind::MemAlloc), Documented),
        F::GraphAddMemFreeNode => (AddsNode(NodeKind::MemFree), Documented),
        F::GraphAddNode => (AddsNode(NodeKind::Conditional), Documented),
        F::GraphAddDependencies => (AddsEdge, Documented),
        F::GraphGetEdges | F::GraphNodeGetDependencies | F::GraphNodeGetDependentNodes => {
            (AsksForEdges, Documented)
        }
        F::StreamCreateWithPriority => (CreateStream, Documented),
        F::StreamGetDevice
        | F::StreamGetAttribute
        | F::StreamSetAttribute
        | F::EventElapsedTime
        | F::MemGetAddressRange
        | F::MemHostGetDevicePointer
        | F::MemHostGetFlags
        | F::IpcGetMemHandle
        | F::ArrayGetDescriptor
        | F::ArrayGetSparseProperties
        | F::ArrayGetMemoryRequirements
        | F::ArrayGetPlane
        | F::Array3DGetDescriptor
        | F::MipmappedArrayGetLevel
        | F::MemGetHandleForAddressRange
        | F::MemAddressReserve
        | F::MemAddressFree
        | F::MemGetAccess
        | F::MemExportToShareableHandle
        | F::MemImportFromShareableHandle
        | F::MemGetAllocationGranularity
        | F::MemGetAllocationPropertiesFromHandle
        | F::MemRetainAllocationHandle
        | F::MemPoolCreate
        | F::MemPoolSetAttribute
        | F::MemPoolGetAttribute
        | F::MemPoolSetAccess
        | F::MemPoolGetAccess
        | F::MemPoolExportToShareableHandle
        | F::MemPoolImportFromShareableHandle
        | F::MemPoolExportPointer
        | F::MemPoolImportPointer
        | F::DeviceGetMemPool
        | F::DeviceSetMemPool
        | F::PointerGetAttributes
        | F::PointerSetAttribute
        | F::MemAdvise
        | F::MemRangeGetAttribute
        | F::MemRangeGetAttributes
        | F::ModuleLoad
        | F::ModuleLoadDataEx
        | F::ModuleLoadFatBinary
        | F::ModuleGetLoadingMode
        | F::ModuleGetFunction
        | F::ModuleGetFunctionCount
        | F::ModuleEnumerateFunctions
        | F::ModuleGetGlobal
        | F::LinkCreate
        | F::LinkAddData
        | F::LinkAddFile
        | F::LinkComplete
        | F::LinkDestroy
        | F::LibraryLoadData
        | F::LibraryLoadFromFile
        | F::LibraryGetKernel
        | F::LibraryGetKernelCount
        | F::LibraryEnumerateKernels
        | F::LibraryGetModule
        | F::LibraryGetGlobal
        | F::LibraryGetManaged
        | F::LibraryGetUnifiedFunction
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
        | F::OccupancyMaxActiveClusters
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
        | F::GraphEventRecordNodeGetEvent
        | F::GraphEventRecordNodeSetEvent
        | F::GraphAddEventWaitNode
        | F::GraphEventWaitNodeGetEvent
        | F::GraphEventWaitNodeSetEvent
        | F::GraphAddExternalSemaphoresSignalNode
        | F::GraphAddExternalSemaphoresWaitNode
        | F::GraphAddBatchMemOpNode
        | F::GraphBatchMemOpNodeGetParams
        | F::GraphBatchMemOpNodeSetParams
        | F::GraphMemAllocNodeGetParams
        | F::GraphMemFreeNodeGetParams
        | F::GraphConditionalHandleCreate
        | F::GraphDebugDotPrint
        | F::GraphExecGetFlags
        | F::GraphExecNodeSetParams
        | F::GraphExecKernelNodeSetParams
        | F::GraphExecMemcpyNodeSetParams
        | F::GraphExecMemsetNodeSetParams
        | F::GraphExecHostNodeSetParams
        | F::GraphExecChildGraphNodeSetParams
        | F::GraphExecEventRecordNodeSetEvent
        | F::GraphExecEventWaitNodeSetEvent
        | F::GraphExecBatchMemOpNodeSetParams
        | F::GraphNodeSetEnabled
        | F::GraphNodeGetEnabled
        | F::DeviceGetGraphMemAttribute
        | F::DeviceSetGraphMemAttribute
        | F::UserObjectCreate
        | F::UserObjectRetain
        | F::UserObjectRelease
        | F::GraphRetainUserObject
        | F::GraphReleaseUserObject
        | F::CtxCreate
        | F::CtxGetCurrent
        | F::CtxSetCurrent
        | F::CtxPushCurrent
        | F::CtxPopCurrent
        | F::CtxGetDevice
        | F::CtxGetFlags
        | F::CtxGetId
        | F::CtxGetLimit
        | F::CtxGetCacheConfig
        | F::CtxSetCacheConfig
        | F::CtxGetApiVersion
        | F::DevicePrimaryCtxRetain => (Harmless, Documented),
    }
}
