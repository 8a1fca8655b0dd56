//! Standard output that cannot take all.

use std::path::Path;
use std::process::{Command, Stdio};

fn data(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/data").join(file);
    path.to_str().unwrap().to_owned()
}

#[test]
#[cfg(target_os = "linux")]
fn what_cannot_be_printed_is_told() {
    let graph = &data("every_node.json");
    let commands: [&[&str]; 6] = [
        &["--help"],
        &["--version"],
        &["help", "check"],
        &["completions", "bash"],
        &["show", graph],
        &["plan", "--json", graph],
    ];
    for command in commands {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let run =
            Command::new(env!("CARGO_BIN_EXE_phonograph")).args(command).stdout(full).output();
        let output = run.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
        assert!(error.contains("cannot write to standard output"), "{command:?}: {error}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_phonograph"))
        .args(["show", "--html", &data("resnet18_infer_b1.dot.gz")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
