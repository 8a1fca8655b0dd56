//! Layout, drawings and pages, from outside.

mod common;
mod drawing;
mod layout;
mod matching;
mod page;
