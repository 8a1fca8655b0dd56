//! Scripts of things that go wrong, each with the report that it gets.

use std::path::Path;

use phonograph_capture::check::{Source, check};
use phonograph_trace::Script;

#[test]
fn every_case_gets_its_report() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() > 25, "{} cases in {}", cases.len(), folder.display());
    for case in cases {
        let text = std::fs::read_to_string(&case).unwrap();
        let script =
            Script::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
        let report = check(&script).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
        let name = case.file_stem().unwrap().to_str().unwrap();
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, report.render(Some(Source { name: "", text: &text }), false));
        });
    }
}
