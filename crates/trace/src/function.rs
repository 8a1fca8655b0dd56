//! The driver functions that a call may name: streams, events, memory, modules, execution, graphs and contexts of CUDA 13.

use std::fmt;

macro_rules! functions {
    ($($name:ident)*) => {
        /// A driver function, by its base name: versioned and per-thread forms (`_v2`, `_ptsz`, …) are the same function.
        ///
        /// Called without its `cu`, so `cuMemAlloc` is `Function::MemAlloc`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Function { $($name,)* }

        impl Function {
            /// Every function, in the order of the reference's chapters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }

        const NAMES: &[&str] = &[$(concat!("cu", stringify!($name)),)*];
    };
}

functions! {
    // Streams.
    StreamCreate StreamCreateWithPriority StreamDestroy StreamGetPriority StreamGetFlags StreamGetId StreamGetDevice StreamGetCtx
    StreamWaitEvent StreamAddCallback StreamBeginCapture StreamBeginCaptureToGraph ThreadExchangeStreamCaptureMode
    StreamEndCapture StreamIsCapturing StreamGetCaptureInfo StreamUpdateCaptureDependencies StreamAttachMemAsync StreamQuery
    StreamSynchronize StreamCopyAttributes StreamGetAttribute StreamSetAttribute StreamWaitValue32 StreamWaitValue64
    StreamWriteValue32 StreamWriteValue64 StreamBatchMemOp StreamGetGreenCtx
    // Events.
    EventCreate EventRecord EventRecordWithFlags EventQuery EventSynchronize EventDestroy EventElapsedTime
    // Memory.
    MemGetInfo MemAlloc MemAllocPitch MemFree MemGetAddressRange MemAllocHost MemFreeHost MemHostAlloc MemHostGetDevicePointer
    MemHostGetFlags MemAllocManaged MemHostRegister MemHostUnregister IpcGetEventHandle IpcOpenEventHandle IpcGetMemHandle
    IpcOpenMemHandle IpcCloseMemHandle Memcpy MemcpyPeer MemcpyHtoD MemcpyDtoH MemcpyDtoD MemcpyDtoA MemcpyAtoD MemcpyHtoA
    MemcpyAtoH MemcpyAtoA Memcpy2D Memcpy2DUnaligned Memcpy3D Memcpy3DPeer MemcpyAsync MemcpyPeerAsync MemcpyHtoDAsync
    MemcpyDtoHAsync MemcpyDtoDAsync MemcpyHtoAAsync MemcpyAtoHAsync Memcpy2DAsync Memcpy3DAsync Memcpy3DPeerAsync
    MemcpyBatchAsync Memcpy3DBatchAsync MemsetD8 MemsetD16 MemsetD32 MemsetD2D8 MemsetD2D16 MemsetD2D32 MemsetD8Async
    MemsetD16Async MemsetD32Async MemsetD2D8Async MemsetD2D16Async MemsetD2D32Async ArrayCreate ArrayGetDescriptor
    ArrayGetSparseProperties ArrayGetMemoryRequirements ArrayGetPlane ArrayDestroy Array3DCreate Array3DGetDescriptor
    MipmappedArrayCreate MipmappedArrayGetLevel MipmappedArrayGetMemoryRequirements MipmappedArrayGetSparseProperties MipmappedArrayDestroy MemGetHandleForAddressRange MemAddressReserve
    MemAddressFree MemCreate MemRelease MemMap MemMapArrayAsync MemUnmap MemSetAccess MemGetAccess MemExportToShareableHandle
    MemImportFromShareableHandle MemGetAllocationGranularity MemGetAllocationPropertiesFromHandle MemRetainAllocationHandle
    MemAllocAsync MemAllocFromPoolAsync MemFreeAsync MemPoolCreate MemPoolDestroy MemPoolTrimTo MemPoolSetAttribute
    MemPoolGetAttribute MemPoolSetAccess MemPoolGetAccess MemPoolExportToShareableHandle MemPoolImportFromShareableHandle
    MemPoolExportPointer MemPoolImportPointer DeviceGetDefaultMemPool DeviceGetMemPool DeviceSetMemPool PointerGetAttribute
    PointerGetAttributes PointerSetAttribute MemPrefetchAsync MemPrefetchBatchAsync MemDiscardBatchAsync MemAdvise
    MemRangeGetAttribute MemRangeGetAttributes MemGetDefaultMemPool MemGetMemPool MemSetMemPool MemDiscardAndPrefetchBatchAsync
    MemBatchDecompressAsync
    // Modules and libraries.
    ModuleLoad ModuleLoadData ModuleLoadDataEx ModuleLoadFatBinary ModuleUnload ModuleGetLoadingMode ModuleGetFunction
    ModuleGetFunctionCount ModuleEnumerateFunctions ModuleGetGlobal LinkCreate LinkAddData LinkAddFile LinkComplete LinkDestroy
    LibraryLoadData LibraryLoadFromFile LibraryUnload LibraryGetKernel LibraryGetKernelCount LibraryEnumerateKernels
    LibraryGetModule LibraryGetGlobal LibraryGetManaged LibraryGetUnifiedFunction KernelGetFunction KernelGetLibrary
    KernelGetAttribute KernelSetAttribute KernelSetCacheConfig KernelGetName KernelGetParamInfo ModuleGetTexRef ModuleGetSurfRef
    // Execution and occupancy.
    FuncGetAttribute FuncSetAttribute FuncSetCacheConfig FuncSetSharedMemConfig FuncGetModule FuncGetName FuncGetParamInfo FuncIsLoaded FuncLoad
    LaunchKernel LaunchKernelEx LaunchCooperativeKernel LaunchHostFunc OccupancyMaxActiveBlocksPerMultiprocessor
    OccupancyMaxActiveBlocksPerMultiprocessorWithFlags OccupancyMaxPotentialBlockSize OccupancyMaxPotentialBlockSizeWithFlags
    OccupancyAvailableDynamicSMemPerBlock OccupancyMaxPotentialClusterSize OccupancyMaxActiveClusters
    // Graphs.
    GraphCreate GraphDestroy GraphClone GraphNodeFindInClone GraphNodeGetType GraphGetNodes GraphGetRootNodes GraphGetEdges
    GraphNodeGetDependencies GraphNodeGetDependentNodes GraphAddDependencies GraphRemoveDependencies GraphAddNode
    GraphDestroyNode GraphNodeSetParams GraphAddKernelNode GraphKernelNodeGetParams GraphKernelNodeSetParams
    GraphKernelNodeCopyAttributes GraphKernelNodeGetAttribute GraphKernelNodeSetAttribute GraphAddMemcpyNode
    GraphMemcpyNodeGetParams GraphMemcpyNodeSetParams GraphAddMemsetNode GraphMemsetNodeGetParams GraphMemsetNodeSetParams
    GraphAddHostNode GraphHostNodeGetParams GraphHostNodeSetParams GraphAddChildGraphNode GraphChildGraphNodeGetGraph
    GraphAddEmptyNode GraphAddEventRecordNode GraphEventRecordNodeGetEvent GraphEventRecordNodeSetEvent GraphAddEventWaitNode
    GraphEventWaitNodeGetEvent GraphEventWaitNodeSetEvent GraphAddExternalSemaphoresSignalNode
    GraphAddExternalSemaphoresWaitNode GraphExternalSemaphoresSignalNodeGetParams GraphExternalSemaphoresSignalNodeSetParams
    GraphExternalSemaphoresWaitNodeGetParams GraphExternalSemaphoresWaitNodeSetParams
    GraphExecExternalSemaphoresSignalNodeSetParams GraphExecExternalSemaphoresWaitNodeSetParams GraphAddBatchMemOpNode GraphBatchMemOpNodeGetParams GraphBatchMemOpNodeSetParams
    GraphAddMemAllocNode GraphMemAllocNodeGetParams GraphAddMemFreeNode GraphMemFreeNodeGetParams GraphConditionalHandleCreate
    GraphDebugDotPrint GraphInstantiate GraphInstantiateWithFlags GraphInstantiateWithParams GraphExecGetFlags GraphUpload
    GraphLaunch GraphExecDestroy GraphExecUpdate GraphExecNodeSetParams GraphExecKernelNodeSetParams
    GraphExecMemcpyNodeSetParams GraphExecMemsetNodeSetParams GraphExecHostNodeSetParams GraphExecChildGraphNodeSetParams
    GraphExecEventRecordNodeSetEvent GraphExecEventWaitNodeSetEvent GraphExecBatchMemOpNodeSetParams GraphNodeSetEnabled
    GraphNodeGetEnabled DeviceGetGraphMemAttribute DeviceSetGraphMemAttribute DeviceGraphMemTrim UserObjectCreate
    UserObjectRetain UserObjectRelease GraphRetainUserObject GraphReleaseUserObject
    // Contexts.
    CtxCreate CtxDestroy CtxSynchronize CtxGetCurrent CtxSetCurrent CtxPushCurrent CtxPopCurrent CtxGetDevice CtxGetFlags CtxGetId
    CtxGetLimit CtxSetLimit CtxGetCacheConfig CtxSetCacheConfig CtxGetStreamPriorityRange CtxGetApiVersion
    CtxResetPersistingL2Cache CtxRecordEvent CtxWaitEvent CtxSetFlags CtxGetExecAffinity CtxGetSharedMemConfig CtxSetSharedMemConfig
    CtxEnablePeerAccess CtxDisablePeerAccess DevicePrimaryCtxRetain DevicePrimaryCtxRelease DevicePrimaryCtxReset
    DevicePrimaryCtxGetState DevicePrimaryCtxSetFlags
}

const SUFFIXES: &[&str] = &["_ptsz", "_ptds", "_v2", "_v3", "_v4"];

impl Function {
    /// The name in the driver's headers, without a version.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The function of a name as the headers or a loaded library spell it (`cuMemAlloc_v2`, `cuLaunchKernel_ptsz`).
    ///
    /// ```
    /// use phonograph_trace::Function;
    ///
    /// assert_eq!(Function::from_name("cuMemAlloc_v2"), Some(Function::MemAlloc));
    /// assert_eq!(Function::from_name("cuNothing"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        let mut base = name;
        while let Some(shorter) = SUFFIXES.iter().find_map(|suffix| base.strip_suffix(suffix)) {
            base = shorter;
        }
        NAMES.iter().position(|known| *known == base).map(|position| Self::ALL[position])
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
