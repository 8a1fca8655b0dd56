//! Pictures of graphs and timelines: the one place of the project where anything is laid out or drawn.
//!
//! In: a neutral [`Picture`](picture::Picture), which [`picture_of`] makes of a graph. Out: text. Everything here is a pure
//! function: no files, no clock, no threads, and the same input gives the same bytes. Text from outside is escaped,
//! shortened and capped.
//!
//! ```
//! use phonograph_report::terminal::{WIDTH, terminal};
//! use phonograph_report::{Marks, picture_of, svg};
//!
//! let mut b = phonograph_graph::GraphBuilder::new();
//! let first = b.add_kernel("scale", 4, 256, 0).finish();
//! let second = b.add_barrier("done");
//! b.dep(first, second);
//! let picture = picture_of(&b.build()?, "two nodes", None, &mut |_| Marks::default());
//! assert!(svg(&picture)?.starts_with("<svg"));
//! print!("{}", terminal(&picture, WIDTH)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`html`] makes a page, [`perfetto`] a trace, [`plan_svg`] the drawing of a plan; the command `phonograph show` writes all of them.
#![forbid(unsafe_code)]

mod boxes;
mod collapse;
pub mod compare;
mod edges;
mod from_graph;
mod from_schedule;
pub mod html;
pub mod layout;
mod legend;
mod levels;
pub mod matching;
pub mod perfetto;
pub mod picture;
pub mod profile;
pub mod skyline;
mod sources;
mod style;
mod svg;
pub mod terminal;
pub mod text;
pub mod timeline;

pub use collapse::{MAX_EDGES, MAX_GROUPS, MAX_NODES};
pub use from_graph::{Marks, class_of, picture_of};
pub use from_schedule::{Run, dependencies, skyline_of, timeline_of};
pub use sources::{Sources, sources};
pub use svg::{plan_svg, svg};
