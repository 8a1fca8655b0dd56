//! Colours and lines: the style sheet of every drawing, and the legend of what one drawing uses.
//!
//! Plain rules with a `prefers-color-scheme` block instead of CSS variables, which some SVG viewers lack. The page
//! paints its own background, so a drawing is legible wherever it is put.

use crate::picture::{Edge, EdgeStyle, NodeClass};

/// Fixed-width, so that the width of a text is known without measuring it.
pub(crate) const MONO: &str =
    "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace";
pub(crate) const SANS: &str =
    "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',sans-serif";

/// How an edge looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    Full,
    Critical,
    Redundant,
    Programmatic,
    LaunchOrder,
    Reuse,
}

impl Line {
    pub(crate) const ALL: [Line; 6] = [
        Line::Full,
        Line::Critical,
        Line::Redundant,
        Line::Programmatic,
        Line::LaunchOrder,
        Line::Reuse,
    ];

    /// Redundant beats all: it is what one looks for. Whether a critical edge is weak is in its tooltip.
    pub(crate) fn of(edge: &Edge) -> Line {
        match (edge.redundant, edge.critical, edge.reuse, edge.style) {
            (true, ..) => Line::Redundant,
            (_, true, ..) => Line::Critical,
            (_, _, true, _) => Line::Reuse,
            (_, _, _, EdgeStyle::Programmatic) => Line::Programmatic,
            (_, _, _, EdgeStyle::LaunchOrder) => Line::LaunchOrder,
            (_, _, _, EdgeStyle::Full) => Line::Full,
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Line::Full => "l-full",
            Line::Critical => "l-crit",
            Line::Redundant => "l-red",
            Line::Programmatic => "l-prog",
            Line::LaunchOrder => "l-order",
            Line::Reuse => "l-reuse",
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Line::Full => "dependency",
            Line::Critical => "critical path",
            Line::Redundant => "redundant",
            Line::Programmatic => "programmatic",
            Line::LaunchOrder => "launch order",
            Line::Reuse => "memory reuse",
        }
    }

    fn dash(self) -> &'static str {
        match self {
            Line::Full | Line::Critical => "none",
            Line::Redundant => "6 4",
            Line::Programmatic => "9 4",
            Line::LaunchOrder => "2 4",
            Line::Reuse => "9 3 2 3",
        }
    }

    fn width(self) -> f64 {
        match self {
            Line::Critical => 2.6,
            Line::Full => 1.3,
            _ => 1.5,
        }
    }

    /// Light and dark.
    fn colours(self) -> [&'static str; 2] {
        match self {
            Line::Full => ["#7b8794", "#7d8896"],
            Line::Critical => ["#1f2933", "#f0f4f8"],
            Line::Redundant => ["#d64545", "#ff7b72"],
            Line::Programmatic => ["#0b7a9e", "#5cc8e8"],
            Line::LaunchOrder => ["#8250c4", "#bb9af7"],
            Line::Reuse => ["#a66a00", "#e3b341"],
        }
    }
}

