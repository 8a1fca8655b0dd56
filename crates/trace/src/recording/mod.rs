//! Recordings of a real driver's answers, as JSON with one record a line.
//!
//! [`Recording::parse`] finds out by itself which of the four kinds a text is: capture programs, graph updates, the matrix of
//! calls made beside a capture, or the nodes that calls on a capturing stream become. Parsing is linear; every record is checked
//! when it is read, so that what comes out can be indexed without further care.

mod program;
mod rows;
mod update;

use serde::de::DeserializeOwned;

use crate::limits::MAX_BYTES;

pub use program::{Program, RecordedGraph, RecordedStatus, Step};
pub use rows::{CaptureStatus, MatrixRow, MatrixThread, NodeRow};
pub use update::{Dependencies, ErrorNode, Node, UpdatePair};

/// One recording file.
#[derive(Clone, Debug)]
pub enum Recording {
    /// Programs of calls, with the state of every stream after each.
    Programs(Vec<Program>),
    /// Pairs of graphs, with what an update of one from the other answered.
    Updates(Vec<UpdatePair>),
    /// Calls made beside a capture.
    Matrix(Vec<MatrixRow>),
    /// Calls on a capturing stream and the nodes they became.
    Nodes(Vec<NodeRow>),
}

/// Why a text is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The text is longer than is read.
    #[error("the recording has {0} bytes; at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// Not text.
    #[error("line {line}: this is not UTF-8 text")]
    NotText {
        /// Line, from 1.
        line: usize,
    },
    /// Nothing in it.
    #[error("the recording is empty")]
    Empty,
    /// A record of none of the known kinds.
    #[error(
        "line {line}: this is no record of a known kind: expected the members `steps` (a program), `a` and `b` (an update), `call` and `thread` \
         (a call beside a capture) or `call` and `nodes` (a call on a capturing stream), found {found}"
    )]
    UnknownKind {
        /// Line, from 1.
        line: usize,
        /// The members that are there.
        found: String,
    },
    /// A record of another kind than those before it.
    #[error(
        "line {line}: {found} among records that are each {expected}; a recording is of one kind"
    )]
    OtherKind {
        /// Line, from 1.
        line: usize,
        /// What it is.
        found: &'static str,
        /// What the first record is.
        expected: &'static str,
    },
    /// A record that is not well formed.
    #[error("{}", malformed(*line, error))]
    Malformed {
        /// Line, from 1.
        line: usize,
        /// What the JSON reader says.
        error: serde_json::Error,
    },
    /// A record whose parts do not fit together.
    #[error("line {line}: record `{id}`: {what}")]
    Inconsistent {
        /// Line, from 1.
        line: usize,
        /// The record's id or call.
        id: String,
        /// What does not fit.
        what: String,
    },
}

/// Members of an unknown record that an error names, and how much of each name.
const MEMBERS: usize = 8;
const KEY: usize = 32;

