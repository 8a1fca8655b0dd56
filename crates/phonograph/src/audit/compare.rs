//! The first node in which a replay differs from what was executed, and why.

use super::step::{Held, Step};
use super::{Cause, Difference};
use crate::graph::{Arg, BufferRole, KernelRef, NodeKind, Op, Scalar};
use crate::runtime::pool::Place;

/// Pairs the nodes in order.
pub(super) fn compare(eager: &[Step], replay: &[Step]) -> Option<Difference> {
    for (at, step) in replay.iter().enumerate() {
        let Some(executed) = eager.get(at) else {
            return Some(difference(step, Cause::ExtraWork, None));
        };
        if let Some(found) = pair(executed, step, eager.get(at + 1)) {
            return Some(found);
        }
    }
    let missed = eager.get(replay.len())?;
    Some(difference(missed, Cause::MissedWork, None))
}

fn pair(eager: &Step, replay: &Step, next: Option<&Step>) -> Option<Difference> {
    let (e, r) = (kind(eager), kind(replay));
    if !alike(e, r) {
        // If the next one executed is this one, the one between is what the graph lacks.
        let missed = next.is_some_and(|next| alike(kind(next), r));
        return Some(match missed {
            true => difference(eager, Cause::MissedWork, None),
            false => {
                let executed = eager.program.graph().node(eager.node).name.to_string();
                difference(replay, Cause::OtherWork { executed }, None)
            }
        });
    }
    let (executed, captured) = (operands(eager), operands(replay));
    for (executed, captured) in executed.iter().zip(&captured) {
        if executed != captured {
            let cause = Cause::OtherMemory { executed: executed.0.clone() };
            return Some(difference(replay, cause, Some((captured.0.clone(), None))));
        }
    }
    if let Some((place, staged)) = differing(eager, &eager.before, replay, &replay.before) {
        let cause = if staged { Cause::FrozenContents } else { Cause::UnrecordedWrite };
        return Some(difference(replay, cause, Some(place)));
    }
    let (place, _) = differing(eager, &eager.after, replay, &replay.after)?;
    let scalars = scalars(eager).into_iter().zip(scalars(replay));
    let frozen = scalars.enumerate().find(|(_, (e, r))| e != r);
    let cause = match frozen {
        Some((index, (executed, captured))) => Cause::FrozenScalar { index, executed, captured },
        None => Cause::Result,
    };
    Some(difference(replay, cause, Some(place)))
}

/// A buffer and a byte of it.
type Shown = (String, Option<u64>);

fn difference(step: &Step, cause: Cause, place: Option<Shown>) -> Difference {
    let name = step.program.graph().node(step.node).name.to_string();
    let (buffer, byte) = place.unzip();
    Difference { node: step.node, name, cause, buffer, byte: byte.flatten() }
}

fn kind(step: &Step) -> &NodeKind {
    &step.program.graph().node(step.node).kind
}

/// Whether both do the same, apart from scalars and memory.
fn alike(a: &NodeKind, b: &NodeKind) -> bool {
    match (a, b) {
        (NodeKind::Kernel(a), NodeKind::Kernel(b)) => match (&a.kernel, &b.kernel) {
            (KernelRef::Elementwise(a), KernelRef::Elementwise(b)) => {
                let same = |(a, b): (&Op, &Op)| match (a, b) {
                    (Op::Const(a), Op::Const(b)) => a.dtype() == b.dtype(),
                    (a, b) => a == b,
                };
                a.outputs() == b.outputs()
                    && a.ops().len() == b.ops().len()
                    && a.ops().iter().zip(b.ops()).all(same)
            }
            (a, b) => a == b,
        },
        // Functions are closures, of which every recording has its own; the nodes' names tell them apart.
        (NodeKind::Host(a), NodeKind::Host(b)) => {
            let name = |function: &str| function.rsplit_once('#').map(|(name, _)| name.to_owned());
            name(&a.function) == name(&b.function)
        }
        (a, b) => a.name() == b.name(),
    }
}

/// Every scalar that a node has, in its order: arguments, then constants of its expression.
fn scalars(step: &Step) -> Vec<Scalar> {
    let NodeKind::Kernel(kernel) = kind(step) else { return Vec::new() };
    let arguments = kernel.args.iter().filter_map(|arg| match arg {
        Arg::Scalar(value) => Some(*value),
        Arg::Slot(slot) => step.program.values.get(slot.index()).copied(),
        _ => None,
    });
    let constants = match &kernel.kernel {
        KernelRef::Elementwise(expr) => expr.ops(),
        _ => &[],
    };
    let constants = constants.iter().filter_map(|op| match op {
        Op::Const(value) => Some(*value),
        _ => None,
    });
    arguments.chain(constants).collect()
}

/// The operands: name, and identity of the memory with the part, or nothing but the part for scratch and for contents that
/// the graph brings along, which every recording has in memory of its own.
fn operands(step: &Step) -> Vec<(String, Option<u64>, u64, u64)> {
    let graph = step.program.graph();
    let operands = graph.operands(step.node);
    let of = operands.iter().map(|(region, _)| {
        let declared = graph.buffer(region.buffer);
        let external = declared.role == BufferRole::External;
        let memory = step.program.memory(region.buffer).filter(|_| external);
        let key = memory.filter(|memory| memory.place() == Place::Device).map(|b| b.key().0);
        (declared.name.to_string(), key, region.offset, region.bytes)
    });
    of.collect()
}

/// Where what the operands hold differs first, and whether the graph has brought it along. They are paired in the order in
/// which the nodes name them.
fn differing(
    eager: &Step,
    executed: &[Held],
    replay: &Step,
    captured: &[Held],
) -> Option<(Shown, bool)> {
    let (e, r) = (eager.program.graph(), replay.program.graph());
    let pairs = e.operands(eager.node).into_iter().zip(r.operands(replay.node));
    for ((of_e, _), (of_r, _)) in pairs {
        let held = |all: &[Held], buffer| all.iter().position(|held| held.buffer == buffer);
        let (Some(a), Some(b)) = (held(executed, of_e.buffer), held(captured, of_r.buffer)) else {
            continue;
        };
        let part = |held: &Held, region: crate::graph::Region| {
            held.bytes.get(region.offset as usize..region.end() as usize).map(<[u8]>::to_vec)
        };
        let (Some(a), Some(b)) = (part(&executed[a], of_e), part(&captured[b], of_r)) else {
            continue;
        };
        if let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) {
            let declared = r.buffer(of_r.buffer);
            let name = declared.name.to_string();
            let brought = declared.role == BufferRole::External;
            let memory = replay.program.memory(of_r.buffer).filter(|_| brought);
            let staged = memory.is_some_and(|memory| memory.place() == Place::Host);
            return Some(((name, Some(of_r.offset + at as u64)), staged));
        }
    }
    None
}
