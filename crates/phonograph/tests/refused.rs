//! What must not compile, and what the compiler says instead.
//!
//! The messages are those of one compiler, so that others skip this; the documentation has the most important of them as
//! examples that no compiler takes.

use std::process::Command;

/// The compiler whose messages are on file.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn mistakes_are_refused_by_the_compiler() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    if !version.starts_with(COMPILER) {
        println!("skipped: the messages on file are those of {COMPILER}x, this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