impl Recording {
    /// Reads a recording of any kind.
    ///
    /// # Errors
    /// [`RecordingError`] with the line of the first record that cannot be read.
    ///
    /// ```
    /// use phonograph_trace::recording::Recording;
    ///
    /// let text = br#"{"id":"empty","streams":["blocking"],"events":0,"steps":[{"op":"ctxsync","result":"SUCCESS","streams":["none"]}]}"#;
    /// assert!(matches!(Recording::parse(text)?, Recording::Programs(programs) if programs.len() == 1));
    /// # Ok::<(), phonograph_trace::recording::RecordingError>(())
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordingError> {
        if bytes.len() > MAX_BYTES {
            return Err(RecordingError::TooLong(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| RecordingError::NotText {
            line: 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count(),
        })?;
        // Some editors put a mark in front of UTF-8.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let first = text.lines().enumerate().find(|(_, line)| !line.trim().is_empty());
        let (at, first) = first.ok_or(RecordingError::Empty)?;
        let record: Members = serde_json::from_str(first)
            .map_err(|error| RecordingError::Malformed { line: at + 1, error })?;
        match Kind::of(&record) {
            Some(kind @ Kind::Program) => {
                records(text, kind, Program::check, |p| &p.id).map(Self::Programs)
            }
            Some(kind @ Kind::Update) => {
                records(text, kind, UpdatePair::check, |p| &p.id).map(Self::Updates)
            }
            Some(kind @ Kind::Node) => {
                records(text, kind, NodeRow::check, |r| &r.call).map(Self::Nodes)
            }
            Some(kind @ Kind::Matrix) => {
                records(text, kind, |_| Ok(()), |r: &MatrixRow| &r.call).map(Self::Matrix)
            }
            None => {
                let keys = record.keys().take(MEMBERS).map(|key| {
                    let short: String = key.chars().take(KEY).collect();
                    format!("`{}`", short.escape_debug())
                });
                let found = keys.collect::<Vec<_>>().join(", ");
                let found = if found.is_empty() { "none".to_owned() } else { found };
                Err(RecordingError::UnknownKind { line: at + 1, found })
            }
        }
    }
}

type Members = serde_json::Map<String, serde_json::Value>;

/// What a record is, by the members that it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Program,
    Update,
    Node,
    Matrix,
}

impl Kind {
    fn of(record: &Members) -> Option<Self> {
        let has = |key| record.contains_key(key);
        if has("steps") {
            Some(Self::Program)
        } else if has("a") && has("b") {
            Some(Self::Update)
        } else if has("call") && has("nodes") {
            Some(Self::Node)
        } else if has("call") && has("thread") {
            Some(Self::Matrix)
        } else {
            None
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Program => "a program",
            Self::Update => "an update",
            Self::Node => "a call on a capturing stream",
            Self::Matrix => "a call beside a capture",
        }
    }
}

/// The JSON reader counts lines in what it is given, which is one line.
fn malformed(line: usize, error: &serde_json::Error) -> String {
    let said = error.to_string();
    let what = said.rsplit_once(" at line ").map_or(said.as_str(), |(what, _)| what);
    let hint = if error.is_eof() { "; a record is one line" } else { "" };
    match error.column() {
        0 => format!("line {line}: {what}{hint}"),
        column => format!("line {line}, column {column}: {what}{hint}"),
    }
}

fn records<T: DeserializeOwned>(
    text: &str,
    kind: Kind,
    check: impl Fn(&T) -> Result<(), String>,
    id: impl Fn(&T) -> &String,
) -> Result<Vec<T>, RecordingError> {
    let mut out = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = at + 1;
        let record: T = serde_json::from_str(line).map_err(|error| {
            let other = serde_json::from_str(line).ok().and_then(|record| Kind::of(&record));
            match other.filter(|other| *other != kind) {
                Some(other) => RecordingError::OtherKind {
                    line: line_number,
                    found: other.words(),
                    expected: kind.words(),
                },
                None => RecordingError::Malformed { line: line_number, error },
            }
        })?;
        check(&record).map_err(|what| RecordingError::Inconsistent {
            line: line_number,
            id: id(&record).clone(),
            what,
        })?;
        out.push(record);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::Recording;

    #[test]
    fn a_broken_recording_is_an_error_with_its_line() {
        let program = r#"{"id":"p","streams":["blocking"],"events":1,"steps":[{"op":"kernel s0","result":"SUCCESS","streams":["none"]}]}"#;
        for (text, message) in [
            ("".to_owned(), "the recording is empty"),
            ("{}".to_owned(), "line 1: this is no record of a known kind: expected the members `steps` (a program), `a` and `b` (an update), `call` and `thread` (a call beside a capture) or `call` and `nodes` (a call on a capturing stream), found none"),
            ("{\"calls\":[],\"x\":1}".to_owned(), "line 1: this is no record of a known kind: expected the members `steps` (a program), `a` and `b` (an update), `call` and `thread` (a call beside a capture) or `call` and `nodes` (a call on a capturing stream), found `calls`, `x`"),
            ("\r\n\n[1]\n".to_owned(), "line 3: invalid type: sequence, expected a map"),
            (format!("{program}\n\n{{\"id\":1}}"), "line 3, column 7: invalid type: integer `1`, expected a string"),
            (program[..9].to_owned(), "line 1, column 9: EOF while parsing an object; a record is one line"),
            (
                format!("{program}\n{{\"a\":[],\"b\":[]}}"),
                "line 2: an update among records that are each a program; a recording is of one kind",
            ),
            (program.replace("[\"none\"]", "[]"), "line 1: record `p`: step 0 shows 0 streams of 1"),
            (program.replace("\"events\":1", "\"events\":99999999"), "line 1: record `p`: it declares more than 65536 events"),
            (program.replace("\"none\"", "\"lost\""), "line 1, column 108: unknown stream status `lost`"),
            (
                r#"{"id":"u","a":[{"kind":"empty","deps":[3]}],"b":[],"result":"SUCCESS","update":"SUCCESS","error_node":null,"error_from":null}"#.to_owned(),
                "line 1: record `u`: node 0 depends on node 3 of 1",
            ),
        ] {
            let error = Recording::parse(text.as_bytes()).expect_err(&text);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        fn check<
            T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
        >(
            text: &str,
        ) {
            let read: T = serde_json::from_str(text).unwrap();
            let written = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<T>(&written).unwrap(), read, "{written}");
        }
        check::<super::Program>(
            r#"{"id":"p","streams":["blocking","nonblocking"],"events":1,"steps":[
                {"op":"begin s0 global","result":"SUCCESS","streams":[{"capture":0,"deps":[-1,0]},"destroyed"]},
                {"op":"mode relaxed","result":"STREAM_CAPTURE_UNJOINED","streams":["invalidated","none"],"previous":"global"},
                {"op":"end s0","result":"SUCCESS","streams":["none","none"],"graph":{"nodes":[[1,"kernel"]],"edges":[[0,1]],"instantiate":"SUCCESS"}}]}"#,
        );
        check::<super::UpdatePair>(
            r#"{"id":"u","edits":["params"],"a":[{"kind":"kernel","function":"noop","grid":2,"block":32,"cooperative":1,"cluster":2,"priority":-1,"deps":[]},
                {"kind":"memcpy","direction":"dtoh","bytes":64,"rows":2,"depth":1,"offset":512,"deps":[0],"ports":[1]},
                {"kind":"child","graph":[{"kind":"empty","deps":[]}],"deps":[]},{"kind":"child","kernels":2,"deps":[]},
                {"kind":"conditional","type":"while","kernels":1,"deps":[]},{"kind":"event_wait","event":1,"deps":[]}],
                "b":[{"kind":"host","function":1,"deps":[]}],"result":"GRAPH_EXEC_UPDATE_FAILURE","update":"TOPOLOGY_CHANGED","error_node":"inner","error_from":0}"#,
        );
        check::<super::MatrixRow>(
            r#"{"call":"cuMemAlloc","mode":"thread_local","thread":"other","stream":"nonblocking","result":"SUCCESS","capture":"active","end":"SUCCESS"}"#,
        );
        check::<super::NodeRow>(
            r#"{"call":"cuLaunchKernel","mode":"global","result":"SUCCESS","capture":"active","kernel_after":"SUCCESS","end":"SUCCESS","nodes":["kernel"],"edges":[],"instantiate":"SUCCESS"}"#,
        );
    }

    #[test]
    fn any_bytes_are_a_recording_or_an_error() {
        let seed = br#"{"id":"p","streams":["blocking"],"events":1,"steps":[{"op":"kernel s0","result":"SUCCESS","streams":["none"]}]}"#;
        arbtest::arbtest(|u| {
            let mut bytes = seed.to_vec();
            for _ in 0..u.int_in_range(0..=4)? {
                let at = u.choose_index(bytes.len())?;
                bytes[at] = u.arbitrary()?;
            }
            if let Err(error) = Recording::parse(&bytes) {
                assert!(!error.to_string().is_empty());
            }
            Ok(())
        });
    }
}
