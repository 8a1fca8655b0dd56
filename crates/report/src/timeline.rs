//! Spans of time on lanes, and their drawing.
//!
//! In: a [`Timeline`]. Out: SVG with a time axis, one row for each lane (more where spans of a lane
//! overlap), colours by class, tooltips. O(n log n). Above [`MAX_SPANS`] spans, neighbours too thin to be seen are
//! drawn as one, and the drawing says so.

use std::collections::BTreeSet;

use crate::layout::Size;
use crate::legend::{Used, legend};
use crate::picture::{GroupIx, LaneIx, NodeClass, NodeIx, index};
use crate::style::{self, Line};
use crate::svg::{Fragment, MARGIN, at, document, text};
use crate::text::{capped, columns, count, elide, escape, num, thousands};

index! {
    /// A span: its position in [`Lane::spans`].
    SpanIx
}

/// What the times of a timeline count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Steps: what nodes cost is not known.
    Steps,
}

/// When things ran, or would run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// The heading.
    pub title: String,
    /// Streams, threads or devices, in the order of their rows.
    pub lanes: Vec<Lane>,
    /// What its times count.
    pub unit: Unit,
}

/// One row of a timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// The name at the left.
    pub name: String,
    /// What ran, in any order.
    pub spans: Vec<Span>,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The name.
    pub label: String,
    /// Colour.
    pub class: NodeClass,
    /// In the timeline's unit, on any clock that all spans share.
    pub start: u64,
    /// In the timeline's unit; not before the start.
    pub end: u64,
    /// The node that ran, in the picture shown with the timeline.
    pub node: Option<(GroupIx, NodeIx)>,
    /// Lies on the critical path.
    pub critical: bool,
}

/// A span of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanAt {
    /// The lane.
    pub lane: LaneIx,
    /// The span in it.
    pub span: SpanIx,
}

/// Why a timeline cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimelineError {
    /// A span ends before it starts.
    #[error("lane {}, span {}: it ends at {end} ns, before it starts at {start} ns", at.lane, at.span)]
    Backward {
        /// The span.
        at: SpanAt,
        /// Its start.
        start: u64,
        /// Its end.
        end: u64,
    },
    /// A dependency names a span that is not there.
    #[error("dependency {dependency}: there is no span {} in lane {}", at.span, at.lane)]
    MissingSpan {
        /// The position in the list of dependencies.
        dependency: usize,
        /// The span that is missing.
        at: SpanAt,
    },
    /// More lanes, or spans in one lane, than indices can name.
    #[error("more than {limit} lanes or spans in a lane")]
    TooLarge {
        /// The limit.
        limit: u32,
    },
}

/// Spans drawn one by one.
pub const MAX_SPANS: usize = 20_000;

const PLOT: f64 = 1_200.0;
const NAMES: f64 = 170.0;
const AXIS: f64 = 26.0;
const ROW: f64 = 24.0;
const LANE_GAP: f64 = 10.0;
/// Width of a character in a span.
const CHAR: f64 = 6.35;
/// Spans nearer than this, in pixels, may be drawn as one.
const THIN: f64 = 0.5;

impl Timeline {
    /// The first start and the last end, if there are spans.
    pub(crate) fn check(&self) -> Result<Option<(u64, u64)>, TimelineError> {
        let limit = u32::MAX;
        if self.lanes.len() > limit as usize
            || self.lanes.iter().any(|l| l.spans.len() > limit as usize)
        {
            return Err(TimelineError::TooLarge { limit });
        }
        let mut range: Option<(u64, u64)> = None;
        for (l, lane) in self.lanes.iter().enumerate() {
            for (s, span) in lane.spans.iter().enumerate() {
                if span.end < span.start {
                    return Err(TimelineError::Backward {
                        at: SpanAt { lane: LaneIx(l as u32), span: SpanIx(s as u32) },
                        start: span.start,
                        end: span.end,
                    });
                }
                let (first, last) = range.unwrap_or((span.start, span.end));
                range = Some((first.min(span.start), last.max(span.end)));
            }
        }
        Ok(range)
    }
}

