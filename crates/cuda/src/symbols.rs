//! Every function of the driver, of NVRTC, of cuBLAS and of CUPTI that this crate calls.
//!
//! The loader looks each of them up before the first call, because the bindings panic on one that is missing. A test
//! compares the lists with the calls in the sources.

/// Functions of the driver.
pub(crate) const DRIVER: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxGetStreamPriorityRange",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncGetName",
    "cuFuncGetParamInfo",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphAddDependencies_v2",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddNode_v2",
    "cuGraphChildGraphNodeGetGraph",
    "cuGraphConditionalHandleCreate",
    "cuGraphCreate",
    "cuGraphDebugDotPrint",
    "cuGraphDestroy",
    "cuGraphEventRecordNodeGetEvent",
    "cuGraphEventWaitNodeGetEvent",
    "cuGraphExecDestroy",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphExecMemsetNodeSetParams",
    "cuGraphExecUpdate_v2",
    "cuGraphGetEdges_v2",
    "cuGraphGetNodes",
    "cuGraphHostNodeGetParams",
    "cuGraphInstantiateWithParams",
    "cuGraphKernelNodeCopyAttributes",
    "cuGraphKernelNodeGetAttribute",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphKernelNodeSetAttribute",
    "cuGraphLaunch",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams",
    "cuGraphNodeGetType",
    "cuGraphNodeSetEnabled",
    "cuGraphRemoveDependencies_v2",
    "cuGraphUpload",
    "cuInit",
    "cuIpcGetEventHandle",
    "cuKernelGetName",
    "cuKernelGetParamInfo",
    "cuLaunchCooperativeKernel",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocHost_v2",
    "cuMemAllocManaged",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAccess",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemPrefetchAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemcpy3DAsync_v2",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD2D8Async",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuMemsetD8_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuPointerGetAttribute",
    "cuStreamAddCallback",
    "cuStreamAttachMemAsync",
    "cuStreamBeginCaptureToGraph",
    "cuStreamBeginCapture_v2",
    "cuStreamCopyAttributes",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamGetCtx",
    "cuStreamGetFlags",
    "cuStreamGetId",
    "cuStreamGetPriority",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamUpdateCaptureDependencies_v2",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
    "cuThreadExchangeStreamCaptureMode",
];

/// Functions of NVRTC.
pub(crate) const NVRTC: &[&str] = &[
    "nvrtcCompileProgram",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetPTX",
    "nvrtcGetPTXSize",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcVersion",
];

/// Functions of cuBLAS.
pub(crate) const CUBLAS: &[&str] = &[
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasGemmStridedBatchedEx",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
];

/// Functions of CUPTI.
pub(crate) const CUPTI: &[&str] = &[
    "cuptiActivityDisable",
    "cuptiActivityEnable",
    "cuptiActivityFlushAll",
    "cuptiActivityGetNextRecord",
    "cuptiActivityGetNumDroppedRecords",
    "cuptiActivityRegisterCallbacks",
    "cuptiEnableCallback",
    "cuptiGetGraphNodeId",
    "cuptiGetVersion",
    "cuptiSubscribe",
    "cuptiUnsubscribe",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{CUBLAS, CUPTI, DRIVER, NVRTC};

    /// The functions that the sources of the crate call, or look up by name: `prefix…` before a bracket or a quote.
    fn called(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                called(&path, prefix, found);
                continue;
            }
            if path.ends_with("symbols.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices(prefix) {
                let bare = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
                let rest = &text[at..];
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
                let function = rest[prefix.len()..].starts_with(|c: char| c.is_ascii_uppercase());
                if !bare && function && rest[end..].starts_with(['(', '"']) {
                    found.insert(rest[..end].to_owned());
                }
            }
        }
    }

    #[test]
    fn the_lists_name_every_function_that_is_called() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        if !sources.exists() {
            return eprintln!("skipped: the sources are not on this machine");
        }
        let lists = [("cu", DRIVER), ("nvrtc", NVRTC), ("cublas", CUBLAS), ("cupti", CUPTI)];
        for (prefix, list) in lists {
            let mut found = BTreeSet::new();
            called(&sources, prefix, &mut found);
            let listed: BTreeSet<String> = list.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(listed.len(), list.len(), "a name is listed twice");
            assert!(list.is_sorted(), "the list is kept sorted");
            assert_eq!(listed, found);
        }
    }
}
