//! Memory that others allocated, and whether it is still the allocation that it was.
//!
//! An address outlives its allocation: memory that is freed and allocated anew lies where other memory did, and a graph that
//! was built on the address works on it without a word. The driver numbers allocations, each number once in a process. The
//! number is asked for when an address is adopted ([`Cuda::adopt`]), and again before every launch of a graph that uses
//! it, unless that is [turned off](crate::Exec::set_checked): one call of the driver a buffer, no call for graphs without such
//! memory. What the driver does not see is not found: an allocator that keeps memory and hands it on (PyTorch's,
//! or a pool's) frees nothing.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute};
use phonograph_graph::{BufferId, ComputeGraph, Effects, NodeId};
use phonograph_runtime::cpu::NodePath;
use rustc_hash::FxHashMap;

use crate::cuda::Cuda;
use crate::error::{DriverError, call};
use crate::exec::ReplayError;
use crate::memory::{Memory, WeakMemory};

/// An allocation, as the driver tells it from all others of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The driver's number of it, which no other has.
    pub number: u64,
    /// Where it begins.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allocation {} ({} bytes at {:#x})", self.number, self.bytes, self.start)
    }
}

/// What the driver says of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub identity: Identity,
    pub on_host: bool,
    /// The device, by its number.
    pub ordinal: u32,
}

/// The allocation in which an address lies; `None` for one that the driver does not know, such as ordinary memory of the
/// host. Never an error for an address.
pub(crate) fn place_of(address: u64) -> Result<Option<Place>, DriverError> {
    use CUpointer_attribute as A;
    let mut attributes = [
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        A::CU_POINTER_ATTRIBUTE_BUFFER_ID,
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        A::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let (mut memory, mut ordinal) = (0u32, 0i32);
    let (mut number, mut start, mut bytes) = (0u64, 0u64, 0usize);
    let mut results: [*mut c_void; 5] = [
        (&raw mut memory).cast(),
        (&raw mut number).cast(),
        (&raw mut start).cast(),
        (&raw mut bytes).cast(),
        (&raw mut ordinal).cast(),
    ];
    // SAFETY: there are as many results as attributes, each of its attribute's type; the address is only looked up.
    unsafe {
        call!(cuPointerGetAttributes(
            attributes.len() as u32,
            attributes.as_mut_ptr(),
            results.as_mut_ptr(),
            address
        ))
    }?;
    let on_host = memory == CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    Ok((memory != 0).then_some(Place {
        identity: Identity { number, start, bytes: bytes as u64 },
        on_host,
        ordinal: ordinal.unsigned_abs(),
    }))
}

/// Why an address cannot be adopted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// An address in no memory of a device.
    #[error("{address:#x} lies in no memory of a device")]
    NotDevice {
        /// The address.
        address: u64,
    },
    /// Memory that does not reach as far.
    #[error("{bytes} bytes at {address:#x} reach past the end of {allocation}")]
    Range {
        /// The address.
        address: u64,
        /// The size asked for.
        bytes: u64,
        /// Where it lies.
        allocation: Identity,
    },
    /// Memory of a device that was not opened here.
    #[error("{address:#x} lies on device {ordinal}, which is not among those opened here")]
    OtherDevice {
        /// The address.
        address: u64,
        /// The device.
        ordinal: u32,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Adopted memory that is no longer what was adopted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the memory at {address:#x} was {adopted}, and is {} now", present(.found))]
pub struct StaleMemory {
    /// The address.
    pub address: u64,
    /// What it was.
    pub adopted: Identity,
    /// What lies there now, if anything does.
    pub found: Option<Identity>,
}

fn present(found: &Option<Identity>) -> String {
    found.map_or_else(|| "free".to_owned(), |found| found.to_string())
}

/// That an address lies in the allocation that it did.
///
/// # Errors
/// The inner one if it does not.
pub(crate) fn check(
    address: u64,
    adopted: Identity,
) -> Result<Result<(), StaleMemory>, DriverError> {
    let found = place_of(address)?.map(|place| place.identity);
    Ok(match found {
        Some(same) if same == adopted => Ok(()),
        found => Err(StaleMemory { address, adopted, found }),
    })
}

impl Cuda {
    /// Memory of a device that somebody else allocated: cudarc, PyTorch, any `CUdeviceptr`. Graphs take it as they take
    /// memory of this `Cuda`; dropping the handle frees nothing. Graphs that use it ask the driver before each launch
    /// whether it is still there ([`ReplayError::Stale`]). Launches that touch the same allocation of the driver's follow one
    /// another, whichever parts of it they touch.
    ///
    /// # Errors
    /// [`AdoptError`] for an address outside memory of these devices, and for memory that is smaller.
    ///
    /// # Safety
    /// The memory is not this `Cuda`'s own. It is not freed while work on it runs, and nothing but what this `Cuda` orders works
    /// on it meanwhile. Where other devices work on it, whoever allocated it has let them.
    ///
    /// ```
    /// use phonograph_cuda::Cuda;
    ///
    /// let mut cuda = match Cuda::new() {
    ///     Ok(cuda) => cuda,
    ///     Err(error) => return Ok(println!("skipped: {error}")),
    /// };
    /// // Stands for what another library allocated.
    /// let others = Cuda::new()?.alloc(16)?;
    /// // SAFETY: it is freed at the end, and nothing else works on it.
    /// let memory = unsafe { cuda.adopt(others.address(), 16) }?;
    /// cuda.write(&memory, &[1.0f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(cuda.read::<f32>(&memory)?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn adopt(&self, address: u64, bytes: u64) -> Result<Memory, AdoptError> {
        let place = place_of(address)?.filter(|place| !place.on_host);
        let Place { identity, ordinal, .. } = place.ok_or(AdoptError::NotDevice { address })?;
        let device = self.devices().iter().find(|device| device.ordinal() == ordinal);
        let device = device.ok_or(AdoptError::OtherDevice { address, ordinal })?;
        let whole =
            self.foreign.whole(identity, || Memory::adopted(self.owner(), device, identity));
        let part = address.checked_sub(identity.start).and_then(|at| whole.part(at, bytes));
        part.ok_or(AdoptError::Range { address, bytes, allocation: identity })
    }
}

/// The allocations of others that were adopted, so that what is adopted of one twice is ordered as one.
#[derive(Debug, Default)]
pub(crate) struct Foreign(Mutex<Vec<(Identity, WeakMemory)>>);

impl Foreign {
    fn whole(&self, identity: Identity, new: impl FnOnce() -> Memory) -> Memory {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, memory)| memory.is_alive());
        let found = known.iter().find(|(other, _)| *other == identity);
        if let Some(memory) = found.and_then(|(_, memory)| memory.upgrade()) {
            return memory;
        }
        let memory = new();
        known.push((identity, memory.downgrade()));
        memory
    }
}

