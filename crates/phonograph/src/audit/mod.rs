//! Whether a replay still does what the program would do now, and if not, from which node on and why.
//!
//! In: a launch, and the program that was captured. The program runs node by node on the stream; then the buffers get back
//! what they held, and the nodes of the graph run one by one; then once more, and the graph is launched as it is. The first
//! pair of nodes that differ is reported. Costs two reads of everything that a node names, for every node.

mod compare;
mod step;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use step::{Program, Step, contents, restore};

use crate::captured::Sealed;
use crate::context::ExecutionContext;
use crate::device::Stream;
use crate::graph::{NodeId, Scalar, SlotId};
use crate::issue::Issue;
use crate::lock::ExecutionLock;
use crate::op::{DeviceOp, GraphNode};
use crate::recorder::Recording;
use crate::runtime::streams::{Slot, Waiting};
use crate::{Error, Result};

/// Why a node of a replay differs.
#[derive(Clone, PartialEq, Debug)]
pub enum Cause {
    /// A scalar that the graph has baked, or that the launch set otherwise, is another one by now.
    FrozenScalar {
        /// Which of the node's scalars: its arguments, then the constants of its expression.
        index: usize,
        /// What the program gives.
        executed: Scalar,
        /// What the replay used.
        captured: Scalar,
    },
    /// Contents of the host's that the graph has baked are others by now.
    FrozenContents,
    /// The graph works on other memory, or another part, than the program does by now.
    OtherMemory {
        /// The buffer that the program names there.
        executed: String,
    },
    /// An input differs although every node before agrees: something that was not recorded writes it.
    UnrecordedWrite,
    /// The program does this, the graph does not.
    MissedWork,
    /// The graph does this, the program does not.
    ExtraWork,
    /// The program does something else here.
    OtherWork {
        /// The name of that.
        executed: String,
    },
    /// The same work on the same inputs gives something else: it depends on what is not an operand.
    Result,
    /// The nodes one by one agree, the graph as a whole does not.
    Order,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::FrozenScalar { index, executed, captured } => write!(
                f,
                "scalar {index} is {captured} in the replay, the program gives {executed}; make it a slot, or set it"
            ),
            Cause::FrozenContents => f.write_str(
                "it writes contents that were baked, the program has others by now; update them before the launch",
            ),
            Cause::OtherMemory { executed } => {
                write!(f, "the program uses other memory by now ({executed}); capture again")
            }
            Cause::UnrecordedWrite => {
                f.write_str("something that was not recorded writes its input")
            }
            Cause::MissedWork => f.write_str("the program does it, the graph does not"),
            Cause::ExtraWork => f.write_str("the graph does it, the program does not"),
            Cause::OtherWork { executed } => write!(f, "the program does {executed} here"),
            Cause::Result => f.write_str("it depends on something that is not an operand"),
            Cause::Order => f.write_str("one by one the nodes agree, together they do not"),
        }
    }
}

/// The first node that differs.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// The node, of the graph; of the operation that was executed for missed work.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Why.
    pub cause: Cause,
    /// The buffer in which it shows.
    pub buffer: Option<String>,
    /// The first byte there.
    pub byte: Option<u64>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.node, self.name, self.cause)?;
        match (&self.buffer, self.byte) {
            (Some(buffer), Some(byte)) => write!(f, "; first seen in byte {byte} of {buffer}"),
            (Some(buffer), None) => write!(f, "; in {buffer}"),
            _ => Ok(()),
        }
    }
}

/// What an audit has found.
#[derive(Clone, PartialEq, Debug)]
pub struct Audit {
    /// Nodes that the program has executed.
    pub executed: usize,
    /// Nodes of the graph.
    pub captured: usize,
    /// The first that differs.
    pub first: Option<Difference>,
}

/// Where the program of an audit issues its operations: they are executed node by node, and watched.
pub struct Auditor<'a> {
    stream: &'a Stream,
    steps: RefCell<Vec<Step>>,
}

impl Issue for Auditor<'_> {
    fn issue<O: GraphNode>(&self, op: O) -> Result<<O as DeviceOp>::Output> {
        let lock = ExecutionLock::take("Auditor::issue")?;
        let run = self.stream.run();
        let recording = Recording::new("audited");
        let cx = ExecutionContext::recording(self.stream, &run, &recording);
        // SAFETY: the lock is held; the nodes run before the output is given to anybody.
        let output = unsafe { op.execute(&cx)? };
        drop(lock);
        let program = Program::new(self.stream, recording.into_recorder().finish()?, &[])?;
        let steps = Arc::new(program).run(self.stream)?;
        self.steps.borrow_mut().extend(steps);
        Ok(output)
    }
}

/// See [`GraphLaunch::audit`](crate::GraphLaunch::audit).
#[track_caller]
pub(crate) fn audit(
    sealed: &Sealed,
    values: &[(Slot, Scalar)],
    stream: &Stream,
    program: impl FnOnce(&Auditor<'_>) -> Result<()>,
) -> Result<Audit> {
    ExecutionLock::check("audit")?;
    if !sealed.device.same_as(stream.device()) {
        return Err(Error::OtherDevice { what: "the graph" });
    }
    let recorded = &sealed.recorded;
    let buffers = &recorded.buffers;
    let start = contents(stream, buffers)?;
    let auditor = Auditor { stream, steps: RefCell::default() };
    program(&auditor)?;
    let eager = auditor.steps.into_inner();
    restore(stream, buffers, &start)?;
    let of = |(slot, value): &(Slot, Scalar)| Some((sealed.slot(slot)?, *value));
    let known: Vec<(SlotId, Scalar)> = values.iter().filter_map(of).collect();
    let replay = Arc::new(Program::new(stream, recorded.clone(), &known)?).run(stream)?;
    let one_by_one = contents(stream, buffers)?;
    restore(stream, buffers, &start)?;
    let run = stream.run();
    run.launch(&sealed.graph, values)?;
    run.sync(Waiting::Attentive)?;
    let together = contents(stream, buffers)?;
    let first = compare::compare(&eager, &replay).or_else(|| {
        let pairs = one_by_one.iter().zip(&together);
        let (a, b) = pairs.into_iter().find(|(a, b)| a.bytes != b.bytes)?;
        let byte = a.bytes.iter().zip(&b.bytes).position(|(a, b)| a != b);
        let last = recorded.graph.node_ids().last()?;
        Some(Difference {
            node: last,
            name: recorded.graph.node(last).name.to_string(),
            cause: Cause::Order,
            buffer: Some(recorded.graph.buffer(a.buffer).name.to_string()),
            byte: byte.map(|byte| byte as u64),
        })
    });
    Ok(Audit { executed: eager.len(), captured: recorded.graph.node_count(), first })
}
