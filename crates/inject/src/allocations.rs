//! Device memory that is allocated, as far as it is followed: to tell addresses from other words.

use std::collections::BTreeMap;

use phonograph_trace::live::{Operand, Operands};

/// Allocations that are followed; further ones are not.
const MOST: usize = 1 << 16;
/// Allocations that are told of one kernel.
const TOLD: usize = 16;

/// First addresses, each with the one behind the last.
#[derive(Default)]
pub struct Allocations(BTreeMap<u64, u64>);

impl Allocations {
    /// Takes note of a call that succeeded.
    pub fn note(&mut self, name: &str, operands: &Operands) {
        let Some(address) = operands.get(Operand::Memory) else { return };
        match name {
            "cuMemAlloc_v2"
            | "cuMemAllocAsync"
            | "cuMemAllocFromPoolAsync"
            | "cuMemAllocManaged"
            | "cuMemMap"
                if self.0.len() < MOST =>
            {
                let bytes = operands.get(Operand::Bytes).unwrap_or(1);
                self.0.insert(address, address.saturating_add(bytes));
            }
            "cuMemFree_v2" | "cuMemFreeAsync" | "cuMemUnmap" => {
                self.0.remove(&address);
            }
            _ => {}
        }
    }

    /// Those of the words that lie in an allocation, one for each allocation.
    pub fn of(&self, words: &[u64]) -> Vec<u64> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        for word in words {
            let Some((start, end)) = self.0.range(..=word).next_back() else { continue };
            if word < end && !found.iter().any(|(known, _)| known == start) {
                found.push((*start, *word));
                if found.len() == TOLD {
                    break;
                }
            }
        }
        found.into_iter().map(|(_, word)| word).collect()
    }
}

#[cfg(test)]
mod tests {
    use phonograph_trace::live::{Operand, Operands};

    use super::Allocations;

    #[test]
    fn addresses_are_told_from_other_words() {
        let mut allocations = Allocations::default();
        let mut call = Operands::default();
        call.set(Operand::Memory, 1000);
        call.set(Operand::Bytes, 100);
        allocations.note("cuMemAlloc_v2", &call);
        call.set(Operand::Memory, 2000);
        allocations.note("cuMemAllocAsync", &call);
        assert_eq!(allocations.of(&[5, 999, 1000, 1099, 1100, 2050, u64::MAX]), [1000, 2050]);
        allocations.note("cuMemFreeAsync", &call);
        assert_eq!(allocations.of(&[1099, 2050]), [1099]);
    }
}
