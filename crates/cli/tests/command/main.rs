//! The command as a person uses it: what it prints, what it answers, how it refuses.

mod run;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/data").join(file)
}

fn phonograph(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_phonograph")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs the command on a graph file of these contents.
fn on_file(contents: &[u8], command: &str, rest: &[&str]) -> Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(contents).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let mut args = vec![command, path.as_str()];
    args.extend(rest);
    phonograph(&args)
}

/// Runs the command on these bytes on standard input.
fn on_stdin(contents: &[u8], command: &str, rest: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_phonograph"))
        .args([command, "-"])
        .args(rest)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(contents).unwrap();
    child.wait_with_output().unwrap()
}

const AXPY: &str = r#"{
  "phonograph": 1,
  "graph": {
    "buffers": [
      {"name": "x", "bytes": 16, "role": "external"},
      {"name": "y", "bytes": 16, "role": "external"}
    ],
    "slots": [{"name": "a", "default": "f32 2"}],
    "nodes": [
      {"name": "axpy", "kernel": {
        "elementwise": {
          "inputs": ["f32", "f32"], "params": ["f32"],
          "ops": ["input 0", "input 1", "param 0", "mul v0 v2", "add v3 v1"],
          "outputs": ["f32 v4"]
        },
        "args": [
          {"buffer": "x", "access": "read", "dtype": "f32", "shape": [4]},
          {"buffer": "y", "access": "read", "dtype": "f32", "shape": [4]},
          {"buffer": "y", "access": "write", "dtype": "f32", "shape": [4]},
          {"slot": "a"}
        ]
      }}
    ]
  }
}"#;

/// A graph whose kernels were watched: a chain as captured, two branches as found.
const OBSERVED: &str = r#"{
  "phonograph": 1,
  "graph": {
    "buffers": [
      {"name": "block 0", "bytes": 64, "role": "external"},
      {"name": "block 1", "bytes": 64, "role": "external"},
      {"name": "block 2", "bytes": 64, "role": "external"},
      {"name": "block 3", "bytes": 64, "role": "external"}
    ],
    "nodes": [
      {"name": "relu", "observed": {"trials": 9, "operands": [
        {"buffer": "block 0", "access": "read"}, {"buffer": "block 1", "access": "write"}]},
        "kernel": {"grid": 1, "block": 32}},
      {"name": "tanh", "observed": {"trials": 9, "operands": [
        {"buffer": "block 0", "access": "read"}, {"buffer": "block 2", "access": "both", "bytes": 32}]},
        "kernel": {"grid": 1, "block": 32}},
      {"name": "add", "observed": {"trials": 11, "operands": [
        {"buffer": "block 1", "access": "read"}, {"buffer": "block 2", "access": "read"},
        {"buffer": "block 3", "access": "write"}]},
        "kernel": {"grid": 1, "block": 32}}
    ],
    "edges": [["relu", "add"], ["tanh", "add"]]
  }
}"#;

