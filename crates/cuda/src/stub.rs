//! Libraries for tests that have the functions of a real one, or lack some.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Builds a library that answers some functions with these C bodies, and the others of `names`, but for `without`, with
/// success.
pub(crate) fn stub(
    folder: &Path,
    names: &[&str],
    without: Option<&str>,
    bodies: &[(&str, &str)],
) -> OsString {
    let mut source = String::new();
    let given = |name: &str| bodies.iter().find(|body| body.0 == name).map(|body| body.1);
    for &name in names.iter().filter(|&&name| Some(name) != without) {
        let body = given(name).unwrap_or("(int *p) { return 0; }");
        writeln!(source, "unsigned {name}{body}").unwrap();
    }
    let (from, to) = (folder.join("stub.c"), folder.join("libstub.so"));
    std::fs::write(&from, source).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&to, &from])
        .status()
        .expect("a C compiler, which Rust's linker needs as well");
    assert!(built.success());
    to.into_os_string()
}
