//! Stream-ordered memory: R24 and R25.

use phonograph_trace::{Call, CuResult, Flags, Function, MemoryId};
use rustc_hash::FxHashSet;

use super::class::NodeKind;
use super::refusal::{Cause, Role};
use super::slab::Slot;
use super::state::{CallIndex, Memory};
use super::{Model, ModelError, Outcome, Rule, Target, missing};

impl Model {
    pub(super) fn alloc_async(
        &mut self,
        at: CallIndex,
        call: &Call,
    ) -> Result<Outcome, ModelError> {
        let memory = call.memory.ok_or(missing(call, "memory"))?;
        // A refused allocation leaves what the name stood for, as recordings have it. The driver itself hands over null then
        // (seen on an H200, driver 580), so a program that gives the variable in which the address was loses it.
        Ok(match self.target(call)? {
            Target::Destroyed => self.dead_handle(at),
            // R24a: not capturing: R20, else pool memory.
            Target::Idle(_) => self.alloc_outside(at, call, memory),
            // R18, then as above.
            Target::Legacy => self.after_legacy(at, |model| model.alloc_outside(at, call, memory)),
            // R24b: capturing: a node, owned by the graph. Leaking it is no error.
            Target::Capturing(key, capture) => {
                if let Some(refused) = self.gate(at, capture) {
                    return Ok(refused);
                }
                let effect = self.add_node(at, key, capture, NodeKind::MemAlloc, Flags::NONE);
                let state = &self.captures[capture];
                let (graph, begun) = (state.graph, state.begun);
                // Launches before this capture did not make the allocation, so there is nothing of theirs to free.
                let launches = self.graphs[graph].launches;
                self.graphs.retain(graph);
                self.graphs[graph].leaves += 1;
                self.set_memory(
                    memory,
                    Some(Memory::Graph {
                        graph,
                        capture: begun,
                        allocated: at,
                        freed: None,
                        elsewhere: None,
                        freed_after_launch: launches,
                    }),
                );
                Outcome::with(Rule::R24b, effect)
            }
        })
    }

    fn alloc_outside(&mut self, at: CallIndex, call: &Call, memory: MemoryId) -> Outcome {
        let outcome = self.unsafe_call(at, call.thread, Rule::R24a);
        if outcome.result.is_success() {
            self.set_memory(memory, Some(Memory::Pool));
        }
        outcome
    }

    pub(super) fn set_memory(&mut self, memory: MemoryId, state: Option<Memory>) {
        let old = match state {
            Some(state) => self.memory.insert(memory, state),
            None => self.memory.remove(&memory),
        };
        if let Some(Memory::Graph { graph, .. }) = old {
            self.release_graph(graph);
        }
    }

    pub(super) fn free_async(&mut self, at: CallIndex, call: &Call) -> Result<Outcome, ModelError> {
        let memory = call.memory.ok_or(missing(call, "memory"))?;
        match self.target(call)? {
            Target::Destroyed => Ok(self.dead_handle(at)),
            Target::Idle(_) => Ok(self.free_outside(at, call, memory)),
            // R18, then as above.
            Target::Legacy => {
                Ok(self.after_legacy(at, |model| model.free_outside(at, call, memory)))
            }
            Target::Capturing(key, capture) => {
                if let Some(refused) = self.gate(at, capture) {
                    return Ok(refused);
                }
                // R25e: null: nothing happens, and there is no node.
                if !self.memory.contains_key(&memory) {
                    return Ok(Outcome::success(Rule::R25e));
                }
                // R25c: anything else than R25d: INVALID_VALUE, the capture stays valid. Named case 5: nor is it one that an *earlier*
                // capture into this graph made.
                let graph = self.captures[capture].graph;
                let earlier = matches!(self.memory.get(&memory), Some(Memory::Graph { graph: own, capture: begun, .. })
                    if *own == graph && *begun != self.captures[capture].begun);
                // R25d: an allocation of a graph alive: a node, even if the graph is not this capture's.
                if earlier || !self.freed_by(at, memory, graph) {
                    return Ok(self.free_refused(at, memory, Rule::R25c));
                }
                Ok(Outcome::with(
                    Rule::R25d,
                    self.add_node(at, key, capture, NodeKind::MemFree, Flags::NONE),
                ))
            }
        }
    }

