//! Where buffers lie in their pools and when they live.
//!
//! In: a [`Skyline`]: blocks of bytes over moments. Out: SVG, one drawing for each pool, with the bytes in use at each
//! moment, the pool's size and the bound below it. O(n log n) in blocks. Pages draw the same data.

use std::fmt::Write as _;

use rustc_hash::FxHashSet;

use crate::layout::Size;
use crate::picture::{GroupIx, LaneIx, NodeIx, index};
use crate::style;
use crate::svg::{Fragment, MARGIN, SANS_WIDTH, at, document, text};
use crate::text::{bytes, capped, columns, count, elide, escape, num, thousands};

index! {
    /// A moment of a pool: a place in [`Pool::order`].
    Moment
}
index! {
    /// A block: its position in [`Pool::blocks`].
    BlockIx
}

/// The pools of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Skyline {
    /// The heading.
    pub title: String,
    /// The pools.
    pub pools: Vec<Pool>,
}

/// One pool of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The name, such as the memory space.
    pub name: String,
    /// The size in bytes: the peak of the plan.
    pub bytes: u64,
    /// No placement in fewer bytes, and why, in a few words.
    pub bound: Option<(u64, String)>,
    /// Bytes if no two buffers shared any.
    pub unshared: u64,
    /// The graph whose nodes are the moments.
    pub group: GroupIx,
    /// The node that runs at each moment, in the order of issue.
    pub order: Vec<NodeIx>,
    /// The buffers.
    pub blocks: Vec<Block>,
}

/// A buffer in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The buffer's name.
    pub label: String,
    /// First byte in the pool.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The moment of its first user.
    pub first: Moment,
    /// The moment of its last user.
    pub last: Moment,
}

/// Why a skyline cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkylineError {
    /// A block ends before it begins, or after the last moment, or beyond its pool.
    #[error(
        "pool {pool}, block {block}: moments {first} to {last} of {moments}, bytes up to {end} of {bytes}"
    )]
    OutOfRange {
        /// The position in [`Skyline::pools`].
        pool: usize,
        /// The block.
        block: BlockIx,
        /// Its first moment.
        first: Moment,
        /// Its last moment.
        last: Moment,
        /// Moments of the pool.
        moments: usize,
        /// Its end in bytes, at most the largest number.
        end: u64,
        /// The size of the pool.
        bytes: u64,
    },
}

/// As wide as a timeline, so that both stand one below the other.
const PLOT: Size = Size { width: 1_200.0, height: 380.0 };
const NAMES: f64 = 170.0;
const CHAR: f64 = 6.35;
/// Blocks drawn one by one.
pub const MAX_BLOCKS: usize = 20_000;

impl Skyline {
    pub(crate) fn check(&self) -> Result<(), SkylineError> {
        for (p, pool) in self.pools.iter().enumerate() {
            for (b, block) in pool.blocks.iter().enumerate() {
                let end = block.offset.saturating_add(block.bytes);
                let inside = block.first <= block.last
                    && block.last.index() < pool.order.len()
                    && end <= pool.bytes;
                if !inside {
                    return Err(SkylineError::OutOfRange {
                        pool: p,
                        block: BlockIx(b as u32),
                        first: block.first,
                        last: block.last,
                        moments: pool.order.len(),
                        end,
                        bytes: pool.bytes,
                    });
                }
            }
        }
        Ok(())
    }
}

impl Pool {
    /// Bytes of the blocks that live at each moment.
    ///
    /// # Panics
    /// If a block lives at a moment that the pool does not have; drawing checks that before.
    pub fn live(&self) -> Vec<u64> {
        let mut change = vec![(0u64, 0u64); self.order.len() + 1];
        for block in &self.blocks {
            let starts = &mut change[block.first.index()].0;
            *starts = starts.saturating_add(block.bytes);
            let ends = &mut change[block.last.index() + 1].1;
            *ends = ends.saturating_add(block.bytes);
        }
        let mut now = 0u64;
        let live = change.iter().take(self.order.len()).map(|&(starts, ends)| {
            now = now.saturating_sub(ends).saturating_add(starts);
            now
        });
        live.collect()
    }
}

