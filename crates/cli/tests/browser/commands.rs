//! The pages of `plan`, `optimize` and two graphs under `view`: every tab, light and dark, with friendly and hostile names.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::devtools::Browser;
use crate::server::View;
use crate::{data, no_complaints, open, phonograph, run};

/// Walks through every page and tab: something is drawn, a search finds, what is found is chosen and described.
fn check(b: &mut Browser, pages: usize, tabs: &[&str], word: &str) {
    let names = "[...document.querySelectorAll('#pages option')].length";
    assert_eq!(b.value(names), json!(if pages > 1 { pages } else { 0 }));
    let mut seen: Vec<String> = Vec::new();
    for page in 0..pages {
        if pages > 1 {
            b.value(&format!(
                "{{ const s = document.querySelector('#pages'); s.value = '{page}'; s.dispatchEvent(new Event('change')); }}"
            ));
        }
        let handles = b.value("document.querySelectorAll('[role=tab]').length").as_u64().unwrap();
        for tab in 0..handles {
            b.value(&format!("document.querySelectorAll('[role=tab]')[{tab}].click()"));
            b.settle();
            let name = b.text("[role=tab][aria-selected=true]");
            assert!(b.drawn() > 0.004, "page {page}, {name}: nothing is drawn");
            assert!(b.text("#details").len() > 20, "page {page}, {name}: nothing is said");
            seen.push(name);
        }
        b.press(&["1", "/"]);
        b.write(word);
        assert_ne!(b.text("#hits"), "nothing found", "page {page}");
        b.press(&["Enter"]);
        assert!(b.text("#details h2").contains(word), "page {page}: {}", b.text("#details h2"));
        b.press(&["Escape", "Escape"]);
    }
    let seen: Vec<&str> = seen.iter().map(|name| name.split(':').next().unwrap()).collect();
    assert_eq!(seen, tabs);
    no_complaints(b);
}

/// Light, then dark; the page follows without being loaded again.
fn in_both_schemes(b: &mut Browser, mut look: impl FnMut(&mut Browser)) {
    for (scheme, background) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")] {
        b.prefer("prefers-color-scheme", scheme);
        assert_eq!(b.value("getComputedStyle(document.body).backgroundColor"), background);
        look(b);
    }
}

const TABS: [&str; 3] = ["Graph", "Schedule", "Memory"];

#[test]
fn a_plan_is_a_page() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("plan.html");
    let file = data("graph/tests/data/every_node.json");
    run(phonograph().args(["plan", "--streams", "2", "--html", "-o"]).arg(&page).arg(file));
    open(&mut b, &page);
    in_both_schemes(&mut b, |b| check(b, 1, &TABS, "loop"));
    // Into a body and back.
    b.press(&["/"]);
    b.write("loop");
    b.press(&["Enter", "Escape", "Enter"]);
    assert_eq!(b.text("#crumbs [aria-current]"), "loop: body");
    b.press(&["Escape"]);
    assert_eq!(b.text("#details h2"), "loop");
    no_complaints(&b);
}

/// Fills, kernels and copies on buffers, with these names.
fn wasteful(names: [&str; 4]) -> Value {
    let [low, high, stage, work] = names;
    let fill = |name: &str, offset: u32| {
        json!({ "name": name, "memset": {
        "dst": { "buffer": "out", "offset": offset }, "value": 0, "element_size": 4, "width": 512 } })
    };
    json!({ "phonograph": 1, "graph": {
        "buffers": [
            { "name": "in", "bytes": 1024, "role": "external" },
            { "name": "staging", "bytes": 1024 },
            { "name": stage, "bytes": 2048 },
            { "name": "out", "bytes": 1024, "role": "external" },
        ],
        "nodes": [
            fill(low, 0),
            fill(high, 512),
            { "name": stage, "memcpy": { "direction": "DtoD", "src": { "buffer": "in" }, "dst": { "buffer": "staging" }, "width": 1024 } },
            { "name": work, "kernel": { "function": "f", "args": [
                { "buffer": "staging", "access": "read" }, { "buffer": stage, "access": "write" }] } },
            { "name": work, "kernel": { "function": "f", "args": [
                { "buffer": stage, "access": "read" }, { "buffer": "out", "access": "both" }] } },
        ],
    } })
}

