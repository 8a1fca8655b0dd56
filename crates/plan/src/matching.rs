//! Maximum matching in a bipartite graph, by Hopcroft and Karp.
//!
//! In: the neighbours of every left vertex as compressed rows. Out: the most pairs (left, right) along edges in which no
//! vertex occurs twice.
//!
//! 1. *Start.* A vertex with a single free neighbour left can be matched with it without loss, on either side, and that
//!    may leave others with a single one; only where no such vertex is left a pair is guessed (R. Karp and M. Sipser, FOCS
//!    1981). On sparse graphs few vertices stay unmatched that could be matched.
//! 2. *Phases.* A breadth-first search from all free left vertices finds the length of the shortest augmenting paths, a
//!    depth-first search takes as many of them as fit beside one another, and each path adds a pair. O(√vertices)
//!    phases (J. Hopcroft and R. Karp, SIAM J. Comput. 1973).
//!
//! Cost: O(edges · √vertices) at worst, a few passes on sparse graphs; scratch of 8 bytes a left vertex beside the
//! result, and in the start 12 a vertex and 4 an edge. Nothing recurses. The result depends on the input alone.

use thiserror::Error;

/// A vertex of the left side: its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Left(pub u32);

/// A vertex of the right side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right(pub u32);

/// A bipartite graph. Left vertex `l` has the neighbours `targets[offsets[l]..offsets[l + 1]]`.
#[derive(Clone, Copy, Debug)]
pub struct Bipartite<'a> {
    offsets: &'a [u32],
    targets: &'a [u32],
    right: u32,
}

/// Why slices are no bipartite graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MatchingError {
    /// There is no offset at all, or more rows than can be numbered.
    #[error("{offsets} offsets: there is one more than left vertices, and fewer than {}", u32::MAX)]
    Offsets {
        /// How many offsets were given.
        offsets: usize,
    },
    /// The offsets fall at a row, or the first isn't 0, or the last isn't the number of targets.
    #[error("the offsets of row {row} do not delimit a part of the {targets} targets")]
    Row {
        /// The row.
        row: usize,
        /// How many targets were given.
        targets: usize,
    },
    /// A target that is no right vertex.
    #[error("target {at} is {target}, but there are {right} right vertices")]
    UnknownRight {
        /// Its place among the targets.
        at: usize,
        /// The vertex that it names.
        target: u32,
        /// How many there are.
        right: u32,
    },
}

impl<'a> Bipartite<'a> {
    /// A graph of these rows and of `right` right vertices; the same neighbour twice is allowed. O(vertices + edges).
    ///
    /// # Errors
    /// [`MatchingError`]: slices that do not fit together.
    pub fn new(offsets: &'a [u32], targets: &'a [u32], right: u32) -> Result<Self, MatchingError> {
        let rows = offsets.len().checked_sub(1).filter(|&rows| rows < NONE as usize);
        let Some(rows) = rows.filter(|_| right < NONE) else {
            return Err(MatchingError::Offsets { offsets: offsets.len() });
        };
        let misfit = |row| MatchingError::Row { row, targets: targets.len() };
        if offsets[0] != 0 {
            return Err(misfit(0));
        }
        if let Some(row) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(misfit(row));
        }
        if offsets[rows] as usize != targets.len() {
            return Err(misfit(rows.saturating_sub(1)));
        }
        if let Some(at) = targets.iter().position(|&target| target >= right) {
            return Err(MatchingError::UnknownRight { at, target: targets[at], right });
        }
        Ok(Self { offsets, targets, right })
    }

    fn left(&self) -> u32 {
        (self.offsets.len() - 1) as u32
    }

    fn neighbours(&self, left: u32) -> &'a [u32] {
        &self.targets
            [self.offsets[left as usize] as usize..self.offsets[left as usize + 1] as usize]
    }
}

/// No partner, no level.
const NONE: u32 = u32::MAX;

/// Pairs of a left and a right vertex; no vertex is in two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching {
    of_left: Vec<u32>,
    of_right: Vec<u32>,
}

impl Matching {
    /// The partner of a left vertex.
    pub fn right_of(&self, left: Left) -> Option<Right> {
        partner(&self.of_left, left.0).map(Right)
    }

    /// The partner of a right vertex.
    pub fn left_of(&self, right: Right) -> Option<Left> {
        partner(&self.of_right, right.0).map(Left)
    }

