//! Executables that nobody needs any more, kept for graphs that are like theirs.
//!
//! In: executables whose launches are over, with what they were made of. Out: one that is [given](Made::carry_over) the
//! parameters of a graph that was just noted, instead of making and instantiating that. To make a node takes the driver 0.3 to
//! 0.9 µs on an H200, to instantiate and upload it 2 to 2.6; to give it other parameters, upload included, 0.2 to 0.4, and
//! 1.5 if blocks or threads change.
//!
//! A spare keeps alive what the driver needs: its graph, whose nodes stand for those of the executable, and the modules of its
//! kernels. Memory that its nodes name may be gone; it is never launched before every node that names other memory now
//! has been changed. The one that was put there first goes first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::captures::relaxed;
use crate::error::DriverError;
use crate::graph::{Executable, Graph};
use crate::made::Made;
use crate::module::Function;

/// The most executables that are kept. A small one takes 22 KB of the host and up to 105 KB of the device.
const MAX_COUNT: usize = 256;
/// The most nodes of them all. Each takes 5.5 KB of the host and 1.7 KB of the device on an H200.
const MAX_NODES: usize = 16_384;

/// What an executable was made of.
pub(crate) struct Origin {
    /// The graph whose nodes the executable knows: its own, or that of an earlier one.
    graph: Graph,
    /// Unless the graph has nodes that are not noted.
    pub made: Option<Made>,
    /// Whether the graph is an earlier one.
    pub is_renewed: bool,
    /// Its own, if it was asked for where the graph is an earlier one.
    own: Option<Graph>,
}

impl Origin {
    /// Of an executable that the driver has made, or is to make, of the graph.
    pub fn new(graph: Graph, made: Option<Made>) -> Self {
        Self { graph, made, is_renewed: false, own: None }
    }

    /// Of an executable of an earlier graph, whose nodes stand for those that were noted.
    pub fn renewed(earlier: Graph, made: Option<Made>) -> Self {
        Self { is_renewed: true, ..Self::new(earlier, made) }
    }

    /// The graph that it would have been instantiated from; made now, if an earlier one has served.
    pub fn own_graph(&mut self) -> Result<&Graph, DriverError> {
        if let (true, None, Some(made)) = (self.is_renewed, &self.own, &self.made) {
            let own = Graph::new(self.graph.device())?;
            // SAFETY: the nodes name what those of the executable name, which lives as long as this and longer.
            unsafe { made.make_whole(&own) }.map_err(|refused| refused.error)?;
            self.own = Some(own);
        }
        Ok(self.own.as_ref().unwrap_or(&self.graph))
    }
}

/// An executable that is not needed, with what it needs.
pub(crate) struct Spare {
    // Dropped in this order.
    executable: Executable,
    graph: Graph,
    made: Made,
    _functions: Arc<[Function]>,
}

impl Spare {
    /// An executable, if one like it can be made of it later. `functions` are those of its kernels, at least.
    pub fn of(executable: Executable, origin: Origin, functions: &Arc<[Function]>) -> Option<Self> {
        let Origin { graph, made, .. } = origin;
        let made = made.filter(Made::can_be_carried_over)?;
        Some(Self { executable, graph, made, _functions: functions.clone() })
    }

    /// The executable with the parameters of a graph that its own is like, and the graph whose nodes it knows, which are those
    /// of the other then.
    ///
    /// # Errors
    /// What the driver refuses; the executable, which may be half changed, is gone then.
    pub fn renew(mut self, made: &mut Made) -> Result<(Executable, Graph), DriverError> {
        let _current = self.graph.device().enter()?;
        let _relaxed = relaxed()?;
        made.carry_over(self.made, &mut self.executable)?;
        Ok((self.executable, self.graph))
    }
}

/// The spare executables of a backend.
#[derive(Default)]
pub(crate) struct Spares(Mutex<VecDeque<Spare>>);

impl Spares {
    /// Keeps an executable whose launches are over, unless it is too large.
    pub fn keep(&self, spare: Spare) {
        if spare.made.len() > MAX_NODES {
            return;
        }
        let mut kept = self.lock();
        kept.push_back(spare);
        let mut nodes: usize = kept.iter().map(|spare| spare.made.len()).sum();
        let mut gone = Vec::new();
        while kept.len() > MAX_COUNT || nodes > MAX_NODES {
            let Some(first) = kept.pop_front() else { break };
            nodes -= first.made.len();
            gone.push(first);
        }
        // They are destroyed while nobody waits for the others.
        drop(kept);
    }

