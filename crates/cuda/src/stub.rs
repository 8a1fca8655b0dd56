//! Libraries for tests that have the functions of a real one, or lack some; and whole tests on a driver that is none.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::symbols::{DRIVER, FOREIGN, RECORD, TIMING};

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

/// Says, in the process on a driver that is none, which test it is for.
const INSIDE: &str = "PHONOGRAPH_TEST_ON_STUB";

/// Runs a check in a process of its own whose CUDA driver is a stub: of version 13.0, with devices that have everything, and
/// with these answers to some functions. `test` is the path of the test that calls this and does nothing else.
pub(crate) fn on_driver(test: &str, bodies: &[(&str, &str)], check: fn()) {
    if env::var_os(INSIDE).is_some_and(|inside| inside == test) {
        return check();
    }
    let folder = tempfile::tempdir().unwrap();
    let all = [DRIVER, FOREIGN, TIMING, RECORD].concat();
    let mut answers = bodies.to_vec();
    for (name, body) in [
        ("cuDriverGetVersion", "(int *v) { *v = 13000; return 0; }"),
        ("cuDeviceGetCount", "(int *n) { *n = 1; return 0; }"),
        ("cuDeviceGetAttribute", "(int *v) { *v = 9; return 0; }"),
    ] {
        if !bodies.iter().any(|body| body.0 == name) {
            answers.push((name, body));
        }
    }
    let library = stub(folder.path(), &all, None, &answers);
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::copy(&library, folder.path().join(name)).unwrap();
    }
    let before = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
    let path = env::join_paths([folder.path().to_owned()].into_iter().chain(folders)).unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", path)
        .env(INSIDE, test)
        .output()
        .unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{wrong}");
}