    /// The pairs, by left vertex.
    pub fn pairs(&self) -> impl Iterator<Item = (Left, Right)> + '_ {
        let pairs = (0..).zip(&self.of_left).filter(|&(_, &right)| right != NONE);
        pairs.map(|(left, &right)| (Left(left), Right(right)))
    }

    fn join(&mut self, left: u32, right: u32) {
        self.of_left[left as usize] = right;
        self.of_right[right as usize] = left;
    }
}

fn partner(of: &[u32], vertex: u32) -> Option<u32> {
    of.get(vertex as usize).copied().filter(|&partner| partner != NONE)
}

/// A matching of the most pairs. See the [module](self) for the method and its cost.
///
/// ```
/// use phonograph_plan::matching::{Bipartite, Left, Right, maximum_matching};
///
/// // 0 may have 0 or 1, 1 only 0, 2 only 1 or 2.
/// let graph = Bipartite::new(&[0, 2, 3, 5], &[0, 1, 0, 1, 2], 3)?;
/// let matching = maximum_matching(graph);
/// assert_eq!(matching.pairs().count(), 3);
/// assert_eq!(matching.right_of(Left(0)), Some(Right(1)));
/// # Ok::<(), phonograph_plan::matching::MatchingError>(())
/// ```
pub fn maximum_matching(graph: Bipartite<'_>) -> Matching {
    let mut matching = Start::of(graph).run();
    let mut phase = Phase::new(graph);
    while phase.layers(&matching) {
        phase.augment(&mut matching);
    }
    matching
}

/// The start: pairs that cost nothing, then guesses.
struct Start<'a> {
    graph: Bipartite<'a>,
    /// The rows the other way round.
    offsets: Vec<u32>,
    sources: Vec<u32>,
    /// Edges of each vertex to free vertices; left ones first, then right ones.
    degree: Vec<u32>,
    /// Vertices that had a single free neighbour when they were noted.
    single: Vec<u32>,
    matching: Matching,
}

impl<'a> Start<'a> {
    fn of(graph: Bipartite<'a>) -> Self {
        let (left, right) = (graph.left() as usize, graph.right as usize);
        let mut offsets = vec![0u32; right + 1];
        for &target in graph.targets {
            offsets[target as usize + 1] += 1;
        }
        let mut degree: Vec<u32> = graph.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        degree.extend_from_slice(&offsets[1..]);
        for vertex in 0..right {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut sources = vec![0u32; graph.targets.len()];
        for vertex in 0..left as u32 {
            for &target in graph.neighbours(vertex) {
                let place = &mut next[target as usize];
                sources[*place as usize] = vertex;
                *place += 1;
            }
        }
        let single = (0..degree.len() as u32).rev().filter(|&v| degree[v as usize] == 1).collect();
        let matching = Matching { of_left: vec![NONE; left], of_right: vec![NONE; right] };
        Self { graph, offsets, sources, degree, single, matching }
    }

    fn run(mut self) -> Matching {
        for left in 0..self.graph.left() {
            self.singles();
            if self.matching.of_left[left as usize] == NONE
                && let Some(right) = self.fewest(left)
            {
                self.take(left, right);
            }
        }
        self.singles();
        self.matching
    }

    /// Matches vertices with a single free neighbour until there are none.
    fn singles(&mut self) {
        let lefts = self.graph.left();
        while let Some(vertex) = self.single.pop() {
            if self.degree[vertex as usize] != 1 {
                continue;
            }
            if vertex < lefts {
                let free = |right: &&u32| self.matching.of_right[**right as usize] == NONE;
                if self.matching.of_left[vertex as usize] == NONE
                    && let Some(&right) = self.graph.neighbours(vertex).iter().find(free)
                {
                    self.take(vertex, right);
                }
            } else {
                let right = vertex - lefts;
                let free = |left: &&u32| self.matching.of_left[**left as usize] == NONE;
                if self.matching.of_right[right as usize] == NONE
                    && let Some(&left) = self.sources(right).iter().find(free)
                {
                    self.take(left, right);
                }
            }
        }
    }

    fn sources(&self, right: u32) -> &[u32] {
        let (from, to) = (self.offsets[right as usize], self.offsets[right as usize + 1]);
        &self.sources[from as usize..to as usize]
    }

    /// The free neighbour that fewest others may have.
    fn fewest(&self, left: u32) -> Option<u32> {
        let lefts = self.graph.left();
        let neighbours = self.graph.neighbours(left).iter().copied();
        let free = neighbours.filter(|&right| self.matching.of_right[right as usize] == NONE);
        free.min_by_key(|&right| self.degree[(lefts + right) as usize])
    }

    fn take(&mut self, left: u32, right: u32) {
        self.matching.join(left, right);
        let lefts = self.graph.left();
        for &other in self.graph.neighbours(left) {
            let vertex = lefts + other;
            self.degree[vertex as usize] -= 1;
            if self.degree[vertex as usize] == 1 {
                self.single.push(vertex);
            }
        }
        let (from, to) = (self.offsets[right as usize], self.offsets[right as usize + 1]);
        for &other in &self.sources[from as usize..to as usize] {
            self.degree[other as usize] -= 1;
            if self.degree[other as usize] == 1 {
                self.single.push(other);
            }
        }
    }
}

/// One phase: layers, then paths through them.
struct Phase<'a> {
    graph: Bipartite<'a>,
    /// Layer of each left vertex, [`NONE`] off the layers.
    level: Vec<u32>,
    /// The next edge to look at of each left vertex on a layer.
    next: Vec<u32>,
    /// The left vertices by layer; the free ones first.
    queue: Vec<u32>,
    free: usize,
    /// The layer from which shortest paths reach a free right vertex.
    last: u32,
    path: Vec<u32>,
}

