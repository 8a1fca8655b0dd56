//! A graph that is being lowered, and what its ids stand for.

use cudarc::driver::sys::{CUgraph, CUgraphNode};
use phonograph_graph::{ComputeGraph, NodeId, Schedule, SlotId};
use phonograph_runtime::cpu::NodePath;
use smallvec::SmallVec;

use super::bases::Base;
use super::ends::Beginnings;
use crate::bindings::InstantiateError;
use crate::error::DriverError;
use crate::front::PartId;
use crate::graph::Refused;

/// Where a graph stands, which decides what it may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Outermost,
    Child,
    /// Somewhere inside a body of a conditional.
    Body,
}

/// A graph that is being lowered, and what its ids stand for.
pub(super) struct Scope<'g> {
    pub graph: &'g ComputeGraph,
    pub schedule: &'g Schedule,
    pub driver: CUgraph,
    pub place: Place,
    /// The nodes around it.
    pub path: Vec<(NodeId, String)>,
    pub bases: Vec<Base>,
    /// The slots of the outermost graph.
    pub slots: Vec<SlotId>,
    /// Of each node that was lowered, the driver's nodes.
    pub ends: Vec<SmallVec<[CUgraphNode; 1]>>,
    /// Of each node, the part that it is in; empty if there is only one.
    pub parts: Vec<PartId>,
    /// Of each node, whether one of the same part that was lowered comes after it.
    pub is_followed: Vec<bool>,
    /// What nodes come after that come after nothing else.
    pub beginnings: Beginnings,
}

impl<'g> Scope<'g> {
    /// The outermost graph, of which nothing is lowered yet.
    pub fn new(
        graph: &'g ComputeGraph,
        schedule: &'g Schedule,
        driver: CUgraph,
        bases: Vec<Base>,
        slots: Vec<SlotId>,
    ) -> Self {
        Self {
            graph,
            schedule,
            driver,
            place: Place::Outermost,
            path: Vec::new(),
            bases,
            slots,
            ends: vec![SmallVec::new(); graph.node_count()],
            parts: Vec::new(),
            is_followed: vec![false; graph.node_count()],
            beginnings: Beginnings::default(),
        }
    }
}

impl Scope<'_> {
    pub fn path(&self, id: NodeId) -> NodePath {
        let mut path = self.path.clone();
        path.push((id, self.graph.node(id).name.to_string()));
        NodePath(path)
    }

    pub fn unsupported(&self, id: NodeId, reason: impl Into<String>) -> InstantiateError {
        InstantiateError::Unsupported { node: self.path(id), reason: reason.into() }
    }

    pub fn refused(&self, id: NodeId) -> impl Fn(DriverError) -> InstantiateError + '_ {
        move |source| InstantiateError::Node { node: self.path(id), source }
    }

    /// Whether an edge to the node or from it is not a full one.
    pub fn has_weak_edges(&self, id: NodeId) -> bool {
        let weak = |to: NodeId| {
            let mut edges = self.graph.incoming(to);
            edges.any(|edge| (edge.from == id || to == id) && !edge.data.is_full())
        };
        let mut near = self.graph.successors(id).iter().copied().chain([id]);
        self.graph.has_weak_edges() && near.any(weak)
    }

    /// The nodes in a part that were lowered, each with the driver's nodes.
    pub fn ends_in(
        &mut self,
        part: PartId,
    ) -> impl Iterator<Item = (NodeId, &mut SmallVec<[CUgraphNode; 1]>)> {
        let parts = &self.parts;
        let is_in = move |at: usize| parts.get(at).is_none_or(|of| *of == part);
        let all = self.ends.iter_mut().enumerate().filter(move |(at, _)| is_in(*at));
        all.map(|(at, ends)| (NodeId::from_index(at), ends))
    }

    /// Names the node that the driver could not make or instantiate, if it is one of this part.
    pub fn explain(&mut self, part: PartId, refused: Refused) -> InstantiateError {
        refused.explain(|node| {
            let found = self.ends_in(part).find(|(_, ends)| ends.contains(&node)).map(|(id, _)| id);
            found.map(|id| self.path(id))
        })
    }
}
