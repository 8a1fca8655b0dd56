//! Order that is there only because nodes were handed the same scratch memory, and copies of their own for them.
//!
//! In: what was observed. Out: nodes that use other memory, and what was observed changed accordingly. Only blocks at whose
//! contents nobody looks after a replay are considered. Each node that touches one is a run, together with the next ones if
//! it leaves nothing anywhere else: the launches of one call of a library. A run can have a copy of its own if
//!
//! 1. it reads nothing that it has not written: its results stay the same on what the block holds there on other inputs, and
//!    on zeros; a run that does read joins the run before it, and if that does not help everything before stays too;
//! 2. it moves: with the address in its parameters replaced its results are the same and the block is not touched, whatever
//!    the copy holds before.
//!
//! Runs that the flow of data orders anyway share a copy, first come, first served, so that there are about as many copies
//! as runs side by side. In the end every sample runs once more in captured order, and each node must give what it gave
//! before; nodes for which that is not so go back. Six to ten runs of each node concerned and sample.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use phonograph_graph::{ComputeGraph, NodeId};

use super::histories::Histories;
use super::{Bench, BlockId, Change, Limits, Observed, Opaque, Stage, Subject, data_flow};

/// Bytes that nodes use in place of those of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diverted {
    /// The block that they used.
    pub block: BlockId,
    /// The bytes of it that the copy stands in for.
    pub bytes: Range<u64>,
    /// The copy, of as many bytes.
    pub own: BlockId,
}

/// Nodes with a copy of their own of scratch memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Private {
    /// Which memory.
    pub instead: Diverted,
    /// The nodes, in captured order.
    pub nodes: Vec<NodeId>,
}

/// Runs that join before it is given up to find where what they read comes from.
const JOINED: usize = 8;
/// What is added to the bytes that were seen to be used: a write of what was there already is not seen.
const SLACK: u64 = 64 << 10;
/// Rounds of taking back what does not hold in the end.
const ROUNDS: usize = 8;

/// A run of nodes that touch a block.
struct Run {
    /// From the first of them to the last, others in between included.
    all: RangeInclusive<u32>,
    /// Those that touch it.
    nodes: Vec<NodeId>,
}

impl Run {
    /// With a run after it.
    fn joined(self, after: Run) -> Run {
        let all = *self.all.start()..=*after.all.end();
        Run { all, nodes: [self.nodes, after.nodes].concat() }
    }
}

/// What an experiment says of a run.
enum Fit {
    /// It can have a copy of its own, of these bytes at least.
    Moves(Range<u64>),
    /// It reads what was there before.
    Depends,
    /// It does not move.
    Stays,
}

/// Finds runs that can have copies, and gives them some. The memory is left anyhow; `None` if it was stopped.
pub(super) fn privatise<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    histories: &Histories<S>,
    observed: &mut [Observed],
    names: &[String],
) -> Result<Option<Vec<Private>>, S::Error> {
    let blocks = bench.subject.blocks();
    let scratch: Vec<BlockId> =
        (0..blocks).map(BlockId).filter(|&block| bench.subject.is_scratch(block)).collect();
    let mut movable: Vec<(BlockId, Range<u64>, Vec<Run>, bool)> = Vec::new();
    for (done, &block) in scratch.iter().enumerate() {
        let runs = runs(bench, observed, block);
        if runs.len() < 2 {
            continue;
        }
        let Some(test) = bench.subject.spare(bench.subject.bytes(block))? else { continue };
        let mut trial = Trial { bench, histories, observed, block, test };
        let Some(found) = trial.runs(runs, done as u32, scratch.len() as u32)? else {
            return Ok(None);
        };
        if let Some((bytes, runs, alone)) = found {
            movable.push((block, bytes, runs, alone));
        }
    }
    if movable.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let mut private = assign(bench, limits, observed, names, movable)?;
    let original = observed.to_vec();
    for _ in 0..ROUNDS {
        let wrong = match apply(bench, observed, &private)? {
            Some(refused) => Some(refused),
            None => match together(bench, histories, &original, &private)? {
                Joint::Same => return Ok(Some(private)),
                Joint::DiffersAt(node) => Some(node),
                Joint::Differs => None,
            },
        };
        for node in by_node(&private).into_keys() {
            bench.subject.divert(node, &[])?;
        }
        observed.clone_from_slice(&original);
        let before = private.len();
        private.retain(|private| wrong.is_some_and(|node| !private.nodes.contains(&node)));
        // A node that has nothing of its own got something wrong from one that has, and nobody knows which.
        if private.len() == before || private.is_empty() {
            break;
        }
    }
    Ok(Some(Vec::new()))
}

