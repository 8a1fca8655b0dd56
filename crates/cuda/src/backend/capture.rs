//! What the driver does to record a stream: beginning, asking where it stands, moving on, ending.
//!
//! Captures are relaxed: nothing that another thread or stream does is held against them. What still breaks one is a call
//! that its own streams do not bear, such as waiting for them, and waiting for the whole device, which no call from here does.

use std::ptr;

use cudarc::driver::sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags,
};

use crate::error::{DriverError, call};
use crate::graph::{Dependencies, Graph, edge_data};
use crate::stream::Stream;

/// Where a stream that records stands.
pub(super) struct Position {
    /// The graph that its work becomes nodes of. The driver's until the capture ends.
    pub graph: CUgraph,
    /// What the stream's next node comes after.
    pub after: Dependencies,
}

/// What a stream is doing about captures.
pub(super) enum Status {
    Idle,
    Recording(Position),
    /// A call that it did not bear has broken the capture; it has still to be ended.
    Broken,
}

pub(super) fn begin(stream: &Stream) -> Result<(), DriverError> {
    let _current = stream.device().enter()?;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream lives.
    unsafe { call!(cuStreamBeginCapture_v2(stream.handle(), mode)) }
}

pub(super) fn status(stream: &Stream) -> Result<Status, DriverError> {
    let _current = stream.device().enter()?;
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, ptr::null_mut());
    let mut nodes: *const CUgraphNode = ptr::null();
    let mut data: *const CUgraphEdgeData = ptr::null();
    let mut count = 0;
    // SAFETY: the stream lives; all results are this function's to be written.
    unsafe {
        call!(cuStreamGetCaptureInfo_v3(
            stream.handle(),
            &mut status,
            &mut id,
            &mut graph,
            &mut nodes,
            &mut data,
            &mut count
        ))
    }?;
    Ok(match status {
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Status::Idle,
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => Status::Broken,
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => {
            let mut after = Dependencies::default();
            for at in 0..count {
                // SAFETY: the driver's lists have `count` entries and are valid until the next call on this stream, which
                // nobody else makes meanwhile. Without data all edges are full.
                let (node, data) = unsafe {
                    let data = (!data.is_null()).then(|| *data.add(at));
                    (*nodes.add(at), data.unwrap_or_else(|| edge_data(0, 0, false)))
                };
                after.push(node, data);
            }
            Status::Recording(Position { graph, after })
        }
    })
}

/// What the stream records next comes after these nodes, and after nothing else.
///
/// # Safety
/// The nodes are of the graph that the stream records into.
pub(super) unsafe fn advance(stream: &Stream, nodes: &[CUgraphNode]) -> Result<(), DriverError> {
    let _current = stream.device().enter()?;
    let set = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
    let first = nodes.as_ptr().cast_mut(); // only read
    // SAFETY: the caller's promise; no data says that all edges are full.
    unsafe {
        call!(cuStreamUpdateCaptureDependencies_v2(
            stream.handle(),
            first,
            ptr::null(),
            nodes.len(),
            set
        ))
    }
}

/// Ends the capture that began on this stream. After an error the stream is free all the same and its graph gone.
pub(super) fn end(stream: &Stream) -> Result<Graph, DriverError> {
    let _current = stream.device().enter()?;
    let mut graph = ptr::null_mut();
    // SAFETY: the stream lives.
    unsafe { call!(cuStreamEndCapture(stream.handle(), &mut graph)) }?;
    // SAFETY: the driver gave the graph to the caller.
    Ok(unsafe { Graph::adopt(stream.device(), graph) })
}
