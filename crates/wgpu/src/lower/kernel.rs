//! Kernels: generated ones and the user's.

use phonograph_graph::{
    Access, Arg, KernelConfig, KernelNode, KernelRef, LibraryKernel, NodeId, Region, Scalar, View,
};
use phonograph_kernels::wgsl::{self, ENTRY, MAX_GROUPS, Word};

use super::{ARENA, Base, Lowering, Scope};
use crate::bindings::InstantiateError;
use crate::exec::{FAULT_BYTES, FaultNode, Faults, GroupRecipe, Op, Place, Window};
use crate::params::ParamsBuilder;
use crate::pipelines::Writes;
use crate::shader::Shader;

impl Lowering<'_> {
    pub(super) fn kernel(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
    ) -> Result<(), InstantiateError> {
        match &node.kernel {
            KernelRef::Named(name) => self.named(scope, id, node, name),
            _ => self.generated(scope, id, node),
        }
    }

    /// A kernel whose source is generated. Operands in one buffer share a binding.
    pub(super) fn generated(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
    ) -> Result<(), InstantiateError> {
        let views = node.args.iter().filter_map(|arg| match arg {
            Arg::View(view, access) => Some((*view, *access)),
            _ => None,
        });
        let views: Vec<(View, Access)> = views.collect();
        if views.iter().all(|(view, access)| !access.writes() || view.elements() == 0) {
            return Ok(());
        }
        let mut bases: Vec<Base> = Vec::with_capacity(views.len());
        for (view, _) in &views {
            bases.push(self.base(scope, view.buffer).map_err(scope.refused(id))?);
        }
        let mut places: Vec<Place> = Vec::new();
        let bindings: Vec<u32> = bases
            .iter()
            .map(|base| match places.iter().position(|&place| place == base.place) {
                Some(at) => at as u32,
                None => {
                    places.push(base.place);
                    places.len() as u32 - 1
                }
            })
            .collect();
        let kernel = wgsl::kernel(node, &bindings)
            .map_err(|source| InstantiateError::Generate { node: scope.path(id), source })?;
        let mut windows = Vec::with_capacity(places.len() + 1);
        for binding in 0..places.len() as u32 {
            let mine = (0..views.len()).filter(|&at| bindings[at] == binding);
            let regions = mine.map(|at| (bases[at], views[at].0.region()));
            windows.push(self.window(scope, id, &Vec::from_iter(regions))?);
        }
        let mut words = Vec::with_capacity(kernel.words.len());
        let mut slots = Vec::new();
        for (at, word) in kernel.words.iter().enumerate() {
            words.push(match *word {
                Word::Value(value) => value,
                Word::Offset(operand) => {
                    let (view, base) = (&views[operand].0, &bases[operand]);
                    let byte = base.offset + view.offset - windows[bindings[operand] as usize].offset;
                    let size = view.dtype.size();
                    if !byte.is_multiple_of(size) {
                        let reason = format!(
                            "operand {operand} lies at byte {byte} of its pool, where no {} can lie; declare its buffer with an alignment of {size}",
                            view.dtype
                        );
                        return Err(scope.unsupported(id, reason));
                    }
                    u32::try_from(byte / size).map_err(|_| {
                        let reason = format!("operand {operand} lies past what 32 bits count");
                        scope.unsupported(id, reason)
                    })?
                }
                Word::Scalar(argument, _) => match node.args[argument] {
                    Arg::Scalar(value) => value.to_bits() as u32,
                    Arg::Slot(slot) => {
                        let slot = scope.slots[slot.index()];
                        slots.push((slot, at));
                        self.scalar_slots[slot.index()].value.to_bits() as u32
                    }
                    _ => unreachable!("scalars are scalar arguments"),
                },
                Word::Node => self.fault_number(scope, id, node, &views)?,
            });
        }
        let mut writes = kernel.writes;
        if kernel.notes_faults {
            writes.push(true);
            let record =
                self.faults.as_ref().expect("a kernel that notes faults has a number").record;
            windows.push(Window { place: record, offset: 0, bytes: FAULT_BYTES });
        }
        let groups = [kernel.groups, 1, 1];
        let work = Work { writes: writes.into(), windows, words, slots, groups };
        self.dispatch(scope, id, work, &kernel.source, ENTRY)
    }

    /// A kernel of the user's. Every operand has a binding of its own.
    fn named(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
        name: &str,
    ) -> Result<(), InstantiateError> {
        let Some(&shader) = self.bindings.kernels.get(name) else {
            return Err(InstantiateError::Unbound { node: scope.path(id), name: name.to_owned() });
        };
        let most = u64::from(self.gpu.limits.max_compute_workgroup_storage_size);
        let groups = groups(&node.config, shader, most).map_err(|r| scope.unsupported(id, r))?;
        let (mut writes, mut windows, mut words, mut slots) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, arg) in node.args.iter().enumerate() {
            let value = match *arg {
                Arg::View(view, access) => {
                    writes.push(access.writes());
                    windows.push(self.operand(scope, id, at, view.region())?);
                    continue;
                }
                Arg::Region(region, access) => {
                    writes.push(access.writes());
                    windows.push(self.operand(scope, id, at, region)?);
                    continue;
                }
                Arg::Scalar(value) => value,
                Arg::Slot(slot) => {
                    let slot = scope.slots[slot.index()];
                    slots.push((slot, words.len()));
                    self.scalar_slots[slot.index()].value
                }
            };
            if !matches!(value, Scalar::F32(_) | Scalar::I32(_) | Scalar::U32(_)) {
                let reason = format!(
                    "argument {at} is a scalar of type {}; a uniform structure has f32, i32 and u32",
                    value.dtype()
                );
                return Err(scope.unsupported(id, reason));
            }
            words.push(value.to_bits() as u32);
        }
        if let Some((a, b)) = mixed(&writes, &windows) {
            let reason = format!(
                "memory operands {a} and {b} lie in one buffer, which wgpu does not let a dispatch read through one binding and write through another; pass one operand that is read and written, or use two buffers"
            );
            return Err(scope.unsupported(id, reason));
        }
        words.resize(words.len().next_multiple_of(4).max(4), 0);
        if groups.contains(&0) {
            return Ok(());
        }
        let work = Work { writes: writes.into(), windows, words, slots, groups };
        self.dispatch(scope, id, work, &shader.source.clone(), &shader.entry.clone())
    }

    /// The binding of a user kernel's operand.
    fn operand(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        argument: usize,
        region: Region,
    ) -> Result<Window, InstantiateError> {
        let base = self.base(scope, region.buffer).map_err(scope.refused(id))?;
        let offset = base.offset + region.offset;
        let align = u64::from(self.gpu.limits.min_storage_buffer_offset_alignment);
        if !offset.is_multiple_of(align) {
            let reason = format!(
                "argument {argument} starts at byte {offset} of its buffer; this device binds memory at multiples of {align} bytes"
            );
            return Err(scope.unsupported(id, reason));
        }
        let bytes = region.bytes.next_multiple_of(4).max(4).min(base.bytes - offset);
        let window = Window { place: base.place, offset, bytes };
        self.check_size(scope, id, window)
    }

    /// The part of a buffer that holds all of some operands: all of it, if the device can bind so much.
    fn window(
        &self,
        scope: &Scope<'_>,
        id: NodeId,
        operands: &[(Base, Region)],
    ) -> Result<Window, InstantiateError> {
        let base = operands[0].0;
        if base.bytes <= self.gpu.limits.max_storage_buffer_binding_size {
            return Ok(Window { place: base.place, offset: 0, bytes: base.bytes });
        }
        let align = u64::from(self.gpu.limits.min_storage_buffer_offset_alignment);
        let starts = operands.iter().map(|(base, region)| base.offset + region.offset);
        let ends = operands.iter().map(|(base, region)| base.offset + region.end());
        let start = starts.min().map_or(0, |start| start - start % align);
        let end = ends.max().unwrap_or(0).next_multiple_of(4);
        let bytes = (end - start).max(4);
        self.check_size(scope, id, Window { place: base.place, offset: start, bytes })
    }

    fn check_size(
        &self,
        scope: &Scope<'_>,
        id: NodeId,
        window: Window,
    ) -> Result<Window, InstantiateError> {
        let most = self.gpu.limits.max_storage_buffer_binding_size;
        if window.bytes > most {
            let bytes = window.bytes;
            let reason =
                format!("its operands in one buffer span {bytes} bytes; this device binds {most}");
            return Err(scope.unsupported(id, reason));
        }
        Ok(window)
    }

    /// The number under which a node notes that a row is out of range.
    fn fault_number(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
        views: &[(View, Access)],
    ) -> Result<u32, InstantiateError> {
        if self.faults.is_none() {
            let record = self.gpu.buffer(FAULT_BYTES, ARENA).map_err(scope.refused(id))?;
            let record = self.fixed(record).place;
            self.faults = Some(Faults { record, nodes: Vec::new() });
        }
        let faults = self.faults.as_mut().expect("made above");
        let table = match node.kernel {
            KernelRef::Library(LibraryKernel::ScatterAdd) => 2,
            _ => 0,
        };
        let rows = views[table].0.shape().extents()[0];
        let signed = views[1].0.dtype == phonograph_graph::DType::I32;
        faults.nodes.push(FaultNode { path: scope.path(id), rows, signed });
        Ok(faults.nodes.len() as u32 - 1)
    }

    fn dispatch(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        work: Work,
        source: &str,
        entry: &str,
    ) -> Result<(), InstantiateError> {
        let most = self.gpu.limits.max_storage_buffers_per_shader_stage;
        if work.windows.len() as u64 > u64::from(most) {
            let count = work.windows.len();
            let reason = format!(
                "its operands lie in {count} buffers; this device binds {most} to a kernel"
            );
            return Err(scope.unsupported(id, reason));
        }
        let gpu = self.gpu;
        let layout = self.pipelines.layout(gpu, &work.writes).map_err(scope.refused(id))?;
        let pipeline = self.pipelines.pipeline(gpu, &work.writes, source, entry);
        let pipeline = self.pipeline_id(pipeline.map_err(scope.refused(id))?);
        let entries = work.windows.into();
        let group = self.group_id(GroupRecipe { layout: layout.storage, entries });
        let block = self.params.block(&work.words, !work.slots.is_empty()).ok_or_else(|| {
            scope.unsupported(id, "the graph's uniform blocks take more than 4 GiB")
        })?;
        for (slot, at) in work.slots {
            self.scalar_slots[slot.index()].uses.push(ParamsBuilder::word(block, at));
        }
        let op = Op { pipeline, group, block, groups: work.groups, enabled: true };
        self.op(op, scope.path(id));
        Ok(())
    }
}

