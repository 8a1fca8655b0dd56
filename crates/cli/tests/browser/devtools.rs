//! Chromium without a window, driven over its DevTools pipe: messages are JSON texts that end with a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser, if this machine has one.
fn program() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|candidate| candidate.is_file())
}

/// A browser with one page.
pub struct Browser {
    process: Child,
    requests: ChildStdin,
    answers: Receiver<Value>,
    session: String,
    last_id: u64,
    /// What the page logged, threw or failed to load.
    pub complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts it; says so and gives nothing where there is none.
    pub fn start() -> Option<Browser> {
        let Some(program) = program() else {
            // Not through a macro: the harness would keep it to itself.
            let mut out = std::io::stderr();
            out.write_all(b"SKIPPED: this machine has no Chromium\n").unwrap();
            return None;
        };
        let profile = TempDir::new().unwrap();
        let mut process = Command::new("sh")
            .arg("-c")
            // The browser reads from descriptor 3 and writes to 4.
            .arg("exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null")
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .arg("--window-size=1366,768")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                // Both ends of the pipe close when the test is over.
                match output.read_until(0, &mut message) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => message.pop(),
                };
                let value = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            process,
            requests,
            answers,
            session: String::new(),
            last_id: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({ "id": self.last_id, "method": method, "params": params });
        if !self.session.is_empty() {
            request["sessionId"] = self.session.clone().into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).unwrap();
        loop {
            let mut answer = self
                .answers
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("no answer to {method}: {error}"));
            if answer["id"] == self.last_id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
            let event = answer["method"].as_str().unwrap_or_default();
            if matches!(
                event,
                "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded"
            ) {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    /// Opens an address and waits until it is drawn.
    pub fn open(&mut self, url: &str) {
        let went = self.call("Page.navigate", json!({ "url": url }));
        assert!(went.get("errorText").is_none(), "{url}: {went}");
        self.until(
            "document.readyState === 'complete' && document.querySelector('[role=tab]') !== null",
        );
        self.settle();
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut found = self.call("Runtime.evaluate", params);
        assert!(found.get("exceptionDetails").is_none(), "{expression}: {found}");
        found["result"]["value"].take()
    }

    /// The text of the first element that a selector names.
    pub fn text(&mut self, selector: &str) -> String {
        let found = self.value(&format!("document.querySelector({selector:?})?.textContent"));
        found.as_str().unwrap_or_else(|| panic!("there is no {selector}")).to_owned()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.value(expression) != true {
            assert!(begin.elapsed() < PATIENCE, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for movements to end and pictures to be drawn.
    pub fn settle(&mut self) {
        self.value(
            "new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(1))), 220))",
        );
    }

    /// Presses keys, by their names.
    pub fn press(&mut self, keys: &[&str]) {
        for key in keys {
            let code = match *key {
                "Enter" => 13,
                "Escape" => 27,
                "ArrowUp" => 38,
                "ArrowDown" => 40,
                "ArrowLeft" => 37,
                "ArrowRight" => 39,
                "Backspace" => 8,
                "Tab" => 9,
                _ => 0,
            };
            let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
            if key.chars().count() == 1 {
                down["text"] = (*key).into();
            } else if *key == "Enter" {
                down["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", down);
            let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", up);
        }
        self.settle();
    }

    /// Types into what has the focus.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
        self.settle();
    }

    /// Clicks at a point of the window.
    pub fn click(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
        self.settle();
    }

    /// Moves the mouse to a point of the window.
    pub fn hover(&mut self, x: f64, y: f64) {
        let event = json!({ "type": "mouseMoved", "x": x, "y": y, "button": "none" });
        self.call("Input.dispatchMouseEvent", event);
        self.settle();
    }

    /// Puts fingers on the window or moves those that are there; none takes all away.
    pub fn touch(&mut self, kind: &str, fingers: &[(f64, f64)]) {
        let points: Vec<Value> = fingers
            .iter()
            .zip(0..)
            .map(|(&(x, y), id)| json!({ "x": x, "y": y, "id": id }))
            .collect();
        let event = json!({ "type": kind, "touchPoints": points });
        self.call("Input.dispatchTouchEvent", event);
    }

    /// What the user prefers, as a media feature.
    pub fn prefer(&mut self, feature: &str, value: &str) {
        let features = json!({ "features": [{ "name": feature, "value": value }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Turns the wheel at a point of the window; a negative way zooms in.
    pub fn wheel(&mut self, x: f64, y: f64, way: f64) {
        let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": way });
        self.call("Input.dispatchMouseEvent", event);
        self.settle();
    }

    /// Drags from one point to another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        for (kind, (x, y)) in [("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
        self.settle();
    }

    /// The middle of the canvas that is shown.
    pub fn middle(&mut self) -> (f64, f64) {
        let place = self.value(
            "(() => { const b = document.querySelector('.view:not([hidden]) canvas').getBoundingClientRect(); \
             return [b.left + b.width / 2, b.top + b.height / 2]; })()",
        );
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    /// The picture on the canvas that is shown, as text.
    pub fn picture(&mut self) -> String {
        self.value("document.querySelector('.view:not([hidden]) canvas').toDataURL()").to_string()
    }

    /// Share of the canvas that is shown that something is drawn on.
    pub fn drawn(&mut self) -> f64 {
        let share = self.value(
            // Reading back from a copy leaves the page's canvas as it is.
            "(() => { const c = document.querySelector('.view:not([hidden]) canvas'); \
             const copy = document.createElement('canvas'); copy.width = c.width; copy.height = c.height; \
             const r = copy.getContext('2d', { willReadFrequently: true }); r.drawImage(c, 0, 0); \
             const d = r.getImageData(0, 0, c.width, c.height).data; let n = 0; \
             for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n * 4 / d.length; })()",
        );
        share.as_f64().unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        if self.process.kill().is_ok() && !std::thread::panicking() {
            self.process.wait().unwrap();
        }
    }
}
