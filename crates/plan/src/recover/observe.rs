//! Which blocks each node writes and reads, by experiment.
//!
//! First every sample runs from front to back and what changes is kept: a history of each block a sample. Then the first
//! sample is walked again. Before each node stands what stood there then; some blocks are exchanged for their bytes from
//! another sample's history, the node runs, and its results are compared.

use std::collections::BTreeSet;
use std::rc::Rc;

use phonograph_graph::NodeId;

use super::{Bench, BlockId, Limits, Observed, Opaque, Stage, Subject};

/// What a block held over one sample: from which node on which bytes.
type History<S> = Vec<(u32, Rc<S>)>;

struct Histories<S: Subject> {
    /// By sample and block. Node numbers count from one: 0 is before the first.
    of: Vec<Vec<History<S::Saved>>>,
    /// Bytes held by all copies.
    held: u64,
}

impl<S: Subject> Histories<S> {
    /// What a block holds before a node.
    fn before(&self, sample: usize, block: BlockId, node: u32) -> &Rc<S::Saved> {
        let history = &self.of[sample][block.index()];
        let place = history.partition_point(|&(from, _)| from <= node);
        &history[place - 1].1
    }
}

/// Observes all nodes; true if it was stopped, or ran out of memory for copies, before it was done.
pub(super) fn observe<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
) -> Result<(Vec<Observed>, bool), S::Error> {
    let mut observed = vec![Observed::default(); bench.subject.nodes() as usize];
    let (histories, complete) = writes(bench, limits, &mut observed)?;
    if complete && limits.zeros {
        rewrites(bench, &histories, &mut observed)?;
    }
    let complete = complete && reads(bench, limits, &histories, &mut observed)?;
    Ok((observed, !complete))
}

/// Runs every sample and notes what changes. Nodes that it did not get to are opaque.
fn writes<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    observed: &mut [Observed],
) -> Result<(Histories<S>, bool), S::Error> {
    let (nodes, blocks) = (bench.subject.nodes(), bench.subject.blocks());
    let samples = limits.samples.max(2);
    let mut histories = Histories::<S> { of: Vec::new(), held: 0 };
    // A replay as in use: what the first node finds is what a last run has left, not what capturing has.
    bench.subject.give(samples)?;
    for node in (0..nodes).map(NodeId) {
        bench.run(node)?;
    }
    let mut current: Vec<Rc<S::Saved>> = Vec::new();
    for block in (0..blocks).map(BlockId) {
        histories.held += bench.subject.bytes(block);
        current.push(Rc::new(bench.subject.save(block)?));
    }
    for sample in 0..samples {
        bench.subject.give(sample)?;
        let given = update(bench, &mut current)?;
        histories.held += given.iter().map(|&block| bench.subject.bytes(block)).sum::<u64>();
        let mut history: Vec<History<S::Saved>> =
            current.iter().map(|saved| vec![(0, saved.clone())]).collect();
        for node in (0..nodes).map(NodeId) {
            let enough = histories.held <= limits.saved_bytes;
            if !enough
                || !bench.goes_on(
                    Stage::Writes,
                    sample.saturating_mul(nodes).saturating_add(node.0),
                    samples.saturating_mul(nodes),
                )
            {
                // Without all samples nothing can be exchanged.
                observed.iter_mut().for_each(|seen| seen.opaque = Some(Opaque::NotExamined));
                return Ok((histories, false));
            }
            bench.run(node)?;
            let seen = &mut observed[node.index()];
            seen.trials += 1;
            for block in update(bench, &mut current)? {
                histories.held += bench.subject.bytes(block);
                history[block.index()].push((node.0 + 1, current[block.index()].clone()));
                if let Err(place) = seen.writes.binary_search(&block) {
                    seen.writes.insert(place, block);
                }
            }
        }
        histories.of.push(history);
    }
    Ok((histories, true))
}

