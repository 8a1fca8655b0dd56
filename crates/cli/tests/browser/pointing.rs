//! What the mouse, fingers and settings do to a picture.

use serde_json::json;
use tempfile::TempDir;

use crate::devtools::Browser;
use crate::{no_complaints, show};

/// A page of two nodes, one above the other: the middle of the window lies on the edge between them.
fn two_nodes(b: &mut Browser, folder: &TempDir) -> (f64, f64) {
    let graph = json!({ "phonograph": 1, "graph": {
        "buffers": [{ "name": "x", "bytes": 64 }],
        "nodes": [
            { "name": "fill", "memset": { "dst": { "buffer": "x" }, "value": 0, "width": 64 } },
            { "name": "use", "kernel": { "function": "f", "args": [{ "buffer": "x", "access": "read" }] } },
        ],
    } });
    let file = folder.path().join("two.json");
    std::fs::write(&file, graph.to_string()).unwrap();
    show(b, folder, &file, &[]);
    b.middle()
}

#[test]
fn an_edge_says_why_it_is_there() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let (x, y) = two_nodes(&mut b, &folder);
    let bare = b.picture();
    b.hover(x, y);
    let want = "0 fill → 1 use\ndependency\non the critical path\nthe second reads x, which the first writes";
    assert_eq!(b.text("#tip"), want);
    assert_ne!(b.picture(), bare, "the edge does not light up");
    b.hover(x + 300.0, y);
    assert_eq!(b.value("document.querySelector('#tip').hidden"), true);
    assert_eq!(b.picture(), bare);
    // A click keeps it; the arrow keys go to its ends.
    b.click(x, y);
    assert_eq!(b.text("#details h2"), "Edge");
    assert!(b.text("#details").contains("the second reads x"), "{}", b.text("#details"));
    b.press(&["ArrowUp"]);
    assert_eq!(b.text("#details h2"), "fill");
    b.press(&["Escape"]);
    assert_eq!(b.text("#details h2"), "two.json");
    no_complaints(&b);
}

#[test]
fn fingers_choose_drag_and_zoom() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    b.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": true, "maxTouchPoints": 5 }));
    let (x, y) = two_nodes(&mut b, &folder);
    let small = b.drawn();
    // Two fingers move apart.
    b.touch("touchStart", &[(x - 20.0, y)]);
    b.touch("touchStart", &[(x - 20.0, y), (x + 20.0, y)]);
    for apart in [30.0, 50.0, 70.0] {
        b.touch("touchMove", &[(x - apart, y), (x + apart, y)]);
    }
    b.touch("touchEnd", &[]);
    b.settle();
    let large = b.drawn();
    assert!(large > 4.0 * small, "{small} → {large}");
    assert_eq!(b.text("#details h2"), "two.json", "a pinch is no tap");
    // What was between the fingers still is: a tap chooses the edge.
    b.touch("touchStart", &[(x, y)]);
    b.touch("touchEnd", &[]);
    b.settle();
    assert_eq!(b.text("#details h2"), "Edge");
    // One finger drags.
    let before = b.picture();
    b.touch("touchStart", &[(x, y)]);
    b.touch("touchMove", &[(x + 60.0, y + 30.0)]);
    b.touch("touchMove", &[(x + 120.0, y + 40.0)]);
    b.touch("touchEnd", &[]);
    b.settle();
    assert_ne!(b.picture(), before);
    assert_eq!(b.text("#details h2"), "Edge", "a drag is no tap");
    no_complaints(&b);
}

#[test]
fn a_touch_pad_zooms_and_moves() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let (x, y) = two_nodes(&mut b, &folder);
    let (small, still) = (b.drawn(), b.picture());
    // A pinch comes as a wheel with Ctrl (2).
    for _ in 0..10 {
        let pinch = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -12, "modifiers": 2 });
        b.call("Input.dispatchMouseEvent", pinch);
    }
    b.settle();
    assert!(b.drawn() > 1.5 * small, "{} → {}", small, b.drawn());
    assert_eq!(b.value("visualViewport.scale"), 1, "the page itself is zoomed");
    b.press(&["0"]);
    assert_eq!(b.picture(), still);
    let aside = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 80, "deltaY": 0 });
    b.call("Input.dispatchMouseEvent", aside);
    b.settle();
    assert_ne!(b.picture(), still);
    no_complaints(&b);
}

#[test]
fn nothing_moves_by_itself_for_those_who_prefer_that() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    // Whether the picture right after a key is the one that stays.
    let at_once = "(async () => { const c = document.querySelector('canvas'), frame = () => new Promise(requestAnimationFrame); \
        c.dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true })); await frame(); await frame(); \
        const first = c.toDataURL(); await new Promise(done => setTimeout(done, 400)); await frame(); \
        return c.toDataURL() === first; })()";
    b.prefer("prefers-reduced-motion", "reduce");
    two_nodes(&mut b, &folder);
    assert_eq!(b.value(at_once), true);
    b.prefer("prefers-reduced-motion", "no-preference");
    two_nodes(&mut b, &folder);
    assert_eq!(b.value(at_once), false);
}
