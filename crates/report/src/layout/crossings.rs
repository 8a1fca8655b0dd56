//! The order of vertices within each layer, with few crossings.
//!
//! In: a [`Proper`] graph. Out: for each layer its vertices from left to right. Depth-first order to start with, then
//! barycentre sweeps down and up (Sugiyama, Tagawa and Toda 1981), each followed by exchanges of neighbours, keeping
//! the best order seen. The number of sweeps is bounded by [`WORK`]; crossings are counted by inversions in
//! O(E log V) (Barth, Jünger and Mutzel 2002).

use super::proper::{Proper, Vertex};

/// Vertices and edges that sweeps may look at in total; at least [`MIN_SWEEPS`] are made.
const WORK: usize = 3_000_000;
const MIN_SWEEPS: usize = 4;
const MAX_SWEEPS: usize = 24;
/// Sweeps without a better order after which it ends.
const PATIENCE: usize = 5;

/// Vertices with more neighbours on a side stay where the barycentre put them: to walk one through a wide row would
/// cost the product of both.
const CROWDED: usize = 64;

/// The vertices of each layer from left to right.
pub(super) type Rows = Vec<Vec<Vertex>>;

/// Orders every layer.
pub(super) fn order(graph: &Proper) -> Rows {
    let mut rows = depth_first(graph);
    if rows.iter().all(|row| row.len() < 2) {
        return rows;
    }
    let mut sweep = Sweep::new(graph, &rows);
    let mut best = rows.clone();
    let mut best_crossings = sweep.crossings(&rows);
    let sweeps = (WORK / (graph.len() + graph.edges.len())).clamp(MIN_SWEEPS, MAX_SWEEPS);
    let mut worse = 0;
    for round in 0..sweeps {
        if best_crossings == 0 || worse == PATIENCE {
            break;
        }
        sweep.barycentres(&mut rows, round % 2 == 0);
        sweep.exchanges(&mut rows);
        let crossings = sweep.crossings(&rows);
        if crossings < best_crossings {
            best_crossings = crossings;
            best.clone_from(&rows);
            worse = 0;
        } else {
            worse += 1;
        }
    }
    best
}

/// Layers filled in the order in which a depth-first walk from the sources meets the vertices.
fn depth_first(graph: &Proper) -> Rows {
    let depth = graph.layer.iter().max().map_or(0, |&l| l as usize + 1);
    let mut rows = vec![Vec::new(); depth];
    let mut seen = vec![false; graph.len()];
    let mut stack: Vec<Vertex> = Vec::new();
    for start in 0..graph.len() as u32 {
        if !graph.above.of(start).is_empty() {
            continue;
        }
        stack.push(Vertex(start));
        while let Some(v) = stack.pop() {
            if std::mem::replace(&mut seen[v.index()], true) {
                continue;
            }
            rows[graph.layer[v.index()] as usize].push(v);
            let at = stack.len();
            stack.extend(graph.lowers(v).filter(|w| !seen[w.index()]));
            stack[at..].reverse();
        }
    }
    rows
}

struct Sweep<'a> {
    graph: &'a Proper,
    /// Position of each vertex in its row.
    place: Vec<u32>,
    /// Counts of a Fenwick tree over the places of one row.
    tree: Vec<u32>,
}

impl<'a> Sweep<'a> {
    fn new(graph: &'a Proper, rows: &Rows) -> Self {
        let mut sweep = Sweep { graph, place: vec![0; graph.len()], tree: Vec::new() };
        for row in rows {
            sweep.renumber(row);
        }
        sweep
    }

    fn renumber(&mut self, row: &[Vertex]) {
        for (i, v) in row.iter().enumerate() {
            self.place[v.index()] = i as u32;
        }
    }

    /// Sorts each row by the mean place of its neighbours in the row visited before. Vertices without neighbours there
    /// keep their place.
    fn barycentres(&mut self, rows: &mut Rows, downward: bool) {
        let depth = rows.len();
        for step in 1..depth {
            let r = if downward { step } else { depth - 1 - step };
            let row = &mut rows[r];
            let mut moving: Vec<(f64, Vertex)> = Vec::with_capacity(row.len());
            let mut free: Vec<usize> = Vec::with_capacity(row.len());
            for (i, &v) in row.iter().enumerate() {
                let (sum, n) = if downward {
                    mean(&self.place, self.graph.uppers(v))
                } else {
                    mean(&self.place, self.graph.lowers(v))
                };
                if n > 0 {
                    moving.push((sum as f64 / n as f64, v));
                    free.push(i);
                }
            }
            moving.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (&i, &(_, v)) in free.iter().zip(&moving) {
                row[i] = v;
            }
            for (i, v) in row.iter().enumerate() {
                self.place[v.index()] = i as u32;
            }
        }
    }

