//! Graphs that the program builds by hand: nodes, child graphs, conditionals and edges, and what it asks about them.
//!
//! R0 throughout: no recording builds a graph by hand. The answers are those of the driver's documentation and of public reports, and
//! each was seen on an H200 (driver 580): two nodes have one edge at most, whatever its data; a plain query for edges refuses to drop
//! edge data; a conditional's body holds only some kinds of nodes, and edges may lead in a circle, which instantiation checks; a child
//! graph holds neither memory nodes nor conditionals; and a graph with memory nodes has one executable at a time.

use std::sync::Arc;

use phonograph_graph::MAX_NESTING;
use phonograph_trace::{Build, Call, ConditionalKind, CuResult, GraphId, NodeId, Port};
use rustc_hash::FxHashSet;

use super::class::NodeKind;
use super::finished::{CapturedEdge, FinishedGraph, Inner, PathStep};
use super::refusal::{Cause, Role};
use super::slab::Slot;
use super::state::{CallIndex, CapturedId, CapturedNode, Graph, Inside, Memory};
use super::{Effect, Model, ModelError, Outcome, Refusal, Rule, missing};
use crate::deps::DependencySet;

impl Model {
    /// The graph that a call names, made if it is new; none if the call does not say which.
    fn built_graph(&mut self, at: CallIndex, call: &Call) -> Option<(GraphId, Slot)> {
        let name = call.graph?;
        let slot = *self
            .user_graphs
            .entry(name)
            .or_insert_with(|| self.graphs.insert(Graph::new(at, Some(name))));
        Some((name, slot))
    }

    /// R5 for any use of a graph: a destroyed one is INVALID_VALUE.
    fn gone(&self, at: CallIndex, graph: Slot) -> Option<Outcome> {
        let destroyed = self.graphs[graph].destroyed?;
        let cause = Cause { call: destroyed, role: Role::GraphDestroyed };
        Some(self.refuse(at, CuResult::INVALID_VALUE, Rule::R5, |r| r.causes.push(cause)))
    }

    pub(super) fn build_node(
        &mut self,
        at: CallIndex,
        call: &Call,
        kind: NodeKind,
    ) -> Result<Outcome, ModelError> {
        let Some((name, slot)) = self.built_graph(at, call) else {
            // A trace that does not say which graph: nothing to model.
            return Ok(Outcome::success(Rule::Harmless));
        };
        if let Some(refused) = self.gone(at, slot) {
            return Ok(refused);
        }
        let nothing = Build::default();
        let build = call.build.as_deref().unwrap_or(&nothing);
        let id = CapturedId(self.graphs[slot].nodes.len() as u32);
        match kind {
            NodeKind::MemAlloc => {
                let memory = call.memory.ok_or(missing(call, "memory"))?;
                let launches = self.graphs[slot].launches;
                self.graphs.retain(slot);
                self.graphs[slot].leaves += 1;
                let owned = Memory::Graph {
                    graph: slot,
                    capture: at,
                    allocated: at,
                    freed: None,
                    elsewhere: None,
                    freed_after_launch: launches,
                };
                self.set_memory(memory, Some(owned));
            }
            NodeKind::MemFree => {
                let memory = call.memory.ok_or(missing(call, "memory"))?;
                if !self.freed_by(at, memory, slot) {
                    return Ok(self.free_refused(at, memory, Rule::BuildFrees));
                }
            }
            NodeKind::ChildGraph => {
                let inner = build.inner.first().ok_or(missing(call, "a child graph"));
                match self.child(at, call, *inner?, slot)? {
                    Ok(child) => self.graphs[slot].inner.push((id, child)),
                    Err(refused) => return Ok(refused),
                }
            }
            NodeKind::Conditional => {
                let Some(kind) = build.conditional else {
                    return Ok(Outcome::success(Rule::Harmless));
                };
                match self.bodies(at, call, kind, &build.inner, (slot, id))? {
                    Ok(bodies) => self.graphs[slot].inner.push((id, bodies)),
                    Err(refused) => return Ok(refused),
                }
            }
            _ => {}
        }
        self.graphs[slot].built = true;
        self.graphs[slot].nodes.push(CapturedNode {
            call: at,
            on: None,
            kind,
            programmatic: false,
            pageable: false,
            dependencies: DependencySet::new(),
            loose: false,
        });
        if let Some(node) = build.node {
            self.nodes.insert(node, (name, id));
        }
        Ok(Outcome::with(Rule::Built, Effect::Added(id)))
    }

