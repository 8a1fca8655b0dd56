//! Which blocks each node writes and reads, by experiment.
//!
//! The first sample is walked again. Before each node stands what stood there then; some blocks are exchanged for their bytes from
//! another sample's history, the node runs, and its results are compared. Blocks that the node's parameters seem to name
//! are tried one by one, all others at once, which is halved only if it matters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use phonograph_graph::NodeId;

use super::histories::Histories;
use super::{Bench, BlockId, Change, Limits, Observed, Opaque, Stage, Subject};

/// Observes all nodes. False if it was stopped before it was done.
pub(super) fn observe<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    histories: &Histories<S>,
    observed: &mut [Observed],
) -> Result<bool, S::Error> {
    if limits.zeros {
        rewrites(bench, histories, observed)?;
    }
    reads(bench, limits, histories, observed)
}

/// Finds writes of what was there already: clears every block that nothing changed, and runs each node on that.
fn rewrites<S: Subject>(
    bench: &mut Bench<'_, S>,
    histories: &Histories<S>,
    observed: &mut [Observed],
) -> Result<(), S::Error> {
    let shared = written(observed);
    let all: Vec<BlockId> = (0..bench.subject.blocks()).map(BlockId).collect();
    let quiet: Vec<BlockId> =
        all.iter().copied().filter(|block| !shared.contains_key(block)).collect();
    bench.subject.clear(&quiet)?;
    let zeros = bench.subject.save(&quiet)?;
    histories.return_to(bench, &all, 0)?;
    for (node, seen) in (0..).map(NodeId).zip(observed) {
        let mut trial = Trial::new(bench, histories, node, &shared, seen);
        if trial.bench.subject.is_excluded(node) {
            trial.leave()?;
            continue;
        }
        trial.bench.subject.clear(&quiet)?;
        trial.run()?;
        let expected: Vec<_> = quiet.iter().copied().zip(&zeros).collect();
        let found = trial.bench.subject.changed(&expected)?;
        histories.return_to(trial.bench, &quiet, 0)?;
        trial.leave()?;
        found.iter().for_each(|change| seen.writes_to(change));
    }
    Ok(())
}

/// Blocks that any node writes, and from the first byte of any to the last.
fn written(observed: &[Observed]) -> BTreeMap<BlockId, Range<u64>> {
    let mut hulls = BTreeMap::new();
    for seen in observed {
        seen.writes
            .iter()
            .zip(&seen.spans)
            .for_each(|(&block, span)| widen(&mut hulls, block, span));
    }
    hulls
}

fn widen(hulls: &mut BTreeMap<BlockId, Range<u64>>, block: BlockId, span: &Range<u64>) {
    let hull = hulls.entry(block).or_insert_with(|| span.clone());
    *hull = hull.start.min(span.start)..hull.end.max(span.end);
}

