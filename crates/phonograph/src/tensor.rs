//! Tensors: typed, shaped memory of a device, thin enough to get out of the way.
//!
//! A [`Tensor`] owns its memory; [`TensorView`] and [`TensorViewMut`] borrow parts of it. Operations take them as they are
//! ([`Operand`](crate::Operand)), so that within an operation what is written is borrowed alone. Between operations that
//! have been recorded or executed nothing is borrowed any more: there the order is kept by regions.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::device::Device;
use crate::graph::{BufferId, Shape, View, ViewError};
use crate::lock::ExecutionLock;
use crate::runtime::streams::Buffer;
use crate::{Element, Error, Result};

/// Part of a device's memory, as a kernel sees it.
#[derive(Clone, Debug)]
pub struct Window {
    pub(crate) device: Device,
    pub(crate) buffer: Buffer,
    /// Its buffer is a stand-in, until a recorder puts the graph's there.
    pub(crate) view: View,
}

impl Window {
    /// The memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Type, extents and place in the memory; its buffer id means nothing.
    pub fn view(&self) -> &View {
        &self.view
    }
}

/// A dense tensor that owns its memory.
///
/// ```
/// use phonograph::prelude::*;
///
/// let device = Device::cpu(1)?;
/// let _entered = device.enter();
/// let mut x = api::zeros::<f32>([4, 2]).sync()?;
/// let (mut top, bottom) = x.split_at_mut(1)?;
/// api::store(vec![7.0; 2], &mut top).sync()?;
/// assert_eq!(bottom.shape().extents(), [3, 2]);
/// assert_eq!(x.to_vec()?, [7.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
/// # Ok::<(), Error>(())
/// ```
pub struct Tensor<T> {
    window: Window,
    _of: PhantomData<T>,
}

impl<T: Element> Tensor<T> {
    pub(crate) fn new(device: Device, buffer: Buffer, view: View) -> Self {
        debug_assert_eq!(view.buffer, BufferId(0));
        Self { window: Window { device, buffer, view }, _of: PhantomData }
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> Shape {
        self.window.view.shape()
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.window.view.elements()
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.window.device
    }

    /// The memory, for what this crate does not cover. Whoever writes there by other ways than operations orders that.
    pub fn buffer(&self) -> &Buffer {
        &self.window.buffer
    }

    /// All of it, to be read.
    pub fn view(&self) -> TensorView<'_, T> {
        TensorView { window: self.window.clone(), _of: PhantomData }
    }

    /// All of it, to be written.
    pub fn view_mut(&mut self) -> TensorViewMut<'_, T> {
        TensorViewMut { window: self.window.clone(), _of: PhantomData }
    }

    /// Rows `range` of the outermost axis, to be read.
    ///
    /// # Errors
    /// [`ViewError`] where there are no such rows.
    pub fn rows(&self, range: Range<u64>) -> Result<TensorView<'_, T>> {
        self.view().slice(0, range)
    }

    /// Two parts that share nothing: the first `at` rows of the outermost axis, and the rest.
    ///
    /// # Errors
    /// [`ViewError`] where there are not so many rows.
    pub fn split_at_mut(
        &mut self,
        at: u64,
    ) -> Result<(TensorViewMut<'_, T>, TensorViewMut<'_, T>)> {
        self.view_mut().split_at(at)
    }

    /// Parts of `rows` rows of the outermost axis that share nothing; the last may have fewer.
    ///
    /// # Errors
    /// [`ViewError`] for a tensor without axes; [`Error::Operand`] for parts of no rows.
    pub fn chunks_mut(&mut self, rows: u64) -> Result<Vec<TensorViewMut<'_, T>>> {
        if rows == 0 {
            return Err(Error::operand("chunks_mut", "parts of no rows"));
        }
        let count = *self.shape().extents().first().ok_or(ViewError::Axis { axis: 0, rank: 0 })?;
        let starts = (0..count.div_ceil(rows)).map(|part| part * rows);
        let whole = self.window.clone();
        starts
            .map(|start| {
                let view = whole.view.slice(0, start, rows.min(count - start))?;
                let window = Window { view, ..whole.clone() };
                Ok(TensorViewMut { window, _of: PhantomData })
            })
            .collect()
    }

    /// The contents, after everything executed before that touches them. Waits.
    ///
    /// # Errors
    /// [`Error::NonReentrant`] inside a capture; [`Error::Device`] where something failed that would have written them.
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.view().to_vec()
    }
}

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = &self.window.view;
        write!(f, "Tensor({} {:?} {})", self.window.buffer.name(), self.shape(), view.dtype)
    }
}