/// Draws the timeline as an SVG document.
///
/// # Errors
///
/// [`TimelineError::Backward`] if a span ends before it starts.
///
/// ```
/// use phonograph_report::picture::NodeClass;
/// use phonograph_report::timeline::{Lane, Span, Timeline, svg};
///
/// let span = Span {
///     label: "axpy".into(),
///     class: NodeClass::Kernel,
///     start: 1_000,
///     end: 3_500,
///     node: None,
///     critical: false,
/// };
/// let lanes = vec![Lane { name: "stream 0".into(), spans: vec![span] }];
/// let drawing = svg(&Timeline { title: "replay".into(), lanes, ..Timeline::default() })?;
/// assert!(drawing.contains("2.5 µs"));
/// # Ok::<(), phonograph_report::timeline::TimelineError>(())
/// ```
pub fn svg(timeline: &Timeline) -> Result<String, TimelineError> {
    let mut used = Used::default();
    let drawing = draw(timeline, &mut used)?;
    let legend = legend(&used, "");
    let top = MARGIN + 26.0 + legend.size.height;
    let mut body = String::new();
    at(&mut body, MARGIN, MARGIN + 26.0, &legend.body);
    at(&mut body, MARGIN, top, &drawing.body);
    let size = Size {
        width: drawing.size.width + 2.0 * MARGIN,
        height: top + drawing.size.height + MARGIN,
    };
    Ok(document(&timeline.title, size, &body))
}

/// The rows and the axis.
pub(crate) fn draw(timeline: &Timeline, used: &mut Used) -> Result<Fragment, TimelineError> {
    let range = timeline.check()?;
    let (first, last) = range.unwrap_or((0, 0));
    let length = (last - first).max(1);
    let scale = PLOT / length as f64;
    let total: usize = timeline.lanes.iter().map(|l| l.spans.len()).sum();

    let mut body = String::new();
    let mut y = AXIS;
    let mut merged = 0;
    let mut dividers = Vec::new();
    for lane in &timeline.lanes {
        let rows = lane.rows();
        let height = ROW * rows.len().max(1) as f64;
        body.push_str("<g><title>");
        escape(&mut body, &capped(&lane.name));
        body.push_str("</title>");
        text(&mut body, "t", 0.0, y + 10.5, &elide(&lane.name, 22));
        let share = 100.0 * lane.busy() as f64 / length as f64;
        let words = format!("busy {} %, {}", num(share), count(lane.spans.len(), "span"));
        text(&mut body, "s", 0.0, y + 22.0, &words);
        body.push_str("</g>");
        for (r, row) in rows.iter().enumerate() {
            let spans = row.iter().map(|s| &lane.spans[s.index()]);
            let place = |at: u64| (at - first) as f64 * scale;
            let pieces = pieces(spans, place, total > MAX_SPANS, used);
            merged += row.len() - pieces.len();
            let top = y + ROW * r as f64;
            pieces.iter().for_each(|piece| piece.draw(&mut body, top, first, timeline.unit));
        }
        y += height + LANE_GAP;
        dividers.push(y - LANE_GAP / 2.0);
    }

    let mut out = grid(length, range.is_some(), timeline.unit, y);
    for line in dividers {
        let (at, end) = (num(line), num(NAMES + PLOT));
        out.push_str(&format!("<path class=\"grid\" d=\"M0 {at}H{end}\"/>"));
    }
    out.push_str(&body);
    let mut notes = Vec::new();
    if range.is_none() {
        notes.push("Nothing runs here: the graph has no nodes.".to_owned());
    }
    if merged > 0 {
        notes.push(format!(
            "{} are too many to draw one by one (the limit is {}): {} are drawn as one with a neighbour nearer than half \
             a pixel.",
            count(total, "span"),
            thousands(MAX_SPANS),
            thousands(merged),
        ));
    }
    for note in notes {
        text(&mut out, "s", 0.0, y + 12.0, &note);
        y += 16.0;
    }
    Ok(Fragment {
        body: out,
        size: Size {
            // The label of the last tick may stand beyond the plot.
            width: NAMES + PLOT + 60.0,
            height: y + 4.0,
        },
    })
}