/// The adopted memory of an executable.
#[derive(Default)]
pub(crate) struct Adopted {
    /// The buffers of the user's: name, and the first node that uses each. Empty unless memory may be adopted.
    users: FxHashMap<BufferId, (String, Option<NodePath>)>,
    memory: Vec<(BufferId, Memory)>,
    unchecked: bool,
}

impl Adopted {
    /// Of a graph with these buffers bound; `changes` says that others may be bound later. O(nodes) if there is anything to
    /// note.
    pub fn new<'a>(
        graph: &ComputeGraph,
        bound: impl Iterator<Item = (BufferId, &'a Memory)>,
        changes: bool,
    ) -> Self {
        let mut adopted = Self::default();
        for (buffer, memory) in bound {
            adopted.bind(buffer, memory);
        }
        if changes || !adopted.memory.is_empty() {
            for (at, buffer) in graph.buffers().iter().enumerate() {
                let name = buffer.name.to_string();
                adopted.users.insert(BufferId::from_index(at), (name, None));
            }
            for id in graph.node_ids() {
                adopted.note(graph, id);
            }
        }
        adopted
    }

    fn note(&mut self, graph: &ComputeGraph, id: NodeId) {
        let Effects::Known(operands) = graph.effects(id) else { return };
        for (region, _) in operands {
            if let Some((_, user @ None)) = self.users.get_mut(&region.buffer) {
                *user = Some(NodePath(vec![(id, graph.node(id).name.to_string())]));
            }
        }
    }

    /// Notes what is bound to a buffer now.
    pub fn bind(&mut self, buffer: BufferId, memory: &Memory) {
        self.memory.retain(|(known, _)| *known != buffer);
        if memory.identity().is_some() {
            self.memory.push((buffer, memory.clone()));
        }
    }

    /// Whether a launch has to ask.
    pub fn is_checked(&self) -> bool {
        !self.unchecked && !self.memory.is_empty()
    }

    pub fn set_checked(&mut self, checked: bool) {
        self.unchecked = !checked;
    }

