//! One HTML file that shows everything, without network.
//!
//! In: a [`Page`]. Out: a document with its style and script inside: a summary, each graph with zoom, pan, search and a
//! panel for the node that was clicked, each timeline. Data lies in JSON scripts in which `<` is escaped, so no name
//! can end them; a content security policy forbids everything that is not in the file. Linear plus layout.

use std::borrow::Cow;

use serde::Serialize;

use crate::collapse::collapse;
use crate::legend::{Used, legend};
use crate::picture::{Edge, Picture, PictureError};
use crate::style::{self, Line, MONO, SANS};
use crate::svg::{Fragment, draw};
use crate::text::{capped, elide, escape, escaped, num};
use crate::timeline::{self, Timeline, TimelineError};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// A document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// Names and values of the table at the top.
    pub summary: Vec<(String, String)>,
    /// What follows.
    pub sections: Vec<Section>,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    /// A graph that one can search and walk through.
    Graph(Picture),
    /// Lanes of spans; a click on one shows its node in the nearest graph above.
    Timeline(Timeline),
}

/// Why a page cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// A graph cannot be drawn.
    #[error("section {section}: {error}")]
    Picture {
        /// The position in [`Page::sections`].
        section: usize,
        /// Why.
        #[source]
        error: PictureError,
    },
    /// A timeline cannot be drawn.
    #[error("section {section}: {error}")]
    Timeline {
        /// The position in [`Page::sections`].
        section: usize,
        /// Why.
        #[source]
        error: TimelineError,
    },
}

/// Makes the document.
///
/// # Errors
///
/// [`PageError`] if a section cannot be drawn.
///
/// ```
/// use phonograph_report::html::{Page, Section, html};
/// use phonograph_report::picture::{Group, Node, NodeClass, Picture};
///
/// let mut main = Group::new("main");
/// main.nodes.push(Node::new(NodeClass::Kernel, "</script><script>alert(1)"));
/// let page = Page {
///     title: "one kernel".into(),
///     summary: vec![("nodes".into(), "1".into())],
///     sections: vec![Section::Graph(Picture { title: "graph".into(), groups: vec![main] })],
/// };
/// assert!(!html(&page)?.contains("<script>alert"));
/// # Ok::<(), phonograph_report::html::PageError>(())
/// ```
pub fn html(page: &Page) -> Result<String, PageError> {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>",
    );
    escape(&mut out, &capped(&page.title));
    let fonts = format!(":root{{--mono:{MONO};--sans:{SANS}}}");
    out.push_str(&format!(
        "</title><style>{fonts}{}{STYLE}</style></head><body>\n<header><h1>",
        style::sheet()
    ));
    escape(&mut out, &elide(&page.title, 200));
    out.push_str("</h1>");
    if !page.summary.is_empty() {
        out.push_str("<dl>");
        for (name, value) in &page.summary {
            out.push_str("<div><dt>");
            escape(&mut out, &capped(name));
            out.push_str("</dt><dd>");
            escape(&mut out, &capped(value));
            out.push_str("</dd></div>");
        }
        out.push_str("</dl>");
    }
    out.push_str("</header>\n");

    // The graph that spans point into, unless its nodes are not drawn one by one.
    let mut nodes = None;
    for (s, section) in page.sections.iter().enumerate() {
        let prefix = format!("s{s}");
        match section {
            Section::Graph(picture) => {
                let whole = graph(&mut out, picture, &prefix)
                    .map_err(|error| PageError::Picture { section: s, error })?;
                nodes = whole.then_some(prefix);
            }
            Section::Timeline(timeline) => {
                times(&mut out, timeline, &prefix, nodes.as_deref())
                    .map_err(|error| PageError::Timeline { section: s, error })?;
            }
        }
    }
    out.push_str(&format!("<script>{SCRIPT}</script>\n</body></html>\n"));
    Ok(out)
}

/// Writes a graph's section; whether every node is drawn as itself.
fn graph(out: &mut String, picture: &Picture, prefix: &str) -> Result<bool, PictureError> {
    let picture = collapse(picture)?;
    let drawing = draw(&picture, prefix)?;
    let lines: Vec<Line> = drawing.used.lines.iter().copied().collect();
    let mut body = String::new();
    style::markers(&mut body, prefix, &lines);
    body.push_str(&drawing.body);
    let shown = Fragment { body, size: drawing.size };
    section(out, &picture.title, prefix, &shown, &drawing.used, true);
    out.push_str("<script type=\"application/json\" class=\"data\">");
    out.push_str(&data(&picture));
    out.push_str("</script></section>\n");
    Ok(matches!(picture, Cow::Borrowed(_)))
}

