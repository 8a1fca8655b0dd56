//! Lanes of known and of random graphs: order, balance, hand-overs, simulated makespan.

use std::collections::BTreeSet;

use arbtest::arbtest;

use phonograph_plan::lanes::{LaneId, LaneInput, Lanes, LanesError, assign_lanes};

struct Graph {
    offsets: Vec<u32>,
    targets: Vec<u32>,
    cost: Vec<u64>,
}

impl Graph {
    fn new<P: AsRef<[u32]>>(tasks: impl IntoIterator<Item = (u64, P)>) -> Self {
        let mut graph = Self { offsets: vec![0], targets: vec![], cost: vec![] };
        for (cost, predecessors) in tasks {
            graph.targets.extend_from_slice(predecessors.as_ref());
            graph.offsets.push(graph.targets.len() as u32);
            graph.cost.push(cost);
        }
        graph
    }

    fn predecessors(&self, task: u32) -> &[u32] {
        &self.targets
            [self.offsets[task as usize] as usize..self.offsets[task as usize + 1] as usize]
    }

    fn assign(&self, lanes: u32, handover: u64) -> Result<Lanes, LanesError> {
        let Self { offsets, targets, cost } = self;
        assign_lanes(LaneInput { offsets, targets, cost, lanes, handover })
    }

    /// Assigns, checks that the order is topological and the lanes exist, and simulates.
    #[track_caller]
    fn check(&self, lanes: u32, handover: u64) -> Outcome {
        let assigned = self.assign(lanes, handover).expect("a graph without cycles");
        assert_eq!(assigned.lane.len(), self.cost.len());
        assert_eq!(assigned, self.assign(lanes, handover).expect("as before"));
        let mut end = vec![None; self.cost.len()];
        let mut free = vec![0; lanes as usize];
        let mut per_lane = vec![0; lanes as usize];
        let mut handed_over = 0;
        for &task in &assigned.order {
            let lane = assigned.lane[task as usize];
            let mut start = free[lane.0 as usize];
            for &p in self.predecessors(task) {
                let other = assigned.lane[p as usize] != lane;
                let ended: u64 = end[p as usize].expect("ordered after its predecessors");
                start = start.max(ended + if other { handover } else { 0 });
                handed_over += usize::from(other);
            }
            let ends = start + self.cost[task as usize];
            assert_eq!(end[task as usize].replace(ends), None, "task {task} is ordered twice");
            free[lane.0 as usize] = ends;
            per_lane[lane.0 as usize] += 1;
        }
        assert!(end.iter().all(Option::is_some), "some task is not ordered");
        Outcome {
            makespan: free.into_iter().max().unwrap_or(0),
            per_lane,
            handed_over,
            lane: assigned.lane,
        }
    }

    fn critical_path(&self) -> u64 {
        let mut end = vec![0; self.cost.len()];
        for task in 0..self.cost.len() {
            let start = self.predecessors(task as u32).iter().map(|&p| end[p as usize]).max();
            end[task] = start.unwrap_or(0) + self.cost[task];
        }
        end.into_iter().max().unwrap_or(0)
    }
}

struct Outcome {
    makespan: u64,
    /// Tasks of each lane.
    per_lane: Vec<usize>,
    /// Edges between lanes.
    handed_over: usize,
    lane: Vec<LaneId>,
}

#[test]
fn a_chain_stays_on_one_lane() {
    for cost in [0, 1, 50, 10_000] {
        let chain =
            Graph::new((0..1000).map(|t| (cost, if t == 0 { vec![] } else { vec![t - 1] })));
        assert_eq!(chain.check(4, 500).per_lane, [1000, 0, 0, 0]);
    }
}

#[test]
fn independent_tasks_are_spread_evenly() {
    for (cost, handover) in [(0, 0), (1, 0), (20, 500), (499, 500), (500, 500), (90_000, 500)] {
        let tasks = Graph::new((0..100).map(|_| (cost, [])));
        assert_eq!(tasks.check(4, handover).per_lane, [25; 4], "cost {cost}, hand-over {handover}");
    }
    // Less work than one hand-over.
    assert_eq!(Graph::new((0..100).map(|_| (4, []))).check(4, 500).per_lane, [100, 0, 0, 0]);
    // As much as two.
    let two = Graph::new((0..100).map(|_| (10, []))).check(4, 500);
    assert_eq!(two.per_lane, [50, 0, 50, 0]);
}

#[test]
fn a_join_of_a_hundred_thousand_tasks_is_assigned_in_time() {
    let tasks = (0..100_000).map(|_| (100, vec![]));
    let joined = Graph::new(tasks.chain([(100, (0..100_000).collect())]));
    let outcome = joined.check(4, 0);
    assert_eq!(outcome.makespan, 25_001 * 100);
}

