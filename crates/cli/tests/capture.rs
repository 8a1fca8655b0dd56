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
        ("capture.jsonl.gz", "programs 5997/5997, steps 115743/115743"),
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
        let folder = script.parent().unwrap().display().to_string();
        said += &stdout(&output).replace(&folder, "");
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

/// Runs `check --graph` on a script; its output, and what was written.
fn check_graph(text: &str, rest: &[&str]) -> (Output, Option<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let (script, out) = (folder.path().join("script.txt"), folder.path().join("out.json"));
    std::fs::write(&script, text).unwrap();
    let rest = [&["--graph", out.to_str().unwrap()], rest].concat();
    let output = phonograph("check", &[&script], &rest);
    (output, std::fs::read(out).ok())
}

const STEP: &str = "stream main side nonblocking
event fork join
memory a b 4096
begin main global
kernel main load writes a
record fork main
wait side fork
kernel side left reads a writes b
kernel main right reads a writes unsized
malloc_async main scratch
record join side
wait main join
kernel main last reads b unsized writes scratch
memset main writes a
free_async main scratch
end main as step
";

#[test]
fn a_captured_graph_is_written_and_read_by_the_other_commands() {
    let (output, written) = check_graph(STEP, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut graph = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    graph.write_all(&written.unwrap()).unwrap();
    let shown = phonograph("show", &[graph.path()], &["--json"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["nodes"], &shown["edges"]), (&7.into(), &7.into()), "{shown}");
    let planned = phonograph("plan", &[graph.path()], &["--steps"]);
    assert_eq!(planned.status.code(), Some(0), "{planned:?}");
    assert!(stdout(&planned).contains("proved by the checker"), "{planned:?}");
    let same = phonograph("diff", &[graph.path(), graph.path()], &[]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    // What a script leaves out is unknown, so nothing pretends to replay it.
    let replayed = phonograph("run", &[graph.path()], &[]);
    assert_ne!(replayed.status.code(), Some(0), "{replayed:?}");
}

#[test]
fn of_several_captured_graphs_one_has_to_be_chosen() {
    let text = "stream s nonblocking
graph grown
begin s global
kernel s a
end s
begin_into s global grown
kernel s b
end s
begin_into s global grown
kernel s c
end s
begin s global
end s as none
";
    let error = |rest: &[&str]| {
        let (output, written) = check_graph(text, rest);
        assert_eq!((output.status.code(), written), (Some(2), None), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        error.split_once("is not written: ").unwrap().1.to_owned()
    };
    let all = "1 (begun on line 3, 1 node), 2 `grown` (begun on line 9, 2 nodes), 3 `none` (begun on line 12, 0 nodes)";
    assert_eq!(error(&[]), format!("there are 3 graphs; choose one with --pick: {all}\n"));
    for missing in ["0", "4", "lost", "-1", ""] {
        let picked = format!("--pick={missing}");
        assert_eq!(error(&[&picked]), format!("there is no graph `{missing}`, only {all}\n"));
    }
    for (pick, nodes) in [("1", 1), ("grown", 2), ("2", 2), ("none", 0)] {
        let (output, written) = check_graph(text, &["--pick", pick]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let graph = phonograph::graph::from_json(&written.unwrap()).unwrap();
        assert_eq!(graph.node_count(), nodes, "{pick}");
    }
}

#[test]
fn without_a_graph_nothing_is_written() {
    for (text, code) in [("# nothing\n", 2), ("stream s\nbegin s global\nsync s\nend s\n", 1)] {
        let (output, written) = check_graph(text, &[]);
        assert_eq!((output.status.code(), written), (Some(code), None), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            error.ends_with("is not written: no capture ends with a graph, and none is built\n"),
            "{error}"
        );
    }
    let untold = "stream s nonblocking\nbegin s global\ncuStreamWaitValue32 s\nend s\n";
    let (output, written) = check_graph(untold, &[]);
    assert_eq!((output.status.code(), written), (Some(2), None), "{output:?}");
}

/// The report of `diff` on two graphs in JSON, given by their members.
fn diff(a: &str, b: &str, code: i32) -> String {
    let graph = |members: &str| file(&format!("{{\"phonograph\": 1, \"graph\": {{{members}}}}}"));
    let (a, b) = (graph(a), graph(b));
    let output = phonograph("diff", &[a.path(), b.path()], &[]);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    stdout(&output)
}

const LOAD: &str = r#"{"name": "load", "kernel": {}}"#;

#[test]
fn case_18_a_node_changes_its_type() {
    let graph = |second: &str| format!(r#""nodes": [{LOAD}, {second}], "edges": [[0, 1]]"#);
    let copy = r#"{"name": "copy out", "memcpy": {"direction": "DtoH", "width": 64}}"#;
    let kernel = r#"{"name": "_Z5scalePff", "kernel": {}}"#;
    insta::assert_snapshot!(diff(&graph(copy), &graph(kernel), 1));
}

#[test]
fn case_19_an_update_fails_and_leaves_its_error() {
    // The same step with another number of dependencies, with a copy from another device, and with a cooperative kernel.
    let graph = |width: u64, device: u32, cooperative: bool, join: &str| {
        format!(
            r#""buffers": [{{"name": "x", "bytes": 4096, "role": "external", "space": {{"device": {device}}}}},
                {{"name": "h", "bytes": 4096, "role": "external", "space": "pinned"}}],
            "nodes": [{LOAD}, {{"name": "fetch", "memcpy": {{"direction": "HtoD", "src": {{"buffer": 1}}, "dst": {{"buffer": 0}}, "width": {width}}}}},
                {{"name": "step", "kernel": {{"cooperative": {cooperative}}}}}],
            "edges": [{join}]"#
        )
    };
    let both = "[0, 2], [1, 2]";
    let first = graph(4096, 0, false, both);
    let mut said = diff(&first, &graph(1024, 0, false, both), 0);
    for second in [
        graph(4096, 0, false, "[0, 1], [1, 2]"),
        graph(4096, 1, false, both),
        graph(4096, 0, true, both),
    ] {
        said += &format!("---\n{}", diff(&first, &second, 1));
    }
    insta::assert_snapshot!(said);
}

#[test]
fn case_20_a_2d_memset_is_taken_again_and_not_with_another_height() {
    let graph = |width: u64, height: u64| {
        format!(
            r#""buffers": [{{"name": "p", "bytes": 8192, "role": "external"}}],
            "nodes": [{{"name": "clear", "memset": {{"dst": {{"buffer": 0, "pitch": 512}}, "value": 7, "element_size": 4, "width": {width}, "height": {height}}}}}], "edges": []"#
        )
    };
    assert_eq!(diff(&graph(64, 4), &graph(64, 4), 0), diff(&graph(64, 1), &graph(32, 1), 0));
    insta::assert_snapshot!(diff(&graph(64, 4), &graph(64, 5), 1));
    assert!(diff(&graph(64, 4), &graph(32, 4), 1).contains("PARAMETERS_CHANGED (5)"));
    assert!(diff(&graph(64, 1), &graph(64, 2), 1).contains("PARAMETERS_CHANGED (5)"));
}

#[test]
fn case_37_edge_data_is_never_dropped() {
    let text = "graph g
add_kernel g a as a
add_kernel g b as b
add_kernel g c as c
add_edge g a b programmatic
add_edge g b c launch_order
";
    let (output, written) = check_graph(text, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json = written.unwrap();
    let graph = phonograph::graph::from_json(&json).unwrap();
    let data = |edges: &mut dyn Iterator<Item = phonograph::graph::Edge>| -> Vec<_> {
        edges.map(|edge| (edge.from.0, edge.to.0, edge.data.from_port)).collect()
    };
    let expected = [(0, 1, 1), (1, 2, 2)];
    assert_eq!(data(&mut graph.edges()), expected);
    // Lowered from its plan, the graph has every edge with its data.
    let plan = phonograph::plan::ExecutionPlan::build(&graph, 2).unwrap();
    let device = phonograph::plan::lower(&plan).unwrap();
    let lowered: Vec<_> = graph
        .node_ids()
        .flat_map(|node| data(&mut device.incoming(node).iter().copied()))
        .collect();
    assert_eq!(lowered, expected);
    let written = file(std::str::from_utf8(&json).unwrap());
    let dot = phonograph("show", &[written.path()], &["--dot"]);
    let again = file(&stdout(&dot));
    let same = phonograph("diff", &[written.path(), again.path()], &[]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
}

#[test]
fn case_39_a_hundred_thousand_calls_and_a_fork_as_wide() {
    const COUNT: usize = 100_000;
    let chain = "kernel s step reads x writes x\n".repeat(COUNT);
    let chain = format!("stream s nonblocking\nbegin s global\n{chain}end s\n");
    let mut wide = String::from("stream s nonblocking\nevent fork\n");
    for side in 0..COUNT {
        wide += &format!("stream s{side} nonblocking\nevent e{side}\n");
    }
    wide += "begin s global\nkernel s first\nrecord fork s\n";
    for side in 0..COUNT {
        wide += &format!(
            "wait s{side} fork\nkernel s{side} k\nrecord e{side} s{side}\nwait s e{side}\n"
        );
    }
    wide += "kernel s last\nend s\n";
    // The last kernel also depends on the first, which the driver keeps in its set.
    for (text, nodes, edges) in [(chain, COUNT, COUNT - 1), (wide, COUNT + 2, 2 * COUNT + 1)] {
        let (output, written) = check_graph(&text, &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let graph = phonograph::graph::from_json(&written.unwrap()).unwrap();
        assert_eq!((graph.node_count(), graph.edge_count()), (nodes, edges));
    }
}

#[test]
fn recordings_that_are_asked_or_cannot_be_answered_stay() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("update_settled.jsonl");
    let original = data("capture/tests/data/update_settled.jsonl");
    std::fs::copy(&original, &asked).unwrap();
    let earlier = folder.path().join("programs-5.jsonl");
    std::fs::write(&earlier, "earlier").unwrap();
    let record = |rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phonograph"));
        command.args(["conformance", "--record"]).arg(folder.path()).args(rest);
        // Where there is a device, it is not to be found.
        let output = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = record(&[asked.to_str().unwrap()]);
    assert!(said.contains("would be overwritten"), "{said}");
    assert!(std::fs::read(&asked).unwrap() == std::fs::read(&original).unwrap());
    let said = record(&["--seed", "5", "--count", "1"]);
    assert!(said.contains("no answers to programs-5.jsonl"), "{said}");
    assert_eq!(std::fs::read_to_string(&earlier).unwrap(), "earlier");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn every_recording_is_judged_whatever_is_wrong_with_the_others() {
    let good = data("capture/tests/data/call_nodes.jsonl");
    let wrong = std::fs::read_to_string(data("capture/tests/data/call_matrix.jsonl")).unwrap();
    let wrong = file(&wrong.replacen("\"SUCCESS\"", "\"NOT_FOUND\"", 1));
    let rows = std::fs::read_to_string(&good).unwrap();
    let broken = file(&format!("{}\n{{\"call\": 1}}\n", rows.lines().next().unwrap()));
    let missing = Path::new("/no/such/recording");
    let files = [broken.path(), &good, missing, wrong.path()];
    let output = phonograph("conformance", &files, &["-v"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    let named = format!("error: {}: line 2, column 10: ", broken.path().display());
    assert!(error.starts_with(&named), "{error}");
    assert!(error.contains("error: cannot read /no/such/recording: "), "{error}");
    assert!(error.ends_with("error: 2 of 4 files cannot be read as recordings\n"), "{error}");
    let said = stdout(&output);
    assert!(said.contains("rows 114/114") && said.contains("rows 455/456"), "{said}");
    assert_eq!(said.matches("driver NOT_FOUND").count(), 1, "{said}");
    let json = phonograph("conformance", &files, &["--json"]);
    assert_eq!(json.status.code(), Some(2), "{json:?}");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["all_right"], json["files"].as_array().unwrap().len()), (&false.into(), 4));
    assert!(json["files"][2]["error"].is_string() && json["files"][3]["right"] == 455, "{json}");
}

#[test]
fn recordings_are_read_in_every_shape_that_they_may_have() {
    let program = |id: &str| {
        format!(
            r#"{{"extra": {{"deep": [1]}}, "steps": [{{"streams": [{{"deps": [], "id": 7, "capture": 0}}], "result": "SUCCESS", "op": "begin s0 global"}},
            {{"result": "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "streams": ["invalidated"], "op": "  sync   s0 "}},
            {{"op": "end s0", "graph": null, "streams": ["none"], "result": "STREAM_CAPTURE_INVALIDATED"}},
            {{"op": "begin s0 relaxed", "result": "SUCCESS", "streams": [{{"capture": 3, "deps": []}}]}},
            {{"op": "end s0", "result": "SUCCESS", "streams": ["none"], "graph": {{"edges": [], "nodes": []}}}}], "streams": ["nonblocking"], "id": "{id}"}}"#
        )
        .replace('\n', "")
    };
    let update = r#"{"update": "SUCCESS", "b": [{"kind": "kernel"}, {"deps": [0], "kind": "memset", "width": 4, "element": 1}],
        "result": "SUCCESS", "id": "u", "a": [{"kind": "kernel", "grid": 3}, {"kind": "memset", "element": 1, "width": 8, "deps": [0]}]}"#
        .replace('\n', "");
    let shapes = [
        (
            format!("\u{feff}\r\n{}\r\n\r\n   \r\n{}", program("p"), program("q")),
            "programs 2/2, steps 10/10",
        ),
        (format!("{update}\n\n"), "pairs 1/1"),
    ];
    for (text, expected) in shapes {
        let plain = file(&text);
        let mut gzip = tempfile::NamedTempFile::new().unwrap();
        let mut writer = flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap();
        for path in [plain.path(), gzip.path()] {
            let output = phonograph("conformance", &[path], &["-v"]);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            assert_eq!(stdout(&output), format!("{}: {expected}\n", path.display()));
        }
    }
    for (text, said) in [
        ("", "the recording is empty"),
        ("\n \r\n", "the recording is empty"),
        ("[]", "line 1: "),
        ("{\"calls\": []}", "found `calls`"),
        ("{\"steps\": 3}", "line 1, column 11: "),
    ] {
        let bad = file(text);
        let output = phonograph("conformance", &[bad.path()], &[]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{text}: {error}");
    }
    let cut = &std::fs::read(data("capture/tests/data/capture_named.jsonl.gz")).unwrap()[..2000];
    let mut bad = tempfile::NamedTempFile::new().unwrap();
    bad.write_all(cut).unwrap();
    let output = phonograph("conformance", &[bad.path()], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn the_exit_code_tells_fine_from_faulty_from_unreadable() {
    let mut latin = tempfile::NamedTempFile::new().unwrap();
    latin.write_all(b"stream s\n# caf\xe9\n").unwrap();
    let long = format!("stream s\n{}\n", "k".repeat(10 << 20));
    let long_comment = format!("# {}\nstream s\n", "k".repeat(10 << 20));
    let cases = [
        (file("# nothing but\n\n   # comments"), 0, ""),
        (file(""), 0, ""),
        (file("stream s\r\nkernel s\r\n"), 0, ""),
        (file("stream s\nbegin s global\nsync s\nend s\n"), 1, ""),
        (file("stream s\nkernel t\n"), 2, ":2:8: stream `t` is not declared"),
        (file("stream s\ncuLaunchKernel\n"), 2, "line 2: `kernel`: cuLaunchKernel needs a stream"),
        (file(&long), 2, ":2:1: the line is longer than 65536 bytes"),
        (file(&long_comment), 2, ":1:1: the line is longer than 65536 bytes"),
        (latin, 2, ":2: this is not UTF-8 text"),
    ];
    for (script, code, said) in cases {
        let output = phonograph("check", &[script.path()], &[]);
        let error = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(said) && error.is_empty() == (code < 2), "{error}");
        assert!(error.len() < 1000, "{} bytes", error.len());
    }
    let output = phonograph("check", &[Path::new("/no/such/script")], &[]);
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("error: cannot read /no/such/script: "), "{error}");
    assert_eq!(phonograph("check", &[], &[]).status.code(), Some(2));
}

#[test]
fn colour_is_used_when_asked_for() {
    let script = file("stream s\nbegin s global\nsync s\nend s\n");
    let said = |rest: &[&str], no_colour: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phonograph"));
        command.arg("check").arg(script.path()).args(rest).env("NO_COLOR", no_colour);
        stdout(&command.output().unwrap())
    };
    let plain = said(&[], "");
    assert!(!plain.contains('\u{1b}'), "no terminal, no colour");
    assert_eq!(said(&["--colour", "auto"], "1"), plain);
    assert_eq!(said(&["--colour", "never"], ""), plain);
    let coloured = said(&["--colour", "always"], "1");
    assert!(coloured.contains("\u{1b}[1;31merror[R12]\u{1b}[0m"), "{coloured}");
    // Colours are all that is added.
    let mut rest = coloured.as_str();
    let mut stripped = String::new();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        stripped += before;
        rest = after.split_once('m').unwrap().1;
    }
    assert_eq!(stripped + rest, plain);
}

#[test]
fn findings_are_told_as_json() {
    let script =
        file("stream s nonblocking\nbegin s global\nkernel s\nsync s # waits\nkernel s\nend s\n");
    let output = phonograph("check", &[script.path()], &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["errors"], &told["warnings"]), (&1.into(), &0.into()), "{told}");
    let finding = &told["findings"][0];
    assert_eq!(finding["code"], "R12");
    assert_eq!(finding["at"]["place"], serde_json::json!({ "line": 4, "column": 1, "length": 6 }));
    assert_eq!(finding["consequences"].as_array().unwrap().len(), 2);
    let fine = file("stream s nonblocking\nbegin s global\nkernel s\nend s as g\n");
    let output = phonograph("check", &[fine.path()], &["--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let graph = serde_json::json!({ "name": "g", "line": 2, "nodes": 1, "edges": 0 });
    assert_eq!(told["graphs"], serde_json::json!([graph]), "{told}");
}
