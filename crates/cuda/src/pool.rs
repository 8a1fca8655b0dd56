//! Several instances of one graph, any of which may run while others do.
//!
//! An instance is an [`Exec`] of its own: executable, arena, parameter block, the state of conditionals, and memory for
//! every external buffer that the graph writes. What the graph only reads is shared. So instances touch nothing that another
//! one changes, and launches on different streams overlap ([`Cuda::launch`] orders only what touches the same memory).
//!
//! Refused are graphs for which that cannot be: those that leave something for their next replay, and those that allocate.

use phonograph_graph::{
    Access, BufferId, BufferRole, ComputeGraph, Effects, NodeId, NodeKind, Region, Schedule,
};
use phonograph_runtime::cpu::NodePath;
use phonograph_runtime::refused::check_graph;
use rustc_hash::FxHashMap;

use crate::bindings::{Bindings, InstantiateError};
use crate::cuda::Cuda;
use crate::error::DriverError;
use crate::exec::Exec;
use crate::lower;
use crate::memory::Memory;
use crate::stream::Stream;

/// Why a graph cannot have several instances that run at once.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PoolError {
    /// The graph reads what its previous replay left.
    #[error(
        "node {node} reads what an earlier replay left in {buffer} ({name}), so replays follow one another and instances cannot run at once"
    )]
    Carried {
        /// The first node that reads it.
        node: NodePath,
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
    },
    /// Memory bound to a buffer that the graph writes: all instances would write it.
    #[error(
        "{buffer} ({name}) is written by the graph, so each instance has memory of its own for it; bind none"
    )]
    Shared {
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
    },
    /// An allocation node: its memory has one address in all instances.
    #[error("node {node} allocates memory, whose address all instances would share")]
    Allocation {
        /// The node.
        node: NodePath,
    },
    /// A node of which nobody knows what it touches.
    #[error("nobody knows what node {node} touches, so it cannot run while another instance does")]
    Unknown {
        /// The node.
        node: NodePath,
    },
    /// No instance was asked for.
    #[error("a pool of no instances")]
    Empty,
    /// An instance cannot be had.
    #[error(transparent)]
    Instantiate(#[from] InstantiateError),
    /// The driver refused a stream.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Instances of one graph, each with a stream.
///
/// ```
/// use phonograph_cuda::{Bindings, Cuda};
/// use phonograph_graph::{Arg, BufferId, DType, Expr, GraphBuilder, Schedule, View};
///
/// let mut b = GraphBuilder::new();
/// let (x, y) = (b.external_buffer("x", 16), b.external_buffer("y", 16));
/// let [from, to] = [x, y].map(|buffer| View::contiguous(buffer, DType::F32, &[4]).unwrap());
/// let by = b.slot("by", 1.0f32);
/// let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32)))?;
/// b.add_elementwise("add", add.into(), &[from], &[Arg::Slot(by)], &[to]);
/// let graph = b.build()?;
///
/// let mut cuda = match Cuda::new() {
///     Ok(cuda) => cuda,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let mut pool = cuda.pool(&graph, &Schedule::sequential(&graph), &Bindings::new(), 2)?;
/// for value in [10.0f32, 20.0] {
///     let (instance, stream) = pool.next();
///     instance.set(by, value)?;
///     cuda.launch(instance, stream)?;
/// }
/// for (instance, expected) in pool.instances().zip([10.0f32, 20.0]) {
///     cuda.finish(instance)?;
///     let memory = instance.memory(y).expect("each has memory of its own").clone();
///     assert_eq!(cuda.read::<f32>(&memory)?, [expected; 4]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    instances: Vec<(Exec, Stream)>,
    next: usize,
}

impl Pool {
    /// The instance that was given out longest ago, to set its slots and [launch](Cuda::launch) it, with its stream. A launch
    /// on another stream is as sound.
    #[expect(clippy::should_implement_trait, reason = "a pool never ends, and lends what it gives")]
    pub fn next(&mut self) -> (&mut Exec, &Stream) {
        let at = self.next;
        self.next = (at + 1) % self.instances.len();
        let (instance, stream) = &mut self.instances[at];
        (instance, stream)
    }

