//! Executables that are brought up to date for a later graph, against ones that the driver instantiates: bit for bit.

use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_cuda::{Bindings, Cuda, Exec, Function, Memory, Stream};
use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, DType, Edge, EdgeData, Expr, Extent, GraphBuilder,
    MemsetNode, NodeId, Pitched, Region, Schedule, SlotId, Target, View,
};

use crate::case::{add_one, cuda, view};
use crate::samples::nested;

/// Mixes what it is given into what is there; every parameter counts.
const MIX: &str = r#"
struct Wide { unsigned long long at[3]; };
extern "C" __global__ void mix(const unsigned *x, unsigned *y, unsigned a, float b, unsigned long long c) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 64) y[i] = y[i] * 3u + (x[i] ^ a) + __float_as_uint(b) * 7u + (unsigned)(c >> 3) + gridDim.x * 11u;
}
extern "C" __global__ void turn(unsigned *y, unsigned by) { y[threadIdx.x] = y[threadIdx.x] * 5u + by; }
"#;

const WORDS: u64 = 64;
const BYTES: u64 = 4 * WORDS;
/// Elements of each buffer: operands begin anywhere in its first quarter.
const HELD: u64 = 4 * WORDS;

struct Kernels {
    mix: Function,
    turn: Function,
}

impl Kernels {
    fn new(cuda: &mut Cuda) -> Self {
        let mix = cuda.compile(MIX, "mix").unwrap();
        let turn = cuda.compile(MIX, "turn").unwrap();
        Self { mix, turn }
    }

    fn bindings(&self) -> Bindings<'_> {
        // SAFETY: launched for at most so many elements as their operands have.
        unsafe { Bindings::new().kernel("mix", &self.mix).kernel("turn", &self.turn) }
    }
}

/// A graph, and what may be set in it.
struct Made {
    graph: ComputeGraph,
    buffers: Vec<BufferId>,
    staged: BufferId,
    slot: SlotId,
    pointer: BufferId,
}

/// What kinds of nodes there are and how they are ordered.
#[derive(Debug, Clone, Copy)]
struct Step {
    kind: u8,
    lane: usize,
    /// The lane that it also comes after.
    other: Option<usize>,
}

fn steps(u: &mut Unstructured<'_>) -> Result<Vec<Step>> {
    let lanes = u.int_in_range(1..=3)?;
    let count = u.int_in_range(1..=14)?;
    let step = |u: &mut Unstructured<'_>| {
        let (kind, lane) = (u.int_in_range(0..=8)?, u.int_in_range(0..=lanes - 1)?);
        let other = u.ratio(1, 3)?.then(|| u.int_in_range(0..=lanes - 1)).transpose()?;
        Ok(Step { kind, lane, other })
    };
    (0..count).map(|_| step(u)).collect()
}

