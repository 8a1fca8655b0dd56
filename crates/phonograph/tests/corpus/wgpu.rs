//! The same graphs on wgpu, whatever the passes and the plan: every element as near to its exact value as the operations that
//! made it allow, and so is the CPU's.

use phonograph::graph::{BufferId, ComputeGraph, Schedule};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::passes::{Pass, optimize};
use phonograph_wgpu::{Bindings, Shader, Wgpu};

use crate::bounds::{self, Bounded};

const HALVE: &str = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(24)
fn halve(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] *= 0.5f; }";

const REPLAYS: usize = 3;

/// All external buffers after a few replays from the contents that `results` starts from.
fn results(
    gpu: &mut Wgpu,
    halve: &Shader,
    graph: &ComputeGraph,
    schedule: &Schedule,
) -> Vec<Vec<f32>> {
    let mut exec =
        gpu.instantiate(graph, schedule, &Bindings::new().kernel("halve", halve)).unwrap();
    let buffers = (0..graph.buffers().len()).map(BufferId::from_index);
    let external: Vec<_> = buffers.filter_map(|buffer| exec.memory(buffer).cloned()).collect();
    for (seed, memory) in external.iter().enumerate() {
        gpu.write(memory, &super::contents(seed)).unwrap();
    }
    for _ in 0..REPLAYS {
        gpu.replay(&mut exec).unwrap();
    }
    external.iter().map(|memory| gpu.read(memory).unwrap()).collect()
}

/// The exact values, nearly, with their bounds.
fn expected(graph: &ComputeGraph) -> Vec<Vec<Bounded>> {
    let mut buffers: Vec<Vec<Bounded>> = Vec::new();
    let mut external = Vec::new();
    for (at, buffer) in graph.buffers().iter().enumerate() {
        if buffer.role == phonograph::graph::BufferRole::External {
            external.push(at);
        }
        let seed = external.len().saturating_sub(1);
        let values = super::contents(seed).into_iter();
        buffers.push(values.map(|v| Bounded { value: v.into(), error: 0.0 }).collect());
    }
    for _ in 0..REPLAYS {
        bounds::replay(graph, &mut buffers);
    }
    external.into_iter().map(|at| std::mem::take(&mut buffers[at])).collect()
}

#[test]
fn wgpu_is_as_near_to_the_exact_values_as_its_operations_allow() {
    let mut gpu = match Wgpu::new() {
        Ok(gpu) => gpu,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let halve = Shader::new(HALVE, "halve").unwrap();
    let passes = Pass::of_level(3);
    // Elements, and those of which the bound says something.
    let (mut all, mut bounded) = (0u64, 0u64);
    arbtest::arbtest(|u| {
        let graph = super::graph(u, true)?;
        let exact = expected(&graph);
        let mut check = |who: &str, found: &[Vec<f32>]| {
            for (buffer, (exact, found)) in exact.iter().zip(found).enumerate() {
                for (at, (e, &found)) in exact.iter().zip(found).enumerate() {
                    all += 1;
                    if e.error < 1e-2 * e.value.abs().max(1.0) {
                        bounded += 1;
                    }
                    let off = (e.value - f64::from(found)).abs();
                    assert!(
                        off <= e.error || e.error.is_infinite(),
                        "{who}: element {at} of external buffer {buffer} is {found}, {off:e} from {e:?}"
                    );
                }
            }
        };
        let cpu = super::results(&graph, &Schedule::sequential(&graph), 1);
        let floats = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect();
        check("CPU", &cpu.into_iter().map(floats).collect::<Vec<_>>());
        let alone = passes.iter().map(std::slice::from_ref);
        for passes in [&[][..], passes].into_iter().chain(alone) {
            let (graph, _) = optimize(&graph, passes, |_, _| {}).unwrap();
            let plan = ExecutionPlan::build(&graph, u.int_in_range(1..=4)?).unwrap();
            let schedule = plan.schedule().unwrap();
            let found = results(&mut gpu, &halve, &graph, schedule);
            check(&format!("{passes:?}, {plan}"), &found);
        }
        Ok(())
    })
    .budget_ms(3_000);
    // Few graphs fit the time on a slow device, and one of them may amplify every error.
    assert!(bounded > 0, "none of {all} elements has a bound that says something");
}
