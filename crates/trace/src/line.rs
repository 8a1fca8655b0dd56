//! One line of a script or recording, as words with places; and what can be wrong with it.
//!
//! In: the text of a line. Out: its words one after the other, turned into operands on request, or an error that points at the word.

use crate::limits::{MAX_LINE, MAX_NAME};
use crate::names::Undeclared;
use crate::{CuResult, GraphId, MemoryId, Mode, Names, NodeId, Place, Stream, Work};

fn meant(closest: Option<&str>) -> String {
    closest.map_or_else(String::new, |closest| format!("; did you mean `{closest}`?"))
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    /// The first word is no operation.
    #[error("`{word}` is no operation{}", meant(.closest.as_deref()))]
    UnknownOperation {
        /// The word.
        word: String,
        /// The operation or declaration that it is probably meant to be.
        closest: Option<String>,
    },
    /// It starts like a driver function, but is none that this crate knows.
    #[error(
        "`{name}` is no driver function of the stream, event, memory, module, execution, graph or context chapters{}",
        meant(.closest.as_deref())
    )]
    UnknownFunction {
        /// The name.
        name: String,
        /// The function that it is probably meant to be; of one of the runtime, the driver's.
        closest: Option<String>,
    },
    /// What stands behind the arrow is no driver result.
    #[error("`{0}` is no driver result")]
    UnknownResult(String),
    /// The line ends too early.
    #[error("{0} is missing at the end of the line")]
    Missing(&'static str),
    /// There is something left at the end of the line.
    #[error("`{0}` is too much on this line")]
    Unexpected(String),
    /// A name that was not declared.
    #[error(transparent)]
    Undeclared(#[from] Undeclared),
    /// A name that was declared before.
    #[error("{what} `{name}` is declared already")]
    Declared {
        /// Stream, event, thread, graph, node or memory.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A word that should be one of a few.
    #[error("`{word}` is not one of {choices}")]
    Choice {
        /// The word as written.
        word: String,
        /// What it may be.
        choices: &'static str,
    },
    /// A word that should be a number.
    #[error("`{word}` is not {what}")]
    Number {
        /// What it should be.
        what: &'static str,
        /// The word as written.
        word: String,
    },
    /// A word that cannot be a name.
    #[error(
        "`{0}` cannot be a name: names are letters, digits, `_`, `.`, `:`, `<`, `>`, `-` and mean nothing else here"
    )]
    BadName(String),
    /// A name, line or text over its limit.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
}

/// An error with its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {error}")]
pub struct SyntaxError {
    /// Where it stands.
    pub place: Place,
    /// What it is.
    pub error: OpError,
}

/// Words that have a meaning of their own, so nothing can be called by them.
const RESERVED: &[&str] = &["legacy", "ptds", "reads", "writes", "as", OBSERVED];

/// Before what the driver was seen to answer.
pub(crate) const OBSERVED: &str = "->";

/// The words of one line, each with its place.
pub(crate) struct Line<'a> {
    words: Vec<(Place, &'a str)>,
    next: usize,
    end: Place,
}

impl<'a> Line<'a> {
    /// Splits a line at white space; `#` at the start of a word begins a comment.
    ///
    /// # Errors
    /// [`OpError::TooLong`] for a line over [`MAX_LINE`].
    pub(crate) fn new(number: u32, text: &'a str) -> Result<Self, SyntaxError> {
        if text.len() > MAX_LINE {
            let place = Place { line: number, column: 1, length: 1 };
            return Err(SyntaxError {
                place,
                error: OpError::TooLong { what: "the line", limit: MAX_LINE },
            });
        }
        let mut words = Vec::new();
        let mut start: Option<(usize, u32)> = None;
        let mut column = 1u32;
        let place = |from: u32, to: u32| Place { line: number, column: from, length: to - from };
        for (at, c) in text.char_indices() {
            match (c.is_whitespace(), start) {
                (true, Some((from, begun))) => {
                    words.push((place(begun, column), &text[from..at]));
                    start = None;
                }
                (false, None) => {
                    if c == '#' {
                        break;
                    }
                    start = Some((at, column));
                }
                _ => {}
            }
            column += 1;
        }
        if let Some((from, begun)) = start {
            words.push((place(begun, column), &text[from..]));
        }
        let after = words.last().map_or(1, |(p, _)| p.column + p.length);
        Ok(Self { words, next: 0, end: Place { line: number, column: after, length: 1 } })
    }

