//! The JSON commands of the mover: see [`forebay_admin::drain`].

use forebay_admin::drain::{DrainRequest, Inventory};
use forebay_mover::{Counters, Halt, Pass, Points};
mod runs;

use crate::{AdminHandler, ServerHandle};
use forebay_core::facts::Cred;
use parking_lot::Mutex;
use runs::Runs;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Takes commands, and runs one drain at a time.
pub struct Mover {
    mode: String,
    last: Mutex<Arc<Counters>>,
    runs: Arc<Mutex<Runs>>,
    watch: Once,
    points: Arc<Points>,
}

/// A bridge that nobody has used for so long, although nobody has told it to end, ends: the run that
/// started it was killed.
const UNUSED: Duration = Duration::from_secs(5);
/// Pause between two looks at who uses the bridge.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case")]
enum Command {
    Drain(DrainRequest),
    DrainStatus,
    DrainStop,
    DrainLeft { from: u64 },
    Inventory,
    Attach { pid: u32 },
    Detach { pid: u32 },
    Lifetime { stay: Option<bool> },
}

fn json(answer: impl Serialize) -> Vec<u8> {
    serde_json::to_vec(&answer).unwrap_or_else(error)
}

fn error(text: impl std::fmt::Display) -> Vec<u8> {
    serde_json::json!({ "error": text.to_string() })
        .to_string()
        .into_bytes()
}

impl Mover {
    /// A mover for a bridge that stays until it is told to end, or only as long as runs use it.
    pub fn new(stay: bool, mode: &str) -> Self {
        Mover {
            mode: mode.to_owned(),
            last: Mutex::new(Arc::new(Counters::new(false))),
            runs: Arc::new(Mutex::new(Runs::new(stay))),
            watch: Once::new(),
            points: Arc::new(Points::from_env()),
        }
    }

    /// Starts a drain; one that is at work already is as good.
    fn drain(&self, server: &Arc<ServerHandle>, request: DrainRequest) -> Vec<u8> {
        let mut last = self.last.lock();
        if last.is_running() {
            return json(last.status());
        }
        let counters = Arc::new(Counters::new(true));
        let (theirs, ground, points) = (counters.clone(), server.clone(), self.points.clone());
        let started = std::thread::Builder::new()
            .name("drain".into())
            .spawn(move || {
                let failure = match Pass::new(ground.ground(), &request, &theirs, &points).run() {
                    Ok(()) => None,
                    Err(Halt::Fault(text)) => Some(text),
                    Err(Halt::Cut) => Some("cut short by a test".to_owned()),
                };
                if let Some(text) = &failure {
                    ground.log.line(format_args!("a drain failed: {text}"));
                }
                theirs.end(failure);
            });
        match started {
            Ok(_) => {
                *last = counters;
                json(last.status())
            }
            Err(e) => error(format!("no thread for the drain: {e}")),
        }
    }

    /// Ends the bridge if all who used it were killed. Its data stays for the next one.
    fn watch_over(&self, server: &Arc<ServerHandle>) {
        self.watch.call_once(|| {
            let (server, runs) = (server.clone(), self.runs.clone());
            let log = server.clone();
            let started = std::thread::Builder::new()
                .name("users".into())
                .spawn(move || watch(&server, &runs));
            if let Err(e) = started {
                log.log.line(format_args!(
                    "lives until it is told to end: no thread ({e})"
                ));
            }
        });
    }

    fn attach(&self, pid: u32) -> Vec<u8> {
        let mut runs = self.runs.lock();
        match runs.attach(pid) {
            Ok(Ok(())) => json(runs.users(&self.mode)),
            Ok(Err(e)) => error(format!("process {pid}: {e}")),
            // Who asked looks at `ending`, and starts a bridge of his own.
            Err(runs::Ending) => json(runs.users(&self.mode)),
        }
    }

    fn detach(&self, server: &ServerHandle, pid: u32) -> Vec<u8> {
        let mut runs = self.runs.lock();
        if runs.detach(pid) {
            server.ask_to_stop();
        }
        json(runs.users(&self.mode))
    }
}

/// Waits for the moment in which nobody needs the bridge, without anybody having said so.
fn watch(server: &ServerHandle, runs: &Mutex<Runs>) {
    let mut unused_since = Instant::now();
    while !server.stopping() {
        let holds = runs.lock().holds();
        if !holds.is_empty() {
            forebay_sys::Process::await_any(&holds, LOOK_EVERY);
        } else {
            std::thread::sleep(LOOK_EVERY);
        }
        // Programs of a killed run may go on.
        let is_used = runs.lock().is_needed() || server.clients.count() > 0;
        if is_used {
            unused_since = Instant::now();
        } else if unused_since.elapsed() > UNUSED && runs.lock().end_if_unused() {
            server
                .log
                .line(format_args!("nobody uses the bridge any more: it ends"));
            server.ask_to_stop();
        }
    }
}

/// Takes stock of a bridge.
///
/// # Errors
/// The tables failed.
pub fn take_inventory(server: &ServerHandle) -> Result<Inventory, Halt> {
    forebay_mover::take_inventory(server.ground())
}

impl AdminHandler for Mover {
    fn handle(&self, server: &Arc<ServerHandle>, bytes: &[u8], _cred: &Cred) -> Vec<u8> {
        let command: Command = match serde_json::from_slice(bytes) {
            Ok(command) => command,
            Err(e) => return error(format!("not a command: {e}")),
        };
        self.watch_over(server);
        match command {
            Command::Drain(request) => self.drain(server, request),
            Command::DrainStatus => json(self.last.lock().status()),
            Command::DrainStop => {
                let last = self.last.lock();
                last.stop();
                json(last.status())
            }
            Command::DrainLeft { from } => json(self.last.lock().left_from(from)),
            Command::Inventory => match take_inventory(server) {
                Ok(inventory) => json(inventory),
                Err(e) => error(crate::Error::from(e)),
            },
            Command::Attach { pid } => self.attach(pid),
            Command::Detach { pid } => self.detach(server, pid),
            Command::Lifetime { stay } => {
                let mut runs = self.runs.lock();
                if let Some(stay) = stay {
                    runs.stay = stay;
                }
                json(runs.users(&self.mode))
            }
        }
    }
}
