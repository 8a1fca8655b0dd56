//! Simulated schedules: times that add up, and what they are said to be due to.

use arbtest::arbtest;
use phonograph_graph::{ComputeGraph, GraphBuilder, NodeId, Schedule, Step, StreamId};
use phonograph_plan::cost::{Overheads, assumed};
use phonograph_plan::generate::{Kind, generate};
use phonograph_plan::simulate::{Bound, HeldBy, Simulation, simulate};
use phonograph_plan::streams::{PlanOptions, schedule};

fn graph(count: u32, edges: &[(u32, u32)]) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    for _ in 0..count {
        b.add_kernel("k", 1, 32, 0).finish();
    }
    for &(from, to) in edges {
        b.dep(NodeId(from), NodeId(to));
    }
    b.build().unwrap()
}

const OVERHEADS: Overheads = Overheads { replay_ns: 7, node_ns: 20, handover_ns: 300 };

/// Simulates on at most so many streams, and checks that the figures add up.
#[track_caller]
fn run(graph: &ComputeGraph, costs: &[u64], most: u32) -> (Simulation, Schedule) {
    let options =
        PlanOptions { costs: Some(costs), overheads: OVERHEADS, ..PlanOptions::at_most(most) };
    let schedule = schedule(graph, &options).unwrap();
    let run = simulate(graph, &schedule, costs, OVERHEADS);
    let mut end = vec![0; graph.node_count()];
    let mut busy = vec![0; schedule.streams as usize];
    assert_eq!(run.spans.len(), graph.node_count());
    for span in &run.spans {
        let cost = costs[span.node.index()] + OVERHEADS.node_ns;
        assert_eq!(span.end_ns - span.start_ns, cost);
        assert!(span.start_ns >= busy[span.stream.index()], "two at once on {}", span.stream);
        assert!(
            graph.predecessors(span.node).iter().all(|from| end[from.index()] <= span.start_ns)
        );
        (end[span.node.index()], busy[span.stream.index()]) = (span.end_ns, span.end_ns);
    }
    // The chain is the makespan: nothing waits for anything that is not on it.
    let own = run.chain.iter().map(|link| costs[link.node.index()] + OVERHEADS.node_ns);
    let total = own.sum::<u64>() + run.handover_ns;
    if !run.chain.is_empty() {
        assert_eq!(total + OVERHEADS.replay_ns, run.makespan_ns);
    }
    assert!(run.critical_path_ns <= run.makespan_ns && run.balanced_ns() <= run.makespan_ns);
    for pair in run.chain.windows(2) {
        let depends = graph.predecessors(pair[1].node).contains(&pair[0].node);
        match pair[1].held_by {
            HeldBy::Start => panic!("a start in the middle"),
            HeldBy::Dependency => assert!(depends && pair[0].stream == pair[1].stream),
            HeldBy::HandOver => assert!(depends && pair[0].stream != pair[1].stream),
            HeldBy::Stream => assert!(!depends && pair[0].stream == pair[1].stream),
        }
    }
    (run, schedule)
}

#[test]
fn times_of_random_graphs_add_up() {
    arbtest(|u| {
        let count: u32 = u.int_in_range(0..=30)?;
        let mut edges = Vec::new();
        for to in 1..count {
            for _ in 0..u.int_in_range(0..=2)? {
                edges.push((u.int_in_range(0..=to - 1)?, to));
            }
        }
        let costs =
            (0..count).map(|_| u.int_in_range(0..=2_000)).collect::<Result<Vec<u64>, _>>()?;
        run(&graph(count, &edges), &costs, u.int_in_range(1..=4)?);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn bounds() {
    let costs = |count| vec![10_000; count];
    // A chain beside nothing.
    let chain = graph(50, &(1..50).map(|i| (i - 1, i)).collect::<Vec<_>>());
    assert_eq!(run(&chain, &costs(50), 4).0.bound, Bound::CriticalPath);
    // More than the streams can run at once.
    assert_eq!(run(&graph(100, &[]), &costs(100), 4).0.bound, Bound::Work);
    // Three pieces for two streams.
    let uneven = run(&graph(3, &[]), &costs(3), 2).0;
    assert!(matches!(uneven.bound, Bound::OneStream(_)), "{uneven:?}");
    assert_eq!(run(&graph(0, &[]), &[], 2).0.bound, Bound::Nothing);
    // Short nodes handed over again and again, by a schedule that nobody would make.
    let pair = graph(2, &[(0, 1)]);
    let steps = vec![
        Step::run(NodeId(0), StreamId(0)),
        Step::Record { event: 0.into(), stream: StreamId(0) },
        Step::Wait { event: 0.into(), stream: StreamId(1) },
        Step::run(NodeId(1), StreamId(1)),
    ];
    let bad = Schedule { streams: 2, steps, ..Schedule::default() };
    let handed_over = simulate(&pair, &bad, &[100, 100], OVERHEADS);
    assert_eq!((handed_over.makespan_ns, handed_over.bound), (547, Bound::HandOvers));
    // Two streams that run what does not depend on each other in turn.
    let crossed = graph(4, &[(0, 1), (2, 3)]);
    let [a, b] = [StreamId(0), StreamId(1)];
    let steps = vec![
        Step::run(NodeId(0), a),
        Step::run(NodeId(2), a),
        Step::Record { event: 0.into(), stream: a },
        Step::run(NodeId(1), a),
        Step::Wait { event: 0.into(), stream: b },
        Step::run(NodeId(3), b),
    ];
    let crossed_run = |costs: &[u64]| {
        let schedule = Schedule { streams: 2, steps: steps.clone(), ..Schedule::default() };
        simulate(&crossed, &schedule, costs, Overheads::default())
    };
    assert_eq!(crossed_run(&[1_000, 100, 1_000, 1_500]).bound, Bound::StreamOrder);
}

#[test]
fn assumed_costs_count_what_is_inside() {
    let mut b = GraphBuilder::new();
    b.add_barrier("nothing");
    b.add_child("child", generate(Kind::Chain, 7, 1).unwrap());
    b.add_kernel("one", 1, 1, 0).finish();
    assert_eq!(assumed(&b.build().unwrap()), [0, 7_000, 1_000]);
}
