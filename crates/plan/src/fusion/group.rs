//! Nodes that may become one kernel: what each touches, and what two groups must not do to be merged.
//!
//! A group runs element by element, so two of its members may touch the same bytes, one of them writing, only through
//! one and the same view; whatever looks at those bytes otherwise has to wait for all of them. A buffer that only the
//! group uses stops counting once it is handed over inside: nothing else can be in conflict about it.

use std::cmp::Ordering;

use phonograph_graph::{
    Access, Arg, BufferId, BufferRole, ComputeGraph, Expr, KernelNode, KernelRef, LibraryKernel,
    MAX_FUSED_OPERANDS, NodeId, Shape, View,
};
use smallvec::SmallVec;

use super::renumber::Seen;
use crate::passes::Reason;

/// Limits of what a group may grow to; see [`FusionOptions`](super::FusionOptions).
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub ops: usize,
    pub operands: usize,
}

/// When a member of a group touches memory: before the reduction or matrix product of the group, or after it. A group
/// without one is all before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    Before,
    After,
}

/// How the members of a group use one view.
#[derive(Clone)]
struct ViewUse {
    view: View,
    when: When,
    /// Some member loads what the view held before the group.
    loaded: bool,
    stored: bool,
}

/// How the members of a group use one buffer.
#[derive(Clone)]
struct BufferUse {
    buffer: BufferId,
    /// How many members name it.
    users: u32,
    /// Some member loads what another has stored.
    handed_over: bool,
    views: SmallVec<[ViewUse; 1]>,
}

/// The reduction or matrix product of a group.
#[derive(Clone)]
pub(super) struct Anchor {
    pub node: NodeId,
    pub library: LibraryKernel,
    /// What a reduction reads.
    pub input: View,
    pub result: View,
    /// Members that come after it.
    pub after: Vec<NodeId>,
}

/// A set of elementwise nodes over one index space, or of those that feed a reduction over that space, the reduction or
/// a matrix product, and those over the space of its result that come after it.
#[derive(Clone)]
pub(super) struct Group {
    /// In no particular order.
    pub members: Vec<NodeId>,
    /// The space of the members that come before.
    pub space: Shape,
    pub anchor: Option<Box<Anchor>>,
    /// Operations and operands of all expressions: no less than what the merged one will have.
    size: usize,
    /// By buffer.
    uses: Vec<BufferUse>,
}

/// The views of a kernel's arguments in order, with whether each is written.
pub(super) fn views(kernel: &KernelNode) -> impl DoubleEndedIterator<Item = (View, bool)> + '_ {
    kernel.args.iter().filter_map(|arg| match *arg {
        Arg::View(view, access) => Some((view, access != Access::Read)),
        _ => None,
    })
}

/// An elementwise kernel, with its expression.
pub(super) fn expression(kernel: &KernelNode) -> Option<(&KernelNode, &Expr)> {
    match &kernel.kernel {
        KernelRef::Elementwise(expr) => Some((kernel, expr)),
        _ => None,
    }
}

/// The reduction or matrix product that planners may merge with what is around it.
fn library<'a>(seen: &'a Seen, node: NodeId) -> Option<(&'a KernelNode, Anchor)> {
    let kernel = seen.kernel(node)?;
    let KernelRef::Library(library) = kernel.kernel else { return None };
    let fits = matches!(library, LibraryKernel::Reduce { .. } | LibraryKernel::MatMul);
    let mut views = views(kernel).filter(|_| fits).map(|(view, _)| view);
    let (input, result) = (views.next()?, views.next_back()?);
    Some((kernel, Anchor { node, library, input, result, after: Vec::new() }))
}

impl Group {
    /// The group of one node; `None` for nodes that are not elementwise or not to be merged.
    pub fn of(seen: &Seen, node: NodeId, users: &[u32]) -> Option<Self> {
        let (kernel, expr) = seen.elementwise(node)?;
        let size =
            expr.ops().len() + expr.inputs().len() + expr.params().len() + expr.outputs().len();
        Some(Self::of_kernel(seen.graph, node, users, kernel, None, size))
    }