    /// All instances, in the order in which [`next`](Self::next) gives them at first.
    pub fn instances(&mut self) -> impl ExactSizeIterator<Item = &mut Exec> {
        self.instances.iter_mut().map(|(instance, _)| instance)
    }
}

impl Cuda {
    /// As [`instantiate`](Self::instantiate), so many times, for replays that run at once. Memory is bound to what the
    /// graph only reads; pointer slots are bound for each instance, and what two of them have in common follows the rules of
    /// [`launch`](Self::launch).
    ///
    /// # Errors
    /// [`PoolError`] for graphs whose replays depend on one another, before anything is made.
    pub fn pool(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        bindings: &Bindings<'_>,
        instances: usize,
    ) -> Result<Pool, PoolError> {
        if instances == 0 {
            return Err(PoolError::Empty);
        }
        // What is said of the order of accesses holds of valid schedules of graphs without races.
        check_graph(graph, schedule).map_err(InstantiateError::from)?;
        check_independent(graph, schedule, bindings)?;
        let first = self.instantiate_checked(graph, schedule, bindings, None)?;
        // What the first instance was given to read, the others read as well.
        let read = first.memory.iter().filter(|(buffer, _)| !first.written.contains(buffer));
        let read: Vec<(BufferId, Memory)> =
            read.map(|(&id, memory)| (id, memory.clone())).collect();
        let known = |buffer: BufferId| bindings.memory.iter().any(|(known, _)| *known == buffer);
        let missing = read.iter().filter(|(buffer, _)| !known(*buffer));
        let given = missing.fold(bindings.clone(), |all, (id, memory)| all.memory(*id, memory));
        let mut all = vec![first];
        while all.len() < instances {
            all.push(self.instantiate_checked(graph, schedule, &given, None)?);
        }
        let device = self.devices()[0].clone();
        let with_stream = |exec| Ok((exec, Stream::new(&device)?));
        let instances = all.into_iter().map(with_stream).collect::<Result<_, DriverError>>()?;
        Ok(Pool { instances, next: 0 })
    }
}

/// That no replay of the graph needs anything of another one.
///
/// Conflicting accesses are ordered by edges, so a write that the schedule issues before a read that it overlaps is before
/// it. O(operands × pieces that a buffer is written in).
fn check_independent(
    graph: &ComputeGraph,
    schedule: &Schedule,
    bindings: &Bindings<'_>,
) -> Result<(), PoolError> {
    let path = |id: NodeId| NodePath(vec![(id, graph.node(id).name.to_string())]);
    let name = |buffer: BufferId| graph.buffer(buffer).name.to_string();
    let mut written: FxHashMap<BufferId, Vec<Region>> = FxHashMap::default();
    // Reads of what was not written before, with the first node.
    let mut carried: FxHashMap<BufferId, NodeId> = FxHashMap::default();
    for id in lower::issued(schedule) {
        if matches!(graph.node(id).kind, NodeKind::Alloc(_) | NodeKind::Free(_)) {
            return Err(PoolError::Allocation { node: path(id) });
        }
        let Effects::Known(operands) = graph.effects(id) else {
            return Err(PoolError::Unknown { node: path(id) });
        };
        let kept = |region: &Region| graph.buffer(region.buffer).role == BufferRole::External;
        for (region, _) in operands.iter().filter(|(r, access)| access.reads() && kept(r)) {
            let pieces = written.get(&region.buffer).map_or(&[][..], Vec::as_slice);
            if !covers(pieces, region) {
                carried.entry(region.buffer).or_insert(id);
            }
        }
        for (region, access) in operands.iter().filter(|(r, access)| access.writes() && kept(r)) {
            let pieces = written.entry(region.buffer).or_default();
            if *access == Access::Write && !covers(pieces, region) {
                pieces.push(*region);
                pieces.sort_by_key(|piece| piece.offset);
            }
        }
    }
    let mut buffers: Vec<BufferId> = written.keys().copied().collect();
    buffers.sort_unstable();
    for buffer in buffers {
        if let Some(&node) = carried.get(&buffer) {
            return Err(PoolError::Carried { node: path(node), buffer, name: name(buffer) });
        }
        if bindings.memory.iter().any(|(bound, _)| *bound == buffer) {
            return Err(PoolError::Shared { buffer, name: name(buffer) });
        }
    }
    Ok(())
}

