//! An exact index of the guaranteed order, where a budget allows for one.
//!
//! In: a graph and a budget. Out: an index that answers "is `a` complete before `b` starts, or waits?" in constant time,
//! or what it would have cost. The graph is cut into chains of full edges, and every node keeps how far along each
//! chain it comes after (vector clocks, chain decomposition: Jagadish, ACM TODS 1990): 4 bytes a node and chain. In
//! wide graphs one bit a pair of nodes is less. O(nodes + edges × words of a row), known before it starts.

use phonograph_graph::{ComputeGraph, NodeId};

use super::order::{By, positions};
use super::redundant::Chains;

/// What an index may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Bytes of the index.
    pub bytes: u64,
    /// Words moved to build it.
    pub steps: u64,
}

impl Default for Budget {
    /// 256 MB, and about a second.
    fn default() -> Self {
        Self { bytes: 256 << 20, steps: 1 << 30 }
    }
}

/// An index that would have cost more than it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "an exact index takes {} bytes and {} steps; {} and {} are allowed", needed.bytes, needed.steps, allowed.bytes, allowed.steps
)]
pub struct BudgetExceeded {
    /// What it takes.
    pub needed: Budget,
    /// What was allowed.
    pub allowed: Budget,
}

/// Answers for every pair of nodes.
#[derive(Clone, Debug)]
pub struct ReachIndex {
    rows: Rows,
    at_wait: Vec<u32>,
    /// Only where weak edges make a difference.
    at_start: Option<Vec<u32>>,
    words: usize,
}

#[derive(Clone, Debug)]
enum Rows {
    /// For each chain how many of its nodes, from the first on, are complete.
    Clocks { chain: Vec<u32>, place: Vec<u32> },
    /// For each node, by place in topological order, a bit.
    Bits { position: Vec<u32> },
}

impl ReachIndex {
    /// Builds the index.
    ///
    /// ```
    /// use phonograph_graph::GraphBuilder;
    /// use phonograph_plan::analysis::{Budget, By, ReachIndex};
    ///
    /// let mut b = GraphBuilder::new();
    /// let [x, y, z] = ["x", "y", "z"].map(|name| b.add_barrier(name));
    /// b.chain(&[x, y]);
    /// let graph = b.build()?;
    /// let index = ReachIndex::new(&graph, Budget::default())?;
    /// assert!(index.before(x, y, By::Start) && !index.before(x, z, By::Wait));
    /// assert!(ReachIndex::new(&graph, Budget { bytes: 0, steps: 0 }).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BudgetExceeded`], before anything was built.
    pub fn new(graph: &ComputeGraph, budget: Budget) -> Result<Self, BudgetExceeded> {
        let count = graph.node_count();
        let position = positions(graph);
        let chains = Chains::cut(graph, &position);
        let (clocks, bits) = (chains.count(), count.div_ceil(32));
        let words = clocks.min(bits);
        let tables = 1 + u64::from(graph.has_weak_edges());
        let needed = Budget {
            bytes: 4 * tables * (count * words + count) as u64,
            steps: ((count + graph.edge_count()) * words) as u64,
        };
        if needed.bytes > budget.bytes || needed.steps > budget.steps {
            return Err(BudgetExceeded { needed, allowed: budget });
        }
        let rows = match clocks <= bits {
            true => {
                let (chain, place) = chains.numbered(graph);
                Rows::Clocks { chain, place }
            }
            false => Rows::Bits { position },
        };
        let mut index = Self { rows, at_wait: vec![0; count * words], at_start: None, words };
        index.fill(graph);
        Ok(index)
    }

    fn fill(&mut self, graph: &ComputeGraph) {
        let words = self.words;
        let mut at_start = graph.has_weak_edges().then(|| self.at_wait.clone());
        let mut row = vec![0u32; words];
        for &node in graph.topological_order() {
            // First what full edges bring, then the rest.
            row.fill(0);
            for full in [true, false] {
                for edge in graph.incoming(node).filter(|edge| edge.data.is_full() == full) {
                    let above = &self.at_wait[edge.from.index() * words..][..words];
                    self.rows.join(&mut row, above);
                    self.rows.add(&mut row, edge.from);
                }
                if let Some(at_start) = at_start.as_mut().filter(|_| full) {
                    at_start[node.index() * words..][..words].copy_from_slice(&row);
                }
            }
            self.at_wait[node.index() * words..][..words].copy_from_slice(&row);
        }
        self.at_start = at_start;
    }

    /// Whether `a` is complete before `b` starts, or waits. A node is not before itself.
    ///
    /// # Panics
    /// If an id is not of the graph.
    pub fn before(&self, a: NodeId, b: NodeId, by: By) -> bool {
        let table = self.at_start.as_ref().filter(|_| by == By::Start).unwrap_or(&self.at_wait);
        self.rows.holds(&table[b.index() * self.words..][..self.words], a)
    }
}

impl Rows {
    fn join(&self, row: &mut [u32], above: &[u32]) {
        match self {
            Rows::Clocks { .. } => {
                row.iter_mut().zip(above).for_each(|(own, &other)| *own = (*own).max(other));
            }
            Rows::Bits { .. } => row.iter_mut().zip(above).for_each(|(own, other)| *own |= other),
        }
    }

    fn add(&self, row: &mut [u32], node: NodeId) {
        match self {
            Rows::Clocks { chain, place } => {
                let own = &mut row[chain[node.index()] as usize];
                *own = (*own).max(place[node.index()] + 1);
            }
            Rows::Bits { position } => {
                let at = position[node.index()];
                row[at as usize / 32] |= 1 << (at % 32);
            }
        }
    }

    fn holds(&self, row: &[u32], node: NodeId) -> bool {
        match self {
            Rows::Clocks { chain, place } => {
                row[chain[node.index()] as usize] > place[node.index()]
            }
            Rows::Bits { position } => {
                let at = position[node.index()];
                row[at as usize / 32] >> (at % 32) & 1 == 1
            }
        }
    }
}
