//! What was recorded to be executed once, now, as the runtime is given it.
//!
//! A program executes the same operations again and again, and an executable costs far more to make than to run. The runtime
//! keeps those of single operations, by what they do and where they work, and finds them again by value; so a node is handed
//! over as an operation, and several as one with a graph inside. Whatever calls functions of the host, which every recording
//! has of its own, or decides on its way, becomes a graph that is launched once.

use crate::Result;
use crate::graph::{BufferId, ComputeGraph, KernelRef, NodeId, NodeKind, SlotId};
use crate::launch::inside;
use crate::recorder::{OpRecorder, Recorded};
use crate::runtime::streams::{Buffer, Operation, Slot, remap};

/// What there is to execute.
pub(crate) enum Once {
    Nothing,
    Operation(Operation),
    Graph(Recorded),
}

/// Whether the runtime looks for such a node among those that it has made ready. What a name means may be the recording's.
fn is_kept(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Kernel(kernel) => !matches!(kernel.kernel, KernelRef::Named(_)),
        NodeKind::Memcpy(_) | NodeKind::Memset(_) => true,
        _ => false,
    }
}

impl OpRecorder {
    /// The recording, to be executed once. O(arguments) for a single node that the runtime has seen before.
    pub(crate) fn once(self) -> Result<Once> {
        if let Some(alone) = self.alone() {
            return Ok(Once::Operation(alone?));
        }
        let recorded = self.finish()?;
        if recorded.graph.is_empty() {
            return Ok(Once::Nothing);
        }
        if !recorded.graph.nodes().iter().all(|node| is_kept(&node.kind)) {
            return Ok(Once::Graph(recorded));
        }
        Ok(Once::Operation(together(&recorded)?))
    }

    /// The only node that was recorded, if it works on the user's memory alone.
    fn alone(&self) -> Option<Result<Operation>> {
        let (builder, buffers, slots) = self.so_far()?;
        if builder.node_count() != 1 {
            return None;
        }
        let node = builder.node(NodeId(0));
        if !is_kept(&node.kind) {
            return None;
        }
        let buffer = |id| position(buffers, id).map(BufferId::from_index);
        let slot = |id| position(slots, id).map(SlotId::from_index);
        // An error is scratch of its own.
        let kind = remap(&node.kind, &buffer, &slot).ok()?;
        Some(operation(&node.name, kind, buffers, slots))
    }
}

/// The place of an id among what a recording has for its ids.
fn position<I: PartialEq, T>(all: &[(I, T)], of: I) -> Option<usize> {
    all.iter().position(|(id, _)| *id == of)
}

fn operation<I, J>(
    name: &str,
    kind: NodeKind,
    buffers: &[(I, Buffer)],
    slots: &[(J, Slot)],
) -> Result<Operation> {
    let buffers: Vec<_> = buffers.iter().map(|(_, buffer)| buffer.clone()).collect();
    let slots: Vec<_> = slots.iter().map(|(_, slot)| slot.clone()).collect();
    Ok(Operation::with_slots(name, kind, &buffers, &slots)?)
}

/// The whole recording as one operation.
fn together(recorded: &Recorded) -> Result<Operation> {
    let Recorded { graph, buffers, slots, .. } = recorded;
    let outer = |at| position(buffers, BufferId::from_index(at)).map(BufferId::from_index);
    let outer: Vec<Option<BufferId>> = (0..graph.buffers().len()).map(outer).collect();
    let own: Vec<SlotId> = (0..slots.len()).map(SlotId::from_index).collect();
    let child: ComputeGraph = inside(graph, &outer, &own)?;
    operation(graph.name(), NodeKind::Child(Box::new(child)), buffers, slots)
}