/// Finds writes of what was there already: clears every block that nothing changed, and runs each node on that.
fn rewrites<S: Subject>(
    bench: &mut Bench<'_, S>,
    histories: &Histories<S>,
    observed: &mut [Observed],
) -> Result<(), S::Error> {
    let shared = written(observed);
    let mut quiet = Vec::new();
    for block in (0..bench.subject.blocks()).map(BlockId) {
        bench.subject.restore(block, histories.before(0, block, 0))?;
        if !shared.contains(&block) {
            bench.subject.clear(block)?;
            quiet.push((block, bench.subject.save(block)?));
            bench.subject.restore(block, histories.before(0, block, 0))?;
        }
    }
    for (node, seen) in (0..).map(NodeId).zip(observed) {
        for &(block, _) in &quiet {
            bench.subject.clear(block)?;
        }
        let mut trial = Trial { bench, histories, node, shared: &shared, seen };
        trial.run()?;
        let expected: Vec<_> = quiet.iter().map(|(block, zeros)| (*block, zeros)).collect();
        let found = trial.bench.subject.changed(&expected)?;
        for &(block, _) in &quiet {
            trial.restore(block, 0)?;
        }
        trial.leave()?;
        seen.writes.extend(found);
        seen.writes.sort_unstable();
    }
    Ok(())
}

/// Blocks that any node writes.
fn written(observed: &[Observed]) -> BTreeSet<BlockId> {
    observed.iter().flat_map(|seen| seen.writes.iter().copied()).collect()
}

/// Saves what has changed, and says which blocks have.
pub(super) fn update<S: Subject>(
    bench: &mut Bench<'_, S>,
    current: &mut [Rc<S::Saved>],
) -> Result<Vec<BlockId>, S::Error> {
    let expected: Vec<(BlockId, &S::Saved)> =
        (0..).map(BlockId).zip(current.iter().map(|saved| &**saved)).collect();
    let changed = bench.subject.changed(&expected)?;
    for &block in &changed {
        current[block.index()] = Rc::new(bench.subject.save(block)?);
    }
    Ok(changed)
}

/// Walks the first sample once more and exchanges bytes. False if it was stopped.
fn reads<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    histories: &Histories<S>,
    observed: &mut [Observed],
) -> Result<bool, S::Error> {
    let shared = written(observed);
    for block in (0..bench.subject.blocks()).map(BlockId) {
        bench.subject.restore(block, histories.before(0, block, 0))?;
    }
    let of = observed.len() as u32;
    for node in (0..of).map(NodeId) {
        if !bench.goes_on(Stage::Reads, node.0, of) {
            for seen in &mut observed[node.index()..] {
                seen.opaque = Some(Opaque::NotExamined);
            }
            return Ok(false);
        }
        let mut trial =
            Trial { bench, histories, node, shared: &shared, seen: &mut observed[node.index()] };
        trial.repeat()?;
        if trial.seen.opaque.is_none() {
            trial.exchange(limits)?;
        }
        trial.leave()?;
    }
    Ok(true)
}

/// Experiments with one node. Between them memory is as the first sample has it before the node.
struct Trial<'a, 'b, S: Subject> {
    bench: &'a mut Bench<'b, S>,
    histories: &'a Histories<S>,
    node: NodeId,
    /// Blocks that any node writes.
    shared: &'a BTreeSet<BlockId>,
    seen: &'a mut Observed,
}

/// Bytes that are put in place of others.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    /// Those of a sample.
    Sample(usize),
    Zeros,
}

impl<S: Subject> Trial<'_, '_, S> {
    fn run(&mut self) -> Result<(), S::Error> {
        self.seen.trials += 1;
        self.bench.run(self.node)
    }

    fn restore(&mut self, block: BlockId, before: u32) -> Result<(), S::Error> {
        self.bench.subject.restore(block, self.histories.before(0, block, before))
    }

    /// Blocks that do not hold what the first sample has before a node.
    fn strange(&mut self, blocks: &[BlockId], before: u32) -> Result<Vec<BlockId>, S::Error> {
        let expected: Vec<(BlockId, &S::Saved)> = blocks
            .iter()
            .map(|&block| (block, &**self.histories.before(0, block, before)))
            .collect();
        self.bench.subject.changed(&expected)
    }

    /// Runs it on the bytes of the first sample.
    fn repeat(&mut self) -> Result<(), S::Error> {
        if self.seen.writes.is_empty() {
            self.seen.opaque = Some(Opaque::NothingWritten);
            return Ok(());
        }
        self.run()?;
        let all: Vec<BlockId> = self.shared.iter().copied().collect();
        if !self.strange(&all, self.node.0 + 1)?.is_empty() {
            self.seen.opaque = Some(Opaque::NotRepeatable);
        }
        self.back(&[])
    }

