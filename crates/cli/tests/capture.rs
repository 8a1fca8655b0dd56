//! The commands over the stream-capture model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

fn phonograph(command: &str, files: &[&Path], rest: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_phonograph"))
        .arg(command)
        .args(files)
        .args(rest)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn file(contents: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(contents.as_bytes()).unwrap();
    file
}

#[test]
fn recordings_are_answered_all_right() {
    let recordings = [
        ("capture_named.jsonl.gz", "programs 102/102, steps 633/633"),
        ("call_matrix.jsonl", "rows 456/456"),
        ("call_nodes.jsonl", "rows 114/114"),
        ("update.jsonl.gz", "pairs 4500/4500"),
        ("update_rich.jsonl.gz", "pairs 3000/3000"),
    ];
    for (name, expected) in recordings {
        let path = data("capture/tests/data").join(name);
        let output = phonograph("conformance", &[&path], &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(stdout(&output), format!("{}: {expected}\n", path.display()));
    }
}

#[test]
fn a_falsified_recording_is_answered_with_no() {
    let rows = std::fs::read_to_string(data("capture/tests/data/call_matrix.jsonl")).unwrap();
    let row = rows.lines().find(|row| row.contains("STREAM_CAPTURE_UNSUPPORTED")).unwrap();
    let falsified = file(&row.replacen("STREAM_CAPTURE_UNSUPPORTED", "SUCCESS", 1));
    let output = phonograph("conformance", &[falsified.path()], &["-v"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("rows 0/1") && stdout(&output).contains("driver SUCCESS"));
    let garbage = file("{\"what\": 1}\n");
    let output = phonograph("conformance", &[garbage.path()], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn scripts_are_explained() {
    let mut said = String::new();
    for name in
        ["09_a_fork_is_never_joined", "a_wait_across_captures", "01_sync_on_the_capturing_stream"]
    {
        let script = data("capture/tests/cases").join(name).with_extension("txt");
        let output = phonograph("check", &[&script], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        said += &format!("--- {name}\n{}\n", stdout(&output));
    }
    insta::assert_snapshot!(said);
}

#[test]
fn a_script_cannot_steer_the_terminal() {
    let script =
        file("stream s # \u{1b}[2J\nbegin s global\nsync s # \u{1b}]0;title\u{7}\nend s\n");
    let output = phonograph("check", &[script.path()], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!stdout(&output).contains(['\u{1b}', '\u{7}']), "{output:?}");
    let fine = file("stream s nonblocking\nbegin s global\nkernel s\nend s\n");
    assert_eq!(phonograph("check", &[fine.path()], &[]).status.code(), Some(0));
}

#[test]
fn scripts_with_mistakes_are_refused_with_their_place() {
    let script = file("stream main\nkernel mian\n");
    let output = phonograph("check", &[script.path()], &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(":2:8: stream `mian` is not declared; did you mean `main`?"), "{error}");
}

#[test]
fn updates_are_judged_between_files() {
    let graph = data("graph/tests/data/multistream_3x4.dot.gz");
    let other = data("graph/tests/data/resnet18_infer_b1.dot.gz");
    let same = phonograph("diff", &[&graph, &graph], &["--json"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let differs = phonograph("diff", &[&graph, &other], &[]);
    assert_eq!(differs.status.code(), Some(1), "{differs:?}");
    assert!(stdout(&differs).contains("TOPOLOGY_CHANGED"), "{differs:?}");
}
