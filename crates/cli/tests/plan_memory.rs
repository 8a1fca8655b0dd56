//! `plan-memory`: what it prints, what it answers, how it refuses.

use std::io::Write;
use std::process::{Command, Output};

/// Runs the command on a file of these contents; its output, with the file's path taken out of messages.
fn plan_memory(contents: &[u8], rest: &[&str]) -> (Output, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(contents).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let command = &mut Command::new(env!("CARGO_BIN_EXE_phonograph"));
    let output = command.args(["plan-memory", &path]).args(rest).output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap().replace(&path, "FILE");
    (output, said)
}

const FIVE: &[u8] = b"id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

#[test]
fn json_has_a_place_for_each_id() {
    let (output, _) = plan_memory(FIVE, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, value) in [("buffers", 5), ("peak", 12), ("lower_bound", 12)] {
        assert_eq!(report[name], value, "{name}");
    }
    assert_eq!(report["complete"], true);
    assert!(report["seconds"].as_f64().unwrap() >= 0.0);
    let offset = |id: &str| report["offsets"][id].as_u64().unwrap();
    assert_eq!(report["offsets"].as_object().unwrap().len(), 5);
    assert!(offset("b1") != offset("b3") && offset("b4") != offset("b5"));
}

#[test]
fn a_packed_file_fits_its_capacity() {
    // Twelve layers, in each a buffer that lives on and one that does not: the fullest moment has all of the first kind and one other.
    let rows: String = (0..12)
        .map(|at| format!("kept{at},{at},24,4096\nbrief{at},{at},{},{}\n", at + 1, 512 * (at + 1)))
        .collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(format!("id,lower,upper,size\n{rows}").as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let (output, _) = plan_memory(&packed, &["--capacity", "55296", "--budget", "30"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("placement proved"), "{text}");
    assert!(text.contains("lower bound      55296 B"), "{text}");
}

#[test]
fn a_capacity_that_is_not_met_is_a_no() {
    let (output, _) = plan_memory(FIVE, &["--capacity", "11", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["fits"]), (Some(1), &false.into()));
    assert_eq!(report["peak"], 12);
}

#[test]
fn bad_files_are_refused_with_their_place() {
    let check = |contents: &[u8], rest: &[&str], expected: &str| {
        let (output, said) = plan_memory(contents, rest);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    check(b"id,lower,upper,size\nx,0,1,y\n", &[], "error: FILE:2:7: size must be a whole number");
    check(b"", &[], "error: FILE:1:1: expected the header");
    check(b"\x1f\x8bno", &[], "error: cannot read FILE");
    check(FIVE, &["--budget=-1"], "must be from 0 to 86400");
    check(FIVE, &["--budget", "NaN"], "must be from 0 to 86400");
}
