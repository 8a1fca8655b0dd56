//! Where in a file something is wrong.

use std::fmt;

use super::JsonError;

/// The way to a value, kept as links and only written when something is wrong there.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Graph,
    Member(&'p Path<'p>, &'static str),
    Item(&'p Path<'p>, usize),
}

impl Path<'_> {
    pub const fn member<'p>(&'p self, name: &'static str) -> Path<'p> {
        Path::Member(self, name)
    }

    pub const fn item(&self, index: usize) -> Path<'_> {
        Path::Item(self, index)
    }

    pub fn wrong(&self, problem: impl Into<String>) -> JsonError {
        JsonError::Value { path: self.to_string(), problem: problem.into() }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Graph => f.write_str("graph"),
            Path::Member(around, name) => write!(f, "{around}.{name}"),
            Path::Item(around, index) => write!(f, "{around}[{index}]"),
        }
    }
}
