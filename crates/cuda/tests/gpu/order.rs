//! What edges promise, seen from inside the kernels.

use phonograph_graph::{Access, Arg, DType, Edge, EdgeData, GraphBuilder, NodeId, Schedule, View};
use phonograph_plan::random::Random;

use crate::case::{Case, cuda};

/// Notes whether another kernel has not run as often as this one is about to have, takes its time and says that it has run.
/// It waits for nothing itself.
const ARRIVE: &str = r#"
extern "C" __global__ void arrive(volatile unsigned *runs, unsigned *early, const volatile unsigned *a, const volatile unsigned *b, unsigned ns) {
    const unsigned run = *runs + 1;
    if (*a != run) *early += 1;
    if (*b != run) *early += 1;
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < ns);
    __threadfence();
    *runs = run;
}
extern "C" __global__ void begin(volatile unsigned *runs, unsigned ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < ns);
    __threadfence();
    *runs += 1;
}
"#;

/// Random graphs whose first kernels follow one another at launch order, or all the very first one: what full edges lead from
/// is complete before what they lead to begins.
#[test]
fn edges_at_launch_order_leave_full_edges_alone() {
    let Some(mut cuda) = cuda() else { return };
    if cuda.devices()[0].capability() < (9, 0) {
        return eprintln!("skipped: no edges at launch order before compute capability 9.0");
    }
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let count = 8 + random.below(90);
        let near = [4, 16, 60][random.below(3)];
        let mut b = GraphBuilder::new().with_auto_infer_edges(false);
        let one = |b: &mut GraphBuilder, name: &str| {
            View::contiguous(b.external_buffer(name, 4), DType::U32, &[1]).unwrap()
        };
        let (mut runs, mut early, mut first) = (Vec::new(), Vec::new(), Vec::<NodeId>::new());
        let mut nodes = Vec::new();
        for at in 0..count {
            let ns = Arg::Scalar([0u32, 1000, 5000, 20_000][random.below(4)].into());
            let own = one(&mut b, "runs");
            let after = if at == 0 { 0 } else { random.below(3) };
            let node = if after == 0 {
                let kernel = b.add_kernel("begin", 1, 1, 0);
                kernel.arg(Arg::View(own, Access::ReadWrite)).arg(ns).finish()
            } else {
                let from = [(); 2].map(|()| at - 1 - random.below(near.min(at)));
                let from = if after == 1 { [from[0]; 2] } else { from };
                early.push(one(&mut b, "early"));
                let node = b
                    .add_kernel("arrive", 1, 1, 0)
                    .arg(Arg::View(own, Access::ReadWrite))
                    .arg(Arg::View(early[early.len() - 1], Access::ReadWrite))
                    .arg(Arg::View(runs[from[0]], Access::Read))
                    .arg(Arg::View(runs[from[1]], Access::Read))
                    .arg(ns)
                    .finish();
                b.add_edge(Edge::full(nodes[from[0]], node));
                if from[0] != from[1] {
                    b.add_edge(Edge::full(nodes[from[1]], node));
                }
                node
            };
            if after == 0 {
                let before = if seed % 2 == 0 { first.first() } else { first.last() };
                if let Some(&from) = before {
                    b.add_edge(Edge { from, to: node, data: EdgeData::LAUNCH_ORDER });
                }
                first.push(node);
            }
            runs.push(own);
            nodes.push(node);
        }
        let graph = b.build().unwrap();
        let schedule = Schedule::sequential(&graph);
        let mut case = Case::new(graph);
        case.kernels = vec![("arrive", ARRIVE), ("begin", ARRIVE)];
        for view in runs.iter().chain(&early) {
            case = case.with(view.buffer, &[0; 4]);
        }
        let mut exec = case.instantiate(&mut cuda, &schedule);
        let rounds = 6u32;
        for _ in 0..rounds {
            cuda.replay(&mut exec).unwrap();
        }
        let mut all = |views: &[View]| -> Vec<u32> {
            views.iter().flat_map(|v| cuda.read(exec.memory(v.buffer).unwrap()).unwrap()).collect()
        };
        assert_eq!(all(&runs), vec![rounds; runs.len()], "seed {seed}");
        assert_eq!(all(&early), vec![0; early.len()], "seed {seed}: kernels that came too early");
    }
}