    /// The last one kept that can become an executable of this.
    pub fn take(&self, made: &Made) -> Option<Spare> {
        let mut kept = self.lock();
        let is_like = |spare: &Spare| spare.made.hash() == made.hash() && made.is_like(&spare.made);
        let at = kept.iter().rposition(is_like)?;
        kept.remove(at)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Spare>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Spares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spares").field(&self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use phonograph_graph::{
        Access, Arg, BufferId, DType, EventId, Extent, GraphBuilder, KernelConfig, MemsetNode,
        NodeId, NodeKind, Pitched, Schedule, Target, View,
    };

    use super::*;
    use crate::bindings::Bindings;
    use crate::cuda::Cuda;
    use crate::exec::Exec;
    use crate::front::PartId;
    use crate::module::Module;
    use crate::stub::on_driver;

    /// A driver whose executables have numbers.
    const COUNTS: &[(&str, &str)] = &[
        ("cuGraphCreate", "(long *g) { *g = 1; return 0; }"),
        ("cuGraphAddKernelNode_v2", "(long *n) { static long next; *n = next += 2; return 0; }"),
        ("cuGraphAddNode_v2", "(long *n) { static long next = 1; *n = next += 2; return 0; }"),
        ("cuGraphInstantiateWithParams", "(long *x) { static long next; *x = ++next; return 0; }"),
        ("cuModuleGetFunction", "(long *f) { static long next; *f = ++next; return 0; }"),
        (
            "cuFuncGetParamInfo",
            "(void *f, long at, long *o, long *s) { *s = 8; return at < 1 ? 0 : 1; }",
        ),
        ("cuFuncGetAttribute", "(int *v) { *v = 1024; return 0; }"),
        (
            "cuMemAllocFromPoolAsync",
            "(unsigned long *a, long bytes) { static unsigned long at = 1 << 20; *a = at; at += (bytes + 255) / 256 * 256; return 0; }",
        ),
        // A context, so that no handle is null.
        ("cuDevicePrimaryCtxRetain", "(long *c) { *c = 7; return 0; }"),
        (
            "cuCtxGetCurrent",
            "(long *c) { extern long context; *c = context; return 0; } long context;",
        ),
        ("cuCtxPushCurrent_v2", "(long c) { extern long context; context = c; return 0; }"),
        (
            "cuCtxPopCurrent_v2",
            "(long *c) { extern long context; *c = context; context = 0; return 0; }",
        ),
    ];

    fn number(exec: &Exec) -> usize {
        exec.front.part(PartId(0)).handle().addr()
    }

    /// Two kernels on one buffer, and between them whatever is given.
    fn graph(between: impl FnOnce(&mut GraphBuilder, BufferId)) -> phonograph_graph::ComputeGraph {
        let mut b = GraphBuilder::new();
        let x = b.external_buffer("x", 64);
        let view = View::contiguous(x, DType::F32, &[16]).unwrap();
        let kernel = |b: &mut GraphBuilder| {
            b.add_kernel("k", 1, 32, 0).arg(Arg::View(view, Access::ReadWrite)).finish()
        };
        kernel(&mut b);
        between(&mut b, x);
        kernel(&mut b);
        b.build().unwrap()
    }

    fn fill(b: &mut GraphBuilder, x: BufferId, width: u64, value: u32) {
        let dst = Pitched::linear(Target::Buffer(x), 0);
        let extent = Extent::linear(width);
        b.add_fill("fill", MemsetNode { dst, value, element_size: 1, extent });
    }