    /// Puts back what the first sample has before the node in the blocks that it writes, and in these.
    fn back(&mut self, others: &[BlockId]) -> Result<(), S::Error> {
        let writes = self.seen.writes.clone();
        for &block in writes.iter().chain(others) {
            self.restore(block, self.node.0)?;
        }
        Ok(())
    }

    /// Finds what it reads among blocks that others write.
    fn exchange(&mut self, limits: Limits) -> Result<(), S::Error> {
        let mut read = BTreeSet::new();
        let mut told = BTreeSet::new();
        let samples = (1..self.histories.of.len()).map(Other::Sample);
        let zeros = limits.zeros.then_some(Other::Zeros);
        for other in samples.chain(zeros) {
            let open: Vec<BlockId> = self
                .shared
                .iter()
                .copied()
                .filter(|block| {
                    !read.contains(block) && self.seen.writes.binary_search(block).is_err()
                })
                .collect();
            // Only where the bytes differ can a result.
            self.put(&open, other)?;
            let candidates = self.strange(&open, self.node.0)?;
            self.back(&open)?;
            told.extend(candidates.iter().copied());
            self.search(candidates, other, &mut read)?;
        }
        let unsure = |block: &&BlockId| {
            !told.contains(*block) && self.seen.writes.binary_search(block).is_err()
        };
        self.seen.assumed = self.shared.iter().filter(unsure).copied().collect();
        self.seen.reads = read.into_iter().collect();
        Ok(())
    }

    /// Halves sets on which the results depend. A set of which neither half alone makes a difference is read whole.
    fn search(
        &mut self,
        candidates: Vec<BlockId>,
        other: Other,
        read: &mut BTreeSet<BlockId>,
    ) -> Result<(), S::Error> {
        let mut open = Vec::new();
        if self.depends_on(&candidates, other)? {
            open.push(candidates);
        }
        while let Some(set) = open.pop() {
            if let [one] = set[..] {
                read.insert(one);
                continue;
            }
            let (left, right) = set.split_at(set.len() / 2);
            let (by_left, by_right) =
                (self.depends_on(left, other)?, self.depends_on(right, other)?);
            if !by_left && !by_right {
                read.extend(set);
                continue;
            }
            open.extend(by_left.then(|| left.to_vec()));
            open.extend(by_right.then(|| right.to_vec()));
        }
        Ok(())
    }

    /// Whether results differ if these blocks hold other bytes. Anything else that changes is a write, and noted.
    fn depends_on(&mut self, blocks: &[BlockId], other: Other) -> Result<bool, S::Error> {
        if blocks.is_empty() {
            return Ok(false);
        }
        self.put(blocks, other)?;
        self.run()?;
        let writes = self.seen.writes.clone();
        let mut differs = !self.strange(&writes, self.node.0 + 1)?.is_empty();
        for &block in blocks {
            self.restore(block, self.node.0)?;
        }
        let rest: Vec<BlockId> = self
            .shared
            .iter()
            .copied()
            .filter(|block| writes.binary_search(block).is_err())
            .collect();
        for block in self.strange(&rest, self.node.0)? {
            differs = true;
            self.restore(block, self.node.0)?;
            let place = self.seen.writes.partition_point(|&written| written < block);
            self.seen.writes.insert(place, block);
        }
        self.back(&[])?;
        Ok(differs)
    }

    fn put(&mut self, blocks: &[BlockId], other: Other) -> Result<(), S::Error> {
        for &block in blocks {
            match other {
                Other::Zeros => self.bench.subject.clear(block)?,
                Other::Sample(sample) => {
                    let saved = self.histories.before(sample, block, self.node.0);
                    self.bench.subject.restore(block, saved)?;
                }
            }
        }
        Ok(())
    }

    /// Leaves the memory as the first sample has it after the node.
    fn leave(&mut self) -> Result<(), S::Error> {
        let all: Vec<BlockId> = self.shared.iter().copied().collect();
        for block in self.strange(&all, self.node.0 + 1)? {
            self.restore(block, self.node.0 + 1)?;
        }
        Ok(())
    }
}
