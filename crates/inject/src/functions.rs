//! Which driver functions are recorded, when, and where their arguments lie.
//!
//! CUPTI numbers the functions, with numbers that stay as they are from version to version, and hands over a pointer to the
//! arguments, laid out as a C structure that belongs to the number. Both are written down here by hand; `layout.rs` compares
//! them with a toolkit's headers where there is one.

use phonograph_trace::live::Operand::{self, *};

/// A driver function.
pub struct Function {
    /// CUPTI's number for it.
    pub id: u32,
    /// CUPTI's number for the form that takes 0 as the thread's own default stream; 0 if there is none.
    pub per_thread: u32,
    /// Its name, with its version.
    pub name: &'static str,
    /// When it is recorded.
    pub when: When,
    /// Where its arguments lie.
    pub operands: &'static [Location],
}

/// When calls of a function are recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always: later captures may depend on it.
    Always,
    /// While a capture is open, and when it fails; otherwise it is counted.
    Inside,
}

/// Where an argument lies; offsets are in bytes.
#[derive(Clone, Copy)]
pub enum Location {
    /// A 64-bit value.
    Word(Operand, usize),
    /// A 32-bit value.
    Half(Operand, usize),
    /// A pointer to where the function puts a 64-bit value if it succeeds.
    Out(Operand, usize),
    /// A pointer to a 32-bit value that the function replaces; the value before.
    Before(Operand, usize),
    /// A pointer to a structure into which the function puts a 32-bit value at an offset, also if it fails.
    Through(Operand, usize, usize),
    /// A pointer to a launch configuration.
    Config(usize),
    /// The kernel's name, which CUPTI tells.
    Symbol,
}

use Location::*;
use When::{Always, Inside};

const fn function(
    id: u32,
    per_thread: u32,
    name: &'static str,
    when: When,
    operands: &'static [Location],
) -> Function {
    Function { id, per_thread, name, when, operands }
}