/// The axis above rows that end at `bottom`: what it counts, and a line for each tick, named where something runs.
fn grid(length: u64, named: bool, unit: Unit, bottom: f64) -> String {
    let mut out = String::new();
    let (scale, step) = (PLOT / length as f64, step(length));
    let axis = match unit {
        Unit::Nanoseconds => "time",
        Unit::Steps => "step",
    };
    text(&mut out, "s", 0.0, AXIS - 10.0, axis);
    // An axis of one nanosecond or so has few ticks; none beyond the end is drawn.
    for k in 0..=length / step {
        let x = NAMES + (k * step) as f64 * scale;
        let (at, top, bottom) = (num(x), num(AXIS - 6.0), num(bottom));
        out.push_str(&format!("<path class=\"grid\" d=\"M{at} {top}V{bottom}\"/>"));
        if named {
            text(&mut out, "s", x + 3.0, AXIS - 10.0, &time(k * step, step, unit));
        }
    }
    out
}

/// What is drawn of a row: its spans, where it is crowded those of one class in the same pixel as one.
fn pieces<'a>(
    spans: impl Iterator<Item = &'a Span>,
    place: impl Fn(u64) -> f64,
    crowded: bool,
    used: &mut Used,
) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece> = Vec::new();
    for span in spans {
        used.classes.insert(span.class);
        if span.critical {
            used.lines.insert(Line::Critical);
        }
        let (x0, x1) = (place(span.start), place(span.end));
        match pieces.last_mut() {
            Some(p)
                if crowded
                    && p.span.class == span.class
                    && x0 - p.x1 < THIN
                    && x1 - p.x0 < THIN =>
            {
                p.x1 = x1;
                p.count += 1;
            }
            _ => pieces.push(Piece { span, x0, x1, count: 1 }),
        }
    }
    pieces
}

struct Piece<'a> {
    span: &'a Span,
    x0: f64,
    x1: f64,
    count: usize,
}

impl Piece<'_> {
    fn draw(&self, out: &mut String, top: f64, first: u64, unit: Unit) {
        let width = (self.x1 - self.x0).max(1.0);
        out.push_str(&format!("<g class=\"sp {}", style::box_class(self.span.class)));
        if width < 3.0 {
            out.push_str(" thin");
        }
        out.push_str("\"><title>");
        if self.count > 1 {
            out.push_str(&format!("{} drawn as one, the first:\n", count(self.count, "span")));
        }
        let tip = format!(
            "{}\n{}\nfrom {} to {}, {}{}",
            capped(&self.span.label),
            self.span.class.name(),
            exact(self.span.start - first, unit),
            exact(self.span.end - first, unit),
            exact(self.span.end - self.span.start, unit),
            if self.span.critical { "\non the critical path" } else { "" }
        );
        escape(out, &tip);
        out.push_str(&format!(
            "</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
            num(NAMES + self.x0),
            num(top + 1.0),
            num(width),
            num(ROW - 4.0),
            if width > 6.0 { 2 } else { 0 }
        ));
        if self.span.critical {
            // An underline: borders of many thin neighbours would be all there is to see.
            let (x, y) = (num(NAMES + self.x0), num(top + ROW - 3.0));
            out.push_str(&format!("<path class=\"e l-crit\" d=\"M{x} {y}h{}\"/>", num(width)));
        }
        let room = ((width - 8.0) / CHAR) as usize;
        if room >= columns(&self.span.label).min(9) {
            let label = elide(&self.span.label, room.min(60));
            text(out, "d", NAMES + self.x0 + 4.0, top + 14.5, &label);
        }
        out.push_str("</g>");
    }
}

impl Lane {
    /// The spans by start, on as few rows as keep them apart.
    pub(crate) fn rows(&self) -> Vec<Vec<SpanIx>> {
        let mut order: Vec<SpanIx> = (0..self.spans.len() as u32).map(SpanIx).collect();
        order.sort_by_key(|&s| {
            let span = &self.spans[s.index()];
            (span.start, std::cmp::Reverse(span.end), s)
        });
        let mut rows: Vec<Vec<SpanIx>> = Vec::new();
        // Rows by when they become free: the lowest row that is free takes the span.
        let mut free: BTreeSet<usize> = BTreeSet::new();
        let mut taken: BTreeSet<(u64, usize)> = BTreeSet::new();
        for s in order {
            let span = &self.spans[s.index()];
            while let Some(&(end, row)) = taken.first() {
                if end > span.start {
                    break;
                }
                taken.pop_first();
                free.insert(row);
            }
            let row = free.pop_first().unwrap_or(rows.len());
            if row == rows.len() {
                rows.push(Vec::new());
            }
            rows[row].push(s);
            taken.insert((span.end, row));
        }
        rows
    }

