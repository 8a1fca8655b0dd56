//! What a watched graph did last, which is where to look when a kernel does not end or faults.

use std::time::Duration;

use phonograph_graph::NodeId;

use super::Block;
use crate::error::DriverError;

/// How many nodes or blocks a sentence names.
const NAMED: usize = 3;

/// What was asked for last.
#[derive(Debug, Clone, PartialEq)]
pub struct Last {
    /// Nodes that were issued since the last wait, by number and name; none for a replay.
    pub nodes: Vec<(NodeId, String)>,
    /// The blocks that were put back or filled last, by number.
    pub blocks: Vec<(usize, Block)>,
}

impl Last {
    /// Which kernel waits, on what memory, and what can be done about it.
    pub(super) fn endless(&self, patience: Duration) -> String {
        let (running, exclude) = self.running("the node that waits");
        let put = self.put();
        format!(
            "{running} has not ended after {patience:?}: on these bytes, or in this order, it waits for what never comes{put}. \
             {}",
            advice(exclude)
        )
    }

    /// Which kernel faulted, on what memory, and what can be done about it.
    pub(super) fn faulted(&self, error: &DriverError) -> String {
        let (running, exclude) = self.running("the node that faults");
        let put = self.put();
        format!(
            "{running} faulted on these bytes, or in this order{put}: {error}. {}",
            advice(exclude)
        )
    }

    /// What runs, and what of it is to be excluded: it, or which of several.
    fn running(&self, which: &'static str) -> (String, &'static str) {
        let name = |(node, name): &(NodeId, String)| format!("{node} ({name})");
        match &self.nodes[..] {
            [] => ("a replay".to_owned(), which),
            [one] => (name(one), "it"),
            some => (format!("one of {}", list(some.iter().map(name))), which),
        }
    }

    fn put(&self) -> String {
        let block = |(at, Block { address, bytes }): &(usize, Block)| {
            format!("block {at} ({bytes} bytes at {address:#x})")
        };
        match &self.blocks[..] {
            [] => String::new(),
            some => format!("; put there last: {}", list(some.iter().map(block))),
        }
    }
}

fn advice(exclude: &str) -> String {
    format!(
        "The context is beyond use: begin anew and exclude {exclude}, or allow neither zeros nor scratch"
    )
}

/// The first few, and how many there are beside.
fn list(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let named = all.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(nodes: &[u32], blocks: &[usize]) -> Last {
        let block = Block { address: 4096, bytes: 512 };
        Last {
            nodes: nodes.iter().map(|&n| (NodeId(n), format!("k{n}"))).collect(),
            blocks: blocks.iter().map(|&at| (at, block)).collect(),
        }
    }

    #[test]
    fn an_endless_kernel_is_named_with_its_memory() {
        let check = |nodes: &[u32], blocks: &[usize], expected: &str| {
            let said = last(nodes, blocks).endless(Duration::from_secs(10));
            let (before, after) = said.split_once(" has not ended after 10s: ").unwrap();
            assert_eq!(format!("{before}|{}", after.split_once("comes").unwrap().1), expected);
        };
        let end = |what| {
            format!(
                ". The context is beyond use: begin anew and exclude {what}, or allow neither zeros nor scratch"
            )
        };
        let one = "; put there last: block 2 (512 bytes at 0x1000)";
        check(&[7], &[2], &format!("n7 (k7)|{one}{}", end("it")));
        let some = "one of n1 (k1), n2 (k2), n3 (k3) and 2 more|";
        check(&[1, 2, 3, 4, 5], &[], &format!("{some}{}", end("the node that waits")));
        check(&[], &[], &format!("a replay|{}", end("the node that waits")));
    }

    #[test]
    fn a_fault_is_told_with_the_kernels_that_ran() {
        let error = DriverError {
            call: "cuStreamQuery",
            code: 700,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
            message: "an illegal memory access was encountered".into(),
        };
        assert_eq!(
            last(&[7], &[2]).faulted(&error),
            "n7 (k7) faulted on these bytes, or in this order; put there last: block 2 (512 bytes at 0x1000): cuStreamQuery \
             failed: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered. The context is beyond use: \
             begin anew and exclude it, or allow neither zeros nor scratch"
        );
    }
}