fn times(
    out: &mut String,
    timeline: &Timeline,
    prefix: &str,
    nodes: Option<&str>,
) -> Result<(), TimelineError> {
    let mut used = Used::default();
    let drawing = timeline::draw(timeline, nodes, &mut used)?;
    section(out, &timeline.title, prefix, &drawing, &used, false);
    out.push_str("</section>\n");
    Ok(())
}

/// A drawing with its controls; the caller closes the section.
fn section(
    out: &mut String,
    title: &str,
    prefix: &str,
    drawing: &Fragment,
    used: &Used,
    search: bool,
) {
    const PAD: f64 = 12.0;
    out.push_str(&format!(
        "<section id=\"{prefix}\"><div class=\"bar\"><h2>{}</h2>",
        escaped(&elide(title, 120))
    ));
    if search {
        out.push_str(
            "<input type=\"search\" placeholder=\"Search nodes ( / )\" aria-label=\"Search nodes\">\
             <span class=\"hits\" aria-live=\"polite\"></span>",
        );
    }
    out.push_str(
        "<span class=\"keys\"><button data-do=\"in\" title=\"Zoom in (+)\">+</button>\
         <button data-do=\"out\" title=\"Zoom out (-)\">−</button>\
         <button data-do=\"fit\" title=\"Show all (0)\">all</button>\
         <button data-do=\"one\" title=\"Full size (1)\">1:1</button></span></div>",
    );
    let legend = legend(used, prefix);
    if !legend.body.is_empty() {
        out.push_str(&format!(
            "<svg class=\"pg legend\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">{2}</svg>",
            num(legend.size.width),
            num(legend.size.height),
            legend.body
        ));
    }
    let (width, height) = (drawing.size.width + 2.0 * PAD, drawing.size.height + 2.0 * PAD);
    out.push_str(&format!(
        "<div class=\"split\" style=\"--h:{4}px\"><div class=\"view\" tabindex=\"0\"><svg class=\"pg\" \
         viewBox=\"{0} {0} {1} {2}\" data-w=\"{1}\" data-h=\"{2}\" data-pad=\"{5}\">{3}</svg></div>\
         <aside hidden></aside></div>",
        num(-PAD),
        num(width),
        num(height),
        drawing.body,
        num(height.max(if search { 320.0 } else { 0.0 })),
        num(PAD)
    ));
}

#[derive(Serialize)]
struct Data {
    groups: Vec<GroupData>,
}

#[derive(Serialize)]
struct GroupData {
    title: String,
    nodes: Vec<NodeData>,
    /// From, to, and what it is in words.
    edges: Vec<(u32, u32, String)>,
}

#[derive(Serialize)]
struct NodeData {
    label: String,
    kind: &'static str,
    lines: Vec<String>,
    facts: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bodies: Vec<u32>,
}

/// What the script needs to know, safe inside a script element.
fn data(picture: &Picture) -> String {
    let groups = picture
        .groups
        .iter()
        .map(|group| GroupData {
            title: elide(&group.title, 200),
            nodes: group
                .nodes
                .iter()
                .map(|node| {
                    let mut facts: Vec<(String, String)> = Vec::new();
                    if let Some(lane) = node.lane {
                        facts.push(("lane".into(), lane.to_string()));
                    }
                    if node.critical {
                        facts.push(("critical path".into(), "yes".into()));
                    }
                    if node.disabled {
                        facts.push(("disabled".into(), "yes".into()));
                    }
                    facts.extend(node.facts.iter().map(|(n, v)| (capped(n), capped(v))));
                    NodeData {
                        label: capped(&node.label),
                        kind: node.class.name(),
                        lines: node.lines.iter().map(|l| capped(l)).collect(),
                        facts,
                        bodies: node.bodies.iter().map(|b| b.0).collect(),
                    }
                })
                .collect(),
            edges: group.edges.iter().map(|e| (e.from.0, e.to.0, words(e))).collect(),
        })
        .collect();
    let json = serde_json::to_string(&Data { groups }).expect("strings and integers are JSON");
    // In JSON these occur only inside strings, where the escape means the same.
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// What the panel says of an edge; nothing of a plain one.
fn words(edge: &Edge) -> String {
    match Line::of(edge) {
        Line::Full => String::new(),
        line => line.words().into(),
    }
}
