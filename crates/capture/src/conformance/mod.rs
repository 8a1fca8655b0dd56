//! Is the model right? Recordings of a real driver, answered again.
//!
//! In: the bytes of a recording of any kind that [`phonograph_trace::recording`] reads. Out: a [`Tally`] of how much of it the model
//! and the update predictor answer as the driver did, with the first divergence of each record that they do not. Linear in the text.
//!
//! ```
//! let recording = br#"{"id":"sync","streams":["nonblocking"],"events":0,"steps":[
//!     {"op":"begin s0 global","result":"SUCCESS","streams":[{"capture":0,"deps":[]}]},
//!     {"op":"sync s0","result":"STREAM_CAPTURE_UNSUPPORTED","streams":["invalidated"]}]}"#;
//! let one_line = String::from_utf8_lossy(recording).replace('\n', "");
//! let tally = phonograph_capture::conformance::conformance(one_line.as_bytes())?;
//! assert_eq!(tally.to_string(), "programs 1/1, steps 2/2");
//! # Ok::<(), phonograph_trace::recording::RecordingError>(())
//! ```

mod program;
mod rows;
mod update;

use std::fmt;

use phonograph_trace::recording::{Recording, RecordingError};

/// How much of a recording is answered rightly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    /// What the records are called: programs, pairs or rows.
    pub unit: &'static str,
    /// Records in which everything is right.
    pub right: usize,
    /// Records.
    pub total: usize,
    /// Of programs, the steps in which everything is right, and the steps.
    pub steps: Option<(usize, usize)>,
    /// The first divergence of each record that is not right, in the order of the recording.
    pub divergences: Vec<Divergence>,
}

/// Where an answer differs from the driver's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The record's id or call.
    pub record: String,
    /// Of a program, the step and its call.
    pub step: Option<(usize, String)>,
    /// What differs: result, a stream's status, the graph, …
    pub what: String,
    /// What the driver answered.
    pub driver: String,
    /// What the model answers.
    pub model: String,
}

impl Tally {
    /// Whether everything is right.
    pub fn all_right(&self) -> bool {
        self.right == self.total
    }

    fn new(unit: &'static str) -> Self {
        Self { unit, right: 0, total: 0, steps: None, divergences: Vec::new() }
    }

    fn count(&mut self, divergence: Option<Divergence>) {
        self.total += 1;
        match divergence {
            None => self.right += 1,
            Some(divergence) => self.divergences.push(divergence),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.unit, self.right, self.total)?;
        match self.steps {
            Some((right, total)) => write!(f, ", steps {right}/{total}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.record)?;
        if let Some((step, op)) = &self.step {
            write!(f, ", step {step} `{op}`")?;
        }
        write!(f, ": {}: driver {}, model {}", self.what, self.driver, self.model)
    }
}

/// Answers a recording again. Its kind is found from its first record.
///
/// # Errors
/// [`RecordingError`] if the bytes are no recording, with the line of the first record that cannot be read.
pub fn conformance(bytes: &[u8]) -> Result<Tally, RecordingError> {
    Ok(match Recording::parse(bytes)? {
        Recording::Programs(programs) => program::tally(&programs),
        Recording::Updates(pairs) => update::tally(&pairs),
        Recording::Matrix(rows) => rows::tally_matrix(&rows),
        Recording::Nodes(rows) => rows::tally_nodes(&rows),
    })
}
