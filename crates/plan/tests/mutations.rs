//! The checker against broken schedules: good ones are mutated, and an oracle that works by definition, with closures as
//! boolean matrices and every pair of buffers compared, says whether the mutant does harm. The checker must agree.

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{
    BufferRole, ComputeGraph, EventId, GraphBuilder, NodeId, Schedule, Step, StreamId, check,
};
use phonograph_plan::ExecutionPlan;

/// A random graph of kernels over internal buffers of several sizes, in layers, its dependencies inferred.
fn graph(u: &mut Unstructured) -> Result<ComputeGraph> {
    let mut b = GraphBuilder::new();
    let buffers: Vec<_> = (0..u.int_in_range(1..=8)?)
        .map(|i| Ok(b.alloc_buffer(&format!("b{i}"), 256 * u.int_in_range(1..=4usize)?)))
        .collect::<Result<_>>()?;
    for _ in 0..u.int_in_range(2..=16)? {
        let inputs = [*u.choose(&buffers)?, *u.choose(&buffers)?];
        let output = *u.choose(&buffers)?;
        let inputs = inputs.into_iter().take(u.int_in_range(0..=2)?);
        b.add_kernel("k", 1, 1, 0).inputs(inputs).outputs([output]).finish();
    }
    let nodes = b.node_count() as u32;
    for _ in 0..u.int_in_range(0..=nodes / 2)? {
        let to = u.int_in_range(1..=nodes - 1)?;
        b.dep(NodeId(u.int_in_range(0..=to - 1)?), NodeId(to));
    }
    Ok(b.build().unwrap())
}

fn mutate(u: &mut Unstructured, schedule: &mut Schedule) -> Result<()> {
    let steps = &mut schedule.steps;
    let any = |u: &mut Unstructured, steps: &Vec<Step>| u.choose_index(steps.len());
    match u.int_in_range(0..=6)? {
        0 => {
            steps.remove(any(u, steps)?);
        }
        1 => {
            let (a, b) = (any(u, steps)?, any(u, steps)?);
            steps.swap(a, b);
        }
        2 => {
            let from = any(u, steps)?;
            let step = steps.remove(from);
            steps.insert(u.int_in_range(0..=steps.len())?, step);
        }
        3 => {
            let (at, to) = (any(u, steps)?, StreamId(u.int_in_range(0..=schedule.streams - 1)?));
            match &mut steps[at] {
                Step::Run { stream, .. }
                | Step::Record { stream, .. }
                | Step::Wait { stream, .. } => *stream = to,
            }
        }
        4 => {
            let events = 1 + steps.len() as u32;
            let event = EventId(u.int_in_range(0..=events)?);
            let at = any(u, steps)?;
            match &mut steps[at] {
                Step::Record { event: own, .. } | Step::Wait { event: own, .. } => *own = event,
                Step::Run { .. } => {}
            }
        }
        5 => {
            let copy = steps[any(u, steps)?].clone();
            steps.insert(u.int_in_range(0..=steps.len())?, copy);
        }
        _ => {
            let placed: Vec<usize> = (0..schedule.memory.offsets.len())
                .filter(|&b| schedule.memory.offsets[b].is_some())
                .collect();
            if !placed.is_empty() {
                let buffer = *u.choose(&placed)?;
                let offset = u.int_in_range(0..=12u64)? * 128;
                schedule.memory.offsets[buffer] = Some(offset);
            }
        }
    }
    Ok(())
}

type Matrix = Vec<Vec<bool>>;

/// Transitive closure (Warshall).
fn close(matrix: &mut Matrix) {
    for via in 0..matrix.len() {
        let beyond = matrix[via].clone();
        for row in matrix.iter_mut().filter(|row| row[via]) {
            for (reached, &further) in row.iter_mut().zip(&beyond) {
                *reached |= further;
            }
        }
    }
}