    /// Passes over the word that `peek` showed.
    pub(crate) fn skip(&mut self) {
        self.next += 1;
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|(_, word)| *word)
    }

    /// The next word, or an error that says what should stand there.
    pub(crate) fn take(&mut self, what: &'static str) -> Result<&'a str, SyntaxError> {
        let word =
            self.peek().ok_or(SyntaxError { place: self.end, error: OpError::Missing(what) })?;
        self.next += 1;
        Ok(word)
    }

    /// An error about the word taken last.
    pub(crate) fn wrong(&self, error: impl Into<OpError>) -> SyntaxError {
        let place = self.next.checked_sub(1).map_or(self.end, |last| self.words[last].0);
        SyntaxError { place, error: error.into() }
    }

    pub(crate) fn finish(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(word) => {
                self.next += 1;
                Err(self.wrong(OpError::Unexpected(word.to_owned())))
            }
        }
    }

    /// Takes `-> RESULT` off the end of the line.
    pub(crate) fn split_observed(&mut self) -> Result<Option<CuResult>, SyntaxError> {
        let Some(arrow) = self.words.iter().rposition(|(_, word)| *word == OBSERVED) else {
            return Ok(None);
        };
        let rest = self.words.split_off(arrow);
        let place = rest.last().map_or(self.end, |(place, _)| *place);
        let after = self.words.last().map_or(1, |(p, _)| p.column + p.length);
        self.end.column = after;
        let [_, (_, word)] = rest[..] else {
            let error = OpError::Missing("one driver result");
            return Err(SyntaxError { place, error });
        };
        let unknown = OpError::UnknownResult(word.to_owned());
        let result = CuResult::from_name(word).ok_or(SyntaxError { place, error: unknown })?;
        Ok(Some(result))
    }

    /// From the first to the last word.
    pub(crate) fn place(&self) -> Place {
        let column = self.words.first().map_or(1, |(p, _)| p.column);
        Place { column, length: self.end.column - column, ..self.end }
    }

    /// A new name: the next word, if it can be one.
    pub(crate) fn take_name(&mut self, what: &'static str) -> Result<&'a str, SyntaxError> {
        let name = self.take(what)?;
        self.check_name(name)?;
        Ok(name)
    }

    fn check_name(&self, name: &str) -> Result<(), SyntaxError> {
        if name.len() > MAX_NAME {
            return Err(self.wrong(OpError::TooLong { what: "the name", limit: MAX_NAME }));
        }
        let allowed = |c: char| c.is_alphanumeric() || "_.:<>-".contains(c);
        if RESERVED.contains(&name) || !name.chars().all(allowed) {
            return Err(self.wrong(OpError::BadName(name.to_owned())));
        }
        Ok(())
    }

    pub(crate) fn stream(&mut self, names: &Names) -> Result<Stream, SyntaxError> {
        let word = self.take("a stream")?;
        names.stream(word).map_err(|e| self.wrong(e))
    }

    pub(crate) fn mode(&mut self) -> Result<Mode, SyntaxError> {
        self.choice("a capture mode", "global, thread_local, relaxed", Mode::from_word)
    }

    pub(crate) fn memory(&mut self, names: &mut Names) -> Result<MemoryId, SyntaxError> {
        let name = self.take("a name for the memory")?;
        self.name_of_memory(name, names)
    }

    /// The memory of the word taken last.
    pub(crate) fn name_of_memory(
        &self,
        name: &str,
        names: &mut Names,
    ) -> Result<MemoryId, SyntaxError> {
        self.check_name(name)?;
        names.memory(name).ok_or_else(|| self.wrong(OpError::BadName(name.to_owned())))
    }

    pub(crate) fn graph(&mut self, names: &Names) -> Result<Option<GraphId>, SyntaxError> {
        self.peek().map(|_| self.named_graph(names)).transpose()
    }

    /// One of a few words.
    pub(crate) fn choice<T>(
        &mut self,
        what: &'static str,
        choices: &'static str,
        from_word: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SyntaxError> {
        let word = self.take(what)?;
        from_word(word)
            .ok_or_else(|| self.wrong(OpError::Choice { word: word.to_owned(), choices }))
    }

    /// A graph that has to be named.
    pub(crate) fn named_graph(&mut self, names: &Names) -> Result<GraphId, SyntaxError> {
        let name = self.take("a graph")?;
        names.graph(name).map_err(|e| self.wrong(e))
    }

    /// A graph that gets its name here.
    pub(crate) fn new_graph(&mut self, names: &mut Names) -> Result<GraphId, SyntaxError> {
        let name = self.take_name("a name for the graph")?;
        let declared = OpError::Declared { what: "graph", name: name.to_owned() };
        names.declare_graph(name).ok_or_else(|| self.wrong(declared))
    }

    pub(crate) fn node(&mut self, names: &Names) -> Result<NodeId, SyntaxError> {
        let name = self.take("a node")?;
        names.node(name).map_err(|e| self.wrong(e))
    }

    /// `[as N]`: a node that gets its name here.
    pub(crate) fn new_node(&mut self, names: &mut Names) -> Result<Option<NodeId>, SyntaxError> {
        if self.peek() != Some("as") {
            return Ok(None);
        }
        self.next += 1;
        let name = self.take_name("a name for the node")?;
        let declared = OpError::Declared { what: "node", name: name.to_owned() };
        names.declare_node(name).map(Some).ok_or_else(|| self.wrong(declared))
    }

    /// `[NAME] [reads M…] [writes M…]`, or nothing.
    pub(crate) fn work(
        &mut self,
        names: &mut Names,
        named: bool,
    ) -> Result<Option<Box<Work>>, SyntaxError> {
        let mut work = Work::default();
        let ends = |word: &str| matches!(word, "reads" | "writes" | "as");
        if named && self.peek().is_some_and(|word| !ends(word)) {
            work.name = self.take_name("a name")?.into();
        }
        while let Some(keyword) = self.peek() {
            if keyword != "reads" && keyword != "writes" {
                break;
            }
            self.next += 1;
            let mut some = false;
            while self.peek().is_some_and(|word| !ends(word)) {
                let memory = self.memory(names)?;
                if keyword == "reads" {
                    work.reads.push(memory)
                } else {
                    work.writes.push(memory)
                }
                some = true;
            }
            if !some {
                self.take("a name for the memory")?;
            }
        }
        Ok((work != Work::default()).then(|| Box::new(work)))
    }
}
