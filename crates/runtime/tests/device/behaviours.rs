//! That the table at the head of `main.rs` names tests that there are, and every line of BEHAVIOURS D.

/// Every file with tests that the table may name.
const SOURCES: [&str; 10] = [
    include_str!("../capture_state.rs"),
    include_str!("branches.rs"),
    include_str!("fault_points.rs"),
    include_str!("keeping.rs"),
    include_str!("refusals.rs"),
    include_str!("sharing.rs"),
    include_str!("shared_device.rs"),
    include_str!("taint.rs"),
    include_str!("warm_up.rs"),
    include_str!("windows.rs"),
];

#[test]
fn every_line_of_d_has_a_test_that_the_table_names() {
    let rows = include_str!("main.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter(|row| row.starts_with(|c: char| c.is_ascii_digit()));
    let mut lines = Vec::new();
    for row in rows {
        let (line, tests) = row.trim_end_matches(" |").split_once(" | ").expect("two columns");
        lines.push(line.parse::<u32>().unwrap());
        for test in tests.split(", ") {
            let test = test.trim_matches('`');
            let definition = format!("fn {test}");
            let found = SOURCES.iter().any(|source| source.contains(&definition));
            assert!(found, "D {line}: no file has a test `{test}`");
        }
    }
    assert!(lines.iter().copied().eq(1..=17), "{lines:?}");
}