    /// A graph as the child of a node of another, as it is now; or what the driver answers instead.
    fn child(
        &self,
        at: CallIndex,
        call: &Call,
        child: GraphId,
        around: Slot,
    ) -> Result<Result<Inside, Outcome>, ModelError> {
        let held = match self.user_graphs.get(&child).copied() {
            None => FinishedGraph::empty(at, child),
            Some(held) => match self.gone(at, held) {
                Some(refused) => return Ok(Err(refused)),
                None => self.snapshot(held, at),
            },
        };
        let barred = |node: &&CapturedNode| {
            matches!(node.kind, NodeKind::MemAlloc | NodeKind::MemFree | NodeKind::Conditional)
        };
        if let Some(node) = held.nodes.iter().find(barred) {
            let cause = Cause { call: node.call, role: Role::Forbidden };
            let result = CuResult::NOT_SUPPORTED;
            return Ok(Err(self.refuse(at, result, Rule::ChildHolds, |r| r.causes.push(cause))));
        }
        if self.graphs[around].depth as usize + 1 + held.height as usize > MAX_NESTING {
            return Err(ModelError::TooDeep(call.function));
        }
        Ok(Ok(Inside::Child(Arc::new(held))))
    }

    /// The bodies of a conditional node, new and empty; or what the driver answers instead.
    fn bodies(
        &mut self,
        at: CallIndex,
        call: &Call,
        kind: ConditionalKind,
        named: &[GraphId],
        within: (Slot, CapturedId),
    ) -> Result<Result<Inside, Outcome>, ModelError> {
        let most = match kind {
            ConditionalKind::If => 2,
            ConditionalKind::While => 1,
            ConditionalKind::Switch => usize::MAX,
        };
        if named.is_empty() {
            return Err(missing(call, "a body"));
        }
        if named.len() > most {
            return Ok(Err(self.refuse(at, CuResult::INVALID_VALUE, Rule::Bodies, |_| {})));
        }
        let depth = self.graphs[within.0].depth;
        if depth as usize + 2 > MAX_NESTING {
            return Err(ModelError::TooDeep(call.function));
        }
        let mut new = FxHashSet::default();
        let mut taken =
            |body: &&GraphId| self.user_graphs.contains_key(body) || !new.insert(**body);
        if let Some(body) = named.iter().find(|body| taken(body)) {
            return Err(ModelError::BodyTaken(*body));
        }
        let mut bodies = Vec::with_capacity(named.len());
        for &body in named {
            let (depth, within) = (depth + 1, Some(within));
            let graph = Graph { depth, within, ..Graph::new(at, Some(body)) };
            let graph = self.graphs.insert(graph);
            // One reference for the name, one for the node.
            self.graphs.retain(graph);
            self.user_graphs.insert(body, graph);
            bodies.push(graph);
        }
        Ok(Ok(Inside::Bodies(kind, bodies)))
    }

    pub(super) fn build_edge(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let edge = call.build.as_ref().and_then(|build| build.edge);
        let (Some((from, to, port)), Some((name, slot))) = (edge, self.built_graph(at, call))
        else {
            return Ok(Outcome::success(Rule::Harmless));
        };
        if let Some(refused) = self.gone(at, slot) {
            return Ok(refused);
        }
        let count = self.graphs[slot].nodes.len();
        let own = |(of, id): &&(GraphId, CapturedId)| *of == name && id.index() < count;
        let place = |node: NodeId| self.nodes.get(&node).filter(own);
        let ends = place(from).zip(place(to)).map(|(from, to)| (from.1, to.1));
        let refused = |rule| Ok(self.refuse(at, CuResult::INVALID_VALUE, rule, |_| {}));
        let Some((from, to)) = ends.filter(|(from, to)| from != to) else {
            return refused(Rule::EdgeEnds);
        };
        let graph = &self.graphs[slot];
        let kernel = |node: CapturedId| graph.nodes[node.index()].kind == NodeKind::Kernel;
        if port != Port::Full && !(kernel(from) && kernel(to)) {
            return refused(Rule::WeakEdge);
        }
        let edge = CapturedEdge { from, to, port };
        if self.graphs[slot].known_edges.contains(&(from, to)) {
            return refused(Rule::EdgeTwice);
        }
        let graph = &mut self.graphs[slot];
        graph.known_edges.insert((from, to));
        graph.edges.push(edge);
        graph.built = true;
        if port != Port::Full {
            graph.weak_edge.get_or_insert(at);
        }
        Ok(Outcome::success(Rule::Built))
    }