/// The runs of nodes that touch a block, or seem to name it.
fn runs<S: Subject>(bench: &Bench<'_, S>, observed: &[Observed], block: BlockId) -> Vec<Run> {
    // A run that leaves nothing anywhere else works for the one after it, also where that is not to be seen: zeros for a
    // kernel that counts there, and would wait for ever on a copy that nobody clears.
    let leaves = |run: &Run| {
        run.nodes.iter().any(|node| observed[node.index()].writes.iter().any(|&b| b != block))
    };
    let mut runs: Vec<Run> = Vec::new();
    for (node, seen) in (0..).map(NodeId).zip(observed) {
        let touches = seen.writes.binary_search(&block).is_ok()
            || seen.reads.contains(&block)
            || bench.subject.named(node).iter().any(|(named, _)| *named == block);
        if !touches {
            continue;
        }
        let run = Run { all: node.0..=node.0, nodes: vec![node] };
        match runs.pop_if(|before| !leaves(before)) {
            Some(before) => runs.push(before.joined(run)),
            None => runs.push(run),
        }
    }
    runs
}

/// Experiments with the runs of one block.
struct Trial<'a, 'b, S: Subject> {
    bench: &'a mut Bench<'b, S>,
    histories: &'a Histories<S>,
    observed: &'a mut [Observed],
    block: BlockId,
    /// A block of the same size.
    test: BlockId,
}

/// Bytes used, the runs that move, and whether no other node uses the block.
type Movable = (Range<u64>, Vec<Run>, bool);