impl<'a> Phase<'a> {
    fn new(graph: Bipartite<'a>) -> Self {
        let left = graph.left() as usize;
        Self {
            graph,
            level: vec![NONE; left],
            next: vec![0; left],
            queue: (0..graph.left()).collect(),
            free: left,
            last: 0,
            path: Vec::new(),
        }
    }

    /// Layers the left vertices by the length of the shortest alternating path from a free one; whether one of these
    /// paths is augmenting.
    fn layers(&mut self, matching: &Matching) -> bool {
        let Self { graph, level, next, queue, free, last, .. } = self;
        for &left in &*queue {
            level[left as usize] = NONE;
        }
        queue.truncate(*free);
        queue.retain(|&left| matching.of_left[left as usize] == NONE);
        *free = queue.len();
        for &left in &*queue {
            level[left as usize] = 0;
            next[left as usize] = graph.offsets[left as usize];
        }
        let mut layer = 0..queue.len();
        *last = 0;
        while !layer.is_empty() {
            let mut found = false;
            for at in layer.clone() {
                for &right in graph.neighbours(queue[at]) {
                    let left = matching.of_right[right as usize];
                    if left == NONE {
                        found = true;
                    } else if !found && level[left as usize] == NONE {
                        level[left as usize] = *last + 1;
                        next[left as usize] = graph.offsets[left as usize];
                        queue.push(left);
                    }
                }
            }
            if found {
                return true;
            }
            *last += 1;
            layer = layer.end..queue.len();
        }
        false
    }

    /// Adds a pair along each of as many shortest augmenting paths as fit beside one another.
    fn augment(&mut self, matching: &mut Matching) {
        for at in 0..self.free {
            self.path.clear();
            self.path.push(self.queue[at]);
            while let Some(&left) = self.path.last() {
                match self.step(left, matching) {
                    Found::Free => {
                        for &left in &self.path {
                            let right = self.graph.targets[self.next[left as usize] as usize];
                            matching.join(left, right);
                            self.level[left as usize] = NONE;
                        }
                        self.path.clear();
                    }
                    Found::Next(further) => self.path.push(further),
                    Found::Nothing => {
                        self.level[left as usize] = NONE;
                        self.path.pop();
                    }
                }
            }
        }
    }

    /// Moves on to the next edge of `left` that leads anywhere; the cursor stays on it.
    fn step(&mut self, left: u32, matching: &Matching) -> Found {
        let level = self.level[left as usize];
        let end = self.graph.offsets[left as usize + 1];
        let next = &mut self.next[left as usize];
        while *next < end {
            let right = self.graph.targets[*next as usize];
            let further = matching.of_right[right as usize];
            if further == NONE {
                return Found::Free;
            }
            if level < self.last && self.level[further as usize] == level + 1 {
                return Found::Next(further);
            }
            *next += 1;
        }
        Found::Nothing
    }
}

