//! The library in a program, with a CUPTI that only makes callbacks: what is recorded, and that the program runs on whatever happens.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use phonograph_trace::live::{Stop, Trace};

/// The library that this test was built with.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libphonograph_inject.so");
    assert!(library.is_file(), "{} is built with the tests", library.display());
    library
}

/// The program and the library it takes for CUPTI, built once.
fn built() -> &'static Path {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake");
        let cc = |arguments: &[&str], file: &str, output: &str| {
            let mut command = Command::new("cc");
            command.args(["-g", "-O0"]).args(arguments).arg("-o").arg(folder.path().join(output));
            let built = command.arg(source.join(file)).args(["-ldl", "-lpthread"]).status();
            assert!(built.expect("a C compiler, which Rust's linker needs as well").success());
        };
        cc(&["-shared", "-fPIC"], "cupti.c", "libcupti.so");
        cc(&["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"], "cuda.c", "libcuda.so.1");
        cc(&["-rdynamic"], "program.c", "program");
        folder
    });
    folder.path()
}

/// A run of the program with these calls.
struct Run {
    folder: tempfile::TempDir,
    output: Output,
}

impl Run {
    fn of(script: &str, variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, script).unwrap();
        let output = Command::new(built().join("program"))
            .arg(&path)
            .arg("7")
            .env("CUDA_INJECTION64_PATH", library())
            .env("PHONOGRAPH_CUPTI", built().join("libcupti.so"))
            .env("FAKE_CUDA", built().join("libcuda.so.1"))
            .env("PHONOGRAPH_TRACE", folder.path().join("trace"))
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        Self { folder, output }
    }

    fn ran_on(&self) {
        assert_eq!(self.output.status.code(), Some(7), "{:?}", self.output);
        assert_eq!(self.output.stdout, b"the program ran\n");
    }

    fn said(&self) -> String {
        String::from_utf8(self.output.stderr.clone()).unwrap()
    }

    fn trace(&self) -> Trace {
        Trace::read(&std::fs::read(self.folder.path().join("trace")).unwrap()).unwrap()
    }
}

/// The calls in words, and what else the trace holds.
fn words(trace: &Trace) -> String {
    let mut out = String::new();
    for (call, site) in trace.script.calls.iter().zip(&trace.sites) {
        let repeated = match site.repeated {
            0 => String::new(),
            times => format!(" (and {times} times more)"),
        };
        writeln!(out, "{}{repeated}", trace.script.words(call)).unwrap();
    }
    for (function, calls) in &trace.passed_over {
        writeln!(out, "passed over: {calls} of {function}").unwrap();
    }
    for site in &trace.failed {
        writeln!(out, "failed: {} {}", trace.function(site), site.raw.result).unwrap();
    }
    out
}

const STREAM: &str = "00100000aa000000";

/// A stream that is created, and two captures on it: one that a wait breaks, one that a thread's allocation breaks.
fn captures() -> String {
    format!(
        "call 367 0 - @{STREAM} 0100000000000000
call 442 0 before 0000000000000000 010000000100000001000000 010000000100000001000000 0000000000000000 {STREAM}
call 540 0 - {STREAM} 00000000
call 442 0 gemm 0000000000000000 010000000100000001000000 010000000100000001000000 0000000000000000 {STREAM}
call 440 900 - {STREAM}
call 498 901 - {STREAM} @0000000000000000
call 541 0 - @02000000
call 540 0 - {STREAM} 01000000
call 421 0 - 0000dd0000000000 0000ee0000000000 0001000000000000 {STREAM}
thread
call 243 2 - @00000000bb000000 0010000000000000
call 243 0 - @00000000bb000000 0010000000000000
join
call 498 0 - {STREAM} @0020000000000000
call 643 0 - @0030000000000000 0020000000000000 0000000000000000
repeat 1000
call 515 0 - 0030000000000000 {STREAM}
call 696 910 - 0030000000000000 0020000000000000 @0300000000000000
"
    )
}

#[test]
fn calls_are_recorded_with_what_they_name() {
    let run = Run::of(&captures(), &[]);
    run.ran_on();
    assert_eq!(run.said(), "");
    let trace = run.trace();
    assert_eq!(trace.stop, Some(Stop::Ended));
    insta::assert_snapshot!(words(&trace));
    let begin = trace.sites[1];
    let from: Vec<&str> = trace
        .native(&begin)
        .iter()
        .filter_map(|address| trace.modules.iter().find(|module| module.range.contains(address)))
        .map(|module| module.path.as_str())
        .collect();
    assert!(from.iter().any(|path| path.ends_with("/program")), "{from:?}");
    assert_eq!(trace.device(&begin), Some(0));
}

