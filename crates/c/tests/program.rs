//! A program in C, linked with the library and run on a stub of the driver.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[track_caller]
fn compile(arguments: &[&str]) {
    let built = Command::new("cc").args(["-Wall", "-Wextra", "-Werror"]).args(arguments).status();
    assert!(built.expect("a C compiler, which Rust's linker needs as well").success());
}

/// The folder of the shared library that was built with this test.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let name = format!("{}phonograph_c{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let found = folders.map(Path::to_owned).find(|folder| folder.join(&name).exists());
    found.expect("the library is built with its tests")
}

#[test]
fn a_program_in_c_edits_graphs_and_reads_what_is_wrong() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !crate_folder.exists() {
        return eprintln!("skipped: the sources are not on this machine");
    }
    let folder = tempfile::tempdir().unwrap();
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let source = |name: &str| text(crate_folder.join("tests").join(name));
    // The loader wants every function of the driver; those that are not called only have to be there.
    let stub = fs::read_to_string(source("stub_driver.c")).unwrap();
    let symbols = fs::read_to_string(crate_folder.join("../cuda/src/symbols.rs")).unwrap();
    let names =
        symbols.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
    let missing = names.filter(|name| !stub.contains(&format!("unsigned {name}(")));
    let rest: String =
        missing.map(|name| format!("unsigned {name}(void) {{ return 999; }}\n")).collect();
    let rest_path = folder.path().join("rest.c");
    fs::write(&rest_path, rest).unwrap();
    let driver = text(folder.path().join("libcuda.so"));
    compile(&["-shared", "-fPIC", "-o", &driver, &source("stub_driver.c"), &text(rest_path)]);
    let program = text(folder.path().join("program"));
    let (include, library) = (text(crate_folder.join("include")), text(library()));
    let flags = [format!("-I{include}"), format!("-L{library}"), format!("-Wl,-rpath,{library}")];
    let program_source = source("program.c");
    let mut arguments = vec!["-o", &program, &program_source];
    arguments.extend(flags.iter().map(String::as_str));
    arguments.push("-lphonograph_c");
    compile(&arguments);
    let mut paths = vec![folder.path().to_owned()];
    paths.extend(env::split_paths(&env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    let run = Command::new(&program)
        .env("LD_LIBRARY_PATH", env::join_paths(paths).unwrap())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    assert_eq!(
        String::from_utf8(run.stdout).unwrap(),
        "null: 1, 77 of 77 edges removed, \"the graph is null\"\n\
         no room: 1, 77 of 77 edges removed\n\
         little room: 1, 77 of 77 edges removed, \"the graph\"\n\
         a triangle: 0, 1 of 3 edges removed, \"\"\n\
         once more: 0, 0 of 2 edges removed, \"\"\n\
         an allocation: 3, 77 of 77 edges removed, \"cuGraphDebugDotPrint failed: CUDA_ERROR_STUB (1): the stub refuses\"\n\
         a refusal: 3, 77 of 77 edges removed, \"cuGraphRemoveDependencies_v2 failed: CUDA_ERROR_STUB (1): the stub refuses\"\n\
         nothing to write to: 0\n\
         recover nothing: 1, \"the graph, the blocks or the inputs are null\"\n\
         recover with scratch: 1, \"there is scratch memory, and nowhere to give a handle of the graph's own to\"\n\
         recover with what is not known: 1, \"4 says nothing about block 1\"\n\
         sizes: 24 56 104\n"
    );
}
