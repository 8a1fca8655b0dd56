//! Every function of the driver, of NVRTC, of cuBLAS and of CUPTI that this crate calls.
//!
//! The loader looks each of them up before the first call, because the bindings panic on one that is missing; what only one
//! feature calls is asked for when the feature is used. A test compares the lists with the calls in the sources.

/// Functions of the driver that everything needs: the loader refuses a driver that lacks one.
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
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
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
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphExecMemsetNodeSetParams",
    "cuGraphInstantiateWithParams",
    "cuGraphKernelNodeSetAttribute",
    "cuGraphLaunch",
    "cuGraphNodeSetEnabled",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAccess",
    "cuMemPoolSetAttribute",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuPointerGetAttributes",
    "cuStreamBeginCapture_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamGetPriority",
    "cuStreamSynchronize",
    "cuStreamUpdateCaptureDependencies_v2",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// What graphs that others made need beside those.
pub(crate) const FOREIGN: &[&str] = &[
    "cuFuncGetName",
    "cuGraphDebugDotPrint",
    "cuGraphDestroyNode",
    "cuGraphEventRecordNodeGetEvent",
    "cuGraphEventWaitNodeGetEvent",
    "cuGraphGetEdges_v2",
    "cuGraphGetNodes",
    "cuGraphHostNodeGetParams",
    "cuGraphKernelNodeCopyAttributes",
    "cuGraphKernelNodeGetAttribute",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams",
    "cuGraphNodeGetType",
    "cuGraphRemoveDependencies_v2",
    "cuKernelGetAttribute",
    "cuKernelGetName",
    "cuKernelGetParamInfo",
    "cuKernelSetAttribute",
    "cuMemsetD32Async",
    "cuStreamQuery",
];

/// What timing nodes without CUPTI needs beside those that everything needs.
pub(crate) const TIMING: &[&str] = &["cuEventElapsedTime_v2"];

/// What asking a device for recordings needs beside all of those.
pub(crate) const RECORD: &[&str] = &[
    "cuDeviceGetDefaultMemPool",
    "cuEventQuery",
    "cuEventRecordWithFlags",
    "cuGraphExecUpdate_v2",
    "cuIpcGetEventHandle",
    "cuLaunchCooperativeKernel",
    "cuLaunchHostFunc",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemAllocHost_v2",
    "cuMemAllocManaged",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemPoolTrimTo",
    "cuMemPrefetchAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemcpy3DAsync_v2",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD2D8Async",
    "cuMemsetD8_v2",
    "cuModuleLoadData",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuPointerGetAttribute",
    "cuStreamAddCallback",
    "cuStreamAttachMemAsync",
    "cuStreamBeginCaptureToGraph",
    "cuStreamCopyAttributes",
    "cuStreamCreate",
    "cuStreamGetCtx",
    "cuStreamGetFlags",
    "cuStreamGetId",
    "cuStreamIsCapturing",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
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

    use super::{CUBLAS, CUPTI, DRIVER, FOREIGN, NVRTC, RECORD, TIMING};

    /// The functions that the sources under a path call, or look up by name: `prefix…` before a bracket or a quote. Without
    /// the folders that are left out.
    fn called(path: &Path, prefix: &str, without: &[&str]) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                if !without.iter().any(|left_out| path.ends_with(left_out)) {
                    found.extend(called(&path, prefix, without));
                }
            }
            return found;
        }
        if path.ends_with("symbols.rs") {
            return found;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for (at, _) in text.match_indices(prefix) {
            let bare = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let rest = &text[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
            let function = rest[prefix.len()..].starts_with(|c: char| c.is_ascii_uppercase());
            if !bare && function && rest[end..].starts_with(['(', '"']) {
                found.insert(rest[..end].to_owned());
            }
        }
        found
    }

    #[test]
    fn the_lists_name_every_function_that_is_called() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        if !sources.exists() {
            return eprintln!("skipped: the sources are not on this machine");
        }
        let check = |list: &[&str], found: BTreeSet<String>| {
            let listed: BTreeSet<String> = list.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(listed.len(), list.len(), "a name is listed twice");
            assert!(list.is_sorted(), "the list is kept sorted");
            assert_eq!(listed, found);
        };
        for (prefix, list) in [("nvrtc", NVRTC), ("cublas", CUBLAS), ("cupti", CUPTI)] {
            check(list, called(&sources, prefix, &[]));
        }
        // What only the folder of a feature calls is asked for when the feature is used.
        let everywhere = called(&sources, "cu", &["foreign", "profile", "record"]);
        let within = |folder: &str, without: &[&BTreeSet<String>]| {
            let mut found = called(&sources.join(folder), "cu", &[]);
            found.retain(|name| !without.iter().any(|list| list.contains(name)));
            found
        };
        let foreign = within("foreign", &[&everywhere]);
        let timing = within("profile", &[&everywhere]);
        check(RECORD, within("record", &[&everywhere, &foreign]));
        check(FOREIGN, foreign);
        check(TIMING, timing);
        check(DRIVER, everywhere);
    }
}
