//! Graphs as data, made executable on a shared device: lowered by their schedules, as any graph is.
//!
//! Functions of the host are kept by the executable, and reach page-locked memory alone. Slots are words of the parameter
//! block where generated kernels read them, parameters of nodes elsewhere.

use phonograph_runtime::streams::{Adopt, Adopted, BackendError, BoundPage, Step};

use super::issued::shared;
use super::{CudaBackend, CudaExec, at, part};
use crate::bindings::Bindings;
use crate::memory::Memory;

/// What runs at once is up to the driver, which takes the graph's edges for it and no streams: as many as it has been seen
/// to make use of.
const LANES: u32 = 32;

impl Adopt for CudaBackend {
    const HOST_REACHES_DEVICE: bool = false;

    fn lanes(&self) -> u32 {
        LANES
    }

    fn adopt(
        &mut self,
        adopted: &Adopted<'_>,
        memory: &[BoundPage<Memory>],
    ) -> Result<CudaExec, BackendError> {
        let step = Step::Instantiate;
        let part = |of: &BoundPage<Memory>| part(&of.page, of.offset, of.bytes, step);
        let parts: Vec<Memory> = memory.iter().map(part).collect::<Result<_, _>>()?;
        let hosts = self.hosts.with(adopted.registry);
        let mut bindings = Bindings::new().hosts(&hosts);
        for (name, function) in &self.kernels {
            // SAFETY: `CudaBackend::kernel` was promised what this asks for.
            bindings = unsafe { bindings.kernel(name, function) };
        }
        let given = memory.iter().zip(&parts);
        let bindings = given.fold(bindings, |all, (bound, part)| all.memory(bound.buffer, part));
        let Adopted { graph, schedule, slots, .. } = *adopted;
        let exec = crate::lower::instantiate(self.cuda.target(), graph, schedule, &bindings);
        let exec = exec.map_err(at(step))?;
        // Slots that nobody names here keep the defaults that the graph has for them.
        let slots = slots.iter().map(|(id, slot)| {
            let known = exec.scalar_slots.get(id.index());
            let unknown = || BackendError::new(step, format_args!("the graph has no {id}"));
            Ok((slot.key(), (*id, known.ok_or_else(unknown)?.value)))
        });
        let slots = slots.collect::<Result<_, BackendError>>()?;
        Ok(CudaExec { exec: shared(exec, adopted.registry.clone()), slots })
    }
}
