//! The `phonograph` command.
fn main() {}