    #[test]
    fn executables_go_to_graphs_like_theirs() {
        on_driver("spares::tests::executables_go_to_graphs_like_theirs", COUNTS, || {
            let mut cuda = Cuda::new().unwrap();
            let device = cuda.devices()[0].clone();
            let module = Module::from_ptx(&device, "").unwrap();
            let [k, other] = ["k", "other"].map(|name| module.function(name).unwrap());
            let mut made = |graph: &phonograph_graph::ComputeGraph, function| {
                // SAFETY: nothing is launched.
                let bindings = unsafe { Bindings::new().kernel("k", function) };
                let schedule = Schedule::sequential(graph);
                let exec = cuda.instantiate(graph, &schedule, &bindings).unwrap();
                assert_eq!(exec.front.rest.len(), 0);
                exec
            };
            let plain = graph(|_, _| {});
            let (first, second) = (made(&plain, &k), made(&plain, &k));
            assert_eq!([number(&first), number(&second)], [1, 2]);
            drop(first);
            // Another function, other nodes, another order: other executables. Memory is another each time.
            let filled = |width, value| graph(|b, x| fill(b, x, width, value));
            let apart = graph(|b, _| {
                b.add_barrier("nothing");
            });
            for (graph, function, expected) in
                [(&plain, &other, 3), (&filled(8, 1), &k, 4), (&apart, &k, 5), (&plain, &k, 1)]
            {
                let exec = made(graph, function);
                assert_eq!((number(&exec), exec.renewed()), (expected, usize::from(expected == 1)));
            }
            // The value of a fill is a parameter, its width is not.
            assert_eq!(number(&made(&filled(8, 2), &k)), 4);
            assert_eq!(number(&made(&filled(9, 2), &k)), 6);
            // The last one kept goes first; one that somebody may have changed goes to nobody.
            drop(second);
            let second = made(&plain, &k);
            assert_eq!(number(&second), 2);
            assert_eq!(second.handles().next().unwrap().addr(), 2);
            drop(second);
            let mut first = made(&plain, &k);
            assert_eq!(number(&first), 1);
            first.set_enabled(plain.node_ids().next().unwrap(), false).unwrap();
            drop(first);
            assert_eq!(number(&made(&plain, &k)), 7);
        });
    }

    #[test]
    fn graphs_with_other_nodes_are_instantiated() {
        on_driver("spares::tests::graphs_with_other_nodes_are_instantiated", COUNTS, || {
            let mut cuda = Cuda::new().unwrap();
            let module = Module::from_ptx(&cuda.devices()[0].clone(), "").unwrap();
            let k = module.function("k").unwrap();
            let all = [
                graph(|b, _| {
                    b.add_event_record("event", EventId(0));
                }),
                graph(|b, _| {
                    let mut child = GraphBuilder::new();
                    child.add_barrier("inside");
                    b.add_child("child", child.build().unwrap());
                }),
                graph(|b, _| {
                    let t = b.alloc_buffer("t", 64);
                    b.add("alloc", NodeKind::Alloc(t));
                    b.add("free", NodeKind::Free(t));
                }),
                graph(|b, x| {
                    let view = View::contiguous(x, DType::F32, &[16]).unwrap();
                    let config = KernelConfig { priority: -1, ..KernelConfig::linear(1, 32, 0) };
                    let urgent = b.add_kernel("k", 1, 32, 0).config(config);
                    urgent.arg(Arg::View(view, Access::ReadWrite)).finish();
                }),
            ];
            let mut expected = 0;
            for graph in &all {
                for _ in 0..2 {
                    // SAFETY: nothing is launched.
                    let bindings = unsafe { Bindings::new().kernel("k", &k) };
                    let schedule = Schedule::sequential(graph);
                    let exec = cuda.instantiate(graph, &schedule, &bindings).unwrap();
                    expected += 1;
                    assert_eq!((number(&exec), exec.renewed()), (expected, 0));
                }
            }
        });
    }

    #[test]
    fn an_executable_that_cannot_be_changed_is_thrown_away() {
        let refuses = ("cuGraphExecKernelNodeSetParams_v2", "(void) { return 910; }");
        let bodies = [COUNTS, &[refuses]].concat();
        let name = "spares::tests::an_executable_that_cannot_be_changed_is_thrown_away";
        on_driver(name, &bodies, || {
            let mut cuda = Cuda::new().unwrap();
            let module = Module::from_ptx(&cuda.devices()[0].clone(), "").unwrap();
            let k = module.function("k").unwrap();
            let plain = graph(|_, _| {});
            for expected in 1..4 {
                // SAFETY: nothing is launched.
                let bindings = unsafe { Bindings::new().kernel("k", &k) };
                let schedule = Schedule::sequential(&plain);
                let exec = cuda.instantiate(&plain, &schedule, &bindings).unwrap();
                assert_eq!((number(&exec), exec.renewed()), (expected, 0));
                drop(exec);
                assert_eq!(cuda.target().spares.lock().len(), 1);
            }
            // Where nothing differs, nothing is asked for; what may have been changed since is changed in any case.
            let with_slot = graph(|b, _| {
                let slot = b.slot("by", 1i64);
                b.add_kernel("k", 1, 32, 0).arg(Arg::Slot(slot)).finish();
            });
            let memory = cuda.alloc(64).unwrap();
            for (graph, numbers) in [(&plain, [4, 4, 4]), (&with_slot, [5, 6, 7])] {
                for expected in numbers {
                    // SAFETY: nothing is launched.
                    let bindings = unsafe { Bindings::new().kernel("k", &k) };
                    let bindings = bindings.memory(BufferId(0), &memory);
                    let schedule = Schedule::sequential(graph);
                    let exec = cuda.instantiate(graph, &schedule, &bindings).unwrap();
                    assert_eq!(number(&exec), expected);
                }
            }
        });
    }

