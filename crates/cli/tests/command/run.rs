//! `run`: replays with real data, on every backend.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::{AXPY, on_file, phonograph, stdout};

#[test]
fn run_replays_with_real_data() {
    let doctor = phonograph(&["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mut x = tempfile::NamedTempFile::new().unwrap();
    for value in [1.0f32, 2.0, 3.0, 4.0] {
        x.write_all(&value.to_le_bytes()).unwrap();
    }
    let data = format!("x={}", x.path().display());
    for backend in ["cpu", "wgpu"] {
        if doctor["backends"][backend]["works"] != true {
            eprintln!("{backend} skipped: {}", doctor["backends"][backend]["detail"]);
            continue;
        }
        let args = ["--backend", backend, "--replays", "3", "--threads", "2", "--json"];
        let args = [&args[..], &["--set", "a=10", "--data", &data]].concat();
        let output = on_file(AXPY.as_bytes(), "run", &args);
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let y = &report["buffers"][1];
        assert_eq!(y["name"], "y");
        assert_eq!(y["first"], serde_json::json!(["30.0", "60.0", "90.0", "120.0"]), "{backend}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn data_come_from_pipes_too() {
    let check = |bytes: usize, said: &str| {
        let mut graph = tempfile::NamedTempFile::new().unwrap();
        graph.write_all(AXPY.as_bytes()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_phonograph"))
            .args(["run", "--data", "x=/dev/stdin"])
            .arg(graph.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&vec![0; bytes]).unwrap();
        let output = child.wait_with_output().unwrap();
        let all = stdout(&output) + str::from_utf8(&output.stderr).unwrap();
        assert!(all.contains(said), "{all}");
    };
    check(16, "1 replay");
    check(15, "/dev/stdin has 15 bytes, buffer `x` has 16");
    check(17, "/dev/stdin has more bytes, buffer `x` has 16");
    let output = on_file(AXPY.as_bytes(), "run", &["--data", "x=/"]);
    assert!(str::from_utf8(&output.stderr).unwrap().contains("cannot read /"), "{output:?}");
}

#[test]
fn run_takes_numbers_for_names_that_several_have() {
    let twins = AXPY.replace(r#""name": "y""#, r#""name": "x""#);
    let twins = twins
        .replace(r#""buffer": "x""#, r#""buffer": 0"#)
        .replace(r#""buffer": "y""#, r#""buffer": 1"#);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[1.0f32; 4].map(f32::to_le_bytes).concat()).unwrap();
    let given = |buffer: &str| {
        let data = format!("{buffer}={}", file.path().display());
        on_file(twins.as_bytes(), "run", &["--json", "--set", "a=2", "--data", &data])
    };
    let unclear = given("x");
    assert_eq!(unclear.status.code(), Some(2), "{unclear:?}");
    assert!(String::from_utf8_lossy(&unclear.stderr).contains("give one's number: 0, 1"));
    let report: serde_json::Value = serde_json::from_slice(&given("0").stdout).unwrap();
    assert_eq!(report["buffers"][1]["first"], serde_json::json!(["2.0", "2.0", "2.0", "2.0"]));
}

#[test]
fn run_knows_the_types_that_bodies_see() {
    let body = r#"{"buffers": [{"name": "inside", "bytes": 16, "role": {"outer": "x"}}], "nodes": [
        {"name": "twice", "kernel": {"elementwise": {"inputs": ["f32"], "ops": ["input 0", "add v0 v0"], "outputs": ["f32 v1"]}, "args": [
            {"buffer": 0, "access": "read", "dtype": "f32", "shape": [4]}, {"buffer": 0, "access": "write", "dtype": "f32", "shape": [4]}]}}]}"#;
    let graph = format!(
        r#"{{"phonograph": 1, "graph": {{"buffers": [
            {{"name": "x", "bytes": 16, "role": "external"}}, {{"name": "go", "bytes": 4, "role": "external"}}], "nodes": [
            {{"name": "loop", "conditional": {{"kind": "while", "condition": {{"buffer": "go", "dtype": "u32", "shape": [1]}}, "bodies": [{body}]}}}}]}}}}"#
    );
    let output = on_file(graph.as_bytes(), "run", &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let types = [&report["buffers"][0]["dtype"], &report["buffers"][1]["dtype"]];
    assert_eq!(types, ["f32", "u32"]);
}

#[test]
fn run_gives_buffers_the_alignment_that_they_ask_for() {
    let graph = AXPY.replace("\"bytes\": 16", "\"bytes\": 16, \"align\": 1048576");
    let output = on_file(graph.as_bytes(), "run", &[]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn run_on_cuda_gives_what_the_cpu_gives_or_says_what_is_missing() {
    let args = ["--replays", "3", "--set", "a=10", "--json"];
    let on = |backend: &str| {
        let args: Vec<&str> = args.into_iter().chain(["--backend", backend]).collect();
        on_file(AXPY.as_bytes(), "run", &args)
    };
    let (cpu, cuda) = (on("cpu"), on("cuda"));
    if cuda.status.code() == Some(2) {
        let error = String::from_utf8(cuda.stderr).unwrap();
        assert!(error.contains("CUDA") || error.contains("NVRTC"), "{error}");
        return eprintln!("skipped: {error}");
    }
    let [cpu, cuda]: [serde_json::Value; 2] =
        [cpu, cuda].map(|output| serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!(cpu["buffers"], cuda["buffers"]);
}

#[test]
fn a_failed_replay_is_answered_with_1() {
    let gather = r#"{"phonograph": 1, "graph": {
      "buffers": [
        {"name": "table", "bytes": 16, "role": "external"},
        {"name": "rows", "bytes": 4, "role": "external"},
        {"name": "out", "bytes": 4, "role": "external"}],
      "nodes": [{"name": "pick", "kernel": {"library": "gather", "args": [
        {"buffer": "table", "access": "read", "dtype": "f32", "shape": [4]},
        {"buffer": "rows", "access": "read", "dtype": "i32", "shape": [1]},
        {"buffer": "out", "access": "write", "dtype": "f32", "shape": [1]}]}}]}}"#;
    let mut rows = tempfile::NamedTempFile::new().unwrap();
    rows.write_all(&9i32.to_le_bytes()).unwrap();
    let data = format!("rows={}", rows.path().display());
    let output = on_file(gather.as_bytes(), "run", &["--data", &data]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("node n0 (pick): row number 9"), "{output:?}");
    assert_eq!(on_file(gather.as_bytes(), "run", &[]).status.code(), Some(0));
}
