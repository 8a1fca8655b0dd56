//! Where buffers lie: memory that the user bound, memory of the executable's own, places in the pools of the plan.
//!
//! In: the buffers of a graph, the bindings, the plan's offsets. Out: a [`Base`] for each buffer, from which addresses follow,
//! and the memory that the executable keeps. O(buffers + bound memory log bound memory).

use phonograph_graph::{Buffer, BufferId, BufferRole, ComputeGraph, Space};
use phonograph_runtime::refused::{SlotExtent, check_bindings};
use rustc_hash::FxHashMap;

use super::Lowering;
use super::scope::Scope;
use crate::bindings::InstantiateError;
use crate::device::Device;
use crate::exec::is_on_host;
use crate::memory::Memory;
use crate::slots::{PointerSlot, Use};

/// Where a buffer starts.
#[derive(Clone, Copy)]
pub(super) enum Base {
    Address(u64),
    /// A pointer slot of the outermost graph.
    Slot(BufferId),
    /// An internal buffer that has no place: nothing of it is touched, or an allocation node is yet to come.
    None,
}

impl<'a> Lowering<'a> {
    /// Memory for the external buffers of the outermost graph, and its pointer slots.
    pub(super) fn bind(&mut self, graph: &ComputeGraph) -> Result<Vec<Base>, InstantiateError> {
        for (index, declared) in graph.buffers().iter().enumerate() {
            if matches!(declared.role, BufferRole::External | BufferRole::Slot(_)) {
                self.device_of(BufferId::from_index(index), declared)?;
            }
        }
        let unsuited = |declared: &Buffer, memory: &Memory| {
            if !memory.belongs_to(self.target.owner) {
                return Some("belongs to another device".to_owned());
            }
            let on_host = is_on_host(declared);
            let device = match declared.space {
                Space::Device(index) => &self.target.devices[index as usize],
                _ => &self.target.devices[0],
            };
            let wrong = memory.is_on_host() != on_host || !(on_host || memory.device().is(device));
            let place = if on_host { "in host memory" } else { "on that device" };
            wrong.then(|| format!("is not {place}, where {} is declared", declared.name))
        };
        let given = check_bindings(graph, &self.bindings.memory, Memory::span, unsuited)?;
        let mut bases = Vec::with_capacity(graph.buffers().len());
        for (index, declared) in graph.buffers().iter().enumerate() {
            let buffer = BufferId::from_index(index);
            let given = given.get(&buffer).map(|&memory| memory.clone());
            bases.push(match declared.role {
                BufferRole::External => {
                    let memory = match given {
                        Some(memory) => memory,
                        None => self.allocate(buffer, declared, declared.bytes)?,
                    };
                    let base = Base::Address(memory.address());
                    self.memory.insert(buffer, memory);
                    base
                }
                BufferRole::Slot(access) => {
                    let writes = access.writes();
                    let (bytes, on_host) = (declared.bytes, is_on_host(declared));
                    let extent = SlotExtent { buffer, bytes, align: declared.align };
                    let device = self.device_of(buffer, declared)?.clone();
                    // The driver wants every node to name memory of the right kind from the start.
                    let stand_in = match given {
                        Some(_) => None,
                        None => Some(self.allocate(buffer, declared, bytes)?),
                    };
                    let uses = Vec::new();
                    let slot = PointerSlot {
                        extent,
                        on_host,
                        device,
                        writes,
                        bound: given,
                        stand_in,
                        uses,
                    };
                    self.pointer_slots.insert(buffer, slot);
                    Base::Slot(buffer)
                }
                BufferRole::Internal | BufferRole::Outer(_) => Base::None,
            });
        }
        Ok(bases)
    }

    /// The device that a buffer lives on; for host memory any.
    pub(super) fn device_of(
        &self,
        id: BufferId,
        declared: &Buffer,
    ) -> Result<&'a Device, InstantiateError> {
        let bad = |problem| {
            let name = declared.name.to_string();
            Err(InstantiateError::Buffer { buffer: id, name, problem })
        };
        match declared.space {
            Space::Device(index) => match self.target.devices.get(index as usize) {
                Some(device) => Ok(device),
                None => {
                    let open = self.target.devices.len();
                    bad(format!("is declared on device {index}; {open} are open"))
                }
            },
            Space::Host { pageable: true } => {
                bad("is declared in pageable host memory; page-locked memory is needed".to_owned())
            }
            Space::Host { pageable: false } | Space::Unknown => Ok(&self.target.devices[0]),
        }
    }

    /// Zeroed memory where a buffer is declared.
    pub(super) fn allocate(
        &self,
        id: BufferId,
        declared: &Buffer,
        bytes: u64,
    ) -> Result<Memory, InstantiateError> {
        let device = self.device_of(id, declared)?;
        let owner = self.target.owner;
        let memory = if is_on_host(declared) {
            Memory::on_host(owner, device, bytes)?
        } else {
            Memory::on_device(owner, device, bytes)?
        };
        if !memory.address().is_multiple_of(declared.align) {
            let problem = format!("asks for an alignment of {} bytes", declared.align);
            let name = declared.name.to_string();
            return Err(InstantiateError::Buffer { buffer: id, name, problem });
        }
        Ok(memory)
    }

    pub(super) fn place_internal(&mut self, scope: &mut Scope<'_>) -> Result<(), InstantiateError> {
        let mut pools: FxHashMap<Space, u64> = FxHashMap::default();
        for (index, declared) in scope.graph.buffers().iter().enumerate() {
            let buffer = BufferId::from_index(index);
            let offset = scope.schedule.memory.offset(buffer);
            let (BufferRole::Internal, Some(offset)) = (declared.role, offset) else { continue };
            let start = match pools.get(&declared.space) {
                Some(&start) => start,
                None => {
                    let bytes = scope.schedule.memory.pools[&declared.space];
                    let pool = self.allocate(buffer, declared, bytes)?;
                    let start = *pools.entry(declared.space).or_insert(pool.address());
                    self.held.arenas.push(pool);
                    start
                }
            };
            if !start.is_multiple_of(declared.align) {
                let problem = format!("asks for an alignment of {} bytes", declared.align);
                let name = declared.name.to_string();
                return Err(InstantiateError::Buffer { buffer, name, problem });
            }
            scope.bases[index] = Base::Address(start + offset);
        }
        Ok(())
    }

    /// The address of a buffer as it is now, and the pointer slot that it is.
    pub(super) fn resolve(&self, scope: &Scope<'_>, buffer: BufferId) -> (u64, Option<BufferId>) {
        match scope.bases[buffer.index()] {
            Base::Address(address) => (address, None),
            Base::Slot(slot) => {
                let known = &self.pointer_slots[&slot];
                let memory = known.bound.as_ref().or(known.stand_in.as_ref());
                (memory.map_or(0, Memory::address), Some(slot))
            }
            // Only a buffer of no bytes is used without a place, and nothing of it is touched.
            Base::None => (0, None),
        }
    }

    /// Notes that an address is to be changed when memory is bound to the slot.
    pub(super) fn note(&mut self, slot: Option<BufferId>, place: Use) {
        if let Some(slot) = slot {
            self.changeable |= !matches!(place, Use::Word(..));
            let slot = self.pointer_slots.get_mut(&slot).expect("`bind` has one for each");
            slot.uses.push(place);
        }
    }
}