    /// The time in which at least one span runs.
    pub(crate) fn busy(&self) -> u64 {
        let mut times: Vec<(u64, u64)> = self.spans.iter().map(|s| (s.start, s.end)).collect();
        times.sort_unstable();
        let (mut sum, mut until) = (0, 0);
        for (start, end) in times {
            sum += end.saturating_sub(start.max(until));
            until = until.max(end);
        }
        sum
    }
}

/// A round distance of ticks: 1, 2 or 5 times a power of ten, for six to fifteen ticks.
fn step(length: u64) -> u64 {
    let mut power = 1u64;
    loop {
        for factor in [1, 2, 5] {
            let step = power.saturating_mul(factor);
            if length / step <= 14 {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// A time on an axis with ticks every `step` nanoseconds: the unit is that of the step.
fn time(ns: u64, step: u64, counted: Unit) -> String {
    if ns == 0 || counted == Unit::Steps {
        return thousands(ns);
    }
    let (unit, name) = unit(step.saturating_mul(10));
    decimal(ns, unit) + name
}

/// A duration in its natural unit, without loss.
fn exact(ns: u64, counted: Unit) -> String {
    if counted == Unit::Steps {
        return count(usize::try_from(ns).unwrap_or(usize::MAX), "step");
    }
    let (unit, name) = unit(ns);
    decimal(ns, unit) + name
}

fn unit(ns: u64) -> (u64, &'static str) {
    match ns {
        0..1_000 => (1, " ns"),
        1_000..1_000_000 => (1_000, " µs"),
        1_000_000..1_000_000_000 => (1_000_000, " ms"),
        _ => (1_000_000_000, " s"),
    }
}

fn decimal(ns: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", ns / unit, ns % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64) -> Span {
        Span {
            label: "s".into(),
            class: NodeClass::Kernel,
            start,
            end,
            node: None,
            critical: false,
        }
    }

    #[test]
    fn times_keep_their_digits() {
        for (ns, want) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 µs"),
            (1_050, "1.05 µs"),
            (20_000_000, "20 ms"),
            (1_000_000_001, "1.000000001 s"),
            (u64::MAX, "18446744073.709551615 s"),
        ] {
            assert_eq!(exact(ns, Unit::Nanoseconds), want);
        }
    }

    #[test]
    fn ticks_are_few_and_round() {
        arbtest::arbtest(|u| {
            let length = u.arbitrary::<u64>()?.max(1) >> u.int_in_range(0..=63u32)?;
            let length = length.max(1);
            let step = step(length);
            let ticks = length / step;
            assert!(ticks <= 14, "{length} {step}");
            assert!(length < 10 || ticks >= 5, "{length} {step}");
            let leading = step.to_string();
            assert!(matches!(leading.trim_end_matches('0'), "1" | "2" | "5"), "{leading}");
            Ok(())
        })
        .budget_ms(200);
    }

    #[test]
    fn rows_keep_spans_apart_and_are_as_many_as_overlap() {
        arbtest::arbtest(|u| {
            let mut lane = Lane::default();
            for _ in 0..u.int_in_range(0..=20)? {
                let start = u.int_in_range(0..=30u64)?;
                lane.spans.push(span(start, start + u.int_in_range(1..=9u64)?));
            }
            let rows = lane.rows();
            let mut seen: Vec<SpanIx> = rows.iter().flatten().copied().collect();
            seen.sort();
            assert_eq!(seen.len(), lane.spans.len());
            seen.dedup();
            assert_eq!(seen.len(), lane.spans.len());
            for row in &rows {
                for two in row.windows(2) {
                    assert!(lane.spans[two[0].index()].end <= lane.spans[two[1].index()].start);
                }
            }
            let at_once = |t: u64| lane.spans.iter().filter(|s| s.start <= t && t < s.end).count();
            assert_eq!(rows.len(), (0..40).map(at_once).max().unwrap_or(0));
            let busy_for = (0..40).filter(|&t| at_once(t) > 0).count() as u64;
            assert_eq!(lane.busy(), busy_for);
            Ok(())
        })
        .budget_ms(400);
    }
}