    /// A query for edges: LOSSY_QUERY if one has data and there is no room for it.
    pub(super) fn edges_of(&self, at: CallIndex, call: &Call) -> Outcome {
        let slot = call.graph.and_then(|name| self.user_graphs.get(&name)).copied();
        let Some(slot) = slot else { return Outcome::success(Rule::Harmless) };
        if let Some(refused) = self.gone(at, slot) {
            return refused;
        }
        match self.graphs[slot].weak_edge.filter(|_| !call.flags.edge_data) {
            None => Outcome::success(Rule::Harmless),
            Some(weak) => self.refuse(at, CuResult::LOSSY_QUERY, Rule::Lossy, |refusal| {
                refusal.causes.push(Cause { call: weak, role: Role::WeakEdge });
            }),
        }
    }

    /// R20, then what bodies of conditionals hold.
    pub(super) fn instantiate(&mut self, at: CallIndex, call: &Call) -> Outcome {
        let outcome = self.unsafe_call(at, call.thread, Rule::R21);
        let slot = call.graph.and_then(|name| self.user_graphs.get(&name)).copied();
        let Some(slot) = slot.filter(|_| outcome.result.is_success()) else { return outcome };
        if let Some(refused) = self.gone(at, slot) {
            return refused;
        }
        let graph = &self.graphs[slot];
        let memory =
            |node: &CapturedNode| matches!(node.kind, NodeKind::MemAlloc | NodeKind::MemFree);
        if graph.executables > 0 && graph.nodes.iter().any(memory) {
            return self.refuse(at, CuResult::NOT_SUPPORTED, Rule::OneExecutable, |_| {});
        }
        if self.leads_in_a_circle(slot) {
            return self.refuse(at, CuResult::INVALID_VALUE, Rule::Circle, |_| {});
        }
        let path = match self.graphs[slot].inner.is_empty() {
            true => None,
            false => self.snapshot(slot, at).forbidden_in_bodies(),
        };
        let Some(path) = path else {
            let graph = &mut self.graphs[slot];
            graph.executables += 1;
            graph.auto_free = call.flags.auto_free;
            return outcome;
        };
        let mut refusal = Refusal::new(at, CuResult::INVALID_VALUE, Rule::BodyHolds);
        let last = path.len() - 1;
        refusal.causes.extend(path.iter().enumerate().map(|(place, step)| {
            let role = if place == last { Role::Forbidden } else { Role::Holds };
            Cause { call: step.call, role }
        }));
        refusal.path = path;
        refusal.outcome()
    }

    /// An executable of the graph is destroyed: potentially unsafe (R20).
    pub(super) fn destroy_executable(&mut self, at: CallIndex, call: &Call) -> Outcome {
        let outcome = self.unsafe_call(at, call.thread, Rule::R21);
        let slot = call.graph.and_then(|name| self.user_graphs.get(&name)).copied();
        if let Some(slot) = slot.filter(|_| outcome.result.is_success()) {
            let graph = &mut self.graphs[slot];
            graph.executables = graph.executables.saturating_sub(1);
        }
        outcome
    }

