//! `trace` and `explain`: a program whose driver only makes callbacks, and programs that were recorded on a GPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use phonograph::trace::live::{Record, header};

/// The library, which is built with the tests of this crate.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libphonograph_inject.so");
    assert!(library.is_file(), "{} is built with the tests", library.display());
    library
}

fn phonograph(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phonograph"));
    command.current_dir(folder);
    command
}

/// A folder on the file system of the built files.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The command with the library beside it, as it is installed. Links, as a file that is being written while another test forks cannot be
/// run.
fn installed(folder: &Path) -> Command {
    let command = folder.join("phonograph");
    std::fs::hard_link(env!("CARGO_BIN_EXE_phonograph"), &command).unwrap();
    std::fs::hard_link(library(), folder.join("libphonograph_inject.so")).unwrap();
    let mut command = Command::new(command);
    command.current_dir(folder);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The program and the libraries that it takes for CUPTI and the driver.
fn build(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inject/tests/fake");
    for (file, output, options) in [
        ("cupti.c", "libcupti.so", ["-shared", "-fPIC"].as_slice()),
        ("cuda.c", "libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]),
        ("program.c", "program", &["-rdynamic"]),
    ] {
        let mut command = Command::new("cc");
        command.args(["-g", "-O0"]).args(options).arg("-o").arg(folder.join(output));
        let built = command.arg(source.join(file)).args(["-ldl", "-lpthread"]).status();
        assert!(built.expect("a C compiler, which Rust's linker needs as well").success());
    }
}

const SCRIPT: &str = "call 367 0 - @00100000aa000000 0100000000000000
call 243 0 - @0000000000cc0000 0010000000000000
call 540 0 - 00100000aa000000 00000000
call 442 0 _Z4gemmPf 0000000000000000 010000000100000001000000 010000000100000001000000 0000000000000000 00100000aa000000
call 440 900 - 00100000aa000000
call 498 901 - 00100000aa000000 @0000000000000000
call 540 0 - 00100000aa000000 02000000
call 442 0 relu 0000000000000000 010000000100000001000000 010000000100000001000000 0000000000000000 00100000aa000000 @@0008000000cc0000 0000000000000000
thread
call 243 900 - @00000000bb000000 0010000000000000
join
call 498 0 - 00100000aa000000 @0020000000000000
call 643 0 - @0030000000000000 0020000000000000 0000000000000000
repeat 1000
call 515 0 - 0030000000000000 00100000aa000000
call 245 0 - 0000000000cc0000
call 515 0 - 0030000000000000 00100000aa000000
";

fn trace(folder: &Path, cupti: &str) -> Output {
    build(folder);
    std::fs::write(folder.join("script"), SCRIPT).unwrap();
    installed(folder)
        .args(["trace", "-o", "out.trace", "--graphs", "graphs", "--", "./program", "script", "7"])
        .env("PHONOGRAPH_CUPTI", folder.join(cupti))
        .env("FAKE_CUDA", folder.join("libcuda.so.1"))
        .output()
        .unwrap()
}

#[test]
fn a_program_is_traced_and_explained() {
    let folder = folder();
    let output = trace(folder.path(), "libcupti.so");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(text(&output.stdout), "the program ran\n");
    let here = folder.path().canonicalize().unwrap().to_string_lossy().into_owned();
    let pid = std::fs::read_dir(folder.path().join("graphs")).unwrap().next().unwrap().unwrap();
    let drawing = text(pid.file_name().as_encoded_bytes());
    let tidy = |said: &[u8]| text(said).replace(&here, "HERE").replace(&drawing, "DRAWING");
    insta::assert_snapshot!("trace", tidy(&output.stderr));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inject").display().to_string();
    let explained = phonograph(folder.path()).args(["explain", "out.trace"]).output().unwrap();
    assert_eq!(explained.status.code(), Some(1), "{explained:?}");
    insta::assert_snapshot!("explain", tidy(&explained.stdout).replace(&source, "INJECT"));
    let shown = phonograph(folder.path()).arg("show").arg(pid.path()).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
}

#[test]
fn a_program_that_cannot_be_recorded_runs_on() {
    let folder = folder();
    let output = trace(folder.path(), "nothing.so");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("nothing.so, which cannot be opened; the program runs unrecorded"),
        "{said}"
    );
    assert!(said.contains("nothing was recorded"), "{said}");
}

#[test]
fn the_exit_code_is_the_programs_whatever_becomes_of_the_report() {
    let folder = folder();
    let program = installed(folder.path()).get_program().to_owned();
    let run = |script: &str, said: Stdio| {
        let mut command = Command::new(&program);
        command.args(["trace", "-o", "t", "--", "sh", "-c", script]).current_dir(folder.path());
        let output = command.stderr(said).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        text(&output.stderr)
    };
    // What is at the place of a trace of another process is no file; the traces beside it are told of all the same.
    let said = run("echo nothing >t; mkdir t.5; echo nothing >t.6; exit 7", Stdio::piped());
    assert!(said.contains("t.5: cannot read"), "{said}");
    assert!(said.contains("t.6: this is no trace"), "{said}");
    std::fs::remove_dir(folder.path().join("t.5")).unwrap();
    for file in ["t", "t.6"] {
        std::fs::remove_file(folder.path().join(file)).unwrap();
    }
    if cfg!(target_os = "linux") {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        run("exit 7", full.into());
    }
}

#[test]
fn what_is_no_trace_is_an_error() {
    let folder = folder();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    let program = installed(folder.path()).get_program().to_owned();
    let check = |arguments: &[&str], said: &str| {
        let output =
            Command::new(&program).current_dir(folder.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(text(&output.stderr), format!("error: {said}\n"));
    };
    check(
        &["explain", "empty"],
        "empty: this is no trace of a program: it does not begin with `phonotrc`",
    );
    check(&["explain", "none"], "cannot read none: No such file or directory (os error 2)");
    std::fs::write(folder.path().join("train.py"), "print(1)").unwrap();
    check(
        &["trace", "-o", "train.py", "--", "./none"],
        &format!(
            "{} is there and no trace, so it is not replaced; name another file with --output",
            folder.path().canonicalize().unwrap().join("train.py").display()
        ),
    );
    assert_eq!(std::fs::read(folder.path().join("train.py")).unwrap(), b"print(1)");
    check(
        &["trace", "-o", "/dev/null", "--", "./none"],
        "/dev/null is there and no trace, so it is not replaced; name another file with --output",
    );
    check(&["trace", "--", "./none"], "cannot run ./none: No such file or directory (os error 2)");
}

#[test]
fn counts_that_no_number_holds_are_the_largest_number() {
    let mut file = header().to_vec();
    for (id, name) in [(0, "cuNothing"), (1, "cuNothingElse")] {
        Record::Function { id, name }.write(&mut file);
        Record::PassedOver { function: id, calls: u64::MAX }.write(&mut file);
    }
    let folder = folder();
    std::fs::write(folder.path().join("counts"), file).unwrap();
    let output = phonograph(folder.path()).args(["explain", "counts"]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("18,446,744,073,709,551,615 calls outside captures succeeded"), "{said}");
}

/// Programs on an H200 (driver 580, CUDA 13.0, Python 3.12): PyTorch with `crates/inject/examples/mistakes.py` and `clean.py`, a compiled
/// module (`torch.compile` in mode `reduce-overhead`), a loop that captures at every step; CuPy, where a copy to the host is refused and the
/// capture never ended; JAX, which builds its graph itself.
#[test]
fn recorded_programs_are_explained() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut traces: Vec<_> =
        std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()).collect();
    traces.sort();
    assert_eq!(traces.len(), 14, "{traces:?}");
    for path in traces {
        let output = phonograph(&data).arg("explain").arg(&path).output().unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = name.strip_suffix(".trace.gz").unwrap();
        let right = ["bert", "compiled", "cupy", "jax", "loops", "pageable", "resnet"];
        let wrong = !right.contains(&name);
        assert_eq!(output.status.code(), Some(wrong.into()), "{output:?}");
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(name, text(&output.stdout));
        });
    }
}
