//! Tensor views: how a kernel sees a buffer, as elements of one type along up to six strided axes.
//!
//! A view is plain data (no pointer, no borrow). Strides count elements and are never negative; a stride of
//! 0 repeats one element along its axis, which is how operands broadcast.

use std::fmt;

use crate::{BufferId, DType, Region};

/// The most axes a view can have.
pub const MAX_RANK: usize = 6;

/// Extents along the axes of a view, outermost first. A rank of 0 is one element.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    rank: u8,
    extents: [u64; MAX_RANK],
}

/// Why a view could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// More axes than [`MAX_RANK`].
    #[error("{0} axes; a view has at most {MAX_RANK}")]
    Rank(usize),
    /// An axis that the view does not have.
    #[error("no axis {axis} in a view of rank {rank}")]
    Axis {
        /// The axis asked for.
        axis: usize,
        /// How many there are.
        rank: usize,
    },
    /// A slice that reaches past its axis.
    #[error("elements {start}..{end} reach past the end of an axis of {extent}")]
    Slice {
        /// First element.
        start: u64,
        /// One past the last.
        end: u64,
        /// Extent of the axis.
        extent: u64,
    },
    /// A shape that does not broadcast to another.
    #[error("shape {from:?} cannot be broadcast to {to:?}")]
    Broadcast {
        /// The shape at hand.
        from: Shape,
        /// The shape asked for.
        to: Shape,
    },
    /// A reshape to another number of elements.
    #[error("shape {from:?} cannot be reshaped to {to:?}: {} elements, not {}", .to.elements(), .from.elements())]
    Reshape {
        /// The shape at hand.
        from: Shape,
        /// The shape asked for.
        to: Shape,
    },
    /// A reshape of a view whose elements are not contiguous.
    #[error("a view with strides cannot be reshaped; copy it first")]
    NotContiguous,
    /// More bytes than can be addressed.
    #[error("shape {0:?} has more elements than can be addressed")]
    TooLarge(Shape),
}

impl Shape {
    /// The shape with these extents, outermost first.
    pub fn new(extents: &[u64]) -> Result<Self, ViewError> {
        if extents.len() > MAX_RANK {
            return Err(ViewError::Rank(extents.len()));
        }
        let mut all = [1; MAX_RANK];
        all[..extents.len()].copy_from_slice(extents);
        let shape = Self { rank: extents.len() as u8, extents: all };
        // One bound, checked once, so that counts, offsets and byte sizes of views never overflow.
        let elements = extents.iter().try_fold(1u64, |n, &e| n.checked_mul(e.max(1)));
        match elements {
            Some(n) if n <= 1 << 56 => Ok(shape),
            _ => Err(ViewError::TooLarge(shape)),
        }
    }

    /// The shape of a single element.
    pub const fn scalar() -> Self {
        Self { rank: 0, extents: [1; MAX_RANK] }
    }

    /// Number of axes.
    pub const fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Extents, outermost first.
    pub fn extents(&self) -> &[u64] {
        &self.extents[..self.rank()]
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.extents().iter().product()
    }

    /// This shape without `axis`.
    pub fn without(&self, axis: usize) -> Result<Self, ViewError> {
        self.check_axis(axis)?;
        let mut extents: Vec<u64> = self.extents().to_vec();
        extents.remove(axis);
        Shape::new(&extents)
    }

    /// The shape that both broadcast to: axes are aligned at the innermost, an extent of 1 stretches.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape, ViewError> {
        let rank = self.rank().max(other.rank());
        let mut extents = [1; MAX_RANK];
        for (axis, extent) in extents[..rank].iter_mut().enumerate() {
            let of = |s: &Shape| (axis + s.rank()).checked_sub(rank).map_or(1, |a| s.extents[a]);
            *extent = match (of(self), of(other)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return Err(ViewError::Broadcast { from: *self, to: *other }),
            };
        }
        Shape::new(&extents[..rank])
    }

    fn check_axis(&self, axis: usize) -> Result<(), ViewError> {
        if axis < self.rank() { Ok(()) } else { Err(ViewError::Axis { axis, rank: self.rank() }) }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.extents().fmt(f)
    }
}

