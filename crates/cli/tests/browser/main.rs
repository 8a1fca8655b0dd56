//! Pages in a real browser: they load, search, select, step in, switch tabs, and nothing appears on the console.

mod boxes;
mod commands;
mod devtools;
mod frames;
mod pointing;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use devtools::Browser;
use serde_json::json;
use server::View;
use tempfile::TempDir;

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

const MULTISTREAM: &str = "graph/tests/data/multistream_3x4.dot.gz";

fn phonograph() -> Command {
    Command::new(env!("CARGO_BIN_EXE_phonograph"))
}

/// Runs a command that must succeed.
fn run(command: &mut Command) {
    let made = command.output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// Opens a page that lies in a file.
fn open(browser: &mut Browser, page: &Path) {
    browser.open(&format!("file://{}", page.display()));
}

/// Opens the page that `show --html` writes.
fn show(browser: &mut Browser, folder: &TempDir, file: &Path, more: &[&str]) {
    let page = folder.path().join("page.html");
    run(phonograph().args(["show", "--html", "-o"]).arg(&page).args(more).arg(file));
    open(browser, &page);
}

fn no_complaints(browser: &Browser) {
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn a_page_is_searched_walked_and_stepped_into() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    show(&mut b, &folder, &data("graph/tests/data/every_node.json"), &[]);
    assert_eq!(b.text("h1"), "every_node.json");
    assert!(b.drawn() > 0.02, "nothing is drawn");
    assert!(b.text("#details").contains("redundant edges"));

    b.press(&["/"]);
    b.write("conditional");
    assert_eq!(b.text("#hits"), "2 found");
    assert_eq!(b.value("document.querySelectorAll('#results li').length"), 2);
    b.press(&["Enter"]);
    assert_eq!((b.text("#details h2"), b.text("#hits")), ("if".into(), "1 of 2".into()));
    b.press(&["Enter"]);
    assert_eq!(b.text("#details h2"), "loop");
    assert!(b.text("#details").contains("Depends on (1)"));

    // Escape leaves the search; what is chosen stays. Enter steps into the body, Backspace out.
    b.press(&["Escape"]);
    assert_eq!(b.value("document.activeElement.tagName"), "CANVAS");
    b.press(&["Enter"]);
    assert_eq!(b.text("#crumbs [aria-current]"), "loop: body");
    assert!(b.text("#crumbs").starts_with("every_node.json›"));
    b.press(&["Backspace"]);
    assert_eq!(b.text("#details h2"), "loop");
    // Up the only edge, and back down by a click on the panel.
    b.press(&["ArrowUp"]);
    assert_eq!(b.text("#details h2"), "if");
    b.value("[...document.querySelectorAll('#details .links button')].find(x => x.textContent.includes('loop')).click()");
    assert_eq!(b.text("#details h2"), "loop");
    // What is chosen from afar lies in sight; a click on it chooses it again.
    b.press(&["Escape"]);
    assert_eq!(b.text("#details h2"), "every_node.json");
    b.press(&["/"]);
    b.write("join");
    b.press(&["Enter", "Escape", "+", "+", "+", "+", "+", "+"]);
    no_complaints(&b);
}

#[test]
fn tabs_switch_and_lead_into_each_other() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let trace = data("report/tests/data/kineto_multistream.json.gz");
    show(&mut b, &folder, &data(MULTISTREAM), &["--costs", trace.to_str().unwrap()]);
    let tabs = b.value("[...document.querySelectorAll('[role=tab]')].map(t => t.textContent)");
    assert_eq!(
        tabs,
        json!(["Graph", "planned: 3 streams", "recorded: kineto_multistream", "Memory"])
    );
    for colour in ["stream", "cost", "kind"] {
        b.value(&format!(
            "{{ const s = document.querySelector('#colour'); s.value = '{colour}'; s.dispatchEvent(new Event('change')); }}"
        ));
        assert!(b.drawn() > 0.02);
    }
    for (key, name) in [("2", "planned: 3 streams"), ("3", "recorded: kineto_multistream")] {
        b.press(&[key]);
        assert_eq!(b.text("[role=tab][aria-selected=true]"), name);
        assert!(b.drawn() > 0.02, "{name}: nothing is drawn");
    }
    b.press(&["ArrowRight", "ArrowRight"]);
    assert!(b.text("#details").contains("Needed by (4)"), "{}", b.text("#details"));
    // A span leads to its node.
    b.press(&["Enter"]);
    assert_eq!(b.text("[role=tab][aria-selected=true]"), "Graph");
    assert!(b.text("#details .kind").contains("node 1 of"));
    b.press(&["4"]);
    assert!(b.text("#details").contains("no buffers of its own"));
    b.press(&["?"]);
    assert_eq!(b.value("document.querySelector('#help').open"), true);
    b.press(&["Escape"]);
    assert_eq!(b.value("document.querySelector('#help').open"), false);
    no_complaints(&b);
}

