//! That the table at the head of `main.rs` names tests that there are, and every line of BEHAVIOURS E.

use std::path::Path;

/// Every file with tests that the table may name; two are the runtime's.
const SOURCES: [&str; 10] = [
    include_str!("capture.rs"),
    include_str!("combinators.rs"),
    include_str!("failures.rs"),
    include_str!("futures.rs"),
    include_str!("lifetimes.rs"),
    include_str!("modules.rs"),
    include_str!("scopes.rs"),
    include_str!("tensors.rs"),
    include_str!("../../../runtime/tests/device/adopt.rs"),
    include_str!("../../../runtime/src/streams/launches.rs"),
];

#[test]
fn every_line_of_e_has_a_test_that_the_table_names() {
    let refused = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let rows = include_str!("main.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter(|row| row.starts_with(|c: char| c.is_ascii_digit()));
    let mut lines = Vec::new();
    for row in rows {
        let (line, tests) = row.split_once(" | ").expect("two columns");
        lines.push(line.parse::<u32>().unwrap());
        // What stands in backticks and is a word of several.
        for test in tests.split('`').skip(1).step_by(2).filter(|word| word.contains('_')) {
            let found = match test.strip_prefix("refused/") {
                Some(program) => refused.join(program).with_extension("stderr").exists(),
                None => SOURCES.iter().any(|source| source.contains(&format!("fn {test}"))),
            };
            assert!(found, "E {line}: there is no test `{test}`");
        }
    }
    assert!(lines.iter().copied().eq(1..=17), "{lines:?}");
}