    /// The group of one reduction or matrix product.
    pub fn of_library(seen: &Seen, node: NodeId, users: &[u32]) -> Option<Self> {
        let (kernel, anchor) = library(seen, node)?;
        Some(Self::of_kernel(seen.graph, node, users, kernel, Some(Box::new(anchor)), 0))
    }

    fn of_kernel(
        graph: &ComputeGraph,
        node: NodeId,
        users: &[u32],
        kernel: &KernelNode,
        anchor: Option<Box<Anchor>>,
        size: usize,
    ) -> Self {
        let mut uses: Vec<BufferUse> = Vec::new();
        let mut space = Shape::scalar();
        for (view, stored) in views(kernel) {
            space = view.shape();
            let when = match &anchor {
                Some(_) if stored => When::After,
                _ => When::Before,
            };
            let at = match uses.iter().position(|u| u.buffer == view.buffer) {
                Some(at) => at,
                None => {
                    let (buffer, views) = (view.buffer, SmallVec::new());
                    uses.push(BufferUse { buffer, users: 1, handed_over: false, views });
                    uses.len() - 1
                }
            };
            match uses[at].views.iter_mut().find(|u| u.view == view) {
                Some(found) => {
                    found.loaded |= !stored;
                    found.stored |= stored;
                }
                None => uses[at].views.push(ViewUse { view, when, loaded: !stored, stored }),
            }
        }
        uses.sort_unstable_by_key(|u| u.buffer);
        if let Some(anchor) = &anchor {
            space = anchor.input.shape();
        }
        let mut group = Self { members: vec![node], space, anchor, size, uses };
        group.forget_own(graph, users);
        group
    }

    /// Drops buffers that nothing outside can see.
    fn forget_own(&mut self, graph: &ComputeGraph, users: &[u32]) {
        self.uses.retain(|u| {
            let internal = graph.buffer(u.buffer).role == BufferRole::Internal;
            let whole = u.users == users[u.buffer.index()];
            !(internal && whole && u.handed_over && u.views.iter().all(|v| !v.loaded))
        });
    }

    /// Operands that the merged kernel will have; at most so many.
    fn operands(&self) -> usize {
        let each = |v: &ViewUse| usize::from(v.loaded) + usize::from(v.stored);
        self.uses.iter().flat_map(|u| &u.views).map(each).sum()
    }

    /// Both in one, `self` running first; `Err` says why not. Whether the two are convex together is for the caller to
    /// know. O(operands).
    pub fn then(
        &self,
        later: &Group,
        graph: &ComputeGraph,
        users: &[u32],
        limits: Limits,
    ) -> Result<Group, Reason> {
        let anchor = match (&self.anchor, &later.anchor) {
            (None, None) if self.space != later.space => return Err(Reason::OtherShape),
            (None, None) => None,
            (Some(_), Some(_)) => return Err(Reason::TwoKernels),
            (None, Some(anchor)) => {
                self.fits_before(later, anchor)?;
                Some(anchor.clone())
            }
            (Some(anchor), None) => {
                if later.space != anchor.result.shape() {
                    return Err(Reason::OtherShape);
                }
                let packed = anchor.result.is_contiguous();
                if matches!(anchor.library, LibraryKernel::MatMul) && !packed {
                    return Err(Reason::NotPacked);
                }
                let mut anchor = anchor.clone();
                anchor.after.extend(&later.members);
                Some(anchor)
            }
        };
        let retagged: Vec<BufferUse>;
        let later_uses = match self.anchor {
            None => &later.uses,
            Some(_) => {
                retagged = later.uses.iter().map(|u| u.clone().after()).collect();
                &retagged
            }
        };
        let size = self.size + later.size;
        if size > limits.ops {
            return Err(Reason::TooManyOperations(limits.ops));
        }
        let mut uses = Vec::with_capacity(self.uses.len() + later_uses.len());
        let (mut a, mut b) = (self.uses.as_slice(), later_uses.as_slice());
        while let (Some(x), Some(y)) = (a.first(), b.first()) {
            match x.buffer.cmp(&y.buffer) {
                Ordering::Equal => {
                    uses.push(x.then(y)?);
                    (a, b) = (&a[1..], &b[1..]);
                }
                Ordering::Less => {
                    uses.push(x.clone());
                    a = &a[1..];
                }
                Ordering::Greater => {
                    uses.push(y.clone());
                    b = &b[1..];
                }
            }
        }
        uses.extend(a.iter().chain(b).cloned());
        let members = self.members.iter().chain(&later.members).copied().collect();
        let most = match anchor {
            Some(_) => limits.operands.min(MAX_FUSED_OPERANDS),
            None => limits.operands,
        };
        let mut merged = Group { members, space: self.space, anchor, size, uses };
        merged.forget_own(graph, users);
        if merged.operands() > most {
            return Err(Reason::TooManyOperands(most));
        }
        Ok(merged)
    }