impl<S: Subject> Trial<'_, '_, S> {
    /// Those of the runs that can have a copy; `Some(None)` if there is none, `None` if it was stopped.
    fn runs(
        &mut self,
        mut runs: Vec<Run>,
        done: u32,
        of: u32,
    ) -> Result<Option<Option<Movable>>, S::Error> {
        let (mut used, mut moving, mut alone): (Option<Range<u64>>, Vec<Run>, bool) =
            (None, Vec::new(), true);
        'next: while let Some(mut run) = runs.pop() {
            for _ in 0..JOINED {
                if !self.bench.goes_on(Stage::Workspaces, done, of) {
                    return Ok(None);
                }
                match self.fits(&run)? {
                    Fit::Moves(bytes) => {
                        used = Some(used.map_or(bytes.clone(), |used| {
                            used.start.min(bytes.start)..used.end.max(bytes.end)
                        }));
                        moving.push(run);
                        continue 'next;
                    }
                    Fit::Stays => {
                        alone = false;
                        continue 'next;
                    }
                    Fit::Depends => {}
                }
                // What is read before anything is written is what the last replay has left.
                let Some(before) = runs.pop() else { return Ok(Some(None)) };
                run = before.joined(run);
            }
            alone = false;
            let all = runs.drain(..).rev().fold(run, |run, before| before.joined(run));
            if matches!(self.fits(&all)?, Fit::Depends) {
                return Ok(Some(None));
            }
        }
        moving.reverse();
        // Nodes that may read what they cannot be told to read stay, and what they may have it from.
        let unsure = (0..self.observed.len()).rev().find(|&at| {
            let seen = &self.observed[at];
            let at = NodeId::from_index(at);
            let is_moving = moving.iter().any(|run| run.nodes.contains(&at));
            let unknown = seen.opaque.is_some_and(|why| why != Opaque::NothingWritten);
            !is_moving && (unknown || seen.assumed.contains(&self.block))
        });
        if let Some(last) = unsure {
            let before = moving.len();
            moving.retain(|run| *run.all.start() as usize > last);
            alone &= moving.len() == before;
        }
        Ok(Some(used.filter(|_| !moving.is_empty()).map(|bytes| (bytes, moving, alone))))
    }

    fn fits(&mut self, run: &Run) -> Result<Fit, S::Error> {
        let block = self.block;
        if run.all.clone().any(|node| self.bench.subject.is_excluded(NodeId(node))) {
            return Ok(Fit::Stays);
        }
        let mut left = Vec::new();
        for sample in 1..=self.histories.samples() {
            self.stand_before(run, sample, block)?;
            if !self.same(run)? {
                return Ok(Fit::Depends);
            }
            left.extend(self.bench.subject.save(&[block])?);
        }
        let whole = 0..self.bench.subject.bytes(block);
        let to = [Diverted { block, bytes: whole, own: self.test }];
        let mut moved = true;
        for &node in &run.nodes {
            moved = moved && self.bench.subject.divert(node, &to)?;
        }
        let fit = if moved { self.moves(run, &left) } else { Ok(Fit::Stays) };
        let mut back = run.nodes.iter();
        let back = back.try_for_each(|&node| self.bench.subject.divert(node, &[]).map(drop));
        // What went wrong first is what is to be told.
        let fit = fit?;
        back?;
        Ok(fit)
    }

    /// Runs it on the copy, the block being something else than in the first sample. On the same bytes it must leave in the
    /// copy what it `left` in the block.
    fn moves(&mut self, run: &Run, left: &[S::Saved]) -> Result<Fit, S::Error> {
        let first = *run.all.start();
        let mut used: Option<Range<u64>> = None;
        let mut uses = |bytes: Range<u64>| {
            let used = used.get_or_insert_with(|| bytes.clone());
            *used = used.start.min(bytes.start)..used.end.max(bytes.end);
        };
        for (sample, left) in (1..).zip(left) {
            self.stand_before(run, sample, self.test)?;
            let there = self.histories.before(1, self.block, first).clone();
            self.bench.subject.restore(&[(self.block, &there)])?;
            let found = self.bench.subject.save(&[self.test])?;
            if !self.same(run)? {
                return Ok(Fit::Stays);
            }
            let expected = [(self.block, &*there), (self.test, left)];
            if !self.bench.subject.changed(&expected)?.is_empty() {
                return Ok(Fit::Stays);
            }
            for Change { bytes, .. } in self.bench.subject.changed(&[(self.test, &found[0])])? {
                uses(bytes);
            }
        }
        for &node in &run.nodes {
            let seen = &self.observed[node.index()];
            if let Ok(at) = seen.writes.binary_search(&self.block) {
                uses(seen.spans[at].clone());
            }
            for (block, offset) in self.bench.subject.named(node) {
                if block == self.block {
                    uses(offset..offset + 1);
                }
            }
        }
        let bytes = self.bench.subject.bytes(self.block);
        Ok(used.map_or(Fit::Stays, |used| {
            let end = used.end.saturating_add(SLACK).min(bytes);
            Fit::Moves(used.start / 512 * 512..end.next_multiple_of(512).min(bytes))
        }))
    }

    /// The memory as the first sample has it before the run, but a block as another sample has the watched one there; zeros
    /// for the number after the last sample's.
    fn stand_before(&mut self, run: &Run, sample: usize, block: BlockId) -> Result<(), S::Error> {
        let first = *run.all.start();
        let shared: BTreeSet<BlockId> =
            self.observed.iter().flat_map(|seen| seen.writes.iter().copied()).collect();
        let shared: Vec<BlockId> = shared.into_iter().collect();
        self.histories.return_to(self.bench, &shared, first)?;
        if sample == self.histories.samples() {
            self.bench.subject.clear(&[block])
        } else {
            let there = self.histories.before(sample, self.block, first);
            self.bench.subject.restore(&[(block, there)])
        }
    }

    /// Runs it, and says whether every other block is as in the first sample.
    fn same(&mut self, run: &Run) -> Result<bool, S::Error> {
        for node in run.all.clone() {
            self.observed[node as usize].trials += 1;
            self.bench.run(NodeId(node))?;
        }
        let after = run.all.end() + 1;
        // All blocks: an address that was none may have been replaced.
        let expected: Vec<(BlockId, &S::Saved)> = (0..self.bench.subject.blocks())
            .map(BlockId)
            .filter(|&block| block != self.block && self.histories.knows(block))
            .map(|block| (block, &**self.histories.before(0, block, after)))
            .collect();
        let changed = self.bench.subject.changed(&expected)?;
        let changed: Vec<BlockId> = changed.into_iter().map(|change| change.block).collect();
        self.histories.return_to(self.bench, &changed, after)?;
        Ok(changed.is_empty())
    }
}

/// Gives runs that move a copy each, the same one to runs that are ordered anyway; the block itself counts as one if nothing
/// else uses it.
fn assign<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    observed: &[Observed],
    names: &[String],
    movable: Vec<(BlockId, Range<u64>, Vec<Run>, bool)>,
) -> Result<Vec<Private>, S::Error> {
    // As if each run had memory of its own.
    let mut bytes: Vec<u64> =
        (0..bench.subject.blocks()).map(|block| bench.subject.bytes(BlockId(block))).collect();
    let mut apart = observed.to_vec();
    for (block, range, runs, _) in &movable {
        for run in runs {
            let own = BlockId(bytes.len() as u32);
            bytes.push(range.end - range.start);
            let instead = Diverted { block: *block, bytes: range.clone(), own };
            run.nodes.iter().for_each(|node| apart[node.index()].uses(&instead));
        }
    }
    let flow = data_flow(names, &bytes, &apart, &[]);
    let mut private = Vec::new();
    let mut held = 0u64;
    for (block, bytes, runs, alone) in movable {
        // The block each copy is, and the last run that has it.
        let mut copies: Vec<(BlockId, Option<Run>)> =
            if alone { vec![(block, None)] } else { Vec::new() };
        for run in runs {
            let free = |(_, last): &(BlockId, Option<Run>)| {
                last.as_ref().is_none_or(|last| precedes(&flow, &last.nodes, &run.nodes))
            };
            let at = match copies.iter().rposition(free) {
                Some(at) => at,
                None => {
                    let size = bytes.end - bytes.start;
                    if held + size > limits.private_bytes {
                        break;
                    }
                    let Some(own) = bench.subject.spare(size)? else { break };
                    held += size;
                    copies.push((own, None));
                    copies.len() - 1
                }
            };
            let own = copies[at].0;
            if own != block {
                let instead = Diverted { block, bytes: bytes.clone(), own };
                private.push(Private { instead, nodes: run.nodes.clone() });
            }
            copies[at].1 = Some(run);
        }
    }
    Ok(private)
}