#[test]
fn graphs_are_drawn_where_they_are_instantiated() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run::of(&captures(), &[("PHONOGRAPH_GRAPHS", folder.path().to_str().unwrap())]);
    run.ran_on();
    let trace = run.trace();
    assert_eq!(trace.driver, 13000);
    let [(after, path)] = trace.drawings.as_slice() else { panic!("{:?}", trace.drawings) };
    let call = &trace.script.calls[*after as usize - 1];
    assert_eq!(trace.script.words(call), "cuGraphInstantiateWithFlags graph1 -> SUCCESS");
    assert!(std::fs::read_to_string(path).unwrap().starts_with("digraph"));
}

#[test]
fn the_memory_that_a_kernel_is_given_is_known() {
    let launch = |given: &str| {
        format!(
            "call 442 0 gemm 0000000000000000 010000000100000001000000 010000000100000001000000 0000000000000000 {STREAM} @@{given} 0000000000000000\n"
        )
    };
    let script = [
        format!(
            "call 367 0 - @{STREAM} 0100000000000000\ncall 243 0 - @0000000000bb0000 0010000000000000\ncall 540 0 - {STREAM} 00000000\n"
        ),
        launch("0008000000bb0000"),
        launch("0018000000bb0000"),
    ];
    let run = Run::of(&script.concat(), &[]);
    run.ran_on();
    let trace = run.trace();
    let given: Vec<(u32, &str)> = trace
        .given
        .iter()
        .map(|(at, memory)| (*at, trace.script.names.memory_name(*memory)))
        .collect();
    assert_eq!(given, [(3, "mem1")]);
}

