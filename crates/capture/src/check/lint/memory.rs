//! Memory that captured graphs use and that is freed (W6), and launches of one executable on two streams (W7).
//!
//! In: frees, allocations and launches as the script makes them, beside the graphs that captures ended with. A free costs the graphs that
//! use the memory, a launch what was freed of its graph.

use phonograph_trace::Call;

use super::super::finding::{self, Span};
use super::{Freed, Lint, SHOWN};
use crate::model::CallIndex;

impl Lint<'_> {
    pub(super) fn free(&mut self, at: CallIndex, call: &Call) {
        let Some(memory) = call.memory else { return };
        self.freed.insert(memory, at);
        let name = self.memory(memory);
        let mut users: Vec<(CallIndex, CallIndex)> = Vec::new();
        for graph in self.users.get(&memory).into_iter().flatten() {
            let graph = &mut self.graphs[*graph];
            let node = graph.uses[&memory];
            graph.freed.push(Freed { at, memory, node });
            users.push((graph.begun, node));
        }
        for (begun, capture) in &mut self.captures {
            if let Some(node) = capture.uses.get(&memory) {
                capture.freed.push(Freed { at, memory, node: *node });
                users.push((*begun, *node));
            }
        }
        users.sort_unstable();
        if users.is_empty() {
            return;
        }
        let mut chain = Vec::new();
        for (begun, node) in users.iter().take(SHOWN) {
            chain.push(Span::new(self.script, *begun, "a graph is captured from here"));
            chain.push(Span::new(self.script, *node, format!("its node uses {name}")));
        }
        let title = format!(
            "`{}` frees {name}, which a captured graph still uses",
            finding::words(self.script, call)
        );
        let help = "keep it for as long as the graph may be launched, or update the node with the new address before the next launch".to_owned();
        self.warn("W6", title, at, "every launch after this uses freed memory", chain, vec![help]);
    }

    pub(super) fn allocate(&mut self, at: CallIndex, call: &Call) {
        if let Some(memory) = call.memory {
            self.allocated.insert(memory, at);
            // The name stands for other memory from here on.
            self.freed.remove(&memory);
            self.users.remove(&memory);
        }
    }

    pub(super) fn launch(&mut self, at: CallIndex, call: &Call) {
        let Some((graph, stream)) =
            call.graph.and_then(|name| self.named.get(&name).copied()).zip(call.stream)
        else {
            return;
        };
        let words = finding::words(self.script, call);
        let freed = &self.graphs[graph].freed;
        if !freed.is_empty() {
            let mut chain = Vec::new();
            for Freed { at, memory, node } in freed.iter().take(SHOWN) {
                let name = self.memory(*memory);
                chain.push(Span::new(self.script, *node, format!("this node uses {name}")));
                chain.push(Span::new(self.script, *at, format!("{name} is freed here")));
                if let Some(anew) = self.allocated.get(memory).filter(|anew| *anew > at) {
                    let label = format!(
                        "{name} is other memory from here on; the node keeps the old address"
                    );
                    chain.push(Span::new(self.script, *anew, label));
                }
            }
            let title = format!("`{words}` launches a graph that uses freed memory");
            let help =
                "capture again, or set the nodes' parameters to memory that is alive".to_owned();
            self.warn(
                "W6",
                title,
                at,
                "reads or writes memory that may be someone else's by now",
                chain,
                vec![help],
            );
        }
        if let Some((earlier, other)) =
            self.graphs[graph].launch.filter(|(_, other)| *other != stream)
        {
            let title = format!(
                "`{words}` waits for the launch of the same graph on {}",
                self.stream(other)
            );
            let chain = vec![Span::new(self.script, earlier, "launched here before")];
            let help = "one executable runs once at a time; instantiate the graph twice to let the launches overlap".to_owned();
            self.warn("W7", title, at, "ordered behind the earlier launch", chain, vec![help]);
        }
        self.graphs[graph].launch = Some((at, stream));
    }
}