/// Fill and border, light then dark.
fn class_colours(class: NodeClass) -> [[&'static str; 2]; 2] {
    match class {
        NodeClass::Kernel => [["#dbeafe", "#3b74c9"], ["#1b2f4d", "#6ea3ee"]],
        NodeClass::Memcpy => [["#ffe8cc", "#cf7a16"], ["#46300f", "#eaa24c"]],
        NodeClass::Memset => [["#fff3bf", "#b08900"], ["#3f380f", "#d8bd3c"]],
        NodeClass::Host => [["#f3e0fb", "#9c4fbd"], ["#3b2147", "#cf8fe8"]],
        NodeClass::Empty => [["#eceff2", "#8a95a1"], ["#2a3037", "#8b97a4"]],
        NodeClass::Event => [["#d3f4ef", "#1a8f7f"], ["#123b36", "#4fc9b7"]],
        NodeClass::Alloc => [["#d8f5d4", "#3f9142"], ["#1b3a1d", "#6cc36f"]],
        NodeClass::Free => [["#f3e3d8", "#9b6a45"], ["#3a2a1f", "#c9976f"]],
        NodeClass::Child => [["#e2e2fd", "#5a55c4"], ["#2a2956", "#9a96f2"]],
        NodeClass::Conditional => [["#fde0ec", "#c4367a"], ["#4a1a31", "#f07fb2"]],
        NodeClass::Summary => [["#e4eaf0", "#52606d"], ["#28313b", "#9fb3c8"]],
    }
}

/// Colours of lanes; a ninth lane looks like the first.
const LANES: [[&str; 2]; 8] = [
    ["#2f6fde", "#6ea3ee"],
    ["#e07a10", "#f2a65a"],
    ["#2f9e44", "#69cf7d"],
    ["#c2255c", "#f06595"],
    ["#7048c8", "#a98bf0"],
    ["#0c8599", "#4cc3d6"],
    ["#8d6b1f", "#cdaa55"],
    ["#5c6773", "#a3b0bd"],
];

/// Which of [`LANES`] colours a lane.
pub(crate) fn lane_class(lane: crate::picture::LaneIx) -> String {
    format!("ln{}", lane.index() % LANES.len())
}

/// The class of boxes and spans of a kind.
pub(crate) fn box_class(class: NodeClass) -> String {
    format!("k-{}", class.name())
}

/// The style sheet; every rule is below `.pg`, so it does not reach the page around.
pub(crate) fn sheet() -> String {
    let mut css = format!(
        ".pg text{{font-family:{SANS};font-size:12px}}\
         .pg .t{{font-family:{MONO};font-size:12px}}.pg .d{{font-family:{MONO};font-size:10.5px}}\
         .pg .h{{font-size:17px;font-weight:600}}.pg .f{{font-size:13px;font-weight:600}}.pg .s{{font-size:11.5px}}\
         .pg .n rect{{stroke-width:1.2}}.pg .n.crit rect.b{{stroke-width:2.8}}\
         .pg .n.off{{opacity:.5}}.pg .n.off rect.b{{stroke-dasharray:4 3}}.pg .n.off .t{{text-decoration:line-through}}\
         .pg .e{{fill:none}}.pg .frame{{fill:none;stroke-width:1;stroke-dasharray:5 4}}\
         .pg .sp rect{{stroke-width:.6}}.pg .sp .l-crit{{stroke-width:2}}.pg .sp.thin rect{{stroke:none}}\
         .pg .bl rect{{fill-opacity:.3}}.pg .grid{{stroke-width:1}}"
    );
    for line in Line::ALL {
        let class = line.class();
        css.push_str(&format!(
            ".pg .{class}{{stroke-width:{};stroke-dasharray:{}}}",
            line.width(),
            line.dash()
        ));
    }
    scheme(&mut css, 0);
    css.push_str("@media(prefers-color-scheme:dark){");
    scheme(&mut css, 1);
    css.push('}');
    css
}

fn scheme(css: &mut String, dark: usize) {
    let [background, ink, muted, frame, grid] = [
        ["#ffffff", "#1f2933", "#52606d", "#b8c2cc", "#e4e7eb"],
        ["#14181d", "#e6ebf0", "#9aa7b4", "#46515c", "#2a3138"],
    ][dark];
    css.push_str(&format!(
        ".pg .bg{{fill:{background}}}.pg text{{fill:{ink}}}.pg .d,.pg .s{{fill:{muted}}}\
         .pg .frame{{stroke:{frame}}}.pg .grid{{stroke:{grid}}}"
    ));
    for class in NodeClass::ALL {
        let [fill, border] = class_colours(class)[dark];
        let name = box_class(class);
        css.push_str(&format!(".pg .{name} rect{{fill:{fill};stroke:{border}}}"));
        // A span too thin for a border shows the border's colour, which stands out from the background.
        css.push_str(&format!(".pg .thin.{name} rect{{fill:{border}}}"));
    }
    let critical = Line::Critical.colours()[dark];
    css.push_str(&format!(".pg .n.crit rect.b{{stroke:{critical}}}"));
    for line in Line::ALL {
        let (class, colour) = (line.class(), line.colours()[dark]);
        css.push_str(&format!(".pg .e.{class}{{stroke:{colour}}}.pg .m.{class}{{fill:{colour}}}"));
    }
    for (i, colours) in LANES.iter().enumerate() {
        css.push_str(&format!(
            ".pg .n rect.ln{i},.pg rect.ln{i}{{fill:{0};stroke:none}}.pg .bl rect.ln{i}{{stroke:{0}}}",
            colours[dark]
        ));
    }
}

/// The same colours as variables, for what a script draws.
pub(crate) fn variables() -> String {
    let mut css = format!(":root{{--mono:{MONO};--sans:{SANS};");
    for line in Line::ALL {
        css.push_str(&format!(
            "--{0}-width:{1};--{0}-dash:{2};",
            line.class(),
            line.width(),
            line.dash()
        ));
    }
    css.push_str(&format!("--lanes:{};", LANES.len()));
    scheme_variables(&mut css, 0);
    css.push_str("}@media(prefers-color-scheme:dark){:root{");
    scheme_variables(&mut css, 1);
    css.push_str("}}");
    css
}

fn scheme_variables(css: &mut String, dark: usize) {
    for class in NodeClass::ALL {
        let [fill, border] = class_colours(class)[dark];
        css.push_str(&format!("--{0}:{fill};--{0}-line:{border};", box_class(class)));
    }
    for line in Line::ALL {
        css.push_str(&format!("--{}:{};", line.class(), line.colours()[dark]));
    }
    for (i, colours) in LANES.iter().enumerate() {
        css.push_str(&format!("--ln{i}:{};", colours[dark]));
    }
}

/// The arrow heads of the lines in use; `prefix` keeps apart several drawings on one page.
pub(crate) fn markers(out: &mut String, prefix: &str, lines: &[Line]) {
    out.push_str("<defs>");
    for line in lines {
        let class = line.class();
        // In user units: a heavy line should not get a huge head.
        out.push_str(&format!(
            "<marker id=\"{prefix}{class}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
             markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\">\
             <path class=\"m {class}\" d=\"M0 .8 8 4 0 7.2z\"/></marker>"
        ));
    }
    out.push_str("</defs>");
}
