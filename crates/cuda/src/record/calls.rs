//! The calls of the tables, each by its name there without `cu`.

use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUfunction_attribute,
    CUgraphExecUpdateResultInfo, CUipcEventHandle, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig, CUmemAttach_flags, CUmemLocation, CUmemLocationType,
    CUmemorytype, CUpointer_attribute, CUstream, CUstreamCaptureStatus, CUstreamWaitValue_flags,
};

use super::perform::{LEGACY, RECORD_EXTERNAL, WAIT_EXTERNAL, nothing_on_stream};
use super::scene::{BYTES, PAGE, Scene};
use super::{NO_DATA, nothing_on_host};
use crate::device::zeroed;
use crate::error::{DriverError, call};

/// Destroys what was made last; what a refusal leaves is given back later.
fn destroy<T: Copy>(
    made: &mut Vec<T>,
    destroy: impl FnOnce(T) -> Result<(), DriverError>,
) -> Result<(), DriverError> {
    let Some(last) = made.pop() else { unreachable!("a scene is made with one of each") };
    let done = destroy(last);
    if done.is_err() {
        made.push(last);
    }
    done
}

impl Scene<'_> {
    pub fn kernel(&self) -> Result<(), DriverError> {
        self.launch(self.capturing)
    }

    fn launch(&self, stream: CUstream) -> Result<(), DriverError> {
        let (function, none) = (self.recorder.kernel.handle(), ptr::null_mut());
        // SAFETY: function and stream live; there are no parameters.
        unsafe { call!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none)) }
    }

    fn launch_with(&self, attribute: Option<CUlaunchAttribute>) -> Result<(), DriverError> {
        let mut attributes: Vec<CUlaunchAttribute> = attribute.into_iter().collect();
        let config = CUlaunchConfig {
            gridDimX: 2,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: self.capturing,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        let (function, none) = (self.recorder.kernel.handle(), ptr::null_mut());
        // SAFETY: the configuration and its attributes live during the call; there are no parameters.
        unsafe { call!(cuLaunchKernelEx(&config, function, none, none)) }
    }

    /// Makes a call beside the capture; `None` for one that is not known.
    pub fn beside(&self, name: &str) -> Option<Result<(), DriverError>> {
        let [a, b] = [0, 1].map(|at| self.recorder.memory[at].address());
        let pinned =
            ptr::with_exposed_provenance_mut::<c_void>(self.recorder.pinned.address() as usize);
        let pageable = self.recorder.pageable.as_ptr().cast_mut().cast::<c_void>();
        let (other, legacy) = (self.other.handle(), ptr::without_provenance_mut(LEGACY));
        let (recorded, fresh) = (self.recorded.handle(), self.fresh.handle());
        let function = self.recorder.kernel.handle();
        let device = self.recorder.device.ordinal() as i32;
        let mut made = self.made();
        // SAFETY: all handles live until the scene is over; the memory is large enough for what is copied, and nobody reads it;
        // what is written through pointers is local. What a call makes is noted, to be given back.
        Some(unsafe {
            match name.strip_prefix("cu")? {
                "MemAlloc" => {
                    let mut address = 0;
                    let done = call!(cuMemAlloc_v2(&mut address, BYTES));
                    made.memory.extend(done.is_ok().then_some(address));
                    done
                }
                "MemAllocHost" => {
                    let mut start = ptr::null_mut();
                    let done = call!(cuMemAllocHost_v2(&mut start, BYTES));
                    made.host.extend(done.is_ok().then(|| start.expose_provenance()));
                    done
                }
                "MemAllocManaged" => {
                    let mut address = 0;
                    let attach = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
                    let done = call!(cuMemAllocManaged(&mut address, BYTES, attach));
                    made.memory.extend(done.is_ok().then_some(address));
                    done
                }
                "MemGetInfo" => {
                    let (mut free, mut total) = (0, 0);
                    call!(cuMemGetInfo_v2(&mut free, &mut total))
                }
                "ModuleLoadData" => {
                    let text = CString::new(super::KERNELS).unwrap_or_default();
                    let mut module = ptr::null_mut();
                    let done = call!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
                    made.modules.extend(done.is_ok().then(|| module.expose_provenance()));
                    done
                }
                "StreamCreate" => {
                    let mut stream = ptr::null_mut();
                    let done = call!(cuStreamCreate(&mut stream, 1));
                    made.streams.extend(done.is_ok().then(|| stream.expose_provenance()));
                    done
                }
                "EventCreate" => {
                    let mut event = ptr::null_mut();
                    let done = call!(cuEventCreate(&mut event, 0));
                    made.events.extend(done.is_ok().then(|| event.expose_provenance()));
                    done
                }
                "EventQuery(never recorded)" => call!(cuEventQuery(fresh)),
                "EventQuery(recorded before)" => call!(cuEventQuery(recorded)),
                "EventSynchronize(recorded before)" => call!(cuEventSynchronize(recorded)),
                "EventRecord(other stream)" => call!(cuEventRecord(fresh, other)),
                "StreamWaitEvent(other, recorded before)" => {
                    call!(cuStreamWaitEvent(other, recorded, 0))
                }
                "StreamQuery(other)" => call!(cuStreamQuery(other)),
                "StreamSynchronize(other)" => call!(cuStreamSynchronize(other)),
                "StreamSynchronize(legacy)" => call!(cuStreamSynchronize(legacy)),
                "CtxSynchronize" => call!(cuCtxSynchronize()),
                "LaunchKernel(other)" => self.launch(other),
                "LaunchKernel(legacy)" => self.launch(legacy),
                "MemcpyDtoD" => call!(cuMemcpyDtoD_v2(b, a, BYTES)),
                "MemcpyHtoD(pinned)" => call!(cuMemcpyHtoD_v2(a, pinned, BYTES)),
                "MemcpyHtoD(pageable)" => call!(cuMemcpyHtoD_v2(a, pageable, BYTES)),
                "MemcpyDtoH(pageable)" => call!(cuMemcpyDtoH_v2(pageable, a, BYTES)),
                "MemcpyHtoDAsync(other, pageable)" => {
                    call!(cuMemcpyHtoDAsync_v2(a, pageable, BYTES, other))
                }
                "MemsetD8" => call!(cuMemsetD8_v2(a, 0, BYTES)),
                "MemAllocAsync(other)" => {
                    let mut address = 0;
                    let done = call!(cuMemAllocAsync(&mut address, BYTES, other));
                    made.memory.extend(done.is_ok().then_some(address));
                    done
                }
                "GraphLaunch(other)" => {
                    call!(cuGraphLaunch(self.recorder.launched.handle(), other))
                }
                "GraphUpload(other)" => {
                    call!(cuGraphUpload(self.recorder.launched.handle(), other))
                }
                "GraphInstantiate" => {
                    let mut executable = ptr::null_mut();
                    let mut params = zeroed::<CUDA_GRAPH_INSTANTIATE_PARAMS>();
                    let graph = self.spare_graph.handle();
                    let done =
                        call!(cuGraphInstantiateWithParams(&mut executable, graph, &mut params));
                    made.executables.extend(done.is_ok().then(|| executable.expose_provenance()));
                    done
                }
                "GraphCreate" => {
                    let mut graph = ptr::null_mut();
                    let done = call!(cuGraphCreate(&mut graph, 0));
                    made.graphs.extend(done.is_ok().then(|| graph.expose_provenance()));
                    done
                }
                "GraphExecUpdate" => {
                    let mut info = MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
                    let (executable, graph) = (self.spare.handle(), self.spare_graph.handle());
                    call!(cuGraphExecUpdate_v2(executable, graph, info.as_mut_ptr()))
                }
                "FuncSetAttribute(shared)" => {
                    use CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as WHICH;
                    call!(cuFuncSetAttribute(function, WHICH, 1024))
                }
                "OccupancyMaxActiveBlocks" => {
                    let mut blocks = 0;
                    call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 32, 0))
                }
                "PointerGetAttribute" => {
                    use CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as WHICH;
                    let mut kind = 0u32;
                    call!(cuPointerGetAttribute((&raw mut kind).cast(), WHICH, a))
                }
                "DeviceGetDefaultMemPool+trim" => {
                    let mut pool = ptr::null_mut();
                    call!(cuDeviceGetDefaultMemPool(&mut pool, device))
                        .and_then(|()| call!(cuMemPoolTrimTo(pool, 0)))
                }
                "CtxGetStreamPriorityRange" => {
                    let (mut least, mut greatest) = (0, 0);
                    call!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest))
                }
                "StreamIsCapturing(legacy)" => {
                    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
                    call!(cuStreamIsCapturing(legacy, &mut status))
                }
                "MemHostRegister" => {
                    let start = self.pages.as_ptr().cast_mut().cast::<c_void>();
                    let done = call!(cuMemHostRegister_v2(start, PAGE, 0));
                    made.registered.extend(done.is_ok().then(|| start.expose_provenance()));
                    done
                }
                "MemHostAlloc" => {
                    let mut start = ptr::null_mut();
                    let done = call!(cuMemHostAlloc(&mut start, BYTES, 0));
                    made.host.extend(done.is_ok().then(|| start.expose_provenance()));
                    done
                }
                "MemFree" => destroy(&mut made.memory, |address| call!(cuMemFree_v2(address))),
                "MemFreeHost" => destroy(&mut made.host, |start| {
                    call!(cuMemFreeHost(ptr::with_exposed_provenance_mut(start)))
                }),
                "MemHostUnregister" => destroy(&mut made.registered, |start| {
                    call!(cuMemHostUnregister(ptr::with_exposed_provenance_mut(start)))
                }),
                "MemFreeAsync(other, pool memory from before)" => {
                    let done = call!(cuMemFreeAsync(self.pool, other));
                    self.pool_is_free.store(done.is_ok(), Ordering::Relaxed);
                    done
                }
                "MemPoolDestroy" => destroy(&mut made.pools, |pool| {
                    call!(cuMemPoolDestroy(ptr::with_exposed_provenance_mut(pool)))
                }),
                "StreamDestroy(another)" => destroy(&mut made.streams, |stream| {
                    call!(cuStreamDestroy_v2(ptr::with_exposed_provenance_mut(stream)))
                }),
                "EventDestroy" => destroy(&mut made.events, |event| {
                    call!(cuEventDestroy_v2(ptr::with_exposed_provenance_mut(event)))
                }),
                "ModuleUnload" => destroy(&mut made.modules, |module| {
                    call!(cuModuleUnload(ptr::with_exposed_provenance_mut(module)))
                }),
                "GraphDestroy" => destroy(&mut made.graphs, |graph| {
                    call!(cuGraphDestroy(ptr::with_exposed_provenance_mut(graph)))
                }),
                "GraphExecDestroy" => destroy(&mut made.executables, |executable| {
                    call!(cuGraphExecDestroy(ptr::with_exposed_provenance_mut(executable)))
                }),
                "IpcGetEventHandle" => {
                    let mut handle = zeroed::<CUipcEventHandle>();
                    call!(cuIpcGetEventHandle(&mut handle, recorded))
                }
                _ => return None,
            }
        })
    }

    /// Makes a call on the capturing stream; `None` for one that is not known.
    pub fn on_stream(&self, name: &str) -> Option<Result<(), DriverError>> {
        let s = self.capturing;
        let [a, b] = [0, 1].map(|at| self.recorder.memory[at].address());
        let pinned =
            ptr::with_exposed_provenance_mut::<c_void>(self.recorder.pinned.address() as usize);
        let pageable = self.recorder.pageable.as_ptr().cast_mut().cast::<c_void>();
        let (recorded, fresh) = (self.recorded.handle(), self.fresh.handle());
        let function = self.recorder.kernel.handle();
        let context = self.recorder.device.context();
        let attribute = |id, set: fn(&mut CUlaunchAttributeValue)| {
            let mut value = CUlaunchAttributeValue { pad: [0; 64] };
            set(&mut value);
            Some(CUlaunchAttribute { id, pad: [0; 4], value })
        };
        use CUlaunchAttributeID as A;
        // SAFETY: as for `beside`.
        Some(unsafe {
            match name.strip_prefix("cu")? {
                "LaunchKernel" => self.kernel(),
                "LaunchKernelEx(programmatic stream serialization)" => self.launch_with(attribute(
                    A::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                    |v| {
                        v.programmaticStreamSerializationAllowed = 1;
                    },
                )),
                "LaunchKernelEx(cluster 2)" => {
                    self.launch_with(attribute(A::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, |v| {
                        v.clusterDim.x = 2;
                        v.clusterDim.y = 1;
                        v.clusterDim.z = 1;
                    }))
                }
                "LaunchKernelEx(priority)" => {
                    self.launch_with(attribute(A::CU_LAUNCH_ATTRIBUTE_PRIORITY, |v| {
                        v.priority = -1;
                    }))
                }
                "LaunchCooperativeKernel" => {
                    let none = ptr::null_mut();
                    call!(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, s, none))
                }
                "MemcpyAsync(device)" => call!(cuMemcpyAsync(b, a, BYTES, s)),
                "MemcpyHtoDAsync(pinned)" => call!(cuMemcpyHtoDAsync_v2(a, pinned, BYTES, s)),
                "MemcpyHtoDAsync(pageable)" => {
                    call!(cuMemcpyHtoDAsync_v2(a, pageable, BYTES, s))
                }
                "MemcpyDtoHAsync(pageable)" => {
                    call!(cuMemcpyDtoHAsync_v2(pageable, a, BYTES, s))
                }
                "Memcpy2DAsync" => {
                    let copy = CUDA_MEMCPY2D {
                        srcXInBytes: 0,
                        srcY: 0,
                        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                        srcHost: ptr::null(),
                        srcDevice: a,
                        srcArray: ptr::null_mut(),
                        srcPitch: 64,
                        dstXInBytes: 0,
                        dstY: 0,
                        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                        dstHost: ptr::null_mut(),
                        dstDevice: b,
                        dstArray: ptr::null_mut(),
                        dstPitch: 64,
                        WidthInBytes: 16,
                        Height: 2,
                    };
                    call!(cuMemcpy2DAsync_v2(&copy, s))
                }
                "Memcpy3DAsync" => {
                    let mut copy = MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
                    let fields = copy.as_mut_ptr();
                    (&raw mut (*fields).srcMemoryType).write(CUmemorytype::CU_MEMORYTYPE_DEVICE);
                    (&raw mut (*fields).dstMemoryType).write(CUmemorytype::CU_MEMORYTYPE_DEVICE);
                    let mut copy = copy.assume_init();
                    (copy.srcDevice, copy.dstDevice) = (a, b);
                    (copy.srcPitch, copy.dstPitch) = (64, 64);
                    (copy.srcHeight, copy.dstHeight) = (2, 2);
                    (copy.WidthInBytes, copy.Height, copy.Depth) = (16, 2, 2);
                    call!(cuMemcpy3DAsync_v2(&copy, s))
                }
                "MemcpyDtoDAsync(0 bytes)" => call!(cuMemcpyDtoDAsync_v2(b, a, 0, s)),
                "MemsetD8Async" => call!(cuMemsetD8Async(a, 0, BYTES, s)),
                "MemsetD32Async" => call!(cuMemsetD32Async(a, 0, 4, s)),
                "MemsetD2D8Async" => call!(cuMemsetD2D8Async(a, 64, 0, 16, 2, s)),
                "MemsetD8Async(0 bytes)" => call!(cuMemsetD8Async(a, 0, 0, s)),
                "MemPrefetchAsync(managed)" => {
                    let mut place = zeroed::<CUmemLocation>();
                    place.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
                    place.id = self.recorder.device.ordinal() as i32;
                    call!(cuMemPrefetchAsync_v2(self.managed, BYTES, place, 0, s))
                }
                "StreamAttachMemAsync" => {
                    let attach = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
                    call!(cuStreamAttachMemAsync(s, self.managed, BYTES, attach))
                }
                "StreamWriteValue32" => call!(cuStreamWriteValue32_v2(s, a, 1, 0)),
                "StreamWaitValue32" => {
                    let at_least = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
                    call!(cuStreamWaitValue32_v2(s, a, 0, at_least))
                }
                "LaunchHostFunc" => call!(cuLaunchHostFunc(s, Some(nothing_on_host), NO_DATA)),
                "StreamAddCallback" => {
                    call!(cuStreamAddCallback(s, Some(nothing_on_stream), NO_DATA, 0))
                }
                "MemAllocAsync" => {
                    let mut address = 0;
                    call!(cuMemAllocAsync(&mut address, BYTES, s))
                }
                "MemAllocFromPoolAsync" => {
                    let (mut address, pool) = (0, self.recorder.device.pool());
                    call!(cuMemAllocFromPoolAsync(&mut address, BYTES, pool, s))
                }
                "MemFreeAsync(pool memory from before)" => call!(cuMemFreeAsync(self.pool, s)),
                "GraphLaunch" => call!(cuGraphLaunch(self.recorder.launched.handle(), s)),
                "GraphUpload" => call!(cuGraphUpload(self.recorder.launched.handle(), s)),
                "EventRecord" => call!(cuEventRecord(fresh, s)),
                "EventRecordWithFlags(external)" => {
                    call!(cuEventRecordWithFlags(recorded, s, RECORD_EXTERNAL))
                }
                "StreamWaitEvent(external, never recorded)" => {
                    call!(cuStreamWaitEvent(s, fresh, WAIT_EXTERNAL))
                }
                "StreamQuery" => call!(cuStreamQuery(s)),
                "StreamSynchronize" => call!(cuStreamSynchronize(s)),
                "StreamGetFlags" => {
                    let mut flags = 0;
                    call!(cuStreamGetFlags(s, &mut flags))
                }
                "StreamGetPriority" => {
                    let mut priority = 0;
                    call!(cuStreamGetPriority(s, &mut priority))
                }
                "StreamGetId" => {
                    let mut id = 0;
                    call!(cuStreamGetId(s, &mut id))
                }
                "StreamGetCtx" => {
                    let mut found = ptr::null_mut();
                    call!(cuStreamGetCtx(s, &mut found))
                }
                "StreamCopyAttributes(from other)" => {
                    call!(cuStreamCopyAttributes(s, self.other.handle()))
                }
                "MemcpyPeerAsync(same device)" => {
                    call!(cuMemcpyPeerAsync(b, context, a, context, BYTES, s))
                }
                _ => return None,
            }
        })
    }
}