/// Walks the first sample once more and exchanges bytes. False if it was stopped.
fn reads<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    histories: &Histories<S>,
    observed: &mut [Observed],
) -> Result<bool, S::Error> {
    let shared = written(observed);
    let all: Vec<BlockId> = (0..bench.subject.blocks()).map(BlockId).collect();
    histories.return_to(bench, &all, 0)?;
    let of = observed.len() as u32;
    for node in (0..of).map(NodeId) {
        if !bench.goes_on(Stage::Reads, node.0, of) {
            for seen in &mut observed[node.index()..] {
                seen.opaque = Some(Opaque::NotExamined);
            }
            return Ok(false);
        }
        let seen = &mut observed[node.index()];
        let mut trial = Trial::new(bench, histories, node, &shared, seen);
        let constant = trial.repeat()?;
        if trial.seen.opaque.is_none() {
            trial.overwrite()?;
            trial.exchange(limits, constant)?;
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
    /// Blocks that any node writes, and where.
    shared: &'a BTreeMap<BlockId, Range<u64>>,
    seen: &'a mut Observed,
    /// Blocks that its parameters seem to name.
    named: BTreeSet<BlockId>,
    /// Blocks that it was seen to read.
    read: BTreeSet<BlockId>,
    /// Where other bytes were put, from the first to the last that differed.
    told: BTreeMap<BlockId, Range<u64>>,
}

/// Bytes that are put in place of others.
enum Other<S> {
    /// Those of a sample.
    Sample(usize),
    /// Those that these blocks held at another time.
    Time(BTreeMap<BlockId, Rc<S>>),
    Zeros,
}

impl<'a, 'b, S: Subject> Trial<'a, 'b, S> {
    fn new(
        bench: &'a mut Bench<'b, S>,
        histories: &'a Histories<S>,
        node: NodeId,
        shared: &'a BTreeMap<BlockId, Range<u64>>,
        seen: &'a mut Observed,
    ) -> Self {
        let named = bench.subject.named(node).into_iter().map(|(block, _)| block).collect();
        let (read, told) = Default::default();
        Self { bench, histories, node, shared, seen, named, read, told }
    }

    fn run(&mut self) -> Result<(), S::Error> {
        self.seen.trials += 1;
        self.bench.run(self.node)
    }

    /// Blocks that do not hold what the first sample has before a node.
    fn strange(&mut self, blocks: &[BlockId], before: u32) -> Result<Vec<Change>, S::Error> {
        let expected: Vec<(BlockId, &S::Saved)> = blocks
            .iter()
            .map(|&block| (block, &**self.histories.before(0, block, before)))
            .collect();
        self.bench.subject.changed(&expected)
    }

    /// Runs it on the bytes of the first sample. Whether its results are those of every other sample too.
    fn repeat(&mut self) -> Result<bool, S::Error> {
        if self.bench.subject.is_excluded(self.node) {
            self.seen.opaque = Some(Opaque::Excluded);
            return Ok(false);
        }
        if self.seen.writes.is_empty() {
            self.seen.opaque = Some(Opaque::NothingWritten);
            return Ok(false);
        }
        self.run()?;
        let all: Vec<BlockId> = self.shared.keys().copied().collect();
        if !self.strange(&all, self.node.0 + 1)?.is_empty() {
            self.seen.opaque = Some(Opaque::NotRepeatable);
        }
        let mut constant = true;
        for sample in 1..self.histories.samples() {
            let after = |&block| (block, &**self.histories.before(sample, block, self.node.0 + 1));
            let expected: Vec<(BlockId, &S::Saved)> = self.seen.writes.iter().map(after).collect();
            constant = constant && self.bench.subject.changed(&expected)?.is_empty();
        }
        self.back(&[])?;
        Ok(constant)
    }

    /// Puts back what the first sample has before the node in the blocks that it writes, and in these.
    fn back(&mut self, others: &[BlockId]) -> Result<(), S::Error> {
        let blocks: BTreeSet<BlockId> = self.seen.writes.iter().chain(others).copied().collect();
        let blocks: Vec<BlockId> = blocks.into_iter().collect();
        self.histories.return_to(self.bench, &blocks, self.node.0)
    }

    /// Finds which of the blocks that it writes hold the same afterwards, whatever they held before.
    fn overwrite(&mut self) -> Result<(), S::Error> {
        let writes = self.seen.writes.clone();
        self.put(&writes, &Other::Sample(1))?;
        let told = self.strange(&writes, self.node.0)?;
        self.run()?;
        let kept = self.strange(&writes, self.node.0 + 1)?;
        let is_in =
            |changes: &[Change], block: BlockId| changes.iter().any(|change| change.block == block);
        // Every word must have been another one before, or nothing says that it was replaced.
        self.seen.replaces = told
            .iter()
            .filter(|change| {
                let whole = 0..self.bench.subject.bytes(change.block);
                change.bytes == whole && !is_in(&kept, change.block)
            })
            .map(|change| change.block)
            .collect();
        self.back(&[])
    }

    /// Finds what it reads among blocks that others write. `constant` says that its results are the same for every sample.
    fn exchange(&mut self, limits: Limits, constant: bool) -> Result<(), S::Error> {
        for sample in 1..self.histories.samples() {
            self.try_out(self.open(), &Other::Sample(sample))?;
        }
        // What is the same on every input was not so at all times.
        let times: BTreeMap<BlockId, Rc<S::Saved>> = self
            .open()
            .into_iter()
            .filter(|block| !self.is_told(block, &self.shared[block]))
            .filter_map(|block| Some((block, self.another_time(block)?)))
            .collect();
        self.try_out(times.keys().copied().collect(), &Other::Time(times))?;
        if limits.zeros {
            self.try_out(self.open(), &Other::Zeros)?;
        }
        // Where results are always the same, nothing shows what they come from: what it names, if it names what it was seen
        // to touch.
        let mut touched = self.seen.writes.iter().chain(&self.read);
        let names_all = touched.all(|block| self.named.contains(block));
        let hidden = |block| constant && (self.named.contains(block) || !names_all);
        let unsure = self.shared.iter().filter(|&(block, written)| {
            !self.touches(block) && (hidden(block) || !self.is_told(block, written))
        });
        self.seen.assumed = unsure.map(|(&block, _)| block).collect();
        self.seen.reads = std::mem::take(&mut self.read).into_iter().collect();
        Ok(())
    }

    /// Whether it was seen to read or write a block.
    fn touches(&self, block: &BlockId) -> bool {
        self.read.contains(block) || is_written_in(&self.seen.writes, *block)
    }

    /// Blocks that others write, and that it was not seen to touch.
    fn open(&self) -> Vec<BlockId> {
        self.shared.keys().filter(|block| !self.touches(block)).copied().collect()
    }

    /// Whether enough of what is written of a block was exchanged to say that the node does not read it.
    ///
    /// Of a block that it names, it may read just the bytes that somebody makes the same on every input: a counter that is
    /// cleared in front of partial sums, say, for which it would wait for ever.
    fn is_told(&self, block: &BlockId, written: &Range<u64>) -> bool {
        self.told.get(block).is_some_and(|told| {
            let whole = told.start <= written.start && written.end <= told.end;
            whole || !self.named.contains(block)
        })
    }

    /// What a block held when the node ran for the first time of all, before anything wrote it. Of scratch memory that the
    /// node does not name also what is there before or after some other node: one that names it may wait there.
    fn another_time(&self, block: BlockId) -> Option<Rc<S::Saved>> {
        let apart = self.bench.subject.is_scratch(block) && !self.named.contains(&block);
        let beside = || self.histories.beside(block, self.node.0).filter(|_| apart);
        self.histories.untouched(block, self.node).or_else(beside).cloned()
    }

    /// Puts other bytes into these blocks, and notes where they differ and of which of them that shows a read.
    fn try_out(&mut self, open: Vec<BlockId>, other: &Other<S::Saved>) -> Result<(), S::Error> {
        if open.is_empty() {
            return Ok(());
        }
        // Only where the bytes differ can a result.
        self.put(&open, other)?;
        let differing = self.strange(&open, self.node.0)?;
        let candidates: Vec<BlockId> = differing.iter().map(|change| change.block).collect();
        self.back(&candidates)?;
        differing.iter().for_each(|change| widen(&mut self.told, change.block, &change.bytes));
        self.search(candidates, other)
    }

    /// Takes the sets on which the results depend apart. A set of which no part alone makes a difference is read whole.
    fn search(
        &mut self,
        candidates: Vec<BlockId>,
        other: &Other<S::Saved>,
    ) -> Result<(), S::Error> {
        if !self.depends_on(&candidates, other)? {
            return Ok(());
        }
        let (likely, rest): (Vec<BlockId>, Vec<BlockId>) =
            candidates.iter().partition(|block| self.named.contains(block));
        let mut parts: Vec<Vec<BlockId>> = likely.into_iter().map(|block| vec![block]).collect();
        parts.push(rest);
        let mut open = vec![(candidates, parts)];
        while let Some((whole, parts)) = open.pop() {
            if let [one] = whole[..] {
                self.read.insert(one);
                continue;
            }
            let mut found = false;
            for part in parts {
                // All that is left of the whole has been seen to matter.
                if part.len() == whole.len() || self.depends_on(&part, other)? {
                    found = true;
                    let (left, right) = part.split_at(part.len() / 2);
                    let halves = vec![left.to_vec(), right.to_vec()];
                    open.push((part, halves));
                }
            }
            if !found {
                self.read.extend(whole);
            }
        }
        Ok(())
    }

    /// Whether results differ if these blocks hold other bytes. Anything else that changes is a write, and noted.
    fn depends_on(
        &mut self,
        blocks: &[BlockId],
        other: &Other<S::Saved>,
    ) -> Result<bool, S::Error> {
        if blocks.is_empty() {
            return Ok(false);
        }
        self.put(blocks, other)?;
        self.run()?;
        let (histories, node) = (self.histories, self.node.0);
        let (is_written, is_put) = (
            |block: BlockId| self.seen.writes.binary_search(&block).is_ok(),
            |block: BlockId| blocks.binary_search(&block).is_ok(),
        );
        let expected: Vec<(BlockId, &S::Saved)> = self
            .shared
            .keys()
            .filter_map(|&block| {
                let bytes = match other {
                    _ if is_written(block) => histories.before(0, block, node + 1),
                    _ if !is_put(block) => histories.before(0, block, node),
                    Other::Sample(sample) => histories.before(*sample, block, node),
                    Other::Time(bytes) => &bytes[&block],
                    Other::Zeros => return None,
                };
                Some((block, &**bytes))
            })
            .collect();
        let changed = self.bench.subject.changed(&expected)?;
        // Overwriting what was put there is no reading of it.
        let differs = changed.iter().any(|change| !is_put(change.block));
        for change in &changed {
            if !is_written_in(&self.seen.writes, change.block) {
                self.seen.writes_to(change);
            }
        }
        self.back(blocks)?;
        Ok(differs)
    }

    fn put(&mut self, blocks: &[BlockId], other: &Other<S::Saved>) -> Result<(), S::Error> {
        let bytes = |block: BlockId| match other {
            Other::Sample(sample) => Some(&**self.histories.before(*sample, block, self.node.0)),
            Other::Time(bytes) => Some(&*bytes[&block]),
            Other::Zeros => None,
        };
        let copies: Option<Vec<(BlockId, &S::Saved)>> =
            blocks.iter().map(|&block| Some((block, bytes(block)?))).collect();
        match copies {
            Some(copies) => self.bench.subject.restore(&copies),
            None => self.bench.subject.clear(blocks),
        }
    }

    /// Leaves the memory as the first sample has it after the node.
    fn leave(&mut self) -> Result<(), S::Error> {
        let all: Vec<BlockId> = self.shared.keys().copied().collect();
        let strange: Vec<BlockId> =
            self.strange(&all, self.node.0 + 1)?.into_iter().map(|change| change.block).collect();
        self.histories.return_to(self.bench, &strange, self.node.0 + 1)
    }
}

fn is_written_in(writes: &[BlockId], block: BlockId) -> bool {
    writes.binary_search(&block).is_ok()
}