/// Whether pieces, by their offsets, hold all of a region.
fn covers(pieces: &[Region], region: &Region) -> bool {
    let mut reached = region.offset;
    for piece in pieces {
        if piece.offset > reached {
            break;
        }
        reached = reached.max(piece.end());
    }
    reached >= region.end()
}

#[cfg(test)]
mod tests {
    use phonograph_graph::{DType, Expr, GraphBuilder, View};

    use super::*;

    /// The graph is refused with this error, or not.
    fn check(expected: &str, build: impl FnOnce(&mut GraphBuilder)) {
        let mut b = GraphBuilder::new();
        build(&mut b);
        let graph = b.build().unwrap();
        let found = check_independent(&graph, &Schedule::sequential(&graph), &Bindings::new());
        assert_eq!(found.err().map_or(String::new(), |error| error.to_string()), expected);
    }

    fn halves(buffer: BufferId) -> [View; 3] {
        let whole = View::contiguous(buffer, DType::F32, &[8]).unwrap();
        [whole, whole.slice(0, 0, 4).unwrap(), whole.slice(0, 4, 4).unwrap()]
    }

    fn add(b: &mut GraphBuilder, name: &str, from: View, to: View) {
        let plus = Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0))).unwrap();
        b.add_elementwise(name, plus.into(), &[from], &[], &[to]);
    }

    #[test]
    fn what_one_replay_leaves_for_the_next_is_found() {
        check("", |b| {
            let [x, _, _] = halves(b.external_buffer("x", 32));
            let [y, _, _] = halves(b.external_buffer("y", 32));
            let [t, _, _] = halves(b.alloc_buffer("t", 32));
            add(b, "first", x, t);
            add(b, "second", t, y);
        });
        check(
            "node n0 (in place) reads what an earlier replay left in b0 (x), so replays follow one another and instances cannot run at once",
            |b| {
                let [x, _, _] = halves(b.external_buffer("x", 32));
                add(b, "in place", x, x);
            },
        );
        // Both halves are written before all is read.
        check("", |b| {
            let [x, _, _] = halves(b.external_buffer("x", 32));
            let [y, low, high] = halves(b.external_buffer("y", 32));
            let [z, _, _] = halves(b.external_buffer("z", 32));
            add(b, "low", x.slice(0, 0, 4).unwrap(), low);
            add(b, "high", x.slice(0, 4, 4).unwrap(), high);
            add(b, "all", y, z);
        });
        // Only one is, or not before.
        let carried = "reads what an earlier replay left in b1 (y), so replays follow one another and instances cannot run at once";
        check(&format!("node n1 (all) {carried}"), |b| {
            let [x, _, _] = halves(b.external_buffer("x", 32));
            let [y, low, _] = halves(b.external_buffer("y", 32));
            let [z, _, _] = halves(b.external_buffer("z", 32));
            add(b, "low", x.slice(0, 0, 4).unwrap(), low);
            add(b, "all", y, z);
        });
        check(&format!("node n0 (all) {carried}"), |b| {
            let [x, _, _] = halves(b.external_buffer("x", 32));
            let [y, _, _] = halves(b.external_buffer("y", 32));
            let [z, _, _] = halves(b.external_buffer("z", 32));
            add(b, "all", y, z);
            add(b, "after", x, y);
        });
    }

    #[test]
    fn allocations_and_unknown_nodes_are_refused() {
        check(
            "nobody knows what node n0 (k) touches, so it cannot run while another instance does",
            |b| {
                b.add_kernel("k", 1, 32, 0).finish();
            },
        );
        check("node n0 (alloc) allocates memory, whose address all instances would share", |b| {
            let t = b.alloc_buffer("t", 32);
            b.add("alloc", NodeKind::Alloc(t));
        });
    }
}