/// A dispatch to be.
struct Work {
    writes: Writes,
    windows: Vec<Window>,
    words: Vec<u32>,
    /// Slots of the outermost graph, and the words that have their values.
    slots: Vec<(phonograph_graph::SlotId, usize)>,
    groups: [u32; 3],
}

/// The workgroups that a launch asks for, or why the shader cannot be launched so. `most` is how many bytes of workgroup memory
/// the device has.
fn groups(config: &KernelConfig, shader: &Shader, most: u64) -> Result<[u32; 3], String> {
    if !config.is_known() {
        return Err("its launch configuration is not known".to_owned());
    }
    if config.cooperative || config.cluster != (1, 1, 1) || config.shared_mem_bytes > 0 {
        let what = "no cooperative launch, no clusters and no dynamic shared memory";
        return Err(format!("WGSL knows {what}"));
    }
    let (groups, block) = (<[u32; 3]>::from(config.grid), <[u32; 3]>::from(config.block));
    let Shader { workgroup, shared, .. } = shader;
    if block != *workgroup {
        return Err(format!("its block is {block:?}, the shader's workgroup size {workgroup:?}"));
    }
    // wgpu does not look at this, and a driver that is asked for more may lose the device.
    if *shared > most {
        return Err(format!(
            "its variables take {shared} bytes of workgroup memory; this device has {most}"
        ));
    }
    if groups.iter().any(|&groups| groups > MAX_GROUPS) {
        return Err(format!("its grid has more than {MAX_GROUPS} blocks along one axis"));
    }
    Ok(groups)
}

/// Two operands in one buffer of which only one is written, or which share bytes and are written.
fn mixed(writes: &[bool], windows: &[Window]) -> Option<(usize, usize)> {
    let meet =
        |a: &Window, b: &Window| a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
    (0..windows.len()).find_map(|b| {
        let clash = (0..b).find(|&a| {
            let together = windows[a].place == windows[b].place;
            together && (writes[a] != writes[b] || writes[b] && meet(&windows[a], &windows[b]))
        });
        Some((clash?, b))
    })
}