#[test]
fn show_tells_the_data_flow_of_a_graph_that_was_watched() {
    let shown = on_file(OBSERVED.as_bytes(), "show", &[]);
    assert!(shown.status.success(), "{shown:?}");
    let said = stdout(&shown);
    for line in [
        "  data flow        n0 relu: block 0 → block 1\n",
        "                   n1 tanh: block 0, block 2 → block 2\n",
        "                   n2 add: block 1 of n0, block 2 of n1 → block 3\n",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    let dot = stdout(&on_file(OBSERVED.as_bytes(), "show", &["--dot"]));
    let expected = "observed=\"read block 0 0..64; both block 2 0..32\" trials=9";
    assert!(dot.contains(expected), "{dot}");
}

/// The drawing of a graph that was watched: each box says which kernel it reads what from, arrows are the data flow alone.
#[test]
fn drawings_tell_the_data_flow_of_a_graph_that_was_watched() {
    let read =
        |bytes, block, whom| format!("{bytes} B of b{block} (block {block}, external) from {whom}");
    let reads = [
        ("relu", vec![read(64, 0, "outside")]),
        ("tanh", vec![read(64, 0, "outside"), read(32, 2, "outside")]),
        ("add", vec![read(64, 1, "n0 relu"), read(64, 2, "n1 tanh")]),
    ];
    let svg = stdout(&on_file(OBSERVED.as_bytes(), "show", &["--svg"]));
    for (name, expected) in &reads {
        let tips = svg.split("<title>").skip(1).map(|rest| rest.split_once("</title>").unwrap().0);
        let tip = tips.filter(|tip| tip.lines().next() == Some(*name)).collect::<Vec<_>>();
        let [tip] = tip[..] else { panic!("{} boxes of {name} in {svg}", tip.len()) };
        let said: Vec<&str> = tip.lines().filter_map(|l| l.strip_prefix("reads: ")).collect();
        assert_eq!(said, *expected, "{name} in the SVG");
    }
    let page = stdout(&on_file(OBSERVED.as_bytes(), "show", &["--html"]));
    let data = page.split("<script type=\"application/json\" id=\"data\">").nth(1);
    let data =
        data.and_then(|rest| rest.split_once("</script>")).unwrap_or_else(|| panic!("{page}"));
    let data: serde_json::Value = serde_json::from_str(data.0).unwrap();
    let text = |at: &serde_json::Value| &data["strings"][at.as_u64().unwrap() as usize];
    let graph = &data["pages"][0]["tabs"][0]["groups"][0];
    let nodes = graph["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), reads.len());
    for (node, (name, expected)) in nodes.iter().zip(&reads) {
        assert_eq!(text(&node["label"]), name);
        let facts = node["facts"].as_array().unwrap().iter();
        let said: Vec<_> = facts
            .filter(|f| text(&f[0]) == "reads")
            .map(|f| text(&f[1]).as_str().unwrap())
            .collect();
        assert_eq!(said, *expected, "{name} in the page");
    }
    let arrows: Vec<_> = graph["edges"].as_array().unwrap().iter().collect();
    let why: Vec<_> = arrows.iter().map(|e| (e[0].as_u64(), e[1].as_u64(), text(&e[5]))).collect();
    let reads = |block| format!("the second reads {block}, which the first writes");
    let expected = ["block 1", "block 2"].map(reads);
    assert_eq!(why.len(), 2, "{why:?}");
    for (at, (from, to, said)) in why.into_iter().enumerate() {
        assert_eq!((from, to, said), (Some(at as u64), Some(2), &expected[at].clone().into()));
    }
}

#[test]
fn show_tells_what_a_graph_is_made_of() {
    let mut said = String::new();
    for file in ["multistream_3x4.dot.gz", "resnet18_infer_b1.dot.gz", "every_node_all.dot"] {
        let output = phonograph(&["show", data(file).to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        said += &stdout(&output);
    }
    insta::assert_snapshot!(said);
}

#[test]
fn show_json_has_the_figures() {
    let output = phonograph(&["show", "--json", data("multistream_3x4.dot.gz").to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, value) in [
        ("nodes", 53),
        ("edges", 55),
        ("redundant_edges", 1),
        ("critical_path_nodes", 21),
        ("max_width", 3),
    ] {
        assert_eq!(report[name], value, "{name}");
    }
    assert_eq!(report["kinds"]["kernel"], 53);
}

fn trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/data/kineto_multistream.json.gz")
}

#[test]
fn show_takes_costs_from_a_trace_and_says_what_did_not_match() {
    let [trace, graph] = [trace(), data("multistream_3x4.dot.gz")];
    let (trace, graph) = (trace.to_str().unwrap(), graph.to_str().unwrap());
    let text = stdout(&phonograph(&["show", graph, "--costs", trace]));
    assert!(text.contains("by cost          63.0 µs over 21 nodes: "), "{text}");
    assert!(text.contains("of 53 nodes from kineto_multistream.json.gz, the median of 3 replays"));
    let output = phonograph(&["show", "--json", graph, "--costs", trace]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["costs"]["nanoseconds"][0], 3553);
    assert_eq!(report["costs"]["unmatched_nodes"], serde_json::json!([]));
    // The trace of another graph.
    let other = data("gpt2_4layer_prefill16.dot.gz");
    let text = stdout(&phonograph(&["show", other.to_str().unwrap(), "--costs", trace]));
    assert!(text.contains(" nodes are not in the trace: n0, "), "{text}");
    assert!(text.contains("39 × sm80_xmma_gemm"), "{text}");
    // No trace at all.
    let output = phonograph(&["show", graph, "--costs", graph]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nor a trace: ") && said.contains("line 1 column 1"), "{said}");
    let output = phonograph(&["view", graph, graph, "--costs", trace]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("costs are those of one graph, and 2 are given")
    );
}

#[test]
fn show_writes_a_trace_with_arrows() {
    let graph = data("multistream_3x4.dot.gz");
    let output = phonograph(&["show", "--trace", graph.to_str().unwrap()]);
    let trace: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count();
    // 55 edges, of which one is redundant.
    assert_eq!((count("X"), count("s"), count("f")), (53, 54, 54));
}

#[test]
fn drawings_and_dot_come_out() {
    let file = data("every_node_all.dot");
    let file = file.to_str().unwrap();
    let svg = stdout(&phonograph(&["show", "--svg", file]));
    assert!(svg.starts_with("<svg") && svg.contains("addone"), "{}", &svg[..80]);
    let html = stdout(&phonograph(&["show", "--html", file]));
    assert!(html.starts_with("<!doctype html>") || html.starts_with("<!DOCTYPE html>"));
    // What is written as DOT reads back as the same graph.
    let dot = phonograph(&["show", "--dot", file]).stdout;
    let [again, first] =
        [on_file(&dot, "show", &["--json"]), phonograph(&["show", "--json", file])];
    let figures = |output: &Output| {
        let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report.as_object_mut().unwrap().remove("internal_bytes");
        report
    };
    assert_eq!(figures(&again), figures(&first));
}

#[test]
fn plan_says_streams_waits_memory_and_time() {
    let file = data("multistream_3x4.dot.gz");
    let file = file.to_str().unwrap();
    let output = phonograph(&["plan", file, "--streams", "4", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["streams"], 3);
    assert_eq!(report["checked"], true);
    assert_eq!(report["bound"], "critical_path");
    assert_eq!(report["costs"], "assumed");
    let per_stream = report["nodes_per_stream"].as_array().unwrap();
    assert_eq!(per_stream.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 53);
    for figure in ["waits", "pool_bytes", "lower_bound_bytes", "makespan_ns"] {
        assert!(report[figure].is_u64(), "{figure}: {report}");
    }
    let mut said = String::new();
    for streams in ["1", "2", "full"] {
        said += &stdout(&phonograph(&["plan", file, "--streams", streams]));
    }
    insta::assert_snapshot!(said);
    let svg = stdout(&phonograph(&["plan", file, "--svg"]));
    assert!(svg.starts_with("<svg") && svg.contains("stream 2"), "{svg}");
    let trace = phonograph(&["plan", file, "--trace"]);
    let trace: serde_json::Value = serde_json::from_slice(&trace.stdout).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 53);
}

#[test]
fn generated_graphs_run_are_measured_and_planned_with_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (graph, costs, dot) = (path("graph.json"), path("costs.json"), path("graph.dot"));
    for kind in ["chain", "layered", "wavefront", "tree", "transformer", "long-edges"] {
        let made = phonograph(&["generate", kind, "--nodes", "60", "--seed", "3", "-o", &graph]);
        assert!(made.status.success(), "{made:?}");
        let args = ["run", &graph, "--threads", "2", "--replays", "3", "--profile", &costs];
        let output = phonograph(&args);
        assert!(output.status.success(), "{kind}: {output:?}");
        let output = phonograph(&["plan", &graph, "--streams", "2", "--costs", &costs, "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["nodes"], &report["costs"]), (&60.into(), &"given".into()), "{kind}");
        let ns = |name: &str| report[name].as_u64().unwrap();
        assert!(ns("makespan_ns") >= ns("critical_path_ns").max(ns("balanced_ns")), "{report}");
        assert!(phonograph(&["run", &graph, "--costs", &costs]).status.success());
    }
    // Plain text on standard output is JSON; a name that ends in .dot asks for DOT.
    let json = phonograph(&["generate", "tree", "--nodes", "9"]);
    assert_eq!(on_file(&json.stdout, "show", &[]).status.code(), Some(0));
    assert!(phonograph(&["generate", "tree", "--nodes", "9", "-o", &dot]).status.success());
    assert!(std::fs::read_to_string(&dot).unwrap().starts_with("digraph"));

    // Costs of another graph, and costs that are none.
    let row = |id: u32, name: &str, ns: u64| format!(r#"{{"id":{id},"name":"{name}","ns":{ns}}}"#);
    let file = |version: u32, rows: &[String]| {
        let overheads = r#"{"replay_ns":0,"node_ns":0,"handover_ns":0}"#;
        let rows = rows.join(",");
        format!(r#"{{"phonograph_costs":{version},"overheads":{overheads},"nodes":[{rows}]}}"#)
    };
    assert!(phonograph(&["generate", "chain", "--nodes", "2", "-o", &graph]).status.success());
    let (first, second) = (row(0, "spin", 5), row(1, "spin", 6));
    let cases = [
        (file(1, &[first.clone(), second.clone()]), None),
        (file(2, &[]), Some("version 2 of the format")),
        (file(1, std::slice::from_ref(&first)), Some("n1 is missing")),
        (file(1, &[first.clone(), first.clone()]), Some("n0 occurs twice")),
        (file(1, &[first.clone(), row(2, "spin", 1)]), Some("the graph has 2 nodes, no n2")),
        (
            file(1, &[first.clone(), row(1, "other", 1)]),
            Some("called `spin` in the graph, not `other`"),
        ),
        (file(1, &[first, row(1, "spin", u64::MAX)]), Some("the longest that is believed")),
        ("{".to_owned(), Some("EOF")),
        (r#"{"phonograph_costs": 1, "other": 2}"#.to_owned(), Some("unknown field")),
        (r#"{"phonograph": 1}"#.to_owned(), Some("nor a trace")),
    ];
    for (contents, problem) in cases {
        std::fs::write(&costs, contents).unwrap();
        let output = phonograph(&["plan", &graph, "--costs", &costs]);
        let error = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(if problem.is_some() { 2 } else { 0 }), "{error}");
        assert!(error.contains(problem.unwrap_or("")), "`{problem:?}` is not in: {error}");
    }

    // Each is believed, all of them are not: what would be said of their sum would be wrong.
    assert!(phonograph(&["generate", "chain", "--nodes", "1001", "-o", &graph]).status.success());
    let rows: Vec<String> = (0..1001).map(|id| row(id, "spin", 1_000_000_000_000_000)).collect();
    std::fs::write(&costs, file(1, &rows)).unwrap();
    let output = phonograph(&["plan", &graph, "--costs", &costs]);
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(error.contains("all nodes together take 1001000000000000000 ns"), "{error}");
}

/// Pairs of kernels, each over a buffer of its own, that may all run side by side.
#[test]
fn plan_trades_concurrency_for_memory() {
    let names = |form: &dyn Fn(u32) -> String| (0..4).map(form).collect::<Vec<_>>().join(",");
    let buffers = names(&|i| format!(r#"{{"name":"b{i}","bytes":1024}}"#));
    let kernel = |i: u32, access: &str| {
        format!(
            r#"{{"name":"{access}{i}","kernel":{{"args":[{{"buffer":"b{i}","access":"{access}"}}]}}}}"#
        )
    };
    let nodes = names(&|i| kernel(i, "write") + "," + &kernel(i, "read"));
    let edges = names(&|i| format!(r#"["write{i}","read{i}"]"#));
    let graph = format!(
        r#"{{"phonograph":1,"graph":{{"buffers":[{buffers}],"nodes":[{nodes}],"edges":[{edges}]}}}}"#
    );
    let plan = |args: &[&str]| {
        let output = on_file(graph.as_bytes(), "plan", &[&["--json"], args].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let free = plan(&[]);
    assert_eq!((&free["pool_bytes"], &free["lower_bound_bytes"]), (&4096.into(), &4096.into()));
    assert_eq!(free["memory_price"], serde_json::Value::Null);
    let tight = plan(&["--memory-budget", "2048"]);
    assert_eq!((&tight["pool_bytes"], &tight["checked"]), (&2048.into(), &true.into()));
    assert!(tight["reuse_edges"].as_u64().unwrap() > 0, "{tight}");
    assert_eq!(tight["memory_price"]["pool_bytes_before"], 4096);
    let text = on_file(graph.as_bytes(), "plan", &["--memory-budget", "2048"]);
    assert!(stdout(&text).contains("instead of 4,096 B"), "{text:?}");
    let none = on_file(graph.as_bytes(), "plan", &["--memory-budget", "1"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

#[test]
fn bad_input_is_named_and_answered_with_2() {
    let cut = &AXPY.as_bytes()[..AXPY.len() / 2];
    let broken_dot = b"digraph dot {\n  subgraph cluster_1 {\n  \"a\"[label=\"open";
    let foreign = data("multistream_3x4.dot.gz");
    let foreign = foreign.to_str().unwrap();
    let cases: Vec<(Output, &[&str])> = vec![
        (phonograph(&["show", "no/such/file"]), &["cannot read no/such/file"]),
        (on_file(cut, "show", &[]), &["is no graph", "line"]),
        (on_file(broken_dot, "show", &[]), &["is no graph", "3:"]),
        (on_file(b"", "show", &[]), &["it is empty"]),
        (on_file(b"\x1f\x8bnot gzip", "show", &[]), &["cannot read"]),
        (
            on_file(br#"{"schemaVersion": 1, "traceEvents": []}"#, "show", &[]),
            &["a trace of a profiler", "--costs"],
        ),
        (on_file(b"phonotrc\x01\x00\x00\x00", "show", &[]), &["phonograph explain"]),
        (on_file(AXPY.as_bytes(), "run", &["--set", "b=1"]), &["no slot named `b`; it has: a"]),
        (
            on_file(AXPY.as_bytes(), "run", &["--set", "a=x"]),
            &["slot `a`", "`x` is not a value of type f32"],
        ),
        (
            on_file(AXPY.as_bytes(), "run", &["--data", "z=f"]),
            &["no external buffer named `z`; it has: x, y"],
        ),
        (
            on_file(AXPY.as_bytes(), "run", &["--data", "x"]),
            &["`x` is not of the form buffer=file"],
        ),
        (phonograph(&["run", foreign]), &["n0", "of which the file has only the name"]),
        (on_stdin(b"", "show", &[]), &["standard input is no graph: it is empty"]),
        (on_stdin(b"kernel main\n", "check", &[]), &["standard input:1:8: stream `main` is not"]),
        (phonograph(&["run", foreign, "--replays", "0"]), &["invalid value '0'"]),
        (phonograph(&["run", foreign, "--backend", "vulkan"]), &["invalid value 'vulkan'"]),
        (phonograph(&["show", "--svg", "--dot", foreign]), &["cannot be used with"]),
        (phonograph(&["plan", foreign, "--streams", "0"]), &["a number from 1 to 4096, or `full`"]),
        (phonograph(&["plan", foreign, "--costs", "no/such"]), &["cannot read no/such"]),
        (phonograph(&["generate", "ring", "--nodes", "3"]), &["no kind of graph called `ring`"]),
        (phonograph(&["generate", "tree", "--nodes", "0"]), &["1 to 4194304 nodes, not 0"]),
    ];
    for (output, expected) in cases {
        let error = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        for part in expected {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }
}

#[test]
#[cfg(unix)]
fn ctrl_c_ends_a_view_that_somebody_still_asks() {
    use std::io::{BufRead, BufReader};
    let mut view = Command::new(env!("CARGO_BIN_EXE_phonograph"))
        .arg("view")
        .arg(data("every_node.json"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(view.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim_end().strip_prefix("http://").unwrap().trim_end_matches('/');
    let connect = || std::net::TcpStream::connect(address).unwrap();
    let (mut asking, mut answered) = (connect(), connect());
    write!(answered, "GET /favicon.ico HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    BufReader::new(&answered).read_line(&mut String::new()).unwrap();
    write!(asking, "GET / HTTP/1.1\r\nHo").unwrap();
    let id = view.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    // Long enough for any machine; where it does not end, it never would.
    let ended = (0..6000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        view.try_wait().unwrap()
    });
    if ended.is_none() {
        view.kill().unwrap();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    drop((asking, answered));
}

/// What a command answers that is to write to a file that it reads; whatever it says, that file stays as it was.
fn written_over(command: &[&str], contents: &str) -> String {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    file.write_all(contents.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let args: Vec<String> = command.iter().map(|arg| arg.replace("FILE", path)).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = phonograph(&args);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), contents, "{command:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_is_read_is_not_written_over() {
    for command in [
        ["show", "FILE", "--svg", "-o", "FILE"].as_slice(),
        &["plan", "FILE", "--html", "-o", "FILE"],
        &["run", "FILE", "--profile", "FILE"],
        &["run", "no/such", "--data", "x=FILE", "--profile", "FILE"],
        &["optimize", "FILE", "/dev/null/out.json", "--html", "FILE"],
    ] {
        let error = written_over(command, AXPY);
        assert!(error.contains("would be overwritten"), "{command:?}: {error}");
    }
    let script = "stream s\nbegin s relaxed\nkernel s k\nend s\n";
    let error = written_over(&["check", "FILE", "--graph", "FILE"], script);
    assert!(error.contains("would be overwritten"), "{error}");
    let error = written_over(&["optimize", "FILE", "out.json", "--html", "out.json"], AXPY);
    assert!(error.contains("both the graph and the page"), "{error}");
}

#[test]
fn nothing_in_a_file_reaches_the_terminal_as_a_command() {
    let named = AXPY.replace("axpy", r"ax\u001b[31mpy").replace(r#""x""#, r#""x\u001b]0;x""#);
    let folder = tempfile::tempdir().unwrap();
    let optimized = folder.path().join("out.json");
    for (command, rest, expected) in [
        ("show", [].as_slice(), "1 node"),
        ("plan", &["--steps"], "ax"),
        ("run", &[], "1 replay"),
        ("run", &["--data", "q=f"], "named `q`"),
        ("optimize", &[optimized.to_str().unwrap()], "fuse"),
    ] {
        let output = on_file(named.as_bytes(), command, rest);
        let said = stdout(&output) + str::from_utf8(&output.stderr).unwrap();
        assert!(said.contains(expected) && !said.contains('\u{1b}'), "{command}: {said:?}");
    }
}

#[test]
fn doctor_and_completions_answer() {
    let output = phonograph(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["backends"]["cpu"]["works"], true);
    let cuda = &report["backends"]["cuda"];
    assert!(cuda["works"].is_boolean() && cuda["detail"].is_string(), "{report}");
    let wgpu = &report["backends"]["wgpu"];
    assert!(wgpu["works"].is_boolean() && wgpu["detail"].is_string(), "{report}");
    assert!(report["wgpu_adapters"].is_array(), "{report}");
    assert!(stdout(&phonograph(&["completions", "bash"])).contains("_phonograph"));
}