/// Draws the skyline as an SVG document.
///
/// # Errors
///
/// [`SkylineError`] if a block lies outside its pool.
///
/// ```
/// use phonograph_report::picture::NodeIx;
/// use phonograph_report::skyline::{Block, Moment, Pool, Skyline, svg};
///
/// let block = |label: &str, offset, first, last| Block {
///     label: label.into(),
///     offset,
///     bytes: 1024,
///     first: Moment(first),
///     last: Moment(last),
/// };
/// let pool = Pool {
///     name: "device 0".into(),
///     bytes: 2048,
///     order: (0..3).map(NodeIx).collect(),
///     blocks: vec![block("a", 0, 0, 1), block("b", 1024, 1, 2)],
///     ..Pool::default()
/// };
/// let drawing = svg(&Skyline { title: "memory".into(), pools: vec![pool] })?;
/// assert!(drawing.contains("2 KiB"));
/// # Ok::<(), phonograph_report::skyline::SkylineError>(())
/// ```
pub fn svg(skyline: &Skyline) -> Result<String, SkylineError> {
    let drawing = draw(skyline)?;
    let top = MARGIN + 26.0;
    let mut body = String::new();
    at(&mut body, MARGIN, top, &drawing.body);
    let size = Size {
        width: drawing.size.width + 2.0 * MARGIN,
        height: top + drawing.size.height + MARGIN,
    };
    Ok(document(&skyline.title, size, &body))
}

/// The pools, one below the other.
pub(crate) fn draw(skyline: &Skyline) -> Result<Fragment, SkylineError> {
    skyline.check()?;
    let mut body = String::new();
    let mut y = 0.0;
    for pool in &skyline.pools {
        let mut drawn = String::new();
        draw_pool(&mut drawn, pool);
        at(&mut body, 0.0, y, &drawn);
        y += PLOT.height + 70.0;
    }
    if skyline.pools.is_empty() {
        text(&mut body, "s", 0.0, 14.0, "This graph has no buffers of its own to place.");
        y = 24.0;
    }
    Ok(Fragment { body, size: Size { width: NAMES + PLOT.width + 20.0, height: y } })
}

fn draw_pool(out: &mut String, pool: &Pool) {
    let chart = Chart {
        pool,
        unit_x: PLOT.width / pool.order.len().max(1) as f64,
        unit_y: PLOT.height / pool.bytes.max(1) as f64,
    };
    chart.heading(out);
    chart.grid(out);
    let left_out = chart.blocks(out);
    chart.in_use(out);
    chart.levels(out);
    chart.note(out, left_out);
}

/// Below the heading.
const TOP: f64 = 30.0;
const BOTTOM: f64 = TOP + PLOT.height;

/// A pool and its scales.
struct Chart<'a> {
    pool: &'a Pool,
    /// Of a moment.
    unit_x: f64,
    /// Of a byte.
    unit_y: f64,
}

/// Blocks that are not drawn: those too thin to be told from a neighbour, and those beyond the limit.
struct LeftOut {
    merged: usize,
    hidden: usize,
}

