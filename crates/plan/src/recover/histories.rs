//! What each block holds over the samples, and so what each node writes.
//!
//! Every sample runs from front to back in captured order, and whatever changes is copied: memory for what nodes write, once
//! a sample and once more. The first run of all shows what is written the same at every replay, since memory does not hold it
//! yet: zeros, too, where memory that nobody has written is spoiled before.

use std::collections::BTreeMap;
use std::rc::Rc;

use phonograph_graph::NodeId;

use super::{Bench, BlockId, Change, Limits, Observed, Stage, Subject, Verdict};

/// What a block held over one sample: from which node on which bytes.
type History<S> = Vec<(u32, Rc<S>)>;

/// What the blocks held over all samples.
pub(super) struct Histories<S: Subject> {
    /// By sample and block. Node numbers count from one: 0 is before the first.
    of: Vec<Vec<History<S::Saved>>>,
    /// What the first run of all has changed: the first node that did, and what the block held until then.
    first: BTreeMap<BlockId, (NodeId, Rc<S::Saved>)>,
}

impl<S: Subject> Histories<S> {
    /// Runs every sample and notes what changes; with a verdict if that ended early.
    pub fn record(
        bench: &mut Bench<'_, S>,
        limits: Limits,
        observed: &mut [Observed],
    ) -> Result<(Self, Option<Verdict>), S::Error> {
        let nodes = bench.subject.nodes();
        let samples = limits.samples.max(2);
        let mut histories = Self { of: Vec::new(), first: BTreeMap::new() };
        let fresh: Vec<BlockId> = (0..bench.subject.blocks())
            .map(BlockId)
            .filter(|&block| bench.subject.is_fresh(block))
            .collect();
        bench.subject.spoil(&fresh)?;
        // Before the samples a replay as in use: what their first node finds is what a last run has left, not what capturing
        // has.
        bench.subject.give(samples)?;
        let mut current = all(bench)?;
        let untouched = current.clone();
        let of = samples.saturating_add(1).saturating_mul(nodes);
        for node in (0..nodes).map(NodeId) {
            if !bench.goes_on(Stage::Writes, node.0, of) {
                return Ok((histories, Some(Verdict::Stopped)));
            }
            bench.run(node)?;
            let seen = &mut observed[node.index()];
            seen.trials += 1;
            for change in update(bench, &mut current)?.0 {
                let first = || (node, untouched[change.block.index()].clone());
                histories.first.entry(change.block).or_insert_with(first);
                seen.writes_to(&change);
            }
        }
        drop(untouched);
        let mut held: u64 = (0..bench.subject.blocks())
            .map(BlockId)
            .chain(histories.first.keys().copied())
            .map(|block| bench.subject.bytes(block))
            .sum();
        for sample in 0..samples {
            bench.subject.give(sample)?;
            held += update(bench, &mut current)?.1;
            let mut history: Vec<History<S::Saved>> =
                current.iter().map(|saved| vec![(0, saved.clone())]).collect();
            for node in (0..nodes).map(NodeId) {
                let done = (sample + 1).saturating_mul(nodes).saturating_add(node.0);
                if held > limits.saved_bytes {
                    return Ok((histories, Some(Verdict::Full)));
                }
                if !bench.goes_on(Stage::Writes, done, of) {
                    return Ok((histories, Some(Verdict::Stopped)));
                }
                bench.run(node)?;
                let seen = &mut observed[node.index()];
                seen.trials += 1;
                let (changes, taken) = update(bench, &mut current)?;
                held += taken;
                for change in &changes {
                    let at = change.block.index();
                    history[at].push((node.0 + 1, current[at].clone()));
                    seen.writes_to(change);
                }
            }
            histories.of.push(history);
        }
        Ok((histories, None))
    }

    /// How many samples were run.
    pub fn samples(&self) -> usize {
        self.of.len()
    }

    /// Whether it is about this block: not one that was added later.
    pub fn knows(&self, block: BlockId) -> bool {
        self.of.iter().all(|sample| block.index() < sample.len())
    }

    /// What a block holds before a node.
    pub fn before(&self, sample: usize, block: BlockId, node: u32) -> &Rc<S::Saved> {
        let history = &self.of[sample][block.index()];
        let place = history.partition_point(|&(from, _)| from <= node);
        &history[place - 1].1
    }

    /// What a block held before a node at the first run of all, if nothing had written it by then.
    pub fn untouched(&self, block: BlockId, node: NodeId) -> Option<&Rc<S::Saved>> {
        self.first.get(&block).filter(|(first, _)| node <= *first).map(|(_, saved)| saved)
    }

    /// What a block holds in the first sample until the last change before a node, or from the next on.
    pub fn beside(&self, block: BlockId, node: u32) -> Option<&Rc<S::Saved>> {
        let history = &self.of[0][block.index()];
        let place = history.partition_point(|&(from, _)| from <= node);
        let beside = place.checked_sub(2).or((place < history.len()).then_some(place));
        beside.map(|at| &history[at].1)
    }

    /// Puts into these blocks what the first sample has there before a node.
    pub fn return_to(
        &self,
        bench: &mut Bench<'_, S>,
        blocks: &[BlockId],
        node: u32,
    ) -> Result<(), S::Error> {
        let copies: Vec<(BlockId, &S::Saved)> =
            blocks.iter().map(|&block| (block, &**self.before(0, block, node))).collect();
        bench.subject.restore(&copies)
    }
}

/// Copies of all blocks.
pub(super) fn all<S: Subject>(bench: &mut Bench<'_, S>) -> Result<Vec<Rc<S::Saved>>, S::Error> {
    let blocks: Vec<BlockId> = (0..bench.subject.blocks()).map(BlockId).collect();
    Ok(bench.subject.save(&blocks)?.into_iter().map(Rc::new).collect())
}

/// Copies what has changed, and says what has and how many bytes the copies take.
pub(super) fn update<S: Subject>(
    bench: &mut Bench<'_, S>,
    current: &mut [Rc<S::Saved>],
) -> Result<(Vec<Change>, u64), S::Error> {
    let expected: Vec<(BlockId, &S::Saved)> =
        (0..).map(BlockId).zip(current.iter().map(|saved| &**saved)).collect();
    let changes = bench.subject.changed(&expected)?;
    let before: Vec<(&Change, &S::Saved)> =
        changes.iter().map(|change| (change, &*current[change.block.index()])).collect();
    let copies = bench.subject.save_changes(&before)?;
    let taken = copies.iter().map(|(_, bytes)| bytes).sum();
    for (change, (saved, _)) in changes.iter().zip(copies) {
        current[change.block.index()] = Rc::new(saved);
    }
    Ok((changes, taken))
}