/// Every Python that is there and that tells its stack.
#[test]
fn python_stacks_are_recorded() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/program.py");
    let mut tried = 0;
    for python in ["python3", "python3.11", "python3.12", "python3.13"] {
        let version = Command::new(python).arg("--version").output();
        let version =
            version.map_or(String::new(), |output| String::from_utf8(output.stdout).unwrap());
        if !["3.11.", "3.12.", "3.13."]
            .iter()
            .any(|known| version.starts_with(&format!("Python {known}")))
        {
            println!("{python}: skipped, as it is not there or of another version");
            continue;
        }
        tried += 1;
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(python)
            .arg(&script)
            .env("CUDA_INJECTION64_PATH", library())
            .env("PHONOGRAPH_CUPTI", built().join("libcupti.so"))
            .env("PHONOGRAPH_TRACE", folder.path().join("trace"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let trace = Trace::read(&std::fs::read(folder.path().join("trace")).unwrap()).unwrap();
        let stacks: Vec<String> = trace
            .sites
            .iter()
            .map(|site| {
                let stack = trace
                    .python(site)
                    .unwrap_or("none")
                    .replace(script.to_str().unwrap(), "SCRIPT");
                stack.lines().take(3).collect::<Vec<_>>().join("\n")
            })
            .collect();
        let expected = [
            "  File \"SCRIPT\", line 13 in call\n  File \"SCRIPT\", line 21 in <module>",
            "  File \"SCRIPT\", line 13 in call\n  File \"SCRIPT\", line 18 in step\n  File \"SCRIPT\", line 22 in <module>",
            "  File \"SCRIPT\", line 13 in call\n  File \"SCRIPT\", line 23 in <lambda>",
        ];
        assert_eq!(stacks.len(), expected.len(), "{python}");
        for (stack, expected) in stacks.iter().zip(expected) {
            // Versions differ in whether they tell the class, and in how they write what is not ASCII.
            let stack = stack.replace("Größe.", "").replace("Gr\\xf6\\xdfe.", "");
            assert!(stack.starts_with(expected), "{python}: {stack}");
        }
    }
    println!("{tried} Pythons");
}

#[test]
fn a_killed_program_leaves_a_readable_trace() {
    let run = Run::of(&format!("{}kill\n", captures()), &[]);
    assert_eq!(run.output.status.code(), None);
    let trace = run.trace();
    assert_eq!(trace.stop, None);
    assert_eq!(trace.script.calls.len(), Run::of(&captures(), &[]).trace().script.calls.len());
}

#[test]
fn a_forked_child_records_nothing() {
    let calls = captures().replace("thread\n", "").replace("join\n", "");
    let run = Run::of(&format!("fork\n{calls}join\n"), &[]);
    run.ran_on();
    assert_eq!(words(&run.trace()), "");
}

#[test]
fn threads_do_not_lose_calls() {
    // Each window is a mebibyte, so that several are used.
    let run = Run::of("stress 8 8000\n", &[]);
    run.ran_on();
    let trace = run.trace();
    assert_eq!(trace.stop, Some(Stop::Ended));
    assert_eq!(trace.script.calls.len(), 8 * 8000 * 2);
    let length = run.folder.path().join("trace").metadata().unwrap().len();
    assert!(length > 2 << 20, "{length} bytes");
}

/// Every thread calls its default stream by the same handle.
#[test]
fn a_capture_goes_on_when_another_thread_ends_one_on_its_own_default_stream() {
    let begin = "call 540 0 - 0000000000000000 00000000";
    let kernel = "call 442 0 gemm 0000000000000000 010000000100000001000000 010000000100000001000000 \
                  0000000000000000 0000000000000000";
    let end = "call 498 0 - 0000000000000000 @0020000000000000";
    let script = format!("{begin}\nthread\n{begin}\n{end}\njoin\n{kernel}\n{end}\n{kernel}\n");
    let run = Run::of(&script, &[]);
    run.ran_on();
    insta::assert_snapshot!(words(&run.trace()), @r"
    begin ptds global -> SUCCESS
    @thread1:program begin ptds global -> SUCCESS
    @thread1:program end ptds as graph1 -> SUCCESS
    kernel ptds gemm -> SUCCESS
    end ptds as graph2 -> SUCCESS
    passed over: 1 of cuLaunchKernel_ptsz
    ");
}

#[test]
fn a_full_trace_says_so() {
    let run =
        Run::of(&format!("{}stress 2 4000\n", captures()), &[("PHONOGRAPH_TRACE_LIMIT", "100000")]);
    run.ran_on();
    let length = run.folder.path().join("trace").metadata().unwrap().len();
    assert!(length <= 100_000, "{length} bytes");
    assert_eq!(run.trace().stop, Some(Stop::Full));
}

#[test]
fn what_keeps_it_from_recording_is_said() {
    let check = |variables: &[(&str, &str)], said: &str| {
        let run = Run::of(&captures(), variables);
        run.ran_on();
        let here = run.folder.path().to_string_lossy().into_owned();
        assert_eq!(
            run.said().replace(&here, "HERE"),
            format!("phonograph: {said}; the program runs unrecorded\n")
        );
    };
    check(&[("FAKE_TAKEN", "1")], "another profiler is subscribed to CUPTI, which takes only one");
    check(
        &[("PHONOGRAPH_CUPTI", "/nowhere/libcupti.so")],
        "PHONOGRAPH_CUPTI names /nowhere/libcupti.so, which cannot be opened",
    );
    check(
        &[("PHONOGRAPH_TRACE", "/nowhere/trace")],
        "/nowhere/trace cannot be written: No such file or directory (os error 2)",
    );
    check(&[("PHONOGRAPH_TRACE_LIMIT", "much")], "PHONOGRAPH_TRACE_LIMIT is no number of bytes");
}

#[test]
fn a_second_process_gets_a_file_of_its_own() {
    let first = Run::of(&captures(), &[]);
    let trace = first.folder.path().join("trace");
    let before = std::fs::read(&trace).unwrap();
    let second = Run::of(&captures(), &[("PHONOGRAPH_TRACE", trace.to_str().unwrap())]);
    second.ran_on();
    assert_eq!(std::fs::read(&trace).unwrap(), before);
    let files = std::fs::read_dir(first.folder.path()).unwrap().map(|file| file.unwrap().path());
    let traces: Vec<PathBuf> =
        files.filter(|file| file.file_stem().is_some_and(|stem| stem == "trace")).collect();
    assert_eq!(traces.len(), 2, "{traces:?}");
    traces.iter().for_each(|file| drop(Trace::read(&std::fs::read(file).unwrap()).unwrap()));
}