    #[test]
    fn copies_and_fills_of_the_same_allocation_are_left_as_they_are() {
        let refuses = ("cuGraphExecMemsetNodeSetParams", "(void) { return 910; }");
        let bodies = [COUNTS, &[refuses]].concat();
        let name = "spares::tests::copies_and_fills_of_the_same_allocation_are_left_as_they_are";
        on_driver(name, &bodies, || {
            let mut cuda = Cuda::new().unwrap();
            let module = Module::from_ptx(&cuda.devices()[0].clone(), "").unwrap();
            let k = module.function("k").unwrap();
            let memory = cuda.alloc(512).unwrap();
            let [first, second] = [0, 256].map(|offset| memory.part(offset, 64).unwrap());
            let other = cuda.alloc(64).unwrap();
            // SAFETY: nothing is launched.
            let gone = unsafe { cuda.foreign(other.address(), 64, Box::new(())) };
            for (bound, value, expected) in [
                (&first, 1, (1, 0)),
                (&first, 1, (1, 1)),
                // Another value, another place in it, other memory, other memory at the same address: it would have to be told.
                (&first, 2, (2, 0)),
                (&second, 2, (3, 0)),
                (&other, 2, (4, 0)),
                (&gone, 2, (5, 0)),
                (&gone, 2, (5, 1)),
            ] {
                let graph = graph(|b, x| fill(b, x, 8, value));
                // SAFETY: nothing is launched.
                let bindings = unsafe { Bindings::new().kernel("k", &k) };
                let bindings = bindings.memory(BufferId(0), bound);
                let schedule = Schedule::sequential(&graph);
                let exec = cuda.instantiate(&graph, &schedule, &bindings).unwrap();
                assert_eq!((number(&exec), exec.renewed()), expected);
            }
        });
    }

    #[test]
    fn few_are_kept_and_none_longer_than_the_backend() {
        let name = "spares::tests::few_are_kept_and_none_longer_than_the_backend";
        on_driver(name, COUNTS, || {
            let mut cuda = Cuda::new().unwrap();
            let make = |cuda: &mut Cuda, nodes: usize| {
                let mut b = GraphBuilder::new();
                // Two chains, so that it stays whole however large it is.
                let ids: Vec<NodeId> = (0..nodes).map(|_| b.add_barrier("nothing")).collect();
                ids.iter().zip(ids.iter().skip(2)).for_each(|(&from, &to)| {
                    b.dep(from, to);
                });
                let graph = b.build().unwrap();
                cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap()
            };
            let kept = |cuda: &mut Cuda| -> Vec<usize> {
                cuda.target().spares.lock().iter().map(|spare| spare.made.len()).collect()
            };
            let all: Vec<Exec> = (0..MAX_COUNT + 3).map(|_| make(&mut cuda, 1)).collect();
            drop(all);
            assert_eq!(kept(&mut cuda), [1; MAX_COUNT]);
            drop(make(&mut cuda, MAX_NODES + 1));
            assert_eq!(kept(&mut cuda), [1; MAX_COUNT]);
            let large: Vec<Exec> = (0..6).map(|at| make(&mut cuda, 4000 + at)).collect();
            drop(large);
            assert_eq!(kept(&mut cuda), [4002, 4003, 4004, 4005]);
            let last = make(&mut cuda, 1);
            drop(cuda);
            drop(last);
        });
    }
}
