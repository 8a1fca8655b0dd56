//! Which crate may depend on which: the table of ARCHITECTURE.md, checked against the manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Crate, and what it may use of the workspace.
const ALLOWED: &[(&str, &[&str])] = &[
    ("phonograph-graph", &[]),
    ("phonograph-trace", &[]),
    ("phonograph-capture", &["graph", "trace"]),
    ("phonograph-plan", &["graph"]),
    ("phonograph-kernels", &["graph"]),
    ("phonograph-report", &["graph"]),
    ("phonograph-runtime", &["graph", "capture", "kernels"]),
    ("phonograph-cuda", &["graph", "trace", "capture", "kernels", "runtime"]),
    ("phonograph-wgpu", &["graph", "capture", "kernels", "runtime"]),
    ("phonograph-c", &["phonograph"]),
    ("phonograph-inject", &["trace"]),
    (
        "phonograph",
        &["graph", "trace", "capture", "plan", "kernels", "report", "runtime", "cuda", "wgpu"],
    ),
    ("phonograph-cli", &["phonograph"]),
];

#[test]
fn crates_depend_only_along_the_arrows() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
    let full = |short: &&str| match *short {
        "phonograph" => "phonograph".to_owned(),
        short => format!("phonograph-{short}"),
    };
    let allowed: BTreeMap<&str, BTreeSet<String>> =
        ALLOWED.iter().map(|&(name, uses)| (name, uses.iter().map(full).collect())).collect();
    let crates: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        crates,
        allowed.keys().copied().collect(),
        "a crate without a row, or a row without a crate"
    );
    for package in &metadata.packages {
        for dependency in &package.dependencies {
            // Tests may look at their crate from above.
            let ours = crates.contains(dependency.name.as_str());
            if ours && dependency.kind != DependencyKind::Development {
                assert!(
                    allowed[package.name.as_str()].contains(&dependency.name),
                    "{} must not depend on {}",
                    package.name,
                    dependency.name
                );
            }
        }
    }
}