/// Every function that is recorded.
pub const FUNCTIONS: &[Function] = &[
    // Streams and events.
    function(124, 0, "cuStreamCreate", Always, &[Out(Stream, 0), Half(Flags, 8)]),
    function(367, 0, "cuStreamCreateWithPriority", Always, &[Out(Stream, 0), Half(Flags, 8)]),
    function(758, 0, "cuGreenCtxStreamCreate", Always, &[Out(Stream, 0), Half(Flags, 16)]),
    function(326, 0, "cuStreamDestroy_v2", Always, &[Word(Stream, 0)]),
    function(
        295,
        436,
        "cuStreamWaitEvent",
        Always,
        &[Word(Stream, 0), Word(Event, 8), Half(Flags, 16)],
    ),
    function(346, 437, "cuStreamAddCallback", Inside, &[Word(Stream, 0)]),
    function(495, 496, "cuStreamBeginCapture", Always, &[Word(Stream, 0)]),
    function(539, 540, "cuStreamBeginCapture_v2", Always, &[Word(Stream, 0), Half(Mode, 8)]),
    function(
        720,
        721,
        "cuStreamBeginCaptureToGraph",
        Always,
        &[Word(Stream, 0), Word(Graph, 8), Word(Count, 32), Half(Mode, 40)],
    ),
    function(541, 0, "cuThreadExchangeStreamCaptureMode", Always, &[Before(Mode, 0)]),
    function(497, 498, "cuStreamEndCapture", Always, &[Word(Stream, 0), Out(Graph, 8)]),
    function(499, 500, "cuStreamIsCapturing", Inside, &[Word(Stream, 0)]),
    function(629, 630, "cuStreamGetCaptureInfo_v2", Inside, &[Word(Stream, 0)]),
    function(729, 730, "cuStreamGetCaptureInfo_v3", Inside, &[Word(Stream, 0)]),
    function(631, 632, "cuStreamUpdateCaptureDependencies", Inside, &[Word(Stream, 0)]),
    function(731, 732, "cuStreamUpdateCaptureDependencies_v2", Inside, &[Word(Stream, 0)]),
    function(377, 438, "cuStreamAttachMemAsync", Inside, &[Word(Stream, 0)]),
    function(125, 439, "cuStreamQuery", Inside, &[Word(Stream, 0)]),
    function(126, 440, "cuStreamSynchronize", Inside, &[Word(Stream, 0)]),
    function(369, 435, "cuStreamGetFlags", Inside, &[Word(Stream, 0)]),
    function(693, 694, "cuStreamGetId", Inside, &[Word(Stream, 0)]),
    function(659, 660, "cuStreamWaitValue32_v2", Inside, &[Word(Stream, 0)]),
    function(661, 662, "cuStreamWaitValue64_v2", Inside, &[Word(Stream, 0)]),
    function(663, 664, "cuStreamWriteValue32_v2", Inside, &[Word(Stream, 0)]),
    function(665, 666, "cuStreamWriteValue64_v2", Inside, &[Word(Stream, 0)]),
    function(667, 668, "cuStreamBatchMemOp_v2", Inside, &[Word(Stream, 0)]),
    function(118, 0, "cuEventCreate", Always, &[Out(Event, 0)]),
    function(119, 441, "cuEventRecord", Always, &[Word(Event, 0), Word(Stream, 8)]),
    function(
        587,
        588,
        "cuEventRecordWithFlags",
        Always,
        &[Word(Event, 0), Word(Stream, 8), Half(Flags, 16)],
    ),
    function(120, 0, "cuEventQuery", Inside, &[Word(Event, 0)]),
    function(121, 0, "cuEventSynchronize", Inside, &[Word(Event, 0)]),
    function(325, 0, "cuEventDestroy_v2", Always, &[Word(Event, 0)]),
    function(17, 0, "cuCtxSynchronize", Inside, &[]),
    function(800, 0, "cuCtxSynchronize_v2", Inside, &[]),
    // Memory.
    function(243, 0, "cuMemAlloc_v2", Always, &[Out(Memory, 0), Word(Bytes, 8)]),
    function(244, 0, "cuMemAllocPitch_v2", Always, &[Out(Memory, 0)]),
    function(245, 0, "cuMemFree_v2", Always, &[Word(Memory, 0)]),
    function(294, 0, "cuMemAllocHost_v2", Always, &[Out(Memory, 0), Word(Bytes, 8)]),
    function(38, 0, "cuMemFreeHost", Always, &[Word(Memory, 0)]),
    function(39, 0, "cuMemHostAlloc", Always, &[Out(Memory, 0), Word(Bytes, 8)]),
    function(371, 0, "cuMemAllocManaged", Always, &[Out(Memory, 0), Word(Bytes, 8)]),
    function(379, 0, "cuMemHostRegister_v2", Always, &[Word(Memory, 0), Word(Bytes, 8)]),
    function(302, 0, "cuMemHostUnregister", Always, &[Word(Memory, 0)]),
    function(549, 0, "cuMemCreate", Inside, &[]),
    function(550, 0, "cuMemRelease", Inside, &[]),
    function(551, 0, "cuMemMap", Always, &[Word(Memory, 0), Word(Bytes, 8)]),
    function(552, 0, "cuMemUnmap", Always, &[Word(Memory, 0), Word(Bytes, 8)]),
    function(553, 0, "cuMemSetAccess", Inside, &[]),
    function(
        598,
        599,
        "cuMemAllocAsync",
        Always,
        &[Out(Memory, 0), Word(Bytes, 8), Word(Stream, 16)],
    ),
    function(
        611,
        612,
        "cuMemAllocFromPoolAsync",
        Always,
        &[Out(Memory, 0), Word(Bytes, 8), Word(Stream, 24)],
    ),
    function(600, 601, "cuMemFreeAsync", Always, &[Word(Memory, 0), Word(Stream, 8)]),
    function(602, 0, "cuMemPoolTrimTo", Inside, &[]),
    function(608, 0, "cuMemPoolDestroy", Inside, &[]),
    function(305, 408, "cuMemcpy", Inside, &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16)]),
    function(
        276,
        397,
        "cuMemcpyHtoD_v2",
        Inside,
        &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16)],
    ),
    function(
        278,
        398,
        "cuMemcpyDtoH_v2",
        Inside,
        &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16)],
    ),
    function(
        280,
        399,
        "cuMemcpyDtoD_v2",
        Inside,
        &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16)],
    ),
    function(287, 405, "cuMemcpy2D_v2", Inside, &[]),
    function(288, 406, "cuMemcpy2DUnaligned_v2", Inside, &[]),
    function(290, 407, "cuMemcpy3D_v2", Inside, &[]),
    function(
        318,
        409,
        "cuMemcpyPeer",
        Inside,
        &[Word(Memory, 0), Word(Source, 16), Word(Bytes, 32)],
    ),
    function(
        306,
        418,
        "cuMemcpyAsync",
        Inside,
        &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16), Word(Stream, 24)],
    ),
    function(
        277,
        421,
        "cuMemcpyHtoDAsync_v2",
        Inside,
        &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16), Word(Stream, 24)],
    ),
    function(
        279,
        422,
        "cuMemcpyDtoHAsync_v2",
        Inside,
        &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16), Word(Stream, 24)],
    ),
    function(
        281,
        423,
        "cuMemcpyDtoDAsync_v2",
        Inside,
        &[Word(Memory, 0), Word(Source, 8), Word(Bytes, 16), Word(Stream, 24)],
    ),
    function(
        319,
        426,
        "cuMemcpyPeerAsync",
        Inside,
        &[Word(Memory, 0), Word(Source, 16), Word(Bytes, 32), Word(Stream, 40)],
    ),
    function(289, 424, "cuMemcpy2DAsync_v2", Inside, &[Word(Stream, 8)]),
    function(291, 425, "cuMemcpy3DAsync_v2", Inside, &[Word(Stream, 8)]),
    function(321, 427, "cuMemcpy3DPeerAsync", Inside, &[Word(Stream, 8)]),
    function(249, 411, "cuMemsetD8_v2", Inside, &[Word(Memory, 0), Word(Bytes, 16)]),
    function(250, 412, "cuMemsetD16_v2", Inside, &[Word(Memory, 0), Word(Bytes, 16)]),
    function(251, 413, "cuMemsetD32_v2", Inside, &[Word(Memory, 0), Word(Bytes, 16)]),
    function(252, 414, "cuMemsetD2D8_v2", Inside, &[Word(Memory, 0)]),
    function(253, 415, "cuMemsetD2D16_v2", Inside, &[Word(Memory, 0)]),
    function(254, 416, "cuMemsetD2D32_v2", Inside, &[Word(Memory, 0)]),
    function(
        216,
        428,
        "cuMemsetD8Async",
        Inside,
        &[Word(Memory, 0), Word(Bytes, 16), Word(Stream, 24)],
    ),
    function(
        218,
        429,
        "cuMemsetD16Async",
        Inside,
        &[Word(Memory, 0), Word(Bytes, 16), Word(Stream, 24)],
    ),
    function(
        220,
        430,
        "cuMemsetD32Async",
        Inside,
        &[Word(Memory, 0), Word(Bytes, 16), Word(Stream, 24)],
    ),
    function(222, 431, "cuMemsetD2D8Async", Inside, &[Word(Memory, 0), Word(Stream, 40)]),
    function(224, 432, "cuMemsetD2D16Async", Inside, &[Word(Memory, 0), Word(Stream, 40)]),
    function(226, 433, "cuMemsetD2D32Async", Inside, &[Word(Memory, 0), Word(Stream, 40)]),
    function(716, 717, "cuMemPrefetchAsync_v2", Inside, &[Word(Stream, 32)]),
    // Modules: loading may wait for the device.
    function(22, 0, "cuModuleUnload", Inside, &[]),
    function(680, 0, "cuLibraryUnload", Inside, &[]),
    // Launches.
    function(307, 442, "cuLaunchKernel", Inside, &[Word(Stream, 40), Symbol]),
    function(652, 653, "cuLaunchKernelEx", Inside, &[Config(0), Symbol]),
    function(477, 478, "cuLaunchCooperativeKernel", Inside, &[Word(Stream, 40), Symbol]),
    function(527, 528, "cuLaunchHostFunc", Inside, &[Word(Stream, 0)]),
    // Graphs.
    function(501, 0, "cuGraphCreate", Always, &[Out(Graph, 0)]),
    function(517, 0, "cuGraphDestroy", Always, &[Word(Graph, 0)]),
    function(523, 0, "cuGraphClone", Always, &[Out(Graph, 0)]),
    function(525, 0, "cuGraphAddChildGraphNode", Always, &[Word(Graph, 8), Word(Child, 32)]),
    function(578, 0, "cuGraphInstantiate_v2", Always, &[Out(Exec, 0), Word(Graph, 8)]),
    function(
        643,
        0,
        "cuGraphInstantiateWithFlags",
        Always,
        &[Out(Exec, 0), Word(Graph, 8), Word(Flags, 16)],
    ),
    function(656, 657, "cuGraphInstantiateWithParams", Always, &[Out(Exec, 0), Word(Graph, 8)]),
    function(580, 581, "cuGraphUpload", Inside, &[Word(Exec, 0), Word(Stream, 8)]),
    function(514, 515, "cuGraphLaunch", Always, &[Word(Exec, 0), Word(Stream, 8)]),
    function(516, 0, "cuGraphExecDestroy", Always, &[Word(Exec, 0)]),
    function(
        561,
        0,
        "cuGraphExecUpdate",
        Always,
        &[Word(Exec, 0), Word(Graph, 8), Through(Reason, 24, 0)],
    ),
    function(
        696,
        0,
        "cuGraphExecUpdate_v2",
        Always,
        &[Word(Exec, 0), Word(Graph, 8), Through(Reason, 16, 0)],
    ),
];