#[test]
fn memory_shows_buffers_that_share_bytes() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    // a → b → c → d: the first and the third buffer share bytes.
    let buffers: Vec<_> = ["a", "b", "c"].map(|n| json!({ "name": n, "bytes": 1024 })).into();
    let step = |name: &str, from: &str, to: &str| {
        json!({ "name": name, "kernel": { "function": "f", "args": [
            { "buffer": from, "access": "read" }, { "buffer": to, "access": "write" }] } })
    };
    let fill = json!({ "name": "fill", "memset": { "dst": { "buffer": "a" }, "value": 0, "width": 1024 } });
    let graph = json!({ "phonograph": 1, "graph": { "buffers": buffers,
        "nodes": [fill, step("second", "a", "b"), step("third", "b", "c")] } });
    let file = folder.path().join("chain.json");
    std::fs::write(&file, graph.to_string()).unwrap();
    show(&mut b, &folder, &file, &[]);
    b.press(&["3"]);
    assert!(b.drawn() > 0.05, "nothing is drawn");
    let panel = b.text("#details");
    assert!(panel.contains("pool2 KiB") && panel.contains("nothing shared3 KiB"), "{panel}");
    b.press(&["/"]);
    b.write("a");
    b.press(&["Enter"]);
    assert_eq!(b.text("#details h2"), "a");
    let panel = b.text("#details");
    assert!(panel.contains("Shares bytes with (1)"), "{panel}");
    b.value("[...document.querySelectorAll('#details button.inline')][1].click()");
    assert_eq!(b.text("#details h2"), "second");
    no_complaints(&b);
}

#[test]
fn hostile_names_are_text() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let script = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">";
    let names = [
        script.to_owned(),
        "two\nlines\r\tand more".to_owned(),
        "k".repeat(10_000),
        "turned \u{202e}around\u{2066}".to_owned(),
        "{{constructor}} ${7*7} %s \\u003cb\\u003e".to_owned(),
    ];
    let nodes: Vec<_> = names.iter().map(|name| json!({ "name": name, "empty": {} })).collect();
    let chain: Vec<_> = (1..names.len()).map(|i| json!([i - 1, i])).collect();
    let graph =
        json!({ "phonograph": 1, "graph": { "name": script, "nodes": nodes, "edges": chain } });
    let file = folder.path().join("<b>hostile & \"quoted\".json");
    std::fs::write(&file, graph.to_string()).unwrap();
    show(&mut b, &folder, &file, &[]);
    assert_eq!(b.text("h1"), "<b>hostile & \"quoted\".json");
    let mut seen = Vec::new();
    for _ in &names {
        b.press(&["ArrowDown"]);
        seen.push(b.text("#details h2"));
    }
    assert_eq!(seen[0], script);
    assert_eq!(seen[1], "two\nlines␍\tand more");
    assert!(seen[2].ends_with("k … (8000 more characters)"), "{}", seen[2]);
    assert_eq!(seen[3], "turned \u{fffd}around\u{fffd}");
    assert_eq!(seen[4], names[4]);
    b.press(&["/"]);
    b.write("onerror");
    assert_eq!(b.text("#hits"), "1 found");
    assert_eq!(b.value("document.scripts.length"), 2);
    assert_eq!(b.value("document.images.length + document.querySelectorAll('b').length"), 0);
    assert_ne!(b.value("document.title"), "taken");
    no_complaints(&b);
}

