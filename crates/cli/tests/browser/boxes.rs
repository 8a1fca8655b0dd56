//! Graphs too large to be drawn node by node: their boxes open, and the way back leads to where one was.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::devtools::Browser;
use crate::server::View;
use crate::{no_complaints, phonograph, run, show};

fn wavefront(folder: &TempDir, nodes: &str) -> PathBuf {
    let file = folder.path().join("large.json");
    run(phonograph().args(["generate", "wavefront", "--nodes", nodes, "-o"]).arg(&file));
    file
}

/// Opens a box, walks inside and out of it, comes back; finds a node by its name.
fn check(b: &mut Browser, crumbs: &str) {
    assert!(b.text("#crumbs").contains(crumbs), "{}", b.text("#crumbs"));
    b.press(&["ArrowDown", "ArrowDown", "ArrowDown", "+", "+"]);
    let (name, what) = (b.text("#details h2"), b.text("#details td"));
    assert!(name.ends_with(" nodes") && what.starts_with("levels "), "{name}, {what}");
    let (chosen, picture) = (b.text("#details .kind"), b.picture());

    // In by Enter; Escape first clears the selection, then leads out to the box and the view that was.
    b.press(&["Enter"]);
    b.until("document.querySelector('#crumbs button') !== null");
    b.settle();
    assert!(b.text("#crumbs [aria-current]").starts_with("level"), "{}", b.text("#crumbs"));
    b.press(&["ArrowDown"]);
    assert!(b.text("#details .kind").contains("of large.json"), "{}", b.text("#details .kind"));
    b.press(&["Escape", "Escape"]);
    assert_eq!(b.text("#details .kind"), chosen);
    assert_eq!(b.picture(), picture, "the view is not the one that was left");
    b.press(&["Escape"]);

    // A node deep inside is found by its number, and edges lead on into the next box.
    b.press(&["/"]);
    b.write("n12345");
    b.until("document.querySelector('#hits').textContent === '1 found'");
    b.press(&["Enter"]);
    b.until("document.querySelector('#details .kind')?.textContent.includes('node 12345 of')");
    b.press(&["Escape"]);
    let level = b.text("#crumbs [aria-current]");
    let mut moved = false;
    for _ in 0..40 {
        b.press(&["ArrowDown"]);
        b.settle();
        if b.text("#crumbs [aria-current]") != level {
            moved = true;
            break;
        }
    }
    assert!(moved, "edges do not lead out of {level}");
    assert!(b.text("#details .kind").contains("of large.json"));
    // The path leads back to the whole.
    b.value("document.querySelector('#crumbs button').click()");
    b.settle();
    assert!(b.text("#crumbs").contains(crumbs));
    no_complaints(b);
}

#[test]
fn boxes_open_in_a_page() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let file = wavefront(&folder, "20500");
    show(&mut b, &folder, &file, &[]);
    check(&mut b, "20,500 nodes in ");
    // A task of the schedule leads to its node.
    b.press(&["2", "ArrowRight", "ArrowRight", "Enter"]);
    b.settle();
    assert_eq!(b.text("[role=tab][aria-selected=true]"), "Graph");
    assert!(b.text("#details .kind").contains("of large.json"));
    no_complaints(&b);
}

#[test]
fn boxes_of_very_large_graphs_open_through_the_server() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let file = wavefront(&folder, "70000");
    // A file does not hold that much and says what to do.
    show(&mut b, &folder, &file, &[]);
    assert!(b.text("#details").contains("`phonograph view FILE` opens them"));
    b.press(&["ArrowDown", "Enter"]);
    assert_eq!(b.value("document.querySelector('#crumbs button')"), serde_json::Value::Null);

    let mut view = View::of(&[file]);
    b.open(&view.url);
    check(&mut b, "70,000 nodes in ");
    for path in
        ["/open/0/0/0/0/1.x", "/open/0/0/0/0/999999", "/open/9/0/0/0/1", "/where/0/0/0/0/-1"]
    {
        assert_eq!(view.ask(path, "HERE").split(' ').nth(1).map(|code| &code[..1]), Some("4"));
    }
    assert_eq!(view.ask("/open/0/0/0/0/1", "phonograph.example"), "HTTP/1.1 403 Forbidden");
    no_complaints(&b);
    // Once the server has ended, a box that was never opened says so.
    view.interrupt();
    b.press(&["Escape", "Escape", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter"]);
    b.until("!document.querySelector('#trouble').hidden");
    assert!(b.text("#trouble").contains("`phonograph view`"), "{}", b.text("#trouble"));
}

#[test]
fn two_very_large_graphs_are_searched_and_opened_side_by_side() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let before = wavefront(&folder, "20500");
    let after = folder.path().join("after.json");
    run(phonograph().args(["generate", "wavefront", "--nodes", "21000", "-o"]).arg(&after));
    let mut view = View::of(&[before, after]);
    b.open(&view.url);
    let panel = b.text("#details");
    assert!(panel.contains("only after500 nodes"), "{panel}");
    assert!(panel.contains("differences are only counted"), "{panel}");
    b.press(&["/"]);
    // The last node of the second graph, which the first one lacks.
    b.write("n20999");
    b.until("document.querySelector('#hits').textContent === '1 found'");
    b.press(&["Enter"]);
    b.until("document.querySelector('#details .kind')?.textContent.includes('node 20999 of')");
    assert_eq!(b.text("#crumbs button"), "after.json");
    b.press(&["Escape", "Escape", "Escape"]);
    assert!(b.text("#crumbs").contains("21,000 nodes in "), "{}", b.text("#crumbs"));
    no_complaints(&b);
    view.interrupt();
}