impl Chart<'_> {
    fn height_of(&self, bytes: u64) -> f64 {
        BOTTOM - bytes as f64 * self.unit_y
    }

    fn heading(&self, out: &mut String) {
        let mut heading = format!("{}: {}", elide(&self.pool.name, 60), bytes(self.pool.bytes));
        if let Some((bound, why)) = &self.pool.bound {
            write!(heading, ", at least {} ({})", bytes(*bound), elide(why, 60))
                .expect("a String takes all");
        }
        write!(heading, ", {} if nothing were shared", bytes(self.pool.unshared))
            .expect("a String takes all");
        text(out, "f", 0.0, 14.0, &heading);
    }

    fn grid(&self, out: &mut String) {
        for quarter in 0..=4u64 {
            let mark = (u128::from(self.pool.bytes) * u128::from(quarter) / 4) as u64;
            let y = self.height_of(mark);
            out.push_str(&format!(
                "<path class=\"grid\" d=\"M{} {}H{}\"/>",
                num(NAMES),
                num(y),
                num(NAMES + PLOT.width)
            ));
            let label = bytes(mark);
            text(out, "s", NAMES - 8.0 - columns(&label) as f64 * 6.6, y + 4.0, &label);
        }
    }

    fn blocks(&self, out: &mut String) -> LeftOut {
        // What lies in the same pixels, where there is too much of it.
        let crowded = self.pool.blocks.len() > MAX_BLOCKS;
        let mut seen: FxHashSet<[i64; 3]> = FxHashSet::default();
        let (mut drawn, mut merged, mut hidden) = (0, 0, 0);
        for (b, block) in self.pool.blocks.iter().enumerate() {
            let x = NAMES + f64::from(block.first.0) * self.unit_x;
            let width = (f64::from(block.last.0 - block.first.0) + 1.0) * self.unit_x;
            let height = block.bytes as f64 * self.unit_y;
            let y = self.height_of(block.offset) - height;
            let place = [x, y, height].map(|at| at.round() as i64);
            if crowded && width < 1.0 && !seen.insert(place) {
                merged += 1;
                continue;
            }
            if drawn == MAX_BLOCKS {
                hidden += 1;
                continue;
            }
            drawn += 1;
            let tip = format!(
                "{}\n{} at byte {}\nlives from moment {} to {}",
                capped(&block.label),
                bytes(block.bytes),
                thousands(block.offset),
                block.first,
                block.last
            );
            let thin = if width < 2.0 { " thin" } else { "" };
            out.push_str(&format!("<g class=\"sp bl{thin}\"><title>"));
            escape(out, &tip);
            out.push_str(&format!(
                "</title><rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                style::lane_class(LaneIx(b as u32)),
                num(x),
                num(y),
                num(width.max(0.5)),
                num(height.max(0.5))
            ));
            let room = ((width - 6.0) / CHAR).max(0.0) as usize;
            if room >= columns(&block.label).min(9) && height >= 11.0 {
                let label = elide(&block.label, room.min(40));
                text(out, "d", x + 3.0, y + height.min(16.0) / 2.0 + 4.0, &label);
            }
            out.push_str("</g>");
        }
        LeftOut { merged, hidden }
    }

    /// The bytes in use at each moment.
    fn in_use(&self, out: &mut String) {
        let mut line = String::new();
        // Of moments that share half a pixel, the most: a line for each would fill the drawing.
        let live = self.pool.live();
        let together = ((0.5 / self.unit_x) as usize).max(1);
        for (at, moments) in live.chunks(together).enumerate() {
            let most = moments.iter().max().copied().unwrap_or(0);
            let command = if at == 0 { 'M' } else { 'L' };
            let first = (at * together) as f64;
            let [x0, x1] =
                [first, first + moments.len() as f64].map(|x| num(NAMES + x * self.unit_x));
            write!(line, "{command}{x0} {}H{x1}", num(self.height_of(most)))
                .expect("a String takes all");
        }
        if !line.is_empty() {
            // Where moments are narrow a heavy line would hide what it is about.
            let width = num((self.unit_x / 6.0).clamp(0.7, 2.0));
            out.push_str(&format!(
                "<path class=\"e l-crit\" style=\"stroke-width:{width}\" d=\"{line}\"/>"
            ));
        }
    }

    /// The size of the pool and the bound, and what the lines are.
    fn levels(&self, out: &mut String) {
        let mut lines = vec![(self.pool.bytes, "l-red")];
        lines.extend(self.pool.bound.iter().map(|(bound, _)| (*bound, "l-prog")));
        for (level, class) in lines {
            out.push_str(&format!(
                "<path class=\"e {class}\" d=\"M{} {}H{}\"/>",
                num(NAMES),
                num(self.height_of(level)),
                num(NAMES + PLOT.width)
            ));
        }
        let mut x = NAMES + PLOT.width;
        for (class, words) in
            [("l-crit", "bytes in use"), ("l-prog", "at least"), ("l-red", "pool")]
        {
            if class == "l-prog" && self.pool.bound.is_none() {
                continue;
            }
            x -= columns(words) as f64 * SANS_WIDTH + 52.0;
            let y = BOTTOM + 12.0;
            out.push_str(&format!(
                "<path class=\"m {class}\" d=\"M{0} {1}h24v2h-24z\"/>",
                num(x),
                num(y)
            ));
            text(out, "s", x + 30.0, y + 4.0, words);
        }
    }

    fn note(&self, out: &mut String, LeftOut { merged, hidden }: LeftOut) {
        let mut note = format!("{} in the order of issue", count(self.pool.order.len(), "moment"));
        for (n, words) in
            [(merged, "too thin to be told from a neighbour"), (hidden, "beyond the limit")]
        {
            if n > 0 {
                write!(note, "; not drawn: {} {words}", count(n, "buffer"))
                    .expect("a String takes all");
            }
        }
        text(out, "s", NAMES, BOTTOM + 16.0, &note);
    }
}