enum Found {
    /// A free right vertex: the path is complete.
    Free,
    /// A left vertex of the next layer.
    Next(u32),
    Nothing,
}

#[cfg(test)]
mod tests {
    use arbtest::arbtest;

    use super::*;

    fn rows(rows: &[Vec<u32>]) -> (Vec<u32>, Vec<u32>) {
        let mut offsets = vec![0];
        offsets.extend(rows.iter().scan(0, |end, row| {
            *end += row.len() as u32;
            Some(*end)
        }));
        (offsets, rows.concat())
    }

    /// The size of a maximum matching by one augmenting path at a time (Berge).
    fn size(rows: &[Vec<u32>], right: u32) -> usize {
        fn reach(
            rows: &[Vec<u32>],
            left: usize,
            seen: &mut [bool],
            of: &mut [Option<usize>],
        ) -> bool {
            rows[left].iter().any(|&right| {
                let right = right as usize;
                if std::mem::replace(&mut seen[right], true) {
                    return false;
                }
                let free = of[right].is_none_or(|other| reach(rows, other, seen, of));
                if free {
                    of[right] = Some(left);
                }
                free
            })
        }
        let mut of = vec![None; right as usize];
        let augments = |left: &usize| reach(rows, *left, &mut vec![false; right as usize], &mut of);
        (0..rows.len()).filter(augments).count()
    }

    #[test]
    fn no_matching_has_more_pairs() {
        arbtest(|u| {
            let left = u.int_in_range(0..=24)?;
            let right: u32 = u.int_in_range(1..=24)?;
            let most = u.int_in_range(0..=4)?;
            let mut edges = Vec::new();
            for _ in 0..left {
                let degree = u.int_in_range(0..=most)?;
                let row = (0..degree).map(|_| u.int_in_range(0..=right - 1));
                edges.push(row.collect::<Result<Vec<u32>, _>>()?);
            }
            let (offsets, targets) = rows(&edges);
            let graph = Bipartite::new(&offsets, &targets, right).expect("rows of right vertices");
            let matching = maximum_matching(graph);
            for (l, r) in matching.pairs() {
                assert!(edges[l.0 as usize].contains(&r.0), "{l:?} {r:?} {edges:?}");
                assert_eq!((matching.right_of(l), matching.left_of(r)), (Some(r), Some(l)));
            }
            assert_eq!(matching.pairs().count(), size(&edges, right), "{edges:?}");
            // Without its start the search has to find everything alone.
            let mut bare =
                Matching { of_left: vec![NONE; edges.len()], of_right: vec![NONE; right as usize] };
            let mut phase = Phase::new(graph);
            while phase.layers(&bare) {
                phase.augment(&mut bare);
            }
            assert_eq!(bare.pairs().count(), matching.pairs().count(), "{edges:?}");
            Ok(())
        })
        .budget_ms(1000);
    }

    /// Each left vertex but the last knows its own right one and the next: one alternating path through all of them.
    #[test]
    fn a_path_through_everything_needs_no_stack() {
        let n = 200_000;
        let ladder: Vec<Vec<u32>> = (0..n).map(|i| vec![(i + 1) % n, i]).collect();
        let (offsets, targets) = rows(&ladder);
        let graph = Bipartite::new(&offsets, &targets, n).expect("a ladder");
        assert_eq!(maximum_matching(graph).pairs().count(), n as usize);
    }

    #[test]
    fn refusals() {
        #[track_caller]
        fn check(offsets: &[u32], targets: &[u32], right: u32, expected: MatchingError) {
            assert_eq!(Bipartite::new(offsets, targets, right).err(), Some(expected));
        }
        check(&[], &[], 1, MatchingError::Offsets { offsets: 0 });
        check(&[0], &[], u32::MAX, MatchingError::Offsets { offsets: 1 });
        check(&[1, 1], &[0], 1, MatchingError::Row { row: 0, targets: 1 });
        check(&[0, 2, 1, 2], &[0, 0], 1, MatchingError::Row { row: 1, targets: 2 });
        check(&[0, 1, 1], &[0, 0], 1, MatchingError::Row { row: 1, targets: 2 });
        check(&[0, 2], &[0, 3], 3, MatchingError::UnknownRight { at: 1, target: 3, right: 3 });
    }
}
