//! Nodes that use other memory in place of what their parameters name.
//!
//! In: a node that was read, and which addresses become which. Out: its parameters with every such address replaced. An
//! address is eight bytes at a multiple of eight in a kernel's parameter block, or an end of a copy or fill. What else a
//! kernel may use to find memory (tables in memory, sums of two parameters) is not seen: whoever diverts a node runs it to
//! see whether it has moved. O(bytes of parameters · diversions).

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CUgraphNodeParams;
use phonograph_graph::{NodeId, NodeKind, Target};

use super::read::Read;

/// Memory that stands in for other memory of the same size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Diversion {
    /// Where the bytes begin that are not used any more.
    pub from: u64,
    /// How many there are.
    pub bytes: u64,
    /// Where those begin that are used instead.
    pub to: u64,
}

impl Diversion {
    pub(super) fn of(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.from)?;
        (offset < self.bytes).then(|| self.to + offset)
    }
}

/// The values of a kernel's parameters, and pointers to them.
#[derive(Default)]
pub(super) struct Values {
    bytes: Vec<Vec<u8>>,
    pointers: Vec<*mut c_void>,
}

/// Replaces addresses in the parameters of a node. For a kernel they point into `values` afterwards.
///
/// The kind is that of the node and of the parameters.
pub(super) fn divert(
    source: &Read,
    node: NodeId,
    kind: &NodeKind,
    diversions: &[Diversion],
    params: &mut CUgraphNodeParams,
    values: &mut Values,
) {
    if diversions.is_empty() {
        return;
    }
    let replace = |address: &mut u64| {
        if let Some(other) = diversions.iter().find_map(|diversion| diversion.of(*address)) {
            *address = other;
        }
    };
    match kind {
        NodeKind::Kernel(_) => {
            let Some(parameters) = source.parameters.of(node) else { return };
            *values = Values::default();
            for parameter in parameters {
                let mut bytes = parameter.bytes.to_vec();
                for at in words(parameter.offset, bytes.len()) {
                    let mut word = word(&bytes, at);
                    replace(&mut word);
                    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
                }
                values.bytes.push(bytes);
            }
            values.pointers =
                values.bytes.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
            // SAFETY: these are the parameters of a kernel node.
            let kernel = unsafe { &mut params.__bindgen_anon_1.kernel };
            kernel.kernelParams = values.pointers.as_mut_ptr();
            kernel.extra = ptr::null_mut();
        }
        NodeKind::Memcpy(_) => {
            // SAFETY: these are the parameters of a copy.
            let copy = unsafe { &mut params.__bindgen_anon_1.memcpy.copyParams };
            replace(&mut copy.srcDevice);
            replace(&mut copy.dstDevice);
        }
        NodeKind::Memset(_) => {
            // SAFETY: these are the parameters of a fill.
            replace(unsafe { &mut params.__bindgen_anon_1.memset.dst });
        }
        _ => {}
    }
}

/// What the parameters of a node may name: every value that could be an address.
pub(super) fn addresses(source: &Read, node: NodeId) -> Vec<u64> {
    let address = |target: Target| match target {
        Target::Address(address) => Some(address),
        _ => None,
    };
    match &source.graph.node(node).kind {
        NodeKind::Kernel(_) => source
            .parameters
            .of(node)
            .into_iter()
            .flatten()
            .flat_map(|p| words(p.offset, p.bytes.len()).map(move |at| word(p.bytes, at)))
            .collect(),
        NodeKind::Memcpy(copy) => {
            [copy.src.target, copy.dst.target].into_iter().filter_map(address).collect()
        }
        NodeKind::Memset(fill) => address(fill.dst.target).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Where whole words of eight bytes lie in a parameter that begins at an offset of the parameter block.
fn words(offset: usize, length: usize) -> impl Iterator<Item = usize> {
    (offset.next_multiple_of(8) - offset..length.saturating_sub(7)).step_by(8)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_on_multiples_of_eight_of_the_parameter_block() {
        let check = |offset, length, expected: &[usize]| {
            assert_eq!(words(offset, length).collect::<Vec<_>>(), expected, "{length} at {offset}");
        };
        check(0, 8, &[0]);
        check(0, 7, &[]);
        check(4, 8, &[]);
        check(4, 12, &[4]);
        check(8, 24, &[0, 8, 16]);
        check(0, 0, &[]);
    }

    #[test]
    fn only_addresses_inside_are_diverted() {
        let diversion = Diversion { from: 512, bytes: 256, to: 4096 };
        let found: Vec<_> = [0, 511, 512, 767, 768, u64::MAX].map(|at| diversion.of(at)).into();
        assert_eq!(found, [None, None, Some(4096), Some(4351), None, None]);
    }
}