/// Whether all of these come before all of those.
fn precedes(flow: &ComputeGraph, these: &[NodeId], those: &[NodeId]) -> bool {
    these.iter().all(|&from| those.iter().all(|&to| flow.is_reachable(from, to)))
}

/// What each node uses instead.
fn by_node(private: &[Private]) -> BTreeMap<NodeId, Vec<Diverted>> {
    let mut by_node = BTreeMap::<NodeId, Vec<Diverted>>::new();
    for Private { instead, nodes } in private {
        nodes.iter().for_each(|&node| by_node.entry(node).or_default().push(instead.clone()));
    }
    by_node
}

/// Diverts all of them; the first node that does not let itself be.
fn apply<S: Subject>(
    bench: &mut Bench<'_, S>,
    observed: &mut [Observed],
    private: &[Private],
) -> Result<Option<NodeId>, S::Error> {
    for (node, instead) in by_node(private) {
        if !bench.subject.divert(node, &instead)? {
            return Ok(Some(node));
        }
        instead.iter().for_each(|instead| observed[node.index()].uses(instead));
    }
    Ok(None)
}

/// Whether nodes give what they gave before.
enum Joint {
    Same,
    DiffersAt(NodeId),
    /// Something has changed that no node was seen to write.
    Differs,
}

/// Runs every sample in captured order, with zeros in the blocks that some nodes do not use any more. What these hold in the
/// end does not count.
fn together<S: Subject>(
    bench: &mut Bench<'_, S>,
    histories: &Histories<S>,
    original: &[Observed],
    private: &[Private],
) -> Result<Joint, S::Error> {
    let left: BTreeSet<BlockId> = private.iter().map(|private| private.instead.block).collect();
    let left: Vec<BlockId> = left.into_iter().collect();
    let known: Vec<BlockId> = (0..bench.subject.blocks())
        .map(BlockId)
        .filter(|&block| histories.knows(block) && left.binary_search(&block).is_err())
        .collect();
    for sample in 0..histories.samples() {
        let then = |blocks: &[BlockId], node: u32| -> Vec<(BlockId, &S::Saved)> {
            blocks.iter().map(|&b| (b, &**histories.before(sample, b, node))).collect()
        };
        bench.subject.restore(&then(&known, 0))?;
        bench.subject.clear(&left)?;
        for (node, seen) in (0..).map(NodeId).zip(original) {
            bench.run(node)?;
            let written: Vec<BlockId> = seen
                .writes
                .iter()
                .copied()
                .filter(|block| left.binary_search(block).is_err())
                .collect();
            if !bench.subject.changed(&then(&written, node.0 + 1))?.is_empty() {
                return Ok(Joint::DiffersAt(node));
            }
        }
        if !bench.subject.changed(&then(&known, original.len() as u32))?.is_empty() {
            return Ok(Joint::Differs);
        }
    }
    Ok(Joint::Same)
}

impl Observed {
    /// Follows that it uses other memory.
    fn uses(&mut self, instead: &Diverted) {
        let Diverted { block, bytes, own } = instead;
        if let Ok(at) = self.writes.binary_search(block) {
            self.writes.remove(at);
            let span = self.spans.remove(at);
            let (start, end) = (span.start.max(bytes.start), span.end.min(bytes.end));
            let place = self.writes.partition_point(|written| written < own);
            self.writes.insert(place, *own);
            self.spans.insert(place, start - bytes.start..end.saturating_sub(bytes.start));
        }
        for blocks in [&mut self.reads, &mut self.assumed, &mut self.replaces] {
            blocks.iter_mut().filter(|read| *read == block).for_each(|read| *read = *own);
            blocks.sort_unstable();
        }
    }
}