/// What steps guarantee: the earlier step of a stream before the later, a record before the waits that it is the latest for.
/// `None` where a wait has no record.
fn guaranteed(steps: &[Step]) -> Option<Matrix> {
    let mut matrix = vec![vec![false; steps.len()]; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for before in 0..at {
            matrix[before][at] |= steps[before].stream() == step.stream();
        }
        if let Step::Wait { event, .. } = step {
            let recorded = |s: &Step| matches!(s, Step::Record { event: own, .. } if own == event);
            let record = steps[..at].iter().rposition(recorded)?;
            matrix[record][at] = true;
        }
    }
    close(&mut matrix);
    Some(matrix)
}

/// Whether the schedule runs the graph rightly, by definition.
fn is_right(graph: &ComputeGraph, schedule: &Schedule) -> bool {
    let mut place = vec![None; graph.node_count()];
    for (at, step) in schedule.steps.iter().enumerate() {
        if let Step::Run { nodes, .. } = step
            && place[nodes[0].index()].replace(at).is_some()
        {
            return false;
        }
    }
    let Some(place) = place.into_iter().collect::<Option<Vec<usize>>>() else { return false };
    let Some(steps) = guaranteed(&schedule.steps) else { return false };
    let mut order = vec![vec![false; graph.node_count()]; graph.node_count()];
    for edge in graph.edges() {
        if !steps[place[edge.from.index()]][place[edge.to.index()]] {
            return false;
        }
        order[edge.from.index()][edge.to.index()] = true;
    }
    close(&mut order);
    memory_is_right(graph, schedule, &order)
}

fn memory_is_right(graph: &ComputeGraph, schedule: &Schedule, order: &Matrix) -> bool {
    let users = |buffer: usize| -> Vec<usize> {
        let names = |node: &NodeId| {
            graph.operands(*node).iter().any(|(region, _)| region.buffer.index() == buffer)
        };
        graph.node_ids().filter(names).map(NodeId::index).collect()
    };
    let wholly_before =
        |a: &[usize], b: &[usize]| a.iter().all(|&x| b.iter().all(|&y| order[x][y]));
    let pool: u64 = schedule.memory.pool_bytes();
    let placed: Vec<(u64, u64, Vec<usize>)> = (0..graph.buffers().len())
        .filter_map(|buffer| {
            let declared = &graph.buffers()[buffer];
            assert_eq!(declared.role, BufferRole::Internal);
            let offset = schedule.memory.offsets[buffer]?;
            Some((offset, offset + declared.bytes, users(buffer)))
        })
        .collect();
    let inside = placed.iter().all(|(start, end, _)| start % 256 == 0 && *end <= pool);
    let apart = |i: usize, j: usize| {
        let ((s1, e1, u1), (s2, e2, u2)) = (&placed[i], &placed[j]);
        let share = s1 < e2 && s2 < e1 && !u1.is_empty() && !u2.is_empty();
        !share || wholly_before(u1, u2) || wholly_before(u2, u1)
    };
    inside && (0..placed.len()).all(|i| (0..i).all(|j| apart(i, j)))
}

#[test]
fn every_harmful_mutation_is_caught_and_no_harmless_one() {
    let (mut harmful, mut harmless) = (0, 0);
    arbtest::arbtest(|u| {
        let graph = graph(u)?;
        let plan = ExecutionPlan::build(&graph, u.int_in_range(1..=4)?).unwrap();
        let good = plan.schedule().unwrap().clone();
        assert_eq!(check(&graph, &good), []);
        assert!(is_right(&graph, &good));
        for _ in 0..8 {
            let mut mutant = good.clone();
            for _ in 0..u.int_in_range(1..=2)? {
                mutate(u, &mut mutant)?;
            }
            let right = is_right(&graph, &mutant);
            let found = check(&graph, &mutant);
            assert_eq!(found.is_empty(), right, "{found:?}\n{mutant:#?}");
            *(if right { &mut harmless } else { &mut harmful }) += 1;
        }
        Ok(())
    })
    .budget_ms(2_000);
    println!("{harmful} harmful mutants caught, {harmless} harmless ones let through");
    assert!(harmful > 100 && harmless > 10, "{harmful} and {harmless}: too few of a kind");
}
