//! How kernels find elements: the axes that some views have in common, and where each view's elements lie.

use phonograph_graph::{Expr, FusedKernel, Op, View};

/// The elements of views of one shape, in the order of the shape, and their places.
pub(crate) struct Space {
    pub extents: Vec<u64>,
    /// For each view, elements from one to the next along each axis.
    pub strides: Vec<Vec<u64>>,
    pub elements: u64,
    /// The farthest element of any view, counted from its first, or their number.
    pub reach: u64,
}

impl Space {
    /// The space of views of one shape. Axes are merged where all views allow, unless they are asked for by number.
    pub fn new(extents: &[u64], views: &[Vec<u64>], keep_axes: bool) -> Self {
        let elements: u64 = extents.iter().product();
        let reach = |strides: &Vec<u64>| -> u64 {
            let along = strides.iter().zip(extents).map(|(s, e)| s * e.saturating_sub(1));
            along.fold(0, u64::saturating_add)
        };
        let reach = views.iter().map(reach).max().unwrap_or(0).max(elements);
        let mut space =
            Self { extents: extents.to_vec(), strides: views.to_vec(), elements, reach };
        if !keep_axes {
            space.merge();
        }
        space
    }

    fn merge(&mut self) {
        for axis in (0..self.extents.len()).rev() {
            let inner = axis + 1;
            let one = self.extents[axis] == 1;
            let follows = |s: &Vec<u64>| s[axis] == s[inner] * self.extents[inner];
            if one {
                self.remove(axis);
            } else if inner < self.extents.len() && self.strides.iter().all(follows) {
                self.extents[inner] *= self.extents[axis];
                self.remove(axis);
            }
        }
    }

    fn remove(&mut self, axis: usize) {
        self.extents.remove(axis);
        self.strides.iter_mut().for_each(|strides| {
            strides.remove(axis);
        });
    }

    pub fn is_dense(&self, view: usize) -> bool {
        let mut expected = 1;
        self.extents.iter().zip(&self.strides[view]).rev().all(|(extent, &stride)| {
            let fits = stride == expected;
            expected *= extent;
            fits
        })
    }

    pub fn needs_positions(&self, view: usize) -> bool {
        !self.is_dense(view) && self.strides[view].iter().any(|&stride| stride != 0)
    }
}

/// The operands of a reduction along one axis, and of the work around it.
pub(crate) struct Reduced {
    /// The results, as every view is seen from them.
    pub results: Space,
    /// For each view, elements from one to the next along the axis; 0 for views of results.
    pub along: Vec<u64>,
    /// Whether an input is denser from result to result than along the axis.
    pub by_columns: bool,
    /// Whether an expression asks for positions.
    pub by_axis: bool,
}

impl Reduced {
    pub fn new(fused: &FusedKernel, views: &[View], axis: usize, output: &View) -> Self {
        let at = fused.operands();
        let of_elements =
            |view: usize| at.before_inputs.contains(&view) || at.before_outputs.contains(&view);
        let (mut seen, mut along) = (Vec::new(), Vec::new());
        for (number, view) in views.iter().enumerate() {
            let mut strides = strides(view);
            along.push(if of_elements(number) { strides.remove(axis) } else { 0 });
            seen.push(strides);
        }
        let by_columns = at.before_inputs.clone().any(|view| {
            along[view] > 1 && seen[view].last().is_some_and(|&stride| stride < along[view])
        });
        let by_axis = [&fused.before, &fused.after].into_iter().flatten().any(asks_for_positions);
        let results = Space::new(output.shape().extents(), &seen, by_axis);
        Self { results, along, by_columns, by_axis }
    }
}

/// The operands of matrix products of m × k by k × n elements, and of the work after them.
pub(crate) struct Product {
    batches: u64,
    m: u64,
    pub k: u64,
    n: u64,
    /// What a kernel reads, by the names that it has there.
    pub words: [(&'static str, u64); 10],
    /// The results, as the views behind the factors are seen from them.
    pub results: Space,
}

impl Product {
    /// `library` are the factors and the product.
    pub fn new(views: &[View], library: &[View]) -> Self {
        let (a, b) = (library[0].shape(), library[1].shape());
        let (a, b) = (a.extents(), b.extents());
        let batches = if a.len() == 3 { a[0] } else { 1 };
        let (m, k, n) = (a[a.len() - 2], a[a.len() - 1], b[b.len() - 1]);
        // From one batch, row and column to the next.
        let steps = |view: &View| match *view.strides() {
            [row, column] => [0, row, column],
            [batch, row, column] => [batch, row, column],
            _ => unreachable!("checked when the graph was built"),
        };
        let ([a0, a1, a2], [b0, b1, b2]) = (steps(&views[0]), steps(&views[1]));
        let names = ["batches", "m", "n", "k", "a0", "a1", "a2", "b0", "b1", "b2"];
        let values = [batches, m, n, k, a0, a1, a2, b0, b1, b2];
        let words = std::array::from_fn(|word| (names[word], values[word]));
        // Positions are at hand, so no axis is merged with another.
        let seen: Vec<Vec<u64>> = views[2..].iter().map(strides).collect();
        let results = Space::new(library[2].shape().extents(), &seen, true);
        Self { batches, m, k, n, words, results }
    }

    /// How many tiles of so many rows and columns there are.
    pub fn tiles(&self, size: u64) -> u64 {
        let rows = self.batches.saturating_mul(self.m.div_ceil(size));
        rows.saturating_mul(self.n.div_ceil(size))
    }
}

/// The strides of a view, as the space takes them.
pub(crate) fn strides(view: &View) -> Vec<u64> {
    view.strides().to_vec()
}

/// Whether an expression asks for positions.
pub(crate) fn asks_for_positions(expr: &Expr) -> bool {
    expr.ops().iter().any(|op| matches!(op, Op::Index(_)))
}