fn written(folder: &TempDir, name: &str, graph: &Value) -> PathBuf {
    let file = folder.path().join(name);
    std::fs::write(&file, graph.to_string()).unwrap();
    file
}

fn optimized(folder: &TempDir, file: &Path) -> PathBuf {
    let page = folder.path().join("optimized.html");
    let out = folder.path().join("out.json");
    run(phonograph().arg("optimize").arg(file).arg(out).arg("--html").arg(&page));
    page
}

#[test]
fn an_optimized_graph_is_shown_beside_what_it_was() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let graph = wasteful(["low half", "high half", "stage", "work"]);
    let page = optimized(&folder, &written(&folder, "wasteful.json", &graph));
    open(&mut b, &page);
    let panel = b.text("#details");
    assert!(panel.contains("only before") && panel.contains("Differences ("), "{panel}");
    let tabs = ["Compare", "Graph", "Schedule", "Memory", "Graph", "Schedule", "Memory"];
    in_both_schemes(&mut b, |b| check(b, 3, &tabs, "work"));
    // Two fills have become one: each leads to it, and the panel says what changed.
    b.value("{ const s = document.querySelector('#pages'); s.value = '0'; s.dispatchEvent(new Event('change')); }");
    b.press(&["/"]);
    b.write("low half");
    b.press(&["Enter", "Escape"]);
    assert_eq!(b.text("#details .changed"), "changed");
    assert!(b.text("#details").contains("What changed"), "{}", b.text("#details"));
    no_complaints(&b);
}

#[test]
fn two_graphs_are_compared_in_light_and_dark() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let before = written(&folder, "before.json", &wasteful(["low", "high", "stage", "work"]));
    let after = written(&folder, "after.json", &wasteful(["low", "high", "stage it", "work"]));
    let mut view = View::of(&[before, after]);
    b.open(&view.url);
    let tabs = ["Compare", "Graph", "Schedule", "Memory", "Graph", "Schedule", "Memory"];
    in_both_schemes(&mut b, |b| check(b, 3, &tabs, "stage"));
    view.interrupt();
}

#[test]
fn hostile_names_are_text_in_every_tab() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let taken = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">";
    let long = format!("long {}", "k".repeat(10_000));
    let graph = wasteful([taken, "two\nlines\r\t\u{202e}turned", &format!("<b>{taken}"), &long]);
    let file = written(&folder, "hostile.json", &graph);
    let plan = folder.path().join("plan.html");
    run(phonograph().args(["plan", "--html", "-o"]).arg(&plan).arg(&file));
    let optimized = optimized(&folder, &file);
    let other = written(&folder, "other.json", &wasteful(["a", taken, "c", "long d"]));
    let mut view = View::of(&[file, other]);
    let pages = [
        (format!("file://{}", plan.display()), 1, &TABS[..]),
        (
            format!("file://{}", optimized.display()),
            3,
            &["Compare", "Graph", "Schedule", "Memory", "Graph", "Schedule", "Memory"][..],
        ),
        (
            view.url.clone(),
            3,
            &["Compare", "Graph", "Schedule", "Memory", "Graph", "Schedule", "Memory"][..],
        ),
    ];
    for (url, count, tabs) in pages {
        b.open(&url);
        check(&mut b, count, tabs, "long");
        assert_eq!(b.value("document.scripts.length"), 2, "{url}");
        assert_eq!(b.value("document.images.length + document.querySelectorAll('b').length"), 0);
        assert_ne!(b.value("document.title"), "taken", "{url}");
        // Names do not push the page apart.
        assert_eq!(b.value("document.documentElement.scrollWidth <= innerWidth"), true, "{url}");
    }
    no_complaints(&b);
    view.interrupt();
}