#[test]
fn five_thousand_nodes_are_drawn_and_clicked_in_the_dark() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let (rows, columns) = (50, 100);
    let place = |i: usize, j: usize| i * columns + j;
    let mut dot = String::from("digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\"\n");
    for n in 0..rows * columns {
        dot += &format!(
            "\"graph_1_node_{n}\"[shape=\"octagon\" label=\"{n}\ntile_{}_{}\n\"];\n",
            n / columns,
            n % columns
        );
    }
    for i in 0..rows {
        for j in 0..columns {
            let above = (i > 0).then(|| place(i - 1, j));
            let before = (j > 0).then(|| place(i, j - 1));
            for from in above.into_iter().chain(before) {
                dot += &format!("\"graph_1_node_{from}\" -> \"graph_1_node_{}\";\n", place(i, j));
            }
        }
    }
    dot += "}\n}\n";
    let file = folder.path().join("wavefront.dot");
    std::fs::write(&file, dot).unwrap();
    b.prefer("prefers-color-scheme", "dark");
    show(&mut b, &folder, &file, &[]);
    assert_eq!(b.value("getComputedStyle(document.body).backgroundColor"), "rgb(20, 24, 29)");
    assert!(b.text("#crumbs").contains("5,000 nodes, 9,850 edges"));
    b.press(&["/"]);
    b.write("tile_25_50");
    b.press(&["Enter", "Escape", "Escape"]);
    assert_eq!(b.text("#details h2"), "wavefront.dot");
    // It was brought to the middle.
    let (x, y) = b.middle();
    b.click(x, y);
    assert_eq!(b.text("#details h2"), "tile_25_50");
    // The point under the wheel stays; what is dragged follows.
    b.press(&["Escape"]);
    for way in [-120.0, -120.0, 240.0, 240.0] {
        b.wheel(x, y, way);
    }
    b.drag((x, y), (x + 180.0, y + 90.0));
    assert_eq!(b.text("#details h2"), "wavefront.dot", "a drag is no click");
    b.click(x + 180.0, y + 90.0);
    assert_eq!(b.text("#details h2"), "tile_25_50");
    b.press(&["0"]);
    assert!(b.drawn() > 0.1, "nothing is drawn");
    no_complaints(&b);
}

#[test]
fn view_answers_on_its_own_address_and_ends_with_ctrl_c() {
    let mut view = View::of(&[data(MULTISTREAM)]);
    assert!(view.url.starts_with("http://127.0.0.1:"), "{}", view.url);
    let port = view.url.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    for (path, host, status) in [
        ("/", "HERE", "200 OK"),
        ("/", &*format!("localhost:{port}"), "200 OK"),
        ("/", "phonograph.example", "403 Forbidden"),
        ("/", &*format!("phonograph.example:{port}"), "403 Forbidden"),
        ("/", "127.0.0.1", "403 Forbidden"),
        ("/other", "HERE", "404 Not Found"),
        ("/other", "phonograph.example", "403 Forbidden"),
        ("/../../etc/passwd", "HERE", "404 Not Found"),
    ] {
        assert_eq!(view.ask(path, host), format!("HTTP/1.1 {status}"), "{path} at {host}");
    }
    view.interrupt();
}

#[test]
fn view_compares_two_graphs() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let named = |names: &[&str]| {
        let nodes: Vec<_> = names.iter().map(|n| json!({ "name": n, "empty": {} })).collect();
        let edges: Vec<_> = (1..names.len()).map(|i| json!([i - 1, i])).collect();
        json!({ "phonograph": 1, "graph": { "nodes": nodes, "edges": edges } }).to_string()
    };
    let [before, after] = ["before.json", "after.json"].map(|name| folder.path().join(name));
    std::fs::write(&before, named(&["load", "scale", "store"])).unwrap();
    std::fs::write(&after, named(&["load", "scale", "check", "store"])).unwrap();
    let mut view = View::of(&[before, after]);
    b.open(&view.url);
    assert_eq!(b.value("document.querySelectorAll('#pages option').length"), 3);
    let panel = b.text("#details");
    assert!(
        panel.contains("only after1 node, 2 edges") && panel.contains("Differences (1)"),
        "{panel}"
    );
    b.value("document.querySelector('#details .links button').click()");
    assert_eq!(b.text("#details .added"), "only after");
    b.press(&["Escape", "/"]);
    b.write("store");
    assert_eq!(b.text("#hits"), "2 found");
    b.press(&["Enter"]);
    assert!(b.text("#details").contains("the same in both"));
    // Each graph has a page of its own.
    b.value("{ const s = document.querySelector('#pages'); s.value = '2'; s.dispatchEvent(new Event('change')); }");
    assert_eq!(b.text("h1"), "after.json");
    assert!(b.text("#crumbs").contains("4 nodes, 3 edges"));
    b.settle();
    assert!(b.drawn() > 0.005);
    no_complaints(&b);
    // An open page does not keep the server.
    view.interrupt();
}
