//! Operations: work that is complete with its buffers, checked once when it is made.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use phonograph_graph::{
    Access, Arg, Buffer as Declared, BufferId, BufferRole, ComputeGraph, DEFAULT_ALIGN,
    GraphBuilder, NodeId, NodeKind, Pitched, Region, SlotId, Space, Target,
};
use smallvec::SmallVec;

use super::handle::{Buffer, BufferKey, Slot};
use super::template::{Template, TemplateKey, Use, fingerprint};
use crate::capture::CaptureError;

/// A piece of work that is complete with its buffers: it runs at once, or becomes a node of a graph.
///
/// ```
/// use phonograph_graph::{Access, Arg, BufferId, DType, Expr, KernelConfig, KernelNode, KernelRef, NodeKind, View};
/// use phonograph_runtime::cpu::{Cpu, kernels::Registry};
/// use phonograph_runtime::streams::{Device, Operation, SoftwareCpu};
///
/// let device = Device::new(SoftwareCpu::new(Cpu::new(1)?, Registry::new()), 4)?;
/// let stream = device.stream();
/// let x = stream.alloc("x", 16)?;
/// stream.write(&x, &[0; 16])?;
/// // Buffer 0 of the operation is the first of its buffers, here x.
/// let view = View::contiguous(BufferId(0), DType::F32, &[4])?;
/// let kernel = KernelNode {
///     kernel: KernelRef::Elementwise(Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?.into()),
///     config: KernelConfig::linear(1, 1, 0),
///     args: [Arg::View(view, Access::Read), Arg::View(view, Access::Write)].into(),
///     fusible: true,
/// };
/// stream.submit(&Operation::new("add one", NodeKind::Kernel(kernel), &[x.clone()])?)?;
/// assert_eq!(stream.read(&x)?, [1.0f32; 4].map(f32::to_le_bytes).as_flattened());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Operation {
    template: Arc<Template>,
    buffers: SmallVec<[Buffer; 4]>,
}

impl Operation {
    /// An operation whose buffer number `n`, as `kind` has it, is `buffers[n]`.
    ///
    /// It touches nothing but its buffers; where the kind does not tell how, it is taken to read and write them all.
    /// Graphs inside it (of a child, or the bodies of a conditional) name its buffers as those around them.
    ///
    /// # Errors
    /// [`CaptureError::Operation`] for a kind that allocates, frees, or uses events, that names memory by address, or that
    /// would not do as a node: a buffer or slot that is not there, a region out of bounds, operands that a kernel does not
    /// take.
    pub fn new(name: &str, kind: NodeKind, buffers: &[Buffer]) -> Result<Self, CaptureError> {
        Self::with_slots(name, kind, buffers, &[])
    }

