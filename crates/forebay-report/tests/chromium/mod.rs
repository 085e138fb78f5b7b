//! A small client of Chromium's DevTools protocol, over the pipe (`--remote-debugging-pipe`): no port, no socket.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The limit of every wait. Nothing takes as long on a machine that works: tests wait for events, not for time to pass.
const LIMIT: Duration = Duration::from_secs(240);
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser with one page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    next: u64,
    session: String,
    /// What happened on the page, in order.
    pub events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// Starts a browser. `None`, with the reason printed, if none is installed. Panics instead if `CI` is set.
pub fn start() -> Option<Browser> {
    let found = NAMES.iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    });
    if found.is_none() {
        forebay_testkit::skip(&format!(
            "none of {NAMES:?} is installed (scripts/setup.sh test installs Chromium)"
        ));
    }
    found.map(|name| Browser::new(name))
}

impl Browser {
    fn new(program: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // Chromium reads commands from descriptor 3 and writes messages to descriptor 4.
        command.args([
            "-c",
            "exec 3<&0 4>&1 </dev/null >/dev/null; exec \"$@\"",
            "sh",
            program,
        ]);
        command.args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ]);
        // The sandbox refuses to work for root, and inside of most containers.
        command.arg("--no-sandbox");
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.arg("about:blank");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("the protocol is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            commands,
            messages,
            next: 0,
            session: String::new(),
            events: Vec::new(),
            _profile: profile,
        };
        let target =
            browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target, "flatten": true}),
        );
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.window(1366, 768);
        browser
    }

    fn message(&mut self) -> Value {
        match self.messages.recv_timeout(LIMIT) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => panic!("Chromium said nothing for {LIMIT:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("Chromium has ended"),
        }
    }

    /// One command and its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut command = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).unwrap();
        self.commands.flush().unwrap();
        loop {
            let mut message = self.message();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    /// Goes to a file and waits until it is loaded.
    pub fn open(&mut self, page: &Path) {
        self.events.clear();
        self.call(
            "Page.navigate",
            json!({"url": format!("file://{}", page.display())}),
        );
        while !self
            .events
            .iter()
            .any(|event| event["method"] == "Page.loadEventFired")
        {
            let message = self.message();
            self.events.push(message);
        }
    }

    /// The value of a script expression; promises are waited for.
    pub fn eval(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, because the page draws and filters some time after an event.
    pub fn wait_for(&mut self, condition: &str) {
        let frames = format!(
            "new Promise((done, fail) => {{ let left = 2000; const look = () => ({condition}) ? done(true) \
             : left-- > 0 ? setTimeout(look, 20) : fail(new Error('never: ' + {condition:?})); look(); }})"
        );
        self.eval(&frames);
    }

    /// Presses a key, as the keyboard does.
    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            " " => " ",
            _ => "",
        };
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            other => u32::from(other.chars().next().unwrap().to_ascii_uppercase()),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Types into what has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Size of the page's window.
    pub fn window(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// A picture of the window, PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        use base64::Engine as _;
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        base64::engine::general_purpose::STANDARD
            .decode(picture["data"].as_str().unwrap())
            .unwrap()
    }

    /// Console errors, exceptions and violations of the page's policy.
    pub fn troubles(&self) -> Vec<&Value> {
        self.events
            .iter()
            .filter(|event| {
                let params = &event["params"];
                match event["method"].as_str().unwrap_or_default() {
                    "Runtime.exceptionThrown" => true,
                    "Runtime.consoleAPICalled" => {
                        params["type"] == "error" || params["type"] == "warning"
                    }
                    "Log.entryAdded" => params["entry"]["level"] == "error",
                    "Page.javascriptDialogOpening" => true,
                    _ => false,
                }
            })
            .collect()
    }

    /// Addresses that the page asked for.
    pub fn requests(&self) -> Vec<String> {
        self.events
            .iter()
            .filter(|event| event["method"] == "Network.requestWillBeSent")
            .map(|event| {
                event["params"]["request"]["url"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser has replaced the shell, so this ends the browser. Its helpers end when its pipes close.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