/// Long chains of short tasks: no level has work for two lanes, but nothing has to wait.
#[test]
fn long_chains_side_by_side() {
    let chains =
        Graph::new((0..4000).map(|t| (1 + t as u64 % 4, if t < 4 { vec![] } else { vec![t - 4] })));
    let outcome = chains.check(4, 150);
    assert_eq!(outcome.per_lane, [1000; 4]);
    assert_eq!(outcome.handed_over, 0);
    assert_eq!(outcome.makespan, chains.critical_path());
}

#[test]
fn a_narrow_level_stays_where_its_predecessors_ran() {
    // Four wide tasks, then a diamond behind the last of them.
    let graph = Graph::new([
        (100, vec![]),
        (100, vec![]),
        (100, vec![]),
        (100, vec![]),
        (1, vec![3]),
        (1, vec![3]),
        (1, vec![4, 5]),
        (1, vec![4, 5]),
    ]);
    let outcome = graph.check(4, 90);
    assert_eq!(
        outcome.lane.iter().map(|lane| lane.0).collect::<Vec<_>>(),
        [0, 1, 2, 3, 3, 3, 3, 3]
    );
}

#[test]
fn a_reduction_tree_keeps_its_halves() {
    for cost in [2, 1000] {
        check_tree(cost);
    }
}

#[track_caller]
fn check_tree(cost: u64) {
    let leaves = 1 << 12;
    let mut levels = vec![vec![vec![]; leaves]];
    let mut first = 0;
    while let Some(level) = levels.last().filter(|level| level.len() > 1) {
        let pairs =
            (0..level.len() as u32 / 2).map(|i| vec![first + 2 * i, first + 2 * i + 1]).collect();
        first += level.len() as u32;
        levels.push(pairs);
    }
    let outcome = Graph::new(levels.concat().into_iter().map(|p| (cost, p))).check(2, 100);
    assert!(outcome.per_lane[0].abs_diff(outcome.per_lane[1]) < 200, "{:?}", outcome.per_lane);
    assert!(outcome.handed_over <= 64, "{}", outcome.handed_over);
}

#[test]
fn a_wavefront_is_handed_over_only_at_the_cut() {
    for cost in [2, 1000] {
        check_wavefront(cost);
    }
}

#[track_caller]
fn check_wavefront(cost: u64) {
    let side = 256_u32;
    let cells = (0..side * side).map(|cell| {
        let (row, column) = (cell / side, cell % side);
        let above = (row > 0).then(|| cell - side);
        let left = (column > 0).then(|| cell - 1);
        (cost, above.into_iter().chain(left).collect::<Vec<_>>())
    });
    let outcome = Graph::new(cells).check(2, 100);
    assert!(outcome.per_lane[0].abs_diff(outcome.per_lane[1]) < 10_000, "{:?}", outcome.per_lane);
    // Two edges cross a fixed cut in each of the 511 levels.
    assert!(outcome.handed_over < 2 * 511, "{}", outcome.handed_over);
}

/// Two towers of ten layers forward and back, costs of 1 to 100 µs, a weight update behind each layer.
fn training_step() -> Graph {
    let mut tasks: Vec<(u64, Vec<u32>)> = Vec::new();
    let mut add = |cost: u64, predecessors: Vec<u32>| {
        tasks.push((cost * 1000, predecessors));
        tasks.len() as u32 - 1
    };
    let forward_cost = |layer: u64| 10 + 9 * (layer % 10);
    let mut forward = [vec![add(1, vec![])], vec![add(1, vec![])]];
    for layer in 0..9 {
        for tower in &mut forward {
            let before = tower[layer];
            tower.push(add(forward_cost(layer as u64), vec![before]));
        }
    }
    let mut back = [add(30, vec![forward[0][9], forward[1][9]]); 2];
    for layer in (0..9).rev() {
        for (tower, gradient) in forward.iter().zip(&mut back) {
            *gradient = add(forward_cost(layer as u64), vec![*gradient, tower[layer]]);
            add(5, vec![*gradient]);
        }
    }
    add(1, back.to_vec());
    Graph::new(tasks)
}

#[test]
fn independent_branches_of_a_training_step_run_side_by_side() {
    let step = training_step();
    assert_eq!(step.cost.len(), 58);
    let outcome = step.check(2, 1000);
    // Tasks 2, 4, 6, … are one tower, 3, 5, 7, … the other.
    let towers =
        [0, 1].map(|tower| (0..10).map(|l| outcome.lane[2 * l + tower]).collect::<BTreeSet<_>>());
    assert_eq!(towers[0].len(), 1);
    assert_eq!(towers[1].len(), 1);
    assert_ne!(towers[0], towers[1]);
    let work: u64 = step.cost.iter().sum();
    let bound = step.critical_path().max(work / 2);
    assert!(outcome.makespan * 100 <= bound * 105, "{} against at least {bound}", outcome.makespan);
    // With lanes to spare nothing but hand-overs lengthens the critical path.
    let spare = step.check(4, 1000);
    assert!(spare.makespan <= step.critical_path() + 3 * 1000, "{}", spare.makespan);
}

