//! Full edges that are added behind edges at launch order (W11).
//!
//! In: edges as the script adds them. A driver of version 580 keeps every full edge of a graph if those at launch order were
//! added after all of them; otherwise kernels that do not wait for themselves may begin before what a full edge leads from is
//! complete, also where no edge at launch order is near. Seen on an H200 in 362 of 595 random graphs with those edges first, in none
//! with them last.

use phonograph_trace::{Call, GraphId, Port};

use super::super::finding::{self, Span};
use super::Lint;
use crate::model::CallIndex;

/// What a graph has of edges at launch order.
pub(super) struct LaunchOrder {
    first: CallIndex,
    warned: bool,
}

impl Lint<'_> {
    pub(super) fn edge(&mut self, at: CallIndex, call: &Call) {
        let edge = call.build.as_ref().and_then(|build| build.edge);
        let Some((graph, (_, _, port))) = call.graph.zip(edge) else { return };
        match port {
            Port::LaunchOrder => {
                let new = LaunchOrder { first: at, warned: false };
                self.launch_order.entry(graph).or_insert(new);
            }
            Port::Full => self.full_edge(at, call, graph),
            Port::Programmatic => {}
        }
    }

    fn full_edge(&mut self, at: CallIndex, call: &Call, graph: GraphId) {
        let Some(order) = self.launch_order.get_mut(&graph).filter(|order| !order.warned) else {
            return;
        };
        order.warned = true;
        let first =
            Span::new(self.script, order.first, "this edge at launch order is there already");
        let title = format!(
            "`{}` adds a full edge behind one at launch order",
            finding::words(self.script, call)
        );
        let label = "a driver of version 580 may begin kernels before what full edges lead from is complete";
        let help = "add the edges at launch order after all full ones, or let every kernel of the graph begin with a wait \
                    (griddepcontrol.wait)"
            .to_owned();
        self.warn("W11", title, at, label, vec![first], vec![help]);
    }
}
