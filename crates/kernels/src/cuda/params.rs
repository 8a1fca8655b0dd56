//! The parameters of a kernel: how its source declares them, and what to give it.
//!
//! A parameter is a value, or *indirect*: the address of a 64-bit word in device memory that holds the value when the kernel
//! starts. Indirect ones can change between launches without anybody touching the launch; the source reads them before
//! anything else, which also means before it waits for the kernels before it.

use std::fmt::Write;

use phonograph_graph::{DType, View};

use super::{Param, raw};

/// The operands of a node, and the parameters that have been made of them.
pub(super) struct Params<'a> {
    pub views: &'a [View],
    /// Of each view, whether it is indirect.
    pub indirect_views: &'a [bool],
    /// Of each scalar, its number among the node's arguments and whether it is indirect.
    pub scalars: &'a [(usize, bool)],
    /// Whether the kernel waits for those before it by itself, and lets those after it start early.
    pub enters: bool,
    declared: String,
    loads: String,
    list: Vec<Param>,
    next_scalar: usize,
}

impl<'a> Params<'a> {
    pub fn new(
        views: &'a [View],
        indirect_views: &'a [bool],
        scalars: &'a [(usize, bool)],
        enters: bool,
    ) -> Self {
        let (declared, loads) = (String::new(), String::new());
        let (list, next_scalar) = (Vec::new(), 0);
        Self { views, indirect_views, scalars, enters, declared, loads, list, next_scalar }
    }

    /// Declares the next view as `name`, a pointer to `element`.
    pub fn view(&mut self, name: &str, element: &str, only_read: bool) {
        let at = self.list.iter().filter(|param| matches!(param, Param::View(_))).count();
        let only = if only_read { "const " } else { "" };
        self.declare(name, &format!("{only}{element} *"), self.indirect_views[at]);
        self.list.push(Param::View(self.views[at]));
    }

    /// Declares all views, as `x0`, `x1`, …; so many are only read.
    pub fn tensors(&mut self, reads: usize) {
        for (at, view) in self.views.iter().enumerate() {
            self.view(&format!("x{at}"), raw(view.dtype), at < reads);
        }
    }

    /// Declares the next scalars, of these types, as `p0`, `p1`, ….
    pub fn scalars(&mut self, types: impl Iterator<Item = DType>) {
        for dtype in types {
            let (argument, indirect) = self.scalars[self.next_scalar];
            self.declare(&format!("p{}", self.next_scalar), &format!("{} ", raw(dtype)), indirect);
            self.list.push(Param::Scalar(argument, dtype));
            self.next_scalar += 1;
        }
    }

    /// Declares a parameter that is never indirect.
    pub fn plain(&mut self, declaration: &str, param: Param) {
        write!(self.declared, "{declaration}, ").expect("a string takes all");
        self.list.push(param);
    }

    fn declare(&mut self, name: &str, of: &str, indirect: bool) {
        if indirect {
            write!(self.declared, "{of}const *at_{name}, ").expect("a string takes all");
            writeln!(self.loads, "    {of}const {name} = *at_{name};").expect("a string takes all");
        } else {
            write!(self.declared, "{of}{name}, ").expect("a string takes all");
        }
    }

    /// The list of declarations and what the function begins with; the words come last.
    pub fn finish(mut self, words: Vec<u64>) -> (String, String, Vec<Param>) {
        self.list.push(Param::Words(words));
        let enter = if self.enters { "    enter();" } else { "" };
        (self.declared + "Words s", self.loads + enter, self.list)
    }
}