/// A graph of these steps. Its parameters are as random as `random` makes them.
fn made(steps: &[Step], mut random: impl FnMut(u32) -> u32) -> Made {
    let mut b = GraphBuilder::new().with_auto_infer_edges(false);
    let buffers: Vec<BufferId> =
        (0..3).map(|lane| b.external_buffer(&format!("x{lane}"), 4 * HELD as usize)).collect();
    let given = b.external_buffer("given", 4 * HELD as usize);
    let staged = b.host_buffer("staged", 4 * HELD as usize);
    let pointer = b.slot_buffer("pointer", BYTES as usize, Access::Read);
    let slot = b.slot("by", 5u32);
    let u32s = |buffer, at: u64| {
        View::contiguous(buffer, DType::U32, &[HELD]).unwrap().slice(0, at, WORDS).unwrap()
    };
    let region = |buffer, at: u64| Region { buffer, offset: 4 * at, bytes: BYTES };
    let plus = Expr::build(|e| {
        let (x, y, by) = (e.input(DType::U32), e.input(DType::U32), e.param(DType::U32));
        e.output(x * e.constant(9u32) + y + by);
    });
    let plus: Arc<Expr> = plus.unwrap().into();
    let mut last: [Option<NodeId>; 3] = [None; 3];
    let mut staging: Option<NodeId> = None;
    for step in steps {
        let lane = buffers[step.lane];
        // Places of which every kernel knows as much: whether they are aligned decides its code.
        let (to, from) = (4 * u64::from(random(16)), 4 * u64::from(random(16)));
        let node = match step.kind {
            0 | 1 => {
                let kernel =
                    b.add_kernel("mix", 1 + random(2) * (u32::from(step.kind == 1)), 64, 0);
                kernel
                    .arg(Arg::View(u32s(given, from), Access::Read))
                    .arg(Arg::View(u32s(lane, to), Access::ReadWrite))
                    .arg(Arg::Scalar(random(1000).into()))
                    .arg(Arg::Scalar((random(1000) as f32).into()))
                    .arg(Arg::Scalar(i64::from(random(1 << 30)).into()))
                    .finish()
            }
            2 => {
                let kernel = b.add_kernel("turn", 1, 64, 0);
                kernel
                    .arg(Arg::View(u32s(lane, to), Access::ReadWrite))
                    .arg(Arg::Slot(slot))
                    .finish()
            }
            3 => {
                let by = [Arg::Scalar(random(1000).into())];
                let views = [u32s(given, from), u32s(lane, to)];
                b.add_elementwise("plus", plus.clone(), &views, &by, &[u32s(lane, to)])
            }
            4 => {
                let pointed = View::contiguous(pointer, DType::U32, &[WORDS]).unwrap();
                let views = [pointed, u32s(lane, to)];
                b.add_elementwise(
                    "plus",
                    plus.clone(),
                    &views,
                    &[Arg::Slot(slot)],
                    &[u32s(lane, to)],
                )
            }
            5 => {
                let dst = Pitched::linear(Target::Buffer(lane), 4 * to);
                let (value, extent) = (random(1 << 30), Extent::linear(BYTES / 2));
                b.add_fill("fill", MemsetNode { dst, value, element_size: 4, extent })
            }
            6 => {
                let target = Target::Buffer(lane);
                let dst = Pitched { target, offset: 4 * to, pitch: 32, slice_rows: 0 };
                let extent = Extent { width: 12, height: 5, depth: 1 };
                b.add_fill("rows", MemsetNode { dst, value: random(250), element_size: 1, extent })
            }
            7 => b.add_region_copy("copy", region(given, from), region(lane, to)),
            _ => b.add_region_copy("download", region(lane, to), region(staged, from)),
        };
        // All downloads write one buffer.
        let before = (step.kind == 8).then(|| staging.replace(node)).flatten();
        let mut after: Vec<NodeId> = [last[step.lane], step.other.and_then(|at| last[at]), before]
            .into_iter()
            .flatten()
            .collect();
        after.sort_unstable();
        after.dedup();
        b.fan_in(&after, node);
        last[step.lane] = Some(node);
    }
    Made { graph: b.build().unwrap(), buffers, staged, slot, pointer }
}

/// What replays of an executable leave, with some changes between them; the last is not waited for.
fn replayed(cuda: &mut Cuda, made: &Made, exec: &mut Exec, with: u32) -> Vec<Vec<u32>> {
    let numbers = |from: u32| (0..HELD as u32).map(move |i| (from + i).wrapping_mul(0x9E37_79B9));
    let pointed: Vec<Memory> = (0..2)
        .map(|at| {
            let memory = cuda.alloc(BYTES).unwrap();
            let values: Vec<u32> = numbers(77 * at + with).take(WORDS as usize).collect();
            cuda.write(&memory, &values).unwrap();
            memory
        })
        .collect();
    let written: Vec<Memory> = made
        .graph
        .buffers()
        .iter()
        .enumerate()
        .filter_map(|(at, _)| exec.memory(BufferId::from_index(at)).cloned())
        .collect();
    for (memory, from) in written.iter().zip(0..) {
        cuda.write(memory, &numbers(1000 * from).collect::<Vec<u32>>()).unwrap();
    }
    let stream = Stream::new(&cuda.devices()[0].clone()).unwrap();
    for round in 0..3u32 {
        exec.bind(made.pointer, &pointed[round as usize % 2]).unwrap();
        if round > 0 {
            exec.set(made.slot, 100 * round + with).unwrap();
        }
        cuda.launch(exec, &stream).unwrap();
    }
    let kept = made.buffers.iter().chain([&made.staged]);
    let memory: Vec<Memory> = kept.map(|&buffer| exec.memory(buffer).unwrap().clone()).collect();
    memory.iter().map(|memory| cuda.read::<u32>(memory).unwrap()).collect()
}

