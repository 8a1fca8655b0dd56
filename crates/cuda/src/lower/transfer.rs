//! Copies and fills.

use std::ffi::c_void;

use cudarc::driver::sys::{CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraphNode, CUmemorytype};
use phonograph_graph::{BufferId, MemcpyNode, MemsetNode, NodeId, Pitched, Target};
use smallvec::{SmallVec, smallvec};

use super::Lowering;
use super::scope::{Place, Scope};
use crate::bindings::InstantiateError;
use crate::device::zeroed;
use crate::exec::is_on_host;
use crate::graph::{Dependencies, add_node};
use crate::memory::{AllocationKey, Memory};
use crate::slots::{Use, Work};
use crate::transfer::{Transfer, zeroed_copy};

/// One end of a copy or the destination of a fill.
struct End {
    address: u64,
    slot: Option<BufferId>,
    offset: u64,
    on_host: bool,
    /// Of memory that was given to the outermost graph, if it lasts.
    allocation: Option<AllocationKey>,
    /// The device that it is on; for host memory the first.
    device: u32,
    context: CUcontext,
}

impl Lowering<'_> {
    fn end(
        &self,
        scope: &Scope<'_>,
        id: NodeId,
        end: &Pitched,
        what: &str,
    ) -> Result<End, InstantiateError> {
        let Target::Buffer(buffer) = end.target else {
            let reason =
                format!("the {what} names no declared buffer, so there is no memory to work on");
            return Err(scope.unsupported(id, reason));
        };
        let declared = scope.graph.buffer(buffer);
        let device = self.device_of(buffer, declared)?;
        let (base, slot) = self.resolve(scope, buffer);
        let (offset, on_host) = (end.offset, is_on_host(declared));
        self.check_body(scope, id, device.ordinal())?;
        let (device, context) = (device.ordinal(), device.context());
        let outermost = scope.place == Place::Outermost;
        let given = self.memory.get(&buffer).filter(|_| outermost);
        let (address, allocation) = (base + offset, given.and_then(Memory::key));
        Ok(End { address, slot, offset, on_host, allocation, device, context })
    }

    pub(super) fn copy(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &MemcpyNode,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let src = self.end(scope, id, &node.src, "source of the copy")?;
        let dst = self.end(scope, id, &node.dst, "destination of the copy")?;
        if node.overlaps_itself() {
            return Err(scope.unsupported(id, "source and destination of the copy overlap"));
        }
        if node.extent.bytes() == 0 {
            return self.empty(scope, id, after);
        }
        let between = !src.on_host && !dst.on_host && src.device != dst.device;
        let kind = |end: &End| match (between, end.on_host) {
            (true, _) => CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            (false, true) => CUmemorytype::CU_MEMORYTYPE_HOST,
            (false, false) => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        };
        let [width, height, depth] =
            [node.extent.width, node.extent.height, node.extent.depth].map(|v| v as usize);
        // A pitch says nothing where there is one row, and the driver wants none below the width.
        let pitch =
            |end: &Pitched| if height > 1 || depth > 1 { end.pitch as usize } else { width };
        let rows = |end: &Pitched| if depth > 1 { end.slice_rows as usize } else { height };
        // A copy with the host runs where the device's end is.
        let context = if src.on_host { dst.context } else { src.context };
        let mut copy = zeroed_copy();
        (copy.srcMemoryType, copy.dstMemoryType) = (kind(&src), kind(&dst));
        (copy.srcDevice, copy.dstDevice) = (src.address, dst.address);
        copy.srcHost = src.address as usize as *const c_void;
        copy.dstHost = dst.address as usize as *mut c_void;
        (copy.srcPitch, copy.dstPitch) = (pitch(&node.src), pitch(&node.dst));
        (copy.srcHeight, copy.dstHeight) = (rows(&node.src), rows(&node.dst));
        (copy.WidthInBytes, copy.Height, copy.Depth) = (width, height, depth);
        let op = self.next_op();
        self.note(src.slot, Use::Source(op, src.offset));
        self.note(dst.slot, Use::Destination(op, dst.offset));
        // The driver changes no copies of rows in executables.
        let can_change = !between && height == 1 && depth == 1;
        let transfer = Transfer::Copy(copy, context);
        let ends = [src.allocation, dst.allocation];
        // SAFETY: both ends lie in buffers that the `Exec` holds: building the graph checked their extents.
        Ok(smallvec![unsafe { self.transfer(scope, id, after, transfer, ends, can_change) }?])
    }

    pub(super) fn fill(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &MemsetNode,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let dst = self.end(scope, id, &node.dst, "fill")?;
        if node.extent.bytes() == 0 {
            return self.empty(scope, id, after);
        }
        let element = u64::from(node.element_size);
        let (width, mut height, mut depth) =
            (node.extent.width, node.extent.height, node.extent.depth);
        let pitch = node.dst.pitch;
        if depth > 1 && node.dst.slice_rows == height {
            (height, depth) = (height * depth, 1);
        }
        let rows = height > 1 || depth > 1;
        let slice = pitch * node.dst.slice_rows;
        let steps = [dst.address, if rows { pitch } else { 0 }, if depth > 1 { slice } else { 0 }];
        if steps.iter().any(|step| !step.is_multiple_of(element)) {
            let reason =
                format!("it fills with a pattern of {element} bytes where none is aligned");
            return Err(scope.unsupported(id, reason));
        }
        let mut nodes = SmallVec::new();
        for step in 0..depth {
            let offset = step * slice;
            let mut fill = zeroed::<CUDA_MEMSET_NODE_PARAMS>();
            fill.dst = dst.address + offset;
            fill.pitch = if height > 1 { pitch as usize } else { 0 };
            (fill.value, fill.elementSize) = (node.value, element as u32);
            (fill.width, fill.height) = ((width / element) as usize, height as usize);
            let op = self.next_op();
            self.note(dst.slot, Use::Filled(op, dst.offset + offset));
            let transfer = Transfer::Fill(fill, dst.context);
            // SAFETY: the destination lies in a buffer that the `Exec` holds: building the graph checked its extent.
            nodes.push(unsafe {
                self.transfer(scope, id, after, transfer, [dst.allocation; 2], true)
            }?);
        }
        Ok(nodes)
    }

    /// Adds a node that moves bytes, with the allocations at both ends. `can_change` says whether an executable takes other
    /// parameters for it.
    ///
    /// # Safety
    /// What it names is there for as long as the [`Exec`](crate::Exec) that is being made.
    unsafe fn transfer(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        after: &Dependencies,
        transfer: Transfer,
        ends: [Option<AllocationKey>; 2],
        can_change: bool,
    ) -> Result<CUgraphNode, InstantiateError> {
        let (Transfer::Copy(_, context) | Transfer::Fill(_, context)) = transfer;
        let is_here = context == self.target.devices[0].context();
        let changes = self.changeable;
        let node = match self.noted(scope, scope.driver) {
            Some(made) => Ok(made.transfer(after, transfer, ends, can_change && is_here, changes)),
            // SAFETY: the caller's promise.
            None => unsafe { add_node(scope.driver, after, &mut transfer.params()) },
        };
        let node = node.map_err(scope.refused(id))?;
        self.added(node, || Work::Transfer(transfer));
        Ok(node)
    }
}