    /// Asks the driver about each buffer.
    pub fn check(&self) -> Result<(), ReplayError> {
        for (buffer, memory) in &self.memory {
            if let Err(source) = memory.check()? {
                let (name, node) = self.users.get(buffer).cloned().unwrap_or_default();
                return Err(ReplayError::Stale { buffer: *buffer, name, node, source });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use phonograph_graph::{Extent, GraphBuilder, MemsetNode, Pitched, Schedule, Target};

    use super::*;
    use crate::bindings::Bindings;
    use crate::memory::MemoryError;
    use crate::stub::on_driver;

    /// An allocation is a page of the test's, which begins with the number of the allocation, 0 if it is free, and its size.
    const ATTRIBUTES: &str = "(unsigned n, int *which, void **d, unsigned long long at) {
        unsigned long long start = at & ~4095ull, *page = (unsigned long long *)start;
        int known = at > 4096 && page[0];
        *(unsigned *)d[0] = known ? 2 : 0;
        *(unsigned long long *)d[1] = known ? page[0] : 0;
        *(unsigned long long *)d[2] = known ? start : 0;
        *(unsigned long long *)d[3] = known ? page[1] : 0;
        *(int *)d[4] = 0;
        return n == 5 ? 0 : 1;
    }";

    #[repr(align(4096))]
    struct Page([u64; 512]);

    #[test]
    fn memory_that_is_freed_and_allocated_anew_is_told_from_what_it_was() {
        on_driver(
            "adopted::tests::memory_that_is_freed_and_allocated_anew_is_told_from_what_it_was",
            &[("cuPointerGetAttributes", ATTRIBUTES)],
            || {
                let mut page = Box::new(Page([0; 512]));
                let start = (&raw mut *page).expose_provenance() as u64;
                let mut allocation = |number, bytes| (page.0[0], page.0[1]) = (number, bytes);
                let mut cuda = Cuda::new().unwrap();
                // SAFETY: no device works on it.
                let adopt = |cuda: &Cuda, at, bytes| unsafe { cuda.adopt(at, bytes) };
                assert_eq!(adopt(&cuda, 64, 4).unwrap_err(), AdoptError::NotDevice { address: 64 });
                allocation(7, 1024);
                let identity = Identity { number: 7, start, bytes: 1024 };
                let address = start + 512;
                let bytes = 513;
                assert_eq!(
                    adopt(&cuda, address, bytes).unwrap_err(),
                    AdoptError::Range { address, bytes, allocation: identity }
                );
                let memory = adopt(&cuda, address, 512).unwrap();
                assert_eq!((memory.address(), memory.identity()), (address, Some(identity)));
                let other = adopt(&cuda, start + 768, 256).unwrap();
                assert!(!memory.same_as(&other) && memory.span().overlaps(other.span()));

                let mut b = GraphBuilder::new();
                let x = b.external_buffer("x", 512);
                let dst = Pitched::linear(Target::Buffer(x), 0);
                let extent = Extent::linear(512);
                b.add_barrier("nothing");
                b.add_fill("zero", MemsetNode { dst, value: 0, element_size: 1, extent });
                let graph = b.build().unwrap();
                let schedule = Schedule::sequential(&graph);
                let bindings = Bindings::new().memory(x, &memory);
                let mut exec = cuda.instantiate(&graph, &schedule, &bindings).unwrap();
                cuda.replay(&mut exec).unwrap();
                cuda.replay(&mut exec).unwrap();
                for (number, now) in [(0, "free"), (8, "allocation 8 (1024 bytes at ADDRESS)")] {
                    allocation(number, 1024);
                    let said = cuda.replay(&mut exec).unwrap_err().to_string();
                    let said = said.replace(&format!("{start:#x}"), "ADDRESS");
                    let said = said.replace(&format!("{address:#x}"), "ADDRESS + 512");
                    assert_eq!(
                        said,
                        format!(
                            "b0 (x), used by node n1 (zero), works on memory that is gone: the memory at ADDRESS + 512 was allocation 7 (1024 bytes at ADDRESS), and is {now} now"
                        )
                    );
                    let read = cuda.read::<u8>(&memory);
                    assert!(matches!(read, Err(MemoryError::Stale(_))), "{read:?}");
                }
                exec.set_checked(false);
                cuda.replay(&mut exec).unwrap();
                exec.set_checked(true);
                assert!(exec.check_adopted().is_err());
                assert!(cuda.replay(&mut exec).is_err());
                allocation(7, 1024);
                cuda.replay(&mut exec).unwrap();
            },
        );
    }
}
