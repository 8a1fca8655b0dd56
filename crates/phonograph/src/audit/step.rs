//! Running a recording node by node, with what every node found and left.

use std::sync::Arc;

use crate::Result;
use crate::device::Stream;
use crate::graph::{
    BufferId, BufferRole, ComputeGraph, GraphBuilder, NodeId, Scalar, Schedule, SlotId, Space,
};
use crate::recorder::Recorded;
use crate::runtime::streams::{Adopted, Buffer, Waiting};

/// The contents of a buffer.
pub(super) struct Held {
    pub buffer: BufferId,
    pub bytes: Vec<u8>,
}

/// A node that has run.
pub(super) struct Step {
    pub program: Arc<Program>,
    pub node: NodeId,
    /// What the buffers that it names held before, in their order.
    pub before: Vec<Held>,
    /// And after.
    pub after: Vec<Held>,
}

/// A recording with memory for all of its buffers.
pub(super) struct Program {
    pub recorded: Recorded,
    /// By buffer of the graph.
    memory: Vec<Option<Buffer>>,
    /// By slot of the graph.
    pub values: Vec<Scalar>,
}

impl Program {
    /// Gives every scratch buffer memory that lasts from node to node.
    pub fn new(stream: &Stream, recorded: Recorded, values: &[(SlotId, Scalar)]) -> Result<Self> {
        let run = stream.run();
        let graph = &recorded.graph;
        let mut memory: Vec<Option<Buffer>> = vec![None; graph.buffers().len()];
        for (id, buffer) in &recorded.buffers {
            memory[id.index()] = Some(buffer.clone());
        }
        for (declared, place) in graph.buffers().iter().zip(&mut memory) {
            if declared.role == BufferRole::Internal {
                let (name, bytes) = (&declared.name, declared.bytes);
                *place = Some(match declared.space {
                    Space::Host { .. } => run.alloc_host(name, bytes)?,
                    _ => run.alloc(name, bytes)?,
                });
            }
        }
        let mut all: Vec<Scalar> = graph.slots().iter().map(|slot| slot.default).collect();
        for (id, value) in values {
            all[id.index()] = *value;
        }
        Ok(Self { recorded, memory, values: all })
    }

    pub fn graph(&self) -> &ComputeGraph {
        &self.recorded.graph
    }

    /// The memory of a buffer. Every buffer that a node of the outermost graph names has some.
    pub fn memory(&self, buffer: BufferId) -> Option<&Buffer> {
        self.memory.get(buffer.index())?.as_ref()
    }

    /// Runs every node by itself, in the order of recording.
    pub fn run(self: &Arc<Self>, stream: &Stream) -> Result<Vec<Step>> {
        self.graph().node_ids().map(|node| self.run_node(stream, node)).collect()
    }

    fn run_node(self: &Arc<Self>, stream: &Stream, node: NodeId) -> Result<Step> {
        let graph = self.graph();
        let mut named: Vec<BufferId> = graph.operands(node).iter().map(|(r, _)| r.buffer).collect();
        named.sort_unstable();
        named.dedup();
        let mut builder = GraphBuilder::new().named(&graph.node(node).name);
        for (index, declared) in graph.buffers().iter().enumerate() {
            // The others keep their numbers, and need no memory.
            let mut declared = declared.clone();
            if named.contains(&BufferId::from_index(index)) {
                declared.role = BufferRole::External;
            } else {
                (declared.role, declared.bytes) = (BufferRole::Internal, 0);
            }
            builder.declare(declared);
        }
        for (slot, value) in graph.slots().iter().zip(&self.values) {
            builder.slot(&slot.name, *value);
        }
        builder.add_node(graph.node(node).clone());
        let one = builder.build()?;
        let bound: Vec<(BufferId, Buffer)> =
            named.iter().filter_map(|&id| Some((id, self.memory(id)?.clone()))).collect();
        let run = stream.run();
        let before = contents(stream, &bound)?;
        let schedule = Schedule::sequential(&one);
        // Its slots have their values as defaults, and nobody sets them.
        let one = run.adopt(&Adopted {
            graph: &one,
            schedule: &schedule,
            buffers: &bound,
            slots: &[],
            registry: &self.recorded.registry,
        })?;
        run.launch(&one, &[])?;
        run.sync(Waiting::Attentive)?;
        Ok(Step { program: self.clone(), node, before, after: contents(stream, &bound)? })
    }
}

/// What buffers hold.
pub(super) fn contents(stream: &Stream, of: &[(BufferId, Buffer)]) -> Result<Vec<Held>> {
    let run = stream.run();
    let read = |(id, buffer): &(BufferId, Buffer)| -> Result<Held> {
        Ok(Held { buffer: *id, bytes: run.read(buffer)? })
    };
    of.iter().map(read).collect()
}

/// Puts back what buffers held.
pub(super) fn restore(stream: &Stream, to: &[(BufferId, Buffer)], held: &[Held]) -> Result<()> {
    let run = stream.run();
    for ((_, buffer), held) in to.iter().zip(held) {
        run.write(buffer, &held.bytes)?;
    }
    run.sync(Waiting::Attentive)
}