/// Part of a tensor, borrowed to be read.
#[derive(Clone)]
pub struct TensorView<'a, T> {
    window: Window,
    _of: PhantomData<&'a T>,
}

/// Part of a tensor, borrowed to be written: nothing else looks at it meanwhile.
pub struct TensorViewMut<'a, T> {
    window: Window,
    _of: PhantomData<&'a mut T>,
}

macro_rules! windows {
    ($($view:ident),*) => {$(
        impl<'a, T: Element> $view<'a, T> {
            /// Extents, outermost first.
            pub fn shape(&self) -> Shape {
                self.window.view.shape()
            }

            /// The part `range` of an axis.
            ///
            /// # Errors
            /// [`ViewError`] where it is not there.
            pub fn slice(self, axis: usize, range: Range<u64>) -> Result<Self> {
                let len = range.end.checked_sub(range.start);
                let extent = self.shape().extents().get(axis).copied().unwrap_or(0);
                let Range { start, end } = range;
                let len = len.ok_or(ViewError::Slice { start, end, extent })?;
                let view = self.window.view.slice(axis, start, len)?;
                Ok(Self { window: Window { view, ..self.window }, ..self })
            }

            /// The same elements with two axes exchanged.
            ///
            /// # Errors
            /// [`ViewError`] for an axis that is not there.
            pub fn transpose(self, a: usize, b: usize) -> Result<Self> {
                let view = self.window.view.transpose(a, b)?;
                Ok(Self { window: Window { view, ..self.window }, ..self })
            }

            /// The same elements in other extents; they must be dense.
            ///
            /// # Errors
            /// [`ViewError`].
            pub fn reshape(self, extents: impl AsRef<[u64]>) -> Result<Self> {
                let view = self.window.view.reshape(extents.as_ref())?;
                Ok(Self { window: Window { view, ..self.window }, ..self })
            }

            /// The contents, after everything executed before that touches them. Waits.
            ///
            /// # Errors
            /// [`Error::NonReentrant`] inside a capture; [`Error::Operand`] for elements that are not dense;
            /// [`Error::Device`].
            #[track_caller]
            pub fn to_vec(&self) -> Result<Vec<T>> {
                read(&self.window)
            }

            pub(crate) fn window(&self) -> &Window {
                &self.window
            }
        }

        impl<T: Element> fmt::Debug for $view<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({} {:?})", stringify!($view), self.window.buffer.name(), self.shape())
            }
        }
    )*};
}
windows!(TensorView, TensorViewMut);

impl<'a, T: Element> TensorViewMut<'a, T> {
    /// Two parts that share nothing: the first `at` rows of the outermost axis, and the rest.
    ///
    /// # Errors
    /// [`ViewError`] where there are not so many rows.
    pub fn split_at(self, at: u64) -> Result<(Self, Self)> {
        let rows = self.shape().extents().first().copied().unwrap_or(0);
        let (view, rest) = (self.window.view, at..rows);
        let first = view.slice(0, 0, at)?;
        let second = view.slice(0, rest.start, rest.end - at)?;
        let of = |view| Self { window: Window { view, ..self.window.clone() }, _of: PhantomData };
        Ok((of(first), of(second)))
    }

    /// Lends it for a shorter time.
    pub fn reborrow(&mut self) -> TensorViewMut<'_, T> {
        TensorViewMut { window: self.window.clone(), _of: PhantomData }
    }
}

impl<T: Element> Tensor<T> {
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }
}

/// Reads a dense window.
#[track_caller]
fn read<T: Element>(window: &Window) -> Result<Vec<T>> {
    ExecutionLock::check("reading a tensor")?;
    if !window.view.is_contiguous() {
        return Err(Error::operand("to_vec", "the elements are not dense; copy them first"));
    }
    let run = window.device.stream(0).run();
    let bytes = run.read(&window.buffer)?;
    let region = window.view.region();
    let part = &bytes[region.offset as usize..region.end() as usize];
    Ok(T::values(part))
}
