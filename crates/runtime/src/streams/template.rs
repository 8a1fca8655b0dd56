//! What operations do, whatever buffers they do it to: checked once, and found again by its value.
//!
//! A program that makes its operations anew in every step makes the same ones. Those of one kind, on buffers of the same
//! sizes, are one template, so that checking them and making them ready to run is done once. Finding one costs its arguments
//! and the operations of its expressions. Conditionals are checked each time.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use phonograph_graph::{Access, Arg, Expr, KernelNode, KernelRef, NodeKind, Op};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::handle::Slot;

/// What an operation does; never used twice in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TemplateKey(pub u64);

/// How an operation uses one of its buffers, all parts taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Use {
    pub reads: bool,
    pub writes: bool,
    /// One access writes the whole buffer, and nothing of it is read.
    pub whole: bool,
}

impl Use {
    /// Takes one more access into account, of all of the buffer or of a part.
    pub fn add(&mut self, access: Access, all: bool) {
        self.reads |= access.reads();
        self.whole = (self.whole || access.writes() && all) && !self.reads;
        self.writes |= access.writes();
    }
}

pub(super) struct Template {
    pub key: TemplateKey,
    pub name: Arc<str>,
    /// Buffer `n` is the `n`th of an operation's, each of which is there once.
    pub kind: NodeKind,
    pub uses: Box<[Use]>,
    pub slots: Box<[Slot]>,
    /// Bytes of the buffers.
    pub sizes: SmallVec<[u64; 4]>,
    /// Of each buffer as it was given, its number among those above.
    pub given: SmallVec<[usize; 4]>,
}

/// The most templates that are known; when there are more, all are forgotten, as a program that has so many does not
/// come back to them soon.
const MOST: usize = 1024;

/// The templates of a device.
#[derive(Default)]
pub(super) struct Templates(Mutex<FxHashMap<u64, Vec<Arc<Template>>>>);

impl Templates {
    /// The template of this kind, name, sizes and slots, if one is known.
    pub fn find(
        &self,
        print: u64,
        name: &str,
        kind: &NodeKind,
        sizes: &[u64],
        slots: &[Slot],
    ) -> Option<Arc<Template>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |template: &&Arc<Template>| {
            *template.name == *name
                && template.sizes[..] == *sizes
                && template.slots.iter().map(Slot::key).eq(slots.iter().map(Slot::key))
                && template.kind == *kind
        };
        known.get(&print)?.iter().find(same).cloned()
    }

    /// Keeps a template to be found again.
    pub fn keep(&self, print: u64, template: &Arc<Template>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        let alike = known.entry(print).or_default();
        alike.truncate(7); // names are not in the print, and a program may make new ones without end
        alike.insert(0, template.clone());
    }
}

/// Equal kinds have equal prints; `None` for those that are not looked for.
pub(super) fn fingerprint(kind: &NodeKind, sizes: &[u64], slots: &[Slot]) -> Option<u64> {
    let mut hasher = FxHasher::default();
    print(kind, &mut hasher)?;
    sizes.hash(&mut hasher);
    slots.iter().for_each(|slot| slot.key().hash(&mut hasher));
    Some(hasher.finish())
}

/// Recursive over nesting, which graphs bound.
fn print(kind: &NodeKind, hasher: &mut FxHasher) -> Option<()> {
    std::mem::discriminant(kind).hash(hasher);
    match kind {
        NodeKind::Kernel(kernel) => {
            std::mem::discriminant(&kernel.kernel).hash(hasher);
            match &kernel.kernel {
                KernelRef::Named(name) => name.hash(hasher),
                KernelRef::Library(library) => library.hash(hasher),
                KernelRef::Elementwise(expr) => expr.ops().len().hash(hasher),
                KernelRef::Fused(fused) => fused.library.hash(hasher),
            }
            kernel.config.hash(hasher);
            for arg in &kernel.args {
                match arg {
                    Arg::View(view, access) => (view, access).hash(hasher),
                    Arg::Region(region, access) => (region, access).hash(hasher),
                    Arg::Slot(slot) => slot.hash(hasher),
                    Arg::Scalar(_) => {}
                }
            }
            constants(kernel).for_each(|bits| bits.hash(hasher));
        }
        NodeKind::Memcpy(copy) => copy.hash(hasher),
        NodeKind::Memset(fill) => fill.hash(hasher),
        NodeKind::Host(host) => (&host.function, host.effects.len()).hash(hasher),
        NodeKind::Child(graph) => {
            graph.edge_count().hash(hasher);
            for node in graph.nodes() {
                print(&node.kind, hasher)?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// The bits of every constant in a kernel.
fn constants(kernel: &KernelNode) -> impl Iterator<Item = u64> + '_ {
    let scalars = kernel.args.iter().filter_map(|arg| match arg {
        Arg::Scalar(scalar) => Some(scalar.to_bits()),
        _ => None,
    });
    let exprs: SmallVec<[&Expr; 2]> = match &kernel.kernel {
        KernelRef::Elementwise(expr) => [&**expr].into_iter().collect(),
        KernelRef::Fused(fused) => fused.before.iter().chain(&fused.after).collect(),
        KernelRef::Named(_) | KernelRef::Library(_) => SmallVec::new(),
    };
    let within = exprs.into_iter().flat_map(|expr| expr.ops()).filter_map(|op| match op {
        Op::Const(scalar) => Some(scalar.to_bits()),
        _ => None,
    });
    scalars.chain(within)
}