    /// As [`new`](Self::new), with scalars that can be set before each replay of a graph that records it. Slot number `n`,
    /// as `kind` has it, is `slots[n]`. Run at once, they have their defaults.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_slots(
        name: &str,
        kind: NodeKind,
        buffers: &[Buffer],
        slots: &[Slot],
    ) -> Result<Self, CaptureError> {
        let wrong = |problem: String| CaptureError::Operation { operation: name.into(), problem };
        let mut once = SmallVec::<[Buffer; 4]>::new();
        let given: SmallVec<[usize; 4]> = buffers
            .iter()
            .map(|buffer| {
                let known = once.iter().position(|other| other.key() == buffer.key());
                known.unwrap_or_else(|| {
                    once.push(buffer.clone());
                    once.len() - 1
                })
            })
            .collect();
        let sizes: SmallVec<[u64; 4]> = once.iter().map(Buffer::bytes).collect();
        // Where one buffer is two operands, they are numbered anew below, so the kind is not the one that is kept.
        let known = once.first().map(Buffer::templates).filter(|_| given.len() == once.len());
        let known = known.and_then(|known| Some((known, fingerprint(&kind, &sizes, slots)?)));
        if let Some((known, print)) = known
            && let Some(template) = known.find(print, name, &kind, &sizes, slots)
        {
            return Ok(Self { template, buffers: once });
        }
        let number = |id: BufferId| given.get(id.index()).map(|&at| BufferId::from_index(at));
        let slot = |id: SlotId| (id.index() < slots.len()).then_some(id);
        let kind = remap(&kind, &number, &slot).map_err(wrong)?;
        let graph = alone(name, &kind, &once, slots).map_err(wrong)?;
        let effects = graph.effects(NodeId(0));
        let uses = match effects.known() {
            Some(regions) => uses(&once, regions),
            None => vec![Use { reads: true, writes: true, whole: false }; once.len()],
        };
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let template = Arc::new(Template {
            key: TemplateKey(NEXT.fetch_add(1, Ordering::Relaxed)),
            name: name.into(),
            kind,
            uses: uses.into(),
            slots: slots.into(),
            sizes,
            given,
        });
        if let Some((known, print)) = known {
            known.keep(print, &template);
        }
        Ok(Self { template, buffers: once })
    }

    /// The same work on other buffers: what has been checked and prepared for it serves these too. O(buffers).
    ///
    /// # Errors
    /// [`CaptureError::Operation`] unless there are as many, of the same sizes, and the same among them are the same.
    ///
    /// ```
    /// # use phonograph_graph::{BufferId, Extent, MemsetNode, NodeKind, Pitched, Target};
    /// # use phonograph_runtime::cpu::{Cpu, kernels::Registry};
    /// # use phonograph_runtime::streams::{Device, Operation, SoftwareCpu};
    /// # let device = Device::new(SoftwareCpu::new(Cpu::new(1)?, Registry::new()), 4)?;
    /// # let stream = device.stream();
    /// # let dst = Pitched::linear(Target::Buffer(BufferId(0)), 0);
    /// # let fill = MemsetNode { dst, value: 7, element_size: 1, extent: Extent::linear(4) };
    /// let [x, y] = ["x", "y"].map(|name| stream.alloc(name, 4)); // `fill` writes four bytes
    /// let (x, y) = (x?, y?);
    /// let fill_x = Operation::new("fill", NodeKind::Memset(Box::new(fill)), &[x])?;
    /// stream.submit(&fill_x.on(&[y.clone()])?)?;
    /// assert_eq!(stream.read(&y)?, [7; 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on(&self, buffers: &[Buffer]) -> Result<Self, CaptureError> {
        let template = &self.template;
        let wrong = |problem: String| CaptureError::Operation {
            operation: template.name.to_string(),
            problem,
        };
        if buffers.len() != template.given.len() {
            let (takes, given) = (template.given.len(), buffers.len());
            return Err(wrong(format!("it takes {takes} buffers, not {given}")));
        }
        let mut once = SmallVec::<[Buffer; 4]>::new();
        for (buffer, &at) in buffers.iter().zip(&template.given) {
            let known = once.iter().position(|other| other.key() == buffer.key());
            if known.unwrap_or(once.len()) != at {
                let name = buffer.name();
                return Err(wrong(format!(
                    "{name} is given where it was not the same, or not another"
                )));
            }
            if template.sizes[at] != buffer.bytes() {
                let (name, bytes, takes) = (buffer.name(), buffer.bytes(), template.sizes[at]);
                return Err(wrong(format!("{name} has {bytes} bytes; it takes {takes}")));
            }
            if known.is_none() {
                once.push(buffer.clone());
            }
        }
        Ok(Self { template: template.clone(), buffers: once })
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        &self.template.name
    }

    /// What it does; buffer `n` is the `n`th of its [`buffers`](Self::buffers).
    pub fn kind(&self) -> &NodeKind {
        &self.template.kind
    }

    /// Its buffers, each once.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Its slots.
    pub fn slots(&self) -> &[Slot] {
        &self.template.slots
    }

    pub(super) fn template(&self) -> TemplateKey {
        self.template.key
    }

    pub(super) fn uses(&self) -> impl Iterator<Item = (&Buffer, Use)> {
        self.buffers.iter().zip(self.template.uses.iter().copied())
    }

    pub(super) fn written(&self) -> impl Iterator<Item = BufferKey> {
        self.uses().filter(|(_, used)| used.writes).map(|(buffer, _)| buffer.key())
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({} on {:?})", self.template.name, self.buffers)
    }
}

/// The graph of one operation, its buffers external.
fn alone(
    name: &str,
    kind: &NodeKind,
    buffers: &[Buffer],
    slots: &[Slot],
) -> Result<ComputeGraph, String> {
    let mut builder = GraphBuilder::new();
    for buffer in buffers {
        builder.declare(external(buffer.name(), buffer.bytes(), Space::Unknown));
    }
    for slot in slots {
        builder.slot(&slot.unique_name(), slot.default_value());
    }
    builder.add(name, kind.clone());
    builder.build().map_err(|e| e.to_string())
}

/// How a buffer of a device is declared in a graph that works on it.
pub fn external(name: &str, bytes: u64, space: Space) -> Declared {
    let role = BufferRole::External;
    Declared { name: name.into(), bytes, align: DEFAULT_ALIGN, role, space }
}

fn uses(buffers: &[Buffer], regions: &[(Region, Access)]) -> Vec<Use> {
    let mut uses = vec![Use::default(); buffers.len()];
    for (region, access) in regions {
        let at = region.buffer.index();
        uses[at].add(*access, region.bytes == buffers[at].bytes());
    }
    uses
}

