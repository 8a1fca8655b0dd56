//! Where blocks are cut, so that nodes which write different bytes of one are not ordered for it.
//!
//! In: which bytes of which blocks nodes were seen to write. Out: the places in a block where what one node writes ends, what
//! another one writes begins, and nobody writes across. Bytes between two nodes' that neither was seen to write might be
//! either's, so that there is no border there. O(writes · log writes).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{BlockId, Observed};

/// Pieces of a block at most: each is compared by itself from then on.
const PIECES: usize = 64;

/// The borders of all blocks, in ascending order.
pub(super) fn borders(observed: &[Observed]) -> Vec<(BlockId, u64)> {
    let mut spans = BTreeMap::<BlockId, Vec<&Range<u64>>>::new();
    for seen in observed {
        for (&block, span) in seen.writes.iter().zip(&seen.spans) {
            spans.entry(block).or_default().push(span);
        }
    }
    let mut borders = Vec::new();
    for (block, mut spans) in spans {
        let ends: BTreeSet<u64> = spans.iter().map(|span| span.end).collect();
        spans.sort_unstable_by_key(|span| span.start);
        let (mut found, mut reached) = (Vec::new(), 0);
        for span in spans {
            // All that begin before have ended here.
            if reached == span.start && ends.contains(&span.start) && found.last() != Some(&reached)
            {
                found.push(span.start);
            }
            reached = reached.max(span.end);
        }
        if found.len() < PIECES {
            borders.extend(found.into_iter().map(|at| (block, at)));
        }
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_is_where_one_ends_and_another_begins() {
        let check = |spans: &[Range<u64>], expected: &[u64]| {
            let writes = |span: &Range<u64>| Observed {
                writes: vec![BlockId(3)],
                spans: vec![span.clone()],
                ..Observed::default()
            };
            let observed: Vec<Observed> = spans.iter().map(writes).collect();
            let found: Vec<u64> = borders(&observed).into_iter().map(|(_, at)| at).collect();
            assert_eq!(found, expected, "{spans:?}");
        };
        check(&[0..8, 8..16], &[8]);
        check(&[8..16, 0..8, 0..8, 16..24], &[8, 16]);
        check(&[0..8, 12..16], &[]);
        check(&[0..8, 8..16, 0..16], &[]);
        check(&[0..8, 8..16, 4..12], &[]);
        check(&[0..16, 0..16], &[]);
        check(&[4..8, 8..12, 0..4], &[4, 8]);
        let many: Vec<Range<u64>> = (0..PIECES as u64).map(|at| at * 4..at * 4 + 4).collect();
        check(&many, &(1..PIECES as u64).map(|at| at * 4).collect::<Vec<_>>());
        let more: Vec<Range<u64>> = (0..=PIECES as u64).map(|at| at * 4..at * 4 + 4).collect();
        check(&more, &[]);
    }
}