    /// A potentially unsafe call without a stream: R20, R21. What a graph allocates, cuMemFree frees as `free_outside` does (seen on
    /// an H200, driver 580). Other memory that is freed or allocated at once is none of the model's, but may be where a graph's was.
    pub(super) fn unsafe_on_memory(&mut self, at: CallIndex, call: &Call) -> Outcome {
        let outcome = self.unsafe_call(at, call.thread, Rule::R21);
        let of_graph =
            |memory: &MemoryId| matches!(self.memory.get(memory), Some(Memory::Graph { .. }));
        let Some(memory) = call.memory.filter(of_graph) else { return outcome };
        if !outcome.result.is_success() {
            return outcome;
        }
        if call.function == Function::MemFree {
            let freed = self.free_launched(at, memory);
            return freed.unwrap_or_else(|| self.free_refused(at, memory, Rule::FreesUnlaunched));
        }
        self.set_memory(memory, None);
        outcome
    }

    /// R0: the program may free what a launch of a graph allocated, once a launch. Its own graph cannot free it from then on.
    fn free_launched(&mut self, at: CallIndex, memory: MemoryId) -> Option<Outcome> {
        let Some(Memory::Graph { graph, freed: None, freed_after_launch, elsewhere, .. }) =
            self.memory.get_mut(&memory)
        else {
            return None;
        };
        let graph = &mut self.graphs[*graph];
        if graph.launches <= *freed_after_launch {
            return None;
        }
        graph.outstanding -= 1;
        *freed_after_launch = graph.launches;
        elsewhere.get_or_insert(at);
        Some(Outcome::success(Rule::FreesLaunched))
    }

    fn free_outside(&mut self, at: CallIndex, call: &Call, memory: MemoryId) -> Outcome {
        // After R20.
        let outcome = self.unsafe_call(at, call.thread, Rule::R25b);
        if !outcome.result.is_success() {
            return outcome;
        }
        if let Some(freed) = self.free_launched(at, memory) {
            return freed;
        }
        match self.memory.get(&memory) {
            // R25b: pool memory: freed.
            Some(Memory::Pool) => {
                self.set_memory(memory, Some(Memory::Freed { freed: at }));
                outcome
            }
            // R25e: null: nothing happens (seen on an H200, driver 580; no recording before had it).
            None => Outcome { rule: Rule::R25e, ..outcome },
            // R25a: anything else but pool memory (any graph's allocation, what is freed): INVALID_VALUE.
            _ => self.free_refused(at, memory, Rule::R25a),
        }
    }

    /// R25d: notes that a graph frees an allocation of a graph. Its own graph may if no graph has; any other may once, if its own has
    /// not. The allocation is there as long as its graph is, or one that frees it.
    pub(super) fn freed_by(&mut self, at: CallIndex, memory: MemoryId, by: Slot) -> bool {
        let Some(Memory::Graph { graph, freed: freed @ None, elsewhere, allocated, .. }) =
            self.memory.get_mut(&memory)
        else {
            return false;
        };
        let (own, allocated) = (*graph, *allocated);
        if own == by {
            if elsewhere.is_some() || self.graphs[own].destroyed.is_some() {
                return false;
            }
            *freed = Some(at);
            self.graphs[own].leaves -= 1;
            return true;
        }
        if self.graphs[own].destroyed.is_some() && !self.freeing.contains_key(&allocated) {
            return false;
        }
        if !self.graphs[by].frees.insert(allocated) {
            return false;
        }
        elsewhere.get_or_insert(at);
        *self.freeing.entry(allocated).or_insert(0) += 1;
        true
    }

    /// A launch of a graph frees what launches of other graphs have allocated. Linear in the names of memory, if it frees any.
    fn free_for_others(&mut self, slot: Slot) {
        let Self { graphs, memory, .. } = self;
        if graphs[slot].frees.is_empty() {
            return;
        }
        for state in memory.values_mut() {
            let Memory::Graph { graph, allocated, freed_after_launch, .. } = state else {
                continue;
            };
            let launches = graphs[*graph].launches;
            if graphs[slot].frees.contains(allocated) && launches > *freed_after_launch {
                *freed_after_launch = launches;
                graphs[*graph].outstanding -= 1;
            }
        }
    }