/// `kind` with every buffer and slot replaced by what the maps say.
///
/// # Errors
/// What is wrong with a kind that cannot be on a shared stream.
pub fn remap(
    kind: &NodeKind,
    buffers: &impl Fn(BufferId) -> Option<BufferId>,
    slots: &impl Fn(SlotId) -> Option<SlotId>,
) -> Result<NodeKind, String> {
    let buffer =
        |id| buffers(id).ok_or_else(|| "it names a buffer that it was not given".to_owned());
    let region =
        |region: Region| Ok::<_, String>(Region { buffer: buffer(region.buffer)?, ..region });
    let pitched = |end: Pitched| match end.target {
        Target::Buffer(id) => Ok(Pitched { target: Target::Buffer(buffer(id)?), ..end }),
        _ => Err("it names memory that is no buffer of this device".to_owned()),
    };
    let slot = |id| slots(id).ok_or_else(|| "it names a slot that it was not given".to_owned());
    let inner = |graph: &ComputeGraph| around(graph, &buffer, &slot);
    Ok(match kind {
        NodeKind::Kernel(kernel) => {
            let args = kernel.args.iter().map(|arg| {
                Ok(match *arg {
                    Arg::Scalar(_) => *arg,
                    Arg::Slot(id) => Arg::Slot(slot(id)?),
                    Arg::View(mut view, access) => {
                        view.buffer = buffer(view.buffer)?;
                        Arg::View(view, access)
                    }
                    Arg::Region(bytes, access) => Arg::Region(region(bytes)?, access),
                })
            });
            let args = args.collect::<Result<_, String>>()?;
            let mut kernel = kernel.clone();
            kernel.args = args;
            NodeKind::Kernel(kernel)
        }
        NodeKind::Memcpy(copy) => {
            let mut copy = copy.clone();
            (copy.src, copy.dst) = (pitched(copy.src)?, pitched(copy.dst)?);
            NodeKind::Memcpy(copy)
        }
        NodeKind::Memset(fill) => {
            let mut fill = fill.clone();
            fill.dst = pitched(fill.dst)?;
            NodeKind::Memset(fill)
        }
        NodeKind::Host(host) => {
            let mut host = host.clone();
            for (bytes, _) in &mut host.effects {
                *bytes = region(*bytes)?;
            }
            NodeKind::Host(host)
        }
        NodeKind::Empty => NodeKind::Empty,
        NodeKind::Child(graph) => NodeKind::Child(inner(graph)?.into()),
        NodeKind::Conditional(conditional) => {
            let mut conditional = conditional.clone();
            if let phonograph_graph::Condition::Value(view) = &mut conditional.condition {
                view.buffer = buffer(view.buffer)?;
            }
            for body in &mut conditional.bodies {
                *body = inner(body)?;
            }
            NodeKind::Conditional(conditional)
        }
        NodeKind::Alloc(_) | NodeKind::Free(_) => {
            return Err("it allocates or frees; memory comes from the stream".into());
        }
        NodeKind::EventRecord(_) | NodeKind::EventWait(_) => {
            return Err("events of other graphs mean nothing on a shared stream".into());
        }
    })
}

/// A graph inside an operation, with the buffers and slots of the graph around it numbered anew.
fn around(
    graph: &ComputeGraph,
    buffer: &impl Fn(BufferId) -> Result<BufferId, String>,
    slot: &impl Fn(SlotId) -> Result<SlotId, String>,
) -> Result<ComputeGraph, String> {
    let mut pending = vec![graph];
    while let Some(graph) = pending.pop() {
        for node in graph.nodes() {
            // Also where it would be refused as an operation: `remap` names none but the outermost kind.
            if matches!(
                node.kind,
                NodeKind::Alloc(_)
                    | NodeKind::Free(_)
                    | NodeKind::EventRecord(_)
                    | NodeKind::EventWait(_)
            ) {
                let (name, kind) = (&node.name, node.kind.name());
                return Err(format!("{name} inside it is of kind {kind}"));
            }
            pending.extend(node.kind.inner_graphs());
        }
    }
    let mut builder = GraphBuilder::new().with_auto_infer_edges(false).named(graph.name());
    for declared in graph.buffers() {
        let mut declared = declared.clone();
        if let BufferRole::Outer(id) = declared.role {
            declared.role = BufferRole::Outer(buffer(id)?);
        }
        builder.declare(declared);
    }
    for declared in graph.slots() {
        let mut declared = declared.clone();
        declared.outer = declared.outer.map(slot).transpose()?;
        builder.declare_slot(declared);
    }
    for node in graph.nodes() {
        builder.add_node(node.clone());
    }
    for edge in graph.edges() {
        builder.add_edge(edge);
    }
    builder.build().map_err(|e| e.to_string())
}
