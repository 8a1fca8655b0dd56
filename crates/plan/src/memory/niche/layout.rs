//! The input of the search: pieces over sections, listed by where they start and end.

use crate::memory::sections::Span;
use crate::random::scramble;

use super::NONE;

/// An item to be placed.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) struct Piece {
    pub span: Span,
    /// At least 1.
    pub size: u64,
}

/// Where lifetimes start and end, and which are alike. The same for every capacity.
pub(in crate::memory) struct Layout {
    pub(super) pieces: Vec<Piece>,
    pub(super) sections: usize,
    /// Pieces by first section, and by last.
    pub(super) starting: Vec<Vec<u32>>,
    pub(super) ending: Vec<Vec<u32>>,
    /// Pieces over each section.
    pub(super) over: Vec<Vec<u32>>,
    /// The piece before this one that has the same span and size; it is placed first, for they are interchangeable.
    pub(super) twin: Vec<u32>,
    /// A random word for each.
    pub(super) word: Vec<u64>,
}

impl Layout {
    /// O(sections covered by all pieces).
    pub fn new(pieces: Vec<Piece>, sections: usize) -> Self {
        let mut starting = vec![Vec::new(); sections];
        let mut ending = vec![Vec::new(); sections];
        let mut over = vec![Vec::new(); sections];
        for (index, piece) in (0u32..).zip(&pieces) {
            starting[piece.span.first as usize].push(index);
            ending[piece.span.end as usize - 1].push(index);
            piece.span.sections().for_each(|section| over[section].push(index));
        }
        let mut twin = vec![NONE; pieces.len()];
        for list in &mut starting {
            // By end, so that those that end within a niche are the first.
            list.sort_by_key(|&i| (pieces[i as usize].span.end, pieces[i as usize].size, i));
            for pair in list.windows(2) {
                let [a, b] = [pieces[pair[0] as usize], pieces[pair[1] as usize]];
                if (a.span, a.size) == (b.span, b.size) {
                    twin[pair[1] as usize] = pair[0];
                }
            }
        }
        for list in &mut ending {
            let first = |i: u32| std::cmp::Reverse(pieces[i as usize].span.first);
            list.sort_by_key(|&i| (first(i), pieces[i as usize].size, i));
        }
        let word = (0..pieces.len() as u64).map(|i| scramble(i + 1)).collect();
        Self { pieces, sections, starting, ending, over, twin, word }
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Sections covered by all pieces: what [`Layout::new`] costs, and a bound on a search's depth times width.
    pub fn area(pieces: &[Piece]) -> u64 {
        pieces.iter().map(|piece| piece.span.len() as u64).sum()
    }
}