    /// Forgets what a graph frees: it does not exist any more.
    pub(super) fn forget_frees(&mut self, frees: FxHashSet<CallIndex>) {
        for allocated in frees {
            let Some(graphs) = self.freeing.get_mut(&allocated) else { continue };
            *graphs -= 1;
            if *graphs == 0 {
                self.freeing.remove(&allocated);
            }
        }
    }

    /// A launch of a graph that the program has a name for. R0: it is refused while allocations of the launch before
    /// are not freed, unless the executable frees them itself. A graph that no name stands for is taken to leave no allocation.
    pub(super) fn launch(&mut self, at: CallIndex, call: &Call) -> Outcome {
        let Some(slot) = call.graph.and_then(|name| self.user_graphs.get(&name)).copied() else {
            return Outcome::success(Rule::R11);
        };
        let graph = &mut self.graphs[slot];
        if graph.outstanding == 0 || graph.auto_free {
            graph.launches += 1;
            graph.outstanding = graph.leaves;
            self.free_for_others(slot);
            return Outcome::success(Rule::R11);
        }
        let launched = graph.launches;
        self.refuse(at, CuResult::INVALID_VALUE, Rule::Relaunch, |refusal| {
            let leaked = self.memory.iter().filter_map(|(memory, state)| match state {
                Memory::Graph { graph, allocated, freed: None, freed_after_launch, .. }
                    if *graph == slot && *freed_after_launch < launched =>
                {
                    let role = Role::Allocated { memory: *memory };
                    Some(Cause { call: *allocated, role })
                }
                _ => None,
            });
            refusal.causes.extend(leaked);
        })
    }

    pub(super) fn free_refused(&self, at: CallIndex, memory: MemoryId, rule: Rule) -> Outcome {
        self.refuse(at, CuResult::INVALID_VALUE, rule, |refusal| match self.memory.get(&memory) {
            None | Some(Memory::Pool) => {}
            Some(&Memory::Freed { freed }) => {
                refusal.causes.push(Cause { call: freed, role: Role::Freed { memory } })
            }
            Some(&Memory::Graph { graph, allocated, freed, elsewhere, .. }) => {
                refusal.causes.push(Cause { call: allocated, role: Role::Allocated { memory } });
                let freed = freed.or(elsewhere);
                refusal
                    .causes
                    .extend(freed.map(|call| Cause { call, role: Role::Freed { memory } }));
                let destroyed = self.graphs[graph].destroyed;
                refusal
                    .causes
                    .extend(destroyed.map(|call| Cause { call, role: Role::GraphDestroyed }));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use phonograph_trace::{Call, Script};

    use crate::model::Model;

    /// Runs `round` of a script again and again after its `start`, and hands over the model after each.
    fn repeat(start: &str, round: &str, check: impl Fn(&Model)) {
        let script = Script::parse(&format!("{start}{round}")).unwrap();
        let first = Script::parse(start).unwrap().calls.len();
        let mut model = Model::new(script.names.stream_kinds(), script.names.event_count());
        let mut make = |calls: &[Call]| {
            for call in calls {
                let outcome = model.apply(call).unwrap();
                assert!(outcome.result.is_success(), "{}: {outcome:?}", script.words(call));
            }
        };
        make(&script.calls[..first]);
        for _ in 0..1000 {
            make(&script.calls[first..]);
        }
        check(&model);
    }

    #[test]
    fn frees_by_graphs_that_are_gone_are_forgotten() {
        let start = "stream s t nonblocking\nbegin s relaxed\n";
        let round = "malloc_async s m\nbegin t relaxed\nfree_async t m\nend t\n";
        repeat(start, round, |model| assert_eq!(model.freeing.len(), 0));
        let kept =
            "malloc_async s m\nbegin t relaxed\nfree_async t m\nend t as g\ngraph_destroy g\n";
        repeat(start, kept, |model| assert_eq!(model.freeing.len(), 0));
    }

    #[test]
    fn streams_that_come_and_go_in_a_capture_are_remembered_once() {
        let start = "stream s t nonblocking\nevent e\nbegin s relaxed\nrecord e s\n";
        let round = "wait t e\ndestroy_stream t\ncreate_stream t\n";
        repeat(start, round, |model| {
            assert_eq!(model.captures[model.open[0]].left.len(), 1);
        });
    }
}