/// A typed, strided window into a buffer.
///
/// ```
/// use phonograph_graph::{BufferId, DType, View};
///
/// let weights = View::contiguous(BufferId(0), DType::F32, &[64, 128])?;
/// let transposed = weights.transpose(0, 1)?;
/// assert_eq!(transposed.shape().extents(), &[128, 64]);
/// assert_eq!(weights.slice(0, 2, 3)?.region().offset, 2 * 128 * 4);
/// # Ok::<(), phonograph_graph::ViewError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// The buffer it looks into.
    pub buffer: BufferId,
    /// Type of an element.
    pub dtype: DType,
    /// Byte offset of the first element.
    pub offset: u64,
    shape: Shape,
    strides: [u64; MAX_RANK],
}

impl View {
    /// A view of densely packed elements from the start of `buffer`, last axis fastest.
    pub fn contiguous(buffer: BufferId, dtype: DType, extents: &[u64]) -> Result<Self, ViewError> {
        let shape = Shape::new(extents)?;
        Ok(Self { buffer, dtype, offset: 0, shape, strides: packed_strides(&shape) })
    }

    /// A view with explicit strides, in elements.
    pub fn strided(
        buffer: BufferId,
        dtype: DType,
        offset: u64,
        extents: &[u64],
        strides: &[u64],
    ) -> Result<Self, ViewError> {
        let shape = Shape::new(extents)?;
        if strides.len() != extents.len() {
            return Err(ViewError::Rank(strides.len()));
        }
        let mut all = [0; MAX_RANK];
        all[..strides.len()].copy_from_slice(strides);
        let reach = extents.iter().zip(strides).try_fold(0u64, |sum, (&e, &s)| {
            s.checked_mul(e.saturating_sub(1)).and_then(|n| sum.checked_add(n))
        });
        match reach {
            Some(n) if n <= 1 << 56 && offset <= 1 << 60 => {}
            _ => return Err(ViewError::TooLarge(shape)),
        }
        Ok(Self { buffer, dtype, offset, shape, strides: all })
    }

    /// Extents of the axes.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Strides of the axes, in elements.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.shape.rank()]
    }

    /// Number of elements seen.
    pub fn elements(&self) -> u64 {
        self.shape.elements()
    }

    /// Whether the elements lie densely packed in memory, last axis fastest.
    pub fn is_contiguous(&self) -> bool {
        let packed = packed_strides(&self.shape);
        let axes = self.shape.extents().iter().zip(self.strides()).zip(packed);
        self.elements() == 0 || axes.into_iter().all(|((&e, &s), p)| e == 1 || s == p)
    }

    /// The smallest byte range that holds every element seen (gaps between strides included).
    pub fn region(&self) -> Region {
        let bytes = if self.elements() == 0 {
            0
        } else {
            let axes = self.shape.extents().iter().zip(self.strides());
            let last: u64 = axes.map(|(e, s)| (e - 1) * s).sum();
            (last + 1) * self.dtype.size()
        };
        Region { buffer: self.buffer, offset: self.offset, bytes }
    }

    /// The same window into another buffer.
    pub const fn in_buffer(mut self, buffer: BufferId) -> Self {
        self.buffer = buffer;
        self
    }

    /// Two axes exchanged; moves no data.
    pub fn transpose(mut self, a: usize, b: usize) -> Result<Self, ViewError> {
        self.shape.check_axis(a)?;
        self.shape.check_axis(b)?;
        self.shape.extents.swap(a, b);
        self.strides.swap(a, b);
        Ok(self)
    }

    /// `len` elements of `axis` from `start`.
    pub fn slice(mut self, axis: usize, start: u64, len: u64) -> Result<Self, ViewError> {
        self.shape.check_axis(axis)?;
        let extent = self.shape.extents[axis];
        let end = start.saturating_add(len);
        if end > extent {
            return Err(ViewError::Slice { start, end, extent });
        }
        self.shape.extents[axis] = len;
        // Where nothing lies, nothing begins: strides of views without elements lead out of their buffers.
        if self.elements() > 0 {
            self.offset += start * self.strides[axis] * self.dtype.size();
        }
        Ok(self)
    }

    /// The same elements repeated along axes of extent 1 and along new outer axes.
    pub fn broadcast_to(&self, shape: Shape) -> Result<Self, ViewError> {
        let mismatch = ViewError::Broadcast { from: self.shape, to: shape };
        if self.shape.broadcast(&shape)? != shape {
            return Err(mismatch);
        }
        let lead = shape.rank() - self.shape.rank();
        let mut strides = [0; MAX_RANK];
        for (own, stride) in strides[lead..shape.rank()].iter_mut().enumerate() {
            if self.shape.extents[own] == shape.extents[lead + own] {
                *stride = self.strides[own];
            }
        }
        Ok(Self { shape, strides, ..*self })
    }

    /// Another shape over the same elements; the view must be contiguous.
    pub fn reshape(&self, extents: &[u64]) -> Result<Self, ViewError> {
        let shape = Shape::new(extents)?;
        if !self.is_contiguous() {
            return Err(ViewError::NotContiguous);
        }
        if shape.elements() != self.elements() {
            return Err(ViewError::Reshape { from: self.shape, to: shape });
        }
        Ok(Self { shape, strides: packed_strides(&shape), ..*self })
    }

    /// A new axis of extent 1 before `axis`.
    pub fn unsqueeze(&self, axis: usize) -> Result<Self, ViewError> {
        let rank = self.shape.rank();
        if axis > rank {
            return Err(ViewError::Axis { axis, rank });
        }
        let mut extents = self.shape.extents().to_vec();
        let mut strides = self.strides().to_vec();
        extents.insert(axis, 1);
        strides.insert(axis, 0);
        View::strided(self.buffer, self.dtype, self.offset, &extents, &strides)
    }
}

