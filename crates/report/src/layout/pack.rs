//! Rectangles side by side.
//!
//! In: sizes. Out: a corner for each, without overlap. Shelves: the tallest first, each shelf filled to a width that
//! gives the whole the shape of a screen. O(n log n).

use super::{Point, Size};

/// Width by height that a picture should have.
pub(crate) const ASPECT: f64 = 1.6;

/// Corners of rectangles at least `gap` apart, and the size of it all.
pub(crate) fn shelves(sizes: &[Size], gap: f64) -> (Vec<Point>, Size) {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| sizes[b].height.total_cmp(&sizes[a].height).then(a.cmp(&b)));
    let area: f64 = sizes.iter().map(|s| (s.width + gap) * (s.height + gap)).sum();
    let widest = sizes.iter().map(|s| s.width).fold(0.0, f64::max);
    let target = widest.max((area * ASPECT).sqrt());
    place(sizes, &order, gap, target)
}

/// The same, in the given order, on shelves of at most `target` width.
pub(crate) fn place(sizes: &[Size], order: &[usize], gap: f64, target: f64) -> (Vec<Point>, Size) {
    let mut corners = vec![Point::default(); sizes.len()];
    let mut size = Size::default();
    let (mut x, mut y, mut shelf) = (0.0, 0.0, 0.0f64);
    for &i in order {
        if x > 0.0 && x + sizes[i].width > target {
            x = 0.0;
            y += shelf + gap;
            shelf = 0.0;
        }
        corners[i] = Point { x, y };
        size.width = size.width.max(x + sizes[i].width);
        size.height = size.height.max(y + sizes[i].height);
        x += sizes[i].width + gap;
        shelf = shelf.max(sizes[i].height);
    }
    (corners, size)
}
