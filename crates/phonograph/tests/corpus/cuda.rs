//! The same graphs on CUDA: the CPU's bits, whatever the passes and the plan. Products are left out, because theirs
//! differ.

use phonograph::graph::{BufferId, ComputeGraph, Schedule};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::passes::{Pass, optimize};
use phonograph_cuda::{Bindings, Cuda, Function};

const HALVE: &str = r#"extern "C" __global__ void halve(float *x) {
    x[blockIdx.x * blockDim.x + threadIdx.x] *= 0.5f;
}"#;

/// The bits of all external buffers after a few replays from the contents that `results` starts from.
fn results(
    cuda: &mut Cuda,
    halve: &Function,
    graph: &ComputeGraph,
    schedule: &Schedule,
) -> Vec<Vec<u32>> {
    // SAFETY: the graphs launch it with a thread for each element of its one operand, which it reads and writes.
    let bindings = unsafe { Bindings::new().kernel("halve", halve) };
    let mut exec = cuda.instantiate(graph, schedule, &bindings).unwrap();
    let buffers = (0..graph.buffers().len()).map(BufferId::from_index);
    let external: Vec<_> = buffers.filter_map(|buffer| exec.memory(buffer).cloned()).collect();
    for (seed, memory) in external.iter().enumerate() {
        let count = memory.bytes() as usize / 4;
        let values: Vec<f32> = (0..count).map(|i| ((i + seed * 7) as f32).sin()).collect();
        cuda.write(memory, &values).unwrap();
    }
    for _ in 0..3 {
        cuda.replay(&mut exec).unwrap();
    }
    external.iter().map(|memory| cuda.read(memory).unwrap()).collect()
}

#[test]
fn cuda_gives_the_bits_of_the_cpu() {
    let mut cuda = match Cuda::new() {
        Ok(cuda) => cuda,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let halve = cuda.compile(HALVE, "halve").unwrap();
    let weak_edges = cuda.devices()[0].capability() >= (9, 0);
    let passes = if weak_edges { Pass::of_level(3) } else { Pass::of_level(2) };
    arbtest::arbtest(|u| {
        let graph = super::graph(u, false)?;
        let expected = super::results(&graph, &Schedule::sequential(&graph), 1);
        let alone = passes.iter().map(std::slice::from_ref);
        for passes in [&[][..], passes].into_iter().chain(alone) {
            let (graph, _) = optimize(&graph, passes, |_, _| {}).unwrap();
            let plan = ExecutionPlan::build(&graph, u.int_in_range(1..=4)?).unwrap();
            let schedule = plan.schedule().unwrap();
            let found = results(&mut cuda, &halve, &graph, schedule);
            assert_eq!(found, expected, "{passes:?}, {plan}");
        }
        Ok(())
    })
    .budget_ms(3_000);
}
