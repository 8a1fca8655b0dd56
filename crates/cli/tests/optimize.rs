//! `phonograph optimize` as a person uses it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/data").join(file)
}

fn optimize(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phonograph"));
    command.arg("optimize").args(args).output().unwrap()
}

/// Two fills side by side, a copy that can be read through, a result that nobody reads, and one that can be written over its input.
const WASTEFUL: &str = r#"{
  "phonograph": 1,
  "graph": {
    "buffers": [
      {"name": "in", "bytes": 1024, "role": "external"},
      {"name": "staging", "bytes": 1024},
      {"name": "unread", "bytes": 1024},
      {"name": "made", "bytes": 1024},
      {"name": "halved", "bytes": 1024},
      {"name": "sum", "bytes": 4, "role": "external"},
      {"name": "out", "bytes": 1024, "role": "external"}
    ],
    "nodes": [
      {"name": "low", "memset": {"dst": {"buffer": "out"}, "value": 0, "element_size": 4, "width": 512}},
      {"name": "high", "memset": {"dst": {"buffer": "out", "offset": 512}, "value": 0, "element_size": 4, "width": 512}},
      {"name": "stage", "memcpy": {"direction": "DtoD", "src": {"buffer": "in"}, "dst": {"buffer": "staging"}, "width": 1024}},
      {"name": "aside", "kernel": {"grid": [1], "block": [32], "args": [{"buffer": "in", "access": "read"}, {"buffer": "unread", "access": "write"}]}},
      {"name": "work", "kernel": {"grid": [1], "block": [32], "args": [{"buffer": "staging", "access": "read"}, {"buffer": "out", "access": "both"}]}},
      {"name": "make", "kernel": {"grid": [1], "block": [32], "args": [{"buffer": "in", "access": "read"}, {"buffer": "made", "access": "write"}]}},
      {"name": "half", "kernel": {"elementwise": {"inputs": ["f32"], "ops": ["input 0", "const f32 0.5", "mul v0 v1"], "outputs": ["f32 v2"]}, "args": [{"buffer": "made", "access": "read", "dtype": "f32", "shape": [256]}, {"buffer": "halved", "access": "write", "dtype": "f32", "shape": [256]}]}},
      {"name": "take", "kernel": {"grid": [1], "block": [32], "args": [{"buffer": "halved", "access": "read"}, {"buffer": "sum", "access": "write"}]}}
    ]
  }
}"#;

#[test]
fn a_table_says_what_was_gained() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (from, to) = (path("wasteful.json"), path("lean.json"));
    fs::write(&from, WASTEFUL).unwrap();
    let output = optimize(&[&from, &to]);
    assert!(output.status.success(), "{output:?}");
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
    // What was written is a graph, and there is nothing left to do to it.
    let again = optimize(&[&to, &path("again.dot"), "--json"]);
    assert!(again.status.success(), "{again:?}");
    let report: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(report["before"], report["after"]);
    assert_eq!(report["after"]["nodes"], 5);
    assert_eq!(report["checked"], true);
    assert!(fs::read_to_string(path("again.dot")).unwrap().starts_with("digraph"));
}

#[test]
fn a_recorded_graph_loses_its_redundant_edge() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("lean.dot");
    let from = data("multistream_3x4.dot.gz");
    let output = optimize(&[from.to_str().unwrap(), to.to_str().unwrap(), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, before, after) in [("nodes", 53, 53), ("edges", 55, 54), ("redundant_edges", 1, 0)] {
        assert_eq!(report["before"][name], before, "{name}");
        assert_eq!(report["after"][name], after, "{name}");
    }
}

#[test]
fn passes_are_chosen_by_name_or_level() {
    #[track_caller]
    fn check(args: &[&str], passes: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (from, to) = (path("wasteful.json"), path("lean.json"));
        fs::write(&from, WASTEFUL).unwrap();
        let mut all = vec![from.as_str(), to.as_str(), "--json"];
        all.extend(args);
        let output = optimize(&all);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let ran: Vec<&str> = report["passes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["pass"].as_str().unwrap())
            .collect();
        assert_eq!(ran, passes, "{args:?}");
    }
    check(&["-O", "0"], &[]);
    check(&["-O1"], &["dissolve empties", "reduce edges"]);
    check(&["--pass", "edges", "--pass", "dead"], &["reduce edges", "drop dead nodes"]);
}

#[test]
fn bad_use_is_refused_before_anything_is_written() {
    #[track_caller]
    fn check(to: &str, rest: &[&str], complaint: &str) {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join(to);
        let from = data("multistream_3x4.dot.gz");
        let mut args = vec![from.to_str().unwrap(), to.to_str().unwrap()];
        args.extend(rest);
        let output = optimize(&args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(complaint), "{said}");
        assert!(!to.exists());
    }
    check("lean.txt", &[], "ends in neither .json nor .dot");
    check("lean.json", &["-O", "9"], "9 is not in 0..=3");
    check(
        "lean.json",
        &["--pass", "magic"],
        "there is no pass \"magic\"; there are redundant-copies",
    );
    check("lean.json", &["--pass", "edges", "-O", "1"], "cannot be used with");
}
