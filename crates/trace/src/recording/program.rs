//! A recorded program of calls, with the state of every stream after each.

use serde::{Deserialize, Serialize, Serializer};

use crate::limits::MAX_DECLARED;
use crate::line::{Line, SyntaxError};
use crate::words;
use crate::{Call, CuResult, Mode, Names, StreamKind};

/// A program of calls on fresh streams and events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// What the recording calls it.
    pub id: String,
    /// The streams `s0`, `s1`, …
    pub streams: Vec<StreamKind>,
    /// How many events there are: `e0`, `e1`, …
    #[serde(default)]
    pub events: usize,
    /// The calls in order.
    pub steps: Vec<Step>,
}

/// One call and what could be seen after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The call in words.
    pub op: String,
    /// What the driver answered.
    pub result: CuResult,
    /// The status of every stream after the call.
    pub streams: Vec<RecordedStatus>,
    /// After an end: the finished graph, if it was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<RecordedGraph>,
    /// After a change of the thread's mode: the mode before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Mode>,
}

/// The capture status of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "StatusJson")]
pub enum RecordedStatus {
    /// Not capturing.
    None,
    /// In a capture that is not valid any more.
    Invalidated,
    /// The stream is gone.
    Destroyed,
    /// In a valid capture.
    Active {
        /// The step that the capture is named by.
        capture: usize,
        /// The steps whose nodes are the dependency set; -1 is a node whose step could not be seen.
        deps: Vec<i64>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StatusJson {
    Word(String),
    Active { capture: usize, deps: Vec<i64> },
}

impl Serialize for RecordedStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let word = |word: &str| StatusJson::Word(word.to_owned());
        let json = match self {
            Self::None => word("none"),
            Self::Invalidated => word("invalidated"),
            Self::Destroyed => word("destroyed"),
            Self::Active { capture, deps } => {
                StatusJson::Active { capture: *capture, deps: deps.clone() }
            }
        };
        json.serialize(serializer)
    }
}

impl TryFrom<StatusJson> for RecordedStatus {
    type Error = String;

    fn try_from(json: StatusJson) -> Result<Self, String> {
        match json {
            StatusJson::Active { capture, deps } => Ok(Self::Active { capture, deps }),
            StatusJson::Word(word) => match word.as_str() {
                "none" => Ok(Self::None),
                "invalidated" => Ok(Self::Invalidated),
                "destroyed" => Ok(Self::Destroyed),
                _ => Err(format!("unknown stream status `{word}`")),
            },
        }
    }
}

/// A finished graph: nodes by the step that made them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedGraph {
    /// Step and kind of every node.
    pub nodes: Vec<(i64, String)>,
    /// Edges between steps.
    pub edges: Vec<(i64, i64)>,
    /// What instantiating it answered, if it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instantiate: Option<CuResult>,
}

impl Program {
    pub(super) fn check(&self) -> Result<(), String> {
        for (what, count) in [("streams", self.streams.len()), ("events", self.events)] {
            if count > MAX_DECLARED {
                return Err(format!("it declares more than {MAX_DECLARED} {what}"));
            }
        }
        match self
            .steps
            .iter()
            .enumerate()
            .find(|(_, step)| step.streams.len() != self.streams.len())
        {
            Some((at, step)) => Err(format!(
                "step {at} shows {} streams of {}",
                step.streams.len(),
                self.streams.len()
            )),
            None => Ok(()),
        }
    }

    /// The names of the program's streams and events, and its calls.
    ///
    /// # Errors
    /// The first step that is no call; its place's line is the step's number, from 1.
    pub fn calls(&self) -> Result<(Names, Vec<Call>), SyntaxError> {
        let mut names = Names::new();
        for (i, kind) in self.streams.iter().enumerate() {
            names.declare_stream(&format!("s{i}"), *kind);
        }
        for i in 0..self.events {
            names.declare_event(&format!("e{i}"));
        }
        let mut calls = Vec::with_capacity(self.steps.len());
        for (number, step) in (1u32..).zip(&self.steps) {
            let mut line = Line::new(number, &step.op)?;
            let call = words::parse(&mut line, &mut names)?;
            calls.push(Call { result: Some(step.result), ..call });
        }
        Ok((names, calls))
    }
}
