//! Stream-ordered memory: R24 and R25.

use phonograph_trace::{Call, CuResult, MemoryId};

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
        let outcome = self.alloc_on(at, call, memory)?;
        if !outcome.result.is_success() {
            // A refused allocation hands over null, so that the name stands for nothing from here on.
            self.set_memory(memory, None);
        }
        Ok(outcome)
    }

    fn alloc_on(
        &mut self,
        at: CallIndex,
        call: &Call,
        memory: MemoryId,
    ) -> Result<Outcome, ModelError> {
        Ok(match self.target(call)? {
            Target::Destroyed => self.dead_handle(at),
            // R24a: not capturing: R20, else pool memory.
            Target::Idle(_) => self.alloc_outside(at, call, memory),
            // R0: not recorded on the legacy stream; R18 as for other work there, then as above.
            Target::Legacy => self.after_legacy(at, |model| model.alloc_outside(at, call, memory)),
            // R24b: capturing: a node, owned by the graph. Leaking it is no error.
            Target::Capturing(key, capture) => {
                if let Some(refused) = self.gate(at, capture) {
                    return Ok(refused);
                }
                let effect = self.add_node(at, key, capture, NodeKind::MemAlloc, false);
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
            // R0: not recorded on the legacy stream; R18 as for other work there.
            Target::Legacy => {
                Ok(self.after_legacy(at, |model| model.free_outside(at, call, memory)))
            }
            Target::Capturing(key, capture) => {
                if let Some(refused) = self.gate(at, capture) {
                    return Ok(refused);
                }
                // R25c: anything else than R25d: INVALID_VALUE, the capture stays valid.
                if !self.may_free_in(memory, capture) {
                    return Ok(self.free_refused(at, memory, Rule::R25c));
                }
                // R25d: an allocation of a graph alive: a node, even if the graph is not this capture's.
                if let Some(Memory::Graph { freed, graph, .. }) = self.memory.get_mut(&memory) {
                    *freed = Some(at);
                    let own = *graph == self.captures[capture].graph;
                    self.graphs[*graph].leaves -= u32::from(own);
                }
                Ok(Outcome::with(
                    Rule::R25d,
                    self.add_node(at, key, capture, NodeKind::MemFree, false),
                ))
            }
        }
    }

    fn free_outside(&mut self, at: CallIndex, call: &Call, memory: MemoryId) -> Outcome {
        // After R20.
        let outcome = self.unsafe_call(at, call.thread, Rule::R25b);
        if !outcome.result.is_success() {
            return outcome;
        }
        match self.memory.get(&memory) {
            // R25b: pool memory: freed.
            Some(Memory::Pool) => {
                self.set_memory(memory, Some(Memory::Freed { freed: at }));
                outcome
            }
            // R0: the documentation lets the program free what a launch of a graph allocated, once a launch.
            Some(&Memory::Graph { graph, freed: None, freed_after_launch, .. })
                if self.graphs[graph].launches > freed_after_launch =>
            {
                let graph = &mut self.graphs[graph];
                graph.outstanding -= 1;
                let launches = graph.launches;
                if let Some(Memory::Graph { freed_after_launch, .. }) = self.memory.get_mut(&memory)
                {
                    *freed_after_launch = launches;
                }
                Outcome::success(Rule::FreesLaunched)
            }
            // R25e: null: nothing happens.
            None => Outcome { rule: Rule::R25e, ..outcome },
            // R25a: anything else but pool memory (any graph's allocation, what is freed): INVALID_VALUE.
            _ => self.free_refused(at, memory, Rule::R25a),
        }
    }

    /// Whether an allocation belongs to a graph that is alive, is not freed, and was not made by an *earlier* capture into the graph
    /// that `capture` captures into (named case 5).
    fn may_free_in(&self, memory: MemoryId, capture: Slot) -> bool {
        let Some(Memory::Graph { graph, capture: begun, freed: None, .. }) =
            self.memory.get(&memory)
        else {
            return false;
        };
        let capture = &self.captures[capture];
        self.graphs[*graph].destroyed.is_none()
            && (capture.graph != *graph || capture.begun == *begun)
    }

    /// A launch of a graph that the program has a name for. R0: the documentation refuses it while allocations of the launch
    /// before are not freed; it is not recorded. A graph that no name stands for is taken to leave no allocation.
    pub(super) fn launch(&mut self, at: CallIndex, call: &Call) -> Outcome {
        let Some(slot) = call.graph.and_then(|name| self.user_graphs.get(&name)).copied() else {
            return Outcome::success(Rule::R11);
        };
        let graph = &mut self.graphs[slot];
        if graph.outstanding == 0 {
            graph.launches += 1;
            graph.outstanding = graph.leaves;
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
            Some(&Memory::Graph { graph, allocated, freed, .. }) => {
                refusal.causes.push(Cause { call: allocated, role: Role::Allocated { memory } });
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