    /// Whether this group can compute what a reduction reads.
    fn fits_before(&self, later: &Group, anchor: &Anchor) -> Result<(), Reason> {
        let LibraryKernel::Reduce { axis, .. } = anchor.library else {
            return Err(Reason::OperandOfProduct);
        };
        if self.space != later.space {
            return Err(Reason::OtherShape);
        }
        // Elements are computed row by row, which pays where rows are what lies together in memory.
        let (extents, strides) = (self.space, anchor.input.strides());
        let finer =
            |(&extent, &stride): (&u64, &u64)| extent > 1 && stride < strides[usize::from(axis)];
        if extents.extents().iter().zip(strides).any(finer) {
            return Err(Reason::AcrossRows);
        }
        let mut views = self.uses.iter().flat_map(|u| &u.views);
        if !views.any(|v| v.stored && v.view == anchor.input) {
            return Err(Reason::OtherView(anchor.input.buffer));
        }
        match later.members.len() == 1 + anchor.after.len() {
            true => Ok(()),
            false => Err(Reason::TwoKernels), // it has elements computed before it already
        }
    }

    /// Whether both look at some view alike, so that merging them saves a pass over it.
    pub fn shares_a_view(&self, other: &Group) -> bool {
        let mut rest = other.uses.as_slice();
        self.uses.iter().any(|x| {
            let from = rest.partition_point(|y| y.buffer < x.buffer);
            rest = &rest[from..];
            let same = rest.first().filter(|y| y.buffer == x.buffer);
            same.is_some_and(|y| x.views.iter().any(|v| y.views.iter().any(|w| v.view == w.view)))
        })
    }
}

impl BufferUse {
    /// The same, after the reduction or matrix product.
    fn after(mut self) -> Self {
        self.views.iter_mut().for_each(|v| v.when = When::After);
        self
    }

    fn then(&self, later: &BufferUse) -> Result<BufferUse, Reason> {
        let mut merged = self.clone();
        merged.users += later.users;
        merged.handed_over |= later.handed_over;
        for new in &later.views {
            let clash = self.views.iter().any(|old| {
                (old.view != new.view || old.when != new.when)
                    && (old.stored || new.stored)
                    && old.view.region().overlaps(&new.view.region())
            });
            if clash {
                return Err(Reason::OtherView(self.buffer));
            }
            match merged.views.iter_mut().find(|v| v.view == new.view && v.when == new.when) {
                Some(old) => {
                    merged.handed_over |= old.stored && new.loaded;
                    old.loaded |= new.loaded && !old.stored;
                    old.stored |= new.stored;
                }
                None => merged.views.push(new.clone()),
            }
        }
        Ok(merged)
    }
}
