//! Graphs inside nodes: children, which lie flat among their neighbours, and the bodies of conditionals.

use phonograph_graph::{BufferRole, ComputeGraph, Condition, ConditionalNode, NodeId, Schedule};

use super::{Base, Lowering, Scope};
use crate::bindings::InstantiateError;
use crate::exec::{Branch, Step};

impl Lowering<'_> {
    /// Lowers a graph inside node `id`. Recursive over nesting, which graphs bound.
    pub(super) fn inner(
        &mut self,
        around: &Scope<'_>,
        id: NodeId,
        graph: &ComputeGraph,
        schedule: &Schedule,
    ) -> Result<(), InstantiateError> {
        let base = |declared: &phonograph_graph::Buffer| match declared.role {
            BufferRole::Outer(outer) => around.bases[outer.index()],
            _ => None::<Base>,
        };
        let slots = graph.slots().iter().filter_map(|slot| slot.outer);
        let mut scope = Scope {
            graph,
            schedule,
            path: around.path(id).0,
            bases: graph.buffers().iter().map(base).collect(),
            slots: slots.map(|slot| around.slots[slot.index()]).collect(),
        };
        self.graph(&mut scope, |_, _| {})
    }

    pub(super) fn conditional(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &ConditionalNode,
    ) -> Result<(), InstantiateError> {
        let Condition::Value(value) = node.condition else {
            let reason = "it decides by a driver's handle; a value in device memory is needed";
            return Err(scope.unsupported(id, reason));
        };
        let base = self.base(scope, value.buffer).map_err(scope.refused(id))?;
        let offset = base.offset + value.offset;
        if !offset.is_multiple_of(value.dtype.size()) {
            let reason = format!(
                "the value that it decides by lies at byte {offset}, where no {} can lie",
                value.dtype
            );
            return Err(scope.unsupported(id, reason));
        }
        self.branches = true;
        let at = self.steps.len();
        self.steps.push(Step::Branch(Branch {
            kind: node.kind,
            place: base.place,
            offset,
            dtype: value.dtype,
            bodies: Vec::new(),
            end: at,
            node: scope.path(id),
        }));
        let mut bodies = Vec::with_capacity(node.bodies.len());
        for (body, schedule) in node.bodies.iter().zip(&scope.schedule.inner[&id]) {
            let first = self.steps.len();
            // What comes next must not join the steps of the body before.
            self.steps.push(Step::Run(self.ops.len() as u32..self.ops.len() as u32));
            self.inner(scope, id, body, schedule)?;
            bodies.push(first..self.steps.len());
        }
        // Nor what follows the conditional those of the last body.
        self.steps.push(Step::Run(self.ops.len() as u32..self.ops.len() as u32));
        let end = self.steps.len() - 1;
        let Step::Branch(branch) = &mut self.steps[at] else {
            unreachable!("steps are only added")
        };
        (branch.bodies, branch.end) = (bodies, end);
        Ok(())
    }
}