#[test]
fn random_graphs_do_as_those_that_are_instantiated() {
    let Some(mut cuda) = cuda() else { return };
    let mut reference = Cuda::new().unwrap();
    let (kernels, its) = (Kernels::new(&mut cuda), Kernels::new(&mut reference));
    let mut count = 0;
    arbtest::arbtest(|u| {
        let steps = steps(u)?;
        let seed = u.arbitrary::<u32>()?;
        for variant in 0..4u32 {
            // The second is the first once more.
            let mut state = seed.wrapping_add(variant.saturating_sub(1)) | 1;
            let made = made(&steps, |below| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) % below
            });
            let schedule = Schedule::sequential(&made.graph);
            let mut exec = cuda.instantiate(&made.graph, &schedule, &kernels.bindings()).unwrap();
            let mut fresh = reference.instantiate(&made.graph, &schedule, &its.bindings()).unwrap();
            // Nobody else gets an executable whose handle is known.
            assert_eq!((fresh.renewed(), fresh.handles().len()), (0, 1));
            if variant > 0 {
                assert_eq!(exec.renewed(), 1, "{steps:?}");
            }
            let found = replayed(&mut cuda, &made, &mut exec, variant);
            let expected = replayed(&mut reference, &made, &mut fresh, variant);
            assert!(found == expected, "variant {variant} of seed {seed} of {steps:?}");
            count += 1;
        }
        Ok(())
    })
    .budget_ms(4000);
    println!("{count} executables compared");
}

#[test]
fn executables_in_flight_are_not_changed() {
    let Some(mut cuda) = cuda() else { return };
    // Each round adds its number to a sum, slowly, by an executable that is let go at once.
    let source = "extern \"C\" __global__ void slow(unsigned *sum, unsigned by) {
        const long long start = clock64(); while (clock64() - start < 100000) {} sum[threadIdx.x] += by; }";
    let slow = cuda.compile(source, "slow").unwrap();
    // SAFETY: launched with a thread for each element.
    let bindings = unsafe { Bindings::new().kernel("slow", &slow) };
    let sum = cuda.alloc(128).unwrap();
    let streams = [(), ()].map(|()| Stream::new(&cuda.devices()[0].clone()).unwrap());
    let mut renewed = 0;
    for round in 0..20u32 {
        let mut b = GraphBuilder::new();
        let x = View::contiguous(b.external_buffer("x", 128), DType::U32, &[32]).unwrap();
        for _ in 0..10 {
            let kernel = b.add_kernel("slow", 1, 32, 0).arg(Arg::View(x, Access::ReadWrite));
            kernel.arg(Arg::Scalar((1u32 << (round % 8)).into())).finish();
        }
        let graph = b.build().unwrap();
        let bindings = bindings.clone().memory(x.buffer, &sum);
        let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
        renewed += exec.renewed();
        for _ in 0..2 {
            cuda.launch(&mut exec, &streams[round as usize % 2]).unwrap();
        }
    }
    assert_eq!(renewed, 19);
    let expected: u32 = (0..20u32).map(|round| 20 << (round % 8)).sum();
    assert_eq!(cuda.read::<u32>(&sum).unwrap(), [expected; 32]);
}

#[test]
fn a_node_that_was_disabled_runs_in_the_next_graph() {
    let Some(mut cuda) = cuda() else { return };
    let build = || {
        let mut b = GraphBuilder::new();
        let x = view(b.external_buffer("x", 400), &[100]);
        let nodes: Vec<NodeId> =
            (0..3).map(|_| b.add_elementwise("plus", add_one(), &[x], &[], &[x])).collect();
        (b.build().unwrap(), x.buffer, nodes[1])
    };
    for disabled in [true, false] {
        let (graph, x, middle) = build();
        let mut exec =
            cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
        assert_eq!(exec.renewed(), 0);
        exec.set_enabled(middle, !disabled).unwrap();
        cuda.replay(&mut exec).unwrap();
        let memory = exec.memory(x).unwrap().clone();
        let expected = if disabled { 2f32 } else { 3.0 };
        assert_eq!(cuda.read::<f32>(&memory).unwrap(), [expected; 100]);
    }
}

