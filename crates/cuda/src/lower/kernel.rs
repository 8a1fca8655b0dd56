//! Kernels: which function, with which parameters, launched how.

use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue};
use phonograph_graph::{
    Arg, BufferId, Expr, FusedKernel, KernelConfig, KernelNode, KernelRef, LibraryKernel, NodeId,
    View,
};
use phonograph_kernels::cuda::{self, CudaKernel, FAULT_WORDS, Param, Place};
use smallvec::{SmallVec, smallvec};

use super::Lowering;
use super::bases::Base;
use super::product::is_product;
use super::scope::Scope;
use crate::bindings::InstantiateError;
use crate::cuda::CompileError;
use crate::device::{Device, zeroed};
use crate::error::call;
use crate::exec::Faults;
use crate::graph::{Dependencies, add_kernel};
use crate::launch::{Launch, Pointers, Values};
use crate::memory::Memory;
use crate::module::Function;
use crate::slots::{Use, Work};

/// The launch attributes that are not in a kernel's parameters.
#[derive(PartialEq, Eq)]
struct Attributes {
    cluster: (u32, u32, u32),
    cooperative: bool,
    priority: i32,
}

impl Attributes {
    const NONE: Self = Self { cluster: (1, 1, 1), cooperative: false, priority: 0 };

    fn of(config: &KernelConfig) -> Self {
        let KernelConfig { cluster, cooperative, priority, .. } = *config;
        Self { cluster, cooperative, priority }
    }
}

/// A kernel that is bound by name.
pub(super) struct Named {
    function: Function,
    parameter_sizes: Vec<usize>,
    max_threads: u32,
}

/// All that decides how a generated kernel is launched, but for where its operands lie.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Shape {
    device: u32,
    weak_edges: bool,
    code: Code,
    args: SmallVec<[ArgShape; 4]>,
}

/// Code by what it is: operations that are recorded one by one have an expression each, of the same contents.
#[derive(PartialEq, Eq, Hash)]
enum Code {
    Library(LibraryKernel),
    Elementwise(Arc<Expr>),
    Fused(Arc<FusedKernel>),
}

/// An argument, of a view all but its place; whether it is indirect, and whether a view is known to be aligned.
#[derive(PartialEq, Eq, Hash)]
enum ArgShape {
    View(View, bool, bool),
    Scalar(bool),
}

impl Shape {
    fn of(
        node: &KernelNode,
        device: &Device,
        weak_edges: bool,
        indirect: &dyn Fn(usize) -> bool,
        aligned: &dyn Fn(usize) -> bool,
    ) -> Self {
        let code = match &node.kernel {
            KernelRef::Elementwise(expr) => Code::Elementwise(expr.clone()),
            KernelRef::Fused(fused) => Code::Fused(fused.clone()),
            KernelRef::Library(library) => Code::Library(*library),
            KernelRef::Named(_) => unreachable!("a kernel by name is not generated"),
        };
        let args = node.args.iter().enumerate().map(|(at, arg)| match arg {
            Arg::View(view, _) => {
                let mut placeless = *view;
                (placeless.buffer, placeless.offset) = (BufferId(0), 0);
                ArgShape::View(placeless, indirect(at), aligned(at))
            }
            _ => ArgShape::Scalar(indirect(at)),
        });
        Self { device: device.ordinal(), weak_edges, code, args: args.collect() }
    }
}

/// A generated kernel, compiled, with its launch and parameters.
pub(super) struct Recipe {
    function: Function,
    blocks: u32,
    threads: u32,
    params: Vec<Param>,
}

