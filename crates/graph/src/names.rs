//! Kernel names for people.
//!
//! The graph keeps names as the driver has them, mangled; whoever prints one asks here. Symbols come from files and
//! may be hostile, so everything is bounded: length, recursion, and how far a short symbol may expand.

use std::borrow::Cow;
use std::fmt;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// The longest symbol that is demangled; longer ones are shown as they are.
const MAX_MANGLED: usize = 4096;
/// The longest demangled name; beyond it the mangled one is shown.
const MAX_DEMANGLED: usize = 16_384;
/// How deep the demangler may recurse. Its parser tries alternatives without remembering what failed, which takes
/// exponential time in the depth: at 128 a symbol of 98 bytes took five minutes; at 64 the worst that a search
/// found took 0.07 s. The deepest symbol of the PyTorch and MLX kernels at hand needs 47.
const MAX_RECURSION: u32 = 64;

/// A kernel's name without its C++ mangling, parameters and return type; names that are not mangled (and Rust's) stay
/// as they are.
///
/// ```
/// use phonograph_graph::display_name;
///
/// assert_eq!(display_name("_Z10exp_kernelPKfPfi"), "exp_kernel");
/// assert_eq!(display_name("_ZN2at6native9vectorizeILi4EfEEvPT0_"), "at::native::vectorize<4, float>");
/// assert_eq!(display_name("sm80_xmma_gemm_f32f32"), "sm80_xmma_gemm_f32f32");
/// ```
pub fn display_name(name: &str) -> Cow<'_, str> {
    if !name.starts_with("_Z") || name.len() > MAX_MANGLED {
        return Cow::Borrowed(name);
    }
    let parse = ParseOptions::default().recursion_limit(MAX_RECURSION);
    let Ok(symbol) = Symbol::new_with_options(name, &parse) else { return Cow::Borrowed(name) };
    let options = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .hide_expression_literal_types()
        .recursion_limit(MAX_RECURSION);
    let mut shown = Bounded(String::new());
    match symbol.structured_demangle(&mut shown, &options) {
        Ok(()) => Cow::Owned(shown.0),
        Err(fmt::Error) => Cow::Borrowed(name),
    }
}

/// Text up to [`MAX_DEMANGLED`] bytes; writing more is an error, which stops the demangler.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MAX_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}