    /// Whether edges that were added by hand close a circle; linear in the graph.
    fn leads_in_a_circle(&self, slot: Slot) -> bool {
        let graph = &self.graphs[slot];
        if graph.edges.is_empty() {
            return false;
        }
        let mut missing = vec![0u32; graph.nodes.len()];
        let mut dependents = vec![Vec::new(); graph.nodes.len()];
        let captured =
            graph.nodes.iter().enumerate().flat_map(|(to, node)| {
                node.dependencies.iter().map(move |from| (from.index(), to))
            });
        let added = graph.edges.iter().map(|edge| (edge.from.index(), edge.to.index()));
        for (from, to) in captured.chain(added) {
            missing[to] += 1;
            dependents[from].push(to);
        }
        let mut free: Vec<usize> = (0..missing.len()).filter(|node| missing[*node] == 0).collect();
        let mut ordered = 0;
        while let Some(node) = free.pop() {
            ordered += 1;
            for to in &dependents[node] {
                missing[*to] -= 1;
                if missing[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        ordered < missing.len()
    }

    /// A graph that the program has a name for, as it is now; none if it is not there any more. Linear in the graph.
    pub fn graph(&self, name: GraphId) -> Option<FinishedGraph> {
        let slot = *self.user_graphs.get(&name)?;
        let graph = &self.graphs[slot];
        graph.destroyed.is_none().then(|| self.snapshot(slot, graph.id))
    }

    /// Whether the program added to a graph by hand, and the graph is no body of a conditional.
    pub(crate) fn is_built(&self, name: GraphId) -> bool {
        let graph = self.user_graphs.get(&name).map(|slot| &self.graphs[*slot]);
        graph.is_some_and(|graph| graph.built && graph.within.is_none())
    }

    /// The first node of a conditional's body that no such body can hold, as a path from the outermost graph; none if the graph is no
    /// body. `node` asks about that one alone.
    pub(crate) fn body_fault(
        &self,
        body: GraphId,
        node: Option<CapturedId>,
    ) -> Option<Vec<PathStep>> {
        let slot = *self.user_graphs.get(&body)?;
        let graph = &self.graphs[slot];
        graph.within?;
        let forbidden = |id: &CapturedId| !graph.nodes[id.index()].fits_in_a_body();
        let all = (0..graph.nodes.len() as u32).map(CapturedId);
        let found =
            node.map_or_else(|| all.into_iter().find(forbidden), |id| Some(id).filter(forbidden))?;
        let mut path = vec![self.step(slot, found)];
        let mut around = graph.within;
        while let Some((holder, node)) = around {
            path.push(self.step(holder, node));
            around = self.graphs[holder].within;
        }
        path.reverse();
        Some(path)
    }

    fn step(&self, slot: Slot, node: CapturedId) -> PathStep {
        let graph = &self.graphs[slot];
        let conditional = graph.inner.iter().find_map(|(id, inside)| match inside {
            Inside::Bodies(kind, _) if *id == node => Some(*kind),
            _ => None,
        });
        let CapturedNode { kind, call, .. } = graph.nodes[node.index()];
        PathStep { graph: graph.name, node, kind, conditional, call }
    }

    /// A copy of a graph with everything inside. Recursive over bodies, whose nesting is bounded when they are made.
    pub(super) fn snapshot(&self, slot: Slot, begun: CallIndex) -> FinishedGraph {
        let graph = &self.graphs[slot];
        let inner: Vec<(CapturedId, Inner)> = graph
            .inner
            .iter()
            .map(|(node, inside)| {
                let inner = match inside {
                    Inside::Child(child) => Inner::Child(child.clone()),
                    Inside::Bodies(kind, bodies) => {
                        let bodies = bodies.iter().map(|body| self.snapshot(*body, begun));
                        Inner::Bodies(*kind, bodies.collect())
                    }
                };
                (*node, inner)
            })
            .collect();
        let inside = || inner.iter().flat_map(|(_, inner)| inner.graphs());
        let height = 1 + inside().map(|graph| graph.height).max().unwrap_or(0);
        let expanded = inside()
            .fold(graph.nodes.len() as u64, |sum, graph| sum.saturating_add(graph.expanded));
        FinishedGraph {
            begun,
            id: graph.id,
            name: graph.name,
            body: graph.within.is_some(),
            nodes: graph.nodes.clone(),
            added: graph.edges.clone(),
            height,
            expanded,
            inner,
        }
    }

    /// The graph does not exist any more, and with it the bodies of its conditionals.
    pub(super) fn bury(&mut self, at: CallIndex, graph: Slot) {
        // With whether a conditional that is gone refers to it.
        let mut pending = vec![(graph, false)];
        while let Some((slot, held)) = pending.pop() {
            let graph = &mut self.graphs[slot];
            graph.within = None;
            // A body that an open capture uses stays until that capture is closed.
            if graph.capture.is_none() {
                let frees = std::mem::take(&mut graph.frees);
                self.forget_frees(frees);
                let graph = &mut self.graphs[slot];
                graph.destroyed = Some(at);
                graph.nodes = Vec::new();
                graph.edges = Vec::new();
                graph.known_edges = FxHashSet::default();
                let inner = std::mem::take(&mut graph.inner);
                pending.extend(bodies(inner).map(|body| (body, true)));
            }
            if held {
                self.release_graph(slot);
            }
        }
    }

    /// Gives up a reference to a graph; the last one lets go of the bodies of its conditionals.
    pub(super) fn release_graph(&mut self, graph: Slot) {
        let mut pending = vec![graph];
        while let Some(slot) = pending.pop() {
            if let Some(gone) = self.graphs.release(slot) {
                self.forget_frees(gone.frees);
                for body in bodies(gone.inner) {
                    self.graphs[body].within = None;
                    pending.push(body);
                }
            }
        }
    }
}

fn bodies(inner: Vec<(CapturedId, Inside)>) -> impl Iterator<Item = Slot> {
    inner.into_iter().flat_map(|(_, inside)| match inside {
        Inside::Child(_) => Vec::new(),
        Inside::Bodies(_, bodies) => bodies,
    })
}

impl CapturedNode {
    /// Whether a conditional's body may hold such a node.
    fn fits_in_a_body(&self) -> bool {
        use NodeKind::{ChildGraph, Conditional, Empty, Kernel, Memcpy, Memset};
        matches!(self.kind, Kernel | Empty | ChildGraph | Memset | Memcpy | Conditional)
            && !self.pageable
    }
}

impl FinishedGraph {
    /// The path to a node in the body of a conditional that no body can hold. Every graph is looked at once, however often it is held.
    pub(super) fn forbidden_in_bodies(&self) -> Option<Vec<PathStep>> {
        struct Visit<'a> {
            graph: &'a FinishedGraph,
            in_body: bool,
            /// The step into the graph, and the visit that it is of.
            from: Option<(usize, PathStep)>,
        }
        let mut visits = vec![Visit { graph: self, in_body: self.body, from: None }];
        let mut seen: FxHashSet<(*const FinishedGraph, bool)> = FxHashSet::default();
        let mut next = 0;
        while next < visits.len() {
            let Visit { graph, in_body, .. } = visits[next];
            let step = |node: CapturedId, conditional: Option<ConditionalKind>| {
                let CapturedNode { kind, call, .. } = graph.nodes[node.index()];
                PathStep { graph: graph.name, node, kind, conditional, call }
            };
            let forbidden = |node: &CapturedNode| in_body && !node.fits_in_a_body();
            if let Some(place) = graph.nodes.iter().position(forbidden) {
                let mut path = vec![step(CapturedId(place as u32), None)];
                let mut at = next;
                while let Some((before, step)) = &visits[at].from {
                    path.push(step.clone());
                    at = *before;
                }
                path.reverse();
                return Some(path);
            }
            for (node, inner) in &graph.inner {
                let (conditional, in_body) = match inner {
                    Inner::Child(_) => (None, in_body),
                    Inner::Bodies(kind, _) => (Some(*kind), true),
                };
                let new = inner
                    .graphs()
                    .iter()
                    .filter(|graph| seen.insert((std::ptr::from_ref(*graph), in_body)));
                let from = Some((next, step(*node, conditional)));
                visits.extend(new.map(|graph| Visit { graph, in_body, from: from.clone() }));
            }
            next += 1;
        }
        None
    }
}
