//! How long frames take in large pictures; prints the table of BENCHMARKS.md:
//! `cargo test -p phonograph-cli --test browser -- --ignored --nocapture frames`.

use tempfile::TempDir;

use crate::devtools::Browser;
use crate::{no_complaints, open, phonograph, run};

/// Milliseconds from one frame to the one after the next while the wheel turns, halved: the median and the tenth worst.
fn frames(b: &mut Browser, way: [i32; 2]) -> String {
    let [x, y] = way;
    let measured = b.value(&format!(
        "(async () => {{ const c = document.querySelector('.view:not([hidden]) canvas'), box = c.getBoundingClientRect(), all = []; \
         const frame = () => new Promise(requestAnimationFrame); await frame(); \
         for (let i = 0; i < 60; i++) {{ const begin = performance.now(); \
         c.dispatchEvent(new WheelEvent('wheel', {{ deltaX: {x}, deltaY: {y}, clientX: box.left + box.width / 2, \
         clientY: box.top + box.height / 2, bubbles: true, cancelable: true }})); \
         await frame(); await frame(); all.push((performance.now() - begin) / 2); }} \
         all.sort((a, b) => a - b); return [all[30], all[54]]; }})()"
    ));
    let [median, tenth] = [0, 1].map(|at| measured[at].as_f64().unwrap());
    format!("{median:.0} / {tenth:.0} ms")
}

#[test]
#[ignore = "prints a table, checks nothing"]
fn frames_of_large_pictures() {
    let Some(mut b) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    println!("| picture | zoom in | sideways | zoom out |\n| --- | --- | --- | --- |");
    for (kind, nodes, tabs) in [
        ("wavefront", "5000", &[("graph of 5,000 nodes", 0)][..]),
        (
            "transformer",
            "100000",
            &[("schedule of 100,000 tasks", 1), ("memory of 100,000 buffers", 2)],
        ),
    ] {
        let [graph, page] = ["graph.json", "page.html"].map(|name| folder.path().join(name));
        run(phonograph().args(["generate", kind, "--nodes", nodes, "-o"]).arg(&graph));
        run(phonograph().args(["plan", "--html", "-o"]).arg(&page).arg(&graph));
        open(&mut b, &page);
        for (name, tab) in tabs {
            b.value(&format!("document.querySelectorAll('[role=tab]')[{tab}].click()"));
            b.press(&["0"]);
            let ways = [[0, -30], [40, 0], [0, 30]].map(|way| frames(&mut b, way));
            println!("| {name} | {} |", ways.join(" | "));
        }
    }
    no_complaints(&b);
}
