//! Which layout of the recovered order is kept: by what replays take, and by the bytes that they leave.
//!
//! In: a verified order. Out: the fastest layout of it that was found, if it is faster than the captured order. Every planned
//! layout is timed; from the fastest few a [`Neighbourhood`] is searched, each change against the layout that it would
//! replace. What is best by then may be best by chance. So those that the searches ended with and the fastest planned ones
//! are made and timed anew, and once more the two that remain: in turns with each other and with the captured order, which
//! is kept unless it loses.

use std::cmp::Ordering;
use std::time::Instant;

use phonograph_cuda::{Arranged, Arrangement};
use phonograph_graph::{ComputeGraph, Edge, NodeId};
use phonograph_plan::recover::{BlockId, Recovered, Subject, Verdict};

use super::layout::{Capped, Layout, Making, depth, edges};
use super::search::{Answer, Neighbourhood, SEED};
use super::{Options, RecoverError, Report, Tried, Watched};

/// A layout that can be launched.
struct Candidate {
    tried: Tried,
    layout: Layout,
    order: Arrangement,
    arranged: Arranged,
}

impl Watched<'_> {
    /// Times the recovered order in all layouts. The fastest that is right and faster than the captured one.
    pub(super) fn choose(
        &mut self,
        mut before: Arranged,
        options: &Options,
        report: &mut Report,
    ) -> Result<Option<(usize, Arrangement)>, RecoverError> {
        let mut candidates = match report.recovered.verdict {
            Verdict::Verified { .. } => self.candidates(options, &report.recovered)?,
            _ => Vec::new(),
        };
        // A glance spares most of them the rest.
        report.captured_micros = self.time(&mut before, &mut candidates, GLANCES)?;
        candidates.sort_by(fastest_first);
        let least = candidates.first().map_or(0.0, |fastest| fastest.tried.micros);
        let near = candidates.partition_point(|next| next.tried.micros <= least * HOPEFUL);
        report.captured_micros = self.time(&mut before, &mut candidates[..near], ROUNDS)?;
        candidates[..near].sort_by(fastest_first);
        let neighbourhood = Neighbourhood::new(&report.recovered.graph);
        let mut found = Vec::new();
        for start in starts(&candidates) {
            let until = Instant::now() + options.search / STARTS;
            let (searched, asked) = self.search(&neighbourhood, start, until)?;
            report.searched += asked;
            found.extend(searched);
        }
        candidates.splice(0..0, found);
        for finalists in [FINALISTS, LAST] {
            let finalists = candidates.len().min(finalists);
            let finalists = &mut candidates[..finalists];
            for Candidate { order, arranged, .. } in finalists.iter_mut() {
                *arranged = self.watch.arrange(order)?;
            }
            report.captured_micros = self.time(&mut before, finalists, FINAL_ROUNDS)?;
            finalists.sort_by(fastest_first);
        }
        let finalists = candidates.len().min(LAST);
        let mut best = None;
        for (at, candidate) in candidates.iter_mut().take(finalists).enumerate() {
            if candidate.tried.micros >= report.captured_micros * GAIN {
                break;
            }
            let right = self.agrees(&mut before, &mut candidate.arranged, options)?;
            candidate.tried.right = Some(right);
            if right {
                best = Some(at);
                break;
            }
        }
        let best = best.map(|at| (at, candidates[at].order.clone()));
        report.tried = candidates.into_iter().map(|candidate| candidate.tried).collect();
        Ok(best)
    }

    /// Searches from a layout: a faster one, if there is one, and how many were tried.
    fn search(
        &mut self,
        neighbourhood: &Neighbourhood<'_>,
        start: &Candidate,
        until: Instant,
    ) -> Result<(Option<Candidate>, u32), RecoverError> {
        let Tried { cap, making, .. } = start.tried;
        let flow = neighbourhood.flow();
        let mut best = self.candidate(flow, start.layout.clone(), cap, making)?;
        let mut pace = {
            let replays = (0..ROUNDS).map(|_| self.replay(&mut best.arranged));
            median(replays.collect::<Result<_, _>>()?)
        };
        let mut asked = 0;
        let mut faster = |layout: &Layout| -> Result<Answer, RecoverError> {
            if Instant::now() > until {
                return Ok(Answer::Over);
            }
            asked += 1;
            let mut next = self.candidate(flow, layout.clone(), cap, making)?;
            // A glance sorts most of them out.
            let mut glances = [0.0; GLANCES];
            for glance in &mut glances {
                *glance = self.replay(&mut next.arranged)?;
                if *glance > pace * FAR {
                    return Ok(Answer::Slower);
                }
            }
            if median(glances.to_vec()) > pace * NEAR {
                return Ok(Answer::Slower);
            }
            let (mut lost, mut times) = (0, [Vec::new(), Vec::new()]);
            while times[0].len() < DUELS {
                let old = self.replay(&mut best.arranged)?;
                let new = self.replay(&mut next.arranged)?;
                lost += usize::from(new >= old);
                times[0].push(old);
                times[1].push(new);
                if lost > LOST {
                    pace = median(std::mem::take(&mut times[0]));
                    return Ok(Answer::Slower);
                }
            }
            let [old, new] = times.map(median);
            if new > old * CLEAR {
                pace = old;
                return Ok(Answer::Slower);
            }
            pace = new;
            best = next;
            Ok(Answer::Faster)
        };
        let changes =
            neighbourhood.descend(start.layout.clone(), SEED, cap.is_none(), &mut faster)?;
        best.tried.changes = changes;
        Ok(((changes > 0).then_some(best), asked))
    }

    /// The recovered order in all planned layouts.
    fn candidates(
        &mut self,
        options: &Options,
        recovered: &Recovered,
    ) -> Result<Vec<Candidate>, RecoverError> {
        let costs = self.costs()?;
        let mut candidates: Vec<Candidate> = Vec::new();
        for cap in [None].into_iter().chain(options.caps.iter().copied().map(Some)) {
            let capped = Capped::new(&recovered.graph, cap, &costs)?;
            for (ends, making) in capped.ends().flat_map(|e| Making::ALL.map(|making| (e, making)))
            {
                let layout = capped.layout(making, ends);
                let (order, tried) = self.planned(&recovered.graph, &layout, cap, making)?;
                if !candidates.iter().any(|known| known.order == order) {
                    let arranged = self.watch.arrange(&order)?;
                    candidates.push(Candidate { tried, layout, order, arranged });
                }
            }
        }
        Ok(candidates)
    }

    fn candidate(
        &mut self,
        flow: &ComputeGraph,
        layout: Layout,
        cap: Option<u32>,
        making: Making,
    ) -> Result<Candidate, RecoverError> {
        let (order, tried) = self.planned(flow, &layout, cap, making)?;
        let arranged = self.watch.arrange(&order)?;
        Ok(Candidate { tried, layout, order, arranged })
    }

    /// What a layout asks the driver for.
    fn planned(
        &self,
        flow: &ComputeGraph,
        layout: &Layout,
        cap: Option<u32>,
        making: Making,
    ) -> Result<(Arrangement, Tried), RecoverError> {
        let order = layout.order(flow)?;
        let captured = |node: NodeId| self.order[node.index()];
        let edges: Vec<Edge> = edges(&order)
            .into_iter()
            .map(|(from, to)| Edge::full(captured(from), captured(to)))
            .collect();
        let (count, depth, ends) = (edges.len(), depth(&order), layout.ends);
        let nodes: Vec<NodeId> = layout.made.iter().copied().map(captured).collect();
        let (changes, micros, right) = (0, 0.0, None);
        let tried = Tried { cap, making, changes, ends, edges: count, depth, micros, right };
        Ok((Arrangement { nodes, edges, ends }, tried))
    }

    /// Microseconds of a replay.
    fn replay(&mut self, arranged: &mut Arranged) -> Result<f64, RecoverError> {
        let start = Instant::now();
        self.watch.replay(arranged)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }

    /// Times all in turns: the median of the captured order, and those of the others in their rows.
    fn time(
        &mut self,
        before: &mut Arranged,
        candidates: &mut [Candidate],
        rounds: usize,
    ) -> Result<f64, RecoverError> {
        let mut times = vec![Vec::new(); candidates.len() + 1];
        for _ in 0..rounds {
            let all = candidates.iter_mut().map(|candidate| &mut candidate.arranged);
            for (times, arranged) in times.iter_mut().zip([&mut *before].into_iter().chain(all)) {
                times.push(self.replay(arranged)?);
            }
        }
        let mut medians = times.into_iter().map(median);
        let captured = medians.next().unwrap_or_default();
        for (candidate, micros) in candidates.iter_mut().zip(medians) {
            candidate.tried.micros = micros;
        }
        Ok(captured)
    }

    /// Nanoseconds of each node alone, launch and wait included: the median of some replays.
    fn costs(&mut self) -> Result<Vec<u64>, RecoverError> {
        let mut times = vec![Vec::new(); self.order.len()];
        for _ in 0..COSTS {
            for (node, times) in (0..).map(NodeId).zip(&mut times) {
                self.watch.wait()?;
                let start = Instant::now();
                self.run(node)?;
                self.watch.wait()?;
                times.push(start.elapsed().as_nanos() as f64);
            }
        }
        let costs: Vec<u64> = times.into_iter().map(|times| median(times) as u64).collect();
        // What a launch costs is in all of them alike.
        let least = costs.iter().copied().min().unwrap_or(0);
        Ok(costs.into_iter().map(|cost| cost - least + 1000).collect())
    }

    /// Whether both leave the same bytes on fresh inputs, scratch memory and what was added aside.
    fn agrees(
        &mut self,
        before: &mut Arranged,
        after: &mut Arranged,
        options: &Options,
    ) -> Result<bool, RecoverError> {
        let count = self.known.len() as u32;
        let compared: Vec<BlockId> =
            (0..count).map(BlockId).filter(|&block| !self.is_scratch(block)).collect();
        let first = options.limits.samples.max(2).saturating_add(options.limits.rounds) + 1;
        for sample in first..first.saturating_add(options.inputs) {
            self.give(sample)?;
            let start = self.save_all()?;
            self.watch.replay(before)?;
            let end = self.save(&compared)?;
            self.restore_all(&start)?;
            self.watch.replay(after)?;
            let expected: Vec<_> = compared.iter().copied().zip(&end).collect();
            if !self.changed(&expected)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Replays, node by node, in which nodes are timed.
const COSTS: usize = 5;
/// Replays of each planned layout that are timed, in turns, if it takes at most so much of the fastest one's time at a glance.
const ROUNDS: usize = 15;
const HOPEFUL: f64 = 1.1;
/// Layouts that are searched from, at most.
const STARTS: u32 = 2;
/// Replays by which a layout is first judged, and how much of what was changed each of a change's may take, and their median.
const GLANCES: usize = 5;
const FAR: f64 = 1.01;
const NEAR: f64 = 0.9995;
/// Pairs of replays, one after the other, that it then takes, how many of them it may lose, and how much of what was changed
/// it may take. To be strict here costs more than it gains: most changes are worth less than one replay differs from the
/// next, and the last word has the timing of what a search ends with.
const DUELS: usize = 16;
const LOST: usize = 5;
const CLEAR: f64 = 0.999;
/// Layouts that are timed once more, then those of which the kept one is, and replays of each.
const FINALISTS: usize = 6;
const LAST: usize = 2;
const FINAL_ROUNDS: usize = 101;

/// Of the captured order's time at most so much: less of a gain may be chance.
const GAIN: f64 = 0.995;

/// The fastest layout, and the fastest under another cap.
fn starts(sorted: &[Candidate]) -> impl Iterator<Item = &Candidate> {
    let first = sorted.first();
    let other = sorted.iter().find(|other| first.is_some_and(|f| f.tried.cap != other.tried.cap));
    first.into_iter().chain(other)
}

fn fastest_first(a: &Candidate, b: &Candidate) -> Ordering {
    a.tried.micros.total_cmp(&b.tried.micros)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
