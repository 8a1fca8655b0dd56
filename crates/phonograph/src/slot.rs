//! Scalars that a launch sets.

use std::fmt;
use std::marker::PhantomData;

use crate::Element;
use crate::graph::Scalar;
use crate::runtime::streams;

/// A scalar that graphs leave open: [`GraphLaunch::with`](crate::GraphLaunch::with) gives its value, launches that do not
/// run with its default, and so does an operation that is executed without a graph. Clones are the same slot.
pub struct Slot<T> {
    pub(crate) shared: streams::Slot,
    _of: PhantomData<T>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), _of: PhantomData }
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

impl<T: Element + Into<Scalar>> Slot<T> {
    /// A slot with a name for people and a default.
    pub fn new(name: &str, default: T) -> Self {
        Self { shared: streams::Slot::new(name, default), _of: PhantomData }
    }

    /// The slot of the runtime underneath.
    pub fn shared(&self) -> &streams::Slot {
        &self.shared
    }
}

/// What a kernel takes as a scalar: a value that recording bakes into the graph, or a slot.
#[derive(Clone, Debug)]
pub struct ScalarArg(pub(crate) ScalarKind);

#[derive(Clone, Debug)]
pub(crate) enum ScalarKind {
    Baked(Scalar),
    Slot(streams::Slot),
}

impl ScalarArg {
    /// A value, baked.
    pub fn baked(value: impl Into<Scalar>) -> Self {
        Self(ScalarKind::Baked(value.into()))
    }
}

/// What can be given where a kernel's signature declares a slot of type `T`: a slot, or a value.
pub trait IntoSlot<T> {
    /// The argument.
    fn into_arg(self) -> ScalarArg;
}

impl<T: Element + Into<Scalar>> IntoSlot<T> for T {
    fn into_arg(self) -> ScalarArg {
        ScalarArg::baked(self)
    }
}

impl<T> IntoSlot<T> for &Slot<T> {
    fn into_arg(self) -> ScalarArg {
        ScalarArg(ScalarKind::Slot(self.shared.clone()))
    }
}
