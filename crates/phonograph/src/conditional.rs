//! Bodies that the device runs or not, by a value in its own memory.

use crate::context::ExecutionContext;
use crate::graph::{Condition, ConditionalKind};
use crate::op::{DeviceOp, GraphNode};
use crate::operand::Operand;
use crate::recorder::OpRecorder;
use crate::scope::Scope;
use crate::{Error, Result};

/// See [`repeat_while`] and [`when`].
#[must_use = "operations do nothing until they are executed"]
pub struct Conditional<C, F> {
    kind: ConditionalKind,
    condition: C,
    body: F,
}

/// Runs `body` again and again as long as `condition`, one element of i32, u32 or u8, is not 0; it is looked at before the first
/// run and after each. The device decides: one launch goes on to the end. The body is recorded once, in a scope of its own,
/// and is lent the condition.
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! {
///     fn count_down(left: &mut [u32], sum: &mut [u32]) |_e| {
///         sum = sum + left;
///         left = left - 1;
///     }
/// }
/// let device = Device::cpu(1)?;
/// let _entered = device.enter();
/// let mut left = api::full([1], 4u32).sync()?;
/// let mut sum = api::zeros::<u32>([1]).sync()?;
/// repeat_while(&mut left, |s, left| s.record(count_down(left, &mut sum)).map(drop)).sync()?;
/// assert_eq!(sum.to_vec()?, [4 + 3 + 2 + 1]);
/// # Ok::<(), Error>(())
/// ```
pub fn repeat_while<C, F>(condition: C, body: F) -> Conditional<C, F>
where
    C: Operand,
    F: FnOnce(&Scope<'_>, C) -> Result<()> + Send,
{
    Conditional { kind: ConditionalKind::While, condition, body }
}

/// Runs `body` once if `condition`, one element of i32, u32 or u8, is not 0. The body is lent it.
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! { fn add(by: f32, y: &mut [f32]) |_e| { y = y + by; } }
///
/// let device = Device::cpu(1)?;
/// let stream = device.stream(0);
/// let mut flag = api::zeros::<u32>([1]).sync_on(&stream)?;
/// let mut y = api::zeros::<f32>([2]).sync_on(&stream)?;
/// let graph = when(&flag, |s, _| s.record(add(1.0, &mut y)).map(drop)).graph_on(&stream)?;
/// graph.launch().sync_on(&stream)?; // decided on the device, anew by each launch
/// graph.update(api::store([1], &mut flag))?;
/// graph.launch().sync_on(&stream)?;
/// assert_eq!(y.to_vec()?, [1.0; 2]);
/// # Ok::<(), Error>(())
/// ```
pub fn when<C, F>(condition: C, body: F) -> Conditional<C, F>
where
    C: Operand,
    F: FnOnce(&Scope<'_>, C) -> Result<()> + Send,
{
    Conditional { kind: ConditionalKind::If, condition, body }
}

crate::awaitable!([C: Operand, F: FnOnce(&Scope<'_>, C) -> Result<()> + Send] Conditional<C, F>);

/// Throws a body away that was not finished.
struct Body<'r> {
    recorder: &'r std::cell::RefCell<OpRecorder>,
    depth: usize,
    open: bool,
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if self.open {
            self.recorder.borrow_mut().abandon(self.depth);
        }
    }
}

impl<C: Operand, F> DeviceOp for Conditional<C, F>
where
    F: FnOnce(&Scope<'_>, C) -> Result<()> + Send,
{
    type Output = ();

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<()> {
        let Self { kind, condition, body } = self;
        let name = kind.name();
        let window = condition.window();
        if window.view().elements() != 1 {
            let problem = format!("decides by one element, not by {:?}", window.view().shape());
            return Err(Error::operand(name, problem));
        }
        cx.recording_of(|recording| {
            let recorder = &recording.recorder;
            let busy =
                || Error::NonReentrant { what: "a body inside a piece of recording", at: None };
            let depth = recorder.try_borrow_mut().map_err(|_| busy())?.enter();
            let mut open = Body { recorder, depth, open: true };
            body(&Scope::new(cx.stream(), cx.handle(), recording), condition)?;
            open.open = false;
            drop(open);
            let mut recorder = recorder.borrow_mut();
            let inside = recorder.leave(depth)?;
            recorder.piece(|recorder| {
                let condition = Condition::Value(recorder.view(&window));
                recorder.builder().add_conditional(name, kind, condition, vec![inside]);
                Ok(())
            })
        })
    }
}

// SAFETY: it records one node with a body, which takes nodes alone.
unsafe impl<C: Operand, F> GraphNode for Conditional<C, F> where
    F: FnOnce(&Scope<'_>, C) -> Result<()> + Send
{
}