    /// Swaps neighbours in a row while that removes crossings with the rows above and below.
    fn exchanges(&mut self, rows: &mut Rows) {
        const PASSES: usize = 3;
        for row in rows.iter_mut().filter(|row| row.len() > 1) {
            let sides: Vec<[Vec<u32>; 2]> = row
                .iter()
                .map(|&v| {
                    let mut up: Vec<u32> =
                        self.graph.uppers(v).map(|w| self.place[w.index()]).collect();
                    let mut down: Vec<u32> =
                        self.graph.lowers(v).map(|w| self.place[w.index()]).collect();
                    up.sort_unstable();
                    down.sort_unstable();
                    [up, down]
                })
                .collect();
            let mut at: Vec<u32> = (0..row.len() as u32).collect();
            for _ in 0..PASSES {
                let mut improved = false;
                for i in 1..at.len() {
                    let (a, b) = (&sides[at[i - 1] as usize], &sides[at[i] as usize]);
                    if [&a[0], &a[1], &b[0], &b[1]].iter().any(|side| side.len() > CROWDED) {
                        continue;
                    }
                    let now = pairs_after(&a[0], &b[0]) + pairs_after(&a[1], &b[1]);
                    if now == 0 {
                        continue;
                    }
                    let then = pairs_after(&b[0], &a[0]) + pairs_after(&b[1], &a[1]);
                    if then < now {
                        at.swap(i - 1, i);
                        improved = true;
                    }
                }
                if !improved {
                    break;
                }
            }
            let new: Vec<Vertex> = at.iter().map(|&i| row[i as usize]).collect();
            *row = new;
            for (i, v) in row.iter().enumerate() {
                self.place[v.index()] = i as u32;
            }
        }
    }

    fn crossings(&mut self, rows: &Rows) -> u64 {
        for row in rows {
            self.renumber(row);
        }
        let mut total = 0;
        let mut ends: Vec<u32> = Vec::new();
        for pair in rows.windows(2) {
            ends.clear();
            for &v in &pair[0] {
                let at = ends.len();
                ends.extend(self.graph.lowers(v).map(|w| self.place[w.index()]));
                ends[at..].sort_unstable();
            }
            total += inversions(&mut self.tree, &ends, pair[1].len());
        }
        total
    }
}

fn mean(place: &[u32], near: impl Iterator<Item = Vertex>) -> (u64, u32) {
    near.fold((0, 0), |(sum, n), v| (sum + u64::from(place[v.index()]), n + 1))
}

/// How many pairs (x of `left`, y of `right`) have x after y; both sorted.
fn pairs_after(left: &[u32], right: &[u32]) -> u64 {
    let (mut total, mut j) = (0, 0);
    for &x in left {
        while j < right.len() && right[j] < x {
            j += 1;
        }
        total += j as u64;
    }
    total
}

/// How many pairs of `ends` are in the wrong order.
fn inversions(tree: &mut Vec<u32>, ends: &[u32], places: usize) -> u64 {
    tree.clear();
    tree.resize(places + 1, 0);
    let mut total = 0;
    for (seen, &end) in ends.iter().enumerate() {
        let mut not_after = 0;
        let mut i = end as usize + 1;
        while i > 0 {
            not_after += u64::from(tree[i]);
            i &= i - 1;
        }
        total += seen as u64 - not_after;
        let mut i = end as usize + 1;
        while i <= places {
            tree[i] += 1;
            i += i & i.wrapping_neg();
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inversions_agree_with_counting_pairs() {
        arbtest::arbtest(|u| {
            let places = u.int_in_range(1..=12u32)?;
            let n = u.int_in_range(0..=20)?;
            let ends: Vec<u32> =
                (0..n).map(|_| u.int_in_range(0..=places - 1)).collect::<Result<_, _>>()?;
            let mut want = 0;
            for i in 0..ends.len() {
                want += ends[..i].iter().filter(|&&x| x > ends[i]).count() as u64;
            }
            assert_eq!(inversions(&mut Vec::new(), &ends, places as usize), want);
            Ok(())
        })
        .budget_ms(200);
    }
}