fn packed_strides(shape: &Shape) -> [u64; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let mut step = 1;
    for axis in (0..shape.rank()).rev() {
        strides[axis] = step;
        step *= shape.extents[axis].max(1);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(extents: &[u64]) -> View {
        View::contiguous(BufferId(0), DType::F32, extents).unwrap()
    }

    #[test]
    fn broadcasting_stretches_extents_of_one() {
        let bias = view(&[10]);
        let rows = bias.broadcast_to(Shape::new(&[3, 10]).unwrap()).unwrap();
        assert_eq!(rows.strides(), &[0, 1]);
        assert_eq!(rows.region().bytes, 40);
        assert!(bias.broadcast_to(Shape::new(&[10, 3]).unwrap()).is_err());
        assert!(view(&[3, 10]).broadcast_to(Shape::new(&[10]).unwrap()).is_err());
    }

    #[test]
    fn regions_span_what_is_seen() {
        let column = view(&[4, 8]).slice(1, 2, 1).unwrap();
        assert_eq!((column.region().offset, column.region().bytes), (8, (3 * 8 + 1) * 4));
        assert!(!column.is_contiguous());
        assert_eq!(column.reshape(&[4]), Err(ViewError::NotContiguous));
        assert_eq!(view(&[4, 0]).region().bytes, 0);
        assert!(view(&[4, 8]).transpose(0, 1).unwrap().transpose(0, 1).unwrap().is_contiguous());
    }

    #[test]
    fn parts_of_nothing_lie_in_its_buffer() {
        for rows in [0..1, 1..4, 4..4] {
            let part = view(&[4, 0]).slice(0, rows.start, rows.end - rows.start).unwrap();
            assert_eq!((part.region().offset, part.region().bytes), (0, 0), "{rows:?}");
            assert_eq!(part.shape().extents(), &[rows.end - rows.start, 0]);
        }
        let far = View::strided(BufferId(0), DType::F32, 0, &[1], &[u64::MAX]).unwrap();
        assert_eq!(far.slice(0, 1, 0).unwrap().region().bytes, 0);
    }

    #[test]
    fn absurd_shapes_are_refused() {
        assert!(Shape::new(&[1 << 40, 1 << 40]).is_err());
        assert!(Shape::new(&[1; 7]).is_err());
        assert!(View::strided(BufferId(0), DType::F32, 0, &[3], &[u64::MAX]).is_err());
    }
}
