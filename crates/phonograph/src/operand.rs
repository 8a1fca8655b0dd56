//! What operations take tensors as, and what they give back.

use std::sync::Arc;

use crate::Element;
use crate::tensor::{Tensor, TensorView, TensorViewMut, Window};

/// A tensor, or part of one, as an operand to be read: owned, shared, or borrowed for as long as the operation waits to be
/// executed.
pub trait Operand: Send {
    /// Type of an element.
    type Element: Element;
    /// What the operation gives back of it.
    type Back: Send;
    /// Whether it may be written too.
    const WRITES: bool;
    /// Where it lies.
    fn window(&self) -> Window;
    /// Given back.
    fn back(self) -> Self::Back;
}

/// An operand that may be written: owned, or borrowed alone.
pub trait OperandMut: Operand {}

macro_rules! operands {
    ($([$($generics:tt)*] $operand:ty, $writes:literal;)*) => {$(
        impl<$($generics)* T: Element> Operand for $operand {
            type Element = T;
            type Back = Self;
            const WRITES: bool = $writes;

            fn window(&self) -> Window {
                // By its own name, for `Arc` and references have methods of theirs.
                <$operand as Lies>::lies(self).clone()
            }

            fn back(self) -> Self {
                self
            }
        }
    )*};
}

/// Where the tensor behind an operand lies.
trait Lies {
    fn lies(&self) -> &Window;
}

impl<T: Element> Lies for Tensor<T> {
    fn lies(&self) -> &Window {
        self.window()
    }
}

impl<T: Element> Lies for TensorView<'_, T> {
    fn lies(&self) -> &Window {
        self.window()
    }
}

impl<T: Element> Lies for TensorViewMut<'_, T> {
    fn lies(&self) -> &Window {
        self.window()
    }
}

impl<L: Lies> Lies for &L {
    fn lies(&self) -> &Window {
        (**self).lies()
    }
}

impl<L: Lies> Lies for &mut L {
    fn lies(&self) -> &Window {
        (**self).lies()
    }
}

impl<L: Lies> Lies for Arc<L> {
    fn lies(&self) -> &Window {
        (**self).lies()
    }
}

operands! {
    [] Tensor<T>, true;
    [] Arc<Tensor<T>>, false;
    ['a,] &'a Tensor<T>, false;
    ['a,] &'a Arc<Tensor<T>>, false;
    ['a,] &'a mut Tensor<T>, true;
    ['a,] TensorView<'a, T>, false;
    ['a, 'b,] &'a TensorView<'b, T>, false;
    ['a,] TensorViewMut<'a, T>, true;
    ['a, 'b,] &'a TensorViewMut<'b, T>, false;
    ['a, 'b,] &'a mut TensorViewMut<'b, T>, true;
}

impl<T: Element> OperandMut for Tensor<T> {}
impl<T: Element> OperandMut for &mut Tensor<T> {}
impl<T: Element> OperandMut for TensorViewMut<'_, T> {}
impl<T: Element> OperandMut for &mut TensorViewMut<'_, T> {}

/// Several operands: a tuple of up to twelve, or a vector of one kind.
pub trait Operands: Send {
    /// What the operation gives back of them.
    type Back: Send;
    /// One view of the graph for each.
    type Views;
    /// Where they lie, and whether they may be written.
    fn windows(&self) -> Vec<(Window, bool)>;
    /// The graph's views, in the order of `windows`.
    fn views(views: &[crate::graph::View]) -> Self::Views;
    /// Given back.
    fn back(self) -> Self::Back;
}

impl<O: Operand> Operands for Vec<O> {
    type Back = Vec<O::Back>;
    type Views = Vec<crate::graph::View>;

    fn windows(&self) -> Vec<(Window, bool)> {
        self.iter().map(|operand| (operand.window(), O::WRITES)).collect()
    }

    fn views(views: &[crate::graph::View]) -> Self::Views {
        views.to_vec()
    }

    fn back(self) -> Self::Back {
        self.into_iter().map(Operand::back).collect()
    }
}

macro_rules! tuples {
    ($($count:literal: $($operand:ident $at:tt),*;)*) => {$(
        impl<$($operand: Operand),*> Operands for ($($operand,)*) {
            type Back = ($($operand::Back,)*);
            type Views = [crate::graph::View; $count];

            fn windows(&self) -> Vec<(Window, bool)> {
                vec![$((self.$at.window(), $operand::WRITES)),*]
            }

            fn views(_views: &[crate::graph::View]) -> Self::Views {
                [$(_views[$at]),*]
            }

            #[allow(clippy::unused_unit)] // for the tuple of none
            fn back(self) -> Self::Back {
                ($(self.$at.back(),)*)
            }
        }
    )*};
}
tuples! {
    0: ;
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
    9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8;
    10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9;
    11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10;
    12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11;
}