#[test]
fn what_an_executable_was_made_of_may_be_gone() {
    let Some(mut cuda) = cuda() else { return };
    let plus = add_one();
    for round in 0..6u64 {
        // Memory and functions of the round before are given back, other things lie there now.
        let _between = cuda.alloc(4096 * (1 + round)).unwrap();
        let mut b = GraphBuilder::new();
        let (x, y) = (b.external_buffer("x", 400), b.external_buffer("y", 400));
        let staged = b.host_buffer("staged", 400);
        let (xv, yv) = (view(x, &[100]), view(y, &[100]));
        b.add_elementwise("plus", plus.clone(), &[xv], &[], &[yv]);
        let all = |buffer| Region { buffer, offset: 0, bytes: 400 };
        b.add_region_copy("download", all(y), all(staged));
        b.add_region_copy("upload", all(staged), all(x));
        let graph = b.build().unwrap();
        let mut exec =
            cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
        assert_eq!(exec.renewed(), usize::from(round > 0));
        (0..3).for_each(|_| cuda.replay(&mut exec).unwrap());
        let memory = exec.memory(x).unwrap().clone();
        assert_eq!(cuda.read::<f32>(&memory).unwrap(), [3.0; 100]);
    }
    // An executable that outlives its backend.
    let mut b = GraphBuilder::new();
    let x = view(b.external_buffer("x", 400), &[100]);
    b.add_elementwise("plus", plus, &[x], &[], &[x]);
    let graph = b.build().unwrap();
    let exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    drop(cuda);
    drop(exec);
}

#[test]
fn weak_edges_stay_as_they_are() {
    let Some(mut cuda) = cuda() else { return };
    if cuda.devices()[0].capability() < (9, 0) {
        return eprintln!("skipped: the device has no weak edges");
    }
    let build = |data: &[EdgeData]| {
        let mut b = GraphBuilder::new().with_auto_infer_edges(false);
        let x = view(b.external_buffer("x", 4 << 16), &[1 << 16]);
        let nodes: Vec<NodeId> = (0..=data.len())
            .map(|_| b.add_elementwise("plus", add_one(), &[x], &[], &[x]))
            .collect();
        for (pair, &data) in nodes.windows(2).zip(data) {
            b.add_edge(Edge { from: pair[0], to: pair[1], data });
        }
        (b.build().unwrap(), x.buffer)
    };
    let (weak, full) = ([EdgeData::PROGRAMMATIC; 9], [EdgeData::FULL; 9]);
    for (data, renewed) in [(weak, 0), (weak, 1), (full, 0), (weak, 1), (full, 1)] {
        let (graph, x) = build(&data);
        let mut exec =
            cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
        // Kernels that are woken early are other functions.
        assert_eq!(exec.renewed(), renewed, "{:?}", data[0]);
        cuda.replay(&mut exec).unwrap();
        let memory = exec.memory(x).unwrap().clone();
        assert!(cuda.read::<f32>(&memory).unwrap().iter().all(|&v| v == 10.0));
    }
}

#[test]
fn graphs_with_graphs_inside_are_instantiated() {
    let Some(mut cuda) = cuda() else { return };
    for _ in 0..2 {
        let graph = nested(|_, _| {});
        let exec =
            cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
        assert_eq!(exec.renewed(), 0);
    }
}

#[test]
fn parts_of_a_large_graph_are_brought_up_to_date_one_by_one() {
    let Some(mut cuda) = cuda() else { return };
    let kernels = Kernels::new(&mut cuda);
    for (round, by) in [3u32, 5, 6].into_iter().enumerate() {
        let mut b = GraphBuilder::new();
        let y = View::contiguous(b.external_buffer("y", 256), DType::U32, &[64]).unwrap();
        for at in 0..20_000u32 {
            let kernel = b.add_kernel("turn", 1, 64, 0).arg(Arg::View(y, Access::ReadWrite));
            kernel.arg(Arg::Scalar((by * at).into())).finish();
        }
        let graph = b.build().unwrap();
        let schedule = Schedule::sequential(&graph);
        let mut exec = cuda.instantiate(&graph, &schedule, &kernels.bindings()).unwrap();
        // Of its four parts all but the first, which are not too many to be kept.
        assert_eq!(exec.renewed(), if round == 0 { 0 } else { 3 });
        cuda.replay(&mut exec).unwrap();
        let expected = (0..20_000u32).fold(0u32, |y, at| y.wrapping_mul(5).wrapping_add(by * at));
        let memory = exec.memory(y.buffer).unwrap().clone();
        assert_eq!(cuda.read::<u32>(&memory).unwrap(), [expected; 64]);
    }
}
