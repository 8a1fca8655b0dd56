//! Optimised graphs with real data: whatever passes, streams and workers, the CPU gives the bits that running the nodes of
//! the graph as it was one after another gives.

#[path = "../../plan/tests/common/mod.rs"]
mod common;

use arbtest::arbitrary::{Result, Unstructured};
use common::{FLAG, Kind};
use phonograph::graph::{BufferId, ComputeGraph, DType, Schedule, check, check_rewrite};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::passes::{Pass, optimize};
use phonograph::runtime::cpu::kernels::{FnKernel, Param, Registry};
use phonograph::runtime::cpu::{Bindings, Cpu};

fn registry() -> Registry {
    let mut registry = Registry::new();
    let stir = [Param::Read(DType::F32), Param::ReadWrite(DType::F32)];
    let stir = FnKernel::whole(&stir, |block| {
        let from = block.read::<f32>(0)?;
        for (i, value) in block.write::<f32>(1)?.iter_mut().enumerate() {
            *value = *value * 0.5 + from[i % from.len()];
        }
        Ok(())
    });
    registry.register("stir", stir);
    registry.host("note", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|value| *value = value.sin());
        Ok(())
    });
    registry
}

/// What the user's buffers hold after two replays from fixed contents. All NaNs count as one.
fn results(graph: &ComputeGraph, schedule: &Schedule, workers: u32, flag: u32) -> Vec<Vec<u32>> {
    let registry = registry();
    let mut cpu = Cpu::new(workers).unwrap();
    let mut exec = cpu.instantiate(graph, schedule, &Bindings::new(&registry)).unwrap();
    let buffers = (0..graph.buffers().len()).map(BufferId::from_index);
    let outside: Vec<_> =
        buffers.filter_map(|buffer| Some((buffer, exec.memory(buffer)?.clone()))).collect();
    for (buffer, memory) in &outside {
        if &*graph.buffer(*buffer).name == FLAG {
            cpu.slice_mut::<u32>(memory).unwrap().fill(flag);
            continue;
        }
        let values = cpu.slice_mut::<f32>(memory).unwrap();
        values.iter_mut().enumerate().for_each(|(i, v)| *v = ((i + buffer.index()) as f32).cos());
    }
    for _ in 0..2 {
        cpu.replay(&mut exec).unwrap();
    }
    let bits = |value: &f32| if value.is_nan() { u32::MAX } else { value.to_bits() };
    let read = |(_, memory): &(_, _)| cpu.slice::<f32>(memory).unwrap().iter().map(bits).collect();
    outside.iter().map(read).collect()
}

fn case(u: &mut Unstructured) -> Result<()> {
    let graph = common::graph(u, Kind::Runnable)?;
    let flag = u.int_in_range(0..=1)?;
    let expected = results(&graph, &Schedule::sequential(&graph), 1, flag);
    let mut passes = Vec::new();
    for _ in 0..u.int_in_range(1..=8)? {
        passes.push(*u.choose(&Pass::ALL)?);
    }
    if u.ratio(1, 3)? {
        passes = Pass::ALL.to_vec();
    }
    let (optimized, _) = optimize(&graph, &passes, |before, done| {
        assert_eq!(check_rewrite(before, &done.graph, &done.image), [], "{passes:?}");
    })
    .unwrap();
    let alone = Schedule::sequential(&optimized);
    assert!(results(&optimized, &alone, 1, flag) == expected, "{passes:?}");
    let (streams, workers) = (u.int_in_range(1..=4)?, u.int_in_range(1..=3)?);
    let plan = ExecutionPlan::build(&optimized, streams).unwrap();
    let schedule = plan.schedule().unwrap();
    assert_eq!(check(&optimized, schedule), []);
    let found = results(&optimized, schedule, workers, flag);
    assert!(found == expected, "{passes:?}, {workers} workers, {plan}");
    Ok(())
}

#[test]
fn passes_do_not_change_a_bit() {
    arbtest::arbtest(case).budget_ms(3_000).size_min(2_000).size_max(20_000);
}

/// `PHONOGRAPH_CASES=1000000 cargo test --release -p phonograph --test optimize -- --ignored --nocapture`
#[test]
#[ignore = "runs as long as it is told to"]
fn soak() {
    common::soak(case);
}
