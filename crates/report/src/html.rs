//! One HTML file that shows everything, without network.
//!
//! In: one or more [`Page`]s. Out: a document with its style, script and data inside. A page's sections become tabs:
//! graphs to zoom, pan, search and step into, timelines, memory, two graphs side by side. Data lies in one JSON script
//! in which `<` is escaped, so no name can end it; a content security policy forbids everything that is not in the
//! file. Positions are computed here, so that a browser only draws. Linear plus layout.

mod data;
mod served;

pub use data::{EMBEDDED_EDGES, EMBEDDED_NODES};
pub use served::{PictureAt, Question, Served};

use data::Boxes;

use crate::compare::Comparison;
use crate::picture::{Picture, PictureError};
use crate::skyline::{Skyline, SkylineError};
use crate::style;
use crate::text::{capped, escape};
use crate::timeline::{Timeline, TimelineError};

const STYLE: &str = include_str!("html/page.css");
/// How a page asks its server; one without leaves it out.
const ASK: &str = include_str!("html/ask.js");
/// In the order in which the parts use each other.
const SCRIPTS: [&str; 9] = [
    include_str!("html/base.js"),
    include_str!("html/camera.js"),
    include_str!("html/parts.js"),
    include_str!("html/paint.js"),
    include_str!("html/graph.js"),
    include_str!("html/timeline.js"),
    include_str!("html/skyline.js"),
    include_str!("html/compare.js"),
    include_str!("html/app.js"),
];

/// A document, or one of several in a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// Names and values shown while nothing is selected.
    pub summary: Vec<(String, String)>,
    /// The tabs.
    pub sections: Vec<Section>,
}

/// A tab of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    /// A graph that one can search and walk through.
    Graph(Picture),
    /// Lanes of spans, which lead to the nodes of the nearest graph above.
    Timeline(Timeline),
    /// Pools of memory, whose moments lead to the nodes of the nearest graph above.
    Skyline(Skyline),
    /// Two graphs side by side.
    Comparison(Comparison),
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
    /// A skyline cannot be drawn.
    #[error("section {section}: {error}")]
    Skyline {
        /// The position in [`Page::sections`].
        section: usize,
        /// Why.
        #[source]
        error: SkylineError,
    },
}

/// Makes the document of one page.
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
    html_of(&page.title, std::slice::from_ref(page))
}

/// Makes one document of several pages, to choose from.
///
/// # Errors
///
/// [`PageError`] if a section cannot be drawn.
pub fn html_of(title: &str, pages: &[Page]) -> Result<String, PageError> {
    document(title, pages, Boxes::Inside)
}

fn document(title: &str, pages: &[Page], boxes: Boxes) -> Result<String, PageError> {
    let data = data::of(pages, boxes)?;
    let connect = match boxes {
        Boxes::Inside => "",
        Boxes::Served => "; connect-src 'self'",
    };
    let mut out = String::with_capacity(data.len() + 100_000);
    out.push_str(&format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'{connect}\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>",
    ));
    escape(&mut out, &capped(title));
    out.push_str(&format!("</title><style>{}{STYLE}</style></head><body>\n", style::variables()));
    out.push_str(
        "<noscript>This page draws with JavaScript. For a drawing without, ask for SVG.</noscript>\n\
         <script type=\"application/json\" id=\"data\">",
    );
    out.push_str(&data);
    out.push_str("</script>\n<script>(() => { 'use strict';\n");
    let ask = (boxes == Boxes::Served).then_some(ASK);
    for script in SCRIPTS.into_iter().take(1).chain(ask).chain(SCRIPTS.into_iter().skip(1)) {
        out.push_str(script);
    }
    out.push_str("})();</script>\n</body></html>\n");
    Ok(out)
}