/// Uneven branches: the long one first, the short ones beside it.
#[test]
fn the_longest_path_goes_first() {
    let mut tasks: Vec<(u64, Vec<u32>)> = (0..20).map(|_| (10_000, vec![])).collect();
    tasks.push((50_000, vec![]));
    tasks.push((50_000, vec![20]));
    tasks.push((50_000, vec![21]));
    tasks.push((50_000, vec![22]));
    assert_eq!(Graph::new(tasks).check(2, 500).makespan, 200_000);
}

#[test]
fn random_graphs() {
    arbtest(|u| {
        let tasks = u.int_in_range(0..=120)?;
        let most_cost = *u.choose(&[1, 100, 100_000])?;
        let mut list = Vec::new();
        for task in 0..tasks {
            let mut predecessors = Vec::new();
            if task > 0 {
                for _ in 0..u.int_in_range(0..=3)? {
                    predecessors.push(u.int_in_range(0..=task - 1)?);
                }
            }
            list.push((u.int_in_range(1..=most_cost)?, predecessors));
        }
        let graph = Graph::new(list);
        let lanes = u.int_in_range(1..=6)?;
        graph.check(lanes, u.int_in_range(0..=1000)?);
        // Without hand-over costs the list schedule keeps Graham's bound.
        let work: u64 = graph.cost.iter().sum();
        let outcome = graph.check(lanes, 0);
        assert!(outcome.makespan <= work / u64::from(lanes) + graph.critical_path());
        Ok(())
    })
    .budget_ms(1000);
}

/// The same graph with its tasks renamed, so that numbers don't follow the edges.
#[test]
fn any_numbering() {
    let n = 500_u32;
    let name = |task: u32| (task * 263 + 11) % n;
    let mut tasks = vec![(0, vec![]); n as usize];
    for task in 0..n {
        let predecessors = [1, 7].iter().filter(|&&d| d <= task).map(|d| name(task - d)).collect();
        tasks[name(task) as usize] = (30, predecessors);
    }
    let graph = Graph::new(tasks);
    graph.check(3, 10);
    graph.check(3, 1000);
}

#[test]
fn refusals() {
    #[track_caller]
    fn check(offsets: &[u32], targets: &[u32], lanes: u32, expected: LanesError) {
        let cost = &[1, 1, 1];
        assert_eq!(
            assign_lanes(LaneInput { offsets, targets, cost, lanes, handover: 0 }),
            Err(expected)
        );
    }
    check(&[0, 0, 0, 0], &[], 0, LanesError::LaneCount { lanes: 0 });
    check(&[0, 0, 0, 0], &[], 4097, LanesError::LaneCount { lanes: 4097 });
    check(&[0, 0, 0], &[], 1, LanesError::Lengths { offsets: 3, costs: 3 });
    check(&[1, 1, 1, 1], &[0], 1, LanesError::Offsets { task: 0, targets: 1 });
    check(&[0, 2, 1, 2], &[0, 0], 1, LanesError::Offsets { task: 1, targets: 2 });
    check(&[0, 0, 1, 1], &[0, 1], 1, LanesError::Offsets { task: 2, targets: 2 });
    check(&[0, 0, 0, 2], &[1, 9], 1, LanesError::UnknownTask { task: 2, predecessor: 9, tasks: 3 });
    // A ring of its own, a task that needs itself, and one behind a cycle with a task before it.
    check(&[0, 1, 2, 3], &[2, 0, 1], 1, LanesError::Cycle { task: 0 });
    check(&[0, 0, 1, 1], &[1], 1, LanesError::Cycle { task: 1 });
    check(&[0, 0, 2, 3], &[0, 2, 1], 1, LanesError::Cycle { task: 1 });
}

#[test]
fn grain() {
    for (cost, handover, grain) in
        [(1, 0, 1), (0, 100, 100), (2, 100, 50), (70, 100, 1), (900, 100, 1)]
    {
        let mut tasks = vec![(0, vec![]); 3];
        tasks.push((cost, vec![]));
        let lanes = Graph::new(tasks).assign(2, handover).expect("no cycle");
        assert_eq!(lanes.grain.get(), grain, "cost {cost}, hand-over {handover}");
    }
}
