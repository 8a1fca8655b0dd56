//! What the driver does to record a stream: beginning, asking where it stands, moving on, ending.

use std::ptr;

use cudarc::driver::sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode,
    CUstreamUpdateCaptureDependencies_flags,
};

use crate::error::{DriverError, call};
use crate::graph::{Dependencies, Graph, edge_data};
use crate::stream::Stream;

/// What a stream is doing about captures.
pub(crate) enum CaptureInfo {
    None,
    Active {
        /// The same for all streams of one capture.
        capture: u64,
        /// The graph that its work becomes nodes of. The driver's until the capture ends.
        graph: CUgraph,
        /// What the stream's next node comes after.
        after: Dependencies,
    },
    /// A call that it did not bear has broken the capture; it has still to be ended.
    Invalidated,
}

impl CaptureInfo {
    /// Asks, which changes nothing.
    ///
    /// # Safety
    /// The stream lives, a context is current, and nobody issues to the stream meanwhile.
    pub unsafe fn of(stream: CUstream) -> Result<Self, DriverError> {
        let (mut status, mut capture, mut count) = (0u32, 0, 0);
        let (mut graph, mut data) = (ptr::null_mut(), ptr::null::<CUgraphEdgeData>());
        let mut nodes = ptr::null::<CUgraphNode>();
        // SAFETY: the caller's promise; all results are for this call to write, the status in 32 bits.
        unsafe {
            call!(cuStreamGetCaptureInfo_v3(
                stream,
                (&raw mut status).cast(),
                &mut capture,
                &mut graph,
                &mut nodes,
                &mut data,
                &mut count
            ))
        }?;
        Ok(match status {
            0 => Self::None,
            1 => {
                let mut after = Dependencies::default();
                for at in 0..count {
                    // SAFETY: the driver's lists have `count` entries and are valid until the next call on this stream, which
                    // the caller keeps off. Without data all edges are full.
                    let (node, data) = unsafe {
                        let data = (!data.is_null()).then(|| *data.add(at));
                        (*nodes.add(at), data.unwrap_or_else(|| edge_data(0, 0, false)))
                    };
                    after.push(node, data);
                }
                Self::Active { capture, graph, after }
            }
            _ => Self::Invalidated,
        })
    }
}

/// Begins a capture. Who does so holds a [`Capturing`](crate::captures::Capturing) until it ends.
pub(crate) fn begin(stream: &Stream, mode: CUstreamCaptureMode) -> Result<(), DriverError> {
    let _current = stream.device().enter()?;
    // SAFETY: the stream lives.
    unsafe { call!(cuStreamBeginCapture_v2(stream.handle(), mode)) }
}

/// What the stream records next comes after these nodes, and after nothing else.
///
/// # Safety
/// The nodes are of the graph that the stream records into.
pub(crate) unsafe fn advance(stream: &Stream, nodes: &[CUgraphNode]) -> Result<(), DriverError> {
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
pub(crate) fn end(stream: &Stream) -> Result<Graph, DriverError> {
    let _current = stream.device().enter()?;
    let mut graph = ptr::null_mut();
    // SAFETY: the stream lives.
    unsafe { call!(cuStreamEndCapture(stream.handle(), &mut graph)) }?;
    // SAFETY: the driver gave the graph to the caller.
    Ok(unsafe { Graph::adopt(stream.device(), graph) })
}