impl Lowering<'_> {
    pub(super) fn kernel(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        match &node.kernel {
            KernelRef::Named(name) => self.named(scope, id, name, node, after),
            KernelRef::Elementwise(_) | KernelRef::Library(_) | KernelRef::Fused(_) => {
                if is_product(&node.kernel)
                    && let Some(nodes) = self.product(scope, id, node, after)?
                {
                    return Ok(nodes);
                }
                self.generated(scope, id, node, after)
            }
        }
    }

    fn named(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        name: &Arc<str>,
        node: &KernelNode,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let kernel = self.bound(scope, id, name)?;
        let Named { function, parameter_sizes, max_threads } = &*kernel;
        let config = &node.config;
        if !config.is_known() {
            return Err(scope.unsupported(id, "the launch configuration is not known"));
        }
        let wrong = |problem: String| InstantiateError::Arguments { node: scope.path(id), problem };
        if parameter_sizes.len() != node.args.len() {
            let (wants, given) = (parameter_sizes.len(), node.args.len());
            return Err(wrong(format!(
                "`{name}` has {wants} parameters, the node {given} arguments"
            )));
        }
        let mut values = Values::default();
        for (index, (arg, size)) in node.args.iter().zip(parameter_sizes).enumerate() {
            let (value, given) = match *arg {
                Arg::View(view, _) => (self.view(scope, id, index, &view)?, 8),
                Arg::Region(region, _) => {
                    (self.address(scope, index, region.buffer, region.offset), 8)
                }
                Arg::Scalar(scalar) => (scalar.to_bits(), scalar.dtype().size()),
                Arg::Slot(slot) => {
                    let dtype = scope.graph.slot(slot).dtype();
                    (self.slot(scope, index, slot), dtype.size())
                }
            };
            if given != *size as u64 {
                let problem =
                    format!("parameter {index} of `{name}` has {size} bytes, the argument {given}");
                return Err(wrong(problem));
            }
            values.push(value);
        }
        if config.threads() > u64::from(*max_threads) {
            let threads = config.threads();
            return Err(wrong(format!(
                "blocks of {threads} threads; `{name}` can have {max_threads} on this device"
            )));
        }
        let shared_bytes = config.shared_mem_bytes;
        function.allow_shared_bytes(shared_bytes).map_err(scope.refused(id))?;
        let (handle, grid, block) = (function.handle(), config.grid, config.block);
        let launch = Launch { function: handle, grid, block, shared_bytes, values };
        self.launch(scope, id, function, &launch, Attributes::of(config), after)
    }

    fn bound(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        name: &Arc<str>,
    ) -> Result<Arc<Named>, InstantiateError> {
        if let Some(known) = self.held.named.get(name) {
            return Ok(known.clone());
        }
        let unbound = || InstantiateError::Unbound { node: scope.path(id), name: name.to_string() };
        let function = (*self.bindings.kernels.get(&**name).ok_or_else(unbound)?).clone();
        if !self.target.devices.iter().any(|device| device.is(function.device())) {
            let problem = format!("`{name}` is loaded on a device that is not open here");
            return Err(InstantiateError::Arguments { node: scope.path(id), problem });
        }
        let parameter_sizes = function.parameter_sizes().map_err(scope.refused(id))?;
        let max_threads = function.max_threads().map_err(scope.refused(id))?;
        let named = Arc::new(Named { function, parameter_sizes, max_threads });
        self.held.named.insert(name.clone(), named.clone());
        Ok(named)
    }

    fn generated(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let recipe = self.recipe(scope, id, node)?;
        let mut views = node.args.iter().filter_map(Arg::view);
        let mut values = Values::default();
        for (index, param) in recipe.params.iter().enumerate() {
            values.push(match param {
                Param::Words(words) => {
                    values.push_words(words);
                    continue;
                }
                Param::View(_) => {
                    let view = views.next().expect("a parameter for each view, in order");
                    match scope.bases[view.buffer.index()] {
                        Base::Slot(slot) => {
                            self.check_aligned(scope, id, view)?;
                            self.need_words(scope, id)?;
                            self.held.words.pointer(&mut self.pointer_slots, slot, view.offset)
                        }
                        _ => self.view(scope, id, index, view)?,
                    }
                }
                Param::Scalar(at, _) => match node.args[*at] {
                    Arg::Scalar(scalar) => scalar.to_bits(),
                    Arg::Slot(slot) => {
                        self.need_words(scope, id)?;
                        let slot = scope.slots[slot.index()];
                        self.held.words.scalar(&mut self.held.scalar_slots[slot.index()])
                    }
                    Arg::View(..) | Arg::Region(..) => {
                        unreachable!("a scalar parameter is a scalar argument")
                    }
                },
                Param::Scratch(bytes) => {
                    let device = recipe.function.device();
                    let memory = Memory::on_device(self.target.owner, device, *bytes)?;
                    let address = memory.address();
                    self.held.arenas.push(memory);
                    address
                }
                Param::FaultLock => self.held.faults.as_ref().map_or(0, |f| f.lock.address()),
                Param::FaultRecord => self.held.faults.as_ref().map_or(0, |f| f.record.address()),
            });
        }
        let function = &recipe.function;
        let (grid, block) = ((recipe.blocks, 1, 1), (recipe.threads, 1, 1));
        let launch = Launch { function: function.handle(), grid, block, shared_bytes: 0, values };
        let priority = node.config.priority;
        let attributes = Attributes { priority, ..Attributes::NONE };
        self.launch(scope, id, function, &launch, attributes, after)
    }

    /// How a generated kernel is launched: as an earlier node of the same shape, or found out.
    fn recipe(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
    ) -> Result<Rc<Recipe>, InstantiateError> {
        let indirect = |at: usize| match &node.args[at] {
            Arg::Slot(_) => true,
            Arg::View(view, _) => matches!(scope.bases[view.buffer.index()], Base::Slot(_)),
            Arg::Scalar(_) | Arg::Region(..) => false,
        };
        let aligned = |at: usize| match &node.args[at] {
            Arg::View(view, _) => match scope.bases[view.buffer.index()] {
                Base::Address(address) => (address + view.offset).is_multiple_of(16),
                Base::Slot(_) | Base::None => false,
            },
            _ => false,
        };
        let views = node.args.iter().filter_map(Arg::view);
        // Results are written where the last operand lies.
        let device = match views.clone().next_back() {
            Some(View { buffer, .. }) => self.device_of(*buffer, scope.graph.buffer(*buffer))?,
            None => &self.target.devices[0],
        };
        let rows = match node.kernel {
            KernelRef::Library(LibraryKernel::Gather) => views.clone().next(),
            KernelRef::Library(LibraryKernel::ScatterAdd) => views.clone().nth(2),
            _ => None,
        };
        // Those with a number for their faults are each of their own; an offset that is wrong is for the generator to name.
        let whole = views.clone().all(|view| view.offset.is_multiple_of(view.dtype.size()));
        let weak_edges = scope.has_weak_edges(id);
        let shape = (rows.is_none() && whole)
            .then(|| Shape::of(node, device, weak_edges, &indirect, &aligned));
        if let Some(known) = shape.as_ref().and_then(|shape| self.recipes.get(shape)) {
            return Ok(known.clone());
        }
        let number = self.held.faults.as_ref().map_or(0, |faults| faults.nodes.len() as u32);
        let kernel = cuda::kernel_in(
            node,
            &Place { number, weak_edges, indirect: &indirect, aligned: &aligned },
        )
        .map_err(|source| InstantiateError::Generate { node: scope.path(id), source })?;
        if let Some(table) = rows {
            let faults = match &mut self.held.faults {
                Some(faults) => faults,
                None => {
                    let (owner, device) = (self.target.owner, &self.target.devices[0]);
                    let record = Memory::on_host(owner, device, FAULT_WORDS as u64 * 8)?;
                    let lock = Memory::on_device(owner, device, 4)?;
                    self.held.faults.insert(Faults { lock, record, nodes: Vec::new() })
                }
            };
            faults.nodes.push((scope.path(id), table.shape().extents()[0]));
        }
        let function = self.compiled(scope, id, device, &kernel.source)?;
        let CudaKernel { blocks, threads, params, .. } = kernel;
        let recipe = Rc::new(Recipe { function, blocks, threads, params });
        if let Some(shape) = shape {
            self.recipes.insert(shape, recipe.clone());
        }
        Ok(recipe)
    }

    /// The function of a generated source, compiled or found.
    pub(super) fn compiled(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        device: &Device,
        source: &str,
    ) -> Result<Function, InstantiateError> {
        let name = scope.graph.node(id).name.clone();
        let driver = self.target.driver;
        self.target.kernels.function(driver, device, &name, source).map_err(|problem| {
            let node = scope.path(id);
            match problem {
                CompileError::Compile(source) => InstantiateError::Compile { node, source },
                CompileError::Load(source) => InstantiateError::Load { node, source },
            }
        })
    }

    /// The address of a view's first element, as parameter `index` of the operation that comes next.
    pub(super) fn view(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        index: usize,
        view: &View,
    ) -> Result<u64, InstantiateError> {
        self.check_aligned(scope, id, view)?;
        Ok(self.address(scope, index, view.buffer, view.offset))
    }

    /// An element that is not aligned would end the process's use of the device.
    pub(super) fn check_aligned(
        &self,
        scope: &Scope<'_>,
        id: NodeId,
        view: &View,
    ) -> Result<(), InstantiateError> {
        let address = self.resolve(scope, view.buffer).0 + view.offset;
        if !address.is_multiple_of(view.dtype.size()) && view.elements() > 0 {
            let (dtype, buffer) = (view.dtype, view.buffer);
            let reason = format!("an element of type {dtype} of {buffer} is not aligned");
            return Err(scope.unsupported(id, reason));
        }
        Ok(())
    }

    fn address(&mut self, scope: &Scope<'_>, index: usize, buffer: BufferId, offset: u64) -> u64 {
        let (base, slot) = self.resolve(scope, buffer);
        let op = self.next_op();
        self.note(slot, Use::Parameter(op, index, offset));
        base + offset
    }

    fn slot(&mut self, scope: &Scope<'_>, index: usize, slot: phonograph_graph::SlotId) -> u64 {
        let op = self.next_op();
        let slot = &mut self.held.scalar_slots[scope.slots[slot.index()].index()];
        slot.uses.push((op, index));
        self.changeable = true;
        slot.value.to_bits()
    }

    fn launch(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        function: &Function,
        launch: &Launch,
        attributes: Attributes,
        after: &Dependencies,
    ) -> Result<SmallVec<[CUgraphNode; 1]>, InstantiateError> {
        let capability = function.device().capability();
        if attributes.cluster != (1, 1, 1) && capability < (9, 0) {
            let reason =
                "it launches in clusters, which devices before compute capability 9.0 do not have";
            return Err(scope.unsupported(id, reason));
        }
        self.check_body(scope, id, function.device().ordinal())?;
        let node = self.kernel_node(scope, scope.driver, id, function, launch, after)?;
        let set = |which, value: CUlaunchAttributeValue| {
            // SAFETY: the node was just added, and the value is of the kind that the attribute has.
            unsafe { call!(cuGraphKernelNodeSetAttribute(node, which, &value)) }
                .map_err(scope.refused(id))
        };
        if attributes.cluster != (1, 1, 1) {
            let mut value = zeroed::<CUlaunchAttributeValue>();
            let (x, y, z) = attributes.cluster;
            value.clusterDim =
                cudarc::driver::sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            set(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value)?;
        }
        if attributes.cooperative {
            let mut value = zeroed::<CUlaunchAttributeValue>();
            value.cooperative = 1;
            set(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value)?;
        }
        if attributes.priority != 0 {
            let mut value = zeroed::<CUlaunchAttributeValue>();
            value.priority = attributes.priority;
            set(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, value)?;
            self.held.has_priorities = true;
        }
        Ok(smallvec![node])
    }

    /// Whether a kernel becomes one node without attributes, which can be noted.
    pub(super) fn is_plain(
        &self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
    ) -> Result<bool, InstantiateError> {
        Ok(match &node.kernel {
            KernelRef::Named(name) => {
                Attributes::of(&node.config) == Attributes::NONE && self.raw_graph(name).is_none()
            }
            kernel => {
                let by_cublas = is_product(kernel) && self.for_cublas(scope, id, node)?.is_ok();
                node.config.priority == 0 && !by_cublas
            }
        })
    }

    /// Adds to `graph` a kernel node without attributes, for a node of `scope`.
    pub(super) fn kernel_node(
        &mut self,
        scope: &Scope<'_>,
        graph: CUgraph,
        id: NodeId,
        function: &Function,
        launch: &Launch,
        after: &Dependencies,
    ) -> Result<CUgraphNode, InstantiateError> {
        let device = function.device();
        // The first device's context is current while a graph is lowered.
        let elsewhere = (!device.is(&self.target.devices[0])).then_some(device);
        let changes = self.changeable;
        let node = match self.noted(scope, graph) {
            Some(made) => Ok(made.kernel(after, launch, changes, elsewhere)),
            None => {
                let _current = elsewhere.map(Device::enter).transpose()?;
                let mut pointers = Pointers::new();
                // SAFETY: the parameters point to as many values as the function has parameters, each at least as long, and
                // the driver copies them; the `Exec` keeps the function.
                unsafe { add_kernel(graph, after, &launch.params(&mut pointers)) }
            }
        };
        let node = node.map_err(scope.refused(id))?;
        self.held.functions.entry(function.handle()).or_insert_with(|| function.clone());
        self.added(node, || Work::Kernel(launch.clone()));
        Ok(node)
    }
}
